"""How fast R@K and mR@K of 2,000 images are computed, beside a loop over every triplet; and the frequency baseline.

Both sides start from the same probabilities of all ordered pairs, 57 numbers each, and give the same figures. The loop
is what anyone would write first: for every pair its best predicate, sort, compare every guess with every annotated
triplet. By turns in one process with one thread, CPU seconds, the best of three (of one without constraint, where the
loop takes half a minute).

- constraint, PredCls: subject and object by their places;
- constraint, SGDet: by class and IoU of boxes, the annotation as its own detections;
- no constraint, PredCls: all 56 predicates of each pair are guesses.

On the union of the paper's splits where it is there, and on graphs at random of the same size where not; the baseline
needs the former.
"""

import json
import os
import time
import zipfile
from pathlib import Path

import numpy as np
from rich.table import Table

from wayfare.core.seeds import rng_for
from wayfare.io.findings import Problems
from wayfare.scenes import frequency
from wayfare.scenes.data import psg
from wayfare.scenes.data.scene_graphs import SceneGraphs
from wayfare.scenes.pairs import all_pairs
from wayfare.scenes.recall import CUTOFFS, ranked, tally

SHARED = Path(os.environ.get("WAYFARE_SHARED") or Path(__file__).parents[3] / "shared") / "data" / "scenes"
IMAGES, QUICK_IMAGES, LEAST = 2000, 300, 10.0
# The baseline of the Random pool by another program, on other 2,000 held-out images; per cent.
REFERENCE = {"R@20": 46.8, "mR@20": 16.0, "R@50": 55.2, "mR@50": 20.1, "R@100": 58.9, "mR@100": 23.1}
WITHIN = 1.5  # points
WAYS = {
    "constraint, PredCls": (True, False),
    "constraint, SGDet": (True, True),
    "no constraint, PredCls": (False, False),
}


# ---- data


def union_and_pool():
    """The union of the paper's splits and which images are of its Random pool; None where they are absent."""
    files = SHARED / "psg_union_24378.json.gz", SHARED / "paper_splits.zip"
    if not all(file.is_file() for file in files):
        return None
    union = psg.load(files[0])
    with zipfile.ZipFile(files[1]) as splits:
        clients = json.loads(splits.read("split_mini_Random.json"))
    return union, np.isin(union.image_ids.astype(str), np.concatenate(list(clients.values())))


def held_out(union, pool, images):
    """Images with relations outside the pool."""
    rest = union.select(~pool).without("duplicates", "empty")
    return rest.select(np.sort(rng_for(0, "held-out").choice(len(rest), images, replace=False)))


def random_scenes(images):
    """About as many objects and relations as in PSG."""
    rng = rng_for(0, "metrics", "scenes")
    objects = rng.poisson(10.8, images) + 2
    relations = rng.poisson(5.2, images) + 1
    corner = rng.random((objects.sum(), 2)) * 400
    ends = rng.integers(0, np.repeat(objects, relations)[:, None], (relations.sum(), 2))
    names = np.array([str(place) for place in range(images)], object)
    return SceneGraphs(
        root=Path(), things=tuple(f"c{place}" for place in range(133)), stuff=(), test_image_ids=(),
        predicates=tuple(f"p{place}" for place in range(56)), image_ids=names, files=names, panoptic_files=names,
        sizes=np.full((images, 2), 600, np.int32), lines=np.arange(images), entries=np.arange(images),
        object_offsets=np.cumsum([0, *objects]), labels=rng.integers(0, 133, objects.sum()).astype(np.int32),
        boxes=np.concatenate([corner, corner + 20 + rng.random(corner.shape) * 180], 1).astype(np.float32),
        crowd=np.zeros(objects.sum(), bool), segment_ids=np.full(objects.sum(), -1, np.int32),
        areas=np.full(objects.sum(), -1), relation_offsets=np.cumsum([0, *relations]), problems=Problems(),
        relations=np.concatenate([ends, rng.integers(0, 56, (len(ends), 1))], 1).astype(np.int32),
    )  # fmt: skip


# ---- the loop


