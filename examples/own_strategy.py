"""An algorithm of your own: one class, checked, and run like any other.

The server keeps half of the old model in every round. State is passed, never kept in `self`.
"""

import sys
from dataclasses import dataclass

from wayfare import Experiment, check_strategy, run
from wayfare.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Cautious(FedAvg):
    """FedAvg that moves a share of the way."""

    share: float = 0.5

    def merge(self, state, replies):
        mean = self.average(replies)
        return state.with_(model={name: w + self.share * (mean[name] - w) for name, w in state["model"].items()})


if __name__ == "__main__":
    from own_strategy import Cautious  # workers import it by this name; without this line it runs in one process

    print(len(check_strategy(Cautious())), "checks passed")
    print(run(Experiment(strategy=Cautious(), rounds=3), sys.argv[1] if len(sys.argv) > 1 else "runs/own")["metrics"])
