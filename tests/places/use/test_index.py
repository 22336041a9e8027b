"""An index keeps what it was given, adds to it, survives interruptions, and refuses what does not belong to it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from street import write_street

from wayfare.core import disk
from wayfare.core.errors import ConfigError, DataError, StoreError, WayfareError
from wayfare.io.index_folder import checksum
from wayfare.places.cells import Cells, cells_of
from wayfare.places.data.place_photos import PlacePhotos
from wayfare.places.index import Index
from wayfare.places.indexing import Added, add
from wayfare.places.leave_one_out import Calibrator
from wayfare.places.positions import read_photographs
from wayfare.places.trained_model import Described, TrainedPlaceModel, describe, load_model

Table = Callable[..., PlacePhotos]


@pytest.fixture
def photos(street: Path, tmp_path: Path) -> Path:
    """A street of one's own, to be changed."""
    return Path(shutil.copytree(street, tmp_path / "photos"))


def added(model: TrainedPlaceModel, photos: Path, out: Path, **more: object) -> Added:
    return add(model, read_photographs(photos), out, **more)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_what_goes_in_is_there(model: TrainedPlaceModel, street: Path, run: Path, whole: Path) -> None:
    table, index = read_photographs(street), Index(whole)
    assert len(index) == 120
    assert [index.file(row) for row in range(120)] == [path.resolve() for path in table.paths()]
    (expected,) = describe(model, table.paths())
    np.testing.assert_array_equal(index.descriptors, expected.descriptors)
    spot = index.spot(7)
    assert table.latitude is not None
    assert (spot.latitude, spot.easting, spot.zone) == (table.latitude[7], table.easting[7], "34N")
    assert index.facts.calibration == Calibrator(model, run)(index)
    assert (index.facts.dimension, index.facts.size, index.facts.radius) == (16, (32, 32), 25.0)
    assert index.model.digest == model.digest == index.facts.model


def test_without_the_run(model: TrainedPlaceModel, street: Path, mine: Path) -> None:
    """The index alone is enough, wherever it is moved."""
    (found,) = describe(Index(mine.rename(mine.with_name("moved"))).model, sorted(street.glob("*.png"))[:3])
    (expected,) = describe(model, sorted(street.glob("*.png"))[:3])
    assert (found.descriptors == expected.descriptors).all()


def test_only_new_photographs_are_added(model: TrainedPlaceModel, street: Path, mine: Path, tmp_path: Path) -> None:
    out, before = mine, Index(mine)
    again = added(model, street, out)
    assert (again.new, again.kept, again.replaced, again.skipped) == (0, 120, 0, [])
    write_street(tmp_path / "more", range(100, 103), city="elsewhere")
    more = added(model, tmp_path / "more", out)
    assert (more.new, more.kept, more.facts.count) == (12, 0, 132)
    index = Index(out)
    assert [group.city for group in index.groups] == ["", "elsewhere"]
    assert (index.spot(0).city, index.spot(131).city) == ("", "elsewhere")
    assert index.file(131).name == "p102-3.png"
    np.testing.assert_array_equal(index.descriptors[:120], before.descriptors)  # who had it open sees what was
    assert len(before) == 120


