"""The town in CelebA's form: forty attributes of each photograph; whose it is stands for the identity.

img_align_celeba/000001.jpg  list_attr_celeba.txt  list_eval_partition.txt  identity_CelebA.txt
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.core.seeds import seed_for
from wayfare.town.model import Photo, Shot
from wayfare.town.truth import ATTRIBUTES
from wayfare.town.write.crops import held_out

_SHARE = 0.1  # of the pictures to validate, and as many to test


def wants(shot: Shot) -> bool:
    """A quarter of the flat photographs."""
    return not shot.pano and seed_for("celeba", shot.key) % 4 == 0


def take(folder: Path, stage: Path, number: int, photo: Photo, jpeg: bytes) -> dict[str, Any]:
    """Write the photograph; its attributes are what `index` needs."""
    pictures = folder / "img_align_celeba"
    pictures.mkdir(parents=True, exist_ok=True)
    (pictures / _name(number)).write_bytes(jpeg)
    return {"attributes": list(photo.truth.attributes)}


def index(folder: Path, stage: Path, entries: Sequence[tuple[Shot, dict[str, Any]]], seed: int) -> None:
    """Write the lists."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [f"{len(entries)}", " ".join(ATTRIBUTES)]
    for number, (_, entry) in enumerate(entries):
        held = frozenset(entry["attributes"])
        rows.append(f"{_name(number)} " + " ".join(" 1" if name in held else "-1" for name in ATTRIBUTES))
    _write(folder / "list_attr_celeba.txt", rows)
    parts = partition([shot.sequence for shot, _ in entries])
    _write(folder / "list_eval_partition.txt", [f"{_name(number)} {part}" for number, part in enumerate(parts)])
    people = {walker: place + 1 for place, walker in enumerate(dict.fromkeys(shot.walker for shot, _ in entries))}
    identities = [f"{_name(number)} {people[shot.walker]}" for number, (shot, _) in enumerate(entries)]
    _write(folder / "identity_CelebA.txt", identities)


def partition(walks: Sequence[str]) -> np.ndarray:
    """0 to train with, 1 to validate, 2 to test: by walks."""
    parts = np.where(held_out(walks, "celeba test", _SHARE), 2, 0)
    rest = np.flatnonzero(parts == 0)
    validation = held_out([walks[place] for place in rest.tolist()], "celeba validation", _SHARE / (1 - _SHARE))
    parts[rest[validation]] = 1
    return parts


def _name(number: int) -> str:
    return f"{number + 1:06d}.jpg"


def _write(file: Path, lines: Sequence[str]) -> None:
    file.write_bytes("".join(f"{line}\n" for line in lines).encode())
