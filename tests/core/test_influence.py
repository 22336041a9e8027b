"""How much one device may move a round, by hand; and merges that fail."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from toy import Lab, line, reply, scalar, weight
from wayfare.core.bundle import Bundle, digest
from wayfare.core.errors import ConfigError, MergeError, QuorumError
from wayfare.core.gate import Gate
from wayfare.core.influence import LEAST_HELD, MOST_HELD, bounds_of, norm, upper_quartile
from wayfare.core.protocols import Engine, Policy
from wayfare.engines.local import Local
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.scaffold import Scaffold


@dataclass
class Answers(Engine):
    """An engine whose devices always answer this."""

    replies: dict[str, Bundle]
    asked: int = 0

    def call(self, program: str, requests: Any, deadline: float) -> Iterator[tuple[str, Bundle]]:
        for device, _ in requests:
            self.asked += 1
            yield device, self.replies[device]


def answer(value: float, running: float | None = None, **sections: float) -> Bundle:
    """A reply of one weight, and maybe of a running mean."""
    found = reply(value, 1, **sections)
    more = {} if running is None else {"norm.running_mean": torch.tensor([running])}
    return Bundle({**found.tensors, "model": {**found["model"], **more}}, {"n": 1, "round": 1, "loss": 0.0})


def merged(strategy: Any, replies: dict[str, Bundle], state: Bundle, **policy: Any) -> tuple[Bundle, Gate]:
    gate = Gate(Answers(replies), Policy(**{"max_ratio": 3.0, **policy}), 1, lambda device: 5)
    return gate.merge(strategy, state, lambda: ((id, strategy.send(state, id)) for id in replies)), gate


# ---- the bound


@pytest.mark.parametrize(
    ("lengths", "found"),
    [([1, 2, 3], 2), ([3, 1, 2], 2), ([1, 2, 3, 4], 3), ([1, 2, 3, 4, 5], 4), (list(range(1, 11)), 7), ([7, 7], 7)],
)
def test_the_upper_quartile_is_one_of_the_lengths(lengths: list[float], found: float) -> None:
    assert upper_quartile(lengths) == found


def test_bounds_by_hand() -> None:
    model, control = ("model", ""), ("control", "")
    found = bounds_of([{model: 1.0, control: 0.0}, {model: 2.0, control: 5.0}, {model: 90.0, control: 5.0}], 3)
    assert found == {model: 6.0}  # of the control only two say anything


def test_a_long_change_is_shortened_by_hand() -> None:
    """From 10: changes of 1, -2, 2 and 50. The upper quartile is 2, the bound 3 * 2 = 6: the last becomes 16."""
    state = reply(10.0)
    replies = {id: answer(value) for id, value in zip("abcd", (11.0, 8.0, 12.0, 60.0))}
    after, gate = merged(FedAvg(), replies, state)
    assert weight(after) == (11 + 8 + 12 + 16) / 4
    assert gate.shortened == [{"device": "d", "part": "model", "length": 50.0, "bound": 6.0}]
    assert gate.refused == [] and gate.clients == list("abcd")
    assert weight(merged(FedAvg(), replies, state, max_ratio=0)[0]) == (11 + 8 + 12 + 60) / 4
    assert weight(merged(FedAvg(), replies, state, max_ratio=10)[0]) == (11 + 8 + 12 + 30) / 4


def test_other_sections_are_shortened_towards_zero() -> None:
    """Controls 1, 2, 2 and 40: the bound is 6, and (1 + 2 + 2 + 6) / 4 clients = 2.75 is added."""
    state = Bundle({name: scalar(0) for name in ("model", "control", "gain")}, {"population": 4})
    replies = {id: answer(1.0, control=value) for id, value in zip("abcd", (1.0, 2.0, 2.0, 40.0))}
    after, gate = merged(Scaffold(), replies, state)
    assert weight(after, "control") == 2.75 and weight(after) == 1.0
    assert [note["part"] for note in gate.shortened] == ["control"]


def test_running_statistics_do_not_hide_a_change_of_the_weights() -> None:
    """Everybody's running mean moves by 90; the weight of d by 40 among changes of 1: it becomes 3."""
    state = Bundle({"model": answer(0.0, 0.0)["model"]})
    replies = {id: answer(value, 90.0) for id, value in zip("abcd", (1.0, 1.0, 1.0, 40.0))}
    after, gate = merged(FedAvg(), replies, state)
    assert weight(after) == (1 + 1 + 1 + 3) / 4 and float(after["model"]["norm.running_mean"]) == 90
    assert [note["part"] for note in gate.shortened] == ["model"]


