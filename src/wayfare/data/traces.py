"""Where devices were over a day, and who met whom: traces of people, read from any of the usual forms.

`load` tells by its content what a file, folder or archive is (`trace_sources` lists the forms). Positions become metres
and are brought to slots of equal length: interpolated linearly between a device's rows, absent (NaN) where there is no
row for too long. Lists of contacts have no positions and stay what they are.

    traces = load(Path("town/traces/aalborg.csv"))
    contact_statistics(traces, radius=50.0)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import compress
from pathlib import Path

import numpy as np

from wayfare.data import earth, trace_files, trace_sources
from wayfare.data.findings import Findings, Problems, Progress
from wayfare.data.trace_files import Fixes, Meetings
from wayfare.errors import ConfigError, DataError

MAX_SLOTS = 1_000_000
MAX_CELLS = 20_000_000  # slots times devices
FAR = 500_000.0  # metres; positions this far from the others are errors, and too far for one flat map


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

    @property
    def present(self) -> np.ndarray:
        """Whether a device is there, bool (slots, devices)."""
        return ~np.isnan(self.positions[..., 0])

    def in_file(self) -> np.ndarray:
        """The positions in the file's coordinates, float64: latitude and longitude, or x and y."""
        if not self.geographic:
            return self.positions + np.array(self.origin)
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


recognises = trace_sources.recognises


def load(path: Path, slot: float = 30.0, strict: bool = False, gap: float | None = None) -> Traces | Contacts:
    """Traces or contacts from a file, folder or archive, whatever its form.

    A device counts as absent where it has no row for more than `gap` seconds: 15 minutes if not said otherwise, and 90
    between visits to attractions. Rows that cannot be used are listed in `problems` of what is returned, or raised at
    once if `strict`.
    """
    if not 0.1 <= slot <= 86400:
        raise ConfigError(f"a slot lasts {slot} s: expected 0.1 to 86400")
    problems = Problems(strict)
    found = trace_files.read(path, problems)
    used = [part for part in found if len(part.times)]
    if not used:
        reason = f": {problems.found[0]}" if problems.found else ""
        raise DataError(f"no row that can be used{reason}", path)
    meetings = [part for part in used if isinstance(part, Meetings)]
    if meetings:
        return _contacts(meetings, slot, problems)
    return _resampled([part for part in used if isinstance(part, Fixes)], slot, gap, problems)


def check(path: Path, strict: bool = False, progress: Progress | None = None) -> Findings:
    """What is there, for `wayfare data check`: files far apart (a town's cities) are counted one by one."""
    try:
        found = {path: load(path, strict=strict)}
    except _FarApart as error:
        if not path.is_dir():
            raise
        found = {file: load(file, strict=strict) for file in error.files}
    if progress is not None:
        progress(len(found), len(found))
    problems = Problems()
    counts: dict[str, int | float | str] = {}
    for file, data in found.items():
        for problem in data.problems.found:
            problems.note(problem)
        problems.count += data.problems.count - len(data.problems.found)
        before = "" if file == path else f"{file.name}: "
        counts |= {before + name: value for name, value in _counts(data).items()}
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


class _FarApart(DataError):
    """Files of places that do not fit one map."""

    def __init__(self, files: list[Path], farthest: int, kilometres: float) -> None:
        self.files = files
        what = f"{kilometres:.0f} km from {files[0].name}: not on one map"
        super().__init__(what, files[farthest], remedy="give one file at a time")


def _resampled(parts: Sequence[Fixes], slot: float, gap: float | None, problems: Problems) -> Traces:
    geographic = parts[0].geographic
    _on_one_map(parts)
    kept = [_usable(part, problems) for part in parts]
    devices, owner = _numbered([name for part, use in zip(parts, kept) for name in compress(part.devices, use)])
    if not devices:
        what = f"no row that can be used: {problems.found[0]}"
        raise DataError(what, parts[0].file)
    times = np.concatenate([part.times[use] for part, use in zip(parts, kept)])
    places = np.concatenate([part.places[use] for part, use in zip(parts, kept)])
    still = np.concatenate([part.stationary[use] for part, use in zip(parts, kept)])
    stationary = np.zeros(len(devices), bool)
    stationary[owner[still]] = True
    origin, metres = _flat(places, geographic)
    nearest = np.floor(times / slot + 0.5).astype(np.int64)
    first, count = int(nearest.min()), int(nearest.max() - nearest.min()) + 1
    if count > MAX_SLOTS or count * len(devices) > MAX_CELLS:
        what = f"{count} slots of {slot:g} s for {len(devices)} devices are too many"
        raise DataError(what, parts[0].file, field="time", remedy="give fewer days, or choose longer slots")
    positions = np.full((count, len(devices), 2), np.nan, np.float32)
    order = np.lexsort((times, owner))
    for device, rows in enumerate(np.split(order, np.flatnonzero(np.diff(owner[order])) + 1)):
        limit = math.inf if stationary[device] else parts[0].gap if gap is None else gap
        _fill(positions[:, device], times[rows], metres[rows], first, slot, limit)
    date, start = "", first * slot
    if parts[0].dated:
        day = math.floor(start / 86400)
        date = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).date().isoformat()
        start -= 86400 * day
    return Traces(devices, slot, start, date, positions, stationary, origin, geographic, problems)


