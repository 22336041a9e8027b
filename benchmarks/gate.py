"""The admission gate: every kind of malformed update, mixed with honest ones, in rounds of three strategies.

    python benchmarks/gate.py [--quick] [--json] [--updates N] [--runs N] [--seed S]

Each round's result is compared, bit for bit, with the merge of its honest replies alone. Then whole runs in which one
device lies in a value or a metric (`gate_runs.py`): every strategy, `train` and `evaluate`, every kind of value. Exit
status 1 if a malformed update is admitted, is refused for another reason than its own, loses a round, or changes one
bit, or if a lie ends a run or changes its result.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import torch

from wayfare.core.bundle import Bundle, Weights, digest
from wayfare.core.gate import Gate
from wayfare.core.protocols import Engine, Failure, Policy, Strategy
from wayfare.strategies.fedadam import FedAdam
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.scaffold import Scaffold

ROUND = 7
SIZE = 20  # samples that every device has
STRATEGIES: dict[str, Strategy] = {"fedavg": FedAvg(), "fedadam": FedAdam(), "scaffold": Scaffold()}

Who = Literal["device", "again", "stranger"]  # one that was asked; one that has answered; one that was not asked
Stream = list[tuple[str, Bundle | Failure]]


# ---- what can be wrong with an update


@dataclass(frozen=True)
class Kind:
    """One way to be malformed, and the code under which it is refused."""

    code: str
    make: Callable[[Bundle, random.Random], Bundle | Failure]
    who: Who = "device"
    only: str = ""  # for one strategy
    large: bool = False  # on a model of a million weights


def _tensors(change: Callable[[Weights, str, random.Random], None], section: str = "model") -> Callable[..., Bundle]:
    """A change of one tensor of a section, the name drawn at random among those of more than one dimension."""

    def make(reply: Bundle, rng: random.Random) -> Bundle:
        weights = dict(reply[section])
        change(weights, rng.choice([name for name, tensor in weights.items() if tensor.ndim > 1]), rng)
        return reply.with_(**{section: weights})

    return make


def _replaced(new: Callable[[torch.Tensor], Any], section: str = "model") -> Callable[..., Bundle]:
    def change(weights: Weights, name: str, rng: random.Random) -> None:
        weights[name] = new(weights[name])

    return _tensors(change, section)


def _element(value: float, section: str = "model") -> Callable[..., Bundle]:
    """One element of one tensor, drawn at random among all of them."""

    def make(reply: Bundle, rng: random.Random) -> Bundle:
        weights = dict(reply[section])
        name = rng.choice(list(weights))
        weights[name] = weights[name].clone()
        weights[name].view(-1)[rng.randrange(weights[name].numel())] = value
        return reply.with_(**{section: weights})

    return make


def _value(name: str, *choices: Any) -> Callable[..., Bundle]:
    def make(reply: Bundle, rng: random.Random) -> Bundle:
        return Bundle(reply.tensors, reply.values | {name: rng.choice(choices)})

    return make


def _without(name: str) -> Callable[..., Bundle]:
    return lambda reply, rng: Bundle(reply.tensors, {k: v for k, v in reply.values.items() if k != name})


def _section(change: Callable[[dict[str, Weights]], Any]) -> Callable[..., Bundle]:
    def make(reply: Bundle, rng: random.Random) -> Bundle:
        tensors = dict(reply.tensors)
        change(tensors)
        return Bundle(tensors, reply.values)

    return make


def _missing(weights: Weights, name: str, rng: random.Random) -> None:
    del weights[name]


def _extra(weights: Weights, name: str, rng: random.Random) -> None:
    weights[name + ".copy"] = weights[name]


def _renamed(weights: Weights, name: str, rng: random.Random) -> None:
    weights["module." + name] = weights.pop(name)


def _scaled(factor: float, section: str = "model") -> Callable[..., Bundle]:
    def make(reply: Bundle, rng: random.Random) -> Bundle:
        return reply.with_(**{section: {name: tensor * factor for name, tensor in reply[section].items()}})

    return make


def _variance(reply: Bundle, rng: random.Random) -> Bundle:
    return reply.with_(model={n: -t if n.endswith("running_var") else t for n, t in reply["model"].items()})


def _same(reply: Bundle, rng: random.Random) -> Bundle:
    return reply


KINDS: dict[str, Kind] = {
    "no section": Kind("sections", _section(dict.clear)),
    "another section too": Kind("sections", _section(lambda t: t.update(optimizer=t["model"]))),
    "section renamed": Kind("sections", _section(lambda t: t.update(weights=t.pop("model")))),
    "control left out": Kind("sections", _section(lambda t: t.pop("control")), only="scaffold"),
    "section empty": Kind("names", _section(lambda t: t.update(model={}))),
    "tensor left out": Kind("names", _tensors(_missing)),
    "another tensor too": Kind("names", _tensors(_extra)),
    "tensor renamed": Kind("names", _tensors(_renamed)),
    "control renamed": Kind("names", _tensors(_renamed, "control"), only="scaffold"),
    "column that broadcasts, (4, 1)": Kind("shape", _replaced(lambda t: t[:, :1].clone())),
    "row that broadcasts, (1, 3)": Kind("shape", _replaced(lambda t: t[:1].clone())),
    "vector that broadcasts, (3,)": Kind("shape", _replaced(lambda t: t[0].clone())),
    "scalar that broadcasts, ()": Kind("shape", _replaced(lambda t: t.sum())),
    "transposed": Kind("shape", _replaced(lambda t: t.transpose(0, 1).contiguous())),
    "flattened": Kind("shape", _replaced(lambda t: t.flatten())),
    "a dimension more": Kind("shape", _replaced(lambda t: t[None])),
    "a row more": Kind("shape", _replaced(lambda t: torch.cat([t, t[:1]]))),
    "no elements": Kind("shape", _replaced(lambda t: t[:0])),
    "float64": Kind("type", _replaced(lambda t: t.double())),
    "float16": Kind("type", _replaced(lambda t: t.half())),
    "bfloat16": Kind("type", _replaced(lambda t: t.bfloat16())),
    "int64": Kind("type", _replaced(lambda t: t.long())),
    "int32, the same bits": Kind("type", _replaced(lambda t: t.view(torch.int32))),
    "bool": Kind("type", _replaced(lambda t: t > 0)),
    "complex": Kind("type", _replaced(lambda t: t.to(torch.complex64))),
    "sparse": Kind("type", _replaced(lambda t: t.to_sparse())),
    "without memory (meta)": Kind("type", _replaced(lambda t: t.to("meta"))),
    "a list": Kind("type", _replaced(lambda t: t.tolist())),
    "an array": Kind("type", _replaced(lambda t: t.numpy())),
    "nothing (None)": Kind("type", _replaced(lambda t: None)),
    "one NaN": Kind("not finite", _element(math.nan)),
    "one Inf": Kind("not finite", _element(math.inf)),
    "one -Inf": Kind("not finite", _element(-math.inf)),
    "one NaN in a million": Kind("not finite", _element(math.nan), large=True),
    "all NaN": Kind("not finite", _scaled(math.nan)),
    "NaN in the control": Kind("not finite", _element(math.nan, "control"), only="scaffold"),
    "Inf in the control": Kind("not finite", _element(math.inf, "control"), only="scaffold"),
    "one weight of 1e30": Kind("norm", _element(1e30)),
    "one weight of -3.4e38": Kind("norm", _element(-3.4e38)),
    "one weight of 1e30 in a million": Kind("norm", _element(1e30), large=True),
    "a change of 10,000 times the model": Kind("norm", _scaled(1e4)),
    "a huge control": Kind("norm", _scaled(1e9, "control"), only="scaffold"),
    "a negative variance": Kind("range", _variance),
    "no n": Kind("examples", _without("n")),
    "n = 0": Kind("examples", _value("n", 0)),
    "n negative": Kind("examples", _value("n", -1, -39, -(2**40))),
    "n = NaN": Kind("not finite", _value("n", math.nan)),
    "n infinite": Kind("not finite", _value("n", math.inf, -math.inf)),
    "n a fraction": Kind("examples", _value("n", 0.5, 1.5)),
    "n = 10.0": Kind("examples", _value("n", 10.0)),
    "n = true": Kind("examples", _value("n", True)),
    "n text": Kind("examples", _value("n", "10", "", "many")),
    "n = 1e18": Kind("examples", _value("n", 10**18)),
    "n of 400 digits": Kind("values", _value("n", 10**400)),
    "n more than the device has": Kind("examples", _value("n", SIZE + 1, 10 * SIZE)),
    "loss NaN": Kind("not finite", _value("loss", math.nan)),
    "loss infinite": Kind("not finite", _value("loss", math.inf, -math.inf)),
    "loss text": Kind("values", _value("loss", "0.5", "nan")),
    "loss true": Kind("values", _value("loss", True)),
    "loss of 1e308": Kind("values", _value("loss", 1e308, -1e308)),
    "loss of 400 digits": Kind("values", _value("loss", 10**400, -(10**400))),
    "another value NaN": Kind("not finite", _value("steps", math.nan)),
    "a value of a million letters": Kind("values", _value("note", "x" * 1_000_000)),
    "an earlier round's": Kind("stale", _value("round", ROUND - 1, 0)),
    "a later round's": Kind("stale", _value("round", ROUND + 1)),
    "no round": Kind("stale", _without("round")),
    "round text": Kind("stale", _value("round", str(ROUND))),
    "sent twice": Kind("duplicate", _same, "again"),
    "sent twice, the second changed": Kind("duplicate", _scaled(1.5), "again"),
    "from a device not asked": Kind("duplicate", _same, "stranger"),
    "a failure from a device not asked": Kind("duplicate", lambda reply, rng: Failure("crashed"), "stranger"),
    "a failure after the answer": Kind("duplicate", lambda reply, rng: Failure("crashed"), "again"),
}


def kinds_for(strategy: str, large: bool = False) -> list[str]:
    """The kinds that can befall a strategy."""
    return [name for name, kind in KINDS.items() if kind.only in ("", strategy) and kind.large == large]


# ---- a round


@dataclass
class Prepared(Engine):
    """An engine that has asked already, and gives these replies."""

    stream: Stream

    def call(
        self, program: str, requests: Iterable[tuple[str, Bundle]], deadline: float
    ) -> Iterator[tuple[str, Bundle | Failure]]:
        for _ in requests:
            pass
        yield from self.stream


@dataclass
class Case:
    """A round: who is asked, and what arrives, honest (None) or of a kind."""

    asked: list[str] = field(default_factory=list)
    arrivals: list[tuple[str, Bundle | Failure, str | None]] = field(default_factory=list)

    @property
    def stream(self) -> Stream:
        return [(device, reply) for device, reply, _ in self.arrivals]

    @property
    def honest(self) -> list[tuple[str, Bundle]]:
        return [(device, reply) for device, reply, kind in self.arrivals if kind is None]

    @property
    def bad(self) -> list[tuple[str, str]]:
        return [(device, kind) for device, _, kind in self.arrivals if kind is not None]


@cache
def start(strategy: Strategy, large: bool = False) -> Bundle:
    """A server's state some rounds into a run; the models are of several shapes, or of a million weights."""
    made = torch.Generator().manual_seed(3)
    shapes: dict[str, tuple[int, ...]] = (
        {"fc.weight": (1000, 1000)}
        if large
        else {"conv.weight": (4, 3, 2), "fc.weight": (4, 3), "fc.bias": (4,), "scale": (), "norm.running_var": (4,)}
    )
    model = {name: torch.randn(shape, generator=made) for name, shape in shapes.items()}
    model |= {name: tensor.abs() + 1 for name, tensor in model.items() if name.endswith("running_var")}
    trained = {name: torch.randn(t.shape, generator=made).abs() for name, t in model.items() if "running" not in name}
    sections = {"fedadam": ("first", "second"), "scaffold": ("control", "gain")}.get(
        type(strategy).__name__.lower(), ()
    )
    return Bundle({"model": model} | dict.fromkeys(sections, trained), {"population": 50})


