"""Which networks can be trained with differential privacy."""

from __future__ import annotations

from torch import nn

from wayfare.core.bundle import travelling
from wayfare.core.errors import ConfigError

_RUNNING = "running_"  # how statistics of normalisation layers are called


def check_buffers(net: nn.Module) -> None:
    """Refuse what would be published without noise: statistics of BatchNorm, and buffers that are learnt."""
    net.train()
    for name, module in net.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training and module.track_running_stats:
            raise ConfigError(
                f"[privacy] {name} is a BatchNorm layer: its statistics mix the samples of a client and would be "
                "published without noise. Use GroupNorm, or stored statistics (model.statistics = 'stored')"
            )
    parameters = dict(net.named_parameters())
    learnt = [n for n in travelling(net) if n not in parameters and not n.rpartition(".")[2].startswith(_RUNNING)]
    if learnt:
        raise ConfigError(
            f"[privacy] the buffers {', '.join(learnt[:3])} are learnt from the clients' data and would be "
            "published without noise: switch off what needs them (of places: model.whiten = 0, another pooling)"
        )
