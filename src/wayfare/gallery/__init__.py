"""Looking at a data set: reads it with its loader and hands what is worth seeing to the page, as plain data.

Each layout is read by the `gallery` module of its package: places, scenes, hashing, attributes, objects, encounters.
"""

from __future__ import annotations

from pathlib import Path

from wayfare.attributes import gallery as attributes
from wayfare.core.errors import DataError
from wayfare.core.protocols import Progress, silent
from wayfare.encounters import gallery as encounters
from wayfare.hashing import gallery as hashing
from wayfare.io.findings import Problems
from wayfare.io.layouts import DESCRIPTIONS, FoundLayout, find
from wayfare.io.tables import read_json
from wayfare.objects import gallery as objects
from wayfare.pages import maps
from wayfare.pages.dataset_parts import Collection, DataSet
from wayfare.pages.gallery_parts import Gathered
from wayfare.pages.thumbnails import Thumbnails
from wayfare.places import gallery as places
from wayfare.scenes import gallery as scenes

_ORDER = (
    "msls", "photos", "traces", "psg", "mirflickr", "celeba", "fashion", "nuswide", "coco",
    "wikipedia", "mat_pairs", "csv_pairs", "cifar", "folder",
)  # on the page  # fmt: skip


def gather(path: Path, progress: Progress = silent, layout: str = "") -> Collection:
    """Everything that the page shows. A data set that cannot be read at all is listed with the reason."""
    found = sorted(find(path, layout), key=lambda item: _ORDER.index(item.layout))
    sets: list[DataSet] = []
    sources: list[maps.MapSource] = []
    thumbnails = Thumbnails()
    for place, item in enumerate(found):
        progress(f"reading {item.path.name}", place, len(found))
        before = len(thumbnails.broken)
        try:
            gathered = _gather(item, thumbnails)
        except DataError as error:
            if len(found) == 1:
                raise
            gathered = Gathered(counts={}, problems=_only(error))
        sources += gathered.sources
        sets.append(_data_set(item, gathered, thumbnails.broken[before:]))
    progress("drawing", len(found), len(found))
    return Collection(path.resolve().name, str(path), sets, maps.draw(sources), _town(path))


def _gather(item: FoundLayout, thumbnails: Thumbnails) -> Gathered:
    match item.layout:
        case "msls" | "photos":
            return places.gather(item.path, item.layout, thumbnails)
        case "psg":
            return scenes.gather(item.path, thumbnails)
        case "mirflickr":
            return hashing.gather_mirflickr(item.path, thumbnails)
        case "fashion":
            return hashing.gather_fashion(item.path, thumbnails)
        case "nuswide" | "coco" | "wikipedia" | "mat_pairs" | "csv_pairs":
            return hashing.gather_pairs(item.module.read(item.path, Problems()), thumbnails)
        case "celeba":
            return attributes.gather_celeba(item.path, thumbnails)
        case "cifar":
            return objects.gather_cifar(item.path, thumbnails)
        case "traces":
            return encounters.gather(item.path, item.form)
        case "folder":
            return objects.gather_folder(item.path, thumbnails)
    raise DataError(f"the layout {item.layout!r} cannot be shown", item.path)


def _only(error: DataError) -> Problems:
    problems = Problems()
    problems.note(error)
    return problems


def _data_set(item: FoundLayout, gathered: Gathered, left_out: list[str]) -> DataSet:
    broken = list(dict.fromkeys(left_out))  # a picture may have been opened twice
    return DataSet(
        name=item.path.resolve().name,
        layout=item.layout,
        description=DESCRIPTIONS[item.layout],
        counts=gathered.counts,
        problems=[*broken, *map(str, gathered.problems.found)],
        problem_count=gathered.problems.count + len(broken),
        strips=gathered.strips,
        scenes=gathered.scenes,
        cards=gathered.cards,
        classes=gathered.classes,
        bars=gathered.bars,
    )


def _town(path: Path) -> dict[str, str]:
    """What made the town, if it is one."""
    file = path / "town.json"
    if not path.is_dir() or not file.is_file():
        return {}
    spec = read_json(file)
    spec = spec.get("spec") if isinstance(spec, dict) else None
    return {name: str(spec[name]) for name in ("size", "seed") if name in spec} if isinstance(spec, dict) else {}