def test_changed_photographs_are_replaced(model: TrainedPlaceModel, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "index"
    added(model, photos, out)
    shutil.copy(photos / "p009-0.png", photos / "p001-0.png")  # another picture
    text = (photos / "photos.csv").read_text().splitlines()
    place = text[10].split(",")
    text[10] = ",".join([place[0], "59.4", *place[2:]])  # another position
    (photos / "photos.csv").write_text("\n".join(text) + "\n")
    done = added(model, photos, out)
    assert (done.new, done.kept, done.replaced) == (0, 118, 2)
    index = Index(out)
    assert len(index) == 120
    assert index.file(120).name == "p001-0.png" and index.facts.replaced == (4, 9)
    rows, distances = index.search(np.asarray(index.descriptors[[4, 36]]), 120)
    assert 4 not in rows and 9 not in rows and rows.shape == (2, 120)
    assert 120 in rows[1, :2].tolist() and distances[1, 0] < 1e-6  # it is the picture of place 9 now
    assert added(model, photos, out).kept == 120


def test_broken_photographs_are_named(model: TrainedPlaceModel, photos: Path, tmp_path: Path) -> None:
    data = (photos / "p002-1.png").read_bytes()
    (photos / "p002-1.png").write_bytes(data[: len(data) // 2])
    (photos / "p003-1.png").write_bytes(b"")
    done = added(model, photos, tmp_path / "index")
    assert [Path(item.file).name for item in done.skipped] == ["p002-1.png", "p003-1.png"]
    assert done.skipped[1].reason == "empty file"
    assert (done.new, len(Index(tmp_path / "index")), done.facts.waiting) == (118, 118, 0)
    (photos / "p002-1.png").write_bytes(data)  # mended
    assert added(model, photos, tmp_path / "index").new == 1


def test_no_photograph_is_no_index(model: TrainedPlaceModel, photos: Path, tmp_path: Path) -> None:
    for file in photos.glob("*.png"):
        file.write_bytes(b"no picture")
    with pytest.raises(DataError, match="none of 120 photographs can be read; the first: not a JPEG"):
        added(model, photos, tmp_path / "index")
    with pytest.raises(DataError, match="no index here"):
        Index(tmp_path / "index")


# ---- Searching


def test_a_search_is_exact(model: TrainedPlaceModel, table: Table, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    everything = rng.integers(-2, 3, (300, 16)).astype(np.float32)  # many equal distances
    whole = Described(np.arange(300), everything, [], 0.0, 0.0)
    add(model, table([(row, 0.0) for row in range(300)]), tmp_path / "index", describe=lambda *_: [whole])
    queries = rng.integers(-2, 3, (25, 16)).astype(np.float32)
    rows, distances = Index(tmp_path / "index").search(queries, 10)
    for number, query in enumerate(queries):
        squared = ((everything.astype(float) - query) ** 2).sum(1)
        order = np.lexsort((np.arange(300), squared))[:10]
        np.testing.assert_allclose(distances[number], np.sqrt(squared[order]))
        # faiss proposes 26; of more that are equally near at the end of the list it is free to choose
        sure = squared[order] < np.sort(squared)[25]
        assert (rows[number][sure] == order[sure]).all()
    assert Index(tmp_path / "index").search(queries, 1000)[0].shape == (25, 300)


def test_a_network_that_diverged_is_not_searched(whole: Path) -> None:
    with pytest.raises(WayfareError, match="not finite"):
        Index(whole).search(np.full((1, 16), np.nan, np.float32), 3)


# ---- Large indexes


@pytest.fixture
def clusters(model: TrainedPlaceModel, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """2,000 descriptors in 40 clusters; an index of the first 1,900 of them is large enough for cells."""
    monkeypatch.setattr("wayfare.places.indexing.EXACT", 1000)
    monkeypatch.setattr("wayfare.places.cells._PROBES", 3)
    rng = np.random.default_rng(3)
    everything = (rng.normal(0, 10, (40, 16))[np.arange(2000) % 40] + rng.normal(0, 1, (2000, 16))).astype(np.float32)
    grow(model, table, tmp_path / "index", everything[:1900])
    return everything


def grow(model: TrainedPlaceModel, table: Table, out: Path, descriptors: np.ndarray) -> Added:
    def parts(_: TrainedPlaceModel, files: Sequence[Path]) -> list[Described]:
        rows = [int(file.stem.partition("-")[2]) for file in files]
        return [Described(np.arange(len(rows)), descriptors[rows], [], 0.0, 0.0)]

    return add(model, table([(float(row), 0.0) for row in range(len(descriptors))]), out, describe=parts)


def exactly(everything: np.ndarray, queries: np.ndarray, count: int) -> np.ndarray:
    squared = ((everything[None].astype(float) - queries[:, None]) ** 2).sum(2)
    return np.argsort(squared, axis=1, kind="stable")[:, :count]


def test_a_large_index_is_searched_in_cells(clusters: np.ndarray, tmp_path: Path) -> None:
    index = Index(tmp_path / "index")
    assert index.facts.cells == 43 and index.cells is not None  # the square root of 1,900
    assert index.cells.sizes.sum() == 1900
    queries = clusters[1900:]
    candidates = index.cells.candidates(queries[0], 5)
    assert len(candidates) < 500  # three cells of 43
    rows, distances = index.search(queries, 5)
    wanted = exactly(clusters[:1900], queries, 5)
    assert (rows == wanted).mean() > 0.95
    np.testing.assert_allclose(distances[0], np.linalg.norm(clusters[rows[0]] - queries[0], axis=1), rtol=1e-6)
    assert sorted(index.search(queries[:1], 5000)[0][0].tolist()) == list(range(1900))  # all, if that many are wanted


def test_adding_to_a_large_index_builds_nothing_again(
    clusters: np.ndarray, model: TrainedPlaceModel, table: Table, tmp_path: Path
) -> None:
    before = contents(tmp_path / "index")
    done = grow(model, table, tmp_path / "index", clusters)
    after = contents(tmp_path / "index")
    assert (done.new, done.kept, done.facts.cells) == (100, 1900, 43)
    assert after["centres.bin"] == before["centres.bin"]
    assert after["cells.bin"][: 4 * 1900] == before["cells.bin"] and len(after["cells.bin"]) == 4 * 2000
    rows, distances = Index(tmp_path / "index").search(clusters[1900:], 1)
    assert rows[:, 0].tolist() == list(range(1900, 2000)) and not distances.any()


def test_damaged_cells_are_refused(clusters: np.ndarray, tmp_path: Path) -> None:
    cells = (tmp_path / "index" / "cells.bin").read_bytes()
    (tmp_path / "index" / "cells.bin").write_bytes(b"\xff\xff\xff\x7f" + cells[4:])
    with pytest.raises(StoreError, match="cells run beyond 43"):
        Index(tmp_path / "index").search(clusters[:1], 1)
    (tmp_path / "index" / "cells.bin").write_bytes(cells[4:])
    with pytest.raises(StoreError, match=r"cells.bin is damaged"):
        Index(tmp_path / "index").search(clusters[:1], 1)


def test_a_cell_is_that_of_the_nearest_centre() -> None:
    centres = np.array([[0, 0], [10, 0], [0, 10]], np.float32)
    cells = cells_of(np.array([[1, 1], [6, 0], [0, 5.5], [4, 0]], np.float32), centres)
    assert cells.tolist() == [0, 1, 2, 0]
    found = Cells(centres, cells, np.array([3]))
    assert found.sizes.tolist() == [1, 1, 1]
    assert found.candidates(np.array([9, 0], np.float32), 1).tolist() == [0, 1, 2]


# ---- What does not belong


def test_another_models_index_is_refused(model: TrainedPlaceModel, run: Path, street: Path, mine: Path) -> None:
    other = load_model(run)
    with torch.no_grad():
        next(other.net.parameters())[0] += 0.5
    before = contents(mine)
    with pytest.raises(ConfigError) as caught:
        added(replace(other, name="other"), street, mine)
    assert model.digest[:12] in str(caught.value) and other.digest[:12] in str(caught.value)
    assert "(street)" in str(caught.value) and "(other)" in str(caught.value)
    assert contents(mine) == before


def test_an_exchanged_model_is_refused(model: TrainedPlaceModel, run: Path, mine: Path) -> None:
    other = load_model(run)
    with torch.no_grad():
        next(other.net.parameters())[0] += 0.5
    (mine / "model.safetensors").write_bytes(other.pack())
    with pytest.raises(StoreError, match=f"{other.digest[:12]}.*made by {model.digest[:12]}"):
        _ = Index(mine).model


def test_a_folder_of_other_things_is_left_alone(model: TrainedPlaceModel, street: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="letter"):
        added(model, street, tmp_path / "mine")
    with pytest.raises(ConfigError, match="not a folder"):
        added(model, street, tmp_path / "mine" / "letter.txt")
    assert contents(tmp_path / "mine") == {"letter.txt": b"dear"}


def test_two_cannot_add_at_once(model: TrainedPlaceModel, street: Path, mine: Path) -> None:
    with (mine / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another process"):
            added(model, street, mine)
        assert len(Index(mine)) == 120  # reading goes on


# ---- Damage


def changed(text: str, **facts: object) -> str:
    content = json.loads(text)
    content["facts"].update(facts)
    return json.dumps(content)


@pytest.mark.parametrize(
    "harm",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "{}",
        lambda text: text.replace('"count": 120', '"count": 119'),
        lambda text: changed(text, radius=1e9),
        lambda text: "\x00" + text,
    ],
)
def test_damaged_facts_are_refused(
    model: TrainedPlaceModel, street: Path, mine: Path, harm: Callable[[str], str]
) -> None:
    text = (mine / "index.json").read_text()
    assert harm(text) != text
    (mine / "index.json").write_text(harm(text))
    with pytest.raises(StoreError, match=r"index\.json is damaged"):
        Index(mine)
    with pytest.raises(StoreError, match=r"index\.json is damaged"):
        added(model, street, mine)


def test_a_later_format_is_refused(mine: Path) -> None:
    (mine / "index.json").write_text(changed((mine / "index.json").read_text(), format=3))
    with pytest.raises(StoreError, match="format 3; this version of Wayfare reads 2"):
        Index(mine)


def test_an_index_of_the_first_format_is_read(model: TrainedPlaceModel, run: Path, street: Path, mine: Path) -> None:
    """Its confidence was learnt in another way: it has none until the next `wayfare index`."""
    content = json.loads((mine / "index.json").read_text())
    learnt = {"weights": [-1, -1, 1], "bias": 0, "threshold": 0.5, "source": "photographs of the run"}
    facts = content["facts"] | {"format": 1, "calibration": learnt}
    (mine / "index.json").write_text(json.dumps({"facts": facts, "checksum": checksum(facts)}))
    index = Index(mine)
    assert len(index) == 120 and index.facts.calibration is None
    assert "an earlier version of Wayfare made the index" in index.facts.uncalibrated
    done = added(model, street, mine, learn=Calibrator(model, run))
    assert (done.new, done.kept) == (0, 120)
    again = Index(mine).facts
    assert again.calibration is not None and (again.format, again.uncalibrated) == (2, "")


@pytest.mark.parametrize("name", ["descriptors.bin", "photos.bin", "names.bin"])
def test_truncated_files_are_refused(mine: Path, name: str) -> None:
    size = (mine / name).stat().st_size
    os.truncate(mine / name, size - 1)
    with pytest.raises(StoreError, match=rf"{name} is damaged: {size - 1:,} bytes, but index.json says {size:,}"):
        Index(mine)
    (mine / name).unlink()
    with pytest.raises(StoreError, match=name):
        Index(mine)


# ---- Interruption


def stopping(after: int) -> Callable[[TrainedPlaceModel, Sequence[Path]], Iterator[Described]]:
    def parts(model: TrainedPlaceModel, files: Sequence[Path]) -> Iterator[Described]:
        for number, part in enumerate(describe(model, files)):
            if number == after:
                raise KeyboardInterrupt
            yield part

    return parts


def test_interrupted_work_goes_on(
    model: TrainedPlaceModel, street: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wayfare.places.trained_model._CHUNK", 50)
    out = tmp_path / "index"
    with pytest.raises(KeyboardInterrupt):
        added(model, street, out, describe=stopping(0))
    assert not (out / "index.json").exists()  # before the first part there is no index
    with pytest.raises(KeyboardInterrupt):
        added(model, street, out, describe=stopping(2))
    half = Index(out)
    assert (len(half), half.facts.waiting) == (100, 20)
    assert half.search(np.asarray(half.descriptors[:1]), 3)[0][0, 0] == 0
    done = added(model, street, out)
    assert (done.new, done.kept, done.facts.waiting) == (20, 100, 0)
    once = add(model, read_photographs(street), tmp_path / "once")
    assert once.facts == replace(done.facts)
    assert {**contents(out), "lock": b""} == {**contents(tmp_path / "once"), "lock": b""}


def test_a_crash_between_the_files_costs_nothing(
    model: TrainedPlaceModel, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descriptors are written and the facts are not: as if nothing had been; the next attempt clears it away."""
    out = mine
    write_street(tmp_path / "more", range(100, 103))
    facts = (out / "index.json").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(disk, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            added(model, tmp_path / "more", out)
    assert (out / "index.json").read_bytes() == facts
    assert (out / "descriptors.bin").stat().st_size == 132 * 16 * 4
    assert len(Index(out)) == 120
    assert added(model, tmp_path / "more", out).new == 12
    assert (out / "descriptors.bin").stat().st_size == 132 * 16 * 4
    assert Index(out).file(131).name == "p102-3.png"


def test_a_full_disk_is_explained(
    model: TrainedPlaceModel, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_street(tmp_path / "more", range(100, 103))

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match=r"descriptors.bin: No space left on device. What the index held before"):
            added(model, tmp_path / "more", mine)
    assert len(Index(mine)) == 120


def test_what_cannot_be_learnt_is_said(model: TrainedPlaceModel, tmp_path: Path) -> None:
    write_street(tmp_path / "few", range(3))
    done = added(model, tmp_path / "few", tmp_path / "index", learn=Calibrator(model, tmp_path))
    assert done.facts.calibration is None
    assert "12 of 12 photographs show a place that another sequence shows too" in done.facts.uncalibrated
    assert Index(tmp_path / "index").facts == done.facts


def test_names_of_any_kind(model: TrainedPlaceModel, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    write_street(photos, range(1))
    (photos / "p000-0.png").rename(photos / "Straße, Nr. 1 ☕.png")
    text = (photos / "photos.csv").read_text().replace("p000-0.png", '"Straße, Nr. 1 ☕.png"')
    (photos / "photos.csv").write_text(text, encoding="utf-8")
    added(model, photos, tmp_path / "index")
    assert Index(tmp_path / "index").file(0) == (photos / "Straße, Nr. 1 ☕.png").resolve()
