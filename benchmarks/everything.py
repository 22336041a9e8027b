"""All benchmarks, one after the other.

    python benchmarks/everything.py --quick      every benchmark with --quick: small sizes, nothing is entered
    python benchmarks/everything.py              in full: what is not of the present code is measured and entered
    python benchmarks/everything.py --list       what that is, and how long each took last time
    python benchmarks/everything.py --only places-campus,scale

Each one that ends is entered in benchmarks/figures/ and on the page at once, and runs of a long one are kept in
build/bench, so the same command goes on after an interruption. Exit status 1 when a target is missed or a benchmark
fails. Run it with all changes committed and nothing else running: figures say of which commit they are.
"""

import argparse
import json
import subprocess
import sys
import time

from figures import BENCHMARKS, ROOT, every, is_busy, measured, this_commit

KEPT = ROOT / "build" / "bench"
WITH_PARTS = {
    "places": {"default": "default", "campus": "campus", "confidence": "confidence", "paper": "town,city,bgu",
               "unknown": "unknown", "speed": "speed"},
    "scenes": {"": "metrics,speed,tables", "photos": "photos", "sgdet": "sgdet",
               "bias": "tables --cells imp-shard-bias,motifs-shard-bias,vctree-shard-bias,gpsnet-shard-bias"},
    "privacy": {part: part for part in ("noise", "attacks", "accuracy", "accountants", "peers")},
    "cost": {"": "objects,hashing", "places": "places", "clock": "clock"},
    "encounters": {"": "contacts,speed,accuracy,scale,regressor,faults", "policies": "policies"},
    "hashing": {"": "ranking,search,large,tables",
                **{name: name for name in ("rivals", "everyday", "zero-shot")}},
    "serve": {"": "use", "harm": "harm", "fuzz": "fuzz"},
    "flower": {"": "equal,speed,wire,time,large,faults", "hosts": "hosts"},
}  # fmt: skip
WITHOUT = {"rounds": "", "scale": "", "gate": " --runs 2601", "crashes": "", "town": "", "mutations": "",
           "export": "", "meet": "", "index": ""}  # fmt: skip
SCRIPTS = {"index": "index_scale.py"}
QUICK = [*(f"{name}.py" for name in (*WITHOUT, *WITH_PARTS) if name not in SCRIPTS), *SCRIPTS.values(), "hashes.py"]


def jobs():
    """Commands by the name of their figures."""
    found = {name: SCRIPTS.get(name, f"{name}.py") + options for name, options in WITHOUT.items()}
    for script, parts in WITH_PARTS.items():
        for part, only in parts.items():
            found[f"{script}-{part}" if part else script] = f"{script}.py --only {only}"
    return found


def chosen(only):
    found = jobs()
    names = [name.strip() for name in only.split(",") if name.strip()] or list(found)
    if wrong := [name for name in names if name not in found]:
        sys.exit(f"--only {', '.join(wrong)}: there are {', '.join(found)}")
    return {name: found[name] for name in names}


def last_time(figures):
    """How long it took, in words."""
    if figures is None or figures.seconds is None:
        return "not known how long"
    return f"{figures.seconds / 60:.0f} min" if figures.seconds >= 90 else f"{figures.seconds:.0f} s"


def quick():
    """1 if one fails."""
    failed = []
    for script in QUICK:
        print(f"== {script}", file=sys.stderr, flush=True)
        if subprocess.run([sys.executable, script, "--quick"], cwd=BENCHMARKS).returncode:
            failed.append(script)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def in_full(todo, known):
    """1 if a target is missed or a benchmark fails."""
    wrong = []
    for name, command in todo.items():
        print(f"== {name}: {command} (last time: {last_time(known.get(name))})", file=sys.stderr, flush=True)
        busy, began = is_busy(), time.monotonic()
        done = subprocess.run([sys.executable, *_arguments(name, command)], cwd=BENCHMARKS, stdout=subprocess.PIPE)
        try:
            found = json.loads(done.stdout)
            measured(name, command, found["targets"], busy, round(time.monotonic() - began)).write()
        except (ValueError, KeyError, TypeError) as error:
            print(f"{name} failed with exit status {done.returncode}: {error}", file=sys.stderr, flush=True)
            wrong.append(name)
            continue
        subprocess.run([sys.executable, "page.py"], cwd=BENCHMARKS, check=True)
        if not found["met"]:
            wrong.append(name)
    if wrong:
        print(f"missed or failed: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


def _arguments(name, command):
    """A benchmark of parts keeps its runs."""
    keeps = command.partition(".py")[0] in WITH_PARTS
    return [*command.split(), "--json", *(["--out", str(KEPT / name)] if keeps else [])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true", help="run nothing")
    parser.add_argument("--only", default="", help="comma-separated names of figures")
    args = parser.parse_args()
    if args.quick:
        return quick()
    known = every()
    current = {name for name, figures in known.items() if figures.is_of_this_code()}
    todo = {name: command for name, command in chosen(args.only).items() if name not in current}
    seconds = [known[name].seconds for name in todo if name in known and known[name].seconds is not None]
    took = f"{len(seconds)} of them took {sum(seconds) / 60:.0f} min last time"
    print(f"code: {this_commit()}; {len(todo)} to measure; {took}", file=sys.stderr, flush=True)
    if args.list:
        for name, command in todo.items():
            of = f"of {known[name].commit or known[name].published}" if name in known else "never entered"
            print(f"{name:18} {command:50} {of}, {last_time(known.get(name))}")
        return 0
    return in_full(todo, known)


if __name__ == "__main__":
    sys.exit(main())
