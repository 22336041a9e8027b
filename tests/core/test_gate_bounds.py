"""The gate's bounds by hand: the last value that is admitted and the first that is not, and what a round leaves."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from toy import reply, scalar, weight
from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError, MergeError, QuorumError
from wayfare.core.gate import Gate, Refusal, admit, merged
from wayfare.core.protocols import Engine, Failure, Policy
from wayfare.core.values import ANY_METRIC, Kind, Text, metric_values
from wayfare.strategies.fedavg import FedAvg

MODEL = {"model": scalar(0)}


class Answers(Engine):
    """An engine that takes every question and then gives these answers; it notes deadlines and that it was closed."""

    def __init__(self, **answers: Any) -> None:
        self.answers, self.deadlines, self.closed = answers, list[float](), 0

    def call(self, program: str, requests: Any, deadline: float) -> Iterator[Any]:
        self.deadlines.append(deadline)
        try:
            list(requests)
            yield from self.answers.items()
        finally:
            self.closed += 1


def answer(value: float = 1.0, **values: Any) -> Bundle:
    return Bundle({"model": scalar(value)}, {"n": 1, "round": 1, "loss": 2.0} | values)


def gate_of(policy: Policy = Policy(), **answers: Any) -> Gate:  # noqa: B008
    return Gate(Answers(**answers), policy, 1, lambda device: 5)  # type: ignore[arg-type]


def asked(*devices: str) -> list[tuple[str, Bundle]]:
    return [(device, Bundle(MODEL)) for device in devices]


def told(found: Bundle, values: dict[str, Kind] | None = None, policy: Policy = Policy()) -> str:  # noqa: B008
    """Why a reply is refused, "" if it is admitted; its tensors are as expected, and nothing was sent."""
    try:
        admit(found, found.tensors, {}, policy, round=1, examples=5, values=values or {})
    except Refusal as refusal:
        return str(refusal)
    return ""


# ---- values


def test_the_largest_number_of_64_bits() -> None:
    assert told(answer(steps=2**63 - 1)) == f"values: steps is {2**63 - 1}, expected an integer from 0 to 1e+07"
    assert told(answer(steps=2**63)) == told(answer(steps=-(2**63))) == "values: steps is a number of 64 bits"


def test_the_bounds_of_common_values() -> None:
    assert told(answer(steps=0)) == "" == told(answer(steps=10**7))
    assert told(answer(steps=-1)) == "values: steps is -1, expected an integer from 0 to 1e+07"
    assert told(answer(kept=False, cold=False)) == ""


def test_the_bounds_of_the_number_of_values() -> None:
    declared: dict[str, Kind] = dict(metric_values(ANY_METRIC)) | {f"v{i}": Text(3) for i in range(8)}
    most = 100 + 4 + len(declared) + 2  # metrics, common values, declared ones, n and round
    metrics = {f"metric/{i}": 0.5 for i in range(most - 3)}
    assert told(answer(**metrics), declared) == ""
    assert told(answer(**metrics, v0="a"), declared) == f"values: {most + 1} of them, at most {most} are accepted"


def test_names_are_cut_after_80_letters() -> None:
    for length, shown in ((80, "x" * 80), (81, "x" * 79 + "…")):
        name = "x" * length
        assert told(answer(**{name: math.inf})) == f"not finite: value {shown} is inf"
        assert told(answer(**{name: 2**63})) == f"values: {shown} is a number of 64 bits"
        with pytest.raises(Refusal) as refusal:
            admit(Bundle({name: {}}), {}, {}, Policy(), round=1, examples=1)
        assert str(refusal.value) == f"sections: ['{shown}'] instead of []"


def test_three_names_are_enough() -> None:
    with pytest.raises(Refusal) as refusal:
        admit(Bundle({name: {} for name in "dcba"}), {}, {}, Policy(), round=1, examples=1)
    assert str(refusal.value) == "sections: ['a', 'b', 'c'] instead of []"


@pytest.mark.parametrize("length", [499, 500, 501])
def test_reasons_have_500_letters(length: int) -> None:
    gate = gate_of(a=Failure("y" * (length - len("failed: "))))
    assert list(gate.run("train", asked("a"), MODEL)) == []
    (refused,) = gate.refused
    assert len(refused["reason"]) == min(length, 500) and refused["reason"].endswith("…" if length > 500 else "y")
    gate = gate_of(a=Failure("y" * length))
    with pytest.raises(QuorumError):
        list(gate.ask("train", asked("a"), MODEL))
    assert str(gate.failure).count("y") == (length if length <= 500 else 499)


# ---- tensors


def tally(right: int, total: int) -> Bundle:
    return Bundle({"tally": {"right": torch.tensor([right]), "total": torch.tensor([total])}}, {"n": 1, "round": 1})


def test_the_bounds_of_a_tally() -> None:
    assert told(tally(0, 0)) == told(tally(10**12, 10**12)) == ""
    refused = "tally: right answers must be from 0 to all answers, and these at most 1000000000000"
    assert told(tally(0, 10**12 + 1)) == told(tally(-1, 0)) == told(tally(1, 0)) == refused


def test_the_bounds_of_a_variance() -> None:
    for value, reason in ((0.0, ""), (-1e-6, "range: model/bn.running_var is a variance, and negative")):
        named = {"bn.running_var": torch.tensor([1.0, value])}
        assert told(Bundle({"model": named}, {"n": 1, "round": 1})) == reason


def test_the_norm_of_a_section_that_was_not_sent() -> None:
    for value, reason in ((5.0, ""), (5.001, "norm: control has norm 5.001, the bound is 5")):
        found = Bundle({"control": scalar(value)}, {"n": 1, "round": 1})
        assert told(found, policy=Policy(max_norm=5.0)) == reason


def test_a_change_that_is_too_large_to_compute() -> None:
    largest = torch.finfo(torch.float32).max
    with pytest.raises(Refusal, match="norm: model is too large to compute"):
        admit(answer(largest), MODEL, {"model": scalar(-largest)}, Policy(), round=1, examples=1)


def test_lengths_are_those_of_changes_and_not_of_counts() -> None:
    found = Bundle(
        {
            "model": {"a": torch.tensor([3.0]), "b": torch.tensor([5.0]), "bn.running_mean": torch.tensor([7.0])},
            "tally": tally(1, 2)["tally"],
        },
        {"n": 1, "round": 1},
    )
    sent = {"model": {"a": torch.zeros(1), "b": torch.ones(1), "bn.running_mean": torch.ones(1)}}
    lengths = admit(found, found.tensors, sent, Policy(), round=1, examples=1)
    assert lengths == {("model", ""): 5.0, ("model", "running"): 6.0}  # 3 and 4 make 5


# ---- examples


def test_without_a_size_no_example_is_accepted() -> None:
    gate = Gate(Answers(a=answer()), Policy(), 1)  # type: ignore[arg-type]
    assert list(gate.run("train", asked("a"), MODEL)) == []
    reason = "examples: n = 1, but at most 0 are accepted from this device"
    assert gate.refused == [{"device": "a", "reason": reason}]


def test_the_round_is_a_number() -> None:
    assert told(answer(round=True)) == "stale: the reply is of round True, this is round 1"
    assert told(answer(n=True)).startswith("examples: n = True")
    assert told(answer(n=0)).startswith("examples: n = 0")
    assert told(answer(n=5)) == "" and told(answer(n=6)).startswith("examples: n = 6")


# ---- a round


def test_the_deadline_is_in_the_future() -> None:
    gate = gate_of(Policy(deadline=100.0), a=answer())
    began = time.monotonic()
    assert len(list(gate.run("train", asked("a"), MODEL))) == 1
    assert began + 100 <= gate.engine.deadlines[0] <= time.monotonic() + 100  # type: ignore[attr-defined]


def test_a_round_begins_with_nothing_counted() -> None:
    gate = gate_of()
    assert (gate.examples, gate.loss, gate.bytes_up, gate.bytes_down) == (0, 0.0, 0, 0)
    assert gate.group == "" and gate.failure is None


def test_nobody_asked_is_no_failure_of_everybody() -> None:
    gate = gate_of()
    assert list(gate.run("train", [], MODEL)) == []
    assert gate.failure is None


def test_flags_that_are_false_are_not_counted() -> None:
    gate = gate_of(a=answer(cold=True, kept=False), b=answer(cold=False, kept=True))
    assert len(list(gate.ask("train", asked("a", "b"), MODEL))) == 2
    assert (gate.cold, gate.kept) == (["a"], ["b"])


def test_a_change_that_is_shortened_is_recorded_with_its_group() -> None:
    gate = gate_of(Policy(max_ratio=2.0), a=answer(1), b=answer(1), c=answer(1), d=answer(9))
    gate.group = "3"
    found = {device: float(reply["model"]["weight"]) for device, reply in gate.ask("train", asked(*"abcd"), MODEL)}
    assert found == {"a": 1, "b": 1, "c": 1, "d": 2}
    assert gate.shortened == [{"device": "d", "part": "model", "length": 9.0, "bound": 2.0, "group": "3"}]


# ---- merges that fail


class Picky(FedAvg):
    """Refuses a weight of 7 as soon as it sees it, and two weights of 21."""

    def merge(self, state: Bundle, replies: Any) -> Bundle:
        seen = []
        for device, found in replies:
            seen.append((device, found))
            if weight(found) == 7:
                raise TypeError("seven")
        if sum(weight(found) == 21 for _, found in seen) > 1:
            raise KeyError("two")
        return state.with_(model=self.average(iter(seen)))


def test_a_failed_merge_is_done_again_without_who_made_it_fail() -> None:
    gate = gate_of(a=answer(1, cold=True), b=answer(7, kept=True), c=answer(3, kept=True))
    after = gate.merge(Picky(), reply(0.0), lambda: asked(*"abc"))
    assert weight(after) == 2
    assert gate.refused == [{"device": "b", "reason": "merge: TypeError: seven"}]
    assert (gate.clients, gate.examples, gate.loss, gate.losses) == (["a", "c"], 2, 4.0, [2.0, 2.0])
    assert (gate.cold, gate.kept) == (["a"], ["c"]) and gate.failure is None
    assert gate.engine.closed == 2  # type: ignore[attr-defined]


def test_a_merge_that_nobody_alone_makes_fail_is_kept_as_the_failure() -> None:
    gate = gate_of(a=answer(21), b=answer(21))
    with pytest.raises(MergeError, match="KeyError: 'two'") as raised:
        gate.merge(Picky(), reply(0.0), lambda: asked("a", "b"))
    assert gate.failure is raised.value
    assert len(gate.engine.deadlines) == 2  # type: ignore[attr-defined]


def test_a_failed_merge_is_raised_at_once_if_so_wished_and_the_engine_is_closed() -> None:
    gate = gate_of(Policy(on_error="raise"), a=answer(7), b=answer(1))
    with pytest.raises(MergeError, match="TypeError: seven") as raised:
        gate.merge(Picky(), reply(0.0), lambda: asked("a", "b"))
    assert gate.engine.closed == len(gate.engine.deadlines) == 1  # type: ignore[attr-defined]
    assert isinstance(raised.value.__cause__, TypeError) and gate.failure is None


def test_faults_that_are_not_of_the_merge_are_raised_as_they_are() -> None:
    class Broken(FedAvg):
        def merge(self, state: Bundle, replies: Any) -> Bundle:
            raise ConfigError("no such setting")

    with pytest.raises(ConfigError, match="no such setting"):
        gate_of(a=answer()).merge(Broken(), reply(0.0), lambda: asked("a"))
    with pytest.raises(ConfigError, match="no such setting"):
        merged(Broken(), reply(0.0), [])
    with pytest.raises(QuorumError, match="0 usable replies of 1 asked"):
        gate_of(a=answer(math.nan)).merge(FedAvg(), reply(0.0), lambda: asked("a"))
    with pytest.raises(Refusal, match="merge: TypeError: seven"):
        merged(Picky(), reply(0.0), [("a", answer(7))])


def test_nobody_is_asked_any_more_when_a_merge_has_failed() -> None:
    class Hasty(FedAvg):
        def merge(self, state: Bundle, replies: Any) -> Bundle:
            next(replies)
            raise ZeroDivisionError

    gate = gate_of(Policy(on_error="raise", max_ratio=0), a=answer(), b=answer())
    with pytest.raises(MergeError) as caught:
        gate.merge(Hasty(), reply(0.0), lambda: iter(asked("a", "b")))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)  # it holds all frames, and the replies in them
    assert gate.engine.closed == 1  # type: ignore[attr-defined]
