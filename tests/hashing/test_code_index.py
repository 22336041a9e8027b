"""An index of codes keeps what it was given, finds the nearest by id, and refuses damage and other models."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from wayfare.core import disk
from wayfare.core.bundle import digest
from wayfare.core.errors import ConfigError, DataError, StoreError
from wayfare.core.seeds import rng_for
from wayfare.hashing import code_index
from wayfare.hashing.code_index import AddedCodes, CodePart, Codes, add

MODEL, OTHER = "a" * 64, "b" * 64
FILES = ("codes.json", "codes.bin", "ids.txt", "metadata.jsonl")


def part(rows: range, step: int = 7) -> CodePart:
    """Items named so that their order is not that of their rows; codes of 16 bits, so that many are equal."""
    codes = rng_for(0, "codes").integers(0, 256, (500, 2), np.uint8)[rows]
    codes[:, 1] &= 3
    return CodePart(
        [f"i{row * step % 500:03}" for row in rows], codes, [{"row": row, "text": f"é{row}"} for row in rows]
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert add(tmp_path / "index", MODEL, "fashion", [part(range(200)), part(range(200, 300))]) == AddedCodes(300, 0, 0)
    return tmp_path / "index"


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def ranked(index: Codes, query: np.ndarray) -> list[tuple[int, str]]:
    """By comparing all, in plain Python."""
    return sorted((int(np.unpackbits(index.code(id) ^ query).sum()), id) for id in index.ids)


def test_what_goes_in_is_found_in_order(folder: Path) -> None:
    index = Codes(folder, MODEL)
    assert len(index) == 300 and "i007" in index and "i499" not in index
    assert index.code("i007").tolist() == part(range(300)).codes[1].tolist()
    assert index.metadata("i007") == {"row": 1, "text": "é1"}
    queries = rng_for(0, "queries").integers(0, 256, (12, 2), np.uint8)
    expected = [ranked(index, query) for query in queries]
    for k in (1, 10, 100, 300, 1000):
        ids, distances = index.search(queries, k)
        assert ids.shape == distances.shape == (12, min(k, 300))
        assert [list(zip(*row)) for row in zip(distances.tolist(), ids.tolist())] == [row[:k] for row in expected]


def test_answers_do_not_depend_on_when_items_came(folder: Path, tmp_path: Path) -> None:
    whole, queries = part(range(300)), rng_for(0, "queries").integers(0, 256, (9, 2), np.uint8)
    assert whole.metadata is not None
    backwards = CodePart(whole.ids[::-1], whole.codes[::-1], whole.metadata[::-1])
    add(tmp_path / "other", MODEL, "fashion", [backwards])
    for ours, theirs in zip(Codes(folder).search(queries, 40), Codes(tmp_path / "other").search(queries, 40)):
        assert (ours == theirs).all()


def test_items_are_added_kept_and_replaced(folder: Path) -> None:
    before = Codes(folder)
    written = contents(folder)
    assert add(folder, MODEL, "fashion", [part(range(300))]) == AddedCodes(0, 300, 0)
    assert contents(folder) == written
    changed = CodePart(["i000", "i007", "new"], np.array([[255, 255]] * 3, np.uint8), [{}, {"row": 1}, {"row": -1}])
    assert add(folder, MODEL, "fashion", [changed, part(range(1, 2))]) == AddedCodes(1, 0, 2)  # the second is back
    index = Codes(folder)
    assert (len(before), len(index), index.facts.rows) == (300, 301, 304)
    assert index.metadata("i000") == {} and index.metadata("i007") == {"row": 1, "text": "é1"}
    ids, distances = index.search(np.array([[255, 255]], np.uint8), 2)
    assert (ids.tolist(), distances.tolist()) == ([["i000", "new"]], [[0, 0]])
    assert "new" not in before and before.metadata("i000") == {"row": 0, "text": "é0"}  # who had it open sees what was


def test_ids_and_metadata_of_any_kind(tmp_path: Path) -> None:
    ids = ["Straße ☕", "a\tb", "\udcff.jpg", "x" * 5000, " "]
    tables = [{"a": [1, None]}, {}, {"text": "two\nlines"}, {"é": 0.1}, {"b": {"c": True}}]
    add(tmp_path / "index", MODEL, "", [CodePart(ids, np.arange(40, dtype=np.uint8).reshape(5, 8), tables)])
    index = Codes(tmp_path / "index")
    assert [index.metadata(id) for id in ids] == tables
    assert index.search(index.code("a\tb")[None], 1)[0][0, 0] == "a\tb"
    add(tmp_path / "index", MODEL, "", [CodePart(["bare"], np.zeros((1, 8), np.uint8))])
    assert Codes(tmp_path / "index").metadata("bare") == {}


def test_what_cannot_be_added_or_asked_is_refused(folder: Path) -> None:
    written = contents(folder)
    code = np.zeros((1, 2), np.uint8)
    for wrong in ("", "two\nlines", "\ud800", 7):
        with pytest.raises(DataError, match="cannot be an id"):
            add(folder, MODEL, "fashion", [CodePart([wrong], code)])  # type: ignore[list-item]
    with pytest.raises(DataError, match="metadata that JSON cannot hold"):
        add(folder, MODEL, "fashion", [CodePart(["x"], code, [{"a": float("nan")}])])
    with pytest.raises(ValueError, match="2 ids, 1 codes and 2 tables"):
        add(folder, MODEL, "fashion", [CodePart(["x", "y"], code)])
    with pytest.raises(ValueError, match="rows of 2 packed bytes, not uint8 of shape"):
        add(folder, MODEL, "fashion", [CodePart(["x"], np.zeros((1, 8), np.uint8))])
    with pytest.raises(ValueError, match="rows of 2 packed bytes, not float64"):
        Codes(folder).search(np.zeros((1, 2)), 3)
    with pytest.raises(ConfigError, match="at least 1"):
        Codes(folder).search(code, 0)
    assert contents(folder) == written


@pytest.mark.parametrize("width", [1, 2, 3, 8, 16, 40])
def test_near_rows_are_all_that_are_no_farther_than_the_last(width: int, tmp_path: Path) -> None:
    made = rng_for(0, "near", width).integers(0, 4, (300, width), np.uint8)
    add(tmp_path, MODEL, "", [CodePart([f"{row}" for row in range(300)], made)])
    add(tmp_path, MODEL, "", [CodePart(["7"], made[:1] ^ 1)])  # row 7 is replaced by row 300
    index, query = Codes(tmp_path), np.zeros(width, np.uint8)
    far = np.unpackbits(np.concatenate([made, made[:1] ^ 1]), axis=1).sum(1)
    far[7] = 10_000
    for count in (1, 5, 299, 300, 9999):
        rows, distances = index.near(query, count)
        last = np.sort(far)[min(count, 300) - 1]
        assert rows.tolist() == np.flatnonzero(far <= last).tolist() and distances.tolist() == far[rows].tolist()
    assert [index.id_at(row) for row in index.live_rows()] == [f"{row}" for row in range(300) if row != 7] + ["7"]


# ---- Models


def test_a_sample_that_misleads_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_index, "_PARTS", 2)  # the first and the last three codes
    monkeypatch.setattr(code_index, "_PART", 3)
    monkeypatch.setattr(code_index, "_MARGIN", 0)
    codes = np.full((40, 2), 255, np.uint8)
    codes[[0, 1, 2, 37, 38, 39]] = 0
    add(tmp_path, MODEL, "run", [CodePart([f"i{row}" for row in range(40)], codes)])
    asked, opposite = np.zeros(2, np.uint8), np.full(2, 255, np.uint8)
    assert Codes(tmp_path).near(asked, 7)[1].tolist() == [0] * 3 + [16] * 34 + [0] * 3  # the seventh is as far as all
    assert Codes(tmp_path).near(opposite, 5)[0].tolist() == list(range(3, 37))


def test_another_model_is_refused(folder: Path) -> None:
    written = contents(folder)
    for attempt in (lambda: Codes(folder, OTHER), lambda: add(folder, OTHER, "x", [part(range(9))])):
        with pytest.raises(
            ConfigError, match=rf"made by model {MODEL[:12]} \(fashion\), and this is model {OTHER[:12]}"
        ):
            attempt()
    assert contents(folder) == written


def test_the_memory_is_part_of_the_model(tmp_path: Path) -> None:
    state = {"weight": torch.ones(3, 2), "memory": torch.zeros(2, 3)}
    add(tmp_path / "index", digest(state), "run", [part(range(9))])
    Codes(tmp_path / "index", digest({name: value.clone() for name, value in state.items()}))
    state["memory"][1, 2] += 1e-6
    with pytest.raises(ConfigError, match="cannot be compared"):
        Codes(tmp_path / "index", digest(state))


# ---- Damage and interruption


def test_damage_to_any_byte_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    add(folder, MODEL, "fashion", [part(range(2))])
    written = contents(folder)
    for name, content in written.items():
        for place in range(len(content)):
            harmed = bytearray(content)
            harmed[place] ^= 1 << place % 8
            (folder / name).write_bytes(harmed)
            with pytest.raises(StoreError, match=rf"{name}(:| is damaged)"):
                Codes(folder)
        (folder / name).write_bytes(content[:-1])
        with pytest.raises(StoreError, match=f"{name} is damaged"):
            Codes(folder)
        (folder / name).write_bytes(content)
    assert len(Codes(folder)) == 2
    (folder / "ids.txt").unlink()
    with pytest.raises(StoreError, match=r"ids\.txt is damaged"):
        add(folder, MODEL, "fashion", [part(range(9))])


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="letter"):
        add(tmp_path, MODEL, "fashion", [part(range(9))])
    with pytest.raises(DataError, match="no index of codes here"):
        Codes(tmp_path)


def test_interrupted_work_counts_up_to_the_last_part(folder: Path, tmp_path: Path) -> None:
    def parts() -> Iterator[CodePart]:
        yield part(range(300, 400))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        add(folder, MODEL, "fashion", parts())
    assert len(Codes(folder)) == 400
    assert add(folder, MODEL, "fashion", [part(range(500))]) == AddedCodes(100, 400, 0)
    add(tmp_path / "once", MODEL, "fashion", [part(range(500))])
    assert contents(folder) == contents(tmp_path / "once")


def test_a_crash_between_the_files_costs_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes are written and codes.json is not: as if nothing had been; the next attempt clears it away."""
    shutil.copytree(folder, tmp_path / "straight")
    with monkeypatch.context() as patch:
        patch.setattr(disk, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            add(folder, MODEL, "fashion", [part(range(300, 350))])
    assert (folder / "codes.bin").stat().st_size == 350 * 2
    assert len(Codes(folder)) == 300
    for each in (folder, tmp_path / "straight"):
        add(each, MODEL, "fashion", [part(range(320, 330))])
    assert contents(folder) == contents(tmp_path / "straight")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match=r"codes.bin: No space left on device. What the index held before"):
            add(folder, MODEL, "fashion", [part(range(400, 410))])
    assert len(Codes(folder)) == 310
