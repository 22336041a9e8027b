"""Whole runs in which one device says what it must not: every strategy, `train` and `evaluate`, every kind of value.

A run must end, refuse each hostile reply, and give what it gives without that device's replies: the same model, bit for
bit, and the same metrics. `benchmarks/gate.py` runs all of them, `tests/reliability/test_hostile_replies.py` a part.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from wayfare.components import find, names
from wayfare.core.bundle import Bundle
from wayfare.core.protocols import Evaluation, Failure, Policy, Strategy, Training
from wayfare.engines.local import Local
from wayfare.experiment import Experiment
from wayfare.partition.random import Random
from wayfare.runner import run
from wayfare.testing import task_for

LIAR = "c1"
CLIENTS = 4
EVIL = "\x1b[2J[/red]\u202e</script>"

Change = Callable[[Bundle], Bundle]

# ---- what can be said

ANYTHING: dict[str, Any] = {
    "text": "x",
    "no text": "",
    "evil text": EVIL,
    "long text": "x" * 100_000,
    "NaN": math.nan,
    "infinity": math.inf,
    "-infinity": -math.inf,
    "1e300": 1e300,
    "-1e300": -1e300,
    "2**62": 2**62,
    "10**400": 10**400,
    "nothing": None,
    "a list": [1.0],
    "a table": {"a": 1},
    "bytes": b"\x80",
}
OUT_OF_RANGE: dict[str, dict[str, dict[str, Any]]] = {
    "train": {
        "n": {"true": True, "-1": -1, "0": 0, "half": 0.5},
        "loss": {"true": True, "1e10": 1e10},
        "steps": {"true": True, "-1": -1, "half": 0.5},
        "round": {"true": True, "-1": -1, "99": 99},
        "cold": {"1": 1},
        "kept": {"1": 1},
    },
    "evaluate": {
        "n": {"true": True, "-1": -1},
        "round": {"99": 99},
        "FIRST": {"true": True, "-0.1": -0.1, "1.1": 1.1},  # the task's first metric
    },
}


def _value(name: str, value: Any) -> Change:
    def change(reply: Bundle) -> Bundle:
        first = next((n for n in reply.values if n.startswith("metric/")), "metric/accuracy")
        return Bundle(reply.tensors, {**reply.values, first if name == "FIRST" else name: value})

    return change


def _many(start: str) -> Change:
    return lambda reply: Bundle(reply.tensors, {**reply.values, **{f"{start}{i}": 0.5 for i in range(10_000)}})


def _without(name: str) -> Change:
    return lambda reply: Bundle(reply.tensors, {k: v for k, v in reply.values.items() if k != name})


def _tensors(reply: Bundle) -> Bundle:
    return reply.with_(more={"w": torch.zeros(3)})


def _kinds() -> dict[tuple[str, str], Change]:
    """Every kind of lie, by program and name."""
    found: dict[tuple[str, str], Change] = {}
    for program, places in OUT_OF_RANGE.items():
        for place, special in places.items():
            for kind, value in {**ANYTHING, **special}.items():
                found[program, f"{place}: {kind}"] = _value(place, value)
        prefix = "metric/" if program == "evaluate" else ""
        found |= {
            (program, "no n"): _without("n"),
            (program, "no round"): _without("round"),
            (program, "an unknown value"): _value("note", 1),
            (program, "an unknown metric"): _value("metric/made up", 0.5),
            (program, "an evil name"): _value(prefix + EVIL, 0.5),
            (program, "a long name"): _value(prefix + "x" * 100_000, 0.5),
            (program, "10,000 values"): _many(prefix),
            (program, "another section"): _tensors,
        }
    return found


KINDS = _kinds()
OF_STRATEGY: dict[str, dict[str, Any]] = {"fedcmr": {"classes": 11}, "fedcafe": {"guided": -1}}
"""Values of one strategy's own, each with one that is out of range."""


def kinds_for(strategy: str) -> dict[tuple[str, str], Change]:
    """The lies that can be told under a strategy."""
    own = {
        ("train", f"{name}: {kind}"): _value(name, value)
        for name, above in OF_STRATEGY.get(strategy, {}).items()
        for kind, value in {**ANYTHING, "true": True, "-1": -1, "out of range": above}.items()
    }
    return KINDS | own


# ---- a run


@dataclass
class Lying(Local):
    """One device replies to one program with something else."""

    program: str
    change: Callable[[Bundle], Bundle | Failure]

    def __post_init__(self) -> None:
        super().__init__()

    def call(
        self, program: str, requests: Iterable[tuple[str, Bundle]], deadline: float
    ) -> Iterator[tuple[str, Bundle | Failure]]:
        for device, reply in super().call(program, requests, deadline):
            if device == LIAR and program == self.program and isinstance(reply, Bundle):
                yield device, self.change(reply)
            else:
                yield device, reply


@dataclass(frozen=True)
class Outcome:
    """What a run gave: nothing of it may depend on what the liar said."""

    model: str
    metrics: dict[str, float]
    refused: int
    reasons: list[str] = field(compare=False, default_factory=list)


@cache
def experiment(strategy: str) -> Experiment:
    """A federation that takes a tenth of a second."""
    made: Strategy = find("strategy", strategy)()
    task = task_for(made)
    personal = made.personal
    return Experiment(
        task, Random(CLIENTS), made, training=Training(iterations=2, batch_size=8), rounds=1,
        evaluation=Evaluation(test=personal, clients=CLIENTS, holdout=0.2), policy=Policy(quorum=0.5),
    )  # fmt: skip


def outcome(strategy: str, program: str, change: Callable[[Bundle], Bundle | Failure]) -> Outcome:
    """Run it; raises what the run raises."""
    import json

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        summary = run(experiment(strategy), place, Lying(program, change))
        lines = [json.loads(line) for line in (place / "rounds.jsonl").read_text().splitlines()]
    refused = [refusal for line in lines for refusal in line["refused"] if refusal["device"] == LIAR]
    return Outcome(summary["model_sha256"], summary["metrics"], len(refused), [r["reason"] for r in refused])


@cache
def without(strategy: str, program: str) -> Outcome:
    """The same run if the device does not answer."""
    return outcome(strategy, program, lambda reply: Failure("away"))


def fault(strategy: str, program: str, kind: str) -> str:
    """What a lie did to a run; "" if nothing."""
    try:
        found = outcome(strategy, program, kinds_for(strategy)[program, kind])
    except Exception as error:
        return f"the run ended: {type(error).__name__}: {str(error)[:200]}"
    expected = without(strategy, program)
    if found.refused != expected.refused:
        return f"{found.refused} of {expected.refused} replies refused"
    if any("\x1b" in reason or len(reason) > 500 for reason in found.reasons):
        return "a reason holds what was sent"
    return "" if found == expected else "another result than without the device"


def all_runs() -> list[tuple[str, str, str]]:
    """(strategy, program, kind) of every run."""
    return [(s, *kind) for s in sorted(names("strategy")) if s != "centralised" for kind in kinds_for(s)]
