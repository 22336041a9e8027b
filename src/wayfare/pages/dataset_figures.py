"""The figures of the page about a data set: how often things occur, and maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wayfare.pages.dataset_parts import Bars, Layer, Map
from wayfare.pages.figures import Figure, Key, axis_title, colour, label, plain_layout
from wayfare.pages.tables import number

_ROW = 17  # pixels, of a bar with its name beside it
_LABEL = 26  # letters of a name beside a bar
_POINTS = ("@c2", "@c10", "@c5", "@c4", "@c7", "@c1")  # of photographs, warm and cold for day and night
_LINES = ("@c3", "@c6", "@c9", "@c11", "@c12")  # of ways
_FIXED = "@c8"


def bars_figure(name: str, bars: Bars) -> Figure:
    """A distribution: upright columns where the order means something, else rows with names beside them."""
    shown = bars.shown()
    names, counts = [label(text, _LABEL) for text, _ in shown], [count for _, count in shown]
    hover = [f"{label(text)}: {number(count)} {label(bars.unit)}" for text, count in shown]
    places = list(range(len(shown)))
    trace: dict[str, Any] = {"type": "bar", "marker": {"color": "@c1"}, "text": hover, "textposition": "none"}
    trace["hovertemplate"] = "%{text}<extra></extra>"
    layout = plain_layout(hovermode="closest", bargap=0.15)
    scale = _log_scale(counts) if bars.log else {"rangemode": "tozero", "nticks": 6}
    if not bars.log and max(counts, default=0) <= 5 and all(float(value).is_integer() for value in counts):
        scale["dtick"] = 1
    if bars.ordered:
        step = max(1, -(-len(shown) // 12))
        ticks = {"tickvals": places[::step], "ticktext": names[::step], "title": axis_title(label(bars.axis))}
        layout["xaxis"] |= ticks
        layout["yaxis"] |= scale | {"title": axis_title(label(bars.unit))}
        trace |= {"x": places, "y": counts}
    else:
        layout["yaxis"] |= {"tickvals": places, "ticktext": names, "autorange": "reversed", "showgrid": False}
        layout["yaxis"]["tickfont"] = {"size": 11}
        layout["xaxis"] |= scale | {"title": axis_title(label(bars.unit)), "showgrid": True}
        trace |= {"x": counts, "y": places, "orientation": "h"}
    height = 250 if bars.ordered else 64 + _ROW * max(len(shown), 3)
    return Figure(name, bars.title, _in_words(bars, shown), {"data": [trace], "layout": layout}, height=height)


def _log_scale(counts: Sequence[float]) -> dict[str, Any]:
    """Begins below one, so that what occurs once is seen; with 2 and 5 between the powers of ten if these are few."""
    top = math.log10(max(1.0, *counts, 1.0))
    return {"type": "log", "range": [-0.2, top + 0.08], "dtick": 1 if top > 2.5 else "D2"}


def _in_words(bars: Bars, shown: Sequence[tuple[str, float]]) -> str:
    if not shown:
        return f"{bars.title}: nothing."
    most, least = max(shown, key=lambda pair: pair[1]), min(shown, key=lambda pair: pair[1])
    found = f"most {bars.unit}: {most[0]} with {number(most[1])}; fewest: {least[0]} with {number(least[1])}"
    return f"{bars.title}, {len(shown)} of {len(bars.names)} shown; {found}."


def map_keys(maps: Sequence[Map]) -> dict[str, Key]:
    """A colour for each kind of layer by its name, the same on every map."""
    keys: dict[str, Key] = {}
    for kind, colours in (("ways", _LINES), ("photos", _POINTS), ("fixed", (_FIXED,))):
        names = dict.fromkeys(layer.name for shown in maps for layer in shown.layers if layer.kind == kind)
        for place, name in enumerate(names):
            token = colours[place] if place < len(colours) else colour(place)
            keys[name] = Key(f"m{len(keys)}", name, token)
    return keys


def map_figure(name: str, shown: Map, keys: dict[str, Key], width: int, around: float = 0.0) -> Figure:
    """A city from above: ways below, photographs on them, and what stands still on top; one scale for both axes.

    `width` is what it will have on a large screen, in pixels: its height is what suits the city then. `around` it that
    many metres more are shown, for what may be drawn there.
    """
    order = ("ways", "photos", "fixed")
    layers = sorted(shown.layers, key=lambda layer: order.index(layer.kind))
    traces = [_trace(layer, keys[layer.name]) for layer in layers]
    layout = plain_layout(hovermode="closest")
    layout["hoverlabel"] |= {"namelength": -1}
    layout["xaxis"] |= {"title": axis_title("metres east"), "showgrid": True, "zeroline": False}
    layout["yaxis"] |= {"title": axis_title("metres north"), "scaleanchor": "x", "scaleratio": 1}
    east, north = (_span([getattr(layer, axis) for layer in layers], around) for axis in "xy")
    layout["xaxis"]["range"], layout["yaxis"]["range"] = east, north
    height = round((width - 90) * (north[1] - north[0]) / (east[1] - east[0])) + 80
    parts = [f"{number(sum(x is not None for x in layer.x))} points of {layer.name}" for layer in layers]
    words = f"Map of {shown.title}: {', '.join(parts)}."
    return Figure(name, shown.title, words, {"data": traces, "layout": layout}, height=min(max(height, 280), 600))


def _span(values: Sequence[Sequence[float | None]], around: float) -> list[float]:
    """The range of an axis, without a few outliers that would make everything else tiny."""
    known = np.array([value for part in values for value in part if value is not None])
    inner = np.quantile(known, (0.01, 0.99)).tolist()
    whole = [float(known.min()), float(known.max())]
    low, high = inner if whole[1] - whole[0] > 2 * (inner[1] - inner[0]) > 0 else whole
    margin = 0.04 * (high - low) + 5 + around
    return [low - margin, high + margin]


def _trace(layer: Layer, key: Key) -> dict[str, Any]:
    trace: dict[str, Any] = {"type": "scatter", "name": label(layer.name), "legendgroup": key.group}
    trace |= {"x": list(layer.x), "y": list(layer.y), "connectgaps": False, "hoverinfo": "name"}
    if layer.kind == "ways":
        look = {
            "line": {"color": f"{key.colour}/0.45", "width": 1.2},
            "marker": {"color": f"{key.colour}/0.5", "size": 2},
        }
        return trace | look | {"mode": "lines+markers", "hoverinfo": "skip"}
    marker: dict[str, Any] = {"color": f"{key.colour}/0.75", "size": 5}
    if layer.kind == "fixed":
        marker = {"color": key.colour, "size": 13, "symbol": "star", "line": {"color": "@surface", "width": 1.5}}
    trace |= {"mode": "markers", "marker": marker}
    if layer.words:
        trace |= {"text": [label(words, 40) for words in layer.words], "hoverinfo": "text+name"}
    return trace
