"""Where annotated pictures come from: PSG's file or one in its form, or the synthetic town.

A layout of your own extends `SceneData` with a `load` that gives `SceneGraphs`; nothing here knows a network or a loss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal, Self

import numpy as np

from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Data, Progress
from wayfare.core.seeds import rng_for
from wayfare.io.cache import cache_dir
from wayfare.scenes.data import psg, super_classes
from wayfare.scenes.data.client_files import read_lists
from wayfare.scenes.data.scene_graphs import SceneGraphs
from wayfare.scenes.data.super_classes import SuperClasses


@dataclass(frozen=True, kw_only=True)
class SceneData(Data):
    """Annotated pictures, which of them are for testing, and the groups that their classes fall into."""

    test: int = 2000  # pictures to test with, where the data names none
    test_seed: int = 0  # which these are
    apart: str = ""  # clients' pictures, in the form of the partition `listed`: the drawn test pictures are others
    super_classes: str = ""  # groups of classes and predicates: a file, "paper" or "none"; "": see super_classes.choose

    def __post_init__(self) -> None:
        if self.test < 1:
            raise ConfigError(f"data.test = {self.test}: expected at least 1")

    def load(self, progress: Progress) -> SceneGraphs:
        """All pictures that have relations."""
        raise NotImplementedError

    def is_test(self, graphs: SceneGraphs) -> np.ndarray:
        """bool (N,): the pictures to test with, those that the data names or else drawn ones."""
        if graphs.test.any():
            return graphs.test
        order = rng_for(self.test_seed, "test pictures").permutation(len(graphs))
        if self.apart:
            listed = {image_id for ids in read_lists(Path(self.apart)) for image_id in ids}
            order = order[[image_id not in listed for image_id in graphs.image_ids[order]]]
        if self.test >= len(graphs) or self.test > len(order):
            raise ConfigError(f"data.test = {self.test} leaves none of {len(order)} pictures to train on")
        drawn = np.zeros(len(graphs), bool)
        drawn[order[: self.test]] = True
        return drawn

    def file(self, progress: Progress) -> Path:
        """The annotations' file."""
        raise NotImplementedError

    @property
    def is_own(self) -> bool:
        """Whether these are a real device's own pictures, not a part of a simulation's."""
        return False

    def groups(self, graphs: SceneGraphs) -> SuperClasses | None:
        return super_classes.choose(self.super_classes, graphs.root, graphs.classes, graphs.predicates)

    def at(self, path: str) -> PsgScenes:
        """The same choices for annotations at this place."""
        return PsgScenes(
            path=path, test=self.test, test_seed=self.test_seed, apart=self.apart, super_classes=self.super_classes
        )


@dataclass(frozen=True, kw_only=True)
class PsgScenes(SceneData):
    """A psg.json, or VRD in the same form."""

    path: str = ""  # the file, or its folder
    own: bool = False  # it is a device's own: nothing is held back to test with

    def load(self, progress: Progress) -> SceneGraphs:
        file = self.file(progress)
        return _read(file, file.stat().st_mtime_ns if file.is_file() else 0)

    def file(self, progress: Progress) -> Path:
        if not self.path:
            raise ConfigError("data.path: expected a psg.json or its folder; data.name = 'town' needs no files")
        return psg.the_file(Path(self.path))

    def is_test(self, graphs: SceneGraphs) -> np.ndarray:
        return graphs.test if self.own else super().is_test(graphs)

    @property
    def is_own(self) -> bool:
        return self.own

    def on_folder(self, path: str) -> Self:
        return replace(self, path=path, own=True)


@dataclass(frozen=True, kw_only=True)
class TownScenes(SceneData):
    """The synthetic town's photos, made on first use."""

    size: Literal["tiny", "small", "city"] = "small"
    seed: int = 0

    def load(self, progress: Progress) -> SceneGraphs:
        return self.at(str(self.folder(progress))).load(progress)

    def file(self, progress: Progress) -> Path:
        return psg.the_file(self.folder(progress))

    def folder(self, progress: Progress) -> Path:
        """Where its psg.json is."""
        from wayfare.town.make import Spec, make  # slow to import; other data do without

        spec = Spec(self.size, self.seed, layouts=("psg",))
        folder = cache_dir() / "towns" / f"scenes-{spec.size}-{spec.seed}-form{spec.form}"
        make(folder, spec, progress=lambda text, done, total: progress(f"making the town: {text}", done, total))
        return folder / "psg"


@lru_cache(maxsize=1)
def _read(file: Path, date: int) -> SceneGraphs:
    """Pictures that have relations: read once for all experiments of a process, unless the file changes."""
    return psg.load(file, drop=("self", "duplicates", "empty"))
