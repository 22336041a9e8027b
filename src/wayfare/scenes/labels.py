"""Which of a model's classes a label means: by its name, or by another word for the same thing.

Data sets spell classes in their own ways: PSG has "floor-wood" and "grass-merged", COCO "couch" and "cell phone",
Visual Relationship Detection "sofa" and "phone".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

_SAME = (
    ("airplane", "aeroplane", "plane"),
    ("bicycle", "bike"),
    ("cell phone", "cellphone", "mobile phone", "phone"),
    ("couch", "sofa"),
    ("dining table", "table"),
    ("donut", "doughnut"),
    ("hair drier", "hair dryer"),
    ("motorcycle", "motorbike"),
    ("potted plant", "plant"),
    ("refrigerator", "fridge"),
    ("tv", "television"),
)


def short(label: str) -> str:
    """A class as a reader would call it: PSG's sky-other-merged is sky."""
    return label.removesuffix("-merged").removesuffix("-other")


def fitting(labels: Sequence[str], classes: tuple[str, ...]) -> list[int]:
    """For each label the class that it means; -1 where there is none."""
    places = _places(classes)
    return [places.get(label, places.get(plain(label), -1)) for label in labels]


@cache
def _places(classes: tuple[str, ...]) -> dict[str, int]:
    """Every spelling of every class. The class's own name goes before its plain form, and that before other words."""
    plainly = [plain(name) for name in classes]
    found: dict[str, int] = {}
    for place, name in enumerate(classes):
        found.setdefault(name, place)
    for place, name in enumerate(plainly):
        found.setdefault(name, place)
    for words in _SAME:
        known = [found[word] for word in words if word in found]
        for word in words if known else ():
            found.setdefault(word, known[0])
    return found


def plain(label: str) -> str:
    """A label in small letters, its words apart by spaces."""
    return " ".join(short(label.strip().lower()).replace("_", " ").replace("-", " ").split())
