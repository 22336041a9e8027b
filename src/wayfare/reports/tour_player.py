"""The map that plays a tour: what its script needs to know, small enough to stand in the page.

Numbers are packed columns, deflated and written in base64. Positions change little from frame to frame, so it is the
changes that are kept, device by device, all low bytes before all high ones: that deflates to about half.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.reports.figures import in_script
from wayfare.reports.page import Html, tag
from wayfare.reports.tables import number, plain
from wayfare.reports.tour_film import ABSENT, Film
from wayfare.reports.tour_record import Tour

MOST_DEVICES = 4000  # that are shown
_NOBODY = 2**32 - 1  # the giver where a value comes from a judgement
_UNKNOWN = 65535
_FINE = 10_000  # steps of accuracy
_EDGE = 0.03  # share of places to each side that may lie outside the map as it is first shown
_SECONDS = 75  # that a day should take
_SPEEDS = (0.5, 1, 2, 5, 10, 20, 60)  # minutes of the day in a second


@dataclass(frozen=True)
class Player:
    """Markup, with the data in it; script and style that belong to it."""

    body: Html
    script: str
    style: str


@dataclass(frozen=True)
class Ground:
    """A map that lies under the devices, and what it reaches over: metres east and north of the film's middle."""

    jpeg: bytes
    west: float
    south: float
    east: float
    north: float


def player(tour: Tour, ground: Ground | None = None) -> Player | None:
    """The map of a tour; None where there is no film of it."""
    film = tour.film
    if film is None or not len(film.slots) or not len(tour.ids):
        return None
    shown = _shown(film)
    told = _data(tour, film, shown)
    if ground is not None:
        image = f"data:image/jpeg;base64,{base64.b64encode(ground.jpeg).decode()}"
        box = [side / film.step for side in (ground.west, ground.south, ground.east, ground.north)]
        told["ground"] = {"image": image, "box": box}
    data = tag("script", Html(in_script(told)), type="application/json", id="tour-data")
    return Player(_body(film, len(shown), data), script(), STYLE)


@cache
def script() -> str:
    """What moves the devices."""
    return Path(__file__).with_name("tour_player.js").read_text(encoding="utf-8")


def _shown(film: Film) -> np.ndarray:
    """Everyone; of a large crowd all signage and evenly spaced others."""
    everyone = np.arange(len(film.ids))
    if len(everyone) <= MOST_DEVICES:
        return everyone
    still, moving = everyone[film.stationary][:MOST_DEVICES], everyone[~film.stationary]
    some = np.linspace(0, len(moving) - 1, MOST_DEVICES - len(still)).astype(int) if len(moving) else np.arange(0)
    return np.unique(np.concatenate([still, moving[some]]))


def _data(tour: Tour, film: Film, shown: np.ndarray) -> dict[str, Any]:
    events = _events(tour, shown)
    known = [column[column != _UNKNOWN] for column in (_fine(_first_values(tour))[shown], events["value"])]
    every = np.concatenate(known)
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, _FINE)
    return {
        "ids": [plain(film.ids[i], 40) for i in shown],
        "still": np.flatnonzero(film.stationary[shown]).tolist(),
        "frames": film.slots.tolist(),
        "slot": film.slot,
        "start": film.start,
        "length": film.length,
        "step": film.step,
        "located": film.located,
        "view": _view(film),
        "range": [low / _FINE, max(high, low + 1) / _FINE],
        "first": _packed(_fine(_first_values(tour))[shown].astype("<u2")),
        "events": {name: _packed(column) for name, column in events.items()},
        "positions": _packed(_changes(film.positions[:, shown])),
    }


def _first_values(tour: Tour) -> np.ndarray:
    """What a device's model is worth at the beginning: what it knows, else what the test set says."""
    judged = tour.initial.of("accuracy") if tour.initial is not None else None
    return tour.scores if judged is None else np.where(np.isnan(tour.scores), judged, tour.scores)


def _events(tour: Tour, shown: np.ndarray) -> dict[str, np.ndarray]:
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
    return np.clip(np.round(steps), 0, _UNKNOWN).astype(np.int64)


def _changes(positions: np.ndarray) -> np.ndarray:
    """Differences from frame to frame, modulo 2^16: devices, then east and north, then frames."""
    along = np.ascontiguousarray(positions.transpose(1, 2, 0)).view(np.uint16)
    change = np.diff(along, axis=2, prepend=np.zeros((*along.shape[:2], 1), np.uint16)).astype("<u2")
    return change.reshape(-1).view(np.uint8).reshape(-1, 2).T


def _packed(column: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(np.ascontiguousarray(column).tobytes(), 6)).decode()


def _view(film: Film) -> list[float]:
    """West, south, east and north of what is shown at first: without the few who are far away."""
    there = film.positions[film.positions[..., 0] != ABSENT]
    if not len(there):
        return [-100, -100, 100, 100]
    low, high = np.quantile(there, _EDGE, axis=0), np.quantile(there, 1 - _EDGE, axis=0)
    return [float(v) for v in (*low, *np.maximum(high, low + 40))]


