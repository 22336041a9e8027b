"""R@K and mR@K of scene graphs: how many of the annotated triplets are among the K best guesses of an image.

A guess is a subject, a predicate and an object with the score p(predicate) p(subject) p(object). It hits an annotated
triplet if the predicates are equal and

- PredCls: subject and object are exactly the annotated objects (no `detections` are given);
- SGDet: both have the annotated classes and an IoU of at least one half with the annotated objects, by boxes or by the
  given `overlaps`. To score PredCls by IoU as OpenPSG does, pass the annotation as its own detections: then an object
  may match another one of its class that overlaps it.

A guess may hit several triplets; each triplet counts once.

    R@K             mean over images of (triplets hit by the K best guesses) / (triplets)
    mR@K            for each predicate the mean, over the images that have it, of that share among its triplets; then
                    the mean over all predicates. One that no image has counts 0, as in the paper's code
    mR@K/present    the same without predicates that no image has
    mR@K/head, ...  the mean over a third of the predicates, by how often they are trained on: head, body and tail
    zR@K            R@K of triplets whose classes and predicate no training picture has together (zero-shot)
    ngR@K, ...      without graph constraint: a pair may have several predicates among the guesses

Images without annotated triplets are ignored. Images without a single guess count as 0; the paper's code skips them
(`as_paper`), which favours a detector that finds nothing. Everything is computed for thousands of images at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wayfare.core.errors import ConfigError, DataError
from wayfare.scenes.data.scene_graphs import SceneGraphs
from wayfare.scenes.pairs import MATCH, check_overlaps, expanded, ious

CUTOFFS = (20, 50, 100)
_NEVER = np.iinfo(np.int64).max  # the rank of what is not found
_ROWS = 4096  # rows of probabilities processed together


@dataclass(frozen=True)
class Guesses:
    """The best guesses of B images, by image, the best first."""

    images: int
    image: np.ndarray  # int64 (T,): ascending
    triplets: np.ndarray  # int64 (T, 3): subject and object as places among the image's objects, predicate
    scores: np.ndarray  # float32 (T,): descending within an image
    constraint: bool  # one predicate for each pair

    def only(self, kept: np.ndarray) -> Guesses:
        """Some of them, bool (T,)."""
        return Guesses(self.images, self.image[kept], self.triplets[kept], self.scores[kept], self.constraint)

    @staticmethod
    def joined(parts: Sequence[Guesses]) -> Guesses:
        """The concatenated guesses of several batches of images."""
        if len({part.constraint for part in parts}) != 1:
            raise ConfigError("guesses can be joined only if there are any and all have the same graph constraint")
        first = np.cumsum([0, *(part.images for part in parts)])
        return Guesses(
            int(first[-1]),
            np.concatenate([part.image + start for part, start in zip(parts, first)]),
            np.concatenate([part.triplets for part in parts]),
            np.concatenate([part.scores for part in parts]),
            parts[0].constraint,
        )


def ranked(
    probabilities: np.ndarray,
    pairs: np.ndarray,
    scenes: SceneGraphs,
    scores: np.ndarray | None = None,
    *,
    constraint: bool = True,
    most: int = max(CUTOFFS),
) -> Guesses:
    """The `most` best guesses of each image.

    `probabilities` (P, predicates + 1) of the pairs of places in the list of all the scenes' objects, ordered by image,
    as `all_pairs` gives them; column 0 is "not related". `scores` (N,) are those of the objects, 1 by default. Equal
    scores are ordered by pair, then by predicate. A value that is not finite is not a guess.
    """
    if probabilities.ndim != 2 or len(probabilities) != len(pairs) or probabilities.shape[1] < 2:
        expected = f"({len(pairs)}, predicates + 1)"
        raise DataError(f"probabilities of the shape {probabilities.shape}, expected {expected}")
    image = scenes.object_images[pairs[:, 0]]
    if (image[1:] < image[:-1]).any():
        raise DataError("pairs are not ordered by image", remedy="give them in the order of all_pairs")
    values = np.asarray(probabilities, np.float32)[:, 1:]
    best, top = _row_maxima(values)
    weight = None if scores is None else np.prod(np.asarray(scores, np.float32)[pairs], 1)
    top = top if weight is None else top * weight
    rows = _top_rows(image, top, most, len(scenes))
    columns, found = best[rows], top[rows]
    if not constraint:
        # With `most` pairs above it, nothing below an image's last pair can be among the best.
        full = np.bincount(image[rows], minlength=len(scenes)) == most
        lowest = np.full(len(scenes), -np.inf, np.float32)
        last = np.append(image[rows][1:] != image[rows][:-1], True)[: len(rows)]
        lowest[image[rows][last]] = np.where(full[image[rows][last]], found[last], -np.inf)
        values = values if weight is None else values * weight[:, None]
        rows, columns = np.nonzero(values >= lowest[image][:, None])
        found = values[rows, columns]
        kept = _top_rows(image[rows], found, most, len(scenes))
        rows, columns, found = rows[kept], columns[kept], found[kept]
    local = pairs[rows] - scenes.object_offsets[image[rows]][:, None]
    triplets = np.concatenate([local, columns[:, None]], 1)
    return Guesses(len(scenes), image[rows], triplets, found, constraint)


def _row_maxima(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The column and value of each row's maximum, in parts that fit into the processor's cache."""
    best, top = np.empty(len(values), np.int64), np.empty(len(values), np.float32)
    for start in range(0, len(values), _ROWS):
        part = values[start : start + _ROWS]
        column = part.argmax(1)
        best[start : start + _ROWS] = column
        top[start : start + _ROWS] = part[np.arange(len(part)), column]
    return best, top


