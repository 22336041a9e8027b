"""Gossip, opportunistic, always and never by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tour import Tour, facts

from wayfare.core.errors import ConfigError
from wayfare.encounters.policies.always import Always
from wayfare.encounters.policies.budgeted import Budgeted
from wayfare.encounters.policies.fedtour import FedTour
from wayfare.encounters.policies.gossip import Gossip
from wayfare.encounters.policies.greedy import Greedy
from wayfare.encounters.policies.guarded import Guarded
from wayfare.encounters.policies.never import Never
from wayfare.encounters.policies.opportunistic import Opportunistic
from wayfare.encounters.policies.upward import Upward

A, B, C, D = 0, 1, 2, 3
NAN = float("nan")


def tour(policy: Any, limit: int = 4, **known: Any) -> Tour:
    return Tour(policy, facts([NAN] * 4, limit, **known))  # none of them needs to know how good it is


def test_gossip_exchanges_both_ways_where_the_coin_says_so() -> None:
    day = tour(Gossip(limit=4))
    assert day.column("can_send") == day.column("can_take") == [2, 2, 2, 2]
    # 0.0999 < 0.1 and 0.1 is not
    assert day.step(0, [(A, B), (C, D)], chance=[0.0999, 0.1]) == [(A, B), (B, A)]
    assert day.step(1, [(A, B), (C, D)], chance=[0.5, 0.0]) == [(C, D), (D, C)]
    # A and B use up their second and last
    assert len(day.step(2, [(A, B)], chance=[0.0])) == 2
    assert day.column("can_send") == day.column("can_take") == [0, 0, 1, 1]
    # A is at its end: it neither sends nor takes, though C could
    assert day.step(3, [(A, C)], chance=[0.0]) == []


def test_gossip_keeps_every_merge_and_predicts_nothing() -> None:
    day = tour(Gossip())
    day.step(0, [(A, B)], {A: 0.1, B: 0.2}, chance=[0.0])
    assert day.column("score")[:2] == [0.1, 0.2]
    _, wish = day.wish(1, [(A, B)], chance=[0.0])
    assert np.isnan(wish.predicted).all()
    assert day.policy.predictor(None) is None
    assert not Gossip.scored


def test_gossip_per_encounter_draws_when_a_contact_begins() -> None:
    for per, slots in (("slot", [0, 1]), ("encounter", [0])):
        day = tour(Gossip(per=per))
        assert [t for t in (0, 1) if day.step(t, [(A, B)], chance=[0.05], begins=[t == 0])] == slots


def test_gossip_probability_is_a_setting() -> None:
    for probability, many in ((0.0, 0), (0.3, 2), (0.30001, 4), (1.0, 4)):
        day = tour(Gossip(probability=probability))
        assert len(day.step(0, [(A, B), (C, D)], chance=[0.0, 0.3])) == many


def test_opportunistic_asks_those_who_have_what_i_want() -> None:
    # A wants classes 0, 1 (half each). B holds 3:1 of them: min(.5,.75) + min(.5,.25) = 0.75.
    # C holds a quarter of each of four: 0.25 + 0.25 = 0.5. D has no pictures: 0.
    # B wants all four (a quarter each): A's pictures are all of class 0: 0.25.
    labels = [[8, 0, 0, 0], [3, 1, 0, 0], [5, 5, 5, 5], [0, 0, 0, 0]]
    targets = [[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1], [1, 0, 0, 0]]
    for threshold, asks in ((0.5, {B, C}), (0.51, {B}), (0.75, {B}), (0.76, set()), (0.01, {B, C})):
        day = tour(Opportunistic(4, threshold=threshold), labels=labels, targets=targets)
        assert {peer for peer in (B, C, D) if (A, peer) in day.step(peer, [(A, peer)])} == asks
    day = tour(Opportunistic(threshold=0.25), labels=labels, targets=targets)
    assert day.step(0, [(A, B)]) == [(A, B), (B, A)]
    day = tour(Opportunistic(threshold=0.26), labels=labels, targets=targets)
    assert day.step(0, [(A, B)]) == [(A, B)]
    # D wants class 0, of which A has nothing else; A gets nothing from D
    assert day.step(1, [(A, D)]) == [(D, A)]
    assert Opportunistic.delegates


def test_opportunistic_full_overlap_is_exactly_one() -> None:
    # six sixths, in floats, are less than 1
    many = np.full((4, 6), 3)
    day = tour(Opportunistic(threshold=1.0), labels=many)
    assert len(day.step(0, [(A, B), (C, D)])) == 4


def test_always_asks_until_the_budget_ends() -> None:
    day = tour(Always(limit=5), limit=5)  # two of each; the fifth stays
    assert [len(day.step(slot, [(A, B), (C, D)])) for slot in range(4)] == [4, 4, 0, 0]
    assert day.column("taken") == day.column("sent") == [2, 2, 2, 2]


def test_always_one_side_only_where_the_other_is_at_its_end() -> None:
    day = tour(Always())
    day.columns["can_send"][A] = 0
    assert day.step(0, [(A, B)]) == [(A, B)]


def test_never_asks() -> None:
    day = tour(Never())
    assert day.step(0, [(A, B), (C, D)], chance=[0.0, 0.0]) == []


def test_upward_asks_who_is_better_by_the_margin() -> None:
    for margin, asks in ((0.0, [(A, B), (C, D)]), (0.05, [(C, D)]), (0.2, [])):
        day = Tour(Upward(margin=margin), facts([0.5, 0.54, 0.3, 0.5]))  # D is better by a hair less than 0.2
        assert day.step(0, [(A, B), (C, D)]) == asks
    assert Tour(Upward(), facts([0.5, 0.5])).step(0, [(A, B)]) == []


def test_upward_asks_strangers_once() -> None:
    day = Tour(Upward(20, strangers=True), facts([0.2, 0.6, 0.8], 20))
    assert [day.step(slot, [(A, B)], {A: 0.3}) for slot in range(3)] == [[(A, B)], [], []]
    assert day.step(3, [(A, C)], {A: 0.4}) == [(A, C)]
    # B took nothing from A: that A took from B is another direction
    day.columns["score"][A] = 0.9
    assert day.step(4, [(A, B)], {B: 0.7}) == [(B, A)]


def test_budgeted_asks_who_is_better_by_a_step_of_its_budget() -> None:
    """L = 4: two receptions. A (0.2) hears of 0.6: a step of 0.2, so B with 0.39 is not enough and 0.4 is.

    One is left then: from 0.3 to 0.6 it is a step of 0.3, and only D itself will do.
    """
    day = Tour(Budgeted(4), facts([0.2, 0.39, 0.4, 0.6]))
    day.columns["can_send"][:] = 9
    day.columns["best"][A] = 0.6
    assert day.step(0, [(A, B)]) == []
    assert day.step(1, [(A, C)], {A: 0.3}) == [(A, C)]
    day.columns["score"][B] = 0.59
    assert day.step(2, [(A, B)]) == []
    assert day.step(3, [(A, D)], {A: 0.4}) == [(A, D)]
    assert day.column("can_take")[A] == 0


def test_budgeted_asks_again_who_has_become_better_and_undoes_harm() -> None:
    day = Tour(Budgeted(40, risen=0.05), facts([0.2, 0.6], 40))
    assert day.step(0, [(A, B)], {A: 0.1}) == [(A, B)] and day.column("score")[A] == 0.2
    assert day.step(1, [(A, B)]) == []
    day.columns["score"][B] = 0.64
    assert day.step(2, [(A, B)]) == []
    day.columns["score"][B] = 0.65
    assert day.step(3, [(A, B)], {A: 0.5}) == [(A, B)] and day.column("score")[A] == 0.5
    assert day.column("taken_at") == [0.65]


def test_greedy_takes_what_truly_helps() -> None:
    truth = lambda me, peer: np.where(me == A, 0.3, 0.55)  # noqa: E731
    for least, asks in ((0.0, [(A, B)]), (0.09, [(A, B)]), (0.11, [])):
        day = Tour(Greedy(least=least), facts([0.2, 0.6]))
        assert day.step(0, [(A, B)], merged_accuracy=truth) == asks


def test_nobody_near() -> None:
    for policy in (Always(), Never(), Gossip(), Opportunistic()):
        assert tour(policy).step(0, []) == []


@settings(max_examples=40)
@given(st.integers(0, 9), st.lists(st.tuples(st.permutations(range(4)), st.floats(0, 0.999)), max_size=15))
def test_budgets_are_never_exceeded(limit: int, slots: list[tuple[list[int], float]]) -> None:
    for policy in (Always(limit), Never(limit), Gossip(limit, 0.5), Opportunistic(limit)):
        day = tour(policy, limit)
        assert (day.columns["can_send"] + day.columns["can_take"] == limit - limit % 2).all()
        for slot, (order, chance) in enumerate(slots):
            day.step(slot, [(order[0], order[1]), (order[2], order[3])], chance=[chance, 1 - chance])
            assert min(day.columns["can_send"].min(), day.columns["can_take"].min()) >= 0
            assert (day.columns["sent"] + day.columns["taken"] <= limit).all()


@pytest.mark.parametrize("policy", [Always, Never, Gossip, Opportunistic, Upward, Budgeted, Greedy, FedTour, Guarded])
def test_each_is_found_by_the_name_of_its_module(policy: type[Any]) -> None:
    assert policy.__module__ == f"wayfare.encounters.policies.{policy.__name__.lower()}"
    assert policy.__dataclass_params__.frozen


@pytest.mark.parametrize(
    ("policy", "settings", "message"),
    [
        (Gossip, {"probability": 1.1}, "probability must be between 0 and 1, not 1.1"),
        (Gossip, {"probability": NAN}, "probability"),
        (Gossip, {"per": "hour"}, "unknown per 'hour'"),
        (Gossip, {"limit": -1}, "limit"),
        (Opportunistic, {"threshold": 0.0}, "hold no pictures"),
        (Opportunistic, {"threshold": 1.5}, "threshold must be between"),
        (Always, {"limit": True}, "limit must be a whole number"),
    ],
)
def test_settings_that_cannot_be(policy: type[Any], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        policy(**settings)
