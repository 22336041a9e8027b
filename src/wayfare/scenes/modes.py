"""What a network is given of a picture, and what its guesses are compared with: PredCls and SGDet.

predcls    boxes and labels are the annotated ones, and a guess must name the very objects; with `matching = "boxes"`,
           as in the paper's code, any objects of their classes that overlap them by half
sgdet      they are a detector's (`detections`), or the annotated segments taken as such; a guess must name objects
           of the annotated classes that overlap the annotated ones by half, boxes or masks. Heads also learn to
           refine labels; their certainty of the best label counts in a guess, but the detector's label is judged,
           as in the paper's code
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from wayfare.scenes import detections
from wayfare.scenes.batch import GraphBatch, make_batch
from wayfare.scenes.data.scene_graphs import SceneGraphs
from wayfare.scenes.detections import Detections
from wayfare.scenes.features import Provider
from wayfare.scenes.heads.common import Mode
from wayfare.scenes.pairs import PairLimits, box_overlaps, detected_pairs, training_pairs


class ScenePictures(NamedTuple):
    """Some pictures: what is annotated and, outside PredCls, what a detector found."""

    truth: SceneGraphs
    detected: Detections | None = None
    by_boxes: bool = False  # annotated objects are matched by class and overlap, as detected ones always are

    @property
    def matched(self) -> SceneGraphs | None:
        """The objects that are compared with the annotated ones by class and overlap; None: they are these."""
        return self.scenes if self.by_boxes or self.detected is not None else None

    @property
    def scenes(self) -> SceneGraphs:
        """The objects that a network is given."""
        return self.truth if self.detected is None else self.detected.found

    @property
    def scores(self) -> np.ndarray | None:
        """The detector's; None in PredCls."""
        return None if self.detected is None else self.detected.scores

    def select(self, images: np.ndarray) -> ScenePictures:
        detected = None if self.detected is None else self.detected.select(images)
        return ScenePictures(self.truth.select(images), detected, self.by_boxes)


class SceneMode:
    """Inherit from it: what has a body here is PredCls's."""

    mode: ClassVar[Mode] = "predcls"

    @property
    def protocol(self) -> str:
        """Its name in reports."""
        raise NotImplementedError

    def pictures(self, graphs: SceneGraphs) -> ScenePictures:
        """With what the network is given of them."""
        return ScenePictures(graphs)

    def overlaps(self, pictures: ScenePictures) -> np.ndarray | None:
        """IoU of detected and annotated masks; None for boxes, of which `recall.tally` asks only those that matter."""
        return None

    def batch(
        self, pictures: ScenePictures, provider: Provider, rng: np.random.Generator, limits: PairLimits
    ) -> GraphBatch:
        """Pairs to train on."""
        raise NotImplementedError


@dataclass(frozen=True)
class PredCls(SceneMode):
    """Predicate classification: the objects are the annotated ones."""

    matching: Literal["objects", "boxes"] = "objects"  # a guess is right for these, or for others by class and IoU

    @property
    def protocol(self) -> str:
        return "PredCls" if self.matching == "objects" else "PredCls, boxes at IoU 0.5"

    def pictures(self, graphs: SceneGraphs) -> ScenePictures:
        return ScenePictures(graphs, by_boxes=self.matching == "boxes")

    def batch(
        self, pictures: ScenePictures, provider: Provider, rng: np.random.Generator, limits: PairLimits
    ) -> GraphBatch:
        return make_batch(pictures.truth, provider, *training_pairs(pictures.truth, rng, limits))


@dataclass(frozen=True)
class SGDet(SceneMode):
    """Scene graph detection: the objects are a detector's."""

    detections: str = ""  # the detector's file (see scenes/detections.py); "": the annotated segments
    overlap: Literal["boxes", "masks"] = "boxes"  # what is compared; masks need panoptic pictures on both sides
    single: bool = False  # one mask for an object: of detections of one class that overlap by half the surest

    mode: ClassVar[Mode] = "sgdet"

    @property
    def protocol(self) -> str:
        single = ", one mask for an object" if self.single else ""
        return f"SGDet on {Path(self.detections).name or 'annotated segments'}, {self.overlap} at IoU 0.5{single}"

    def pictures(self, graphs: SceneGraphs) -> ScenePictures:
        found = detections.read(Path(self.detections), graphs) if self.detections else detections.annotated(graphs)
        return ScenePictures(graphs, detections.single(found) if self.single else found)

    def overlaps(self, pictures: ScenePictures) -> np.ndarray | None:
        return None if self.overlap == "boxes" else detections.mask_overlaps(pictures.scenes, pictures.truth)

    def batch(
        self, pictures: ScenePictures, provider: Provider, rng: np.random.Generator, limits: PairLimits
    ) -> GraphBatch:
        found, truth = pictures.scenes, pictures.truth
        overlaps = box_overlaps(found, truth)
        pairs, targets = detected_pairs(found, truth, rng, limits, overlaps=overlaps)
        return make_batch(found, provider, pairs, targets, detections.true_labels(found, truth, overlaps))
