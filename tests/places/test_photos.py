"""Folders of people's own photographs: tables, names with @, EXIF, sets of frames; whole, damaged, and real ones."""

from __future__ import annotations

import io
import json
import os
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.TiffImagePlugin import IFDRational

import damaged_files
from amount import some
from wayfare.core.errors import DataError
from wayfare.io import exif
from wayfare.places.data import frames, photos
from wayfare.places.data.place_photos import Group

SHARED = Path(os.environ.get("WAYFARE_SHARED", Path(__file__).parents[3] / "shared")) / "data" / "places"


def jpeg(tags: Image.Exif | bytes = b"", colour: int = 0, form: str = "JPEG") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (16, 8), (colour, 90, 30)).save(out, form, exif=tags)
    return out.getvalue()


def put(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# ---- A table


@pytest.fixture
def campus(tmp_path: Path) -> Path:
    rows = ["file,lat,lon,x_m,date,time,device,night,session"]
    for number in range(4):
        put(tmp_path / "campus" / "images" / f"{number}.jpg", jpeg(colour=number))
        stamp = f"20251222,0947{number}0"
        rows.append(f"{number}.jpg,31.2619{number},34.80118,1.5,{stamp},{'AB'[number // 2]},{number % 2},{number // 3}")
    put(tmp_path / "campus" / "meta.csv", "\n".join(rows) + "\n")
    return tmp_path / "campus"


def test_a_table_is_read(campus: Path) -> None:
    found = photos.load(campus, strict=True)
    assert found.files.tolist() == [f"images/{number}.jpg" for number in range(4)]
    assert found.groups == (Group("", "36N"),)
    assert np.diff(found.northing) == pytest.approx([1.109] * 3, abs=0.002)  # a hundred-thousandth of a degree
    assert found.captured is not None and found.captured[1] == np.datetime64("2025-12-22T09:47:10")
    assert found.night is not None and found.night.tolist() == [False, True, False, True]
    assert found.sequence is not None and found.sequence.tolist() == [0, 0, 0, 1]
    assert found.camera is not None and found.camera.tolist() == ["A", "A", "B", "B"]
    assert found.query is None and found.heading is None and set(found.split) == {""}
    assert photos.recognises(campus) and photos.form_of(campus) == "table"


def test_other_words_delimiters_and_places(tmp_path: Path) -> None:
    put(tmp_path / "a" / "1.jpg", jpeg())
    put(tmp_path / "a" / "2.png", jpeg(form="PNG"))
    rows = "Latitude;LONG;Filename;Bearing;timestamp;role;split;city;extra\n"
    rows += "59.9;10.7;a/1.jpg;-90;2024-06-21T08:15:23;query;val;oslo;x\n-33.9;18.4;.\\a\\2.png;;;database;;cape;y\n"
    put(tmp_path / "list.csv", "\ufeff" + rows.replace("\n", "\r\n"))
    found = photos.load(tmp_path, strict=True)
    assert found.files.tolist() == ["a/1.jpg", "a/2.png"]
    assert found.groups == (Group("oslo", "32N"), Group("cape", "34S"))
    assert found.heading is not None and found.heading[0] == 270 and np.isnan(found.heading[1])
    assert found.captured is not None and np.isnat(found.captured).tolist() == [False, True]
    assert found.query is not None and found.query.tolist() == [True, False]
    assert found.split.tolist() == ["val", ""]


def test_a_table_without_header_or_with_a_rival(campus: Path) -> None:
    put(campus / "gt.csv", "0.jpg,31.2,34.8\n")  # no header: not taken for the table
    assert len(photos.load(campus, strict=True)) == 4
    put(campus / "more.csv", "file,lat,lon\n0.jpg,31.2,34.8\n")
    with pytest.raises(DataError, match=r"several tables: meta.csv, more.csv \(say which one\)"):
        photos.load(campus)
    assert len(photos.load(campus, table=campus / "more.csv")) == 1
    with pytest.raises(DataError, match=r"gt.csv:1: field 'file': no column 'file'"):
        photos.load(campus, table=campus / "gt.csv")


def edit(path: Path, old: str, new: str) -> None:
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "where", "what"),
    [
        ("31.26191", "91.26191", ":3: field 'lat'", "out of range: '91.26191', expected -90 to 90"),
        ("34.80118", "nan", ":2: field 'lon'", "expected a finite number, found 'nan'"),
        ("1.jpg", "../1.jpg", ":3: field 'file'", "'../1.jpg' points outside the folder"),
        ("1.jpg", "/etc/1.jpg", ":3: field 'file'", "'/etc/1.jpg' points outside the folder"),
        ("1.jpg", "0.jpg", ":3: field 'file'", "'0.jpg' is already on line 2"),
        ("1.jpg", "images/0.jpg", ":3: field 'file'", "'images/0.jpg' is already on line 2"),
        ("1.jpg", "9.jpg", ":3: field 'file'", "no picture '9.jpg'"),
        ("094710", "0947x0", ":3: field 'time'", "expected a date and time"),
        ("A,1", "A,dark", ":3: field 'night'", "expected True or False, found 'dark'"),
    ],
)
def test_damage_in_a_table(campus: Path, old: str, new: str, where: str, what: str) -> None:
    edit(campus / "meta.csv", old, new)
    with pytest.raises(DataError) as strict:
        photos.load(campus, strict=True)
    assert f"meta.csv{where}: {what}" in str(strict.value) and str(strict.value).endswith(")")
    found = photos.load(campus)
    kept = 4 if "only this field" in str(strict.value) else 3
    assert len(found) == kept and str(found.problems.found[0]) == str(strict.value)


