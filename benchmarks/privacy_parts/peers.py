"""What noise costs devices that meet: the demo's day with FedTour, in which each model that is given away is noised.

There is no such setting: this is why. Before a model is given, its change from the common base is clipped and noise is
added. Epsilon is that of one such model, for all photos of its owner (delta 1e-5); who gives ten away spends more. The
better one of two clips is shown.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import torch
from rich.table import Table

from wayfare import Experiment
from wayfare.core.bundle import Bundle
from wayfare.encounters.coding import ModelCoding
from wayfare.encounters.scenario import Scenario
from wayfare.privacy.accounting import noise_for
from wayfare.recipe import override, read_table
from wayfare.runner import run_all

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "demo" / "objects.toml"
EPSILONS, DELTA, CLIPS = (100.0, 8.0), 1e-5, (0.1, 1.0)
QUICK = {"partition.clients": 12, "topology.traces": "town:12", "exchange.lab": 8, "exchange.limit": 8}
METRIC = "test/accuracy"
FORM = "fp16"  # so that a model passes the coding at all


@dataclass(frozen=True)
class Noised(ModelCoding):
    """Models whose change from the base is clipped and noised."""

    noise: float
    clip: float

    def received(self, report, base, rng):
        changes = {(s, n): w.double() - base[s][n] for s, part in report.tensors.items() for n, w in part.items()}
        length = math.hypot(*(float(change.norm()) for change in changes.values()))
        shorter, sections = min(1.0, self.clip / length) if length else 1.0, {}
        for (section, name), change in changes.items():
            drawn = torch.from_numpy(rng.standard_normal(tuple(change.shape)))
            given = base[section][name] + shorter * change + self.noise * self.clip * drawn
            sections.setdefault(section, {})[name] = given.to(report[section][name])
        return Bundle(sections, report.values)


def measure(args, out):
    """The mean accuracy over devices at the end of the day."""
    table = override(read_table(RECIPE), {"topology.form": FORM, **(QUICK if args.quick else {})})
    ways = {"alone": (override(table, {"exchange.name": "budgeted", "exchange.limit": 0}), None)}
    ways["no noise"] = table, None
    for epsilon in EPSILONS:
        noise = noise_for(1.0, 1, DELTA, epsilon)
        ways |= {f"epsilon {epsilon:g}, clip {clip:g}": (table, (noise, clip)) for clip in CLIPS}
    return {name: _accuracy(recipe, noised, out / name, args.seeds) for name, (recipe, noised) in ways.items()}


def _accuracy(recipe, noised, folder, seeds):
    experiment, found = Experiment.from_table(recipe), []
    for seed in range(seeds):
        with patch.object(Scenario, "coding", _coding(noised)):
            (summary,) = run_all({f"{seed}": experiment.with_seed(seed)}, folder, "local")
        found.append(summary["metrics"][METRIC])
    return found


def _coding(noised):
    return property(lambda self: Noised(FORM, 1.0, *noised) if noised else ModelCoding(FORM, 1.0))


def targets(figures):
    """Nothing is demanded."""
    return [{"name": f"devices that meet: {name}", "value": sum(each) / len(each), "target": "", "met": None}
            for name, each in figures.items()]  # fmt: skip


def show(figures, console):
    """Print them."""
    table = Table("models given away", METRIC, title="FedTour, the demo's day, mean over devices")
    for name, each in figures.items():
        table.add_row(name, ", ".join(f"{value:.3f}" for value in each))
    console.print(table)
