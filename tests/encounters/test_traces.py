"""Traces and contacts: numbers worked out by hand, every form they come in, and what is wrong with them."""

from __future__ import annotations

import gzip
import io
import math
import os
import tarfile
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

import damaged_files
from amount import some
from wayfare.core.errors import ConfigError, DataError
from wayfare.encounters import traces
from wayfare.encounters.traces import Contacts, Traces, contact_statistics, contacts_within, encounters
from wayfare.io import earth

SHARED = Path(os.environ.get("WAYFARE_SHARED", Path(__file__).parents[2].parent / "shared")) / "data" / "traces"
needs_real = pytest.mark.skipif(not SHARED.is_dir(), reason=f"no real traces in {SHARED}")

TOWN = """device,time,lat,lon,stationary
ann,2024-06-21T06:00:00,10.0,20.0,False
ann,2024-06-21T06:01:00,10.0,20.001,False
bob,2024-06-21T06:00:30,10.001,20.0,True
bob,2024-06-21T06:01:30,10.001,20.0,True
"""
LAUGHS = (  # a kilobyte that would be a gigabyte
    '<?xml version="1.0"?>\n<!DOCTYPE gpx [<!ENTITY a0 "ha">'
    + "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 10))
    + "]><gpx><trk><name>&a9;</name><trkseg></trkseg></trk></gpx>"
)
GPX = """<?xml version="1.0"?>
<gpx xmlns="http://www.topografix.com/GPX/1/1"><metadata><time>2020-01-01T00:00:00Z</time></metadata><trk><trkseg>
<trkpt lat="48.0" lon="11.0"><ele>500</ele><time>2024-06-21T06:00:00Z</time></trkpt>
<trkpt lat="48.001" lon="11.0"><time>2024-06-21T06:00:30Z</time></trkpt>
</trkseg></trk></gpx>
"""
VISITS = """visitor,time_unix,poi,sequence
v1,1000000000,a,1
v1,1000000600,b,1
v1,1000090000,a,2
v2,1000086400,b,3
v2,1000086400,a,3
"""
PLACES = "poi,name,lat,lon\na,Ride,33.0,-117.0\nb,Show,33.001,-117.0\n"


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def positions(found: Traces | Contacts) -> np.ndarray:
    assert isinstance(found, Traces)
    return found.positions


def made(*tracks: list[tuple[float, float] | None], slot: float = 30.0) -> Traces:
    """Traces from positions per device; None is absent."""
    table = np.array([[point or (math.nan, math.nan) for point in track] for track in tracks], np.float32)
    names = tuple(f"d{number}" for number in range(len(tracks)))
    return Traces(
        names,
        slot,
        start=0.0,
        date="",
        positions=table.swapaxes(0, 1),
        stationary=np.zeros(len(tracks), bool),
        origin=(0.0, 0.0),
        geographic=False,
    )


# ---- Contacts by hand


def test_two_who_pass_each_other_are_near_for_as_long_as_arithmetic_says() -> None:
    # 1.2 m/s each, from 240 m apart: within 50 m from 79.2 s to 120.8 s, so in the slots at 90 s and 120 s
    towards = [(1.2 * t, 0.0) for t in range(0, 270, 30)]
    against = [(240 - 1.2 * t, 0.0) for t in range(0, 270, 30)]
    found = made(towards, against)
    contacts = contacts_within(found, 50.0)
    assert contacts.slots.tolist() == [3, 4] and contacts.pairs.tolist() == [[0, 1], [0, 1]]
    assert encounters(contacts).tolist() == [[0, 1, 3, 4]]
    statistics = contact_statistics(found, 50.0)
    assert statistics["device_hours"] == pytest.approx(18 * 30 / 3600)
    assert statistics["contacts_per_device_hour"] == pytest.approx(2 / 0.15)  # each of the two has one
    assert statistics["duration_median"] == statistics["duration_p90"] == 60.0
    assert math.isnan(statistics["pause_median"]) and statistics["pairs_that_meet"] == 1.0