@cache
def drawn(strategy: Strategy, large: bool, number: int) -> dict[str, Weights]:
    """The tensors of an honest reply; a few are enough, the values beside them are always drawn anew."""
    made, state = torch.Generator().manual_seed(number), start(strategy, large)
    return {
        section: {name: t + 0.1 * torch.randn(t.shape, generator=made) for name, t in like.items()}
        for section, like in strategy.expects(state).items()
    }


def honest_reply(strategy: Strategy, large: bool, rng: random.Random) -> Bundle:
    """What a device that means well sends."""
    values = {"n": rng.randint(1, SIZE), "loss": rng.random(), "steps": 3, "round": ROUND, "cold": False}
    return Bundle(drawn(strategy, large, rng.randrange(4 if large else 100)), values)


def prepare(strategy: Strategy, large: bool, kinds: list[str], honest: int, rng: random.Random) -> Case:
    """Honest replies with malformed ones of these kinds among them, in a random order."""
    case = Case()
    order: list[str | None] = [None] * honest + [kind for kind in kinds if KINDS[kind].who != "again"]
    rng.shuffle(order)
    for number, name in enumerate(order):
        device, reply = f"d{number}", honest_reply(strategy, large, rng)
        case.arrivals.append((device, reply if name is None else KINDS[name].make(reply, rng), name))
        if name is None or KINDS[name].who == "device":
            case.asked.append(device)
    for name in (kind for kind in kinds if KINDS[kind].who == "again"):
        device, reply = rng.choice(case.honest)
        answered = next(i for i, (id, _, kind) in enumerate(case.arrivals) if id == device and kind is None)
        place = rng.randint(answered + 1, len(case.arrivals))
        case.arrivals.insert(place, (device, KINDS[name].make(reply, rng), name))
    return case


