"""FedVC: who is asked, how many steps each takes, and what a reply weighs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toy import ONE_BATCH, Lab, line, weight
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Training
from wayfare.core.seeds import rng_for
from wayfare.strategies.fedvc import FedVC


def test_one_round_by_hand(tmp_path: Path) -> None:
    # N_VC = 2 and batches of 1: two steps for everyone, w <- (w + a)/2
    #   c0 (one sample, a = 4), twice round: 0 -> 2 -> 3;  c1 (three samples, a = 1), two of them: 0 -> 0.5 -> 0.75
    # the replies weigh the same: (3 + 0.75)/2; by examples it would be (3 + 3*0.75)/4 = 1.3125
    lab = Lab(line([4.0], [1.0] * 3), FedVC(examples=2), tmp_path, Training(lr=0.5, batch_size=1))
    assert weight(lab.play()[0].state) == 1.875


def test_probabilities_are_the_shares_of_the_data() -> None:
    seen: dict[str, Any] = {}

    class Recorder:
        def choice(self, count: int, size: int, **how: Any) -> np.ndarray:
            seen.update(how, count=count, size=size)
            return np.arange(size)

    assert FedVC().choose(np.array([1, 3, 0, 4]), 2, Recorder()) == [0, 1]  # type: ignore[arg-type]
    assert seen["p"].tolist() == [1 / 8, 3 / 8, 0, 4 / 8]
    assert (seen["replace"], seen["count"], seen["size"]) == (False, 4, 2)


def test_large_clients_are_asked_more_often() -> None:
    draws = 4000
    first = [FedVC().choose([1, 3], 1, rng_for(i))[0] for i in range(draws)]
    # a share of 3/4, with a standard deviation of sqrt(3/16/4000) = 0.0068
    assert np.mean(first) == pytest.approx(0.75, abs=0.03)


def test_never_twice_and_never_one_without_data() -> None:
    for i in range(50):
        chosen = FedVC().choose([5, 0, 1, 2], 4, rng_for(i))
        assert sorted(chosen) == [0, 2, 3]


@pytest.mark.parametrize(("examples", "batch", "steps"), [(8, 2, 4), (256, 32, 8), (3, 2, 2), (1, 50, 1), (7, 7, 1)])
def test_steps_are_the_same_for_every_size(tmp_path: Path, examples: int, batch: int, steps: int) -> None:
    lab = Lab(line([1.0], [2.0] * 5, [3.0] * 40), FedVC(examples=examples), tmp_path, Training(batch_size=batch))
    message = lab.strategy.send(lab.start(), "c0")
    for id, size in (("c0", 1), ("c1", 5), ("c2", 40)):
        reply = lab.strategy.client(lab.device(id), message)
        assert (reply.values["steps"], reply.values["n"]) == (steps, size)


def test_epochs_do_not_matter(tmp_path: Path) -> None:
    ends = [
        weight(Lab(line([4.0], [1.0] * 3), FedVC(examples=2), tmp_path / str(e), t).play()[0].state)
        for e, t in enumerate([Training(lr=0.5, batch_size=1), Training(lr=0.5, batch_size=1, epochs=7)])
    ]
    assert ends[0] == ends[1]


def test_a_virtual_client_has_exactly_that_many_samples() -> None:
    own = np.arange(10)
    small = FedVC(examples=24).virtual(own, rng_for(1))
    assert len(small) == 24 and set(np.bincount(small)) == {2, 3}  # each twice, four of them three times
    large = FedVC(examples=4).virtual(own, rng_for(1))
    assert len(large) == 4 == len(set(large)) and set(large) <= set(own)


# ---- without a number of examples: a number of steps


def test_one_round_of_fixed_steps_by_hand(tmp_path: Path) -> None:
    # two steps on all of a client's data, w <- (w + mean of a)/2
    #   c0 (a = 4): 0 -> 2 -> 3;  c1 (0, 1, 2: mean 1, in one batch): 0 -> 0.5 -> 0.75
    # the replies weigh the same, whatever the clients hold: (3 + 0.75)/2
    training = Training(lr=0.5, batch_size=ONE_BATCH, iterations=2)
    lab = Lab(line([4.0], [0.0, 1.0, 2.0]), FedVC(examples=0), tmp_path, training)
    assert weight(lab.play()[0].state) == 1.875


@pytest.mark.parametrize("iterations", [1, 4, 9])
def test_exactly_so_many_steps_over_all_of_the_data(tmp_path: Path, iterations: int) -> None:
    training = Training(batch_size=2, iterations=iterations, epochs=7, at_most=3)
    lab = Lab(line([1.0], [2.0] * 5, [3.0] * 40), FedVC(examples=0), tmp_path, training)
    message = lab.strategy.send(lab.start(), "c0")
    for id, size in (("c0", 1), ("c1", 5), ("c2", 40)):
        device = lab.device(id)
        reply = lab.strategy.client(device, message)
        assert (reply.values["steps"], reply.values["n"]) == (iterations, size)
        assert len(device.client.train) == size, "nobody is made smaller or larger than it is"


def test_clients_of_fixed_steps_are_asked_by_their_size() -> None:
    draws = [FedVC(examples=0).choose([1, 3, 0], 1, rng_for(i))[0] for i in range(2000)]
    # a share of 3/4, with a standard deviation of sqrt(3/16/2000) = 0.0097
    assert np.mean(draws) == pytest.approx(0.75, abs=0.04) and set(draws) == {0, 1}


def test_steps_must_be_given(tmp_path: Path) -> None:
    lab = Lab(line([4.0]), FedVC(examples=0), tmp_path, Training(epochs=2))
    with pytest.raises(ConfigError, match=r"strategy.examples = 0 needs training.iterations"):
        lab.strategy.client(lab.device("c0"), lab.strategy.send(lab.start(), "c0"))
    with pytest.raises(ConfigError, match=r"strategy.examples = -1: expected at least 0"):
        FedVC(examples=-1)
