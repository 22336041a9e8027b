"""Server optimisers: what they have in common. Those that come with Wayfare are found, not named."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from source_metrics import SRC, code_lines, mentions
from toy import Lab, cloud, reply, weight
from wayfare.components import find, names
from wayfare.core.bundle import Bundle
from wayfare.core.protocols import Training
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedopt import FedOpt

OPTIMISERS = [cls for name in names("strategy") if issubclass(cls := find("strategy", name), FedOpt)]


def begin(value: float = 0.0) -> Bundle:
    """A line's state before the first round, as `start` makes it."""
    return Bundle({"model": reply(value)["model"], "first": reply(0)["model"], "second": reply(0)["model"]})


def test_they_are_found() -> None:
    assert len(OPTIMISERS) >= 5


def test_server_learning_rate_by_hand() -> None:
    state = FedOpt(server_lr=0.5).merge(begin(1), [("a", reply(5, n=3)), ("b", reply(1, n=1))])
    # mean (3*5 + 1)/4 = 4, d = 4 - 1 = 3, w = 1 + 3/2
    assert weight(state) == 2.5
    assert (
        weight(FedOpt(server_lr=2.0, weighting="uniform").merge(begin(1), [("a", reply(5, 3)), ("b", reply(1))])) == 5
    )


def test_server_learning_rate_one_is_the_plain_mean_up_to_rounding(tmp_path: Path) -> None:
    training = Training(lr=0.05, epochs=2, batch_size=4)
    plain, ours = (
        Lab(cloud(10, 6, 14), strategy, tmp_path / str(i), training).play()[0].state["model"]
        for i, strategy in enumerate([FedAvg(), FedOpt(server_lr=1.0)])
    )
    for name in plain:
        # w + (mean - w): two roundings of numbers of this size
        torch.testing.assert_close(ours[name], plain[name], rtol=0, atol=4 * 2**-24 * 4)
    assert torch.equal(ours["norm.running_var"], plain["norm.running_var"])


@pytest.mark.parametrize("cls", OPTIMISERS, ids=lambda cls: cls.__name__)
def test_buffers_never_pass_through_the_optimiser(cls: type[FedOpt], tmp_path: Path) -> None:
    # with a server learning rate this size a running variance would be anything but a mean
    wild = replace(cls(), server_lr=30.0)
    training = Training(lr=0.05, epochs=2, batch_size=4)
    labs = [Lab(cloud(10, 6, 14), s, tmp_path / str(i), training) for i, s in enumerate([FedAvg(), wild])]
    state = labs[1].start()
    assert state["first"].keys() == state["second"].keys() == {"weight"}
    assert state["model"].keys() == {"weight", "norm.running_mean", "norm.running_var"}
    replies = [(id, labs[0].strategy.client(labs[0].device(id), state.only("model"))) for id in ("c0", "c1", "c2")]
    plain, merged = labs[0].strategy.merge(labs[0].start(), replies), wild.merge(state, replies)
    for name in ("norm.running_mean", "norm.running_var"):
        assert torch.equal(plain["model"][name], merged["model"][name])
    assert not torch.equal(plain["model"]["weight"], merged["model"]["weight"])


@pytest.mark.parametrize("cls", OPTIMISERS, ids=lambda cls: cls.__name__)
def test_a_falling_variance_stays_positive(cls: type[FedOpt]) -> None:
    """Momentum on the way down from 4 to 0.1 would carry a running variance below zero."""
    variance = {"norm.running_var": torch.tensor([4.0])}
    state = begin()
    state.tensors["model"] |= variance
    for _ in range(5):
        told = reply(0)
        told.tensors["model"]["norm.running_var"] = torch.tensor([0.1])
        state = cls().merge(state, [("a", told)])
        assert state["model"]["norm.running_var"].item() == pytest.approx(0.1)


@pytest.mark.parametrize("cls", OPTIMISERS, ids=lambda cls: cls.__name__)
def test_groups_take_the_plain_mean_with_the_same_weights(cls: type[FedOpt]) -> None:
    """The optimiser belongs to the top server; a group's server averages."""
    assert cls(weighting="uniform").relay() == FedAvg("uniform")
    assert cls().relay() == FedAvg("examples")


@pytest.mark.parametrize("cls", OPTIMISERS, ids=lambda cls: cls.__name__)
def test_state_is_passed_not_kept(cls: type[FedOpt]) -> None:
    strategy = cls()
    once = strategy.merge(begin(), [("a", reply(1))])
    again = strategy.merge(begin(), [("a", reply(1))])
    assert all(weight(once, s) == weight(again, s) for s in ("model", "first", "second"))
    assert {f.name for f in fields(strategy)} == set(vars(strategy))


@pytest.mark.parametrize("cls", [cls for cls in OPTIMISERS if cls is not FedOpt], ids=lambda cls: cls.__name__)
def test_each_is_a_few_lines_that_nobody_else_knows_of(cls: type[FedOpt]) -> None:
    name = cls.__name__.lower()
    assert code_lines((SRC / f"strategies/{name}.py").read_text()) <= 25
    recipes = "starting/templates.py"  # what `wayfare init` writes may name any strategy
    assert [file for file in mentions(name) if file != recipes] == [f"strategies/{name}.py"]
