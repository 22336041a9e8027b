"""An index scored with photos whose positions are known: by hand, on the street, and as it is typed."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from wayfare.cli import main
from wayfare.core.errors import DataError
from wayfare.places.calibration import curve_of
from wayfare.places.data.place_photos import PlacePhotos
from wayfare.places.evaluation import IndexEvaluation, coverage_of, evaluate_index
from wayfare.places.evaluation_page import evaluation_page, threshold_rows
from wayfare.places.index import Index
from wayfare.places.indexing import index_run
from wayfare.places.trained_model import Described

Made = Callable[..., Index]
Table = Callable[..., PlacePhotos]


@pytest.fixture(scope="module")
def index(run: Path, street: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scored") / "index"
    index_run(run, street, folder, database=True)
    return folder


@pytest.fixture
def found(made: Made, table: Table, monkeypatch: pytest.MonkeyPatch) -> IndexEvaluation:
    """Twelve photographs, 100 m apart, at distances 0 to 11 from every query; queries at five places."""
    index = made([(100.0 * row, 0.0) for row in range(12)], list(range(12)))
    truth = replace(table([(0, 0), (110, 0), (600, 24), (1100, 26), (9999, 0)]), root=Path("/queries"))
    monkeypatch.setattr("wayfare.places.evaluation.read_photographs", lambda _: truth)
    zeros = Described(np.arange(5), np.zeros((5, index.facts.dimension), np.float32), [], 0.0, 0.0)
    monkeypatch.setattr("wayfare.places.locate.describe", lambda *_: [zeros])
    return evaluate_index(index, Path("/queries"))


def test_recall_and_errors_by_hand(found: IndexEvaluation) -> None:
    """All get photographs 0, 1, 2 ...: places 0, 1 and 6 are in the index and found at 1, 2 and 7; 11 is 26 m off."""
    assert (found.photos, found.known, found.left_out) == (5, 3, 0)
    third = pytest.approx(1 / 3)
    assert [found.metrics[f"R@{n}"] for n in (1, 5, 10)] == [third, pytest.approx(2 / 3), 1]
    assert found.metrics["median_error_m"] == pytest.approx(110)  # 0, 110 and sqrt(600^2 + 24^2)
    assert found.metrics["p90_error_m"] == pytest.approx(math.hypot(600, 24))
    assert found.figures == {} and found.bins == [] and threshold_rows(found) == []
    assert found.doubts == ("there is none: it has not been learnt",)


def test_the_ground_by_hand(made: Made) -> None:
    """A triangle of 300 x 400 m, of which a second city, 30 m on a line, adds nothing but two squares."""
    index = made([(0, 0), (300, 0), (0, 400), (1, 1), (0, 0), (30, 0)], [0.0] * 6, group=[0, 0, 0, 0, 1, 1])
    ground = coverage_of(index)
    assert (ground.photographs, ground.cities) == (6, 2)
    assert ground.area_m2 == pytest.approx(60_000) and ground.kilometres == 0.4
    assert ground.seen_m2 == 5 * 25**2


def test_a_street_is_scored(index: Path, street: Path) -> None:
    found = evaluate_index(Index(index), street)
    assert (found.photos, found.known, found.left_out) == (60, 60, 60)
    assert found.metrics["R@1"] > 0.9 and found.metrics["median_error_m"] < 5
    assert found.figures["auc"] >= 0.5 and sum(each[3] for each in found.bins) == 60
    everything = found.at(0.0)
    assert everything["answered"] == 1 and everything["precision"] == pytest.approx(found.metrics["R@1"])
    nothing = found.at(1.0)
    assert (nothing["precision"], nothing["answered"]) == (None, 0)
    lowest = float(found.curve.thresholds[-1])
    assert found.at(lowest)["answered"] == 1 and found.at(lowest + 1e-9)["answered"] != 1
    table = json.loads(json.dumps(found.as_table(), allow_nan=False))
    assert table["thresholds"][-1]["answered"] == 1 and table["at_threshold"]["threshold"] == found.threshold


def test_too_high_and_too_low_in_words(index: Path, street: Path) -> None:
    found, right = evaluate_index(Index(index), street), np.array([True, True, True, False])
    low = replace(found, curve=curve_of(np.full(4, 0.5), right, right))
    assert low.trust == "0.25 too low on average: its mean is 0.50, and 0.75 of the answers are right"
    assert replace(low, curve=curve_of(np.full(4, 0.5), ~right, right)).trust.startswith("0.25 too high")
    assert f"Confidence is {low.trust}." in evaluation_page(low, Path("a"), Path("b"))
    assert not replace(low, figures={}).trust


def test_an_infinite_error_is_null(found: IndexEvaluation) -> None:
    table = replace(found, metrics={"p90_error_m": math.inf}).as_table()
    assert table["p90_error_m"] is None


def test_it_is_typed(index: Path, street: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos = Path(shutil.copytree(street, tmp_path / "photos"))  # other files: none is in the index
    (photos / "p004-1.png").write_bytes(b"broken")
    page = tmp_path / "page.html"
    assert main(["evaluate", str(index), "--photos", str(photos), "--out", str(page), "--json"]) == 0
    said = capsys.readouterr()
    result = json.loads(said.out)
    assert (result["photos"], result["known"], result["left_out"]) == (119, 119, 0)
    assert [Path(item["file"]).name for item in result["skipped"]] == ["p004-1.png"]
    assert "p004-1.png" in said.err and result["page"] == str(page)
    text = page.read_text()
    assert 'id="calibration-curve"' in text and 'id="threshold-curve"' in text and "(of the index)" in text
    assert main(["evaluate", str(index), "--photos", str(photos)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "60 photographs in 1 city" in text and "119 photos (1 skipped, 0 in the index themselves)" in text
    assert "R@1 " in text and "brier_constant 0." in text and "share answered" in text


def test_nothing_from_outside_becomes_markup(index: Path, street: Path) -> None:
    found = evaluate_index(Index(index), street)
    text = evaluation_page(replace(found, doubts=("<b onclick=x>",)), Path("<i>"), Path("<u>"))
    assert "<b onclick" not in text and "<i>" not in text.partition("<main")[0] and "<u>" not in text


def test_what_cannot_be_scored_says_why(
    index: Path, street: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no photographs in it"):
        evaluate_index(Index(index), tmp_path / "empty")
    (tmp_path / "plain").mkdir()
    for number in range(3):
        Image.new("RGB", (8, 8)).save(tmp_path / "plain" / f"{number}.png")
    assert main(["evaluate", str(index), "--photos", str(tmp_path / "plain")]) == 1
    assert "these photographs have no positions" in capsys.readouterr().err
    copy = Path(shutil.copytree(street, tmp_path / "copy"))
    for file in copy.glob("*.png"):
        file.write_bytes(b"broken")
    with pytest.raises(DataError, match="none of 120 photos can be read; the first: not a JPEG"):
        evaluate_index(Index(index), copy)
    every = tmp_path / "every"
    rows = [line for line in (street / "photos.csv").read_text().splitlines() if ",query," not in line]
    every.mkdir()
    for file in street.glob("*.png"):
        (every / file.name).symlink_to(file)
    (every / "photos.csv").write_text("\n".join(rows) + "\n")
    with pytest.raises(DataError, match="all 60 photos are in the index themselves"):
        evaluate_index(Index(index), every)
