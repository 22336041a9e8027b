"""The ground truth of a photograph, computed from what the camera saw: items, relations, tags, labels, attributes.

items.py merges what the renderer tells apart, relations.py says how the items relate, labels.py what holds for the
whole picture, and tags.py what its taker would write under it.
"""

from __future__ import annotations

from wayfare.core.seeds import rng_for
from wayfare.town.items import gather
from wayfare.town.labels import ATTRIBUTES, LABELS, PictureFacts, attributes, labels
from wayfare.town.model import Shot, Truth, View
from wayfare.town.relations import candidates, choose
from wayfare.town.tags import TAGS, write
from wayfare.town.words import two_level

__all__ = ["ATTRIBUTES", "LABELS", "TAGS", "describe", "two_level"]


def describe(shot: Shot, view: View, seed: int) -> Truth:
    """Everything that is known about a photograph; the same shot, view and seed give the same truth."""
    seen, segments = gather(view, shot.weather)
    scene = PictureFacts(shot, seen, segments, view.pixels)
    found = candidates(seen, segments)
    return Truth(
        items=tuple(one.item for one in seen),
        relations=choose(found, seen, segments.shape, rng_for(seed, shot.key, "relations")),
        tags=write(shot, seen, segments.size, seed),
        labels=labels(scene),
        attributes=attributes(scene),
        segments=segments,
    )
