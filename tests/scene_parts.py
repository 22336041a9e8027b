"""Small scenes for tests: from lists, or at random; and recall as anyone would write it, a triplet at a time."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from wayfare.scenes.data.scene_graphs import SceneGraphs

SHARED = Path(os.environ.get("WAYFARE_SHARED") or Path(__file__).parents[2] / "shared") / "data" / "scenes"


def shared(name: str) -> Path:
    if not (SHARED / name).is_file():
        pytest.skip(f"{SHARED / name} is absent: set WAYFARE_SHARED to the folder that holds data/scenes/{name}")
    return SHARED / name


def scenes(
    *images: tuple[list[int], list[list[float]], list[list[int]]],
    classes: int = 4,
    predicates: int = 3,
    size: tuple[int, int] = (100, 200),
    root: Path = Path(),
) -> SceneGraphs:
    """Images of labels, boxes and relations; 100 high and 200 wide, segments' areas not stated."""
    labels = [np.array(image[0], np.int32).reshape(-1) for image in images]
    boxes = [np.array(image[1], np.float32).reshape(-1, 4) for image in images]
    relations = [np.array(image[2], np.int32).reshape(-1, 3) for image in images]
    objects = int(sum(map(len, labels)))
    names = np.array([f"{place}" for place in range(len(images))], object)
    return SceneGraphs(
        root=root,
        things=tuple(f"thing{place}" for place in range(classes)),
        stuff=(),
        predicates=tuple(f"does{place}" for place in range(predicates)),
        test_image_ids=(),
        image_ids=names,
        files=np.array([f"{place}.png" for place in range(len(images))], object),
        panoptic_files=np.full(len(images), "", object),
        sizes=np.tile(np.array(size, np.int32), (len(images), 1)),
        lines=np.arange(len(images)),
        entries=np.arange(len(images)),
        object_offsets=np.cumsum([0, *map(len, labels)]),
        boxes=np.concatenate([np.zeros((0, 4), np.float32), *boxes]),
        labels=np.concatenate([np.zeros(0, np.int32), *labels]),
        crowd=np.zeros(objects, bool),
        segment_ids=np.full(objects, -1, np.int32),
        areas=np.full(objects, -1),
        relation_offsets=np.cumsum([0, *map(len, relations)]),
        relations=np.concatenate([np.zeros((0, 3), np.int32), *relations]),
    )


def random_scenes(rng: np.random.Generator, images: int, most: int = 6, relations: int = 8) -> SceneGraphs:
    """Some without objects, some without relations; duplicates, several predicates for a pair, self-relations."""
    made = []
    for _ in range(images):
        count = int(rng.integers(0, most + 1))
        corner = rng.integers(0, 6, (count, 2)) * 10
        boxes = np.concatenate([corner, corner + rng.integers(1, 5, (count, 2)) * 10], 1)
        some = int(rng.integers(0, relations + 1)) if count else 0
        ends = rng.integers(0, max(count, 1), (some, 2))
        rows = np.concatenate([ends, rng.integers(0, 3, (some, 1))], 1)
        made.append((rng.integers(0, 3, count).tolist(), boxes.tolist(), rows.tolist()))
    return scenes(*made)


def iou(a: np.ndarray, b: np.ndarray) -> float:
    across, down = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    common = max(across, 0) * max(down, 0)
    return float(common / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common))


def plain_recall(
    probabilities: list[dict[tuple[int, int], np.ndarray]],
    truth: SceneGraphs,
    detections: SceneGraphs | None,
    scores: list[np.ndarray],
    constraint: bool,
    as_paper: bool,
    cutoffs: tuple[int, ...],
) -> dict[str, float]:
    """R@K and mR@K, image by image, guess by guess, triplet by triplet."""
    recalls: dict[int, list[float]] = defaultdict(list)
    parts: dict[tuple[int, int], list[float]] = defaultdict(list)
    for place in range(len(truth)):
        real = truth[place]
        found = real if detections is None else detections[place]
        if not len(real.relations) or (as_paper and not probabilities[place]):
            continue
        guesses = []
        for (s, o), row in probabilities[place].items():
            weight = scores[place][s] * scores[place][o]
            options = [1 + int(np.argmax(row[1:]))] if constraint else range(1, len(row))
            guesses += [(-(row[p] * weight), s, o, p - 1) for p in options]
        guesses.sort()  # of equal scores the earlier pair, then the smaller predicate
        hits: list[set[int]] = []
        for _, s, o, p in guesses:
            hit = set()
            for number, (rs, ro, rp) in enumerate(real.relations.tolist()):
                if detections is None:
                    same = (s, o) == (rs, ro)
                else:
                    same = found.labels[s] == real.labels[rs] and found.labels[o] == real.labels[ro]
                    same = same and iou(found.boxes[s], real.boxes[rs]) >= 0.5
                    same = same and iou(found.boxes[o], real.boxes[ro]) >= 0.5
                if same and p == rp:
                    hit.add(number)
            hits.append(hit)
        for cutoff in cutoffs:
            union = set().union(*hits[:cutoff])
            recalls[cutoff].append(len(union) / len(real.relations))
            for predicate in set(real.relations[:, 2].tolist()):
                members = np.flatnonzero(real.relations[:, 2] == predicate).tolist()
                parts[cutoff, predicate].append(len(union & set(members)) / len(members))
    prefix, kinds, found_metrics = "" if constraint else "ng", len(truth.predicates), {}
    for cutoff in cutoffs:
        means = {p: float(np.mean(parts[cutoff, p])) for p in range(kinds) if parts[cutoff, p]}
        found_metrics[f"{prefix}R@{cutoff}"] = float(np.mean(recalls[cutoff]))
        found_metrics[f"{prefix}mR@{cutoff}"] = sum(means.values()) / kinds
        found_metrics[f"{prefix}mR@{cutoff}/present"] = sum(means.values()) / len(means)
    return found_metrics
