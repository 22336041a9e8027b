"""The accuracy of the devices' models: on their probe pictures, for themselves, and on the test set, for the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from wayfare.core.bundle import Bundle
from wayfare.core.gate import TALLY, Gate
from wayfare.encounters.laboratory import accuracy
from wayfare.encounters.state import EncounterState

_QUANTILES = (("min", 0), ("p10", 0.1), ("median", 0.5), ("p90", 0.9), ("max", 1))


def scores(state: EncounterState, gate: Gate, devices: list[int]) -> list[float]:
    """The accuracy of each of these devices' models on its probe pictures."""
    return [accuracy(reply) for reply in _tallies(state, gate, devices)]


def judge(state: EncounterState, gate: Gate) -> None:
    """Test accuracies; a model that has not changed is not tested again, and equal ones are tested once."""
    columns, scenario = state.columns, state.scenario
    stale = np.flatnonzero((columns["judged"] != columns["check"]) | np.isnan(columns["accuracy"]))
    _, first, same = np.unique(columns["check"][stale], return_index=True, return_inverse=True)
    replies = _tallies(state, gate, stale[first].tolist(), {"test": scenario.settings.test})
    counts = [(reply[TALLY]["right"].numpy(), reply[TALLY]["total"].numpy()) for reply in replies]
    for device, which in zip(stale, same):
        (right, total), targets = counts[which], scenario.areas.targets[device]
        columns["accuracy"][device] = right.sum() / max(1, total.sum())
        columns["target_accuracy"][device] = right[targets].sum() / max(1, total[targets].sum())
    columns["judged"] = columns["check"].copy()


def metrics(state: EncounterState) -> dict[str, float]:
    """Over all devices, those that met nobody included."""
    columns, found = state.columns, dict[str, float]()
    for name in ("accuracy", *(("target_accuracy",) if state.scenario.settings.areas else ())):
        found[f"test/{name}"] = float(columns[name].mean())
        for part, q in _QUANTILES:
            found[f"test/{name}_{part}"] = float(np.quantile(columns[name], q))
    for name in ("sent", "taken", "meetings", "joules", "bytes_sent"):
        found[f"tour/{name}"] = float(columns[name].mean())
    return found | {"tour/lonely": float((columns["meetings"] == 0).mean())}


def _tallies(
    state: EncounterState, gate: Gate, devices: list[int], extra: dict[str, Any] | None = None
) -> Iterator[Bundle]:
    """Right and all answers; a refused reply ends the run, because a missing accuracy cannot be replaced."""
    scenario = state.scenario
    requests = ((scenario.ids[i], scenario.message(i, state.model(i), None, extra)) for i in devices)
    for _, reply in gate.run("look", requests, scenario.tally, strict=True):
        yield reply
