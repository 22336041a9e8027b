"""Ordered pairs of objects: which ones a head is trained on, and which ones it is asked about.

A pair is two places in the list of all objects of some images (`SceneGraphs.boxes`), subject first. Pairs come ordered
by image, then subject, then object, and never join two images. Everything is done for all images at once: each image
with K objects has a square of K x K possible pairs, and the squares lie one behind the other in a flat array.

In training an image gives a limited number of pairs, a limited part of them related; each ordered pair has one
predicate, drawn from those annotated. The rest are pairs that are not related in either direction. Relations of an
object with itself are no pairs and are left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wayfare.core.errors import ConfigError, DataError
from wayfare.scenes.data.scene_graphs import SceneGraphs

PER_RELATION = 4  # detected pairs that stand for one annotated relation
MATCH = 0.5  # IoU above which a detection is an annotated object


class PairLimits(NamedTuple):
    """How many pairs of one image are trained on."""

    most: int = 1024
    positive: int = 256  # of these, at most, related ones


LIMITS = PairLimits()


class PairSample(NamedTuple):
    """Pairs to train on."""

    pairs: np.ndarray  # int64 (P, 2)
    targets: np.ndarray  # int64 (P,): predicate + 1, 0 for none


def all_pairs(scenes: SceneGraphs) -> np.ndarray:
    """int64 (P, 2): all K (K - 1) ordered pairs of each image."""
    pairs = crossed(scenes.object_offsets, scenes.object_offsets)
    different: np.ndarray = pairs[pairs[:, 0] != pairs[:, 1]]
    return different


def training_pairs(scenes: SceneGraphs, rng: np.random.Generator, limits: PairLimits = LIMITS) -> PairSample:
    """A sample of annotated scenes' pairs (PredCls)."""
    ends = scenes.relations[:, :2] + scenes.object_offsets[scenes.relation_images][:, None]
    proper = ends[:, 0] != ends[:, 1]
    predicates = scenes.relations[:, 2].astype(np.int64)
    return _sample(scenes, (ends[proper], predicates[proper]), ends[proper], rng, limits)


