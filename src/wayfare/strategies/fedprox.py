"""FedProx (Li et al., 2020): the term mu/2 ||w - w_received||^2 keeps clients close to the received model."""

from dataclasses import dataclass

from torch import nn

from wayfare.core.bundle import Bundle, add
from wayfare.core.device import Device
from wayfare.core.protocols import Extra
from wayfare.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg with a proximal term."""

    mu: float = 0.01

    def extra(self, device: Device, net: nn.Module, message: Bundle) -> Extra:
        pairs = [(p, p.detach().clone()) for p in net.parameters() if p.requires_grad]  # the anchor must not move
        return lambda output, batch: self.mu / 2 * add((p - anchor).square().sum() for p, anchor in pairs)
