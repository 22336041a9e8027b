"""Recall: is one of the N nearest photographs of the database from the query's place? With the protocol it was under.

The same network scores five points more or less with another set of queries, another radius or another denominator
(methods differ in all three), so a `Result` carries its `Protocol` and no number goes without it.

    R@N             share of the counted queries with a positive among their N nearest; a positive lies at most
                    `radius` metres away, or is paired with the query in a set of frames
    R@100P          recall at 100 % precision: answers are accepted from the nearest descriptor outwards as long as none
                    is wrong. The share of the queries that have a positive which are then answered. All queries are
                    asked under either denominator; to answer one that has no positive is wrong
    median_error_m  metres from a counted query to its nearest photograph by descriptor: half of the errors are below
    p90_error_m     the same for nine tenths

A metric of a part of the queries has its name behind a slash: "R@1/night". Positions are compared within a group (a
city and its zone) only. So are descriptors if a query is looked for in its own city's database, and a query whose group
has no database then gets no answer. If it is looked for in the union of all databases, an answer from another group is
wrong by infinitely many metres, and a median or quantile that is infinite is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.spatial import cKDTree

from wayfare.core.errors import ConfigError, DataError
from wayfare.places.nearest import nearest

Denominator = Literal["queries with a positive", "all queries"]
Search = Literal["city", "union"]


@dataclass(frozen=True)
class Protocol:
    """What a recall means. Without a radius, positives are paired frames."""

    queries: str = "all"  # the name of the set of queries, such as MSLS's subtasks "all", "d2n", ...
    radius: float | None = 25.0
    denominator: Denominator = "queries with a positive"
    resolution: str = ""  # of the pictures, height x width
    cutoffs: tuple[int, ...] = (1, 5, 10, 20)
    search: Search = "city"  # in the database of the query's own city, or in those of all cities at once

    def __post_init__(self) -> None:
        if self.denominator not in ("queries with a positive", "all queries"):
            raise ConfigError(f"denominator {self.denominator!r}: 'queries with a positive' or 'all queries'")
        if self.search not in ("city", "union"):
            raise ConfigError(f"search {self.search!r}: 'city' or 'union'")
        if not self.cutoffs or min(self.cutoffs) < 1:
            raise ConfigError(f"cutoffs {self.cutoffs}: expected at least one, each at least 1")
        if self.radius is not None and not self.radius >= 0:
            raise ConfigError(f"radius {self.radius}: metres, at least 0")

    @property
    def text(self) -> str:
        """To be printed beside every number."""
        return self.words()

    def words(self, queries: int | None = None, counted: int | None = None) -> str:
        """The same with how many queries there are, and how many of them have a right answer."""
        asked = "queries" if queries is None else f"{queries:,} queries"
        truth = "paired with the query" if self.radius is None else f"within {self.radius:g} m"
        every = self.denominator == "all queries"
        count = "" if counted is None else f" {counted:,}"
        which = "all queries count" if every else f"only the{count} queries that have one in the database count"
        where = "; looked for in all cities at once" if self.search == "union" else ""
        seen = f"; pictures of {self.resolution}" if self.resolution else ""
        return f"{asked}: {self.queries}; right: a photo {truth}; {which}{where}{seen}"


@dataclass(frozen=True)
class Result:
    """The metrics and what they were computed from; a row for each query, N = the largest cutoff."""

    protocol: Protocol
    metrics: dict[str, float]  # shares are 0..1; a part without a counted query has none
    counts: dict[str, int]  # "queries", "with_positive", "answered", and the same of each part
    top: np.ndarray  # int64 (Q, N): rows of the database, nearest first; -1 where there is none
    distances: np.ndarray  # float64 (Q, N): of the descriptors; inf where there is none
    correct: np.ndarray  # bool (Q, N): is it a positive?
    has_positive: np.ndarray  # bool (Q,)
    errors: np.ndarray  # float64 (Q,): metres to the nearest; NaN without an answer or positions, inf in another group

    @property
    def text(self) -> str:
        """The metrics of all queries in a line, with their protocol."""
        shares = [f"{name} {100 * value:.1f}" for name, value in self.metrics.items() if _is_share(name)]
        return f"{'  '.join(shares) or 'nothing to measure'}  ({self.protocol.words(self.counts['queries'])})"


def recalls(
    query_descriptors: np.ndarray,
    database_descriptors: np.ndarray,
    query_positions: np.ndarray | None,
    database_positions: np.ndarray | None,
    query_groups: np.ndarray,
    database_groups: np.ndarray,
    protocol: Protocol,
    parts: Mapping[str, np.ndarray] | None = None,
    pairs: np.ndarray | None = None,
) -> Result:
    """Every metric, of all queries and of each part (a mask of the queries, see `parts_of`).

    Positions are easting and northing in metres, (Q, 2) and (D, 2). Sets of frames give `pairs` instead, (P, 2): a row
    of the queries and one of the database; their positions, where known, serve the errors in metres.
    """
    _check(query_descriptors, query_positions, query_groups, "queries", needed=pairs is None)
    _check(database_descriptors, database_positions, database_groups, "database", needed=pairs is None)
    if (pairs is None) != (protocol.radius is not None):
        raise ConfigError("a protocol has a radius where truth is by position, and none where frames are paired")
    asked, known = query_groups, database_groups
    if protocol.search == "union":
        asked, known = np.zeros_like(asked), np.zeros_like(known)
    top, distances = _search(query_descriptors, database_descriptors, asked, known, max(protocol.cutoffs))
    errors = np.full(len(top), np.nan)
    if query_positions is not None and database_positions is not None:
        answered = np.flatnonzero(top[:, 0] >= 0)
        first = top[answered, 0]
        away = _metres(query_positions[answered], database_positions[first])
        errors[answered] = np.where(query_groups[answered] == database_groups[first], away, np.inf)
    if pairs is not None:
        correct, has_positive = _paired(pairs, top, query_groups, database_groups)
    elif query_positions is not None and database_positions is not None and protocol.radius is not None:
        correct = (top >= 0) & (query_groups[:, None] == database_groups[top]) if len(database_groups) else top >= 0
        away = _metres(query_positions[np.nonzero(correct)[0]], database_positions[top[correct]])
        correct[correct] = away <= protocol.radius
        closest = _closest(query_positions, database_positions, query_groups, database_groups)
        has_positive = (closest <= protocol.radius) | correct.any(1)
    result = Result(
        protocol, {}, counts={}, top=top, distances=distances, correct=correct, has_positive=has_positive, errors=errors
    )
    for name, mask in {"": np.ones(len(top), bool), **(parts or {})}.items():
        if mask.shape != (len(top),) or mask.dtype != bool:
            raise ValueError(f"part {name!r} must be a mask of {len(top)} queries")
        _measure(result, mask, f"/{name}" if name else "")
    return result


def parts_of(
    city: Sequence[str] | np.ndarray | None = None,
    night: np.ndarray | None = None,
    direction: Sequence[str] | np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Masks of the queries by day and night, by view direction and by city, for each of these that is known."""
    parts = {} if night is None else {"day": ~night.astype(bool), "night": night.astype(bool)}
    for kind, labels in (("direction", direction), ("city", city)):
        if labels is not None:
            labels = np.asarray(labels, object)
            for name in sorted(set(labels.tolist()) - {""}):
                parts[name if name not in parts else f"{kind} {name}"] = labels == name
    return {name: mask for name, mask in parts.items() if mask.any()}


