"""Boxes given by the user: where the objects in photos are, and what they are.

JSON     {"photo.jpg": [{"label": "person", "box": [x1, y1, x2, y2], "score": 0.9}, ...], ...}
CSV      file,label,x1,y1,x2,y2,score

Pixels from the upper left corner of the upright picture; x2 and y2 outside. The score may be absent and is 1 then.
A photo is named by its file's name, or by as much of its path as tells it from others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from wayfare.core.errors import DataError
from wayfare.io.findings import Problems
from wayfare.io.tables import number, read_csv, read_json, text

_FORM = 'expected {"photo.jpg": [{"label": "person", "box": [x1, y1, x2, y2], "score": 0.9}]}'
_BOX = "expected [x1, y1, x2, y2] in pixels, with x1 < x2 and y1 < y2"


class LabelledBox(NamedTuple):
    """An object in a photo."""

    label: str
    box: tuple[float, float, float, float]
    score: float = 1.0


@dataclass(frozen=True)
class Boxes:
    """The objects of each photo that the file names."""

    file: Path
    photos: dict[str, list[LabelledBox]]

    def of(self, photo: Path) -> list[LabelledBox] | None:
        """The objects of a photo, by the longest end of its path that the file names; None if there is none."""
        parts = photo.absolute().parts
        names = (str(Path(*parts[start:]).as_posix()) for start in range(len(parts)))
        return next((self.photos[name] for name in names if name in self.photos), None)


def read_boxes(file: Path) -> Boxes:
    """Read a file in one of the two formats; any fault is a DataError that says where."""
    rows = _from_csv(file) if file.suffix.lower() == ".csv" else _from_json(file)
    photos: dict[str, list[LabelledBox]] = {}
    for photo, found in rows:
        objects = photos.setdefault(Path(photo).as_posix(), [])
        objects += [] if found is None else [found]
    if not photos:
        raise DataError("it names no photo", file, remedy=_FORM)
    return Boxes(file, photos)


def _from_csv(file: Path) -> Iterable[tuple[str, LabelledBox | None]]:
    sides = ("x1", "y1", "x2", "y2")
    columns = {"file": text, "label": text} | {side: number() for side in sides}
    table = read_csv(file, columns, Problems(strict=True), also={"score": number(0, 1)})
    scores = table["score"] if "score" in table.columns else [1.0] * len(table)
    rows = zip(table.lines, table["file"], table["label"], zip(*(table[side] for side in sides)), scores)
    for line, photo, label, (x1, y1, x2, y2), score in rows:
        if x1 >= x2 or y1 >= y2:
            raise DataError(f"the box {x1:g}, {y1:g}, {x2:g}, {y2:g} is empty", file, line, remedy=_BOX)
        yield photo, LabelledBox(label, (x1, y1, x2, y2), score)


def _from_json(file: Path) -> Iterable[tuple[str, LabelledBox | None]]:
    whole = read_json(file)
    if not isinstance(whole, dict):
        raise DataError(f"a {type(whole).__name__} at the top", file, remedy=_FORM)
    for photo, objects in whole.items():
        if not isinstance(objects, list):
            raise DataError(f"a {type(objects).__name__}", file, field=photo, remedy=_FORM)
        yield photo, None  # a photo without objects is one with an empty graph
        for place, entry in enumerate(objects):
            yield photo, _entry(entry, file, f"{photo}[{place}]")


def _entry(entry: Any, file: Path, where: str) -> LabelledBox:
    if not isinstance(entry, dict) or not isinstance(entry.get("label"), str) or not entry["label"].strip():
        raise DataError("an object without a label", file, field=where, remedy=_FORM)
    box = entry.get("box")
    if not isinstance(box, list) or len(box) != 4 or not all(_finite(side) for side in box):
        raise DataError(f"box {str(box)[:60]}", file, field=where, remedy=_BOX)
    x1, y1, x2, y2 = map(float, box)
    if x1 >= x2 or y1 >= y2:
        raise DataError(f"the box {x1:g}, {y1:g}, {x2:g}, {y2:g} is empty", file, field=where, remedy=_BOX)
    score = entry.get("score", 1.0)
    if not _finite(score) or not 0 <= score <= 1:
        raise DataError(f"score {str(score)[:60]}", file, field=where, remedy="expected a number from 0 to 1")
    return LabelledBox(entry["label"].strip(), (x1, y1, x2, y2), float(score))


def _finite(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(float(value))
    except OverflowError:  # a whole number beyond any float
        return False
