"""Scene graphs in a federation: what the heads learn in seven splits, how fast, and how the splits are made.

    python benchmarks/scenes.py [--quick] [--json] [--only tables,speed,...] [--seeds 3] [--out DIR] [--cells A,B]

- metrics: R@K and mR@K of 2,000 images beside a loop over every triplet; the label-pair frequency baseline.
- speed: category tensors and K-means of the whole union; training of each head beside a plain torch loop.
- photos: objects found in 29 real photos, reachable triplets, and R@20 from pixels.
- tables: Tab. 1 and 2 of the paper in PredCls, four heads on real annotations with 100 clients, scaled down.
- sgdet: Tab. 1 on the town, with the objects that `wayfare detect` finds there.
tables needs the PSG annotations in WAYFARE_SHARED (data/scenes). With --out its runs are kept, and an interrupted
benchmark goes on with them: this is also how it is run in full (--set is `wayfare reproduce`'s; see docs/scenes.md).
With --cells tables and sgdet have only those, such as imp-shard-bias. With --quick they are of the tiny town, shown but
not judged. Exit status 1 when a target is missed.
"""

import os
import sys

from command import left_out, main
from scenes_parts import metrics, photos, sgdet, speed, tables

_SHOWN = {"tables", "sgdet"}  # by --quick, but not judged
PARTS = {"metrics": metrics, "speed": speed, "photos": photos, "tables": tables, "sgdet": sgdet}


def measure(name, args, out):
    workers = args.workers or os.cpu_count()
    if name in ("tables", "sgdet"):
        return PARTS[name].measure(args.quick, args.seeds, out, workers, set(filter(None, args.cells.split(","))))
    return PARTS[name].measure(args.quick)


def is_possible(name, quick):
    if name == "tables" and not quick and metrics.union_and_pool() is None:
        left_out(name, "the real annotations are not here: set WAYFARE_SHARED")
        return False
    if name == "photos" and not photos.is_here():
        left_out(name, "it needs the photos of WAYFARE_SHARED, the detector, and `wayfare data get dinov2-s`")
        return False
    if name == "sgdet" and not sgdet.is_here():
        left_out(name, "it needs `wayfare data get dinov2-s`")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(__doc__, "a minute for each part", PARTS, measure, is_possible, _SHOWN, cells="of tables and sgdet"))
