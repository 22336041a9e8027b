"""Proximity: whose clients can be worked out by hand on a straight street, and what it promises of every table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photo_tables import check_apart, check_clients, keys_of, names_of, shuffled, street, towns
from wayfare.core.errors import ConfigError
from wayfare.partition.split import Split, load_split
from wayfare.places.data.place_photos import PlacePhotos
from wayfare.places.partition.proximity import Proximity
from wayfare.places.partition.sequenced import Sequenced

SEEDS = range(12)


def drawn(photos: PlacePhotos, seed: int = 0, **settings: Any) -> Split:
    return Proximity(**settings)(photos, np.random.default_rng(seed))


def sequences(photos: PlacePhotos, split: Split) -> list[list[str]]:
    return sorted(names_of(photos, rows) for rows in split)


#### By hand


def test_two_neighbourhoods_and_what_is_too_little_for_one() -> None:
    photos = street(
        ("q1", "a", [0, 5]), ("q2", "a", [50]), ("d1", "a", [20]), ("d2", "a", [80, 85]),
        ("q3", "a", [1000]), ("d3", "a", [1000]), ("q4", "a", [1090]), ("d4", "a", [1080]),
        ("q5", "a", [5000]), ("d5", "a", [5010]), ("d6", "a", [5020]),  # one query sequence only
        ("d7", "a", [9000]),  # nothing asks there
    )  # fmt: skip
    for seed in SEEDS:
        split = drawn(photos, seed, radius=100.0)
        assert sequences(photos, split) == [["d1", "d2", "q1", "q2"], ["d3", "d4", "q3", "q4"]]
        assert split.groups == ("a", "a")
        assert sorted(split.sizes) == [4, 6]


def test_a_sequence_is_near_with_any_of_its_frames_and_comes_whole() -> None:
    near, far = ("d3", "a", [500, 300, 100, 700]), ("d4", "a", [100.5, 300])
    photos = street(("q1", "a", [0]), ("q2", "a", [0]), ("d1", "a", [0]), ("d2", "a", [0]), near, far)
    for seed in SEEDS:
        assert sequences(photos, drawn(photos, seed, radius=100.0)) == [["d1", "d2", "d3", "q1", "q2"]]


def test_what_was_not_enough_may_still_be_gathered() -> None:
    # around q1 there are q2 and d1; around q2 all four: whichever has the first turn, q2 makes the client
    photos = street(("q1", "a", [0]), ("d1", "a", [90]), ("q2", "a", [100]), ("d2", "a", [180]))
    for seed in SEEDS:
        split = drawn(photos, seed, radius=100.0)
        assert sequences(photos, split) == [["d1", "d2", "q1", "q2"]]
        assert photos.keys[split[0][0]] == "a/q2/2"


def test_every_query_sequence_has_its_turn_and_each_photograph_of_it_a_chance() -> None:
    frames = [0.0, 10_000.0, 20_000.0, 30_000.0]
    photos = street(("q1", "a", frames), ("q2", "a", frames), ("d1", "a", frames), ("d2", "a", frames))
    centres = [photos.easting[drawn(photos, seed, radius=5.0)[0][0]] for seed in range(40)]
    assert set(centres) == set(frames)


def test_cities_are_never_mixed_and_do_not_influence_each_other() -> None:
    one = [("q1", "a", [0]), ("q2", "a", [5]), ("d1", "a", [9]), ("d2", "a", [9]), ("q3", "a", [90]), ("q4", "a", [95])]
    one += [("d3", "a", [99]), ("d4", "a", [99])]
    other = [(name, "b", places) for name, _, places in one]
    alone, both = street(*one), street(*other, *one)
    for seed in SEEDS:
        split = drawn(both, seed, radius=50.0)
        assert split.groups == ("a", "a", "b", "b")
        of_a = [keys for keys, group in zip(keys_of(both, split), split.groups) if group == "a"]
        plain = [[key.rpartition("/")[0] for key in keys] for keys in of_a]
        assert plain == [
            [key.rpartition("/")[0] for key in keys] for keys in keys_of(alone, drawn(alone, seed, radius=50.0))
        ]


def test_photographs_without_a_sequence_are_sequences_of_one() -> None:
    photos = street(("q", "a", [0, 1]), ("d", "a", [2, 3, 500]))
    assert sorted(drawn(photos, radius=50.0)[0]) == [0, 1, 2, 3]
    bare = replace(photos, sequence=None, sequences=())
    assert sorted(drawn(bare, radius=50.0)[0]) == [0, 1, 2, 3]
    assert len(Sequenced(bare)) == 5


def test_the_least_number_is_a_setting() -> None:
    photos = street(("q1", "a", [0]), ("d1", "a", [5]), ("d2", "a", [6]), ("q2", "a", [500]), ("d3", "a", [505]))
    assert sequences(photos, drawn(photos, radius=50.0, least=1)) == [["d1", "d2", "q1"], ["d3", "q2"]]
    with pytest.raises(ConfigError, match="nowhere within 50 m of a query are 2 query and 2 database sequences"):
        drawn(photos, radius=50.0)


def test_groups_are_continents_if_asked_for() -> None:
    photos = street(*[(f"{kind}{i}", "a", [500_000]) for kind in "qd" for i in range(2)], zone="18N")
    assert drawn(photos, groups="continent").groups == ("America",)
    with pytest.raises(ConfigError, match="nothing says on which continent"):
        drawn(street(*[(f"{kind}{i}", "a", [0]) for kind in "qd" for i in range(2)], zone=""), groups="continent")


def test_what_is_missing_is_named() -> None:
    photos = street(("q1", "a", [0]), ("d1", "a", [0]))
    with pytest.raises(ConfigError, match="the files do not say which photographs are queries"):
        drawn(replace(photos, query=None))
    with pytest.raises(ConfigError, match="positions in metres, and these photographs have none"):
        drawn(replace(photos, easting=photos.easting * np.nan))
    with pytest.raises(ConfigError, match="there are none to train on"):
        drawn(photos.take(np.zeros(2, bool)))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"radius": 0.0}, "radius must be a distance in metres above 0"),
        ({"radius": float("nan")}, "radius"),
        ({"radius": float("inf")}, "radius"),
        ({"least": 0}, "least must be a whole number of at least 1"),
        ({"groups": "country"}, "unknown groups 'country'"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Proximity(**settings)


def test_it_says_where_it_comes_from_and_survives_a_file() -> None:
    photos = street(*[(f"{kind}{i}", "a", [0]) for kind in "qd" for i in range(2)])
    split = drawn(photos, 3)
    known = split.provenance
    assert (known["rule"], known["seed"], known["samples"]) == ("proximity", 3, 4)
    assert known["settings"] == {"radius": 1000.0, "least": 2, "groups": "city"}
    assert len(known["photos_sha256"]) == 64 and "labels_sha256" not in known
    assert load_split(split.pack()).pack() == split.pack()


#### Of every table


@settings(deadline=None, max_examples=80)
@given(towns(), st.sampled_from([1.0, 20.0, 100.0, 1000.0]), st.integers(1, 3), st.integers(0, 2**32))
def test_promises(photos: PlacePhotos, radius: float, least: int, seed: int) -> None:
    rule = Proximity(radius, least)
    try:
        split = rule(photos, np.random.default_rng(seed))
    except ConfigError as error:
        assert "nowhere within" in str(error) or "none is known" in str(error)
        return
    check_clients(photos, split, least)
    check_apart(photos, split)
    place = np.stack((photos.easting, photos.northing), -1)
    for rows in split:
        assert photos.query is not None and photos.query[rows[0]]
        distance = np.linalg.norm(place[rows] - place[rows[0]], axis=1)
        near = rows[distance <= radius]
        unit = Sequenced(photos).sequence
        assert set(unit[rows]) == set(unit[near]), "a sequence that does not come near"
    assert rule(photos, np.random.default_rng(seed)).pack() == split.pack()
    other, _ = shuffled(photos, seed)
    assert keys_of(other, rule(other, np.random.default_rng(seed))) == keys_of(photos, split)


@settings(deadline=None, max_examples=40)
@given(towns(), st.integers(0, 2**32))
def test_a_radius_beyond_everything_makes_a_city_one_client_or_none(photos: PlacePhotos, seed: int) -> None:
    pool = Sequenced(photos)
    located = np.isfinite(photos.easting)
    known = np.bincount(pool.sequence, located, len(pool)) > 0
    asks = np.bincount(pool.sequence, located & photos.query, len(pool)) > 0  # can be a centre
    wanted = []
    for _, members in pool.cities():
        members = members[known[members]]
        if asks[members].any() and pool.enough(members, 2):
            wanted.append(sorted(photos.keys[pool.rows_of(members)]))
    if wanted:
        split = Proximity(1e6)(photos, np.random.default_rng(seed))
        assert keys_of(photos, split) == wanted
