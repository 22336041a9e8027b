"""Writes benchmarks/README.md: the tables from benchmarks/figures/*.json, the text around them from benchmarks/page.md.

    python benchmarks/page.py                                                writes the page
    python benchmarks/page.py --check                                        exit status 1 if it is out of date
    python benchmarks/scale.py --json | python benchmarks/page.py scale      enters figures, and writes the page
    python benchmarks/page.py places-campus found.json --command "places.py --only campus" --busy

Figures are entered under a name of lower-case letters, digits and hyphens, with today's date, the commit and the
machine. `<!-- figures: NAME -->` in page.md is where their table goes. They are the JSON that a benchmark prints with
--json: {"targets": [{"name", "value", "target", "met"}, ...]}; a row without a target has "" there and null in "met".
--busy says that other programs ran beside it.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from figures import BENCHMARKS, every, is_busy, measured

PAGE, TEMPLATE = BENCHMARKS / "README.md", BENCHMARKS / "page.md"
MARK = re.compile(r"<!-- figures: ([a-z0-9-]+) -->\n")
_BUSY = "†"


def rendered():
    """The page."""
    found, text = every(), TEMPLATE.read_text(encoding="utf-8")
    named = MARK.findall(text)
    for name in (*found, *named):
        if named.count(name) != 1:
            line = f"<!-- figures: {name} -->"
            sys.exit(f"{name}: expected the line {line} in benchmarks/page.md once; found {named.count(name)}")
    return MARK.sub(lambda match: table(found[match[1]]) if match[1] in found else "Not measured yet.\n", text)


def table(figures):
    """As Markdown, with what it rests on above it."""
    mark = _BUSY if figures.busy else ""
    return "\n".join([f"{origin(figures)}{mark}", "", "| | figure | target | |", "|---|---|---|---|",
                      *(_row(row) for row in figures.targets), ""])  # fmt: skip


def origin(figures):
    """When, with which code, and on what; "measured before" where only the page tells."""
    commit = f"commit {figures.commit}" if figures.commit else f"measured before commit {figures.published}"
    return f"`{figures.command}`: {figures.date}, {commit}, {figures.machine}"


def _row(row):
    met = {True: "met", False: "**missed**", None: "" if row["value"] is not None else "not measured"}[row["met"]]
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in
                             (row["name"], words(row["value"]), row["target"], met)) + " |"  # fmt: skip


def words(value):
    """A number with three digits that count; text as it is."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", help="enter figures under this name")
    parser.add_argument("file", nargs="?", type=Path, help="their JSON; default: standard input")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--busy", action="store_true", help="other programs ran; also if the machine is busy now")
    parser.add_argument("--command", default="", help="how they were measured; by default NAME.py")
    args = parser.parse_args()
    if args.name:
        enter(args)
    page = rendered()
    if args.check:
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page
        print("up to date" if current else "benchmarks/README.md is out of date: python benchmarks/page.py")
        return 0 if current else 1
    PAGE.write_text(page, encoding="utf-8")
    return 0


def enter(args):
    """Keep the figures that a benchmark printed."""
    if args.name not in MARK.findall(TEMPLATE.read_text(encoding="utf-8")):
        sys.exit(f"{args.name}: there is no line <!-- figures: {args.name} --> in benchmarks/page.md to put its table")
    try:
        found = json.loads(args.file.read_text(encoding="utf-8") if args.file else sys.stdin.read())
        if found.get("quick"):
            sys.exit("these are figures of --quick, which are not published")
        command = args.command or f"{args.name}.py"
        if not (BENCHMARKS / Path(command).parts[0].split()[0]).is_file():
            sys.exit(f"--command {command!r}: there is no such benchmark")
        measured(args.name, command, found["targets"], args.busy or is_busy()).write()
    except OSError as error:
        sys.exit(str(error))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        sys.exit(f"not the JSON of a benchmark: {error}")


if __name__ == "__main__":
    sys.exit(main())
