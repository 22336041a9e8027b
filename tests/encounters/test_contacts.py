"""Who is near whom, slot by slot: numbers worked out by hand, any order of slots, days folded into one, bad traces."""

from __future__ import annotations

import math
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from wayfare.core.errors import ConfigError, DataError
from wayfare.core.seeds import rng_for
from wayfare.encounters import contact_summary as summaries
from wayfare.encounters import near, traces
from wayfare.encounters.contacts import (
    ListedContacts,
    LocatedContacts,
    contact_process,
    contact_summary,
    matching,
    priorities,
)
from wayfare.encounters.traces import Contacts, Traces, contact_statistics, contacts_within

SHARED = Path(os.environ.get("WAYFARE_SHARED", Path(__file__).parents[2].parent / "shared")) / "data" / "traces"
needs_real = pytest.mark.skipif(not SHARED.is_dir(), reason=f"no real traces in {SHARED}")
NOWHERE = (math.nan, math.nan)


def located(*tracks: list[tuple[float, float] | None], radius: float = 50.0) -> LocatedContacts:
    """From positions per device; None is absent."""
    table = np.array([[point or NOWHERE for point in track] for track in tracks], np.float32)
    names = tuple("abcdefgh"[: len(tracks)])
    still = np.zeros(len(tracks), bool)
    return LocatedContacts(
        Traces(
            names,
            30.0,
            start=0.0,
            date="",
            positions=table.swapaxes(0, 1),
            stationary=still,
            origin=(0.0, 0.0),
            geographic=False,
        ),
        radius,
    )


def listed(*rows: tuple[int, int, int], devices: str = "abcd") -> ListedContacts:
    """From (slot, one, other)."""
    table = np.array(rows, np.int64)
    return ListedContacts(Contacts(tuple(devices), 20.0, 60.0, table[:, 0], table[:, 1:]))


def crowd(devices: int, slots: int, side: float, seed: int = 0, absent: float = 0.2) -> LocatedContacts:
    rng = rng_for(seed, "crowd")
    positions = rng.uniform(0, side, (slots, devices, 2)).astype(np.float32)
    positions[rng.random((slots, devices)) < absent] = math.nan
    names, still = tuple(str(number) for number in range(devices)), np.zeros(devices, bool)
    return LocatedContacts(
        Traces(
            names, 30.0, start=0.0, date="", positions=positions, stationary=still, origin=(0.0, 0.0), geographic=False
        )
    )


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# ---- Who is near whom


def brute_force(positions: np.ndarray, radius: float) -> list[list[list[int]]]:
    found = []
    for places in positions.astype(float):
        apart = ((places[:, None] - places[None]) ** 2).sum(-1)
        found.append(np.argwhere(np.triu(apart <= radius**2, 1)).tolist())
    return found


# on a lattice of half radii many are exactly as far apart as the radius, and on the borders of strips
lattice = st.integers(-6, 6).map(lambda number: 25.0 * number)
coordinates = st.one_of(lattice, st.just(math.nan), st.floats(-200, 200, width=32), st.sampled_from([3e5, -3e5]))
tracks = st.tuples(st.integers(1, 5), st.integers(1, 12)).flatmap(
    lambda shape: arrays.arrays(np.float32, (*shape, 2), elements=coordinates)
)


@settings(max_examples=60, deadline=None)
@given(tracks, st.sampled_from([50.0, 25.0, 0.3, 1e-7, 1000.0]))
def test_all_pairs_are_found_and_no_others(positions: np.ndarray, radius: float) -> None:
    positions[np.isnan(positions).any(axis=-1)] = math.nan
    found = [pairs.tolist() for pairs in near.each_slot(positions, radius)]
    assert found == brute_force(positions, radius)


