"""Features: geometry by hand, regions by hand, files, and batches of several images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from scene_parts import random_scenes, scenes
from wayfare.core.errors import ConfigError, DataError
from wayfare.nets.efficientnet import EfficientNetLite0
from wayfare.scenes.batch import make_batch
from wayfare.scenes.features import GeometryProvider, PrecomputedFeatures, PrecomputedProvider, precompute
from wayfare.scenes.geometry import OBJECT_NUMBERS, PAIR_NUMBERS, image_sizes, object_numbers, pair_numbers
from wayfare.scenes.pairs import PairLimits, all_pairs, training_pairs
from wayfare.scenes.roi import RoiProvider, roi_align

# An image 200 wide and 100 high: 0 is left, 1 overlaps it by half of itself, 2 lies to the right.
SOME = scenes(([0, 1, 1], [[0, 0, 100, 50], [50, 0, 150, 100], [160, 40, 200, 60]], [[0, 1, 2]]))


def column(rows: np.ndarray, names: tuple[str, ...], name: str) -> list[float]:
    return rows[:, names.index(name)].tolist()


def test_objects_by_hand() -> None:
    rows = object_numbers(SOME)
    assert rows.dtype == np.float32 and rows.shape == (3, len(OBJECT_NUMBERS))
    # width, height, centre, corners, area
    np.testing.assert_allclose(rows[0, :9], [0.5, 0.5, 0.25, 0.25, 0, 0, 0.5, 0.5, 0.25], atol=1e-6)
    np.testing.assert_allclose(rows[1, :9], [0.5, 1, 0.5, 0.5, 0.25, 0, 0.75, 1, 0.5], atol=1e-6)
    # In common: 50 x 50 of 20,000 pixels; IoU 2,500 / (5,000 + 10,000 - 2,500) = 0.2
    assert column(rows, OBJECT_NUMBERS, "mean area shared") == pytest.approx([0.125, 0.125, 0])
    assert column(rows, OBJECT_NUMBERS, "mean IoU") == pytest.approx([0.2, 0.2, 0])
    meets = column(rows, OBJECT_NUMBERS, "log of 1 + boxes that it meets")
    assert meets == pytest.approx([np.log(2), np.log(2), 0])
    shapes = column(rows, OBJECT_NUMBERS, "log of the shape, width to height")
    assert shapes == pytest.approx([np.log(2), 0, np.log(2)], abs=1e-6)


def test_segments_where_they_are_stated() -> None:
    stated = replace(SOME, areas=np.array([2500, -1, 800]))
    fills = column(object_numbers(stated), OBJECT_NUMBERS, "share of the box that the segment fills")
    assert fills == pytest.approx([0.5, 1, 1], abs=1e-5)


def test_pairs_by_hand() -> None:
    rows = pair_numbers(SOME, np.array([[0, 1], [1, 0], [0, 2]]))
    assert rows.dtype == np.float32 and rows.shape == (3, len(PAIR_NUMBERS))

    def values(name: str) -> list[float]:
        return column(rows, PAIR_NUMBERS, name)

    assert values("box around both: area") == pytest.approx([0.75, 0.75, 0.6])  # 200 x 60 of 200 x 100 in the third
    assert values("offset across") == pytest.approx([0.25, -0.25, 0.65])
    assert values("offset across in the subject's widths") == pytest.approx([np.log(1.5), -np.log(1.5), np.log(2.3)])
    # Centres: (50, 25), (100, 50), (180, 50); the image's diagonal is 223.6 pixels.
    assert values("distance of centres in image diagonals") == pytest.approx([0.25, 0.25, np.hypot(130, 25) / 223.607])
    assert values("cosine of the direction") == pytest.approx([0.894427, -0.894427, 130 / np.hypot(130, 25)])
    assert values("sine of the direction") == pytest.approx([0.447214, -0.447214, 25 / np.hypot(130, 25)])
    assert values("gap across") == pytest.approx([0, 0, 0.3])
    assert values("IoU") == pytest.approx([0.2, 0.2, 0])
    assert values("share of the subject's box in the object's") == pytest.approx([0.5, 0.25, 0])
    assert values("log of the boxes' ratio") == pytest.approx([np.log(2), -np.log(2), np.log(800 / 5000)], abs=1e-5)
    assert values("the subject's foot to the object's top") == pytest.approx([-0.5, -1, -0.1])
    assert values("same class") == [0, 0, 0]


def test_containment() -> None:
    some = scenes(([1, 1], [[0, 0, 40, 40], [10, 10, 20, 40]], []))
    rows = pair_numbers(some, all_pairs(some))
    assert column(rows, PAIR_NUMBERS, "subject inside") == [0, 1]
    assert column(rows, PAIR_NUMBERS, "object inside") == [1, 0]
    assert column(rows, PAIR_NUMBERS, "share of the subject's box in the object's") == pytest.approx([300 / 1600, 1])
    assert column(rows, PAIR_NUMBERS, "same class") == [1, 1]


def test_sizes_that_are_not_stated_are_as_far_as_objects_reach() -> None:
    some = scenes(([0, 0], [[0, 0, 40, 30], [10, 0, 30, 50]], []), ([], [], []), size=(0, 0))
    assert image_sizes(some).tolist() == [[40, 50], [1, 1]]
    assert image_sizes(SOME).tolist() == [[200, 100]]


def test_a_batch_says_the_same_of_an_image_as_the_image_alone() -> None:
    some = random_scenes(np.random.default_rng(1), 8)
    sample = training_pairs(some, np.random.default_rng(2), PairLimits(10, 3))
    source = GeometryProvider(4)
    whole = make_batch(some, source, *sample)
    assert whole.images == 8 and whole.x.shape == (len(some.labels), source.width_x)
    assert whole.u.shape == (len(whole.targets), source.width_u) and torch.isfinite(whole.u).all()
    assert (
        whole.sizes.dtype == whole.boxes.dtype == torch.float32 and whole.image.tolist() == some.object_images.tolist()
    )
    for place in range(8):
        alone, start = some.select(np.array([place])), int(some.object_offsets[place])
        here = some.object_images[sample.pairs[:, 0]] == place
        part = make_batch(alone, source, sample.pairs[here] - start)
        assert torch.equal(part.x, whole.x[whole.image == place]) and torch.equal(part.u, whole.u[here])
        assert len(part.targets) == 0
    assert whole.x[:, :4].sum(1).tolist() == [1] * len(some.labels)
    assert whole.x[:, :4].argmax(1).tolist() == some.labels.tolist()


# ---- Regions


def test_regions_by_hand() -> None:
    maps = torch.arange(16, dtype=torch.float32).view(1, 4, 4)  # value = 4 row + column, at the cells' middles
    boxes = torch.tensor([[0.0, 0, 4, 4], [1, 1, 3, 3], [1, 0.5, 2, 1.5]])
    found = roi_align(maps, boxes, 2)
    assert found.shape == (3, 1, 2, 2)
    # Points at 0.5, 1.5, 2.5, 3.5 are the cells themselves: means of 2 x 2 cells.
    assert found[0, 0].tolist() == [[2.5, 4.5], [10.5, 12.5]]
    # Points at 1.25, 1.75, 2.25, 2.75: a plane is interpolated exactly, so the value at the cell's middle,
    # 4 (y - 0.5) + (x - 0.5) for x, y in 1.5, 2.5.
    np.testing.assert_allclose(found[1, 0], [[5, 6], [9, 10]], rtol=1e-6)
    np.testing.assert_allclose(found[2, 0], [[1.75, 2.25], [3.75, 4.25]], rtol=1e-6)
    # Beyond the outermost middles the map goes on as it ends: points at 0.25 and 0.75 count as 0.5 and 0.75.
    corner = roi_align(maps, torch.tensor([[0.0, 0, 1, 1]]), 1)
    assert corner.item() == pytest.approx(4 * 0.125 + 0.125)


@pytest.fixture(scope="module")
def roi() -> RoiProvider:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return RoiProvider(longest=64, weights=EfficientNetLite0().state_dict())


def pictured(folder: Path) -> None:
    noise = np.random.default_rng(5).integers(0, 256, (2, 100, 200, 3), dtype=np.uint8)
    for place, pixels in enumerate(noise):
        Image.fromarray(pixels).save(folder / f"{place}.png")


def test_regions_of_pictures(tmp_path: Path, roi: RoiProvider) -> None:
    pictured(tmp_path)
    boxes = [[0.0, 0, 100, 100], [100.0, 0, 200, 100], [0.0, 0, 200, 100]]
    some = scenes(([0, 1, 2], boxes, []), ([0, 1, 2], boxes, []), root=tmp_path)
    pairs = all_pairs(some)
    x, u = roi.objects(some), roi.pairs(some, pairs)
    assert x.shape == (6, roi.width_x) == (6, 4 * (112 + 320) + len(OBJECT_NUMBERS)) and x.dtype == np.float32
    assert u.shape == (12, roi.width_u)
    looks = x[:, : 4 * 432]
    for stage in (looks[:, : 4 * 112], looks[:, 4 * 112 :]):
        np.testing.assert_allclose(stage.mean(1), 0, atol=1e-5)
        np.testing.assert_allclose(stage.std(1), 1, atol=1e-2)
    np.testing.assert_array_equal(u[0, : 4 * 432], looks[2])  # the box around 0 and 1 is that of 2
    np.testing.assert_array_equal(u[0, : 4 * 432], u[2, : 4 * 432])  # and that around 1 and 0
    assert (u[0] != u[2]).any()
    assert np.abs(looks[0] - looks[1]).max() > 1e-3 and np.abs(looks[0] - looks[3]).max() > 1e-3
    np.testing.assert_array_equal(make_batch(some, roi, pairs).x, x)


def test_pictures_that_do_not_fit(tmp_path: Path, roi: RoiProvider) -> None:
    with pytest.raises(DataError, match=r"no picture 0\.png of image 0"):
        roi.objects(scenes(([0], [[0, 0, 9, 9]], []), root=tmp_path))
    pictured(tmp_path)
    with pytest.raises(DataError, match="200 x 100 pixels, the annotations say 50 x 40"):
        roi.objects(scenes(([0], [[0, 0, 9, 9]], []), root=tmp_path, size=(40, 50)))
    with pytest.raises(ConfigError, match="unknown stage 'stage8'"):
        RoiProvider(stages=("stage8",))
    with pytest.raises(ConfigError, match="at least one stage"):
        RoiProvider(size=0)


# ---- Files


def test_files_give_what_was_computed(tmp_path: Path) -> None:
    some = random_scenes(np.random.default_rng(7), 6)
    source = GeometryProvider(4)
    precompute(some, source, tmp_path / "kept")
    found = PrecomputedFeatures(str(tmp_path / "kept")).provider(some)
    assert (found.width_x, found.width_u) == (source.width_x, source.width_u)
    chosen = some.select(np.array([4, 1, 3, 0]))
    pairs = training_pairs(chosen, np.random.default_rng(1), PairLimits(6, 2)).pairs
    ours, theirs = make_batch(chosen, found, pairs), make_batch(chosen, source, pairs)
    assert torch.equal(ours.x, theirs.x) and torch.equal(ours.u, theirs.u)


def test_files_of_objects_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "0.npy", np.arange(6.0).reshape(3, 2))
    found = PrecomputedProvider(tmp_path)
    assert found.objects(SOME).tolist() == [[0, 1], [2, 3], [4, 5]]
    pairs = all_pairs(SOME)
    np.testing.assert_array_equal(found.pairs(SOME, pairs), pair_numbers(SOME, pairs))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"x": np.ones((2, 2)), "u": np.ones((3, 3, 1))}, r"x has the shape \(2, 2\), expected \(3, 2\)"),
        ({"x": np.full((3, 2), np.nan), "u": np.ones((3, 3, 1))}, "finite"),
        ({"x": np.full((3, 2), 1e300), "u": np.ones((3, 3, 1))}, "finite"),
        ({"x": np.ones((3, 2), int), "u": np.ones((3, 3, 1))}, "holds int64"),
        ({"x": np.ones((3, 2))}, "no array 'u'"),
        ({"x": np.array([{}, {}], object), "u": np.ones((3, 3, 1))}, "not a readable array file"),
        (b"nonsense", "not a readable array file"),
        (b"", "not a readable array file"),
        (None, "no features of this image"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, content: dict[str, np.ndarray] | bytes | None, reason: str) -> None:
    np.savez(tmp_path / "00.npz", x=np.ones((1, 2)), u=np.ones((1, 1, 1)))  # comes first and is whole
    found = PrecomputedProvider(tmp_path)
    if isinstance(content, dict):
        np.savez(tmp_path / "0.npz", **content)
    elif content is not None:
        (tmp_path / "0.npz").write_bytes(content)
    with pytest.raises(DataError, match=reason):
        make_batch(SOME, found, all_pairs(SOME))


def test_ids_are_no_way_out(tmp_path: Path) -> None:
    some = scenes(([0], [[0, 0, 9, 9]], []))
    some.image_ids[0] = "../0"
    with pytest.raises(DataError, match="cannot be a file's name"):
        precompute(some, GeometryProvider(4), tmp_path / "kept")


def test_what_cannot_be() -> None:
    with pytest.raises(DataError, match="no features here"):
        PrecomputedProvider(Path("nowhere"))
    with pytest.raises(DataError, match="class 1, but features are for 1 classes"):
        GeometryProvider(1).objects(SOME)
