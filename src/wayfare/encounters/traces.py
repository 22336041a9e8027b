"""Where devices were over a day, and who met whom: traces of people, read from any of the usual forms.

`load` tells by its content what a file, folder or archive is (`trace_sources` lists the forms). Positions become metres
and are brought to slots of equal length: interpolated linearly between a device's rows, absent (NaN) where there is no
row for too long. Lists of contacts have no positions and stay what they are.

    traces = load(Path("town/traces/aalborg.csv"))
    contact_statistics(traces, radius=50.0)
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import compress
from pathlib import Path

import numpy as np

from wayfare.core.errors import ConfigError, DataError
from wayfare.encounters import trace_files, trace_sources
from wayfare.encounters.contact_files import Meetings
from wayfare.encounters.near import each_slot
from wayfare.encounters.trace_columns import LINES
from wayfare.encounters.trace_files import Fixes
from wayfare.encounters.trace_rows import (
    DAY,
    FAR,
    Days,
    folded,
    folded_meetings,
    in_space,
    numbered,
    usable,
    window_of,
)
from wayfare.io import earth
from wayfare.io.findings import Findings, Problems, Progress

MAX_SLOTS = 1_000_000
MAX_CELLS = 500_000_000  # slots times devices: 4 GB
IN_MEMORY = 20_000_000  # more are in a file without a name, of which what is in use is in memory
MAX_SPEED = 70.0  # metres a second: of a fast train


@dataclass(frozen=True)
class Traces:
    """Positions of devices, slot by slot."""

    devices: tuple[str, ...]
    slot: float  # seconds
    start: float  # time of the first slot: seconds since midnight of `date`, or as in the file if it has no dates
    date: str  # "2024-06-21", or nothing
    positions: np.ndarray  # float32 (slots, devices, 2): metres east and north of the origin; NaN where absent
    stationary: np.ndarray  # bool (devices,)
    origin: tuple[float, float]  # latitude and longitude of (0, 0), or its x and y in the file
    geographic: bool  # which of the two
    problems: Problems = field(default_factory=Problems, repr=False, compare=False)
    dropped: int = 0  # devices of which nothing is left: no row can be used, or none is in the window

    @property
    def present(self) -> np.ndarray:
        """Whether a device is there, bool (slots, devices)."""
        found: np.ndarray = ~np.isnan(self.positions[..., 0])
        return found

    def in_file(self) -> np.ndarray:
        """The positions in the file's coordinates, float64: latitude and longitude, or x and y."""
        if not self.geographic:
            found: np.ndarray = self.positions + np.array(self.origin)
            return found
        places = earth.to_degrees(self.positions.astype(float), self.origin)
        places[..., 1] = (places[..., 1] + 180) % 360 - 180
        return places


@dataclass(frozen=True)
class Contacts:
    """Who was near whom in which slot. Each pair is there once per slot, with the lower number first."""

    devices: tuple[str, ...]
    slot: float  # seconds
    start: float  # time of slot 0
    slots: np.ndarray  # int64 (contacts,), ascending
    pairs: np.ndarray  # int64 (contacts, 2): places in `devices`
    problems: Problems = field(default_factory=Problems, repr=False, compare=False)
    length: int = 0  # slots in all, where they do not end with the last contact
    dropped: int = 0  # devices that have no contact in the window


recognises = trace_sources.recognises


