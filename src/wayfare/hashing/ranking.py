"""How well binary codes rank: MAP, MAP@k, precision and recall, for codes compared by Hamming distance.

Codes of b bits have only b + 1 distances, so most items of a list are tied, and a sort leaves them in the order of the
file: sorted by class, that flatters. So the default is the expectation over all orders of tied items (ties="expected"),
exact and in closed form, for which it is enough to count, for each query, the items and the relevant items at every
distance (`RankTally`). ties="stable" leaves tied items in the order of the rows, as published figures do, more or less.

An item is relevant to a query if they share a label. A query without a relevant item counts, with 0.

One query at a time is compared with the whole list: the exclusive or of 64-bit words, their set bits, one count over
distance and relevance together. That is about 3 ns per pair, half of it the counting; multiplying matrices of +-1 takes
7 ns before anything is counted. There are no threads, only whole numbers until the end, and a mean that does not depend
on the order of the queries: the same figures to the bit wherever the work is done.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch

from wayfare.core.errors import ConfigError, WayfareError

Ties = Literal["expected", "stable"]
Divisor = Literal["found", "possible"]


def pack(values: np.ndarray) -> np.ndarray:
    """Codes, uint8 (N, ceil(bits / 8)) as faiss lays them out, of real numbers (N, bits): a bit is set from 0 on."""
    if values.ndim != 2 or not values.shape[1]:
        raise ValueError(f"values to make codes of must be rows of at least one bit, not of shape {values.shape}")
    broken = np.flatnonzero(~np.isfinite(values).all(1))
    if len(broken):
        raise WayfareError(
            f"{len(broken)} of {len(values)} outputs of the hash layer are not finite, the first in row {broken[0]}: "
            "the network has diverged (lower training.lr or set training.clip)"
        )
    return np.packbits(values >= 0, axis=1, bitorder="little")


@dataclass(frozen=True)
class RankTally:
    """For each query, how many items lie at each distance, and how many relevant ones: int64 (Q, distances)."""

    items: np.ndarray
    relevant: np.ndarray

    def average_precisions(self, k: int | None = None, divisor: Divisor = "found") -> np.ndarray:
        """Each query's expected AP over the list, or over its first k places.

        AP@k is the sum of the precisions at the relevant items among the first k, divided by how many these are
        ("found", what is printed as MAP@k of hashing), or by how many there could be, min(k, all relevant) ("possible",
        as elsewhere in retrieval).
        """
        _check(divisor, Divisor, "divisor")
        size = self._size
        k = _cutoff(k, size)
        harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, size + 1))])
        seen, hits = (np.cumsum(counts, 1) - counts for counts in (self.items, self.relevant))
        whole = seen + self.items <= k
        gained = np.where(whole, _gain(seen, hits, self.items, self.relevant, harmonic), 0.0).sum(1)
        found, possible = np.where(whole, self.relevant, 0).sum(1), np.minimum(self.relevant.sum(1), k)
        result: np.ndarray = gained / np.maximum(found if divisor == "found" else possible, 1)
        factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, size + 1)))])
        for query, distance in np.argwhere((seen < k) & ~whole):  # the tie that the k-th place divides, if there is one
            before, right_before = int(seen[query, distance]), int(hits[query, distance])
            count, right = int(self.items[query, distance]), int(self.relevant[query, distance])
            taken = k - before
            chosen = np.arange(max(0, taken - (count - right)), min(taken, right) + 1)  # relevant ones among the taken
            chance = _chances(count, right, taken, chosen, factorials)
            total = gained[query] + _gain(before, right_before, taken, chosen, harmonic)
            divided_by = right_before + chosen if divisor == "found" else possible[query]
            result[query] = (chance * total / np.maximum(divided_by, 1)).sum()
        return result

    def map(self, k: int | None = None, divisor: Divisor = "found") -> float:
        """The mean of all queries' expected AP."""
        return _mean(self.average_precisions(k, divisor))

    def random_map(self, k: int | None = None, divisor: Divisor = "found") -> float:
        """The expected MAP of codes that know nothing, of any number of bits: the floor.

        Such codes put the items into any order with the same chance, which is one tie of the whole list.
        """
        return RankTally(self.items.sum(1, keepdims=True), self.relevant.sum(1, keepdims=True)).map(k, divisor)

    def precision_recall(self) -> tuple[np.ndarray, np.ndarray]:
        """Precision and recall of what lies within each radius 0, 1, ... bits, means over the queries.

        A query that finds nothing within a radius has precision 0 there.
        """
        items, right = np.cumsum(self.items, 1), np.cumsum(self.relevant, 1)
        precision, recall = right / np.maximum(items, 1), right / np.maximum(right[:, -1:], 1)
        return precision.mean(0), recall.mean(0)

    @property
    def _size(self) -> int:
        """How long the list is, which is the same for every query."""
        return int(self.items[0].sum()) if len(self.items) else 0


