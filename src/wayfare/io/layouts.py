"""Detecting and checking known data set layouts: which one a folder has, what it holds, what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from wayfare.core.errors import DataError, unknown
from wayfare.io.findings import Findings
from wayfare.io.unknown import READ, contents, unknown_tables

# Each is a module with recognises(path) and check(path, strict, progress); the more specific ones come first.
MODULES = {
    "msls": "wayfare.places.data.msls",
    "psg": "wayfare.scenes.data.psg",
    "mirflickr": "wayfare.hashing.data.mirflickr",
    "fashion": "wayfare.hashing.data.fashion",
    "nuswide": "wayfare.hashing.data.nuswide",
    "coco": "wayfare.hashing.data.coco",
    "wikipedia": "wayfare.hashing.data.wikipedia",
    "mat_pairs": "wayfare.hashing.data.mat_pairs",
    "celeba": "wayfare.attributes.data.celeba",
    "cifar": "wayfare.objects.data.cifar",
    "csv_pairs": "wayfare.hashing.data.csv_pairs",
    "photos": "wayfare.places.data.photos",
    "traces": "wayfare.encounters.traces",
    "folder": "wayfare.objects.data.folder",
}
DESCRIPTIONS = {
    "msls": "Mapillary Street-level Sequences: train_val/<city>/{query,database}/",
    "psg": "panoptic scene graphs: psg.json",
    "mirflickr": "MIRFlickr-25K: im1.jpg ..., meta/tags, annotations",
    "fashion": "FashionVC, Ssense: image.mat, tag.mat, label.mat",
    "nuswide": "NUS-WIDE: Groundtruth/AllLabels, ImageList, NUS_WID_Tags",
    "coco": "COCO: annotations/captions_*.json and instances_*.json",
    "wikipedia": "Wikipedia: raw_features.mat and two lists, or wikiData.mat",
    "mat_pairs": "pairs in MATLAB files: images or IAll, YAll, LAll",
    "csv_pairs": "pictures with texts and labels: a CSV table, photo,text,labels",
    "celeba": "CelebA: list_attr_celeba.txt or .csv",
    "cifar": "CIFAR-10: data_batch_1.bin ...",
    "traces": "traces of devices or contacts: CSV, t x y, t id x y, t i j, i j start end, GPX",
    "photos": "photos with positions (EXIF, a table, names with @), or two runs of video frames",
    "folder": "a folder of pictures for each class",
}
_NEAR = ("photos", "csv_pairs")  # those that can say what is missing, in near_miss(path)
Progress = Callable[[int, int], None]  # items done, items in all


FORMS = {  # of one layout, which can be named in its place
    "meetings": "traces: lines of `t i j`",
    "intervals": "traces: lines of `i j start end`",
    "connections": "traces: lines of `t CONN i j up`",
    "positions": "traces: lines of `t id x y` or `id t x y`",
    "walk": "traces: lines of `t x y`, a file per device",
}


class FoundLayout(NamedTuple):
    """A data set in a known layout."""

    layout: str
    path: Path
    form: str = ""  # what the user says it is, of those of the layout
    columns: Mapping[str, str] | None = None  # of a table of photos and texts, where they have no usual names

    @property
    def module(self) -> ModuleType:
        """Its reader."""
        return import_module(MODULES[self.layout])

    def check(self, strict: bool = False, progress: Progress | None = None) -> Findings:
        """What it holds, and what is wrong with it."""
        more: dict[str, Any] = {"form": self.form} if self.form else {}
        more |= {"columns": self.columns} if self.columns else {}
        found: Findings = self.module.check(self.path, strict, progress, **more)
        return found


def find(path: Path, layout: str = "") -> list[FoundLayout]:
    """The data sets at a path: the folder itself, or those among its subfolders, as in a generated town.

    With `layout` nothing is guessed: it is the layout of the path itself.
    """
    if not path.exists():
        raise DataError("no such file or folder", path)
    if layout in FORMS:
        return [FoundLayout("traces", path, layout)]
    if layout and layout not in MODULES:
        raise unknown("layout", layout, [*MODULES, *FORMS])
    if layout:
        return [FoundLayout(layout, path)]
    here = _layout_of(path)
    if here == "folder":
        _refuse_tables_below(path)
    if here and not (path / "town.json").exists():
        return [FoundLayout(here, path)]
    inside = sorted(item for item in path.iterdir() if not item.name.startswith(".")) if path.is_dir() else []
    found = [FoundLayout(layout, item) for item in inside if (layout := _layout_of(item))]
    if not found:
        if path.is_dir() and not inside:
            raise DataError("the folder is empty", path, remedy=READ)
        near = [import_module(MODULES[name]).near_miss(path) for name in _NEAR]
        seen = list(filter(None, near)) or [contents(path, FORMS), unknown_tables(path)]
        raise DataError("; ".join(filter(None, ["not in a known layout", *seen])), path, remedy=READ)
    return found


def check(path: Path, strict: bool = False, progress: Progress | None = None) -> Iterator[Findings]:
    """What each data set at a path holds and what is wrong with it; `strict` raises the first problem."""
    for found in find(path):
        yield found.check(strict, progress)


def _refuse_tables_below(path: Path) -> None:
    """Folders with a table each are no class folders: what the tables say would be lost."""
    folders = {file.parent for ending in ("csv", "tsv") for file in path.glob(f"*/*.{ending}")}
    if named := sorted(folder.name for folder in folders if _layout_of(folder) in _NEAR):
        what = f"{len(named)} of its folders have a table of photos of their own, not read here: {', '.join(named[:5])}"
        remedy = (
            "put one table of all photos beside the folders (oslo/1.jpg, ...); or are these classes? --layout folder"
        )
        raise DataError(what, path, remedy=remedy)


def _layout_of(path: Path) -> str:
    return next((name for name, module in MODULES.items() if import_module(module).recognises(path)), "")
