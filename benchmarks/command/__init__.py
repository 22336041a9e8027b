"""The command that benchmarks of several parts share.

A part is a module with targets(figures) and show(figures, console); `measure(name, args, out)` gives its figures, ready
for JSON. A target is {"name", "value", "target", "met"}; "met" is None where it was not measured: "target" says why.
Targets with "timed" are about speed or memory, which the small sizes of --quick on a busy machine do not tell: they are
printed then, but not judged.
"""

import argparse
import json
import tempfile
from pathlib import Path

from rich.console import Console

from places_parts.common import note
from wayfare.core.errors import WayfareError

_MARKS = {True: "[green]met[/green]", False: "[red]MISSED[/red]", None: "[yellow]not measured[/yellow]"}


def main(about, quick, parts, measure, is_possible=lambda name, quick: True, shown_only=frozenset(), cells=""):
    """Run the parts that are asked for; 1 when a target is missed. `shown_only` are not judged with --quick.

    `cells` is what --cells means, where a benchmark has it.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default=",".join(parts), help="comma-separated parts")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="where runs are kept; by default a folder that is removed at the end")
    parser.add_argument("--workers", type=int, default=0, help="processes; 0 takes one per core")
    if cells:
        parser.add_argument("--cells", default="", help=f"comma-separated; {cells}")
    args = parser.parse_args()
    only = {name.strip() for name in args.only.split(",")}
    if wrong := only - set(parts):
        parser.error(f"--only {', '.join(sorted(wrong))}: there are {', '.join(parts)}")
    args.seeds = 1 if args.quick else args.seeds
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        out = args.out or Path(temporary)
        out.mkdir(parents=True, exist_ok=True)
        try:
            for name in parts:
                if name in only and is_possible(name, args.quick):
                    note.print(f"== {name}", highlight=False)
                    found[name] = measure(name, args, out.resolve())
        except WayfareError as error:
            note.print(f"[red]error[/red] {error}", highlight=False, soft_wrap=True)
            return 2
    judged = {name: figures for name, figures in found.items() if not (args.quick and name in shown_only)}
    targets = [target for name, figures in judged.items() for target in parts[name].targets(figures)]
    targets = not_timed(targets) if args.quick else targets
    met = all(target["met"] is not False for target in targets)
    if args.json:
        print(json.dumps({"quick": args.quick, "figures": found, "targets": targets, "met": met}))
        return 0 if met else 1
    console = Console()
    for name, figures in found.items():
        parts[name].show(figures, console)
    print_targets(targets, console)
    return 0 if met else 1


def not_timed(targets):
    """The targets of --quick: those about speed and memory are not judged."""
    return [{**target, "met": None} if target.get("timed") else target for target in targets]


def print_targets(targets, console):
    """A line for each that demands something; the others are figures of the page."""
    for target in (target for target in targets if target["target"]):
        value = "nothing" if target["value"] is None else f"{target['value']:.3g}"
        unjudged = target["met"] is None and target["value"] is not None
        mark = "[yellow]not judged[/yellow]" if unjudged else _MARKS[target["met"]]
        line = f"{mark}  {target['name']}: {value} ({target['target']})"
        console.print(line, highlight=False, soft_wrap=True)


def left_out(name, why):
    """Say that a part cannot be measured here."""
    note.print(f"[yellow]left out: {name}[/yellow] {why}", highlight=False, soft_wrap=True)