def test_pairs_and_distances_by_hand() -> None:
    # b is 30 m east and 40 m north of a: just near. c is 10 m from b, and 58.3 m from a. d comes in the second slot.
    found = located([(0, 0)] * 2, [(30, 40)] * 2, [(30, 50)] * 2, [None, (1, 0)])
    pairs, distances = found.at(0)
    assert pairs.tolist() == [[0, 1], [1, 2]] and pairs.dtype == np.int64
    assert distances.tolist() == [50.0, 10.0] and distances.dtype == np.float32
    pairs, distances = found.at(1)
    assert pairs.tolist() == [[0, 1], [0, 3], [1, 2], [1, 3]]
    assert distances == pytest.approx([50, 1, 10, math.hypot(29, 40)])
    assert found.present(0).tolist() == [True, True, True, False] and found.hours() == pytest.approx(7 * 30 / 3600)
    assert found.positions(1)[3].tolist() == [1.0, 0.0] and (found.slots, found.slot, found.start) == (2, 30.0, 0.0)
    with pytest.raises(ValueError, match="read-only"):
        pairs[0, 0] = 3  # else it would be wrong for the next who asks
    for slot in (-1, 2):
        with pytest.raises(IndexError, match="0 to 1"):
            found.at(slot)
    with pytest.raises(ConfigError, match="radius"):
        located([(0, 0)], radius=0.0)


def test_any_order_of_slots_and_any_size_of_blocks_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    forward, backward = crowd(60, 90, 400.0), crowd(60, 90, 400.0)
    told = [forward.at(slot) for slot in range(90)]
    assert sum(len(pairs) for pairs, _ in told) > 3_000
    for slot in rng_for(0, "order").permutation(90).tolist():
        pairs, distances = backward.at(slot)
        assert np.array_equal(pairs, told[slot][0]) and np.array_equal(distances, told[slot][1])
    whole = len(near.first_slots(forward.traces.positions, 50.0))
    monkeypatch.setattr(near, "_CANDIDATES", 500)
    monkeypatch.setattr(near, "_STEP", 7)
    assert 1 <= len(near.first_slots(forward.traces.positions, 50.0)) < whole
    cut = list(near.each_slot(forward.traces.positions, 50.0))
    assert all(np.array_equal(pairs, expected) for pairs, (expected, _) in zip(cut, told, strict=True))


def test_contacts_of_a_dense_day_are_never_held_at_once() -> None:
    dense = crowd(200, 150, 30.0, absent=0.0)  # all 19,900 pairs in each slot
    tracemalloc.start()
    total = sum(len(dense.at(slot)[0]) for slot in range(dense.slots))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 150 * 19_900
    assert peak < 0.3 * total * 16  # bytes of all pairs


def test_whole_traces_and_slots_agree() -> None:
    found = crowd(40, 30, 300.0)
    contacts = contacts_within(found.traces, 50.0)
    again = ListedContacts(contacts)
    assert again.slots == 30
    for slot in range(30):
        assert np.array_equal(again.pairs(slot), found.pairs(slot))
        assert np.array_equal(again.touching(again.pairs(slot), (slot + 1) % 30),
                              found.touching(again.pairs(slot), (slot + 1) % 30))  # fmt: skip


# ---- Contacts that last, and some of the devices


def test_how_long_contacts_last() -> None:
    moves = located(
        [(0, 0)] * 5, [(10, 0), (10, 0), (10, 0), (90, 0), (10, 0)], [(20, 0), (80, 0), (20, 0), None, None]
    )
    lists = listed(
        (0, 0, 1), (0, 0, 2), (0, 1, 2), (1, 0, 1), (2, 0, 1), (2, 0, 2), (2, 1, 2), (4, 0, 1), devices="abc"
    )
    pairs = np.array([[0, 1], [0, 2], [1, 2]])
    for found in (moves, lists):
        assert found.lasts(pairs, 0, 1).tolist() == [True, True, True]
        assert found.lasts(pairs, 0, 2).tolist() == [True, False, False]
        assert found.lasts(pairs, 0, 4).tolist() == [False, False, False]
        assert found.lasts(pairs, 2, np.array([2, 1, 1])).tolist() == [False, True, True]
        assert found.lasts(pairs, 4, 1).tolist() == [True, False, False]
        assert found.lasts(pairs, 4, 2).tolist() == [False, False, False]  # the day is over
        assert found.lasts(pairs[:0], 0, 3).tolist() == []


def test_lists_of_contacts() -> None:
    found = listed((0, 0, 3), (2, 0, 1), (2, 1, 3))
    pairs, distances = found.at(2)
    assert pairs.tolist() == [[0, 1], [1, 3]] and np.isnan(distances).all() and distances.dtype == np.float32
    assert found.at(1)[0].shape == (0, 2) and found.positions(0) is None and (found.slots, found.start) == (3, 60.0)
    # a and d from the first slot to the last, b in the last, c never
    assert found.present(1).tolist() == [True, False, False, True]
    assert found.hours() == pytest.approx(7 * 20 / 3600) and found.stationary.tolist() == [False] * 4