def looped(probabilities, pairs, scenes, constraint, detected):
    """R@K and mR@K a triplet at a time."""
    kinds, start = len(scenes.predicates), 0
    recalls, parts = {k: [] for k in CUTOFFS}, {(k, p): [] for k in CUTOFFS for p in range(kinds)}
    for place in range(len(scenes)):
        scene, first = scenes[place], int(scenes.object_offsets[place])
        count = len(scene.labels) * (len(scene.labels) - 1)
        rows = probabilities[start : start + count]
        local = (pairs[start : start + count] - first).tolist()
        start += count
        guesses = []
        for row, (s, o) in zip(rows, local):
            if constraint:
                p = int(row[1:].argmax())
                guesses.append((float(row[p + 1]), s, o, p))
            else:
                guesses += [(value, s, o, p) for p, value in enumerate(row[1:].tolist())]
        guesses.sort(key=lambda guess: -guess[0])
        labels, boxes, meant = scene.labels.tolist(), scene.boxes.tolist(), scene.relations.tolist()
        hits = []
        for _, s, o, p in guesses[: max(CUTOFFS)]:
            hit = set()
            for number, (rs, ro, rp) in enumerate(meant):
                if detected:
                    same = p == rp and labels[s] == labels[rs] and labels[o] == labels[ro]
                    same = same and _iou(boxes[s], boxes[rs]) >= 0.5 and _iou(boxes[o], boxes[ro]) >= 0.5
                else:
                    same = p == rp and s == rs and o == ro
                if same:
                    hit.add(number)
            hits.append(hit)
        if not meant:
            continue
        for k in CUTOFFS:
            found = set().union(*hits[:k])
            recalls[k].append(len(found) / len(meant))
            for p in {relation[2] for relation in meant}:
                members = [number for number, relation in enumerate(meant) if relation[2] == p]
                parts[k, p].append(sum(number in found for number in members) / len(members))
    prefix = "" if constraint else "ng"
    figures = {f"{prefix}R@{k}": float(np.mean(recalls[k])) for k in CUTOFFS}
    return figures | {
        f"{prefix}mR@{k}": sum(float(np.mean(parts[k, p])) for p in range(kinds) if parts[k, p]) / kinds
        for k in CUTOFFS
    }


def _iou(a, b):
    across, down = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    common = max(across, 0) * max(down, 0)
    return common / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common)


# ---- both


def measure(quick):
    found = None if quick else union_and_pool()
    images = QUICK_IMAGES if quick else IMAGES
    baseline = None
    if found is None:
        scenes = random_scenes(images)
    else:
        scenes = held_out(*found, images)
        table, test = frequency.count(found[0].select(found[1])), held_out(*found, IMAGES)
        metrics = tally(frequency.guesses(table, test), test).metrics
        baseline = {name: 100 * value for name, value in metrics.items()}
    pairs = all_pairs(scenes)
    probabilities = _probabilities(scenes, pairs)
    figures = {}
    for way, (constraint, detected) in WAYS.items():
        ours, loop = [], []
        for _ in range(3 if constraint else 1):
            began = time.process_time()
            guesses = ranked(probabilities, pairs, scenes, constraint=constraint)
            metrics = tally(guesses, scenes, scenes if detected else None).metrics
            ours.append(time.process_time() - began)
            began = time.process_time()
            expected = looped(probabilities, pairs, scenes, constraint, detected)
            loop.append(time.process_time() - began)
        differ = max(abs(metrics[name] - value) for name, value in expected.items())
        ratio = min(loop) / min(ours)
        figures[way] = {"loop": min(loop), "ours": min(ours), "ratio": ratio, "figures_differ_by": differ}
    kind = "real annotations" if found else "random graphs"
    return {"images": images, "pairs": len(pairs), "data": kind, "ways": figures, "baseline": baseline}


def _probabilities(scenes, pairs):
    """Of random logits; float32, as a head's."""
    logits = rng_for(0, "metrics", "logits").standard_normal((len(pairs), len(scenes.predicates) + 1), np.float32) * 3
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def targets(figures):
    from places_parts.common import at_least, at_most

    judged = []
    for way, found in figures["ways"].items():
        name = f"R@K and mR@K of {figures['images']:,} images, {way}"
        judged.append(at_least(f"{name}: speed beside a loop over triplets", found["ratio"], LEAST, timed=True))
        judged.append(at_most(f"{name}: difference to the loop's figures", found["figures_differ_by"], 1e-9))
    if figures["baseline"] is not None:
        far = max(abs(figures["baseline"][name] - value) for name, value in REFERENCE.items())
        judged.append(at_most("frequency baseline, Random pool: points from the reference", far, WITHIN))
    return judged


def show(figures, out):
    title = f"R@K and mR@K of {figures['images']:,} images ({figures['data']}, {figures['pairs']:,} pairs), CPU seconds"
    table = Table(title=title, title_justify="left")
    for name in ("", "loop", "ours", "times as fast"):
        table.add_column(name, justify="right" if name else "left")
    for way, found in figures["ways"].items():
        table.add_row(way, f"{found['loop']:.2f}", f"{found['ours']:.3f}", f"{found['ratio']:.0f}")
    out.print(table)
    if figures["baseline"] is None:
        out.print("The frequency baseline needs data/scenes in the folder WAYFARE_SHARED, and is left out with --quick")
        return
    table = Table(title="frequency baseline, Random pool, PredCls, 2,000 held-out images, %", title_justify="left")
    table.add_column("")
    for name in REFERENCE:
        table.add_column(name, justify="right")
    table.add_row("ours", *(f"{figures['baseline'][name]:.1f}" for name in REFERENCE))
    table.add_row("reference", *(f"{value:.1f}" for value in REFERENCE.values()))
    out.print(table)
