"""A tour, read back from its run folder: who met whom, what was exchanged, and what every device had before and after.

Everything is an array with one entry per slot, per exchange or per device, in the order of the devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.core.errors import StoreError
from wayfare.encounters.movie_file import Movie, read_tensors
from wayfare.pages.record import Record, round_entries

MOVIE = "tour.safetensors"
_PER_SLOT = ("contacts", "met", "cut", "failed")
_COLUMNS = ("taker", "giver", "predicted", "before", "after", "adopted")
_NEEDED = ("can_send", "can_take", "sent", "taken", "bytes_sent", "bytes_taken", "joules", "meetings")
_DAY = 86_400


@dataclass(frozen=True)
class Judged:
    """The devices' models on the test set, at the end of a slot; -1 is the end of the beginning."""

    slot: int
    values: Mapping[str, np.ndarray]  # by measure, one per device, NaN where not measured
    joules: float  # spent by then, a device in the mean; NaN where not known

    def of(self, measure: str) -> np.ndarray | None:
        """A measure, if it was measured anywhere."""
        found = self.values.get(measure)
        return None if found is None or np.isnan(found).all() else found


@dataclass(frozen=True)
class Exchanges:
    """Models that were taken, one entry each, in order of time."""

    slot: np.ndarray
    taker: np.ndarray  # places among the devices
    giver: np.ndarray
    predicted: np.ndarray  # accuracies, NaN where not known
    before: np.ndarray
    after: np.ndarray
    adopted: np.ndarray

    def __len__(self) -> int:
        return len(self.slot)

    @property
    def gain(self) -> np.ndarray:
        """What the merge changed, whether or not it was kept."""
        found: np.ndarray = self.after - self.before
        return found

    @property
    def harmful(self) -> np.ndarray:
        """Kept, although the model was better without."""
        return self.adopted & (self.gain < 0)

    @property
    def regret(self) -> np.ndarray:
        """The better of the two models, in hindsight, less the one that was kept; NaN where either is not known."""
        kept = np.where(self.adopted, self.after, self.before)
        found: np.ndarray = np.maximum(self.before, self.after) - kept
        return found


@dataclass(frozen=True)
class TourRecord:
    """All that the report of a tour is made from."""

    ids: tuple[str, ...]
    slots: Mapping[
        str, np.ndarray
    ]  # slot, contacts, met, ...: one entry per round; `slots` of them in it, `empty` ones
    exchanges: Exchanges
    judged: tuple[Judged, ...]  # the first one is of the initial models, if any was judged
    columns: Mapping[str, np.ndarray]  # empty where no checkpoint is left
    movie: Movie | None

    @classmethod
    def read(cls, record: Record) -> TourRecord | None:
        """The tour of a run; None where devices do not meet in it, or have not begun to."""
        if not record.is_tour:
            return None
        entries = round_entries(record.path)
        played = [(line, where) for line, where in entries if "slot" in _events(line, where)]
        if not played:
            return None
        movie = Movie.read(record.path / MOVIE) if (record.path / MOVIE).exists() else None
        ids = movie.ids if movie is not None else _ids(entries)
        number = {id: place for place, id in enumerate(ids)}
        return cls(
            ids, _slots(played), _exchanges(played, number), judged=_judged(entries, number),
            columns=_columns(record.path, entries, len(ids)), movie=movie,
        )  # fmt: skip

    @property
    def initial(self) -> Judged | None:
        return self.judged[0] if self.judged and self.judged[0].slot < 0 else None

    @property
    def final(self) -> Judged | None:
        return self.judged[-1] if self.judged and self.judged[-1].slot >= 0 else None

    @cached_property
    def scores(self) -> np.ndarray:
        """The accuracy of each initial model as its device knows it (on its probe); NaN where it does not look."""
        found = self.initial.of("score") if self.initial is not None else None
        scores = np.full(len(self.ids), math.nan) if found is None else found.copy()
        takers, first = np.unique(self.exchanges.taker, return_index=True)
        return _filled(scores, takers, self.exchanges.before[first])

    @cached_property
    def mean_score(self) -> np.ndarray:
        """The mean over devices of what they know of their models, after each exchange; NaN where none of them does."""
        known = ~np.isnan(self.scores)
        change = np.where(self.exchanges.adopted & known[self.exchanges.taker], self.exchanges.gain, 0.0)
        if not known.any():
            return np.full(len(self.exchanges), math.nan)
        return float(self.scores[known].mean()) + np.cumsum(np.nan_to_num(change)) / int(known.sum())

    def time(self, slots: np.ndarray) -> np.ndarray:
        """The hour of the day at which slots begin; their numbers if there is no movie to tell."""
        if self.movie is None:
            return np.asarray(slots, float)
        return (self.movie.start % _DAY + np.asarray(slots, float) * self.movie.slot) / 3600

    @property
    def time_words(self) -> str:
        """What `time` gives."""
        return "slot" if self.movie is None else "hour of the day"


