"""Contacts of a day beside a plain loop: a scipy cKDTree for each slot, its pairs collected and put together.

Each runs in a process of its own, so that its peak memory can be told. Ours does more: pairs come in order, with their
distances. The walkers are made up: they stand about at sights, a Gaussian crowd around each, and walk from one to
another at 1.2 m/s; 1,900 of them are as near to each other as those of a real day (13 million contact-slots).
"""

import hashlib
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from rich.table import Table

from wayfare.core.seeds import rng_for
from wayfare.encounters.contacts import LocatedContacts
from wayfare.encounters.traces import Traces

RADIUS, SLOT = 50.0, 30.0
CASES = {"a day": (1_900, 1_440, 1_700.0), "a city": (100_000, 100, 22_000.0)}  # devices, slots, metres across
QUICK = {"a day": (1_900, 144, 1_700.0), "a city": (20_000, 20, 9_800.0)}


def walkers(devices, slots, across):
    """Positions, float32 (slots, devices, 2)."""
    rng = rng_for(0, "walkers", devices, slots)
    sights = rng.uniform(0, across, (max(4, devices // 60), 2))

    def somewhere(count):
        return sights[rng.integers(len(sights), size=count)] + rng.normal(0, 60, (count, 2))

    positions = np.empty((slots, devices, 2), np.float32)
    here, goal = somewhere(devices), somewhere(devices)
    for slot in range(slots):
        way = goal - here
        length = np.hypot(*way.T)
        here += way * np.minimum(1, 1.2 * SLOT / np.maximum(length, 1e-9))[:, None]
        leaving = (length < 1.2 * SLOT) & (rng.random(devices) < 0.05)
        goal[leaving] = somewhere(int(leaving.sum()))
        positions[slot] = here
    return positions


# ---- one way of doing it, in a process of its own


def plain(positions):
    """As anyone would write it."""
    from scipy.spatial import cKDTree

    slots, pairs = [], []
    for slot, places in enumerate(positions):
        found = cKDTree(places).query_pairs(RADIUS, output_type="ndarray")
        pairs.append(found)
        slots.append(np.full(len(found), slot))
    return np.concatenate(slots), np.concatenate(pairs)


def ours(positions):
    """Slot by slot; nothing is kept."""
    _, devices, _ = positions.shape
    names, still = tuple(map(str, range(devices))), np.zeros(devices, bool)
    contacts = LocatedContacts(
        Traces(
            names, SLOT, start=0.0, date="", positions=positions, stationary=still, origin=(0.0, 0.0), geographic=False
        ),
        RADIUS,
    )
    for slot in range(contacts.slots):
        yield contacts.at(slot)


def _digest(slots_of_pairs):
    """The same for the same pairs, in whatever order those of a slot come."""
    known = hashlib.sha256()
    for pairs in slots_of_pairs:
        pairs = np.sort(pairs, axis=1)
        known.update(pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))].astype(np.int64).tobytes())
        known.update(b"|")
    return known.hexdigest()


def _child(way, devices, slots, across, repeats):
    import scipy.spatial  # noqa: F401  its import is no part of what is measured, and weighs the same in both

    positions = walkers(devices, slots, across)
    taken, before = [], _peak()
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        if way == "ours":
            count = sum(len(pairs) for pairs, _ in ours(positions))
        else:
            result = plain(positions)
            count = len(result[0])
        taken.append((time.process_time() - cpu, time.perf_counter() - wall))
        if len(taken) < repeats:
            result = None
    cpu, wall = (statistics.median(times) for times in zip(*taken))
    figures = {"cpu_seconds": cpu, "seconds": wall, "peak_mib": _peak(), "peak_before_mib": before, "contacts": count}
    if way == "ours":
        digest = _digest(pairs for pairs, _ in ours(positions))
    else:
        digest = _digest(np.split(result[1], np.searchsorted(result[0], np.arange(1, slots))))
    print(json.dumps(figures | {"digest": digest}))


def _peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# ---- both


def measure(quick):
    figures = {}
    for name, case in (QUICK if quick else CASES).items():
        found = {way: _run(way, *case, 3) for way in ("plain", "ours")}
        same = found["ours"].pop("digest") == found["plain"].pop("digest")
        figures[name] = {"devices": case[0], "slots": case[1], "same": same, **found}
    return figures


def _run(way, *numbers):
    command = [sys.executable, "-m", "encounters_parts.contacts", way, *map(str, numbers)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def targets(figures):
    from places_parts.common import at_least, at_most

    found = []
    for name, each in figures.items():
        case = f"contacts of {name}, {each['devices']:,} devices x {each['slots']:,} slots"
        speed, memory = (each["plain"][key] / each["ours"][key] for key in ("cpu_seconds", "peak_mib"))
        found += [
            {"name": f"{case}: the same pairs", "value": each["same"], "target": "yes", "met": each["same"]},
            at_least(f"{case}: speed beside a cKDTree for each slot", speed, 1.0, timed=True),
            at_most(f"{case}: peak memory, share of the plain loop's", 1 / memory, 1.0, timed=True),
        ]
    return found


def show(figures, out):
    out.print("contacts within 50 m, beside a cKDTree for each slot; ours with order and distances")
    table = Table()
    for head in ("", "contact-slots", "", "CPU s", "s", "peak MiB", "before it began"):
        table.add_column(head, justify="right" if head else "left")
    for name, each in figures.items():
        for way in ("plain", "ours"):
            one = each[way]
            label = f"{name}: {each['devices']:,} x {each['slots']:,}" if way == "plain" else ""
            told = (f"{one['cpu_seconds']:.2f}", f"{one['seconds']:.2f}", f"{one['peak_mib']:.0f}")
            table.add_row(label, f"{one['contacts']:,}", way, *told, f"{one['peak_before_mib']:.0f}")
    out.print(table)


if __name__ == "__main__":
    _child(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
