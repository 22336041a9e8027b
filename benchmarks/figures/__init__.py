"""What a benchmark found, as a small file in benchmarks/figures/, and where and when that was.

A file has the fields of `Figures`. Its targets are rows of a table of benchmarks/README.md: {"name", "value", "target",
"met"}. "met" is None of what was not measured or has no target. `command` says how it can be measured again.
"""

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1]
ROOT = BENCHMARKS.parent
FOLDER = BENCHMARKS / "figures"
CODE = ("src", "recipes", "claims", "benchmarks/*.py")  # what figures depend on
KEYS = {"name", "value", "target", "met"}


@dataclass(frozen=True)
class Figures:
    """The rows of one table."""

    name: str
    command: str  # after "python benchmarks/"
    date: str
    machine: str
    targets: list
    commit: str = ""  # of the code that ran; "+" after it: with changes that were not committed
    published: str = ""  # of figures that were copied from the page: the commit in which they came to it
    busy: bool = False  # other programs ran
    seconds: float | None = None

    @classmethod
    def read(cls, file):
        return cls(**json.loads(file.read_text(encoding="utf-8")))

    def write(self):
        FOLDER.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False)
        (FOLDER / f"{self.name}.json").write_text(text + "\n", encoding="utf-8")

    def with_targets(self, rows):
        return replace(self, targets=[as_target(row) for row in rows])

    def is_of_this_code(self):
        """Nothing that these figures depend on has changed since."""
        if not self.commit or self.commit.endswith("+"):
            return False
        return not _git("diff", "--name-only", self.commit, "--", *CODE, *_new_files(), default="?")


def as_target(row):
    """A row as tables have it; refuses what has other keys or types."""
    if set(row) - {"timed"} != KEYS or not isinstance(row["name"], str) or row["met"] not in (True, False, None):
        raise ValueError(f"expected a row with {', '.join(sorted(KEYS))}; found {json.dumps(row)}")
    if row["met"] is not None and (row["value"] is None or not row["target"]):
        raise ValueError(f"{row['name']}: it is {'met' if row['met'] else 'missed'} without a value or a target")
    return {key: row[key] for key in ("name", "value", "target", "met")}


def target(name, value, least=None, most=None, unit=""):
    """A row that is met between these bounds; not measured if the value is None."""
    both = (("at least", least), ("at most", most))
    bounds = [f"{word} {bound:,g}{unit}" for word, bound in both if bound is not None]
    bounds = [f"{least:,g}{unit}"] if least == most and bounds else bounds
    inside = value is not None and (least is None or value >= least) and (most is None or value <= most)
    return {
        "name": name,
        "value": value,
        "target": " and ".join(bounds),
        "met": inside if bounds and value is not None else None,
    }


def every():
    """All files, by name."""
    return {file.stem: Figures.read(file) for file in sorted(FOLDER.glob("*.json"))}


def measured(name, command, targets, busy, seconds=None):
    """Figures of the code as it is, on this machine, today."""
    found = Figures(name, command, today(), machine(), [], this_commit(), busy=busy, seconds=seconds)
    return found.with_targets(targets)


def today():
    return datetime.now(UTC).date().isoformat()


def this_commit():
    """The commit that is checked out, with "+" if code has been changed since."""
    changed = _git("status", "--porcelain", "--", *CODE)
    return _git("rev-parse", "--short=7", "HEAD") + ("+" if changed else "")


def machine():
    """Cores, processor, torch."""
    return f"{os.cpu_count()} cores, {_processor()}, torch {version('torch').partition('+')[0]}"


def is_busy():
    """More than half a core is taken by others, in the mean over a minute."""
    return os.getloadavg()[0] > 0.5


def _processor():
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _new_files():
    return _git("ls-files", "--others", "--exclude-standard", "--", *CODE).splitlines()


def _git(*arguments, default=""):
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else default
