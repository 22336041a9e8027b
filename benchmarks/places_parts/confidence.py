"""Confidence on cities that nobody trained on: is it as often right as it says, and what does its threshold let by?"""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.table import Table

from places_parts.common import at_least, at_most, note
from wayfare.places.calibration import PRECISION, STRANGERS, curve_of, quality, weights_of
from wayfare.places.index import Index
from wayfare.places.indexing import add
from wayfare.places.leave_one_out import Calibrator
from wayfare.places.locate import curve, locate
from wayfare.places.trained_model import load_model

MEANS = ("ece", "auc", "brier", "brier_constant", "possible")


def confidence(run):
    """Each tested city of a run is strange in turn, a fifth of all photos by weight, and the others are indexed.

    With one city, strangers are the photos of its eastern third, whose photographs are not in the index.
    """
    model = load_model(run)
    divided = model.task.loaded.divided
    photos, database = divided.photos, divided.test_database
    groups = np.unique(photos.group[database])
    if len(groups) > 1:
        turns = [photos.group != group for group in groups]
    else:
        turns = [photos.easting <= np.quantile(photos.easting[database], 2 / 3)]
    note.print("indexing all tested cities but one, asking with all of them", highlight=False)
    rows = [_one(model, run, photos, database[inside[database]], divided.test_queries) for inside in turns]
    if failed := [row["why"] for row in rows if "why" in row]:
        return {"why": failed[0]}
    means = {name: float(np.mean([row[name] for row in rows])) for name in MEANS}
    return {**means, "photos": rows[0]["photos"], "turns": rows}


def _one(model, run, photos, indexed, queries):
    with TemporaryDirectory() as place:
        calibrator = Calibrator(model, run, STRANGERS, PRECISION)
        add(model, photos.take(indexed), Path(place, "index"), calibrator)
        index = Index(Path(place, "index"))
        asked = photos.take(queries)
        found = curve(index, locate(index, asked.paths(), k=1).answers, asked)
    learnt = index.facts.calibration
    if learnt is None:
        return {"why": index.facts.uncalibrated}
    weights = weights_of(found.known, STRANGERS)
    return {
        "photos": len(found.right), "known": int(found.known.sum()), "indexed": len(index), "learnt": learnt.figures,
        "threshold": learnt.threshold, "promised": [learnt.precision, learnt.recall],
        **quality(found.confidence, found.right, weights), **_at(found, weights, learnt.threshold),
    }  # fmt: skip


def _at(found, weights, threshold):
    """Precision and recall of what is answered at the learnt threshold; the recall that 0.9 would have had."""
    weighted = curve_of(found.confidence, found.right, found.known, weights)
    enough = weighted.recall[weighted.precision >= PRECISION]
    best = {"possible": float(enough.max()) if len(enough) else 0.0}
    taken = found.confidence >= threshold if threshold is not None else np.zeros(len(weights), bool)
    if not taken.any():
        return {**best, "precision": None, "recall": 0.0, "answered": 0}
    right = float((weights * found.right)[taken].sum())
    precision, recall = right / weights[taken].sum(), right / weights[found.known].sum()
    return {**best, "precision": float(precision), "recall": float(recall), "answered": int(taken.sum())}


def targets(rows):
    found = []
    for name, row in rows.items():
        if "why" in row:
            continue
        found += [
            at_most(f"confidence, {name}: expected calibration error", row["ece"], 0.05),
            at_least(f"confidence, {name}: AUC", row["auc"], 0.8),
        ]
        judged = [turn["precision"] for turn in row["turns"] if turn["precision"] is not None]
        if judged:
            found.append(at_least(f"confidence, {name}: precision of what is answered", min(judged), PRECISION))
    return found


def show(rows, out):
    out.print(f"confidence: photos of unseen cities, {STRANGERS:.0%} of them strangers by weight", highlight=False)
    table = Table("", "photos", "ECE", "AUC", "Brier (constant)", "recall at 0.9", "threshold: precision, recall")
    for name, row in rows.items():
        if "why" in row:
            table.add_row(name, row["why"])
            continue
        brier = f"{row['brier']:.3f} ({row['brier_constant']:.3f})"
        judged = "; ".join(_judged(turn) for turn in row["turns"])
        values = (f"{row[figure]:.3f}" for figure in ("ece", "auc"))
        table.add_row(name, str(row["photos"]), *values, brier, f"{row['possible']:.3f}", judged)
    out.print(table)


def _judged(turn):
    if turn["threshold"] is None:
        return "none"
    precision = "nothing answered" if turn["precision"] is None else f"{turn['precision']:.3f}"
    return f"{turn['threshold']:.2f}: {precision}, {turn['recall']:.3f}"
