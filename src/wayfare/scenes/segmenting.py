"""What is in a photo, things and surfaces, each with its mask: a panoptic front end that learns from few pictures.

No panoptic network comes with Wayfare. What there is: features of patches by a frozen network (DINOv2 ViT-S/14,
`wayfare data get dinov2-s`), on which a linear layer tells classes apart after a handful of annotated pictures; and an
optional detector of things (`detector.py`), whose boxes say where one thing ends and the next begins.

    patches     the long side is 630 pixels, so a picture has at most 45 x 45 patches of 14 pixels
    head        linear discriminant analysis of the patches of annotated pictures, in closed form; a patch has the
                class of most of its pixels, and does not count if no class has half of it
    certainty   one temperature, so that on every fifth picture a head that did not see it is as sure as it is right
    surfaces    per class the pixels where it is the best guess, if they are at least 1 % of the picture; regions below
                a tenth of the largest are left out, because a speck would stretch the box
    things      a detected box, with the pixels in it whose best guess is its class (the whole box, if these are few),
                the smaller of two boxes in front; elsewhere each connected region of a thing's class, if it is at
                least 0.5 % of the picture
    scores      a detector's own; of a region the mean probability of its class
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy import ndimage
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.nn.functional import interpolate

from wayfare.core.bundle import Bundle
from wayfare.core.errors import DataError, StoreError
from wayfare.io.images import decode
from wayfare.scenes.boxes import LabelledBox
from wayfare.scenes.data.scene_graphs import SceneGraphs
from wayfare.scenes.labels import fitting

LONG_SIDE, PATCH = 630, 14
_SHRINKAGE = 0.1  # of the covariance towards a ball
_LEAST_SURFACE, _LEAST_THING = 0.01, 0.005  # of the picture
_LEAST_PART = 0.1  # of a surface's largest region: smaller ones are no part of it
_LEAST_FILLED = 0.2  # of a detected box: with fewer pixels of its class the whole box is the thing
_HELD_OUT = 5  # every so many pictures one is kept to fit the temperature with

PatchMaps = Callable[[np.ndarray], Tensor]
"""Features of a picture's patches, uint8 RGB (H, W, 3) to float32 (C, rows, columns)."""


class FoundSegments(NamedTuple):
    """The objects of a picture."""

    labels: list[str]
    boxes: np.ndarray  # float32 (K, 4): x1, y1, x2, y2
    scores: np.ndarray  # float32 (K,)
    places: np.ndarray  # int32 (H, W): which object a pixel belongs to; -1 for none