def test_pictures_beside_the_table(campus: Path) -> None:
    put(campus / "images" / "stray.jpg", jpeg())
    put(campus / "images" / "2.jpg", jpeg(colour=2)[:-50])
    found = photos.check(campus)
    stray, short = (str(error).partition("images/")[2] for error in found.problems.found)
    assert stray == "stray.jpg: not in meta.csv (add a line for it, or remove it)"
    assert short.startswith("2.jpg: truncated") and short.endswith("(remove it, or copy it again)")
    assert found.counts["photos"] == 4 and found.counts["whole pictures"] == 3
    with pytest.raises(DataError, match=r"stray\.jpg: not in meta\.csv"):
        photos.check(campus, strict=True)


# ---- Names


DEEP = "@0395201.31@5673135.24@32@U@051.20000@0007.50000@key1@@090@@@@20190807@night_sideways_bonn@.jpg"
DEEP_SOUTH = "@0261878.00@6243186.00@34@H@-33.92490@0018.42410@None@@@@@@@@.jpg"
SEQUENCE = "@0395201.31@5673135.24@seqA@17@key1@bonn@20190807@.jpg"


def test_names_of_deep_vg(tmp_path: Path) -> None:
    put(tmp_path / "images" / "train" / "database" / DEEP, jpeg())
    put(tmp_path / "images" / "test" / "queries" / "deeper" / DEEP_SOUTH, jpeg())
    put(tmp_path / "images" / "val" / "queries" / "@12.5@-7@.jpg", jpeg())  # all that is needed
    found = photos.load(tmp_path, strict=True)
    assert photos.form_of(tmp_path) == "names" and photos.recognises(tmp_path)
    assert found.split.tolist() == ["test", "train", "val"]
    assert found.query is not None and found.query.tolist() == [True, False, True]
    assert [found.groups[group] for group in found.group] == [Group("", "34S"), Group("bonn", "32N"), Group("", "")]
    assert found.easting.tolist() == [261878.0, 395201.31, 12.5] and found.northing[2] == -7
    assert found.latitude is not None and found.latitude[:2].tolist() == [-33.9249, 51.2]
    assert found.heading is not None and found.heading[1] == 90 and np.isnan(found.heading[0])
    assert found.captured is not None and found.captured[1] == np.datetime64("2019-08-07")
    assert found.night is not None and found.night.tolist() == [False, True, False]
    assert found.direction is not None and found.direction.tolist() == ["", "Sideways", ""]
    assert found.sequence is None


