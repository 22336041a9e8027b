"""Making an index, and adding photographs to it later."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.core import disk
from wayfare.core.errors import ConfigError, DataError
from wayfare.io.findings import by_kind
from wayfare.io.index_folder import checksum, explained, held
from wayfare.io.pictures import Skipped
from wayfare.places.cells import EXACT, cells_of, centres_of
from wayfare.places.data.place_photos import Group, PlacePhotos
from wayfare.places.index import CELLS, CENTRES, DESCRIPTORS, FACTS, MODEL, NAMES, PHOTOS, Facts, Index, lengths
from wayfare.places.leave_one_out import Calibrator
from wayfare.places.nearest import checked
from wayfare.places.positions import read_photographs, rows_of
from wayfare.places.trained_model import Described, TrainedPlaceModel, describe, load_model

_FILES = frozenset((FACTS, MODEL, DESCRIPTORS, PHOTOS, NAMES, CELLS, CENTRES))
_MOST_REPLACED = 10_000  # outdated photographs that every search skips; with more, a new index is better
_IDENTITY = ("size", "changed", "easting", "northing", "group")  # by which a photograph is the same as before

Progress = Callable[[str, int, int], None]
Describe = Callable[[TrainedPlaceModel, Sequence[Path]], Iterable[Described]]


@dataclass(frozen=True)
class Added:
    """What `add` did."""

    new: int
    kept: int  # were there already
    replaced: int  # were there, and are other photos now, or taken elsewhere
    skipped: list[Skipped]
    facts: Facts
    odd: Sequence[str] = ()  # about photos that are in the index all the same

    @property
    def photographs(self) -> int:
        """How many photographs the index holds now."""
        return self.facts.count - len(self.facts.replaced)


def index_run(
    run: Path,
    photos: Path,
    out: Path,
    database: bool = False,
    progress: Progress = lambda *_: None,
    *,
    strangers: float | None = None,
    precision: float | None = None,
) -> Added:
    """Index a folder or table of photos with the model of a run; `database` leaves out the queries of the layout.

    The index is then calibrated on itself, for the expected share of `strangers` and the wanted `precision`. What could
    not be used is in `skipped`.
    """
    model = load_model(run)
    learn = Calibrator(model, run, strangers, precision, progress=progress)
    found = read_photographs(photos, database)
    added = add(model, found, out, learn, progress)
    problems = [Skipped(str(error.file or photos), str(error)) for error in found.problems.left_out]
    return replace(added, skipped=[*added.skipped, *problems], odd=by_kind(found.problems.odd))


def add(
    model: TrainedPlaceModel,
    photos: PlacePhotos,
    out: Path,
    learn: Calibrator | None = None,
    progress: Progress = lambda *_: None,
    describe: Describe = describe,
) -> Added:
    """Add photographs to the index in this folder, which is created if there is none.

    Photographs that are in it already, with the same unchanged file and position, are kept. `learn` calibrates an index
    that has changed; if it raises an error, the index records why it has no confidence. `describe` is for callers that
    have the descriptors already.
    """
    with held(out, _FILES):
        before = Index(out) if (out / FACTS).exists() else None
        facts = _begun(model, out, before)
        groups = tuple(dict.fromkeys([*facts.groups, *((group.city, group.zone) for group in photos.groups)]))
        facts = replace(facts, groups=groups)
        rows, names = _identified(photos, rows_of(photos, [Group(*pair) for pair in groups]))
        known = _known_rows(before, names)
        todo = np.flatnonzero(~_unchanged(before, rows, known))
        if len(facts.replaced) + int((known[todo] >= 0).sum()) > _MOST_REPLACED:
            raise ConfigError(f"{out}: more than {_MOST_REPLACED:,} of its photos have changed: make a new index")
        skipped: list[Skipped] = []
        done = new = 0
        for part in describe(model, [Path(os.fsdecode(names[row])) for row in todo]):
            fresh = todo[part.kept]
            old = known[fresh][known[fresh] >= 0].tolist()
            skipped += part.skipped
            done, new = done + len(fresh) + len(part.skipped), new + len(fresh) - len(old)
            facts = replace(facts, replaced=(*facts.replaced, *old), waiting=len(todo) - done)
            facts = _appended(out, facts, rows[fresh], [names[row] for row in fresh], part.descriptors)
            progress("describing photographs", done, len(todo))
        if not facts.count:
            reason = f"; the first: {skipped[0].reason}" if skipped else ""
            raise DataError(f"none of {len(photos)} photographs can be read{reason}", photos.root)
        if facts.waiting and not len(todo):
            facts = _committed(out, replace(facts, waiting=0))
        if facts.count > EXACT and not facts.cells:
            progress("dividing descriptors into cells", 0, 1)
            facts = _divided(out, facts)
        if learn is not None and (len(todo) or not learn.is_done(facts.calibration)):
            facts = _committed(out, replace(facts, **_learnt(learn, Index(out))))
        return Added(new, len(photos) - len(todo), done - new - len(skipped), skipped, facts)


def _begun(model: TrainedPlaceModel, out: Path, before: Index | None) -> Facts:
    """The facts of the index as it is, or of a new one that is still empty; files without leftovers."""
    if before is not None:
        facts = before.facts
        if facts.model != model.digest:
            raise ConfigError(
                f"{out} was made by model {facts.model[:12]} ({facts.run}), and this is model {model.title}: their "
                "descriptors cannot be compared. Choose another --out, or give the run that the index was made with"
            )
    else:
        with explained(out / MODEL):
            disk.write(out / MODEL, model.pack())
        facts = Facts(model.digest, model.name, int(model.net.feature_dim), model.size, model.task.radius)
        facts = replace(facts, uncalibrated="it has not been learnt")
    for name, length in lengths(facts).items():
        with explained(out / name), (out / name).open("ab") as file:
            file.truncate(length)
    return facts


def _learnt(learn: Calibrator, index: Index) -> dict[str, Any]:
    try:
        return {"calibration": learn(index), "uncalibrated": ""}
    except DataError as error:  # too few photographs, or all alike
        return {"calibration": None, "uncalibrated": str(error)}


def _divided(out: Path, facts: Facts) -> Facts:
    """Divide the descriptors into cells, once; what is added later goes to these."""
    descriptors = Index(out).descriptors
    centres = centres_of(descriptors)
    for name, content in ((CENTRES, centres), (CELLS, cells_of(descriptors, centres))):
        with explained(out / name):
            disk.write(out / name, content.tobytes())
    return _committed(out, replace(facts, cells=len(centres)))


# ---- What is new


def _identified(photos: PlacePhotos, rows: np.ndarray) -> tuple[np.ndarray, list[bytes]]:
    """The rows with each file's size and date, and the files' whole names."""
    root = photos.root.resolve()
    names = [os.fsencode(root / file) for file in photos.files]
    for row, name in enumerate(names):
        try:
            found = os.stat(name)  # noqa: PTH116 (there may be a million)
            rows["size"][row], rows["changed"][row] = found.st_size, found.st_mtime_ns
        except OSError:
            rows["size"][row] = -1  # decoding it will say what is wrong
    return rows, names


def _known_rows(before: Index | None, names: Sequence[bytes]) -> np.ndarray:
    """The newest row of the index with the same file's name, or -1."""
    if before is None:
        return np.full(len(names), -1)
    ends, known = before.photos["name_end"].tolist(), before.names.tobytes()
    newest = {known[start:end]: row for row, (start, end) in enumerate(zip([0, *ends], ends))}
    return np.array([newest.get(name, -1) for name in names], np.int64)


