"""FedTour's study of merged models on CIFAR-10 (Sect. IV): pairs that improve, and the regressor's error.

The paper prints "37,315 of 53,361 pairs" (69.9 %) and "MAPE under 6 %", and does not say how pairs were held out. Here
both models of a held-out pair are new to the regressor; the error on pairs held out by themselves stands beside it.
With --quick it is a few models of digits: the machinery, not the figures.
The small CNN begins with untrained layers, the head stands on a network that knows ImageNet, as the paper's does.
"""

import time
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from wayfare import Experiment, Training
from wayfare.encounters.predictors.regressor import PAPER_MAPE, fit
from wayfare.encounters.predictors.study import PAPER_IMPROVING
from wayfare.objects.data.cifar import Cifar10
from wayfare.objects.models import CnnClassifier, FrozenHeadClassifier, ObjectModel
from wayfare.objects.task import Objects
from wayfare.papers.study import conduct, summarise

SHARES = {
    "improving": "better than the first of a pair",
    "better_than_both": "better than both of a pair",
    "mape": "MAPE on models not seen",
    "mape_by_pair": "MAPE on pairs not seen (leaks)",
    "mape_unchanged": 'MAPE of "nothing changes"',
}
PAPER = {"improving": f"{100 * PAPER_IMPROVING:.1f}", "mape": f"< {100 * PAPER_MAPE:.0f}"}


@dataclass(frozen=True)
class Case:
    """One network: how many models, and on how many pictures they are judged."""

    model: ObjectModel
    models: int
    judged: int
    training: Training


HEAD = Training(lr=0.03, batch_size=32, epochs=1)
CNN = Training(lr=0.05, momentum=0.9, batch_size=32, epochs=1)
CASES = {
    "frozen network, head": Case(FrozenHeadClassifier(), 231, 1000, HEAD),
    "small CNN": Case(CnnClassifier(normalise="cifar10"), 66, 500, CNN),
}
QUICK = {"small CNN on digits": Case(CnnClassifier(width=4, hidden=16), 12, 200, CNN)}


def measure(quick, machine, seeds=3, path=""):
    """For each network and seed what a study finds; `path` is CIFAR-10's, "" where `wayfare data get` puts it."""
    figures = {}
    for name, case in (QUICK if quick else CASES).items():
        task = Objects(model=case.model) if quick else Objects(Cifar10(path), case.model)  # else digits
        runs = []
        for seed in range(1 if quick else seeds):
            began = time.monotonic()
            experiment = Experiment(task=task, training=case.training, seed=seed)
            found = conduct(experiment, case.models, case.judged, engine=machine)
            _, quality = fit(found, seed)
            runs.append(summarise(found, quality) | {"seconds": time.monotonic() - began})
        figures[name] = {"models": case.models, "judged": case.judged, "runs": runs}
    return figures


def targets(figures):
    """The figures stand beside the paper's; what must hold is that the regressor knows something."""
    from places_parts.common import at_most

    return [
        at_most(f"regressor, {name}: its error beside that of \"nothing changes\", seed {seed}",
                run["mape"] / run["mape_unchanged"], 1.0)
        for name, each in figures.items() for seed, run in enumerate(each["runs"])
    ]  # fmt: skip


def show(figures, out):
    out.print("merged models on CIFAR-10 beside the paper's; percent, ± standard deviation over seeds", highlight=False)
    table = Table()
    table.add_column("")
    for name, each in figures.items():
        table.add_column(f"{name}\n{each['models']} models", justify="right")
    table.add_column("paper\nVGG16, 231", justify="right")
    spans = [" / ".join(f"{100 * each['runs'][0]['accuracy'][end]:.1f}" for end in ("min", "mean", "max"))
             for each in figures.values()]  # fmt: skip
    table.add_row("accuracy: least / mean / most, seed 0", *spans, "")
    for key, words in SHARES.items():
        cells = [_spread([100 * run[key] for run in each["runs"]]) for each in figures.values()]
        table.add_row(words, *cells, PAPER.get(key, ""))
    table.add_row("seconds", *(f"{np.mean([run['seconds'] for run in each['runs']]):.0f}" for each in figures.values()))
    out.print(table)


def _spread(values):
    return f"{np.mean(values):.1f}" + (f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else "")
