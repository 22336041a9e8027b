"""One server: who is asked, and what happens when they do not answer."""

from __future__ import annotations

import numpy as np
import pytest

from toy import Lab, bits, cloud, line, weight
from wayfare.core.errors import ConfigError, DeviceError
from wayfare.core.protocols import Policy, Training
from wayfare.strategies.fedadam import FedAdam
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedavgm import FedAvgM
from wayfare.strategies.scaffold import Scaffold
from wayfare.topologies.server import Server

LENIENT = Policy(quorum=0.5)


def asked(rounds):
    return [round.gate.clients for round in rounds]


def test_everyone_is_asked_unless_told_otherwise(tmp_path) -> None:
    lab = Lab(line(*[[1.0]] * 6), FedAvg(), tmp_path)
    assert [len(set(clients)) for clients in asked(lab.play(3))] == [6, 6, 6]
    assert [len(set(clients)) for clients in asked(lab.play(3, Server(per_round=2)))] == [2, 2, 2]


def test_sampling_depends_on_seed_and_round_only(tmp_path) -> None:
    toys = [line(*[[1.0]] * 20), line(*[[3.0, 2.0]] * 20, start=7.0)]
    labs = [
        Lab(toys[0], FedAvg(), tmp_path / "a"),
        Lab(toys[1], FedAvg(), tmp_path / "b", Training(lr=0.1, epochs=3)),
        Lab(toys[0], Scaffold(), tmp_path / "c"),
    ]
    server = Server(per_round=4)
    drawn = [asked(lab.play(5, server)) for lab in labs]
    assert drawn[0] == drawn[1] == drawn[2]
    assert len({tuple(clients) for clients in drawn[0]}) == 5  # another draw in each round
    # a run that begins at round 3 draws what round 3 draws, and the number of rounds to come does not matter
    begun = labs[0].play(2, server)[-1].state
    assert asked(labs[0].play(5, server, first=3, state=begun)) == drawn[0][2:]
    assert asked(labs[0].play(9, server))[:5] == drawn[0]
    assert asked(Lab(toys[0], FedAvg(), tmp_path / "d", seed=1).play(5, server)) != drawn[0]


@pytest.mark.parametrize("strategy", [FedAvg(), FedAdam(), Scaffold()], ids=lambda s: type(s).__name__)
def test_it_continues_from_any_state(strategy, tmp_path) -> None:
    training = Training(lr=0.05, batch_size=4)
    whole = Lab(cloud(8, 6, 12), strategy, tmp_path / "whole", training).play(4, Server(2))
    lab = Lab(cloud(8, 6, 12), strategy, tmp_path / "parts", training)
    half = lab.play(2, Server(2))
    rest = lab.play(4, Server(2), first=3, state=half[-1].state)
    assert [bits(r.state) for r in whole] == [bits(r.state) for r in [*half, *rest]]
    assert [r.number for r in whole] == [1, 2, 3, 4]


def empty(toy, *positions):
    """The same toy, with clients that hold nothing: training fails there."""
    task, parts = toy
    return task, [np.empty(0, np.int64) if i in positions else part for i, part in enumerate(parts)]


@pytest.mark.parametrize("strategy", [FedAvg(), FedAvgM(), Scaffold()], ids=lambda s: type(s).__name__)
def test_a_void_round_changes_nothing(strategy, tmp_path) -> None:
    lab = Lab(empty(line([4.0], [1.0], [1.0]), 1, 2), strategy, tmp_path, policy=LENIENT)
    before = Server().start(lab.federation(None, 2), lab.start())
    rounds = lab.play(2)
    assert [r.void for r in rounds] == [True, True]  # 1 of 3, and the quorum is a half
    for round in rounds:
        assert bits(round.state) == bits(before)
        assert round.state.values == before.values == {"population": 3}
        assert [r["reason"].partition(":")[0] for r in round.gate.refused] == ["failed", "failed"]
        assert {r["device"] for r in round.gate.refused} == {"c1", "c2"}


def test_a_round_with_a_quorum_goes_on_with_the_rest(tmp_path) -> None:
    # c0 -> (0+4)/2 = 2, c1 -> (0+1)/2 = 0.5, and c2 has nothing to train on
    lab = Lab(empty(line([4.0], [1.0], [1.0]), 2), FedAvg(), tmp_path, policy=LENIENT)
    (round,) = lab.play()
    assert (weight(round.state), round.void) == (1.25, False)
    assert sorted(round.gate.clients) == ["c0", "c1"]
    assert [r["device"] for r in round.gate.refused] == ["c2"]


def test_when_nobody_can_the_round_is_void_and_says_why(tmp_path) -> None:
    lab = Lab(empty(line([4.0], [1.0]), 0, 1), FedAvg(), tmp_path, policy=LENIENT)
    (round,) = lab.play()
    assert (weight(round.state), round.void) == (0.0, True)
    assert "holds no training samples" in str(round.gate.failure) and "Traceback" in round.gate.failure.detail


def test_a_fault_stops_the_run_if_configured(tmp_path) -> None:
    lab = Lab(empty(line([4.0], [1.0], [1.0]), 2), FedAvg(), tmp_path, policy=Policy(on_error="raise"))
    with pytest.raises(
        DeviceError, match=r"device 'c2', program 'train': WayfareError: .* no training samples"
    ) as told:
        lab.play()
    assert "Traceback" in told.value.detail


@pytest.mark.parametrize("per_round", [-1, 4])
def test_it_refuses_to_ask_more_than_there_are(per_round) -> None:
    with pytest.raises(ConfigError, match=f"topology.per_round = {per_round}, but 3 clients take part"):
        Server(per_round).check(3)
    Server(3).check(3)
