"""The MSLS tree: what is read, how cities are split, and what every kind of damage says."""

from __future__ import annotations

import io
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import damaged_files
from amount import some
from wayfare.core.errors import DataError
from wayfare.places.data import msls
from wayfare.places.data.place_photos import Group

SEQ, RAW, POST, SUB = "seq_info.csv", "raw.csv", "postprocessed.csv", "subtask_index.csv"


def jpeg(colour: int = 0) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (16, 8), (colour, 90, 30)).save(out, "JPEG")
    return out.getvalue()


def fill(folder: Path, keys: str, sequence: str = "s", east: float = 590_000.0, labels: bool = True) -> None:
    """A query or database folder; photographs are 10 m apart, the second is by night, the third is a panorama."""
    (folder / "images").mkdir(parents=True)
    tables: dict[str, list[str]] = {
        SEQ: [",key,sequence_key,frame_number"],
        RAW: [",key,lon,lat,ca,captured_at,pano"],
        POST: [",key,easting,northing,unique_cluster,control_panel,night,view_direction"],
        SUB: [",key,all,s2w,w2s,o2n,n2o,d2n,n2d"],
    }
    for number, letter in enumerate(keys):
        key = f"{folder.parent.name}-{folder.name}_{letter}"
        (folder / "images" / f"{key}.jpg").write_bytes(jpeg(number))
        tables[SEQ].append(f"{number},{key},{sequence}{number // 2},{number}")
        tables[RAW].append(f"{number},{key},10.{number},63.4,{350.5 + number},2017-06-1{number},{number == 2}")
        tables[POST].append(f"{number},{key},{east + 10 * number},7034000.25,7,False,{number == 1},Forward")
        tables[SUB].append(f"{number},{key},{number == 0},False,False,False,True,False,False")
    for name, lines in tables.items():
        if labels or name in (SEQ, SUB):
            (folder / name).write_text("\n".join(lines) + "\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two cities of nobody's, four photographs in each folder."""
    for city in ("alba", "brig"):
        for role in ("query", "database"):
            fill(tmp_path / "msls" / "train_val" / city / role, "abcd")
    return tmp_path / "msls"


def edit(path: Path, old: str, new: str) -> None:
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new, 1))


# ---- Whole trees


def test_all_columns_are_read(tree: Path) -> None:
    photos = msls.load(tree, exclude_panos=False, strict=True)
    assert len(photos) == 16
    assert photos.groups == (Group("alba", "32N"), Group("brig", "32N"))
    row = photos.keys.tolist().index("alba-query_b")
    assert photos.files[row] == "train_val/alba/query/images/alba-query_b.jpg"
    assert photos.paths()[row].is_file()
    assert (photos.easting[row], photos.northing[row]) == (590_010.0, 7_034_000.25)
    assert photos.latitude is not None and photos.longitude is not None and photos.heading is not None
    assert (photos.latitude[row], photos.longitude[row], photos.heading[row]) == (63.4, 10.1, 351.5)
    assert photos.captured is not None and photos.captured[row] == np.datetime64("2017-06-11")
    assert photos.sequence is not None and photos.frame is not None
    assert photos.sequences[photos.sequence[row]] == "s0" and photos.frame[row] == 1
    assert photos.night is not None and photos.direction is not None and photos.query is not None
    assert photos.night[row] and photos.direction[row] == "Forward" and photos.query[row]
    assert photos.night.sum() == 4 and photos.query.sum() == 8
    assert photos.subtasks["n2o"].all() and photos.subtasks["all"].sum() == 4


def test_panoramas_are_left_out_unless_wanted(tree: Path) -> None:
    photos = msls.load(tree)
    assert len(photos) == 12 and not any(key.endswith("_c") for key in photos.keys)
    assert photos.problems.count == 0


def test_positives_are_of_the_same_city(tree: Path) -> None:
    photos = msls.load(tree, exclude_panos=False)
    for row, found in zip(np.flatnonzero(photos.query), photos.positives(10.5)):
        assert set(photos.city[found]) == {photos.city[row]}
        assert np.abs(photos.easting[found] - photos.easting[row]).max() <= 10
        assert len(found) == (2 if photos.keys[row][-1] in "ad" else 3)


