"""Who can talk to whom, slot by slot: from positions within a radius, or from a list of contacts; and who does.

    contacts = contact_process(Path("town/traces/aalborg.csv"), radius=50.0, window="06:00-18:00")
    for slot in range(contacts.slots):
        pairs, distances = contacts.at(slot)
        talk = pairs[matching(pairs, priorities("random", pairs, distances, rng_for(seed, slot)))]

Contacts of a day are never held all at once where they come from positions. Any slot can be asked for at any time with
the same result; one after the other is quickest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from wayfare.core.errors import ConfigError, unknown
from wayfare.encounters.contact_summary import contact_summary as contact_summary
from wayfare.encounters.near import first_slots, squared
from wayfare.encounters.traces import MAX_SPEED, Contacts, Traces, load
from wayfare.io.findings import Problems

Rule = Literal["random", "nearest"]
_TOGETHER = 10  # times that `matching` takes many pairs at once; five or so are usual


class ContactProcess(ABC):
    """Devices, and which of them are in contact in each slot."""

    devices: tuple[str, ...]
    stationary: np.ndarray  # bool (devices,)
    slots: int
    slot: float  # seconds
    start: float  # time of the first slot: seconds since midnight, or as in the file where it does not say
    problems: Problems  # rows that were left out
    dropped: int  # devices of which nothing was left

    def at(self, slot: int) -> tuple[np.ndarray, np.ndarray]:
        """Who is in contact, int64 (pairs, 2), and how far apart they are in metres, float32, NaN where not known.

        The lower number is first in each pair, and pairs are in lexicographic order. They cannot be written to.
        """
        pairs = self.pairs(slot)
        return pairs, self.distances(pairs, slot)

    def lasts(self, pairs: np.ndarray, slot: int, count: int | np.ndarray) -> np.ndarray:
        """Whether pairs are in contact in this slot and the following, `count` in all, for all or for each pair.

        A contact that would continue after the last slot counts as ended there.
        """
        counts = np.broadcast_to(np.asarray(count), len(pairs))
        going = slot + counts <= self.slots
        for later in range(int(counts.max(initial=0))):
            asked = np.flatnonzero(going & (counts > later))
            if not len(asked):
                break
            going[asked] = self.touching(pairs[asked], slot + later)
        return going

    def remaining(self, pairs: np.ndarray, slot: int, most: np.ndarray) -> np.ndarray:
        """For how many slots from this one on each pair stays in contact, at most `most`."""
        counts, going = np.zeros(len(pairs), np.int64), np.ones(len(pairs), bool)
        for later in range(min(int(most.max(initial=0)), self.slots - slot)):
            asked = np.flatnonzero(going & (most > later))
            if not len(asked):
                break
            going[asked] = self.touching(pairs[asked], slot + later)
            counts[asked] += going[asked]
        return counts

    @abstractmethod
    def pairs(self, slot: int) -> np.ndarray:
        """Who is in contact, as in `at`."""

    @abstractmethod
    def distances(self, pairs: np.ndarray, slot: int) -> np.ndarray:
        """Metres between the two of each pair, in contact or not, float32; NaN where not known."""

    @abstractmethod
    def touching(self, pairs: np.ndarray, slot: int) -> np.ndarray:
        """Whether each of these pairs, with the lower number first, is in contact."""

    @abstractmethod
    def present(self, slot: int) -> np.ndarray:
        """Whether devices are there, bool (devices,)."""

    @abstractmethod
    def positions(self, slot: int) -> np.ndarray | None:
        """Metres east and north, float32 (devices, 2), NaN where absent; None if only contacts are known."""

    @abstractmethod
    def select(self, devices: np.ndarray) -> ContactProcess:
        """Some of the devices, renumbered in the order given."""

    @abstractmethod
    def hours(self) -> float:
        """Hours in which devices are there, summed over all."""

    def _check(self, slot: int) -> None:
        if not 0 <= slot < self.slots:
            raise IndexError(f"slot {slot}: there are 0 to {self.slots - 1}")

    def _chosen(self, devices: np.ndarray) -> np.ndarray:
        chosen = np.asarray(devices, np.int64)
        if len(np.unique(chosen)) < len(chosen) or (chosen < 0).any() or (chosen >= len(self.devices)).any():
            raise ConfigError(f"select: expected different numbers from 0 to {len(self.devices) - 1}")
        return chosen


class LocatedContacts(ContactProcess):
    """Devices are in contact within a radius of each other."""

    def __init__(self, traces: Traces, radius: float = 50.0) -> None:
        if not 0 < radius < np.inf:
            raise ConfigError(f"radius {radius}: expected metres above 0")
        self.traces, self.radius = traces, radius
        self.devices, self.stationary = traces.devices, traces.stationary
        self.slots, self.slot, self.start = len(traces.positions), traces.slot, traces.start
        self.problems, self.dropped = traces.problems, traces.dropped
        self._first = 0
        self._found: list[np.ndarray] = []  # pairs of slots from `_first` on, as many as were found together

    def pairs(self, slot: int) -> np.ndarray:
        self._check(slot)
        if not 0 <= slot - self._first < len(self._found):
            self._found = []  # not kept while the next ones are looked for
            self._first, self._found = slot, first_slots(self.traces.positions[slot:], self.radius)
        return self._found[slot - self._first]

    def distances(self, pairs: np.ndarray, slot: int) -> np.ndarray:
        found: np.ndarray = np.sqrt(self._squared(pairs, slot)).astype(np.float32)
        return found

    def touching(self, pairs: np.ndarray, slot: int) -> np.ndarray:
        return self._squared(pairs, slot) <= self.radius**2  # as `pairs` decides it; NaN is not near

    def present(self, slot: int) -> np.ndarray:
        self._check(slot)
        found: np.ndarray = ~np.isnan(self.traces.positions[slot, :, 0])
        return found

    def positions(self, slot: int) -> np.ndarray:
        self._check(slot)
        found: np.ndarray = self.traces.positions[slot]
        return found

    def select(self, devices: np.ndarray) -> LocatedContacts:
        chosen = self._chosen(devices)
        kept = self.traces
        names = tuple(kept.devices[device] for device in chosen)
        places, still = kept.positions[:, chosen], kept.stationary[chosen]
        return LocatedContacts(replace(kept, devices=names, positions=places, stationary=still), self.radius)

    def hours(self) -> float:
        return float(np.count_nonzero(self.traces.present) * self.slot / 3600)

    def _squared(self, pairs: np.ndarray, slot: int) -> np.ndarray:
        self._check(slot)
        x, y = self.traces.positions[slot].T.astype(float, order="C")
        return squared(x, y, pairs[:, 0], pairs[:, 1])


class ListedContacts(ContactProcess):
    """Contacts as they were recorded. A device counts as present from its first to its last one."""

    def __init__(self, contacts: Contacts) -> None:
        self.contacts = contacts
        self.devices, self.stationary = contacts.devices, np.zeros(len(contacts.devices), bool)
        self.slot, self.start = contacts.slot, contacts.start
        self.slots = max(contacts.length, int(contacts.slots[-1]) + 1 if len(contacts.slots) else 0)
        self.problems, self.dropped = contacts.problems, contacts.dropped
        self._begin = np.searchsorted(contacts.slots, np.arange(self.slots + 1))
        self._stays = np.full(len(self.devices), self.slots), np.full(len(self.devices), -1)  # first and last slot
        met = contacts.pairs.ravel()
        np.minimum.at(self._stays[0], met, np.repeat(contacts.slots, 2))
        np.maximum.at(self._stays[1], met, np.repeat(contacts.slots, 2))

    def pairs(self, slot: int) -> np.ndarray:
        self._check(slot)
        found = self.contacts.pairs[self._begin[slot] : self._begin[slot + 1]]
        found.setflags(write=False)
        return found

    def distances(self, pairs: np.ndarray, slot: int) -> np.ndarray:
        self._check(slot)
        return np.full(len(pairs), np.nan, np.float32)

    def touching(self, pairs: np.ndarray, slot: int) -> np.ndarray:
        known, asked = (table[:, 0] * len(self.devices) + table[:, 1] for table in (self.pairs(slot), pairs))
        return np.isin(asked, known)

    def present(self, slot: int) -> np.ndarray:
        self._check(slot)
        return (self._stays[0] <= slot) & (slot <= self._stays[1])

    def positions(self, slot: int) -> None:
        return None

    def select(self, devices: np.ndarray) -> ListedContacts:
        chosen = self._chosen(devices)
        kept = self.contacts
        number = np.full(len(self.devices), -1)
        number[chosen] = np.arange(len(chosen))
        pairs = np.sort(number[kept.pairs], axis=1)
        both = pairs[:, 0] >= 0
        pairs, slots = pairs[both], kept.slots[both]
        order = np.lexsort((pairs[:, 1], pairs[:, 0], slots))
        names = tuple(self.devices[device] for device in chosen)
        return ListedContacts(
            Contacts(
                names,
                kept.slot,
                start=kept.start,
                slots=slots[order],
                pairs=pairs[order],
                problems=kept.problems,
                length=self.slots,
                dropped=kept.dropped,
            )
        )

    def hours(self) -> float:
        stays = self._stays[1] - self._stays[0] + 1
        return float(stays[stays > 0].sum() * self.slot / 3600)


def contact_process(
    path: Path,
    radius: float = 50.0,
    slot: float = 30.0,
    window: str = "",
    fold: bool = False,
    gap: float | None = None,
    max_speed: float = MAX_SPEED,
    strict: bool = False,
    form: str = "",
) -> ContactProcess:
    """The contacts of traces of any form; see `traces.load`. Lists of contacts have no use for a radius."""
    found = load(path, slot, strict=strict, gap=gap, window=window, fold=fold, max_speed=max_speed, form=form)
    return LocatedContacts(found, radius) if isinstance(found, Traces) else ListedContacts(found)


# ---- Who talks to whom


def priorities(rule: Rule, pairs: np.ndarray, distances: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A priority for each pair; the pair with the lowest comes first."""
    if rule not in get_args(Rule):
        raise unknown("rule", str(rule), get_args(Rule), "pair choice")
    if rule == "random":
        return rng.random(len(pairs))
    if np.isnan(distances).any():
        raise ConfigError("pair choice 'nearest' needs positions, and these traces are contacts only: choose 'random'")
    return distances.astype(float)