def _body(film: Film, shown: int, data: Html) -> Html:
    minutes = film.length * film.slot / 60
    usual = min(_SPEEDS, key=lambda speed: abs(minutes / speed - _SECONDS))
    speeds = [
        tag("option", f"{speed:g} min/s", value=f"{speed:g}", **({"selected": ""} if speed == usual else {}))
        for speed in _SPEEDS
    ]
    canvas = tag("canvas", id="tour-map", tabindex="0", role="img", aria_label=_in_words(film))
    zoom = [
        tag("button", sign, type="button", id=f"tour-{name}", aria_label=words, title=words)
        for sign, name, words in (("+", "in", "Nearer"), ("−", "out", "Further away"), ("⤢", "full", "Whole screen"))
    ]
    stage = tag(
        "div",
        canvas,
        tag("div", *zoom, class_="tour-zoom"),
        tag("output", id="tour-clock", class_="tour-clock"),
        tag("div", id="tour-tip", class_="tour-tip", hidden=""),
        class_="tour-stage",
    )
    play = tag("button", "▶", type="button", id="tour-play", aria_label="Play", title="Play (space)")
    last = max(0, film.length - 1)
    slider = tag("input", type="range", id="tour-at", min=0, max=last, value=0, step=1, aria_label="Time of the day")
    speed = tag("select", *speeds, id="tour-speed", aria_label="Speed")
    time = tag("div", tag("canvas", id="tour-strip"), slider, class_="tour-time")
    bar = tag("div", play, time, speed, class_="tour-bar")
    key = tag(
        "div",
        tag("span", tag("span", id="tour-low"), tag("i", class_="tour-ramp"), tag("span", id="tour-high"), " accuracy"),
        tag("span", tag("i", class_="tour-line good"), "gain"),
        tag("span", tag("i", class_="tour-line bad"), "harm"),
        tag("span", tag("i", class_="tour-line"), "exchange"),
        tag("span", tag("i", class_="tour-square"), "signage") if film.stationary.any() else None,
        tag("span", id="tour-now", class_="tour-now"),
        class_="tour-key",
    )
    return tag("div", stage, bar, key, tag("p", _note(film, shown), class_="note"), data, id="tour", class_="tour")


def _in_words(film: Film) -> str:
    where = "A map" if film.located else "A circle"
    return f"{where} of {number(len(film.ids))} devices over the day; their colour is the accuracy of their models."


def _note(film: Film, shown: int) -> str:
    text = (
        "Space plays, arrow keys step a minute (with shift ten); plus and minus zoom, a double click shows all again."
    )
    if film.located:
        between = film.length / len(film.slots) * film.slot / 60
        text += f" Places are known every {between:.3g} min here, with straight ways between them."
    else:
        text += " The traces say who met whom, not where: devices stand on a circle while they are there."
    if shown < len(film.ids):
        text += f" Shown are {number(shown)} of {number(len(film.ids))} devices."
    return text


STYLE = """
.tour{--map:#efede7;--c-good:#1f8a52;--c-bad:#c2382b}
@media (prefers-color-scheme:dark){.tour{--map:#101317;--c-good:#5fd396;--c-bad:#ff7d6e}}
.tour-stage{position:relative;background:var(--map);border:1px solid var(--line);border-radius:10px;overflow:hidden}
#tour-map{display:block;width:100%;height:clamp(300px,62vh,640px);cursor:crosshair;touch-action:pan-y}
#tour-map:focus-visible{outline-offset:-3px}
.tour:fullscreen{background:var(--page);padding:12px;display:flex;flex-direction:column}
.tour:fullscreen .tour-stage{flex:1;min-height:0}
.tour:fullscreen #tour-map{height:100%}
.tour:fullscreen .note{display:none}
.tour-clock{position:absolute;left:12px;top:8px;font-size:1.5rem;font-weight:600;font-variant-numeric:tabular-nums;
pointer-events:none;text-shadow:0 0 6px var(--map),0 0 6px var(--map)}
.tour-zoom{position:absolute;right:8px;top:8px;display:flex;flex-direction:column;gap:4px}
.tour button,.tour select{font:inherit;color:var(--ink);background:var(--surface);border:1px solid var(--line);
border-radius:8px;cursor:pointer}
.tour-zoom button{width:36px;height:36px;font-size:1.05rem;line-height:1}
.tour-tip{position:absolute;pointer-events:none;background:var(--surface);border:1px solid var(--line);
border-radius:8px;padding:4px 10px;font-size:.85rem;white-space:nowrap;font-variant-numeric:tabular-nums}
.tour-bar{display:flex;gap:10px;align-items:center;margin:10px 0 6px}
#tour-play{width:46px;height:46px;flex:none;border-radius:50%;background:var(--ink);color:var(--surface);
border-color:var(--ink);font-size:1rem;line-height:1}
#tour-speed{height:40px;padding:0 6px;flex:none;font-size:.88rem}
.tour-time{flex:1;min-width:0}
#tour-strip{display:block;width:100%;height:38px}
#tour-at{display:block;width:100%;margin:2px 0 0;accent-color:var(--accent)}
.tour-key{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:.88rem;color:var(--muted);margin-bottom:8px;
font-variant-numeric:tabular-nums}
.tour-key>span{display:inline-flex;align-items:center;gap:6px}
.tour-ramp{width:90px;height:10px;border-radius:5px;
background:linear-gradient(90deg,#6b2c91,#3a5fb8,#2497a3,#6cb84a,#f0c22b)}
.tour-line{width:18px;height:3px;border-radius:2px;background:var(--muted)}
.tour-line.good{background:var(--c-good)}
.tour-line.bad{background:var(--c-bad)}
.tour-square{width:10px;height:10px;border:2px solid var(--ink)}
.tour-now{margin-left:auto;color:var(--ink)}
@media (max-width:560px){#tour-map{height:56vh}.tour-now{margin-left:0;width:100%}.tour-clock{font-size:1.25rem}
.tour-bar{gap:8px}#tour-speed{padding:0 2px;font-size:.82rem}}
@media print{.tour-bar,.tour-zoom{display:none}}
"""