def _unchanged(before: Index | None, rows: np.ndarray, there: np.ndarray) -> np.ndarray:
    same: np.ndarray = there >= 0
    if before is not None:
        stored = before.photos[there[same]]
        same[same] = np.all([stored[name] == rows[name][same] for name in _IDENTITY], axis=0)
    return same


# ---- Writing


def _appended(out: Path, facts: Facts, rows: np.ndarray, names: Sequence[bytes], descriptors: np.ndarray) -> Facts:
    """Append to every file, then commit by replacing index.json."""
    rows = rows.copy()
    rows["name_end"] = facts.names + np.cumsum([len(name) for name in names], dtype=np.int64)
    contents = {DESCRIPTORS: checked(descriptors, "photographs").tobytes(), PHOTOS: rows.tobytes()}
    if facts.cells:
        centres = np.fromfile(out / CENTRES, "<f4").reshape(facts.cells, facts.dimension)
        contents[CELLS] = cells_of(descriptors, centres).tobytes()
    for name, content in {**contents, NAMES: b"".join(names)}.items():
        with explained(out / name), (out / name).open("ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    length = int(rows["name_end"][-1]) if len(rows) else facts.names
    return _committed(out, replace(facts, count=facts.count + len(rows), names=length))


def _committed(out: Path, facts: Facts) -> Facts:
    """Replace index.json; an index without a photograph is none."""
    if facts.count:
        table = json.loads(json.dumps(dataclasses.asdict(facts), allow_nan=False))
        with explained(out / FACTS):
            disk.write(out / FACTS, json.dumps({"facts": table, "checksum": checksum(table)}, indent=1).encode())
    return facts