def test_train_val_itself_is_also_a_root(tree: Path) -> None:
    assert msls.load(tree / "train_val").files[0].startswith("alba/database/images/")
    assert msls.recognises(tree) and msls.recognises(tree / "train_val")
    assert not msls.recognises(tree / "train_val" / "alba") and not msls.recognises(tree / "nowhere")
    assert not msls.recognises(tree / "train_val" / "alba" / "query" / SEQ)


def test_rows_are_joined_by_key_and_columns_found_by_name(tree: Path) -> None:
    folder = tree / "train_val" / "alba" / "query"
    before = msls.load(tree, exclude_panos=False)
    header, *lines = (folder / RAW).read_text().splitlines()
    (folder / RAW).write_text("\n".join([header, *reversed(lines)]) + "\n")
    swapped = [",".join(line.split(",")[::-1]) for line in (folder / POST).read_text().splitlines()]
    (folder / POST).write_text("\n".join(swapped))
    after = msls.load(tree, exclude_panos=False, strict=True)
    for name in ("keys", "latitude", "longitude", "easting", "night", "pano", "captured"):
        assert (getattr(after, name) == getattr(before, name)).all(), name


def test_windows_line_ends_and_byte_order_mark(tree: Path) -> None:
    path = tree / "train_val" / "alba" / "query" / POST
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert len(msls.load(tree, strict=True)) == 12


def test_a_moment_may_also_be_milliseconds(tree: Path) -> None:
    edit(tree / "train_val" / "alba" / "query" / RAW, "2017-06-10", "1497051000123")
    photos = msls.load(tree, cities=["alba"], strict=True)
    assert photos.captured is not None
    assert np.datetime64("2017-06-09T23:30:00.123") in photos.captured


# ---- Which city is for what


def splits(photos: object) -> dict[str, str]:
    return dict(zip(photos.city.tolist(), photos.split.tolist()))  # type: ignore[attr-defined]


def test_the_last_city_of_an_unofficial_tree_is_for_validation(tree: Path) -> None:
    assert splits(msls.load(tree)) == {"alba": "train", "brig": "val"}
    assert splits(msls.load(tree, val_cities=["alba"])) == {"alba": "val", "brig": "train"}
    assert splits(msls.load(tree, val_cities=[])) == {"alba": "train", "brig": "train"}
    assert splits(msls.load(tree, test_cities=["brig"])) == {"alba": "train", "brig": "test"}
    assert splits(msls.load(tree, cities=["alba"])) == {"alba": "train"}
    shutil.rmtree(tree / "train_val" / "brig")
    assert splits(msls.load(tree)) == {"alba": "train"}


def test_official_cities_keep_their_official_use(tree: Path) -> None:
    for city in ("cph", "london"):
        fill(tree / "train_val" / city / "query", "ab")
        fill(tree / "train_val" / city / "database", "ab")
    fill(tree / "test" / "miami" / "query", "ab", labels=False)
    fill(tree / "test" / "miami" / "database", "ab", labels=False)
    photos = msls.load(tree, strict=True)
    expected = {"alba": "train", "brig": "train", "cph": "val", "london": "train", "miami": "test"}
    assert splits(photos) == expected
    there = photos.take(photos.city == "miami")
    assert len(there) == 4 and np.isnan(there.easting).all()
    assert all(len(found) == 0 for found in there.positives(1e9))
    assert there.sequence is not None and (there.sequence >= 0).all()


def test_subtasks_filter_validation_and_test_only(tree: Path) -> None:
    photos = msls.load(tree, subtask="all")
    assert [key for key in photos.keys if "brig" in key] == ["brig-database_a", "brig-query_a"]
    assert sum("alba" in key for key in photos.keys) == 6
    (tree / "train_val" / "brig" / "query" / SUB).unlink()
    with pytest.raises(
        DataError, match=r"brig/query/subtask_index.csv: field 'all': the files do not say what subtask"
    ):
        msls.load(tree, subtask="all", strict=True)
    assert len(msls.load(tree, strict=True)) == 12  # without a filter the file may be absent
    with pytest.raises(DataError, match="no subtask 'nope'; known: all, s2w"):
        msls.load(tree, subtask="nope")  # type: ignore[arg-type]


