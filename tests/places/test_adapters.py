"""Adapters as what travels: a start that is the backbone, bytes, the frozen part's maps, and whole federated runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from place_pictures import places
from wayfare import Evaluation, Experiment, Training, run
from wayfare.components import allow_code, build
from wayfare.core.bundle import Bundle, travelling
from wayfare.core.errors import ConfigError, DataError
from wayfare.engines.pool.engine import Pool
from wayfare.places.descriptor import Descriptor
from wayfare.places.model import PlaceModel
from wayfare.places.partition.proximity import Proximity

VIT = "small_vit:SmallVit"
allow_code("small_vit")


def descriptor(seed: int = 0, **settings: Any) -> Descriptor:
    torch.manual_seed(seed)
    model = build(PlaceModel, {"backbone": VIT, "weights": "random", "pooling": "class", **settings}, "model")
    assert isinstance(model, PlaceModel)
    return model.network()


def pictures() -> torch.Tensor:
    return torch.rand(2, 3, 32, 48, generator=torch.Generator().manual_seed(1))


def test_the_start_is_exactly_the_backbone() -> None:
    plain, adapted = descriptor(), descriptor(adapters=2, adapter_stages=2)
    assert torch.equal(plain(pictures()), adapted(pictures()))


def test_only_adapters_and_pooling_travel() -> None:
    pooling = {"name": "vlad", "clusters": 2}
    net = descriptor(adapters=2, adapter_stages=2, pooling=pooling)
    names = set(travelling(net))
    inner = {f"backbone.blocks.{block}.attn.{layer}.{part}" for block in (1, 2) for layer in ("qkv", "proj")
             for part in ("down", "up")}  # fmt: skip
    assert names == inner | {"pool.pool.directions", "pool.pool.sums", "pool.pool.counts", "pool.pool.sharpness"}
    # two blocks, each with qkv (2 x 8 and 24 x 2) and proj (2 x 8 and 8 x 2); of two centres directions and sums of 8
    # and counts; a sharpness
    assert Bundle({"model": travelling(net)}).nbytes == 4 * (2 * (16 + 48 + 16 + 16) + 2 * (8 + 8 + 1) + 1)


def test_a_message_of_dinov2_is_small() -> None:
    """Rank 8 in four blocks: qkv 8 x 384 + 1152 x 8, proj 8 x 384 + 384 x 8."""
    net = descriptor(backbone="dinov2-s", adapters=8)
    assert Bundle({"model": travelling(net)}).nbytes == 4 * 4 * (3072 + 9216 + 3072 + 3072) == 294_912


def test_blocks_before_the_adapters_are_the_trunk() -> None:
    """Their maps are kept, and are the same whatever the adapters become."""
    net, plain = descriptor(adapters=2, adapter_stages=1), descriptor(train="block3")
    assert net.trunk_key == plain.trunk_key
    before = net.trunk(pictures())
    assert before.shape == (2, 8, 5, 6)
    first = net(pictures())
    with torch.no_grad():
        for tensor in travelling(net).values():
            tensor += 0.5
    assert torch.equal(net.trunk(pictures()), before)
    assert not torch.allclose(net(pictures()), first)


def test_what_has_no_attention_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"expected a backbone of 4 stages with attention; it has 3"):
        descriptor(adapters=2)
    with pytest.raises(ConfigError, match=r"it has none: choose a transformer"):
        descriptor(backbone="cnn", pooling="gem", adapters=2)
    with pytest.raises(ConfigError, match=r"model.train = 'block3'"):
        descriptor(adapters=2, train="block3")
    with pytest.raises(ConfigError, match=r"model.adapters = -1"):
        descriptor(adapters=-1)


def test_tinyvit_takes_adapters_in_its_last_stages() -> None:
    net = descriptor(backbone="tinyvit", pooling="grid", adapters=4, adapter_stages=1)
    assert {name.split(".")[2] for name in travelling(net)} == {"3"}
    assert net(pictures()).shape == (2, 320 * 8)


def test_weights_that_are_absent_are_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path))
    model = build(PlaceModel, {"backbone": "dinov2-s", "pooling": "class"}, "model")
    assert isinstance(model, PlaceModel) and not model.is_random
    with pytest.raises(DataError, match=r"wayfare data get dinov2-s"):
        model.network()
    assert descriptor(backbone="dinov2-s").feature_dim == 384


def test_federated_runs_are_the_same_with_one_and_two_workers(hamlets: Path, pool: Pool, tmp_path: Path) -> None:
    task = places(
        hamlets, model__backbone=VIT, model__pooling={"name": "grid", "token": True}, model__adapters=2,
        model__adapter_stages=2,
    )  # fmt: skip
    experiment = Experiment(
        task,
        Proximity(400.0),
        training=Training(iterations=2, batch_size=2, lr=0.1),
        evaluation=Evaluation(clients=2, holdout=0.3),
        rounds=2,
    )
    one = run(experiment, tmp_path / "one", "local")
    again = run(replace(experiment, task=replace(task)), tmp_path / "again", "local")
    two = run(experiment, tmp_path / "two", pool)
    assert one["model_sha256"] == again["model_sha256"] == two["model_sha256"]
    assert one["metrics"] == two["metrics"] and one["warnings"] == []
    assert one["bytes_up"] == two["bytes_up"] > 0
    learnt = Bundle.unpack((tmp_path / "one" / "checkpoints" / "000002.safetensors").read_bytes())["model"]
    assert all(".attn." in name for name in learnt)
    assert all(tensor.abs().max() > 0 for tensor in learnt.values())  # every B has moved