def test_pauses_absences_and_pairs_that_never_meet() -> None:
    still = [(0.0, 0.0)] * 10
    returns = [(10.0, 0.0) if slot in (0, 1, 5, 6, 7, 9) else (60.0, 0.0) for slot in range(10)]
    away = [(500.0, 0.0) if slot < 5 else None for slot in range(10)]
    statistics = contact_statistics(made(still, returns, away))
    assert statistics["device_hours"] == pytest.approx(25 * 30 / 3600)
    assert statistics["contacts"] == 3 and statistics["contact_slots"] == 6
    assert statistics["duration_median"] == 60.0 and statistics["duration_p90"] == pytest.approx(84.0)  # 30, 60, 90
    assert statistics["pause_median"] == pytest.approx(90.0)  # 4 slots and 2
    assert statistics["pairs_that_meet"] == pytest.approx(1 / 3)


def test_the_radius_itself_counts_and_an_empty_street_has_no_contacts() -> None:
    apart = made([(0.0, 0.0)], [(50.0, 0.0)])
    assert len(contacts_within(apart, 50.0).slots) == 1 and len(contacts_within(apart, 49.9).slots) == 0
    nothing = contact_statistics(apart, 1.0)
    assert nothing["contacts"] == 0 and nothing["pairs_that_meet"] == 0 and math.isnan(nothing["duration_median"])
    assert contacts_within(made([None], [None])).pairs.shape == (0, 2)


# ---- Positions by hand


def test_metres_on_the_earth() -> None:
    # WGS 84 at the equator: a thousandth of a degree is 110.574 m of latitude, 111.319 m of longitude
    metres = earth.to_metres(np.array([[0.001, 0.0], [0.0, 0.001]]), (0.0, 0.0))
    assert metres == pytest.approx(np.array([[0.0, 110.574], [111.319, 0.0]]), abs=1e-3)
    # at 60 degrees a degree of longitude is half as long, but for the flattening: 55.800 m
    assert earth.to_metres(np.array([60.0, 10.001]), (60.0, 10.0))[0] == pytest.approx(55.800, abs=1e-3)
    somewhere = np.random.default_rng(0).uniform(-20_000, 20_000, (50, 2))
    back = earth.to_metres(earth.to_degrees(somewhere, (-43.5, 172.6)), (-43.5, 172.6))
    assert back == pytest.approx(somewhere, abs=1e-3)


def test_the_towns_table(tmp_path: Path) -> None:
    found = traces.load(written(tmp_path / "town.csv", TOWN))
    assert isinstance(found, Traces)
    assert found.devices == ("ann", "bob") and found.stationary.tolist() == [False, True]
    assert (found.start, found.date, found.slot) == (6 * 3600, "2024-06-21", 30.0)
    assert found.origin == (10.0, 20.0) and found.problems.count == 0
    east, north = 109.639, 110.608  # of a thousandth of a degree at 10 degrees
    expected = [[(0, 0), None], [(east / 2, 0), (0, north)], [(east, 0), (0, north)], [None, (0, north)]]
    table = np.array([[point or (math.nan,) * 2 for point in row] for row in expected])
    assert found.positions == pytest.approx(table, abs=2e-3, nan_ok=True)
    assert found.in_file()[1, 0] == pytest.approx((10.0, 20.0005), abs=1e-7)


def test_between_rows_positions_are_on_the_line_and_after_a_gap_there_are_none(tmp_path: Path) -> None:
    text = "device,time,x,y\na,0,0,0\na,45,90,9\na,1000,0,0\nb,10,5,5\nb,100,5,5\n"
    found = positions(traces.load(written(tmp_path / "t.csv", text)))
    assert len(found) == 34  # 0 to 990 s; the row at 1000 s is nearest to 990
    assert found[1, 0] == pytest.approx((60, 6))
    assert found[33, 0] == pytest.approx((0, 0)) and np.isnan(found[3:33, 0]).all()
    assert np.isnan(found[0, 1]).sum() == 0 and np.isnan(found[4:, 1]).all()  # 10 s is nearest to 0, 100 s to 90
    longer = positions(traces.load(tmp_path / "t.csv", gap=955.0))
    assert longer[10, 0] == pytest.approx((90 - 90 * 255 / 955, 9 - 9 * 255 / 955))
    assert len(positions(traces.load(tmp_path / "t.csv", slot=10.0))) == 101


def test_a_device_that_stands_still_is_there_between_its_rows(tmp_path: Path) -> None:
    text = "device,time,x,y,stationary\nsign,0,7,7,1\nsign,7200,7,7,1\nann,0,0,0,0\nann,7200,9,9,0\n"
    found = traces.load(written(tmp_path / "t.csv", text))
    present = ~np.isnan(positions(found)[..., 0])
    assert present[:, 0].all() and present[:, 1].sum() == 2


