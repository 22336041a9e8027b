"""Finding photos and texts by words or by a photo, in an index that `indexing` makes.

    model.safetensors   the model that made the codes, with its words: nothing else is needed to search
    photos, texts       the codes of either view, each as `code_index` keeps them; one of the two may be absent
    pictures            small pictures, of data that keeps its own in arrays

A query is compared with all codes by Hamming distance. The nearest, with all that are as near as the last of them, are
then ordered by `score`: the cosine of the query's output, as real numbers, and the item's, of which the index keeps 8
bits each (in an index without these: its signs). Before they are compared, outputs are scaled to length 1, and what all
of their kind have in common is taken out (`calibration`); a query's code has in its place what items have in common.
Results that are equal in that are ordered by distance, and by id.

Where items have texts, a query of words also finds those that have its words (`lexicon`), and the share of the words
that they have is added to the score, times `_WORDS_COUNT`. Words that neither the model nor the texts know are read as
known ones where that is likely (`spelling`), and the answer says so.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from wayfare.core.errors import ConfigError, DataError, StoreError
from wayfare.hashing.calibration import kind_of
from wayfare.hashing.code_index import FACTS, Codes
from wayfare.hashing.data.words import tokens
from wayfare.hashing.hash_model import HashModel, unpack
from wayfare.hashing.lexicon import Lexicon
from wayfare.hashing.ranking import pack
from wayfare.hashing.spelling import Reading, counted, read
from wayfare.io.images import decode_all
from wayfare.io.pictures import Skipped

MODEL, PICTURES = "model.safetensors", "pictures"
View = Literal["photos", "texts"]
VIEWS: tuple[View, View] = ("photos", "texts")
_SIDES: dict[View, str] = {"photos": "image", "texts": "text"}
_LOOK = 2000  # items, at least, whose scores are compared
_WORDS_COUNT = 1.0  # of all words, as much as the best score: who asks for a word wants it
_MOST_WORDS = 0.5  # an item that has so much of a query's words is close to it
_SHOWN = 6  # words in a message
_CHUNK = 256  # photos in memory at a time
_LOOKED_AT, _SUSPICIOUS = 1000, 20  # items, to see whether all have one code; fewer may well be alike


class Query(NamedTuple):
    """Words, or a photo."""

    words: str = ""
    photo: Path | None = None

    @property
    def title(self) -> str:
        return self.words if self.photo is None else str(self.photo)


@dataclass(frozen=True)
class Hit:
    """An item of the index."""

    id: str
    name: str  # to show
    distance: int  # bits that differ
    score: float  # -1 to 1
    words: float  # share of the query's words that its texts have, 0 to 1
    files: tuple[Path, ...]  # of a photo: itself; of a text: the photos it belongs to, if known
    texts: tuple[str, ...]  # of a text: itself; of a photo: what belongs to it, if known
    labels: tuple[str, ...]


@dataclass(frozen=True)
class SearchAnswer:
    """What was found for one query, the nearest first."""

    query: Query
    find: View
    hits: tuple[Hit, ...]
    unknown: tuple[str, ...] = ()  # words of the query that the model does not know
    nearest: tuple[str, ...] = ()  # known words that are spelt like them
    read_as: Mapping[str, str] = field(default_factory=dict)  # words, and the known words they were read as
    close: bool = True  # False: nothing in the index is as near as right results usually are


@dataclass
class Searched:
    """The answers to some queries, the queries that were refused, and how long it took."""

    answers: list[SearchAnswer] = field(default_factory=list)
    refused: list[Skipped] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: {"encode": 0.0, "search": 0.0})


class SearchIndex:
    """An index that is open for reading."""

    def __init__(self, folder: Path | str, device: str = "auto") -> None:
        self.folder, self._device = Path(folder), device
        if not is_search_index(self.folder):
            if (self.folder / "index.json").exists():
                raise ConfigError(
                    f"{folder} is an index of places, which has no words: `wayfare locate PHOTO --index {folder}`"
                )
            remedy = "make one with `wayfare index RUN`, of a run of the task hashing"
            raise DataError("there is no index to search here", self.folder, remedy=remedy)
        views = [view for view in VIEWS if (self.folder / view / FACTS).exists()]
        self.codes: dict[View, Codes] = {view: Codes(self.folder / view) for view in views}
        self._lexicons: dict[View, Lexicon] = {}
        self._vocabularies: dict[View, dict[str, int]] = {}
        if len({codes.facts.model for codes in self.codes.values()}) > 1:
            raise StoreError(
                f"{self.folder}: photos and texts were indexed with different models: make the index again"
            )

    @cached_property
    def model(self) -> HashModel:
        """The model that made the codes, and makes those of queries."""
        model, made = unpack(self.folder / MODEL, self._device), next(iter(self.codes.values())).facts
        if model.digest != made.model:
            raise StoreError(
                f"{self.folder / MODEL} is model {model.title}, but the index was made by {made.model[:12]} "
                f"({made.run}): it is damaged or exchanged; restore it, or make the index again"
            )
        return model

    def lexicon(self, view: View) -> Lexicon:
        """The words of the texts of a view's items."""
        if view not in self._lexicons:
            self._lexicons[view] = Lexicon(self.codes[view])
        return self._lexicons[view]

    def vocabulary(self, view: View) -> dict[str, int]:
        """The words that the model learnt from and those of the items' texts, as `spelling.read` takes them."""
        if view not in self._vocabularies:
            self._vocabularies[view] = counted([*self.model.words, *self.lexicon(view).words()])
        return self._vocabularies[view]

    def counts(self) -> dict[str, int]:
        """How many photos and texts there are."""
        return {view: len(self.codes[view]) if view in self.codes else 0 for view in VIEWS}

    def example(self) -> str:
        """Two words that its texts often have, for somebody who wants to try it."""
        codes = next(iter(self.codes.values()))
        rows = [codes.metadata_at(row) for row in range(min(len(codes), _LOOKED_AT))]
        said = " ".join(text for row in rows for text in row.get("texts", ())).split()
        often = [word for word, _ in Counter(word for word in said if word.isalpha() and len(word) > 3).most_common(2)]
        return " ".join(often or self.model.words[:2]) or "red shirt"

    def tells_nothing(self) -> list[View]:
        """The views of which all items, as far as can be seen, have one and the same code: the model has not learnt."""
        found: list[View] = []
        for view, codes in self.codes.items():
            some = codes.sample(_LOOKED_AT)
            if len(some) >= _SUSPICIOUS and len(np.unique(some, axis=0)) == 1:
                found.append(view)
        return found


