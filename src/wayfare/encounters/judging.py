"""The accuracy of the devices' models: on their probe pictures, for themselves, and on the test set, for the report."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from wayfare.core.bundle import Bundle
from wayfare.core.gate import TALLY, Gate
from wayfare.encounters.heads import has_heads, probe_scores, tallies
from wayfare.encounters.laboratory import accuracy
from wayfare.encounters.state import EncounterState

_QUANTILES = (("min", 0), ("p10", 0.1), ("median", 0.5), ("p90", 0.9), ("max", 1))


def scores(state: EncounterState, gate: Gate, devices: list[int]) -> list[float]:
    """The accuracy of each of these devices' models on its probe pictures."""
    if has_heads(state.scenario):
        return list(probe_scores(state.scenario, devices, [state.model(i) for i in devices]))
    return [accuracy(reply) for reply in _tallies(state, gate, devices)]


def judge(state: EncounterState, gate: Gate) -> None:
    """Test accuracies; a model that has not changed is not tested again, and equal ones are tested once."""
    columns, scenario = state.columns, state.scenario
    stale = np.flatnonzero((columns["judged"] != columns["check"]) | np.isnan(columns["accuracy"]))
    _, first, same = np.unique(columns["check"][stale], return_index=True, return_inverse=True)
    counts = _tested(state, gate, stale[first].tolist())
    for device, which in zip(stale, same):
        (right, total), targets = counts[which], scenario.areas.targets[device]
        columns["accuracy"][device] = right.sum() / max(1, total.sum())
        columns["target_accuracy"][device] = right[targets].sum() / max(1, total[targets].sum())
    columns["judged"] = columns["check"].copy()


def metrics(state: EncounterState) -> dict[str, float]:
    """Over all devices of people, those that met nobody included. Signage is counted nowhere."""
    people, found = ~state.scenario.contacts.stationary, dict[str, float]()
    for name in ("accuracy", *(("target_accuracy",) if state.scenario.settings.has_areas else ())):
        values = state.columns[name][people]
        found[f"test/{name}"] = float(values.mean())
        for part, q in _QUANTILES:
            found[f"test/{name}_{part}"] = float(np.quantile(values, q))
    for name in ("sent", "taken", "meetings", "joules", "bytes_sent"):
        found[f"tour/{name}"] = float(state.columns[name][people].mean())
    found["tour/lonely"] = float((state.columns["meetings"][people] == 0).mean())
    for name, part, whole in (("outside", "outside", "predictions"), ("mape", "error", "tested")):
        if count := int(state.columns[whole].sum()):
            found[f"tour/{name}"] = float(state.columns[part].sum()) / count
    known = zip(("tour/study_low", "tour/study_high"), state.reach)
    return found | {name: value for name, value in known if not math.isnan(value)}


def _tested(state: EncounterState, gate: Gate, devices: list[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Right and all answers of these devices' models on the test set, by class."""
    limit = state.scenario.settings.test
    if devices and has_heads(state.scenario):
        rights, total = tallies(state.scenario, [state.model(i) for i in devices], None, limit)
        return [(right, total) for right in rights]
    replies = _tallies(state, gate, devices, {"test": limit})
    return [(reply[TALLY]["right"].numpy(), reply[TALLY]["total"].numpy()) for reply in replies]


def _tallies(
    state: EncounterState, gate: Gate, devices: list[int], extra: dict[str, Any] | None = None
) -> Iterator[Bundle]:
    """Right and all answers; a refused reply ends the run, because a missing accuracy cannot be replaced."""
    scenario = state.scenario
    requests = ((scenario.ids[i], scenario.message(i, state.model(i), None, extra)) for i in devices)
    for _, reply in gate.run("look", requests, scenario.tally, strict=True):
        yield reply
