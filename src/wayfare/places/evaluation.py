"""How well an index finds photos whose positions are known: what a user may expect of it.

    R@N             share of the photos whose place is in the index that have it among their N nearest photographs. All
                    of the index is searched, so this is lower than the R@N of a run, which searches one city
    median_error_m  metres from the position answered to where the photo was taken, for photos whose place is in the
                    index; half of the errors are below
    p90_error_m     the same for nine tenths

and how far its confidence can be trusted (`calibration.quality`). An answer is right if its first match lies at most
the index's radius from where the photo was taken; a place is in the index if a photograph lies that near.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from wayfare.core.errors import DataError
from wayfare.io.pictures import Skipped
from wayfare.places.calibration import Curve, quality, reliability
from wayfare.places.data.place_photos import PlacePhotos
from wayfare.places.index import Index
from wayfare.places.locate import Answer, curve, locate, true_rows
from wayfare.places.positions import ROW, metres, read_photographs

CUTOFFS = (1, 5, 10)


@dataclass(frozen=True)
class Coverage:
    """What an index spans."""

    photographs: int
    cities: int
    area_m2: float  # inside the outline (convex hull) of each city's photographs
    seen_m2: float  # of the squares, as wide as the radius, that hold a photograph
    kilometres: float  # the longest side of a city's outline, from west to east or from south to north


@dataclass(frozen=True)
class IndexEvaluation:
    """The figures, and what they are of."""

    ground: Coverage
    radius: float
    photos: int  # that were looked for
    known: int  # whose place is in the index
    left_out: int  # that are in the index themselves
    skipped: list[Skipped]
    metrics: dict[str, float]
    curve: Curve
    bins: list[tuple[float, float, float, int]]  # see calibration.reliability; none without confidence
    figures: dict[str, float]  # see calibration.quality; none without confidence
    threshold: float | None  # of the index
    expected_strangers: float | None  # that its confidence was learnt for
    doubts: tuple[str, ...]

    def at(self, threshold: float) -> dict[str, float | None]:
        """What comes out if answers below a threshold are refused."""
        entry = int(np.searchsorted(-self.curve.thresholds, -threshold, "right")) - 1
        if entry < 0:
            return {"threshold": threshold, "precision": None, "recall": 0.0, "answered": 0.0}
        values = {name: float(getattr(self.curve, name)[entry]) for name in ("precision", "recall", "answered")}
        return {"threshold": threshold, **values}

    @property
    def trust(self) -> str:
        """How far the mean confidence is from the share of right answers; "" without confidence."""
        if not self.figures:
            return ""
        sure, right = float(self.curve.confidence.mean()), float(self.curve.right.mean())
        direction = "too high" if sure > right else "too low"
        off = f"{abs(sure - right):.2f} {direction} on average"
        return f"{off}: its mean is {sure:.2f}, and {right:.2f} of the answers are right"

    def as_table(self) -> dict[str, Any]:
        """For JSON."""
        judged = self.threshold is not None and bool(self.figures)
        curve = zip(*(getattr(self.curve, name).tolist() for name in _CURVE)) if self.figures else ()
        return {
            "ground": vars(self.ground), "radius_m": self.radius, "photos": self.photos, "known": self.known,
            "left_out": self.left_out, "skipped": [item._asdict() for item in self.skipped],
            **{name: value if np.isfinite(value) else None for name, value in self.metrics.items()},
            "confidence": {**self.figures, "mean": float(self.curve.confidence.mean())} if self.figures else None,
            "calibration_curve": [dict(zip(("confidence", "right", "share", "photos"), each)) for each in self.bins],
            "at_threshold": self.at(self.threshold) if judged and self.threshold is not None else None,
            "thresholds": [dict(zip(("threshold", "precision", "recall", "answered"), each)) for each in curve],
            "expected_strangers": self.expected_strangers, "doubts": list(self.doubts),
        }  # fmt: skip


_CURVE = ("thresholds", "precision", "recall", "answered")


def evaluate_index(index: Index, photos: Path) -> IndexEvaluation:
    """Look for the photos of a folder or table in an index, and compare the answers with where they were taken."""
    truth = read_photographs(photos)
    inside = {index.file(row) for row in range(index.facts.count)}
    fresh = np.array([path.resolve() not in inside for path in truth.paths()])
    if not fresh.any():
        raise DataError(f"all {len(truth)} photos are in the index themselves", photos, remedy="give others")
    truth = truth.take(fresh)
    located = locate(index, truth.paths(), 1)
    if not located.answers:
        first = located.skipped[0]
        raise DataError(f"none of {len(truth)} photos can be read; the first: {first.reason}", first.file)
    calibration = index.facts.calibration
    found = curve(index, located.answers, truth)
    even = np.ones(len(located.answers))
    problems = [Skipped(str(error.file or photos), str(error)) for error in truth.problems.left_out]
    return IndexEvaluation(
        ground=coverage_of(index), radius=index.facts.radius, photos=len(located.answers), known=int(found.known.sum()),
        left_out=int((~fresh).sum()), skipped=[*located.skipped, *problems],
        metrics=_metrics(index, located.answers, truth, found), curve=found,
        bins=reliability(found.confidence, found.right, even) if calibration else [],
        figures=quality(found.confidence, found.right, even) if calibration else {},
        threshold=calibration.threshold if calibration else None,
        expected_strangers=calibration.strangers if calibration else None,
        doubts=calibration.doubts if calibration else (f"there is none: {index.facts.uncalibrated}",),
    )  # fmt: skip


def _metrics(index: Index, answers: list[Answer], truth: PlacePhotos, found: Curve) -> dict[str, float]:
    if not found.known.any():
        return {}
    rows = true_rows(index, answers, truth)
    near = np.array([[*answer.nearest, *[-1] * len(answers)][: max(CUTOFFS)] for answer in answers])
    right = np.zeros(near.shape, bool)
    for number, (members, row) in enumerate(zip(near, rows)):
        right[number] = (metres(index.photos[members], row) <= index.facts.radius) & (members >= 0)
    errors = np.array([metres(_as_row(index, answer), row)[0] for answer, row in zip(answers, rows)])[found.known]
    return {
        **{f"R@{cutoff}": float(right[found.known, :cutoff].any(1).mean()) for cutoff in CUTOFFS},
        "median_error_m": float(np.median(errors)),
        "p90_error_m": float(np.quantile(errors, 0.9, method="higher")),  # infinite errors cannot be averaged
    }


def _as_row(index: Index, answer: Answer) -> np.ndarray:
    """The position answered, to be compared with others."""
    row = np.zeros(1, ROW)
    for name in ("easting", "northing", "latitude", "longitude"):
        row[name] = getattr(answer.position, name)
    row["group"] = index.photos["group"][answer.nearest[0]]
    return row


def coverage_of(index: Index) -> Coverage:
    """How much ground the photographs of an index span."""
    photos = np.delete(np.array(index.photos), list(index.facts.replaced))
    area, longest = 0.0, 0.0
    groups = np.unique(photos["group"])
    for group in groups:
        members = photos[photos["group"] == group]
        plane = np.unique(np.stack((members["easting"], members["northing"]), 1), axis=0)
        longest = max(longest, float(np.ptp(plane, axis=0).max()))
        try:
            area += float(ConvexHull(plane - plane[0]).volume) if len(plane) > 2 else 0.0
        except QhullError:  # all on one line
            continue
    cells = np.stack([photos["group"], *(photos[name] // index.facts.radius for name in ("easting", "northing"))], 1)
    seen = len(np.unique(cells, axis=0)) * index.facts.radius**2
    return Coverage(len(photos), len(groups), area_m2=area, seen_m2=seen, kilometres=longest / 1000)
