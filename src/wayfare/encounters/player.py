"""The map that plays a tour: what its script needs to know, small enough to stand in the page.

Numbers are packed columns, deflated and written in base64. Positions change little from frame to frame, so it is the
changes that are kept, device by device, all low bytes before all high ones: that deflates to about half.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wayfare.encounters.movie_file import ABSENT, Movie
from wayfare.encounters.record import TourRecord
from wayfare.pages.tables import number, plain

MOST_DEVICES = 4000  # that are shown
_NOBODY = 2**32 - 1  # the giver where a value comes from a judgement
_UNKNOWN = 65535
_FINE = 10_000  # steps of accuracy
_EDGE = 0.03  # share of places to each side that may lie outside the map as it is first shown
_SECONDS = 75  # that a day should take
_SPEEDS = (0.5, 1, 2, 5, 10, 20, 60)  # minutes of the day in a second


@dataclass(frozen=True)
class Player:
    """What `player.html` shows: a map that plays the day."""

    words: str  # what the map shows, for those who do not see it
    note: str
    last: int  # slot
    speeds: Sequence[tuple[str, bool]]  # minutes of the day in a second, and whether it begins with that
    signage: bool
    data: Mapping[str, Any]  # what `player.js` reads


@dataclass(frozen=True)
class Ground:
    """A map that lies under the devices, and what it reaches over: metres east and north of the movie's middle."""

    jpeg: bytes
    west: float
    south: float
    east: float
    north: float


def player(tour: TourRecord, ground: Ground | None = None) -> Player | None:
    """The map of a tour; None where there is no movie of it."""
    movie = tour.movie
    if movie is None or not len(movie.slots) or not len(tour.ids):
        return None
    shown = _shown(movie)
    data = _data(tour, movie, shown)
    if ground is not None:
        image = f"data:image/jpeg;base64,{base64.b64encode(ground.jpeg).decode()}"
        box = [side / movie.step for side in (ground.west, ground.south, ground.east, ground.north)]
        data["ground"] = {"image": image, "box": box}
    minutes = movie.length * movie.slot / 60
    usual = min(_SPEEDS, key=lambda speed: abs(minutes / speed - _SECONDS))
    return Player(
        words=_in_words(movie),
        note=_note(movie, len(shown)),
        last=max(0, movie.length - 1),
        speeds=[(f"{speed:g}", speed == usual) for speed in _SPEEDS],
        signage=bool(movie.stationary.any()),
        data=data,
    )


def _shown(movie: Movie) -> np.ndarray:
    """Everyone; of a large crowd all signage and evenly spaced others."""
    everyone = np.arange(len(movie.ids))
    if len(everyone) <= MOST_DEVICES:
        return everyone
    still, moving = everyone[movie.stationary][:MOST_DEVICES], everyone[~movie.stationary]
    some = np.linspace(0, len(moving) - 1, MOST_DEVICES - len(still)).astype(int) if len(moving) else np.arange(0)
    return np.unique(np.concatenate([still, moving[some]]))


def _data(tour: TourRecord, movie: Movie, shown: np.ndarray) -> dict[str, Any]:
    events = _events(tour, shown)
    known = [column[column != _UNKNOWN] for column in (_fine(_first_values(tour))[shown], events["value"])]
    every = np.concatenate(known)
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, _FINE)
    return {
        "ids": [plain(movie.ids[i], 40) for i in shown],
        "still": np.flatnonzero(movie.stationary[shown]).tolist(),
        "frames": movie.slots.tolist(),
        "slot": movie.slot,
        "start": movie.start,
        "length": movie.length,
        "step": movie.step,
        "located": movie.located,
        "view": _view(movie),
        "range": [low / _FINE, max(high, low + 1) / _FINE],
        "first": _packed(_fine(_first_values(tour))[shown].astype("<u2")),
        "events": {name: _packed(column) for name, column in events.items()},
        "positions": _packed(_changes(movie.positions[:, shown])),
    }


