"""What the page shows of traces and contacts: ways on the map, and who met whom when."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from wayfare.encounters import traces
from wayfare.encounters.traces import Contacts, Traces
from wayfare.io.findings import Problems
from wayfare.pages.dataset_parts import Bars
from wayfare.pages.gallery_parts import Gathered
from wayfare.pages.maps import MapSource

RADIUS = 50.0  # metres within which devices are in contact
_DAY = 86_400.0
_KINDS = 6  # of devices, at most: otherwise their names tell no kinds
_TIMES = (
    (60, "1 min"),
    (120, "2 min"),
    (300, "5 min"),
    (600, "10 min"),
    (1800, "30 min"),
    (3600, "1 h"),
    (10800, "3 h"),
)


def gather(path: Path, form: str = "") -> Gathered:
    """Of one file, or of several cities' files."""
    parts = _parts(path, form)
    problems = Problems()
    sources: list[MapSource] = []
    for name, data in parts.items():
        problems.count += data.problems.count
        problems.found += data.problems.found
        if isinstance(data, Traces):
            sources += _sources(data, name)
    bars = _together({name: _bars(data) for name, data in parts.items()})
    return Gathered(counts=_counts(list(parts.values())), problems=problems, bars=bars, sources=sources)


def _parts(path: Path, form: str) -> dict[str, Traces | Contacts]:
    """Files of cities far apart do not fit one map, so each is read by itself."""
    try:
        return {path.stem: traces.load(path, form=form)}
    except traces.FarApart as error:
        return {file.stem: traces.load(file, form=form) for file in error.files}


def _counts(parts: Sequence[Traces | Contacts]) -> dict[str, int | float | str]:
    statistics = [traces.contact_statistics(data, RADIUS) for data in parts]
    hours, contacts = (sum(one[name] for one in statistics) for name in ("device_hours", "contacts"))
    counts: dict[str, int | float | str] = {"cities": len(parts)} if len(parts) > 1 else {}
    counts["devices"] = sum(len(data.devices) for data in parts)
    if still := sum(int(data.stationary.sum()) for data in parts if isinstance(data, Traces)):
        counts["standing still"] = still
    counts |= {"hours of presence": round(hours, 1), "contacts": int(contacts)}
    counts["contacts per device and hour"] = round(2 * contacts / hours, 2) if hours else 0
    for words, name in (("median contact, s", "duration_median"), ("median pause between two, s", "pause_median")):
        known = [f"{one[name]:.0f}" for one in statistics if math.isfinite(one[name])]
        if known:
            counts[words] = ", ".join(known)
    return counts


def _bars(data: Traces | Contacts) -> list[Bars]:
    contacts = traces.contacts_within(data, RADIUS) if isinstance(data, Traces) else data
    slots = len(data.positions) if isinstance(data, Traces) else int(data.slots[-1]) + 1
    names, bins = _bins(data.start, data.slot, slots)
    width = np.bincount(bins, minlength=len(names)).clip(min=1)
    met = np.bincount(bins[contacts.slots], minlength=len(names)) / width
    title = f"Pairs within {RADIUS:.0f} m" if isinstance(data, Traces) else "Pairs in contact"
    bars = [Bars(title, "pairs, mean", names, met.round(2).tolist(), True, axis="time")]
    if isinstance(data, Traces):
        present = np.bincount(bins, data.present.sum(axis=1), minlength=len(names)) / width
        bars.insert(0, Bars("Active devices", "devices, mean", names, present.round(2).tolist(), True, axis="time"))
    meetings = traces.encounters(contacts)
    lasted = (meetings[:, 3] - meetings[:, 2] + 1) * contacts.slot
    if len(lasted):
        limits = [limit for limit, _ in _TIMES]
        held = np.bincount(np.searchsorted(limits, lasted), minlength=len(limits) + 1)
        spans = [*(text for _, text in _TIMES), "more"]
        bars.append(Bars("How long contacts last", "contacts", spans, held.tolist(), True, log=True, axis="at most"))
    return bars


def _together(of_city: dict[str, list[Bars]]) -> list[Bars]:
    """The sums over all cities; where their days are not the same, each city's own."""
    if len({tuple(tuple(bars.names) for bars in city) for city in of_city.values()}) == 1:
        return [
            replace(same[0], counts=np.sum([bars.counts for bars in same], axis=0).round(2).tolist())
            for same in zip(*of_city.values())
        ]
    return [replace(bars, title=f"{bars.title}, {name}") for name, city in of_city.items() for bars in city]


def _bins(start: float, slot: float, slots: int) -> tuple[list[str], np.ndarray]:
    """About half an hour each, or a twenty-fourth of the whole where that is more than a day; and each slot's."""
    span = slots * slot
    width = 1800.0 if span <= _DAY else span / 24
    times = start + slot * np.arange(slots)
    bins = np.floor((times - times[0]) / width).astype(np.int64)
    begins = times[0] + width * np.arange(int(bins[-1]) + 1)
    if start >= 0 and start + span <= 1.25 * _DAY:
        names = [f"{int(t // 3600) % 24}:{int(t // 60) % 60:02}" for t in begins]
    else:
        names = [f"{(t - begins[0]) / 3600:.1f} h" for t in begins]
    return names, bins


def _sources(data: Traces, name: str) -> list[MapSource]:
    places = data.in_file()
    plane = "" if data.geographic else name
    kinds = _kinds(data.devices)
    sources = []
    for kind in dict.fromkeys(kinds):
        moving = [d for d, of in enumerate(kinds) if of == kind and not data.stationary[d]]
        if moving:
            sources.append(
                MapSource(kind, "ways", [places[:, device] for device in moving], words=(), city=name, plane=plane)
            )
    still = np.flatnonzero(data.stationary)
    if len(still):
        first = [places[np.flatnonzero(data.present[:, device])[0], device] for device in still]
        names = [data.devices[device] for device in still]
        sources.append(MapSource("stationary devices", "fixed", [np.array(first)], words=names, city=name, plane=plane))
    return sources


def _kinds(devices: tuple[str, ...]) -> list[str]:
    """What kind each device is of, as far as names like city-tourist-007 tell; otherwise all are "devices"."""
    words = [[word for word in re.split(r"[\W_\d]+", device) if word] for device in devices]
    shared = set(words[0]).intersection(*words) if words and len(set(map(tuple, words))) > 1 else set()
    kinds = [" ".join(word for word in name if word not in shared) for name in words]
    distinct = set(kinds)
    telling = "" not in distinct and 1 < len(distinct) <= min(_KINDS, len(devices) - 1)
    return [f"{kind}s" for kind in kinds] if telling else ["devices"] * len(devices)
