"""Devices that meet: what they gain, at which scale, how fast, and what liars can do.

    python benchmarks/encounters.py [--quick] [--json] [--only accuracy,speed,...] [--seeds 3] [--out DIR]

- accuracy: initial, gossip, FedTour and an oracle on CIFAR-10 with 300 devices, beside the paper's numbers.
- scale: the paper's 1,900 devices for a day on a frozen network, seconds and memory; an estimate for VGG16.
- regressor: pairs of models that improve, and the regressor's error on models it has not seen.
- contacts: who is near whom, beside a scipy cKDTree for each slot.
- speed: merged models judged, beside a plain torch loop; the same gossip workload beside gossipy.
- faults: devices that lie about their models.
accuracy, scale and regressor need CIFAR-10 (`wayfare data get cifar10`). With --out the runs of accuracy are kept, and
an interrupted benchmark goes on with them. With --quick accuracy, scale and faults are shown, but not judged: they take
seeds and a whole day. Exit status 1 when a target is missed.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from encounters_parts import accuracy, contacts, faults, regressor, scale, speed
from places_parts.common import note
from wayfare.data.cache import cache_dir
from wayfare.errors import WayfareError
from wayfare.machine import opened

PARTS = {"contacts": contacts, "speed": speed, "accuracy": accuracy, "scale": scale, "regressor": regressor,
         "faults": faults}  # fmt: skip
ON_CIFAR = {"accuracy", "scale", "regressor"}
SHOWN_ONLY = {"accuracy", "scale", "faults"}  # with --quick


def measure(name, args, out):
    if name == "contacts":
        return contacts.measure(args.quick)
    if name == "speed":
        return speed.measure(args.quick, out)
    if name == "scale":
        return scale.measure(args.quick, out)
    if name == "faults":
        return faults.measure(args.quick, args.seeds)
    with opened("auto", args.workers) as machine:
        if name == "regressor":
            return regressor.measure(args.quick, machine, args.seeds)
        return accuracy.measure(args.quick, args.seeds, out, machine)


def is_possible(name, quick):
    """The regressor wants CIFAR-10 in any case, the others unless they are quick."""
    missing = name in ON_CIFAR and not (quick and name != "regressor") and not (cache_dir() / "cifar10").is_dir()
    if missing:
        note.print(f"[yellow]left out: {name}[/yellow] it needs CIFAR-10: wayfare data get cifar10", highlight=False)
    return not missing


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a minute for each part: few devices, one seed")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated parts")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="where runs are kept; by default a folder that is removed at the end")
    parser.add_argument("--workers", type=int, default=0, help="processes; 0 takes one per core")
    args = parser.parse_args()
    only = {name.strip() for name in args.only.split(",")}
    if wrong := only - set(PARTS):
        parser.error(f"--only {', '.join(sorted(wrong))}: there are {', '.join(PARTS)}")
    args.seeds = 1 if args.quick else args.seeds
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        out = args.out or Path(temporary)
        out.mkdir(parents=True, exist_ok=True)
        try:
            for name in PARTS:
                if name in only and is_possible(name, args.quick):
                    note.print(f"== {name}", highlight=False)
                    found[name] = measure(name, args, out.resolve())
        except WayfareError as error:
            note.print(f"[red]error[/red] {error}", highlight=False, soft_wrap=True)
            return 2
    judged = {name: figures for name, figures in found.items() if not (args.quick and name in SHOWN_ONLY)}
    targets = [target for name, figures in judged.items() for target in PARTS[name].targets(figures)]
    met = all(target["met"] is not False for target in targets)  # None: not measured, and says why
    if args.json:
        print(json.dumps({"quick": args.quick, "figures": found, "targets": targets, "met": met}))
        return 0 if met else 1
    console = Console()
    for name, figures in found.items():
        PARTS[name].show(figures, console)
    for target in targets:
        show(target, console)
    return 0 if met else 1


def show(target, console):
    marks = {True: "[green]met[/green]", False: "[red]MISSED[/red]", None: "[yellow]not measured[/yellow]"}
    value = "nothing" if target["value"] is None else f"{target['value']:.3g}"
    line = f"{marks[target['met']]}  {target['name']}: {value} ({target['target']})"
    console.print(line, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
