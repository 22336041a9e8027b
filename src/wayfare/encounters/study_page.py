"""The page of a study of merged models: the gain by the two accuracies, and how well it is predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.pages import page
from wayfare.pages.figures import Figure, axis_title, plain_layout
from wayfare.pages.tables import number

_MOST = 4000  # points in a figure: more make the page slow and overlap
_HEIGHT = 420


def write_study(
    *,
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
    """One self-contained page. `change[i, j]` is what model i gains from model j, `table` the predicted gain."""
    pairs = _pairs(accuracy, change)
    regressor = [_table(table), _unseen(truth, predicted)]
    text = page.render(
        "study.html",
        title=title,
        figures=[pairs, *regressor],
        rows=rows,
        pairs=pairs,
        count=change.size,
        most=_MOST,
        regressor=regressor,
        lowest=f"{accuracy.min():.3f}",
        highest=f"{accuracy.max():.3f}",
        provenance=page.setting_rows({key: value for key, value in about.items() if key != "experiment"}),
        experiment=str(about.get("experiment", "")),
    )
    return page.save(text, out)


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
        f"{number(len(values))} pairs by own and peer accuracy; {100 * float((values > 0).mean()):.0f} % of them "
        f"gain, at most {values.max():+.3f}; the largest loss is {values.min():+.3f}."
    )
    return _figure(
        "study-pairs", "Change in own accuracy", words, traces=[trace], across="own accuracy", up="peer accuracy"
    )


def _table(table: np.ndarray) -> Figure:
    """The regressor's table as a map."""
    axis = np.linspace(0, 1, len(table)).tolist()
    trace: dict[str, Any] = {"type": "heatmap", "x": axis, "y": axis, "z": table.T.tolist(), **_map_scale(table)}
    trace |= {"colorbar": _bar(), "hovertemplate": "own %{x:.2f}, peer %{y:.2f}: %{z:+.3f}<extra></extra>"}
    words = f"Predicted change for both accuracies from 0 to 1: between {table.min():+.3f} and {table.max():+.3f}."
    return _figure("study-table", "Predicted change", words, traces=[trace], across="own accuracy", up="peer accuracy")


def _unseen(truth: np.ndarray, predicted: np.ndarray) -> Figure:
    """True and predicted accuracy for models outside the regressor's training data."""
    chosen = _spread(len(truth))
    x, y = truth[chosen], predicted[chosen]
    ends = [float(min(x.min(), y.min())), float(max(x.max(), y.max()))]
    line: dict[str, Any] = {"type": "scatter", "mode": "lines", "x": ends, "y": ends, "hoverinfo": "skip"}
    line["line"] = {"color": "@muted", "width": 1, "dash": "dot"}
    points: dict[str, Any] = {"type": "scatter", "mode": "markers", "x": x.tolist(), "y": y.tolist()}
    points |= {"marker": {"size": 4, "color": "@c1/0.5"}}
    points["hovertemplate"] = "true %{x:.3f}, predicted %{y:.3f}<extra></extra>"
    words = f"Predicted and true merged accuracy of {number(len(x))} pairs of unseen models."
    return _figure(
        "study-unseen",
        "Unseen models",
        words,
        traces=[line, points],
        across="true merged accuracy",
        up="predicted",
    )


def _figure(name: str, title: str, words: str, traces: list[dict[str, Any]], across: str, up: str) -> Figure:
    layout = plain_layout(hovermode="closest")
    layout["xaxis"] |= {"title": axis_title(across), "showgrid": True}
    layout["yaxis"] |= {"title": axis_title(up)}
    return Figure(name, title, words, {"data": traces, "layout": layout}, height=_HEIGHT)


def _spread(count: int) -> np.ndarray:
    """Indices of the points to draw: all, or evenly spaced ones."""
    return np.arange(count) if count <= _MOST else np.arange(_MOST) * count // _MOST


def _scale(values: np.ndarray) -> dict[str, Any]:
    """Losses in one colour, gains in another, no change in grey."""
    most = float(np.abs(values).max()) or 1.0
    return {"colorscale": [[0, "@c2"], [0.5, "@grid"], [1, "@c1"]], "cmin": -most, "cmax": most}


def _map_scale(values: np.ndarray) -> dict[str, Any]:
    scale = _scale(values)
    return {"colorscale": scale["colorscale"], "zmin": scale["cmin"], "zmax": scale["cmax"]}


def _bar() -> dict[str, Any]:
    return {"thickness": 10, "outlinewidth": 0, "tickfont": {"color": "@muted"}}


def _signed(values: np.ndarray) -> list[str]:
    return [f"{value:+.3f}" for value in values]
