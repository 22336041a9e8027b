"""Devices drawn from distributions, by the run's seed and the device's id.

    lognormal   x = median e^(spread z)           z standard normal
    pareto      x = median (2 u)^spread           u uniform in (0, 1]: the time of a step has the tail index 1 / spread

A spread of 0 makes all devices alike. A device can be reached for a share of every `period`, from a moment of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from wayfare.core.clock import ALWAYS, Clock, Devices, Pace, Window
from wayfare.core.ranges import Range
from wayfare.core.seeds import rng_for

BYTES = 1e6 / 8  # in a megabit


@dataclass(frozen=True)
class Drawn(Clock):
    """Speeds, links and availability from distributions."""

    law: Literal["lognormal", "pareto"] = "lognormal"  # of speeds and links; pareto has more very slow ones
    speed: float = 10.0  # local steps a second of the median device
    speed_spread: float = 0.5  # 0: all devices are as fast
    up: float = 10.0  # megabits a second to the server, of the median device
    down: float = 50.0  # megabits a second from the server
    link_spread: float = 0.5  # 0: all links are as fast
    online: float = 1.0  # the share of the time in which a device can be reached
    period: float = 86400.0  # seconds after which its spans come again

    ranges: ClassVar[dict[str, Range]] = Clock.ranges | {
        "speed": Range(0, open_low=True),
        "speed_spread": Range(0, 10),
        "up": Range(0, open_low=True),
        "down": Range(0, open_low=True),
        "link_spread": Range(0, 10),
        "online": Range(0, 1, open_low=True),
        "period": Range(0, open_low=True),
    }

    def devices(self, seed: int) -> DrawnDevices:
        return DrawnDevices(self, seed)


class DrawnDevices(Devices):
    """Each is drawn when it is looked at, so a million cost nothing."""

    def __init__(self, settings: Drawn, seed: int) -> None:
        self.settings, self.seed, self.always = settings, seed, settings.online == 1

    def pace(self, device: str) -> Pace:
        of, rng = self.settings, rng_for(self.seed, "pace", device)
        speed, link = self._factor(rng, of.speed_spread), self._factor(rng, of.link_spread)
        return Pace(of.speed * speed, of.up * BYTES * link, of.down * BYTES * link)

    def _factor(self, rng: np.random.Generator, spread: float) -> float:
        if self.settings.law == "pareto":
            return float((2 * (1 - rng.random())) ** spread)
        return math.exp(spread * float(rng.standard_normal()))

    def window(self, device: str, time: float) -> Window:
        of = self.settings
        if self.always:
            return ALWAYS
        first = rng_for(self.seed, "online", device).random() * of.period
        return recurring(time, of.period, ((first, first + of.online * of.period),))


def recurring(time: float, period: float, spans: tuple[Window, ...]) -> Window:
    """Of spans that come again every `period`, in order and apart, the first that ends after `time`."""
    turn = math.floor(time / period) - 1
    while True:
        for opens, closes in spans:
            if turn * period + closes > time:
                return turn * period + opens, turn * period + closes
        turn += 1