def precision_recall(
    distances: np.ndarray, correct: np.ndarray, has_positive: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Thresholds, precision and recall: what comes out if answers up to each distance are accepted, others refused.

    Precision is of the accepted answers, recall of the queries that have a positive. Answers at the same distance are
    accepted together; queries without an answer (an infinite distance) never.
    """
    order = np.argsort(distances, kind="stable")[: np.isfinite(distances).sum()]
    right = np.cumsum(correct[order])
    last = np.flatnonzero(np.append(np.diff(distances[order]) > 0, True)) if len(order) else order
    return distances[order][last], right[last] / (last + 1), right[last] / max(1, has_positive.sum())


def _measure(result: Result, part: np.ndarray, suffix: str) -> None:
    with_positive, answered = part & result.has_positive, part & (result.top[:, 0] >= 0)
    sizes = {"queries": part, "with_positive": with_positive, "answered": answered}
    result.counts.update({name + suffix: int(mask.sum()) for name, mask in sizes.items()})
    counted = part if result.protocol.denominator == "all queries" else with_positive
    if counted.any():
        for cutoff in result.protocol.cutoffs:
            found = result.correct[counted, :cutoff].any(1)
            result.metrics[f"R@{cutoff}{suffix}"] = float(found.mean())
    if with_positive.any():
        _, precision, recall = precision_recall(
            result.distances[part, 0], result.correct[part, 0], result.has_positive[part]
        )
        result.metrics[f"R@100P{suffix}"] = float(recall[precision == 1].max(initial=0.0))
    errors = np.sort(result.errors[counted & ~np.isnan(result.errors)])
    finite = np.where(np.isinf(errors), errors[np.isfinite(errors)].max(initial=0.0), errors)  # to interpolate between
    for name, share in (("median_error_m", 0.5), ("p90_error_m", 0.9)):
        if len(errors) and np.isfinite(errors[int(np.ceil(share * (len(errors) - 1)))]):
            result.metrics[f"{name}{suffix}"] = float(np.quantile(finite, share))


def _is_share(name: str) -> bool:
    return name.startswith("R@") and "/" not in name


def _search(
    queries: np.ndarray, database: np.ndarray, query_groups: np.ndarray, database_groups: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    top = np.full((len(queries), count), -1, np.int64)
    distances = np.full((len(queries), count), np.inf)
    for group in np.unique(query_groups):
        members, known = np.flatnonzero(query_groups == group), np.flatnonzero(database_groups == group)
        if len(known):
            rows, squared = nearest(queries[members], database[known], count)
            top[members, : rows.shape[1]], distances[members, : rows.shape[1]] = (
                known[rows],
                np.sqrt(squared),
            )
    return top, distances


def _closest(
    queries: np.ndarray, database: np.ndarray, query_groups: np.ndarray, database_groups: np.ndarray
) -> np.ndarray:
    """Metres to the closest photograph of the database; inf where the group has none."""
    closest = np.full(len(queries), np.inf)
    for group in np.unique(query_groups):
        asked, known = np.flatnonzero(query_groups == group), np.flatnonzero(database_groups == group)
        if len(known):
            _, rows = cKDTree(database[known]).query(queries[asked])
            closest[asked] = _metres(queries[asked], database[known[rows]])
    return closest


def _paired(
    pairs: np.ndarray, top: np.ndarray, query_groups: np.ndarray, database_groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    queries, photos = pairs[:, 0], pairs[:, 1]
    if len(pairs) and not (
        0 <= queries.min() <= queries.max() < len(query_groups)
        and 0 <= photos.min() <= photos.max() < len(database_groups)
    ):
        raise DataError("pairs name photographs beyond the queries or the database")
    if (query_groups[queries] != database_groups[photos]).any():
        raise DataError("pairs of photographs of different groups: they are never compared")
    has_positive = np.zeros(len(top), bool)
    has_positive[queries] = True
    numbers = np.arange(len(top))[:, None] * len(database_groups)
    return (top >= 0) & np.isin(numbers + top, queries * len(database_groups) + photos), has_positive


def _metres(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    apart = left - right
    found: np.ndarray = np.hypot(apart[..., 0], apart[..., 1])
    return found


def _check(descriptors: np.ndarray, positions: np.ndarray | None, groups: np.ndarray, name: str, needed: bool) -> None:
    if groups.shape != (len(descriptors),):
        raise ValueError(f"{name}: {len(descriptors)} descriptors but groups have shape {groups.shape}")
    if positions is None:
        if needed:
            raise DataError(f"{name}: no positions and no pairs, so nothing says which answers are right")
        return
    if positions.shape != (len(descriptors), 2):
        raise ValueError(f"{name}: {len(descriptors)} descriptors but positions have shape {positions.shape}")
    unknown = int((~np.isfinite(positions)).any(1).sum())
    if unknown and needed:
        raise DataError(
            f"{name}: {unknown} of {len(positions)} photographs have no position", remedy="leave them out, or use pairs"
        )
