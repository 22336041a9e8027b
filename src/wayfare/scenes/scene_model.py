"""A trained relation head, taken out of its run: it says how given objects of a picture relate.

The names of its classes and predicates are those of the annotations it was trained on, so these must still be there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from wayfare.core.bundle import load_into
from wayfare.core.errors import ConfigError, DataError
from wayfare.scenes.data.scene_graphs import SceneGraphs
from wayfare.scenes.graph_input import ObservedPicture
from wayfare.scenes.recall import Guesses
from wayfare.scenes.sureness import BEST, MOST_PICTURES, Sureness, fit_sureness
from wayfare.scenes.task import Scenes
from wayfare.trained import trained, untrained


@dataclass(frozen=True)
class SceneModel:
    """A head in evaluation mode, its task, and the names of what it tells apart."""

    name: str  # of the run that trained it
    digest: str
    task: Scenes
    net: nn.Module
    things: tuple[str, ...]
    stuff: tuple[str, ...]
    predicates: tuple[str, ...]
    sureness: Sureness = Sureness()  # what its scores mean

    @property
    def classes(self) -> tuple[str, ...]:
        return self.things + self.stuff

    def guesses(self, scene: SceneGraphs) -> Guesses:
        """All ordered pairs of the objects of one picture, each with its best predicate."""
        most = len(scene.labels) * max(len(scene.labels) - 1, 1)
        return self.task.guesses(self.net, scene, max(most, 1))


def load_scene_model(run: Path | str, data: Path | None = None, device: str = "auto") -> SceneModel:
    """The model of a finished run of the task scenes; `data` is where its annotations are now, if not as the run says.

    Other annotations than the run's would give its classes wrong names: at least their number of pictures must agree.
    """
    found = trained(run, Scenes, "only models of 'scenes' make scene graphs", "a scene graph")
    task = found.task if data is None else replace(found.task, data=found.task.data.at(str(data)))
    try:
        names = task.loaded.train.truth
    except DataError as error:
        if data is not None:
            raise
        remedy = "the model takes its classes from them; if they were moved, say where they are with --data"
        raise DataError(f"the annotations that {run} was trained on cannot be read: {error}", remedy=remedy) from error
    samples = found.record.partition.get("provenance", {}).get("samples", len(names))
    if samples != len(names):
        raise ConfigError(
            f"{data or names.root}: {len(names)} pictures to train on, but {run} was trained on {samples}: give the "
            "annotations of that run with --data"
        )
    net = untrained(replace(found.experiment, task=task))
    load_into(net, found.weights)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    net = net.to(device).eval()
    return SceneModel(
        name=found.record.name,
        digest=found.record.model_sha256,
        task=task,
        net=net,
        things=names.things,
        stuff=names.stuff,
        predicates=names.predicates,
        sureness=_sureness(task, net),
    )


def _sureness(task: Scenes, net: nn.Module) -> Sureness:
    """By some of the pictures that the run was tested with, and their annotated objects."""
    test = task.loaded.test.truth
    some = test.select(np.arange(min(len(test), MOST_PICTURES)))
    return fit_sureness(task.guesses(net, some, BEST), some)


def one_scene(model: SceneModel, picture: ObservedPicture, labels: np.ndarray) -> SceneGraphs:
    """A picture with its objects, whose classes are `labels`, as the task takes them; no relation is known."""
    count, none = len(labels), np.array([""], object)
    return SceneGraphs(
        root=picture.file.parent,
        things=model.things,
        stuff=model.stuff,
        predicates=model.predicates,
        test_image_ids=(),
        image_ids=np.array([picture.image_id], object),
        files=np.array([picture.file.name], object),
        panoptic_files=none,
        sizes=np.array([picture.size[::-1]], np.int32),
        lines=np.zeros(1, np.int64),
        entries=np.zeros(1, np.int64),
        object_offsets=np.array([0, count]),
        boxes=picture.boxes.astype(np.float32).reshape(-1, 4),
        labels=labels.astype(np.int32),
        crowd=np.zeros(count, bool),
        segment_ids=np.full(count, -1, np.int32),
        areas=picture.areas.astype(np.int64),
        relation_offsets=np.zeros(2, np.int64),
        relations=np.zeros((0, 3), np.int32),
    )
