"""All data in one place, as the upper reference for a federation: the same loop with one client that holds everything.

Early stopping is a setting of the evaluation (`monitor`, `patience`) and works for every strategy.
"""

from dataclasses import dataclass
from typing import ClassVar

from wayfare.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Centralised(FedAvg):
    """The clients' data pooled."""

    topologies: ClassVar[frozenset[str]] = frozenset({"server"})
    pooled: ClassVar[bool] = True
