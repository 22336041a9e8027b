"""A finished run of scenes in use: how the things in a photo relate."""

from __future__ import annotations

from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import ClassVar

from torch import nn

from wayfare.core.errors import ConfigError
from wayfare.finished import FinishedRun, Photos
from wayfare.portable import PortablePart
from wayfare.scenes.boxes import read_boxes
from wayfare.scenes.graph import GraphReport, PredictedGraph, graphs
from wayfare.scenes.scene_model import SceneModel, load_scene_model


class ScenesRun(FinishedRun):
    """Scene graphs of photos."""

    offers: ClassVar[tuple[str, ...]] = ("graph",)

    @cached_property
    def model(self) -> SceneModel:
        return load_scene_model(self.folder, self.moved_to, self.device)

    @property
    def network(self) -> nn.Module:
        """The relation head: it takes batches of objects, not pictures."""
        return self.model.net

    def portable(self) -> tuple[PortablePart, ...]:
        raise ConfigError(
            f"{self.folder} is a run of scenes, which cannot be exported: its network takes boxes and features of "
            "detected objects, not a photo; the detector before it is not part of the run"
        )

    def graph(
        self, photos: Photos, top: int = 10, boxes: str | PathLike[str] | None = None
    ) -> PredictedGraph | list[PredictedGraph]:
        """The graph of a photo, or of each of several, or of the pictures of a psg.json.

        Objects come from the annotation, from `boxes` (JSON or CSV), or else from a detector, an optional extra.
        """
        report, given = GraphReport(), None if boxes is None else read_boxes(Path(boxes))
        paths = [photos] if isinstance(photos, str | PathLike) else list(photos)
        found = list(graphs(self.model, [Path(path) for path in paths], boxes=given, top=top, report=report))
        if isinstance(photos, str | PathLike) and Path(photos).suffix == ".json":
            return found
        return self.one_or_all(photos, found, report.skipped)
