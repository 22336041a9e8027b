"""DINOv2 as a frozen trunk, with a small one of random weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from wayfare.nets import features_by_picture
from wayfare.nets.dinov2 import DinoV2
from wayfare.nets.trunks import DinoTrunk


@pytest.fixture
def trunk() -> DinoTrunk:
    torch.manual_seed(0)
    return DinoTrunk(16, DinoV2(width=8, depth=4, heads=2, patch=8, grid=2))


def test_features_are_three_normalised_vectors(trunk: DinoTrunk) -> None:
    found = trunk(torch.rand(2, 3, 16, 16)).reshape(2, 3, 8)
    assert trunk.feature_dim == 24 and not any(weight.requires_grad for weight in trunk.parameters())
    assert torch.allclose(found.mean(2), torch.zeros(2, 3), atol=1e-5)
    assert torch.allclose(found.std(2, unbiased=False), torch.ones(2, 3), atol=1e-3)
    assert not torch.allclose(found[:, 0], found[:, 1], atol=0.1)


def test_the_first_vector_is_the_last_class_token(trunk: DinoTrunk) -> None:
    picture = torch.rand(1, 3, 16, 16)
    mean, deviation = (torch.tensor(each)[:, None, None] for each in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    maps = (picture - mean) / deviation
    for layers in trunk.net.stages().values():
        for layer in layers:
            maps = layer(maps)
    token = maps[0, :, 0, 0]
    assert torch.allclose(trunk(picture)[0, :8], torch.nn.functional.layer_norm(token, (8,)), atol=1e-5)


class Counting:
    """A trunk that counts what it is shown."""

    def __init__(self, trunk: DinoTrunk) -> None:
        self._trunk, self.seen = trunk, 0
        self.feature_dim, self.key = trunk.feature_dim, trunk.key

    def __call__(self, pictures: torch.Tensor) -> torch.Tensor:
        self.seen += len(pictures)
        found: torch.Tensor = self._trunk(pictures)
        return found

    def own_weights(self) -> dict[str, torch.Tensor]:
        return {}


@pytest.fixture
def counting(trunk: DinoTrunk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counting:
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path))
    monkeypatch.setattr(features_by_picture, "_AT_ONCE", 2)
    return Counting(trunk)


def drawn(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, (count, 16, 16, 3)).astype(np.uint8)


def test_an_interrupted_computation_goes_on(counting: Counting, trunk: DinoTrunk) -> None:
    images = drawn(5)

    def stop(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        features_by_picture.features_by_picture(counting, images, stop)
    assert counting.seen == 4
    found = features_by_picture.features_by_picture(counting, images)
    assert counting.seen == 5
    assert np.allclose(found, trunk(torch.from_numpy(images).permute(0, 3, 1, 2) / 255).numpy(), atol=1e-5)


def test_a_picture_is_computed_once_whatever_stands_beside_it(counting: Counting) -> None:
    images = drawn(5)
    found = features_by_picture.features_by_picture(counting, images)
    other = [4, 0, 0, 2]
    assert np.array_equal(features_by_picture.features_by_picture(counting, images[other]), found[other])
    assert counting.seen == 5


def test_a_damaged_cache_is_made_again(counting: Counting, tmp_path: Path) -> None:
    images = drawn(2)
    found = features_by_picture.features_by_picture(counting, images)
    (file,) = tmp_path.rglob("*.sqlite")
    file.write_bytes(b"no database" * 100)
    assert np.array_equal(features_by_picture.features_by_picture(counting, images), found)
    assert counting.seen == 4
