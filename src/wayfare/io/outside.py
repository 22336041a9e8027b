"""Files that somebody else's recipe names on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any


def settings_outside(part: Any, allowed: Iterable[Path]) -> list[tuple[str, str]]:
    """Settings of a dataclass of settings that name a file in none of these folders, with their names."""
    folders = [folder.resolve() for folder in allowed]
    return [
        (name, text)
        for name, text in _paths(part)
        if not any(Path(text).expanduser().resolve().is_relative_to(folder) for folder in folders)
    ]


def _paths(part: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Settings that lead out of the current folder, by name."""
    for field in fields(part):
        value, full = getattr(part, field.name), f"{name}.{field.name}".lstrip(".")
        if is_dataclass(value):
            yield from _paths(value, full)
        elif isinstance(value, str | Path):
            path = Path(value)
            if path.is_absolute() or ".." in path.parts or str(value).startswith("~"):
                yield full, str(value)
