"""The town as pairs: its photographs under tags, or pictures of its things with labels of two levels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from wayfare.data import pair_mats, pair_mirflickr
from wayfare.data.cache import cache_dir
from wayfare.data.pair_source import Options, Saying, Source

LAYOUTS = {"town": "mirflickr", "town-fashion": "fashion"}


def folder(data: str, size: str, seed: int, progress: Saying = lambda *_: None) -> Path:
    """The town's folder in the cache, made on first use; `size` is tiny, small or city."""
    from wayfare.data.town.make import Spec, make

    spec = Spec(size, seed, layouts=(LAYOUTS[data],))
    found = cache_dir() / "towns" / f"pairs-{LAYOUTS[data]}-{spec.size}-{spec.seed}-form{spec.form}"
    make(found, spec, progress=lambda text, done, total: progress(f"making the town: {text}", done, total))
    return found


def read(path: Path, options: Options) -> Source:
    """Photographs, tags, and labels of what is on them."""
    return replace(pair_mirflickr.read(_inside(path, "mirflickr"), options), name="town")


def read_fashion(path: Path, options: Options) -> Source:
    """Pictures of things, words, and labels of two levels."""
    return replace(pair_mats.read_fashion(_inside(path, "fashion"), options), name="town-fashion")


def _inside(path: Path, layout: str) -> Path:
    return path / layout if (path / "town.json").exists() else path
