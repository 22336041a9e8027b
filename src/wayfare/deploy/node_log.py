"""A node's own log, HOME/node.log: what it was asked, what it sent, what it refused; for its owner's eyes only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path


def say(home: Path, text: str) -> None:
    """Add a line."""
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
