"""Robust rules by hand, against a minority of liars, and in whole runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from faults import tiny
from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import MergeContext, Policy
from wayfare.privacy import changes
from wayfare.privacy.changes import ChangeRows
from wayfare.privacy.robust import (
    Clipping,
    Geometric,
    Krum,
    Mean,
    Median,
    RobustRule,
    Trimmed,
    bucket_mixing,
    nearest_mixing,
)
from wayfare.runner import run
from wayfare.strategies.fedadam import FedAdam
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedproto import FedProto
from wayfare.strategies.scaffold import Scaffold

RULES = [Median(), Trimmed(), Geometric(), Krum(), Krum(select=0), Clipping(iterations=50)]


def aggregated(rule: RobustRule, rows: list[list[float]]) -> list[float]:
    with ChangeRows(len(rows[0])) as kept:
        for row in rows:
            kept.add(np.array(row))
        return [float(value) for value in rule.aggregate(kept, MergeContext(1))]


def test_columns_by_hand() -> None:
    rows = [[1.0, 0.0], [2.0, 5.0], [3.0, 1.0], [4.0, 2.0], [100.0, -9.0]]
    assert aggregated(Mean(), rows) == pytest.approx([22, -0.2])
    assert aggregated(Median(), rows) == [3, 1]
    assert aggregated(Trimmed(0.2), rows) == [3, 1]  # f = 1: the means of 2, 3, 4 and of 0, 1, 2
    assert aggregated(Trimmed(0.4), rows) == [3, 1]  # f = 2: the median
    assert aggregated(Median(), rows[:4]) == [2.5, 1.5]


def test_krum_by_hand() -> None:
    # K = 5, f = 1: the two nearest others. Squared: 0 -> 1 + 4, 1 -> 1 + 1, 2 -> 1 + 4, 9 -> 49 + 64, 4 -> 4 + 9
    rows = [[0.0], [1.0], [2.0], [9.0], [4.0]]
    assert aggregated(Krum(0.2), rows) == [1]
    assert aggregated(Krum(0.2, select=3), rows) == [1]  # 0, 1 and 2 have the best scores
    assert aggregated(Krum(0.2, select=0), rows) == pytest.approx([7 / 4])  # all but 9


def test_the_geometric_median_by_hand() -> None:
    # on a line it is the median; of the corners of a square its middle
    assert aggregated(Geometric(), [[0.0], [1.0], [10.0]]) == pytest.approx([1.0], abs=1e-3)
    assert aggregated(Geometric(), [[0.0, 0], [2, 0], [0, 2], [2, 2]]) == pytest.approx([1, 1])
    # one step from the mean 4 with distances 4, 3, 7: weights 1/4, 1/3, 1/7
    weights = np.array([1 / 4, 1 / 3, 1 / 7])
    assert aggregated(Geometric(iterations=1), [[0.0], [1.0], [11.0]]) == pytest.approx(
        [weights @ [0, 1, 11] / weights.sum()]
    )


def test_centred_clipping_by_hand() -> None:
    # radius 2 from 0: 1 stays, 2 stays, 9 counts as 2: the mean of 1, 2, 2; then around 5/3: 1, 2, 5/3 + 2
    assert aggregated(Clipping(radius=2, iterations=1), [[1.0], [2.0], [9.0]]) == pytest.approx([5 / 3])
    again = 5 / 3 + (1 - 5 / 3 + 2 - 5 / 3 + 2) / 3
    assert aggregated(Clipping(radius=2, iterations=2), [[1.0], [2.0], [9.0]]) == pytest.approx([again])


def test_mixing_by_hand() -> None:
    rows = np.array([[0.0], [1.0], [10.0]])
    assert nearest_mixing(rows @ rows.T, 1) @ rows == pytest.approx(np.array([[0.5], [0.5], [5.5]]))
    assert bucket_mixing(np.array([2, 0, 1]), 2) @ rows == pytest.approx(np.array([[5.0], [1.0]]))
    mixed = aggregated(Median(0.34, mix="nearest"), rows.tolist())
    assert mixed == [0.5]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("mix", ["none", "nearest"])
def test_two_of_ten_move_no_rule_far(rule: RobustRule, mix: str) -> None:
    rng = np.random.default_rng(0)
    honest = rng.normal(1.0, 0.1, (8, 20))
    lies = np.full((2, 20), -1e6)
    made = type(rule)(**{**vars(rule), "mix": mix})
    found = np.array(aggregated(made, [*honest.tolist(), *lies.tolist()]))
    far = np.linalg.norm(found - honest.mean(0))
    assert far < (3 if isinstance(rule, Clipping) else 1), "the mean is 894,000 away"
    assert np.linalg.norm(aggregated(Mean(), [*honest.tolist(), *lies.tolist()]) - honest.mean(0)) > 1e5


def test_the_order_of_replies_does_not_matter_and_equal_ones_give_themselves() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(7, 5))
    for rule in RULES:
        one, other = (np.array(aggregated(rule, part.tolist())) for part in (rows, rows[::-1]))
        assert one == pytest.approx(other, abs=1e-9), rule
        assert aggregated(rule, [[1.5, -2.0]] * 4) == pytest.approx([1.5, -2.0]), rule


def test_many_replies_are_read_in_blocks_from_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(2).normal(size=(9, 1001)).tolist()
    whole = [aggregated(rule, rows) for rule in RULES]
    monkeypatch.setattr(changes, "_BLOCK", 90)
    monkeypatch.setattr(changes, "_ROOM", 1000)
    for rule, expected in zip(RULES, whole):
        assert aggregated(rule, rows) == pytest.approx(expected, rel=1e-9), rule


@pytest.mark.parametrize(
    "strategy", [FedAvg("uniform"), FedAdam("uniform"), Scaffold("uniform")], ids=lambda s: type(s).__name__
)
def test_the_mean_by_a_rule_is_the_strategy_itself(strategy: FedAvg, tmp_path: Path) -> None:
    """Each strategy gets the one change in place of each reply: sums and means come out as before."""
    models = []
    for name, rule in (("plain", None), ("rule", Mean()), ("median", Median())):
        experiment = tiny(strategy, rounds=2, robust=rule, policy=Policy(max_ratio=0))
        run(experiment, tmp_path / name, "local")
        weights = Bundle.unpack((tmp_path / name / "model.safetensors").read_bytes())["model"]
        models.append(np.concatenate([tensor.numpy().ravel() for tensor in weights.values()]))
    plain, rule, median = models
    assert rule == pytest.approx(plain, abs=2e-6)
    assert np.abs(median - plain).max() > 1e-4


def test_misfits_are_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="FedProto: it uses single replies"):
        tiny(FedProto(), robust=Median())
    with pytest.raises(ConfigError, match=r"robust.share = 0.5: expected at least 0 and less than 0.5"):
        Median(share=0.5)


def test_a_strategy_that_merges_in_its_own_way_is_not_linear_unless_it_says_so() -> None:
    class Own(FedAvg):
        def merge(self, state, replies):  # type: ignore[no-untyped-def]
            return state

    assert not Own.linear and FedAvg.linear and FedAdam.linear and Scaffold.linear
