"""Statistics of a contact process for a report, computed slot by slot."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from wayfare.encounters.contacts import ContactProcess

_ROWS = 2**20  # contacts looked at together
_BINS = 48  # of the day, at most


def contact_summary(process: ContactProcess) -> dict[str, Any]:
    """How often devices meet, for how long, how long after the last time, and how many others they have around them.

    Durations and pauses are as in `traces.contact_statistics`, in seconds. Unknown values are NaN. The tables in
    `histograms` and `over_time` are lists for plots: a value counts in the first bin whose `at_most` is not below it.
    Memory grows with the number of different pairs that meet, not with how often they do.
    """
    runs = _Runs(len(process.devices), process.slots)
    degrees = np.zeros(1, np.int64)
    met_in = np.zeros(process.slots, np.int64)
    present_in = np.zeros(process.slots, np.int64)
    for slot in range(process.slots):
        pairs, present = process.pairs(slot), process.present(slot)
        runs.add(slot, pairs)
        around = np.bincount(np.bincount(pairs.ravel(), minlength=len(present))[present])
        degrees = _sum(degrees, around)
        met_in[slot], present_in[slot] = len(pairs), np.count_nonzero(present)
    durations, pauses, pairs_met = runs.finish()
    hours, count, contacts = process.hours(), len(process.devices), int(durations.sum())
    return {
        "devices": count,
        "stationary": int(process.stationary.sum()),
        "dropped": process.dropped,
        "rows_left_out": process.problems.count,
        "slots": process.slots,
        "slot": process.slot,
        "device_hours": hours,
        "contact_slots": int(met_in.sum()),
        "contacts": contacts,
        "contacts_per_device_hour": 2 * contacts / hours if hours else math.nan,
        **{f"duration_{name}": _quantile(durations, share) * process.slot for name, share in _SHARES.items()},
        **{f"pause_{name}": _quantile(pauses, share) * process.slot for name, share in _SHARES.items()},
        "pairs_that_meet": 2 * pairs_met / (count * (count - 1)) if count > 1 else math.nan,
        "never_met": int((~runs.met).sum()),
        "degree_mean": float(degrees @ np.arange(len(degrees)) / degrees.sum()) if degrees.sum() else math.nan,
        **{f"degree_{name}": _quantile(degrees, share) for name, share in _SHARES.items()},
        "degree_max": len(degrees) - 1,
        "histograms": {
            "duration": _doubling(durations, process.slot),
            "pause": _doubling(pauses, process.slot),
            "degree": _doubling(degrees, 1),
        },
        "over_time": _over_time(process, met_in, present_in),
    }


_SHARES = {"median": 0.5, "p90": 0.9}


class _Runs:
    """Contacts that follow each other without a break, counted by how many slots they and the pauses between them take.

    Of each pair only its latest run is kept: `_state` has its code, first and last slot, one row per pair.
    """

    def __init__(self, devices: int, slots: int) -> None:
        self.met = np.zeros(devices, bool)
        self._devices = devices
        self._durations = np.zeros(slots + 1, np.int64)
        self._pauses = np.zeros(slots + 1, np.int64)
        self._codes, self._firsts, self._lasts = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32)
        self._waiting: list[tuple[int, np.ndarray]] = []
        self._rows = 0

    def add(self, slot: int, pairs: np.ndarray) -> None:
        self._waiting.append((slot, pairs[:, 0] * self._devices + pairs[:, 1]))
        self.met[pairs.ravel()] = True
        self._rows += len(pairs)
        if self._rows >= _ROWS:
            self._take()

    def finish(self) -> tuple[np.ndarray, np.ndarray, int]:
        """How many runs and pauses there are of each number of slots, and how many pairs."""
        self._take()
        self._durations += np.bincount(self._lasts - self._firsts + 1, minlength=len(self._durations))
        return self._durations, self._pauses, len(self._codes)

    def _take(self) -> None:
        """Runs so far and contacts since are runs all the same: put in order, and joined where they touch."""
        sizes = [len(codes) for _, codes in self._waiting]
        slots = np.repeat(np.array([slot for slot, _ in self._waiting], np.int32), sizes)
        new = np.concatenate([np.empty(0, np.int64), *(codes for _, codes in self._waiting)])
        self._waiting, self._rows = [], 0
        codes = np.concatenate([self._codes, new])
        order = np.argsort(codes, kind="stable")  # of one pair, the order of time is kept
        codes = codes[order]
        firsts, lasts = np.concatenate([self._firsts, slots])[order], np.concatenate([self._lasts, slots])[order]
        same = codes[1:] == codes[:-1]
        joined = same & (firsts[1:] - lasts[:-1] == 1)
        begins, ends = np.append(True, ~joined)[: len(codes)], np.append(~joined, True)[: len(codes)]
        codes, same, firsts, lasts = (
            codes[begins],
            np.append(same, False)[: len(ends)][ends],
            firsts[begins],
            lasts[ends],
        )
        # `same`: another run of this pair follows, so this one is over
        over = np.flatnonzero(same)
        self._durations += np.bincount(lasts[over] - firsts[over] + 1, minlength=len(self._durations))
        self._pauses += np.bincount(firsts[over + 1] - lasts[over], minlength=len(self._pauses))
        self._codes, self._firsts, self._lasts = codes[~same], firsts[~same], lasts[~same]


def _sum(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The sum of two counts, as long as the longer one."""
    size = max(len(one), len(other))
    found: np.ndarray = np.pad(one, (0, size - len(one))) + np.pad(other, (0, size - len(other)))
    return found


def _quantile(counts: np.ndarray, share: float) -> float:
    """The same as `np.quantile` of whole numbers, given how many there are of each."""
    total = int(counts.sum())
    if not total:
        return math.nan
    place = share * (total - 1)
    low, high = np.searchsorted(np.cumsum(counts), [math.floor(place), math.ceil(place)], "right").tolist()
    return float(low + (high - low) * (place - math.floor(place)))


def _doubling(counts: np.ndarray, unit: float) -> dict[str, list[float]]:
    """Counts of whole numbers in bins that double: 0, 1, 2, 3-4, 5-8, ..."""
    used = np.flatnonzero(counts)
    if not len(used):
        return {"at_most": [], "count": []}
    limits = np.append(0, 2 ** np.arange(int(used[-1]).bit_length() + 1))
    limits = limits[: int(np.searchsorted(limits, used[-1])) + 1]
    found = np.bincount(np.searchsorted(limits, used), counts[used], minlength=len(limits))
    return {"at_most": (limits * unit).tolist(), "count": found.astype(np.int64).tolist()}


def _over_time(process: ContactProcess, met: np.ndarray, present: np.ndarray) -> dict[str, list[float]]:
    """Pairs in contact and devices present in a slot, means over parts of the day; `time` is when a part begins."""
    bounds = np.unique(np.linspace(0, process.slots, min(_BINS, process.slots) + 1).astype(np.int64))[:-1]
    if not len(bounds):
        return {"time": [], "pairs": [], "present": []}
    sizes = np.diff(np.append(bounds, process.slots))
    return {
        "time": (process.start + bounds * process.slot).tolist(),
        "pairs": (np.add.reduceat(met, bounds) / sizes).tolist(),
        "present": (np.add.reduceat(present, bounds) / sizes).tolist(),
    }