@pytest.mark.parametrize("values", [(1.0, 100.0), (0.0, 0.0, 100.0), (0.0, 0.0, 1.0, 100.0)])
def test_among_fewer_than_three_nobody_can_tell_who_lies(values: tuple[float, ...]) -> None:
    """Nor does a change of nothing count, or many such would shorten everybody's."""
    replies = {f"d{i}": answer(value) for i, value in enumerate(values)}
    after, gate = merged(FedAvg(), replies, reply(0.0))
    assert gate.shortened == [] and weight(after) == pytest.approx(sum(values) / len(values))


def test_the_order_does_not_matter_and_nothing_honest_is_touched() -> None:
    made = torch.Generator().manual_seed(1)
    state = Bundle({"model": {"w": torch.randn(8, 3, 3, 3, generator=made)}})
    replies = {
        f"d{i}": Bundle({"model": {"w": state["model"]["w"] + torch.randn(8, 3, 3, 3, generator=made)}},
                        {"n": 1, "round": 1}) for i in range(6)
    }  # fmt: skip
    assert merged(FedAvg(), replies, state)[1].shortened == []
    assert digest(merged(FedAvg(), replies, state)[0]["model"]) == digest(
        merged(FedAvg(), replies, state, max_ratio=0)[0]["model"]
    )
    long = {"w": state["model"]["w"] + 9 * torch.randn(8, 3, 3, 3, generator=made)}
    poisoned = {**replies, "evil": Bundle({"model": long}, {"n": 1, "round": 1})}
    as_rows = {"w": long["w"].to(memory_format=torch.channels_last)}  # as another engine may deliver it
    turned = {**replies, "evil": Bundle({"model": as_rows}, {"n": 1, "round": 1})}
    bounds = [merged(FedAvg(), found, state)[1].shortened for found in (poisoned, turned)]
    assert bounds[0] == bounds[1] and len(bounds[0]) == 1
    backward = dict(reversed(poisoned.items()))
    assert merged(FedAvg(), backward, state)[1].shortened == bounds[0]


def test_later_replies_are_measured_by_the_first_ones() -> None:
    replies = {f"d{i}": answer(1.0) for i in range(MOST_HELD + 5)} | {"evil": answer(50.0)}
    after, gate = merged(FedAvg(), replies, reply(0.0))
    assert [note["device"] for note in gate.shortened] == ["evil"]
    assert weight(after) == pytest.approx((MOST_HELD + 5 + 3) / (MOST_HELD + 6), abs=1e-6)


def test_few_large_replies_wait() -> None:
    """32 MB are reached with the first: five are held, never more."""
    big = torch.zeros(2**23 + 1)
    state, held = Bundle({"model": {"w": big}}), []

    class Counting(Engine):
        def call(self, program: str, requests: Any, deadline: float) -> Iterator[tuple[str, Bundle]]:
            for number, (device, _) in enumerate(requests):
                held.append(number)
                yield device, Bundle({"model": {"w": big}}, {"n": 1, "round": 1})

    gate = Gate(Counting(), Policy(), 1, lambda device: 5)
    requests = ((f"d{i}", FedAvg().send(state, "")) for i in range(8))
    next(gate.ask("train", requests, FedAvg().expects(state)))
    assert len(held) == LEAST_HELD


def test_a_norm_is_float64_of_any_layout() -> None:
    tensor = torch.randn(4, 8, 5, 5, generator=torch.Generator().manual_seed(0))
    assert norm(tensor) == norm(tensor.to(memory_format=torch.channels_last))
    assert norm(torch.tensor([3.0, 4.0])) == 5 and norm(torch.empty(0)) == 0
    assert norm(torch.tensor([3e38, 3e38])) == pytest.approx(3e38 * math.sqrt(2))