def load(
    path: Path,
    slot: float = 30.0,
    strict: bool = False,
    gap: float | None = None,
    window: str = "",
    fold: bool = False,
    max_speed: float = math.inf,
    form: str = "",
) -> Traces | Contacts:
    """Traces or contacts from a file, folder or archive, whatever its form.

    A device counts as absent where it has no row for more than `gap` seconds: by default 15 minutes, and 90
    between visits to attractions. Only the `window` of each day is kept, as "06:00-18:00" (nothing: all); it is one of
    UTC if the file's times have zones. With `fold` all days become one, in which each device appears once for each of
    its days, as name/2024-06-21; walks that each have their own start all begin at 0. Rows that cannot be used, also
    because a device would have to move faster than `max_speed` metres a second, are listed in `problems` of what is
    returned, or raised at once if `strict`. Devices of which nothing is left are counted in `dropped`. `form` says what
    lines of numbers are (`trace_columns`), where that is not to be guessed.
    """
    if not 0.1 <= slot <= DAY:
        raise ConfigError(f"a slot lasts {slot} s: expected 0.1 to 86400")
    if not max_speed > 0 or (gap is not None and not gap >= 0):
        raise ConfigError(f"max_speed {max_speed} and gap {gap}: expected metres a second above 0, seconds from 0 on")
    window_of(window)
    problems = Problems(strict)
    found = trace_files.read(path, problems, slot, form)
    used = [part for part in found if len(part.times)]
    if not used:
        reason = f": {problems.found[0]}" if problems.found else ""
        raise DataError(f"no row that can be used{reason}", path)
    for part in found:
        if not len(part.times):
            problems.add("no row that can be used", part.file, remedy="correct or remove the file")
    days = Days(slot, window, fold)
    meetings = [part for part in used if isinstance(part, Meetings)]
    if meetings:
        return _contacts(meetings, days, problems)
    fixes = [part for part in used if isinstance(part, Fixes)]
    if window and any(part.since != "midnight" for part in fixes):
        what = f"the window {window} cannot be cut out: these times do not say what time of the day it was"
        raise DataError(what, fixes[0].file, remedy="leave the window empty")
    return _resampled(fixes, days, gap, max_speed, problems)


def check(path: Path, strict: bool = False, progress: Progress | None = None, form: str = "") -> Findings:
    """What is there, for `wayfare data check`: files far apart (a town's cities) are counted one by one."""
    try:
        found = {path: load(path, strict=strict, max_speed=MAX_SPEED, form=form)}
    except FarApart as error:
        if not path.is_dir():
            raise
        found = {file: load(file, strict=strict, max_speed=MAX_SPEED, form=form) for file in error.files}
    if progress is not None:
        progress(len(found), len(found))
    problems = Problems()
    counts: dict[str, int | float | str] = {}
    kinds = {form} if form else {trace_sources.kind_of(source.data) for source in trace_sources.sources(path)}
    if read_as := [f"{name} ({line})" for name, line in LINES.items() if name in kinds]:
        counts["read as"] = read_as[0]
    for file, data in found.items():
        for problem in data.problems.found:
            problems.note(problem)
        problems.count += data.problems.count - len(data.problems.found)
        before = "" if file == path else f"{file.name}: "
        counts |= {before + name: value for name, value in _counts(data).items()}
        if data.dropped:
            counts[before + "devices left out"] = data.dropped
    return Findings("traces", path, counts, problems)


def _counts(data: Traces | Contacts) -> dict[str, int | float | str]:
    if isinstance(data, Contacts):
        span = int(data.slots[-1] - data.slots[0]) + 1
        return {
            "devices": len(data.devices),
            "slots with contacts": len(np.unique(data.slots)),
            "hours": round(span * data.slot / 3600, 2),
            "contacts": len(data.slots),
        }
    slots = len(data.positions)
    east, north = (np.nanmax(data.positions[..., axis]) - np.nanmin(data.positions[..., axis]) for axis in (0, 1))
    return {
        "devices": len(data.devices),
        "stationary": int(data.stationary.sum()),
        "slots": slots,
        "hours": round((slots - 1) * data.slot / 3600, 2),
        "metres east": round(float(east), 1),
        "metres north": round(float(north), 1),
        "contacts within 50 m": len(contacts_within(data, 50.0).slots),
    }


# ---- From rows to slots


class FarApart(DataError):
    """Files of places that do not fit one map."""

    def __init__(self, files: list[Path], farthest: int, kilometres: float) -> None:
        self.files = files
        what = f"{kilometres:.0f} km from {files[0].name}: not on one map"
        super().__init__(what, files[farthest], remedy="give one file at a time")