def test_some_of_the_devices_in_another_order() -> None:
    listing = listed((0, 0, 1), (0, 0, 3), (0, 1, 2), (1, 2, 3)).select(np.array([3, 1, 0]))
    assert listing.devices == ("d", "b", "a") and listing.slots == 2
    assert listing.pairs(0).tolist() == [[0, 2], [1, 2]] and listing.pairs(1).tolist() == []
    moving = located([(0, 0)], [(40, 0)], [(80, 0)], [(0, 45)])
    assert moving.pairs(0).tolist() == [[0, 1], [0, 3], [1, 2]]
    some = moving.select(np.array([3, 1, 0]))
    assert some.devices == ("d", "b", "a") and some.pairs(0).tolist() == [[0, 2], [1, 2]]
    assert some.at(0)[1].tolist() == [45.0, 40.0]
    for wrong in ([0, 0], [4], [-1]):
        for found in (moving, listed((0, 0, 1))):
            with pytest.raises(ConfigError, match="different numbers from 0 to 3"):
                found.select(np.array(wrong))


# ---- Several days, and a part of the day

TWO_DAYS = """device,time,x,y,stationary
ann,2024-06-21T05:59:30,0,0,False
ann,2024-06-21T06:00:30,60,0,False
ann,2024-06-21T06:01:00,60,0,False
bob,2024-06-21T20:00:00,0,0,False
ann,2024-06-22T06:00:30,70,0,False
bob,2024-06-22T06:00:00,500,0,False
bob,2024-06-22T06:01:00,80,0,False
sign,2024-06-21T06:00:00,65,0,True
sign,2024-06-22T06:01:30,65,0,True
"""


