"""Detections: files of them by hand, what they stand for, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scene_parts import scenes
from wayfare.core.errors import DataError
from wayfare.scenes.detections import annotated, mask_overlaps, read, true_labels
from wayfare.scenes.pairs import box_overlaps

# Three images, 200 wide and 100 high, named 0, 1, 2 with files 0.png, 1.png, 2.png.
SOME = scenes(
    ([0, 1], [[0, 0, 10, 10], [50, 0, 60, 10]], [[0, 1, 2]]),
    ([2], [[0, 0, 20, 20]], []),
    ([3, 3], [[0, 0, 20, 20], [20, 0, 40, 20]], [[1, 0, 0]]),
)
BOX = [1, 2, 30, 40]


def written(folder: Path, content: object) -> Path:
    file = folder / "found.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def test_a_file_by_hand(tmp_path: Path) -> None:
    """By id, by file's name, none; names and numbers of classes; a box is cut at the picture's sides."""
    two = [{"label": "thing1", "box": BOX, "score": 0.5}, {"label": 3, "box": [-5, -5, 500, 7.5]}]
    found = read(written(tmp_path, {"0": two, "2.png": [{"label": 0, "box": BOX}], "9": "not looked at"}), SOME)
    assert found.found.object_offsets.tolist() == [0, 2, 2, 3] and len(found.found.relations) == 0
    assert found.found.labels.tolist() == [1, 3, 0] and found.scores.tolist() == [0.5, 1, 1]
    assert found.found.boxes.tolist() == [BOX, [0, 0, 200, 7.5], BOX]
    some = found.select(np.array([2, 0]))
    assert some.found.labels.tolist() == [0, 1, 3] and some.scores.tolist() == [1, 0.5, 1]
    assert some.found.image_ids.tolist() == ["2", "0"]


def painted(file: Path, *segments: tuple[int, tuple[int, int, int, int]]) -> None:
    """A panoptic picture of rectangles, x1, y1, x2, y2."""
    pixels = np.zeros((100, 200, 3), np.uint8)
    for value, (x1, y1, x2, y2) in segments:
        pixels[y1:y2, x1:x2] = [value % 256, value // 256, 0]
    Image.fromarray(pixels).save(file)


def test_segments_give_boxes_and_masks(tmp_path: Path) -> None:
    painted(tmp_path / "a.png", (300, (10, 20, 30, 50)), (7, (100, 0, 120, 10)))
    painted(tmp_path / "truth.png", (5, (20, 20, 40, 50)), (6, (100, 0, 120, 20)))
    two = [{"label": 0, "segment": 300}, {"label": 1, "segment": 7, "box": [0, 0, 5, 5]}]
    file = written(tmp_path, {"0": {"panoptic": "a.png", "objects": two}})
    found = read(file, SOME).found
    assert found.boxes.tolist() == [[10, 20, 30, 50], [0, 0, 5, 5]]
    names = np.array(["truth.png", "", ""], object)
    ids = np.array([5, 6, -1, -1, -1], np.int32)
    truth = replace(SOME, root=tmp_path, panoptic_files=names, segment_ids=ids)
    # 10 x 30 of 30 x 30 pixels; 20 x 10 of 20 x 20; the others do not meet. Images without detections have none.
    np.testing.assert_allclose(mask_overlaps(found, truth), [1 / 3, 0, 0, 1 / 2])


def test_the_form_of_psg(tmp_path: Path) -> None:
    """Classes go by name, not by number; images by id."""
    entry = {
        "image_id": "2", "file_name": "2.png", "relations": [], "height": 100, "width": 200,
        "annotations": [{"bbox": BOX, "bbox_mode": 0, "category_id": 1}],
    }  # fmt: skip
    whole = {"thing_classes": ["other", "thing2"], "predicate_classes": ["does0"], "data": [entry]}
    found = read(written(tmp_path, whole), SOME)
    assert found.found.object_offsets.tolist() == [0, 0, 0, 1] and found.found.labels.tolist() == [2]
    assert found.found.predicates == SOME.predicates and found.scores.tolist() == [1]
    entry["annotations"][0]["category_id"] = 0
    with pytest.raises(DataError, match="no class 'other'"):
        read(written(tmp_path, whole), SOME)


def test_what_detections_stand_for() -> None:
    """IoU 100/200, 60/100 of the second, and 1/3: the best of at least one half, whatever the detector calls it."""
    seen = scenes(
        ([3, 3, 0], [[0, 0, 10, 20], [50, 0, 60, 6], [50, 0, 60, 30]], []),
        ([], [], []),
        ([0], [[4, 0, 24, 20]], []),
    )
    assert true_labels(seen, SOME, box_overlaps(seen, SOME)).tolist() == [0, 1, -1, 3]
    twins = scenes(([1, 2], [BOX, BOX], []))
    assert true_labels(twins, twins, box_overlaps(twins, twins)).tolist() == [1, 2]
    itself = annotated(SOME)
    assert true_labels(itself.found, SOME, box_overlaps(itself.found, SOME)).tolist() == SOME.labels.tolist()
    assert len(itself.found.relations) == 0 and itself.found.relation_images.tolist() == []


@pytest.mark.parametrize(
    "content, message",
    [
        ("{", "not JSON"),
        ([], "an object of pictures"),
        ({"7": []}, "none of its pictures"),
        ({"0": 5}, "a list of objects"),
        ({"0": {"panoptic": "../a.png", "objects": []}}, "below this folder"),
        ({"0": [7]}, "an object with label and box"),
        ({"0": [{"label": "cat", "box": BOX}]}, "one of the data's classes, found 'cat'"),
        ({"0": [{"label": 4, "box": BOX}]}, r"0\[0\].label"),
        ({"0": [{"label": 0, "box": [1, 2, 3]}]}, "four numbers"),
        ({"0": [{"label": 0, "segment": 9}]}, "four numbers, or the segment"),
        ({"0": [{"label": 0, "box": [300, 2, 310, 9]}]}, "within the picture"),
        ({"0": [{"label": 0, "box": BOX, "score": 2}]}, "from 0 to 1"),
        ({"0": [{"label": 0, "box": BOX, "segment": "x"}]}, "fits into a pixel"),
    ],
)
def test_what_is_refused(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(written(tmp_path, content), SOME)