def _resampled(parts: Sequence[Fixes], days: Days, gap: float | None, max_speed: float, problems: Problems) -> Traces:
    geographic, slot = parts[0].geographic, days.slot
    _on_one_map(parts)
    named = len(numbered([name for part in parts for name in part.devices])[0])
    parts = [usable(part, max_speed, problems) for part in parts]
    devices, owner = numbered([name for part in parts for name in part.devices])
    if not devices:
        what = f"no row that can be used: {problems.found[0]}"
        raise DataError(what, parts[0].file)
    dropped = named - len(devices)
    if days.fold:
        parts = [folded(part) for part in parts]
        devices, owner = numbered([name for part in parts for name in part.devices])
    times, places, still = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("times", "places", "stationary")
    )
    stationary = np.zeros(len(devices), bool)
    stationary[owner[still]] = True
    origin, metres = _flat(places, geographic)
    first, count = days.span(np.floor(times / slot + 0.5).astype(np.int64), parts[0].file)
    if count > MAX_SLOTS or count * len(devices) > MAX_CELLS:
        what = f"{count} slots of {slot:g} s for {len(devices)} devices are too many"
        raise DataError(what, parts[0].file, field="time", remedy="give fewer days, fold them or choose longer slots")
    positions = _room((count, len(devices), 2))
    order = np.lexsort((times, owner))
    for device, rows in enumerate(np.split(order, np.flatnonzero(np.diff(owner[order])) + 1)):
        limit = math.inf if stationary[device] else parts[0].gap if gap is None else gap
        _fill(positions[:, device], times[rows], metres[rows], first=first, slot=slot, gap=limit)
    positions[~days.inside(first + np.arange(count))] = np.nan
    there = np.flatnonzero((~np.isnan(positions[..., 0])).any(axis=0))
    if len(there) < len(devices):
        dropped += len(devices) - len(there)
        devices, positions = tuple(devices[device] for device in there), positions[:, there]
        stationary = stationary[there]
    date, start = "", first * slot
    if parts[0].dated:
        day = math.floor(start / DAY)
        date = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).date().isoformat()
        start -= DAY * day
    return Traces(
        devices,
        slot,
        start=start,
        date=date,
        positions=positions,
        stationary=stationary,
        origin=origin,
        geographic=geographic,
        problems=problems,
        dropped=dropped,
    )


