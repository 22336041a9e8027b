"""Every layout that can be read, found by looking: which one is this folder, what is in it, what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from wayfare.data.findings import Findings
from wayfare.errors import DataError

# Each is a module with recognises(path) and check(path, strict, progress); the more particular come first.
NAMES = (
    "msls", "psg", "mirflickr", "fashion", "pair_nuswide", "pair_coco", "pair_wikipedia", "pair_mats", "celeba",
    "cifar", "pair_table", "photos", "traces", "folder",
)  # fmt: skip
DESCRIPTIONS = {
    "msls": "Mapillary Street-level Sequences: train_val/<city>/{query,database}/",
    "psg": "panoptic scene graphs: psg.json",
    "mirflickr": "MIRFlickr-25K: im1.jpg ..., meta/tags, annotations",
    "fashion": "FashionVC, Ssense: image.mat, tag.mat, label.mat",
    "pair_nuswide": "NUS-WIDE: Groundtruth/AllLabels, ImageList, NUS_WID_Tags",
    "pair_coco": "COCO: annotations/captions_*.json and instances_*.json",
    "pair_wikipedia": "Wikipedia: raw_features.mat and two lists, or wikiData.mat",
    "pair_mats": "pairs in MATLAB files: images or IAll, YAll, LAll",
    "pair_table": "pictures with texts and labels: a CSV table, photo,text,labels",
    "celeba": "CelebA: list_attr_celeba.txt or .csv",
    "cifar": "CIFAR-10: data_batch_1 ... or data_batch_1.bin ...",
    "traces": "traces of devices or contacts: CSV, t x y, t i j, GPX",
    "photos": "geotagged photos: EXIF, a CSV table, or @-names",
    "folder": "a folder of pictures for each class",
}
Progress = Callable[[int, int], None]  # how far, of how many


class Found(NamedTuple):
    """A data set in a known layout."""

    layout: str
    path: Path

    @property
    def module(self) -> ModuleType:
        """Its reader."""
        return import_module(f"wayfare.data.{self.layout}")


def find(path: Path) -> list[Found]:
    """The data sets at a path: the folder itself, or else those among the folders in it, as in a town."""
    if not path.exists():
        raise DataError("no such file or folder", path)
    here = _layout_of(path)
    if here and not (path / "town.json").exists():
        return [Found(here, path)]
    inside = sorted(item for item in path.iterdir() if not item.name.startswith(".")) if path.is_dir() else []
    found = [Found(layout, item) for item in inside if (layout := _layout_of(item))]
    if not found:
        known = "; ".join(DESCRIPTIONS.values())
        what = "nothing in it" if path.is_dir() and not inside else "not in a layout that is known"
        raise DataError(what, path, remedy=f"expected one of: {known}")
    return found


def check(path: Path, strict: bool = False, progress: Progress | None = None) -> Iterator[Findings]:
    """What each data set at a path holds and what is wrong with it; `strict` raises the first thing that is."""
    for found in find(path):
        yield found.module.check(found.path, strict, progress)


def _layout_of(path: Path) -> str:
    return next((name for name in NAMES if import_module(f"wayfare.data.{name}").recognises(path)), "")
