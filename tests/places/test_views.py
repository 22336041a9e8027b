"""Batches of places with views: who is whose view, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from wayfare.core.errors import ConfigError, WayfareError
from wayfare.places.data.place_photos import Group, PlacePhotos
from wayfare.places.views import PlaceViews

# metres east, heading, drive: 0, 1 and 2 are of one place, 3 looks the other way, 4 is near it, 5 far away, alone
EAST = [0.0, 5.0, 8.0, 2.0, 20.0, 100.0]
HEADING = [0.0, 350.0, 30.0, 180.0, 0.0, 0.0]
DRIVE = [0, 0, 1, 0, 0, 0]


def photos(count: int = 6) -> PlacePhotos:
    files = np.array([f"{i}.jpg" for i in range(count)])
    return PlacePhotos(
        Path(), files, files, (Group("here", ""),), np.zeros(count, np.int32), np.array(EAST[:count]),
        np.zeros(count), np.full(count, ""), heading=np.array(HEADING[:count]), sequences=("a", "b"),
        sequence=np.array(DRIVE[:count], np.int32),
    )  # fmt: skip


def pairs(found: np.ndarray) -> set[tuple[int, int]]:
    return {(int(a), int(b)) for a, b in np.argwhere(found) if a < b}


def test_views_of_a_place_are_near_and_look_the_same_way() -> None:
    every = np.arange(6)
    same, apart = PlaceViews().client(photos()).compare(every, every)
    assert pairs(same) == {(0, 1), (0, 2), (1, 2)}  # 350 and 30 degrees are 40 apart; 3 turns its back on all
    assert pairs(apart) == {(i, 5) for i in range(5)}  # 20 m is neither
    assert np.array_equal(same, same.T) and np.array_equal(apart, apart.T)
    assert not same.diagonal().any() and not apart.diagonal().any()


def test_headings_that_are_not_known_speak_against_nothing() -> None:
    unknown = replace(photos(), heading=None)
    same, _ = PlaceViews().client(unknown).compare(np.arange(6), np.arange(6))
    assert pairs(same) == {(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)}


def test_photographs_of_another_city_are_apart() -> None:
    groups, group = (Group("here", ""), Group("there", "")), np.array([0, 1, 0, 0, 0, 0], np.int32)
    cities = replace(photos(), groups=groups, group=group)
    same, apart = PlaceViews().client(cities).compare(np.arange(2), np.arange(2))
    assert not same.any() and apart[0, 1]


def test_partners_of_another_drive_are_preferred() -> None:
    client, rng = PlaceViews().client(photos()), np.random.default_rng(0)
    assert {int(client.partners(0, 1, rng, None)[0]) for _ in range(20)} == {2}
    assert {tuple(sorted(client.partners(2, 5, rng, None).tolist())) for _ in range(5)} == {(0, 1)}


def test_a_pass_takes_every_photograph_that_has_another_view() -> None:
    views = PlaceViews()
    client = views.client(photos())
    batches = list(views.batches(client, np.random.default_rng(0), places=2))
    assert len(batches) == 2  # three usable ones, two at a time
    assert set(np.concatenate([batch.photos for batch in batches]).tolist()) == {0, 1, 2}
    for batch in batches:
        assert batch.same.shape == (len(batch.photos),) * 2
        assert batch.same.any()


def test_without_headings_the_most_similar_photographs_are_the_views() -> None:
    views, unknown = PlaceViews(), replace(photos(), heading=None, sequence=None)
    client = views.client(unknown)
    assert not client.has_headings
    features = np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6], [-1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])  # 0 looks like 2
    rng = np.random.default_rng(0)
    assert client.partners(0, 2, rng, features).tolist() == [2, 1]
    for batch in views.batches(client, rng, 1, features):
        assert len(batch.photos) == 2 and batch.same.sum() == 2
    (whole,) = views.batches(client, rng, 9, features)
    same = {(int(whole.photos[a]), int(whole.photos[b])) for a, b in np.argwhere(whole.same)}
    assert (0, 3) not in same and {(0, 2), (2, 0)} <= same  # 3 is as near as 2, and was drawn by nobody but itself


def test_a_bank_compares_with_all_photographs() -> None:
    views = PlaceViews(bank=True)
    batch = next(views.batches(views.client(photos()), np.random.default_rng(0), places=1))
    assert batch.same.shape == (2, 2 + 6)
    assert batch.apart[:, 2 + 5].all()


def test_frames_know_only_of_queries_and_their_database() -> None:
    count = 4  # 0 and 1 are queries, 2 and 3 the database; 0 shows what 2 shows, and 1 what 3 shows
    frames = replace(
        photos(count), heading=None, sequence=None, query=np.array([True, True, False, False]),
        pairs=np.array([[0, 2], [1, 3]]),
    )  # fmt: skip
    same, apart = PlaceViews().client(frames).compare(np.arange(count), np.arange(count))
    assert pairs(same) == {(0, 2), (1, 3)}
    assert pairs(apart) == {(0, 3), (1, 2)}


def test_a_client_without_pairs_has_nothing_to_train_on() -> None:
    alone = replace(photos(2), easting=np.array([0.0, 90.0]))
    with pytest.raises(WayfareError, match="none of 2 photographs has another within 10 m"):
        PlaceViews().client(alone)


@pytest.mark.parametrize("wrong", [{"views": 1}, {"radius": 30.0}])
def test_what_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"mining.{next(iter(wrong))}"):
        PlaceViews(**wrong)  # type: ignore[arg-type]