def test_subtasks_without_keys_go_by_the_running_number(tree: Path) -> None:
    path = tree / "train_val" / "brig" / "query" / SUB
    header, *lines = path.read_text().splitlines()
    rows = [line.split(",") for line in (header, *reversed(lines))]
    path.write_text("\n".join(",".join(row[:1] + row[2:]) for row in rows))
    photos = msls.load(tree, strict=True)
    assert photos.keys[photos.subtasks["all"]].tolist() == [
        "alba-database_a",
        "alba-query_a",
        "brig-database_a",
        "brig-query_a",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cities": ["rome"]}, "no city 'rome'; found alba, brig"),
        ({"val_cities": ["rome"]}, "no validation city 'rome'; found alba, brig"),
        ({"test_cities": ["rome"]}, "no city 'rome'"),
    ],
)
def test_unknown_cities(tree: Path, options: dict[str, list[str]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        msls.load(tree, **options)  # type: ignore[arg-type]


def test_not_a_tree(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no city in it: expected train_val"):
        msls.load(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        msls.load(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="expected a folder"):
        msls.load(tmp_path / "file")


# ---- Damage: which file, line and field is named, and how many photographs are left


@pytest.mark.parametrize(
    ("table", "old", "new", "where", "what", "left"),
    [
        (SEQ, "sequence_key", "sequence_id", f"{SEQ}:1: field 'sequence_key'", "no column 'sequence_key'", 12),
        (RAW, ",lat,", ",latitude,", f"{RAW}:1: field 'lat'", "no column 'lat'", 12),
        (POST, ",easting", ",east", f"{POST}:1: field 'easting'", "no column 'easting'", 12),
        (POST, "590010.0", "far", f"{POST}:3: field 'easting'", "expected a number, found 'far'", 15),
        (POST, "590010.0", "1e300", f"{POST}:3: field 'easting'", "out of range", 15),
        (POST, "True,Forward", "maybe,Forward", f"{POST}:3: field 'night'", "expected True or False", 15),
        (POST, "True,Forward", "True,Upward", f"{POST}:3: field 'view_direction'", "found 'Upward'", 15),
        (RAW, "63.4", "93.4", f"{RAW}:2: field 'lat'", "out of range: '93.4', expected -90 to 90", 15),
        (RAW, "10.0,", "-181,", f"{RAW}:2: field 'lon'", "out of range: '-181', expected -180 to 180", 15),
        (RAW, "2017-06-10", "long ago", f"{RAW}:2: field 'captured_at'", "expected a date", 15),
        (RAW, "False", "0.5", f"{RAW}:2: field 'pano'", "expected True or False", 15),
        (SEQ, "s0,1", "s0,x", f"{SEQ}:3: field 'frame_number'", "expected a number, found 'x'", 15),
        (SEQ, "s0,1", ",1", f"{SEQ}:3: field 'sequence_key'", "expected some text", 15),
        (SEQ, "alba-query_b", "../../query_b", f"{SEQ}:3: field 'key'", "expected letters, digits", 15),
        (SEQ, "alba-query_b", "alba-query_a", f"{SEQ}:3: field 'key'", "'alba-query_a' is already on line 2", 15),
        (SEQ, "alba-query_b", "alba-query_z", f"{SEQ}:3: field 'key'", "alba-query_z has no usable row in raw", 15),
        (RAW, "1,alba-query_b", "1,alba-query_z", f"{SEQ}:3: field 'key'", "no usable row in raw.csv", 15),
        (SUB, "True,False,False,False,True", "True,no,False,False,True", f"{SUB}:2: field 's2w'", "found 'no'", 16),
        (SUB, "0,alba-query_a", "0,alba-query_x", f"{SUB}: field 'key'", "no row for alba-query_a", 16),
        (SEQ, "3,alba-query_d,s1,3\n", "3,alba-query_d\n", f"{SEQ}:5: ", "2 fields, the header has 4", 15),
    ],
)
def test_damage_in_tables(tree: Path, table: str, old: str, new: str, where: str, what: str, left: int) -> None:
    edit(tree / "train_val" / "alba" / "query" / table, old, new)
    with pytest.raises(DataError) as strict:
        msls.load(tree, exclude_panos=False, strict=True)
    assert f"alba/query/{where}" in str(strict.value) and what in str(strict.value)
    assert str(strict.value).endswith(")") or "no row for" in what  # a remedy
    photos = msls.load(tree, exclude_panos=False)
    assert len(photos) == left
    assert any(str(error) == str(strict.value) for error in photos.problems.found)


def test_damage_in_pictures(tree: Path) -> None:
    images = tree / "train_val" / "alba" / "query" / "images"
    (images / "alba-query_a.jpg").unlink()
    (images / "stray.jpg").write_bytes(jpeg())
    (images / "alba-query_b.jpg").write_bytes((images / "alba-query_b.jpg").read_bytes()[:-60])
    (images / "alba-query_c.jpg").write_bytes(b"")
    (images / "notes.txt").write_text("not a picture")
    seen: list[tuple[int, int]] = []
    found = msls.check(tree, progress=lambda done, total: seen.append((done, total)))
    texts = [str(error) for error in found.problems.found]
    assert len(texts) == 4
    assert any(f"{SEQ}:2: field 'key': alba-query_a has no picture in images" in text for text in texts)
    assert any("stray.jpg: no row in seq_info.csv" in text for text in texts)
    assert any("alba-query_b.jpg: truncated" in text for text in texts)
    assert any("alba-query_c.jpg: empty file" in text for text in texts)
    assert found.layout == "msls" and found.counts["photos"] == 15 and found.counts["whole pictures"] == 13
    assert (found.counts["queries"], found.counts["database"], found.counts["panoramas"]) == (7, 8, 4)
    assert seen == [(15, 15)]
    with pytest.raises(DataError, match="has no picture in images"):
        msls.check(tree, strict=True)


def test_a_volume_that_was_not_unpacked_is_one_problem(tree: Path) -> None:
    shutil.rmtree(tree / "train_val" / "alba" / "query" / "images")
    photos = msls.load(tree, exclude_panos=False)
    assert len(photos) == 12 and photos.problems.count == 1
    assert "alba/query/images: no pictures" in str(photos.problems.found[0])
    shutil.rmtree(tree / "train_val" / "alba" / "database")
    photos = msls.load(tree, exclude_panos=False)
    assert len(photos) == 8 and "database/seq_info.csv: no such file" in str(photos.problems.found[0])
    shutil.rmtree(tree / "train_val" / "brig")
    with pytest.raises(DataError, match="no such file"):
        msls.load(tree)


def test_a_photograph_in_two_folders_counts_once(tree: Path) -> None:
    source, target = tree / "train_val" / "alba" / "database", tree / "train_val" / "alba" / "query"
    shutil.rmtree(target)
    shutil.copytree(source, target)
    photos = msls.load(tree, exclude_panos=False)
    assert len(photos) == 12 and photos.problems.count == 4
    assert "alba-database_a is in" in str(photos.problems.found[0])


def test_a_whole_tree_has_no_problems(tree: Path) -> None:
    found = msls.check(tree, strict=True)
    assert found.counts["whole pictures"] == found.counts["photos"] == 16 and found.counts["val cities"] == 1


# ---- Broken tables


def test_broken_tables() -> None:
    rng = np.random.default_rng(11)
    start, refused, listed = time.process_time(), 0, 0
    with damaged_files.quick_folder() as root:
        folder = root / "train_val" / "alba" / "query"
        fill(folder, "abcd")
        fill(folder.parent / "database", "a")
        for name in (SEQ, RAW, POST, SUB):
            whole = (folder / name).read_bytes()
            for number in range(some(2_500)):
                (folder / name).write_bytes(damaged_files.table_of(whole, rng))
                try:
                    photos = msls.load(root, strict=number % 2 == 1)
                    assert 1 <= len(photos) <= 5
                    listed += photos.problems.count > 0
                except DataError as error:
                    assert str(root) in str(error)
                    refused += 1
            (folder / name).write_bytes(whole)
    assert refused > some(3_000) and listed > some(2_500)
    assert time.process_time() - start < 60  # about 12 s on a free machine
