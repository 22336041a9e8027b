"""What is learnt from an index: its photographs looked for in the rest of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from wayfare.core.errors import ConfigError, DataError
from wayfare.places.calibration import Calibration, in_words
from wayfare.places.data.place_photos import PlacePhotos
from wayfare.places.index import Index
from wayfare.places.indexing import add
from wayfare.places.leave_one_out import Calibrator, calibrate, in_a_row, of_one_visit, trained_photos
from wayfare.places.positions import read_photographs, rows_of
from wayfare.places.trained_model import Described, TrainedPlaceModel

Table = Callable[..., PlacePhotos]


def nothing(queries: int) -> Calibration:
    """What stands for a calibration that nobody looks at."""
    return Calibration(
        (0.0,) * 3, 0.0, centre=(0.0,) * 3, scale=(1.0,) * 3, threshold=None, precision=1.0, recall=1.0, wanted=0.9,
        strangers=0.2, queries=queries, figures={},
    )  # fmt: skip


def test_photographs_taken_in_a_row(table: Table) -> None:
    photos = replace(
        table([(0, 0)] * 5, [0, 0, 0, 0, 1]),
        captured=np.array(["2024-01-01T12:00:00", "2024-01-01T12:00:59", "2024-01-01T12:01:01", "NaT",
                           "2024-01-01T12:00:00"], "M8[ms]"),
    )  # fmt: skip
    rows = rows_of(photos, photos.groups)
    assert in_a_row(rows, 0).tolist() == [True, True, False, False, False]  # another city is another camera
    assert in_a_row(rows, 3).tolist() == [False, False, False, True, False]
    named = replace(photos, sequences=("a", "b"), sequence=np.array([0, 1, 0, -1, 0], np.int32))
    rows = rows_of(named, named.groups)
    assert in_a_row(rows, 0).tolist() == [True, False, True, False, True]
    assert rows["sequence"][3] == 0 and rows["sequence"][0] == rows["sequence"][2] != rows["sequence"][1]


def test_photographs_of_one_visit(table: Table) -> None:
    photos = replace(
        table([(0, 0)] * 6, [0, 0, 0, 0, 1, 0]),
        captured=np.array(["2024-01-01T23:00", "2024-01-02T01:00", "2024-01-02T11:01", "NaT", "2024-01-01T23:00",
                           "2024-02-02T12:00"], "M8[ms]"),
        sequences=("a", "b"), sequence=np.array([0, 1, 1, -1, 1, 0], np.int32),
    )  # fmt: skip
    rows = rows_of(photos, photos.groups)
    # the second was taken two hours later, and the last one is of its sequence, a month later
    assert of_one_visit(rows, 0).tolist() == [True, True, False, False, False, True]
    assert of_one_visit(rows, 3).tolist() == [False, False, False, True, False, False]


def test_an_index_is_learnt_from(whole: Path, model: TrainedPlaceModel, run: Path) -> None:
    said: list[tuple[str, int, int]] = []
    found = Calibrator(model, run, progress=lambda *how_far: said.append(how_far))(Index(whole))
    assert found == Calibrator(model, run)(Index(whole)) == Index(whole).facts.calibration
    assert found.queries == 120 and said[-1] == ("learning what is unknown", 120, 120)
    assert found.figures["auc"] > 0.9 and found.recall > 0.8  # the street is easy
    assert found.threshold is not None and 0 < found.threshold < 1


NOT_TOLD = "whether the model was trained on photographs of the index is not known (not told)"
ONE_DAY = (
    "too few places are shown by photographs taken twelve hours apart, and photos of another day are harder to find"
)


@pytest.mark.parametrize(
    ("hours", "nearest", "strange", "doubts"),
    [
        (None, [0.125, 0.125, 0.125], [1.125, 0.875, 0.75], (NOT_TOLD,)),  # a finds b; b finds a and c; c finds b
        # a and b are of one visit: they find c, and c finds b
        ([0, 2, 24], [0.25, 0.125, 0.125], [1.25, 1.125, 0.75], (NOT_TOLD,)),
        # one visit is all there is: as without times
        ([0, 2, 4], [0.125, 0.125, 0.125], [1.125, 0.875, 0.75], (NOT_TOLD, ONE_DAY)),
    ],
)
def test_a_photograph_is_looked_for_without_its_visit_and_then_without_its_place(
    hours: list[int] | None, nearest: list[float], strange: list[float], doubts: tuple[str, ...], *,
    model: TrainedPlaceModel, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """40 places 200 m apart, each seen by three walks; descriptors are the place's number and a little of the walk."""
    seen: dict[str, np.ndarray] = {}

    def caught(scores: np.ndarray, right: np.ndarray, known: np.ndarray, *_: object, **more: object) -> Calibration:
        seen.update(scores=scores.reshape(-1, 2, 3), right=right.reshape(-1, 2), known=known.reshape(-1, 2))
        return replace(nothing(len(scores) // 2), doubts=more["doubts"])  # type: ignore[arg-type]

    place, walk = np.divmod(np.arange(120), 3)
    photos = table([(200.0 * number, float(other)) for number, other in zip(place, walk)])
    photos = replace(photos, sequences=("a", "b", "c"), sequence=walk.astype(np.int32))
    descriptors = np.zeros((120, model.net.feature_dim), np.float32)
    descriptors[:, 0] = place + 0.125 * walk
    if hours is not None:
        captured = np.datetime64("2024-01-01T08:00", "ms") + np.array(hours)[walk] * np.timedelta64(1, "h")
        photos = replace(photos, captured=captured)
    whole = Described(np.arange(120), descriptors, [], 0.0, 0.0)
    add(model, photos, tmp_path / "index", describe=lambda *_: [whole])
    monkeypatch.setattr("wayfare.places.leave_one_out.fit", caught)
    assert calibrate(Index(tmp_path / "index"), "not told").doubts == doubts
    assert seen["known"].tolist() == seen["right"].tolist() == [[True, False]] * 120
    assert seen["scores"][:3, 0, 0].tolist() == nearest  # of the first place
    assert seen["scores"][:3, 1, 0].tolist() == strange  # the next place; without times from 0 to 1.125, ...


def test_strangers_are_of_other_cities_too(
    model: TrainedPlaceModel, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second photograph is looked for without its whole city."""
    seen: list[np.ndarray] = []

    def caught(scores: np.ndarray, *_: object, **__: object) -> Calibration:
        seen.append(scores.reshape(-1, 2, 3))
        return nothing(len(scores) // 2)

    place, city = np.arange(120) // 2 % 30, np.arange(120) // 60
    photos = table([(200.0 * number, 0.0) for number in place], group=city.tolist())
    descriptors = np.zeros((120, model.net.feature_dim), np.float32)
    descriptors[:, 0] = place + 100 * city
    whole = Described(np.arange(120), descriptors, [], 0.0, 0.0)
    add(model, photos, tmp_path / "index", describe=lambda *_: [whole])
    monkeypatch.setattr("wayfare.places.leave_one_out.fit", caught)
    calibrate(Index(tmp_path / "index"), "not told")
    assert seen[0][:4, 1, 0].tolist() == [1, 100, 1, 99]  # the next place, the other city, and so on


def test_photographs_that_trained_the_model_are_said_to(
    model: TrainedPlaceModel, run: Path, street: Path, whole: Path, tmp_path: Path
) -> None:
    """24 of the 30 places were trained on; the other 6 are asked for, unless they are too few."""
    assert len(trained_photos(model, run)) == 96
    found = Index(whole).facts.calibration
    assert found is not None
    (doubt,) = found.doubts
    assert doubt == "96 of 120 photographs of the index show places that the model was trained on"
    assert in_words(found, "")[-1] == f"Confidence may be too high: {doubt}."
    gone = calibrate(Index(whole), "the photos are gone")
    assert gone.doubts == (
        "whether the model was trained on photographs of the index is not known (the photos are gone)",
    )
    lost = Calibrator(model, tmp_path)(Index(whole))  # a run without its split
    assert "partition.safetensors" in lost.doubts[0] and "is not known" in lost.doubts[0]
    fresh = calibrate(Index(whole), read_photographs(street).take(np.arange(8)))
    assert fresh.doubts == () and fresh.queries == 112


def test_photographs_without_sequences_are_doubted(model: TrainedPlaceModel, street: Path, tmp_path: Path) -> None:
    photos = read_photographs(street)
    add(model, replace(photos, sequence=None), tmp_path / "index")
    found = calibrate(Index(tmp_path / "index"), photos.take(np.arange(4)))
    assert found.doubts == (
        "no photograph has a time or a sequence, so photographs that were taken a moment apart count as two",
    )


def test_too_little_says_so(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wayfare.places.leave_one_out._FEWEST", 121)
    with pytest.raises(DataError, match=r"120 of 120 photographs show a place that another sequence shows too: at l"):
        calibrate(Index(whole), "")


def test_all_wrong_says_so(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wayfare.places.leave_one_out._FEWEST_RIGHT", 200)
    with pytest.raises(DataError, match=r"of 240 answers \d+ were right: too few"):
        calibrate(Index(whole), "")


def test_one_walk_is_too_little(model: TrainedPlaceModel, street: Path, tmp_path: Path) -> None:
    photos = read_photographs(street)
    assert photos.sequence is not None
    add(model, photos.take(photos.sequence == 0), tmp_path / "index")
    with pytest.raises(DataError, match="30 photographs are too few"):
        calibrate(Index(tmp_path / "index"), "")


@pytest.mark.parametrize("settings", [{"strangers": 0.0}, {"precision": 1.0}, {"strangers": math.nan}])
def test_shares_are_shares(model: TrainedPlaceModel, run: Path, settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="expected a share between 0 and 1"):
        Calibrator(model, run, **settings)


def test_an_index_is_learnt_again_when_it_or_the_settings_change(
    model: TrainedPlaceModel, run: Path, street: Path, mine: Path
) -> None:
    photos = read_photographs(street)
    before = Index(mine).facts
    assert before.calibration is not None
    assert Calibrator(model, run).is_done(before.calibration) and not Calibrator(model, run).is_done(None)
    again = add(model, photos, mine, Calibrator(model, run, strangers=0.6)).facts
    assert again.calibration is not None and again.calibration.strangers == 0.6
    # what is not given stays
    kept = add(model, photos, mine, Calibrator(model, run, precision=0.7)).facts
    assert kept.calibration is not None
    assert (kept.calibration.strangers, kept.calibration.wanted) == (0.6, 0.7)
