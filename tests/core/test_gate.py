"""The admission gate: whatever arrives, the result is that of the honest replies alone, to the last bit.

The kinds of malformed updates are those of benchmarks/gate.py, which sends 100,000 of them.
"""

from __future__ import annotations

import importlib.util
import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from toy import bits, reply, scalar, weight
from wayfare.core.bundle import Bundle
from wayfare.core.errors import DeviceError, QuorumError
from wayfare.core.gate import Gate, Refusal, admit
from wayfare.core.protocols import Engine, Failure, Policy
from wayfare.core.values import ANY_METRIC, Number, Text, metric_values
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedavgm import FedAvgM


def _benchmark():
    path = Path(__file__).parents[2] / "benchmarks" / "gate.py"
    spec = importlib.util.spec_from_file_location("benchmark_gate", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


gate = _benchmark()
NOTHING: dict[str, Number] = {}
CODES = {
    "sections", "names", "shape", "type", "not finite", "norm", "range", "examples", "values", "stale", "duplicate",
}  # fmt: skip


# ---- malformed updates


def test_there_are_enough_kinds() -> None:
    assert len(gate.KINDS) >= 30
    assert {kind.code for kind in gate.KINDS.values()} == CODES


@pytest.mark.parametrize("kind", list(gate.KINDS))
def test_every_kind_is_refused_under_its_code_and_changes_no_bit(kind) -> None:
    large = gate.KINDS[kind].large
    for name, strategy in gate.STRATEGIES.items():
        if kind not in gate.kinds_for(name, large):
            continue
        case = gate.prepare(strategy, large, [kind], honest=2, rng=random.Random(kind + name))
        outcome = gate.play(strategy, gate.start(strategy, large), case)
        assert not outcome.lost
        ((device, _),) = case.bad
        assert [r["device"] for r in outcome.refused] == [device]
        assert outcome.refused[0]["reason"].startswith(gate.KINDS[kind].code + ": ")
        assert outcome.same_bits and outcome.same_order


@st.composite
def rounds(draw):
    name = draw(st.sampled_from(list(gate.STRATEGIES)))
    kinds = draw(st.lists(st.sampled_from(gate.kinds_for(name)), max_size=12))
    case = gate.prepare(
        gate.STRATEGIES[name], False, kinds, draw(st.integers(1, 5)), random.Random(draw(st.integers(0, 2**32)))
    )  # fmt: skip
    return gate.STRATEGIES[name], case


@settings(max_examples=400, deadline=None, database=None)
@given(rounds())
def test_bad_among_honest_is_honest_alone(drawn) -> None:
    """The differential property: any mixture, in any order, for each of three strategies."""
    strategy, case = drawn
    outcome = gate.play(strategy, gate.start(strategy), case)
    assert not outcome.lost
    assert outcome.same_bits
    assert outcome.same_order  # the honest ones reach the strategy in the order asked
    told = [(r["device"], r["reason"].partition(":")[0]) for r in outcome.refused]
    assert told == [(device, gate.KINDS[kind].code) for device, kind in case.bad]


@settings(max_examples=150, deadline=None, database=None)
@given(st.integers(0, 2**32), st.integers(1, 20))
def test_flipped_bits_are_refused_or_bounded(seed, flips) -> None:
    """Damage that is still a lawful update may be admitted; what is merged is finite and within the bound."""
    rng, strategy = random.Random(seed), FedAvg()
    state = gate.start(strategy)
    sent = state["model"]
    damaged = {name: tensor.clone() for name, tensor in gate.drawn(strategy, False, 0)["model"].items()}
    for _ in range(flips):
        memory = damaged[rng.choice(list(damaged))].view(-1).view(torch.int32)
        at = rng.randrange(len(memory))
        memory[at] = memory[at] ^ (1 << rng.randrange(31))
    bad = Bundle({"model": damaged}, {"n": 3, "round": gate.ROUND})
    try:
        admit(bad, strategy.expects(state), {"model": sent}, Policy(), round=gate.ROUND, examples=gate.SIZE)
    except Refusal:
        return
    change = math.sqrt(sum(float((damaged[n].double() - sent[n]).square().sum()) for n in sent))
    size = math.sqrt(sum(float(t.double().square().sum()) for t in sent.values()))
    assert change <= 100 * (1 + size) * (1 + 1e-5)


MODEL = {"model": scalar(0)}

# ---- lawful updates, and where the bounds are


def lawful(**values) -> Bundle:
    return Bundle({"model": {"w": torch.tensor([3.0, 0.0])}}, {"n": 5, "round": 1, "loss": 0.5} | values)


def check(told: Bundle, policy: Policy = Policy(), size: int = 5, values=NOTHING) -> None:  # noqa: B008
    anchor = {"w": torch.tensor([3.0, 0.0])}
    expects = dict.fromkeys(told.tensors, anchor)
    admit(told, expects, {"model": anchor}, policy, round=1, examples=size, values=values)


def ok(value: float = 1.0, n: int = 1, **values) -> Bundle:
    return Bundle({"model": scalar(value)}, {"n": n, "round": 1, "loss": 2.0} | values)


def refusal(*args, **how) -> str:
    with pytest.raises(Refusal) as told:
        check(*args, **how)
    return str(told.value)


@pytest.mark.parametrize(
    "values",
    [{}, {"n": 1}, {"loss": 0}, {"loss": -4.5}, {"loss": 1e9}, {"steps": 0}, {"steps": 10**7}, {"cold": True}],
)
def test_lawful_updates_are_admitted(values) -> None:
    check(lawful(**values))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"loss": 1.1e9}, "values: loss is 1100000000.0, expected a number from -1e+09 to 1e+09"),
        ({"steps": 10**7 + 1}, "values: steps is 10000001, expected an integer from 0 to 1e+07"),
        ({"steps": 2.0}, "values: steps is 2.0, expected an integer from 0 to 1e+07"),
        ({"cold": 1}, "values: cold is 1, expected true or false"),
        ({"note": "x"}, "values: note is not declared, by the strategy's `values` or the task's `metrics`"),
        ({"metric/a": 0.5}, "values: metric/a is not declared, by the strategy's `values` or the task's `metrics`"),
        ({"\x1b[2J": 1}, "values: \ufffd[2J is not declared, by the strategy's `values` or the task's `metrics`"),
    ],
)
def test_values_that_are_not_declared_or_out_of_range_are_refused(values, reason) -> None:
    assert refusal(lawful(**values)) == reason


