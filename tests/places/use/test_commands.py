"""wayfare index and wayfare locate, as they are typed, and the page."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from wayfare.cli import main
from wayfare.core.bundle import Bundle
from wayfare.pages.dataset_parts import Picture
from wayfare.places.index import Index
from wayfare.places.page import LocatePage, PhotoAnswer, PlaceShown, PlaceSketch, page_of
from wayfare.places.page_data import position_text
from wayfare.places.positions import Spot


@pytest.fixture(scope="module")
def index(run: Path, street: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "index"
    assert main(["index", str(run), "--photos", str(street), "--out", str(folder), "--database"]) == 0
    return folder


def answered(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == status
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_an_index_is_made_and_added_to(
    run: Path, street: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = Path(shutil.copytree(street, tmp_path / "photos"))
    (photos / "p004-1.png").write_bytes(b"broken")
    (photos / "extra.png").write_bytes(b"not in the table")
    first = answered(capsys, "index", run, "--photos", photos, "--out", tmp_path / "index", "--database")
    assert (first["photos"], first["new"], first["kept"], first["run"]) == (60, 60, 0, "street")
    assert 0 < first["threshold"] < 1 and "trained on" in first["doubts"][0]
    assert (first["strangers"], first["wanted"]) == (0.2, 0.9)
    then = answered(capsys, "index", run, "--photos", photos, "--out", tmp_path / "index")
    assert (then["photos"], then["new"], then["kept"]) == (119, 59, 60)
    reasons = {Path(item["file"]).name: item["reason"] for item in then["skipped_files"]}
    assert reasons["p004-1.png"] == "not a JPEG, PNG or WebP picture"
    assert "not in photos.csv" in reasons["extra.png"]
    assert then["skipped"] == 2


def test_the_index_is_in_the_run_by_default(
    run: Path, street: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    assert main(["index", str(copy), "--photos", str(street)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "120 photographs (120 new, 0 kept, 0 replaced, 0 skipped)" in text
    assert "Answers below a confidence of 0." in text and "are unknown" in text
    assert "Confidence may be too high: 96 of 120 photographs of the index show places" in text
    assert (copy / "index" / "index.json").is_file()
    from wayfare.pages.record import find_runs

    assert find_runs(tmp_path) == [copy]  # the index is not taken for a run


def test_a_photo_is_found(index: Path, street: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answered(capsys, "locate", street / "p005-1.png", "--index", index, "--k", 2)
    (answer,) = found["answers"]
    assert Path(answer["places"][0]["matches"][0]["file"]).name.startswith("p005-")
    assert answer["unknown"] is False and len(answer["places"]) == 2
    assert set(found["seconds"]) == {"decode", "embed", "search"}
    strict = answered(capsys, "locate", street / "p005-1.png", "--index", index, "--threshold", 1)
    assert strict["answers"][0]["unknown"] is True


def test_it_is_told_in_words(index: Path, street: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["locate", str(street / "p005-1.png"), str(street / "p006-1.png"), "--index", str(index)]) == 0
    text = capsys.readouterr().out
    assert "among 60 photographs" in text and text.count("found (") == 2 and "p005-" in text
    assert re.search(r"decode .* s, embed .* s, search .* s for each photo", text)


def test_broken_photos_are_named(index: Path, street: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.jpg").write_bytes(b"")
    one = answered(capsys, "locate", tmp_path, street / "p005-1.png", "--index", index)
    assert one["skipped"] == [{"file": str(tmp_path / "bad.jpg"), "reason": "empty file"}]
    assert len(one["answers"]) == 1
    capsys.readouterr()
    assert main(["locate", str(tmp_path / "bad.jpg"), "--index", str(index)]) == 1
    said = capsys.readouterr()
    assert "bad.jpg: empty file" in said.err
    none = answered(capsys, "locate", tmp_path / "bad.jpg", "--index", index, status=1)
    assert none["answers"] == []


def test_wrong_use(index: Path, street: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["locate", str(street / "p005-1.png"), "--index", str(tmp_path)]) == 1
    assert "there is no index here" in capsys.readouterr().err
    assert main(["index", str(tmp_path), "--photos", str(street)]) == 1
    assert "not a run" in capsys.readouterr().err
    assert main(["locate", str(street / "p005-1.png"), "--index", str(index), "--k", "0"]) == 2


def test_interrupted_work_is_said_to_be(
    whole: Path, street: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = replace(Index(whole).facts, waiting=7, calibration=None, uncalibrated="too little")
    monkeypatch.setattr("wayfare.places.index.read_facts", lambda folder: facts)
    assert main(["locate", str(street / "p005-1.png"), "--index", str(whole)]) == 0
    said = capsys.readouterr()
    assert "7 photos are missing from this index" in said.err
    assert "not judged" in said.out


# ---- The page


class _Seen(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def count(self, tag: str, look: str = "") -> int:
        return sum(name == tag and look in ["", *(attrs.get("class") or "").split()] for name, attrs in self.tags)


def test_the_page(index: Path, street: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.jpg").write_bytes(b"")
    photos = [street / "p005-1.png", street / "p006-1.png", tmp_path / "bad.jpg"]
    found = answered(capsys, "locate", *photos, "--index", index, "--k", 3, "--out", tmp_path / "page.html")
    assert found["page"] == str(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    page = _Seen(text)
    assert page.count("img") == 2 * (1 + 3) and page.count("svg", "sketch") == 2
    assert page.count("span", "done") == 2 and page.count("span", "open") == 0
    words = " ".join(page.text)
    assert "bad.jpg" in words and "empty file" in words and "p005-1.png" in words
    policy = next(attrs["content"] for name, attrs in page.tags if attrs.get("http-equiv"))
    assert page.count("script") == 0 and "script-src 'none'" in (policy or "")
    sources = [attrs["src"] or "" for name, attrs in page.tags if name == "img"]
    assert all(source.startswith("data:image/jpeg;base64,") for source in sources)
    assert len(text) < 300_000


def test_many_photos_are_on_several_pages(
    index: Path, street: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every page counts all photos, and names the others; what is beyond the last page is said."""
    monkeypatch.setattr("wayfare.places.page_data._ON_A_PAGE", 50)
    monkeypatch.setattr("wayfare.places.page_data._MOST_PAGES", 2)
    photos = sorted(street.glob("*.png"))
    assert len(photos) == 120
    out = tmp_path / "page.html"
    answered(capsys, "locate", *photos, "--index", index, "--k", 1, "--out", out, "--threshold", 0)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["page-2.html", "page.html"]
    for number, file in enumerate((out, tmp_path / "page-2.html"), start=1):
        page = _Seen(file.read_text())
        assert page.count("section", "photo-card") == 50
        words = " ".join(" ".join(page.text).split())
        assert "photos 120" in words and "found 120" in words and "unknown 0" in words
        assert "The last 20 are not shown." in words
        links = [attrs.get("href") for name, attrs in page.tags if name == "a" and "page" in (attrs.get("href") or "")]
        assert links == [["page-2.html"], ["page.html"]][number - 1]


