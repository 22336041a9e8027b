"""The movie of a day: where every device was, in a few hundred frames, small enough to be stored with the run's log.

A report plays it without the traces, which may be much larger or stored elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from wayfare.core.bundle import Bundle, Value
from wayfare.core.errors import ConfigError

if TYPE_CHECKING:
    from wayfare.encounters.contacts import ContactProcess

ABSENT = -32768
_REACH = 32767  # steps to each side of the middle
_FINEST = 0.5  # metres: what a person is wide
_MOST_PLACES = 4_000_000  # frames times devices: a large crowd is shown with fewer frames
_FEWEST_FRAMES = 2
_CIRCLE = 500.0  # metres: where devices stand whose places are not known


def movie(contacts: ContactProcess, ids: Sequence[str], targets: np.ndarray, frames: int = 360) -> bytes:
    """Evenly spaced slots of the day as one safetensors file; `ids` and `targets` are in the order of the devices.

    It has the section "movie": `positions`, int16 (frames, devices, 2), in steps east and north of the map's middle,
    ABSENT where a device is not there; `slots`, which slot each frame shows; `stationary` and `targets`. Values are the
    `ids` as JSON, the length of a `step` in metres and of a `slot` in seconds, the `start` of the first slot, the
    `length` in slots, and whether devices are `located`: if only contacts are known, they stand on a circle.
    """
    count = len(contacts.devices)
    if len(ids) != count or len(targets) != count:
        raise ConfigError(f"the movie has {count} devices, but {len(ids)} ids and {len(targets)} rows of targets")
    if frames < _FEWEST_FRAMES:
        raise ConfigError(f"{frames} frames are too few for a movie: expected at least {_FEWEST_FRAMES}")
    frames = max(_FEWEST_FRAMES, min(frames, _MOST_PLACES // max(1, count)))
    slots = np.unique(np.linspace(0, max(0, contacts.slots - 1), frames).round().astype(np.int64))[: contacts.slots]
    located = bool(len(slots)) and contacts.positions(0) is not None
    places = np.empty((len(slots), count, 2), np.float32)
    for frame, slot in enumerate(slots):
        places[frame] = _places(contacts, int(slot))
    positions, step = _in_steps(places)
    parts = {
        "positions": positions,
        "slots": slots,
        "stationary": np.asarray(contacts.stationary, bool),
        "targets": np.asarray(targets, bool),
    }
    values: dict[str, Value] = {"ids": json.dumps(list(ids)), "length": int(contacts.slots), "located": located}
    values |= {"step": step, "slot": float(contacts.slot), "start": float(contacts.start)}
    tensors = {name: torch.from_numpy(np.array(part)) for name, part in parts.items()}
    return Bundle({"movie": tensors}, values).pack()


def _places(contacts: ContactProcess, slot: int) -> np.ndarray:
    """Where devices are, or else a circle of those who are there."""
    known = contacts.positions(slot)
    if known is not None:
        return known
    angle = 2 * np.pi * np.arange(len(contacts.devices)) / max(1, len(contacts.devices))
    circle = _CIRCLE * np.stack([np.sin(angle), np.cos(angle)], axis=1)
    return np.where(contacts.present(slot)[:, None], circle, np.nan).astype(np.float32)


def _in_steps(places: np.ndarray) -> tuple[np.ndarray, float]:
    """Whole steps from the middle of the map; a step is longer only where the map would not fit otherwise."""
    present = ~np.isnan(places).any(axis=2)
    if not present.any():
        return np.full(places.shape, ABSENT, np.int16), _FINEST
    low, high = places[present].min(axis=0).astype(float), places[present].max(axis=0).astype(float)
    step = max(_FINEST, float((high - low).max()) / 2 / _REACH)
    steps = np.full(places.shape, ABSENT, np.int16)
    moved = np.round((places[present] - (low + high) / 2) / step)
    steps[present] = np.clip(moved, -_REACH, _REACH).astype(np.int16)
    return steps, step
