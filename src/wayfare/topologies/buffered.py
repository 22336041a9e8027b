"""FedBuff (Nguyen et al., 2022): the server merges as soon as `buffer` replies have arrived, whoever sent them.

    Delta_k = w_k - w_(v_k)                           v_k the version that device k was sent, t_k merges ago
    w      <- w + sum_k p_k s(t_k) Delta_k            p_k = N_k / N over the buffer, or 1 / K

For the strategy a reply is the model w + s(t_k) Delta_k; so FedAvg does the above, and a server optimiser of FedOpt is
the server's learning rate of the paper. Statistics, such as running means, go s(t_k) of the way to the reply's instead.
Without staleness a reply stays as it is: with as many devices under way as in a buffer, all alike, this is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from wayfare.core.ranges import Range, check_ranges
from wayfare.topologies.flights import Overlapping


@dataclass(frozen=True)
class Buffered(Overlapping):
    """Merges every few replies, and waits for nobody."""

    buffer: int = field(default=10, kw_only=True)  # replies in a merge, which is a round

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges("topology", self, {"buffer": Range(1)})

    @property
    def arrivals(self) -> int:
        return self.buffer

    def moved(self, now: Tensor, reply: Tensor, base: Tensor, share: float) -> Tensor:
        if share == 1 and base is now:
            return reply
        return (now.double() + share * (reply.double() - base.double())).to(reply.dtype)