def test_days_are_folded_into_one_and_the_window_cuts_it(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", TWO_DAYS)
    found = contact_process(path, slot=30.0, window="06:00-06:02", fold=True)
    assert found.devices == ("ann/2024-06-21", "ann/2024-06-22", "bob/2024-06-22", "sign")
    assert found.stationary.tolist() == [False, False, False, True] and found.dropped == 1  # bob on the first evening
    assert (found.slots, found.start, found.slot, found.problems.count) == (4, 6 * 3600.0, 30.0, 0)
    assert [found.present(slot).tolist() for slot in range(4)] == [
        [True, False, True, True],  # ann is between her rows at 5:59:30 and 6:00:30
        [True, True, True, True],
        [True, False, True, True],
        [False, False, False, True],
    ]
    assert found.positions(0)[0].tolist() == [30.0, 0.0]
    # at 6:00:30 the two anns, 10 m apart, and the sign are together; bob is at 290. At 6:01 bob is 20 m from ann
    assert found.pairs(1).tolist() == [[0, 1], [0, 3], [1, 3]]
    assert found.pairs(2).tolist() == [[0, 2], [0, 3], [2, 3]]
    assert found.at(2)[1].tolist() == [20.0, 5.0, 15.0]


def test_a_window_without_folding_leaves_the_nights_empty(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", TWO_DAYS)
    found = contact_process(path, slot=30.0, window="06:00-06:02")
    assert found.devices == ("ann", "bob", "sign") and found.slots == 2880 + 4 and found.start == 6 * 3600.0
    there = np.array([found.present(slot) for slot in range(found.slots)])
    assert np.flatnonzero(there[:, 0]).tolist() == [0, 1, 2, 2881]
    assert np.flatnonzero(there[:, 1]).tolist() == [2880, 2881, 2882]
    assert np.flatnonzero(there[:, 2]).tolist() == [0, 1, 2, 3, 2880, 2881, 2882, 2883]
    whole = contact_process(path, slot=30.0)
    assert whole.start == 6 * 3600.0 - 30 and whole.slots == 1 + 2880 + 4 and whole.dropped == 0


def test_contacts_are_folded_too(tmp_path: Path) -> None:
    # 1240905600 is 2009-04-28T08:00:00
    day = 86400
    rows = [(1240905600, 1, 2), (1240905620, 1, 2), (1240905600 + day, 1, 2), (1240905600 + day, 2, 3)]
    path = written(tmp_path / "met.dat", "".join(f"{t} {i} {j}\n" for t, i, j in rows))
    found = contact_process(path, slot=20.0, fold=True)
    assert found.devices == ("1/2009-04-28", "2/2009-04-28", "1/2009-04-29", "2/2009-04-29", "3/2009-04-29")
    assert found.start == 8 * 3600.0 and found.slots == 2
    assert found.pairs(0).tolist() == [[0, 1], [2, 3], [3, 4]] and found.pairs(1).tolist() == [[0, 1]]
    cut = contact_process(path, slot=20.0, fold=True, window="08:00-08:01")
    assert cut.slots == 3 and cut.pairs(2).tolist() == []
    early = written(tmp_path / "short.dat", "30 1 2\n86430 1 2\n3700 3 4\n")
    counted = contact_process(early, slot=30.0, fold=True, window="00:00-01:00")
    assert counted.devices == ("1/day1", "2/day1", "1/day2", "2/day2") and counted.dropped == 2


def test_walks_that_each_have_their_own_start_all_begin_at_0(tmp_path: Path) -> None:
    written(tmp_path / "one.txt", "1000 0.5 0\n1030 0.5 0\n")
    written(tmp_path / "two.txt", "90500 10.5 0\n90530 99.5 0\n")
    found = contact_process(tmp_path, fold=True)
    assert found.devices == ("one", "two") and (found.start, found.slots) == (0.0, 2)
    assert found.pairs(0).tolist() == [[0, 1]] and found.pairs(1).tolist() == []
    assert contact_process(tmp_path).slots > 2_000
    with pytest.raises(DataError, match=r"one\.txt: the window 06:00-18:00 cannot be cut out.*leave the window empty"):
        contact_process(tmp_path, window="06:00-18:00")


@pytest.mark.parametrize("window", ["6-18", "18:00-06:00", "06:00-24:01", "06:60-07:00", "06:00-06:00", "06:00"])
def test_what_is_no_window(tmp_path: Path, window: str) -> None:
    with pytest.raises(ConfigError, match=r"window .*expected two times of one day.*06:00-18:00"):
        contact_process(written(tmp_path / "t.csv", TWO_DAYS), window=window)


def test_a_window_in_which_nothing_happens(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"t\.csv: nothing happens in the window 02:00-03:00"):
        contact_process(written(tmp_path / "t.csv", TWO_DAYS), window="02:00-03:00")
    with pytest.raises(ConfigError, match="max_speed"):
        contact_process(tmp_path / "t.csv", max_speed=0.0)


# ---- Bad traces: each fault alone is left out and counted, or raised with its line

GOOD = ["a,0,0,0", "a,30,30,0", "a,60,60,0", "a,90,90,0", "b,0,0,10", "b,90,0,10"]
FAULTS = {
    "unordered": ("a,45,45,0", 5, r"field 'time': 'a' has a row for this time or a later one already.*sort"),
    "duplicate": ("a,90,90,0", 5, r"field 'time': 'a' has a row for this time or a later one already.*remove"),
    "too fast": ("a,100,990,0", 5, r"'a' would have to move at 90 m/s, more than 70.*max_speed"),
    "out of range": ("a,120,3e7,0", 5, r"field 'x': out of range"),
    "no number": ("a,120,nan,0", 5, r"field 'x': .*finite"),
    "empty user": (",120,90,0", 5, r"field 'device'"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_left_out_and_counted_or_raised(tmp_path: Path, fault: str) -> None:
    row, line, what = FAULTS[fault]
    path = written(
        tmp_path / "t.csv", "\n".join(["device,time,x,y", *GOOD[:4], row, *GOOD[4:], ""]).replace("\n\n", "\n")
    )
    clean = contact_process(written(tmp_path / "good.csv", "\n".join(["device,time,x,y", *GOOD, ""])), strict=True)
    found = contact_process(path)
    assert found.problems.count == 1 and found.problems.found[0].line == line + 1
    assert found.devices == clean.devices == ("a", "b") and found.slots == clean.slots == 4
    assert all(np.array_equal(found.positions(slot), clean.positions(slot)) for slot in range(4))
    assert contact_summary(found)["rows_left_out"] == 1
    with pytest.raises(DataError, match=rf"t\.csv:{line + 1}: .*{what}"):
        contact_process(path, strict=True)
    assert traces.check(path).problems.count == 1


def test_which_row_is_the_impossible_one(tmp_path: Path) -> None:
    def lines_left_out(*places: float) -> list[int | None]:
        rows = "".join(f"a,{30 * number},{place},0\n" for number, place in enumerate(places))
        found = contact_process(written(tmp_path / "t.csv", "device,time,x,y\n" + rows), max_speed=10.0)
        return [problem.line for problem in found.problems.found]

    assert lines_left_out(0, 300, 600) == []  # 10 m/s
    assert lines_left_out(0, 5000, 60, 90) == [3]
    assert lines_left_out(5000, 0, 60, 90) == [2]  # the first, as the others agree
    assert lines_left_out(0, 30, 60, 5000) == [5]
    assert lines_left_out(0, 5000, 5010, 60, 90) == [3, 4]
    assert lines_left_out(0, 5000, 60, 5000, 120) == [3, 5]
    assert lines_left_out(0, 500, 530) == [3]  # either could be wrong; 530 m in a minute is possible


def test_users_of_whom_nothing_is_left_are_counted(tmp_path: Path) -> None:
    text = "device,time,x,y\na,0,0,0\na,30,0,0\na,60,0,0\nfar,0,9000000,0\nb,0,0,0\n"
    found = contact_process(written(tmp_path / "t.csv", text))
    assert found.devices == ("a", "b") and found.dropped == 1 and found.problems.count == 1
    assert contact_summary(found)["dropped"] == traces.check(tmp_path / "t.csv").counts["devices left out"] == 1
    empty = '<?xml version="1.0"?><gpx><trk><trkseg></trkseg></trk></gpx>'
    point = '<trkpt lat="48.0" lon="11.0"><time>2024-06-21T06:00:00Z</time></trkpt>'
    written(tmp_path / "gpx" / "nobody.gpx", empty)
    written(tmp_path / "gpx" / "ann.gpx", empty.replace("<trkseg>", f"<trkseg>{point}"))
    found = contact_process(tmp_path / "gpx")
    assert found.devices == ("ann",) and found.problems.count == 1
    with pytest.raises(DataError, match=r"nobody\.gpx: no row that can be used.*remove the file"):
        contact_process(tmp_path / "gpx", strict=True)


# ---- Who talks to whom


def one_by_one(pairs: np.ndarray, priority: np.ndarray) -> list[int]:
    taken: set[int] = set()
    chosen = []
    for place in sorted(range(len(pairs)), key=lambda place: (priority[place], place)):
        if not taken & set(pairs[place].tolist()):
            taken |= set(pairs[place].tolist())
            chosen.append(place)
    return sorted(chosen)


some_pairs = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 30)).filter(lambda pair: pair[0] < pair[1]), max_size=80
)


@settings(max_examples=60, deadline=None)
@given(some_pairs, st.data(), st.sampled_from([1, 10]))
def test_matching_is_the_greedy_loop(found: list[tuple[int, int]], data: st.DataObject, together: int) -> None:
    pairs = np.array(sorted(set(found)), np.int64).reshape(-1, 2)
    few = st.integers(0, 5)  # many ties
    priority = np.array(data.draw(st.lists(few, min_size=len(pairs), max_size=len(pairs))), float)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wayfare.encounters.contacts._TOGETHER", together)
        chosen = matching(pairs, priority)
    assert chosen.tolist() == one_by_one(pairs, priority) and chosen.dtype == np.int64


def test_matching_by_hand() -> None:
    pairs = np.array([[0, 1], [0, 2], [1, 2], [1, 3], [4, 5]])
    assert matching(pairs, np.array([3.0, 1.0, 2.0, 4.0, 9.0])).tolist() == [1, 3, 4]
    assert matching(pairs, np.zeros(5)).tolist() == [0, 4]
    assert matching(pairs[:0], np.zeros(0)).tolist() == []
    line = np.column_stack([np.arange(100), np.arange(1, 101)])  # each pair waits for the one before
    assert matching(line, np.arange(100.0)).tolist() == list(range(0, 100, 2))


def test_priorities() -> None:
    pairs, distances = located([(0, 0)], [(30, 0)], [(40, 0)]).at(0)
    nearest = priorities("nearest", pairs, distances, rng_for(0))
    assert nearest.tolist() == [30.0, 40.0, 10.0] and matching(pairs, nearest).tolist() == [2]
    drawn = [priorities("random", pairs, distances, rng_for(seed)).tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2] and len(set(drawn[0])) == 3
    with pytest.raises(ConfigError, match=r"unknown rule 'neatest'; did you mean 'nearest'"):
        priorities("neatest", pairs, distances, rng_for(0))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="needs positions"):
        priorities("nearest", *listed((0, 0, 1)).at(0), rng_for(0))


