"""The figures of a report, as plain plotly specifications; `static/figures.js` draws them in the page.

Colours are written as tokens ("@c1", "@c1/0.2") which the script looks up in the page's style sheet, so a figure
follows the reader's light or dark setting. Legends are buttons of the page, not of the figure: they can be reached
with the keyboard and wrap on a phone. Text from outside is escaped, because plotly reads a little HTML in its labels.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from wayfare.pages.record import CLOCK, Record, is_count, less_is_better
from wayfare.pages.run_files import PerClient
from wayfare.pages.tables import human_bytes, metric_words, number, plain

COLOURS = 12  # the style sheet defines c1 to c12
MOST_CLIENTS = 100
_MOST_STACKED = COLOURS  # with more classes than colours, bars become a heat map
MOST_CLASSES = 60
_MOST_RUG = 2000
_FEW_POINTS = 60
_FEW_BARS = 150
_SPLITS = ("test", "validation", "clients", "train")  # the same colour in every figure


@dataclass(frozen=True)
class Key:
    """An entry of a legend: the traces of `group` can be switched off by it."""

    group: str
    name: str
    colour: str


@dataclass(frozen=True)
class Figure:
    """A plotly specification with what a reader who cannot see it needs."""

    id: str
    title: str
    description: str
    spec: Mapping[str, Any]
    keys: tuple[Key, ...] = ()
    height: int = 300


_Drawn = tuple[dict[str, Any], tuple[Key, ...], int]  # specification, legend, height


@dataclass(frozen=True)
class MetricCurve:
    """A metric over rounds, with the bytes sent by then, and a band where there are several seeds."""

    key: Key
    rounds: Sequence[int]
    sent: Sequence[float]
    values: Sequence[float]
    band: Sequence[float | None] = field(default_factory=tuple)
    dash: str = "solid"
    elapsed: Sequence[float] = ()  # virtual seconds by then, where there was a [clock]


def colour(index: int) -> str:
    """The token of the index-th colour, going round."""
    return f"@c{index % COLOURS + 1}"


def label(value: object, limit: int = 60) -> str:
    """Escape external text so that plotly shows it literally."""
    return html.escape(plain(value, limit), quote=False)


def metric_figures(record: Record) -> list[Figure]:
    """One figure per measure (accuracy, loss ...), one curve per split in it (test, validation ...)."""
    measures: dict[str, list[str]] = {}
    for metric in record.metrics:
        if metric == CLOCK:  # it is an axis
            continue
        measures.setdefault(metric.split("/", 1)[-1], []).append(metric)
    keys = _split_keys(record.metrics)
    sent, elapsed = record.sent(), record.elapsed()
    figures = []
    for index, (measure, metrics) in enumerate(measures.items()):
        curves = []
        for metric in metrics:
            rounds, values = record.series(metric)
            if rounds:
                times = [elapsed[r] for r in rounds] if elapsed else ()
                bytes_sent = [sent[r] for r in rounds]
                curves.append(MetricCurve(keys[_split(metric)], rounds, bytes_sent, values, elapsed=times))
        if curves:
            figures.append(curve_figure(f"curve-{index}", _title(measure, metrics[0]), curves))
    return figures


def _title(measure: str, metric: str) -> str:
    """The metric's display name if it has one of its own."""
    words = metric_words(metric)
    return measure if words == metric else words


def curve_figure(
    name: str, title: str, curves: Sequence[MetricCurve], metric: str = "", sent_words: str = "sent up and down"
) -> Figure:
    """Curves over rounds, bytes sent or virtual time; `metric` if its name differs from the title."""
    most = max((max(curve.sent, default=0) for curve in curves), default=0)
    scale, unit = decimal_unit(most)
    second, time_unit = time_scale(max((max(curve.elapsed, default=0) for curve in curves), default=0))
    traces, rounds, sent, elapsed = [], [], [], []
    for curve in sorted(curves, key=lambda c: not any(c.band)):  # bands lie below the lines
        for trace, places in _curve_traces(curve):
            traces.append(trace)
            rounds.append([curve.rounds[i] for i in places])
            sent.append([curve.sent[i] / scale for i in places])
            elapsed.append([curve.elapsed[i] / second for i in places] if curve.elapsed else [None for _ in places])
    layout = plain_layout(hovermode="x unified" if len(curves) <= 8 else "closest")
    layout["xaxis"]["title"] = axis_title("round")
    over = {"rounds": {"x": rounds, "title": "round"}, "bytes": {"x": sent, "title": f"{sent_words}, {unit}"}}
    if any(curve.elapsed for curve in curves):
        over["time"] = {"x": elapsed, "title": f"virtual time, {time_unit}"}
    spec = {"data": [dict(trace, x=x) for trace, x in zip(traces, rounds)], "layout": layout, "over": over}
    words = _curves_in_words(title, curves, metric or title)
    return Figure(name, title, words, spec, tuple(curve.key for curve in curves))


