"""Hamming search in a million codes of 64 bits: ours, from an index on the disk, beside faiss used directly.

The codes are random, the ten nearest are asked for. Both sides by turns in one process with one thread, CPU seconds per
query, the best of five; and the same with all threads, wall seconds. Both must give the same answers: the items are
numbered in the order of their ids, so that ties fall the same way.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from rich.table import Table

from wayfare.core.seeds import rng_for
from wayfare.hashing.code_index import CodePart, Codes, add

WIDTH, NEAREST, REPEATS, LEAST = 8, 10, 5, 0.9
CODES, QUICK_CODES, QUERIES, QUICK_QUERIES = 1_000_000, 100_000, 400, 200
PART = 50_000
SIDES = ("ours", "faiss")


def parts(codes):
    for start in range(0, len(codes), PART):
        rows = range(start, min(start + PART, len(codes)))
        yield CodePart(
            [f"photos/{row:07}.jpg" for row in rows], codes[rows], [{"text": f"number {row}"} for row in rows]
        )


def measure(quick):
    import faiss

    rng = rng_for(0, "codes")
    codes = rng.integers(0, 256, (QUICK_CODES if quick else CODES, WIDTH), np.uint8)
    queries = rng.integers(0, 256, (QUICK_QUERIES if quick else QUERIES, WIDTH), np.uint8)
    direct = faiss.IndexBinaryFlat(8 * WIDTH)
    direct.add(codes)
    with tempfile.TemporaryDirectory() as temporary:
        folder, began = Path(temporary) / "index", time.process_time()
        add(folder, "0" * 64, "benchmark", parts(codes))
        made = time.process_time() - began
        size, began = sum(file.stat().st_size for file in folder.iterdir()), time.process_time()
        index = Codes(folder)
        index.search(queries[:1], NEAREST)
        opened = time.process_time() - began
        threads = torch.get_num_threads()
        try:
            alone, same = _by_turns(index, direct, queries, 1, time.process_time)
            together, _ = _by_turns(index, direct, queries, threads, time.perf_counter)
        finally:
            torch.set_num_threads(threads)
            faiss.omp_set_num_threads(threads)
    return {
        "codes": len(codes), "queries": len(queries), "threads": threads, "same_answers": same,
        "ratio": alone["faiss"] / alone["ours"], "per_cpu_second": {side: len(queries) / alone[side] for side in SIDES},
        "per_second": {side: len(queries) / together[side] for side in SIDES},
        "making_cpu_seconds": made, "opening_cpu_seconds": opened, "bytes": size,
    }  # fmt: skip


def _by_turns(index, direct, queries, threads, clock):
    """The best seconds of each side, and whether the answers are the same."""
    import faiss

    torch.set_num_threads(threads)
    taken = {side: [] for side in SIDES}
    for _ in range(REPEATS):
        began = clock()
        ids, distances = index.search(queries, NEAREST)
        taken["ours"].append(clock() - began)
        faiss.omp_set_num_threads(threads)
        began = clock()
        expected, places = direct.search(queries, NEAREST)
        taken["faiss"].append(clock() - began)
    same = bool((distances == expected).all() and (ids == index.ids[places]).all())
    return {side: min(each) for side, each in taken.items()}, same


def targets(figures):
    from places_parts.common import at_least

    name = f"Hamming search in {figures['codes']:,} codes"
    return [
        at_least(f"{name}: queries per second, ours beside faiss", figures["ratio"], LEAST, timed=True),
        {"name": f"{name}: answers", "value": figures["same_answers"], "target": "as faiss gives them",
         "met": figures["same_answers"]},
    ]  # fmt: skip


def show(figures, out):
    title = f"Hamming search in {figures['codes']:,} codes of {8 * WIDTH} bits, the nearest {NEAREST}: queries per"
    table = Table(title=title, title_justify="left")
    for name in ("", "CPU second, one thread", f"second, {figures['threads']} threads"):
        table.add_column(name, justify="right" if name else "left")
    for side in SIDES:
        table.add_row(side, f"{figures['per_cpu_second'][side]:.0f}", f"{figures['per_second'][side]:.0f}")
    out.print(table)
    out.print(
        f"ours is {figures['ratio']:.2f} of faiss; made in {figures['making_cpu_seconds']:.1f} CPU seconds, opened in "
        f"{figures['opening_cpu_seconds']:.1f}, {figures['bytes'] / 2**20:.0f} MiB",
        highlight=False,
    )