def test_the_date_line_is_no_border(tmp_path: Path) -> None:
    text = "device,time,lat,lon\na,0,0,179.9995\na,30,0,-179.9995\n"
    found = traces.load(written(tmp_path / "t.csv", text))
    assert positions(found)[:, 0, 0] == pytest.approx((0, 111.319), abs=1e-2)
    assert isinstance(found, Traces) and found.in_file()[1, 0, 1] == pytest.approx(-179.9995, abs=1e-6)


def test_times_with_a_zone_are_turned_into_utc(tmp_path: Path) -> None:
    text = "user;timestamp;latitude;longitude\na;2024-06-21T08:00:00+02:00;1;1\na;2024-06-21T06:00:30Z;1;1\n"
    found = traces.load(written(tmp_path / "t.csv", text))
    assert isinstance(found, Traces) and found.start == 6 * 3600 and len(found.positions) == 2


# ---- Other forms


def test_a_folder_or_zip_of_walks(tmp_path: Path) -> None:
    written(tmp_path / "walks" / "one.txt", "  0.0\t -4.5\t 9.0\t\n 30.0\t -1.5\t 9.0\t\n")
    written(tmp_path / "walks" / "two.txt", "0.0 5.5 10.0\n60.0 5.5 11.0\n")
    written(tmp_path / "walks" / "README.txt", "Walks of two people.")
    with zipfile.ZipFile(tmp_path / "walks.zip", "w") as archive:
        for file in sorted((tmp_path / "walks").iterdir()):
            archive.write(file, f"walks/{file.name}")
    for path in (tmp_path / "walks", tmp_path / "walks.zip"):
        assert traces.recognises(path)
        found = traces.load(path)
        assert isinstance(found, Traces) and found.devices == ("one", "two") and found.origin == (-4.5, 9.0)
        assert found.positions[:2, 0].tolist() == [[0, 0], [3, 0]] and np.isnan(found.positions[2, 0, 0])
        assert found.positions[:, 1].tolist() == [[10, 1], [10, 1.5], [10, 2]]
        assert found.in_file()[0, 1].tolist() == [5.5, 10.0]


def test_contact_lists_plain_and_packed(tmp_path: Path) -> None:
    text = "20 7 9\n40 9 7\n40 7 8\n100 7 9\n"
    plain = written(tmp_path / "tij.dat", text)
    (tmp_path / "tij.dat.gz").write_bytes(gzip.compress(text.encode()))
    with tarfile.open(tmp_path / "days.tgz", "w:gz") as archive:
        archive.add(plain, "days/tij.dat")
    for path in (plain, tmp_path / "tij.dat.gz", tmp_path / "days.tgz"):
        assert traces.recognises(path)
        found = traces.load(path, slot=20.0)
        assert isinstance(found, Contacts) and found.devices == ("7", "9", "8") and found.start == 20.0
        assert found.slots.tolist() == [0, 1, 1, 4] and found.pairs.tolist() == [[0, 1], [0, 1], [0, 2], [0, 1]]
        statistics = contact_statistics(found)
        assert statistics["contacts"] == 3 and statistics["pause_median"] == 60.0
        assert statistics["device_hours"] == pytest.approx((5 + 5 + 1) * 20 / 3600)
    assert traces.check(plain).counts["contacts"] == 4


def test_gpx(tmp_path: Path) -> None:
    found = traces.load(written(tmp_path / "ann.gpx", GPX))
    assert isinstance(found, Traces) and found.devices == ("ann",) and found.date == "2024-06-21"
    assert found.positions[:, 0, 1] == pytest.approx((0, 111.2), abs=0.02)


def test_visits_are_folded_to_one_day(tmp_path: Path) -> None:
    # v1's first visit is the longer one; it begins at 01:46:40 of its day, v2's at the same hour of the next
    written(tmp_path / "park_pois.csv", PLACES)
    written(tmp_path / "other_pois.csv", PLACES.replace("33.0", "44.0"))
    found = traces.load(written(tmp_path / "park_visits.csv", VISITS))
    assert isinstance(found, Traces) and found.devices == ("v1", "v2") and found.origin == (33.0, -117.0)
    present = ~np.isnan(found.positions[..., 0])
    assert present.sum(axis=0).tolist() == [21, 1] and present[0].all()
    assert found.positions[20, 0, 1] == pytest.approx(110.9 * 590 / 600, abs=0.1)  # at 590 s of 600
    (tmp_path / "park_pois.csv").unlink()
    (tmp_path / "other_pois.csv").unlink()
    with pytest.raises(DataError, match=r"park_visits\.csv.*attractions"):
        traces.load(tmp_path / "park_visits.csv")