def _first_values(tour: TourRecord) -> np.ndarray:
    """What a device's model is worth at the beginning: what it knows, else what the test set says."""
    judged = tour.initial.of("accuracy") if tour.initial is not None else None
    return tour.scores if judged is None else np.where(np.isnan(tour.scores), judged, tour.scores)


def _events(tour: TourRecord, shown: np.ndarray) -> dict[str, np.ndarray]:
    """Exchanges, and judgements of devices that do not know how good they are, in order of time."""
    exchanges, place = tour.exchanges, np.full(len(tour.ids), -1)
    place[shown] = np.arange(len(shown))
    both = (place[exchanges.taker] >= 0) & (place[exchanges.giver] >= 0)
    gain = np.nan_to_num(exchanges.gain)
    # 1: adopted, 2: it made the model better, 4: worse
    flags = exchanges.adopted + 2 * (gain > 0) + 4 * (gain < 0)
    slot, flag = [exchanges.slot[both]], [flags[both]]
    taker, giver = [place[exchanges.taker[both]]], [place[exchanges.giver[both]]]
    value = [_fine(exchanges.after[both])]
    blind = shown[np.isnan(tour.scores[shown])]
    for one in tour.judged:
        found = one.of("accuracy")
        if one.slot >= 0 and found is not None and len(blind):
            slot.append(np.full(len(blind), one.slot))
            taker.append(place[blind])
            giver.append(np.full(len(blind), _NOBODY))
            value.append(_fine(found[blind]))
            flag.append(np.ones(len(blind), int))
    columns = {"slot": slot, "taker": taker, "giver": giver, "value": value, "flag": flag}
    order = np.argsort(np.concatenate(slot), kind="stable")
    kinds: Mapping[str, str] = {"value": "<u2", "flag": "u1"}
    return {name: np.concatenate(parts)[order].astype(kinds.get(name, "<u4")) for name, parts in columns.items()}


def _fine(accuracies: np.ndarray) -> np.ndarray:
    steps = np.nan_to_num(accuracies * _FINE, nan=_UNKNOWN)
    found: np.ndarray = np.clip(np.round(steps), 0, _UNKNOWN).astype(np.int64)
    return found


def _changes(positions: np.ndarray) -> np.ndarray:
    """Differences from frame to frame, modulo 2^16: devices, then east and north, then frames."""
    along = np.ascontiguousarray(positions.transpose(1, 2, 0)).view(np.uint16)
    change = np.diff(along, axis=2, prepend=np.zeros((*along.shape[:2], 1), np.uint16)).astype("<u2")
    return change.reshape(-1).view(np.uint8).reshape(-1, 2).T


def _packed(column: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(np.ascontiguousarray(column).tobytes(), 6)).decode()


def _view(movie: Movie) -> list[float]:
    """West, south, east and north of what is shown at first: without the few who are far away."""
    shown = movie.positions[movie.positions[..., 0] != ABSENT]
    if not len(shown):
        return [-100, -100, 100, 100]
    low, high = np.quantile(shown, _EDGE, axis=0), np.quantile(shown, 1 - _EDGE, axis=0)
    return [float(v) for v in (*low, *np.maximum(high, low + 40))]


def _in_words(movie: Movie) -> str:
    kind = "A map" if movie.located else "A circle"
    return f"{kind} of {number(len(movie.ids))} devices over the day; their colour is the accuracy of their models."


def _note(movie: Movie, shown: int) -> str:
    text = (
        "Space plays, arrow keys step a minute (with shift ten); plus and minus zoom, a double click shows all again."
    )
    if movie.located:
        between = movie.length / len(movie.slots) * movie.slot / 60
        text += f" Positions are known every {between:.3g} min and interpolated in between."
    else:
        text += " The traces say who met whom, not where: devices are drawn on a circle while they are present."
    if shown < len(movie.ids):
        text += f" {number(shown)} of {number(len(movie.ids))} devices are shown."
    return text
