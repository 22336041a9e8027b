"""Files of a site: JSON, and small pictures, all in one file so that nobody sees which of them are shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.pages.thumbnails import PictureSource, Thumbnails

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Pack:
    """How pictures are packed."""

    side: int  # of the longer side, pixels; 0: no pictures
    progress: Progress
    shown: list[Path] = field(default_factory=list)  # the files of which a small picture was made


def write_pack(pack: Pack, files: Sequence[Path | None], target: Path) -> dict[str, str] | None:
    """`target`.bin and `target`-ends.bin; of a picture that cannot be read, nothing."""
    if not pack.side:
        return None
    thumbnails, ends, end = Thumbnails(), list[float](), 0
    content, table = target.with_suffix(".bin"), target.with_name(f"{target.name}-ends.bin")
    with content.open("wb") as out:
        for number, file in enumerate(files, start=1):
            made = None if file is None else thumbnails.picture(PictureSource(file, ""), pack.side)
            if made and file:
                end += out.write(made.jpeg)
                pack.shown.append(file)
            ends.append(end)
            pack.progress("small pictures", number, len(files))
    np.array(ends, "<f8").tofile(table)
    return {"file": f"data/{content.name}", "ends": f"data/{table.name}"}


def write_json(file: Path, content: Any) -> None:
    """Compact, and the same bytes for the same content."""
    file.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False), encoding="utf-8")
