"""Which rows of a data set of pairs are used, and what for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from wayfare.core.errors import ConfigError, DataError
from wayfare.core.protocols import Progress
from wayfare.core.seeds import rng_for
from wayfare.hashing.data.source import Drop, PairSource, Stored
from wayfare.io.decoded import decoded

if TYPE_CHECKING:
    from scipy.sparse import csr_array

REASONS: Mapping[Drop, str] = {"unlabelled": "without a label", "untexted": "without a word"}
MOST_QUERIES = 2000  # where nothing says how many


class Roles(NamedTuple):
    """Rows by what they are for, each rising."""

    query: np.ndarray
    train: np.ndarray
    retrieval: np.ndarray


def select(source: PairSource, rows: np.ndarray) -> PairSource:
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


def drop(source: PairSource, reasons: Collection[str]) -> PairSource:
    """Without the pairs that have no label (of the last level) or no word; how many is kept in `left_out`."""
    for reason, shown in REASONS.items():
        if reason in reasons:
            good = source.labelled if reason == "unlabelled" else source.worded
            left_out = {**source.left_out, shown: int((~good).sum())}
            source = replace(source if good.all() else select(source, np.flatnonzero(good)), left_out=left_out)
    return source


def with_pictures(source: PairSource, size: tuple[int, int], progress: Progress) -> PairSource:
    """Decode the pictures that are files, once; pairs of broken ones are left out and listed."""
    if source.files is None or not len(source):
        return source
    found = decoded(
        source.root, source.files, size, progress=lambda done, total: progress("decoding pictures", done, total)
    )
    for item in found.skipped:
        source.problems.add(item.reason, item.file, remedy="correct or remove it")
    whole = len(found) == len(source)
    stored = Stored(found, np.arange(len(found)), size)
    return replace(source if whole else select(source, found.kept), pictures=stored)


def without_empty_labels(source: PairSource, path: Path) -> PairSource:
    """Without the labels that no pair has; data without any label stays as it is."""
    if len(source) and not source.names:
        return source
    used = np.asarray(source.labels.any(axis=0))
    parts = np.split(used, np.cumsum(source.levels)[:-1])
    levels = tuple(int(part.sum()) for part in parts)
    if not len(source) or not all(levels):
        left_out = ", ".join(f"{count} {reason}" for reason, count in source.left_out.items())
        what = f"no pair with labels is left{' of ' + left_out if left_out else ''}; {source.problems.count} problems"
        raise DataError(what, path, remedy="`wayfare data check` lists them")
    names = [name for name, there in zip(source.names, used) if there]
    return replace(source, labels=np.ascontiguousarray(source.labels[:, used]), names=names, levels=levels)


def with_labels(source: PairSource, names: Sequence[str], levels: Sequence[int], path: Path) -> PairSource:
    """With these labels, level by level: those that the pairs do not have are there, others of theirs are not."""
    if len(levels) != len(source.levels):
        raise DataError(f"labels of {len(source.levels)} levels, expected {len(levels)}", path)
    found = np.zeros((len(source), len(names)), bool)
    if not names:  # nobody has any
        return replace(source, labels=found, names=[], levels=tuple(levels))
    ends, wanted_ends = np.cumsum(source.levels), np.cumsum(levels)
    for end, count, wanted_end, wanted in zip(ends, source.levels, wanted_ends, levels, strict=True):
        place_of = {name: place for place, name in enumerate(names[wanted_end - wanted : wanted_end])}
        for column, name in enumerate(source.names[end - count : end], int(end - count)):
            if name in place_of:
                found[:, wanted_end - wanted + place_of[name]] |= source.labels[:, column]
    if not found.any():
        some = ", ".join(map(repr, source.names[:10]))
        wanted_names = ", ".join(map(repr, names[:10]))
        raise DataError(
            f"none of its labels ({some}) is one of the {len(names)} of this experiment", path,
            remedy=f"expected some of {wanted_names}",
        )  # fmt: skip
    return replace(source, labels=found, names=list(names), levels=tuple(levels))


def with_words(source: PairSource, words: Sequence[str], path: Path) -> csr_array:
    """The bags of a source that brings its own, by another vocabulary."""
    if source.bags is None or not source.words:
        raise DataError(
            "its columns of text have no words, so they cannot be matched with the vocabulary of other devices",
            path,
        )

    place_of = {word: place for place, word in enumerate(words)}
    pairs = [(column, place_of[word]) for column, word in enumerate(source.words) if word in place_of]
    chosen, places = np.array(pairs, np.int64).reshape(-1, 2).T
    columns = csr_array(source.bags)[:, chosen].tocoo()
    shape = len(source), len(words)
    return csr_array((columns.data, (columns.row, places[columns.col])), shape=shape, dtype=np.float32)


def all_to_train(source: PairSource, path: Path) -> Roles:
    """A device's own pairs: all but those that the data marks as queries."""
    rows = np.arange(len(source)) if source.roles is None else np.flatnonzero(source.roles != "query")
    if not len(rows):
        raise DataError("no pair to learn from", path, field="split")
    return Roles(np.empty(0, np.int64), rows, rows)


def split(source: PairSource, query: int, train: int, seed: int, *, how: str, path: Path) -> Roles:
    """Queries, pairs to train on, and pairs to search: all that are not queries."""
    count = len(source)
    if count < 2:
        raise DataError(f"{count} pairs: at least 2 are needed", path)
    if how == "auto" and source.roles is not None:
        return _as_marked(source.roles, query, train, path)
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
    return Roles(
        np.sort(places[:queries]),
        np.sort(places[queries : queries + trained]),
        np.sort(places[queries:]),
    )


def _as_marked(roles: np.ndarray, query: int, train: int, path: Path) -> Roles:
    if query or train:
        raise ConfigError(
            "the data marks its queries and training pairs itself: data.query and data.train need "
            "data.split = 'random' or 'order'"
        )
    is_query = roles == "query"
    is_train = roles == "train" if (roles == "train").any() else ~is_query
    if not is_query.any() or is_query.all():
        raise DataError("expected some rows that are queries and some that are not", path, field="split")
    return Roles(np.flatnonzero(is_query), np.flatnonzero(is_train), np.flatnonzero(~is_query))
