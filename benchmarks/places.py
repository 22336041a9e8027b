"""Place recognition: how well it is learnt, how fast it is, and whether it knows what it does not know.

    python benchmarks/places.py [--quick] [--json] [--only default,campus,...] [--rows ROW,...] [--seeds 3] [--out DIR]

- default: the recipe `places` on four cities, trained on twelve cities of other towns, beside untrained networks, local
  only, other splits and strategies, and pooled training; with the bytes that a client sends.
- campus: the recipe `photos` with DINOv2 on real photographs of a campus, if they are in $WAYFARE_SHARED/data/places
  (default ../shared) and `wayfare data get dinov2-s` has been run.
- confidence: on cities that nobody trained on, and on the campus: calibration, and the precision of what is answered.
- town: the paper's loss and mining: federated, local and pooled training on the synthetic town beside the values of the
  FedVPR paper. Each of its cities is tested on in turn and the others are trained on. What does not come out in the
  paper's order is printed as such.
- city: the same on the town of 32,000 photographs in 8 cities, for the rows that are judged.
- bgu: the same on real photographs of a campus, night queries in a day database, for new dates and for new places.
- speed: embedding and training beside a plain torch loop, mining's share of a local epoch, the proximity split of 1.6
  million photos, and one photo in an index of a million.
- unknown: how often photos of places that are not in the index are called unknown, and the precision-recall curve.
With --out an interrupted benchmark goes on where it was. With --quick default, campus, confidence, city and bgu are
left out, and accuracy and speed are shown, but not judged: they take seeds, rounds and sizes. Exit status 1 when a
target is missed.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

from rich.console import Console

from command import not_timed, print_targets
from places_parts import accuracy, campus, common, confidence, default, speed, unknown
from wayfare.core.errors import WayfareError
from wayfare.io.cache import cache_dir

# ---- all hyper-parameters of the runs; local only, centralised, hierarchy and FedVC get as many local passes as FedAvg

TOWN = {
    "town": "small",
    "height": 96,
    "width": 128,
    "backbone": "efficientnet_lite0_stage5",
    "train": "head",  # pooling and a linear layer on ImageNet's features: whole stages learn 2,000 photos by heart
    "linear": True,
    "whiten": 0.0,  # as in the paper
    # Metres of a client, from which the number of clients of the other splits follows; with 50 m all negatives of a
    # photo show much of what it shows itself. This, the rate and the batch are settled on two other towns (seeds 1, 2).
    "radius": 150.0,
    "rounds": 60,
    "per_round": 3,
    "batch_size": 8,  # triplets
    "lr": 1e-4,  # with larger steps the head learns its few photographs by heart
    "at_most": 0,  # local steps at most; 0: one pass
    "fedvc_steps": 0,  # local steps of FedVC; 0: what one pass takes FedAvg's clients on average
    "interval": 2,  # hierarchy: rounds between two meetings of the cities' servers
    "per_group": 1,  # hierarchy: clients per city and round
    "margin": 0.1,
    "augment": "none",
    "statistics": "batch",
    "validation_clients": 0,
    "tested": 1,  # cities at a time
    "judged_seeds": 10,  # of FedAvg, the random split and local only, which are a point apart; of the others --seeds
    "judges": 10_000,  # of models that are each client's own: all of them
    "cells": ("fedavg", "random", "clustering", "hierarchy", "fedvc", "local", "centralised"),
}
CITY = {
    "town": "city",
    "radius": 200.0,  # its cities are 800 m wide instead of 500: some 60 clients
    "per_round": 5,
    "tested": 2,
    "judged_seeds": 0,
    "validation_clients": 2,
    "judges": 16,
    "cells": ("fedavg", "random", "local", "centralised"),
}
UNKNOWN = {"cells": ("fedavg",), "judged_seeds": 0, "validation_clients": 2}  # on which it learns its threshold
BGU = {
    "radius": 30.0,
    "piece": 40.0,  # sessions are cut into sequences of that many metres
    "strip": 40.0,  # new places: width of the strips
    "date_folds": 3,  # new dates: each of the night sessions in turn
    "place_folds": 4,
    "train": "head",  # as on the town: the photographs to learn from are some 1,000
    "linear": True,
    "whiten": 0.5,
    "rounds": 40,
    "per_round": 4,
    "batch_size": 16,
    "warmup": 1_000_000,  # steps of InfoNCE: all of them. With mined triplets the head learns less from so few photos
    "lr": 3e-5,
    "at_most": 0,
    "negative_radius": 25.0,
    "margin": 0.3,
    "augment": "none",
    "statistics": "batch",
    "validation_clients": 0,
    "judges": 10_000,
}
QUICK_TOWN = {"town": "tiny", "rounds": 1, "per_round": 1, "at_most": 4, "fedvc_steps": 4, "judged_seeds": 0}
QUICK_UNKNOWN = {"validation_clients": 1}  # each city of the tiny town has two clients

PARTS = ("default", "campus", "confidence", "town", "city", "bgu", "speed", "unknown")
note = common.note


def measure(args, out):
    """The figures of each part, and how to show and judge them: name -> (figures, show, targets)."""
    town_settings = SimpleNamespace(**TOWN | (QUICK_TOWN if args.quick else {}))
    path = str(args.town.resolve()) if args.town else ""
    found = {}
    if "speed" in args.only:
        found["speed"] = (speed.speed(args.quick, out), speed.show_speed, speed.speed_targets)
    side_by_side = args.workers or os.cpu_count() or 1
    if "default" in args.only and not args.quick:
        rows = default.default(args.seeds, out / "default", side_by_side, args.rows)
        found["default"] = (rows, default.show, default.targets)
    if not args.quick:
        found |= _real(args, out, side_by_side)
    if "town" in args.only:
        figures = accuracy.town(town_settings, args.seeds, path, out / "town", side_by_side)
        found["town"] = (figures, accuracy.show_town, accuracy.town_targets)
    if "city" in args.only and not args.quick:  # there is no small form of what is about size
        settings = SimpleNamespace(**TOWN | CITY)
        figures = accuracy.town(settings, args.seeds, "", out / "city", side_by_side)
        found["city"] = (figures, accuracy.show_town, accuracy.town_targets)
    if "unknown" in args.only:
        settings = vars(town_settings) | UNKNOWN | (QUICK_UNKNOWN if args.quick else {})
        plan = accuracy.town_plan(SimpleNamespace(**settings), 1, path)
        figures = unknown.unknown(plan, out / "unknown", side_by_side)
        found["unknown"] = (figures, unknown.show_unknown, unknown.unknown_targets)
    return found


def _real(args, out, side_by_side):
    """The parts that need photographs of a campus; `confidence` also has a run of the town."""
    found, rows = {}, {}
    if "confidence" in args.only:
        name = "fedavg/seed-0"
        common.play({name: default.planned(1, out / "default")[name]}, out / "default" / "runs", side_by_side)
        rows["town"] = confidence.confidence(out / "default" / "runs" / name)
    shared = Path(os.environ.get("WAYFARE_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    archive = shared / "data" / "places" / "bgu_campus.zip"
    if args.only & {"bgu", "campus", "confidence"} and not archive.exists():
        note.print(f"[yellow]left out: campus[/yellow] there is no {archive}; set WAYFARE_SHARED", highlight=False)
    elif args.only & {"bgu", "campus", "confidence"}:
        # the photographs are passing guests, and so is what is derived from them
        weights = cache_dir() / "weights"
        with common.cache_in(out / "cache"):
            _link(weights, out / "cache" / "weights")
            photos = accuracy.unpacked(archive, out)
            if "bgu" in args.only:
                figures = accuracy.bgu(SimpleNamespace(**BGU), args.seeds, photos, out / "bgu", side_by_side)
                found["bgu"] = (figures, accuracy.show_bgu, accuracy.bgu_targets)
            if "campus" in args.only:
                figures = campus.campus(photos, out / "campus", side_by_side)
                found["campus"] = (figures, campus.show, campus.targets)
            if "confidence" in args.only:
                name = "sequences/fold-2/fedavg"
                common.play({name: campus.planned(photos)[name]}, out / "campus", side_by_side)
                rows["campus"] = confidence.confidence(out / "campus" / name)
    if rows:
        found["confidence"] = (rows, confidence.show, confidence.targets)
    return found


def _link(target, link):
    """Published weights are not derived from photographs: the user's are used."""
    link.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and not link.exists():
        link.symlink_to(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a minute or two: a tiny town, one round, one seed")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated parts")
    parser.add_argument("--rows", default=",".join(default.CELLS), help="comma-separated rows of the part default")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="where runs are kept; by default a folder that is removed at the end")
    parser.add_argument("--town", type=Path, help="an MSLS tree to use as the town")
    parser.add_argument("--workers", type=int, default=0, help="processes; 0 takes one per core")
    args = parser.parse_args()
    args.only = {name.strip() for name in args.only.split(",")}
    if wrong := args.only - set(PARTS):
        parser.error(f"--only {', '.join(sorted(wrong))}: there are {', '.join(PARTS)}")
    args.rows = {name.strip() for name in args.rows.split(",")}
    if wrong := args.rows - set(default.CELLS):
        parser.error(f"--rows {', '.join(sorted(wrong))}: there are {', '.join(default.CELLS)}")
    args.seeds = 1 if args.quick else args.seeds
    with tempfile.TemporaryDirectory() as temporary:
        out = args.out or Path(temporary)
        out.mkdir(parents=True, exist_ok=True)
        try:
            found = measure(args, out.resolve())
        except WayfareError as error:
            note.print(f"[red]error[/red] {error}", highlight=False, soft_wrap=True)
            return 2
    judged = {name: parts for name, parts in found.items() if name == "speed" or not args.quick}
    targets = [target for figures, _, judge in judged.values() for target in judge(figures)]
    targets = not_timed(targets) if args.quick else targets
    met = all(target["met"] is not False for target in targets)
    if args.json:
        figures = {name: parts[0] for name, parts in found.items()}
        print(json.dumps({"quick": args.quick, "settings": {"town": TOWN, "city": CITY, "bgu": BGU}, "figures": figures,
                          "targets": targets, "met": met}))  # fmt: skip
        return 0 if met else 1
    console = Console()
    for figures, show, _ in found.values():
        show(figures, console)
    print_targets(targets, console)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
