"""A node's own log, HOME/node.log: what it was asked, what it sent, what it refused; for its owner's eyes only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from wayfare.core.text import printable_lines

_LONGEST = 20_000  # characters of what is said at once


def say(home: Path, text: str) -> None:
    """Add a line; what follows in further lines is indented, so that nobody's text looks like a line of the log."""
    text = printable_lines(text, _LONGEST).rstrip("\n").replace("\n", "\n    ")
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (home / "node.log").open("a", encoding="utf-8", errors="replace") as file:
        file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")


def lines_since_now(home: Path) -> Iterator[list[str]]:
    """Whole lines that have come since the last look."""
    path = home / "node.log"
    read = path.stat().st_size if path.exists() else 0
    while True:
        data = b""
        if path.exists():
            with path.open("rb") as file:
                file.seek(read)
                data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        read += len(whole)
        yield whole.decode("utf-8", "replace").splitlines()