def test_a_strategy_declares_what_its_replies_say() -> None:
    declared = {"classes": Number(0, 10, integer=True), "word": Text(3), "R@*": Number(0, 1)}
    for values in ({"classes": 10}, {"word": "abc"}, {"R@5/Köln": 1.0}, {"R@": 0.0}):
        check(lawful(**values), values=declared)
    for values in ({"classes": 11}, {"classes": "x"}, {"word": "abcd"}, {"R@5": 1.1}, {"R5": 1.0}, {"R@[5]": 1.0}):
        assert refusal(lawful(**values), values=declared).startswith("values: ")


def test_at_most_a_hundred_metrics() -> None:
    declared = metric_values(ANY_METRIC)
    check(lawful(**{f"metric/{i}": -1e9 for i in range(100)}), values=declared)
    told = refusal(lawful(**{f"metric/{i}": 0.5 for i in range(10_000)}), values=declared)
    assert told == "values: 10003 of them, at most 107 are accepted"
    assert refusal(lawful(**{"metric/a": 1.1e9}), values=declared).startswith("values: metric/a is 1100000000.0")
    assert refusal(lawful(**{"metric/" + "a" * 65: 1}), values=declared).endswith("the task's `metrics`")


@pytest.mark.parametrize("w", [[3.0, -0.0], [3.0, 1e-45], [0.0, 0.0], [-3.0, 1e-20]])
def test_unusual_numbers_are_numbers(w) -> None:
    check(lawful().with_(model={"w": torch.tensor(w)}))


def test_a_tensor_may_lie_in_memory_as_it_likes() -> None:
    like = {"w": torch.randn(2, 3, 4, 4)}
    told = Bundle({"model": {"w": like["w"].to(memory_format=torch.channels_last)}}, {"n": 1, "round": 1})
    admit(told, {"model": like}, {"model": like}, Policy(), round=1, examples=1)
    admit(told, {"model": like}, {"model": {"w": like["w"].transpose(2, 3)}}, Policy(), round=1, examples=1)


def test_empty_tensors_and_empty_expectations_are_lawful() -> None:
    empty = {"w": torch.empty(0, 3)}
    admit(Bundle({"model": empty}, {"n": 1, "round": 1}), {"model": empty}, {}, Policy(), round=1, examples=1)
    admit(Bundle({}, {"n": 1, "round": 1}), {}, {}, Policy(), round=1, examples=1)


def test_the_bound_on_the_change_by_hand() -> None:
    # sent (3, 0), of norm 3: the change may be 2 * (1 + 3) = 8
    policy = Policy(max_change=2.0)
    check(lawful().with_(model={"w": torch.tensor([11.0, 0.0])}), policy)
    check(lawful().with_(model={"w": torch.tensor([3.0, -8.0])}), policy)
    told = refusal(lawful().with_(model={"w": torch.tensor([3.0, 8.01])}), policy)
    assert told == "norm: model changed by 8.01, the bound is 8"


