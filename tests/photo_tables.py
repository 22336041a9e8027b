"""Tables of photographs made by hand, or drawn by hypothesis, for the splits that go by place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from hypothesis import strategies as st

from wayfare.core.protocols import Task
from wayfare.partition.split import Split
from wayfare.places.data.place_photos import Group, PlacePhotos, coded, text_column
from wayfare.places.partition.census import census

Drive = tuple[str, str, Sequence[float]]  # name that begins with q or d (query, database), city, eastings of its frames


def street(*drives: Drive, zone: str = "33N") -> PlacePhotos:
    """Sequences along a straight street in each city; a drive without a name is photographs without a sequence."""
    frames = [(name, city, x) for name, city, places in drives for x in places]
    names, cities = [name for name, _, _ in frames], [city for _, city, _ in frames]
    known, group = coded(cities)
    sequences, sequence = coded([name if len(name) > 1 else "" for name in names])
    keys = text_column([f"{city}/{name}/{i}" for i, (name, city, _) in enumerate(frames)])
    return PlacePhotos(
        root=Path("photos"),
        files=keys,
        keys=keys,
        groups=tuple(Group(city, zone) for city in known),
        group=group,
        easting=np.array([x for _, _, x in frames], np.float64),
        northing=np.full(len(frames), 5e6),
        split=np.full(len(frames), "train", object),
        query=np.array([name.startswith("q") for name in names], bool),
        sequences=sequences,
        sequence=sequence,
    )


@st.composite
def towns(draw: st.DrawFn) -> PlacePhotos:
    """Up to three cities, with sequences of either kind or both, photographs of no sequence, and some of no place."""
    count = draw(st.integers(4, 40))
    seed = draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)
    cities, sequences = draw(st.integers(1, 3)), draw(st.integers(1, 20))
    sequence = rng.integers(-1 if draw(st.booleans()) else 0, sequences, count).astype(np.int32)
    city_of, asking = rng.integers(cities, size=sequences + 1), rng.integers(2, size=sequences + 1)
    query = (asking[sequence] == 1) ^ (rng.random(count) < draw(st.sampled_from([0.0, 0.2])))
    keys = text_column([f"k{i}" for i in rng.permutation(count).tolist()])
    place = rng.uniform(0, draw(st.sampled_from([50, 300])), (count, 2)).round(draw(st.sampled_from([-1, 3])))
    return PlacePhotos(
        root=Path("photos"),
        files=keys,
        keys=keys,
        groups=tuple(Group(f"city{i}", "33N") for i in reversed(range(cities))),
        group=city_of[sequence].astype(np.int32),
        easting=np.where(rng.random(count) < 0.05, np.nan, 500_000 + place[:, 0]),
        northing=5e6 + place[:, 1],
        split=np.full(count, "train", object),
        query=query,
        sequences=tuple(f"s{i}" for i in rng.permutation(sequences).tolist()),
        sequence=sequence,
    )


def shuffled(photos: PlacePhotos, seed: int) -> tuple[PlacePhotos, np.ndarray]:
    """The same table with its rows in another order; row j of it is row order[j] of the first."""
    order = np.random.default_rng(seed).permutation(len(photos))
    return photos.take(order), order


def names_of(photos: PlacePhotos, rows: np.ndarray) -> list[str]:
    """The sequences of these photographs, in alphabetical order."""
    assert photos.sequence is not None
    return sorted({photos.sequences[i] for i in photos.sequence[rows]})


def keys_of(photos: PlacePhotos, split: Split) -> list[list[str]]:
    """Each client's photographs, by key."""
    return [sorted(photos.keys[rows]) for rows in split]


def units(photos: PlacePhotos) -> np.ndarray:
    """The sequence of each photograph as a number, worked out the slow way."""
    assert photos.sequence is not None
    found: dict[tuple[int, int], int] = {}
    pairs = [(int(g), int(s) if s >= 0 else -1 - row) for row, (g, s) in enumerate(zip(photos.group, photos.sequence))]
    return np.array([found.setdefault(pair, len(found)) for pair in pairs])


def check_clients(photos: PlacePhotos, split: Split, least: int) -> None:
    """Whole sequences, valid rows, each once in a client, and enough of both kinds."""
    unit = units(photos)
    assert photos.query is not None
    for rows in split:
        assert len(set(rows.tolist())) == len(rows) and rows.min() >= 0 and rows.max() < len(photos)
        mine = np.isin(unit, unit[rows])
        assert mine.sum() == len(rows), "a sequence was cut"
        assert len(set(unit[rows[photos.query[rows]]])) >= least
        assert len(set(unit[rows[~photos.query[rows]]])) >= least


def check_apart(photos: PlacePhotos, split: Split) -> None:
    """No sequence in two clients, and no client in two cities."""
    unit = units(photos)
    owned = [set(unit[rows].tolist()) for rows in split]
    assert sum(map(len, owned)) == len(set().union(*owned))
    assert all(len(set(photos.group[rows])) == 1 for rows in split)


@dataclass(frozen=True)
class Streets(Task):
    """A task that has nothing but photographs: two towns at the two ends of the Earth."""

    provides: ClassVar[frozenset[str]] = frozenset({"features"})
    classes: ClassVar[tuple[str, ...]] = ()
    labels: ClassVar[None] = None
    sources: ClassVar[frozenset[str]] = frozenset({"labels", "photos", "features"})

    def source(self, name: str) -> Any:
        return {"photos": self.photos, "features": self.features}.get(name)

    def describe_split(self, split: Split) -> dict[str, Any]:
        places = census(split, self.photos)
        return {"table": places.pop("table"), "places": places}

    @property
    def photos(self) -> PlacePhotos:
        drives = [
            (f"{kind}{i}", city, [500_000 + 400.0 * (i // 2) + 10 * frame for frame in range(3)])
            for city in ("alba", "orosk")
            for kind in "qd"
            for i in range(6)
        ]
        photos = street(*drives)
        return PlacePhotos(**{**vars(photos), "groups": (Group("alba", "33N"), Group("orosk", "55S"))})

    @property
    def features(self) -> tuple[PlacePhotos, np.ndarray]:
        photos = self.photos
        return photos, np.stack((photos.easting - 500_000, photos.northing * 0), -1).astype(np.float32)

    @property
    def samples(self) -> int:
        return len(self.photos)

    def steps(self, *_: Any) -> None:
        raise NotImplementedError
