"""When seeds are added to a claim, and when it is decided: a group-sequential test.

Runs are looked at after 4, 6, 9, 13 and 20 seeds. At a look a claim is decided if its interval at that look's level
lies on one side of what the claim says; otherwise its cells get the seeds of the next look. Whoever looks several times
at 5 % each is wrong more often than that, so the error is divided among the looks in proportion to their seeds (alpha
spending: Lan and DeMets, 1983; Kim and DeMets, 1987). The levels below spend 5 % in all on Student's t of normal
differences, 0.25 % a seed. They were found by simulation, and a test simulates them again.

Of a claim about many pairs of cells, one pair that is clearly on the wrong side contradicts it. The worst of many
equal pairs looks bad by chance, so the pairs are tested jointly: the largest t over pairs is compared with the largest
t after turning the signs of whole seeds, which keeps how pairs depend on each other (max-t by sign flips: Westfall and
Young, 1993; Romano and Wolf, 2005). With fewer than 9 seeds there are too few ways to turn signs, and the level is
divided by the number of pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

# seeds at a look -> its level, of both sides together
LEVELS = {4: 0.0100, 6: 0.0068, 9: 0.0097, 13: 0.0141, 20: 0.0246}
CAP = max(LEVELS)
ERROR = 0.05  # of a claim, over all looks
# seeds -> the effect beyond the margin, in standard deviations over seeds, that is found with 80 % by then
VISIBLE = {4: 3.72, 6: 2.25, 9: 1.43, 13: 1.03, 20: 0.725}
POWER = 0.8
_SIGNS_FROM = 9  # seeds: 2^9 ways to turn signs, of which two are less than half of this look's level
_MOST_TURNS = 8192

Table = NDArray[np.float64]


def looks(cap: int) -> list[int]:
    """Seeds at which runs are looked at, up to a number of seeds; below the first look there is only that number."""
    return [seeds for seeds in LEVELS if seeds <= cap] or [cap]


def looks_with(seeds: int) -> list[int]:
    """The looks that so many seeds allow."""
    return [look for look in LEVELS if look <= seeds]


def next_look(seeds: int) -> int | None:
    """The seeds of the look after that with so many; None after the last."""
    return next((after for before, after in pairwise((0, *LEVELS)) if before <= seeds < after), None)


def visible(look: int, deviation: float) -> float:
    """The effect beyond the margin that would have been found by this look with a probability of 80 %."""
    return VISIBLE[look] * deviation


def one_is_negative(columns: Sequence[Sequence[float]], level: float) -> bool:
    """Whether the mean of one of these columns, a number for each seed, is clearly below zero: max-t over columns."""
    table = np.array(columns, dtype=np.float64).T  # seeds x columns
    seeds = len(table)
    found = _t(np.ones((1, seeds)), -table).max()
    if seeds < _SIGNS_FROM:
        from scipy.special import stdtrit  # the command line imports this module and need not wait for scipy

        return bool(found > stdtrit(seeds - 1, 1 - level / table.shape[1]))
    turned = _t(_turns(seeds), -table).max(axis=1)
    return bool(np.mean(turned >= found * (1 - 1e-12)) <= level)


def _t(signs: Table, table: Table) -> Table:
    """Student's t of every column, for each way to turn seeds; a column without spread has 0 or an infinite one."""
    seeds = len(table)
    means = signs @ table / seeds
    spread = np.sqrt(np.maximum((table**2).mean(axis=0) - means**2, 0.0) / (seeds - 1))
    spread[spread < 1e-12 * (np.abs(table).max(axis=0) + 1e-300)] = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(means == 0.0, 0.0, means / spread))


def _turns(seeds: int) -> Table:
    """All ways to turn the signs of seeds, or as many drawn ones; the first turns none."""
    if 2**seeds <= _MOST_TURNS:
        bits = np.arange(2**seeds)[:, None] >> np.arange(seeds) & 1
    else:
        bits = np.random.default_rng(seeds).integers(0, 2, (_MOST_TURNS, seeds))
        bits[0] = 0
    return np.asarray(1.0 - 2.0 * bits)


def share_is_clear(seeds: int, level: float) -> bool:
    """Whether equal shares in so many seeds say more than a coin would: they have no spread to test with."""
    return bool(math.ldexp(2.0, -seeds) <= level)
