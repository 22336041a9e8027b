"""Virtual time: how long a device takes over a round, from its speed, its link and when it can be reached.

    seconds = bytes down / rate down + steps / speed + bytes up / rate up       while the device can be reached
    joules  = watts of training x seconds of training + watts of the link x seconds of sending and receiving

Steps and bytes are known before a device trains, so what a device does never depends on which one is done first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Strategy, Topology
from wayfare.core.ranges import Range, check_ranges

_ROUNDING = 1e-9  # share of a duration by which sums in floating point may be off
_MOST_WINDOWS = 100_000  # interruptions of one trip; beyond that it is taken for one without an end
Window = tuple[float, float]
ALWAYS: Window = (-math.inf, math.inf)


@dataclass(frozen=True)
class Pace:
    """What a device can do."""

    speed: float  # local steps a second
    up: float  # bytes a second, to the server
    down: float  # bytes a second, from the server


class Devices:
    """The devices of a run, as a clock sees them."""

    always: bool = True  # every device can be reached at any time

    def pace(self, device: str) -> Pace:
        """Its speed and link."""
        raise NotImplementedError

    def window(self, device: str, time: float) -> Window:
        """The span in which it can be reached that `time` lies in, or the next one."""
        return ALWAYS


@dataclass(frozen=True)
class Clock:
    """How virtual time passes, `[clock]` in a recipe. A frozen dataclass of settings."""

    deadline: float = 0.0  # virtual seconds after which a device is no longer waited for; 0: for ever
    over: float = 1.0  # over-selection: so many times the clients of a round are asked, and the first ones are merged
    partial: bool = False  # a device does as many of its steps as it can before the deadline
    weak: float = 0.0  # devices with fewer steps a second are weak: for strategies that let them do less
    training_watts: float = 3.0  # what a device draws while it trains
    link_watts: float = 1.0  # and while it sends or receives

    ranges: ClassVar[dict[str, Range]] = {
        "deadline": Range(0),
        "over": Range(1),
        "weak": Range(0),
        "training_watts": Range(0),
        "link_watts": Range(0),
    }

    def __post_init__(self) -> None:
        check_ranges("clock", self, self.ranges)

    def devices(self, seed: int) -> Devices:
        """The devices of a run with this seed."""
        raise NotImplementedError

    def misfit(self, strategy: Strategy, topology: Topology) -> str:
        """Why it cannot be used with these; "" if it can."""
        if not topology.timed:
            return f"is for the topologies 'server', 'buffered' and 'async', not for {type(topology).__name__!r}"
        if strategy.pooled:
            return f"is of no use with {type(strategy).__name__}: no device is waited for"
        if topology.overlaps and self.over > 1:
            return "over sets over-selection, which is for rounds that wait: here it is topology.concurrency"
        if self.partial and not self.deadline:
            return "partial = true lets devices do what they can before the deadline, and there is none: set deadline"
        if self.weak and strategy.effort(weak=True) == strategy.effort(weak=False):
            return f"weak says who trains less, and with {type(strategy).__name__} nobody does: choose 'fedheads'"
        return ""


@dataclass(frozen=True)
class Trip:
    """What a device does with one message, from the moment it is sent until the reply is there."""

    device: str
    start: float
    end: float  # when the reply is there; if it comes too late, when the server stops waiting
    steps: int
    whole: bool  # whether these are all the steps that the recipe asks for
    late: bool
    joules: float
    weak: bool = False


class Timetable:
    """Computes trips."""

    def __init__(self, clock: Clock, devices: Devices, steps: Callable[[str], int]) -> None:
        self.clock, self.devices, self.steps = clock, devices, steps

    def can_start(self, device: str, time: float) -> bool:
        """Whether it can be reached then."""
        return self.devices.always or self.devices.window(device, time)[0] <= time

    def next_start(self, device: str, time: float) -> float:
        """When it can be reached."""
        return max(time, self.devices.window(device, time)[0])

    def is_weak(self, device: str) -> bool:
        """Whether it is slower than `clock.weak`."""
        return self.devices.pace(device).speed < self.clock.weak

    def trip(self, device: str, start: float, down: int, up: int, *, effort: float = 1.0) -> Trip:
        """A device is sent so many bytes at this time, and sends so many when it has trained.

        `effort` is what its steps cost, of whole ones.
        """
        clock, pace, planned = self.clock, self.devices.pace(device), self.steps(device)
        speed = pace.speed / effort
        link, steps = down / pace.down + up / pace.up, planned
        stop = start + clock.deadline if clock.deadline else math.inf
        room = self._reachable(device, start, stop)
        if clock.partial:
            steps = min(planned, math.floor(max(0.0, room - link) * speed * (1 + _ROUNDING)))
        needed = link + steps / speed
        end = self._after(device, start, needed)
        late = steps < 1 or needed > room * (1 + _ROUNDING)
        if math.isinf(min(stop, end)):
            raise ConfigError(
                f"[clock] {device} never finishes within the hours in which it can be reached: set clock.deadline"
            )
        if late:  # it works until the server stops waiting
            spent = min(needed, room)
            training = min(steps / speed, max(0.0, spent - down / pace.down))
            link, end = spent - training, min(stop, end)
        else:
            training, end = steps / speed, min(end, stop)
        joules = clock.training_watts * training + clock.link_watts * link
        weak, whole = self.is_weak(device), steps == planned
        return Trip(device, start, end, steps=steps, whole=whole, late=late, joules=joules, weak=weak)

    def _after(self, device: str, start: float, needed: float) -> float:
        """When it has been reachable for so many seconds."""
        time = start
        for _ in range(_MOST_WINDOWS):
            opens, closes = self.devices.window(device, time)
            time = max(time, opens)
            if time + needed <= closes:
                return time + needed
            needed, time = needed - (closes - time), closes
        return math.inf

    def _reachable(self, device: str, start: float, stop: float) -> float:
        """For how many of these seconds it can be reached."""
        if math.isinf(stop):
            return math.inf
        time, total = start, 0.0
        while time < stop:
            opens, closes = self.devices.window(device, time)
            total += max(0.0, min(closes, stop) - max(opens, time))
            time = closes
        return total
