"""Sightseeing areas: each has its own objects, and a device needs those of the areas that its owner visits (Eq. 4).

If positions are known, areas are the parts of the map around k centres of where people are (K-means), and an owner
visits an area if they spend at least a fifth of their time there. If only contacts are known, areas are assigned at
random.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wayfare.core.errors import ConfigError
from wayfare.core.seeds import rng_for
from wayfare.encounters.contacts import ContactProcess

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


def areas_of(contacts: ContactProcess, count: int, classes: int, seed: int) -> Areas:
    """This many areas; with 0, every device needs all objects."""
    devices = len(contacts.devices)
    if not count:
        return Areas(np.ones((1, classes), bool), np.ones((devices, 1), bool))
    if count > classes:
        raise ConfigError(f"topology.areas = {count}, but there are only {classes} classes to divide")
    objects = np.zeros((count, classes), bool)
    for area, chosen in enumerate(np.array_split(rng_for(seed, "objects of areas").permutation(classes), count)):
        objects[area, chosen] = True
    slots = np.unique(np.linspace(0, contacts.slots - 1, _LOOKS).astype(int))
    seen = [contacts.positions(int(slot)) for slot in slots]
    if seen[0] is None:
        main = rng_for(seed, "areas").integers(count, size=devices)
        return Areas(objects, main[:, None] == np.arange(count))
    places = np.stack([positions for positions in seen if positions is not None])  # slots, devices, 2
    there = ~np.isnan(places[..., 0])
    centres = _centres(places[there], count, seed)
    time = np.zeros((devices, count))
    for positions, present in zip(places, there):
        at = np.flatnonzero(present)
        nearest = ((positions[at, None] - centres) ** 2).sum(2).argmin(1)
        np.add.at(time, (at, nearest), 1)
    share = time / np.maximum(time.sum(1, keepdims=True), 1)
    visited = share >= _VISITED
    visited[np.arange(devices), share.argmax(1)] = True  # everyone cares about something
    return Areas(objects, visited)


def _centres(points: np.ndarray, count: int, seed: int) -> np.ndarray:
    from sklearn.cluster import KMeans

    rng = rng_for(seed, "centres of areas")
    some = points[rng.permutation(len(points))[:5000]].astype(float)
    if len(np.unique(some, axis=0)) < count:
        raise ConfigError(f"topology.areas = {count}, but the traces show people at fewer places than that")
    found: np.ndarray = KMeans(count, n_init=3, random_state=int(rng.integers(2**31))).fit(some).cluster_centers_
    return found
