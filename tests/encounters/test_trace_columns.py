"""Files of bare numbers: intervals, positions, links and contacts are told apart, or asked back, never misread."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wayfare.cli import main
from wayfare.core.errors import ConfigError, DataError
from wayfare.encounters import traces
from wayfare.encounters.contacts import contact_process
from wayfare.encounters.trace_columns import form_of
from wayfare.encounters.traces import Contacts, Traces
from wayfare.io.layouts import find

INTERVALS = "7 9 0 65\n9 11 30 31\n7 11 300 300\n"
POSITIONS = "0 1 0.0 0.0\n0 2 30.0 0.0\n30 1 0.0 0.0\n30 2 400.0 0.0\n60 1 0.0 5.0\n60 2 40.0 5.0\n"


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def pairs_by_slot(found: Contacts) -> list[tuple[int, str, str]]:
    return [(int(slot), found.devices[a], found.devices[b]) for slot, (a, b) in zip(found.slots, found.pairs)]


WITH_HEADER, WITH_MORE = "i,j,start,end\n" + INTERVALS.replace(" ", ","), INTERVALS.replace("\n", " 1 0\n")


@pytest.mark.parametrize("text", [INTERVALS, WITH_HEADER, WITH_MORE])
def test_intervals_are_contacts_in_every_slot_that_they_touch(tmp_path, text):
    found = traces.load(written(tmp_path / "t.txt", text), slot=30.0)
    assert isinstance(found, Contacts) and not found.problems.count
    # by hand: 0..65 s are slots 0, 1, 2; 30..31 s is slot 1; 300 s is slot 10
    assert pairs_by_slot(found) == [(0, "7", "9"), (1, "7", "9"), (1, "9", "11"), (2, "7", "9"), (10, "7", "11")]


@pytest.mark.parametrize("names", ["", "phone-"])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 0, 2, 3)])
def test_positions_of_several_devices_in_one_file(tmp_path, order, names):
    rows = [[time, names + device, *place] for time, device, *place in map(str.split, POSITIONS.splitlines())]
    if order[0]:
        rows.sort(key=lambda row: row[1])  # `id t x y` comes device by device
    text = "".join(" ".join(row[at] for at in order) + "\n" for row in rows)
    found = traces.load(written(tmp_path / "t.txt", text), slot=30.0)
    assert isinstance(found, Traces) and found.devices == (names + "1", names + "2") and len(found.positions) == 3
    met = traces.contacts_within(found, 50.0)  # 30 m, then 400 m, then 40 m apart
    assert met.slots.tolist() == [0, 2]


def test_latitudes_and_longitudes_are_no_intervals(tmp_path):
    rows = [f"{30 * t} {d} {25.0331 + 0.0001 * t:.5f} {121.5654 + 0.0001 * d:.5f}" for t in range(5) for d in (3, 4)]
    found = traces.load(written(tmp_path / "t.txt", "\n".join(rows)), slot=30.0)
    assert isinstance(found, Traces) and found.geographic and found.devices == ("3", "4")


def test_links_that_go_up_and_down(tmp_path):
    text = "10 CONN a b up\n70 CONN b a down\n40 CONN a c up\n100 CONN c b down\n130 CONN x y up\n"
    found = traces.load(written(tmp_path / "t.txt", text), slot=30.0)
    assert isinstance(found, Contacts) and [problem.line for problem in found.problems.found] == [4]
    # a-b 10..70 s: slots 0 to 2; a-c from 40 s to the end, 130 s: 1 to 4; x-y 130 s: 4
    slots = {name: [s for s, a, b in pairs_by_slot(found) if a + b == name] for name in ("ab", "ac", "xy")}
    assert slots == {"ab": [0, 1, 2], "ac": [1, 2, 3, 4], "xy": [4]}


def test_contacts_with_the_time_last(tmp_path):
    text = "".join(f"{a} {b} {t}\n" for t, (a, b) in enumerate([(5, 1), (2, 3), (4, 5), (1, 2), (3, 4), (5, 2)]))
    found = traces.load(written(tmp_path / "t.txt", text), slot=1.0)
    assert isinstance(found, Contacts) and pairs_by_slot(found)[0] == (0, "5", "1") and len(found.devices) == 5


@pytest.mark.parametrize(
    ("rows", "form"),
    [
        (["20 1 2", "40 1 3"], "meetings"),
        (["20 1 2 3A 3B"], "meetings"),
        (["0 1.5 2"], "walk"),
        (["1 2 0 10", "1 3 5 6"], "intervals"),
        (["0 1 5 4.5", "30 1 6 4"], "positions"),
        (["3 1 9 2", "4 2 8 1"], None),  # no device twice: who is it, and when?
        (["1 2 3 4 5", "2 3 4 5 6"], None),
        (["1 2"], None),
        (["1 2 3", "1 2"], None),
    ],
)
def test_forms(rows, form):
    assert form_of([row.split() for row in rows]) == form


def test_columns_of_no_known_form_are_asked_back(tmp_path, capsys):
    file = written(tmp_path / "t.txt", "1 2 3 4 5\n2 3 4 5 6\n")
    assert not traces.recognises(file)
    with pytest.raises(DataError, match=r"t\.txt has 5 columns of numbers.*topology\.layout.*intervals"):
        traces.load(file)
    assert main(["data", "check", str(file)]) == 1
    assert "not in a known layout" in capsys.readouterr().err


def test_arbitrary_lists_are_no_contacts(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 10**6, (60, 3))
    with pytest.raises(DataError, match="60 contacts of 120 devices, so most devices are there once"):
        traces.load(written(tmp_path / "t.txt", "\n".join(" ".join(map(str, row)) for row in rows)))
    crowd = "\n".join(f"{i // 20} {i} {(i + k) % 2000}" for i in range(2000) for k in (1, 2))
    with pytest.raises(DataError, match="2,000 devices meet within 99 seconds"):
        traces.load(written(tmp_path / "u.txt", crowd))
    assert len(traces.load(tmp_path / "u.txt", form="meetings").devices) == 2000  # if you say so


def test_the_layout_overrides_what_a_file_looks_like(tmp_path, capsys):
    file = written(tmp_path / "t.txt", "10 1 20 2\n40 2 50 1\n")
    assert traces.load(file, form="positions").devices == ("1", "2")
    assert [item.form for item in find(file, "positions")] == ["positions"]
    assert main(["data", "check", str(file), "--layout", "positions"]) == 0
    assert "metres east" in capsys.readouterr().out
    assert contact_process(file, form="positions").devices == ("1", "2")
    with pytest.raises(ConfigError, match="did you mean 'intervals'"):
        find(file, "interval")
    with pytest.raises(ConfigError, match="unknown form of traces 'x'"):
        traces.load(file, form="x")


def test_times_that_are_no_seconds_are_noticed(tmp_path):
    with pytest.raises(DataError, match="are the times really seconds"):
        traces.load(written(tmp_path / "t.txt", "1 2 0 3000000000\n1 3 0 1000\n"))
