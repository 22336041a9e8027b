"""Scene graphs in psg.json form.

    psg.json (or .json.gz)          annotations of all pictures; UserN.json of the federated benchmark has this form too
    train2017/000000000025.jpg      the pictures, where there are any: beside it, or in a folder `coco` beside or above
    panoptic_train2017/....png      which segment each pixel belongs to: id = red + 256 green + 65536 blue, 0 is none
    word_categorized.json           super-classes of objects and predicates: see super_classes.py

Boxes are x1, y1, x2, y2 in pixels, x2 and y2 outside. Sizes, segments and panoptic pictures may be absent, as they are
in Visual Relationship Detection's annotations when put in this form. An entry that cannot be used is left out and
listed; so is a relation that points nowhere; a box that reaches beyond the picture is cut there, and listed.
"""

from __future__ import annotations

import gzip
import zlib
from array import array
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.core.errors import DataError
from wayfare.io.entries import GZIP, read_entries
from wayfare.io.findings import Findings, Problems, Progress, recogniser
from wayfare.io.probe import check_each, check_pictures
from wayfare.io.tables import kind_of
from wayfare.scenes.data.scene_graphs import Quirk, SceneGraphs, read_panoptic

MAX_OBJECTS = 4096  # in one picture
MAX_CLASSES = 10_000
_MAX_ID = 2**24  # what the three bytes of a pixel can say
_LARGEST = 1_000_000  # pixels, of a side: beyond any picture, and exact in float32
_NAMES = ("psg.json", "psg.json.gz")
_HEAD = 2**18  # bytes at each end that are looked at to recognise a file


def load(path: Path, *, strict: bool = False, drop: Collection[Quirk] = (), pictures: bool = False) -> SceneGraphs:
    """The graphs of a psg.json, or of the only such file of a folder.

    What is odd but not wrong is kept unless it is named in `drop` (see `SceneGraphs.without`); `pictures` leaves out
    entries whose picture is not there. What is wrong is in `problems` of the result; `strict` raises it.
    """
    path = the_file(path)
    problems = Problems(strict)
    graphs = _read(path, problems).without(*drop)
    if pictures:
        there = np.array([graphs.picture(index) is not None for index in range(len(graphs))], bool)
        for index in np.flatnonzero(~there):
            problems.note(_dangling(path, graphs, int(index), "file_name", graphs.files[index]))
        graphs = graphs.select(there)
    return graphs


def the_file(path: Path) -> Path:
    """The path, or the only file of scene graphs in that folder."""
    if not path.is_dir():
        return path
    files = _files(path)
    if len(files) != 1:
        found = f"several files hold scene graphs: {', '.join(file.name for file in files[:4])}, ..."
        remedy = "give one of them" if files else "expected psg.json"
        raise DataError(found if files else "no scene graphs here", path, remedy=remedy)
    return files[0]


@recogniser
def recognises(path: Path) -> bool:
    """Whether it is a file in psg.json form, or a folder with one."""
    return bool(_files(path)) if path.is_dir() else path.is_file() and _looks_right(path)


def check(path: Path, strict: bool = False, progress: Progress | None = None) -> Findings:
    """Everything that can be known to be wrong: the annotations, and all pictures that are there, to the last pixel."""
    files = _files(path) if path.is_dir() else [path]
    if not files:
        raise DataError("no scene graphs here", path, remedy="expected psg.json")
    problems = Problems(strict)
    totals: dict[str, int] = {}
    for file in files:
        graphs = _read(file, problems)
        counts = {**graphs.counts(), **_check_files(file, graphs, problems, progress)}
        vocabulary = ("object classes", "predicates")
        totals = {
            name: max(count, totals.get(name, 0)) if name in vocabulary else count + totals.get(name, 0)
            for name, count in counts.items()
        }
    return Findings("psg", path, {"files": len(files), **totals} if len(files) > 1 else totals, problems)


# ---- Which file