def _top_rows(image: np.ndarray, scores: np.ndarray, most: int, images: int) -> np.ndarray:
    """The rows of each image's best scores, by image, the best first; equal scores keep their order."""
    finite = np.flatnonzero(np.isfinite(scores))
    if len(finite) < len(scores):
        best: np.ndarray = finite[_top_rows(image[finite], scores[finite], most, images)]
        return best
    # The bits of a float, read as an integer, have the order of the floats (reversed below zero). So image and score
    # form one number, which is sorted several times faster than two keys.
    bits = (scores + np.float32(0)).view(np.int32)  # turns -0 into 0
    falling = 0x7FFFFFFF - np.where(bits < 0, bits ^ 0x7FFFFFFF, bits).astype(np.int64)
    order = np.argsort((image << 32) + falling, kind="stable")
    return order[_ranks(image, images) < most]  # the order within images changes, that of images does not


def _ranks(image: np.ndarray, images: int) -> np.ndarray:
    """0, 1, 2, ... for the rows of each image."""
    counts = np.bincount(image, minlength=images)
    ranks: np.ndarray = np.arange(len(image)) - (np.cumsum(counts) - counts)[image]
    return ranks


# ---- Scores


@dataclass(frozen=True)
class RecallTally:
    """Sums over images from which the recalls are computed."""

    cutoffs: tuple[int, ...]
    constraint: bool
    images: int  # images that count
    skipped: int  # images that do not: without annotated triplets or, as in the paper, without a guess
    recall: np.ndarray  # float64 (cutoffs,): summed over images
    shares: np.ndarray  # float64 (cutoffs, predicates): summed over images that have the predicate
    having: np.ndarray  # int64 (predicates,): how many images have it

    @property
    def by_predicate(self) -> np.ndarray:
        """float64 (cutoffs, predicates): recall of each predicate; 0 where no image has it."""
        means: np.ndarray = self.shares / np.maximum(self.having, 1)
        return means

    @property
    def metrics(self) -> dict[str, float]:
        """Shares from 0 to 1; see the module."""
        if not self.images:
            raise DataError("no image has an annotated triplet to find", remedy="give others to score")
        prefix = "" if self.constraint else "ng"
        means = self.by_predicate
        found: dict[str, float] = {}
        for place, cutoff in enumerate(self.cutoffs):
            found[f"{prefix}R@{cutoff}"] = float(self.recall[place] / self.images)
            found[f"{prefix}mR@{cutoff}"] = float(means[place].mean())
            found[f"{prefix}mR@{cutoff}/present"] = float(means[place][self.having > 0].mean())
        return found


def tally(
    guesses: Guesses,
    truth: SceneGraphs,
    detections: SceneGraphs | None = None,
    overlaps: np.ndarray | None = None,
    *,
    cutoffs: tuple[int, ...] = CUTOFFS,
    as_paper: bool = False,
) -> RecallTally:
    """Compare the guesses with the annotations. Duplicate annotated triplets count twice: see `without`."""
    if guesses.images != len(truth):
        raise DataError(f"guesses for {guesses.images} images, annotations of {len(truth)}: expected the same images")
    if not cutoffs or min(cutoffs) < 1:
        raise ConfigError(f"cutoffs {cutoffs}: expected at least one, each at least 1")
    ranks = first_ranks(guesses, truth, detections, overlaps)
    image, predicate, kinds = truth.relation_images, truth.relations[:, 2].astype(np.int64), len(truth.predicates)
    triplets = np.diff(truth.relation_offsets)
    counted = triplets > 0
    if as_paper:
        counted &= np.bincount(guesses.image, minlength=len(truth)) > 0
    kept = counted[image]
    ranks, image, predicate = ranks[kept], image[kept], predicate[kept]
    cell, member = np.unique(image * kinds + predicate, return_inverse=True)  # an image's triplets of a predicate
    times = np.bincount(member, minlength=len(cell))
    recall, shares = np.zeros(len(cutoffs)), np.zeros((len(cutoffs), kinds))
    for place, cutoff in enumerate(cutoffs):
        hit = ranks < cutoff
        recall[place] = (np.bincount(image[hit], minlength=len(truth))[counted] / triplets[counted]).sum()
        share = np.bincount(member[hit], minlength=len(cell)) / times
        shares[place] = np.bincount(cell % kinds, share, kinds)
    having = np.bincount(cell % kinds, minlength=kinds)
    number = int(counted.sum())
    return RecallTally(
        cutoffs=tuple(cutoffs),
        constraint=guesses.constraint,
        images=number,
        skipped=len(truth) - number,
        recall=recall,
        shares=shares,
        having=having,
    )


