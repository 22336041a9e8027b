"""Photographs by their place in a list: what comes out is what the files hold, from the cache or without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from wayfare.core.errors import DataError
from wayfare.io import decoded as module
from wayfare.io.decoded import Decoded, decoded

SIZE = (4, 6)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def colour(file: Path, green: int) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 8), (0, green, 0)).save(file)
    return file


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Five pictures whose green value is their number; the third is cut short."""
    made = [colour(tmp_path / "photos" / f"{number}.png", number) for number in range(5)]
    made[2].write_bytes(made[2].read_bytes()[:-20])
    return made


def greens(pictures: np.ndarray) -> list[int]:
    return [int(value) for value in pictures[:, 0, 0, 1]]


def load(files: list[Path], room: float = 2**33) -> Decoded:
    return decoded(files[0].parent, files, SIZE, room)


def folder(own_cache: Path) -> Path:
    (found,) = (own_cache / "photographs").glob("*[!k]")
    return found


def test_a_broken_photograph_is_left_out_and_listed(files: list[Path]) -> None:
    found = load(files)
    assert len(found) == 4 and found.kept.tolist() == [0, 1, 3, 4]
    assert found[np.arange(4)].shape == (4, *SIZE, 3) and greens(found[np.arange(4)]) == [0, 1, 3, 4]
    assert [item.file for item in found.skipped] == [str(files[2])]
    assert "truncated" in found.skipped[0].reason


def test_rows_in_any_order_and_more_than_once(files: list[Path]) -> None:
    found = load(files)
    rows = found[np.array([3, 0, 3])]
    assert greens(rows) == [4, 0, 4]
    rows[:] = 9  # the caller's own
    assert greens(found[np.array([3])]) == [4]


def test_the_second_time_nothing_is_decoded(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(files)
    monkeypatch.setattr(module, "decode_to", lambda *_: pytest.fail("decoded again"))
    second = load(files)
    assert second.key == first.key and second.kept.tolist() == first.kept.tolist()
    assert second.skipped == first.skipped
    assert np.array_equal(second[np.arange(4)], first[np.arange(4)])


def test_what_does_not_fit_is_read_from_the_files(files: list[Path], own_cache: Path) -> None:
    whole = [file for number, file in enumerate(files) if number != 2]
    exactly = len(whole) * SIZE[0] * SIZE[1] * 3
    cached, uncached = load(whole, exactly), load(whole, exactly - 1)
    assert cached.rows is not None and uncached.rows is None
    assert uncached.key == cached.key and len(uncached) == 4
    for rows in (np.arange(4), np.array([2]), np.array([3, 1, 1])):
        assert np.array_equal(uncached[rows], cached[rows])


def test_what_is_read_from_the_files_is_not_looked_through_first(files: list[Path]) -> None:
    found = load(files, room=0)
    assert len(found) == 5 and found.skipped == ()
    assert greens(found[np.array([1, 3])]) == [1, 3]
    with pytest.raises(DataError, match=r"2\.png: truncated"):
        found[np.array([1, 2])]


def test_a_photograph_that_changes_is_decoded_again(files: list[Path]) -> None:
    before = load(files)
    colour(files[4], 200)
    os.utime(files[4], ns=(0, 12345))
    after = load(files)
    os.utime(files[4], ns=(0, 12346))  # as long as it was, but of another date
    assert len({before.key, after.key, load(files).key}) == 3
    assert greens(after[np.arange(4)]) == [0, 1, 3, 200] and greens(before[np.arange(4)]) == [0, 1, 3, 4]


def test_cache_keys_depend_on_sizes_names_and_folders(files: list[Path], tmp_path: Path) -> None:
    keys = {load(files).key, load(files[:4]).key, load(files[::-1]).key, decoded(files[0].parent, files, (4, 4)).key}
    files[0].parent.rename(tmp_path / "moved")
    moved = [tmp_path / "moved" / file.name for file in files]
    assert len(keys | {load(moved).key}) == 5


def test_a_link_to_nowhere_is_listed(files: list[Path]) -> None:
    (files[0].parent / "gone.png").symlink_to("nowhere.png")
    found = load([*files, files[0].parent / "gone.png"])
    assert found.kept.tolist() == [0, 1, 3, 4]
    assert found.skipped[-1].reason == "no such file"


def test_nothing_and_nothing_that_can_be_read(files: list[Path], tmp_path: Path) -> None:
    assert len(decoded(tmp_path, [], SIZE)) == 0
    found = load([files[2]])
    assert len(found) == 0 and len(found.skipped) == 1
    assert found[np.arange(0)].shape == (0, *SIZE, 3)


def test_parts_are_told_as_they_are_done(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", 2)
    seen: list[tuple[int, int]] = []
    found = decoded(files[0].parent, files, SIZE, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(2, 5), (4, 5), (5, 5)] and found.kept.tolist() == [0, 1, 3, 4]
    assert greens(found[np.arange(4)]) == [0, 1, 3, 4]


@pytest.mark.parametrize("name", ["rows", "kept.npy", "skipped.json"])
@pytest.mark.parametrize("damage", ["gone", "short", "other"])
def test_a_damaged_cache_is_made_again(files: list[Path], own_cache: Path, name: str, damage: str) -> None:
    first = load(files)
    target = folder(own_cache) / name
    content = target.read_bytes()
    target.unlink()
    if damage == "short":
        target.write_bytes(content[: len(content) // 2])
    elif damage == "other":
        target.write_bytes({"rows": b"", "kept.npy": b"\x93NUMPY", "skipped.json": b"[]"}[name])
    second = load(files)
    assert second.kept.tolist() == [0, 1, 3, 4] and second.skipped == first.skipped
    assert greens(second[np.arange(4)]) == [0, 1, 3, 4]
    assert target.read_bytes() == content


def test_a_cache_of_fewer_photographs_is_not_taken(files: list[Path], own_cache: Path) -> None:
    load(files)
    np.save(folder(own_cache) / "kept.npy", np.array([0, 1, 3]))
    assert load(files).kept.tolist() == [0, 1, 3, 4]


def test_a_folder_that_cannot_be_written(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"cannot be written.*set WAYFARE_CACHE"):
        load(files)


def test_a_full_disk_is_told_once(files: list[Path], own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def full(target: Path, *rest: object) -> None:
        calls.append(target)
        raise DataError("cannot be written: No space left on device", target)

    monkeypatch.setattr(module, "decode_to", full)
    with pytest.raises(DataError, match="No space left"):
        load(files)
    assert len(calls) == 1, "decoding took its time, and would have failed again"
    assert not list((own_cache / "photographs").glob("*.part"))


PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from wayfare.io import decoded as module

calls, real = [], module.decode_to
module.decode_to = lambda *rest: calls.append(1) or real(*rest)
files = sorted(Path(sys.argv[1]).iterdir())
found = module.decoded(files[0].parent, files, (4, 6))
print(len(calls), found[np.arange(4)][:, 0, 0, 1].tolist())
"""


def test_two_processes_at_once(files: list[Path]) -> None:
    """One of them decodes, and both see the same."""
    command = [sys.executable, "-c", PROGRAM, str(files[0].parent)]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = sorted(worker.communicate(timeout=60)[0].strip() for worker in workers)
    assert told == ["0 [0, 1, 3, 4]", "1 [0, 1, 3, 4]"]