def _files(folder: Path) -> list[Path]:
    named = [folder / name for name in _NAMES if (folder / name).is_file()]
    if named:
        return named[:1]
    files = sorted(file for file in folder.iterdir() if file.name.endswith((".json", ".json.gz")))
    return [file for file in files if file.is_file() and _looks_right(file)]


def _looks_right(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            head = opened.read(_HEAD)
            opened.seek(max(file.stat().st_size - _HEAD, 0))
            ends = head + opened.read(_HEAD)
        if head.startswith(GZIP):
            with gzip.open(file) as unpacked:
                ends = unpacked.read(_HEAD)
    except (OSError, EOFError, zlib.error):
        return False
    return b'"predicate_classes"' in ends or (b'"relations"' in ends and b'"annotations"' in ends)


# ---- Reading entries


def _read(file: Path, problems: Problems) -> SceneGraphs:
    reader = _Reader(file, problems)
    facts = read_entries(file, "data", reader.take)
    return _in_range(reader.graphs(facts), file)


class _Wrong(Exception):
    """What is wrong with an entry, and where in it."""

    def __init__(self, where: str, what: str, remedy: str = "correct or remove the entry") -> None:
        self.where, self.what, self.remedy = where, what, remedy


class _Reader:
    """Takes entries, keeps what is needed of those that have the right form."""

    def __init__(self, file: Path, problems: Problems) -> None:
        self.file, self.problems = file, problems
        self.places: dict[str, int] = {}  # of each image id in the file's list
        self.names: list[tuple[str, str]] = []  # of the picture and the panoptic picture
        self.heads, self.boxes = array("q"), array("f")
        self.objects, self.relations = array("q"), array("q")
        self.counts = array("q")

    def take(self, number: int, line: int, entry: Any) -> None:
        try:
            self._take(number, line, entry)
        except _Wrong as wrong:
            self.problems.add(wrong.what, self.file, line, f"data[{number}]{wrong.where}", wrong.remedy)

    def _take(self, number: int, line: int, entry: Any) -> None:
        if type(entry) is not dict:
            raise _Wrong("", f"expected an object, found {kind_of(entry)}")
        image_id = _image_id(entry.get("image_id"), ".image_id")
        if image_id in self.places:
            raise _Wrong(".image_id", f"{image_id!r} is that of data[{self.places[image_id]}] too", "remove one")
        names = _file_name(entry, "file_name"), _file_name(entry, "pan_seg_file_name", "")
        size = [_whole(entry[key], f".{key}", 1, _LARGEST) if key in entry else 0 for key in ("height", "width")]
        if (size[0] == 0) != (size[1] == 0):
            raise _Wrong("", "it has only one of height and width")
        boxes, labels = _annotations(entry)
        segments = _segments(entry, labels)
        relations = _relations(entry)
        self.places[image_id] = number
        self.names.append(names)
        self.heads.extend((number, line, *size))
        self.boxes.extend(boxes)
        self.objects.extend(value for row in zip(labels, *segments) for value in row)
        self.relations.extend(relations)
        self.counts.extend((len(labels), len(relations) // 3))

    def graphs(self, facts: dict[str, Any]) -> SceneGraphs:
        heads = np.array(self.heads, np.int64).reshape(-1, 4)
        objects = np.array(self.objects, np.int64).reshape(-1, 4)
        offsets = np.zeros((len(self.names) + 1, 2), np.int64)
        np.cumsum(np.array(self.counts, np.int64).reshape(-1, 2), axis=0, out=offsets[1:])
        names = np.array(self.names, object).reshape(-1, 2)
        things, stuff = _words(facts, "thing_classes", self.file), _words(facts, "stuff_classes", self.file, ())
        if twice := set(things) & set(stuff):
            raise DataError(
                f"{min(twice)!r} is also a thing class", self.file, field="stuff_classes", remedy="rename one"
            )
        return SceneGraphs(
            root=self.file.parent,
            things=things,
            stuff=stuff,
            predicates=_words(facts, "predicate_classes", self.file),
            test_image_ids=_test_ids(facts.get("test_image_ids", []), self.file),
            image_ids=np.array([*self.places, None], object)[:-1],
            files=names[:, 0],
            panoptic_files=names[:, 1],
            sizes=heads[:, 2:].astype(np.int32),
            lines=heads[:, 1],
            entries=heads[:, 0],
            object_offsets=offsets[:, 0].copy(),
            boxes=np.array(self.boxes, np.float32).reshape(-1, 4),
            labels=objects[:, 0].astype(np.int32),
            segment_ids=objects[:, 1].astype(np.int32),
            areas=objects[:, 2].copy(),
            crowd=objects[:, 3].astype(bool),
            relation_offsets=offsets[:, 1].copy(),
            relations=np.array(self.relations, np.int64).reshape(-1, 3).astype(np.int32),
            problems=self.problems,
        )


def _annotations(entry: dict[str, Any]) -> tuple[list[float], list[int]]:
    boxes: list[float] = []
    labels = []
    for place, item in enumerate(_list(entry, "annotations", MAX_OBJECTS)):
        where = f".annotations[{place}]"
        if type(item) is not dict:
            raise _Wrong(where, f"expected an object, found {kind_of(item)}")
        box = item.get("bbox")
        if type(box) is not list or len(box) != 4:
            raise _Wrong(f"{where}.bbox", f"expected a list of four numbers, found {kind_of(box)}")
        for value in box:
            if type(value) not in (int, float) or not -_LARGEST <= value <= _LARGEST:
                raise _Wrong(f"{where}.bbox", f"expected numbers up to {_LARGEST}, found {kind_of(value)}")
        if item.get("bbox_mode", 0) != 0:
            remedy = "write boxes as x1, y1, x2, y2 with bbox_mode 0"
            raise _Wrong(f"{where}.bbox_mode", f"expected 0, found {kind_of(item['bbox_mode'])}", remedy)
        boxes += box
        labels.append(_whole(item.get("category_id"), f"{where}.category_id", 0, 2**31 - 1))
    return boxes, labels


def _segments(entry: dict[str, Any], labels: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Ids in the panoptic picture, areas, and whether each is a crowd."""
    if "segments_info" not in entry:
        return [-1] * len(labels), [-1] * len(labels), [0] * len(labels)
    segments = _list(entry, "segments_info", MAX_OBJECTS)
    if len(segments) != len(labels):
        what = f"{len(segments)} segments, but {len(labels)} annotations: expected one of each for every object"
        raise _Wrong(".segments_info", what)
    ids, areas, crowd = [], [], []
    for place, item in enumerate(segments):
        where = f".segments_info[{place}]"
        if type(item) is not dict:
            raise _Wrong(where, f"expected an object, found {kind_of(item)}")
        if item.get("category_id") != labels[place]:
            what = f"{kind_of(item.get('category_id'))}, but annotations[{place}] has {labels[place]}"
            raise _Wrong(f"{where}.category_id", what)
        ids.append(_whole(item.get("id"), f"{where}.id", 0, _MAX_ID - 1))
        areas.append(_whole(item.get("area", -1), f"{where}.area", -1, 2**40))
        crowd.append(_whole(item.get("iscrowd", 0), f"{where}.iscrowd", 0, 1))
    if len(set(ids)) != len(ids):
        twice = next(value for value in ids if ids.count(value) > 1)
        raise _Wrong(".segments_info", f"two segments have the id {twice}")
    return ids, areas, crowd


def _relations(entry: dict[str, Any]) -> list[int]:
    found: list[int] = []
    for place, item in enumerate(_list(entry, "relations", MAX_OBJECTS**2)):
        if type(item) is not list or len(item) != 3:
            what = f"expected [subject, object, predicate], found {kind_of(item)}"
            raise _Wrong(f".relations[{place}]", what)
        for value in item:
            if type(value) is not int or not 0 <= value < 2**31:
                raise _Wrong(f".relations[{place}]", f"expected whole numbers from 0, found {kind_of(value)}")
        found += item
    return found


def _list(entry: dict[str, Any], key: str, most: int) -> list[Any]:
    found = entry.get(key)
    if type(found) is not list:
        raise _Wrong(f".{key}", "it is missing" if key not in entry else f"expected a list, found {kind_of(found)}")
    if len(found) > most:
        raise _Wrong(f".{key}", f"{len(found)} of them, at most {most} are read")
    return found


def _whole(value: Any, where: str, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise _Wrong(where, f"expected a whole number from {low} to {high}, found {kind_of(value)}")
    return value


def _image_id(value: Any, where: str) -> str:
    if type(value) is int and abs(value) < 2**63:
        return str(value)
    if type(value) is not str or not value or len(value) > 1000:
        raise _Wrong(where, f"expected the image's id, found {kind_of(value)}")
    return value


def _file_name(entry: dict[str, Any], key: str, default: str | None = None) -> str:
    value = entry.get(key, default)
    if type(value) is not str or (not value and default is None) or len(value) > 1000:
        raise _Wrong(f".{key}", f"expected the name of a file, found {kind_of(value)}")
    if "\0" in value or not value.isprintable() or ".." in Path(value).parts or Path(value).is_absolute():
        raise _Wrong(f".{key}", f"not a name below this folder: {kind_of(value)}")
    return value


# ---- What the file says once for all pictures


def _words(facts: dict[str, Any], key: str, file: Path, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
    words = facts.get(key, default)
    if isinstance(words, tuple):
        return words
    if not isinstance(words, list) or len(words) > MAX_CLASSES:
        what = "it is missing" if key not in facts else f"expected a list of names, found {kind_of(words)}"
        raise DataError(what, file, field=key)
    for place, word in enumerate(words):
        if not isinstance(word, str) or not word.strip():
            raise DataError(f"expected a name, found {kind_of(word)}", file, field=f"{key}[{place}]")
    if len(set(words)) != len(words):
        twice = next(word for word in words if words.count(word) > 1)
        raise DataError(f"{kind_of(twice)} appears twice", file, field=key, remedy="rename one")
    return tuple(words)


def _test_ids(values: Any, file: Path) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise DataError(f"expected a list of image ids, found {kind_of(values)}", file, field="test_image_ids")
    try:
        return tuple(_image_id(value, f"test_image_ids[{place}]") for place, value in enumerate(values))
    except _Wrong as wrong:
        raise DataError(wrong.what, file, field=wrong.where) from wrong


# ---- Numbers that must fit each other


def _in_range(graphs: SceneGraphs, file: Path) -> SceneGraphs:
    """Without pictures that have an unknown class or an empty box, and without relations that point nowhere."""
    whole = np.ones(len(graphs), bool)
    for place in np.flatnonzero(graphs.labels >= len(graphs.classes)):
        what = f"{graphs.labels[place]}, but there are {len(graphs.classes)} classes"
        whole[_note(graphs, "annotations", place, what, file=file, key="category_id")] = False
    limits = np.where(graphs.sizes[:, ::-1] > 0, graphs.sizes[:, ::-1], np.inf)[graphs.object_images]
    boxes = graphs.boxes.clip(0, np.tile(limits, 2).astype(np.float32)).astype(np.float32)
    empty = np.any(boxes[:, 2:] <= boxes[:, :2], axis=1)
    for place in np.flatnonzero(empty | np.any(boxes != graphs.boxes, axis=1)):
        shown = ", ".join(f"{value:g}" for value in graphs.boxes[place])
        fault = "is outside the picture" if empty[place] else "reaches beyond the picture: cut off"
        image = _note(graphs, "annotations", place, f"[{shown}] {fault}", file=file, key="bbox")
        whole[image] &= not empty[place]
    objects = np.diff(graphs.object_offsets)[graphs.relation_images]
    aimless = np.any(graphs.relations[:, :2] >= objects[:, None], axis=1)
    unknown = graphs.relations[:, 2] >= len(graphs.predicates)
    for place in np.flatnonzero(aimless | unknown):
        subject, target, predicate = graphs.relations[place].tolist()
        what = f"[{subject}, {target}, {predicate}], but the picture has {objects[place]} objects"
        if not aimless[place]:
            what = f"predicate {predicate}, but there are {len(graphs.predicates)}"
        _note(graphs, "relations", place, what, file=file)
    if not (aimless | unknown).any() and whole.all() and np.array_equal(boxes, graphs.boxes):
        return graphs
    return replace(graphs, boxes=boxes).keep_relations(~(aimless | unknown)).select(whole)


def _note(graphs: SceneGraphs, part: str, place: np.integer, what: str, *, file: Path, key: str = "") -> int:
    """List a problem of an object or a relation; says which picture it is in."""
    offsets = graphs.relation_offsets if part == "relations" else graphs.object_offsets
    image = int(np.searchsorted(offsets, place, "right")) - 1
    where = f"data[{graphs.entries[image]}].{part}[{place - offsets[image]}]" + (f".{key}" if key else "")
    graphs.problems.add(what, file, int(graphs.lines[image]), where, "correct or remove it")
    return image


# ---- The pictures


def _dangling(file: Path, graphs: SceneGraphs, index: int, key: str, name: str) -> DataError:
    where = f"data[{graphs.entries[index]}].{key}"
    remedy = f"put it into {graphs.root / Path(name).parent}"
    return DataError(f"no picture {name}", file, int(graphs.lines[index]), where, remedy)


def _check_files(file: Path, graphs: SceneGraphs, problems: Problems, progress: Progress | None) -> dict[str, int]:
    """Where pictures of a kind are there at all, each must be there, whole, and as the annotations say."""
    found = {index: path for index in range(len(graphs)) if (path := graphs.picture(index)) is not None}
    panoptic = {index: path for index in range(len(graphs)) if (path := graphs.panoptic(index)) is not None}
    for kind, key, names in (
        (found, "file_name", graphs.files),
        (panoptic, "pan_seg_file_name", graphs.panoptic_files),
    ):
        for index in range(len(graphs)) if kind else ():
            if index not in kind and names[index]:
                problems.note(_dangling(file, graphs, index, key, names[index]))
    sizes = [(int(graphs.sizes[index, 0]), int(graphs.sizes[index, 1])) for index in found]
    both = len(found) + len(panoptic)
    first = None if progress is None else lambda done, _: progress(done, both)
    whole = check_pictures(list(found.values()), problems, first, sizes)
    places = list(panoptic)

    def faults(place: int) -> list[DataError]:
        return _panoptic_faults(graphs, places[place], panoptic[places[place]])

    second = None if progress is None else lambda done, _: progress(len(found) + done, both)
    exact = check_each(len(places), faults, problems, second)
    return {"whole pictures": whole, "whole panoptic pictures": exact}


def _panoptic_faults(graphs: SceneGraphs, index: int, file: Path) -> list[DataError]:
    entry = f"data[{graphs.entries[index]}].segments_info"
    ids = read_panoptic(file)
    size = tuple(graphs.sizes[index].tolist())
    if any(size) and ids.shape != size:
        return [DataError(f"{ids.shape[1]} x {ids.shape[0]} pixels, {entry} says {size[1]} x {size[0]}", file)]
    values, areas = np.unique(ids, return_counts=True)
    drawn = dict(zip(values.tolist(), areas.tolist()))
    objects = slice(graphs.object_offsets[index], graphs.object_offsets[index + 1])
    listed = dict(zip(graphs.segment_ids[objects].tolist(), graphs.areas[objects].tolist()))
    faults = []
    for value, area in listed.items():
        if value not in drawn:
            faults.append(DataError(f"no pixel has the id {value} of {entry}", file))
        elif area not in (-1, drawn[value]):
            faults.append(DataError(f"{drawn[value]} pixels have the id {value}, {entry} says {area}", file))
    extra = [value for value in drawn if value not in listed and value != 0]
    faults += [
        DataError(f"{drawn[value]} pixels have the id {value}, which is not in {entry}", file) for value in extra
    ]
    return faults