def is_search_index(folder: Path) -> bool:
    """Whether codes of photos or texts are there."""
    return any((folder / view / FACTS).exists() for view in VIEWS)


def search(
    index: SearchIndex, queries: Iterable[Query], k: int = 10, find: View | None = None, *, use_texts: bool = True
) -> Searched:
    """The k nearest items to each query; without `use_texts` by codes alone, as if the items had no texts.

    `find` says whether to look for photos or texts. By default words look for photos and photos for texts, or for what
    there is if the index has only the other. A query that cannot be encoded is listed with the reason, and is an error
    where it is the only one.
    """
    if k < 1:
        raise ConfigError(f"k = {k}: expected at least one result")
    if find is not None and find not in index.codes:
        only = next(iter(index.codes))
        raise ConfigError(f"{index.folder} has no {find}, only {only}: leave out --find, or add some")
    all_queries = list(queries)
    if not all_queries:
        raise ConfigError("no query: give some words or a photo")
    model, found, answers = index.model, Searched(), dict[int, SearchAnswer]()
    began = time.perf_counter()
    usual = [view if view in index.codes else next(iter(index.codes)) for view in VIEWS]
    views: dict[str, View] = {"words": find or usual[0], "photo": find or usual[1]}
    words = [(at, each.words) for at, each in enumerate(all_queries) if not each.photo]
    photos = [(at, each.photo) for at, each in enumerate(all_queries) if each.photo]
    ready = {
        "words": list(_encode_words(index, views["words"], words, found)),
        "photo": list(_encode_photos(model, photos, found)),
    }
    encoded = time.perf_counter()
    for by, view in views.items():
        for each in ready[by]:
            answers[each.at] = _answer(index, view, all_queries[each.at], each, k, use_texts=use_texts)
    found.seconds = {"encode": encoded - began, "search": time.perf_counter() - encoded}
    found.answers = [answers[at] for at in sorted(answers)]
    if len(all_queries) == 1 and found.refused:
        raise DataError(found.refused[0].reason)
    return found


