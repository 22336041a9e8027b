"""Which photographs train, which are tested on and which ask: tables small enough to say so by hand."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photo_tables import towns
from wayfare.core.errors import ConfigError
from wayfare.places.data.place_photos import Group, PlacePhotos, text_column
from wayfare.places.data.train_test import (
    LayoutSplit,
    Queries,
    SequenceSplit,
    StripSplit,
    TestSplit,
    TrainTest,
    divide,
)

NAN = float("nan")


def table(east: list[float], north: list[float] | None = None, **columns: Any) -> PlacePhotos:
    """Photographs a, b, c, ... at these metres, of one city unless `group` says otherwise."""
    count = len(east)
    names = text_column([chr(ord("a") + row) for row in range(count)])
    group = np.array(columns.pop("group", [0] * count), np.int32)
    sequence = columns.pop("sequence", None)
    if sequence is not None:
        columns["sequence"] = np.array(sequence, np.int32)
        columns.setdefault("sequences", tuple(f"s{i}" for i in range(max(sequence) + 1)))
    for name in ("query", "night"):
        if name in columns:
            columns[name] = np.array(columns[name], bool)
    return PlacePhotos(
        root=Path("photos"),
        files=names,
        keys=names,
        groups=tuple(Group(f"city{i}", "33N") for i in range(int(group.max(initial=0)) + 1)),
        group=group,
        easting=np.array(east, np.float64),
        northing=np.zeros(count) if north is None else np.array(north, np.float64),
        split=np.array(columns.pop("split", [""] * count), "U5"),
        **columns,
    )


LAYOUT = LayoutSplit()


def chosen(photos: PlacePhotos, test: TestSplit = LAYOUT, queries: Queries = "layout", **more: Any) -> TrainTest:
    return divide(photos, queries, test, **more)


def letters(photos: PlacePhotos, rows: np.ndarray) -> str:
    return "".join(photos.keys[rows])


def told(divided: TrainTest) -> tuple[str, str, str]:
    """The photographs to train on, the queries of the test and its database."""
    return tuple(letters(divided.photos, rows) for rows in (divided.pool, divided.test_queries, divided.test_database))  # type: ignore[return-value]


# ---- what the layout says


def test_test_cities_are_tested_on_and_validation_cities_are_left_alone() -> None:
    photos = table([0] * 6, split=["train", "train", "val", "val", "test", "test"], query=[1, 0] * 3)
    divided = chosen(photos)
    assert told(divided) == ("ab", "e", "f")
    assert divided.test_name == "all"
    assert chosen(photos, name="d2n").test_name == "d2n"


def test_withheld_test_cities_give_way_to_validation_cities() -> None:
    photos = table([0, 0, 0, 0, NAN, NAN], split=["train", "train", "val", "val", "test", "test"], query=[1, 0] * 3)
    assert told(chosen(photos)) == ("ab", "c", "d")


def test_one_known_test_photograph_is_enough_for_the_test_cities() -> None:
    # f has no position, e has: the test cities are tested on, and their database is missing
    photos = table([0, 0, 0, 0, 0, NAN], split=["train", "train", "val", "val", "test", "test"], query=[1, 0] * 3)
    with pytest.raises(ConfigError, match=r"nothing to test on: 1 queries and 0 photographs of the database"):
        chosen(photos)


def test_what_has_no_split_is_trained_on_and_what_has_no_place_is_not() -> None:
    photos = table([0, NAN, 0, 0, 0], [0, 0, NAN, 0, 0], split=["", "", "", "test", "test"], query=[1, 1, 0, 1, 0])
    assert told(chosen(photos)) == ("a", "d", "e")


def test_a_layout_without_a_test_says_what_to_do() -> None:
    with pytest.raises(
        ConfigError, match=r"^photos: nothing to test on: 0 queries.*'sequences' or 'strips'.*test_cities"
    ):
        chosen(table([0, 0], query=[1, 0]))


def test_a_layout_that_is_all_test_has_nothing_to_train_on() -> None:
    with pytest.raises(ConfigError, match=r"^photos: nothing to train on: every photograph is tested on"):
        chosen(table([0, 0], query=[1, 0], split=["test"] * 2))


# ---- who asks


def test_photographs_by_night_ask() -> None:
    photos = table([0] * 4, night=[1, 0, 0, 1], query=[0, 1, 1, 0], split=["test"] * 2 + ["train"] * 2)
    divided = chosen(photos, queries="night")
    assert told(divided) == ("cd", "a", "b")
    assert divided.photos.query is not None and divided.photos.query.tolist() == [True, False, False, True]


def test_nothing_says_what_is_by_night() -> None:
    with pytest.raises(ConfigError, match=r"^photos: data.queries = 'night'.*column night.*'half'"):
        chosen(table([0, 0]), queries="night")


def drawn(key: str) -> bool:
    return hashlib.sha256(key.encode()).digest()[0] % 2 == 1


def test_every_second_sequence_asks_and_of_loose_photographs_half() -> None:
    photos = table([0] * 8, sequence=[0, 0, 1, 2, 3, -1, -1, -1], split=["test"] * 4 + [""] * 4)
    # s1 and s3 ask; the others go by sha256, which begins with 0x25 for f, with 0xcd for g and with 0xaa for h
    asked = chosen(photos, queries="half").photos.query
    assert asked is not None and asked.tolist() == [False, False, True, False, True, True, True, False]
    loose = [chr(ord("a") + row) for row in range(20)]
    asked = chosen(table([0] * 20, split=["test"] * 10 + [""] * 10), queries="half").photos.query
    assert asked is not None and asked.tolist() == [drawn(key) for key in loose]
    assert 4 <= asked.sum() <= 16


def test_where_the_layout_does_not_say_who_asks_it_is_half() -> None:
    photos = table([0] * 4, sequence=[0, 1, 0, 1], split=["test", "test", "", ""])
    assert told(chosen(photos)) == ("cd", "b", "a")
    # what the layout says comes first
    photos = table([0] * 4, sequence=[0, 1, 0, 1], split=["test", "test", "", ""], query=[1, 0, 1, 0])
    assert told(chosen(photos)) == ("cd", "a", "b")


# ---- new dates: sequences


def test_every_other_query_sequence_is_held_out() -> None:
    # sequences 0, 2, 4, 6 ask, 1 is the database; in folds of three, 0 and 6 are fold 0, 2 is fold 1, 4 is fold 2
    photos = table([0] * 6, sequence=[0, 1, 2, 4, 6, 6], query=[1, 0, 1, 1, 1, 1])
    wanted = [("bcd", "aef", "b"), ("abdef", "c", "b"), ("abcef", "d", "b")]
    for fold, parts in enumerate(wanted):
        divided = chosen(photos, SequenceSplit(folds=3, fold=fold))
        assert told(divided) == parts
        assert divided.test_name == f"of held-out sequences (part {fold + 1} of 3)"


def test_the_splits_of_the_layout_play_no_part_then() -> None:
    photos = table([0] * 3, sequence=[0, 1, 2], query=[1, 0, 1], split=["train", "val", "test"])
    assert told(chosen(photos, SequenceSplit(folds=2))) == ("bc", "a", "b")


def test_photographs_of_unknown_places_take_no_fold() -> None:
    photos = table([NAN, 0, 0, 0], sequence=[0, 1, 2, 3], query=[1, 1, 0, 1])
    assert told(chosen(photos, SequenceSplit(folds=2))) == ("cd", "b", "c")


def test_sequences_need_sequences() -> None:
    with pytest.raises(ConfigError, match=r"^photos: data.test = 'sequences'.*no sequences; choose 'strips'"):
        chosen(table([0, 0], query=[1, 0]), SequenceSplit())


def test_a_fold_without_queries_says_what_to_do() -> None:
    photos = table([0, 0, 0], sequence=[0, 1, 2], query=[1, 0, 0])
    with pytest.raises(ConfigError, match=r"nothing to test on: 0 queries.*another data.test.fold, or fewer folds"):
        chosen(photos, SequenceSplit(folds=2, fold=1))


# ---- new places: strips


def test_strips_by_hand() -> None:
    # the longer side is easting, from 100 on, and strips begin at 100 (a b h), 140 (c d), 180 (e f) and 220 (g)
    photos = table(
        [100, 139.9, 140, 179, 180, 219.9, 220, 130], [0, 0, 5, 0, 0, 0, 0, 100], query=[1, 0, 1, 0, 1, 0, 1, 1]
    )
    assert told(chosen(photos, StripSplit(strip=40, folds=2, fold=0))) == ("cdg", "aeh", "bf")
    divided = chosen(photos, StripSplit(strip=40, folds=2, fold=1))
    assert told(divided) == ("abefh", "cg", "d")
    assert divided.test_name == "in held-out strips of ground (part 2 of 2)"


def test_strips_go_across_the_longer_side_of_each_city() -> None:
    # city 0 is longer from south to north (strips 0 0 1), city 1 from west to east (1 0 0)
    photos = table(
        [0, 5, 9, 1050, 1000, 1039], [0, 39, 40, 7, 8, 9], group=[0, 0, 0, 1, 1, 1], query=[1, 0, 0, 0, 1, 0]
    )
    assert told(chosen(photos, StripSplit(strip=40, folds=2))) == ("cd", "ae", "bf")


def test_strips_where_a_city_keeps_its_positions_to_itself() -> None:
    photos = table([0, 10, 50, 60, NAN, NAN], group=[0, 0, 0, 0, 1, 1], query=[1, 0, 1, 0, 1, 0])
    assert told(chosen(photos, StripSplit(strip=40, folds=2))) == ("cd", "a", "b")


def test_a_strip_without_queries_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"nothing to test on: 0 queries and 0 .*fewer folds or a smaller"):
        chosen(table([0, 10], query=[1, 0]), StripSplit(folds=3, fold=2))


# ---- paired frames


def frames(queries: int, references: int, pairs: list[tuple[int, int]]) -> PlacePhotos:
    """Two runs without positions, numbered from 0 each; pairs are a query's and a reference's number."""
    count = queries + references
    asks = [True] * queries + [False] * references
    return table(
        [NAN] * count,
        [NAN] * count,
        query=asks,
        sequence=[0] * queries + [1] * references,
        sequences=("query", "reference"),
        frame=np.array([*range(queries), *range(references)], np.int64),
        pairs=np.array([(q, queries + r) for q, r in pairs], np.int64).reshape(-1, 2),
    )


def test_strips_of_paired_frames_are_frames_long() -> None:
    # queries a b c d; references e f g h i, of which f shows b, h shows c and d, and the others lie between:
    # e is before the first pair, so where f is (1); g is half way from f (1) to h (2.5), i behind the last
    photos = frames(4, 5, [(1, 1), (2, 3), (3, 3)])
    assert told(chosen(photos, StripSplit(strip=2, folds=2))) == ("cdhi", "ab", "efg")
    assert told(chosen(photos, StripSplit(strip=2, folds=2, fold=1))) == ("abefg", "cd", "hi")


def test_strips_of_frames_of_which_none_are_paired() -> None:
    assert told(chosen(frames(2, 2, []), StripSplit(strip=1, folds=2))) == ("bd", "a", "c")


def test_pieces_of_paired_frames() -> None:
    photos = chosen(frames(4, 4, [(i, i) for i in range(4)]), StripSplit(strip=3, folds=2), piece=2).photos
    assert [photos.sequences[i] for i in photos.sequence] == [
        "query/0", "query/0", "query/1", "query/1", "reference/0", "reference/0", "reference/1", "reference/1"
    ]  # fmt: skip


def test_paired_frames_say_who_asks() -> None:
    for queries in ("night", "half"):
        with pytest.raises(ConfigError, match=rf"^photos: data.queries = '{queries}'.*leave it 'layout'"):
            chosen(frames(2, 2, [(0, 0)]), queries=queries)


# ---- pieces


def test_sequences_are_cut_where_they_leave_a_square() -> None:
    # squares of 100 m: s0 goes from (0, 0) to (1, 0) and back; s1 is in (0, 0) and (0, -1); f is loose in (1, 0)
    photos = table(
        [10, 150, 20, 30, 30, 199, 0, 0],
        [0, 0, 50, 1, -1, 99, 0, 0],
        sequence=[0, 0, 0, 1, 1, -1, 2, 3],
        query=[1, 1, 1, 0, 0, 0, 1, 0],
        split=[""] * 6 + ["test"] * 2,
    )
    cut = chosen(photos, piece=100).photos
    assert cut.sequence is not None
    assert [cut.sequences[i] for i in cut.sequence] == [
        "s0/0/0", "s0/1/0", "s0/0/0", "s1/0/0", "s1/0/-1", "/1/0", "s2/0/0", "s3/0/0"
    ]  # fmt: skip
    assert told(chosen(photos, piece=100)) == ("abcdef", "g", "h")
    assert chosen(photos).photos.sequences == photos.sequences


def test_pieces_of_two_cities_are_not_one() -> None:
    photos = table(
        [0, 0, 0, 0], group=[0, 1, 0, 0], sequence=[0, 0, 1, 2], query=[1, 1, 1, 0], split=["", "", *["val"] * 2]
    )
    cut = chosen(photos, piece=10).photos
    assert cut.sequence is not None and cut.sequence[0] != cut.sequence[1]


def test_what_is_tested_on_is_chosen_before_sequences_are_cut() -> None:
    # s0 and s2 ask and are whole drives: cut first, pieces of s0 would be trained and tested on
    photos = table([0, 500, 0, 0, 500], sequence=[0, 0, 1, 2, 2], query=[1, 1, 0, 1, 1])
    assert told(chosen(photos, SequenceSplit(folds=2), piece=100)) == ("cde", "ab", "c")


# ---- settings


@pytest.mark.parametrize(
    ("settings_", "told_"),
    [
        ({"fold": 4}, "data.test.fold = 4 of 4: expected at least 2 folds, counted from 0"),
        ({"fold": -1}, "data.test.fold = -1 of 4"),
        ({"folds": 1}, "data.test.fold = 0 of 1"),
        ({"strip": 0.0}, "data.test.strip = 0.0"),
    ],
)
def test_settings_that_are_refused(settings_: dict[str, Any], told_: str) -> None:
    with pytest.raises(ConfigError, match=told_):
        StripSplit(**settings_)
    if "strip" not in settings_:
        with pytest.raises(ConfigError, match=told_):
            SequenceSplit(**settings_)


# ---- what must hold for every table


@settings(max_examples=40, deadline=None)
@given(towns(), st.sampled_from(["sequences", "strips"]), st.integers(2, 4))
def test_folds_share_the_queries_out(photos: PlacePhotos, test: str, folds: int) -> None:
    """Every query with a place is tested on in exactly one fold, and never trained on in it."""
    known = np.isfinite(photos.easting)
    assert photos.query is not None
    seen: list[int] = []
    answering: list[int] = []
    for fold in range(folds):
        try:
            divided = chosen(photos, StripSplit(folds, fold, 20) if test == "strips" else SequenceSplit(folds, fold))
        except ConfigError as error:
            assert "nothing to t" in str(error)
            return  # a fold without queries or without a database
        assert not set(divided.pool) & set(divided.test_queries)
        assert not photos.query[divided.test_database].any() and known[divided.pool].all()
        used = {*divided.pool.tolist(), *divided.test_queries.tolist(), *divided.test_database.tolist()}
        assert used == set(np.flatnonzero(known).tolist())
        if test == "strips":
            assert not set(divided.pool) & set(divided.test_database)
        else:
            assert set(divided.test_database) == set(np.flatnonzero(known & ~photos.query))
        seen += divided.test_queries.tolist()
        answering += divided.test_database.tolist()
    assert sorted(seen) == np.flatnonzero(known & photos.query).tolist()
    if test == "strips":
        assert sorted(answering) == np.flatnonzero(known & ~photos.query).tolist()