HOSTILE = "<img src=x onerror=alert(1)>\"'&"


def a_page(**changes: object) -> LocatePage:
    picture = Picture(b"\xff\xd8", 4, 3, HOSTILE)
    places = [
        PlaceShown(picture, HOSTILE, 0.0, distance=0.25, photos=3, where=HOSTILE),
        PlaceShown(None, HOSTILE, float("inf"), distance=0.5, photos=1, where=HOSTILE),
    ]
    sketch = PlaceSketch([(1, [(3.0, 4.0), (5.0, 4.0)])], [(0.0, 0.0), (9e9, 0.0)])
    found = PhotoAnswer(
        HOSTILE,
        picture,
        unknown=True,
        confidence=0.125,
        position=HOSTILE,
        link="https://example.org/?a=1&b=2",
        agreeing=2,
        spread=1.5,
        places=places,
        sketch=sketch,
    )
    page = LocatePage(
        HOSTILE,
        60,
        model=HOSTILE,
        radius=25.0,
        threshold=0.5,
        learnt=[HOSTILE],
        found=[found],
        photos_asked=1,
        judged=(0, 1),
        skipped=[(HOSTILE, HOSTILE)],
        seconds={"decode": 0.25},
    )
    return replace(page, **changes)  # type: ignore[arg-type]