class _Encoded(NamedTuple):
    """A query, by its place among all, what its code is the signs of, and how its words were read."""

    at: int
    features: np.ndarray
    reading: Reading = Reading("", {}, ())
    near: tuple[str, ...] = ()


def _encode_words(
    index: SearchIndex, view: View, queries: Sequence[tuple[int, str]], found: Searched
) -> Iterator[_Encoded]:
    if not queries:
        return
    model, good = index.model, list[tuple[int, Reading, tuple[str, ...]]]()
    model.check_words()
    for at, words in queries:
        if not words.strip():
            found.refused.append(Skipped(words, "the query is empty: give some words, or a photo with --photo"))
            continue
        reading = read(words, index.vocabulary(view), model.task.model.text.is_word)
        near = similar_words(reading.unknown, model.vocabulary)
        if reason := _refusal(reading, near, model, index.lexicon(view)):
            found.refused.append(Skipped(words, reason))
        else:
            good.append((at, reading, near))
    outputs = model.of_texts([reading.text for _, reading, _ in good])
    outputs[[not model.knows(reading.text) for _, reading, _ in good]] = 0  # these have words of the texts only
    for (at, reading, near), features in zip(good, outputs):
        unknown = reading.unknown if not model.task.model.text.any_word else ()
        yield _Encoded(at, features, reading._replace(unknown=unknown), near if unknown else ())


def _encode_photos(model: HashModel, queries: Sequence[tuple[int, Path]], found: Searched) -> Iterator[_Encoded]:
    if not queries:
        return
    model.check_photos()
    for start in range(0, len(queries), _CHUNK):
        some = queries[start : start + _CHUNK]
        images, kept, skipped = decode_all([photo for _, photo in some], model.size)
        found.refused += [Skipped(item.file, f"{item.file}: {item.reason}") for item in skipped]
        for place, features in zip(kept, model.of_pictures(images)):
            yield _Encoded(some[place][0], features)


# ---- Words


