"""Things and surfaces from features of patches: learnt from blocks of colour, written, and read as detections."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from wayfare.cli import main
from wayfare.core.errors import DataError
from wayfare.scenes import detections
from wayfare.scenes.boxes import LabelledBox
from wayfare.scenes.data import psg
from wayfare.scenes.segment_files import SegmentFiles
from wayfare.scenes.segmenting import PanopticFinder, SegmentHead, discriminant, find_segments, fitted, learn_head

SKY, GRASS, DOG = (80, 120, 250), (40, 200, 60), (150, 80, 20)
DOGS = ((10, 40, 30, 60), (60, 50, 80, 70))


def colours(pixels: np.ndarray) -> torch.Tensor:
    """The mean colour of patches of 5 x 5 pixels, in place of DINOv2's features."""
    rows, columns = pixels.shape[0] // 5, pixels.shape[1] // 5
    blocks = pixels[: rows * 5, : columns * 5].reshape(rows, 5, columns, 5, 3)
    return torch.from_numpy(blocks.mean((1, 3)).astype(np.float32) / 255).permute(2, 0, 1)


def picture(dogs: tuple[tuple[int, ...], ...] = DOGS) -> tuple[np.ndarray, np.ndarray]:
    """100 wide and 80 high: sky above grass, and dogs; and which object a pixel belongs to."""
    pixels, places = np.zeros((80, 100, 3), np.uint8), np.zeros((80, 100), np.int32)
    pixels[:30], pixels[30:], places[30:] = SKY, GRASS, 1
    for number, (x1, y1, x2, y2) in enumerate(dogs, 2):
        pixels[y1:y2, x1:x2], places[y1:y2, x1:x2] = DOG, number
    return pixels, places


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six annotated pictures, as `detect --learn` takes them."""
    root = tmp_path_factory.mktemp("truth")
    (root / "images").mkdir()
    (root / "panoptic").mkdir()
    entries = []
    for number in range(6):
        pixels, places = picture()
        ids = places + 1
        Image.fromarray(pixels).save(root / f"images/{number}.png")
        Image.fromarray(np.stack([ids, ids * 0, ids * 0], 2).astype(np.uint8)).save(root / f"panoptic/{number}.png")
        boxes, kinds = [[0, 0, 100, 30], [0, 30, 100, 80], *map(list, DOGS)], [1, 2, 0, 0]
        entries.append({
            "file_name": f"images/{number}.png", "height": 80, "width": 100, "image_id": str(number),
            "pan_seg_file_name": f"panoptic/{number}.png",
            "segments_info": [{"id": i + 1, "category_id": k, "iscrowd": 0, "isthing": int(k == 0), "area": 9}
                              for i, k in enumerate(kinds)],
            "annotations": [{"bbox": b, "bbox_mode": 0, "category_id": k} for b, k in zip(boxes, kinds)],
            "relations": [[2, 1, 0]],
        })  # fmt: skip
    names = {"thing_classes": ["dog"], "stuff_classes": ["sky", "grass"], "predicate_classes": ["standing on"]}
    (root / "psg.json").write_text(json.dumps({"data": entries, "test_image_ids": [], **names}))
    return root


@pytest.fixture(scope="module")
def head(folder: Path) -> SegmentHead:
    return learn_head(psg.load(folder), colours, lambda done, total: None)


def test_surfaces_and_things_are_found_by_regions(head: SegmentHead) -> None:
    found = find_segments(head, colours(picture()[0]), (80, 100), [])
    assert sorted(found.labels) == ["dog", "dog", "grass", "sky"]
    dogs = sorted(box.tolist() for label, box in zip(found.labels, found.boxes) if label == "dog")
    np.testing.assert_allclose(dogs, DOGS, atol=3)
    sky = found.labels.index("sky")
    assert (found.places[:26] == sky).all() and 0.5 < found.scores.min() <= found.scores.max() <= 1


def test_a_box_makes_one_thing_of_what_touches(head: SegmentHead) -> None:
    """Two dogs side by side are one region, and two boxes; the smaller one has the pixels that both want."""
    pixels, _ = picture(((10, 40, 30, 60), (30, 40, 50, 60)))
    maps = colours(pixels)
    assert find_segments(head, maps, (80, 100), []).labels.count("dog") == 1
    boxes = [LabelledBox("dog", (10, 40, 33, 60), 0.6), LabelledBox("dog", (28, 40, 50, 60), 0.9)]
    found = find_segments(head, maps, (80, 100), [*boxes, LabelledBox("cat", (0, 0, 9, 9), 0.9)])
    assert found.labels[:2] == ["dog", "dog"] and found.labels.count("dog") == 2 and "cat" not in found.labels
    assert found.scores[:2].tolist() == pytest.approx([0.9, 0.6])
    assert found.places[50, 29] == 0 and found.places[50, 20] == 1


def test_a_box_without_pixels_of_its_class_is_the_thing_itself(head: SegmentHead) -> None:
    found = find_segments(head, colours(picture(())[0]), (80, 100), [LabelledBox("dog", (10, 5, 30, 25), 0.8)])
    assert found.labels[0] == "dog" and (found.places[5:25, 10:30] == 0).all()


def test_nothing_that_is_not_there_is_found(head: SegmentHead) -> None:
    """A picture without a dog has no dog: no relation can name one."""
    assert sorted(find_segments(head, colours(picture(())[0]), (80, 100), []).labels) == ["grass", "sky"]


def test_a_thing_in_front_of_another_is_kept(head: SegmentHead) -> None:
    """The box around both is the surer one, and without pixels of its own class it would take everything."""
    boxes = [LabelledBox("dog", (5, 2, 60, 28), 0.9), LabelledBox("dog", (20, 10, 30, 20), 0.5)]
    found = find_segments(head, colours(picture(())[0]), (80, 100), boxes)
    assert found.labels.count("dog") == 2 and sorted(found.scores[:2].tolist()) == pytest.approx([0.5, 0.9])


def test_a_surface_ends_where_its_region_does(head: SegmentHead) -> None:
    """A patch of grass in the sky, which would stretch its box over the whole picture."""
    pixels, _ = picture(())
    pixels[5:10, 50:55] = GRASS
    found = find_segments(head, colours(pixels), (80, 100), [])
    assert found.boxes[found.labels.index("grass")].tolist() == pytest.approx([0, 30, 100, 80], abs=3)


def test_the_linear_layer_by_hand() -> None:
    """Means 1 and 5, variance 1 within both: logits x - 1/2 and 5 x - 25/2, less log 2; they are equal at 3."""
    weight, bias, known = discriminant([(torch.tensor([[0.0], [2.0], [4.0], [6.0]]), torch.tensor([2, 2, 7, 7]))])
    assert known.tolist() == [2, 7] and weight.flatten().tolist() == pytest.approx([1, 5])
    assert (bias + np.log(2)).tolist() == pytest.approx([-0.5, -12.5])


def test_specks_are_left_out(head: SegmentHead) -> None:
    """A dog of 5 x 5 pixels is 0.3 % of the picture."""
    found = find_segments(head, colours(picture(((10, 40, 15, 45),))[0]), (80, 100), [])
    assert "dog" not in found.labels


def test_the_temperature_makes_certainty_honest() -> None:
    """Labels that are wrong every fourth time: probabilities end near 3/4, and not near 1."""
    rng = np.random.default_rng(0)
    pictures = []
    for _ in range(10):
        kind = rng.integers(0, 2, 200)
        label = np.where(rng.random(200) < 0.25, 1 - kind, kind)
        noise = rng.standard_normal((200, 30))
        pictures.append((torch.tensor(np.c_[kind * 2.0 - 1, noise], dtype=torch.float32), torch.tensor(label)))
    weight, bias, known = fitted(pictures)
    x = torch.zeros(1, 31)
    x[0, 0] = 1
    assert known.tolist() == [0, 1]
    assert float((x @ weight.T + bias).softmax(1).max()) == pytest.approx(0.75, abs=0.06)


def test_what_is_written_is_read_as_detections(folder: Path, head: SegmentHead, tmp_path: Path) -> None:
    truth = psg.load(folder)
    files = SegmentFiles(tmp_path / "found", head)
    finder = PanopticFinder(head, colours)
    for index in range(2):
        photo = truth.picture(index)
        assert photo is not None
        files.add(photo, finder.find(np.asarray(Image.open(photo))))
    files.finish()
    read = detections.read(tmp_path / "found/detections.json", truth)
    assert np.diff(read.found.object_offsets).tolist() == [4, 4, 0, 0, 0, 0] and read.scores.max() <= 1
    some = np.arange(2)
    overlaps = detections.mask_overlaps(read.select(some).found, truth.select(some))
    assert np.sort(overlaps.reshape(2, 4, 4).max(2)).min() > 0.7
    again = psg.load(tmp_path / "found")
    assert again.predicates == ("standing on",) and again.problems.count == 0 and again.picture(0) is not None


def test_a_head_is_a_file(head: SegmentHead, tmp_path: Path) -> None:
    head.save(tmp_path / "head")
    again = SegmentHead.load(tmp_path / "head")
    assert torch.equal(again.weight, head.weight) and again.classes == head.classes
    (tmp_path / "head").write_bytes(b"no")
    with pytest.raises(DataError, match="--learn"):
        SegmentHead.load(tmp_path / "head")


def test_pictures_without_masks_teach_nothing(folder: Path) -> None:
    graphs = psg.load(folder)
    bare = replace(graphs, panoptic_files=np.full(len(graphs), "", object))
    with pytest.raises(DataError, match="both its photo and its panoptic picture"):
        learn_head(bare, colours, lambda done, total: None)


def test_the_command(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr("wayfare.scenes.patches.DinoPatches", lambda: colours)
    (tmp_path / "photos").mkdir()
    Image.fromarray(picture()[0]).save(tmp_path / "photos/a.png")
    (tmp_path / "photos/b.png").write_bytes(b"no picture")
    command = ["detect", str(tmp_path / "photos"), "--head", str(tmp_path / "h"), "--no-boxes", "--json"]
    assert main([*command, "--learn", str(folder), "--out", str(tmp_path / "found")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["photos"] == 1 and told["objects"] == 4 and len(told["skipped"]) == 1
    assert main([*command, "--out", str(tmp_path / "found")]) == 2  # it is there already
    assert main([*command[:3], str(tmp_path / "none"), "--out", str(tmp_path / "other")]) == 2
