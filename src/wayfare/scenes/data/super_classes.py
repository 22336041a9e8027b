"""Super-classes: a few groups into which object classes and predicates fall, as in word_categorized.json."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.core.errors import DataError
from wayfare.io.tables import kind_of, read_json

PAPER = Path(__file__).with_name("psg_groups.json")  # the federated scene-graph benchmark's
BESIDE = "word_categorized.json"


@dataclass(frozen=True)
class SuperClasses:
    """Which of a few groups each object class and each predicate belongs to."""

    objects: tuple[str, ...]  # names of the groups
    predicates: tuple[str, ...]
    object_of: np.ndarray  # int32, one for each class
    predicate_of: np.ndarray  # int32, one for each predicate


def choose(name: str, folder: Path, classes: Collection[str], predicates: Collection[str]) -> SuperClasses | None:
    """The groups in a file, the "paper"'s, or with "none" none. With "" those of the data's folder, or else the paper's
    if every class and predicate is in them, or else none."""
    if name == "none":
        return None
    if name or (folder / BESIDE).exists():
        file = PAPER if name == "paper" else Path(name) if name else folder / BESIDE
        return load(file, classes, predicates)
    try:
        return load(PAPER, classes, predicates)
    except DataError:  # they are other classes than PSG's
        return None


def load(path: Path, classes: Collection[str], predicates: Collection[str]) -> SuperClasses:
    """Read a word_categorized.json: {"categories": {group: [class, ...]}, "relations": {group: [predicate, ...]}}."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise DataError(f"expected an object, found {kind_of(found)}", path)
    objects, object_of = _groups(found, "categories", tuple(classes), path)
    relations, predicate_of = _groups(found, "relations", tuple(predicates), path)
    return SuperClasses(objects, relations, object_of, predicate_of)


def _groups(found: dict[str, Any], key: str, words: tuple[str, ...], file: Path) -> tuple[tuple[str, ...], np.ndarray]:
    groups = found.get(key)
    if not isinstance(groups, dict) or not all(isinstance(members, list) for members in groups.values()):
        what = "it is missing" if key not in found else "expected lists of words by group"
        raise DataError(what, file, field=key)
    group_of: dict[str, int] = {}
    for number, (group, members) in enumerate(groups.items()):
        for place, word in enumerate(members):
            where = f"{key}.{group[:40]}[{place}]"
            if not isinstance(word, str):
                raise DataError(f"expected a word, found {kind_of(word)}", file, field=where)
            if group_of.setdefault(word, number) != number:
                raise DataError(f"{kind_of(word)} is also in another group", file, field=where, remedy="remove one")
    if lacking := [word for word in words if word not in group_of]:
        raise DataError(f"no group holds {lacking[0]!r}", file, field=key, remedy="add it to one")
    return tuple(groups), np.array([group_of[word] for word in words], np.int32)