@dataclass(frozen=True)
class SegmentHead:
    """A linear layer on patches, with the classes that it tells apart."""

    things: tuple[str, ...]
    stuff: tuple[str, ...]
    predicates: tuple[str, ...]  # of the annotations it was learnt from: written beside what is found
    known: Tensor  # int64 (K,): the classes that it has seen, places in things + stuff
    weight: Tensor  # float32 (K, C)
    bias: Tensor  # float32 (K,): divided by the temperature, as the weights are

    @property
    def classes(self) -> tuple[str, ...]:
        return self.things + self.stuff

    def probabilities(self, maps: Tensor, size: tuple[int, int]) -> Tensor:
        """float32 (K, height, width) for a picture of this size."""
        logits = torch.einsum("kc,chw->khw", self.weight, maps) + self.bias[:, None, None]
        return interpolate(logits[None], size, mode="bilinear", align_corners=False)[0].softmax(0)

    def save(self, file: Path) -> None:
        names = json.dumps({"things": self.things, "stuff": self.stuff, "predicates": self.predicates})
        tensors = {"known": self.known, "weight": self.weight, "bias": self.bias}
        file.write_bytes(Bundle({"segments": tensors}, {"names": names}).pack())

    @classmethod
    def load(cls, file: Path) -> SegmentHead:
        try:
            bundle = Bundle.unpack(file.read_bytes())
            names = {key: tuple(map(str, value)) for key, value in json.loads(str(bundle.values["names"])).items()}
            part = bundle["segments"]
            return cls(
                names["things"],
                names["stuff"],
                names["predicates"],
                known=part["known"],
                weight=part["weight"],
                bias=part["bias"],
            )
        except (OSError, StoreError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise DataError(f"not a head for segments: {error}", file, remedy="learn one with --learn") from error


# ---- learning


def learn_head(graphs: SceneGraphs, maps: PatchMaps, progress: Callable[[int, int], None]) -> SegmentHead:
    """A head from the pictures of these annotations that have both a photo and a panoptic picture."""
    rows = [i for i in range(len(graphs)) if graphs.picture(i) is not None and graphs.panoptic(i) is not None]
    if not rows:
        raise DataError(
            "no picture here has both its photo and its panoptic picture",
            graphs.root,
            remedy="give annotations with both, such as the psg folder of `wayfare town`",
        )
    patches: list[tuple[Tensor, Tensor]] = []
    for done, index in enumerate(rows):
        progress(done, len(rows))
        features = maps(decode(graphs.picture(index) or Path()))
        labels = graphs[index].labels[graphs.segments(index)]
        labels = np.where(graphs.segments(index) < 0, -1, labels)
        patches.append(labelled_patches(features, labels, len(graphs.classes)))
    weight, bias, known = fitted(patches)
    return SegmentHead(graphs.things, graphs.stuff, graphs.predicates, known=known, weight=weight, bias=bias)


def labelled_patches(maps: Tensor, labels: np.ndarray, classes: int) -> tuple[Tensor, Tensor]:
    """The features of patches that are mostly of one class (P, C), and that class (P,)."""
    rows, columns = maps.shape[1:]
    down = np.arange(labels.shape[0]) * rows // labels.shape[0]
    across = np.arange(labels.shape[1]) * columns // labels.shape[1]
    patch = (down[:, None] * columns + across).reshape(-1)
    flat = labels.reshape(-1)
    counts = np.bincount(patch[flat >= 0] * classes + flat[flat >= 0], minlength=rows * columns * classes)
    counts = counts.reshape(rows * columns, classes)
    clear = np.flatnonzero(2 * counts.max(1) >= np.maximum(np.bincount(patch, minlength=rows * columns), 1))
    return maps.flatten(1).T[clear], torch.from_numpy(counts.argmax(1)[clear])


def fitted(pictures: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, biases and the classes that occur, from the patches of each picture."""
    held = [one for place, one in enumerate(pictures) if place % _HELD_OUT == _HELD_OUT - 1]
    rest = [one for place, one in enumerate(pictures) if place % _HELD_OUT != _HELD_OUT - 1]
    temperature = _temperature(*discriminant(rest), held) if held else 1.0
    weight, bias, known = discriminant(pictures)
    return weight / temperature, bias / temperature, known


def discriminant(pictures: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """Linear discriminant analysis in closed form, with the covariance within classes that all of them share."""
    known = np.unique(np.concatenate([labels.numpy() for _, labels in pictures]))
    width = pictures[0][0].shape[1]
    counts, sums, squares = np.zeros(len(known)), np.zeros((len(known), width)), np.zeros((width, width))
    with threadpool_limits(1):  # the same bits whatever the number of cores
        for patches, labels in pictures:
            x = patches.numpy().astype(np.float64)
            places = np.searchsorted(known, labels.numpy())
            counts += np.bincount(places, minlength=len(known))
            np.add.at(sums, places, x)
            squares += x.T @ x
        means = sums / counts[:, None]
        within = (squares - means.T @ sums) / counts.sum()
        spread = max(float(np.trace(within)) / width, 1e-6)
        weight = np.linalg.solve((1 - _SHRINKAGE) * within + _SHRINKAGE * spread * np.eye(width), means.T).T
    bias = np.log(counts / counts.sum()) - (weight * means).sum(1) / 2
    return torch.from_numpy(weight).float(), torch.from_numpy(bias).float(), torch.from_numpy(known)


def _temperature(weight: Tensor, bias: Tensor, known: Tensor, held: Sequence[tuple[Tensor, Tensor]]) -> float:
    """What logits are to be divided by, so that patches of other pictures are right as often as is said; 1 to 100."""
    x, labels = (torch.cat(parts) for parts in zip(*held))
    logits = x @ weight.T + bias
    right = float((known[logits.argmax(1)] == labels).float().mean())
    tried = [float(t) for t in np.geomspace(1, 100, 81)]
    return min(tried, key=lambda t: abs(float((logits / t).softmax(1).amax(1).mean()) - right))


# ---- finding


class PanopticFinder:
    """Finds things and surfaces in photos. `things` finds boxes of things; without it they are connected regions."""

    def __init__(
        self, head: SegmentHead, maps: PatchMaps, things: Callable[[np.ndarray], list[LabelledBox]] | None = None
    ) -> None:
        self._head, self._maps, self._things = head, maps, things

    def find(self, pixels: np.ndarray) -> FoundSegments:
        """The objects of a picture, uint8 RGB (H, W, 3)."""
        things = [] if self._things is None else self._things(pixels)
        return find_segments(self._head, self._maps(pixels), pixels.shape[:2], things)


def find_segments(
    head: SegmentHead, maps: Tensor, size: tuple[int, int], things: Iterable[LabelledBox]
) -> FoundSegments:
    """The objects of a picture of (height, width), of which a detector has found these things."""
    chances = head.probabilities(maps, size)
    best = head.known[chances.argmax(0)].numpy()
    sure = chances.amax(0).numpy()
    places = np.full(size, -1, np.int32)
    labels: list[str] = []
    scores: list[float] = []
    frames: list[Sequence[float]] = []

    def add(label: int, mask: np.ndarray, score: float, box: Sequence[float] | None = None) -> None:
        mask = mask & (places < 0)
        if not mask.any():
            return
        places[mask] = len(labels)
        labels.append(head.classes[label])
        scores.append(score)
        frames.append(_around(mask) if box is None else box)

    for label, mask, score, box in _detected(head, best, things):
        add(label, mask, score, box)
    for label, mask in _regions(head, best):
        mask = mask & (places < 0)
        least = _LEAST_THING if label < len(head.things) else _LEAST_SURFACE
        if mask.sum() >= least * mask.size:
            add(label, mask, float(sure[mask].mean()))
    boxes = np.array(frames, np.float32).reshape(-1, 4)
    return FoundSegments(labels, boxes, np.array(scores, np.float32), places)


def _detected(
    head: SegmentHead, best: np.ndarray, things: Iterable[LabelledBox]
) -> Iterator[tuple[int, np.ndarray, float, Sequence[float]]]:
    """Things with their masks, the smallest box first: of two that overlap it is more often the one in front."""
    some = sorted(things, key=lambda one: (one.box[2] - one.box[0]) * (one.box[3] - one.box[1]))
    height, width = best.shape
    for label, one in zip(fitting([one.label for one in some], head.classes), some):
        x1, y1, x2, y2 = (round(v) for v in np.clip(one.box, 0, (width, height, width, height)))
        if label < 0 or x2 <= x1 or y2 <= y1:
            continue
        inside = np.zeros(best.shape, bool)
        inside[y1:y2, x1:x2] = True
        mask = inside & (best == label)
        yield label, mask if mask.sum() >= _LEAST_FILLED * inside.sum() else inside, one.score, (x1, y1, x2, y2)


def _regions(head: SegmentHead, best: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each surface without its specks, and each connected region of a thing's class."""
    for label in np.unique(best).tolist():
        parts, count = ndimage.label(best == label)
        sizes = np.bincount(parts.reshape(-1), minlength=count + 1)[1:]
        if label >= len(head.things):
            yield label, np.isin(parts, 1 + np.flatnonzero(sizes >= _LEAST_PART * sizes.max()))
            continue
        for part in 1 + np.flatnonzero(sizes >= _LEAST_THING * best.size):
            yield label, parts == part


def _around(mask: np.ndarray) -> tuple[int, int, int, int]:
    down, across = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return int(across[0]), int(down[0]), int(across[-1]) + 1, int(down[-1]) + 1