def test_names_with_sequences(tmp_path: Path) -> None:
    for number in (17, 18):
        put(tmp_path / "train" / "database" / "seqA" / SEQUENCE.replace("@17@", f"@{number}@"), jpeg())
    put(tmp_path / "train" / "queries" / "seqB" / SEQUENCE.replace("seqA", "seqB"), jpeg())
    found = photos.load(tmp_path, strict=True)
    assert found.sequences == ("seqA", "seqB")
    assert found.sequence is not None and found.sequence.tolist() == [0, 0, 1]
    assert found.frame is not None and found.frame.tolist() == [17, 18, 17]
    assert found.groups == (Group("bonn", ""),)
    assert [rows.tolist() for rows in found.positives(1)] == [[0, 1]]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("plain.jpg", "expected a name such as @0395201.31@5673135.24@.jpg"),
        ("@1@.jpg", "expected a name such as"),
        ("@@2@.jpg", "field 'easting': expected a number, found ''"),
        ("@1@inf@.jpg", "field 'northing': expected a finite number, found 'inf'"),
        ("@1@2e9@.jpg", "field 'northing': out of range"),
        (DEEP.replace("@32@U", "@61@U"), "field 'zone': out of range: '61', expected 1 to 60"),
        (DEEP_SOUTH.replace("@34@H", "@34@I"), "field 'zone letter': expected a letter from C to X"),
        (DEEP.replace("051.2", "091.2"), "field 'latitude': out of range"),
        (DEEP.replace("@090@", "@north@"), "field 'heading': expected a number"),
        (DEEP.replace("20190807", "20191307"), "field 'timestamp': expected a date"),
        (SEQUENCE.replace("@17@", "@x@"), "field 'frame': expected a number"),
        (SEQUENCE.replace("20190807", "soon"), "field 'timestamp': expected a date"),
    ],
)
def test_damaged_names(tmp_path: Path, name: str, message: str) -> None:
    put(tmp_path / DEEP.replace("key1", "good"), jpeg())
    put(tmp_path / name, jpeg())
    with pytest.raises(DataError) as strict:
        photos.load(tmp_path, strict=True)
    assert f"{name}: {message}" in str(strict.value) and str(strict.value).endswith("(rename it)")
    found = photos.load(tmp_path)
    assert len(found) == 1 and str(found.problems.found[0]) == str(strict.value)


def test_broken_names() -> None:
    rng = np.random.default_rng(3)
    start, kept, listed, thrown = time.process_time(), 0, 0, 0
    with damaged_files.quick_folder() as root:
        for _ in range(some(100)):
            names = set()
            while len(names) < 100:
                name = (DEEP, DEEP_SOUTH, SEQUENCE)[rng.integers(0, 3)].removesuffix(".jpg")
                broken = damaged_files.table_of(name.encode(), rng, "@").decode("latin-1")
                short = broken.translate(dict.fromkeys(b"/\0\n")).encode()[:200].decode("utf-8", "ignore")
                names.add("@" + short.lstrip(".@") + ".jpg")
            for name in sorted(names):
                (root / name).touch()
            (root / DEEP).touch()
            found = photos.load(root)
            kept, listed, thrown = kept + len(found), listed + found.problems.count, thrown + len(names | {DEEP})
            for file in root.iterdir():
                file.unlink()
    assert thrown >= some(10_000) and kept + listed == thrown
    assert listed > some(4_000) and kept > some(1_000)
    assert time.process_time() - start < 60


# ---- EXIF


def tags(**changes: object) -> Image.Exif:
    """What a phone writes in Cape Town; `latitude=None` leaves a tag out."""
    gps: dict[str, object] = {
        "latitude_ref": "S",
        "latitude": (33.0, 55.0, IFDRational(2964, 100)),
        "longitude_ref": "E",
        "longitude": (18.0, 25.0, IFDRational(2676, 100)),
        "direction": IFDRational(1805, 10),
        "taken": "2024:06:21 08:15:23",
    }
    gps |= changes
    found = Image.Exif()
    found[exif.MAKE], found[exif.MODEL] = "Acme", "Phone 3"
    if gps["taken"] is not None:
        found.get_ifd(exif.EXIF_IFD)[exif.TAKEN] = gps["taken"]
    numbers = {"latitude_ref": 1, "latitude": 2, "longitude_ref": 3, "longitude": 4, "direction": 17}
    found.get_ifd(exif.GPS_IFD).update({number: gps[name] for name, number in numbers.items() if gps[name] is not None})
    return found


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_exif_is_read(tmp_path: Path, form: str) -> None:
    put(tmp_path / f"a.{form.lower()}", jpeg(tags(), form=form))
    found = photos.load(tmp_path, strict=True)
    assert found.latitude is not None and found.longitude is not None
    assert found.latitude[0] == pytest.approx(-(33 + 55 / 60 + 29.64 / 3600), abs=1e-12)
    assert found.longitude[0] == pytest.approx(18 + 25 / 60 + 26.76 / 3600, abs=1e-12)
    assert found.heading is not None and found.heading[0] == 180.5
    assert found.captured is not None and found.captured[0] == np.datetime64("2024-06-21T08:15:23")
    assert found.camera is not None and found.camera[0] == "Acme Phone 3"
    assert found.groups == (Group("", "34S"),) and found.sequence is None
    assert photos.recognises(tmp_path)


