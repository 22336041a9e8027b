"""Whether a written network says what the run's own does: the same inputs through both.

largest_difference   of any number of the outputs
same_first           the share of inputs with the same first answer. Of logits: the class with the largest. Of
                     vectors: which of the other inputs is nearest to it, where the others went through the run's
                     network, as an index has them
same_ten             of the ten first answers, the share that is among the other's ten
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wayfare.core.errors import WayfareError
from wayfare.portable import PortablePart

Network = Callable[..., np.ndarray]
_PART = 64  # inputs at a time
_TEN = 10
_FEW = 8  # random inputs, where there is no data


@dataclass(frozen=True)
class Agreement:
    """See the module."""

    inputs: int
    on: str  # "own data" or "noise"
    largest_difference: float
    same_first: float
    same_ten: float
    largest: float  # of any number of the run's own outputs


def measured(part: PortablePart, network: Network, count: int) -> Agreement:
    """On inputs of the run's own data; on noise where that cannot be read."""
    given, on = _inputs(part, count)
    before, after = through(part, given), through(network, given)
    first, ten = compared(before, after, part.output)
    difference, largest = (float(np.abs(values).max(initial=0)) for values in (before - after, before))
    return Agreement(len(before), on, difference, first, same_ten=ten, largest=largest)


def through(network: Network, given: tuple[Tensor, ...]) -> np.ndarray:
    """All outputs, a few inputs at a time."""
    starts = range(0, len(given[0]), _PART)
    return np.concatenate([network(*(each[start : start + _PART] for each in given)) for start in starts])


def compared(before: np.ndarray, after: np.ndarray, output: str) -> tuple[float, float]:
    """`same_first` and `same_ten`."""
    if output == "logits":
        orders = [np.argsort(-values, axis=1, kind="stable")[:, :_TEN] for values in (before, after)]
    else:
        orders = [_nearest(values, before) for values in (before, after)]
    if not orders[0].size:
        return 1.0, 1.0
    first = float((orders[0][:, 0] == orders[1][:, 0]).mean())
    return first, float(np.mean([np.isin(one, other).mean() for one, other in zip(*orders)]))


def _nearest(queries: np.ndarray, items: np.ndarray) -> np.ndarray:
    """The ten nearest items to each query, but its own."""
    near = _unit(queries) @ _unit(items).T
    np.fill_diagonal(near, -np.inf)
    return np.argsort(-near, axis=1, kind="stable")[:, : min(_TEN, len(items) - 1)]


def _unit(values: np.ndarray) -> np.ndarray:
    wide = values.astype(np.float64)
    found: np.ndarray = wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)
    return found


def _inputs(part: PortablePart, count: int) -> tuple[tuple[Tensor, ...], str]:
    try:
        given = part.own(count)
        if len(given[0]):
            return given, "own data"
    except WayfareError:  # the data is no longer there
        pass
    if any(each.example.dtype != torch.float32 for each in part.inputs):
        return tuple(each.example for each in part.inputs), "examples"
    random = torch.Generator().manual_seed(0)
    return tuple(torch.rand(_FEW, *each.example.shape[1:], generator=random) for each in part.inputs), "noise"


def as_dict(found: Agreement) -> dict[str, Any]:
    """For the manifest."""
    return {name: getattr(found, name) for name in ("inputs", "on", "largest_difference", "same_first", "same_ten")}