def test_what_is_not_a_trace_is_not_recognised(tmp_path: Path) -> None:
    photos = "file,device,time,lat,lon\na.jpg,phone,2024-06-21T06:00:00,1,1\n"
    assert not traces.recognises(written(tmp_path / "photos" / "photos.csv", photos))
    assert not traces.recognises(tmp_path / "photos")
    assert not traces.recognises(written(tmp_path / "key.csv", ",key,lon,lat,ca,captured_at,pano\n0,a,1,1,1,2,False\n"))
    assert not traces.recognises(written(tmp_path / "notes.txt", "Dear diary,\n1 2 3\n"))
    assert not traces.recognises(written(tmp_path / "pois.csv", PLACES))
    assert not traces.recognises(written(tmp_path / "empty.csv", ""))
    assert not traces.recognises(tmp_path / "nowhere")
    with tarfile.open(tmp_path / "notes.tar", "w") as archive:
        archive.add(tmp_path / "notes.txt", "notes.txt")
    assert not traces.recognises(tmp_path / "notes.tar")
    assert traces.recognises(written(tmp_path / "town" / "traces" / "a.csv", TOWN)) and traces.recognises(
        tmp_path / "town"
    )


def test_check_counts_and_cities_far_apart_are_counted_one_by_one(tmp_path: Path) -> None:
    written(tmp_path / "a.csv", TOWN)
    counts = dict(traces.check(tmp_path / "a.csv").counts)
    assert counts["devices"] == 2 and counts["stationary"] == 1 and counts["slots"] == 4 and counts["hours"] == 0.03
    assert counts["metres east"] == pytest.approx(109.6) and counts["metres north"] == pytest.approx(110.6)
    written(tmp_path / "b.csv", TOWN.replace(",10.0", ",50.0"))
    with pytest.raises(DataError, match=r"b\.csv.*not on one map.*one file at a time"):
        traces.load(tmp_path)
    both = traces.check(tmp_path)
    assert both.counts["a.csv: devices"] == both.counts["b.csv: devices"] == 2 and both.problems.count == 0


# ---- What is wrong


ROW = "ann,2024-06-21T06:01:00,10.0,20.001,False"
BROKEN_ROWS = {
    "ann,2024-06-21T06:01:00,10.0": r"3 fields, the header has 5",
    "ann,2024-06-21T06:01:00,91,20,False": r"'lat'.*out of range",
    "ann,2024-06-21T06:01:00,10,-180.1,False": r"'lon'.*out of range",
    "ann,2024-06-21T06:01:00,nan,20,False": r"'lat'.*finite",
    "ann,2024-06-21T06:01:00,ten,20,False": r"'lat'.*expected a number",
    "ann,21st of June,10,20,False": r"'time'.*2024-06-21T06:00:00",
    "ann,3021-06-21T06:01:00,10,20,False": r"'time'.*1900 to 2199",
    "ann,360,10,20,False": r"'time'.*2024-06-21T06:00:00",  # the rows before have dates
    ",2024-06-21T06:01:00,10,20,False": r"'device'.*text",
    "ann,2024-06-21T06:01:00,10,20,perhaps": r"'stationary'.*True or False",
    "ann,2024-06-21T06:00:00,10,20,False": r"'time'.*'ann' has a row for this time or a later one",
    "ann,2024-06-21T05:59:00,10,20,False": r"'time'.*'ann' has a row for this time or a later one",
    "ann,2024-06-21T06:01:00,50,20,False": r"km from where most are",
}


@pytest.mark.parametrize("row", BROKEN_ROWS)
def test_a_broken_row_is_left_out_and_listed_or_raised(tmp_path: Path, row: str) -> None:
    path = written(tmp_path / "t.csv", TOWN.replace(ROW, row))
    found = traces.load(path)
    assert isinstance(found, Traces) and found.devices == ("ann", "bob") and found.problems.count == 1
    assert found.problems.found[0].line == 3 and found.problems.found[0].file == path
    assert (~np.isnan(found.positions[:, 0, 0])).sum() == 1  # ann's first row is used
    assert traces.check(path).problems.count == 1
    with pytest.raises(DataError, match=rf"t\.csv:3: .*{BROKEN_ROWS[row]}"):
        traces.load(path, strict=True)


