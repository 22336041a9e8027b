"""What a federation costs: bytes until a run is as good as FedAvg, with and without `[compression]`; virtual time.

    python benchmarks/cost.py [--quick] [--json] [--only objects,hashing,places,clock] [--seeds 3] [--out DIR]

- objects: scikit-learn's digits on ten clients (the recipe quickstart).
- hashing: real fashion photos and titles, contrastive loss, frozen EfficientNet-Lite0 (WAYFARE_SHARED, data/hashing).
- places: the demo's recipe on the synthetic town.
A level is reached in the first round whose metric is within one point of the end of FedAvg's run; both runs are held
to it, and a compressed run may take twice the rounds. Which compression is judged is chosen by runs with seeds
of their own, one of each and two more of the best three: on what clients hold out (objects), or on queries of their own
(hashing). On places it is chosen on another town, by one run of each of two.
- clock: digits on sixty clients with heavy-tailed speeds: virtual time of FedBuff and of FedAvg that waits, to the same
  level of FedAvg's. The buffer is chosen by a run with a seed of its own, on what clients hold out. Then whether
  FedBuff without staleness is FedAvg, bit for bit, and the models of 200 orders in which devices get done.
With --out an interrupted benchmark goes on where it was. Exit status 1 when a target is missed.
"""

import os
import sys

from command import left_out, main
from cost_parts import reached, waiting

PARTS = {**dict.fromkeys(("objects", "hashing", "places"), reached), "clock": waiting}


def measure(name, args, out):
    workers = args.workers or os.cpu_count()
    if name == "clock":
        return waiting.measure(args.quick, args.seeds, out / name, workers)
    return reached.measure(name, args.quick, args.seeds, out / name, workers)


def is_possible(name, quick):
    if name == "places" and quick:
        left_out(name, "it takes minutes: without --quick it is run")
        return False
    if name == "hashing" and not quick and not reached.ARCHIVE.is_file():
        left_out(name, "the fashion pairs are not here: set WAYFARE_SHARED")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(__doc__, "fewer rounds, one seed, not judged", PARTS, measure, is_possible, shown_only=set(PARTS)))