def _events(line: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    events = line.get("events") or {}
    if not isinstance(events, Mapping):
        raise StoreError(f"{where}: field 'events': expected an object, found {str(events)[:80]}")
    return events


def _ids(entries: Iterable[tuple[Mapping[str, Any], str]]) -> tuple[str, ...]:
    """Everyone who was judged, in that order; then those who only took part."""
    seen: dict[str, None] = {}
    for line, where in entries:
        for values in (line.get("per_client") or {}).values():
            seen |= dict.fromkeys(map(str, values or {}))
        for name in ("taker", "giver"):
            seen |= dict.fromkeys(map(str, _events(line, where).get(name) or ()))
    return tuple(seen)


def _slots(played: Sequence[tuple[Mapping[str, Any], str]]) -> dict[str, np.ndarray]:
    rows = [
        [_number(line["events"].get(name, 0), name, where) for name in ("slot", *_PER_SLOT)]
        + [_number(line.get("bytes_up", 0), "bytes_up", where)]
        + [_number(line["events"].get("slots", 1), "slots", where)]
        + [_number(line["events"].get("empty", not line["events"].get("contacts", 0)) + 0, "empty", where)]
        for line, where in played
    ]
    return dict(zip(("slot", *_PER_SLOT, "bytes", "slots", "empty"), np.array(rows).T.astype(np.int64)))


def _exchanges(played: Sequence[tuple[Mapping[str, Any], str]], number: Mapping[str, int]) -> Exchanges:
    slots: list[int] = []
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for line, where in played:
        parts = {name: line["events"].get(name) or [] for name in _COLUMNS}
        count = len(parts["taker"]) if isinstance(parts["taker"], list) else -1
        if any(not isinstance(part, list) or len(part) != count for part in parts.values()):
            raise StoreError(f"{where}: field 'events': the columns of its exchanges differ in length")
        for name in ("taker", "giver"):
            for id in parts[name]:
                if str(id) not in number:
                    raise StoreError(f"{where}: field 'events': there is no device {str(id)[:80]!r} in this tour")
            columns[name] += [number[str(id)] for id in parts[name]]
        for name in ("predicted", "before", "after"):
            columns[name] += [math.nan if v is None else _number(v, name, where) for v in parts[name]]
        columns["adopted"] += [bool(v) for v in parts["adopted"]]
        at = line["events"].get("at", [line["events"]["slot"]] * count)  # a round of one slot does not say it again
        if not isinstance(at, list) or len(at) != count:
            raise StoreError(f"{where}: field 'events': 'at' must have a slot for each exchange")
        slots += [int(_number(slot, "at", where)) for slot in at]
    kinds = {"taker": np.int64, "giver": np.int64, "adopted": np.bool_}
    arrays: dict[str, np.ndarray] = {n: np.array(column, kinds.get(n, np.float64)) for n, column in columns.items()}
    return Exchanges(slot=np.array(slots, np.int64), **arrays)


def _judged(entries: Sequence[tuple[Mapping[str, Any], str]], number: Mapping[str, int]) -> tuple[Judged, ...]:
    """The last judgement of the beginning, which is of the initial models, and all judgements of slots."""
    found: list[Judged] = []
    for line, where in entries:
        measures = line.get("per_client") or {}
        events = _events(line, where)
        slot = events.get("slot", -1) + events.get("slots", 1) - 1 if "slot" in events else -1
        if int(line["round"]) == 0 or not isinstance(measures, Mapping) or not any(measures.values()):
            continue
        values = {str(name): _by_device(of, number, where) for name, of in measures.items()}
        joules = (line.get("metrics") or {}).get("tour/joules", math.nan)
        made = Judged(int(slot), values, math.nan if joules is None else _number(joules, "tour/joules", where))
        if slot < 0:
            found = [made]
        else:
            found.append(made)
    return tuple(found)


def _by_device(values: Mapping[str, Any], number: Mapping[str, int], where: str) -> np.ndarray:
    column = np.full(len(number), math.nan)
    for id, value in values.items():
        if str(id) in number and value is not None:
            column[number[str(id)]] = _number(value, "per_client", where)
    return column


def _columns(folder: Path, entries: Sequence[tuple[Mapping[str, Any], str]], devices: int) -> dict[str, np.ndarray]:
    """From the last checkpoint; nothing where it is gone, since the rest of the report does without."""
    last = entries[-1][0].get("checkpoint") or {}
    file = folder / str(last.get("file", "") if isinstance(last, Mapping) else "")
    if not file.is_file():
        return {}
    columns = read_tensors(file)[0].get("columns", {})
    complete = all(name in columns and columns[name].shape == (devices,) for name in _NEEDED)
    return columns if complete else {}


def _number(value: object, name: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise StoreError(f"{where}: {name!r}: expected a number, found {str(value)[:80]}")
    return float(value)


def _filled(scores: np.ndarray, places: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Scores, with values at some places where there were none."""
    gaps = np.isnan(scores[places])
    scores[places[gaps]] = values[gaps]
    return scores
