"""From pixels to triplets on 29 real photos of COCO with PSG's annotations: what can be reached, and what is found.

Two ways to find the objects: the detector of 80 things alone, and `wayfare detect`, whose layer is learnt from the 17
photos that have panoptic truth, of each photo without itself. A triplet is reachable if both its objects are found with
their classes and half of their boxes. End to end, relations are guessed from the labels alone by the frequency table of
the other pictures (nothing is trained, so that the figure is about the objects).

The image-level check is what a stranger sees first: of the relations that would be drawn, how many join two classes
that the photo's annotation has, wherever they are? A person standing on a snowboard without a person is not one.
"""

import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch

from scenes_parts.metrics import SHARED
from wayfare.io.images import decode
from wayfare.nets.published import PUBLISHED
from wayfare.scenes import frequency, recall
from wayfare.scenes.data import psg
from wayfare.scenes.detections import aligned
from wayfare.scenes.detector import Detector, is_installed
from wayfare.scenes.graph import LEAST
from wayfare.scenes.labels import fitting
from wayfare.scenes.pairs import ious
from wayfare.scenes.patches import DinoPatches
from wayfare.scenes.segmenting import SegmentHead, find_segments, fitted, labelled_patches

DRAWN = 10  # relations of a photo
BEFORE = {"reachable": 13.8, "R@20": 8.5}  # of the detector alone, when this was begun


def is_here():
    return (SHARED / "psg_coco_with_images.zip").is_file() and PUBLISHED["dinov2-s"].path.is_file() and is_installed()


def measure(quick):
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(SHARED / "psg_coco_with_images.zip").extractall(folder)
        truth = psg.load(Path(folder) / "psg_coco_with_images")
        some = truth.select(np.arange(4 if quick else len(truth)))
        counts = frequency.count(_others(truth))
        found = {}
        for name, objects in zip(("detector alone", "wayfare detect"), _objects(some)):
            found[name] = _scored(some, objects, counts)
    return {"photos": len(some), "found": found}


def _others(truth):
    """The union's pictures without the 29, for the frequency table."""
    union = psg.load(SHARED / "psg_union_24378.json.gz", drop=("self", "duplicates", "empty"))
    if union.classes != truth.classes or union.predicates != truth.predicates:
        raise SystemExit("the photos and the union have other classes")
    return union.select(np.flatnonzero(~np.isin(union.image_ids, truth.image_ids)))


def _objects(truth):
    """(labels, boxes, scores) of each photo, by the detector alone and by both."""
    detector, maps = Detector(), DinoPatches()
    pixels = [decode(truth.picture(i)) for i in range(len(truth))]
    boxes = [detector.find(one) for one in pixels]
    alone = []
    for things in boxes:
        places = fitting([one.label for one in things], truth.classes)
        kept = [(place, one) for place, one in zip(places, things) if place >= 0]
        alone.append(([p for p, _ in kept], [one.box for _, one in kept], [one.score for _, one in kept]))
    features = [maps(one) for one in pixels]
    patches = {}
    for index in range(len(truth)):
        if truth.panoptic(index) is not None:
            places = truth.segments(index)
            labels = np.where(places < 0, -1, truth[index].labels[places])
            patches[index] = labelled_patches(features[index], labels, len(truth.classes))
    everyone, both = None, []
    for index in range(len(truth)):
        rest = [one for other, one in patches.items() if other != index]
        if index in patches or everyone is None:
            head = _head(truth, rest)
            everyone = everyone if index in patches else head
        else:
            head = everyone
        found = find_segments(head, features[index], pixels[index].shape[:2], boxes[index])
        both.append(([truth.classes.index(name) for name in found.labels], found.boxes, found.scores))
    return alone, both


def _head(truth, patches):
    weight, bias, known = fitted(patches)
    return SegmentHead(truth.things, truth.stuff, truth.predicates, known=known, weight=weight, bias=bias)


def _scored(truth, objects, counts):
    labels = np.array([k for one in objects for k in one[0]], np.int32)
    boxes = np.array([b for one in objects for b in one[1]], np.float32).reshape(-1, 4)
    scores = np.array([s for one in objects for s in one[2]], np.float32)
    parts = {"boxes": boxes, "labels": labels, "segment_ids": np.full(len(labels), -1, np.int32),
             "areas": np.full(len(labels), -1)}  # fmt: skip
    sizes = np.array([len(one[0]) for one in objects])
    found = aligned(truth, sizes, np.full(len(truth), "", object), parts, scores).found
    guesses = frequency.guesses(counts, found, scores)
    metrics = recall.tally(guesses, truth, found).metrics
    is_found = _matched(truth, found)
    ends = truth.relations[:, :2] + truth.object_offsets[truth.relation_images][:, None]
    stuff = truth.labels >= len(truth.things)
    return {
        "objects": len(labels),
        "things found": 100 * float(is_found[~stuff].mean()),
        "surfaces found": 100 * float(is_found[stuff].mean()),
        "reachable": 100 * float(is_found[ends].all(1).mean()),
        **{name: 100 * metrics[name] for name in ("R@20", "R@50", "mR@20")},
        **_drawn(truth, found, guesses),
    }


def _drawn(truth, found, guesses):
    """Of the relations that a graph would show, how many are of classes that are in the picture at all."""
    drawn, there = 0, 0
    for image in range(len(truth)):
        best = np.flatnonzero(guesses.image == image)[:DRAWN]
        best = best[guesses.scores[best] >= LEAST]
        labels = found[image].labels[guesses.triplets[best, :2]].reshape(-1, 2)
        drawn += len(labels)
        there += int(np.isin(labels, truth[image].labels).all(1).sum())
    return {"drawn": drawn, "drawn of classes that are there": 100 * there / max(drawn, 1)}


def _matched(truth, found):
    """bool: whether each annotated object has a detection of its class with half of its box."""
    hit = np.zeros(len(truth.labels), bool)
    for image in range(len(truth)):
        a, b = (slice(g.object_offsets[image], g.object_offsets[image + 1]) for g in (truth, found))
        for row in range(a.start, a.stop):
            same = np.flatnonzero(found.labels[b] == truth.labels[row]) + b.start
            if len(same):
                hit[row] = ious(np.repeat(truth.boxes[row : row + 1], len(same), 0), found.boxes[same]).max() >= 0.5
    return hit


def targets(figures):
    found = figures["found"]["wayfare detect"]
    return [
        {"name": f"wayfare detect, 29 photos: {name}, %", "value": found[name], "target": f"at least {2 * before}",
         "met": found[name] >= 2 * before}
        for name, before in BEFORE.items()
    ]  # fmt: skip


def show(figures, out):
    out.print(f"{figures['photos']} photos", highlight=False)
    for name, row in figures["found"].items():
        out.print(f"{name}: " + ", ".join(f"{k} {v:.1f}" for k, v in row.items()), highlight=False, soft_wrap=True)


torch.set_num_threads(1)
