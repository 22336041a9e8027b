"""Every task there is, and tasks with a fault."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from wayfare.components import find, names
from wayfare.objects.task import Objects
from wayfare.testing import TASK_CHECKS, NonConformance, check_task


def example(name):
    cls = find("task", name)
    return cls.example() if hasattr(cls, "example") else cls()


@pytest.mark.parametrize("name", names("task"))
def test_every_task_conforms(name, shared_cache, monkeypatch):
    monkeypatch.setenv("WAYFARE_CACHE", str(shared_cache))
    assert len(check_task(example(name))) == len(TASK_CHECKS)


@dataclass(frozen=True)
class OwnRandomNumbers(Objects):
    def steps(self, net, client, batch_size, memo, rng):
        return super().steps(net, client, batch_size, memo, np.random.default_rng())


@dataclass(frozen=True)
class NoRandomNumbers(Objects):
    def steps(self, net, client, batch_size, memo, rng):
        return super().steps(net, client, batch_size, memo, np.random.default_rng(7))


@dataclass(frozen=True)
class HalfScan(Objects):
    def scan(self, net, client):
        yield next(super().scan(net, type(client)(client.id, client.train[:5], client.holdout)))


@dataclass(frozen=True)
class TrainsWhileLooking(Objects):
    def evaluate(self, net, samples):
        with torch.no_grad():
            next(net.parameters()).add_(1)
        return super().evaluate(net, samples)


@dataclass(frozen=True)
class DetachedLoss(Objects):
    def loss(self, output, batch, memo):
        return super().loss(output, batch, memo).detach().requires_grad_()


FAULTS = {
    OwnRandomNumbers: "same generator",
    NoRandomNumbers: "another generator",
    HalfScan: "scan",
    TrainsWhileLooking: "changes the network",
    DetachedLoss: "no gradient",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_task_is_caught(fault):
    with pytest.raises(NonConformance, match=FAULTS[fault]):
        check_task(fault())