def test_the_bound_is_on_the_whole_section() -> None:
    # two tensors that change by 6 and 8, together by 10; the bound is 1 * (1 + 0)
    zero = {"a": torch.zeros(1), "b": torch.zeros(1)}
    told = Bundle({"model": {"a": torch.tensor([6.0]), "b": torch.tensor([8.0])}}, {"n": 1, "round": 1})
    with pytest.raises(Refusal, match=r"norm: model changed by 10, the bound is 9\.99"):
        admit(told, {"model": zero}, {"model": zero}, Policy(max_change=9.99), round=1, examples=1)
    admit(told, {"model": zero}, {"model": zero}, Policy(max_change=10.0), round=1, examples=1)


def test_the_bound_on_other_sections_by_hand() -> None:
    policy = Policy(max_norm=5.0)
    check(Bundle({"control": {"w": torch.tensor([3.0, 4.0])}}, {"n": 1, "round": 1}), policy)
    told = refusal(Bundle({"control": {"w": torch.tensor([3.0, 4.01])}}, {"n": 1, "round": 1}), policy)
    assert told.startswith("norm: control has norm 5.008, the bound is 5")


def test_a_model_that_was_not_sent_is_bounded_too() -> None:
    told = Bundle({"model": {"w": torch.tensor([2e6])}}, {"n": 1, "round": 1})
    with pytest.raises(Refusal, match="norm: model has norm"):
        admit(told, {"model": {"w": torch.zeros(1)}}, {}, Policy(), round=1, examples=1)


def test_examples_are_bounded_by_what_the_device_has_and_by_the_policy() -> None:
    check(lawful(n=5), size=5)
    assert refusal(lawful(n=6), size=5).startswith("examples: n = 6, but at most 5 are accepted")
    assert refusal(lawful(n=1), size=0).startswith("examples: ")
    for most, admitted in ((5, ["a"]), (4, [])):
        asking, _ = ask([], policy=Policy(max_examples=most))
        asking.engine = gate.Prepared([("a", ok(n=5))])
        assert [device for device, _ in asking.run("train", [("a", Bundle())], MODEL)] == admitted


def test_examples_are_bounded_by_what_the_message_names() -> None:
    """A device that holds nothing may train on what it is given, and stands for as many as it is told."""
    given = Bundle({"samples": {"train": torch.arange(3)}})
    for message, most in ((given, 3), (Bundle({}, {"n": 7}), 7)):
        asking = Gate(gate.Prepared([("s0", ok(n=most)), ("s0", ok(n=most + 1))]), Policy(), 1)
        assert len(list(asking.run("train", [("s0", message)] * 2, MODEL))) == 1
        assert asking.refused[0]["reason"].startswith("examples: ")


def test_what_devices_do_for_themselves_is_no_traffic_and_needs_no_quorum() -> None:
    asking, _ = ask([])
    asking.engine = gate.Prepared([("a", ok()), ("b", ok(math.nan)), ("c", Failure("boom"))])
    found = asking.run("train", [(device, Bundle()) for device in "abc"], {"model": scalar(0)})
    assert [device for device, _ in found] == ["a"]
    assert asking.bytes_up == asking.bytes_down == asking.examples == 0 and asking.clients == []
    assert [r["reason"] for r in asking.refused] == ["not finite: model/weight", "failed: boom"]


@pytest.mark.parametrize("bad", [ok(math.nan), Failure("boom")], ids=["refused", "failed"])
def test_where_no_reply_may_be_missing_the_first_refusal_ends_it(bad: Bundle | Failure) -> None:
    asking, _ = ask([])
    asking.engine = gate.Prepared([("a", ok()), ("b", bad), ("c", ok())])
    found = asking.run("train", [(device, Bundle()) for device in "abc"], {"model": scalar(0)}, strict=True)
    assert next(found)[0] == "a"
    with pytest.raises(DeviceError, match=r"device 'b', program 'train': (boom|its reply was refused: not finite)"):
        next(found)


def test_a_device_that_is_asked_twice_answers_twice() -> None:
    asking, _ = ask([])
    asking.engine = gate.Prepared([("a", ok(1)), ("a", ok(2)), ("a", ok(3))])
    found = asking.run("train", [("a", Bundle())] * 2, {"model": scalar(0)})
    assert [float(reply["model"]["weight"]) for _, reply in found] == [1, 2]
    assert [r["reason"].partition(":")[0] for r in asking.refused] == ["duplicate"]


