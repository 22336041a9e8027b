"""Guarded by hand: what is adopted, who is avoided and for how long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from tour import Mean, Tour, facts, meet

from wayfare.core.errors import ConfigError
from wayfare.core.exchange import MergeOutcome
from wayfare.encounters.policies.fedtour import FedTour
from wayfare.encounters.policies.guarded import Guarded

A, B, C = 0, 1, 2
FOREVER = np.iinfo(np.int64).max
NAN = float("nan")


def tour(limit: int = 100, **settings: Any) -> Tour:
    # equal devices of 0.4: thresholds 0.4, half of L each; every Q' of equals is 0.45, so all ask
    policy = Guarded(limit=limit, predict_with="oracle", **settings)
    return Tour(policy, facts([0.4, 0.4, 0.4], limit), Mean())


def test_a_merge_is_adopted_only_if_no_worse_on_my_own_pictures() -> None:
    # A: the probe says better (0.5), its own pictures say worse (0.6 -> 0.5): refused, twice the same: adopted
    day = tour(back_off=0)
    day.columns["can_send"][A] = 0  # only A receives
    day.step(0, [(A, B)], {A: 0.5}, {A: (0.6, 0.5)})
    assert day.column("score")[A] == 0.4
    day.step(1, [(A, B)], {A: 0.5}, {A: (0.6, 0.6)})
    assert day.column("score")[A] == 0.5
    # what FedTour does with the first of them
    literal = Tour(FedTour(limit=100, predict_with="oracle"), facts([0.4, 0.4], 100), Mean())
    literal.step(0, [(A, B)], {A: 0.5, B: 0.5}, {A: (0.6, 0.5)})
    assert literal.column("score")[A] == 0.5


@pytest.mark.parametrize(
    ("probe", "own", "adopted"),
    [
        ((0.4, 0.3), (0.5, 0.6), True),  # worse on the probe only
        ((0.4, 0.5), (NAN, NAN), True),  # nothing held out: the probe decides
        ((0.4, 0.4), (NAN, NAN), True),
        ((0.4, 0.3), (NAN, NAN), False),
        ((0.4, 0.5), (0.5, NAN), False),  # a model that gives no accuracy
        ((0.4, NAN), (NAN, NAN), False),
    ],
)
def test_what_is_adopted(probe: tuple[float, float], own: tuple[float, float], adopted: bool) -> None:
    me = np.array([A])
    outcome = MergeOutcome(0, me, me + 1, *(np.array([x]) for x in (*probe, *own, 0.5)))
    assert Guarded(predict_with="oracle").accept({}, outcome).tolist() == [adopted]
    # `rollback` also asks the probe
    both = Guarded(predict_with="oracle", rollback=True).accept({}, outcome).tolist()
    assert both == [adopted and probe[1] >= probe[0]]


def test_back_off_doubles() -> None:
    # back_off = 2, refused at slot 0: away in 1, 2; refused at 3: away for 4, in 4..7; refused at 8: in 9..16
    day = tour(back_off=2, lie=1.0, lower_by=1.0)
    day.columns["can_send"][A] = 0  # B never hears A, so only A takes
    took = [slot for slot in range(18) if day.step(slot, [(A, B)], {A: 0.3})]
    assert took == [0, 3, 8, 17]
    # 17 + 2 * 2^3
    assert day.column("shunned") == [[A, B, 33, 4]]
    # C has done nothing
    assert day.step(18, [(A, C)], {A: 0.45}) == [(A, C)]


def test_each_peer_is_counted_by_itself() -> None:
    day = tour(back_off=2, lie=1.0, lower_by=1.0)
    day.columns["can_send"][A] = 0
    assert day.step(0, [(A, B)], {A: 0.3}) == [(A, B)]
    assert day.step(1, [(A, C)], {A: 0.3}) == [(A, C)]
    assert day.column("shunned") == [[A, B, 2, 1], [A, C, 3, 1]]


def test_whom_i_avoid_does_not_get_my_model_either() -> None:
    day = tour(back_off=5, lie=1.0)
    assert day.step(0, [(A, B)], {A: 0.3, B: 0.45}) == [(A, B), (B, A)]  # A refused, B was content
    assert day.column("shunned") == [[A, B, 5, 1]]
    assert day.step(1, [(A, B)], {A: 0.45, B: 0.5}) == []
    assert day.step(6, [(A, B)], {A: 0.45, B: 0.5}) == [(A, B), (B, A)]


def test_a_lie_ends_it() -> None:
    # B claims 0.9: A expects (0.4 + 0.9)/2 + 0.05 = 0.7. 0.56 is 0.14 less, 0.54 is 0.16 less
    claims = np.array([0.9, 0.4])
    for after, rows in ((0.56, []), (0.54, [[A, B, FOREVER, 1]])):
        day = tour()
        day.columns["threshold"][B] = 1.0
        assert day.step(0, [(A, B)], {A: after}, score=claims) == [(A, B)]
        assert day.column("score")[A] == after  # it was no worse than 0.4
        assert day.column("shunned") == rows
        assert bool(day.step(1000, [(A, B)], {A: after}, score=claims)) == (rows == [])


def test_spam_from_one_liar_costs_one_reception() -> None:
    day, claims = tour(), np.array([0.99, 0.4])
    assert day.step(0, [(A, B)], {A: 0.1, B: 0.45}, score=claims) == [(A, B), (B, A)]
    assert day.column("score")[A] == 0.4
    spam = meet(1, [(A, B)], day.facts, day.columns, score=claims)
    wishes = (day.policy.decide(day.columns, replace(spam, slot=slot), Mean()) for slot in range(1, 10_000))
    assert not any(wish.asks.any() for wish in wishes)
    # FedTour spends everything it has and keeps what it is given
    literal = Tour(FedTour(limit=10, predict_with="oracle"), facts([0.4, 0.4], 10), Mean())
    for slot in range(100):
        literal.step(slot, [(A, B)], {A: 0.1, B: 0.45}, score=claims)
    assert literal.column("taken")[A] == 5
    assert literal.column("score")[A] == 0.1


def test_a_merge_that_is_not_finite_is_a_lie() -> None:
    day = tour()
    day.columns["threshold"][B] = 1.0
    day.step(0, [(A, B)], {A: NAN})
    assert day.column("score")[A] == 0.4
    assert day.column("shunned") == [[A, B, FOREVER, 1]]
    assert day.column("threshold")[A] == approx(0.36)


def test_without_a_prediction_nothing_is_a_lie() -> None:
    policy = Guarded(predict_with="oracle", back_off=3)
    columns = policy.begin(facts([0.4, 0.4]))
    me, peer = np.array([A]), np.array([B])
    values = (np.array([x]) for x in (0.4, 0.1, NAN, NAN, NAN))
    changed = policy.update(columns, MergeOutcome(7, me, peer, *values), np.array([False]))
    assert changed["shunned"].tolist() == [[A, B, 10, 1]]
    assert len(columns["shunned"]) == 0


def test_many_refusals_do_not_overflow() -> None:
    policy = Guarded(predict_with="oracle")
    columns = policy.begin(facts([0.4, 0.4])) | {"shunned": np.array([[A, B, 0, 90]])}
    values = (np.array([x]) for x in (0.4, 0.1, NAN, NAN, NAN))
    changed = policy.update(columns, MergeOutcome(0, np.array([A]), np.array([B]), *values), np.array([False]))
    assert changed["shunned"].tolist() == [[A, B, 120 * 2**30, 91]]


def test_cooldown_and_back_off_together() -> None:
    day = tour(back_off=1, cooldown=3, lie=1.0)
    day.columns["can_send"][A] = 0
    took = [slot for slot in range(9) if day.step(slot, [(A, B)], {A: 0.39})]
    assert took == [0, 4, 8]


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), max_size=20))
def test_nobody_ends_an_encounter_worse_on_its_own_pictures(merges: list[tuple[float, float, float]]) -> None:
    day = tour(back_off=0)
    held = 0.5
    for slot, (claim, probe, own) in enumerate(merges):
        before = day.column("taken")[A], day.column("score")[A]
        day.step(slot, [(A, B)], {A: probe, B: 0.4}, {A: (held, own)}, score=np.array([claim, claim]))
        adopted = day.column("taken")[A] > before[0] and own >= held
        assert day.column("score")[A] == (probe if adopted else before[1])
        held = own if adopted else held


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"back_off": -1}, "back_off must be"), ({"lie": 2.0}, "lie must be"), ({"limit": -1}, "limit must be")],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Guarded(predict_with="oracle", **settings)
