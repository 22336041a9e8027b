"""MIRFlickr's folders: tags, labels, variants of the layout, and files that are not what they should be."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from amount import some
from damaged_files import quick_folder
from mutations import outcomes, spoilt_bytes, spoilt_words
from wayfare.core.errors import DataError
from wayfare.hashing.data import mirflickr
from wayfare.io.findings import Problems

TAGS = {1: ["sky", "blue", "me"], 2: [], 3: ["dog", "sky", "rareword"], 4: ["dog"], 10: ["me"]}
LABELS = {"sky": [1, 3, 10], "dog": [3, 4], "dog_r1": [4], "sea": []}
COMMON = "sky 900\ndog 300\nblue 20\n"


def write(
    root: Path,
    pictures: str = "mirflickr",
    annotations: str = "mirflickr25k_annotations_v080",
    tags_of: dict[int, list[str]] = TAGS,
) -> Path:
    folder = root / pictures
    (folder / "meta" / "tags").mkdir(parents=True)
    (folder / "doc").mkdir()
    (root / annotations).mkdir(exist_ok=True)
    for number, tags in tags_of.items():
        Image.new("RGB", (4, 3), "blue").save(folder / f"im{number}.jpg")
        (folder / "meta" / "tags" / f"tags{number}.txt").write_text("".join(f"{tag}\n" for tag in tags))
    (folder / "doc" / "common_tags.txt").write_text(COMMON)
    for name, numbers in LABELS.items():
        (root / annotations / f"{name}.txt").write_text(
            "".join(f"{number}\n" for number in numbers if number in tags_of)
        )
    (root / annotations / "README.txt").write_text("not a list\n")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path)


def test_photographs_tags_and_labels(root: Path) -> None:
    photos = mirflickr.load(root, problems=Problems(strict=True))
    assert photos.numbers.tolist() == [1, 2, 3, 4, 10]  # by number, not by name
    assert photos.path(4) == root / "mirflickr" / "im10.jpg"
    assert photos.vocabulary == ("sky", "dog", "blue")
    assert photos.tag_offsets.tolist() == [0, 2, 2, 4, 5, 5]
    assert photos.tags.tolist() == [0, 2, 0, 1, 1]
    assert [tags.tolist() for tags in np.split(photos.tags, photos.tag_offsets[1:-1])] == [[0, 2], [], [0, 1], [1], []]
    assert photos.texts.tolist()[2] == "dog sky rareword"
    assert photos.classes == ("dog", "sea", "sky")
    assert photos.labels.astype(int).tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 1], [1, 0, 0], [0, 0, 1]]


def test_the_stricter_labels(root: Path) -> None:
    strict = mirflickr.load(root, labels="relevant")
    assert (strict.classes, np.flatnonzero(strict.labels[:, 0]).tolist()) == (("dog_r1",), [3])
    assert mirflickr.load(root, labels="all").classes == ("dog", "dog_r1", "sea", "sky")


def test_a_vocabulary_of_what_is_frequent(root: Path) -> None:
    assert mirflickr.load(root, min_count=2).vocabulary == ("dog", "me", "sky")
    assert mirflickr.load(root, min_count=1).vocabulary == ("dog", "me", "sky", "blue", "rareword")
    (root / "mirflickr" / "doc" / "common_tags.txt").unlink()
    assert mirflickr.load(root).vocabulary == ()  # nothing is under 20 photographs
    for number in range(100, 120):
        Image.new("RGB", (4, 3)).save(root / "mirflickr" / f"im{number}.jpg")
        (root / "mirflickr" / "meta" / "tags" / f"tags{number}.txt").write_text("zoo\nzoo\n")
    assert mirflickr.load(root).vocabulary == ("zoo",)


@pytest.mark.parametrize(
    ("pictures", "annotations"),
    [
        (".", "mirflickr25k_annotations_v080"),
        ("mirflickr25k", "annotations"),
        ("images", "mirflickr25k_annotations_v3"),
    ],
)
def test_other_names_of_folders(tmp_path: Path, pictures: str, annotations: str) -> None:
    root = write(tmp_path / "data", pictures, annotations)
    assert mirflickr.recognises(root)
    assert mirflickr.load(root, problems=Problems(strict=True)).labels.sum() == 5


def test_check(root: Path) -> None:
    found = mirflickr.check(root)
    assert found.counts == {
        "photographs": 5, "whole photographs": 5, "common tags": 3, "without a common tag": 2, "classes": 3,
        "stricter classes": 1, "without a label": 1,
    }  # fmt: skip
    assert (found.layout, found.problems.count) == ("mirflickr", 0)


# ---- What cannot be used: listed, or raised


def test_a_photograph_without_a_file_of_tags(root: Path) -> None:
    file = root / "mirflickr" / "meta" / "tags" / "tags3.txt"
    file.unlink()
    (root / "mirflickr25k_annotations_v080" / "dog_r1.txt").write_text("4\n")
    photos = mirflickr.load(root, labels="relevant")
    assert photos.numbers.tolist() == [1, 2, 4, 10]
    assert str(photos.problems.found[0]) == f"{file}: no such file"
    file.write_bytes(b"sky\nd\xf6g\n")
    with pytest.raises(DataError, match=r"tags3\.txt:2: not UTF-8 text"):
        mirflickr.load(root, problems=Problems(strict=True))


@pytest.mark.parametrize(
    ("content", "line", "what"),
    [
        ("3\n7\n", 2, "no photograph of this number: '7'"),
        ("3\n4\nim5\n", 3, "expected a photograph's number: 'im5'"),
        ("3\n\n3\n", 3, "photograph 3 appears twice"),
    ],
)
def test_a_label_that_points_nowhere(root: Path, content: str, line: int, what: str) -> None:
    file = root / "mirflickr25k_annotations_v080" / "dog.txt"
    file.write_text(content)
    photos = mirflickr.load(root)
    assert photos.labels[2, 0]
    with pytest.raises(DataError) as caught:
        mirflickr.load(root, problems=Problems(strict=True))
    for error in (photos.problems.found[0], caught.value):
        assert (error.file, error.line) == (file, line)
        assert what in str(error) and error.remedy


def test_common_tags_that_cannot_be_used(root: Path) -> None:
    file = root / "mirflickr" / "doc" / "common_tags.txt"
    file.write_text("sky 900\ntwo words 3\nsky 4\ndog\n")
    photos = mirflickr.load(root)
    assert photos.vocabulary == ("sky", "dog")
    texts = [str(error) for error in photos.problems.found]
    assert f"{file}:2: expected a tag and a number, found 'two words 3'" in texts[0]
    assert f"{file}:3: 'sky' is already on line 1" in texts[1]


def test_a_photograph_that_is_cut_short(root: Path) -> None:
    file = root / "mirflickr" / "im4.jpg"
    file.write_bytes(file.read_bytes()[:-30])
    found = mirflickr.check(root)
    assert found.counts["whole photographs"] == 4
    assert str(found.problems.found[0]).startswith(f"{file}: truncated")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    for path, what in (
        (tmp_path / "absent", "no such folder"),
        (tmp_path, "no MIRFlickr here: expected mirflickr/im1"),
    ):
        with pytest.raises(DataError, match=what):
            mirflickr.load(path)
        assert not mirflickr.recognises(path)
    (tmp_path / "mirflickr").mkdir()
    Image.new("RGB", (4, 3)).save(tmp_path / "mirflickr" / "im1.jpg")
    with pytest.raises(DataError, match=re.escape("expected meta/tags/tags1.txt")):
        mirflickr.load(tmp_path)
    (tmp_path / "mirflickr" / "meta" / "tags").mkdir(parents=True)
    with pytest.raises(DataError, match=r"unpack mirflickr25k_annotations_v080\.zip there"):
        mirflickr.load(tmp_path)
    (tmp_path / "annotations").mkdir()
    with pytest.raises(DataError, match=re.escape("expected people.txt, sky.txt")):
        mirflickr.load(tmp_path)


# ---- Ten thousand malformed files


def test_malformed_files_are_refused_or_listed() -> None:
    draw = random.Random(3)
    listed = used = refused = 0
    began = time.process_time()
    with quick_folder() as folder:
        root = write(folder, tags_of={1: TAGS[1], 3: TAGS[3]})
        files = {
            root / "mirflickr" / "doc" / "common_tags.txt": COMMON,
            root / "mirflickr" / "meta" / "tags" / "tags3.txt": "dog\nsky\nrareword\n",
            root / "mirflickr25k_annotations_v080" / "sky.txt": "1\n3\n",
        }
        for file, text in files.items():

            def use(content: bytes, file: Path = file) -> None:
                nonlocal listed
                file.write_bytes(content)
                photos = mirflickr.load(root)
                listed += photos.problems.count > 0

            def spoilt(text: str = text) -> Iterator[bytes]:
                for spoil in (spoilt_bytes, spoilt_words):
                    yield from (spoil(text.encode(), draw) for _ in range(some(1700)))

            counts = outcomes(spoilt(), use, DataError)
            used, refused = used + counts[0], refused + counts[1]
            file.write_text(text)
    assert used + refused == 6 * some(1700)
    assert min(used, refused, listed) > some(300)
    assert time.process_time() - began < 60  # a third of it where it was measured
