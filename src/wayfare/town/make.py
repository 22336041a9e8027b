"""Make a town on disk, over all cores, in the layouts of the real data sets.

Photographs are made in chunks of fixed size by worker processes that know nothing but the town's specification; a chunk
that is done leaves a record, so work that was interrupted is continued, and the bytes do not depend on how many
processes there were or how often they were stopped. At the end the records become the files that are about all
pictures. `town.json` is written last: where it is, the town is whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image

from wayfare.core.errors import ConfigError, DataError, unknown
from wayfare.town import map, render, truth, walkers
from wayfare.town.model import Camera, City, LayoutWriter, Photo, Shot
from wayfare.town.walkers import Walkers
from wayfare.town.write import traces

LAYOUTS = ("msls", "psg", "mirflickr", "fashion", "celeba", "cifar", "photos")
Progress = Callable[[str, int, int], None]  # what is being done, how far, of how many

CHUNK = 32  # photographs that are made together
_FORM = 3  # of what is written: raise it when the same seed gives other bytes
_AT_ONCE = 1 << 20  # pixels of photographs that are taken together
_MAPS = 4  # that are kept: photographs are in the order of cities
_QUALITY = 90


@dataclass(frozen=True)
class Size:
    """How large a town is; people, vehicles and photographs are per city."""

    cities: int
    blocks: int
    residents: int
    tourists: int
    vehicles: int
    signage: int
    shots: int


SIZES = {
    "tiny": Size(cities=2, blocks=4, residents=8, tourists=6, vehicles=3, signage=1, shots=100),
    "small": Size(cities=4, blocks=6, residents=30, tourists=20, vehicles=10, signage=4, shots=750),
    "city": Size(cities=8, blocks=10, residents=120, tourists=80, vehicles=40, signage=10, shots=4000),
}


@dataclass(frozen=True)
class Spec:
    """The specification that determines a town completely."""

    size: str = "small"
    seed: int = 0
    height: int = 96
    width: int = 128
    layouts: tuple[str, ...] = LAYOUTS
    form: int = _FORM

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise unknown("size", self.size, SIZES)
        for name in self.layouts:
            if name not in LAYOUTS:
                raise unknown("layout", name, LAYOUTS)
        if not (16 <= self.height <= 4096 and 16 <= self.width <= 4096):
            raise ConfigError(
                f"pictures of {self.height} x {self.width} pixels: from 16 x 16 to 4096 x 4096 can be made"
            )
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed {self.seed}: expected 0 to 2^63 - 1")


class Town:
    """A town computed from its specification on demand."""

    def __init__(self, spec: Spec, shots: Sequence[Shot] | None = None) -> None:
        self.spec, self.size = spec, SIZES[spec.size]
        self.names = tuple(place.name for place in map.CITIES[: self.size.cities])
        self._cities: dict[str, City] = {}
        if shots is not None:
            self.shots = shots

    def city(self, name: str) -> City:
        """A city's map; the last few are kept."""
        if name not in self._cities:
            if len(self._cities) == _MAPS:
                del self._cities[next(iter(self._cities))]
            self._cities[name] = map.build(name, self.spec.seed, self.size.blocks)
        return self._cities[name]

    def walkers(self, name: str) -> Walkers:
        """The walkers of a city."""
        size = self.size
        counts = (size.residents, size.tourists, size.vehicles, size.signage, size.shots)
        return walkers.population(self.city(name), *counts, self.spec.seed)

    @cached_property
    def shots(self) -> Sequence[Shot]:
        """All photographs, in the order in which they are numbered."""
        return tuple(shot for name in self.names for shot in self.walkers(name).shots)

    @property
    def chunks(self) -> range:
        """Numbers of the chunks."""
        return range(-(-len(self.shots) // CHUNK))

    @cached_property
    def numbers(self) -> dict[str, list[int]]:
        """For each layout, each photograph's place among those it wants; -1 where it does not."""
        numbers: dict[str, list[int]] = {}
        for name in self.spec.layouts:
            wanted, count = layout(name).wants, 0
            numbers[name] = []
            for shot in self.shots:
                numbers[name].append(count if wanted(shot) else -1)
                count += numbers[name][-1] >= 0
        return numbers

    @cached_property
    def places(self) -> np.ndarray:
        """Latitude and longitude of each photograph, (N, 2): all at once, because one costs as much as a thousand."""
        places = np.empty((len(self.shots), 2))
        for place in map.CITIES[: self.size.cities]:
            rows = [index for index, shot in enumerate(self.shots) if shot.city == place.name]
            points = np.array([(self.shots[index].x, self.shots[index].y) for index in rows]).reshape(-1, 2)
            places[rows] = np.stack(map.to_latlon(place, points[:, 0], points[:, 1]), -1)
        return places

    def take(self, index: int) -> Photo:
        """One photograph with all that is known about it."""
        return self.take_all([index])[0]

    def take_all(self, indices: Sequence[int]) -> list[Photo]:
        """Several photographs at once, which is faster than one by one."""
        shots = [self.shots[index] for index in indices]
        views = [
            view
            for city, some in groupby(shots, lambda shot: shot.city)
            for view in render.views(self.city(city), list(some), self.spec.height, self.spec.width)
        ]
        truths = [truth.describe(shot, view, self.spec.seed) for shot, view in zip(shots, views)]
        places = self.places[indices].tolist()
        return [Photo(*one, *place) for one, place in zip(zip(shots, views, truths), places)]

    def groups(self, indices: Sequence[int]) -> Iterator[Sequence[int]]:
        """Chunks of photographs that are drawn together, small enough for memory."""
        most = max(1, _AT_ONCE // (self.spec.height * self.spec.width))
        return (indices[first : first + most] for first in range(0, len(indices), most))


def layout(name: str) -> LayoutWriter:
    """The module that writes this layout."""
    return cast(LayoutWriter, import_module(f"wayfare.town.write.{name}"))


def make(folder: Path, spec: Spec, workers: int = 0, progress: Progress = lambda *_: None) -> dict[str, Any]:
    """Make the town in a folder, or complete it; return the content of `town.json`."""
    while (done := _claim(folder, spec)) is None:
        with _held(folder, progress):
            if not (folder / "town.json").exists():  # else another process has made it while this one waited
                return _make(folder, spec, workers, progress)
    return done


def _make(folder: Path, spec: Spec, workers: int, progress: Progress) -> dict[str, Any]:
    stage = folder / ".town"
    if not _plan(stage).exists():
        _make_plan(folder, Town(spec), progress)
    town = Town(spec, _shots(stage))
    _photograph(folder, town, workers or os.cpu_count() or 1, progress)
    records = [json.loads(_record(stage, chunk).read_text()) for chunk in town.chunks]
    counts: dict[str, int] = {}
    for place, name in enumerate(spec.layouts):
        progress(f"writing {name}", place, len(spec.layouts))
        entries = [(town.shots[index], facts) for record in records for index, facts in record[name]]
        layout(name).index(folder / name, stage / name, entries, spec.seed)
        counts[name] = len(entries)
    summary = {"spec": asdict(spec), "cities": town.names, "photos": len(town.shots), "layouts": counts}
    _write_whole(folder / "town.json", json.dumps(summary, indent=2) + "\n")
    shutil.rmtree(stage)
    return cast(dict[str, Any], json.loads((folder / "town.json").read_text()))


def jpeg(photo: Photo) -> bytes:
    """The picture as a file."""
    file = io.BytesIO()
    Image.fromarray(photo.view.pixels).save(file, "JPEG", quality=_QUALITY)
    return file.getvalue()


# ---- the folder


def _claim(folder: Path, spec: Spec) -> dict[str, Any] | None:
    """The summary if the town is complete; otherwise prepare the folder to start or continue."""
    wanted = json.loads(json.dumps(asdict(spec)))
    for file in (folder / "town.json", folder / ".town" / "spec.json"):
        if file.exists():
            try:
                found = json.loads(file.read_text())
            except ValueError as error:
                raise DataError(f"not the description of a town: {error}", file, remedy="delete the folder") from error
            if found.get("spec") != wanted:
                remedy = "choose another folder, or delete this one"
                differences = _differences(found.get("spec"), wanted)
                raise DataError(f"this folder holds another town: {differences}", file, remedy=remedy)
            if file.name == "town.json":
                shutil.rmtree(folder / ".town", ignore_errors=True)  # it was stopped just before this
                return cast(dict[str, Any], found)
            return None
    if folder.exists() and (not folder.is_dir() or {path.name for path in folder.iterdir()} - {".town"}):
        raise DataError("not empty, and not an unfinished town", folder, remedy="choose another folder")
    (folder / ".town" / "chunks").mkdir(parents=True, exist_ok=True)
    _write_whole(folder / ".town" / "spec.json", json.dumps({"spec": wanted}))
    return None


@contextlib.contextmanager
def _held(folder: Path, progress: Progress) -> Iterator[None]:
    """Lets one process in at a time; the kernel releases the lock however the process ends."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(FileNotFoundError):  # another process has just finished, and took it away
            lock = stack.enter_context((folder / ".town" / "lock").open("w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                progress("another process is making this town", 0, 1)
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _differences(found: Any, wanted: dict[str, Any]) -> str:
    if not isinstance(found, dict):
        return "the town's description is damaged"
    return ", ".join(
        f"{key} {found.get(key)!r} instead of {wanted[key]!r}" for key in wanted if found.get(key) != wanted[key]
    )


def _plan(stage: Path) -> Path:
    return stage / "shots.json"


def _record(stage: Path, chunk: int) -> Path:
    return stage / "chunks" / f"{chunk:06}.json"


def _write_whole(path: Path, text: str) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}")  # a killed process's worker may still be at the same file
    part.write_text(text)
    part.replace(path)


# ---- photographs


def _make_plan(folder: Path, town: Town, progress: Progress) -> None:
    """Plan the day: the traces, and all photographs to be taken."""
    shots: list[dict[str, Any]] = []
    for number, name in enumerate(town.names):
        progress("planning", number, len(town.names))
        people = town.walkers(name)
        traces.write(folder / "traces", town.city(name), people)
        shots += (asdict(shot) for shot in people.shots)
    _write_whole(_plan(folder / ".town"), json.dumps(shots))


def _shots(stage: Path) -> list[Shot]:
    """The photographs of the plan."""
    cameras: dict[str, Camera] = {}  # there are few
    shots = []
    for shot in json.loads(_plan(stage).read_text()):
        camera = shot["camera"]
        if camera["name"] not in cameras:
            cameras[camera["name"]] = Camera(**{**camera, "gain": tuple(camera["gain"])})
        shots.append(Shot(**{**shot, "camera": cameras[camera["name"]]}))
    return shots


def _photograph(folder: Path, town: Town, workers: int, progress: Progress) -> None:
    todo = [chunk for chunk in town.chunks if not _record(folder / ".town", chunk).exists()]
    total, left = len(town.shots), len(todo) * CHUNK
    if not todo:
        return
    with _workers(folder, min(workers, len(todo))) as reports:
        for count in reports:
            left -= count
            progress("photographing", total - max(left, 0), total)
    if not all(_record(folder / ".town", chunk).exists() for chunk in todo):
        remedy = "run the same command to continue"
        raise DataError("a process that was making photographs was killed", folder, remedy=remedy)


@contextlib.contextmanager
def _workers(folder: Path, workers: int) -> Iterator[Iterator[int]]:
    """Processes that share the chunks; each reports the number of photographs of a finished chunk."""
    read, write = os.pipe()
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-m", "wayfare.town.make", str(folder.absolute()), str(workers)]
    processes = [
        subprocess.Popen([*command, str(number)], stdout=write, stdin=subprocess.DEVNULL, env=environment)
        for number in range(workers)
    ]
    os.close(write)  # so that the pipe ends when the last of them does
    try:
        with os.fdopen(read) as lines:
            yield (int(line) for line in lines)
            if failed := [process.returncode for process in processes if process.wait()]:
                raise DataError(
                    f"making photographs failed (exit status {failed[0]}): see above", folder,
                    remedy="run the same command to continue",
                )  # fmt: skip
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _work(folder: Path, workers: int, number: int) -> None:
    """Every `workers`-th chunk from `number` on that is not done yet."""
    table = json.loads((folder / ".town" / "spec.json").read_text())["spec"]
    town = Town(Spec(**{**table, "layouts": tuple(table["layouts"])}), _shots(folder / ".town"))
    parent = os.getppid()
    for chunk in town.chunks[number::workers]:
        if os.getppid() != parent:
            return  # it was killed
        if not _record(folder / ".town", chunk).exists():
            count = _make_chunk(folder, town, chunk)
            # In one piece, also where Python does not buffer: the others write into the same pipe.
            os.write(sys.stdout.fileno(), f"{count}\n".encode())  # BrokenPipeError if the parent has ended


def _make_chunk(folder: Path, town: Town, chunk: int) -> int:
    indices = range(chunk * CHUNK, min((chunk + 1) * CHUNK, len(town.shots)))
    record: dict[str, list[Any]] = {name: [] for name in town.spec.layouts}
    wanted = [index for index in indices if any(numbers[index] >= 0 for numbers in town.numbers.values())]
    for group in town.groups(wanted):
        photos = town.take_all(group)
        files = [jpeg(photo) for photo in photos]
        for name, numbers in town.numbers.items():
            for index, photo, data in zip(group, photos, files):
                if (number := numbers[index]) >= 0:
                    facts = layout(name).take(folder / name, folder / ".town" / name, number, photo, data)
                    record[name].append([index, facts])
    _write_whole(_record(folder / ".town", chunk), json.dumps(record))
    return len(indices)


if __name__ == "__main__":
    _work(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
