"""Fed l1 by hand: the pull is as strong far away as near, and nothing moves that gains less than mu."""

from __future__ import annotations

from pathlib import Path

import pytest

from toy import ONE_BATCH, Lab, line, weight
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Training
from wayfare.strategies.fedl1 import FedL1

TWO_STEPS = Training(lr=0.25, epochs=2, batch_size=ONE_BATCH)


def test_two_local_steps_in_two_rounds_by_hand(tmp_path: Path) -> None:
    # a = 4, mu = 1, lr = 1/4; the gradient is (w - 4) + sign(w - anchor), and 0 of the sign at the anchor
    first, second = Lab(line([4.0]), FedL1(mu=1.0), tmp_path, TWO_STEPS).play(rounds=2)
    # round 1, anchor 0: g = -4 -> w = 1; g = -3 + 1 = -2 -> w = 1.5
    assert weight(first.state) == 1.5
    # round 2, anchor 1.5: g = -2.5 -> w = 2.125; g = -1.875 + 1 = -0.875 -> w = 2.34375 (FedProx: 2.4375)
    assert weight(second.state) == 2.34375


def test_mu_is_not_negative() -> None:
    with pytest.raises(ConfigError, match=r"strategy.mu = -1"):
        FedL1(mu=-1)
