"""A finished run of attributes in use: has the face in a photo the attribute, yes or no?"""

from __future__ import annotations

import numpy as np

from wayfare.attributes.models import FaceCnn, FacePictures
from wayfare.attributes.task import Attributes
from wayfare.core.errors import ConfigError
from wayfare.finished import ClassifierRun, PictureClassifier
from wayfare.portable import spread_rows

_HALF = (0.5, 0.5, 0.5)  # pixels from -1 to 1


class AttributesRun(ClassifierRun):
    """One attribute of faces in photos."""

    task: Attributes

    @property
    def size(self) -> tuple[int, int]:
        model = self.task.model
        if not isinstance(model, FaceCnn):
            raise ConfigError(
                f"{self.folder} was trained on a table of attributes (model.name = 'table') and cannot see photos: "
                "train one with model.name = 'cnn'"
            )
        return model.image_size, model.image_size

    def classifier(self) -> PictureClassifier:
        self.size  # noqa: B018 (refuses a model that sees no pictures)
        return PictureClassifier(self.trained_net, (_HALF, _HALF))

    def own_pictures(self, count: int) -> np.ndarray:
        loaded = self.task.loaded
        if not isinstance(loaded.inputs, FacePictures):
            raise ConfigError(f"{self.folder}: its data has no pictures")
        rows = loaded.evaluated if len(loaded.evaluated) else loaded.pool
        return np.asarray(loaded.inputs.pictures[rows[spread_rows(len(rows), count)]])
