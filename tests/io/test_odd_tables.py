"""What is odd about people's own tables and folders is named, and costs no more than it must."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.TiffImagePlugin import IFDRational

from wayfare.core.errors import DataError
from wayfare.hashing.data import csv_pairs
from wayfare.io.findings import Problems, by_kind
from wayfare.io.layouts import find
from wayfare.places.data import photos

HEADER = "file,lat,lon,heading,time,night\n"


def picture(file: Path, position: tuple[int, int] | None = None) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    if position is not None:
        degrees = [(IFDRational(value), IFDRational(0), IFDRational(0)) for value in position]
        exif[0x8825] = {1: "N", 2: degrees[0], 3: "E", 4: degrees[1]}
    Image.new("RGB", (8, 8), "grey").save(file, exif=exif)
    return file


def table(root: Path, rows: list[str], header: str = HEADER) -> Path:
    for row in rows:
        picture(root / row.split(",")[0])
    (root / "photos.csv").write_text(header + "".join(f"{row}\n" for row in rows))
    return root


def test_an_odd_value_of_an_optional_column_costs_the_field_and_not_the_photo(tmp_path):
    rows = ["a.jpg,48,11,372,2024-06-21T15:03,0", "b.jpg,48,11,90,15:03,maybe", "c.jpg,48,11,90,2024-06-21,1"]
    found = photos.load(table(tmp_path, rows))
    assert found.files.tolist() == ["a.jpg", "b.jpg", "c.jpg"]
    assert np.isnan(found.heading[0]) and found.heading[1:].tolist() == [90, 90]
    assert np.isnat(found.captured[1]) and not np.isnat(found.captured[[0, 2]]).any()
    assert found.night.tolist() == [False, False, True]
    texts = [str(problem) for problem in found.problems.found]  # all of them in one pass
    assert len(texts) == 3 and all("only this field is left out" in text for text in texts)
    assert [problem.line for problem in found.problems.found] == [2, 3, 3]
    assert found.problems.left_out == [] and len(by_kind(found.problems.odd)) == 3  # no photo counts as skipped
    with pytest.raises(DataError, match="372"):
        photos.load(tmp_path, strict=True)


def test_where_no_photo_is_left_several_reasons_are_given(tmp_path):
    with pytest.raises(DataError, match=r"(?s)photos\.csv:2.*north.*photos\.csv:3.*east"):
        photos.load(table(tmp_path, ["a.jpg,north,11,,,", "b.jpg,48,east,,,"]))


def test_the_position_zero_zero_is_none(tmp_path):
    found = photos.load(table(tmp_path, ["a.jpg,0,0,,,", "b.jpg,48,11,,,"]))
    assert found.files.tolist() == ["b.jpg"] and "(0, 0)" in str(found.problems.found[0])


def test_a_photo_far_from_the_others_is_named(tmp_path):
    rows = [f"{n}.jpg,48.{n:03d},11,,," for n in range(9)]
    found = photos.check(table(tmp_path, [*rows, "z.jpg,-13,11,,,"]))
    (problem,) = found.problems.found
    # by hand: 61 degrees of latitude are 2 R sin(30.5 deg) = 6,467 km through a round Earth; the real one is flat
    assert "z.jpg" in str(problem) and "6,4" in str(problem) and found.counts["photos"] == 10


def test_a_table_without_a_longitude_says_so(tmp_path):
    table(tmp_path, ["a.jpg,48"], "file,lat\n")
    with pytest.raises(DataError, match=r"photos\.csv has 'file', but no column 'lon'"):
        find(tmp_path)


def test_class_folders_with_a_few_positions_are_class_folders(tmp_path):
    for name in ("church", "bridge"):
        for number in range(6):
            picture(tmp_path / name / f"{number}.jpg", (48, 11) if number < 2 else None)
    assert [item.layout for item in find(tmp_path)] == ["folder"]
    for name in ("church", "bridge"):
        for number in range(6):
            picture(tmp_path / name / f"{number}.jpg", (48, 11))
    assert [item.layout for item in find(tmp_path)] == ["photos"]
    assert [item.layout for item in find(tmp_path, "folder")] == ["folder"]


def test_pairs_without_labels_are_recognised_and_named(tmp_path):
    kinds = ("red shirt", "green hat", "blue sock", "grey shoe")
    rows = [f"{number}.jpg,the {kinds[number % 4]}" for number in range(20)]
    for number in range(20):
        picture(tmp_path / f"{number}.jpg")
    (tmp_path / "pairs.csv").write_text("photo,text\n" + "".join(f"{row}\n" for row in rows))
    assert [item.layout for item in find(tmp_path)] == ["csv_pairs"]
    source = csv_pairs.read(tmp_path, Problems())
    assert list(source.names) == ["blue", "green", "grey", "hat", "red", "shirt", "shoe", "sock"]  # "the" is in all
    assert source.labels[0].astype(int).tolist() == [0, 0, 0, 0, 1, 1, 0, 0]
    assert "no column of labels" in csv_pairs.check(tmp_path).counts
    (tmp_path / "pairs.csv").write_text("photo,text\n0.jpg,one\n1.jpg,two\n")
    assert "too few words" in str(csv_pairs.check(tmp_path).counts["no column of labels"])


def test_a_table_of_pictures_without_texts_says_so(tmp_path):
    picture(tmp_path / "1.jpg")
    (tmp_path / "pairs.csv").write_text("photo,price\n1.jpg,3\n")
    with pytest.raises(DataError, match="names pictures, but has no column of texts"):
        find(tmp_path)