def test_reasons_say_what_was_found() -> None:
    anchor = {"w": torch.zeros(2, 3)}

    def told(model) -> str:
        with pytest.raises(Refusal) as why:
            admit(Bundle({"model": model}, {"n": 1, "round": 1}), {"model": anchor}, {}, Policy(), round=1, examples=1)
        return str(why.value)

    assert told({"w": torch.zeros(3, 2)}) == "shape: model/w is (3, 2) instead of (2, 3)"
    assert told({"w": torch.zeros(2, 3).half()}) == "type: model/w is torch.float16 instead of torch.float32"
    assert told({"v": torch.zeros(2, 3)}) == "names: model has ['v', 'w'] on one side only"
    assert told({"w": torch.full((2, 3), torch.nan)}) == "not finite: model/w"
    assert refusal(lawful(round=4)) == "stale: the reply is of round 4, this is round 1"


@pytest.mark.parametrize("value", [10**5000, -(10**5000)], ids=["large", "small"])
@pytest.mark.parametrize("name", ["n", "loss", "round", "steps"])
def test_numbers_that_cannot_be_written_do_not_fell_the_gate(name, value) -> None:
    """Python refuses to print them, and no float holds them."""
    assert refusal(lawful(**{name: value})).startswith(f"values: {name} is a number of 166")


def test_metrics_come_without_tensors() -> None:
    for tensors, values in (({"any": scalar(0)}, {}), ({}, {"metric/accuracy": math.nan})):
        with pytest.raises(Refusal, match=r"sections: |not finite: value metric/accuracy"):
            admit(Bundle(tensors, {"n": 1, "round": 1} | values), {}, {}, Policy(), round=1, examples=1)


@pytest.mark.parametrize(
    ("right", "total"), [([1, -1], [2, 2]), ([3, 0], [2, 9]), ([0, 0], [10**12 + 1, 0]), ([0, 0], [-1, 0])]
)
def test_a_tally_has_no_more_right_answers_than_answers(right, total) -> None:
    def tally(right, total) -> Bundle:
        counts = {"right": torch.tensor(right), "total": torch.tensor(total)}
        return Bundle({"tally": counts}, {"n": 1, "round": 1})

    like = tally([0, 0], [0, 0]).tensors
    admit(tally([0, 2], [0, 2]), like, {}, Policy(), round=1, examples=1)
    with pytest.raises(Refusal, match="tally: right answers must be from 0 to all answers"):
        admit(tally(right, total), like, {}, Policy(), round=1, examples=1)


# ---- a round


def ask(stream, asked=("a", "b", "c"), policy: Policy = Policy(), **how):  # noqa: B008
    asking = Gate(gate.Prepared(stream), policy, 1, lambda device: 5, **how)
    requests = ((device, Bundle({"model": scalar(0)})) for device in asked)
    return asking, asking.ask("train", requests, {"model": scalar(0)})


def test_what_is_counted() -> None:
    heard: list[str] = []
    stream = [("a", ok(n=2, cold=True)), ("b", ok(math.nan)), ("c", ok(n=3, kept=True, loss=1.0))]
    asking, replies = ask(stream, on_reply=heard.append)
    assert [device for device, _ in replies] == ["a", "c"] == asking.clients == heard
    assert asking.examples == 5
    assert asking.loss == 2 * 2.0 + 3 * 1.0
    assert (asking.cold, asking.kept) == (["a"], ["c"])
    assert asking.bytes_down == 3 * 4  # what was asked of b was sent all the same
    assert asking.bytes_up == 2 * (4 + 4 * 8)  # n, round, loss, and cold or kept
    assert asking.refused == [{"device": "b", "reason": "not finite: model/weight"}]


def test_replies_stream_through() -> None:
    taken: list[str] = []

    class Noting(Engine):
        def call(self, program, requests, deadline) -> Iterator[tuple[str, Bundle]]:
            for device, message in requests:
                assert message.values["round"] == 1
                taken.append(device)
                yield device, ok()

    devices = [f"d{i}" for i in range(50)]

    def asked(policy: Policy) -> Iterator[tuple[int, str]]:
        taken.clear()
        requests = ((device, Bundle({"model": scalar(0)})) for device in devices)
        replies = Gate(Noting(), policy, 1, lambda device: 5).ask("train", requests, MODEL)
        return enumerate((device for device, _ in replies), start=1)

    for number, device in asked(Policy(max_ratio=0)):
        assert taken == devices[:number] and device == taken[-1]
    for number, _ in asked(Policy()):  # the first twenty wait for the bound
        assert taken == devices[: max(number, 20)]


