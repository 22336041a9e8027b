"""Finding photos and texts by words or by a photo, in an index that `indexing` makes.

    model.safetensors   the model that made the codes, with its words: nothing else is needed to search
    photos, texts       the codes of either view, each as `code_index` keeps them; one of the two may be absent
    pictures            small pictures, of data that keeps its own in arrays

Results are ordered by Hamming distance. Codes are short and many have the same distance; these are ordered by `score`:
how well the code agrees with the query's real-valued output, weighted by the size of each number; 1 if all signs agree,
-1 if none does. Results that are equal in both are ordered by id.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from wayfare.core.errors import ConfigError, DataError, StoreError
from wayfare.hashing.code_index import FACTS, Codes
from wayfare.hashing.data.words import tokens
from wayfare.hashing.hash_model import HashModel, unpack
from wayfare.hashing.ranking import pack
from wayfare.io.images import decode_all
from wayfare.io.pictures import Skipped

MODEL, PICTURES = "model.safetensors", "pictures"
View = Literal["photos", "texts"]
VIEWS: tuple[View, View] = ("photos", "texts")
_FIRST_LOOK, _LAST_LOOK = 256, 16_384  # items among which ties are broken
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

    def counts(self) -> dict[str, int]:
        """How many photos and texts there are."""
        return {view: len(self.codes[view]) if view in self.codes else 0 for view in VIEWS}

    def tells_nothing(self) -> list[View]:
        """The views of which all items, as far as can be seen, have one and the same code: the model has not learnt."""
        found: list[View] = []
        for view, codes in self.codes.items():
            some = codes.ids[:: max(1, len(codes) // _LOOKED_AT)]
            if len(some) >= _SUSPICIOUS and len({codes.code(id).tobytes() for id in some}) == 1:
                found.append(view)
        return found


def is_search_index(folder: Path) -> bool:
    """Whether codes of photos or texts are there."""
    return any((folder / view / FACTS).exists() for view in VIEWS)


def search(index: SearchIndex, queries: Iterable[Query], k: int = 10, find: View | None = None) -> Searched:
    """The k nearest items to each query.

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
    by_words = list(
        _encode_words(model, [(at, each.words) for at, each in enumerate(all_queries) if not each.photo], found)
    )
    by_photo = list(
        _encode_photos(model, [(at, each.photo) for at, each in enumerate(all_queries) if each.photo], found)
    )
    encoded = time.perf_counter()
    for usual, ready in zip(VIEWS, (by_words, by_photo)):
        view = find if find is not None else usual if usual in index.codes else next(iter(index.codes))
        for each, hits in zip(ready, _nearest(index.codes[view], [each.features for each in ready], k)):
            answers[each.at] = SearchAnswer(all_queries[each.at], view, hits, each.unknown, each.nearest)
    found.seconds = {"encode": encoded - began, "search": time.perf_counter() - encoded}
    found.answers = [answers[at] for at in sorted(answers)]
    if len(all_queries) == 1 and found.refused:
        raise DataError(found.refused[0].reason)
    return found


class _Encoded(NamedTuple):
    """A query, by its place among all, and what its code is the signs of."""

    at: int
    features: np.ndarray
    unknown: tuple[str, ...] = ()
    nearest: tuple[str, ...] = ()


def _encode_words(model: HashModel, queries: Sequence[tuple[int, str]], found: Searched) -> Iterator[_Encoded]:
    if not queries:
        return
    model.check_words()
    known, good = frozenset(model.words), []
    for at, words in queries:
        unknown, near = unknown_words(words, known)
        if reason := _refusal(words, unknown, near, model):
            found.refused.append(Skipped(words, reason))
        else:
            good.append((at, words, unknown, near))
    for (at, _, unknown, near), features in zip(good, model.of_texts([words for _, words, _, _ in good])):
        yield _Encoded(at, features, unknown, near)


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