def axes(figures: Iterable[Figure]) -> list[tuple[str, str]]:
    """What the curves of a page can be shown over."""
    found = [("rounds", "rounds"), ("bytes", "bytes sent")]
    timed = any("time" in figure.spec.get("over", {}) for figure in figures)
    return [*found, ("time", "virtual time")] if timed else found


def time_scale(most: float) -> tuple[float, str]:
    """Seconds in the unit that suits the longest time, and its name."""
    return next(((s, unit) for s, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")) if most > 3 * s),
                (1.0, "seconds"))  # fmt: skip


def client_figure(name: str, measure: str, clients: PerClient) -> Figure:
    """How a measure spreads over clients: a histogram, and each client as a tick below it."""
    values = {c: v for c, v in clients.values[measure].items() if math.isfinite(v)}
    numbers = np.array(list(values.values()))
    counts, edges = np.histogram(numbers, bins=int(np.clip(2 * math.ceil(math.sqrt(len(numbers))), 5, 30)))
    median = float(np.median(numbers))
    layout = plain_layout(hovermode="closest", bargap=0.06)
    layout["xaxis"] |= {"title": axis_title(label(measure)), "anchor": "y2"}
    layout["yaxis"] |= {"title": axis_title("clients"), "domain": [0.2, 1], "rangemode": "tozero", "tickformat": ",d"}
    layout["yaxis"] |= {"dtick": 1} if counts.max() <= 5 else {"nticks": 5}  # half a client would be labelled 0 or 1
    layout["yaxis2"] = {"domain": [0, 0.13], "visible": False, "range": [-1, 1], "fixedrange": True}
    layout["shapes"] = [_median_line(median)]
    layout["annotations"] = [_median_note(median)]
    words = (
        f"Histogram of {measure} over {len(numbers)} clients in round {clients.round}: "
        f"from {number(float(numbers.min()))} to {number(float(numbers.max()))}, median {number(median)}."
    )
    spec = {"data": [_histogram(counts, edges), _rug(values)], "layout": layout}
    return Figure(name, measure, words, spec)


def partition_figure(partition: Mapping[str, Any]) -> Figure | None:
    """Which client holds how many samples of which class; None where the data have no labels."""
    counts, classes = partition.get("counts"), partition.get("classes")
    if not counts or not classes:
        return None
    matrix = _matrix(counts, len(classes))
    if matrix is None:
        return None
    matrix = matrix[:MOST_CLIENTS]
    ids = [str(i) for i in partition.get("ids") or []][: len(matrix)]
    ids += [f"client {i}" for i in range(len(ids), len(matrix))]
    draw = _stacked if len(classes) <= _MOST_STACKED else _heat_map
    words = (
        f"Samples of each of {len(classes)} classes at {len(matrix)} clients; "
        f"a client holds {number(int(matrix.sum(axis=1).min()))} to {number(int(matrix.sum(axis=1).max()))}."
    )
    spec, keys, height = draw(matrix, ids, [str(c) for c in classes])
    return Figure("partition-picture", "Samples by client and class", words, spec=spec, keys=keys, height=height)


def traffic_figure(record: Record) -> Figure | None:
    """Bytes up and down in each round; None where nothing travelled."""
    lines = record.rounds
    most = max((line.bytes_up + line.bytes_down for line in lines), default=0)
    if not most:
        return None
    scale, unit = decimal_unit(most)
    keys = (Key("up", "up, to the server", "@c1"), Key("down", "down, to the clients", "@c2"))
    kind: dict[str, Any] = {"type": "bar"}
    if len(lines) > _FEW_BARS:  # bars thinner than a pixel flicker
        kind = {"type": "scatter", "mode": "lines", "stackgroup": "bytes", "line": {"width": 1}}
    traces = []
    for key in keys:
        sent = [getattr(line, f"bytes_{key.group}") for line in lines]
        trace = dict(kind, x=[line.round for line in lines], y=[b / scale for b in sent], name=key.group)
        trace |= {"legendgroup": key.group, "text": [human_bytes(b) for b in sent], "textposition": "none"}
        traces.append(_coloured(trace, key.colour) | {"hovertemplate": "%{text}"})
    layout = plain_layout(hovermode="x unified", barmode="stack", bargap=0.25)
    layout["xaxis"]["title"] = axis_title("round")
    layout["yaxis"] |= {"title": axis_title(unit), "rangemode": "tozero"}
    words = f"Bytes per round over {len(lines)} rounds, at most {human_bytes(most)} in a round."
    return Figure(
        "traffic-picture", "Bytes per round", words, spec={"data": traces, "layout": layout}, keys=keys, height=260
    )


def embed(figures: Iterable[Figure]) -> str:
    """The specifications as JSON that may stand inside an HTML page."""
    specs = {figure.id: _json_ready(figure.spec) for figure in figures}
    return in_script(specs)


def in_script(content: Any) -> str:
    """JSON that may stand inside an HTML page."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    # Valid JSON either way; without these characters nothing in it can end the script element that holds it.
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _split(metric: str) -> str:
    return metric.split("/", 1)[0] if "/" in metric else ""


def _split_keys(metrics: Iterable[str]) -> dict[str, Key]:
    splits = list(dict.fromkeys([*_SPLITS, *(_split(metric) for metric in metrics)]))
    return {split: Key(f"s{i}", split or "value", colour(i)) for i, split in enumerate(splits)}


def _curve_traces(curve: MetricCurve) -> Iterable[tuple[dict[str, Any], Sequence[int]]]:
    """The band if there is one, then the line; each with the places of its points in the curve."""
    common: dict[str, Any] = {"type": "scatter", "legendgroup": curve.key.group, "name": label(curve.key.name)}
    inside = [i for i, sd in enumerate(curve.band) if sd is not None and math.isfinite(sd + curve.values[i])]
    if inside:
        round_trip = inside + inside[::-1]
        signs = [1] * len(inside) + [-1] * len(inside)
        y = [curve.values[i] + sign * (curve.band[i] or 0.0) for i, sign in zip(round_trip, signs)]
        band = common | {"y": y, "fill": "toself", "mode": "none", "hoverinfo": "skip"}
        band["fillcolor"] = f"{curve.key.colour}/0.22"
        yield band, round_trip
    few = len(curve.rounds) <= _FEW_POINTS
    line = common | {"y": list(curve.values), "mode": "lines+markers" if few else "lines"}
    line["line"] = {"color": curve.key.colour, "width": 2, "dash": curve.dash}
    line["marker"] = {"color": curve.key.colour, "size": 5}
    line["hovertemplate"] = "%{y:.4g}"
    if curve.band:
        line["text"] = ["" if sd is None else f" ± {number(sd)}" for sd in curve.band]
        line["hovertemplate"] = "%{y:.4g}%{text}"
    yield line, range(len(curve.rounds))


def _curves_in_words(title: str, curves: Sequence[MetricCurve], metric: str) -> str:
    parts = []
    for curve in curves:
        if curve.values:
            ends = f"{number(curve.values[0])} to {number(curve.values[-1])}"
            parts.append(f"{curve.key.name} from {ends}")
    aim = "" if is_count(metric) else " (lower is better)" if less_is_better(metric) else " (higher is better)"
    return f"{title} over rounds{aim}: " + "; ".join(parts) + "."


def _histogram(counts: np.ndarray, edges: np.ndarray) -> dict[str, Any]:
    spans = [f"{number(float(a))} to {number(float(b))}" for a, b in pairwise(edges)]
    return {
        "type": "bar",
        "x": ((edges[:-1] + edges[1:]) / 2).tolist(),
        "y": counts.tolist(),
        "width": (np.diff(edges) * 0.94).tolist(),
        "marker": {"color": "@c1"},
        "text": spans,
        "textposition": "none",
        "hovertemplate": "%{text}: %{y} clients<extra></extra>",
    }


def _rug(values: Mapping[str, float]) -> dict[str, Any]:
    """A tick per client; of very many, evenly spaced ranks, so that the ends are always shown."""
    ranked = sorted(values.items(), key=lambda item: item[1])
    if len(ranked) > _MOST_RUG:
        ranked = [ranked[i] for i in np.linspace(0, len(ranked) - 1, _MOST_RUG).astype(int)]
    return {
        "type": "scatter",
        "mode": "markers",
        "yaxis": "y2",
        "x": [value for _, value in ranked],
        "y": [0] * len(ranked),
        "text": [label(client) for client, _ in ranked],
        "marker": {"symbol": "line-ns-open", "size": 11, "color": "@c1/0.7", "line": {"width": 1.5}},
        "hovertemplate": "%{text}: %{x:.4g}<extra></extra>",
    }


def _median_line(median: float) -> dict[str, Any]:
    line = {"color": "@ink", "width": 1.5, "dash": "dot"}
    return {"type": "line", "x0": median, "x1": median, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def _median_note(median: float) -> dict[str, Any]:
    place = {"x": median, "yref": "paper", "y": 1, "yanchor": "bottom", "showarrow": False}
    return place | {"text": f"median {number(median)}", "font": {"color": "@ink", "size": 12}}


def _matrix(counts: Any, width: int) -> np.ndarray | None:
    """The counts as a matrix; None where they are not one."""
    try:
        matrix = np.asarray(counts, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    usable = matrix.ndim == 2 and matrix.shape[1] == width and bool(np.isfinite(matrix).all())
    return matrix if usable else None


def _stacked(matrix: np.ndarray, ids: Sequence[str], classes: Sequence[str]) -> _Drawn:
    keys = tuple(Key(f"k{i}", name, colour(i)) for i, name in enumerate(classes))
    names = [label(i) for i in ids]
    hover = "%{customdata}, %{text}: %{y:,d}<extra></extra>"
    traces = []
    for key, column in zip(keys, matrix.T):
        trace: dict[str, Any] = {"type": "bar", "x": list(range(len(ids))), "y": column.tolist()}
        trace["legendgroup"] = key.group
        trace |= {"customdata": names, "text": [label(key.name)] * len(ids), "textposition": "none"}
        traces.append(_coloured(trace, key.colour) | {"hovertemplate": hover})
    layout = plain_layout(hovermode="closest", barmode="stack", bargap=0.12)
    layout["xaxis"] |= _client_axis(names)
    layout["yaxis"] |= {"title": axis_title("samples"), "rangemode": "tozero"}
    return {"data": traces, "layout": layout}, keys, 320


def _heat_map(matrix: np.ndarray, ids: Sequence[str], classes: Sequence[str]) -> _Drawn:
    """Too many classes for colours: the commonest ones as rows, darker where a client holds more."""
    order = np.argsort(-matrix.sum(axis=0), kind="stable")[:MOST_CLASSES]
    rows, names = [label(classes[i], 24) for i in order], [label(i) for i in ids]
    shown = matrix[:, order].T
    trace = {
        "type": "heatmap",
        "z": shown.tolist(),
        "x": list(range(len(ids))),
        "y": list(range(len(rows))),
        "text": [[f"{client}, {row}" for client in names] for row in rows],
        "hovertemplate": "%{text}: %{z:,d}<extra></extra>",
        "colorscale": [[0, "@surface"], [1, "@c1"]],
        "colorbar": {"thickness": 10, "outlinewidth": 0, "tickfont": {"color": "@muted"}},
        "xgap": int(len(ids) <= 30),
        "ygap": 1,
    }
    layout = plain_layout(hovermode="closest")
    layout["xaxis"] |= _client_axis(names)
    step = max(1, len(rows) // 30)
    ticks = list(range(0, len(rows), step))
    layout["yaxis"] |= {"tickvals": ticks, "ticktext": [rows[i] for i in ticks]}
    layout["yaxis"] |= {"autorange": "reversed", "showgrid": False}
    return {"data": [trace], "layout": layout}, (), min(640, 140 + 16 * len(rows))


def _client_axis(names: Sequence[str]) -> dict[str, Any]:
    """Clients are identified by number, so that two with the same name get separate bars."""
    step = max(1, math.ceil(len(names) / 12))
    ticks = list(range(0, len(names), step))
    text = [name if len(name) <= 10 else name[:9].rsplit("&", 1)[0] + "…" for name in (names[i] for i in ticks)]
    return {"title": axis_title("client"), "tickvals": ticks, "ticktext": text, "showgrid": False}


def _coloured(trace: dict[str, Any], token: str) -> dict[str, Any]:
    if trace["type"] == "bar":
        return trace | {"marker": {"color": token}}
    return trace | {"fillcolor": f"{token}/0.6", "line": trace.get("line", {}) | {"color": token}}


def plain_layout(**more: Any) -> dict[str, Any]:
    """What all figures look like; `more` is laid over it."""
    # The page must scroll under a finger, so figures neither drag nor zoom.
    axis = {"gridcolor": "@grid", "linecolor": "@line", "zeroline": False, "fixedrange": True, "automargin": True}
    axis |= {"tickfont": {"size": 12}, "title": axis_title("")}
    return {
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "@muted"},
        "paper_bgcolor": "@clear",
        "plot_bgcolor": "@clear",
        "margin": {"l": 8, "r": 12, "t": 22, "b": 8},
        "xaxis": dict(axis, showgrid=False, showline=True),
        "yaxis": dict(axis),
        "showlegend": False,
        "dragmode": False,
        "hoverlabel": {"bgcolor": "@surface", "bordercolor": "@line", "font": {"color": "@ink"}},
    } | more


def axis_title(text: str) -> dict[str, Any]:
    """What an axis shows."""
    return {"text": text, "font": {"size": 12}}


def decimal_unit(most: float) -> tuple[float, str]:
    """The decimal unit in which the largest value reads best."""
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if most >= scale:
            return scale, unit
    return 1.0, "bytes"


def _json_ready(value: Any) -> Any:
    """A gap where a number is not finite, and no more digits than a screen can show."""
    if isinstance(value, Mapping):
        return {key: _json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_ready(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value
