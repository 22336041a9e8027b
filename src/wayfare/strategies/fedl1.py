"""Fed l1 (Shi et al., 2023): the term mu |w - w_received|_1 keeps weights where they are that need not change.

Where a squared distance pulls far weights harder than near ones, this pulls all alike: small changes do not happen.
"""

from dataclasses import dataclass

from torch import nn

from wayfare.core.bundle import Bundle, add
from wayfare.core.device import Device
from wayfare.core.protocols import Extra
from wayfare.core.ranges import Range, check_ranges
from wayfare.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class FedL1(FedAvg):
    """FedAvg with a sum of absolute changes in the loss."""

    mu: float = 0.0001

    def __post_init__(self) -> None:
        check_ranges("strategy", self, {"mu": Range(0)})

    def extra(self, device: Device, net: nn.Module, message: Bundle) -> Extra:
        pairs = [(p, p.detach().clone()) for p in net.parameters() if p.requires_grad]  # the anchor must not move
        return lambda output, batch: self.mu * add((p - anchor).abs().sum() for p, anchor in pairs)
