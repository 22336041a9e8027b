"""The figures of a tour: accuracy of the models, cost, contacts, and who learnt from whom."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wayfare.encounters.record import Exchanges, TourRecord
from wayfare.pages.figures import Figure, Key, axis_title, decimal_unit, label, plain_layout
from wayfare.pages.tables import number

BEFORE, AFTER = Key("before", "before the tour", "@c9"), Key("after", "after the tour", "@c3")
PROBE, TEST = Key("probe", "on the devices' own probe", "@c1"), Key("test", "on the test set", "@c2")
SENT, TAKEN = Key("sent", "sent", "@c2"), Key("taken", "received", "@c1")
CONTACTS, MET = Key("contacts", "in reach", "@c7"), Key("met", "met", "@c4")
KEPT, LEFT = Key("kept", "adopted", "@c1"), Key("left", "not adopted", "@c9")
CUT = Key("cut", "contact too short", "@c8")
GOOD, BAD, UNUSED = Key("good", "gain", "@c3"), Key("bad", "harm", "@c8"), Key("unused", "not adopted", "@c9")
OVER = (("time", "time"), ("exchanges", "exchanges"), ("bytes", "bytes"), ("joules", "energy"))
GROUPS = 10  # of devices with similar accuracy
MOST_NAMED = 24  # senders and receivers shown by name
_BIN = 0.05  # width of the bars in the paper's Fig. 4 and 5
_MOST_POINTS = 2500
_CURVE_POINTS = 400
_DAY_BINS = 180


def distribution_figure(name: str, measure: str, before: np.ndarray | None, after: np.ndarray | None) -> Figure | None:
    """A histogram of the devices' accuracies before and after (the paper's Fig. 4 and 5)."""
    known = [(key, v[~np.isnan(v)]) for key, v in ((BEFORE, before), (AFTER, after)) if v is not None]
    known = [(key, values) for key, values in known if len(values)]
    if not known:
        return None
    every = np.concatenate([values for _, values in known])
    width = _BIN if np.ptp(every) > 4 * _BIN else _BIN / 5
    low, high = math.floor(every.min() / width + 1e-9), math.floor(every.max() / width + 1e-9) + 1
    edges = np.arange(low, high + 1) * width
    spans = [f"{100 * a:.3g} to {100 * (a + width):.3g} %" for a in edges[:-1]]
    traces: list[dict[str, Any]] = []
    words = []
    for key, values in known:
        counts = np.bincount(np.clip(((values - edges[0]) / width + 1e-9).astype(int), 0, len(spans) - 1))
        counts = np.pad(counts, (0, len(spans) - len(counts)))
        traces.append({
            "type": "bar", "x": (edges[:-1] + width / 2).tolist(), "y": counts.tolist(), "legendgroup": key.group,
            "marker": {"color": key.colour}, "text": spans, "textposition": "none",
            "hovertemplate": f"%{{text}}: %{{y}} devices {key.name}<extra></extra>",
        })  # fmt: skip
        words.append(f"{key.name} from {number(values.min())} to {number(values.max())}, mean {number(values.mean())}")
    layout = plain_layout(hovermode="closest", barmode="group", bargap=0.12, bargroupgap=0)
    layout["xaxis"] |= {"title": axis_title(label(measure)), "tickformat": ".0%"}
    layout["yaxis"] |= {"title": _upright("devices"), "rangemode": "tozero", **_whole(traces)}
    text = f"Histogram of {measure} over {len(known[0][1])} devices: {'; '.join(words)}."
    title, keys = measure[0].upper() + measure[1:], tuple(key for key, _ in known)
    return Figure(name, title, text, spec=_spec(traces, layout), keys=keys, height=340)


def progress_figure(tour: TourRecord, measure: str = "accuracy") -> Figure | None:
    """The mean accuracy against time, exchanges, bytes and energy, the last three per device."""
    judged = [one for one in tour.judged if one.of(measure) is not None]
    if not judged:
        return None
    axes = _Axes(tour)
    traces: list[dict[str, Any]] = []
    x: list[dict[str, list[float]]] = []
    keys = [TEST]
    if len(tour.exchanges) and not np.isnan(tour.mean_score).all():
        keys.insert(0, PROBE)
        ends = np.append(np.diff(tour.exchanges.slot) > 0, True)  # one point per slot: after its last exchange
        shown = _some(np.flatnonzero(ends), _CURVE_POINTS)
        known = tour.scores[~np.isnan(tour.scores)]
        line = {"color": PROBE.colour, "width": 2}
        y = [float(known.mean()), *tour.mean_score[shown].tolist()]
        traces.append({"type": "scatter", "mode": "lines", "y": y, "line": line, "legendgroup": PROBE.group})
        x.append(axes.at(np.append(-1, tour.exchanges.slot[shown])))
    means = [float(np.nanmean(one.values[measure])) for one in judged]
    line = {"color": TEST.colour, "width": 1.5, "dash": "dot"}
    mark = {"color": TEST.colour, "size": 8}
    traces.append({"type": "scatter", "mode": "lines+markers", "y": means, "line": line, "marker": mark})
    traces[-1] |= {"legendgroup": TEST.group}
    x.append(axes.at(np.array([one.slot for one in judged])))
    for trace, key in zip(traces, keys):
        trace |= {"hovertemplate": "%{y:.2%}", "name": key.name}
    layout = plain_layout(hovermode="x unified")
    layout["yaxis"] |= {"title": _upright(f"mean {label(measure)}"), "tickformat": ".1~%"}
    titles = axes.titles
    layout["xaxis"]["title"] = axis_title(titles["time"])
    over = {axis: {"x": [each[axis] for each in x], "title": titles[axis]} for axis, _ in OVER}
    spec = {"data": [t | {"x": each["time"]} for t, each in zip(traces, x)], "layout": layout, "over": over}
    words = f"Mean {measure} over the day: from {number(means[0])} to {number(means[-1])} on the test set."
    return Figure("tour-progress", f"Mean {measure}", words, spec=spec, keys=tuple(keys), height=340)


class _Axes:
    """Exchanges, bytes and energy per device up to the end of a slot."""

    def __init__(self, tour: TourRecord) -> None:
        devices = max(1, len(tour.ids))
        self.tour, self.slots = tour, tour.slots["slot"]
        ends = self.slots + tour.slots["slots"] - 1
        taken = np.searchsorted(tour.exchanges.slot, ends, side="right")
        self.columns = {"exchanges": taken / devices, "bytes": np.cumsum(tour.slots["bytes"]) / devices}
        self.scale, self.unit = decimal_unit(float(self.columns["bytes"][-1]))
        self.columns["joules"] = self._joules()

    def _joules(self) -> np.ndarray:
        """Known where devices were evaluated; interpolated by bytes in between."""
        known = [one for one in self.tour.judged if not math.isnan(one.joules)]
        sent = self.columns["bytes"]
        if not known:
            return np.full(len(sent), math.nan)
        then = np.array([self._by(one.slot, sent) for one in known])
        then, first = np.unique(then, return_index=True)
        found: np.ndarray = np.interp(sent, then, np.array([known[i].joules for i in first]))
        return found

    def _by(self, slot: int, column: np.ndarray) -> float:
        place = int(np.searchsorted(self.slots, slot, side="right")) - 1
        return float(column[place]) if place >= 0 else 0.0

    def at(self, slots: np.ndarray) -> dict[str, list[float]]:
        """The value on each axis at the end of these slots; slot -1 is the start."""
        columns = {name: [self._by(int(slot), column) for slot in slots] for name, column in self.columns.items()}
        taken = np.searchsorted(self.tour.exchanges.slot, slots, side="right")
        columns["exchanges"] = (taken / max(1, len(self.tour.ids))).tolist()  # known within a round, too
        columns["bytes"] = [value / self.scale for value in columns["bytes"]]
        return columns | {"time": self.tour.time(slots + 1).tolist()}

    @property
    def titles(self) -> dict[str, str]:
        return {
            "time": self.tour.time_words,
            "exchanges": "models received per device",
            "bytes": f"sent per device, {self.unit}",
            "joules": "energy per device, J",
        }


def contact_figures(tour: TourRecord) -> list[Figure]:
    """Pairs in reach, meetings and exchanges per slot, over the day."""
    slots, long = tour.slots["slot"], tour.slots["slots"]
    per_bin = math.ceil(len(slots) / _DAY_BINS)
    bins = np.arange(len(slots)) // per_bin
    size = np.bincount(bins, long)
    when = tour.time(np.bincount(bins, long * (slots + long / 2)) / size).tolist()
    exchanges, taken = tour.exchanges, np.zeros((2, len(slots)))
    place = np.searchsorted(slots, exchanges.slot, side="right") - 1
    for row, chosen in enumerate((exchanges.adopted, ~exchanges.adopted)):
        taken[row] = np.bincount(place[chosen], minlength=len(slots))
    rows = {CONTACTS: tour.slots["contacts"], MET: tour.slots["met"], KEPT: taken[0], LEFT: taken[1]}
    rows[CUT] = tour.slots["cut"]
    means = {key: np.bincount(bins, row) / size for key, row in rows.items()}
    made = []
    exchanged = (KEPT, *(key for key in (LEFT, CUT) if rows[key].any()))
    kinds: tuple[tuple[str, str, tuple[Key, ...]], ...] = (
        ("tour-contacts", "Pairs per slot", (CONTACTS, MET)),
        ("tour-exchanges", "Exchanges per slot", exchanged),
    )
    for name, title, keys in kinds:
        traces = [
            {"type": "scatter", "mode": "lines", "x": when, "y": means[key].tolist(), "legendgroup": key.group,
             "name": key.name, "line": {"color": key.colour, "width": 1.5}, "hovertemplate": "%{y:.3~g}"}
            for key in keys
        ]  # fmt: skip
        layout = plain_layout(hovermode="x unified")
        layout["xaxis"]["title"] = axis_title(tour.time_words)
        layout["yaxis"] |= {"rangemode": "tozero"}
        words = ", ".join(f"{key.name} {number(float(rows[key].mean()))}" for key in keys)
        made.append(Figure(name, title, f"{title} over the day; means: {words}.", _spec(traces, layout), keys))
    return made


def budget_figure(tour: TourRecord) -> Figure | None:
    """Histogram of the models that devices sent and received."""
    if not tour.columns:
        return None
    most = int(max(tour.columns["sent"].max(), tour.columns["taken"].max()))
    width = max(1, math.ceil((most + 1) / 40))
    starts = list(range(0, most + 1, width))
    spans = [str(a) if width == 1 else f"{a} to {a + width - 1}" for a in starts]
    traces = []
    for key in (SENT, TAKEN):
        counts = np.bincount(tour.columns[key.group] // width, minlength=len(starts))
        trace = {"type": "bar", "x": [a + (width - 1) / 2 for a in starts], "y": counts.tolist(), "text": spans}
        trace |= {"legendgroup": key.group, "marker": {"color": key.colour}, "textposition": "none"}
        traces.append(trace | {"hovertemplate": f"%{{y}} devices {key.name} %{{text}} models<extra></extra>"})
    layout = plain_layout(hovermode="closest", barmode="group", bargap=0.12)
    layout["xaxis"] |= {"title": axis_title("models")}
    layout["yaxis"] |= {"title": _upright("devices"), "rangemode": "tozero", **_whole(traces)}
    words = f"Histogram of models sent and received by {len(tour.ids)} devices; at most {most}."
    return Figure(
        "tour-budget", "Models sent and received", words, spec=_spec(traces, layout), keys=(SENT, TAKEN), height=340
    )


def forecast_figure(exchanges: Exchanges) -> Figure | None:
    """The predicted gain of each merge against the actual gain."""
    known = np.flatnonzero(~np.isnan(exchanges.predicted - exchanges.before) & ~np.isnan(exchanges.gain))
    if not len(known):
        return None
    shown = _some(known, _MOST_POINTS)
    predicted = exchanges.predicted - exchanges.before
    kinds = ((GOOD, exchanges.adopted & ~exchanges.harmful), (BAD, exchanges.harmful), (UNUSED, ~exchanges.adopted))
    traces: list[dict[str, Any]] = []
    keys = []
    for key, of_kind in kinds:
        at = shown[of_kind[shown]]
        if not len(at):
            continue
        keys.append(key)
        mark = {"color": f"{key.colour}/0.55", "size": 5}
        trace = {"type": "scatter", "mode": "markers", "x": predicted[at].tolist(), "y": exchanges.gain[at].tolist()}
        trace |= {"legendgroup": key.group, "marker": mark}
        traces.append(trace | {"hovertemplate": "predicted %{x:+.1%}, actual %{y:+.1%}<extra></extra>"})
    both = np.concatenate([predicted[shown], exchanges.gain[shown]])
    ends = [float(both.min()), float(both.max())]
    layout = plain_layout(hovermode="closest")
    line = {"color": "@muted", "width": 1, "dash": "dot"}
    layout["shapes"] = [
        {"type": "line", "x0": ends[0], "x1": ends[1], "y0": ends[0], "y1": ends[1], "line": line, "layer": "below"},
        {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 0, "y1": 0, "line": line | {"dash": "solid"}},
    ]
    layout["xaxis"] |= {"title": axis_title("predicted change in accuracy"), "tickformat": "+.0%", "showgrid": True}
    layout["yaxis"] |= {"title": _upright("actual change"), "tickformat": "+.0%"}
    wrong = float(np.abs(predicted - exchanges.gain)[known].mean())
    words = f"Predicted and actual change in accuracy of {len(known)} merges; mean error {number(wrong)}."
    return Figure(
        "tour-forecast", "Predicted and actual gain", words, spec=_spec(traces, layout), keys=tuple(keys), height=340
    )


def teacher_figures(tour: TourRecord) -> list[Figure]:
    """Who learnt from whom: grouped by initial accuracy, and the busiest devices by name."""
    made = [_by_accuracy(tour), _by_name(tour)]
    return [figure for figure in made if figure is not None]


def _by_accuracy(tour: TourRecord) -> Figure | None:
    initial = tour.scores
    if np.isnan(initial).all() and tour.initial is not None:
        found = tour.initial.of("accuracy")
        initial = initial if found is None else found
    known = ~np.isnan(initial)
    if known.sum() < GROUPS or not len(tour.exchanges):
        return None
    ranked = np.full(len(initial), -1)
    order = np.argsort(initial[known], kind="stable")
    ranked[np.flatnonzero(known)[order]] = np.arange(len(order)) * GROUPS // len(order)
    taker, giver = ranked[tour.exchanges.taker], ranked[tour.exchanges.giver]
    both = (taker >= 0) & (giver >= 0)
    cells = [
        f"{100 * initial[ranked == group].min():.0f} to {100 * initial[ranked == group].max():.0f} %"
        for group in range(GROUPS)
    ]
    title = "By initial accuracy"
    words = f"Exchanges between {GROUPS} groups of devices with similar initial accuracy, coloured by mean gain."
    spec = _matrix(tour.exchanges, both, giver, column=taker, rows=cells, columns=cells)
    return Figure("tour-groups", title, words, spec=spec, keys=(), height=380)


def _by_name(tour: TourRecord) -> Figure | None:
    """The devices that sent most, and those that received most from them."""
    exchanges = tour.exchanges
    if not len(exchanges):
        return None
    devices = len(tour.ids)
    givers = _busiest(np.bincount(exchanges.giver, minlength=devices))
    from_them = np.isin(exchanges.giver, givers)
    takers = _busiest(np.bincount(exchanges.taker[from_them], minlength=devices))
    row, column = np.full(devices, -1), np.full(devices, -1)
    row[givers], column[takers] = np.arange(len(givers)), np.arange(len(takers))
    chosen = from_them & (column[exchanges.taker] >= 0)
    names = [[label(tour.ids[i], 16) for i in some] for some in (givers, takers)]
    words = f"Exchanges between the {len(givers)} busiest senders and {len(takers)} receivers, coloured by mean gain."
    spec = _matrix(exchanges, chosen, row[exchanges.giver], column[exchanges.taker], *names)
    return Figure("tour-named", "The busiest senders and receivers", words, spec=spec, keys=(), height=380)


def _busiest(counts: np.ndarray) -> np.ndarray:
    ranked = np.argsort(-counts, kind="stable")[:MOST_NAMED]
    return ranked[counts[ranked] > 0]


def _matrix(
    exchanges: Exchanges,
    chosen: np.ndarray,
    row: np.ndarray,
    column: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
) -> dict[str, Any]:
    """Senders as rows, receivers as columns; where gains are unknown, the colour shows the number of exchanges."""
    shape = len(rows), len(columns)
    place = row * len(columns) + column
    count = np.bincount(place[chosen], minlength=shape[0] * shape[1]).reshape(shape)
    measured = chosen & ~np.isnan(exchanges.gain)
    total = np.bincount(place[measured], exchanges.gain[measured], minlength=count.size).reshape(shape)
    known = np.bincount(place[measured], minlength=count.size).reshape(shape)
    scored = bool(measured.any())
    mean = np.where(known > 0, total / np.maximum(known, 1), math.nan)
    value = mean if scored else np.where(count > 0, count, math.nan)
    most = float(np.nanmax(np.abs(value))) or 1.0
    text = [
        [
            f"{rows[i]} sent {columns[j]} {count[i, j]} models"
            + (f", {100 * mean[i, j]:+.1f} points each" if known[i, j] else "")
            for j in range(shape[1])
        ]
        for i in range(shape[0])
    ]
    ticks = {"tickformat": "+.0%" if most >= 0.02 else "+.1%"} if scored else {"dtick": math.ceil(most / 6)}
    colours = [[0, "@c8"], [0.5, "@surface"], [1, "@c1"]] if scored else [[0, "@surface"], [1, "@c1"]]
    trace = {
        "type": "heatmap", "z": value.tolist(), "text": text, "hovertemplate": "%{text}<extra></extra>",
        "x": list(range(shape[1])), "y": list(range(shape[0])), "hoverongaps": False, "xgap": 1, "ygap": 1,
        "zmin": -most if scored else 0, "zmax": most, "colorscale": colours,
        "colorbar": {"thickness": 10, "outlinewidth": 0, "tickfont": {"color": "@muted"}, **ticks},
    }  # fmt: skip
    layout = plain_layout(hovermode="closest")
    layout["xaxis"] |= {"title": axis_title("receiver"), **_ticks(columns)}
    layout["yaxis"] |= {"title": _upright("sender"), "showgrid": False, **_ticks(rows)}
    return _spec([trace], layout)


def _whole(traces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Ticks at whole numbers only."""
    most = max((max(trace["y"]) for trace in traces), default=0)
    return {"dtick": 1} if most <= 6 else {"nticks": 6}


def _upright(text: str) -> dict[str, Any]:
    """The title of a vertical axis, clear of its numbers."""
    return axis_title(text) | {"standoff": 12}


def _ticks(names: Sequence[str]) -> dict[str, Any]:
    step = max(1, math.ceil(len(names) / 12))
    at = list(range(0, len(names), step))
    return {"tickvals": at, "ticktext": [names[i] for i in at]}


def _some(places: np.ndarray, most: int) -> np.ndarray:
    """At most this many of them, evenly spaced, with the first and the last."""
    if len(places) <= most:
        return places
    found: np.ndarray = places[np.linspace(0, len(places) - 1, most).round().astype(int)]
    return found


def _spec(traces: Sequence[Mapping[str, Any]], layout: Mapping[str, Any]) -> dict[str, Any]:
    return {"data": list(traces), "layout": layout}
