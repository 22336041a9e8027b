"""Sequences: every client has every city."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photo_tables import check_clients, keys_of, names_of, shuffled, street, towns, units
from wayfare.core.errors import ConfigError
from wayfare.partition.split import Split
from wayfare.places.data.place_photos import PlacePhotos
from wayfare.places.partition.proximity import Proximity
from wayfare.places.partition.sequences import Sequences, _deal


def drawn(photos: PlacePhotos, seed: int = 0, **settings: Any) -> Split:
    return Sequences(**settings)(photos, np.random.default_rng(seed))


def town(city: str, queries: int, database: int) -> list[tuple[str, str, list[float]]]:
    names = [f"q{city}{i}" for i in range(queries)] + [f"d{city}{i}" for i in range(database)]
    return [(name, city, [float(i), float(i)]) for i, name in enumerate(names)]


#### By hand


def test_short_cities_are_dealt_again_and_long_ones_once() -> None:
    photos = street(*town("a", 2, 6), *town("b", 3, 3))
    for seed in range(8):
        split = drawn(photos, seed, clients=3)
        held = [names_of(photos, rows) for rows in split]
        assert [Counter(name[:2] for name in names) for names in held] == [{"qa": 1, "da": 2, "qb": 1, "db": 1}] * 3
        times = Counter(name for names in held for name in names)
        assert len(times) == 14  # everything is used
        assert sorted(times.values()) == [1] * 13 + [2] and times.most_common(1)[0][0].startswith("qa")
        assert split.groups is None and split.provenance["rule"] == "sequences"
        assert all(len(rows) == 10 for rows in split)  # two frames each


def test_who_gets_one_more_takes_turns() -> None:
    photos = street(*town("a", 4, 4), *town("b", 5, 4))  # 4 + 4 + 5 + 4 = 17 sequences for 3 clients
    split = drawn(photos, clients=3)
    assert sorted(len(names_of(photos, rows)) for rows in split) == [5, 6, 6]


def test_dealing_by_hand() -> None:
    hands: list[list[np.ndarray]] = [[], [], []]
    assert _deal(np.array([7, 8, 9, 5]), hands, 1, 1) == 2  # the second has the extra one, now it is the third's turn
    assert [hand[0].tolist() for hand in hands] == [[5], [7, 8], [9]]
    assert _deal(np.array([1, 2, 3]), hands, 2, 2) == 2  # six are needed: twice through
    assert [hand[1].tolist() for hand in hands] == [[3, 1], [2, 3], [1, 2]]


def test_as_many_clients_as_proximity_has() -> None:
    photos = street(*[(f"{kind}{i}", "a", [1000.0 * (i // 2)]) for kind in "qd" for i in range(8)])
    assert len(Proximity(100.0)(photos, np.random.default_rng(5))) == 4 == len(drawn(photos, 5, radius=100.0))
    lonely = street(("q1", "a", [0]), ("d1", "a", [0]))
    with pytest.raises(ConfigError, match="takes the number from proximity, which has none with radius = 1000 m"):
        drawn(lonely)
    assert len(drawn(lonely, clients=2)) == 2


def test_a_city_that_lacks_a_kind_takes_no_part() -> None:
    photos = street(*town("a", 2, 2), *town("b", 1, 5))
    assert {name[1] for rows in drawn(photos, clients=2, least=2) for name in names_of(photos, rows)} == {"a"}
    assert {name[1] for rows in drawn(photos, clients=2, least=1) for name in names_of(photos, rows)} == {"a", "b"}
    with pytest.raises(ConfigError, match="no city has 3 query and 3 database sequences"):
        drawn(photos, clients=2, least=3)


#### Of every table


@settings(deadline=None, max_examples=60)
@given(towns(), st.integers(1, 6), st.integers(1, 3), st.integers(0, 2**32))
def test_promises(photos: PlacePhotos, clients: int, least: int, seed: int) -> None:
    rule = Sequences(clients, least=least)
    try:
        split = rule(photos, np.random.default_rng(seed))
    except ConfigError as error:
        assert "no city has" in str(error)
        return
    assert len(split) == clients
    check_clients(photos, split, least)
    unit = units(photos)
    counts = [len(set(unit[rows])) for rows in split]
    assert max(counts) - min(counts) <= 1
    cities = [set(photos.group[rows]) for rows in split]
    assert all(found == cities[0] for found in cities)
    for city in cities[0]:  # in each of its cities each client has enough, and together they have all of it
        inside = [rows[photos.group[rows] == city] for rows in split]
        check_clients(photos, Split.from_parts(inside), least)
        assert set(np.concatenate(inside)) == set(np.flatnonzero(photos.group == city))
    assert rule(photos, np.random.default_rng(seed)).pack() == split.pack()
    other, _ = shuffled(photos, seed)
    assert keys_of(other, rule(other, np.random.default_rng(seed))) == keys_of(photos, split)
