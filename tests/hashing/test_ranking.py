"""MAP and its relatives against numbers worked out by hand, against every order of a tie, and against plain loops."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from wayfare.core.errors import ConfigError, WayfareError
from wayfare.core.seeds import rng_for
from wayfare.hashing.ranking import RankTally, mean_average_precision, own_recall, pack, tally

# The example that the public programs for cross-modal hashing print: 4 queries, 6 items, 4 bits, 4 labels.
EXAMPLE = (
    pack(np.array([[1, -1, 1, 1], [-1, -1, -1, 1], [1, 1, -1, 1], [1, 1, 1, -1]])),
    pack(np.array([[1, -1, 1, -1], [-1, -1, 1, -1], [-1, -1, 1, -1], [1, 1, -1, -1], [-1, 1, -1, -1], [1, 1, -1, 1]])),
    np.array([[0, 1, 0, 0], [1, 1, 0, 0], [1, 0, 0, 1], [0, 1, 0, 1]]),
    np.array([[1, 0, 0, 1], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 1, 0]]),
)
Case = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def case(name: str, queries: int, database: int, bits: int, labels: int, chance: float) -> Case:
    rng = rng_for(0, "ranking", name)
    return (
        pack(rng.standard_normal((queries, bits))), pack(rng.standard_normal((database, bits))),
        rng.random((queries, labels)) < chance, rng.random((database, labels)) < chance,
    )  # fmt: skip


def looped(arrays: Case, order: np.ndarray | None = None, k: int | None = None, divisor: str = "found") -> list[float]:
    """AP item by item; ties as in `order`."""
    queries, database, query_labels, database_labels = arrays
    order = np.arange(len(database)) if order is None else order
    result = []
    for code, labels in zip(queries, query_labels):
        distance = {row: int(np.unpackbits(code ^ database[row]).sum()) for row in order.tolist()}
        ranked = sorted(order.tolist(), key=distance.__getitem__)
        right = [bool((labels * database_labels[row]).any()) for row in ranked]
        precisions = [sum(right[: place + 1]) / (place + 1) for place in range(len(right))[:k] if right[place]]
        divided_by = len(precisions) if divisor == "found" else min(sum(right), k or len(right))
        result.append(sum(precisions) / max(1, divided_by))
    return result


# ---- By hand


def test_the_public_example() -> None:
    assert mean_average_precision(*EXAMPLE, ties="stable") == pytest.approx(0.7041667, abs=1e-7)
    assert mean_average_precision(*EXAMPLE) == pytest.approx(0.6013021, abs=1e-7)
    # the first query has one item at distance 1, not relevant, and at 2 three with two relevant: in their three orders
    # the precisions sum to 1/2 + 2/3, 1/2 + 2/4 and 1/3 + 2/4, which are 7/6, 1 and 5/6
    counts = tally(*EXAMPLE)
    assert (counts.items[0, 1:3].tolist(), counts.relevant[0, 1:3].tolist()) == ([1, 3], [0, 2])
    assert counts.average_precisions()[0] == pytest.approx((7 / 6 + 1 + 5 / 6) / 3 / 2)
    # of its first two places the second is relevant with chance 2/3, and then its precision is 1/2
    assert counts.average_precisions(2)[0] == pytest.approx(2 / 3 / 2)
    assert counts.average_precisions(2, "possible")[0] == pytest.approx(2 / 3 / 2 / 2)
    assert counts.average_precisions(1)[0] == 0


def test_map_at_k_and_recall_by_hand() -> None:
    """One query, relevant at places 1, 4 and 5: the first two places give 1."""
    database = pack(np.tril(np.full((5, 8), -2.0)) + 1)  # distances 1 to 5 from all ones
    labels = np.array([[1, 0], [0, 1], [0, 1], [1, 0], [1, 1]])
    arrays = pack(np.ones((1, 8))), database, np.array([[1, 0]]), labels
    assert mean_average_precision(*arrays, k=2) == mean_average_precision(*arrays, ties="stable", k=2) == 1
    assert mean_average_precision(*arrays, k=2, divisor="possible") == pytest.approx(1 / 2)
    for ties in ("expected", "stable"):
        assert mean_average_precision(*arrays, ties) == pytest.approx((1 + 2 / 4 + 3 / 5) / 3)
        assert mean_average_precision(*arrays, ties, k=4) == pytest.approx((1 + 2 / 4) / 2)
    precision, recall = tally(*arrays).precision_recall()
    assert precision[:6].tolist() == pytest.approx([0, 1, 1 / 2, 1 / 3, 2 / 4, 3 / 5])  # nothing lies within radius 0
    assert recall[:6].tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3, 2 / 3, 1])


def test_a_query_without_relevant_items_counts_as_nought() -> None:
    queries, database, query_labels, database_labels = EXAMPLE
    lonely = np.concatenate([query_labels, np.zeros((4, 4), int)])
    arrays = np.concatenate([queries, queries]), database, lonely, database_labels
    for ties in ("expected", "stable"):
        for k in (None, 2):
            half = mean_average_precision(*EXAMPLE, ties, k) / 2
            assert mean_average_precision(*arrays, ties, k) == pytest.approx(half)
    assert tally(*arrays).random_map() == pytest.approx(tally(*EXAMPLE).random_map() / 2)
    nothing = queries, database[:0], query_labels, database_labels[:0]
    assert mean_average_precision(*nothing) == mean_average_precision(*nothing, "stable") == 0


# ---- Against plain loops


@pytest.mark.parametrize(("bits", "labels"), [(5, 3), (16, 1), (64, 24), (72, 70), (128, 81), (256, 7)])
@pytest.mark.parametrize("k", [None, 1, 7])
def test_stable_order_is_the_loops(bits: int, labels: int, k: int | None) -> None:
    """Over one and several words of code and of labels."""
    arrays = case(f"loop {bits}", 6, 40, bits=bits, labels=labels, chance=1.5 / labels if labels > 1 else 0.5)
    for divisor in ("found", "possible"):
        expected = np.mean(looped(arrays, k=k, divisor=divisor))
        assert mean_average_precision(*arrays, "stable", k, divisor) == pytest.approx(expected, abs=1e-12)


def test_expectation_is_the_mean_over_all_orders() -> None:
    arrays = case("orders d", 4, 5, bits=2, labels=3, chance=0.5)
    counts, orders = tally(*arrays), [np.array(order) for order in permutations(range(5))]
    for k, divisor in ((None, "found"), (1, "found"), (2, "found"), (3, "found"), (3, "possible")):
        every = [looped(arrays, order, k, divisor) for order in orders]
        exactly = counts.average_precisions(k, divisor)  # type: ignore[arg-type]
        np.testing.assert_allclose(exactly, np.mean(every, 0), atol=1e-12)


def test_expectation_is_the_mean_of_shuffles() -> None:
    """2,000 of them, within four standard errors; a file sorted by class gives the first class far more than that."""
    queries, database, _, _ = case("shuffled", 2, 200, bits=4, labels=1, chance=1.0)
    labels = np.eye(3, dtype=bool)[np.sort(rng_for(0, "single").integers(0, 3, 200))]
    asked, rng = labels[[0, 0]], rng_for(0, "shuffles")
    orders = [rng.permutation(200) for _ in range(2000)]
    shuffled = [mean_average_precision(queries, database[o], asked, labels[o], "stable") for o in orders]
    error, expected = np.std(shuffled) / np.sqrt(2000), mean_average_precision(queries, database, asked, labels)
    assert expected == pytest.approx(np.mean(shuffled), abs=4 * error)
    assert mean_average_precision(queries, database, asked, labels, "stable") > expected + 100 * error


def test_the_floor_is_what_random_codes_reach() -> None:
    """Of any length. By hand: 2 of 3 items relevant; 1/1 + 2/2, 1/1 + 2/3, 1/2 + 2/3 in the three orders, halved."""
    hand = RankTally(np.array([[1, 0, 2]]), np.array([[1, 0, 1]]))
    assert hand.random_map() == pytest.approx((2 + 5 / 3 + 7 / 6) / 3 / 2)
    _, _, query_labels, database_labels = case("floor", 20, 60, bits=8, labels=4, chance=0.2)
    rng = rng_for(0, "random codes")
    for bits in (4, 32):
        for k in (None, 10):
            drawn = []
            for _ in range(100):
                codes = pack(rng.standard_normal((80, bits)))
                counts = tally(codes[:20], codes[20:], query_labels, database_labels)
                drawn.append(counts.map(k))
            assert counts.random_map(k) == pytest.approx(np.mean(drawn), abs=4 * np.std(drawn) / np.sqrt(100))


def test_long_lists_are_counted_exactly() -> None:
    """Closed form against the sum over all places, where ties are of thousands."""
    items, relevant = np.array([[7, 30_000, 1, 0, 20_000]]), np.array([[3, 11_000, 1, 0, 2]])
    total, seen, hits = 0.0, 0, 0
    for count, right in zip(items[0].tolist(), relevant[0].tolist()):
        place = np.arange(1, count + 1)
        before = (place - 1) * (right - 1) / max(count - 1, 1)
        total += float((right / max(count, 1) * (hits + 1 + before) / (seen + place)).sum())
        seen, hits = seen + count, hits + right
    assert RankTally(items, relevant).map() == pytest.approx(total / hits, abs=1e-12)
    # cut in a tie of thousands: nearly the precision everywhere
    assert RankTally(items, relevant).map(20_000) == pytest.approx(11 / 30, abs=2e-3)


# ---- Codes and what is refused


def test_codes_are_packed_as_faiss_does() -> None:
    import faiss

    values = rng_for(0, "packed").standard_normal((9, 24)).astype(np.float32)
    expected = np.empty((9, 3), np.uint8)
    faiss.real_to_binary(values.size, faiss.swig_ptr(values), faiss.swig_ptr(expected))
    assert pack(values).tolist() == expected.tolist()
    assert pack(np.array([[0.0, -0.0, -1e-30, 1e-30]])).tolist() == [[0b1011]]
    assert pack(np.ones((2, 11))).tolist() == [[255, 7]] * 2


def test_what_cannot_be_ranked_is_refused() -> None:
    with pytest.raises(WayfareError, match=r"1 of 2 outputs .* row 1: the network has diverged"):
        pack(np.array([[1.0, 2.0], [np.nan, 1.0]]))
    queries, database, query_labels, database_labels = EXAMPLE
    for wrong, what in (
        ((queries.astype(float), database, query_labels, database_labels), "queries: codes must be rows of packed"),
        ((queries, database, query_labels[:3], database_labels), "queries: 4 codes but labels have shape"),
        (
            (queries, database, query_labels[:, :2], database_labels),
            r"differ in \(bits, labels\): \(8, 2\) and \(8, 4\)",
        ),
    ):
        with pytest.raises(ValueError, match=what):
            mean_average_precision(*wrong)
    with pytest.raises(ConfigError, match="ties = 'row': there are 'expected' and 'stable'"):
        mean_average_precision(*EXAMPLE, ties="row")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="divisor = 'all'"):
        tally(*EXAMPLE).map(3, "all")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="cut after 0 places"):
        mean_average_precision(*EXAMPLE, k=0)
    with pytest.raises(WayfareError, match="no queries"):
        mean_average_precision(queries[:0], database, query_labels[:0], database_labels)


def test_own_recall_by_hand() -> None:
    items = np.array([[0b00], [0b01], [0b11], [0b01]], np.uint8)
    # query 0: its own item alone is nearest; 1 and 3: two items tie at 0; 2: three are nearer than its own
    queries = np.array([[0b00], [0b01], [0b00], [0b01]], np.uint8)
    assert own_recall(queries, items, (1, 2, 3, 4)).tolist() == [0.5, 0.75, 0.75, 1.0]
    with pytest.raises(ValueError, match="a query for each item"):
        own_recall(queries, items[:2], (1,))
