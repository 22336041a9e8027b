"""What a policy answers is checked before it is used: a policy may be somebody's first one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from wayfare.core.errors import ConfigError
from wayfare.core.exchange import Columns, Decision, Exchange

_KEPT = {
    "score",
    "can_send",
    "can_take",
    "sent",
    "taken",
    "bytes_sent",
    "bytes_taken",
    "joules",
    "row",
    "check",
}  # by the topology


class UnscoredColumns(dict[str, np.ndarray]):
    """What a policy sees of the devices if it has not said that it needs accuracies: none are measured then."""

    def __init__(self, columns: Columns, policy: Exchange) -> None:
        super().__init__({name: column for name, column in columns.items() if name != "score"})
        self._policy = type(policy).__name__

    def __missing__(self, name: str) -> np.ndarray:
        if name != "score":
            raise KeyError(name)
        raise ConfigError(
            f"{self._policy} reads columns['score'], but accuracies are not measured for it: "
            "add `scored: ClassVar[bool] = True` to the class"
        )


def seen_by(policy: Exchange, columns: Columns) -> Columns:
    """The columns as this policy may look at them."""
    return columns if policy.scored else UnscoredColumns(columns, policy)


def checked_decision(policy: Exchange, found: object, count: int) -> Decision:
    """A decision for each of so many directions."""
    name = f"{type(policy).__name__}.decide"
    if not isinstance(found, Decision):
        raise ConfigError(f"{name} must return Decision(asks, predicted), not {type(found).__name__}")
    _check_array(f"{name}: asks", found.asks, count, "b", "booleans")
    _check_array(f"{name}: predicted", found.predicted, count, "f", "accuracies, NaN where there are none")
    return found


def checked_flags(policy: Exchange, method: str, found: object, count: int) -> np.ndarray:
    """Yes or no for each of so many."""
    return _check_array(f"{type(policy).__name__}.{method}", found, count, "b", "booleans")


def checked_columns(policy: Exchange, method: str, found: object) -> Columns:
    """Columns that have changed, by name; not those that the topology keeps."""
    name = f"{type(policy).__name__}.{method}"
    if not isinstance(found, Mapping) or not all(isinstance(column, np.ndarray) for column in found.values()):
        raise ConfigError(f"{name} must return a dict of arrays, the columns that changed; {{}} if none did")
    if kept := _KEPT & found.keys():
        raise ConfigError(f"{name} changes {', '.join(sorted(kept))}, which only the topology may")
    return dict(found)


def _check_array(name: str, found: object, count: int, kind: str, words: str) -> np.ndarray:
    if not isinstance(found, np.ndarray) or found.shape != (count,) or found.dtype.kind != kind:
        given = f"{found.dtype} {found.shape}" if isinstance(found, np.ndarray) else type(found).__name__
        raise ConfigError(
            f"{name} must be an array of {count} {words}, one for each direction of a meeting, not {given}"
        )
    return found