def detected_pairs(
    detections: SceneGraphs,
    truth: SceneGraphs,
    rng: np.random.Generator,
    limits: PairLimits = LIMITS,
    *,
    overlaps: np.ndarray | None = None,
    each: int = PER_RELATION,
) -> PairSample:
    """A sample of detected objects' pairs (SGDet): those that stand for an annotated relation, and others.

    A detection stands for an annotated object of the same class if their IoU is above one half. Of all pairs that stand
    for a relation at most `each` are taken, drawn without replacement in proportion to the product of both IoU; those
    not drawn are not taken as unrelated either. `overlaps` are IoU as `box_overlaps` gives them, of masks for example.
    """
    if each < 1:
        raise ConfigError(f"at least one detected pair per relation, not {each}")
    check_overlaps(detections, truth, overlaps)
    overlaps = box_overlaps(detections, truth) if overlaps is None else overlaps
    found, meant = crossed(detections.object_offsets, truth.object_offsets).T
    match = np.flatnonzero((detections.labels[found] == truth.labels[meant]) & (overlaps > MATCH))
    match = match[np.argsort(meant[match], kind="stable")]
    times = np.bincount(meant[match], minlength=len(truth.labels))
    first = np.cumsum(times) - times

    ends = truth.relations[:, :2] + truth.object_offsets[truth.relation_images][:, None]
    ends, predicates = ends[ends[:, 0] != ends[:, 1]], truth.relations[ends[:, 0] != ends[:, 1], 2].astype(np.int64)
    relation, place = expanded(times[ends[:, 0]] * times[ends[:, 1]])
    one, other = ends[relation].T
    subjects = match[first[one] + place // times[other]]
    objects = match[first[other] + place % times[other]]
    apart = found[subjects] != found[objects]
    relation, subjects, objects = relation[apart], subjects[apart], objects[apart]
    candidates = np.stack([found[subjects], found[objects]], 1)
    # The smallest of exponential numbers divided by weights: a draw in proportion to the weights, one after the other.
    keys = rng.standard_exponential(len(relation)) / (overlaps[subjects] * overlaps[objects])
    drawn = _first_of_each(relation, keys, np.full(len(ends), each))
    return _sample(detections, (candidates[drawn], predicates[relation[drawn]]), candidates, rng, limits)


def _sample(
    scenes: SceneGraphs,
    positives: tuple[np.ndarray, np.ndarray],
    not_background: np.ndarray,
    rng: np.random.Generator,
    limits: PairLimits,
) -> PairSample:
    """Related pairs with their predicates (`positives`), one drawn for each pair, and others that are not excluded."""
    (related, predicates), (most, positive) = positives, limits
    if not 0 <= positive <= most or most < 1:
        raise ConfigError(f"{most} pairs, {positive} of them positive: at least one pair, and no more positive ones")
    offsets = scenes.object_offsets
    square = crossed(offsets, offsets)
    image = scenes.object_images[square[:, 0]]
    places = _square_places(scenes, related)
    order = rng.permutation(len(places))  # then the first of each pair is one at random
    places, chosen = np.unique(places[order], return_index=True)
    targets = np.zeros(len(square), np.int64)
    targets[places] = predicates[order[chosen]] + 1
    free = square[:, 0] != square[:, 1]
    free[_square_places(scenes, not_background)] = False
    free[_square_places(scenes, not_background[:, ::-1])] = False

    places = places[_first_of_each(image[places], rng.random(len(places)), np.full(len(scenes), positive))]
    room = most - np.bincount(image[places], minlength=len(scenes))
    others = np.flatnonzero(free)
    others = others[_first_of_each(image[others], rng.random(len(others)), room)]
    kept = np.sort(np.concatenate([places, others]))
    return PairSample(square[kept], targets[kept])


def _first_of_each(group: np.ndarray, keys: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Which rows have the smallest keys of their group, as many as its limit says; ascending."""
    counts = np.bincount(group, minlength=len(limits))
    if (counts <= limits).all():
        return np.arange(len(group))
    order = np.lexsort((keys, group))
    rank = np.arange(len(group)) - (np.cumsum(counts) - counts)[group[order]]
    return np.sort(order[rank < limits[group[order]]])


def _square_places(scenes: SceneGraphs, pairs: np.ndarray) -> np.ndarray:
    """Where pairs are among all `crossed` ones of the scenes with themselves."""
    counts = np.diff(scenes.object_offsets)
    image = scenes.object_images[pairs[:, 0]]
    local = pairs - scenes.object_offsets[image][:, None]
    first: np.ndarray = (np.cumsum(counts**2) - counts**2)[image]
    places: np.ndarray = first + local[:, 0] * counts[image] + local[:, 1]
    return places


# ---- Two lists of objects of the same images


def crossed(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """int64 (sum of A_i B_i, 2): each object of one list with each of another, image by image; the offsets of both."""
    image = np.repeat(np.arange(len(first) - 1), np.diff(first))
    row, place = expanded(np.diff(second)[image])
    return np.stack([row, second[image][row] + place], 1)


def expanded(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row i as often as counts[i] says, and the number of each copy: [2, 0, 1] gives [0, 0, 2] and [0, 1, 0]."""
    row = np.repeat(np.arange(len(counts)), counts)
    return row, np.arange(len(row)) - (np.cumsum(counts) - counts)[row]


def box_overlaps(detections: SceneGraphs, truth: SceneGraphs) -> np.ndarray:
    """float64 (sum of D_i G_i,): IoU of each detection with each annotated object, in the order of `crossed`."""
    found, meant = crossed(detections.object_offsets, truth.object_offsets).T
    return ious(detections.boxes[found], truth.boxes[meant])


def segment_overlaps(detections: np.ndarray, truth: np.ndarray, found: int, meant: int) -> np.ndarray:
    """float64 (found, meant): IoU of the segments of an image; each map says which object a pixel shows, -1 for none.

    The raveled results of all images, one behind the other, are the `overlaps` that masks give.
    """
    if detections.shape != truth.shape:
        raise DataError(f"segments of {detections.shape} and {truth.shape} pixels are not of the same picture")
    wide = meant + 1
    both = np.bincount(((detections + 1) * wide + truth + 1).ravel(), minlength=(found + 1) * wide)
    both = both.reshape(found + 1, wide)
    union = both.sum(1)[1:, None] + both.sum(0)[None, 1:] - both[1:, 1:]
    shares: np.ndarray = both[1:, 1:] / np.maximum(union, 1)
    return shares


def check_overlaps(detections: SceneGraphs, truth: SceneGraphs, overlaps: np.ndarray | None) -> None:
    """Complain of what cannot be of the same images."""
    if len(detections) != len(truth):
        raise DataError(f"detections of {len(detections)} images, annotations of {len(truth)}: expected the same ones")
    expected = int((np.diff(detections.object_offsets) * np.diff(truth.object_offsets)).sum())
    if overlaps is not None and overlaps.shape != (expected,):
        raise DataError(
            f"overlaps of the shape {overlaps.shape}, expected ({expected},): "
            "for each image detections x annotated objects, one image behind the other"
        )


def ious(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """float64: the IoU of each row's two boxes."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    common = intersections(a, b)
    shares: np.ndarray = common / (np.prod(sides(a), 1) + np.prod(sides(b), 1) - common)
    return shares


def intersections(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The area that each row's two boxes have in common."""
    common = np.maximum(np.minimum(a[:, 2:], b[:, 2:]) - np.maximum(a[:, :2], b[:, :2]), 0)
    areas: np.ndarray = np.prod(common, 1)
    return areas


def sides(boxes: np.ndarray) -> np.ndarray:
    """(N, 2): width and height."""
    extents: np.ndarray = boxes[:, 2:] - boxes[:, :2]
    return extents
