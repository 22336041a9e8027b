"""Heads on a frozen network: tested together, with the accuracies that devices would report."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tour_parts import HOPEFUL, columns_of, written
from wayfare import Evaluation, Experiment, Training, runner
from wayfare.core.errors import ConfigError
from wayfare.encounters import judging, slots
from wayfare.encounters.policies.budgeted import Budgeted
from wayfare.encounters.policies.fedtour import FedTour
from wayfare.encounters.policies.greedy import Greedy
from wayfare.encounters.topology import Encounters
from wayfare.nets.efficientnet import EfficientNetLite0
from wayfare.objects.data.cifar import Cifar10
from wayfare.objects.models import FrozenHeadClassifier
from wayfare.objects.task import Objects
from wayfare.partition.quantity import Quantity
from wayfare.strategies.fedavg import FedAvg


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """90 pictures to learn from and 60 to test on, brighter with the class."""
    folder = tmp_path_factory.mktemp("cifar")
    rng = np.random.default_rng(0)
    for name, count in (("data_batch_1.bin", 90), ("test_batch.bin", 60)):
        labels = np.arange(count, dtype=np.uint8) % 3
        shade = (80 * labels[:, None] + rng.integers(0, 90, (count, 3072))).clip(0, 255).astype(np.uint8)
        (folder / name).write_bytes(np.concatenate([labels[:, None], shade], 1).tobytes())
    (folder / "batches.meta.txt").write_text("dark\ngrey\nlight\n")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_file(EfficientNetLite0().state_dict(), folder / "lite0.safetensors")
    return folder


def day(pictures: Path, folder: Path, policy: object) -> Experiment:
    rng = np.random.default_rng(1)
    contacts = [(0, 0, 1), (0, 2, 3)] + [(s, *map(int, rng.choice(4, 2, replace=False))) for s in range(1, 30)]
    task = Objects(Cifar10(str(pictures), 40), FrozenHeadClassifier(32, str(pictures / "lite0.safetensors")))
    topology = Encounters(written(folder, contacts), probe=20, judge=20, slots=5)
    return Experiment(
        task, Quantity(4), FedAvg("uniform"), topology, exchange=policy, rounds=0,  # type: ignore[arg-type]
        training=Training(epochs=2, batch_size=8, lr=0.05), evaluation=Evaluation(every=3, holdout=0.0),
    )  # fmt: skip


@pytest.mark.parametrize("policy", [FedTour(20, HOPEFUL), Budgeted(20), Greedy(20)])
def test_the_same_as_device_by_device(
    policy: object, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYFARE_CACHE", str(pictures / "cache"))
    experiment = day(pictures, tmp_path, policy)
    together = runner.run(experiment, tmp_path / "together", "local")
    for module in (judging, slots):
        monkeypatch.setattr(module, "has_heads", lambda scenario: False)
    alone = runner.run(experiment, tmp_path / "alone", "local")
    assert together["model_sha256"] == alone["model_sha256"] and together["metrics"] == alone["metrics"]
    assert columns_of(tmp_path / "alone")["taken"].sum() > 0


def test_test_pictures_can_join_the_pool(pictures: Path) -> None:
    """The last 40 of 60; 90 + 40 - 20 - 20 are left to be dealt: as many as there were to train on."""
    pool, test = Cifar10(str(pictures), 40).load(lambda *_: None)
    whole, all_tests = Cifar10(str(pictures)).load(lambda *_: None)
    assert (len(pool), len(test)) == (130, 20)
    assert (pool.images[90:] == all_tests.images[20:]).all() and (test.labels == all_tests.labels[:20]).all()
    assert (pool.images[:90] == whole.images).all()
    experiment = replace(day(pictures, pictures, Budgeted(20)))
    assert sum(map(len, experiment.split())) == 90
    with pytest.raises(ConfigError, match=r"data\.from_test = 60: expected 0 to 59"):
        Cifar10(str(pictures), 60).load(lambda *_: None)
