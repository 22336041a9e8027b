"""Clustering: clusters that can be seen in the numbers, and what is promised of every table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photo_tables import check_apart, check_clients, keys_of, names_of, shuffled, street, towns
from wayfare.core.errors import ConfigError
from wayfare.partition.split import Split
from wayfare.places.data.place_photos import Group, PlacePhotos
from wayfare.places.partition.clustering import Clustering, _clusters, _means, _shares
from wayfare.places.partition.proximity import Proximity
from wayfare.places.partition.sequenced import Sequenced


def drawn(photos: PlacePhotos, features: Any, seed: int = 0, **settings: Any) -> Split:
    given = photos, np.asarray(features, np.float32).reshape(len(photos), -1)
    return Clustering(**settings)(given, np.random.default_rng(seed))


def sequences(photos: PlacePhotos, split: Split) -> list[list[str]]:
    return sorted(names_of(photos, rows) for rows in split)


#### By hand


def test_features_decide_and_not_places() -> None:
    # odd and even ones look alike, and lie in pairs along the street
    photos = street(*[(f"{kind}{i}", "a", [100.0 * i, 100.0 * i + 1]) for kind in "qd" for i in range(4)])
    odd = np.array([int(key[3]) % 2 for key in photos.keys])
    for seed in range(8):
        split = drawn(photos, odd + 0.01 * np.arange(len(odd)), seed, clients=2)
        assert sequences(photos, split) == [["d0", "d2", "q0", "q2"], ["d1", "d3", "q1", "q3"]]
        assert split.groups == ("a", "a") and split.provenance["rule"] == "clustering"


def test_the_mean_of_a_sequence_is_what_is_clustered() -> None:
    photos = street(("q1", "a", [0, 1]), ("q2", "a", [0]), ("d1", "a", [0, 1, 2]))
    features = np.array([[0, 2], [4, 6], [1, 1], [3, 0], [3, 3], [3, 9]], np.float32)
    pool = Sequenced(photos)
    assert [photos.sequences[photos.sequence[pool.rows[at]]] for at in pool.start[:-1]] == ["d1", "q1", "q2"]
    assert _means(pool, features, np.array([0, 1, 2])).tolist() == [[3, 4], [2, 4], [1, 1]]
    assert _means(pool, features, np.array([2, 1])).tolist() == [[1, 1], [2, 4]]


def test_a_cluster_that_is_too_small_is_no_client() -> None:
    drives = [(f"{kind}{i}", "a", [0.0]) for kind in "qd" for i in range(3)]
    photos = street(*drives, ("q8", "a", [0]), ("d7", "a", [0]), ("d8", "a", [0]))
    features = [0, 0.1, 0.2, 0, 0.1, 0.2, 9, 9.1, 9.2]  # the second cluster has one query sequence
    assert sequences(photos, drawn(photos, features, clients=2)) == [["d0", "d1", "d2", "q0", "q1", "q2"]]
    assert len(drawn(photos, features, clients=2, least=1)) == 2
    photos = street(*[(f"{kind}{i}", "a", [0.0]) for kind in "qd" for i in range(4)])
    features = [0, 0.1, 0.2, 9, 0.3, 9.1, 9.2, 9.3]  # three query sequences and one of the database, and the reverse
    with pytest.raises(ConfigError, match="no cluster has 2 query and 2 database sequences"):
        drawn(photos, features, clients=2)


def test_a_city_has_as_many_clusters_as_proximity_has_clients() -> None:
    # three neighbourhoods in one city, one in the other; features are eight far points, two sequences of a kind on each
    drives = [(f"{kind}{i}", "a", [1000.0 * (i // 2)]) for kind in "qd" for i in range(6)]
    drives += [(f"{kind}{i}", "b", [0.0]) for kind in "qd" for i in range(2)]
    photos = street(*drives)
    assert Proximity(100.0)(photos, np.random.default_rng(0)).groups == ("a", "a", "a", "b")
    split = drawn(photos, photos.easting + 5000 * photos.group, radius=100.0)
    assert split.groups == ("a", "a", "a", "b")
    assert keys_of(photos, split) == sorted(keys_of(photos, Proximity(100.0)(photos, np.random.default_rng(0))))


def test_clusters_are_shared_by_sequences_within_limits() -> None:
    a, b, c = Group("a", ""), Group("b", ""), Group("c", "")
    assert _shares(3, {a: (10, 5), b: (5, 5)}) == {a: 2, b: 1}
    assert _shares(6, {a: (10, 5), b: (5, 5)}) == {a: 4, b: 2}
    assert _shares(6, {a: (10, 2), b: (5, 5)}) == {a: 2, b: 4}
    assert _shares(2, {a: (10, 2), b: (5, 5), c: (99, 0)}) == {a: 1, b: 1, c: 0}
    with pytest.raises(ConfigError, match=r"clients = 1, but each city \(a, b\) needs one"):
        _shares(1, {a: (10, 2), b: (5, 5)})
    with pytest.raises(ConfigError, match="enough for 7"):
        _shares(8, {a: (10, 2), b: (5, 5)})


def test_fewer_features_than_clusters() -> None:
    points = np.repeat([[0.0, 0.0], [1.0, 1.0]], 4, axis=0)
    assert _clusters(points, 5, 1).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_features_must_fit() -> None:
    photos = street(*[(f"{kind}{i}", "a", [0.0]) for kind in "qd" for i in range(2)])
    with pytest.raises(ConfigError, match=r"4 photographs, but features of shape \(3, 2\)"):
        Clustering()((photos, np.zeros((3, 2), np.float32)), np.random.default_rng(0))
    with pytest.raises(ConfigError, match="not finite"):
        drawn(photos, [0, 1, np.nan, 2])


#### Of every table


@settings(deadline=None, max_examples=25)
@given(towns(), st.integers(0, 3), st.integers(1, 2), st.integers(0, 2**32))
def test_promises(photos: PlacePhotos, clients: int, least: int, seed: int) -> None:
    rule = Clustering(clients, 60.0, least)
    features = np.random.default_rng(seed).normal(size=(len(photos), 3)).astype(np.float32)
    try:
        split = rule((photos, features), np.random.default_rng(seed))
    except ConfigError as error:
        assert any(words in str(error) for words in ("no cluster has", "needs one, and", "none is known"))
        return
    check_clients(photos, split, least)
    check_apart(photos, split)
    assert not clients or len(split) <= clients
    assert rule((photos, features), np.random.default_rng(seed)).pack() == split.pack()
    other, order = shuffled(photos, seed)
    assert keys_of(other, rule((other, features[order]), np.random.default_rng(seed))) == keys_of(photos, split)
