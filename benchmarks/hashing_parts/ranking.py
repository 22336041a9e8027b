"""How fast MAP over the whole list is computed, beside a loop over the queries; and how much a large list takes.

The reference loop is what the public programs do, FedCAFE's among them, in torch: for one query after another multiply
its code with all others, sort, take the precision at every relevant item. The same loop in numpy stands beside it: it
sorts quicker, and takes about a third of the time as long as its matrix products are kept to one thread. By turns in
one process with one thread, CPU seconds, the best of five. Random codes and labels of the size of MIRFlickr-25K: how
good the codes are changes no side's time. That all compute the same is shown by the loop in numpy with a stable sort,
which is not timed.

The large list has the size of NUS-WIDE; in a process of its own, so that its peak memory can be told.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from rich.table import Table
from threadpoolctl import threadpool_limits

from wayfare.core.seeds import rng_for
from wayfare.hashing.ranking import mean_average_precision, pack, tally

BITS = 64
SIZES, QUICK_SIZES = (2_000, 18_015, 24), (100, 4_000, 24)  # queries, items, labels
LARGE, QUICK_LARGE = (2_100, 193_734, 21), (50, 40_000, 21)
LEAST, MOST_SECONDS, MOST_GIB, WITHIN = 20.0, 60.0, 4.0, 1e-5
REPEATS = 5


def drawn(queries, items, labels):
    """Outputs of a hash layer and labels, two on average: (Q, bits), (D, bits), (Q, C), (D, C)."""
    rng = rng_for(0, "ranking", queries, items)
    outputs = (rng.standard_normal((count, BITS), np.float32) for count in (queries, items))
    return *outputs, *(rng.random((count, labels)) < 2 / labels for count in (queries, items))


def looped(queries, database, query_labels, database_labels):
    """MAP a query at a time; codes of -1 and 1, labels of 0 and 1, all float32."""
    total = 0.0
    for code, labels in zip(queries, query_labels):
        relevant = (labels[None] @ database_labels.T > 0)[0]
        count = int(relevant.sum())
        if count:
            order = torch.sort((len(code) - code[None] @ database.T)[0] / 2)[1]
            places = torch.nonzero(relevant[order])[:, 0] + 1
            total += float((torch.arange(1, count + 1) / places).mean())
    return total / len(queries)


def looped_in_numpy(queries, database, query_labels, database_labels, kind=None):
    """The same of arrays; `kind` is of the sort."""
    total = 0.0
    for code, labels in zip(queries, query_labels):
        relevant = labels @ database_labels.T > 0
        count = int(relevant.sum())
        if count:
            order = np.argsort((len(code) - code @ database.T) / 2, kind=kind)
            places = np.flatnonzero(relevant[order]) + 1
            total += float((np.arange(1, count + 1) / places).mean())
    return total / len(queries)


def compared(sizes):
    """CPU seconds of the loops and of ours with either way of ties, and how far the figures are apart."""
    *outputs, query_labels, database_labels = drawn(*sizes)
    labels = query_labels, database_labels
    signs = [np.where(each >= 0, 1, -1).astype(np.float32) for each in outputs]
    floats = [each.astype(np.float32) for each in labels]
    tensors, codes = [torch.from_numpy(each) for each in (*signs, *floats)], [pack(each) for each in outputs]
    ways = {
        "loop": lambda: looped(*tensors),
        "numpy": lambda: looped_in_numpy(*signs, *floats),
        "expected": lambda: mean_average_precision(*codes, *labels),
        "stable": lambda: mean_average_precision(*codes, *labels, ties="stable"),
    }
    seconds, found = {way: [] for way in ways}, {}
    with threadpool_limits(1):
        for _ in range(REPEATS):
            for way, work in ways.items():
                began = time.process_time()
                found[way] = work()
                seconds[way].append(time.process_time() - began)
        stable = looped_in_numpy(*signs, *floats, kind="stable")
    best = {way: min(each) for way, each in seconds.items()}
    ratios = {way: best["loop"] / best[way] for way in ways if way != "loop"}
    return {"cpu_seconds": best, "map": found, "ratios": ratios, "differ_by": abs(found["stable"] - stable)}


def _child(sizes):
    queries, database, query_labels, database_labels = drawn(*sizes)
    codes = pack(queries), pack(database)
    del queries, database
    began, cpu = time.perf_counter(), time.process_time()
    counts = tally(*codes, query_labels, database_labels)
    found = {"map": counts.map(), "random_map": counts.random_map()}
    took = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps(found | took | {"peak_gib": peak}))


def measure(quick):
    sizes, large = (QUICK_SIZES, QUICK_LARGE) if quick else (SIZES, LARGE)
    run = [sys.executable, str(Path(__file__).resolve()), json.dumps(large)]
    apart = json.loads(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    return {"sizes": sizes, "bits": BITS, **compared(sizes), "large": {"sizes": large, **apart}}


def targets(figures):
    from places_parts.common import at_least, at_most

    large, name = figures["large"], f"MAP, {_text(figures['sizes'])}"
    return [
        at_least(f"{name}: speed beside the reference loop", figures["ratios"]["expected"], LEAST, timed=True),
        at_most(f"{name}: difference to the loop's figure, ties stable", figures["differ_by"], WITHIN),
        at_most(f"MAP, {_text(large['sizes'])}: seconds", large["seconds"], MOST_SECONDS, timed=True),
        at_most(f"MAP, {_text(large['sizes'])}: peak memory, GiB", large["peak_gib"], MOST_GIB, timed=True),
    ]


def _text(sizes):
    return f"{sizes[0]:,} x {sizes[1]:,} x {BITS} bits"


def show(figures, out):
    table = Table(title=f"MAP, {_text(figures['sizes'])}, one thread", title_justify="left")
    for name in ("", "CPU seconds", "times as fast", "MAP"):
        table.add_column(name, justify="right" if name else "left")
    names = {
        "loop": "reference loop",
        "numpy": "the loop in numpy",
        "expected": "ours, ties expected",
        "stable": "ours, ties stable",
    }
    for way, name in names.items():
        ratio = f"{figures['ratios'][way]:.1f}" if way in figures["ratios"] else ""
        table.add_row(name, f"{figures['cpu_seconds'][way]:.3f}", ratio, f"{figures['map'][way]:.6f}")
    out.print(table)
    large = figures["large"]
    out.print(
        f"{_text(large['sizes'])}: {large['seconds']:.1f} s, {large['peak_gib']:.2f} GiB; MAP {large['map']:.4f}, "
        f"of random codes {large['random_map']:.4f}",
        highlight=False,
    )


if __name__ == "__main__":
    _child(json.loads(sys.argv[1]))