def unknown_words(text: str, known: frozenset[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of a text that are not in a vocabulary, and words of the vocabulary that are spelt like them."""
    odd: dict[str, None] = {}
    for part in text.split():
        if part not in known and part.lower() not in known:  # vocabularies may hold words with signs in them
            odd |= dict.fromkeys(word for word in tokens(part) if word not in known)
    near = dict.fromkeys(close for word in odd for close in get_close_matches(word, sorted(known), n=2, cutoff=0.7))
    return tuple(odd), tuple(near)


def _refusal(text: str, unknown: Sequence[str], near: Sequence[str], model: HashModel) -> str:
    """Why a text cannot be searched for; "" if it can."""
    if not text.strip():
        return "the query is empty: give some words, or a photo with --photo"
    if model.knows(text):
        return ""
    if not unknown:
        return f"{text!r} has no word in it: give some words, or a photo with --photo"
    hint = f"nearest to them are {_listed(near)}" if near else f"it knows {_listed(model.words)}, for instance"
    return f"none of these words is known to the model: {_listed(unknown)}; {hint}"


def _listed(words: Sequence[str]) -> str:
    return ", ".join(map(repr, words[:_SHOWN])) + (", ..." if len(words) > _SHOWN else "")


# ---- Codes


def _nearest(codes: Codes, features: Sequence[np.ndarray], k: int) -> list[tuple[Hit, ...]]:
    """The nearest items to each query, looking as far as there are others at the distance of the last."""
    if not features:
        return []
    packed = pack(np.stack(features))
    lists: dict[int, tuple[Hit, ...]] = {}
    todo, width = list(range(len(features))), max(_FIRST_LOOK, 2 * k)
    while todo:
        enough = width >= min(len(codes), max(_LAST_LOOK, 2 * k))
        further = []
        for at, ids, distances in zip(todo, *codes.search(packed[todo], width)):
            last = distances[min(k, len(distances)) - 1]
            if not enough and distances[-1] == last:
                further.append(at)
            else:
                near = distances <= last
                lists[at] = _best(codes, features[at], ids[near], distances[near], k)
        todo, width = further, 8 * width
    return [lists[at] for at in range(len(features))]


def _best(codes: Codes, features: np.ndarray, ids: np.ndarray, distances: np.ndarray, k: int) -> tuple[Hit, ...]:
    stored = np.stack([codes.code(id) for id in ids])
    signs = 2.0 * np.unpackbits(stored, axis=1, count=len(features), bitorder="little") - 1
    weight = float(np.abs(features).sum(dtype=np.float64)) or 1.0
    scores = (signs * features.astype(np.float64)).sum(1) / weight
    order = np.lexsort((np.arange(len(ids)), -scores.round(9), distances))[:k]
    return tuple(_hit(codes, str(ids[at]), int(distances[at]), float(scores[at])) for at in order)


def _hit(codes: Codes, id: str, distance: int, score: float) -> Hit:
    about = codes.metadata(id)
    texts, labels = (tuple(map(str, about.get(key, ()))) for key in ("texts", "labels"))
    return Hit(
        id=id,
        name=str(about.get("name", id)),
        distance=distance,
        score=score,
        files=tuple(map(Path, about.get("files", ()))),
        texts=texts,
        labels=labels,
    )


def as_table(answer: SearchAnswer) -> dict[str, Any]:
    """An answer as JSON can hold it."""
    return {
        "query": answer.query.title, "by": "words" if answer.query.photo is None else "photo", "find": answer.find,
        "unknown_words": list(answer.unknown), "nearest_words": list(answer.nearest),
        "results": [
            {"rank": rank, "id": hit.id, "name": hit.name, "files": list(map(str, hit.files)), "texts": list(hit.texts),
             "labels": list(hit.labels), "distance": hit.distance, "score": round(hit.score, 6)}
            for rank, hit in enumerate(answer.hits, start=1)
        ],
    }  # fmt: skip
