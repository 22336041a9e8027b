"""A finished run of objects in use: what is in a photo."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wayfare.core.errors import ConfigError
from wayfare.finished import ClassifierRun, PictureClassifier
from wayfare.objects.data.folder import ClassFolders
from wayfare.objects.inputs import NORMALISATION
from wayfare.objects.loaded import POOL, TEST
from wayfare.objects.task import Objects
from wayfare.portable import spread_rows


class ObjectsRun(ClassifierRun):
    """Classes of photos."""

    task: Objects

    @property
    def size(self) -> tuple[int, int]:
        height, width = self.task.loaded.parts[POOL].images.shape[1:3]
        return height, width

    def classifier(self) -> PictureClassifier:
        channels = self.task.loaded.parts[POOL].images.shape[3]
        means, deviations = NORMALISATION[self.task.model.scaling]
        scaling = means[:channels], deviations[:channels]
        return PictureClassifier(self.trained_net, scaling, self.task.model.frozen_part())

    def own_pictures(self, count: int) -> np.ndarray:
        images = self.task.loaded.parts[TEST].images
        return np.asarray(images[spread_rows(len(images), count)])

    def on_folder(self, path: str) -> Objects:
        """All of a folder of class folders; its part `test`, if it has one beside `train`."""
        root = Path(path)
        if (root / "train").is_dir() and (root / "test").is_dir():
            root = root / "test"
        height, width = self.size
        if height != width or self.task.loaded.parts[POOL].images.shape[3] != 3:
            raise ConfigError(
                f"{self.folder} learnt from pictures of {height}x{width} pixels that are not square or not in colour: "
                "evaluate() without data uses its own test set"
            )
        data = ClassFolders(str(root), image_size=height, names=self.task.classes, own=True)
        return Objects(data, self.task.model)