BROKEN_FILES = {
    "missing column": (TOWN.replace("lat,", "latte,"), r":1: field 'lat': no column 'lat'"),
    "no device": (TOWN.replace("device,", "gadget,"), r":1: field 'device': no column 'device'"),
    "two columns": (TOWN.replace("stationary\n", "time\n", 1), r":1: field 'time': two columns"),
    "header only": (TOWN.partition("\n")[0] + "\n", r"no row that can be used"),
    "nothing right": (TOWN.replace("2024", "x"), r"no row that can be used.*:2: field 'time'"),
    "empty": ("", r"no traces: expected a table"),
    "prose": ("It was a dark and stormy night.\n", r"no traces: expected a table"),
    "centuries": (TOWN.replace("2024-06-21T06:00:00", "1924-06-21T06:00:00"),
                  r"field 'time': \d+ slots of 30 s for 2 devices are too many"),
    "doctype": (GPX.replace("<gpx", '<!DOCTYPE x [<!ENTITY a "b">]><gpx'), r":2: has a document type"),
    "entities that grow": (LAUGHS, r":2: has a document type"),
    "not a latitude": (GPX.replace('lat="', 'lat="north'), r"not GPX"),
    "not xml": (GPX.replace("</trkseg>", ""), r":5: not XML"),
    "point without time": (GPX.replace("<time>2024-06", "<time>soon"), r"no row that can be used.*:3: field 'trkpt'"),
    "nul": (TOWN + "\0", r":6: contains a NUL"),
    "two continents": ("device,time,lat,lon\na,0,10,10\nb,0,-10,-100\n", r"no row that can be used.*km from"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN_FILES)
def test_a_broken_file_is_one_error(tmp_path: Path, name: str) -> None:
    text, expected = BROKEN_FILES[name]
    with pytest.raises(DataError, match=rf"(?s)t\.csv.*{expected}"):
        traces.load(written(tmp_path / "t.csv", text))


def test_broken_lines_of_walks_and_contacts(tmp_path: Path) -> None:
    walk = traces.load(written(tmp_path / "walk.txt", "0 1.5 2\n30 1.5\n60 east 2\n90 1.5 2 3\n120 1.5 2\n"))
    assert [(problem.line, "t x y" in str(problem)) for problem in walk.problems.found] == [
        (n, True) for n in (2, 3, 4)
    ]
    contacts = traces.load(written(tmp_path / "tij.txt", "20 1 2\n20 2 1\n40 3 3\nsoon 1 2\n60 1 2 Doctor Nurse\n"))
    assert isinstance(contacts, Contacts) and contacts.slots.tolist() == [0, 2]
    reasons = [str(problem) for problem in contacts.problems.found]
    assert [problem.line for problem in contacts.problems.found] == [4, 2, 3]
    assert "same contact is on line 1" in reasons[1] and "'3' meets itself" in reasons[2]


def test_a_stranger_among_the_walks_is_listed(tmp_path: Path) -> None:
    written(tmp_path / "one.txt", "0 1.5 2\n")
    written(tmp_path / "two.txt", "torn\n0 1.5 2\n")
    found = traces.load(tmp_path)
    assert found.devices == ("one",) and found.problems.found[0].file == tmp_path / "two.txt"
    written(tmp_path / "met.txt", "20 1 2\n")
    with pytest.raises(DataError, match="several kinds"):
        traces.load(tmp_path)


def test_archives_are_not_trusted(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "out.zip", "w") as archive:
        archive.writestr("../../out.txt", "0 1.5 2\n")
    with pytest.raises(DataError, match="points outside the folder"):
        traces.load(tmp_path / "out.zip")
    bomb = gzip.compress(b"0 1.5 2\n" * 2_000_000)
    (tmp_path / "bomb.txt.gz").write_bytes(bomb)
    with pytest.raises(DataError, match="unpacks to more than"):
        traces.load(tmp_path / "bomb.txt.gz")
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(os.urandom(3000).hex().encode())[:-20])
    with pytest.raises(DataError, match="cannot be unpacked"):
        traces.load(tmp_path / "cut.txt.gz")
    with pytest.raises(DataError, match="no such file"):
        traces.load(tmp_path / "nowhere.csv")
    with pytest.raises(ConfigError, match="a slot lasts 0"):
        traces.load(tmp_path / "bomb.txt.gz", slot=0.0)


