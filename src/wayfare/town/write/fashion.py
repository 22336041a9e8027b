"""The town as FashionVC's files have it: pictures of single things, words about them, and labels of two levels.

    image.mat  tag.mat  label.mat  levels.json

The first level are the super-classes, the second the kinds, as far as there are examples. Rows of the walks that are
kept for queries come first. A thing's words are those of its photograph and, mostly, one or two for the thing itself.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.core.seeds import rng_for
from wayfare.io import matfiles
from wayfare.town.model import Item, Photo, Shot
from wayfare.town.tags import WORDS, pick
from wayfare.town.words import THING_CLASSES, THING_GROUPS, two_level
from wayfare.town.write.crops import held_out, square_crop

SIDE = 64
_MIN_AREA = 100  # pixels
_SHARE = 0.15  # of the pairs that are queries, as in FashionVC
_MIN_COUNT = 2  # pairs that a word must be with
_THINGS = frozenset(THING_CLASSES)


def wants(shot: Shot) -> bool:
    """All flat photographs; at most one thing of each is taken."""
    return not shot.pano


def take(folder: Path, stage: Path, number: int, photo: Photo, jpeg: bytes) -> dict[str, Any]:
    """Keep the picture of one thing; its kind and its words are what `index` needs."""
    draw = iter(rng_for("fashion", photo.shot.key).random(8).tolist()).__next__
    largest: dict[str, Item] = {}
    for item in photo.truth.items:
        if item.kind in _THINGS and item.area >= max(_MIN_AREA, largest.get(item.kind, item).area):
            largest[item.kind] = item
    if not largest:
        return {}
    kind = sorted(largest)[int(draw() * len(largest))]  # each kind is as likely: so that rare ones are found too
    stage.mkdir(parents=True, exist_ok=True)
    (stage / f"{number}.rgb").write_bytes(square_crop(photo.view.pixels, largest[kind].box, SIDE).tobytes())
    words = [pick(WORDS[kind], draw) for chance in (0.85, 0.5) if draw() < chance]
    return {"kind": kind, "words": sorted({*photo.truth.tags, *words})}


def index(folder: Path, stage: Path, entries: Sequence[tuple[Shot, dict[str, Any]]], seed: int) -> None:
    """Write the three arrays, and what their columns mean."""
    folder.mkdir(parents=True, exist_ok=True)
    taken = [(number, shot, entry) for number, (shot, entry) in enumerate(entries) if entry]
    query = held_out([shot.sequence for _, shot, _ in taken], "fashion query", _SHARE)
    taken = [taken[place] for place in (*np.flatnonzero(query), *np.flatnonzero(~query))]
    images = np.zeros((len(taken), SIDE, SIDE, 3), np.uint8)
    for row, (number, _, _) in enumerate(taken):
        images[row] = np.frombuffer((stage / f"{number}.rgb").read_bytes(), np.uint8).reshape(SIDE, SIDE, 3)
    kinds = [entry["kind"] for _, _, entry in taken]
    first = sorted({two_level(kind)[0] for kind in kinds})
    second = sorted({two_level(kind)[1] for kind in kinds})
    labels = np.zeros((len(taken), len(first) + len(second)), np.uint8)
    for row, kind in enumerate(kinds):
        group, place = two_level(kind)
        labels[row, [first.index(group), len(first) + second.index(place)]] = 1
    counts = Counter(word for _, _, entry in taken for word in entry["words"])
    words = sorted(word for word, count in counts.items() if count >= _MIN_COUNT)
    column = {word: place for place, word in enumerate(words)}
    tags = np.zeros((len(taken), len(words)), np.uint8)
    for row, (_, _, entry) in enumerate(taken):
        tags[row, [column[word] for word in entry["words"] if word in column]] = 1
    matfiles.write(folder / "image.mat", "Image", images)
    matfiles.write(folder / "tag.mat", "Tag", tags)
    matfiles.write(folder / "label.mat", "Label", labels)
    names = [[THING_GROUPS[group] for group in first], [THING_CLASSES[place] for place in second]]
    facts = {"levels": [len(first), len(second)], "queries": int(query.sum()), "names": names, "words": words}
    (folder / "levels.json").write_bytes((json.dumps(facts, ensure_ascii=False, indent=1) + "\n").encode())