# ---- Summaries


def test_summary_by_hand() -> None:
    # a and b: slots 0-1, 4, 6-8, so 2, 1 and 3 slots with pauses of 3 and 2; c is far away and leaves
    still = [(0.0, 0.0)] * 9
    comes = [(10.0, 0.0) if slot in (0, 1, 4, 6, 7, 8) else (60.0, 0.0) for slot in range(9)]
    told = contact_summary(located(still, comes, [(500.0, 0.0) if slot < 3 else None for slot in range(9)]))
    assert (told["contacts"], told["contact_slots"], told["device_hours"]) == (3, 6, 21 * 30 / 3600)
    assert told["contacts_per_device_hour"] == pytest.approx(6 / 0.175)
    assert told["duration_median"] == 60.0 and told["duration_p90"] == pytest.approx(84.0)
    assert told["pause_median"] == pytest.approx(75.0) and told["pairs_that_meet"] == pytest.approx(1 / 3)
    assert told["never_met"] == 1 and told["degree_max"] == 1 and told["degree_mean"] == pytest.approx(12 / 21)
    assert told["histograms"]["duration"] == {"at_most": [0, 30, 60, 120], "count": [0, 1, 1, 1]}
    assert told["histograms"]["degree"] == {"at_most": [0, 1], "count": [9, 12]}
    assert told["over_time"]["pairs"] == [1, 1, 0, 0, 1, 0, 1, 1, 1] and told["over_time"]["time"][8] == 240.0
    assert told["over_time"]["present"] == [3, 3, 3, 2, 2, 2, 2, 2, 2]
    alone = contact_summary(located([(0, 0)]))
    assert math.isnan(alone["duration_median"]) and math.isnan(alone["pairs_that_meet"]) and alone["contacts"] == 0


