"""Tensors that a tour leaves in its folder, read without torch: the movie of the day and the devices' columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from wayfare.core.errors import StoreError

ABSENT = -32768
_SEPARATOR = "//"  # between section and name
_PARTS = {"positions": "i", "slots": "i", "stationary": "b", "targets": "b"}
_NUMBERS = ("step", "slot", "start", "length")


@dataclass(frozen=True)
class Movie:
    """Where devices were over the day, as the topology wrote it down when the tour began."""

    ids: tuple[str, ...]
    positions: np.ndarray  # int16 (frames, devices, 2): steps east and north of the middle; ABSENT where not there
    slots: np.ndarray  # int64 (frames,): the slot that each frame shows
    stationary: np.ndarray  # bool (devices,)
    targets: np.ndarray  # bool (devices, classes): what its owner cares about
    step: float  # metres
    slot: float  # seconds
    start: float  # time of slot 0: seconds since midnight, or as in the traces where they do not say
    length: int  # slots in all
    located: bool  # False: only contacts are known, and devices stand on a circle

    @classmethod
    def read(cls, file: Path) -> Movie:
        """StoreError, which names the file, if it is not a movie."""
        sections, values = read_tensors(file)
        parts = sections.get("movie", {})
        try:
            ids = tuple(str(id) for id in json.loads(values["ids"]))
            numbers = {name: float(values[name]) for name in _NUMBERS}
            located = bool(values["located"])
        except (KeyError, ValueError, TypeError) as error:
            raise StoreError(f"{file}: not the movie of a tour: {error}") from error
        if any(name not in parts or parts[name].dtype.kind != kind for name, kind in _PARTS.items()):
            raise StoreError(f"{file}: not the movie of a tour: expected {', '.join(_PARTS)}, found {', '.join(parts)}")
        shapes = parts["positions"].shape, parts["stationary"].shape, parts["targets"].shape[:1]
        if shapes != ((len(parts["slots"]), len(ids), 2), (len(ids),), (len(ids),)):
            raise StoreError(f"{file}: not the movie of a tour: its parts differ in length")
        step, slot, start, length = numbers.values()
        places, frames, stationary, targets = (parts[name] for name in _PARTS)
        return cls(
            ids,
            places,
            slots=frames,
            stationary=stationary,
            targets=targets,
            step=step,
            slot=slot,
            start=start,
            length=int(length),
            located=located,
        )


def read_tensors(file: Path) -> tuple[dict[str, dict[str, np.ndarray]], Mapping[str, Any]]:
    """Sections of named arrays, and values: what a bundle has in its file."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise StoreError(f"{file}: cannot be read: {error}") from error
    try:
        arrays = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        values = json.loads(header["__metadata__"]["wayfare"])["values"]
        sections: dict[str, dict[str, np.ndarray]] = {}
        for name, array in arrays.items():
            section, _, rest = name.partition(_SEPARATOR)
            sections.setdefault(section, {})[rest] = array
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(f"{file}: not a file that Wayfare wrote: {error}") from error
    return sections, values
