"""People meet and exchange models: gossip, FedTour, and a policy of your own, on the same meetings.

A policy is one class; its arrays have one entry per direction of a meeting. Budgets are kept by the tour, not by it.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from wayfare import Experiment, Training, run
from wayfare.core.seeds import rng_for
from wayfare.encounters.policies import Plain, can_ask, unpredicted
from wayfare.encounters.policies.fedtour import FedTour
from wayfare.encounters.policies.gossip import Gossip
from wayfare.encounters.topology import Encounters
from wayfare.experiment import Evaluation
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.partition.quantity import Quantity
from wayfare.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Upward(Plain):
    """Asks peers whose announced accuracy is higher than mine by at least `margin`."""

    margin: float = 0.05
    scored: ClassVar[bool] = True  # devices know how good their models are

    def decide(self, columns, meeting, predictor):
        better = meeting.score > columns["score"][meeting.me] + self.margin
        return unpredicted(can_ask(columns, meeting) & better)


if __name__ == "__main__":
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/tour")
    out.mkdir(parents=True, exist_ok=True)
    rng, contacts = rng_for(0, "example"), out / "contacts.txt"  # who was near whom: seconds, one, other
    pairs = [(30 * slot, *rng.choice(20, 2, replace=False)) for slot in range(60) for _ in range(10)]
    contacts.write_text("".join(f"{when} {one} {other}\n" for when, one, other in pairs))
    tour = Experiment(
        task=Objects(model=CnnClassifier(width=4, hidden=16)),
        partition=Quantity(clients=20, distribution="pareto", min_size=2),
        strategy=FedAvg(weighting="uniform"),
        topology=Encounters(traces=str(contacts), public=200, probe=100, judge=100),
        training=Training(epochs=6, batch_size=16, optimizer="adam", lr=3e-3),
        evaluation=Evaluation(every=30, holdout=0.0),
        rounds=0,  # all there are: the beginning, then every slot of 30 s
    )
    for policy in (Gossip(probability=0.5), FedTour(floor=True, lab=12), Upward()):
        name = type(policy).__name__
        metrics = run(replace(tour, exchange=policy), out / name, "local")["metrics"]
        print(name, {key: round(metrics[key], 3) for key in ("test/accuracy", "test/accuracy_max", "tour/taken")})
