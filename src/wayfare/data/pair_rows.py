"""Which rows of a data set of pairs are used, and what for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wayfare.core.seeds import rng_for
from wayfare.data.decoded import decoded
from wayfare.data.pair_source import Saying, Source, Stored
from wayfare.errors import ConfigError, DataError, unknown

REASONS = {"unlabelled": "without a label", "untexted": "without a word"}
SPLITS = ("auto", "order", "random")
MOST_QUERIES = 2000  # where nothing says how many


class Split(NamedTuple):
    """Rows by what they are for, each rising."""

    query: np.ndarray
    train: np.ndarray
    retrieval: np.ndarray


def select(source: Source, rows: np.ndarray) -> Source:
    """Some of the pairs, in that order."""

    def part(values: Sequence[Any]) -> list[Any]:
        return [values[row] for row in rows]

    return replace(
        source,
        ids=part(source.ids),
        labels=source.labels[rows],
        texts=part(source.texts) if source.texts else (),
        bags=None if source.bags is None else source.bags[rows],
        pictures=None if source.pictures is None else replace(source.pictures, rows=source.pictures.rows[rows]),
        files=None if source.files is None else part(source.files),
        features=None if source.features is None else source.features[rows],
        roles=None if source.roles is None else source.roles[rows],
    )


def drop(source: Source, reasons: Collection[str]) -> Source:
    """Without the pairs that have no label (of the last level) or no word, which are counted."""
    for reason, shown in REASONS.items():
        if reason in reasons:
            good = source.labelled if reason == "unlabelled" else source.worded
            left_out = {**source.left_out, shown: int((~good).sum())}
            source = replace(source if good.all() else select(source, np.flatnonzero(good)), left_out=left_out)
    return source


def with_pictures(source: Source, size: tuple[int, int], progress: Saying) -> Source:
    """Decode the pictures that are files, once; pairs of broken ones are left out and listed."""
    if source.files is None or not len(source):
        return source
    found = decoded(
        source.root, source.files, size, progress=lambda done, total: progress("decoding pictures", done, total)
    )
    for item in found.skipped:
        source.problems.add(item.reason, item.file, remedy="mend or remove it")
    whole = len(found) == len(source)
    stored = Stored(found, np.arange(len(found)), size)
    return replace(source if whole else select(source, found.kept), pictures=stored)


def without_empty_labels(source: Source, path: Path) -> Source:
    """Without the labels that no pair has."""
    used = np.asarray(source.labels.any(axis=0))
    parts = np.split(used, np.cumsum(source.levels)[:-1])
    levels = tuple(int(part.sum()) for part in parts)
    if not len(source) or not all(levels):
        left_out = ", ".join(f"{count} {reason}" for reason, count in source.left_out.items())
        what = f"no pair with labels is left{' of ' + left_out if left_out else ''}; {source.problems.count} problems"
        raise DataError(what, path, remedy="`wayfare data check` lists them")
    names = [name for name, there in zip(source.names, used) if there]
    return replace(source, labels=np.ascontiguousarray(source.labels[:, used]), names=names, levels=levels)


def split(source: Source, query: int, train: int, seed: int, how: str, path: Path) -> Split:
    """Queries, what to train on, and what is searched: all that are no queries."""
    if how not in SPLITS:
        raise unknown("split", how, SPLITS)
    count = len(source)
    if count < 2:
        raise DataError(f"{count} pairs: at least 2 are needed", path)
    if how == "auto" and source.roles is not None:
        return _as_said(source.roles, query, train, path)
    fits = count >= source.sizes.query + max(source.sizes.train, 1)  # a smaller set than the paper's has its own sizes
    usual = min(max(count // 10, 1), MOST_QUERIES)
    queries = query or (source.sizes.query if fits else 0) or usual
    others = count - queries
    trained = train or min(source.sizes.train if fits else 0, others) or others
    if others < 1 or trained > others:
        wanted = f"query = {queries} and train = {max(trained, 1)}"
        raise ConfigError(f"{count} pairs are not enough for {wanted}: lower them")
    in_order = how == "order" or (how == "auto" and source.in_order)
    places = np.arange(count) if in_order else rng_for(seed, "pairs").permutation(count)
    return Split(
        np.sort(places[:queries]),
        np.sort(places[queries : queries + trained]),
        np.sort(places[queries:]),
    )


def _as_said(roles: np.ndarray, query: int, train: int, path: Path) -> Split:
    if query or train:
        what = "the data says itself which rows are queries and which are to train on"
        raise ConfigError(f"{what}: query and train go with split = 'random' or 'order'")
    asks = roles == "query"
    taught = roles == "train" if (roles == "train").any() else ~asks
    if not asks.any() or asks.all():
        raise DataError("expected some rows that are queries and some that are not", path, field="split")
    return Split(np.flatnonzero(asks), np.flatnonzero(taught), np.flatnonzero(~asks))
