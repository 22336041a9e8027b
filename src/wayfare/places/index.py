"""An index: descriptors of photographs whose positions are known, made by one model, which is in it too.

    index.json          what is in it, the model's name, how confidence is computed; with a checksum
    model.safetensors   the model, so that nothing else is needed to find a photo
    descriptors.bin     float32, a row for each photograph
    photos.bin          where each was taken, see table.ROW
    names.bin           their files
    cells.bin           of a large index: in which cell each descriptor is, see cells.py
    centres.bin         the centres of the cells

The files named .bin only grow, except the centres, which stay as they are, and index.json says how much of them is
valid: it is replaced atomically after the rest is on disk. So readers are not disturbed while photographs are added,
and an interrupted or killed process leaves an index of everything up to a few seconds before. Finding a photo never
writes.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import faiss
import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError

from wayfare.core.errors import DataError, StoreError
from wayfare.io.index_folder import checksum
from wayfare.places.calibration import Calibration
from wayfare.places.cells import Cells
from wayfare.places.data.place_photos import Group
from wayfare.places.nearest import checked, pair_distances
from wayfare.places.positions import ROW, Spot, metres
from wayfare.places.trained_model import TrainedPlaceModel, unpack

FORMAT = 2
_FIRST_FORMAT = 1  # whose confidence was learnt on the run's photographs
FACTS, MODEL = "index.json", "model.safetensors"
DESCRIPTORS, PHOTOS, NAMES = "descriptors.bin", "photos.bin", "names.bin"
CELLS, CENTRES = "cells.bin", "centres.bin"
_SPARE = 16  # matches that faiss proposes beyond those wanted: their distances are then computed more exactly


@dataclass(frozen=True)
class Facts:
    """What index.json says."""

    model: str  # its digest
    run: str  # the name of the run that trained it
    dimension: int
    size: tuple[int, int]  # of pictures as the network sees them: height, width
    radius: float  # metres: what is no further apart is one place
    count: int = 0  # photographs
    names: int = 0  # bytes of all their names
    groups: tuple[tuple[str, str], ...] = ()  # city and zone
    replaced: tuple[int, ...] = ()  # outdated rows: there is a newer one of the same file
    waiting: int = 0  # photographs still to come when this was written; not 0 where work was interrupted
    cells: int = 0  # in which descriptors are searched; 0: all descriptors are compared
    calibration: Calibration | None = None
    uncalibrated: str = ""  # why there is none
    format: int = FORMAT


class Index:
    """An index that is open for reading."""

    def __init__(self, folder: Path | str, device: str = "auto") -> None:
        self.folder, self._device = Path(folder), device
        self.facts = read_facts(self.folder)
        shape = (self.facts.count, self.facts.dimension)
        self.descriptors = _mapped(self.folder / DESCRIPTORS, np.dtype("<f4"), shape)
        self.photos = _mapped(self.folder / PHOTOS, ROW, shape[:1])
        self.names = _mapped(self.folder / NAMES, np.dtype("u1"), (self.facts.names,))
        self._replaced = np.array(self.facts.replaced, np.int64)

    def __len__(self) -> int:
        return self.facts.count - len(self._replaced)

    @cached_property
    def model(self) -> TrainedPlaceModel:
        """The model that made the descriptors, and that describes the photos to be found."""
        model = unpack(self.folder / MODEL, self._device)
        if model.digest != self.facts.model:
            raise StoreError(
                f"{self.folder / MODEL} is model {model.title}, but the index was made by {self.facts.model[:12]} "
                f"({self.facts.run}): it is damaged or exchanged; restore it, or make the index again"
            )
        return model

    @cached_property
    def groups(self) -> list[Group]:
        return [Group(*pair) for pair in self.facts.groups]

    def file(self, row: int) -> Path:
        """Where a photograph is, or was when it was added."""
        start, end = int(self.photos["name_end"][row - 1]) if row else 0, int(self.photos["name_end"][row])
        return Path(os.fsdecode(self.names[start:end].tobytes()))

    def spot(self, row: int) -> Spot:
        """Where it was taken."""
        photo = self.photos[row]
        degrees = float(photo["latitude"]), float(photo["longitude"])
        return Spot(*degrees, float(photo["easting"]), float(photo["northing"]), *self.groups[int(photo["group"])])

    def metres(self, rows: np.ndarray) -> np.ndarray:
        """How far photographs are from the first of them."""
        return metres(self.photos[rows], self.photos[rows[0]])

    @cached_property
    def cells(self) -> Cells | None:
        """The cells of a large index."""
        if not self.facts.cells:
            return None
        shape = (self.facts.cells, self.facts.dimension)
        centres = _mapped(self.folder / CENTRES, np.dtype("<f4"), shape)
        cells = _mapped(self.folder / CELLS, np.dtype("<i4"), (self.facts.count,))
        return Cells(checked(np.asarray(centres), "centres"), np.asarray(cells), self._replaced)

    def search(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the nearest descriptors and their distances, both (Q, min(count, N)), equal ones by row.

        Above 300,000 photographs only the nearest cells are searched (cells.py). Otherwise faiss compares with all of
        them, in single precision, and the best are compared again in double precision: only at the end of the list may
        one stand for another that is as near to seven digits. It reads the descriptors where they lie, so that to open
        a large index takes no time and no memory.
        """
        queries = checked(queries, "photographs to be found")
        faiss.omp_set_num_threads(torch.get_num_threads())
        if self.cells is not None:
            return self._search_cells(queries, min(count, len(self)), self.cells)
        width = min(count + _SPARE + len(self._replaced), self.facts.count)
        _, proposed = faiss.knn(queries, self.descriptors, width)
        numbers = np.repeat(np.arange(len(queries)), width)
        squared = pair_distances(queries, self.descriptors, numbers, proposed.ravel()).reshape(proposed.shape)
        squared[np.isin(proposed, self._replaced)] = np.inf
        order = np.lexsort((proposed, squared), axis=1)[:, : min(count, len(self))]
        return np.take_along_axis(proposed, order, 1), np.sqrt(np.take_along_axis(squared, order, 1))

    def _search_cells(self, queries: np.ndarray, count: int, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
        rows, distances = np.empty((len(queries), count), np.int64), np.empty((len(queries), count))
        for number, query in enumerate(queries):
            candidates = cells.candidates(query, count)
            width = min(count + _SPARE, len(candidates))
            proposed = candidates[faiss.knn(query[None], self.descriptors[candidates], width)[1][0]]
            squared = pair_distances(query[None], self.descriptors, np.zeros(width, np.int64), proposed)
            order = np.lexsort((proposed, squared))[:count]
            rows[number], distances[number] = proposed[order], np.sqrt(squared[order])
        return rows, distances


def lengths(facts: Facts) -> dict[str, int]:
    """The bytes that count of each file that grows."""
    sizes = {DESCRIPTORS: 4 * facts.dimension, PHOTOS: ROW.itemsize, CELLS: 4 if facts.cells else 0}
    return {name: size * facts.count for name, size in sizes.items()} | {NAMES: facts.names}


def read_facts(folder: Path) -> Facts:
    """What index.json says, if it is whole."""
    file = folder / FACTS
    try:
        content = json.loads(file.read_bytes())
        facts = content["facts"]
        if facts["format"] not in (_FIRST_FORMAT, FORMAT):
            raise StoreError(f"{file}: an index of format {facts['format']}; this version of Wayfare reads {FORMAT}")
        if content["checksum"] != checksum(facts):
            raise ValueError("its checksum does not match")
        if facts["format"] == _FIRST_FORMAT:
            why = "an earlier version of Wayfare made the index; run `wayfare index` again to learn it"
            facts |= {"calibration": None, "uncalibrated": why, "format": FORMAT}
        return TypeAdapter(Facts).validate_json(json.dumps(facts), strict=True)
    except FileNotFoundError:
        remedy = "make one with `wayfare index RUN --photos DIR`"
        raise DataError("there is no index here", folder, remedy=remedy) from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, ValidationError) as error:
        raise StoreError(f"{file} is damaged: {error}; make the index again in another folder") from error


def _mapped(file: Path, kind: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """The start of a file, in its place and read-only."""
    wanted = kind.itemsize * int(np.prod(shape))
    try:
        found = file.stat().st_size
        if found < wanted:
            raise StoreError(f"{file} is damaged: {found:,} bytes, but index.json says {wanted:,}")
        return np.memmap(file, kind, "r", shape=shape)
    except (OSError, ValueError) as error:
        raise StoreError(f"{file} is damaged: {error}") from error
