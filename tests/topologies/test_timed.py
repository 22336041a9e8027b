"""A server that waits, in virtual time: who is merged, how long a round takes, what is recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from toy import Lab, bits, cloud, line, timetable, weight
from wayfare.core.protocols import Policy, Training
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fednova import FedNova
from wayfare.topologies.server import Server

LENIENT = Policy(quorum=0.5)
FOUR = line([4.0], [8.0], [0.0], [2.0])  # one step each: half of the way from 0


def times(rounds):
    return [round.metrics["clock/seconds"] for round in rounds]


def test_a_round_lasts_as_long_as_its_slowest(tmp_path) -> None:
    rounds = Lab(FOUR, FedAvg(), tmp_path, timetable=timetable(1.0, 2.0, 3.0, 10.0)).play(3)
    assert times(rounds) == [10.0, 20.0, 30.0]
    assert [r.metrics["clock/joules"] for r in rounds] == [48.0, 96.0, 144.0]  # 3 W x (1 + 2 + 3 + 10) s
    plain = Lab(FOUR, FedAvg(), tmp_path / "plain").play(3)
    assert [bits(r.state) for r in rounds] == [bits(r.state) for r in plain]  # a clock changes no model
    assert not plain[0].metrics and not plain[0].events and set(plain[0].state.values) == {"population"}


def test_late_replies_are_not_merged(tmp_path) -> None:
    # c3 is late: (2 + 4 + 0) / 3
    lab = Lab(FOUR, FedAvg(), tmp_path, policy=LENIENT, timetable=timetable(1.0, 2.0, 3.0, 10.0, deadline=5.0))
    (round,) = lab.play()
    assert (weight(round.state), times([round]), round.void) == (2.0, [5.0], False)
    assert round.events["clock"] == {"late": ["c3"], "spare": []}
    assert [(r["device"], r["reason"].partition(":")[0]) for r in round.gate.refused] == [("c3", "late")]
    assert round.gate.bytes_down == 4 * 4 and round.gate.bytes_up < 4 * 40  # four messages of one float


def test_too_many_late_ones_make_a_round_void_and_time_goes_on(tmp_path) -> None:
    lab = Lab(FOUR, FedAvg(), tmp_path, policy=LENIENT, timetable=timetable(1.0, 7.0, 7.0, 10.0, deadline=5.0))
    rounds = lab.play(2)
    assert ([r.void for r in rounds], times(rounds), weight(rounds[-1].state)) == ([True, True], [5.0, 10.0], 0.0)


def test_over_selection_takes_the_first(tmp_path) -> None:
    # two are wanted, four are asked, c0 and c1 are first: (2 + 4) / 2
    table = timetable(1.0, 2.0, 3.0, 10.0, over=2.0)
    (round,) = Lab(FOUR, FedAvg(), tmp_path, timetable=table).play(1, Server(2))
    assert (weight(round.state), times([round])) == (3.0, [2.0])
    assert sorted(round.events["clock"]["spare"]) == ["c2", "c3"] and not round.gate.refused
    assert round.metrics["clock/joules"] == 3 * (1 + 2 + 2 + 2)  # the others are stopped after 2 s


def test_devices_do_what_they_can(tmp_path) -> None:
    # lr 0.5, a = 4: 2 after one step, 3 after two, 3.5 after three; c1 has time for one step of three
    toy, table = line([4.0], [4.0]), timetable(1.0, 3.0, steps=3, deadline=4.0, partial=True)
    lab = Lab(toy, FedAvg(), tmp_path / "a", Training(lr=0.5, iterations=3), timetable=table)
    (round,) = lab.play()
    assert (weight(round.state), times([round])) == ((3.5 + 2.0) / 2, [3.0])
    # FedNova: tau_eff = (3 + 1) / 2, w = 2 (3.5 / 3 + 2 / 1) / 2
    nova = Lab(toy, FedNova(), tmp_path / "b", Training(lr=0.5, iterations=3), timetable=table)
    assert weight(nova.play()[0].state) == pytest.approx(3.5 / 3 + 2.0)


def test_nobody_can_be_reached_at_first(tmp_path) -> None:
    windows = {f"c{i}": [(5.0 + i, 100.0)] for i in range(4)}
    rounds = Lab(FOUR, FedAvg(), tmp_path, timetable=timetable(1.0, 1.0, 1.0, 1.0, windows=windows)).play(2)
    assert [sorted(r.gate.clients) for r in rounds] == [["c0"], ["c0", "c1"]] and times(rounds) == [6.0, 7.0]


def test_it_continues_from_any_state(tmp_path) -> None:
    def lab(name):
        table = timetable(1.0, 4.0, 3.0, 10.0, 2.0, deadline=5.0, over=1.5)
        toy = cloud(8, 6, 12, 9, 7)
        return Lab(toy, FedAvg(), tmp_path / name, Training(lr=0.05, batch_size=4), policy=LENIENT, timetable=table)

    whole = lab("whole").play(5, Server(2))
    parts = lab("parts")
    half = parts.play(2, Server(2))
    rest = parts.play(5, Server(2), first=3, state=half[-1].state)
    assert [(bits(r.state), r.state.values) for r in whole] == [(bits(r.state), r.state.values) for r in [*half, *rest]]
    assert replace(Server(2)).expected(parts.federation(None, 1)) == 2
