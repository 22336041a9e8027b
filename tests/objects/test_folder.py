"""Class folders: what is read, how it is split, what is refused, and that the second time is quick and the same."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from wayfare.core.errors import DataError
from wayfare.io import cache, decoded
from wayfare.io.archives import unpack
from wayfare.io.pictures import Pictures
from wayfare.objects.data import folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fill(where: Path, count: int, red: int = 0, suffix: str = "png") -> None:
    """Pictures whose green value is their number."""
    where.mkdir(parents=True)
    for number in range(count):
        Image.new("RGB", (20, 10), (red, number, 0)).save(where / f"{number:03}.{suffix}")


def greens(pictures: Pictures, label: int) -> list[int]:
    return sorted(int(value) for value in pictures.images[pictures.labels == label][:, 0, 0, 1])


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    for label, (name, count) in enumerate({"ape": 20, "bee": 5, "cat": 2, "dog": 1}.items()):
        fill(root / name, count, red=50 * label)
    return root


def test_every_picture_is_there_once_under_its_class(photos: Path) -> None:
    train, test = folder.load(photos, size=(4, 6))
    assert train.classes == test.classes == ("ape", "bee", "cat", "dog")
    assert train.images.shape[1:] == (4, 6, 3)
    for label, count in enumerate((20, 5, 2, 1)):
        assert sorted(greens(train, label) + greens(test, label)) == list(range(count))
        assert set(train.images[train.labels == label][:, 0, 0, 0].tolist()) == {50 * label}
    assert [len(greens(test, label)) for label in range(4)] == [4, 1, 1, 0]


def test_the_split_depends_on_names_alone(photos: Path, tmp_path: Path) -> None:
    _, test = folder.load(photos, size=(4, 6))
    # the first four of sha256("000.png") ... sha256("019.png") in order
    assert greens(test, 0) == [2, 3, 4, 5]
    photos.rename(tmp_path / "moved")
    (tmp_path / "moved" / "cat").rename(tmp_path / "moved" / "aaa")
    _, again = folder.load(tmp_path / "moved", size=(4, 6))
    assert greens(again, 1) == greens(test, 0)


def test_a_split_made_by_the_user_is_kept(tmp_path: Path) -> None:
    fill(tmp_path / "d" / "train" / "ape", 3)
    fill(tmp_path / "d" / "train" / "bee", 2)
    fill(tmp_path / "d" / "test" / "bee", 4)
    train, test = folder.load(tmp_path / "d", size=(4, 4))
    assert (greens(train, 0), greens(train, 1)) == ([0, 1, 2], [0, 1])
    assert (greens(test, 0), greens(test, 1)) == ([], [0, 1, 2, 3])
    fill(tmp_path / "d" / "test" / "cow", 1)
    with pytest.raises(DataError, match=r"test/cow: no class of this name"):
        folder.load(tmp_path / "d", size=(4, 4))


def test_one_picture_for_each_class_leaves_an_empty_test_part(tmp_path: Path) -> None:
    fill(tmp_path / "d" / "ape", 1)
    train, test = folder.load(tmp_path / "d", size=(4, 4))
    assert (len(train), test.images.shape) == (1, (0, 4, 4, 3))


def test_suffixes_of_any_case_are_read_and_hidden_files_are_not(tmp_path: Path) -> None:
    fill(tmp_path / "d" / "ape", 2, suffix="JPEG")
    Image.new("RGB", (9, 9)).save(tmp_path / "d" / "ape" / "x.webp")
    (tmp_path / "d" / "ape" / ".hidden.jpg").write_bytes(b"")
    (tmp_path / "d" / "ape" / "notes.txt").write_text("about")
    (tmp_path / "d" / ".git").mkdir()
    (tmp_path / "d" / "README.md").write_text("about")
    train, test = folder.load(tmp_path / "d", size=(4, 4))
    assert (len(train) + len(test), train.skipped, train.classes) == (3, (), ("ape",))


# ---- Broken pictures


def test_broken_pictures_are_left_out_and_listed(photos: Path) -> None:
    (photos / "ape" / "006.png").write_bytes(b"no")
    whole = (photos / "bee" / "001.png").read_bytes()
    (photos / "bee" / "001.png").write_bytes(whole[:-20])
    (photos / "cat" / "film.GIF").write_bytes(b"GIF89a")
    (photos / "dog" / "gone.png").symlink_to(photos / "nowhere")
    for _ in range(2):  # the list is kept with the pictures
        train, test = folder.load(photos, size=(4, 6))
        assert len(train) + len(test) == 26
        found = {Path(item.file).name: item.reason for item in train.skipped + test.skipped}
        assert found.keys() == {"006.png", "001.png", "film.GIF", "gone.png"}
        assert "not a JPEG" in found["006.png"]
        assert "truncated" in found["001.png"]
        assert "format .GIF is not read" in found["film.GIF"]
        assert "no such file" in found["gone.png"]
        with pytest.raises(DataError, match=r"film\.GIF: .*and 3 more"):
            folder.load(photos, size=(4, 6), strict=True)


def test_the_test_part_gets_a_picture_that_can_be_read(photos: Path) -> None:
    for number in (2, 3, 4, 5):  # those that the split would choose
        (photos / "ape" / f"{number:03}.png").write_bytes(b"no")
    _, test = folder.load(photos, size=(4, 6))
    assert len(greens(test, 0)) == 3  # a fifth of 16


def test_a_class_of_which_nothing_can_be_read_is_an_error(photos: Path, own_cache: Path) -> None:
    (photos / "dog" / "000.png").write_bytes(b"no")
    with pytest.raises(DataError, match=r"dog: none of the pictures of class 'dog' can be read: not a JPEG"):
        folder.load(photos, size=(4, 6))
    assert not [entry for entry in (own_cache / "folders").iterdir() if entry.suffix != ".lock"]


@pytest.mark.parametrize(("make", "expected"), [
    (lambda root: None, "no such folder"),
    (lambda root: root.write_bytes(b""), "expected a folder of class folders"),
    (lambda root: root.mkdir(), "the folder is empty"),
    (lambda root: fill(root, 2), "no class folders"),
    (lambda root: (root / "ape").mkdir(parents=True), "ape: no JPEG, PNG or WebP pictures"),
    (lambda root: fill(root / "train" / "ape", 2), "train: no JPEG, PNG or WebP pictures"),
    (lambda root: (fill(root / "train" / "ape", 2), (root / "test").mkdir()), "test: the folder is empty"),
])  # fmt: skip
def test_what_is_not_a_set_of_class_folders_is_refused(make, expected: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    make(tmp_path / "d")
    with pytest.raises(DataError) as caught:
        folder.load(tmp_path / "d")
    assert str(caught.value).startswith(str(tmp_path / "d"))
    assert expected in str(caught.value)


# ---- The cache


def test_a_second_load_decodes_nothing(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = folder.load(photos, size=(4, 6))
    monkeypatch.setattr(decoded, "decode_all", lambda *_: pytest.fail("decoded again"))
    second = folder.load(photos, size=(4, 6))
    assert isinstance(second[0].images, np.memmap)
    for one, other in zip(first, second):
        np.testing.assert_array_equal(one.images, other.images)
        np.testing.assert_array_equal(one.labels, other.labels)


def test_what_changed_is_decoded_again(photos: Path) -> None:
    assert folder.load(photos, size=(4, 6))[0].images.shape[1:] == (4, 6, 3)
    assert folder.load(photos, size=(6, 4))[0].images.shape[1:] == (6, 4, 3)
    file = photos / "dog" / "000.png"
    for green, when in ((98, 1), (99, 2)):  # of one size, as it is not compressed: only the date tells them apart
        Image.new("RGB", (20, 10), (150, green, 0)).save(file, compress_level=0)
        os.utime(file, (when, when))
        train, _ = folder.load(photos, size=(4, 6))
        assert greens(train, 3) == [green]
    file.rename(photos / "dog" / "new.png")
    Image.new("RGB", (20, 10), (150, 98, 0)).save(photos / "dog" / "other.png")
    train, test = folder.load(photos, size=(4, 6))
    assert sorted(greens(train, 3) + greens(test, 3)) == [98, 99]


@pytest.mark.parametrize("name", ["train_images.npy", "test_labels.npy", "pictures.json"])
def test_a_damaged_cache_is_made_again(name: str, photos: Path, own_cache: Path) -> None:
    first, _ = folder.load(photos, size=(4, 6))
    expected = np.array(first.images)
    del first
    found = next((own_cache / "folders").glob(f"*/{name}"))
    found.write_bytes(found.read_bytes()[:-9])
    again, _ = folder.load(photos, size=(4, 6))
    np.testing.assert_array_equal(again.images, expected)


def test_a_cache_that_cannot_get_its_name_is_not_there(
    photos: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(DataError, match="No space left"):
        folder.load(photos, size=(4, 6))
    assert [entry for entry in (own_cache / "folders").iterdir() if entry.is_dir()] == []


def test_what_a_killed_process_left_is_not_taken_for_whole(photos: Path, own_cache: Path) -> None:
    expected = np.array(folder.load(photos, size=(4, 6))[0].images)
    made = next(entry for entry in (own_cache / "folders").iterdir() if entry.is_dir())
    made.rename(made.with_name(made.name + ".part"))
    (made.with_name(made.name + ".part") / "train_images.npy").write_bytes(b"half")
    again, _ = folder.load(photos, size=(4, 6))
    np.testing.assert_array_equal(again.images, expected)
    assert not list((own_cache / "folders").glob("*.part"))


def _load_and_tell(root: Path, queue: multiprocessing.Queue[list[int]]) -> None:
    train, test = folder.load(root, size=(4, 6))
    queue.put([len(train), len(test), int(train.images.sum())])


def test_processes_that_come_at_once_get_the_same(photos: Path) -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=_load_and_tell, args=(photos, queue)) for _ in range(2)]
    for worker in workers:
        worker.start()
    found = [queue.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert found[0] == found[1]


def test_a_cache_that_cannot_be_written_says_what_to_do(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match="set WAYFARE_CACHE"):
        folder.load(photos, size=(4, 6))


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYFARE_CACHE", "~/here")
    assert cache.cache_dir() == Path.home() / "here"
    monkeypatch.delenv("WAYFARE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache.cache_dir() == Path("/x/wayfare")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.cache_dir() == Path.home() / ".cache" / "wayfare"


def test_an_array_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    values = np.arange(5000 * 3, dtype=np.int64).reshape(5000, 3)
    cache.write_array(tmp_path / "a.npy", values)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), values)
    rows = np.array([4999, 0, 7])
    cache.write_array(tmp_path / "a.npy", values, rows)
    np.testing.assert_array_equal(cache.read_array(tmp_path / "a.npy"), values[rows])

    class Breaks(np.ndarray):
        def __getitem__(self, key: object) -> np.ndarray:
            raise OSError(28, "No space left on device")

    with pytest.raises(DataError, match="No space left"):
        cache.write_array(tmp_path / "a.npy", values.view(Breaks))
    np.testing.assert_array_equal(cache.read_array(tmp_path / "a.npy"), values[rows])
    assert [entry.name for entry in tmp_path.iterdir() if entry.suffix == ".part"] == []


def test_the_names_in_the_cache_are_plain_json(photos: Path, own_cache: Path) -> None:
    folder.load(photos, size=(4, 6))
    facts = json.loads(next((own_cache / "folders").glob("*/pictures.json")).read_text())
    assert facts == {"classes": ["ape", "bee", "cat", "dog"], "skipped": []}


# ---- A real one


def test_a_real_set_of_sights(tmp_path: Path) -> None:
    project = Path(__file__).parents[2]
    shared = Path(os.environ.get("WAYFARE_SHARED") or project.parent / "shared")
    archive = shared / "data" / "objects" / "pesaro.zip"
    if not archive.is_file():
        pytest.skip(f"{archive} is absent: set WAYFARE_SHARED to the folder that holds data/objects/pesaro.zip")
    assert unpack(archive, tmp_path / "sights") == 953
    began = time.perf_counter()
    train, test = folder.load(tmp_path / "sights" / "pesaro", size=(64, 64))
    decoded = time.perf_counter() - began
    assert len(train) + len(test) + len(train.skipped) == 953
    assert train.skipped == ()
    assert len(train.classes) == 25
    assert set(train.labels.tolist()) == set(test.labels.tolist()) == set(range(25))
    assert 0.18 < len(test) / 953 < 0.22
    assert 40 < train.images.mean() < 215
    began = time.perf_counter()
    again, _ = folder.load(tmp_path / "sights" / "pesaro", size=(64, 64))
    assert time.perf_counter() - began < decoded
    np.testing.assert_array_equal(again.images, train.images)