def test_folders_are_sequences_and_may_say_what_for(tmp_path: Path) -> None:
    for name in ("database/anna/1.jpg", "database/anna/2.jpg", "query/bob/1.jpg"):
        put(tmp_path / name, jpeg(tags()))
    found = photos.load(tmp_path)
    assert found.sequences == ("database/anna", "query/bob")
    assert found.query is not None and found.query.tolist() == [False, False, True]
    assert photos.form_of(tmp_path) == "exif"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"latitude": None, "longitude": None}, "field 'GPSLatitude': no position in its EXIF"),
        ({"longitude": None}, "field 'GPSLongitude': expected degrees, minutes and seconds"),
        ({"latitude_ref": None}, "field 'GPSLatitudeRef': expected N or S, found ''"),
        ({"longitude_ref": "X"}, "field 'GPSLongitudeRef': expected E or W, found 'X'"),
        ({"latitude": (91.0, 0.0, 0.0)}, "field 'GPSLatitude': out of range: 91, expected 0 to 90"),
        ({"longitude": (180.0, 0.0, 1.0)}, "field 'GPSLongitude': out of range"),
        ({"latitude": (33.0, 55.0, IFDRational(1, 0))}, "field 'GPSLatitude': expected degrees"),
        ({"latitude": (1.0, 2.0, 3.0, 4.0)}, "field 'GPSLatitude': expected degrees"),
        ({"latitude": (0.0,) * 3, "longitude": (0.0,) * 3}, "field 'GPSLatitude': the position is 0, 0"),
    ],
)
def test_positions_that_make_no_sense(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    put(tmp_path / "good.jpg", jpeg(tags()))
    put(tmp_path / "bad.jpg", jpeg(tags(**changes)))
    with pytest.raises(DataError) as strict:
        photos.load(tmp_path, strict=True)
    assert f"bad.jpg: {message}" in str(strict.value) and "give its position in a table" in str(strict.value)
    found = photos.load(tmp_path)
    assert found.files.tolist() == ["good.jpg"] and str(found.problems.found[0]) == str(strict.value)


def test_nonsense_beside_a_good_position_is_not_known(tmp_path: Path) -> None:
    put(tmp_path / "a.jpg", jpeg(tags(direction=IFDRational(0, 0), taken="0000:00:00 00:00:00")))
    put(tmp_path / "b.jpg", jpeg(tags(direction=IFDRational(999, 1), taken="    :  :     :  :  ")))
    found = photos.load(tmp_path, strict=True)
    assert found.heading is not None and np.isnan(found.heading).all()
    assert found.captured is not None and np.isnat(found.captured).all()


def test_pictures_without_exif_or_without_picture(tmp_path: Path) -> None:
    put(tmp_path / "bare.jpg", jpeg())
    put(tmp_path / "empty.jpg", b"")
    put(tmp_path / "text.jpg", "not a picture")
    with pytest.raises(DataError, match=r"bare\.jpg: field 'GPSLatitude': no position in its EXIF"):
        photos.load(tmp_path)
    assert not photos.recognises(tmp_path)
    put(tmp_path / "good.jpg", jpeg(tags()))
    found = photos.load(tmp_path)
    texts = [str(error) for error in found.problems.found]
    assert len(found) == 1 and "empty.jpg: empty file" in texts[1] and "not a JPEG, PNG or WebP" in texts[2]
    with pytest.raises(DataError, match="no JPEG, PNG or WebP pictures in it"):
        photos.load(put(tmp_path / "none" / "x.txt", "").parent)
    with pytest.raises(DataError, match="no such folder"):
        photos.load(tmp_path / "nowhere")
    with pytest.raises(DataError, match="expected a folder of photographs"):
        photos.load(tmp_path / "text.jpg")


def test_a_large_photograph_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a.jpg", jpeg(tags()) + bytes(10**6))

    def refuse(path: Path) -> bytes:
        raise AssertionError(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert len(photos.load(tmp_path)) == 1


def test_broken_photographs() -> None:
    whole = [jpeg(tags()), jpeg(tags(), form="PNG"), jpeg(tags(), form="WEBP")]
    # most of the damage goes to the EXIF itself: it starts behind the marker, and has 300 bytes
    starts = [content.index(b"MM\0*") if b"MM\0*" in content else content.index(b"II*\0") for content in whole]
    rng = np.random.default_rng(5)
    start, kept, refused = time.process_time(), 0, 0
    with damaged_files.quick_folder() as root:
        for number in range(some(10_000)):
            content, place = whole[number % 3], starts[number % 3]
            if number % 4:
                inner = damaged_files.bytes_of(content[place : place + 300], rng)[:300].ljust(300, b"\0")
                broken = content[:place] + inner + content[place + 300 :]
            else:
                broken = damaged_files.bytes_of(content, rng)
            (root / "a.jpg").write_bytes(broken)
            try:
                found = photos.load(root, strict=number % 2 == 1)
                assert found.latitude is not None and abs(found.latitude[0]) <= 90
                kept += 1
            except DataError as error:
                assert "a.jpg" in str(error)
                refused += 1
    assert kept > some(1_000) and refused > some(1_000)
    assert time.process_time() - start < 60


def test_broken_tables() -> None:
    rng = np.random.default_rng(7)
    rows = "file,lat,lon,heading,date,time,sequence,frame,night,camera,city,role,split\n"
    for number in range(4):
        rows += f"{number}.jpg,31.26,34.8{number},{90 * number},20251222,0947{number}0,s,{number},1,A,x,query,val\n"
    start, refused, listed = time.process_time(), 0, 0
    with damaged_files.quick_folder() as root:
        for number in range(4):
            (root / f"{number}.jpg").touch()
        for number in range(some(10_000)):
            file = put(root / "t.csv", damaged_files.table_of(rows.encode(), rng))
            try:
                found = photos.load(root, table=file, strict=number % 2 == 1)
                listed += found.problems.count > 0
                assert len(found) <= 4
            except DataError as error:
                assert str(root) in str(error)
                refused += 1
    assert refused > some(3_000) and listed > some(2_000)
    assert time.process_time() - start < 60


# ---- Sets of frames


@pytest.fixture
def corridor(tmp_path: Path) -> Path:
    """Twelve frames each: 9 comes before 10 only if numbers count."""
    for folder in ("query", "ref"):
        for number in range(12):
            put(tmp_path / "corridor" / folder / f"frame{number}.jpg", jpeg(colour=number))
    return tmp_path / "corridor"


def pairs_of(root: Path, **options: object) -> list[list[int]]:
    """Pairs as frame numbers."""
    found = photos.load(root, **options)  # type: ignore[arg-type]
    assert found.pairs is not None and found.frame is not None and found.query is not None
    assert found.query[found.pairs[:, 0]].all() and not found.query[found.pairs[:, 1]].any()
    return [[int(found.frame[query]), int(found.frame[reference])] for query, reference in found.pairs]


def test_frames_in_step(corridor: Path) -> None:
    found = photos.load(corridor, tolerance=1, strict=True)
    assert len(found) == 24 and found.files[10] == "query/frame10.jpg"
    assert found.sequences == ("query", "reference") and np.isnan(found.easting).all()
    assert [rows.tolist() for rows in found.positives(25)][:2] == [[12, 13], [12, 13, 14]]
    assert len(pairs_of(corridor, tolerance=2)) == 12 * 5 - 6
    assert photos.form_of(corridor) == "frames" and photos.recognises(corridor)
    (corridor / "ref" / "frame3.jpg").unlink()
    with pytest.raises(DataError, match="12 query and 11 reference frames"):
        photos.load(corridor, tolerance=1)


def test_truth_as_a_table_or_json_or_integers(corridor: Path) -> None:
    expected = [[0, 11], [3, 1], [3, 2]]
    table = put(corridor / "ground_truth.csv", "query,reference\nframe3.jpg,ref/frame2.jpg\n3,1\n0,frame11.jpg\n3,1\n")
    assert pairs_of(corridor, strict=True) == expected
    table.unlink()
    for content in ([[3, [2, 1]], [0, ["frame11.jpg"]]], {"frame3.jpg": [1, 2], "0": [11]}):
        put(corridor / "ground_truth.json", json.dumps(content))
        assert pairs_of(corridor, strict=True) == expected
    (corridor / "ground_truth.json").unlink()
    np.save(corridor / "ground_truth.npy", np.array(expected, np.int32))
    assert pairs_of(corridor, strict=True) == expected
    np.save(corridor / "ground_truth.npy", np.asfortranarray(expected))
    assert pairs_of(corridor, truth=corridor / "ground_truth.npy") == expected


def test_lists_of_names_as_gsv_cities_has_them(corridor: Path) -> None:
    names = ["query/frame5.jpg", "query/none.jpg", "../up.jpg", "query/frame1.jpg"]
    np.save(corridor / "x_qImages.npy", np.array(names))
    np.save(corridor / "x_dbImages.npy", np.array([b"ref/frame7.jpg", b"ref/frame8.jpg"]))
    put(corridor / "matches.json", json.dumps([[0, [1]], [3, [0, 1]], [1, [0]]]))
    found = photos.load(corridor)
    assert found.files.tolist() == ["query/frame5.jpg", "query/frame1.jpg", "ref/frame7.jpg", "ref/frame8.jpg"]
    assert found.pairs is not None and found.pairs.tolist() == [[0, 3], [1, 2], [1, 3]]
    assert [str(error).partition("x_")[2] for error in found.problems.found] == [
        "qImages.npy: field '[1]': no picture 'query/none.jpg' (supply the picture, or correct the list)",
        "qImages.npy: field '[2]': '../up.jpg' points outside the folder (supply the picture, or correct the list)",
    ]


def test_truth_as_vpr_bench_and_gsv_cities_have_it(corridor: Path) -> None:
    rows = np.empty((2, 2), object)
    rows[:] = [[np.int64(1), [0, np.int32(2)]], [3, []]]
    np.save(corridor / "ground_truth_new.npy", rows, allow_pickle=True)
    vpr_bench = pairs_of(corridor)
    (corridor / "ground_truth_new.npy").unlink()
    lists = np.empty(2, object)
    lists[:] = [np.array([0, 2]), np.array([], int)]
    np.save(corridor / "x_pIdx.npy", lists, allow_pickle=True)
    assert pairs_of(corridor) == [[query - 1, reference] for query, reference in vpr_bench]  # without numbers: 0 and 1
    np.save(corridor / "x_qIdx.npy", np.array([1, 3]))
    assert pairs_of(corridor) == vpr_bench and len(vpr_bench) == 2
    np.save(corridor / "x_qIdx.npy", np.array([1]))
    with pytest.raises(DataError, match=r"2 lists for \(1,\) queries in x_qIdx\.npy"):
        photos.load(corridor)


@pytest.mark.parametrize("name", ["ground_truth_new.npy", "x_pIdx.npy"])
def test_pickles_that_would_run_code_are_refused(corridor: Path, tmp_path: Path, name: str) -> None:
    canary = tmp_path / "canary"

    class Trap:
        def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
            return canary.touch, ()

    with (corridor / name).open("wb") as file:
        np.lib.format.write_array(file, np.array([Trap()], object), allow_pickle=True)
    with pytest.raises(DataError, match=r"a pickle that is not read: it refers to .*save it as ground_truth\.json"):
        photos.load(corridor)
    found = photos.check(corridor)
    assert found.counts["photos"] == 24 and "a pickle" in str(found.problems.found[0])
    assert not canary.exists()
    put(corridor / "ground_truth.json", "[[0, [0]]]")  # a converted one beside it is taken
    assert pairs_of(corridor) == [[0, 0]]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("ground_truth.csv", "query,ref\n1,2\n", "ground_truth.csv:1: field 'reference': no column 'reference'"),
        ("ground_truth.csv", "query,reference\n1,12\n", "ground_truth.csv:2: no reference frame '12': expected a file"),
        ("ground_truth.csv", "query,reference\nx.jpg,1\n", "ground_truth.csv:2: no query frame 'x.jpg'"),
        ("ground_truth.json", "[[1, [-1]]]", "ground_truth.json: field '[0]': no reference frame -1"),
        ("ground_truth.json", "[[true, [1]]]", "field '[0]': no query frame True"),
        ("ground_truth.json", "[[1, 2]]", "field '[0]': expected [query, [reference, ...]]"),
        ("ground_truth.json", "3", "expected a list of [query, [reference, ...]]"),
        ("ground_truth.json", "[", "ground_truth.json:1: not JSON"),
        ("ground_truth.npy", "\x93NUMPY", "not an .npy file"),
    ],
)
def test_damaged_truth(corridor: Path, file: str, content: str, message: str) -> None:
    put(corridor / file, content)
    with pytest.raises(DataError) as strict:
        photos.load(corridor, strict=True)
    assert message in str(strict.value)


