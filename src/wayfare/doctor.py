"""What is installed, what is missing, what torch can use, and where the caches are: what `wayfare doctor` shows."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from wayfare.io.cache import cache_dir
from wayfare.nets.published import PUBLISHED

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_DEVELOPMENT = "dev"
_DEVICES = Path("~/.wayfare").expanduser()  # of nodes and of devices that meet, unless --home says otherwise


def examine() -> dict[str, Any]:
    """All facts, as plain values."""
    needed, extras = _requirements()
    return {
        "wayfare": version("wayfare"),
        "where": str(Path(__file__).parent),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count() or 1,
        "packages": {name: installed(name) for name in needed},
        "missing": [name for name in needed if installed(name) is None],
        "extras": {
            extra: {"missing": [name for name in names if installed(name) is None], "packages": names}
            for extra, names in extras.items()
        },
        "torch": _torch(),
        "cache": _cache(cache_dir()),
        "devices": {"path": str(_DEVICES), "bytes": _size(_DEVICES)},
        "weights": {name: (cache_dir() / "weights" / f"{name}.safetensors").exists() for name in PUBLISHED},
    }


def installed(name: str) -> str | None:
    """The version of an installed package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _requirements() -> tuple[list[str], dict[str, list[str]]]:
    """The packages that Wayfare needs, and those of each extra."""
    needed: list[str] = []
    extras: dict[str, list[str]] = {}
    for line in requires("wayfare") or []:
        specification, _, marker = line.partition(";")
        name = _NAME.match(specification.strip())
        extra = _EXTRA.search(marker)
        if name is None or (extra and extra[1] == _DEVELOPMENT):
            continue
        (extras.setdefault(extra[1], []) if extra else needed).append(name[0])
    return needed, extras


def _torch() -> dict[str, Any]:
    if installed("torch") is None:
        return {}
    import torch  # here: it may be missing, and that is worth reporting

    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return {"version": torch.__version__, "gpus": gpus, "uses": "cuda" if gpus else "cpu"}


def _cache(folder: Path) -> dict[str, Any]:
    """Where derived data is, and how large each part of it is."""
    parts = sorted(entry for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
    sizes = {part.name: _size(part) for part in parts}
    return {"path": str(folder), "bytes": sum(sizes.values()), "parts": sizes}


def _size(folder: Path) -> int:
    """Bytes on the disk; what disappears meanwhile counts nothing."""
    total = 0
    for root, _, files in os.walk(folder):
        for name in files:
            try:
                total += Path(root, name).lstat().st_size
            except OSError:
                continue
    return total