def tally(
    queries: np.ndarray, database: np.ndarray, query_labels: np.ndarray, database_labels: np.ndarray
) -> RankTally:
    """Compare codes (see `pack`), uint8 (Q, B) and (D, B), whose labels are multi-hot, (Q, C) and (D, C)."""
    bins = 8 * queries.shape[1] + 1
    counts = np.zeros((len(queries), 2, bins), np.int64)
    known = beyond = None
    for query, distances, relevant in _compared(queries, database, query_labels, database_labels):
        if relevant is not known:
            known, beyond = relevant, relevant * distances.dtype.type(bins)
        distances += beyond
        counts[query] = torch.bincount(torch.from_numpy(distances), minlength=2 * bins).numpy().reshape(2, bins)
    return RankTally(counts.sum(1), counts[:, 1])


def mean_average_precision(
    queries: np.ndarray,
    database: np.ndarray,
    query_labels: np.ndarray,
    database_labels: np.ndarray,
    ties: Ties = "expected",
    k: int | None = None,
    divisor: Divisor = "found",
) -> float:
    """MAP, or MAP@k (see `RankTally.average_precisions`), with tied items in any order or in that of their rows."""
    _check(ties, Ties, "ties")
    _check(divisor, Divisor, "divisor")
    if ties == "expected":
        return tally(queries, database, query_labels, database_labels).map(k, divisor)
    k = _cutoff(k, len(database))
    result = []
    for ranks in _ranks(queries, database, query_labels, database_labels):
        within = ranks[: np.searchsorted(ranks, k, side="right")]
        divided_by = len(within) if divisor == "found" else min(len(ranks), k)
        result.append((np.arange(1, len(within) + 1) / within).sum() / max(divided_by, 1))
    return _mean(np.array(result))


def own_recall(queries: np.ndarray, items: np.ndarray, cutoffs: Sequence[int]) -> np.ndarray:
    """R@k for each k: how often the item of a query's own row is among the first k of all items; ties in any order.

    Codes are as `pack` gives them, both (N, B).
    """
    if queries.shape != items.shape:
        raise ValueError(f"{queries.shape} queries and {items.shape} items: expected a query for each item")
    nobody = np.zeros((len(items), 1), bool)
    found = np.zeros((len(queries), len(cutoffs)))
    for query, distances, _ in _compared(queries, items, nobody, nobody):
        own = distances[query]
        before, tied = int((distances < own).sum()), int((distances == own).sum())
        found[query] = [min(max((cutoff - before) / tied, 0.0), 1.0) for cutoff in cutoffs]
    return np.array([_mean(column) for column in found.T])


# ---- Comparing


