"""The town's photographs as MSLS and as a phone's folders, read back by the loaders of the real things."""

from __future__ import annotations

import csv
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from wayfare.io import exif
from wayfare.io.images import decode
from wayfare.places.data import msls, photos
from wayfare.places.data.place_photos import Group
from wayfare.town.model import Camera, Photo, Shot, Truth, View
from wayfare.town.write import msls as write_msls
from wayfare.town.write import photos as write_photos

CAMERA = Camera("Aurora 5", 70.0, height=1.6, gain=(1.0, 1.0, 1.0), gamma=1.0, noise=1.0, vignette=0.1)
CITIES = {"norr": (59.3, 18.0), "sur": (-33.4, -70.6)}  # north-east and south-west: all signs occur
VIEW = View(np.zeros((8, 16, 3), np.uint8), np.zeros((8, 16), np.int16), (), ())
TRUTH = Truth((), (), (), labels=(), attributes=(), segments=np.zeros((8, 16), np.int16))


def jpeg(number: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (16, 8), (number % 256, 90, 30)).save(out, "JPEG", quality=90)
    return out.getvalue()


def shot(city: str, walker: int, frame: int, **changes: Any) -> Shot:
    """Walkers go east 8 m at a time: those of one street (0-3, 4-7, ...) cover the same ground."""
    street, place = divmod(walker, 4)
    facts: dict[str, Any] = {
        "key": f"{city}-{walker:04}-{frame:04}".ljust(22, "x"),
        "city": city,
        "walker": f"{city}-walker{walker}",
        "sequence": f"{city}-sequence{walker}".ljust(22, "x"),
        "frame": frame,
        "x": 8.0 * frame + place,
        "y": 100.0 * street,
        "heading": 90.0 + walker,
        "time": 30_000.25 + 600 * walker + 30 * frame,
        "date": ("2023-07-01", "2023-12-20", "2024-07-02", "2024-12-21")[place],
        "camera": CAMERA,
        "weather": "clear",
        "season": ("summer", "winter")[place % 2],
        "night": place == 3,
        "direction": ("Forward", "Backward", "Sideways")[walker % 3],
        "pano": frame == 5,
        "role": ("resident", "tourist", "vehicle", "resident")[place],
    }
    return Shot(**(facts | changes))


def photo_of(taken: Shot) -> Photo:
    south, west = CITIES[taken.city]
    latitude = south + taken.y / 111_000
    return Photo(taken, VIEW, TRUTH, latitude, west + taken.x / (111_000 * np.cos(np.radians(south))))


def written(layout: Any, folder: Path, shots: list[Shot], seed: int = 0, backwards: bool = False) -> list[Photo]:
    """All that the layout wants, taken in some order, then indexed."""
    wanted = [photo_of(item) for item in shots if layout.wants(item)]
    entries: dict[str, tuple[Shot, dict[str, Any]]] = {}
    for number, photo in sorted(enumerate(wanted), reverse=backwards):
        found = layout.take(folder, folder / "stage", number, photo, jpeg(number))
        entries[photo.shot.key] = (photo.shot, json.loads(json.dumps(found)))
    layout.index(folder, folder / "stage", [entries[photo.shot.key] for photo in wanted], seed)
    return wanted


