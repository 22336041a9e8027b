"""Features of regions that are computed once and then read from the cache, as long as pictures and boxes stay the same.

    x.npy   a row for each object
    u.npy   a row for each two objects of an image, the earlier one first: the box around both has no direction

Only what a network saw is kept (about 0.7 MB for an image of twelve objects); the numbers of geometry are computed
when needed. Both files are mapped into memory, which all processes share. Of images that are not among those the files
were made for, features are computed again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from wayfare.core.errors import DataError
from wayfare.io.cache import cache_dir, new_folder, read_array
from wayfare.io.decoded import key_of
from wayfare.io.findings import Progress
from wayfare.scenes.data.scene_graphs import SceneGraphs
from wayfare.scenes.features import FeatureSource, Provider
from wayfare.scenes.geometry import object_numbers, pair_numbers
from wayfare.scenes.pairs import expanded
from wayfare.scenes.roi import RoiProvider, around

_FORM = 1  # of the files: raise it when the same pictures come to give others


@dataclass(frozen=True)
class RoiFeatures(FeatureSource):
    """A frozen EfficientNet-Lite0's maps over the pictures, pooled in boxes, beside the numbers of geometry."""

    def provider(self, scenes: SceneGraphs) -> Provider:
        return CachedRegions(RoiProvider(), scenes)


class CachedRegions(Provider):
    """The features of these scenes' objects and pairs, from the cache; of others, from `RoiProvider` itself."""

    def __init__(self, source: RoiProvider, scenes: SceneGraphs) -> None:
        self.source, self.scenes = source, scenes
        self._places = {image_id: place for place, image_id in enumerate(scenes.image_ids)}
        counts = np.diff(scenes.object_offsets)
        self._first_pair = np.append(0, np.cumsum(counts * (counts - 1) // 2))

    @property
    def width_x(self) -> int:
        return self.source.width_x

    @property
    def width_u(self) -> int:
        return self.source.width_u

    def objects(self, scenes: SceneGraphs) -> np.ndarray:
        if (rows := self._rows(scenes)) is None:
            return self.source.objects(scenes)
        return np.concatenate([self._arrays[0][rows], object_numbers(scenes)], 1)

    def pairs(self, scenes: SceneGraphs, pairs: np.ndarray) -> np.ndarray:
        if (rows := self._rows(scenes)) is None:
            return self.source.pairs(scenes, pairs)
        return np.concatenate([self._arrays[1][self._pair_rows(rows[pairs])], pair_numbers(scenes, pairs)], 1)

    def prepare(self, progress: Progress | None = None) -> None:
        """Make the files if they do not exist."""
        with new_folder(self._folder) as folder:
            if folder is None:
                return
            shapes = len(self.scenes.labels), int(self._first_pair[-1])
            x, u = (
                np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, (count, self.source.width))
                for name, count in zip("xu", shapes)
            )
            for place in range(len(self.scenes)):
                scene = self.scenes.select(np.array([place]))
                objects = slice(*self.scenes.object_offsets[place : place + 2])
                one, other = np.triu_indices(len(scene.labels), 1)
                boxes = np.concatenate([scene.boxes, around(scene.boxes[one], scene.boxes[other])])
                pooled = self.source.pooled(scene, boxes, np.zeros(len(boxes), np.int64))
                x[objects] = pooled[: len(scene.labels)]
                u[slice(*self._first_pair[place : place + 2])] = pooled[len(scene.labels) :]
                if progress is not None:
                    progress(place + 1, len(self.scenes))
            x.flush()
            u.flush()

    @cached_property
    def _folder(self) -> Path:
        scenes, boxes = self.scenes, hashlib.sha256()
        for part in (scenes.object_offsets, scenes.boxes):
            boxes.update(np.ascontiguousarray(part).tobytes())
        files = []
        for place in range(len(scenes)):
            if (file := scenes.picture(place)) is None:
                what = f"no picture {scenes.files[place]} of image {scenes.image_ids[place]}"
                raise DataError(what, scenes.root, remedy="put it there, or use the features 'geometry'")
            files.append(file)
        return cache_dir() / "regions" / key_of(scenes.root, files, [_FORM, self.source.digest, boxes.hexdigest()])

    @cached_property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray]:
        self.prepare()
        x, u = (read_array(self._folder / f"{name}.npy") for name in "xu")
        if (len(x), len(u)) != (len(self.scenes.labels), self._first_pair[-1]):
            raise DataError("features of other objects are cached here", self._folder, remedy="remove this folder")
        return x, u

    def _rows(self, scenes: SceneGraphs) -> np.ndarray | None:
        """Where the objects of these scenes are among all; None if they are not these images with these boxes."""
        places = np.array([self._places.get(image_id, -1) for image_id in scenes.image_ids], np.int64)
        if (places < 0).any():
            return None
        row, place = expanded(np.diff(self.scenes.object_offsets)[places])
        rows = self.scenes.object_offsets[places][row] + place
        return rows if np.array_equal(self.scenes.boxes[rows], scenes.boxes) else None

    def _pair_rows(self, pairs: np.ndarray) -> np.ndarray:
        """Where pairs of rows are: images one behind the other, and in each the pairs 01, 02, ..., 12, ..."""
        offsets = self.scenes.object_offsets
        image = np.searchsorted(offsets, pairs[:, 0], "right") - 1
        local = pairs - offsets[image][:, None]
        low, high, count = local.min(1), local.max(1), np.diff(offsets)[image]
        rows: np.ndarray = self._first_pair[image] + low * (2 * count - low - 1) // 2 + high - low - 1
        return rows
