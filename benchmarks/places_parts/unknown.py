"""Places that are not in the index: how often `locate` says so, and the precision-recall curve."""

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.table import Table

from places_parts.common import note, play
from wayfare.core.errors import WayfareError
from wayfare.places.index import Index
from wayfare.places.indexing import add
from wayfare.places.leave_one_out import Calibrator
from wayfare.places.locate import curve, locate
from wayfare.places.trained_model import load_model

POINTS = 10  # of the curve that are shown


def unknown(plan, folder, machine):
    """For each run the city that it was tested on, by name."""
    records, failed = play(plan, folder, machine)
    if failed:
        raise WayfareError("; ".join(f"{name}: {why}" for name, why in failed.items()))
    return {name.split("/")[0]: _in_city(record) for name, record in records.items()}


def _in_city(record):
    """Index the western half of the city that is tested on, and ask with its queries of both halves.

    A place counts as known if the index has a photograph of it within the task's radius.
    """
    model = load_model(record.path)
    divided = model.task.loaded.divided
    east = divided.photos.easting[divided.test_database]
    western = divided.test_database[east <= (east.min() + east.max()) / 2]
    asked = divided.photos.take(divided.test_queries)
    with TemporaryDirectory() as place:
        note.print("indexing half of the city, asking with all of it", highlight=False)
        add(model, divided.photos.take(western), Path(place, "index"), Calibrator(model, record.path))
        index = Index(Path(place, "index"))
        located = locate(index, asked.paths())
        found = curve(index, located.answers, asked)
    figures = {
        "indexed": len(western), "known": int(found.known.sum()), "unknown": int((~found.known).sum()),
        "area": found.area, "uncalibrated": index.facts.uncalibrated, "threshold": located.threshold,
        "curve": [
            {"threshold": float(found.thresholds[at]), "precision": float(found.precision[at]),
             "recall": float(found.recall[at])}
            for at in _points(found.recall)
        ],
    }  # fmt: skip
    if located.threshold is not None:
        present, absent = found.refused(located.threshold)
        accepted = found.confidence >= located.threshold
        figures |= {
            "known_called_unknown": present, "unknown_called_unknown": absent,
            "accepted_right": float(found.right[accepted].mean()) if accepted.any() else None,
        }  # fmt: skip
    return figures


def _points(recall):
    """Entries of the curve that divide its recall evenly."""
    if not len(recall):
        return []
    wanted = np.linspace(0, recall[-1], POINTS + 1)[1:]
    return sorted({min(int(np.searchsorted(recall, value)), len(recall) - 1) for value in wanted.tolist()})


def _shares(cities):
    """Shares called unknown, of places in the index and of others, and how many photographs each is of."""
    cities = [city for city in cities if city["threshold"] is not None]
    found = []
    for kind in ("known", "unknown"):
        count = sum(city[kind] for city in cities)
        called = sum(city[f"{kind}_called_unknown"] * city[kind] for city in cities)
        found.append((called / count if count else math.nan, count))
    return found


def unknown_targets(figures):
    name = "unknown: share called unknown, places not in the index minus those in it, all cities"
    (there, _), (absent, _) = _shares(figures.values())
    if math.isnan(absent - there):
        return [{"name": name, "value": None, "target": "above 0", "met": False}]
    return [{"name": name, "value": absent - there, "target": "above 0", "met": absent > there}]


def show_unknown(figures, out):
    for city, found in figures.items():
        _show_city(city, found, out)
    if len(figures) > 1:
        out.print(f"all cities, each at its own threshold: {_words(_shares(figures.values()))}", highlight=False,
                  soft_wrap=True)  # fmt: skip


def _words(shares):
    texts = []
    for (share, count), words in zip(shares, ("in the index", "not in it")):
        error = 1.96 * math.sqrt(share * (1 - share) / count) if count else math.nan
        texts.append(f"{100 * share:.1f} ± {100 * error:.1f} % of {count} photos of places {words}")
    return f"called unknown are {', '.join(texts)} (95 % intervals)"


def _show_city(city, figures, out):
    title = f"half of {city} indexed ({figures['indexed']} photographs): answers accepted from a confidence on"
    out.print(title, highlight=False, soft_wrap=True)
    table = Table()
    for head in ("confidence", "recall", "precision", ""):
        table.add_column(head, justify="left" if not head else "right")
    for point in figures["curve"]:
        bar = "█" * round(30 * point["precision"])
        table.add_row(f"{point['threshold']:.3f}", f"{point['recall']:.3f}", f"{point['precision']:.3f}", bar)
    out.print(table)
    out.print(f"area under the curve {figures['area']:.3f}", highlight=False)
    if figures["threshold"] is None:
        out.print(f"no threshold: {figures['uncalibrated']}", highlight=False, soft_wrap=True)
        return
    right = figures["accepted_right"]
    rest = "nothing is accepted" if right is None else f"of the answers accepted {100 * right:.1f} % are right"
    found = f"at the learnt threshold {figures['threshold']:.3f} {_words(_shares([figures]))}"
    out.print(f"{found}; {rest}", highlight=False, soft_wrap=True)
