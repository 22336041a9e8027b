"""Numbers that boxes and segments alone give: of an object, and of an ordered pair of objects. No image is needed.

Rows are objects or pairs of many images at once. Lengths are shares of the image's width and height, areas shares of
its area; what may grow without bounds (ratios, offsets in units of a small box, sums) goes through a logarithm that
keeps the sign. `OBJECT_NUMBERS` and `PAIR_NUMBERS` name the columns in order.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wayfare.data.scene_graphs import SceneGraphs
from wayfare.tasks.sgg.pairs import all_pairs, intersections, sides

_LEAST = 1e-6  # a side below this share of the image's is taken as this


def image_sizes(scenes: SceneGraphs) -> np.ndarray:
    """float32 (B, 2): width and height; where they are not stated, as far as the objects reach."""
    reach = np.ones((len(scenes), 2), np.float32)
    np.maximum.at(reach, scenes.object_images, scenes.boxes[:, 2:])
    stated = scenes.sizes[:, ::-1].astype(np.float32)
    return np.where(stated > 0, stated, reach)


def object_numbers(scenes: SceneGraphs) -> np.ndarray:
    """float32 (N, len(OBJECT_NUMBERS))."""
    return _stacked(_object_columns(scenes))


def pair_numbers(scenes: SceneGraphs, pairs: np.ndarray) -> np.ndarray:
    """float32 (P, len(PAIR_NUMBERS)) of pairs of places in the list of all objects."""
    return _stacked(_pair_columns(scenes, pairs))


def _object_columns(scenes: SceneGraphs) -> dict[str, np.ndarray]:
    image = scenes.object_images
    size = image_sizes(scenes)[image]
    box, area, segment = _shares(scenes, size)
    pairs = all_pairs(scenes)
    common = intersections(box[pairs[:, 0]], box[pairs[:, 1]])
    union = area[pairs[:, 0]] + area[pairs[:, 1]] - common
    touching = np.bincount(pairs[:, 0], common > 0, len(image))
    shared = np.bincount(pairs[:, 0], common, len(image))
    iou = np.bincount(pairs[:, 0], common / union, len(image))
    numbers = _position(box, area)
    return {name: numbers[:, place] for place, name in enumerate(_POSITION)} | {
        "log of the shape, width to height": np.log(_ratio(box, size)),
        "log of the box's area": np.log(area),
        "log of the segment's area (the box's where not stated)": np.log(segment),
        "share of the box that the segment fills": segment / area,
        "log of 1 + boxes that it meets": np.log1p(touching),
        "log of 1 + area shared with them": np.log1p(shared),
        "log of 1 + sum of IoU": np.log1p(iou),
        "mean area shared": shared / np.maximum(touching, 1),
        "mean IoU": iou / np.maximum(touching, 1),
        "log of 1 + objects in the image": np.log1p(np.bincount(image, minlength=len(scenes))[image]),
    }


def _pair_columns(scenes: SceneGraphs, pairs: np.ndarray) -> dict[str, np.ndarray]:
    one, other = pairs[:, 0], pairs[:, 1]
    size = image_sizes(scenes)[scenes.object_images]
    box, area, segment = _shares(scenes, size)
    a, b = box[one], box[other]
    (aw, ah), (bw, bh) = sides(a).T, sides(b).T
    (dx, dy) = ((b[:, :2] + b[:, 2:] - a[:, :2] - a[:, 2:]) / 2).T
    across, down = dx * size[one, 0], dy * size[one, 1]  # in pixels: angles need equal units
    far = np.maximum(np.hypot(across, down), _LEAST)
    around = np.concatenate([np.minimum(a[:, :2], b[:, :2]), np.maximum(a[:, 2:], b[:, 2:])], 1)
    around_area = np.prod(sides(around), 1)
    common = intersections(a, b)
    gap = np.maximum(np.maximum(a[:, :2], b[:, :2]) - np.minimum(a[:, 2:], b[:, 2:]), 0)
    union = _position(around, around_area)
    return {f"box around both: {name}": union[:, place] for place, name in enumerate(_POSITION)} | {
        "offset across": dx,
        "offset down": dy,
        "offset across in the subject's widths": _squashed(dx / aw),
        "offset down in the subject's heights": _squashed(dy / ah),
        "offset across in the object's widths": _squashed(dx / bw),
        "offset down in the object's heights": _squashed(dy / bh),
        "distance of centres in image diagonals": far / np.hypot(size[one, 0], size[one, 1]),
        "cosine of the direction": across / far,
        "sine of the direction": down / far,
        "gap across": gap[:, 0],
        "gap down": gap[:, 1],
        "log of the widths' ratio": np.log(bw / aw),
        "log of the heights' ratio": np.log(bh / ah),
        "log of the boxes' ratio": np.log(area[other] / area[one]),
        "log of the segments' ratio": np.log(segment[other] / segment[one]),
        "IoU": common / (area[one] + area[other] - common),
        "share of the subject's box in the object's": common / area[one],
        "share of the object's box in the subject's": common / area[other],
        "share of the box around both that both fill": common / around_area,
        "subject inside": ((a[:, :2] >= b[:, :2]) & (a[:, 2:] <= b[:, 2:])).all(1),
        "object inside": ((b[:, :2] >= a[:, :2]) & (b[:, 2:] <= a[:, 2:])).all(1),
        "the subject's foot to the object's top": b[:, 1] - a[:, 3],
        "the subject's foot to the object's foot": b[:, 3] - a[:, 3],
        "the subject's top to the object's top": b[:, 1] - a[:, 1],
        "same class": scenes.labels[one] == scenes.labels[other],
    }


_POSITION = ("width", "height", "centre x", "centre y", "x1", "y1", "x2", "y2", "area")


def _position(box: np.ndarray, area: np.ndarray) -> np.ndarray:
    return np.concatenate([sides(box), (box[:, :2] + box[:, 2:]) / 2, box, area[:, None]], 1)


def _shares(scenes: SceneGraphs, size: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes, their areas and their segments' areas as shares of the image."""
    box = scenes.boxes / np.tile(size, 2)
    box[:, 2:] = np.maximum(box[:, 2:], box[:, :2] + _LEAST)
    area = np.prod(sides(box), 1)
    segment = np.where(scenes.areas > 0, scenes.areas.astype(np.float32) / np.prod(size, 1), area)
    return box, area, segment


