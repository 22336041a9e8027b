"""The features of objects and pairs that a relation head gets, behind one small interface.

    geometry    boxes, segments' areas and labels (see `geometry`): for every annotation, no images needed
    roi         a frozen network's maps over the images, pooled in boxes, beside the numbers of geometry (see `roi` and
                `cached_regions`)
    file        computed before: a file for each image, see `PrecomputedProvider`; `precompute` writes them

All work on many images at once: rows are objects, or pairs of places in the list of all objects.
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from wayfare.core.errors import ConfigError, DataError
from wayfare.io.findings import Progress
from wayfare.scenes.data.scene_graphs import SceneGraphs
from wayfare.scenes.geometry import OBJECT_NUMBERS, PAIR_NUMBERS, object_numbers, pair_numbers
from wayfare.scenes.pairs import all_pairs


class Provider:
    """Features of the objects of some images, and of pairs of places in the list of all these objects."""

    @property
    def width_x(self) -> int:
        """Features of an object."""
        raise NotImplementedError

    @property
    def width_u(self) -> int:
        """Features of a pair."""
        raise NotImplementedError

    def objects(self, scenes: SceneGraphs) -> np.ndarray:
        """float32 (N, width_x)."""
        raise NotImplementedError

    def pairs(self, scenes: SceneGraphs, pairs: np.ndarray) -> np.ndarray:
        """float32 (P, width_u)."""
        raise NotImplementedError

    def prepare(self, progress: Progress | None = None) -> None:
        """Compute what takes long, once."""


class FeatureSource:
    """Which features a model sees: a frozen dataclass of settings. One of your own gives a `Provider`."""

    new_photos: ClassVar[bool] = True  # it has features of pictures that it was not made for

    def provider(self, scenes: SceneGraphs) -> Provider:
        """The features of these scenes, and of parts of them."""
        raise NotImplementedError


@dataclass(frozen=True)
class GeometryFeatures(FeatureSource):
    """Boxes, segments' areas and labels: for every annotation, no images needed."""

    def provider(self, scenes: SceneGraphs) -> Provider:
        return GeometryProvider(len(scenes.classes))


@dataclass(frozen=True)
class PrecomputedFeatures(FeatureSource):
    """Computed before: see `PrecomputedProvider`."""

    path: str  # the folder

    new_photos: ClassVar[bool] = False

    def provider(self, scenes: SceneGraphs) -> Provider:
        return PrecomputedProvider(Path(self.path))