def matching(pairs: np.ndarray, priority: np.ndarray) -> np.ndarray:
    """Which pairs talk, so that each device is in at most one: their places, ascending.

    Pairs are taken in ascending priority, the first of equal ones first, if neither device has been taken. That is the
    same as taking all pairs at once that come first for both of their devices, and so on with those that are left.
    """
    ranked = np.argsort(priority, kind="stable")
    ends = np.asarray(pairs, np.int64)[ranked]
    taken = np.zeros(int(ends.max(initial=-1)) + 1, bool)
    first = np.empty(len(taken), np.int64)
    chosen: list[np.ndarray] = []
    for _ in range(_TOGETHER):
        place = np.arange(len(ranked))
        # of several values for one device the last is kept, so here its first pair
        first[ends[::-1].ravel()] = np.repeat(place[::-1], 2)
        best = (first[ends] == place[:, None]).all(axis=1)
        chosen.append(ranked[best])
        taken[ends[best].ravel()] = True
        left = ~taken[ends].any(axis=1)
        ranked, ends = ranked[left], ends[left]
        if not len(ranked):
            break
    # where each pair waits for the one before it, as in a crowd on one spot, one by one is quicker
    busy = set[int]()
    rest = []
    for place, (one, other) in zip(ranked.tolist(), ends.tolist()):
        if one not in busy and other not in busy:
            busy |= {one, other}
            rest.append(place)
    return np.sort(np.concatenate([*chosen, np.array(rest, np.int64)]))
