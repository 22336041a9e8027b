"""Recall against a brute-force one written here, and by hand."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch

from wayfare.core.errors import ConfigError, DataError, WayfareError
from wayfare.places import nearest as search
from wayfare.places.recall import Protocol, Result, parts_of, precision_recall, recalls

rng = np.random.default_rng(7)
Q, D = 40, 90
QUERY_GROUPS = rng.integers(0, 4, Q)  # group 3 has no database
DATABASE_GROUPS = rng.integers(0, 3, D)
QUERY_POSITIONS = rng.uniform(0, 200, (Q, 2)).round()
DATABASE_POSITIONS = rng.uniform(0, 200, (D, 2)).round()
NIGHT = rng.random(Q) < 0.4
CITY = np.array(["oslo", "bergen", "bodo", "moss"], object)[QUERY_GROUPS]


def descriptors(kind: str, dimensions: int = 6) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    queries, database = random.standard_normal((Q, dimensions)), random.standard_normal((D, dimensions))
    if kind == "ties":  # few different ones, so that most distances occur many times
        queries, database = queries.round(), database.round()
    if kind == "copies":
        database = database[random.integers(0, 9, D)]
    if kind == "constant":
        queries, database = np.full_like(queries, 0.3), np.full_like(database, 0.3)
    if kind == "nearly constant":
        queries, database = 1 + 1e-6 * queries, 1 + 1e-6 * database
    return queries.astype(np.float32), database.astype(np.float32)


def ranking(query: np.ndarray, database: np.ndarray, members: list[int]) -> list[int]:
    away = {d: float(((query.astype(float) - database[d].astype(float)) ** 2).sum()) for d in members}
    return sorted(members, key=lambda d: (away[d], d))


def brute_force(
    queries: np.ndarray, database: np.ndarray, positives: list[set[int]], chosen: np.ndarray, protocol: Protocol
) -> dict[str, float]:
    hits = dict.fromkeys(protocol.cutoffs, 0)
    counted = 0
    answers = []  # distance, right
    errors = []
    for q in np.flatnonzero(chosen):
        order = ranking(queries[q], database, [d for d in range(D) if DATABASE_GROUPS[d] == QUERY_GROUPS[q]])
        counts = bool(positives[q]) or protocol.denominator == "all queries"
        counted += counts
        if order:
            distance = float(((queries[q].astype(float) - database[order[0]].astype(float)) ** 2).sum())
            answers.append((distance, order[0] in positives[q]))
            if counts:
                errors.append(float(np.hypot(*(QUERY_POSITIONS[q] - DATABASE_POSITIONS[order[0]]))))
        for cutoff in protocol.cutoffs:
            hits[cutoff] += counts and bool(positives[q] & set(order[:cutoff]))
    first_wrong = min((distance for distance, right in answers if not right), default=np.inf)
    accepted = sum(right and distance < first_wrong for distance, right in answers)
    metrics = {f"R@{cutoff}": found / counted for cutoff, found in hits.items()} if counted else {}
    with_positive = sum(bool(positives[q]) for q in np.flatnonzero(chosen))
    metrics |= {"R@100P": accepted / with_positive} if with_positive else {}
    found = {"median_error_m": np.median(errors), "p90_error_m": np.quantile(errors, 0.9)} if errors else {}
    return metrics | {name: float(value) for name, value in found.items()}


def near(radius: float) -> list[set[int]]:
    return [
        {
            d
            for d in range(D)
            if QUERY_GROUPS[q] == DATABASE_GROUPS[d]
            and np.hypot(*(QUERY_POSITIONS[q] - DATABASE_POSITIONS[d])) <= radius
        }
        for q in range(Q)
    ]


def measured(kind: str, protocol: Protocol, **options: object) -> Result:
    places = QUERY_POSITIONS, DATABASE_POSITIONS, QUERY_GROUPS, DATABASE_GROUPS
    return recalls(*descriptors(kind), *places, protocol, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["plain", "ties", "copies", "constant", "nearly constant"])
@pytest.mark.parametrize("denominator", ["queries with a positive", "all queries"])
@pytest.mark.parametrize("radius", [25.0, 15.0])
def test_equals_brute_force(kind: str, denominator: str, radius: float) -> None:
    protocol = Protocol("all", radius, denominator)  # type: ignore[arg-type]
    positives = near(radius)
    assert 0 < sum(map(bool, positives)) < Q - (QUERY_GROUPS == 3).sum()  # some queries have none
    result = measured(kind, protocol, parts=parts_of(CITY, NIGHT))
    whole = {name: value for name, value in result.metrics.items() if "/" not in name}
    assert whole == pytest.approx(brute_force(*descriptors(kind), positives, np.ones(Q, bool), protocol), abs=1e-12)
    for name, mask in {"night": NIGHT, "day": ~NIGHT, "oslo": CITY == "oslo"}.items():
        part = {key.split("/")[0]: v for key, v in result.metrics.items() if key.endswith("/" + name)}
        assert part == pytest.approx(brute_force(*descriptors(kind), positives, mask, protocol), abs=1e-12)
    assert result.counts["queries"] == Q and result.counts["with_positive"] == sum(map(bool, positives))
    assert result.counts["answered/oslo"] == (CITY == "oslo").sum() and result.counts["answered/moss"] == 0


def test_a_group_without_a_database_is_missed_not_forgotten() -> None:
    strict = measured("plain", Protocol(denominator="all queries", cutoffs=(1,)), parts=parts_of(CITY))
    assert strict.metrics["R@1/moss"] == 0 and "median_error_m/moss" not in strict.metrics
    lenient = measured("plain", Protocol(cutoffs=(1,)), parts=parts_of(CITY))
    assert not any(name.endswith("/moss") for name in lenient.metrics) and lenient.counts["queries/moss"] > 0


def test_the_union_of_databases_by_hand() -> None:
    queries, database = np.array([[0.0], [9.0], [5.0]], np.float32), np.array([[1.0], [8.0], [5.5]], np.float32)
    groups, known = np.array([0, 1, 0]), np.array([0, 1, 1])
    here, there = np.array([[0.0, 0], [0, 0], [10, 0]]), np.array([[3.0, 4], [0, 10], [10, 0]])
    # the third query's nearest is in the other city at the very same coordinates; its own city's is the second
    places = {"query_positions": here, "database_positions": there, "query_groups": groups, "database_groups": known}
    alone = recalls(queries, database, **places, protocol=Protocol(cutoffs=(1, 2)))
    union = recalls(queries, database, **places, protocol=Protocol(cutoffs=(1, 2, 3), search="union"))
    assert [alone.metrics[name] for name in ("R@1", "R@2")] == [1, 1]
    assert [union.metrics[name] for name in ("R@1", "R@2", "R@3")] == pytest.approx([2 / 3, 2 / 3, 1])
    assert union.top.tolist() == [[0, 2, 1], [1, 2, 0], [2, 1, 0]] and union.errors.tolist() == [5, 10, np.inf]
    assert union.metrics["median_error_m"] == 10 and "p90_error_m" not in union.metrics
    assert union.counts["with_positive"] == alone.counts["with_positive"] == 3
    assert "in all cities at once" in union.text and "at once" not in alone.text


def test_the_union_of_one_city_changes_nothing() -> None:
    places = QUERY_POSITIONS, DATABASE_POSITIONS, np.zeros(Q, int), np.zeros(D, int)
    alone, union = (recalls(*descriptors("ties"), *places, Protocol(search=how)) for how in ("city", "union"))  # type: ignore[arg-type]
    assert alone.metrics == union.metrics and (alone.top == union.top).all()


def test_by_hand() -> None:
    queries = np.array([[0.0], [10.0], [20.0], [0.0]], np.float32)
    database = np.array([[1.0], [0.0], [12.0], [19.0]], np.float32)
    query_positions = np.array([[0, 0], [100, 0], [200, 0], [0, 0]], float)
    database_positions = np.array([[15, 20], [40, 30], [100, 3], [230, 40]], float)  # 25, 50, 3 and 50 m away
    one_city = np.zeros(4, int)
    result = recalls(
        queries,
        database,
        query_positions=query_positions,
        database_positions=database_positions,
        query_groups=one_city,
        database_groups=one_city,
        protocol=Protocol(cutoffs=(1, 2, 50)),
    )
    # nearest: 1 (50 m), 2 (3 m), 3 (50 m; its query has no positive), 1 (50 m); second nearest of the first: 0 (25 m)
    assert result.top[:, :2].tolist() == [[1, 0], [2, 0], [3, 2], [1, 0]]  # 0 and 3 are 9 from 10
    assert result.top.shape == (4, 50) and result.top[0].tolist() == [1, 0, 2, 3] + [-1] * 46
    assert result.has_positive.tolist() == [True, True, False, True]
    assert result.metrics == {
        "R@1": 1 / 3,
        "R@2": 1.0,
        "R@50": 1.0,
        "R@100P": 0.0,  # the answers at distance 0 are wrong
        "median_error_m": 50.0,
        "p90_error_m": 50.0,
    }
    assert result.counts == {"queries": 4, "with_positive": 3, "answered": 4}
    assert result.text == (
        "R@1 33.3  R@2 100.0  R@50 100.0  R@100P 0.0  "
        "(4 queries: all; right: a photo within 25 m; only the queries that have one in the database count)"
    )


def test_recall_at_full_precision_by_hand() -> None:
    distances = np.array([0.1, 0.2, 0.3, 0.3, 0.4, np.inf])
    correct = np.array([True, True, True, False, True, False])
    has_positive = np.array([True, True, True, True, True, True])
    thresholds, precision, recall = precision_recall(distances, correct, has_positive)
    assert thresholds.tolist() == [0.1, 0.2, 0.3, 0.4]
    assert precision.tolist() == [1, 1, 3 / 4, 4 / 5]  # the two at 0.3 are accepted together
    assert recall.tolist() == [1 / 6, 2 / 6, 3 / 6, 4 / 6]
    nothing = precision_recall(np.full(2, np.inf), np.zeros(2, bool), np.ones(2, bool))
    assert [len(column) for column in nothing] == [0, 0, 0]


def test_cities_are_never_compared() -> None:
    """A photograph at the same coordinates and with the same descriptor, but of another city."""
    query, here = np.zeros((1, 2), np.float32), np.zeros((1, 2))
    database, positions = np.array([[0, 0], [5, 5]], np.float32), np.array([[0, 0], [400, 0]], float)
    protocol = Protocol(denominator="all queries", cutoffs=(1,))
    result = recalls(
        query,
        database,
        query_positions=here,
        database_positions=positions,
        query_groups=np.array([1]),
        database_groups=np.array([0, 1]),
        protocol=protocol,
    )
    assert result.top.tolist() == [[1]] and result.metrics["R@1"] == 0 and not result.has_positive[0]


def test_pairs_of_frames() -> None:
    pairs = np.array(
        [(q, d) for q in range(Q) for d in range(D) if d % Q == q and QUERY_GROUPS[q] == DATABASE_GROUPS[d]]
    )
    positives = [{d for p, d in pairs.tolist() if p == q} for q in range(Q)]
    protocol = Protocol("night run", None, resolution="120x160")
    result = measured("ties", protocol, pairs=pairs)
    assert result.metrics == pytest.approx(brute_force(*descriptors("ties"), positives, np.ones(Q, bool), protocol))
    assert protocol.text == (
        "queries: night run; right: a photo paired with the query; only the queries that have one in the database "
        "count; pictures of 120x160"
    )
    blind = recalls(*descriptors("ties"), None, None, QUERY_GROUPS, DATABASE_GROUPS, protocol, pairs=pairs)
    assert blind.metrics == {name: v for name, v in result.metrics.items() if not name.endswith("_m")}
    across = np.array([[int(np.flatnonzero(QUERY_GROUPS == 0)[0]), int(np.flatnonzero(DATABASE_GROUPS == 1)[0])]])
    with pytest.raises(DataError, match="different groups"):
        measured("ties", protocol, pairs=across)
    with pytest.raises(DataError, match="beyond"):
        measured("ties", protocol, pairs=np.array([[0, D]]))


@pytest.mark.parametrize("kind", ["plain", "ties", "nearly constant"])
def test_blocks_and_threads_do_not_matter(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = measured(kind, Protocol())
    monkeypatch.setattr(search, "BLOCK", 1)
    monkeypatch.setattr(search, "QUERIES", 7)
    threads = torch.get_num_threads()
    for number in (1, 2):
        torch.set_num_threads(number)
        again = measured(kind, Protocol())
        assert torch.get_num_threads() == number  # faiss has not changed it
        assert (again.top == expected.top).all() and (again.distances == expected.distances).all()
        assert again.metrics == expected.metrics
    torch.set_num_threads(threads)


@pytest.mark.parametrize("dimensions", [1, 7, 33, 256])
def test_equal_descriptors_tie_at_any_width(dimensions: int) -> None:
    """Copies of a descriptor at different places of a matrix get different last bits from a matrix product."""
    queries, database = descriptors("copies", dimensions)
    rows, _ = search.nearest(queries, database, 40)
    for query, found in zip(queries, rows.tolist()):
        assert found == ranking(query, database, list(range(D)))[:40]


def test_memory_is_bounded() -> None:
    """All distances between 4,000 queries and 30,000 photographs would be 960 MB."""
    random = np.random.default_rng(0)
    queries, database = random.random((4000, 8), np.float32), random.random((30_000, 8), np.float32)
    search.nearest(queries[:1], database[:50], 1)  # imports faiss
    tracemalloc.start()
    rows, _ = search.nearest(queries, database, 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 30e6
    assert rows[17].tolist() == ranking(queries[17], database, list(range(30_000)))[:20]


def test_parts() -> None:
    parts = parts_of(["Ghent", "night", "Ghent"], np.array([True, False, False]), ["Forward", "", "Sideways"])
    assert {name: mask.tolist() for name, mask in parts.items()} == {
        "day": [False, True, True],
        "night": [True, False, False],
        "Forward": [True, False, False],
        "Sideways": [False, False, True],
        "Ghent": [True, False, True],
        "city night": [False, True, False],
    }
    assert parts_of() == {} and list(parts_of(night=np.zeros(2, bool))) == ["day"]


def test_nothing_to_measure() -> None:
    nobody = np.empty((0, 2)), np.empty((0, 2))
    no_groups = np.empty(0, int)
    empty = recalls(nobody[0], nobody[1], *nobody, no_groups, no_groups, Protocol())
    assert empty.metrics == {} and empty.text.startswith("nothing to measure  (0 queries")
    alone = recalls(
        np.ones((1, 2)),
        nobody[1],
        query_positions=np.ones((1, 2)),
        database_positions=nobody[1],
        query_groups=np.zeros(1, int),
        database_groups=no_groups,
        protocol=Protocol(),
    )
    assert alone.metrics == {} and alone.counts == {"queries": 1, "with_positive": 0, "answered": 0}


def test_what_cannot_be_measured_is_refused() -> None:
    one, group = np.ones((1, 2), np.float32), np.zeros(1, int)
    with pytest.raises(WayfareError, match="1 of 1 descriptors of the queries are not finite, the first in row 0"):
        recalls(
            one * np.nan,
            one,
            query_positions=one,
            database_positions=one,
            query_groups=group,
            database_groups=group,
            protocol=Protocol(),
        )
    with pytest.raises(WayfareError, match="not finite"):
        recalls(
            one,
            one * 1e30,
            query_positions=one,
            database_positions=one,
            query_groups=group,
            database_groups=group,
            protocol=Protocol(),
        )  # its square is infinite
    with pytest.raises(DataError, match="1 of 1 photographs have no position"):
        recalls(
            one,
            one,
            query_positions=one * np.nan,
            database_positions=one,
            query_groups=group,
            database_groups=group,
            protocol=Protocol(),
        )
    with pytest.raises(DataError, match="no positions and no pairs"):
        recalls(
            one,
            one,
            query_positions=None,
            database_positions=one,
            query_groups=group,
            database_groups=group,
            protocol=Protocol(),
        )
    with pytest.raises(ConfigError, match="radius where truth is by position"):
        recalls(
            one,
            one,
            query_positions=one,
            database_positions=one,
            query_groups=group,
            database_groups=group,
            protocol=Protocol(radius=None),
        )
    with pytest.raises(ConfigError, match="denominator"):
        Protocol(denominator="some")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="cutoffs"):
        Protocol(cutoffs=(0,))
    with pytest.raises(ConfigError, match="'city' or 'union'"):
        Protocol(search="everywhere")  # type: ignore[arg-type]
