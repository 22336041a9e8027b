"""Liars: devices that announce an accuracy of 0.99 and send noise. What they cost gossip, FedTour and guarded FedTour.

- A day of recipes/tour.toml (digits, 60 devices, a fifth of each one's pictures held out) with 0, 10, 20 and 40 % of
  the devices lying. Accuracy is the mean over those that do not.
- Of all merges that guarded devices adopted: how many were worse on the device's own held-out pictures (on the probe,
  where it holds none out).
- Spam: two devices in contact for 10,000 slots, one a liar; what the other spends of its L = 40.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.table import Table

from encounters_parts.accuracy import RECIPES
from places_parts import common
from wayfare import allow_code, runner
from wayfare.core.seeds import rng_for
from wayfare.encounters.policies.fedtour import FedTour
from wayfare.encounters.policies.gossip import Gossip
from wayfare.encounters.policies.guarded import Guarded
from wayfare.experiment import Experiment

SHARES, QUICK_SHARES = (0.0, 0.1, 0.2, 0.4), (0.4,)
SPAM, QUICK_SPAM = 10_000, 300
QUICK = {"rounds": 100, "partition.clients": 24, "topology.traces": "town:24", "exchange.lab": 12}
LIMIT = 40
adopted_merges = []  # of the watched policy, one array (worse or not) per slot


@dataclass(frozen=True)
class Watched(Guarded):
    """Guarded FedTour, looked at: runs in this process only."""

    def accept(self, columns, outcome):
        adopted = super().accept(columns, outcome)
        own = np.isfinite(outcome.own_before)
        before, after = np.where(own, [outcome.own_before, outcome.own_after], [outcome.before, outcome.after])
        adopted_merges.append((after < before)[adopted])
        return adopted


class Believer:
    """A predictor that trusts what it is told: half of what the peer is ahead is gained."""

    def __init__(self, laboratory):
        pass

    def predict(self, mine, meeting):
        return (mine + meeting.score) / 2


POLICIES = {"gossip": Gossip(LIMIT), "FedTour": FedTour(LIMIT), "guarded": Watched(LIMIT)}


def _experiment(policy, share, quick, seed):
    changes = {"topology.liars": share, "evaluation.holdout": 0.2, **(QUICK if quick else {})}
    experiment = Experiment.read(RECIPES / "tour.toml", changes).with_seed(seed)
    few = {"lab": experiment.exchange.lab} if isinstance(policy, FedTour) else {}
    return replace(experiment, exchange=replace(policy, **few))


def _honest_accuracy(experiment):
    """The mean over devices that do not lie, at the end of the day and when all had begun."""
    clients, judged = experiment.partition.clients, []
    count = round(experiment.topology.liars * clients)
    liars = {f"c{i}" for i in rng_for(experiment.seed, "liars").permutation(clients)[:count]}

    def listen(event, data):
        if event == "round" and data["per_client"]:
            judged.append(np.mean([v for id, v in data["per_client"]["accuracy"].items() if id not in liars]))

    with tempfile.TemporaryDirectory() as temporary:
        runner.run(experiment, Path(temporary) / "run", "local", listen=listen)
    return float(judged[-1]), float(judged[1])  # before them all the untrained network is judged


def measure(quick, seeds):
    shares, found = QUICK_SHARES if quick else SHARES, {}
    adopted_merges.clear()
    for name, policy in POLICIES.items():
        for share in shares:
            values = []
            for seed in range(seeds):
                values.append(_honest_accuracy(_experiment(policy, share, quick, seed)))
                common.note.print(f"{name}, {share:.0%} liars, seed {seed}: {100 * values[-1][0]:.1f}", markup=False)
            found.setdefault(name, {})[f"{share:.0%}"] = {"accuracy": [100 * after for after, _ in values],
                                                         "initial": [100 * before for _, before in values]}  # fmt: skip
    worse = np.concatenate(adopted_merges) if adopted_merges else np.empty(0, bool)
    slots = QUICK_SPAM if quick else SPAM
    spam = {name: _spent(POLICIES[name], slots) for name in ("FedTour", "guarded")}
    return {"accuracy": found, "adopted": len(worse), "worse": int(worse.sum()), "slots": slots, "spam": spam}


def _spent(policy, slots):
    """What the victim of the only other device, a liar, has received at the end of so many slots of contact.

    It trusts what it is told, so that it does ask; half of L is for sending, half for receiving.
    """
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        (work / "pair.txt").write_text("".join(f"{30 * slot} 1 2\n" for slot in range(slots)))
        changes = {"partition.name": "random", "partition.clients": 2, "topology.traces": str(work / "pair.txt"),
                   "topology.liars": 0.5, "evaluation.every": slots, "training.at_most": 20}  # fmt: skip
        allow_code(__name__)
        trusting = replace(policy, reserve=LIMIT // 2, predict_with=f"{__name__}:Believer")
        experiment = replace(Experiment.read(RECIPES / "tour.toml", changes), exchange=trusting)
        taken = {}

        def listen(event, data):
            if event == "round":
                for id in data["clients"] if "slot" in data.get("events", {}) else ():
                    taken[id] = taken.get(id, 0) + 1

        runner.run(experiment, work / "run", "local", listen=listen)
        (liar,) = rng_for(experiment.seed, "liars").permutation(2)[:1]
        return taken.get(f"c{1 - liar}", 0)


def targets(figures):
    found = []
    for share, guarded in figures["accuracy"]["guarded"].items():
        if share == "0%":
            continue
        for other in ("FedTour", "gossip"):
            ahead = np.mean(guarded["accuracy"]) - np.mean(figures["accuracy"][other][share]["accuracy"])
            name = f"{share} liars: guarded above {other}, points"
            found.append({"name": name, "value": ahead, "target": "above 0", "met": bool(ahead > 0)})
    words = f"merges adopted by guarded devices and worse, of {figures['adopted']:,}"
    found.append(common.at_most(words, figures["worse"], 0))
    found.append(common.at_least("merges adopted by guarded devices", figures["adopted"], 1))
    spam, words = figures["spam"], f"{figures['slots']:,} spam encounters cost"
    found.append(common.at_most(f"{words} a guarded device, of L = {LIMIT}", spam["guarded"], 1))
    found.append(common.at_least(f"{words} FedTour as written (else nothing was tried)", spam["FedTour"], 2))
    return found


def show(figures, out):
    table = Table(title="mean accuracy of devices that do not lie, percent", title_justify="left")
    shares = list(figures["accuracy"]["gossip"])
    for head in ("", *(f"{share} liars" for share in shares)):
        table.add_column(head, justify="right" if head else "left")
    initial = [figures["accuracy"]["gossip"][share]["initial"] for share in shares]
    table.add_row("initial", *(common.plus_minus(common.spread(values)) for values in initial))
    for name, by_share in figures["accuracy"].items():
        table.add_row(name, *(common.plus_minus(common.spread(by_share[share]["accuracy"])) for share in shares))
    out.print(table)
    spam, adopted = figures["spam"], f"{figures['adopted']:,}, worse on their hold-out: {figures['worse']}"
    words = f"{figures['slots']:,} spam encounters cost FedTour {spam['FedTour']} and guarded {spam['guarded']}"
    out.print(f"merges adopted by guarded devices: {adopted}; {words} of L = {LIMIT}", highlight=False, soft_wrap=True)