# ---- a whole toy run: shortening is the same after an interruption


@dataclass
class Poisoned(Local):
    """c9 sends a change of 50."""

    def __post_init__(self) -> None:
        super().__init__()

    def call(self, program: str, requests: Any, deadline: float) -> Iterator[Any]:
        for device, found in super().call(program, requests, deadline):
            yield device, found.with_(model=scalar(50.0)) if device == "c9" else found


def test_a_run_that_was_interrupted_is_shortened_the_same(tmp_path: Path) -> None:
    toy, policy = line(*[[float(i)] for i in range(1, 11)]), Policy(max_ratio=3.0)

    def lab(name: str) -> Lab:
        made = Lab(toy, FedAvg(), tmp_path / name, policy=policy, engine=Poisoned())
        made.engine.open("", "", lambda: made.bench)
        return made

    whole = lab("whole").play(3)
    parts = lab("parts")
    first = parts.play(1)[-1]
    assert [len(r.gate.shortened) for r in whole] == [1, 1, 1]
    assert weight(parts.play(3, first=2, state=first.state)[-1].state) == weight(whole[-1].state)


# ---- merges that fail


class Picky(FedAvg):
    """Fails on a weight of 7, at once; on one of 13, after the last reply; on two of 21 in one round."""

    def merge(self, state: Bundle, replies: Any) -> Bundle:
        seen: list[float] = []

        def watched() -> Iterator[tuple[str, Bundle]]:
            for device, found in replies:
                seen.append(weight(found))
                if seen[-1] == 7:
                    raise TypeError("seven")
                yield device, found

        model = self.average(watched())
        if 13 in seen:
            raise ZeroDivisionError("thirteen")
        if seen.count(21) > 1:
            raise KeyError("two of them")
        return state.with_(model=model)


@pytest.mark.parametrize(
    ("bad", "reason"), [(7, "merge: TypeError: seven"), (13, "merge: ZeroDivisionError: thirteen")]
)
def test_a_merge_that_fails_costs_the_device_that_made_it_fail(bad: float, reason: str) -> None:
    replies = {"a": answer(1), "b": answer(bad), "c": answer(3), "d": answer(8)}
    after, gate = merged(Picky(), replies, reply(0.0))
    assert weight(after) == 4
    assert gate.refused == [{"device": "b", "reason": reason}]
    assert gate.clients == ["a", "c", "d"] and gate.examples == 3 and len(gate.losses) == 3
    assert gate.engine.asked == 8  # once more, each device


def test_a_merge_that_nobody_alone_makes_fail_voids_the_round(tmp_path: Path) -> None:
    replies = {"a": answer(21), "b": answer(21), "c": answer(20)}
    with pytest.raises(MergeError, match=r"round 1: Picky.merge failed: KeyError: 'two of them'\. No single") as told:
        merged(Picky(), replies, reply(0.0))
    assert isinstance(told.value.__cause__, KeyError) and "in merge" in told.value.detail


def test_too_few_left_tells_the_true_error() -> None:
    replies = {"a": answer(7), "b": answer(7), "c": answer(1)}
    with pytest.raises(MergeError, match="TypeError: seven"):
        merged(Picky(), replies, reply(0.0))


def test_a_merge_that_fails_is_raised_at_once_if_so_wished() -> None:
    engine = {"a": answer(7), "b": answer(1)}
    with pytest.raises(MergeError, match="TypeError: seven"):
        merged(Picky(), engine, reply(0.0), on_error="raise")


def test_what_fails_on_the_way_is_no_fault_of_the_merge() -> None:
    """Nor is a fault of the experiment."""
    with pytest.raises(QuorumError, match="1 usable replies of 3"):
        merged(Picky(), {"a": answer(1), "b": answer(math.nan), "c": answer(math.nan)}, reply(0.0))

    class Wrong(FedAvg):
        def merge(self, state: Bundle, replies: Any) -> Bundle:
            raise ConfigError("no such setting")

    with pytest.raises(ConfigError, match="no such setting"):
        merged(Wrong(), {"a": answer(1)}, reply(0.0))
