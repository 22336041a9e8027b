"""Who is near whom: all pairs of devices within a radius, slot by slot, in memory that does not grow with the day.

The plane is cut into strips as high as the radius. With the points sorted by slot, strip and x, everybody who can be
near a point is in two short runs of that order: what follows it in its own strip, and a piece of the next strip. A
block of slots is searched at once, so that NumPy has enough to do at a time, and is cut short where a crowd is dense.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

_POINTS = 2**14  # searched at a time, unless one slot has more: few enough for the processor's cache
_SLOTS = 512  # at a time, at most
_CANDIDATES = 2**18  # pairs looked at for one block, unless one slot has more
_STEP = 2**14  # of them at a time: few enough that their memory is not fetched from the system each time
_WIDER = 1 + 1e-5  # strips and runs are a little too wide, so that rounding loses nobody; distances are exact


def each_slot(positions: np.ndarray, radius: float) -> Iterator[np.ndarray]:
    """For each slot of `positions`, (slots, devices, 2), the pairs that are at most `radius` metres apart."""
    slot = 0
    while slot < len(positions):
        found = first_slots(positions[slot:], radius)
        yield from found
        slot += len(found)


def first_slots(positions: np.ndarray, radius: float) -> list[np.ndarray]:
    """The same for the first slots only: as many as are quickly found together, at least one.

    Pairs are int64 (pairs, 2), the lower number first, in lexicographic order, and cannot be written to. A device whose
    x is NaN is absent.
    """
    devices = positions.shape[1]
    positions = positions[: min(_SLOTS, max(1, _POINTS // max(devices, 1)))]
    slot, device = np.nonzero(~np.isnan(positions[..., 0]))
    if not len(slot):
        return [_fixed(np.empty((0, 2), np.int64))] * len(positions)
    x, y = (positions[..., axis][slot, device].astype(float) for axis in (0, 1))
    runs, order = _runs(slot, x, y, radius)
    slot, device, x, y = (values.take(order) for values in (slot, device, x, y))
    looked = np.zeros(len(slot) + 1, np.int64)
    np.cumsum(sum(last - first for first, last in runs), out=looked[1:])
    ends = np.searchsorted(slot, np.arange(1, len(positions) + 1))  # in the order, slots follow each other
    used = max(1, int(np.searchsorted(looked[ends], _CANDIDATES, "right")))
    bits = max(1, int(devices - 1).bit_length())
    end = ends[used - 1]
    codes = _near(
        (slot << bits) | device, bits, x, y=y, runs=[(first[:end], last[:end]) for first, last in runs], radius=radius
    )
    pairs = np.empty((len(codes), 2), np.int64)
    mask = (1 << bits) - 1
    pairs[:, 0], pairs[:, 1] = (codes >> bits) & mask, codes & mask
    cuts = np.searchsorted(codes, np.arange(1, used) << 2 * bits)
    return np.split(_fixed(pairs), cuts)


def _runs(slot: np.ndarray, x: np.ndarray, y: np.ndarray, radius: float) -> tuple[list[tuple[Any, ...]], np.ndarray]:
    """An order of the points, and for each in it where the two runs of those who may be near begin and end."""
    wide = radius * _WIDER
    x, y = x - x.min(), y - y.min()
    strip = np.floor(y / wide)
    strips = strip.max() + 2  # of a slot; one is empty, so that slots do not touch
    slack = 16 * np.spacing((slot[-1] + 2) * strips * (x.max() + 3 * wide))  # what rounding can do to the keys
    width = x.max() + 3 * (wide + slack)  # so that the end of a strip is far from the beginning of the next
    keys = (slot * strips + strip) * width + x
    order = np.argsort(keys)
    keys, above = keys[order], ((strip + 1) * wide - y)[order]
    reach = np.sqrt(np.maximum(wide**2 - above**2, 0)) + slack  # in the next strip, which is `above` metres away
    same = np.arange(1, len(keys) + 1), np.searchsorted(keys, keys + (wide + slack), "right")
    following = np.searchsorted(keys, keys + (width - reach)), np.searchsorted(keys, keys + (width + reach), "right")
    return [same, following], order


def _near(
    who: np.ndarray, bits: int, x: np.ndarray, y: np.ndarray, runs: list[tuple[Any, ...]], radius: float
) -> np.ndarray:
    """Slot, lower and higher device of each pair in one number, sorted: what tells points apart is `who`."""
    found = [np.empty(0, np.int64)]
    for first, last in runs:
        lengths = last - first
        before = np.zeros(len(first) + 1, np.int64)
        np.cumsum(lengths, out=before[1:])
        shift = first - before[:-1]
        cuts = np.append(np.searchsorted(before, np.arange(0, before[-1], _STEP)), len(first))
        for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist()):
            one = np.repeat(np.arange(begin, end), lengths[begin:end])
            other = shift.take(one)
            other += np.arange(before[begin], before[end])
            near = np.flatnonzero(squared(x, y, one, other) <= radius**2)
            low, high = who.take(one.take(near)), who.take(other.take(near))
            found.append((np.minimum(low, high) << bits) | (np.maximum(low, high) & ((1 << bits) - 1)))
    codes = np.concatenate(found)
    codes.sort()
    return codes


def squared(x: np.ndarray, y: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Squared distances of pairs of points, all in float64."""
    across, along = x.take(one), y.take(one)
    across -= x.take(other)
    along -= y.take(other)
    across *= across
    along *= along
    across += along
    return across


def _fixed(pairs: np.ndarray) -> np.ndarray:
    pairs.setflags(write=False)
    return pairs
