"""The movie of a day: positions that a report can play, checked against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wayfare.core.errors import ConfigError
from wayfare.encounters.contacts import ListedContacts, LocatedContacts
from wayfare.encounters.movie import movie
from wayfare.encounters.movie_file import ABSENT, Movie
from wayfare.encounters.traces import Contacts, Traces


def located(positions: np.ndarray, stationary: list[bool] | None = None) -> LocatedContacts:
    devices = positions.shape[1]
    still = np.array(stationary or [False] * devices)
    return LocatedContacts(
        Traces(
            tuple(f"d{i}" for i in range(devices)),
            30.0,
            start=21_600.0,
            date="",
            positions=positions,
            stationary=still,
            origin=(0, 0),
            geographic=False,
        )
    )


def played(folder: Path, data: bytes) -> Movie:
    """The movie as a report reads it."""
    (folder / "tour.safetensors").write_bytes(data)
    return Movie.read(folder / "tour.safetensors")


def everything(devices: int) -> np.ndarray:
    return np.ones((devices, 3), bool)


def test_positions_are_steps_from_the_middle(tmp_path: Path) -> None:
    """From 0 to 100 m east and 0 to 40 m north: the middle is (50, 20), and half a metre is a step."""
    positions = np.array([[[0, 0], [100, 40]], [[50, 20], [np.nan, np.nan]], [[75.4, 20], [100, 40]]], np.float32)
    made = played(tmp_path, movie(located(positions, [False, True]), ["c0", "s0"], everything(2)))
    assert made.positions.tolist() == [
        [[-100, -40], [100, 40]],
        [[0, 0], [ABSENT, ABSENT]],
        [[51, 0], [100, 40]],  # 25.4 m is nearer to 51 steps than to 50
    ]
    assert made.slots.tolist() == [0, 1, 2] and made.stationary.tolist() == [False, True] and made.ids == ("c0", "s0")
    assert (made.step, made.slot, made.start, made.length, made.located) == (0.5, 30.0, 21_600.0, 3, True)


def test_a_country_has_longer_steps_and_nothing_overflows(tmp_path: Path) -> None:
    positions = np.array([[[0, 0], [655_340, 0]]], np.float32)
    made = played(tmp_path, movie(located(positions), ["c0", "c1"], everything(2)))
    assert made.step == pytest.approx(10.0) and made.positions[0, :, 0].tolist() == [-32767, 32767]


def test_frames_are_evenly_spaced_and_end_with_the_day(tmp_path: Path) -> None:
    positions = np.zeros((1441, 1, 2), np.float32)
    made = played(tmp_path, movie(located(positions), ["c0"], everything(1), frames=361))
    assert made.slots.tolist() == list(range(0, 1441, 4)) and made.length == 1441


def test_a_crowd_has_fewer_frames(tmp_path: Path) -> None:
    positions = np.zeros((250, 20_000, 2), np.float32)
    ids = [f"c{i}" for i in range(20_000)]
    made = played(tmp_path, movie(located(positions), ids, everything(20_000)))
    assert len(made.slots) == 200 and made.slots[-1] == 249


def test_devices_of_a_list_of_contacts_stand_on_a_circle_while_they_are_there(tmp_path: Path) -> None:
    contacts = Contacts(("a", "b", "c", "d"), 20.0, 0.0, np.array([0, 1]), np.array([[0, 1], [2, 3]]))
    made = played(tmp_path, movie(ListedContacts(contacts), ["c0", "c1", "c2", "c3"], everything(4)))
    assert not made.located
    # (0, 500) and (500, 0) are there in the first slot, (0, -500) and (-500, 0) in the second
    assert made.positions[0].tolist() == [[0, 1000], [1000, 0], [ABSENT, ABSENT], [ABSENT, ABSENT]]
    assert made.positions[1].tolist() == [[ABSENT, ABSENT], [ABSENT, ABSENT], [0, -1000], [-1000, 0]]


def test_nobody_is_there_all_day(tmp_path: Path) -> None:
    made = played(tmp_path, movie(located(np.full((4, 2, 2), np.nan, np.float32)), ["c0", "c1"], everything(2)))
    assert (made.positions == ABSENT).all()


def test_the_same_day_gives_the_same_bytes() -> None:
    positions = np.random.default_rng(0).normal(0, 300, (50, 8, 2)).astype(np.float32)
    ids = [f"c{i}" for i in range(8)]
    assert movie(located(positions), ids, everything(8), 20) == movie(located(positions), ids, everything(8), 20)


def test_what_does_not_fit_is_refused() -> None:
    contacts = located(np.zeros((3, 2, 2), np.float32))
    with pytest.raises(ConfigError, match="2 devices, but 1 ids"):
        movie(contacts, ["c0"], everything(2))
    with pytest.raises(ConfigError, match="too few for a movie"):
        movie(contacts, ["c0", "c1"], everything(2), frames=1)