def test_nothing_from_outside_becomes_markup() -> None:
    page = _Seen(page_of(a_page()))
    assert page.count("img") == 2  # the photo, and the one place that has a picture
    assert HOSTILE in "".join(page.text)
    assert not any("onerror" in attrs for _, attrs in page.tags)


def test_unknown_is_marked() -> None:
    page = _Seen(page_of(a_page()))
    words = " ".join(page.text)
    assert page.count("section", "is-unknown") == 1 and page.count("span", "open") == 1
    assert "confidence 0.12, threshold 0.50" in words and "If it were there:" in words
    assert "in another city from 1" not in words and "in another city" in words
    assert "1 place is too far away for this map." in words
    assert "the mean of 2 photographs, with a spread of 1.5 m" in words


def test_no_confidence_is_not_judged() -> None:
    found = replace(a_page().found[0], confidence=None, unknown=None)
    page = _Seen(page_of(a_page(found=[found], threshold=None)))
    assert "not judged" in page.text and page.count("span", "bar") == 0


def test_the_map_is_to_scale() -> None:
    """Both photographs of the place and the position fit; 2 m apart they are 2 / 60 of the height that is used."""
    page = _Seen(page_of(a_page()))
    dots = [attrs for name, attrs in page.tags if name == "circle"]
    assert [dot["class"] for dot in dots] == ["other", "p1", "p1", "p1"]  # what is far outside is left out
    across = float(dots[2]["cx"] or 0) - float(dots[1]["cx"] or 0)
    assert across == pytest.approx(2 * (330 / 2 - 22) / 30, abs=0.11)


@pytest.mark.parametrize(
    ("spot", "words"),
    [
        (Spot(-33.45, -70.6667, 1.0, northing=2.0, city="santiago", zone="19S"), "santiago: 33.45000° S, 70.66670° W"),
        (Spot(59.3, 18.0, 1.0, northing=2.0, city="", zone="34N"), "59.30000° N, 18.00000° E"),
        (
            Spot(float("nan"), float("nan"), 329182.4, northing=6577306.0, city="", zone="34N"),
            "329,182 m E, 6,577,306 m N 34N",
        ),
        (Spot(float("nan"), float("nan"), 1.0, northing=2.0, city="x", zone=""), "x: 1 m E, 2 m N"),
    ],
)
def test_positions_in_words(spot: Spot, words: str) -> None:
    assert position_text(spot) == words


@pytest.mark.parametrize(
    "key", ['[model.backbone]\nname = "cnn"', '[task]\nname = "places"', '[data]\nname = "photos"']
)
def test_a_shared_index_runs_no_code(
    key: str,
    mine: Path,
    street: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The model in an index names its parts; a module beside it must not be imported."""
    (mine / "evil.py").write_text("from pathlib import Path\nPath(__file__).with_name('canary').touch()\n")
    bundle = Bundle.unpack((mine / "model.safetensors").read_bytes())
    recipe = str(bundle.values["recipe"])
    assert key in recipe
    evil = recipe.replace(key, key.rpartition("=")[0] + '= "evil:Evil"')
    (mine / "model.safetensors").write_bytes(Bundle(bundle.tensors, {**bundle.values, "recipe": evil}).pack())
    monkeypatch.chdir(mine)
    assert main(["locate", str(street / "p004-1.png"), "--index", "."]) == 1
    assert "--allow-code evil" in " ".join(capsys.readouterr().err.split())
    assert not (mine / "canary").exists()
