"""Many models tested in one go, where a model is a linear head on a frozen network: as devices would, much sooner.

A head is a few thousand numbers, and asking a device to test it costs ten times as much as the test. So in a simulation
heads are tested here, by the product of matrices that a device uses as well (`Objects.tally`): the counts are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from wayfare.core.bundle import Bundle
from wayfare.encounters.scenario import Scenario

_TOGETHER = 256  # heads in memory at a time


def has_heads(scenario: Scenario) -> bool:
    """Whether every device's state is a linear head and nothing else."""
    plain = scenario.strategy.averages and scenario.initial.tensors.keys() == {"model"}
    return plain and "heads" in scenario.task.provides


def stacked(states: Sequence[Bundle]) -> tuple[Tensor, Tensor]:
    """Weights (k, classes, width) and biases (k, classes)."""
    models = [state["model"] for state in states]
    [weight], [bias] = ([n for n, t in models[0].items() if t.ndim == dims] for dims in (2, 1))
    return torch.stack([m[weight] for m in models]), torch.stack([m[bias] for m in models])


def probe_scores(scenario: Scenario, devices: Sequence[int], states: Sequence[Bundle]) -> np.ndarray:
    """The accuracy of each state on the probe pictures of its device."""
    found = np.empty(len(devices))
    probes = [scenario.probes[device] for device in devices]
    for probe in {id(probe): probe for probe in probes}.values():  # devices with the same interests share one
        places = [place for place, of in enumerate(probes) if of is probe]
        right, total = tallies(scenario, [states[place] for place in places], probe.numpy())
        found[places] = right.sum(1) / max(1, total.sum())
    return found


def tallies(
    scenario: Scenario, states: Sequence[Bundle], samples: np.ndarray | None, limit: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Right answers (k, classes) and all answers (classes,), on samples of the pool, or so many test pictures."""
    parts = [states[first : first + _TOGETHER] for first in range(0, len(states), _TOGETHER)]
    counted = [scenario.task.tally_many(*stacked(part), samples, limit) for part in parts]
    return np.concatenate([right for right, _ in counted]), counted[0][1]