class GeometryProvider(Provider):
    """The class as one of `classes` columns (none with 0), and `OBJECT_NUMBERS`; for pairs, the classes of both and
    `PAIR_NUMBERS`: whoever looks at the box around two things sees what they are."""

    def __init__(self, classes: int) -> None:
        if classes < 0:
            raise ConfigError(f"{classes} classes: at least 0")
        self.classes = classes

    @property
    def width_x(self) -> int:
        return self.classes + len(OBJECT_NUMBERS)

    @property
    def width_u(self) -> int:
        return 2 * self.classes + len(PAIR_NUMBERS)

    def objects(self, scenes: SceneGraphs) -> np.ndarray:
        return self._with_classes(scenes.labels[:, None], object_numbers(scenes))

    def pairs(self, scenes: SceneGraphs, pairs: np.ndarray) -> np.ndarray:
        return self._with_classes(scenes.labels[pairs], pair_numbers(scenes, pairs))

    def _with_classes(self, labels: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """A 1 in the column of each label of a row, and the numbers."""
        if not self.classes:
            return numbers
        if labels.max(initial=0) >= self.classes:
            raise DataError(f"class {labels.max()}, but features are for {self.classes} classes")
        width = labels.shape[1] * self.classes
        rows = np.zeros((len(labels), width + numbers.shape[1]), np.float32)
        for place, column in enumerate(labels.T):
            rows[np.arange(len(rows)), place * self.classes + column] = 1
        rows[:, width:] = numbers
        return rows


class PrecomputedProvider(Provider):
    """A file for each image, named by its id, in the order of the image's objects.

    IMAGE_ID.npz    `x` (K, any width) and `u` (K, K, any width): row subject, column object; the diagonal is not read
    IMAGE_ID.npy    `x` alone; pairs then have the numbers of geometry

    The first file, by name, says which of the two it is and how wide they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = sorted(file for file in folder.glob("*.np[yz]")) if folder.is_dir() else []
        if not files:
            raise DataError("no features here", folder, remedy="expected a file IMAGE_ID.npz or .npy for each image")
        self._suffix = files[0].suffix
        self._width_x: int = self._read(files[0], "x").shape[-1]
        self._width_u = self._read(files[0], "u").shape[-1] if self._suffix == ".npz" else len(PAIR_NUMBERS)

    @property
    def width_x(self) -> int:
        return self._width_x

    @property
    def width_u(self) -> int:
        return self._width_u

    def objects(self, scenes: SceneGraphs) -> np.ndarray:
        counts = np.diff(scenes.object_offsets)
        parts = [
            self._of(image_id, "x", (int(count), self.width_x)) for image_id, count in zip(scenes.image_ids, counts)
        ]
        return np.concatenate([np.zeros((0, self.width_x), np.float32), *parts])

    def pairs(self, scenes: SceneGraphs, pairs: np.ndarray) -> np.ndarray:
        if self._suffix == ".npy":
            return pair_numbers(scenes, pairs)
        rows = np.empty((len(pairs), self.width_u), np.float32)
        image = scenes.object_images[pairs[:, 0]]
        for place in np.unique(image):
            start, end = scenes.object_offsets[place : place + 2]
            square = self._of(scenes.image_ids[place], "u", (int(end - start),) * 2 + (self.width_u,))
            here = image == place
            rows[here] = square[tuple((pairs[here] - start).T)]
        return rows

    def _of(self, image_id: str, key: str, shape: tuple[int, ...]) -> np.ndarray:
        file = self.folder / f"{_plain(image_id, self.folder)}{self._suffix}"
        found = self._read(file, key)
        if found.shape != shape:
            remedy = "compute them again for these annotations"
            raise DataError(f"{key} has the shape {found.shape}, expected {shape}", file, remedy=remedy)
        return found

    @staticmethod
    def _read(file: Path, key: str) -> np.ndarray:
        try:
            with file.open("rb") as opened:
                if file.suffix == ".npz":
                    found = np.load(opened, allow_pickle=False)[key]
                else:
                    found = np.lib.format.read_array(opened, allow_pickle=False)
        except FileNotFoundError as error:
            raise DataError("no features of this image", file, remedy="compute them, or leave it out") from error
        except KeyError as error:
            raise DataError(f"it has no array {key!r}", file, remedy="expected x and u") from error
        except (OSError, ValueError, EOFError, SyntaxError, IndexError, zipfile.BadZipFile, zlib.error) as error:
            raise DataError(f"not a readable array file: {error}", file, remedy="compute it again") from error
        with np.errstate(over="ignore"):  # numbers outside float32 become infinite and are refused below
            rows = found.astype(np.float32) if found.dtype.kind == "f" else np.full(found.shape, np.nan, np.float32)
        if rows.ndim < 2 or not np.isfinite(rows).all():
            what = f"{key} holds {found.dtype} of the shape {found.shape}"
            raise DataError(what, file, remedy="expected finite floating-point numbers, a row for each object")
        return rows


def precompute(scenes: SceneGraphs, source: Provider, folder: Path, progress: Progress | None = None) -> None:
    """Write a provider's features of each image, all pairs included, as files that `PrecomputedProvider` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, image_id in enumerate(scenes.image_ids):
        scene = scenes.select(np.array([place]))
        pairs, count = all_pairs(scene), len(scene.labels)
        u = np.zeros((count, count, source.width_u), np.float32)
        u[pairs[:, 0], pairs[:, 1]] = source.pairs(scene, pairs)
        np.savez(folder / f"{_plain(image_id, folder)}.npz", x=source.objects(scene), u=u)
        if progress is not None:
            progress(place + 1, len(scenes))


def _plain(image_id: str, folder: Path) -> str:
    """The id; raise if it is not a file name within the folder."""
    if image_id != Path(image_id).name or "\\" in image_id or "\0" in image_id:
        raise DataError(f"image id {image_id!r} cannot be a file's name", folder, remedy="rename the image")
    return image_id
