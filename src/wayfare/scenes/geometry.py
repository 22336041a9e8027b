"""Numbers that boxes and segments alone give: of an object, and of an ordered pair of objects. No image is needed.

Rows are objects or pairs of many images at once. Lengths are shares of the image's width and height, areas shares of
its area; what may grow without bounds (ratios, offsets in units of a small box, sums) goes through a logarithm that
keeps the sign. `OBJECT_NUMBERS` and `PAIR_NUMBERS` name the columns in order.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wayfare.scenes.data.scene_graphs import SceneGraphs
from wayfare.scenes.pairs import all_pairs

_LEAST = 1e-6  # a side below this share of the image's is taken as this


def image_sizes(scenes: SceneGraphs) -> np.ndarray:
    """float32 (B, 2): width and height; where they are not stated, as far as the objects reach."""
    stated = scenes.sizes[:, ::-1].astype(np.float32)
    if stated.all():
        return stated
    reach = np.ones((len(scenes), 2), np.float32)
    np.maximum.at(reach, scenes.object_images, scenes.boxes[:, 2:])
    return np.where(stated > 0, stated, reach)


def object_numbers(scenes: SceneGraphs) -> np.ndarray:
    """float32 (N, len(OBJECT_NUMBERS))."""
    return _stacked(_object_columns(scenes))


def pair_numbers(scenes: SceneGraphs, pairs: np.ndarray) -> np.ndarray:
    """float32 (P, len(PAIR_NUMBERS)) of pairs of places in the list of all objects."""
    return _stacked(_pair_columns(scenes, pairs))


def _object_columns(scenes: SceneGraphs) -> dict[str, np.ndarray]:
    image = scenes.object_images
    size = image_sizes(scenes)[image].T
    box, area, segment = _shares(scenes, size)
    one, other = all_pairs(scenes).T
    common = _common(box.take(one, 1), box.take(other, 1))
    union = area[one] + area[other] - common
    touching = np.bincount(one, common > 0, len(image))
    shared = np.bincount(one, common, len(image))
    iou = np.bincount(one, common / union, len(image))
    width, height = (box[2:] - box[:2]) * size
    return _position(box, area) | {
        "log of the shape, width to height": np.log(width / height),
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
    one, other = pairs.T.copy()
    size = image_sizes(scenes)[scenes.object_images].T
    box, area, segment = _shares(scenes, size)
    a, b = box.take(one, 1), box.take(other, 1)  # a row for each corner: all that follows runs along whole rows
    (aw, ah), (bw, bh) = a[2:] - a[:2], b[2:] - b[:2]
    dx, dy = (b[:2] + b[2:] - a[:2] - a[2:]) / 2
    wide, high = size.take(one, 1)
    across, down = dx * wide, dy * high  # in pixels: angles need equal units
    far = np.maximum(np.hypot(across, down), _LEAST)
    around = np.concatenate([np.minimum(a[:2], b[:2]), np.maximum(a[2:], b[2:])])
    around_area = (around[2] - around[0]) * (around[3] - around[1])
    common, a_area, b_area = _common(a, b), area[one], area[other]
    gap = np.maximum(np.maximum(a[:2], b[:2]) - np.minimum(a[2:], b[2:]), 0)
    offsets = np.stack([dx / aw, dy / ah, dx / bw, dy / bh])
    in_widths = np.copysign(np.log1p(np.abs(offsets)), offsets)  # a logarithm that keeps the sign
    return {f"box around both: {name}": row for name, row in _position(around, around_area).items()} | {
        "offset across": dx,
        "offset down": dy,
        "offset across in the subject's widths": in_widths[0],
        "offset down in the subject's heights": in_widths[1],
        "offset across in the object's widths": in_widths[2],
        "offset down in the object's heights": in_widths[3],
        "distance of centres in image diagonals": far / np.hypot(wide, high),
        "cosine of the direction": across / far,
        "sine of the direction": down / far,
        "gap across": gap[0],
        "gap down": gap[1],
        "log of the widths' ratio": np.log(bw / aw),
        "log of the heights' ratio": np.log(bh / ah),
        "log of the boxes' ratio": np.log(b_area / a_area),
        "log of the segments' ratio": np.log(segment[other] / segment[one]),
        "IoU": common / (a_area + b_area - common),
        "share of the subject's box in the object's": common / a_area,
        "share of the object's box in the subject's": common / b_area,
        "share of the box around both that both fill": common / around_area,
        "subject inside": ((a[:2] >= b[:2]) & (a[2:] <= b[2:])).all(0),
        "object inside": ((b[:2] >= a[:2]) & (b[2:] <= a[2:])).all(0),
        "the subject's foot to the object's top": b[1] - a[3],
        "the subject's foot to the object's foot": b[3] - a[3],
        "the subject's top to the object's top": b[1] - a[1],
        "same class": scenes.labels[one] == scenes.labels[other],
    }


_POSITION = ("width", "height", "centre x", "centre y", "x1", "y1", "x2", "y2", "area")


def _position(box: np.ndarray, area: np.ndarray) -> dict[str, np.ndarray]:
    """Of boxes (4, N) and their areas."""
    return dict(zip(_POSITION, (*(box[2:] - box[:2]), *((box[:2] + box[2:]) / 2), *box, area)))


def _common(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The area that each two boxes have in common; both (4, N)."""
    across, down = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    return np.asarray(across * down)


def _shares(scenes: SceneGraphs, size: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes (4, N), their areas and their segments' areas as shares of the image; `size` (2, N) in pixels."""
    box = scenes.boxes.T / np.tile(size, (2, 1))
    box[2:] = np.maximum(box[2:], box[:2] + _LEAST)
    area = (box[2] - box[0]) * (box[3] - box[1])
    segment = np.where(scenes.areas > 0, scenes.areas.astype(np.float32) / (size[0] * size[1]), area)
    return np.ascontiguousarray(box), area, segment


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