@pytest.mark.parametrize("rows", [1, 40, 2**20])
def test_a_summary_in_pieces_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(summaries, "_ROWS", rows)
    found = crowd(15, 200, 150.0)
    for process, whole in ((found, found.traces), (ListedContacts(c := contacts_within(found.traces)), c)):
        told = contact_summary(process)
        for name, value in contact_statistics(whole).items():
            assert told[name] == pytest.approx(value), name


# ---- Real traces


@needs_real
def test_campus_walks() -> None:
    found = contact_process(SHARED / "kaist.zip", fold=True)
    told = contact_summary(found)
    assert len(found.devices) == 92 and told["contact_slots"] == pytest.approx(173_000, rel=0.01)
    assert told["contacts"] == pytest.approx(23_700, rel=0.01)
    assert found.problems.count == 21  # jumps of the receivers, at up to 240 m/s
    assert "KAIST_30sec_050.txt:1569: 'KAIST_30sec_050' would have to move at 110 m/s" in str(found.problems.found[0])


@needs_real
def test_a_theme_park() -> None:
    found = contact_process(SHARED / "themepark_visits.csv.gz", strict=True)
    told = contact_summary(found)
    assert len(found.devices) == 2_593 and told["contact_slots"] == pytest.approx(1_200_000, rel=0.2)
    some = found.select(np.arange(0, 2_593, 5))
    slot = int(np.argmax([len(some.pairs(slot)) for slot in range(some.slots)]))
    pairs, distances = some.at(slot)
    talk = pairs[matching(pairs, priorities("random", pairs, distances, rng_for(0)))]
    assert len(talk) > 5 and len(np.unique(talk)) == talk.size


@needs_real
def test_a_conference_of_two_days() -> None:
    found = contact_process(SHARED / "SFHH_tij.dat.gz", slot=20.0, fold=True, window="09:00-18:00", strict=True)
    assert found.slots == 9 * 180 and found.start == 9 * 3600 and found.dropped == 2
    assert {name.partition("/")[2] for name in found.devices} == {"day1", "day2"}