def _compared(
    queries: np.ndarray, database: np.ndarray, query_labels: np.ndarray, database_labels: np.ndarray
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """For each query its number, the distances of all items, in an array that is used again, and which are relevant.

    Queries with the same labels follow each other: what is relevant to them is worked out once.
    """
    for name, codes, labels in (("queries", queries, query_labels), ("database", database, database_labels)):
        if codes.ndim != 2 or codes.dtype != np.uint8 or not codes.shape[1]:
            raise ValueError(f"{name}: codes must be rows of packed bytes, not {codes.dtype} of shape {codes.shape}")
        if labels.ndim != 2 or len(labels) != len(codes):
            raise ValueError(f"{name}: {len(codes)} codes but labels have shape {labels.shape}")
    if queries.shape[1] != database.shape[1] or query_labels.shape[1] != database_labels.shape[1]:
        sizes = [(8 * codes.shape[1], labels.shape[1]) for codes, labels in
                 ((queries, query_labels), (database, database_labels))]  # fmt: skip
        raise ValueError(f"queries and database differ in (bits, labels): {sizes[0]} and {sizes[1]}")
    codes, query_codes = _words(database), _words(queries)
    labels, wanted = (_words(np.packbits(each > 0, axis=1)) for each in (database_labels, query_labels))
    words = np.empty(len(database), np.uint64)
    distances: np.ndarray = np.empty(len(database), np.uint8 if len(codes) == 1 else np.int16)
    order = np.lexsort(wanted)
    differs = np.append(True, (wanted[:, order[1:]] != wanted[:, order[:-1]]).any(0))  # from the query before it
    for query, differs_here in zip(order.tolist(), differs.tolist()):
        if differs_here:
            relevant = (labels[0] & wanted[0, query]) != 0
            for word, own in zip(labels[1:], wanted[1:, query]):
                relevant |= (word & own) != 0
        np.bitwise_count(np.bitwise_xor(codes[0], query_codes[0, query], out=words), out=distances)
        for word, own in zip(codes[1:], query_codes[1:, query]):
            distances += np.bitwise_count(word ^ own)
        yield query, distances, relevant


def _ranks(
    queries: np.ndarray, database: np.ndarray, query_labels: np.ndarray, database_labels: np.ndarray
) -> Iterator[np.ndarray]:
    """For each query, in any order, the places of its relevant items in the list, from 1; equal distances by row."""
    for _, distances, relevant in _compared(queries, database, query_labels, database_labels):
        yield np.flatnonzero(relevant[np.argsort(distances, kind="stable")]) + 1


def _words(packed: np.ndarray) -> np.ndarray:
    """The bytes of each row as words of 64 bits, uint64 (W, N) with at least one: what is added are zeros."""
    rows, width = packed.shape
    filled = np.zeros((rows, 8 * max(1, -(-width // 8))), np.uint8)
    filled[:, :width] = packed
    return np.ascontiguousarray(filled.view(np.uint64).T)


# ---- Expecting


def _gain(
    seen: np.ndarray | int, hits: np.ndarray | int, count: np.ndarray | int, right: np.ndarray, harmonic: np.ndarray
) -> np.ndarray:
    """The expected sum of the precisions at the relevant ones of a tie, in any order with the same chance.

    The tie has `count` items, `right` of them relevant, and follows `seen` items with `hits` relevant ones. Its i-th
    item is relevant with chance right / count, and then (i - 1) (right - 1) / (count - 1) relevant ones are expected
    before it in the tie; what is summed over i is (hits + 1 + that) / (seen + i), by differences of harmonic numbers.
    """
    inverse = harmonic[seen + count] - harmonic[seen]
    before = (right - 1) / np.maximum(count - 1, 1) * (count - (seen + 1) * inverse)
    gain: np.ndarray = right / np.maximum(count, 1) * ((hits + 1) * inverse + before)
    return gain


def _chances(count: int, right: int, taken: int, chosen: np.ndarray, factorials: np.ndarray) -> np.ndarray:
    """The chance of each number of relevant ones among so many taken: hypergeometric; `factorials` are logarithms."""
    other = count - right
    weights = -factorials[chosen] - factorials[right - chosen]
    weights -= factorials[taken - chosen] + factorials[other - taken + chosen]
    chances: np.ndarray = np.exp(weights - weights.max())
    chances /= chances.sum()
    return chances


def _check(value: str, choices: Any, name: str) -> None:
    if value not in get_args(choices):
        raise ConfigError(f"{name} = {value!r}: there are {' and '.join(map(repr, get_args(choices)))}")


def _cutoff(k: int | None, size: int) -> int:
    if k is not None and k < 1:
        raise ConfigError(f"a list cannot be cut after {k} places: give a number from 1 on")
    return size if k is None else min(k, size)


def _mean(values: np.ndarray) -> float:
    if not len(values):
        raise WayfareError("there are no queries, so there is no mean over them")
    return math.fsum(values) / len(values)