def test_no_truth_or_too_much(corridor: Path) -> None:
    with pytest.raises(DataError, match="expected one file that says which frames belong together, found none"):
        photos.load(corridor)
    put(corridor / "ground_truth.csv", "query,reference\n1,1\n")
    put(corridor / "matches.csv", "query,reference\n1,1\n")
    with pytest.raises(DataError, match=r"found ground_truth\.csv, matches\.csv"):
        photos.load(corridor)


def test_an_array_that_claims_to_be_huge(tmp_path: Path) -> None:
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (9999999999, 2), }".ljust(117) + b"\n"
    put(tmp_path / "a.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(16))
    with pytest.raises(DataError, match="but it has 16 bytes"):
        frames.read_array(tmp_path / "a.npy")


def test_broken_truths() -> None:
    rng = np.random.default_rng(13)
    arrays = io.BytesIO(), io.BytesIO()
    np.save(arrays[0], np.array([[0, 0], [1, 2], [2, 1]]))
    np.save(arrays[1], np.array(["query/0.jpg", "query/1.jpg"]))
    files = {
        "ground_truth.csv": b"query,reference\n0,0.jpg\n1.jpg,2\n2,1\n",
        "ground_truth.json": b'[[0, [0, 1]], ["1.jpg", [2, "0.jpg"]], [2, []]]',
        "ground_truth.npy": arrays[0].getvalue(),
        "qImages.npy": arrays[1].getvalue(),
    }
    start, refused, listed = time.process_time(), 0, 0
    with damaged_files.quick_folder() as root:
        for name in [f"{folder}/{number}.jpg" for folder in ("query", "ref") for number in range(3)]:
            put(root / name, b"")
        np.save(root / "dbImages.npy", np.array(["ref/0.jpg", "ref/1.jpg", "ref/2.jpg"]))
        for name, whole in files.items():
            for number in range(some(2_500)):
                broken = (
                    damaged_files.table_of(whole, rng) if name.endswith("csv") else damaged_files.bytes_of(whole, rng)
                )
                (root / name).write_bytes(broken)
                try:
                    found = photos.load(root, strict=number % 2 == 1, **({} if "truth" in name else {"tolerance": 1}))
                    listed += found.problems.count > 0
                except DataError as error:
                    assert str(root) in str(error)
                    refused += 1
            (root / name).unlink()
    assert refused > some(4_000) and listed > some(300)
    assert time.process_time() - start < 60


# ---- Real photographs


def unpacked(name: str, target: Path) -> Path:
    if not (SHARED / name).is_file():
        pytest.skip(f"{name} is not in {SHARED}: set WAYFARE_SHARED to the folder that has data/places")
    with zipfile.ZipFile(SHARED / name) as archive:
        archive.extractall(target)
    return next(path for path in target.iterdir() if path.is_dir())


def test_real_campus(tmp_path: Path) -> None:
    root = unpacked("bgu_campus.zip", tmp_path)
    found = photos.load(root)
    assert len(found) == 1_473
    assert found.night is not None and (~found.night).sum() == 694 and found.night.sum() == 779
    assert len(found.sequences) == 12 and found.groups == (Group("", "36N"),)
    assert np.ptp(found.easting) == pytest.approx(328, abs=1) and np.ptp(found.northing) == pytest.approx(74, abs=1)
    assert found.captured is not None and found.captured.min() == np.datetime64("2025-12-22T09:47:11")
    assert found.camera is not None and set(found.camera) == {"A", "B"}
    assert found.problems.count == 4  # pictures that the table does not have
    near = found.positives(10, np.flatnonzero(found.night), np.flatnonzero(~found.night))
    assert np.mean([len(rows) > 0 for rows in near]) > 0.9
    counts = photos.check(root).counts
    assert counts["whole pictures"] == 1_473 and counts["form"] == "table" and photos.recognises(root)


def test_real_corridor(tmp_path: Path) -> None:
    root = unpacked("corridor.zip", tmp_path)
    published = photos.load(root).pairs
    assert published is not None and len(published) == 549  # of VPR-Bench's own file; about two frames either way
    found = photos.load(root, tolerance=2, strict=True)
    assert len(found) == 222 and found.query is not None and found.query.sum() == 111
    assert found.pairs is not None and len(found.pairs) == 111 * 5 - 6
    assert photos.check(root).counts["whole pictures"] == 222
