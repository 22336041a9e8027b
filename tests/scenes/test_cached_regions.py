"""Regions in the cache: the same numbers, computed once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from scene_parts import scenes
from wayfare.core.errors import DataError
from wayfare.nets.efficientnet import EfficientNetLite0
from wayfare.scenes.cached_regions import CachedRegions
from wayfare.scenes.pairs import all_pairs
from wayfare.scenes.roi import RoiProvider


def test_what_is_kept_is_what_was_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "cache"))
    noise = np.random.default_rng(5).integers(0, 256, (3, 100, 200, 3), dtype=np.uint8)
    for place, pixels in enumerate(noise):
        Image.fromarray(pixels).save(tmp_path / f"{place}.png")
    boxes = [[0.0, 0, 100, 100], [100.0, 0, 200, 100], [0.0, 0, 150, 60], [20.0, 30, 60, 90]]
    some = scenes(([0, 1], boxes[:2], []), ([], [], []), ([0, 1, 2, 3], boxes, []), root=tmp_path)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        roi = RoiProvider(longest=64, weights=EfficientNetLite0().state_dict())
    told: list[tuple[int, int]] = []
    CachedRegions(roi, some).prepare(lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    part = some.select(np.array([2, 0]))
    pairs = all_pairs(part)[::-2]  # in any order
    other = replace(part, boxes=part.boxes * np.float32(0.5))
    expected = roi.objects(part), roi.pairs(part, pairs), roi.objects(other)
    kept = CachedRegions(roi, some)
    np.testing.assert_array_equal(kept.objects(other), expected[2])  # other boxes: looked at anew
    monkeypatch.setattr(RoiProvider, "pooled", None)  # from here on nothing can be computed
    kept.prepare(lambda *_: told.append((0, 0)))
    assert len(told) == 3
    np.testing.assert_array_equal(kept.objects(part), expected[0])
    np.testing.assert_array_equal(kept.pairs(part, pairs), expected[1])
    with pytest.raises(DataError, match=r"no picture 0\.png"):
        CachedRegions(roi, replace(some, root=tmp_path / "elsewhere")).prepare()
