"""The rule by which claims are decided: its error by simulation, its joint test against all ways to turn signs."""

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.special import stdtrit

from wayfare.papers.sequential import ERROR, LEVELS, VISIBLE, looks, looks_with, next_look, one_is_negative, visible

SIMULATED = 100_000


def decided(effect: float) -> tuple[dict[int, float], float]:
    """Of simulated claims whose margin is 0: the share that holds by each look, and the share that does not hold."""
    values = np.random.default_rng(1).standard_normal((SIMULATED, max(LEVELS))) + effect
    sums, squares = values.cumsum(axis=1), (values**2).cumsum(axis=1)
    open_, holds, fails, by_look = np.ones(SIMULATED, bool), 0, 0, {}
    for seeds, level in LEVELS.items():
        mean = sums[:, seeds - 1] / seeds
        t = mean / np.sqrt((squares[:, seeds - 1] / seeds - mean**2) / (seeds - 1))
        reach = stdtrit(seeds - 1, 1 - level / 2)
        holds += int((open_ & (t > reach)).sum())
        fails += int((open_ & (t < -reach)).sum())
        open_ &= np.abs(t) <= reach
        by_look[seeds] = holds / SIMULATED
    return by_look, fails / SIMULATED


def test_the_error_over_all_looks_is_5_per_cent():
    holds, fails = decided(0.0)
    assert holds[20] + fails == pytest.approx(0.0493, abs=0.002)  # standard error 0.0007
    assert holds[20] + fails <= ERROR + 0.002 and holds[20] == pytest.approx(fails, abs=0.002)


def test_single_looks_at_5_per_cent_would_be_wrong_more_often(monkeypatch):
    monkeypatch.setattr("test_sequential.LEVELS" if __name__ == "test_sequential" else f"{__name__}.LEVELS",
                        dict.fromkeys(LEVELS, 0.05))  # fmt: skip
    holds, fails = decided(0.0)
    assert holds[20] + fails > 0.12


@pytest.mark.parametrize("look", LEVELS)
def test_the_effect_that_is_seen_with_80_per_cent(look):
    holds, _ = decided(VISIBLE[look])
    assert holds[look] == pytest.approx(0.8, abs=0.01)
    assert visible(look, 2.0) == 2 * VISIBLE[look]


def test_looks():
    assert looks(20) == list(LEVELS) == [4, 6, 9, 13, 20] and looks(10) == [4, 6, 9] and looks(3) == [3]
    assert looks_with(8) == [4, 6] and looks_with(3) == []
    assert [next_look(seeds) for seeds in (0, 3, 4, 9, 20)] == [4, 4, 6, 13, None]


def test_the_rule_in_the_docs_has_these_numbers():
    page = (Path(__file__).parents[2] / "docs" / "claims-rule.md").read_text()
    text = " ".join(page.split())
    assert "after 4, 6, 9, 13 and 20 seeds" in text
    assert re.search(r"are 1\.00, 0\.68, 0\.97, 1\.41 and 2\.46 %", text)
    assert [f"{100 * level:.2f}" for level in LEVELS.values()] == ["1.00", "0.68", "0.97", "1.41", "2.46"]
    assert (
        f"It is {', '.join(f'{value:g}' for value in list(VISIBLE.values())[:-1])} and {VISIBLE[20]:g} standard" in text
    )


def test_two_pairs_by_hand():
    """Of nine seeds each the first column is below zero in all; of 512 ways to turn signs how many are as extreme?"""
    first = [-1.0, -2.0, -1.5, -1.0, -2.0, -1.5, -1.0, -2.0, -1.5]
    second = [0.5, -0.5, 0.1, 0.3, -0.2, 0.4, -0.1, 0.2, 0.6]

    def largest(signs):
        values = [[sign * value for sign, value in zip(signs, column)] for column in (first, second)]
        means = [math.fsum(column) / 9 for column in values]
        spreads = [math.sqrt(math.fsum((v - m) ** 2 for v in column) / 8 / 9) for column, m in zip(values, means)]
        return max(-mean / spread for mean, spread in zip(means, spreads))

    found = [largest(signs) for signs in itertools.product((1, -1), repeat=9)]
    share = sum(value >= found[0] for value in found) / 512
    assert share == 1 / 512
    assert one_is_negative([first, second], share) and not one_is_negative([first, second], share * 0.99)


def test_the_joint_test_is_wrong_no_more_often_than_its_level():
    """24 equal pairs that share half of their noise, as pairs with one cell in common do: no pair is below zero."""
    rng, level, wrong = np.random.default_rng(2), 0.05, {6: 0, 9: 0}
    for seeds in wrong:
        for _ in range(400):
            common = rng.standard_normal((1, seeds))
            wrong[seeds] += one_is_negative((common + rng.standard_normal((24, seeds))).tolist(), level)
    assert all(count / 400 <= level + 0.03 for count in wrong.values()), wrong  # standard error 0.011
    assert wrong[9] > 5  # and it is not idle: a test that never decides would pass the line above


def test_the_joint_test_finds_more_than_a_division_by_the_pairs():
    """Twelve copies of one column are one pair: the signs know that, a division by twelve does not."""
    column = [-0.3, -1.2, -0.8, 0.3, -1.0, -0.2, -1.5, -0.9, -0.4]
    t = -np.mean(column) / (np.std(column, ddof=1) / 3)
    assert one_is_negative([column] * 12, 0.01) and t < stdtrit(8, 1 - 0.01 / 12)
