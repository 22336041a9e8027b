"""Loading pretrained weights into a network: everything must fit, except the head if the number of classes differs."""

from __future__ import annotations

from torch import Tensor, nn

from wayfare.core.errors import ConfigError

_NAMED = 5  # of each kind of misfit: the weights of another network have none in common with this one


def load_pretrained(net: nn.Module, weights: dict[str, Tensor], *, skip_head: bool = True) -> list[str]:
    """Copy `weights` into `net` and return the names of the network's tensors that kept their initial values.

    The head (`net.head_name`) is left out when `skip_head` is set and it does not fit as a whole, as for weights of
    1000 classes in a network of 10. Any other difference is a ConfigError that names it, and nothing is loaded.
    """
    own = net.state_dict()
    fitting = [name for name in own if name in weights and own[name].shape == weights[name].shape]
    odd = {name for name in {*own, *weights} - set(fitting) if not _may_be_absent(name, own, weights)}
    if skip_head and any(name.startswith(head := f"{net.head_name}.") for name in odd):
        # A head is taken as a whole or not at all: a bias may fit by chance where the weight does not.
        odd = {name for name in odd if not name.startswith(head)}
        fitting = [name for name in fitting if not name.startswith(head)]
    if odd:
        raise ConfigError(_complaint(odd, own, weights))
    net.load_state_dict({name: weights[name] for name in fitting}, strict=False)
    return [name for name in own if name not in set(fitting)]


def _may_be_absent(name: str, own: dict[str, Tensor], weights: dict[str, Tensor]) -> bool:
    """Weight files from before PyTorch 0.4.1 lack BatchNorm's counter, which inference does not use."""
    return name.endswith("num_batches_tracked") and name in own and name not in weights


def _complaint(odd: set[str], own: dict[str, Tensor], weights: dict[str, Tensor]) -> str:
    missing = [name for name in own if name in odd and name not in weights]
    unexpected = [name for name in weights if name in odd and name not in own]
    shapes = [
        f"{name} {tuple(weights[name].shape)} for {tuple(own[name].shape)}"
        for name in own
        if name in odd and name in weights
    ]
    parts = [
        f"{kind}: {', '.join(names[:_NAMED])}" + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        for kind, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
        if names
    ]
    return f"these weights do not fit the network; {'; '.join(parts)}. Give the weights of the same architecture"
