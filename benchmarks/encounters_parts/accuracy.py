"""What devices gain by meeting, beside the paper's numbers: initial, gossip, FedTour, and FedTour with an oracle.

The experiments are cells of recipes/fedtour/policies.toml at small scale: CIFAR-10, 300 devices in the town, L = 40, a
head on a frozen network. All policies see the same contacts, meetings and initial models. With --quick it is digits on
few devices for an hour or two: the machinery, not the figures.
"""

from pathlib import Path

from rich.table import Table

from places_parts import common
from wayfare.encounters.policies.fedtour import FedTour
from wayfare.papers.paper import Scale
from wayfare.papers.plan import read_plan

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
CELLS = {"never": "initial", "gossip": "gossip", "fedtour": "FedTour as written", "fedtour-floor": "FedTour, floor",
         "oracle": "oracle", "oracle-floor": "oracle, floor"}  # fmt: skip
BOUND = {"fedtour": "oracle", "fedtour-floor": "oracle-floor"}
PAPER_BEST = {"never": 61.14, "gossip": 59.04, "fedtour": 62.45}
QUICK = {"rounds": 100, "partition.clients": 24, "topology.traces": "town:24"}


def experiments(quick, seeds):
    """(the paper's means, run -> experiment)."""
    plan = read_plan(RECIPES / "fedtour" / "policies.toml", Scale.small)
    made = {name: plan.experiments[name] for name in CELLS}
    if quick:
        made = {name: on_digits(experiment.exchange, QUICK) for name, experiment in made.items()}
    runs = {f"{name}/seed-{s}": e.with_seed(s) for name, e in made.items() for s in range(_seeds(name, seeds))}
    return {name: plan.cells[name].paper for name in CELLS}, runs


def _seeds(name, seeds):
    """An oracle has to try every merge it is offered: the first seed is enough for the bound."""
    return 1 if name in BOUND.values() else seeds


def on_digits(exchange, changes):
    """recipes/tour.toml with this policy: needs no data."""
    from dataclasses import replace

    from wayfare.experiment import Experiment

    experiment = Experiment.read(RECIPES / "tour.toml", dict(changes))
    few = {"lab": 12} if isinstance(exchange, FedTour) else {}
    return replace(experiment, exchange=replace(exchange, **few))


def measure(quick, seeds, out, machine):
    """For each policy, by seed: mean and best accuracy in percent, transmissions and receptions per device."""
    papers, runs = experiments(quick, seeds)
    records, _ = common.play(runs, out / "accuracy", machine, "test/accuracy")
    figures = {}
    for name, label in CELLS.items():
        of = [records[f"{name}/seed-{seed}"] for seed in range(_seeds(name, seeds))]
        figures[name] = {
            "label": label,
            "paper": papers[name],
            "paper_best": PAPER_BEST.get(name),
            "mean": [100 * record.final("test/accuracy") for record in of],
            "best": [100 * record.final("test/accuracy_max") for record in of],
            "exchanges": [record.final("tour/sent") + record.final("tour/taken") for record in of],
            "seconds": [record.seconds for record in of],
        }
    for name, bound in BOUND.items():
        figures[name]["regret"] = [a - b for a, b in zip(figures[bound]["mean"], figures[name]["mean"])]
    return figures


def targets(figures):
    found, initial, gossip = [], figures["never"], figures["gossip"]
    for name in BOUND:
        own, label = figures[name], figures[name]["label"]
        by_seed, theirs = dict(enumerate(own["mean"])), dict(enumerate(gossip["mean"]))
        found.append(common.beyond_noise(f"{label}: mean above gossip's, points", by_seed, theirs, "seeds"))
        least = min(a - b for a, b in zip(own["best"], initial["best"]))
        found.append(common.at_least(f"{label}: best device above the initial best, points, worst seed", least, 0))
        share = max(a / b for a, b in zip(own["exchanges"], gossip["exchanges"]))
        found.append({"name": f"{label}: exchanges, share of gossip's, worst seed", "value": share,
                      "target": "below 1", "met": share < 1})  # fmt: skip
    return found


def show(figures, out):
    table = Table(title="accuracy after the day, percent; L = 40; ± over seeds", title_justify="left")
    for head in ("", "mean", "paper", "best", "paper's best", "exchanges", "behind the oracle", "s"):
        table.add_column(head, justify="right" if head else "left")
    for each in figures.values():
        regret = common.plus_minus(common.spread(each["regret"])) if "regret" in each else ""
        mean, best, exchanges = (common.plus_minus(common.spread(each[key])) for key in ("mean", "best", "exchanges"))
        paper, paper_best = ("" if each[key] is None else f"{each[key]}" for key in ("paper", "paper_best"))
        seconds = f"{sum(each['seconds']) / len(each['seconds']):.0f}"
        table.add_row(each["label"], mean, paper, best, paper_best, exchanges, regret, seconds)
    out.print(table)
    words = "exchanges: transmissions and receptions per device; behind the oracle: the predictor's regret, points"
    out.print(f"{words}; floor: the threshold is never below the own accuracy", soft_wrap=True)
