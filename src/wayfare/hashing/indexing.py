"""Making an index of photos and texts, and adding to it later."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from wayfare.core import disk
from wayfare.core.errors import DataError, StoreError
from wayfare.core.protocols import Progress, silent
from wayfare.hashing import code_index as codes
from wayfare.hashing import lexicon
from wayfare.hashing.code_index import CodePart, Codes, quantised
from wayfare.hashing.data.pairs import Paired
from wayfare.hashing.data.source import Stored
from wayfare.hashing.hash_model import HashModel, hashing_run, load_hash_model, pairs_of, unpack
from wayfare.hashing.ranking import pack
from wayfare.hashing.search import MODEL, PICTURES, VIEWS, View
from wayfare.hashing.task import Hashing
from wayfare.hashing.texts import Texts, read_texts
from wayfare.io.decoded import Decoded
from wayfare.io.folders import pictures_below
from wayfare.io.images import decode_all
from wayfare.io.index_folder import explained, held
from wayfare.io.pictures import Skipped
from wayfare.trained import Trained

_FILES = frozenset((MODEL, PICTURES, *VIEWS))
_CHUNK = 256  # items whose codes are written together
_QUALITY = 88  # of the JPEG of a picture that has no file of its own


@dataclass
class AddedItems:
    """What was done: for each view how many are new, were there, and were replaced."""

    counts: dict[View, codes.AddedCodes] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)

    def total(self, what: str) -> int:
        return sum(getattr(added, what) for added in self.counts.values())


def index_run(
    run: Path,
    out: Path,
    *,
    photos: Path | None = None,
    texts: Path | None = None,
    data: Path | None = None,
    progress: Progress = silent,
) -> AddedItems:
    """Index photos and texts with the model of a run; without either, the run's own data.

    `data` is where the run's training data is now, if it was moved. What could not be used is in `skipped`.
    """
    found = hashing_run(run, data)
    read = None if texts is None else read_texts(texts, photos)
    files = [] if photos is None else photo_files(photos)
    model = model_for(found, out)
    if photos is None and read is None:
        added = add_pairs(model, found, out, progress)
        problems = found.task.pairs.problems.found
    else:
        added = add(model, out, files, read, progress)
        problems = [] if read is None else read.problems.found
    added.skipped += [Skipped(str(error.file), str(error)) for error in problems]
    return added


def model_for(found: Trained[Hashing], out: Path) -> HashModel:
    """The run's model: as the index has it already, which needs no data; or else made of the run."""
    try:
        model = unpack(out / MODEL)
        if model.trained == found.record.model_sha256 and model.recipe == found.record.recipe:
            return model
    except StoreError:  # missing or damaged: it is written again
        pass
    return load_hash_model(found)


def add(
    model: HashModel,
    out: Path,
    photos: Sequence[Path] = (),
    texts: Texts | None = None,
    progress: Progress = silent,
) -> AddedItems:
    """Put photos (see `photo_files`) and texts into the index in this folder, which is made where there is none.

    A photo that is there already, as the same unchanged file, keeps its code. What cannot be read, or has no word that
    the model knows, is left out and listed.
    """
    if photos:
        model.check_photos()
    if texts is not None:
        model.check_words()
    with _opened(model, out) as added:
        if photos:
            texts_of = {} if texts is None else texts.of_photos()
            parts = _photo_parts(model, out, photos, texts_of, skipped=added.skipped, progress=progress)
            _put(out, "photos", model, parts, added)
        if texts is not None:
            _put(out, "texts", model, _text_parts(model, out, texts, added.skipped, progress), added)
    return added


def add_pairs(
    model: HashModel, found: Trained[Hashing], out: Path, progress: Progress = silent, rows: np.ndarray | None = None
) -> AddedItems:
    """The same for pairs of the run's data: by default all of them."""
    pairs, task = pairs_of(found), found.task
    task.prepare(progress)
    rows = np.arange(len(pairs)) if rows is None else rows
    with _opened(model, out) as added:
        place = _pictures_of(pairs, out)
        _put(out, "photos", model, _pair_parts(model, task, "image", rows, picture=place, progress=progress), added)
        worded = rows[~pairs.without_words[rows]]
        if len(worded):
            parts = _pair_parts(model, task, "text", worded, picture=place, progress=progress)
            _put(out, "texts", model, parts, added)
    return added


@contextmanager
def _opened(model: HashModel, out: Path) -> Iterator[AddedItems]:
    """The folder, held against others, with the model in it; an index of another model is refused."""
    with held(out, _FILES):
        for view in VIEWS:
            _before(out, view, model)
        content, file = model.pack(), out / MODEL
        with explained(file):
            if not file.is_file() or file.read_bytes() != content:
                disk.write(file, content)
        yield AddedItems()


def _before(out: Path, view: View, model: HashModel) -> Codes | None:
    """The codes that are there."""
    return Codes(out / view, model.digest) if (out / view / codes.FACTS).exists() else None


def _put(out: Path, view: View, model: HashModel, parts: Iterator[CodePart], added: AddedItems) -> None:
    added.counts[view] = codes.add(out / view, model.digest, model.name, parts)
    if not (out / view / codes.FACTS).exists():
        first = f"; the first: {added.skipped[0].file}: {added.skipped[0].reason}" if added.skipped else ""
        raise DataError(f"none of the {view} can be used{first}")
    lexicon.write(Codes(out / view))


# ---- Photos


