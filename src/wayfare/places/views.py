"""Batches of P places with K views of each, drawn from one client's photographs.

A view of a place is any photograph within `radius` metres that looks the same way (`heading` degrees). Views of other
sequences are preferred: neighbouring frames of one drive look alike anyway. In a batch, photographs within `radius`
that look the same way are of one place, those beyond `negative_radius` are of different places, and the other pairs are
not compared. Mining is left to the loss, which sees all pairs of the batch.

Where headings are not known, the most similar photographs within `radius` are taken for views of the place (as
positives are in Eq. 1 of the paper), and only these are of one place: most of the others look another way.

With `bank = true` every photograph is also compared with the descriptors that the client's other photographs had when
the round began: a client with few photographs then has as many comparisons as it has photographs, in any batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from wayfare.core.errors import ConfigError, WayfareError
from wayfare.places.data.place_photos import PlacePhotos


class Views(NamedTuple):
    """Photographs of a batch, and what is known about each pair."""

    photos: np.ndarray  # int64 (N,): rows of the client's photographs
    same: np.ndarray  # bool (N, N + M): views of one place
    apart: np.ndarray  # bool (N, N + M): of different places


class ClientViews:
    """A client's photographs, and which of them are views of one place."""

    def __init__(self, photos: PlacePhotos, radius: float, negative_radius: float, heading: float) -> None:
        self.count, self.has_headings = len(photos), photos.heading is not None
        # sets of frames say of a query and a photograph of the database whether they match, and nothing of the others
        self._side = photos.query if photos.pairs is not None else None
        first, second, metres = _close(photos, negative_radius)
        aligned = _aligned(photos, first, second, heading)
        good = aligned & (metres <= radius)
        self._near, self._same = self._keys(first, second), self._keys(first[good], second[good])
        other = _other_sequence(photos, first, second)
        self._views = _lists(first[good], second[good], self.count)
        self._elsewhere = _lists(first[good & other], second[good & other], self.count)
        self.usable = np.array([row for row in range(self.count) if len(self._views[row])], np.int64)
        if not len(self.usable):
            raise WayfareError(
                f"nothing to train on: none of {self.count} photographs has another within {radius:g} m that looks the "
                "same way"
            )

    def partners(self, row: int, count: int, rng: np.random.Generator, features: np.ndarray | None) -> np.ndarray:
        """At most `count` other views of a photograph's place, of other sequences where there are any.

        By chance; or with `features` (of all photographs) the most similar ones.
        """
        known = rng.permutation(self._elsewhere[row] if len(self._elsewhere[row]) else self._views[row])
        if features is not None:
            known = known[np.argsort(-features[known] @ features[row], kind="stable")]
        return known[:count]

    def compare(self, photos: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which photographs are views of one place, and which are of different places: bool (n, m) each."""
        keys = self._keys(photos[:, None], others[None])
        apart = ~_among(keys, self._near) & (photos[:, None] != others[None])
        if self._side is not None:
            apart &= self._side[photos][:, None] != self._side[others][None]
        return _among(keys, self._same), apart

    def _keys(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """A number for each pair."""
        keys: np.ndarray = first * self.count + second
        return keys


@dataclass(frozen=True)
class PlaceViews:
    """How batches are drawn; `training.batch_size` is the number of places of each."""

    radius: float = 10.0  # metres: views of one place
    negative_radius: float = 25.0  # metres beyond which photographs are of different places
    heading: float = 45.0  # degrees by which views of one place may differ, where headings are known
    views: int = 2  # of each place
    bank: bool = False  # compare with all of the client's photographs as they were when the round began

    def __post_init__(self) -> None:
        if self.views < 2:
            raise ConfigError(f"mining.views = {self.views}: expected at least 2")
        if not 0 <= self.radius <= self.negative_radius:
            raise ConfigError(
                f"mining.radius = {self.radius} and negative_radius = {self.negative_radius}: a photograph would be of "
                "the same and of another place; the second must not be smaller"
            )

    def client(self, photos: PlacePhotos) -> ClientViews:
        """The client's photographs, ready to draw from."""
        return ClientViews(photos, self.radius, self.negative_radius, self.heading)

    def batches(
        self, client: ClientViews, rng: np.random.Generator, places: int, features: np.ndarray | None = None
    ) -> Iterator[Views]:
        """One pass over the photographs that have another view, in random order, `places` at a time.

        `features` (N, d): the photographs' descriptors, where their headings are not known.
        """
        order = rng.permutation(client.usable)
        for start in range(0, len(order), places):
            chosen = [
                np.concatenate(([row], client.partners(int(row), self.views - 1, rng, features)))
                for row in order[start : start + places]
            ]
            photos = np.unique(np.concatenate(chosen))
            others = np.concatenate((photos, np.arange(client.count))) if self.bank else photos
            same, apart = client.compare(photos, others)
            yield Views(photos, same if features is None else same & _drawn(chosen, photos, others), apart)


def _drawn(chosen: list[np.ndarray], photos: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which pairs were drawn as views of one place: bool (n, m)."""
    found = np.zeros((len(photos), len(others)), bool)
    for views in chosen:
        found |= np.isin(photos, views)[:, None] & np.isin(others, views)[None]
    return found


def _among(keys: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which keys are among the known ones, which are in order."""
    if not len(known):
        return np.zeros(keys.shape, bool)
    place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    found: np.ndarray = known[place] == keys
    return found


def _close(photos: PlacePhotos, radius: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All ordered pairs of different photographs within the radius, and the metres between them."""
    if photos.pairs is not None:
        both = np.concatenate((photos.pairs, photos.pairs[:, ::-1]))
        both = np.unique(both, axis=0)
        return both[:, 0], both[:, 1], np.zeros(len(both))
    found = [np.empty((0, 2), np.int64)]
    place = np.stack((photos.easting, photos.northing), 1)
    for group in np.unique(photos.group):
        rows = np.flatnonzero((photos.group == group) & np.isfinite(place).all(1))
        if len(rows):
            found.append(rows[cKDTree(place[rows]).query_pairs(radius, output_type="ndarray").reshape(-1, 2)])
    pairs = np.concatenate(found)
    pairs = np.concatenate((pairs, pairs[:, ::-1]))
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    apart = place[pairs[:, 0]] - place[pairs[:, 1]]
    return pairs[:, 0], pairs[:, 1], np.hypot(apart[:, 0], apart[:, 1])


def _aligned(photos: PlacePhotos, first: np.ndarray, second: np.ndarray, most: float) -> np.ndarray:
    """Which pairs look the same way; where a heading is not known, that may be so."""
    if photos.heading is None:
        return np.ones(len(first), bool)
    turn = np.abs((photos.heading[first] - photos.heading[second] + 180) % 360 - 180)
    aligned: np.ndarray = ~(turn > most)
    return aligned


def _other_sequence(photos: PlacePhotos, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    if photos.sequence is None:
        return np.ones(len(first), bool)
    differs: np.ndarray = (photos.sequence[first] != photos.sequence[second]) | (photos.sequence[first] < 0)
    return differs


def _lists(first: np.ndarray, second: np.ndarray, count: int) -> list[np.ndarray]:
    """The second of each pair, by the first; pairs are in order."""
    ends = np.searchsorted(first, np.arange(count + 1))
    return [second[start:end] for start, end in pairwise(ends)]