@dataclass
class Outcome:
    """What came of a round."""

    same_bits: bool
    same_order: bool
    lost: bool
    refused: list[dict[str, str]]


def sections(state: Bundle) -> dict[str, str]:
    """Every section down to the last bit."""
    return {section: digest(weights) for section, weights in state.tensors.items()}


def gate_of(stream: Stream) -> Gate:
    return Gate(Prepared(stream), Policy(quorum=0.001), ROUND, lambda device: SIZE)


def play(strategy: Strategy, state: Bundle, case: Case) -> Outcome:
    """The round through the gate, against the round of the honest replies alone."""

    def requests() -> Iterator[tuple[str, Bundle]]:
        return ((device, strategy.send(state, device)) for device in case.asked)

    expected = gate_of(list(case.honest)).merge(strategy, state, requests)
    asking = gate_of(case.stream)
    try:
        merged = asking.merge(strategy, state, requests)
    except Exception:  # a void round, or a gate that falls over: either way the round is lost
        return Outcome(False, False, True, asking.refused)
    same = sections(merged) == sections(expected) and merged.values == expected.values
    return Outcome(same, asking.clients == [device for device, _ in case.honest], False, asking.refused)


# ---- the measurement


@dataclass
class Tally:
    """Counts over all rounds."""

    rounds: int = 0
    sent: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    codes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    changed: int = 0
    lost: int = 0

    def add(self, case: Case, outcome: Outcome) -> None:
        self.rounds += 1
        self.lost += outcome.lost
        self.changed += not (outcome.same_bits and outcome.same_order)
        self.sent.update(kind for _, kind in case.bad)
        left = list(outcome.refused)
        for device, kind in case.bad:
            if left and left[0]["device"] == device:
                self.refused[kind] += 1
                self.codes[kind][left.pop(0)["reason"].partition(":")[0]] += 1


