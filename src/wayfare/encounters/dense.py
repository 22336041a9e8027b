"""A dense part of large traces: people who meet each other often, for a tour of fewer devices than the traces have."""

from __future__ import annotations

import heapq

import numpy as np

from wayfare.encounters.contacts import ContactProcess

_SLOTS = 64  # counted together


def densest(contacts: ContactProcess, count: int) -> np.ndarray:
    """So many devices that meet each other often: who has the fewest contacts with those left is left out, by turns."""
    pairs, often = _contacts(contacts)
    devices = len(contacts.devices)
    neighbours: list[list[tuple[int, int]]] = [[] for _ in range(devices)]
    for (one, other), times in zip(pairs.tolist(), often.tolist()):
        neighbours[one].append((other, times))
        neighbours[other].append((one, times))
    left = [sum(times for _, times in of) for of in neighbours]
    queue = [(times, device) for device, times in enumerate(left)]
    heapq.heapify(queue)
    out = np.zeros(devices, bool)
    remaining = devices
    while remaining > count:
        times, device = heapq.heappop(queue)
        if out[device] or times != left[device]:
            continue  # an older entry
        out[device] = True
        remaining -= 1
        for other, shared in neighbours[device]:
            if not out[other]:
                left[other] -= shared
                heapq.heappush(queue, (left[other], other))
    return np.flatnonzero(~out)


def _contacts(contacts: ContactProcess) -> tuple[np.ndarray, np.ndarray]:
    """All pairs that are ever in contact, and in how many slots."""
    devices, codes, counts = len(contacts.devices), np.empty(0, np.int64), np.empty(0, np.int64)
    for first in range(0, contacts.slots, _SLOTS):
        slots = range(first, min(first + _SLOTS, contacts.slots))
        new = np.concatenate([contacts.pairs(slot)[:, 0] * devices + contacts.pairs(slot)[:, 1] for slot in slots])
        more, times = np.unique(new, return_counts=True)
        codes, place = np.unique(np.concatenate([codes, more]), return_inverse=True)
        counts = np.bincount(place, np.concatenate([counts, times]), len(codes)).astype(np.int64)
    return np.column_stack(np.divmod(codes, devices)), counts
