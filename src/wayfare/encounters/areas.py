"""Sightseeing areas: each has its own objects, and a device needs those of the areas that its owner visits (Eq. 4).

Areas are given (`topology.given_areas`: a centre and the names of objects), or they are the parts of the map around k
centres of where people are (K-means). Sets of objects may overlap. An owner visits an area if they spend at least a
fifth of their time nearer to its centre than to any other. If only contacts are known, areas are assigned at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wayfare.core.errors import ConfigError, unknown
from wayfare.core.seeds import rng_for
from wayfare.encounters.contacts import ContactProcess, LocatedContacts
from wayfare.io import earth

_VISITED = 0.2
_LOOKS = 200  # slots of the day that show where people are


@dataclass(frozen=True)
class Areas:
    """Which device needs which objects."""

    objects: np.ndarray  # O_a: bool (areas, classes)
    visited: np.ndarray  # A_c: bool (devices, areas)

    @property
    def targets(self) -> np.ndarray:
        """O_c = union of O_a over A_c: bool (devices, classes)."""
        wanted: np.ndarray = (self.visited.astype(np.int64) @ self.objects.astype(np.int64)) > 0
        return wanted


@dataclass(frozen=True)
class GivenArea:
    """An area of which it is known where it is and what there is to see."""

    centre: tuple[float, float]  # in the coordinates of the traces: latitude and longitude, or x and y
    objects: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> GivenArea:
        """From "35.6851 135.8430: deer, fawn"."""
        place, _, names = text.partition(":")
        objects = tuple(name.strip() for name in names.split(",") if name.strip())
        try:
            one, other = (float(number) for number in place.replace(",", " ").split())
        except ValueError:
            objects = ()
        if not objects or not np.isfinite((one, other)).all():
            raise ConfigError(
                f"topology.given_areas: {text[:80]!r}: expected a centre in the coordinates of the traces, a colon and "
                "the objects, such as '35.6851 135.8430: deer, fawn'"
            )
        return cls((one, other), objects)


def areas_of(
    contacts: ContactProcess, given: Sequence[GivenArea], count: int, each: int, classes: Sequence[str], seed: int
) -> Areas:
    """The given areas, or this many with `each` objects (0: every class is in one area); none: all need all objects."""
    devices = len(contacts.devices)
    if given:
        return Areas(_given_objects(given, classes), _visits(contacts, _given_centres(contacts, given)))
    if not count:
        return Areas(np.ones((1, len(classes)), bool), np.ones((devices, 1), bool))
    objects = _drawn_objects(count, each, len(classes), seed)
    if contacts.positions(0) is None:
        main = rng_for(seed, "areas").integers(count, size=devices)
        return Areas(objects, main[:, None] == np.arange(count))
    places = _places(contacts)
    return Areas(objects, _visits(contacts, _centres(places[~np.isnan(places[..., 0])], count, seed)))


def _drawn_objects(count: int, each: int, classes: int, seed: int) -> np.ndarray:
    """Every class is in at least one area; then each area gets others at random until it has `each`."""
    if count > classes:
        raise ConfigError(f"topology.areas = {count}, but there are only {classes} classes to divide")
    least = -(-classes // count)
    if each and not least <= each <= classes:
        raise ConfigError(
            f"topology.area_objects = {each}: expected {least} to {classes}, so that {count} areas have all "
            f"{classes} classes"
        )
    rng = rng_for(seed, "objects of areas")
    objects = np.zeros((count, classes), bool)
    for area, chosen in enumerate(np.array_split(rng.permutation(classes), count)):
        objects[area, chosen] = True
    for row in objects:
        others = np.flatnonzero(~row)
        row[rng.permutation(others)[: max(0, each - int(row.sum()))]] = True
    return objects


def _given_objects(given: Sequence[GivenArea], classes: Sequence[str]) -> np.ndarray:
    for area in given:
        for name in area.objects:
            if name not in classes:
                raise unknown("object", name, classes, "topology.given_areas")
    return np.array([[name in area.objects for name in classes] for area in given])


def _given_centres(contacts: ContactProcess, given: Sequence[GivenArea]) -> np.ndarray:
    """In metres, as positions are."""
    if not isinstance(contacts, LocatedContacts):
        raise ConfigError(
            "topology.given_areas needs traces with positions, and these are contacts; use topology.areas"
        )
    centres, traces = np.array([area.centre for area in given]), contacts.traces
    if traces.geographic:
        return earth.to_metres(centres, traces.origin)
    found: np.ndarray = centres - np.array(traces.origin)
    return found


def _places(contacts: ContactProcess) -> np.ndarray:
    """Where devices are at some times of the day, (times, devices, 2)."""
    slots = np.unique(np.linspace(0, contacts.slots - 1, _LOOKS).astype(int))
    seen = [contacts.positions(int(slot)) for slot in slots]
    return np.stack([positions for positions in seen if positions is not None])


def _visits(contacts: ContactProcess, centres: np.ndarray) -> np.ndarray:
    """Who spends enough time nearest to which centre, bool (devices, areas)."""
    places, devices = _places(contacts), len(contacts.devices)
    there = ~np.isnan(places[..., 0])
    time = np.zeros((devices, len(centres)))
    for positions, present in zip(places, there):
        at = np.flatnonzero(present)
        nearest = ((positions[at, None] - centres) ** 2).sum(2).argmin(1)
        np.add.at(time, (at, nearest), 1)
    share = time / np.maximum(time.sum(1, keepdims=True), 1)
    visited: np.ndarray = share >= _VISITED
    visited[np.arange(devices), share.argmax(1)] = True  # everyone cares about something
    return visited


def _centres(points: np.ndarray, count: int, seed: int) -> np.ndarray:
    from sklearn.cluster import KMeans  # a second to import; only areas need it

    rng = rng_for(seed, "centres of areas")
    some = points[rng.permutation(len(points))[:5000]].astype(float)
    if len(np.unique(some, axis=0)) < count:
        raise ConfigError(f"topology.areas = {count}, but the traces show people at fewer places than that")
    found: np.ndarray = KMeans(count, n_init=3, random_state=int(rng.integers(2**31))).fit(some).cluster_centers_
    return found
