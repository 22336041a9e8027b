"""The page of a study of merged models: what merging is worth by the two accuracies, and how well that is foretold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.reports import page
from wayfare.reports.figures import Figure, axis_title, plain_layout
from wayfare.reports.tables import number

_MOST = 4000  # points in a figure: more make a page slow, and hide each other
_HEIGHT = 420


def write_study(
    title: str,
    rows: Sequence[tuple[str, str, str]],
    accuracy: np.ndarray,
    change: np.ndarray,
    table: np.ndarray,
    truth: np.ndarray,
    predicted: np.ndarray,
    about: Mapping[str, Any],
    out: Path,
) -> Path:
    """One self-contained page. `change[i, j]` is what model i gains from model j, `table` what is predicted of it."""
    drawn = [_pairs(accuracy, change), _table(table), _foretold(truth, predicted)]
    lead = (
        "Many models were trained on data sets of different size and mixture, and the mean of every two was judged. "
        "A support-vector regressor learnt from the two accuracies what a merge changes."
    )
    header = page.tag(
        "header",
        page.tag("p", "Wayfare · study of merged models", class_="eyebrow"),
        page.tag("h1", title),
        page.tag("p", lead, class_="lead"),
        page.menu(["numbers", "pairs", "regressor", "provenance"]),
    )
    note = (
        "Errors are mean absolute percentage errors of the merged accuracy. “Models not seen before”: both models of a "
        "pair were kept from the regressor. Where only the pair was, it knows both models from other pairs."
    )
    some = f"Of {number(change.size)} pairs {number(_MOST)} are drawn, evenly." if change.size > _MOST else ""
    edge = (
        f"The table is used between {accuracy.min():.3f} and {accuracy.max():.3f}, the accuracies that it was made "
        "from; beyond them it answers as at its edge, and such questions are counted."
    )
    sections = [
        page.section(
            "numbers",
            "The study in numbers",
            page.table("The study in numbers", ("", "here", "paper"), rows),
            page.tag("p", note, class_="note"),
        ),
        page.section(
            "pairs",
            "What merging is worth",
            page.plots(drawn[:1]),
            page.tag("p", some, class_="note") if some else None,
        ),
        page.section("regressor", "What is foretold", page.plots(drawn[1:]), page.tag("p", edge, class_="note")),
        page.section("provenance", "Where it comes from", *_provenance(about)),
    ]
    return page.save(page.document(title, header, sections, drawn), out)


def _pairs(accuracy: np.ndarray, change: np.ndarray) -> Figure:
    """Each pair at its two accuracies, coloured by what the first gains."""
    own, peer = np.broadcast_arrays(accuracy[:, None], accuracy)
    chosen = _spread(change.size)
    values = change.ravel()[chosen]
    trace: dict[str, Any] = {"type": "scatter", "mode": "markers"}
    trace |= {"x": own.ravel()[chosen].tolist(), "y": peer.ravel()[chosen].tolist(), "text": _signed(values)}
    trace["marker"] = {"size": 6, "color": values.tolist(), **_scale(values), "colorbar": _bar()}
    trace["hovertemplate"] = "own %{x:.3f}, peer %{y:.3f}: %{text}<extra></extra>"
    words = (
        f"{number(len(values))} pairs by own and peer's accuracy; {100 * float((values > 0).mean()):.0f} % of them "
        f"gain, at most {values.max():+.3f}; the largest loss is {values.min():+.3f}."
    )
    return _figure("study-pairs", "Change of the own accuracy", words, [trace], "own accuracy", "peer's accuracy")


def _table(table: np.ndarray) -> Figure:
    """The regressor's table as a map."""
    axis = np.linspace(0, 1, len(table)).tolist()
    trace: dict[str, Any] = {"type": "heatmap", "x": axis, "y": axis, "z": table.T.tolist(), **_map_scale(table)}
    trace |= {"colorbar": _bar(), "hovertemplate": "own %{x:.2f}, peer %{y:.2f}: %{z:+.3f}<extra></extra>"}
    words = f"Predicted change over both accuracies from 0 to 1: from {table.min():+.3f} to {table.max():+.3f}."
    return _figure("study-table", "Predicted change", words, [trace], "own accuracy", "peer's accuracy")


def _foretold(truth: np.ndarray, predicted: np.ndarray) -> Figure:
    """Merged accuracies of models that the regressor had not seen."""
    chosen = _spread(len(truth))
    x, y = truth[chosen], predicted[chosen]
    ends = [float(min(x.min(), y.min())), float(max(x.max(), y.max()))]
    line: dict[str, Any] = {"type": "scatter", "mode": "lines", "x": ends, "y": ends, "hoverinfo": "skip"}
    line["line"] = {"color": "@muted", "width": 1, "dash": "dot"}
    points: dict[str, Any] = {"type": "scatter", "mode": "markers", "x": x.tolist(), "y": y.tolist()}
    points |= {"marker": {"size": 4, "color": "@c1/0.5"}}
    points["hovertemplate"] = "true %{x:.3f}, predicted %{y:.3f}<extra></extra>"
    words = f"Predicted against true merged accuracy of {number(len(x))} pairs of models not seen before."
    return _figure(
        "study-foretold", "Models not seen before", words, [line, points], "true merged accuracy", "predicted"
    )


def _figure(name: str, title: str, words: str, traces: list[dict[str, Any]], across: str, up: str) -> Figure:
    layout = plain_layout(hovermode="closest")
    layout["xaxis"] |= {"title": axis_title(across), "showgrid": True}
    layout["yaxis"] |= {"title": axis_title(up)}
    return Figure(name, title, words, {"data": traces, "layout": layout}, height=_HEIGHT)


def _provenance(about: Mapping[str, Any]) -> list[page.Html]:
    facts = [(key, page.setting(value)) for key, value in about.items() if key != "experiment"]
    parts = [page.facts("Provenance", facts)]
    if "experiment" in about:
        lines = [page.tag("div", line or " ") for line in str(about["experiment"]).splitlines()]
        parts.append(page.details("The experiment that it is part of", page.tag("pre", page.tag("code", *lines))))
    return parts


def _spread(count: int) -> np.ndarray:
    """Places of the points that are drawn: all, or an even spread of them."""
    return np.arange(count) if count <= _MOST else np.arange(_MOST) * count // _MOST


def _scale(values: np.ndarray) -> dict[str, Any]:
    """Losses in one colour, gains in another; what changes nothing is grey."""
    most = float(np.abs(values).max()) or 1.0
    return {"colorscale": [[0, "@c2"], [0.5, "@grid"], [1, "@c1"]], "cmin": -most, "cmax": most}


def _map_scale(values: np.ndarray) -> dict[str, Any]:
    scale = _scale(values)
    return {"colorscale": scale["colorscale"], "zmin": scale["cmin"], "zmax": scale["cmax"]}


def _bar() -> dict[str, Any]:
    return {"thickness": 10, "outlinewidth": 0, "tickfont": {"color": "@muted"}}


def _signed(values: np.ndarray) -> list[str]:
    return [f"{value:+.3f}" for value in values]