def _fill(track: np.ndarray, times: np.ndarray, places: np.ndarray, first: int, slot: float, gap: float) -> None:
    """One device's positions at the slots' times; a row too far from the others still counts for its nearest slot."""
    nearest = np.floor(times / slot + 0.5).astype(np.int64) - first
    track[nearest] = places
    low, high = math.ceil(times[0] / slot), math.floor(times[-1] / slot)
    at = slot * np.arange(low, high + 1)
    after = np.searchsorted(times, at).clip(1, max(len(times) - 1, 1))
    if len(times) > 1:
        near = times[after] - times[after - 1] <= gap
        slots = np.arange(low, high + 1)[near] - first
        for axis in (0, 1):
            track[slots, axis] = np.interp(at[near], times, places[:, axis])


def _usable(part: Fixes, problems: Problems) -> np.ndarray:
    """Rows in the order of time for their device, and not on another continent than the rest."""
    use = np.ones(len(part.times), bool)
    owner = _numbered(part.devices)[1]
    order = np.argsort(owner, kind="stable")
    late = np.zeros(len(part.times), bool)
    for rows in np.split(order, np.flatnonzero(np.diff(owner[order])) + 1):
        highest = np.maximum.accumulate(part.times[rows])[:-1]
        late[rows[1:]] = part.times[rows[1:]] <= highest
    spots = _in_space(part)
    distance = np.sqrt(((spots - np.median(spots, axis=0)) ** 2).sum(axis=1))
    for row in np.flatnonzero(late | (distance > FAR)).tolist():
        use[row] = False
        line, device = part.lines[row], part.devices[row][:40]
        if late[row]:
            what = f"{device!r} has a row for this time or a later one already"
            problems.add(what, part.file, line, "time", "sort its rows by time, and remove the second of a time")
        else:
            what = f"{distance[row] / 1000:.0f} km from where most are"
            problems.add(what, part.file, line, remedy="mend or remove the line")
    return use


def _on_one_map(parts: Sequence[Fixes]) -> None:
    centres = np.array([np.median(_in_space(part), axis=0) for part in parts])
    distance = np.sqrt(((centres - centres[0]) ** 2).sum(axis=1))
    if distance.max() > FAR:
        raise _FarApart([part.file for part in parts], int(distance.argmax()), distance.max() / 1000)


def _in_space(part: Fixes) -> np.ndarray:
    """Metres in which the distance of two places is that of their coordinates, at the date line too."""
    return earth.from_centre(part.places) if part.geographic else part.places


def _numbered(names: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """The different names in the order in which they come, and for each one given its place among them."""
    number: dict[str, int] = {}
    places = [number.setdefault(name, len(number)) for name in names]
    return tuple(number), np.array(places, np.int64)


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


def _contacts(parts: Sequence[Meetings], slot: float, problems: Problems) -> Contacts:
    times = np.concatenate([part.times for part in parts])
    devices, met = _numbered([name for part in parts for pair in zip(part.ones, part.others) for name in pair])
    pairs = met.reshape(-1, 2)
    slots = np.floor(times / slot).astype(np.int64)
    rows = np.unique(np.column_stack([slots - slots.min(), np.sort(pairs, axis=1)]), axis=0)
    return Contacts(devices, slot, float(slots.min() * slot), rows[:, 0], rows[:, 1:], problems)


def contacts_within(traces: Traces, radius: float = 50.0) -> Contacts:
    """All pairs that are at most `radius` metres apart, slot by slot."""
    from scipy.spatial import cKDTree

    slots, pairs = [np.empty(0, np.int64)], [np.empty((0, 2), np.int64)]
    for slot, (positions, present) in enumerate(zip(traces.positions, traces.present)):
        there = np.flatnonzero(present)
        if len(there) < 2:
            continue
        near = cKDTree(positions[there].astype(float)).query_pairs(radius, output_type="ndarray")
        found = np.sort(there[near], axis=1)
        pairs.append(found[np.lexsort((found[:, 1], found[:, 0]))])
        slots.append(np.full(len(found), slot, np.int64))
    return Contacts(traces.devices, traces.slot, traces.start, np.concatenate(slots), np.concatenate(pairs))


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
