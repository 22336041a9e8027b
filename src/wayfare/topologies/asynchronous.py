"""FedAsync (Xie et al., 2019): the server merges every reply when it arrives.

w <- (1 - alpha s(t)) w + alpha s(t) w_k          t merges since device k was sent off
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from wayfare.core.ranges import Range, check_ranges
from wayfare.topologies.flights import Overlapping, mixed


@dataclass(frozen=True)
class Async(Overlapping):
    """Merges each reply, and waits for nobody."""

    alpha: float = 0.6  # how far the model goes to a fresh reply

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges("topology", self, {"alpha": Range(0, 1, open_low=True)})

    @property
    def arrivals(self) -> int:
        return 1

    def weight(self, staleness: int) -> float:
        return self.alpha * super().weight(staleness)

    def moved(self, now: Tensor, reply: Tensor, base: Tensor, share: float) -> Tensor:
        return mixed(now, reply, base, share)
