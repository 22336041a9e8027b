"""Confidence on cities that nobody trained on: is it as often right as it says, and what does its threshold let by?"""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.table import Table

from places_parts.common import at_least, at_most, note
from wayfare.places.calibration import PRECISION, STRANGERS, Calibrator, curve_of, quality, weights_of
from wayfare.places.index import Index
from wayfare.places.indexing import add
from wayfare.places.locate import curve, locate
from wayfare.places.trained_model import load_model


def confidence(run):
    """The tested cities of a run but the last are indexed; photos of that one are strangers, a fifth of all by weight.

    With one city, strangers are the photos of its eastern third, whose photographs are not in the index.
    """
    model = load_model(run)
    divided = model.task.loaded.divided
    photos, database, queries = divided.photos, divided.test_database, divided.test_queries
    groups = np.unique(photos.group[database])
    if len(groups) > 1:
        inside = photos.group != groups[-1]
    else:
        inside = photos.easting <= np.quantile(photos.easting[database], 2 / 3)
    note.print("indexing the tested cities but one, asking with all of them", highlight=False)
    with TemporaryDirectory() as place:
        calibrator = Calibrator(model, run, STRANGERS, PRECISION)
        add(model, photos.take(database[inside[database]]), Path(place, "index"), calibrator)
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
    rows = {name: row for name, row in rows.items() if "ece" in row}
    found = []
    for name, row in rows.items():
        found += [
            at_most(f"confidence, {name}: expected calibration error", row["ece"], 0.05),
            at_least(f"confidence, {name}: AUC", row["auc"], 0.8),
        ]
        if row["precision"] is not None:
            found.append(at_least(f"confidence, {name}: precision of what is answered", row["precision"], PRECISION))
    return found


def show(rows, out):
    out.print(f"confidence: photos of unseen cities, {STRANGERS:.0%} of them strangers by weight", highlight=False)
    table = Table("", "photos", "ECE", "AUC", "Brier (constant)", "threshold", "precision", "recall", "recall at 0.9")
    for name, row in rows.items():
        if "why" in row:
            table.add_row(name, row["why"])
            continue
        judged = ["none", "", ""]
        if row["threshold"] is not None:
            precision = "nothing answered" if row["precision"] is None else f"{row['precision']:.3f}"
            judged = [f"{row['threshold']:.2f}", precision, f"{row['recall']:.3f}"]
        brier = f"{row['brier']:.3f} ({row['brier_constant']:.3f})"
        values = (
            str(row["photos"]),
            f"{row['ece']:.3f}",
            f"{row['auc']:.3f}",
            brier,
            *judged,
            f"{row['possible']:.3f}",
        )
        table.add_row(name, *values)
    out.print(table)
