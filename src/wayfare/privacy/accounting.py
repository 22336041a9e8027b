"""Epsilon: what a ledger has spent, and the noise for what may be spent. Accounting is dp-accounting's (PLD).

The unit of privacy is a client: two federations are neighbours if one has one client more, with all of its photos.
Sampling is Poisson, each client by itself with probability `rate`. Epsilon is rounded up by the library.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from wayfare.core.errors import ConfigError
from wayfare.core.ranges import Range

_LARGEST_NOISE = 1000.0
RANGES = {
    "noise": Range(0, _LARGEST_NOISE, open_low=True),
    "clip": Range(0, 1e9, open_low=True),
    "delta": Range(0, 1, open_low=True, open_high=True),
    "epsilon": Range(0),
}
_STEP, _STEPS = 1e-3, 5  # a step of the discrete loss, and how many of them a release's own spread has at least
_LEAST_STEP = 1e-5
_LEAST_NOISE = 0.01


def epsilon(counted: Mapping[tuple[float, float], int], delta: float) -> float:
    """Of these many releases of each (rate, noise)."""
    if any(noise < _LEAST_NOISE for _, noise in counted):
        return math.inf  # above 5000 for a single release: nothing is protected
    return _epsilon(tuple(sorted(counted.items())), delta)


@lru_cache(maxsize=4096)
def _epsilon(counted: tuple[tuple[tuple[float, float], int], ...], delta: float) -> float:
    total = None
    for release, count in counted:
        composed = _one_release(*release).self_compose(count)
        total = composed if total is None else total.compose(composed)
    return 0.0 if total is None else float(total.get_epsilon_for_delta(delta))


@lru_cache(maxsize=256)
def _one_release(rate: float, noise: float) -> Any:
    """The privacy loss distribution of a sampled Gaussian sum, a client added or removed."""
    from dp_accounting.pld import privacy_loss_distribution  # nearly a second to import

    return privacy_loss_distribution.from_gaussian_mechanism(
        noise, value_discretization_interval=step_of(rate, noise), sampling_prob=min(rate, 1.0)
    )


def step_of(rate: float, noise: float) -> float:
    """How fine the loss is divided: a coarser step gives a larger epsilon, by less than half a percent here.

    One release has a loss of about rate / noise, and one of up to 1 / noise^2 where the noise is small.
    """
    return max(min(_STEP * max(1.0, noise**-2), min(rate, 1.0) / noise / _STEPS), _LEAST_STEP)


def noise_for(rate: float, rounds: int, delta: float, budget: float) -> float:
    """The least noise (over the clip) with which these rounds cost at most the budget, within one percent."""
    low, high = 0.1, 1.0
    while epsilon({(rate, high): rounds}, delta) > budget:
        low, high = high, 2 * high
        if high > _LARGEST_NOISE:
            raise ConfigError(
                f"epsilon {budget:g} cannot be reached with noise up to {_LARGEST_NOISE:g}: allow more, ask fewer "
                "clients per round, or take fewer rounds"
            )
    while high / low > 1.01:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if epsilon({(rate, middle): rounds}, delta) <= budget else (middle, high)
    return high


def check_budget(budget: float, rounds: int, epsilon_after: Callable[[int], float]) -> list[str]:
    """A warning if the budget lasts for some of the rounds only; an error if it does not allow the first one."""
    lasts = bisect_right(range(1, rounds + 1), budget, key=epsilon_after)
    if lasts == rounds:
        return []
    what = "`wayfare privacy plan` says which privacy.noise is enough for all rounds"
    if not lasts:
        one = f"one round costs {epsilon_after(1):.3g}"
        raise ConfigError(f"privacy.epsilon = {budget:g} does not allow a single round: {one}; {what}")
    return [f"privacy.epsilon = {budget:g} lasts for {lasts} of {rounds} rounds: {what}"]
