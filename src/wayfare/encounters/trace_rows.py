"""Rows of traces: which of them can be used, and how several days become one."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from wayfare.core.errors import ConfigError, DataError
from wayfare.encounters.contact_files import Meetings
from wayfare.encounters.trace_files import Fixes
from wayfare.io import earth
from wayfare.io.findings import Problems

FAR = 500_000.0  # metres; positions this far from the others are errors, and too far for one flat map
DAY = 86400.0  # seconds
_DATED = (
    1000  # days since 1970: numbers of seconds that are larger than this are dates, smaller ones count from a start
)


def numbered(names: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """The different names in the order in which they come, and for each one given its place among them."""
    number: dict[str, int] = {}
    places = [number.setdefault(name, len(number)) for name in names]
    return tuple(number), np.array(places, np.int64)


def in_space(part: Fixes) -> np.ndarray:
    """Metres in which the distance of two places is that of their coordinates, at the date line too."""
    return earth.from_centre(part.places) if part.geographic else part.places


# ---- What can be used


def usable(part: Fixes, max_speed: float, problems: Problems) -> Fixes:
    """The rows that are in the order of time for their device, not on another continent, and not too fast."""
    owner = numbered(part.devices)[1]
    of_device = np.split(order := np.argsort(owner, kind="stable"), np.flatnonzero(np.diff(owner[order])) + 1)
    late = np.zeros(len(part.times), bool)
    for rows in of_device:
        highest = np.maximum.accumulate(part.times[rows])[:-1]
        late[rows[1:]] = part.times[rows[1:]] <= highest
    spots = in_space(part)
    distance = np.sqrt(((spots - np.median(spots, axis=0)) ** 2).sum(axis=1))
    wrong = late | (distance > FAR)
    speeds = np.zeros(len(part.times))
    # visits are not checked: who photographs one attraction after another need not have walked between them
    if part.since != "opening":
        for rows in of_device:
            rows = rows[~wrong[rows]]
            speeds[rows] = _impossible(part.times[rows], spots[rows], max_speed)
    for row in np.flatnonzero(wrong | (speeds > 0)).tolist():
        line, device = part.lines[row], part.devices[row][:40]
        if late[row]:
            what = f"{device!r} has a row for this time or a later one already"
            problems.add(what, part.file, line, "time", "sort its rows by time, and remove the second of a time")
        elif wrong[row]:
            what = f"{distance[row] / 1000:.0f} km from where most are"
            problems.add(what, part.file, line, remedy="correct or remove the line")
        else:
            what = f"{device!r} would have to move at {speeds[row]:.0f} m/s, more than {max_speed:g}"
            problems.add(what, part.file, line, remedy="correct or remove the line, or allow a higher max_speed")
    return _chosen(part, ~wrong & (speeds == 0))


def _impossible(times: np.ndarray, spots: np.ndarray, max_speed: float) -> np.ndarray:
    """For each row of one device the speed that makes it impossible, 0 where it is not.

    A row is compared with the last one that is possible. The first row may be the wrong one: it is if fewer rows have
    to be left out without it.
    """
    steps = np.linalg.norm(np.diff(spots, axis=0), axis=1)
    if not (steps > max_speed * np.diff(times)).any():
        return np.zeros(len(times))
    found = []
    for first in (0, 1):
        needed = np.zeros(len(times))
        needed[:first] = steps[0] / (times[1] - times[0])
        last = first
        for row in range(first + 1, len(times)):
            speed = np.linalg.norm(spots[row] - spots[last]) / (times[row] - times[last])
            if speed > max_speed:
                needed[row] = speed
            else:
                last = row
        found.append(needed)
    return min(found, key=np.count_nonzero)


def _chosen(part: Fixes, use: np.ndarray) -> Fixes:
    if use.all():
        return part
    return replace(
        part,
        devices=list(compress(part.devices, use)),
        times=part.times[use],
        places=part.places[use],
        stationary=part.stationary[use],
        lines=list(compress(part.lines, use)),
    )


# ---- Days


def window_of(text: str) -> tuple[float, float]:
    """The seconds of the day from "06:00-18:00"; nothing is the whole day."""
    if not text:
        return 0.0, DAY
    found = re.fullmatch(r"(\d\d):(\d\d)-(\d\d):(\d\d)", text)
    hours = [int(part) for part in found.groups()] if found else [24, 0, 0, 0]
    begin, end = (3600.0 * hour + 60.0 * minute for hour, minute in (hours[:2], hours[2:]))
    if max(hours[1], hours[3]) > 59 or not begin < end <= DAY:
        raise ConfigError(f"window {text!r}: expected two times of one day, the earlier first, as 06:00-18:00")
    return begin, end


class Days(NamedTuple):
    """Which slots there are."""

    slot: float
    window: str  # "06:00-18:00", or nothing
    fold: bool

    def inside(self, slots: np.ndarray) -> np.ndarray:
        """Whether slots, counted from a midnight, begin within the window."""
        begin, end = window_of(self.window)
        return (begin <= (time := slots * self.slot % DAY)) & (time < end)

    def span(self, slots: np.ndarray, file: Path) -> tuple[int, int]:
        """The first of all slots and their number: as these reach, or from the first window to the last, both whole."""
        if not self.window:
            return int(slots.min()), int(slots.max() - slots.min()) + 1
        used = slots[self.inside(slots)]
        if not len(used):
            raise DataError(f"nothing happens in the window {self.window}", file, remedy="choose another window")
        begin, end = window_of(self.window)
        low, high = (math.floor(slot * self.slot / DAY) * DAY for slot in (used.min(), used.max()))
        first = math.ceil((low + begin) / self.slot)
        return first, math.ceil((high + end) / self.slot) - first


def folded(part: Fixes) -> Fixes:
    """All days as one: what a device does on a day is done by a device of its own, name/2024-06-21.

    Devices that stand still remain one. Where each device has its own start, all start at 0.
    """
    if part.since == "opening":  # these are one day already
        return part
    if part.since == "start":
        owner = numbered(part.devices)[1]
        first = np.full(len(part.times), np.inf)
        np.minimum.at(first, owner, part.times)
        return replace(part, times=part.times - first[owner])
    days, times = np.divmod(part.times, DAY)
    still = {name for name, stands in zip(part.devices, part.stationary) if stands}
    names = [name if name in still else f"{name}/{day}" for name, day in zip(part.devices, _days(days, part.dated))]
    return replace(part, devices=names, times=times, dated=False)


def folded_meetings(part: Meetings) -> Meetings:
    """The same for contacts; times from 1972 on are taken as dates."""
    days, times = np.divmod(part.times, DAY)
    names = _days(days, False)
    ones, others = ([f"{name}/{day}" for name, day in zip(side, names)] for side in (part.ones, part.others))
    return replace(part, times=times, ones=ones, others=others)


def _days(days: np.ndarray, dated: bool) -> list[str]:
    start = datetime(1970, 1, 1, tzinfo=UTC)
    known = {
        day: (start + timedelta(days=day)).date().isoformat()
        if dated or _DATED <= day < 80_000
        else f"day{day + 1:.0f}"
        for day in set(days.tolist())
    }
    return [known[day] for day in days.tolist()]
