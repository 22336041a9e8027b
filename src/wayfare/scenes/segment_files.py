"""Found objects as files: psg.json and panoptic pictures, as annotations are, and detections.json with scores.

OUT/psg.json             `wayfare graph OUT` draws graphs of them; `data.path` and others read them, too
OUT/detections.json      what task.mode.detections reads for SGDet: the same objects with their scores
OUT/panoptic/NAME.png    the masks
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from wayfare.core import disk
from wayfare.scenes.segmenting import FoundSegments, SegmentHead


class SegmentFiles:
    """Takes what was found in one photo after the other, and writes it."""

    def __init__(self, out: Path, head: SegmentHead) -> None:
        self.out, self.head = out, head
        self._entries: list[dict[str, Any]] = []
        self._detections: dict[str, Any] = {}
        self._stems: set[str] = set()
        disk.make_folder(out)
        for name in ("panoptic", "images"):
            disk.make_folder(out / name)

    def add(self, photo: Path, found: FoundSegments) -> None:
        stem = photo.stem
        while stem in self._stems:
            stem += "-2"
        self._stems.add(stem)
        panoptic, copy = f"panoptic/{stem}.png", f"images/{stem}{photo.suffix}"
        shutil.copyfile(photo, self.out / copy)
        ids = found.places + 1  # 0 is no object
        colours = np.stack([ids % 256, ids // 256 % 256, ids // 65536], 2).astype(np.uint8)
        Image.fromarray(colours).save(self.out / panoptic)
        kinds = [self.head.classes.index(label) for label in found.labels]
        boxes = [[round(float(value), 1) for value in box] for box in found.boxes]
        areas = np.bincount(ids.reshape(-1), minlength=len(kinds) + 1)[1:].tolist()
        height, width = found.places.shape
        self._entries.append({
            "file_name": copy, "height": height, "width": width, "image_id": stem,
            "pan_seg_file_name": panoptic,
            "segments_info": [
                {"id": place + 1, "category_id": kind, "iscrowd": 0, "isthing": int(kind < len(self.head.things)),
                 "area": area}
                for place, (kind, area) in enumerate(zip(kinds, areas))
            ],
            "annotations": [{"bbox": box, "bbox_mode": 0, "category_id": kind} for box, kind in zip(boxes, kinds)],
            "relations": [],
        })  # fmt: skip
        self._detections[photo.name] = {
            "panoptic": panoptic,
            "objects": [
                {"label": label, "box": box, "score": round(float(score), 4), "segment": place + 1}
                for place, (label, box, score) in enumerate(zip(found.labels, boxes, found.scores))
            ],
        }

    def finish(self) -> None:
        head = self.head
        whole = {
            "data": self._entries, "thing_classes": list(head.things), "stuff_classes": list(head.stuff),
            "predicate_classes": list(head.predicates), "test_image_ids": [],
        }  # fmt: skip
        disk.write(self.out / "psg.json", json.dumps(whole).encode())
        disk.write(self.out / "detections.json", json.dumps(self._detections).encode())