@pytest.mark.parametrize(
    ("quorum", "asked", "needed"),
    [(0.5, 4, 2), (0.5, 5, 3), (1.0, 3, 3), (0.0, 3, 1), (0.07, 100, 7), (0.55, 100, 55), (0.1, 30, 3), (0.34, 3, 2)],
)
def test_quorum(quorum, asked, needed) -> None:
    devices = [f"d{i}" for i in range(asked)]

    def admitted(good: int) -> int:
        stream = [(d, ok() if i < good else ok(math.inf)) for i, d in enumerate(devices)]
        return len(list(ask(stream, devices, Policy(quorum=quorum))[1]))

    assert admitted(needed) == needed
    with pytest.raises(QuorumError, match=f"round 1: {needed - 1} usable replies of {asked} asked, quorum {quorum}"):
        admitted(needed - 1)


def test_devices_that_say_nothing_count_against_the_quorum() -> None:
    assert len(list(ask([("a", ok()), ("c", ok())])[1])) == 2
    with pytest.raises(QuorumError):
        list(ask([("b", ok())])[1])
    with pytest.raises(QuorumError):
        list(ask([])[1])


@pytest.mark.parametrize("strategy", [FedAvg(), FedAvgM()], ids=lambda s: type(s).__name__)
def test_below_the_quorum_the_state_is_as_it_was(strategy) -> None:
    state = Bundle({"model": scalar(1), "first": scalar(3), "second": scalar(0)}, {"population": 3})
    before = bits(state)
    _, replies = ask([("a", ok(5)), ("b", ok(math.nan)), ("c", ok(n=99))])
    with pytest.raises(QuorumError):
        strategy.merge(state, replies)
    assert bits(state) == before


def test_a_device_that_failed_cannot_answer_after_all() -> None:
    asking, replies = ask([("a", Failure("lost")), ("b", ok(2)), ("a", ok(7)), ("c", ok(4))])
    assert weight(FedAvg().merge(reply(0), replies)) == 3
    assert [r["reason"].partition(":")[0] for r in asking.refused] == ["failed", "duplicate"]


def test_failures_of_strangers_do_not_end_a_round() -> None:
    """As many failures as devices asked, but none of them from a device that was."""
    _, replies = ask([("x", Failure("?")), ("a", ok(2)), ("y", Failure("?")), ("b", ok(4)), ("z", Failure("?"))])
    assert weight(FedAvg().merge(reply(0), replies)) == 3


def test_when_every_device_fails_the_first_failure_is_kept() -> None:
    asking, replies = ask([(d, Failure(f"no {d}", "Traceback: ...")) for d in "abc"])
    with pytest.raises(QuorumError, match="0 usable replies of 3 asked") as told:
        list(replies)
    assert str(asking.failure) == "device 'a', program 'train': no a" and asking.failure.detail == "Traceback: ..."
    assert told.value.__cause__ is asking.failure
    assert len(asking.refused) == 3


def test_a_refused_reply_is_no_failure() -> None:
    asking, replies = ask([("a", Failure("boom")), ("b", reply(math.nan))])
    with pytest.raises(QuorumError):
        list(replies)
    assert asking.failure is None and len(asking.refused) == 2


def test_a_failure_is_raised_at_once_if_so_wished() -> None:
    asking, replies = ask([("a", ok()), ("b", Failure("boom")), ("c", ok())], policy=Policy(on_error="raise"))
    with pytest.raises(DeviceError, match="boom"):
        list(replies)
    assert asking.clients == ["a"]


def test_a_malformed_reply_is_no_failure_of_a_program() -> None:
    stream = [("a", ok()), ("b", ok(math.nan)), ("c", ok())]
    assert len(list(ask(stream, policy=Policy(on_error="raise"))[1])) == 2


def test_reasons_are_short_however_long_what_they_tell_of() -> None:
    flood = Bundle({"x" * 1_000_000: scalar(0)}, {"n": 1, "round": 1})
    asking, replies = ask([("a", ok()), ("b", flood), ("c", Failure("y" * 1_000_000))], policy=Policy(quorum=0.1))
    list(replies)
    assert all(len(r["reason"]) <= 500 for r in asking.refused) and len(asking.refused) == 2


def test_the_group_is_recorded() -> None:
    asking, replies = ask([("a", ok()), ("b", ok(math.nan)), ("c", ok())])
    asking.group = "7"
    list(replies)
    assert asking.refused == [{"device": "b", "reason": "not finite: model/weight", "group": "7"}]
