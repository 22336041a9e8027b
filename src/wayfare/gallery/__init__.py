"""Looking at a data set: reads it with its loader and hands what is worth seeing to the page, as plain data.

album.py      small pictures
places.py     photographs of places: MSLS, geotagged photographs
scenes.py     scene graphs
labelled.py   pictures with words, labels, attributes or classes
movement.py   traces and contacts
maps.py       where all of it is
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from wayfare.data.findings import Problems
from wayfare.data.layouts import DESCRIPTIONS, Found, find
from wayfare.data.pair_source import Options
from wayfare.data.tables import read_json
from wayfare.errors import DataError
from wayfare.gallery import labelled, maps, movement, places, scenes
from wayfare.gallery.album import Album
from wayfare.gallery.parts import Gathered
from wayfare.reports.dataset_parts import Collection, DataSet

_ORDER = (
    "msls", "photos", "traces", "psg", "mirflickr", "celeba", "fashion", "pair_nuswide", "pair_coco",
    "pair_wikipedia", "pair_mats", "pair_table", "cifar", "folder",
)  # on the page  # fmt: skip
Progress = Callable[[str, int, int], None]  # what is being read, how far, of how many


def gather(path: Path, progress: Progress = lambda *_: None) -> Collection:
    """Everything that the page shows. A data set that cannot be read at all is listed with the reason."""
    found = sorted(find(path), key=lambda item: _ORDER.index(item.layout))
    sets: list[DataSet] = []
    sources: list[maps.Source] = []
    album = Album()
    for place, item in enumerate(found):
        progress(f"reading {item.path.name}", place, len(found))
        before = len(album.broken)
        try:
            gathered = _gather(item, album)
        except DataError as error:
            if len(found) == 1:
                raise
            gathered = Gathered(counts={}, problems=_only(error))
        sources += gathered.sources
        sets.append(_data_set(item, gathered, album.broken[before:]))
    progress("drawing", len(found), len(found))
    return Collection(path.resolve().name, str(path), sets, maps.draw(sources), _town(path))


def _gather(item: Found, album: Album) -> Gathered:
    match item.layout:
        case "msls" | "photos":
            return places.gather(item.path, item.layout, album)
        case "psg":
            return scenes.gather(item.path, album)
        case "mirflickr":
            return labelled.gather_mirflickr(item.path, album)
        case "fashion":
            return labelled.gather_fashion(item.path, album)
        case "pair_nuswide" | "pair_coco" | "pair_wikipedia" | "pair_mats" | "pair_table":
            return labelled.gather_pairs(item.module.read(item.path, Options()), album)
        case "celeba":
            return labelled.gather_celeba(item.path, album)
        case "cifar":
            return labelled.gather_cifar(item.path, album)
        case "traces":
            return movement.gather(item.path)
        case "folder":
            return labelled.gather_folder(item.path, album)
    raise DataError(f"nothing is known about showing the layout {item.layout!r}", item.path)


def _only(error: DataError) -> Problems:
    problems = Problems()
    problems.note(error)
    return problems


def _data_set(item: Found, gathered: Gathered, left_out: list[str]) -> DataSet:
    broken = list(dict.fromkeys(left_out))  # a picture may have been wanted twice
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