def bytes_below(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.fixture
def shots() -> list[Shot]:
    return [shot(city, walker, frame) for city in CITIES for walker in range(12) for frame in range(10)]


# ---- MSLS


def test_msls_round_trip(tmp_path: Path, shots: list[Shot]) -> None:
    wanted = written(write_msls, tmp_path, shots)
    assert msls.recognises(tmp_path)
    found = msls.load(tmp_path, exclude_panos=False, strict=True)
    assert found.groups == (Group("norr", "34N"), Group("sur", "19S"))
    assert sorted(found.keys) == sorted(photo.shot.key for photo in wanted)
    row_of = {key: row for row, key in enumerate(found.keys)}
    assert found.latitude is not None and found.longitude is not None and found.heading is not None
    assert found.sequence is not None and found.frame is not None and found.captured is not None
    assert found.night is not None and found.pano is not None and found.direction is not None
    for number, photo in enumerate(wanted):
        row = row_of[photo.shot.key]
        assert (found.latitude[row], found.longitude[row]) == (photo.latitude, photo.longitude)
        assert found.heading[row] == photo.shot.heading
        assert found.sequences[found.sequence[row]] == photo.shot.sequence and found.frame[row] == photo.shot.frame
        assert found.captured[row] == np.datetime64(photo.shot.date)
        assert (found.night[row], found.pano[row]) == (photo.shot.night, photo.shot.pano)
        assert found.direction[row] == photo.shot.direction and found.city[row] == photo.shot.city
        assert found.paths()[row].read_bytes() == jpeg(number)
    assert msls.check(tmp_path, strict=True).counts["whole pictures"] == 240


def test_msls_positions_are_those_of_the_town(tmp_path: Path, shots: list[Shot]) -> None:
    wanted = written(write_msls, tmp_path, shots)
    found = msls.load(tmp_path, exclude_panos=False)
    here = {photo.shot.key: photo.shot for photo in wanted}
    rows = np.flatnonzero(found.city == "norr")
    x = np.array([here[key].x for key in found.keys[rows]])
    y = np.array([here[key].y for key in found.keys[rows]])
    east, north = found.easting[rows] - found.easting[rows].min(), found.northing[rows] - found.northing[rows].min()
    # the grid is turned by the meridian's convergence and the town's degrees are round numbers: half a per cent
    assert np.hypot(east[:, None] - east, north[:, None] - north) == pytest.approx(
        np.hypot(x[:, None] - x, y[:, None] - y), rel=0.006
    )


def test_msls_tables_look_like_the_real_ones(tmp_path: Path, shots: list[Shot]) -> None:
    written(write_msls, tmp_path, shots)
    folder = tmp_path / "train_val" / "sur" / "database"
    expected = {
        "seq_info.csv": ",key,sequence_key,frame_number",
        "raw.csv": ",key,lon,lat,ca,captured_at,pano",
        "postprocessed.csv": ",key,easting,northing,unique_cluster,control_panel,night,view_direction",
        "subtask_index.csv": ",key,all,s2w,w2s,o2n,n2o,d2n,n2d",
    }
    tables = {}
    for name, header in expected.items():
        assert (folder / name).read_text().splitlines()[0] == header
        with (folder / name).open() as file:
            tables[name] = list(csv.DictReader(file))
        assert [row[""] for row in tables[name]] == [str(number) for number in range(len(tables[name]))]
    keys = [[row["key"] for row in rows] for rows in tables.values()]
    assert keys[0] == keys[1] == keys[2] == keys[3]
    raw, post = tables["raw.csv"][0], tables["postprocessed.csv"][0]
    assert raw["pano"] in ("True", "False") and len(raw["captured_at"]) == 10 and raw["captured_at"][4] == "-"
    assert post["control_panel"] == "False" and post["view_direction"] in ("Forward", "Backward", "Sideways")
    # frames of a sequence follow each other, as code that looks at neighbouring rows expects
    order = [(row["sequence_key"], int(row["frame_number"])) for row in tables["seq_info.csv"]]
    assert all(b[1] == a[1] + 1 for a, b in pairwise(order) if a[0] == b[0])
    assert len({a[0] for a in order}) == 1 + sum(a[0] != b[0] for a, b in pairwise(order))


def test_queries_are_whole_sequences_that_can_be_answered(tmp_path: Path, shots: list[Shot]) -> None:
    written(write_msls, tmp_path, shots)
    found = msls.load(tmp_path, exclude_panos=False)
    assert found.query is not None and found.sequence is not None and found.pano is not None
    queries = set(found.sequence[found.query].tolist())
    assert queries.isdisjoint(found.sequence[~found.query].tolist())
    for city in CITIES:
        assert 0.25 <= found.query[found.city == city].mean() <= 1 / 3
    flat = found.take(~found.pano)
    assert np.mean([len(near) > 0 for near in flat.positives(25)]) >= 0.95


def test_a_sequence_that_nobody_else_crosses_is_not_a_query(tmp_path: Path) -> None:
    lonely = [shot("norr", 40 * walker, frame) for walker in range(1, 7) for frame in range(4)]  # 1 km apart
    together = [shot("norr", walker, frame) for walker in range(4) for frame in range(4)]
    for seed in range(5):
        written(write_msls, tmp_path / str(seed), lonely + together, seed)
        found = msls.load(tmp_path / str(seed))
        assert found.query is not None and 4 <= found.query.sum() <= 12
        assert all(key.split("-")[1] < "0004" for key in found.keys[found.query])


def test_a_city_with_no_choice_still_has_queries(tmp_path: Path) -> None:
    written(write_msls, tmp_path, [shot("norr", 400 * walker, frame) for walker in range(2) for frame in range(4)])
    found = msls.load(tmp_path, strict=True)
    assert found.query is not None and found.query.sum() == 4
    written(write_msls, tmp_path / "one", [shot("norr", 0, frame) for frame in range(4)])
    found = msls.load(tmp_path / "one", strict=True)
    assert found.query is not None and found.query.sum() == 0


def test_subtasks_by_hand(tmp_path: Path) -> None:
    """One street, four walkers: 0 old summer, 1 old winter, 2 new summer, 3 new winter by night; one is the query."""
    chosen = [shot("norr", walker, frame, pano=False) for walker in range(4) for frame in range(6)]
    for seed in range(40):
        folder = tmp_path / str(seed)
        written(write_msls, folder, chosen, seed)
        found = msls.load(folder)
        assert found.query is not None
        asked = {key.split("-")[1] for key in found.keys[found.query]}
        assert len(asked) == 1
        if asked == {"0002"}:
            break
    flags = {
        name: sorted({key.split("-")[1][-1] for key in found.keys[column]}) for name, column in found.subtasks.items()
    }
    # the query (2) is new, of summer, by day: s2w, n2o and d2n ask it; the database has the other side
    assert flags == {
        "all": ["0", "1", "2", "3"],
        "s2w": ["1", "2", "3"],
        "w2s": ["0"],
        "o2n": ["3"],
        "n2o": ["0", "1", "2"],
        "d2n": ["2", "3"],
        "n2d": ["0", "1"],
    }


def test_signs_are_not_in_msls() -> None:
    assert write_msls.wants(shot("norr", 0, 0)) and write_msls.wants(shot("norr", 0, 5))
    assert not write_msls.wants(shot("norr", 0, 0, role="signage"))


def test_the_same_bytes_in_any_order_and_another_seed_asks_others(tmp_path: Path, shots: list[Shot]) -> None:
    for layout in (write_msls, write_photos):
        name = layout.__name__
        written(layout, tmp_path / name / "a", shots)
        written(layout, tmp_path / name / "b", shots, backwards=True)
        assert bytes_below(tmp_path / name / "a") == bytes_below(tmp_path / name / "b")
    written(write_msls, tmp_path / "other", shots, seed=1)
    assert bytes_below(tmp_path / "other").keys() != bytes_below(tmp_path / write_msls.__name__ / "a").keys()


def test_an_index_that_was_interrupted_can_be_made_again(tmp_path: Path, shots: list[Shot]) -> None:
    for layout in (write_msls, write_photos):
        folder = tmp_path / layout.__name__
        wanted = written(layout, folder, shots)
        whole = bytes_below(folder)
        entries = [(photo.shot, {"latitude": photo.latitude, "longitude": photo.longitude}) for photo in wanted]
        layout.index(folder, folder / "stage", entries, 0)
        assert bytes_below(folder) == whole


# ---- A phone's photographs


def test_photos_round_trip(tmp_path: Path) -> None:
    many = [shot(city, walker, frame) for city in CITIES for walker in range(24) for frame in range(10)]
    wanted = written(write_photos, tmp_path, many)
    assert 0.04 * len(many) < len(wanted) < 0.2 * len(many)
    found = photos.load(tmp_path, strict=True)
    assert photos.form_of(tmp_path) == "exif" and photos.recognises(tmp_path) and len(found) == len(wanted)
    assert {group.zone for group in found.groups} == {"34N", "19S"}
    assert found.latitude is not None and found.longitude is not None and found.heading is not None
    assert found.captured is not None and found.camera is not None
    row_of = {file: row for row, file in enumerate(found.files)}
    for photo in wanted:
        clock = np.datetime64(photo.shot.date) + np.timedelta64(int(photo.shot.time), "s")
        row = row_of[f"{photo.shot.walker}/IMG_{clock.item():%Y%m%d_%H%M%S}.jpg"]
        assert found.latitude[row] == pytest.approx(photo.latitude, abs=2e-10)
        assert found.longitude[row] == pytest.approx(photo.longitude, abs=2e-10)
        assert found.heading[row] == pytest.approx(photo.shot.heading, abs=0.005)
        assert found.captured[row] == clock and found.camera[row] == "Wayfare Aurora 5"
        assert not photo.shot.pano and photo.shot.role in ("resident", "tourist")
    assert set(found.sequences) == {photo.shot.walker for photo in wanted}


def test_two_photographs_in_one_second(tmp_path: Path) -> None:
    many = [shot("norr", walker, frame, time=30_000.0, pano=False) for walker in range(16) for frame in range(20)]
    wanted = written(write_photos, tmp_path, many)
    by_walker: dict[str, list[int]] = {}
    for number, photo in enumerate(wanted):
        by_walker.setdefault(photo.shot.walker, []).append(number)
    numbers = max(by_walker.values(), key=len)
    assert len(numbers) > 2
    folder = tmp_path / wanted[numbers[0]].shot.walker
    day = wanted[numbers[0]].shot.date.replace("-", "")
    names = [f"IMG_{day}_082000.jpg", *(f"IMG_{day}_082000_{count}.jpg" for count in range(1, len(numbers)))]
    assert sorted(file.name for file in folder.iterdir()) == sorted(names)
    for number, name in zip(numbers, names):  # the first has the plain name, whoever was written first
        assert (decode(folder / name) == decode(jpeg(number))).all()


def test_exif_is_put_in_without_touching_the_picture() -> None:
    content = write_photos.with_exif(jpeg(7), photo_of(shot("sur", 0, 0, heading=359.999)))
    assert content[:4] == b"\xff\xd8\xff\xe1" and content.endswith(jpeg(7)[2:])
    tags = Image.open(io.BytesIO(content)).getexif()
    gps = tags.get_ifd(exif.GPS_IFD)
    assert (gps[exif.LATITUDE_REF], gps[exif.LONGITUDE_REF], gps[exif.DIRECTION]) == ("S", "W", 0.0)
    assert [float(part) for part in gps[exif.LATITUDE]] == [33.0, 24.0, 0.0]  # 33.4 degrees
    assert [float(part) for part in gps[exif.LONGITUDE]] == [70.0, 36.0, 0.0]
    assert tags.get_ifd(exif.EXIF_IFD)[exif.TAKEN] == "2023:07:01 08:20:00"