def _ratio(box: np.ndarray, size: np.ndarray) -> np.ndarray:
    width, height = (sides(box) * size).T
    return width / height


def _squashed(values: np.ndarray) -> np.ndarray:
    return np.sign(values) * np.log1p(np.abs(values))


def _stacked(columns: dict[str, np.ndarray]) -> np.ndarray:
    return np.ascontiguousarray(np.stack([*columns.values()], dtype=np.float32, casting="same_kind").T)


def _names() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns' names, from the columns of no scene at all: they cannot differ from what is computed."""
    none, numbers = np.array([], object), np.zeros(0, np.int64)
    empty = SceneGraphs(
        root=Path(), things=(), stuff=(), predicates=(), test_image_ids=(), image_ids=none, files=none,
        panoptic_files=none, sizes=np.zeros((0, 2), np.int32), lines=numbers, entries=numbers,
        object_offsets=np.zeros(1, np.int64), boxes=np.zeros((0, 4), np.float32), labels=numbers, crowd=numbers,
        segment_ids=numbers, areas=numbers, relation_offsets=np.zeros(1, np.int64),
        relations=np.zeros((0, 3), np.int32),
    )  # fmt: skip
    return tuple(_object_columns(empty)), tuple(_pair_columns(empty, np.zeros((0, 2), np.int64)))


OBJECT_NUMBERS, PAIR_NUMBERS = _names()