def photo_files(photos: Path) -> list[Path]:
    """All pictures of a folder and of those in it; or the one photo that it is."""
    if photos.is_file():
        return [photos.resolve()]
    if not photos.is_dir():
        raise DataError("there is no such folder", photos, remedy="give the folder of the photos")
    root = photos.resolve()
    found = [root / name for name in pictures_below(root)]
    if not found:
        raise DataError("no photo in it", photos, remedy="JPEG, PNG and WebP files are looked for, in folders too")
    return found


def _photo_parts(
    model: HashModel, out: Path, files: Sequence[Path], texts: Mapping[Path, Sequence[str]], skipped: list[Skipped],
    progress: Progress,
) -> Iterator[CodePart]:  # fmt: skip
    before = _before(out, "photos", model)
    about = {str(file): _about(file, texts.get(file, ()), before) for file in files if "\n" not in str(file)}
    skipped += [Skipped(str(file), "its name has a line break") for file in files if str(file) not in about]
    same = [id for id in about if before is not None and id in before and _unchanged(about[id], before.metadata(id))]
    if same and before is not None:
        numbers = np.stack([before.numbers_of(id) for id in same])
        yield CodePart(same, np.stack([before.code(id) for id in same]), [about[id] for id in same], numbers)
    held = frozenset(same)
    todo = [id for id in about if id not in held]
    for start in range(0, len(todo), _CHUNK):
        some = todo[start : start + _CHUNK]
        images, kept, broken = decode_all([Path(id) for id in some], model.size)
        skipped += broken
        ids = [some[place] for place in kept]
        if ids:
            outputs = model.of_pictures(images)
            yield CodePart(ids, pack(outputs), [about[id] for id in ids], quantised(outputs))
        progress("codes of photos", start + len(some), len(todo))


def _about(file: Path, texts: Sequence[str], before: Codes | None) -> dict[str, Any]:
    """What the index says of a photo; its texts of before where none are given now."""
    known = before.metadata(str(file)) if before is not None and str(file) in before else {}
    try:
        stat = file.stat()
        identity = [stat.st_size, stat.st_mtime_ns]
    except OSError:
        identity = [-1, -1]  # decoding it will say what is wrong
    all_texts = list(dict.fromkeys(texts)) or known.get("texts", [])
    return {"name": _shown(file.name), "files": [str(file)], "texts": all_texts, "identity": identity}


def _unchanged(now: Mapping[str, Any], then: Mapping[str, Any]) -> bool:
    return bool(now["identity"] == then.get("identity"))


def _shown(name: str) -> str:
    return name.encode("utf-8", "replace").decode()


# ---- Texts


def _text_parts(
    model: HashModel, out: Path, texts: Texts, skipped: list[Skipped], progress: Progress
) -> Iterator[CodePart]:
    before, found = _before(out, "texts", model), texts.of_texts()
    good = [text for text in found if model.knows(text)]
    known = frozenset(good)
    skipped += [Skipped(text, "the model knows none of its words") for text in found if text not in known]
    for start in range(0, len(good), _CHUNK):
        some = good[start : start + _CHUNK]
        about = [_about_text(text, [str(photo) for photo in found[text]], before) for text in some]
        outputs = model.of_texts(some)
        yield CodePart([_text_id(text) for text in some], pack(outputs), about, quantised(outputs))
        progress("codes of texts", start + len(some), len(good))


def _text_id(text: str) -> str:
    return f"text: {text}"


def _about_text(text: str, photos: Sequence[str], before: Codes | None) -> dict[str, Any]:
    """What the index says of a text; photos of before are kept."""
    id = _text_id(text)
    known = before.metadata(id) if before is not None and id in before else {}
    return {"name": text, "files": list(dict.fromkeys([*known.get("files", []), *photos])), "texts": [text]}


# ---- Pairs of the run


def _pair_parts(
    model: HashModel, task: Hashing, view: str, rows: np.ndarray, picture: Callable[[np.ndarray], list[str]],
    progress: Progress,
) -> Iterator[CodePart]:  # fmt: skip
    pairs = task.pairs
    for start in range(0, len(rows), _CHUNK):
        some = rows[start : start + _CHUNK]
        files = picture(some)
        about = [
            {"name": _shown(str(pairs.ids[row])), "files": [file] if file else [],
             "texts": [pairs.texts[row]] if pairs.texts[row] else [],
             "labels": [pairs.names[label] for label in np.flatnonzero(pairs.labels[row])]}
            for row, file in zip(some.tolist(), files)
        ]  # fmt: skip
        outputs = task.features(model.net, view, some).cpu().numpy()
        yield CodePart([f"pair {row:07}" for row in some.tolist()], pack(outputs), about, quantised(outputs))
        progress(f"codes of {'photos' if view == 'image' else 'texts'}", start + len(some), len(rows))


def _pictures_of(pairs: Paired, out: Path) -> Callable[[np.ndarray], list[str]]:
    """Where the pictures of rows are; those that are in no file of their own are written into the index."""
    stored = pairs.pictures
    if stored is None:
        return lambda rows: [""] * len(rows)
    if isinstance(stored, Stored) and isinstance(stored.images, Decoded):
        images, own = stored.images, stored.rows
        return lambda rows: [str(images.files[images.kept[own[row]]].resolve()) for row in rows]
    return lambda rows: [_written(out, row, stored.read(np.array([row]))[0]) for row in rows.tolist()]


def _written(out: Path, row: int, pixels: np.ndarray) -> str:
    file = out.resolve() / PICTURES / f"{row // 1000:04}" / f"{row:07}.jpg"
    if not file.exists():
        content = io.BytesIO()
        Image.fromarray(pixels).save(content, "JPEG", quality=_QUALITY)
        with explained(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_suffix(".tmp")
            part.write_bytes(content.getvalue())  # not synced one by one: it can be made again
            part.replace(file)
    return str(file)
