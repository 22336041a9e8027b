"""The page of `wayfare evaluate`: how often an index is right, and how well calibrated its confidence is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wayfare.pages.figures import Figure, Key, axis_title, plain_layout
from wayfare.pages.page import render, save, several
from wayfare.pages.tables import number
from wayfare.places.evaluation import IndexEvaluation

_STEPS = tuple(step / 10 for step in range(10))  # thresholds in the table


def write_evaluation(found: IndexEvaluation, index: Path, photos: Path, out: Path) -> Path:
    """Write the page and return where it is."""
    return save(evaluation_page(found, index, photos), out)


def evaluation_page(found: IndexEvaluation, index: Path, photos: Path) -> str:
    """The page as HTML."""
    drawn = [_calibration(found), _precision(found)] if found.figures else []
    return render(
        "evaluate.html", title=f"{photos.name} in {index}", figures=drawn, found=found, index=str(index),
        photos=str(photos), tiles=_tiles(found), ground=ground_in_words(found), rows=threshold_rows(found),
    )  # fmt: skip


def ground_in_words(found: IndexEvaluation) -> str:
    """Over how much ground the figures were measured."""
    ground = found.ground
    area = f"{ground.area_m2 / 1e6:,.3f} km² inside their outline, {number(ground.seen_m2)} m² of it seen"
    return (
        f"{several(ground.photographs, 'photograph')} in {several(ground.cities, 'city', 'cities')}: {area}, up to "
        f"{ground.kilometres:,.2f} km across"
    )


def threshold_rows(found: IndexEvaluation) -> list[tuple[str, str, str, str]]:
    """Threshold, precision, recall and share answered, at steps of a tenth and at the index's own threshold."""
    if not found.figures:
        return []
    own = () if found.threshold is None else (found.threshold,)
    rows = []
    for threshold in sorted({*_STEPS, *own}):
        point = found.at(threshold)
        name = f"{threshold:.2f}{' (of the index)' if threshold in own else ''}"
        shares = ("–" if point[key] is None else f"{point[key]:.3f}" for key in ("precision", "recall", "answered"))
        rows.append((name, *shares))
    return rows  # type: ignore[return-value]


def _tiles(found: IndexEvaluation) -> list[tuple[str, str, str]]:
    of = f"of {several(found.known, 'photo')} whose place is in the index"
    tiles = [("photos", number(found.photos), f"{found.known / found.photos:.0%} of places in the index")]
    for name, value in found.metrics.items():
        if name.startswith("R@"):
            tiles.append((name, f"{100 * value:.1f} %", of))
    for name, words in (("median_error_m", "median error"), ("p90_error_m", "90 % of errors below")):
        if name in found.metrics:
            error = found.metrics[name]
            far = f"{error:,.0f} m" if error < 10_000 else f"{error / 1000:,.0f} km"
            tiles.append((words, far, "from the predicted position"))
    if found.figures:
        tiles.append(("calibration error", f"{found.figures['ece']:.3f}", "expected, 10 bins"))
        tiles.append(("AUC", f"{found.figures['auc']:.3f}", "right against wrong answers"))
        brier = f"{found.figures['brier_constant']:.3f} if confidence were always the same"
        tiles.append(("Brier score", f"{found.figures['brier']:.3f}", brier))
    return tiles


def _calibration(found: IndexEvaluation) -> Figure:
    sure, right = ([each[place] for each in found.bins] for place in (0, 1))
    keys = (Key("bins", "photos of this index", "@c1"), Key("ideal", "perfect calibration", "@c2"))
    line: dict[str, Any] = {"type": "scatter", "legendgroup": "bins", "x": sure, "y": right, "mode": "lines+markers"}
    line |= {"line": {"color": "@c1", "width": 2}, "marker": {"color": "@c1", "size": 8}}
    line |= {"text": [several(each[3], "photo") for each in found.bins]}
    line |= {"hovertemplate": "confidence %{x:.2f}: %{y:.2f} right, %{text}<extra></extra>"}
    ideal: dict[str, Any] = {
        "type": "scatter",
        "legendgroup": "ideal",
        "x": [0, 1],
        "y": [0, 1],
        "mode": "lines",
        "hoverinfo": "skip",
    }
    ideal |= {"line": {"color": "@c2", "width": 1.5, "dash": "dot"}}
    layout = plain_layout(hovermode="closest")
    layout["xaxis"] |= {"title": axis_title("mean confidence"), "range": [-0.02, 1.02]}
    layout["yaxis"] |= {"title": axis_title("share of right answers"), "range": [-0.02, 1.05]}
    points = "; ".join(f"at {x:.2f} {y:.2f} right" for x, y in zip(sure, right))
    words = f"Confidence and share of right answers, in ten bins: {points}."
    return Figure("calibration-curve", "Is confidence right?", words, {"data": [ideal, line], "layout": layout}, keys)


def _precision(found: IndexEvaluation) -> Figure:
    curve, traces, keys = found.curve, [], []
    for place, (name, words) in enumerate((("precision", "precision"), ("answered", "share answered")), start=3):
        key = Key(name, words, f"@c{place}")
        trace: dict[str, Any] = {"type": "scatter", "mode": "lines", "legendgroup": name, "name": words}
        trace |= {"x": curve.thresholds.tolist(), "y": getattr(curve, name).tolist(), "line": {"color": key.colour}}
        traces.append(trace | {"hovertemplate": f"{words} %{{y:.3f}}<extra></extra>"})
        keys.append(key)
    layout = plain_layout(hovermode="x unified")
    layout["xaxis"] |= {"title": axis_title("threshold"), "range": [-0.02, 1.02]}
    layout["yaxis"] |= {"range": [-0.02, 1.05]}
    if found.threshold is not None:
        own = {"color": "@ink", "width": 1.5, "dash": "dot"}
        layout["shapes"] = [
            {"type": "line", "x0": found.threshold, "x1": found.threshold, "yref": "paper", "y0": 0, "y1": 1,
             "line": own}
        ]  # fmt: skip
    words = "Precision and the share of photos answered at every threshold; the same numbers are in the table."
    return Figure("threshold-curve", "What a threshold does", words, {"data": traces, "layout": layout}, tuple(keys))