def measure(updates: int, seed: int, tick: Callable[[int], None] = lambda done: None) -> Tally:
    """Rounds of three honest and up to twenty-five malformed updates, until there were `updates` of the latter."""
    rng, tally = random.Random(seed), Tally()
    every = sum(len(kinds_for(name)) for name in STRATEGIES)
    share = len(kinds_for("fedavg", large=True)) / every * len(STRATEGIES)  # every kind about as often
    while (done := sum(tally.sent.values())) < updates:
        tick(done)
        name = rng.choice(list(STRATEGIES))
        large = rng.random() < share
        strategy = STRATEGIES[name]
        chosen = [rng.choice(kinds_for(name, large)) for _ in range(min(25, updates - done))]
        case = prepare(strategy, large, chosen, honest=3, rng=rng)
        tally.add(case, play(strategy, start(strategy, large), case))
    return tally


def whole_runs(count: int, seed: int) -> tuple[int, dict[tuple[str, str, str], str]]:
    """How many runs there were, 0 for all there are; and what a lie did to which of them."""
    import gate_runs

    runs = gate_runs.all_runs()
    if count:
        runs = random.Random(seed).sample(runs, count)
    faults = {one: fault for one in runs if (fault := gate_runs.fault(*one))}
    return len(runs), faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="5,000 updates instead of 100,000")
    parser.add_argument("--json", action="store_true", help="figures, targets and which are met, as JSON")
    parser.add_argument("--updates", type=int, default=0, help="how many malformed updates")
    parser.add_argument("--runs", type=int, default=0, help="how many whole runs; default: all, with --quick 60")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    updates = options.updates or (5_000 if options.quick else 100_000)
    began = time.monotonic()

    def tick(done: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{done:,} of {updates:,}", end="", file=sys.stderr)

    tally = measure(updates, options.seed, tick)
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    astray = sum(n for kind, codes in tally.codes.items() for code, n in codes.items() if code != KINDS[kind].code)
    runs, faults = whole_runs(options.runs or (60 if options.quick else 0), options.seed)
    figures = {
        "malformed": sum(tally.sent.values()),
        "kinds": len(tally.sent),
        "refused": sum(tally.refused.values()),
        "admitted": sum(tally.sent.values()) - sum(tally.refused.values()),
        "refused for another reason": astray,
        "rounds": tally.rounds,
        "rounds lost": tally.lost,
        "rounds with a changed bit": tally.changed,
        "whole runs": runs,
        "whole runs harmed": len(faults),
        "seconds": round(time.monotonic() - began, 1),
    }
    targets = {"kinds": 30, "admitted": 0, "refused for another reason": 0, "rounds lost": 0}
    targets |= {"rounds with a changed bit": 0, "whole runs harmed": 0}
    met = {
        name: figures[name] >= wanted if name == "kinds" else figures[name] <= wanted
        for name, wanted in targets.items()
    }
    if options.json:
        from figures import target

        kinds = {
            kind: {"sent": tally.sent[kind], "refused": tally.refused[kind], "codes": dict(tally.codes[kind])}
            for kind in KINDS
        }
        rows = [target("malformed replies", figures["malformed"]), target("whole runs with one lying device", runs)]
        for name, bound in targets.items():
            rows.append(target(name, figures[name], **{"least" if name == "kinds" else "most": bound}))
        found = {"figures": figures, "targets": rows, "met": all(met.values()), "kinds": kinds}
        print(json.dumps({"quick": options.quick, **found}))
    else:
        print(f"{'kind':38} {'sent':>7} {'refused':>8}  reason code")
        for kind in KINDS:
            codes = ", ".join(sorted(tally.codes[kind])) or "-"
            print(f"{kind:38} {tally.sent[kind]:7,} {tally.refused[kind]:8,}  {codes}")
        print()
        for name, fault in faults.items():
            print(f"{' '.join(name)}: {fault}")
        for name, figure in figures.items():
            verdict = "" if name not in met else "  met" if met[name] else "  MISSED"
            print(f"{name:38} {figure:>7,}{verdict}")
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
