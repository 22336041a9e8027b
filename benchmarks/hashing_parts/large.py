"""Ten million codes of 64 bits with 8-bit numbers: time and memory of a query, beside faiss used directly.

Codes, and the numbers that they were rounded from, are random. A process of its own opens the index and asks one
query after another with one thread: the ten best of all, ordered by score, as `wayfare search` does once the words
are encoded. Beside it the same codes in faiss, which gives the ten nearest by Hamming distance alone, and the nearest
2,000, which is what ours looks at before it orders. Times are CPU milliseconds, the median over queries; the first
query is not counted. Memory is what the process has for itself (RssAnon), the most that it had at any moment of the
queries (VmHWM, which is set back before them, without RssFile), and what is left after them; before the index is
opened the libraries have some already. Mapped files are beside it (RssFile), and the system takes them back when it
needs the space.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import faiss
import numpy as np
import torch
from rich.table import Table

from wayfare.core.seeds import rng_for
from wayfare.hashing import code_index
from wayfare.hashing.code_index import CodeFacts, Codes, CommittedBytes, quantised
from wayfare.hashing.ranking import pack
from wayfare.hashing.search import nearest_items

BITS, NEAREST, LOOKED_AT, QUERIES = 64, 10, 2000, 20
CODES, QUICK_CODES, PART = 10_000_000, 300_000, 250_000
MOST_MILLISECONDS, MOST_MIB, LEAST = 50.0, 200.0, 0.9


def measure(quick):
    count = QUICK_CODES if quick else CODES
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "index"
        folder.mkdir()
        _write(folder, count)
        size = sum(file.stat().st_size for file in folder.iterdir())
        found = {side: _apart(side, folder) for side in ("ours", "faiss")}
    return {"codes": count, "bytes": size, **found}


def _apart(side, folder):
    run = [sys.executable, str(Path(__file__).resolve()), side, str(folder)]
    return json.loads(subprocess.run(run, capture_output=True, text=True, check=True).stdout)


def _write(folder, count):
    """The files of an index, written in one go: adding ten million items one by one would take minutes."""
    facts = CodeFacts("0" * 64, "benchmark", BITS // 8)
    files = {name: (folder / name).open("wb") for name in facts.files}
    kept = dict.fromkeys(files, CommittedBytes())
    for start in range(0, count, PART):
        rows = np.arange(start, min(start + PART, count))
        outputs = rng_for(0, "numbers", start).standard_normal((len(rows), BITS), np.float32)
        contents = {
            code_index.CODES: pack(outputs).tobytes(), code_index.VALUES: quantised(outputs).tobytes(),
            code_index.IDS: "".join(f"{row:08}.jpg\n" for row in rows.tolist()).encode(),
            code_index.METADATA: b"{}\n" * len(rows),
            code_index.ENDS: np.stack([13 * (rows + 1) - 1, 3 * (rows + 1) - 1], 1).astype(np.int64).tobytes(),
            code_index.REPLACED: b"",
        }  # fmt: skip
        for name, content in contents.items():
            files[name].write(content)
            kept[name] = kept[name].with_more(content)
    for file in files.values():
        file.close()
    names = ("codes", "values", "ids", "metadata", "ends", "replaced")
    by_name = dict(zip(names, (kept[name] for name in facts.files)))
    whole = CodeFacts(facts.model, facts.run, facts.width, rows=count, **by_name)
    (folder / code_index.FACTS).write_bytes(code_index.encoded(whole))


def _child(side, folder):
    torch.set_num_threads(1)
    queries = rng_for(0, "queries").standard_normal((QUERIES + 1, BITS), np.float32)
    before, began = _memory()["own"], time.process_time()
    found = (_ours if side == "ours" else _faiss)(Path(folder), queries, began)
    print(json.dumps(found | {"before": before}))


def _ours(folder, queries, began):
    codes = Codes(folder)
    opened = time.process_time() - began
    packed = pack(queries)
    nearest_items(codes, queries[0], NEAREST)
    return {
        "opening_seconds": opened,
        **_memory_of(lambda: [nearest_items(codes, query, NEAREST) for query in queries]),
        "best": _timed(lambda row: nearest_items(codes, queries[row], NEAREST)),
        "nearest": _timed(lambda row: codes.near(packed[row], NEAREST)),
    }


def _faiss(folder, queries, began):
    faiss.omp_set_num_threads(1)
    index = faiss.IndexBinaryFlat(BITS)
    index.add(np.fromfile(folder / code_index.CODES, np.uint8).reshape(-1, BITS // 8))
    opened = time.process_time() - began
    packed = pack(queries)
    index.search(packed[:1], NEAREST)
    return {
        "opening_seconds": opened,
        **_memory_of(lambda: [index.search(query[None], NEAREST) for query in packed]),
        "nearest": _timed(lambda row: index.search(packed[row : row + 1], NEAREST)),
        "looked_at": _timed(lambda row: index.search(packed[row : row + 1], LOOKED_AT)),
    }


def _timed(work):
    """CPU milliseconds."""
    work(0)
    taken = []
    for row in range(1, QUERIES + 1):
        began = time.process_time()
        work(row)
        taken.append(1000 * (time.process_time() - began))
    return statistics.median(taken)


def _memory_of(work):
    """MiB of the process during some work, at its most, and after it."""
    Path("/proc/self/clear_refs").write_text("5")  # the most is counted from here
    work()
    found = _memory()
    return {**found, "peak": found["whole_peak"] - found["mapped"]}


def _memory():
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    kinds = {"own": "RssAnon", "mapped": "RssFile", "whole_peak": "VmHWM"}
    return {name: int(lines[line].split()[0]) / 1024 for name, line in kinds.items()}


def targets(figures):
    from places_parts.common import at_least, at_most

    ours, direct, name = figures["ours"], figures["faiss"], f"search in {figures['codes']:,} codes"
    return [
        at_most(f"{name}: CPU milliseconds for the ten best", ours["best"], MOST_MILLISECONDS, timed=True),
        at_most(f"{name}: memory of its own, at its most, MiB", ours["peak"], MOST_MIB, timed=True),
        at_least(f"{name}: speed of the ten nearest, ours beside faiss", direct["nearest"] / ours["nearest"], LEAST,
                 timed=True),
    ]  # fmt: skip


def show(figures, out):
    title = f"{figures['codes']:,} codes of {BITS} bits, {figures['bytes'] / 2**20:,.0f} MiB: one query, one thread"
    table = Table(title=title, title_justify="left")
    for head in ("", "ours", "faiss"):
        table.add_column(head, justify="right" if head else "left")
    ours, direct = figures["ours"], figures["faiss"]
    table.add_row("the ten best by score, CPU ms", f"{ours['best']:.1f}", "")
    table.add_row(f"the {LOOKED_AT:,} nearest, CPU ms", "", f"{direct['looked_at']:.1f}")
    table.add_row("the ten nearest, CPU ms", f"{ours['nearest']:.1f}", f"{direct['nearest']:.1f}")
    table.add_row("opening, CPU s", f"{ours['opening_seconds']:.2f}", f"{direct['opening_seconds']:.2f}")
    table.add_row("memory of its own, at its most, MiB", f"{ours['peak']:.0f}", f"{direct['peak']:.0f}")
    table.add_row("before the index was opened, MiB", f"{ours['before']:.0f}", f"{direct['before']:.0f}")
    table.add_row("mapped, MiB", f"{ours['mapped']:.0f}", f"{direct['mapped']:.0f}")
    out.print(table)


if __name__ == "__main__":
    _child(*sys.argv[1:])
