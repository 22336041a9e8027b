"""The town in MIRFlickr's folders: numbered photographs, the tags under them, and lists of what is on which.

mirflickr/im1.jpg  mirflickr/meta/tags/tags1.txt  mirflickr/doc/common_tags.txt
mirflickr25k_annotations_v080/<label>.txt  ..._r1.txt
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wayfare.core.seeds import seed_for
from wayfare.town.model import Photo, Shot
from wayfare.town.truth import LABELS
from wayfare.town.words import SIGHTS, THINGS

MIN_COUNT = 20  # photographs that a tag must be under to count as common

# labels that also come in a stricter form: what they are about, and how much of the picture it must cover
_CLEARLY: dict[str, tuple[tuple[str, ...], float]] = {
    "animals": (THINGS["Animals"], 0.02),
    "car": (("car",), 0.04),
    "dog": (("dog",), 0.02),
    "flower": (("flower",), 0.04),
    "hill": (("hill",), 0.05),
    "people": (("person",), 0.04),
    "plant_life": (("tree", "grass", "flower", "potted plant"), 0.2),
    "sights": (SIGHTS, 0.08),
    "sky": (("sky",), 0.35),
    "street": (("road",), 0.25),
    "structures": (("building", "wall", "fence", *SIGHTS), 0.5),
    "transport": (THINGS["Vehicles"], 0.06),
    "tree": (("tree",), 0.15),
    "water": (("water", "fountain"), 0.1),
}


def wants(shot: Shot) -> bool:
    """Half of the flat photographs."""
    return not shot.pano and seed_for("mirflickr", shot.key) % 2 == 0


def take(folder: Path, stage: Path, number: int, photo: Photo, jpeg: bytes) -> dict[str, Any]:
    """Write the photograph and its tags; tags and labels are what `index` needs."""
    truth = photo.truth
    tags = folder / "mirflickr" / "meta" / "tags"
    tags.mkdir(parents=True, exist_ok=True)
    (folder / "mirflickr" / f"im{number + 1}.jpg").write_bytes(jpeg)
    (tags / f"tags{number + 1}.txt").write_bytes("".join(f"{tag}\n" for tag in truth.tags).encode())
    areas: Counter[str] = Counter()
    for item in truth.items:
        areas[item.kind] += int(item.area)
    clearly = [
        name
        for name, (kinds, share) in _CLEARLY.items()
        if name in truth.labels and sum(areas[kind] for kind in kinds) >= share * truth.segments.size
    ]
    return {"tags": list(truth.tags), "labels": list(truth.labels), "clearly": clearly}


def index(folder: Path, stage: Path, entries: Sequence[tuple[Shot, dict[str, Any]]], seed: int) -> None:
    """Write the common tags with their frequencies, and the list of each label."""
    counts = Counter(tag for _, entry in entries for tag in set(entry["tags"]))
    common = sorted((-count, tag) for tag, count in counts.items() if count >= MIN_COUNT)
    _write(folder / "mirflickr" / "doc" / "common_tags.txt", [f"{tag} {-count}" for count, tag in common])
    lists = folder / "mirflickr25k_annotations_v080"
    for key, names, suffix in (("labels", LABELS, ""), ("clearly", tuple(_CLEARLY), "_r1")):
        for name in names:
            numbers = [place + 1 for place, (_, entry) in enumerate(entries) if name in entry[key]]
            _write(lists / f"{name}{suffix}.txt", [str(number) for number in numbers])


def _write(file: Path, lines: Sequence[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes("".join(f"{line}\n" for line in lines).encode())