def _room(shape: tuple[int, int, int]) -> np.ndarray:
    """Positions that are not known yet."""
    if math.prod(shape[:2]) <= IN_MEMORY:
        return np.full(shape, np.nan, np.float32)
    with tempfile.NamedTemporaryFile(prefix="wayfare-traces-") as file:  # without a name when this returns
        positions = np.memmap(file, np.float32, "w+", shape=shape)
    for some in np.array_split(np.arange(len(positions)), max(1, len(positions) // 64)):
        positions[some] = np.nan
    return positions


def _fill(track: np.ndarray, times: np.ndarray, places: np.ndarray, first: int, slot: float, gap: float) -> None:
    """One device's positions at the slots' times; a row too far from the others still counts for its nearest slot."""
    nearest = np.floor(times / slot + 0.5).astype(np.int64) - first
    within = (nearest >= 0) & (nearest < len(track))
    track[nearest[within]] = places[within]
    if len(times) < 2:
        return
    low, high = math.ceil(times[0] / slot), math.floor(times[-1] / slot)
    slots = np.arange(max(low, first), min(high + 1, first + len(track)))
    after = np.searchsorted(times, slot * slots).clip(1, len(times) - 1)
    slots = slots[times[after] - times[after - 1] <= gap]
    for axis in (0, 1):
        track[slots - first, axis] = np.interp(slot * slots, times, places[:, axis])


def _on_one_map(parts: Sequence[Fixes]) -> None:
    centres = np.array([np.median(in_space(part), axis=0) for part in parts])
    distance = np.sqrt(((centres - centres[0]) ** 2).sum(axis=1))
    if distance.max() > FAR:
        raise FarApart([part.file for part in parts], int(distance.argmax()), distance.max() / 1000)


def _flat(places: np.ndarray, geographic: bool) -> tuple[tuple[float, float], np.ndarray]:
    """The south-west corner, and metres from there."""
    if not geographic:
        left, low = places.min(axis=0)
        return (float(left), float(low)), places - places.min(axis=0)
    # longitudes are compared with one of them, so that the date line is no border
    reference = places[0, 1]
    west = reference + ((places[:, 1] - reference + 180) % 360 - 180).min()
    origin = float(places[:, 0].min()), float((west + 180) % 360 - 180)
    return origin, earth.to_metres(places, origin)


# ---- Who meets whom


def _contacts(parts: Sequence[Meetings], days: Days, problems: Problems) -> Contacts:
    if days.fold:
        parts = [folded_meetings(part) for part in parts]
    slots = np.floor(np.concatenate([part.times for part in parts]) / days.slot).astype(np.int64)
    names = [name for part in parts for pair in zip(part.ones, part.others) for name in pair]
    first, count = days.span(slots, parts[0].file)
    inside = days.inside(slots)
    devices, met = numbered(list(compress(names, np.repeat(inside, 2))))
    rows = np.unique(np.column_stack([slots[inside] - first, np.sort(met.reshape(-1, 2), axis=1)]), axis=0)
    dropped = len(set(names)) - len(devices)
    return Contacts(
        devices,
        days.slot,
        start=float(first * days.slot),
        slots=rows[:, 0],
        pairs=rows[:, 1:],
        problems=problems,
        length=count,
        dropped=dropped,
    )


def contacts_within(traces: Traces, radius: float = 50.0) -> Contacts:
    """All pairs that are at most `radius` metres apart, slot by slot; `contacts` gives them one slot at a time."""
    found = list(each_slot(traces.positions, radius))
    slots = np.repeat(np.arange(len(found)), [len(pairs) for pairs in found])
    pairs = np.concatenate([np.empty((0, 2), np.int64), *found])
    return Contacts(traces.devices, traces.slot, traces.start, slots, pairs, length=len(found))


def encounters(contacts: Contacts) -> np.ndarray:
    """Contacts that follow each other without a break, int64 (encounters, 4): pair, first slot, last slot.

    Ordered by pair, then by time.
    """
    one, other = contacts.pairs.T
    order = np.lexsort((contacts.slots, other, one))
    pairs, slots = contacts.pairs[order], contacts.slots[order]
    if not len(order):
        return np.empty((0, 4), np.int64)
    begins = np.ones(len(order), bool)
    begins[1:] = (pairs[1:] != pairs[:-1]).any(axis=1) | (np.diff(slots) > 1)
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(order)) - 1
    return np.column_stack([pairs[first], slots[first], slots[last]])


def contact_statistics(traces: Traces | Contacts, radius: float = 50.0) -> dict[str, float]:
    """How often devices meet, for how long, and how long after the last time; times are in seconds.

    A contact lasts as many slots as it is seen in. Where only contacts are known, a device counts as present from its
    first to its last one. What cannot be told (no pair meets twice) is NaN.
    """
    contacts = contacts_within(traces, radius) if isinstance(traces, Traces) else traces
    met = encounters(contacts)
    durations = (met[:, 3] - met[:, 2] + 1) * contacts.slot
    again = (met[1:, :2] == met[:-1, :2]).all(axis=1)
    pauses = (met[1:, 2] - met[:-1, 3])[again] * contacts.slot
    count = len(contacts.devices)
    pairs_met = len(np.unique(met[:, :2], axis=0))
    hours = _device_hours(traces)
    return {
        "device_hours": hours,
        "contact_slots": float(len(contacts.slots)),
        "contacts": float(len(met)),
        "contacts_per_device_hour": 2 * len(met) / hours if hours else math.nan,
        "duration_median": _quantile(durations, 0.5),
        "duration_p90": _quantile(durations, 0.9),
        "pause_median": _quantile(pauses, 0.5),
        "pause_p90": _quantile(pauses, 0.9),
        "pairs_that_meet": 2 * pairs_met / (count * (count - 1)) if count > 1 else math.nan,
    }


def _device_hours(traces: Traces | Contacts) -> float:
    if isinstance(traces, Traces):
        return float(traces.present.sum() * traces.slot / 3600)
    devices, slots = traces.pairs.ravel(), np.repeat(traces.slots, 2)
    last = np.zeros(len(traces.devices), np.int64)
    first = np.full(len(traces.devices), np.iinfo(np.int64).max)
    np.maximum.at(last, devices, slots)
    np.minimum.at(first, devices, slots)
    return float((last - first + 1).sum() * traces.slot / 3600)


def _quantile(values: np.ndarray, share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else math.nan
