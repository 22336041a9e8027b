"""FedBuff and FedAsync in virtual time."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest

from toy import Lab, bits, cloud, line, timetable, weight
from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Failure, Policy, Training
from wayfare.core.wrapped_engine import WrappedEngine
from wayfare.engines.local import Local
from wayfare.strategies.fedadam import FedAdam
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedprox import FedProx
from wayfare.strategies.moon import Moon
from wayfare.topologies.asynchronous import Async
from wayfare.topologies.buffered import Buffered
from wayfare.topologies.server import Server

LENIENT = Policy(quorum=0.5)


def shown(rounds):
    """Of each round: the weight, the time, and how stale each reply was."""
    return [
        (weight(r.state), r.metrics["clock/seconds"], r.events["clock"]["staleness"]) for r in rounds
    ]  # fmt: skip


def everyone(rounds):
    return [(bits(r.state), r.state.values, r.metrics, r.gate.clients) for r in rounds]


def test_buffered_by_hand(tmp_path) -> None:
    """Two clients that pull to 4 and to 8, lr 0.5, one step: half of the way. c0 takes 1 s, c1 takes 3 s; buffer 1.

    1 s: c0 brings 0 -> 2, fresh: w = 2.  2 s: c0 brings 2 -> 3: w = 3.
    3 s: both are done. c1, which was sent off first, brings 0 -> 4, two merges old: w = 3 + 4 / sqrt 3.
    3 s: c0 brings 3 -> 3.5, one merge old: + 0.5 / sqrt 2.
    """
    lab = Lab(line([4.0], [8.0]), FedAvg(), tmp_path, timetable=timetable(1.0, 3.0))
    found = shown(lab.play(4, Buffered(buffer=1)))
    third = 3 + 4 / 3**0.5
    assert [(w, t) for w, t, _ in found] == [
        (2.0, 1.0), (3.0, 2.0), (pytest.approx(third), 3.0), (pytest.approx(third + 0.5 / 2**0.5), 3.0),
    ]  # fmt: skip
    assert [ages for _, _, ages in found] == [{"c0": 0}, {"c0": 0}, {"c1": 2}, {"c0": 1}]


def test_a_buffer_of_two_by_hand(tmp_path) -> None:
    """c0, c1 and c2 take 1, 2 and 4 s and pull to 4, 8 and 16; weights by examples, 1, 3 and 1.

    2 s: c0 brings 2, c1 brings 4: w = (2 + 3 x 4) / 4 = 3.5.
    3 s and 4 s: c0 brings 3.5 -> 3.75, fresh; c2 and c1 are done at 4 s, c2 was sent off first: 0 -> 8, one merge old.
    w = 3.5 + (0.25 + 8 / sqrt 2) / 2
    """
    toy = line([4.0], [8.0, 8.0, 8.0], [16.0])
    lab = Lab(toy, FedAvg(), tmp_path, timetable=timetable(1.0, 2.0, 4.0))
    found = shown(lab.play(2, Buffered(buffer=2)))
    assert found[0] == (3.5, 2.0, {"c0": 0, "c1": 0})
    assert found[1] == (pytest.approx(3.5 + (0.25 + 8 / 2**0.5) / 2), 4.0, {"c0": 0, "c2": 1})


def test_async_by_hand(tmp_path) -> None:
    """alpha 0.5, as in the first test: 0 -> 1 (half of 2), then c0 brings 2.5: 1.75; c1 brings 4, two merges old."""
    lab = Lab(line([4.0], [8.0]), FedAvg(), tmp_path, timetable=timetable(1.0, 3.0))
    found = shown(lab.play(3, Async(alpha=0.5)))
    share = 0.5 / 3**0.5
    assert [(w, t) for w, t, _ in found] == [(1.0, 1.0), (1.75, 2.0), (pytest.approx(1.75 + share * (4 - 1.75)), 3.0)]


def test_weights_of_stale_replies() -> None:
    assert Buffered().weight(0) == 1.0 and Buffered().weight(3) == 0.5  # 1 / sqrt(1 + 3)
    assert Buffered(a=1.0).weight(3) == 0.25
    hinge = Buffered(staleness="hinge", a=10.0, b=4.0)  # 1 / (10 (6 - 4) + 1)
    assert [hinge.weight(t) for t in (0, 4, 6)] == [1.0, 1.0, 1 / 21]
    assert Buffered(staleness="constant").weight(50) == 1.0
    assert Async(alpha=0.6, a=0.5).weight(3) == 0.3


@pytest.mark.parametrize("strategy", [FedAvg(), FedAdam(), FedProx(), Moon()], ids=lambda s: type(s).__name__)
def test_without_staleness_it_is_a_server(strategy, tmp_path) -> None:
    """A buffer as large as the cohort and devices that are alike: the bits of FedAvg."""
    training, toy = Training(lr=0.05, batch_size=4), cloud(8, 8, 8, 8, 8, 8)
    server = Lab(toy, strategy, tmp_path / "server", training).play(4, Server(3))
    lab = Lab(toy, strategy, tmp_path / "buffered", training, timetable=timetable(*[2.0] * 6))
    rounds = lab.play(4, Buffered(concurrency=3, buffer=3))
    assert [bits(r.state) for r in rounds] == [bits(r.state) for r in server]
    assert [r.gate.clients for r in rounds] == [r.gate.clients for r in server]
    assert [r.metrics["clock/staleness"] for r in rounds] == [0.0] * 4


MANY = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 7.0, 20.0]


def mixed_lab(path, engine=None, **settings):
    training, toy = Training(lr=0.05, batch_size=4), cloud(8, 6, 12, 9, 7, 5, 10, 8)
    table = timetable(*MANY, **settings)
    return Lab(toy, Moon(), path, training, policy=LENIENT, timetable=table, engine=engine)


@pytest.mark.parametrize("topology", [Buffered(concurrency=5, buffer=3), Async(), Buffered(buffer=2)], ids=str)
@pytest.mark.parametrize("settings", [{}, {"deadline": 6.0, "steps": 2, "partial": True}], ids=["free", "deadline"])
def test_it_continues_from_any_state(topology, settings, tmp_path) -> None:
    whole = mixed_lab(tmp_path / "whole", **settings).play(7, topology)
    lab = mixed_lab(tmp_path / "parts", **settings)
    half = lab.play(3, topology)
    stored = Bundle.unpack(half[-1].state.pack())  # as a checkpoint has it
    rest = lab.play(7, topology, first=4, state=stored)
    assert everyone(whole) == everyone([*half, *rest])
    assert max(r.metrics["clock/staleness"] for r in whole) > 0  # or this would show nothing


class Shuffled(WrappedEngine):
    """Gets the devices done in another order, and answers in the order asked."""

    def __init__(self, inner: Local, seed: int) -> None:
        super().__init__(inner)
        self.dice, self.orders = random.Random(seed), set[tuple[str, ...]]()

    def train(self, requests: Iterable[tuple[str, Bundle]], deadline: float) -> Iterator[tuple[str, Bundle | Failure]]:
        asked = list(requests)
        order = self.dice.sample(asked, len(asked))
        self.orders.add(tuple(id for id, _ in order))
        found = dict(self.inner.call("train", order, deadline))
        return iter([(id, found[id]) for id, _ in asked])


@pytest.mark.parametrize(
    ("topology", "count"), [(Server(), 40), (Buffered(concurrency=5, buffer=4), 200)], ids=["server", "buffered"]
)
def test_one_result_for_any_order(topology, count, tmp_path) -> None:
    results, orders = set(), set()
    for seed in range(count):
        lab = mixed_lab(tmp_path / str(seed), deadline=15.0)
        with Local() as local:
            local.open("", "", lambda lab=lab: lab.bench)
            lab.engine = engine = Shuffled(local, seed)
            results.add(repr(everyone(lab.play(2, topology))))
        orders |= engine.orders
    assert len(results) == 1 and len(orders) > 30


def test_late_devices_make_room_and_cost_their_message(tmp_path) -> None:
    # c1 never gets done within 2 s; c0 does, again and again
    lab = Lab(line([4.0], [8.0]), FedAvg(), tmp_path, policy=LENIENT, timetable=timetable(1.0, 9.0, deadline=2.5))
    rounds = lab.play(3, Buffered(buffer=1))
    assert [r.gate.clients for r in rounds] == [["c0"]] * 3
    assert [r.events["clock"]["late"] for r in rounds] == [[], [], ["c1"]]
    assert rounds[2].gate.refused[0]["reason"].startswith("late:") and rounds[2].gate.bytes_down == 8


def test_a_round_in_which_nobody_gets_done_is_void(tmp_path) -> None:
    lab = Lab(line([4.0], [8.0]), FedAvg(), tmp_path, policy=LENIENT, timetable=timetable(5.0, 9.0, deadline=2.0))
    rounds = lab.play(2, Buffered(buffer=1))
    assert [(r.void, r.metrics["clock/seconds"], weight(r.state)) for r in rounds] == [
        (True, 2.0, 0.0),
        (True, 4.0, 0.0),
    ]


def test_nobody_under_way_until_somebody_can_be_reached(tmp_path) -> None:
    windows = {"c0": [(5.0, 6.5), (10.0, 99.0)], "c1": [(7.0, 99.0)]}
    lab = Lab(line([4.0], [8.0]), FedAvg(), tmp_path, timetable=timetable(1.0, 1.0, windows=windows))
    rounds = lab.play(3, Buffered(buffer=1))
    # c0 from 5 to 6; again at 6, half a second of it, the rest from 10 on; c1 from 7 to 8
    assert [(r.gate.clients, r.metrics["clock/seconds"]) for r in rounds] == [
        (["c0"], 6.0),
        (["c1"], 8.0),
        (["c1"], 9.0),
    ]


def test_what_cannot_be() -> None:
    for topology, said in (
        (Buffered(buffer=4), "topology.buffer = 4"),
        (Async(concurrency=4), "topology.concurrency = 4"),
    ):
        with pytest.raises(ConfigError, match=f"{said}, but 3 clients"):
            topology.check(3)
    for settings in ({"buffer": 0}, {"a": -1.0}, {"concurrency": -1}):
        with pytest.raises(ConfigError, match="out of range"):
            Buffered(**settings)
    with pytest.raises(ConfigError, match="out of range"):
        Async(alpha=0.0)