def test_broken_files_give_no_exception_but_data_error() -> None:
    rng = np.random.default_rng(0)
    start = time.process_time()
    refused = listed = 0
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.txt", "0 1.5 2\n30 2.5 2\n")
    kinds = {
        "town.csv": (TOWN.encode(), 4_000, damaged_files.table_of),
        "plain.csv": (b"device,time,x,y\na,0,1,2\na,30,2,2\nb,0,5,5\nb,60,5,7\n", 2_000, damaged_files.table_of),
        "walk.txt": (b"0 1.5 2\n30 2.5 2\n60 3.5 2\n", 1_500, lambda data, rng: damaged_files.table_of(data, rng, " ")),
        "met.dat": (b"20 1 2\n40 1 2\n40 2 3\n", 1_500, lambda data, rng: damaged_files.table_of(data, rng, " ")),
        "ann.gpx": (GPX.encode(), 1_500, damaged_files.bytes_of),
        "park_visits.csv": (VISITS.encode(), 1_000, damaged_files.table_of),
        "park_pois.csv": (PLACES.encode(), 500, damaged_files.table_of),
        "walks.zip": (packed.getvalue(), 500, damaged_files.bytes_of),
        "met.dat.gz": (gzip.compress(b"20 1 2\n40 1 2\n", mtime=0), 500, damaged_files.bytes_of),
    }
    with damaged_files.quick_folder() as root:
        for name, (whole, _, _) in kinds.items():
            (root / name).write_bytes(whole)
        for name, (whole, count, damage) in kinds.items():
            read = root / ("park_visits.csv" if name == "park_pois.csv" else name)
            for number in range(some(count)):
                (root / name).write_bytes(damage(whole, rng))
                try:
                    found = traces.load(read, strict=number % 2 == 1)
                    assert len(found.devices) > 0
                    listed += found.problems.count > 0
                    traces.recognises(read)
                    if number % 50 == 0:
                        contact_statistics(found)
                except DataError as error:
                    assert str(root) in str(error)
                    refused += 1
            (root / name).write_bytes(whole)
    assert refused > some(3_000) and listed > some(1_000)
    assert time.process_time() - start < 60  # about 10 s on a free machine


# ---- Real traces


@needs_real
def test_campus_walks_have_the_known_number_of_contacts() -> None:
    found = traces.load(SHARED / "kaist.zip", strict=True)
    assert isinstance(found, Traces) and len(found.devices) == 92
    statistics = contact_statistics(found)
    assert statistics["contact_slots"] == pytest.approx(173_000, rel=0.01)
    assert statistics["contacts"] == pytest.approx(23_700, rel=0.01)


@needs_real
def test_park_visits_have_about_the_known_number_of_contacts() -> None:
    found = traces.load(SHARED / "themepark_visits.csv.gz", strict=True)
    assert isinstance(found, Traces) and len(found.devices) == 2_593 and len(found.positions) <= 2_880
    statistics = contact_statistics(found)
    assert statistics["contact_slots"] == pytest.approx(1_200_000, rel=0.2)
    assert statistics["contacts"] == pytest.approx(72_000, rel=0.05)


@needs_real
def test_a_conference_and_a_museum() -> None:
    conference = traces.load(SHARED / "SFHH_tij.dat.gz", slot=20.0, strict=True)
    assert isinstance(conference, Contacts) and len(conference.devices) == 403 and len(conference.slots) == 70_261
    museum = SHARED / "sciencegallery_infectious_contacts.tgz"
    assert traces.recognises(museum)
    found = traces.check(museum, strict=True)
    assert found.counts["devices"] == 10_972 and found.problems.count == 0


def test_large_traces_are_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.csv").write_text("device,time,x,y\na,0,0,0\na,90,30,0\nb,30,5,5\n")
    inside = traces.load(tmp_path / "t.csv")
    monkeypatch.setattr(traces, "IN_MEMORY", 3)
    outside = traces.load(tmp_path / "t.csv")
    assert isinstance(inside, traces.Traces) and isinstance(outside, traces.Traces)
    assert isinstance(outside.positions, np.memmap) and not isinstance(inside.positions, np.memmap)
    np.testing.assert_array_equal(outside.positions, inside.positions)
    assert outside.positions[:, 0, 0].tolist() == [0, 10, 20, 30]
