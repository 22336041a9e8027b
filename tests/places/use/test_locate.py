"""Places out of matches, positions and verdicts: by hand, and on the street."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from wayfare.core.errors import ConfigError, DataError
from wayfare.places.calibration import Calibration
from wayfare.places.data.place_photos import PlacePhotos
from wayfare.places.index import Index
from wayfare.places.indexing import add
from wayfare.places.leave_one_out import Calibrator
from wayfare.places.locate import Answer, as_table, curve, grouped, locate, scores
from wayfare.places.positions import read_photographs, rows_of
from wayfare.places.trained_model import Described, TrainedPlaceModel

Made = Callable[..., Index]
Table = Callable[..., PlacePhotos]
SURE = Calibration(
    (0.0, 0.0, 0.0),
    math.log(3),
    centre=(0, 0, 0),
    scale=(1, 1, 1),
    threshold=0.5,
    precision=1.0,
    recall=1.0,
    wanted=0.9,
    strangers=0.2,
    queries=99,
    figures={},
)  # always 0.75


def asked(index: Index, monkeypatch: pytest.MonkeyPatch, k: int = 5, **more: object) -> Answer:
    """The answer to a photo whose descriptor is the origin."""

    def origin(model: TrainedPlaceModel, files: Sequence[Path]) -> list[Described]:
        return [Described(np.arange(1), np.zeros((1, index.facts.dimension), np.float32), [], 0.0, 0.0)]

    monkeypatch.setattr("wayfare.places.locate.describe", origin)
    (answer,) = locate(index, [Path("photo.jpg")], k, **more).answers  # type: ignore[arg-type]
    return answer


def rows_in(answer: Answer) -> list[list[int]]:
    return [[match.row for match in place.matches] for place in answer.places]


def test_matches_become_places(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the nearest outwards; one that is within the radius of two places belongs to the first."""
    index = made(
        [(0, 0), (100, 0), (20, 0), (115, 0), (44, 0), (-26, 0)],
        [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
    )
    answer = asked(index, monkeypatch)
    assert rows_in(answer) == [[0, 2], [1, 3], [4], [5]]  # 44 m is near photo 2, but not near the first match
    assert [place.first.metres for place in answer.places] == [0, 100, 44, 26]
    assert [match.metres for match in answer.places[1].matches] == [100, 115]
    assert [round(place.first.distance, 6) for place in answer.places] == [0.1, 0.2, 0.5, 0.6]
    assert rows_in(asked(index, monkeypatch, k=2)) == [[0, 2], [1, 3]]
    assert rows_in(asked(index, monkeypatch, k=1)) == [[0, 2]]


def test_cities_are_places_of_their_own(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = asked(made([(0, 0), (0, 0), (1, 0)], [0.1, 0.2, 0.3], group=[0, 1, 0]), monkeypatch)
    assert rows_in(answer) == [[0, 2], [1]]
    assert math.isinf(answer.places[1].first.metres)
    assert [place.first.spot.city for place in answer.places] == ["city0", "city1"]
    assert as_table(answer)["places"][1]["metres"] is None


def test_the_position_by_hand(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another place is at 0.5: the three weigh 0.4, 0.1 and nothing, as the last is further than that place."""
    answer = asked(made([(0, 0), (10, 5), (300, 0), (0, 20)], [0.1, 0.4, 0.5, 0.6]), monkeypatch)
    assert (answer.position.easting, answer.position.northing) == (
        pytest.approx(2, abs=1e-6),
        pytest.approx(1, abs=1e-6),
    )
    assert answer.agreeing == 2
    # 0.8 at (-2, -1) and 0.2 at (8, 4): sqrt(0.8 * 5 + 0.2 * 80)
    assert answer.spread == pytest.approx(math.sqrt(20), abs=1e-5)
    assert answer.scores == {
        "nearest": pytest.approx(0.1), "ratio": pytest.approx(0.2), "agreement": pytest.approx(2 / 3),
    }  # fmt: skip


def test_the_position_where_nothing_is_nearer(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    tied = asked(made([(0, 0), (300, 0), (4, 0)], [0.5, 0.5, 0.5]), monkeypatch)
    assert (tied.position.easting, tied.agreeing, tied.scores["ratio"]) == (2, 2, 1.0)


def test_the_position_where_all_agree(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other place: the furthest match stands for it. A single photograph is where it is."""
    answer = asked(made([(0, 0), (6, 0), (9, 9)], [0.0, 0.5, 1.0]), monkeypatch)
    assert (answer.position.easting, answer.position.northing, answer.agreeing) == (2, 0, 2)


def test_an_index_of_one(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = asked(made([(7, 8)], [0.5]), monkeypatch)
    assert (answer.position.easting, answer.position.northing, answer.spread, answer.agreeing) == (7, 8, 0, 1)
    assert len(answer.places) == 1


def test_places_are_looked_for_far_down_the_list(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """300 photographs of one place are nearer than the first of the next."""
    positions = [(row % 20, 0) for row in range(300)] + [(1000, 0), (2000, 0)]
    index = made(positions, np.linspace(0.1, 1, 302).tolist())
    answer = asked(index, monkeypatch, k=3)
    assert [len(place.matches) for place in answer.places] == [300, 1, 1]
    assert answer.agreeing == 19  # the position is that of the 20 nearest, whatever k is
    assert asked(index, monkeypatch, k=1).position.easting == answer.position.easting


def test_grouped_stops_at_what_is_asked_for(table: Table) -> None:
    photos = table([(0, 0), (100, 0), (200, 0), (1, 0)])
    rows = rows_of(photos, photos.groups)
    found = grouped(np.array([3, 1, 0, 2]), rows, 25.0, 2)
    assert [members.tolist() for members in found] == [[0, 2], [1]]
    assert grouped(np.array([], int), rows, 25.0, 2) == []


# ---- Verdicts


def judged(index: Index, calibration: Calibration | None) -> Index:
    index.facts = replace(index.facts, calibration=calibration)
    return index


def test_unknown_is_below_the_threshold(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    index = judged(made([(0, 0), (100, 0)], [0.1, 0.2]), SURE)
    answer = asked(index, monkeypatch)
    assert (answer.confidence, answer.unknown) == (pytest.approx(0.75), False)
    assert asked(index, monkeypatch, threshold=0.76).unknown is True
    assert asked(index, monkeypatch, threshold=0.74).unknown is False
    assert asked(judged(index, replace(SURE, threshold=0.9)), monkeypatch).unknown is True


def test_without_a_threshold_nothing_is_judged(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    index = judged(made([(0, 0), (100, 0)], [0.1, 0.2]), replace(SURE, threshold=None))
    answer = asked(index, monkeypatch)
    assert (answer.confidence, answer.unknown) == (pytest.approx(0.75), None)
    assert asked(index, monkeypatch, threshold=0.5).unknown is False


def test_no_confidence_is_made_up(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    index = made([(0, 0), (100, 0)], [0.1, 0.2])
    answer = asked(index, monkeypatch)
    assert (answer.confidence, answer.unknown) == (None, None)
    with pytest.raises(ConfigError, match=r"no confidence \(it has not been learnt\)"):
        locate(index, [], threshold=0.5)
    with pytest.raises(ConfigError, match="k = 0"):
        locate(index, [], k=0)


# ---- On the street: photos of half of it are in the index


@pytest.fixture(scope="module")
def half(model: TrainedPlaceModel, run: Path, street: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    photos = read_photographs(street, database=True)
    folder = tmp_path_factory.mktemp("half") / "index"
    add(model, photos.take(photos.northing < np.median(photos.northing)), folder, Calibrator(model, run))
    return Index(folder)


def queries(street: Path) -> PlacePhotos:
    photos = read_photographs(street)
    assert photos.query is not None
    return photos.take(photos.query)


def test_known_places_are_found_and_others_are_not(half: Index, street: Path) -> None:
    photos = queries(street)
    located = locate(half, photos.paths())
    found = curve(half, located.answers, photos)
    assert (found.known.sum(), len(found.known)) == (30, 60)
    assert located.threshold is not None
    there, absent = found.refused(located.threshold)
    assert there < 0.3 < 0.7 < absent
    assert found.area > 0.8
    right = [answer for answer, is_right in zip(located.answers, found.right) if is_right]
    by_name = dict(zip((path.name for path in photos.paths()), photos.northing))
    errors = [abs(answer.position.northing - by_name[answer.photo.name]) for answer in right]
    assert np.median(errors) < 5


def test_scores_of_descriptors_are_the_same(half: Index, street: Path) -> None:
    files = queries(street).paths()[:3]
    answers = locate(half, files).answers
    descriptors = half.model.task.describe(half.model.net, _images(files))
    values = scores(half, descriptors)
    np.testing.assert_allclose(values, [list(answer.scores.values()) for answer in answers], atol=1e-5)
    calibration = half.facts.calibration
    assert calibration is not None
    np.testing.assert_allclose(calibration.confidence(values), [a.confidence for a in answers], atol=1e-4)
    assert scores(half, descriptors[:0]).shape == (0, 3)


def _images(files: Sequence[Path]) -> np.ndarray:
    from wayfare.io.images import decode

    return np.stack([decode(file, size=(32, 32)) for file in files])


def test_the_curve_goes_by_distance_where_there_is_no_confidence(half: Index, street: Path) -> None:
    photos = queries(street)
    answers = [replace(answer, confidence=None) for answer in locate(half, photos.paths()).answers]
    found = curve(half, answers, photos)
    with pytest.raises(DataError, match="true position"):
        curve(half, answers, photos.take(np.arange(3)))
    assert len(curve(half, [], photos).thresholds) == 0
    assert (found.confidence == [-answer.scores["nearest"] for answer in answers]).all()


def test_files_folders_and_what_is_broken(half: Index, street: Path, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    shutil.copy(street / "p000-1.png", tmp_path / "a.png")
    shutil.copy(street / "p001-1.png", tmp_path / "inner" / "b.png")
    (tmp_path / "inner" / "c.jpg").write_bytes(b"not a picture")
    (tmp_path / "notes.txt").write_text("not a picture, and not asked for")
    located = locate(half, [tmp_path / "a.png", tmp_path, tmp_path / "gone.jpg"], 2)
    assert [answer.photo.name for answer in located.answers] == ["a.png", "b.png"]  # each once
    assert [(Path(item.file).name, item.reason) for item in located.skipped] == [
        ("c.jpg", "not a JPEG, PNG or WebP picture"),
        ("gone.jpg", "no such file"),
    ]
    assert set(located.seconds) == {"decode", "embed", "search"} and min(located.seconds.values()) > 0


def test_answers_are_json(half: Index, street: Path) -> None:
    (answer,) = locate(half, [street / "p003-1.png"], 2).answers
    table = json.loads(json.dumps(as_table(answer), allow_nan=False))
    assert table["photo"].endswith("p003-1.png") and table["unknown"] is False
    assert [place["metres"] for place in table["places"]] == [0.0, pytest.approx(answer.places[1].first.metres)]
    assert set(table["position"]) == {
        "latitude", "longitude", "easting", "northing", "city", "zone", "photos", "spread_m",
    }  # fmt: skip
    assert Path(table["places"][0]["matches"][0]["file"]).name.startswith("p003-")


def test_finding_writes_nothing(half: Index, street: Path) -> None:
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in half.folder.iterdir()}
    locate(Index(half.folder), [street / "p000-1.png"])
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in half.folder.iterdir()} == before
    with pytest.raises(ValueError, match="read-only"):
        half.descriptors[0, 0] = 1