def by_name(tally: RecallTally, predicates: Sequence[str], cutoff: int = 50) -> dict[str, float]:
    """Recall of each predicate that the pictures have."""
    means = tally.by_predicate[tally.cutoffs.index(cutoff)]
    return {name: float(mean) for name, mean, times in zip(predicates, means, tally.having) if times}


def by_thirds(tally: RecallTally, times: np.ndarray) -> dict[str, float]:
    """mR@K of each third of the predicates; `times` (predicates,) is how often each is trained on."""
    order = np.argsort(-times, kind="stable")
    thirds = dict(zip(("head", "body", "tail"), np.array_split(order, 3)))
    return {
        f"mR@{cutoff}/{name}": float(means[third].mean())
        for cutoff, means in zip(tally.cutoffs, tally.by_predicate)
        for name, third in thirds.items()
        if len(third)
    }


def seen(some: SceneGraphs, trained: SceneGraphs) -> np.ndarray:
    """bool (R,): whether the classes and the predicate of each relation occur together in these pictures."""
    found: np.ndarray = np.isin(_kinds(some), _kinds(trained))
    return found


def _kinds(scenes: SceneGraphs) -> np.ndarray:
    ends = scenes.relations[:, :2] + scenes.object_offsets[scenes.relation_images][:, None]
    subject, object_ = scenes.labels[ends].astype(np.int64).T
    kinds: np.ndarray = (subject * len(scenes.classes) + object_) * len(scenes.predicates) + scenes.relations[:, 2]
    return kinds


def first_ranks(
    guesses: Guesses, truth: SceneGraphs, detections: SceneGraphs | None = None, overlaps: np.ndarray | None = None
) -> np.ndarray:
    """int64 (R,): the rank, from 0, of the first guess that hits each annotated triplet; the largest number if none."""
    if detections is not None:
        check_overlaps(detections, truth, overlaps)
    rank = _ranks(guesses.image, guesses.images)
    image, kinds = truth.relation_images, len(truth.predicates)
    annotated = truth.relations.astype(np.int64)
    guessed_key, annotated_key = guesses.image, image
    if detections is None:
        most = 1 + max(guesses.triplets[:, :2].max(initial=0), annotated[:, :2].max(initial=0))
        guessed_key = (guessed_key * most + guesses.triplets[:, 0]) * most + guesses.triplets[:, 1]
        annotated_key = (annotated_key * most + annotated[:, 0]) * most + annotated[:, 1]
    guessed_key, annotated_key = guessed_key * kinds + guesses.triplets[:, 2], annotated_key * kinds + annotated[:, 2]
    order = np.argsort(guessed_key, kind="stable")  # stable: of the guesses with one key the best comes first
    begin = np.searchsorted(guessed_key[order], annotated_key, "left")
    times = np.searchsorted(guessed_key[order], annotated_key, "right") - begin
    relation, place = expanded(times)
    guess = order[begin[relation] + place]
    if detections is not None:
        for end in (0, 1):
            ends = guesses.triplets[guess, end], annotated[relation, end]
            hit = _matching(detections, truth, overlaps, image[relation], *ends)
            relation, guess = relation[hit], guess[hit]
    first = np.full(len(annotated), _NEVER)
    np.minimum.at(first, relation, rank[guess])
    return first


def _matching(
    detections: SceneGraphs,
    truth: SceneGraphs,
    overlaps: np.ndarray | None,
    image: np.ndarray,
    found: np.ndarray,
    annotated: np.ndarray,
) -> np.ndarray:
    """Where a detection matches an annotated object; both are indices among the image's objects."""
    detected_rows, annotated_rows = detections.object_offsets[image] + found, truth.object_offsets[image] + annotated
    same = np.flatnonzero(detections.labels[detected_rows] == truth.labels[annotated_rows])
    if overlaps is None:  # compute only the needed ones
        share = ious(detections.boxes[detected_rows[same]], truth.boxes[annotated_rows[same]])
    else:
        squares = np.diff(detections.object_offsets) * np.diff(truth.object_offsets)
        place = (np.cumsum(squares) - squares)[image] + found * np.diff(truth.object_offsets)[image] + annotated
        share = overlaps[place[same]]
    return same[share >= MATCH]
