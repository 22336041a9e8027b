"""Small TOML files that come from somebody else, such as invitations."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from wayfare.core import disk


def read_small_toml(path: Path, most: int) -> dict[str, Any]:
    """What is in a file of at most so many bytes; OSError, ValueError or RecursionError if it cannot be read."""
    if path.stat().st_size > most:
        raise ValueError(f"it has more than {most} bytes")
    return tomllib.loads(disk.read(path).decode("utf-8"))
