"""Algorithm 1 followed by hand, and each of its open points shown to change a decision."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from tour import Mean, Tour, facts, meet

from wayfare.components import allow_code
from wayfare.core.errors import ConfigError
from wayfare.core.exchange import MergeOutcome
from wayfare.encounters.policies.fedtour import FedTour
from wayfare.encounters.policies.guarded import Guarded
from wayfare.encounters.predictors import NAMES, make

A, B, C = 0, 1, 2


def tour(score: list[float], limit: int = 4, **settings: Any) -> Tour:
    policy = FedTour(limit=limit, predict_with="oracle", **settings)  # `Mean` is handed over in the oracle's place
    return Tour(policy, facts(score, limit), Mean())


def test_three_devices_and_five_contacts_by_hand() -> None:
    # Q = 0.2, 0.4, 0.6, L = 4. The median is 0.4, so thresholds are max(0.4, Q) = 0.4, 0.4, 0.6.
    # txn = 4 (Q - 0.2) / 0.4 = 0, 2, 4 and rxn = 4 - txn = 4, 2, 0: A is mute, C is deaf.
    day = tour([0.2, 0.4, 0.6])
    assert day.column("threshold") == approx([0.4, 0.4, 0.6])
    assert (day.column("can_send"), day.column("can_take")) == ([0, 2, 4], [4, 2, 0])

    # 1. A meets B. A hears 0.4: Q' = (0.2 + 0.4)/2 + 0.05 = 0.35, not above 0.4. B hears nothing: A has no txn.
    _, wish = day.wish(0, [(A, B)])
    assert wish.predicted == approx([0.35, np.nan], nan_ok=True)
    assert day.step(0, [(A, B)]) == []
    assert day.column("threshold") == approx([0.4, 0.4, 0.6])

    # 2. A meets C. A hears 0.6: Q' = 0.4 + 0.05 = 0.45 > 0.4, it asks. The merge has 0.5 > 0.4: 0.4 * 1.1 = 0.44.
    assert day.step(1, [(A, C)], {A: 0.5}) == [(A, C)]
    assert day.column("threshold") == approx([0.44, 0.4, 0.6])
    assert (day.column("can_send"), day.column("can_take")) == ([0, 2, 3], [3, 2, 0])

    # 3. B meets C. B: Q' = (0.4 + 0.6)/2 + 0.05 = 0.55 > 0.4, it asks. The merge has 0.38, above neither 0.4 nor
    #    Q = 0.4: 0.4 * 0.9 = 0.36, and it is kept all the same. C has no rxn.
    assert day.step(2, [(B, C)], {B: 0.38}) == [(B, C)]
    assert day.column("threshold") == approx([0.44, 0.36, 0.6])
    assert day.column("score") == approx([0.5, 0.38, 0.6])
    assert (day.column("can_send"), day.column("can_take")) == ([0, 2, 2], [3, 1, 0])

    # 4. A meets B. A: Q' = (0.5 + 0.38)/2 + 0.05 = 0.49 > 0.44, it asks. The merge has 0.47: less than 0.5, but
    #    above 0.44, so the threshold still goes up: 0.44 * 1.1 = 0.484. B hears nothing.
    assert day.step(3, [(A, B)], {A: 0.47}) == [(A, B)]
    assert day.column("threshold") == approx([0.484, 0.36, 0.6])
    assert (day.column("can_send"), day.column("can_take")) == ([0, 1, 2], [2, 1, 0])

    # 5. B meets C. B: Q' = (0.38 + 0.6)/2 + 0.05 = 0.54 > 0.36, it asks. The merge has 0.58: 0.36 * 1.1 = 0.396.
    assert day.step(4, [(B, C)], {B: 0.58}) == [(B, C)]
    assert day.column("threshold") == approx([0.484, 0.396, 0.6])
    assert day.column("score") == approx([0.47, 0.58, 0.6])
    assert (day.column("can_send"), day.column("can_take")) == ([0, 1, 1], [2, 0, 0])
    assert (day.column("sent"), day.column("taken")) == ([0, 1, 3], [2, 2, 0])

    # B has no rxn any more: Q' = (0.58 + 0.6)/2 + 0.05 = 0.64 > 0.396 does not help it, and nothing moves (point 3)
    assert day.step(5, [(B, C)], {B: 0.9}) == []
    assert day.column("threshold") == approx([0.484, 0.396, 0.6])


def test_both_directions_in_one_slot_read_what_was_before() -> None:
    # equal accuracies: L // 2 = 2 of each; both thresholds 0.4, both predict 0.45 and ask
    day = tour([0.4, 0.4])
    assert day.column("can_send") == day.column("can_take") == [2, 2]
    assert day.step(0, [(A, B)], {A: 0.5, B: 0.5}) == [(A, B), (B, A)]
    assert day.column("threshold") == approx([0.44, 0.44])
    assert day.column("can_send") == day.column("can_take") == [1, 1]


def test_a_prediction_equal_to_the_threshold_is_not_enough() -> None:
    day = Tour(FedTour(limit=4, predict_with="oracle"), facts([0.5, 0.5]), Mean(bonus=0.0))
    assert day.step(0, [(A, B)]) == []


def test_threshold_goes_up_when_accuracy_rose_but_stayed_below_it() -> None:
    # A's threshold is the median 0.4; a merge to 0.3 is below it, but above 0.2: up
    day = tour([0.2, 0.4, 0.6])
    day.step(0, [(A, C)], {A: 0.3})
    assert day.column("threshold")[A] == approx(0.44)


def test_threshold_is_never_above_one() -> None:
    # two equal devices of 0.95: threshold 0.95, Q' = 1.0; 0.95 * 1.1 = 1.045
    day = tour([0.95, 0.95])
    day.step(0, [(A, B)], {A: 0.97, B: 0.97})
    assert day.column("threshold") == [1.0, 1.0]


@pytest.mark.parametrize(("limit", "send"), [(40, [0, 10, 40]), (7, [0, 2, 7]), (1, [0, 0, 1]), (0, [0, 0, 0])])
def test_budget_is_divided_by_accuracy(limit: int, send: list[int]) -> None:
    # Q = 0.1, 0.2, 0.5: L * 0.25 = 10, 1.75 -> 2, 0.25 -> 0, 0
    day = tour([0.1, 0.2, 0.5], limit)
    assert day.column("can_send") == send
    assert day.column("can_take") == [limit - n for n in send]


def test_devices_may_have_limits_of_their_own() -> None:
    known = facts([0.2, 0.4, 0.6])
    known.limit[:] = [4, 100, 4]  # signage in the middle: 100 * 0.5
    assert FedTour(limit=4, predict_with="oracle").begin(known)["can_send"].tolist() == [0, 50, 4]


def test_base_accuracy_takes_the_factor_of_the_merged_accuracy() -> None:
    # contacts 2 and 3 of the tour above: 1.1 * 0.5 = 0.55 and 0.9 * 0.38 = 0.342 (literally 0.44 and 0.36)
    day = tour([0.2, 0.4, 0.6], base="accuracy")
    day.step(1, [(A, C)], {A: 0.5})
    day.step(2, [(B, C)], {B: 0.38})
    assert day.column("threshold") == approx([0.55, 0.342, 0.6])
    # contact 4, Q' = 0.49, is now refused
    assert day.step(3, [(A, B)], {A: 0.47}) == []


def test_factors_are_settings() -> None:
    day = tour([0.2, 0.4, 0.6], raise_by=1.5, lower_by=0.5)
    day.step(1, [(A, C)], {A: 0.5})
    day.step(2, [(B, C)], {B: 0.38})
    assert day.column("threshold") == approx([0.6, 0.2, 0.6])


def test_floor_holds_the_threshold_at_my_own_accuracy() -> None:
    # contact 2: max(0.44, 0.5) = 0.5; contact 4, Q' = 0.49, is now refused
    day = tour([0.2, 0.4, 0.6], floor=True)
    day.step(1, [(A, C)], {A: 0.5})
    assert day.column("threshold")[A] == approx(0.5)
    day.step(2, [(B, C)], {B: 0.38})
    assert day.column("threshold")[B] == approx(0.38)
    assert day.step(3, [(A, B)], {A: 0.47}) == []


def test_rollback_undoes_what_lowered_accuracy_and_the_threshold_learns_from_it() -> None:
    day = tour([0.2, 0.4, 0.6], rollback=True)
    day.step(2, [(B, C)], {B: 0.38})
    assert day.column("score")[B] == 0.4
    assert day.column("threshold")[B] == approx(0.36)
    assert day.column("can_take")[B] == 1  # it was received
    day.step(3, [(B, C)], {B: 0.4})  # no worse: kept
    assert day.column("score")[B] == 0.4


def test_floor_is_the_accuracy_that_is_held_after_a_rollback() -> None:
    day = tour([0.2, 0.4, 0.6], rollback=True, floor=True)
    day.step(2, [(B, C)], {B: 0.1})
    assert day.column("threshold")[B] == 0.4


def test_rollback_with_base_accuracy_goes_by_the_model_that_is_held() -> None:
    # the junk merge of 0.1 is undone: 0.9 * 0.4, not 0.9 * 0.1, which would open the door to everybody
    day = tour([0.2, 0.4, 0.6], rollback=True, base="accuracy")
    day.step(2, [(B, C)], {B: 0.1})
    assert day.column("threshold")[B] == approx(0.36)


def test_reserve_lets_the_best_receive_and_the_poorest_send() -> None:
    day = tour([0.2, 0.4, 0.6], reserve=1)
    assert (day.column("can_send"), day.column("can_take")) == ([1, 2, 3], [3, 2, 1])
    # now B hears A: Q' = 0.35, not above 0.4; and C hears B: Q' = 0.55, not above 0.6
    _, wish = day.wish(0, [(A, B), (B, C)])
    assert wish.predicted == approx([0.35, 0.55, 0.35, 0.55])


def test_reserve_is_no_more_than_half_of_a_small_limit_of_its_own() -> None:
    known = facts([0.2, 0.6])
    known.limit[:] = [1, 3]
    columns = FedTour(limit=4, reserve=2, predict_with="oracle").begin(known)
    assert (columns["can_send"].tolist(), columns["can_take"].tolist()) == ([0, 2], [1, 1])


def test_running_median_starts_from_what_is_heard() -> None:
    # five devices; all know nobody: thresholds are their own accuracies
    day = tour([0.2, 0.4, 0.6, 0.5, 0.3], start="running_median")
    assert day.column("threshold") == [0.2, 0.4, 0.6, 0.5, 0.3]
    # A hears B: median(0.4) = 0.4, and 0.35 is not above it; B does not hear A (mute)
    assert day.step(0, [(A, B)]) == []
    assert day.column("threshold") == approx([0.4, 0.4, 0.6, 0.5, 0.3])
    # A hears E (0.3): median(0.3, 0.4) = 0.35; Q' = 0.3, refused. Literally its threshold would be 0.4 throughout
    assert day.step(1, [(A, 4)]) == []
    assert day.column("threshold")[A] == approx(0.35)
    # A hears C (0.6): median(0.3, 0.4, 0.6) = 0.4; Q' = 0.45, it asks; 0.4 * 1.1
    assert day.step(2, [(A, C)], {A: 0.5}) == [(A, C)]
    assert day.column("threshold")[A] == approx(0.44)
    # from the first merge on the threshold is Algorithm 1's
    day.step(3, [(A, B)], {A: 0.5})
    assert day.column("threshold")[A] == approx(0.44 * 1.1)
    # B hears E: max(0.3, 0.4) is its own
    day.step(4, [(B, 4)])
    assert day.column("threshold")[B] == 0.4


def test_running_median_changes_a_decision() -> None:
    # A hears E (0.3) twice: Q' = 0.3 is above neither the median of all, 0.4, nor that of what it has heard, 0.3.
    # Then B (0.4): Q' = 0.35 is not above 0.4, but above median(0.3, 0.3, 0.4) = 0.3
    for start, asks in (("median", []), ("running_median", [(A, B)])):
        day = tour([0.2, 0.4, 0.6, 0.5, 0.3], start=start)
        day.step(0, [(A, 4)])
        day.step(1, [(A, 4)])
        assert day.step(2, [(A, B)], {A: 0.3}) == asks


def test_running_median_counts_every_contact_of_a_slot() -> None:
    # before pairs are matched a device is in several directions of a meeting
    day = tour([0.2, 0.4, 0.6, 0.5, 0.3], start="running_median")
    day.wish(0, [(A, B), (A, C), (A, 3)])
    assert day.column("threshold")[A] == approx(0.5)
    # and the same accuracy counts each time: median(0.4, 0.4, 0.4, 0.5, 0.6)
    day.wish(1, [(A, B), (B, A)])
    assert day.column("threshold")[A] == approx(0.4)
    assert {k: n for k, n in enumerate(day.column("announcements")[A]) if n} == {40: 3, 50: 1, 60: 1}


def test_cooldown_keeps_a_pair_apart_for_so_many_slots() -> None:
    for cooldown, slots in ((0, [0, 1, 2, 3]), (2, [0, 3])):
        day = tour([0.2, 0.4, 0.6], cooldown=cooldown)
        took = [slot for slot in range(4) if day.step(slot, [(A, C)], {A: 0.2})]
        assert took == slots
    assert day.column("cooling") == [[A, C, 5]]  # the row of slot 0 has been dropped
    assert day.step(4, [(A, B)], {A: 0.2}) == [(A, B)]  # others are not concerned: Q' = 0.35 > 0.4 * 0.9 * 0.9


def test_cooldown_counts_for_both_directions() -> None:
    # only A asks (its threshold is 0.4); then B would ask too, but they have just met
    for cooldown, asks in ((0, True), (1, False)):
        day = tour([0.4, 0.4, 0.4], cooldown=cooldown)
        day.columns["threshold"][B] = 0.6
        assert day.step(0, [(A, B)], {A: 0.5}) == [(A, B)]
        day.columns["threshold"][B] = 0.1
        assert ((B, A) in day.step(1, [(A, B)], {A: 0.5, B: 0.5})) == asks


def test_the_same_model_may_be_refused() -> None:
    # after a two-way merge both have 0.5, and the prediction (0.55 > 0.44) sees a gain in a merge that is none
    for same, asks in (("ask", 2), ("refuse", 0)):
        day = tour([0.4, 0.4], same=same)
        day.step(0, [(A, B)], {A: 0.5, B: 0.5})
        assert len(day.step(1, [(A, B)], {A: 0.5, B: 0.5}, same_model=[True])) == asks


def test_quantised_accuracies() -> None:
    policy = FedTour(limit=4, predict_with="oracle", quantise=0.05)
    said = policy.quantised(np.array([0.0, 0.024, 0.026, 0.31, 0.99, np.nan]))
    assert said == approx([0, 0, 0.05, 0.3, 1.0, np.nan], nan_ok=True)
    assert (policy.quantised(said[:-1]) == said[:-1]).all()
    # 1 is 2.86 steps of 0.35: three would be 1.05, more than everything
    assert FedTour(predict_with="oracle", quantise=0.35).quantised(np.array([1.0, 0.8])) == approx([1.0, 0.7])


def test_quantised_accuracies_change_a_decision() -> None:
    # A hears C. Exactly: Q' = (0.21 + 0.51)/2 + 0.05 = 0.41, above the median 0.4
    # in steps of 0.2 all say 0.2, 0.4, 0.6: Q' = (0.21 + 0.6)/2 + 0.05 = 0.455, above the median 0.4
    # in steps of 0.5 all say 0.0, 0.5, 0.5: Q' = (0.21 + 0.5)/2 + 0.05 = 0.405, not above the median 0.5
    for quantise, expected, asks in ((0.0, 0.41, 1), (0.2, 0.455, 1), (0.5, 0.405, 0)):
        day = tour([0.21, 0.4, 0.51], quantise=quantise)
        _, wish = day.wish(0, [(A, C)])
        assert wish.predicted[0] == approx(expected)
        assert len(day.step(0, [(A, C)], {A: 0.5})) == asks
    # txn = 4 (Q - 0) / 0.5 with each device's own Q: 1.68, 3.2, 4.08 -> 2, 3, 4
    assert tour([0.21, 0.4, 0.51], quantise=0.5).column("can_send") == [2, 3, 4]


def test_what_nobody_can_do_is_not_predicted() -> None:
    """An oracle merges for each prediction: it is asked only where the peer is heard and there is room."""
    looked: list[tuple[list[int], list[int]]] = []

    def look(me: np.ndarray, peer: np.ndarray) -> np.ndarray:
        looked.append((me.tolist(), peer.tolist()))
        return np.full(len(me), 0.7)

    policy = FedTour(limit=4, predict_with="oracle")
    day = Tour(policy, facts([0.2, 0.4, 0.6]), make("oracle", None, 33, ""))  # type: ignore[arg-type]
    _, wish = day.wish(0, [(A, B), (B, C)], merged_accuracy=look)
    assert looked == [([A, B], [B, C])]
    assert wish.asks.tolist() == [True, True, False, False]
    assert wish.predicted == approx([0.7, 0.7, np.nan, np.nan], nan_ok=True)


def test_a_peer_that_does_not_say_how_good_it_is_is_not_asked() -> None:
    day = tour([0.2, 0.4, 0.6], start="running_median")
    assert day.step(0, [(A, C)], {A: 0.9}, score=np.full(2, np.nan)) == []
    assert day.column("threshold")[A] == 0.2


def test_decide_is_pure_and_update_leaves_the_columns_alone() -> None:
    day = tour([0.2, 0.4, 0.6], cooldown=1, start="running_median")
    meeting = meet(0, [(A, C)], day.facts, day.columns)
    before = {name: column.copy() for name, column in day.columns.items()}
    day.policy.hear(day.columns, meeting)
    first, second = (day.policy.decide(day.columns, meeting, Mean()) for _ in range(2))
    assert (first.asks == second.asks).all()
    values = (np.array([x]) for x in (0.2, 0.5, np.nan, np.nan, 0.45))
    outcome = MergeOutcome(0, np.array([A]), np.array([C]), *values)
    changed = day.policy.update(day.columns, outcome, np.array([True]))
    assert set(changed) == {"threshold", "merged", "cooling"}
    assert len(changed["cooling"]) == 1
    assert before["cooling"].shape == day.columns["cooling"].shape
    assert all((before[name] == day.columns[name]).all() for name in before)


def test_one_device_by_itself() -> None:
    """A real phone: its columns has one entry, and it knows of no list."""
    columns = FedTour(limit=5, predict_with="oracle").begin(facts([0.3], 5))
    assert (columns["can_send"].tolist(), columns["can_take"].tolist()) == ([2], [3])
    assert columns["threshold"].tolist() == [0.3]


accuracies = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@st.composite
def days(draw: st.DrawFn) -> tuple[Tour, list[tuple[int, list[tuple[int, int]], list[float]]]]:
    score, limit = draw(accuracies), draw(st.integers(0, 9))
    policy = draw(st.sampled_from([FedTour, Guarded]))(
        limit=limit,
        predict_with="oracle",
        reserve=draw(st.integers(0, limit // 2)),
        start=draw(st.sampled_from(["median", "running_median"])),
        base=draw(st.sampled_from(["threshold", "accuracy"])),
        floor=draw(st.booleans()),
        rollback=draw(st.booleans()),
        cooldown=draw(st.integers(0, 3)),
        quantise=draw(st.sampled_from([0.0, 0.05, 0.3])),
    )
    devices = list(range(len(score)))
    slots = []
    for slot in range(draw(st.integers(0, 12))):
        order = draw(st.permutations(devices))
        pairs = list(zip(order[::2], order[1::2]))
        slots.append((slot, pairs, draw(st.lists(st.floats(0, 1), min_size=len(score), max_size=len(score)))))
    return Tour(policy, facts(score, limit), Mean(bonus=0.2)), slots


@settings(max_examples=60)
@given(days())
def test_budgets_are_divided_whole_and_never_exceeded(drawn: Any) -> None:
    day, slots = drawn
    limit = day.facts.limit
    assert (day.columns["can_send"] + day.columns["can_take"] == limit).all()
    for slot, pairs, merged in slots:
        day.step(slot, pairs, dict(enumerate(merged)))
        left, made = (day.columns[a] + day.columns[b] for a, b in (("can_send", "can_take"), ("sent", "taken")))
        assert min(day.columns["can_send"].min(), day.columns["can_take"].min()) >= 0
        assert (left + made == limit).all()
        assert ((day.columns["threshold"] >= 0) & (day.columns["threshold"] <= 1)).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"limit": -1}, "limit must be a whole number of at least 0, not -1"),
        ({"limit": 2.5}, "limit must be a whole number"),
        ({"reserve": 21}, "use at most 20"),
        ({"raise_by": 0.9}, "raise_by must be between 1 and 10"),
        ({"lower_by": float("nan")}, "lower_by must be between 0 and 1"),
        ({"quantise": 0.9}, "quantise must be between"),
        ({"lab": 7}, "lab must be a whole number of at least 8"),  # of the regressor; others have no study
        ({"start": "mean"}, "unknown start 'mean'"),
        ({"base": "acuracy"}, "did you mean 'accuracy'"),
        ({"same": "maybe"}, "Known: ask, refuse"),
        ({"predict_with": "regresor"}, "did you mean 'regressor'"),
        ({"predict_with": "oracle", "regressor": "study.safetensors"}, "is not read with predict_with = 'oracle'"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FedTour(**settings)


def test_unknown_accuracies_at_the_beginning_are_refused() -> None:
    with pytest.raises(ConfigError, match="of 1 of 2 devices it is not known"):
        FedTour(predict_with="oracle").begin(facts([0.3, float("nan")]))


def test_without_a_predictor_there_is_no_decision() -> None:
    day = tour([0.2, 0.4])
    with pytest.raises(ConfigError, match="predictor"):
        day.policy.decide(day.columns, meet(0, [(A, B)], day.facts, day.columns), None)


def test_the_regressor_is_made_from_its_study(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("regressor")
    module.from_study = lambda laboratory, models, file: Mean(bonus=models)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wayfare.encounters.predictors.regressor", module)
    assert FedTour(lab=12).predictor(None) == Mean(bonus=12)  # type: ignore[arg-type]


def test_predictors_of_others_are_called_with_the_laboratory() -> None:
    allow_code("tour", "no_such_module", "builtins")
    assert make("tour:Mean", 0.25, 33, "") == Mean(bonus=0.25)  # type: ignore[arg-type]
    for name, message in (
        ("tour:Nothing", "cannot be imported"),
        ("no_such_module:Name", "cannot be imported"),
        ("builtins:str", "is not a predictor"),
    ):
        with pytest.raises(ConfigError, match=message):
            make(name, None, 33, "")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "regressor"])
def test_our_predictors_are_found_by_name(name: str) -> None:
    made = FedTour(predict_with=name).predictor(None)  # type: ignore[arg-type]
    assert type(made).__name__.lower() == name