def similar_words(unknown: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Words of a vocabulary that are spelt like some that are not in it."""
    close = (close for word in unknown for close in get_close_matches(word, sorted(known), n=2, cutoff=0.7))
    return tuple(dict.fromkeys(close))


def _refusal(reading: Reading, near: Sequence[str], model: HashModel, lexicon: Lexicon) -> str:
    """Why a text cannot be searched for; "" if it can."""
    if not reading.text and not reading.unknown:
        return "the query has no word in it: give some words, or a photo with --photo"
    if model.knows(reading.text) or any(map(lexicon.has, tokens(reading.text))):
        return ""
    hint = f"nearest to them are {_listed(near)}" if near else f"it knows {_listed(model.words)}, for instance"
    return f"none of these words is known to the model: {_listed(reading.unknown)}; {hint}"


def _listed(words: Sequence[str]) -> str:
    return ", ".join(map(repr, words[:_SHOWN])) + (", ..." if len(words) > _SHOWN else "")


# ---- Codes


def _answer(index: SearchIndex, view: View, query: Query, each: _Encoded, k: int, *, use_texts: bool) -> SearchAnswer:
    codes, text = index.codes[view], each.reading.text if use_texts else ""
    by_words = index.lexicon(view).search(text) if text else None
    own = index.model.centre(kind_of(each.reading.text) if query.photo is None else "image")
    known = bool(each.features.any())
    asked = each.features / np.linalg.norm(each.features) - own if known else each.features
    hits = nearest_items(codes, asked, k, by_words, index.model.centre(_SIDES[view]))
    hits = hits if known else tuple(hit for hit in hits if hit.words)
    level = index.model.close[view]
    close = any(hit.score >= level or hit.words >= _MOST_WORDS for hit in hits)
    reading = each.reading
    return SearchAnswer(
        query, view, hits, unknown=reading.unknown, nearest=each.near, read_as=reading.changed, close=close
    )


def nearest_items(
    codes: Codes, features: np.ndarray, k: int, by_words: tuple[np.ndarray, np.ndarray] | None = None,
    centre: np.ndarray | float = 0.0,
) -> tuple[Hit, ...]:  # fmt: skip
    """The best k items for a query's output and for rows that have its words, with their shares.

    `centre` is what the items' outputs of length 1 have in common; what queries have in common is out already.
    """
    code = pack((features + centre)[None])[0]
    rows, _ = codes.near(code, max(_LOOK, 20 * k))
    shares = np.zeros(len(rows))
    if by_words is not None:
        rows = np.union1d(rows, by_words[0])
        shares = np.zeros(len(rows))
        shares[np.searchsorted(rows, by_words[0])] = by_words[1]
    scores = _cosines(codes.numbers(rows, len(features)), features, centre)
    totals = (scores + _WORDS_COUNT * shares).round(6)
    distances = codes.distances_of(rows, code)
    reach = np.sort(-totals)[min(k, len(rows)) - 1]
    some = np.flatnonzero(-totals <= reach)  # all that are equal to the last
    order = sorted(some.tolist(), key=lambda at: (-totals[at], distances[at], codes.id_at(int(rows[at]))))[:k]
    return tuple(_hit(codes, int(rows[at]), int(distances[at]), float(scores[at]), float(shares[at])) for at in order)


def _cosines(items: np.ndarray, features: np.ndarray, centre: np.ndarray | float) -> np.ndarray:
    items = items / np.maximum(np.linalg.norm(items, axis=1, keepdims=True), 1e-12) - centre
    lengths = np.linalg.norm(items, axis=1) * (float(np.linalg.norm(features)) or 1.0)
    found: np.ndarray = items @ features.astype(np.float32) / np.maximum(lengths, 1e-12)
    return found.astype(np.float64)


def _hit(codes: Codes, row: int, distance: int, score: float, words: float) -> Hit:
    about, id = codes.metadata_at(row), codes.id_at(row)
    texts, labels = (tuple(map(str, about.get(key, ()))) for key in ("texts", "labels"))
    return Hit(
        id=id,
        name=str(about.get("name", id)),
        distance=distance,
        score=score,
        words=min(words, 1.0),
        files=tuple(map(Path, about.get("files", ()))),
        texts=texts,
        labels=labels,
    )


def as_table(answer: SearchAnswer) -> dict[str, Any]:
    """An answer as JSON can hold it."""
    return {
        "query": answer.query.title, "by": "words" if answer.query.photo is None else "photo", "find": answer.find,
        "unknown_words": list(answer.unknown), "nearest_words": list(answer.nearest),
        "read_as": dict(answer.read_as), "close": answer.close,
        "results": [
            {"rank": rank, "id": hit.id, "name": hit.name, "files": list(map(str, hit.files)), "texts": list(hit.texts),
             "labels": list(hit.labels), "distance": hit.distance, "score": round(hit.score, 6),
             "words": round(hit.words, 6)}
            for rank, hit in enumerate(answer.hits, start=1)
        ],
    }  # fmt: skip


def as_result(index: SearchIndex, found: Searched, k: int) -> dict[str, Any]:
    """All answers for JSON, as the command line prints them and the web application hands them out."""
    return {
        "index": str(index.folder), "model": index.model.digest, "bits": index.model.bits, "k": k, **index.counts(),
        "answers": [as_table(each) for each in found.answers],
        "refused": [{"query": item.file, "reason": item.reason} for item in found.refused], "seconds": found.seconds,
    }  # fmt: skip
