"""Pictures in class folders: what people have when they have photographs.

    DIR/<class>/*.jpg                          split here, four fifths to train, one fifth to test
    DIR/train/<class>/*.jpg  DIR/test/...      split by you
    DIR/<person>/<class>/*.jpg                 a folder for each person; the partition `column` gives each their own

The split is by a hash of each file's name, so it is the same on every machine and for every seed. Pictures are decoded
once, to the size asked for, and kept in the cache under a key made of their names, sizes and dates; a second load maps
that into memory. Pictures that cannot be read are left out and listed, with the reason, in `skipped` of the training
part.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from wayfare.core import protocols
from wayfare.core.errors import ConfigError, DataError, suggestion
from wayfare.core.protocols import SampleFiles
from wayfare.io.cache import cache_dir, new_folder, read_pair, write_array, write_facts
from wayfare.io.decoded import decode_to, key_of
from wayfare.io.findings import Findings, Problems, Progress, recogniser
from wayfare.io.images import SUFFIXES, decode
from wayfare.io.pictures import Pictures, Skipped
from wayfare.io.unknown import UNREAD, to_read
from wayfare.objects.data import ObjectData

_FORM = 1  # of the cache: raise it when decoding changes
_TEST_SHARE = 0.2
_SIDE = 32


@dataclass(frozen=True)
class ClassFolders(ObjectData):
    """A folder of pictures for each class."""

    path: str = ""  # the folder that holds them
    image_size: int = 0  # pictures are resized to this height and width in pixels; 0: what the model prefers
    names: tuple[str, ...] = ()  # the classes, where the folder may have only some of them; (): those it has
    own: bool = False  # the folder is a device's own: nothing is held back to test with

    def __post_init__(self) -> None:
        if self.image_size < 0:
            raise ConfigError(f"data.image_size = {self.image_size}: expected at least 1 pixel, or 0")

    def load(self, progress: protocols.Progress) -> tuple[Pictures, Pictures]:
        if not self.path:
            raise ConfigError("data.path is missing: expected the folder that holds a folder for each class")
        side = self.image_size or _SIDE
        return load(Path(self.path), (side, side), classes=self.names, own=self.own)

    def on_folder(self, path: str) -> Self | None:
        return replace(self, path=path, own=True)

    def files(self, pool: Pictures) -> SampleFiles:
        return pool_files(Path(self.path), self.names, self.own, pool.skipped)

    def sized(self, side: int) -> Self:
        return replace(self, image_size=self.image_size or side)

    def fixed(self, classes: tuple[str, ...]) -> Self:
        return replace(self, names=classes)


@dataclass(frozen=True)
class _Photo:
    file: Path
    label: int
    test: bool | None  # None: not decided by the folder it is in


@dataclass(frozen=True)
class _Listing:
    root: Path
    classes: tuple[str, ...]
    photos: tuple[_Photo, ...]
    unread: tuple[Skipped, ...]  # pictures in formats that are not tried


def load(
    path: Path,
    size: tuple[int, int] = (64, 64),
    strict: bool = False,
    classes: Sequence[str] = (),
    own: bool = False,
) -> tuple[Pictures, Pictures]:
    """Training and test pictures as uint8 (N, H, W, 3), `size` = (H, W); `strict` raises if any had to be left out.

    With `classes` these are the classes, of which the folder may have some only. In a device's own folder nothing is
    held back to test with.
    """
    listing = _chosen(path, classes, own)
    target = cache_dir() / "folders" / _key(listing, size, [list(classes), own] if classes or own else [])
    _ensure(target, listing, size)
    try:
        train, test = read_pair(target)
    except DataError:  # the cache was damaged from outside: the photographs are still there
        shutil.rmtree(target, ignore_errors=True)
        _ensure(target, listing, size)
        train, test = read_pair(target)
    if strict and train.skipped:
        first = train.skipped[0]
        others = f", and {len(train.skipped) - 1} more" if len(train.skipped) > 1 else ""
        raise DataError(f"{first.reason}{others}", file=first.file, remedy="remove it, or load without strict")
    return train, test


def _chosen(path: Path, classes: Sequence[str], own: bool) -> _Listing:
    listing = _among(_list(path), classes) if classes else _list(path)
    if not own:
        return listing
    return replace(listing, photos=tuple(replace(photo, test=False) for photo in listing.photos if not photo.test))


def pool_files(path: Path, classes: Sequence[str], own: bool, skipped: Sequence[Skipped]) -> SampleFiles:
    """The files of the training part that `load` gave, in its order, from the folder on."""
    left_out = {item.file for item in skipped}
    photos = [photo for photo in _chosen(path, classes, own).photos if str(photo.file) not in left_out]
    return SampleFiles(
        path, tuple(photo.file.relative_to(path).as_posix() for photo, test in zip(photos, _split(photos)) if not test)
    )


def files_by_class(path: Path) -> dict[str, list[Path]]:
    """The picture files of each class, to train and to test with; none is opened."""
    listing = _list(path)
    found: dict[str, list[Path]] = {name: [] for name in listing.classes}
    for photo in listing.photos:
        found[listing.classes[photo.label]].append(photo.file)
    return found


@recogniser
def recognises(path: Path) -> bool:
    """Whether it is a folder of class folders with pictures, in most of them at least."""
    listing = _list(path)
    folders = sum(Path(item.file).is_dir() for item in listing.unread)
    return len(listing.classes) > max(1, folders)


def check(path: Path, strict: bool = False, progress: Progress | None = None) -> Findings:
    """How many pictures each class has, and which of them cannot be read."""
    listing, problems = _list(path), Problems(strict)
    for item in listing.unread:
        problems.add(item.reason, item.file)
    for number, photo in enumerate(listing.photos):
        try:
            decode(photo.file)
        except DataError as error:
            problems.note(error)
        if progress:
            progress(number + 1, len(listing.photos))
    sizes = {name: sum(p.label == i for p in listing.photos) for i, name in enumerate(listing.classes)}
    counts = {"pictures": len(listing.photos), "classes": len(listing.classes), **sizes}
    return Findings("folder", path, counts, problems)


# ---- What is there


def _list(root: Path) -> _Listing:
    if not root.is_dir():
        raise DataError("no such folder" if not root.exists() else "expected a folder of class folders", file=root)
    if (root / "train").is_dir() and (root / "test").is_dir():
        classes = _class_names(root / "train")
        unknown = [name for name in _class_names(root / "test") if name not in classes]
        if unknown:
            raise DataError(f"no class of this name under {root / 'train'}", file=root / "test" / unknown[0])
        parts: list[tuple[Path, bool | None, list[str]]]
        parts = [(root / "train", False, classes), (root / "test", True, _class_names(root / "test"))]
    elif people := _people(root):
        classes = sorted({name for person in people for name in _class_names(root / person)})
        parts = [(root / person, None, _class_names(root / person)) for person in people]
    else:
        classes = _class_names(root)
        parts = [(root, None, classes)]
    found = [(folder / name, name, test, *_files(folder / name)) for folder, test, names in parts for name in names]
    held = {name for _, name, _, files, _ in found if files}
    kept = [name for name in classes if name in held]
    if not kept and found:
        raise DataError(
            "no JPEG, PNG or WebP pictures in this class folder", found[0][0], remedy=_why_none(found[0][0])
        )
    photos: list[_Photo] = []
    unread: list[Skipped] = []
    for folder, name, test, files, others in found:
        photos += [_Photo(file, kept.index(name), test) for file in files]
        unread += others
        if name not in held:
            unread.append(Skipped(str(folder), f"no JPEG, PNG or WebP pictures in it; {_why_none(folder)}"))
    unread += _loose(root) if kept else []
    return _Listing(root, tuple(kept), tuple(photos), tuple(unread))


def _why_none(folder: Path) -> str:
    nested = any(entry.is_dir() for entry in folder.iterdir() if not entry.name.startswith("."))
    return "it holds folders, but pictures are not looked for below a class folder" if nested else "add some"


def _loose(root: Path) -> list[Skipped]:
    """Pictures beside the class folders, which are of no class."""
    files = [entry for entry in sorted(root.iterdir()) if entry.suffix.lower() in SUFFIXES and entry.is_file()]
    return [Skipped(str(file), "it is in no class folder") for file in files if not file.name.startswith(".")]


def _people(root: Path) -> list[str]:
    """The folders that hold class folders, if all do: a folder for each person."""
    names = _class_names(root)
    for name in names:
        entries = [entry for entry in (root / name).iterdir() if not entry.name.startswith(".")]
        if not any(entry.is_dir() for entry in entries) or any(entry.suffix.lower() in SUFFIXES for entry in entries):
            return []
    return names if len(names) > 1 else []


def _among(listing: _Listing, classes: Sequence[str]) -> _Listing:
    """The same by the numbers that others give the classes."""
    for name in listing.classes:
        if name not in classes:
            near = suggestion(name, classes)
            raise DataError(
                f"{name!r} is none of the {len(classes)} classes of this experiment{near}", listing.root / name,
                remedy="rename the folder, or take it out: " + ", ".join(classes[:20]),
            )  # fmt: skip
    numbers = [classes.index(name) for name in listing.classes]
    photos = tuple(replace(photo, label=numbers[photo.label]) for photo in listing.photos)
    return replace(listing, classes=tuple(classes), photos=photos)


def _class_names(root: Path) -> list[str]:
    entries = [entry for entry in root.iterdir() if not entry.name.startswith(".")]
    names = sorted(entry.name for entry in entries if entry.is_dir())
    if names:
        return names
    if not entries:
        raise DataError("the folder is empty", file=root, remedy="expected one folder of pictures for each class")
    remedy = f"put the pictures of each class in a folder of its name, such as {root / 'cat' / '1.jpg'}"
    raise DataError("no class folders in it", file=root, remedy=remedy)


def _files(folder: Path) -> tuple[list[Path], list[Skipped]]:
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    files = [entry for entry in entries if entry.suffix.lower() in SUFFIXES and not entry.is_dir()]
    others = [entry for entry in entries if entry.suffix.lower() in UNREAD]
    return files, [
        Skipped(str(file), f"the format {file.suffix} is not read: {to_read(file.suffix.lower())}") for file in others
    ]


def _key(listing: _Listing, size: tuple[int, int], more: Sequence[object]) -> str:
    facts: list[object] = [_FORM, list(size), [item.file for item in listing.unread], *more]
    return key_of(listing.root, [photo.file for photo in listing.photos], facts)


# ---- Decoding, once


def _ensure(target: Path, listing: _Listing, size: tuple[int, int]) -> None:
    with new_folder(target) as part:
        if part is None:
            return
        rows = part / "rows"
        kept, broken = decode_to(rows, [photo.file for photo in listing.photos], size)
        photos = [listing.photos[index] for index in kept]
        _refuse_empty_classes(listing, photos, broken)
        test = _split(photos)
        images = np.memmap(rows, np.uint8, "r", shape=(len(photos), *size, 3))
        labels = np.array([photo.label for photo in photos], np.int64)
        for name, members in (("train", np.flatnonzero(~test)), ("test", np.flatnonzero(test))):
            write_array(part / f"{name}_images.npy", images, members)
            write_array(part / f"{name}_labels.npy", labels[members])
        write_facts(part, listing.classes, listing.unread + tuple(broken))
        rows.unlink()


def _refuse_empty_classes(listing: _Listing, photos: Sequence[_Photo], broken: Sequence[Skipped]) -> None:
    present = {photo.label for photo in photos if not photo.test}
    for label, name in enumerate(listing.classes):
        if label not in present and any(photo.label == label for photo in listing.photos):
            folder = next(photo.file.parent for photo in listing.photos if photo.label == label)
            reason = next((item.reason for item in broken if Path(item.file).parent == folder), "")
            raise DataError(f"none of the pictures of class {name!r} can be read: {reason}", file=folder)


def _split(photos: Sequence[_Photo]) -> np.ndarray:
    """True where a picture is for testing."""
    test = np.array([bool(photo.test) for photo in photos])
    for label in {photo.label for photo in photos}:
        open_to_choice = [i for i, photo in enumerate(photos) if photo.label == label and photo.test is None]
        ranked = sorted(open_to_choice, key=lambda i: hashlib.sha256(os.fsencode(photos[i].file.name)).digest())
        share = round(len(ranked) * _TEST_SHARE)
        test[ranked[: max(share, 1) if len(ranked) > 1 else 0]] = True
    return test
