"""The town in PSG's form: psg.json, photographs and panoptic pictures, and the super-classes of its words.

psg.json  word_categorized.json
train2017/000000000001.jpg  panoptic_train2017/000000000001.png      val2017 for the pictures to test with
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.core.seeds import seed_for
from wayfare.town.model import Photo, Shot
from wayfare.town.words import CLASSES, PREDICATE_CLASSES, STUFF_CLASSES, THING_CLASSES, categorised

_STRIDE = 0x9E3779  # between segments' ids: odd, so that all differ, and large, so that all three bytes are used
_CATEGORY = {kind: number for number, kind in enumerate(CLASSES)}
_PREDICATE = {name: number for number, name in enumerate(PREDICATE_CLASSES)}


def wants(shot: Shot) -> bool:
    """Half of the flat photographs."""
    return not shot.pano and seed_for("psg", shot.key) % 2 == 0


def take(folder: Path, stage: Path, number: int, photo: Photo, jpeg: bytes) -> dict[str, Any]:
    """Write the photograph and its panoptic picture; the entry of psg.json is what `index` needs."""
    part = "val2017" if _is_test(photo.shot) else "train2017"
    name = f"{number + 1:012d}"
    for file, data in (
        (folder / part / f"{name}.jpg", jpeg),
        (folder / f"panoptic_{part}" / f"{name}.png", panoptic_png(photo.truth.segments)),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    items = photo.truth.items
    height, width = photo.truth.segments.shape
    return {
        "file_name": f"{part}/{name}.jpg",
        "height": height,
        "width": width,
        "image_id": str(number + 1),
        "coco_image_id": str(number + 1),
        "pan_seg_file_name": f"panoptic_{part}/{name}.png",
        "segments_info": [
            {
                "id": segment_id(item.segment),
                "category_id": _CATEGORY[item.kind],
                "iscrowd": 0,
                "isthing": int(_CATEGORY[item.kind] < len(THING_CLASSES)),
                "area": int(item.area),
            }
            for item in items
        ],
        "annotations": [
            {"bbox": [float(side) for side in item.box], "bbox_mode": 0, "category_id": _CATEGORY[item.kind]}
            for item in items
        ],
        "relations": [[int(one), int(other), _PREDICATE[name]] for one, other, name in photo.truth.relations],
        "location": photo.shot.city,
        "weather": photo.shot.weather,
    }


def index(folder: Path, stage: Path, entries: Sequence[tuple[Shot, dict[str, Any]]], seed: int) -> None:
    """Write psg.json, a picture on each line, and the super-classes."""
    facts = {
        "thing_classes": list(THING_CLASSES),
        "stuff_classes": list(STUFF_CLASSES),
        "predicate_classes": list(PREDICATE_CLASSES),
        "test_image_ids": [entry["image_id"] for shot, entry in entries if _is_test(shot)],
    }
    folder.mkdir(parents=True, exist_ok=True)
    head = json.dumps(facts, ensure_ascii=False)[:-1]
    with (folder / "psg.json").open("w", encoding="utf-8", newline="\n") as file:
        file.write(head + ', "data": [\n')
        for place, (_, entry) in enumerate(entries):
            file.write((",\n" if place else "") + json.dumps(entry, ensure_ascii=False, separators=(",", ":")))
        file.write("\n]}\n")
    words = json.dumps(categorised(), ensure_ascii=False, indent=1)
    (folder / "word_categorized.json").write_text(words + "\n", encoding="utf-8")


def _is_test(shot: Shot) -> bool:
    return seed_for("psg test", shot.key) % 10 == 0


def segment_id(place: int) -> int:
    """The id of the segment at a place among the items; never 0, which is no segment."""
    return (1 + place * _STRIDE) % 2**24


def panoptic_png(segments: np.ndarray) -> bytes:
    """A PNG whose pixels are ids, red + 256 green + 65536 blue. By hand, in a third of the time that Pillow takes."""
    height, width = segments.shape
    ids = np.array([*(segment_id(place) for place in range(int(segments.max(initial=-1)) + 1)), 0], "<u4")
    colours = ids[segments].view(np.uint8).reshape(height, width, 4)[:, :, :3]
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = colours.reshape(height, -1)
    return b"".join((
        b"\x89PNG\r\n\x1a\n",
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        _chunk(b"IDAT", zlib.compress(rows.tobytes(), 1)),
        _chunk(b"IEND", b""),
    ))  # fmt: skip


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
