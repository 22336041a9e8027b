"""Cross-modal hashing in a federation: what each method reaches, how search and its measures perform.

    python benchmarks/hashing.py [--quick] [--json] [--only tables,ranking,...] [--seeds 3] [--cells ...] [--out DIR]

- ranking: mean average precision of 2,000 queries beside the reference loop; 2,100 x 193,734 in time and memory.
- search: Hamming search among a million codes beside faiss used directly.
- large: the same among ten million, in time and memory of one query.
- everyday: ten queries as people type them over real fashion photos, and 33 further ones, precision at 10.
- zero-shot: kinds of things that no device has seen, by their names, precision at 10.
- tables: all methods of the paper's tables on real fashion pairs, three code lengths, and FedCAFE's parts.
- rivals: FedCAFE against methods that are tuned on pairs of their own with the same number of runs each.
everyday, zero-shot, tables and rivals need the fashion pairs in WAYFARE_SHARED (data/hashing). With --out their runs
are kept, and an interrupted benchmark goes on with them. With --quick everyday and zero-shot are left out, and tables
and rivals are a made-up sample, shown but not judged. Exit status 1 when a target is missed.
"""

import os
import sys
from pathlib import Path

from command import left_out, main
from hashing_parts import everyday, large, ranking, rivals, search, tables, zero_shot
from wayfare.engines import open_engine

PARTS = {"ranking": ranking, "search": search, "large": large, "everyday": everyday, "zero-shot": zero_shot,
         "tables": tables, "rivals": rivals}  # fmt: skip
SHARED = Path(os.environ.get("WAYFARE_SHARED") or Path(__file__).resolve().parents[2] / "shared")
ARCHIVE = SHARED / "data" / "hashing" / "fashion_products.zip"


def measure(name, args, out):
    if name in ("ranking", "search", "large"):
        return PARTS[name].measure(args.quick)
    if name in ("tables", "rivals"):
        more = (args.cells,) if name == "rivals" else ()
        return PARTS[name].measure(args.quick, args.seeds, ARCHIVE, out, args.workers or os.cpu_count(), *more)
    with open_engine("auto", args.workers) as machine:
        return PARTS[name].measure(ARCHIVE, out, machine)


def is_possible(name, quick):
    if name in ("everyday", "zero-shot") and quick:
        left_out(name, "it takes minutes: without --quick it is run")
        return False
    if name in ("everyday", "zero-shot", "tables", "rivals") and not quick and not ARCHIVE.is_file():
        left_out(name, "the fashion pairs are not here: set WAYFARE_SHARED")
        return False
    return True


if __name__ == "__main__":
    about = "of rivals, bases and methods: DCMH,fedavg,fedcafe"
    sys.exit(main(__doc__, "a minute for each part", PARTS, measure, is_possible, {"tables", "rivals"}, cells=about))
