"""Devices that meet: Algorithm 1 on paper, budgets that hold, one result whatever the engine, and what may go wrong."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wayfare.core.rows
from amount import FULL
from tour_parts import HOPEFUL, Broken, Given, LongWay, Numbers, Picky, columns_of, events_of, tour, written
from wayfare import Evaluation, Experiment, Training, runner
from wayfare.components import find, names
from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError, DeviceError, StoreError
from wayfare.core.protocols import Policy
from wayfare.core.rows import Rows
from wayfare.encounters.policies.always import Always
from wayfare.encounters.policies.fedtour import FedTour
from wayfare.encounters.policies.gossip import Gossip
from wayfare.encounters.policies.guarded import Guarded
from wayfare.encounters.policies.never import Never
from wayfare.encounters.policies.opportunistic import Opportunistic
from wayfare.encounters.state import EncounterState
from wayfare.encounters.topology import Encounters
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.partition.quantity import Quantity
from wayfare.partition.random import Random
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedproto import FedProto
from wayfare.strategies.fedprox import FedProx

# 0: all three are named, so that device k of the list is client ck
DAY = [(0, 0, 1), (1, 0, 2), (2, 0, 1), (3, 0, 1), (4, 0, 2), (5, 0, 1), (6, 0, 1), (7, 1, 2)]


def columns(folder: Path, *names: str) -> list[list[float]]:
    columns = columns_of(folder)
    return [pytest.approx(columns[name].tolist(), abs=1e-9) for name in names]


def test_algorithm_1_on_paper(tmp_path: Path) -> None:
    """Accuracies 0.2, 0.3, 0.6; L = 10. Threshold max(median, own): 0.3, 0.3, 0.6. txn 10 (Q - 0.2) / 0.4: 0, 2, 10.

    The predictor hopes for the better of the two accuracies, the merge gives their mean.

    slot  meet   asks, since predicted > threshold   merged  threshold after               txn, rxn after
    0     c0 c1  0.3 > 0.3 no
    1     c0 c2  0.6 > 0.3                           0.4     0.4 > 0.3: 0.33               c2 txn 9, c0 rxn 9
    2     c0 c1  0.4 > 0.33                          0.35    0.35 > 0.33, though worse: 0.363   c1 txn 1, c0 rxn 8
    3     c0 c1  0.35 > 0.363 no
    4     c0 c2  0.6 > 0.363                         0.475   0.475 > 0.363: 0.3993         c2 txn 8, c0 rxn 7
    5     c0 c1  0.475 > 0.3993                      0.3875  neither: 0.35937              c1 txn 0, c0 rxn 6
    6     c0 c1  c1 is not heard: its txn is 0
    7     c1 c2  0.6 > 0.3                           0.45    0.45 > 0.3: 0.33              c2 txn 7, c1 rxn 7

    c0 is never heard (txn 0), and c2 never asks (rxn 0).
    """
    runner.run(tour(tmp_path, DAY, FedTour(10, HOPEFUL), (20, 30, 60)), tmp_path / "run", "local")
    happened = [
        list(zip(e["taker"], e["giver"], e["predicted"], e["before"], e["after"])) if "taker" in e else []
        for e in events_of(tmp_path / "run")
    ]
    assert happened == [
        [], [("c0", "c2", 0.6, 0.2, 0.4)], [("c0", "c1", 0.4, 0.4, 0.35)], [], [("c0", "c2", 0.6, 0.35, 0.475)],
        [("c0", "c1", 0.475, 0.475, 0.3875)], [], [("c1", "c2", 0.6, 0.3, 0.45)],
    ]  # fmt: skip
    assert columns(tmp_path / "run", "score", "threshold", "can_send", "can_take") == [
        [0.3875, 0.45, 0.6], [0.35937, 0.33, 0.6], [0, 0, 7], [6, 7, 0],
    ]  # fmt: skip
    assert columns(tmp_path / "run", "sent", "taken", "meetings") == [[0, 2, 3], [4, 1, 0], [7, 6, 3]]


def test_gossip_leaves_two_equal_models_and_looks_at_none(tmp_path: Path) -> None:
    runner.run(tour(tmp_path, [(0, 0, 1)], Gossip(4, probability=1.0), (20, 60)), tmp_path / "run", "local")
    columns = columns_of(tmp_path / "run")
    assert columns["accuracy"].tolist() == [0.4, 0.4] and columns["check"][0] == columns["check"][1]
    assert np.isnan(columns["score"]).all()
    assert columns["can_send"].tolist() == columns["can_take"].tolist() == [1, 1]


def test_devices_train_after_a_merge_if_configured(tmp_path: Path) -> None:
    """0.2 and 0.6 give 0.4; two steps of 0.1 towards 1: 0.46, 0.514."""
    experiment = tour(tmp_path, [(0, 0, 1)], Always(4), (20, 60), iterations=2)
    runner.run(replace(experiment, training=Training(lr=0.1)), tmp_path / "run", "local")
    assert columns_of(tmp_path / "run")["accuracy"].tolist() == [0.514, 0.514]


def delegating(folder: Path, limit: int, slots: int = 1, steps: int = 1) -> Experiment:
    contacts = [(slot, 0, 1) for slot in range(slots)]
    experiment = tour(folder, contacts, Opportunistic(limit, 0.01, steps), (20, 60))
    return replace(experiment, training=Training(lr=0.1))


def test_who_delegates_gets_its_own_model_back_and_pays_both_ways(tmp_path: Path) -> None:
    """A step takes w to w + 0.1 (1 - w). One by the peer and one of its own: 0.2, 0.28, 0.352; and 0.6, 0.64, 0.676."""
    runner.run(delegating(tmp_path, 8), tmp_path / "run", "local")
    columns = columns_of(tmp_path / "run")
    assert columns["accuracy"].tolist() == pytest.approx([0.352, 0.676])
    assert columns["sent"].tolist() == columns["taken"].tolist() == [2, 2]
    poor = tmp_path / "poor"
    runner.run(delegating(tmp_path, 2), poor, "local")
    assert columns_of(poor)["sent"].tolist() == [1, 1]  # enough for one of the two


def test_delegation_goes_on_as_long_as_the_contact_and_has_no_limit(tmp_path: Path) -> None:
    """30 slots of two times two steps: 1 - 0.8 * 0.9^120; each slot is sent and taken twice."""
    runner.run(delegating(tmp_path, -1, slots=30, steps=2), tmp_path / "run", "local")
    columns = columns_of(tmp_path / "run")
    assert columns["accuracy"].tolist() == pytest.approx([1 - 0.8 * 0.9**120, 1 - 0.4 * 0.9**120], abs=2e-4)
    assert columns["sent"].tolist() == columns["taken"].tolist() == [60, 60]


@pytest.mark.parametrize(("rate", "taken", "cut"), [(0.0, 2, 0), (1e-5, 2, 0), (0.4e-5, 0, 4)])
def test_an_exchange_must_fit_in_the_contact(tmp_path: Path, rate: float, taken: int, cut: int) -> None:
    """A number and its weight in examples are 12 bytes, 96 bits; both ways 192. Two slots are 60 s.

    At 10 bit/s that takes 19.2 s, one slot: each of two slots has an exchange. At 4 bit/s 48 s: two slots, which the
    contact has left in its first one only, so it is done once there and both are busy then; not at all if it is one.
    """
    contacts = [(0, 0, 1), (1, 0, 1)] if rate != 0.4e-5 else [(0, 0, 1), (2, 0, 1)]
    runner.run(tour(tmp_path, contacts, Always(20), (20, 60), rate=rate), tmp_path / "run", "local")
    assert columns_of(tmp_path / "run")["taken"].tolist() == [taken, taken]
    assert sum(event.get("cut", 0) for event in events_of(tmp_path / "run")) == cut


def test_devices_are_busy_while_a_slow_transfer_lasts(tmp_path: Path) -> None:
    """At 4 bit/s both ways take 48 s, two slots: c1 cannot meet c2 in the second."""
    contacts = [(0, 0, 1), (1, 0, 1), (1, 1, 2), (2, 1, 2), (3, 1, 2)]
    runner.run(tour(tmp_path, contacts, Always(20), rate=0.4e-5), tmp_path / "run", "local")
    taken = [event.get("taker", []) for event in events_of(tmp_path / "run")]
    assert taken == [["c0", "c1"], [], ["c1", "c2"], []]


def test_energy_and_bytes_are_counted(tmp_path: Path) -> None:
    """12 bytes each way; 1 J per megabyte and side, 2 J per link."""
    experiment = tour(tmp_path, DAY[:1], Always(4), (20, 60), joules_per_megabyte=1e6, joules_per_link=2.0)
    summary = runner.run(experiment, tmp_path / "run", "local")
    columns = columns_of(tmp_path / "run")
    assert columns["bytes_sent"].tolist() == columns["bytes_taken"].tolist() == [12, 12]
    assert columns["joules"].tolist() == [26.0, 26.0]
    assert summary["bytes_up"] == summary["bytes_down"] == 24


# ---- budgets


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_policy_exceeds_a_budget_or_meets_two_at_once(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    folder = tmp_path_factory.mktemp("tour")
    people = data.draw(st.integers(2, 7))
    pairs = st.tuples(st.integers(0, people - 1), st.integers(0, people - 1)).filter(lambda p: p[0] != p[1])
    contacts = [(0, i, (i + 1) % people) for i in range(people)]  # so that all are there
    contacts += [(slot, *pair) for slot, pair in data.draw(st.lists(st.tuples(st.integers(0, 12), pairs), max_size=60))]
    hundredths = tuple(data.draw(st.lists(st.integers(0, 100), min_size=people, max_size=people)))
    name, limit = data.draw(st.sampled_from(names("exchange"))), data.draw(st.integers(0, 9))
    extra = {"predict_with": HOPEFUL} if name in ("fedtour", "guarded") else {}
    experiment = tour(
        folder, contacts, find("exchange", name)(limit=limit, **extra), hundredths,
        matching=data.draw(st.sampled_from(["random", "best"])), rate=data.draw(st.sampled_from([0.0, 1e-5])),
    )  # fmt: skip
    runner.run(experiment, folder / "run", "local")
    columns = columns_of(folder / "run")
    assert (columns["sent"] + columns["taken"] <= limit).all()
    assert (columns["can_send"] >= 0).all() and (columns["can_take"] >= 0).all()
    for event in events_of(folder / "run"):
        partners: dict[str, set[str]] = {}
        for taker, giver in zip(event.get("taker", []), event.get("giver", [])):
            partners.setdefault(taker, set()).add(giver)
            partners.setdefault(giver, set()).add(taker)
        assert all(len(found) == 1 for found in partners.values())  # Eq. 5
        assert not [taker for taker, count in Counter(event.get("taker", [])).items() if count > 1]


def test_the_best_offer_is_met(tmp_path: Path) -> None:
    """c0 hears c1 (0.3) and c2 (0.6) at once."""
    contacts = [(0, 0, 1), (0, 0, 2)]
    runner.run(tour(tmp_path, contacts, FedTour(10, HOPEFUL), (20, 30, 60), matching="best"), tmp_path / "run", "local")
    assert [event["giver"] for event in events_of(tmp_path / "run")] == [["c2"]]


# ---- one result


def digits(folder: Path, exchange: Any, strategy: Any = None, **settings: Any) -> Experiment:
    """Twelve phones for a few slots; or with ten signs in the town, if there are areas."""
    settings = {"probe": 50, "judge": 50, "public": 150, **settings}
    rng = np.random.default_rng(0)
    pairs = [(slot, *map(int, rng.choice(12, 2, replace=False))) for slot in range(40) for _ in range(4)]
    traces = "town:12" if "areas" in settings else written(folder, [(0, i, i + 1) for i in range(11)] + pairs)
    return Experiment(
        Objects(model=CnnClassifier(width=4, hidden=16)), Quantity(12), strategy or FedAvg("uniform"),
        topology=Encounters(traces, together=8, test=60, **settings), training=Training(epochs=2, batch_size=8, lr=0.1),
        evaluation=Evaluation(every=20, holdout=0.2), rounds=24, exchange=exchange,
    )  # fmt: skip


CASES = {
    "fedtour": (FedTour(20, HOPEFUL), None, {}),
    "guarded liars": (Guarded(20, HOPEFUL), None, {"liars": 0.3}),
    "fedprox": (Gossip(20, probability=0.5), FedProx("uniform"), {"iterations": 2}),
    "fedproto": (Always(20), FedProto(), {"iterations": 2}),
    "areas": (
        Gossip(20, probability=0.5),
        None,
        {"areas": 3, "area_objects": 5, "base_iterations": 3, "signage": "trained", "signage_limit": -1},
    ),
}


@pytest.mark.parametrize("case", CASES if FULL else ["guarded liars", "areas"])
def test_one_hash_for_every_engine_and_after_a_kill(case: str, tmp_path: Path, pool: Any) -> None:
    exchange, strategy, settings = CASES[case]
    experiment = digits(tmp_path, exchange, strategy, **settings)
    whole = runner.run(experiment, tmp_path / "local", "local")
    assert columns_of(tmp_path / "local")["taken"].sum() > 0
    shared = runner.run(experiment, tmp_path / "pool", pool)
    assert shared["model_sha256"] == whole["model_sha256"]
    assert shared["metrics"] == whole["metrics"]
    runner.run(replace(experiment, rounds=11), tmp_path / "parts", pool)
    (tmp_path / "parts" / "summary.json").unlink()
    assert runner.resume(tmp_path / "parts", "local", rounds=24)["model_sha256"] == whole["model_sha256"]


def test_another_seed_gives_another_tour(tmp_path: Path) -> None:
    experiment = replace(digits(tmp_path, Gossip(20, probability=0.5)), rounds=20)
    runs = [runner.run(replace(experiment, seed=s), tmp_path / str(s), "local")["model_sha256"] for s in (0, 1)]
    assert runs[0] != runs[1]


def test_the_day_stops_where_it_ends_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    experiment = tour(tmp_path, DAY, FedTour(10, HOPEFUL), (20, 30, 60))
    assert runner.run(experiment, tmp_path / "run", "local")["rounds"] == 1 + 8
    again = runner.run(replace(experiment, rounds=500), tmp_path / "more", "local")
    assert (
        again["rounds"] == 9
        and again["model_sha256"] == json.loads((tmp_path / "run/summary.json").read_text())["model_sha256"]
    )


def test_a_checkpoint_back_is_whole(tmp_path: Path) -> None:
    """If the last checkpoint is damaged, the one before it still finds its rows."""
    experiment = tour(tmp_path, DAY, FedTour(10, HOPEFUL), (20, 30, 60))
    whole = runner.run(experiment, tmp_path / "run", "local")
    for last in (7, 8, 9):
        short = tmp_path / f"short-{last}"
        runner.run(replace(experiment, rounds=last), short, "local")
        newest = sorted((short / "checkpoints").glob("*.safetensors"))[-1]
        newest.write_bytes(b"damaged")
        assert runner.resume(short, "local", rounds=9)["model_sha256"] == whole["model_sha256"]


def test_a_damaged_model_is_noticed(tmp_path: Path) -> None:
    experiment = tour(tmp_path, DAY, FedTour(10, HOPEFUL), (20, 30, 60))
    runner.run(replace(experiment, rounds=5), tmp_path / "run", "local")
    rows = tmp_path / "run" / "models.rows"
    data = rows.read_bytes()
    for at in range(len(data)):
        shutil.copytree(tmp_path / "run", tmp_path / f"run-{at}")
        changed = bytearray(data)
        changed[at] ^= 1
        (tmp_path / f"run-{at}" / "models.rows").write_bytes(changed)
    found = 0
    for at in range(len(data)):
        try:
            runner.resume(tmp_path / f"run-{at}", "local", rounds=9)
        except StoreError as error:
            assert "damaged" in str(error)
            found += 1
    used = set(columns_of(tmp_path / "run")["row"].tolist())
    assert found >= 4 * len(used)  # every byte of a row in use; rows that nobody has may be anything


# ---- hostile and broken devices


def test_a_model_that_is_not_a_number_is_refused_at_the_gate(tmp_path: Path) -> None:
    """All are liars that send NaN: nobody's model changes, and nobody's receptions are used up."""
    experiment = tour(tmp_path, DAY, Always(10), (20, 30, 60), liars=1.0, lie="nan")
    summary = runner.run(experiment, tmp_path / "run", "local")
    columns = columns_of(tmp_path / "run")
    assert columns["accuracy"].tolist() == [0.2, 0.3, 0.6]
    assert columns["taken"].tolist() == [0, 0, 0] and columns["sent"].sum() == summary["refused"] > 0


@pytest.mark.parametrize("policy", [Always(10), FedTour(10, HOPEFUL)], ids=["always", "fedtour"])
def test_a_first_model_that_is_not_a_number_is_refused_at_the_gate(tmp_path: Path, policy: Any) -> None:
    """Its device goes on with the base model, here 0, and nobody takes a NaN from it."""
    strategy = Broken("uniform", (20, 30, 60))
    summary = runner.run(tour(tmp_path, DAY, policy, strategy=strategy), tmp_path / "run", "local")
    lines = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert lines[1]["refused"] == [{"device": "c1", "reason": "not finite: model/w"}] and summary["refused"] == 1
    assert lines[1]["per_client"]["accuracy"] == {"c0": 0.2, "c1": 0.0, "c2": 0.6} and not lines[1]["void"]
    final = Bundle.unpack((tmp_path / "run" / "model.safetensors").read_bytes())
    assert bool(final["model"]["w"].isfinite().all())


def test_a_beginning_in_which_nobody_can_train_is_void(tmp_path: Path) -> None:
    """As with a server: a run in which nothing works does not succeed."""
    experiment = tour(tmp_path, DAY, Always(10), strategy=Given("uniform", ()), together=1)
    with pytest.raises(DeviceError, match="IndexError"):
        runner.run(replace(experiment, partition=Random(3)), tmp_path / "run", "local")


def test_a_base_model_that_is_not_a_number_stops_the_run(tmp_path: Path) -> None:
    experiment = tour(
        tmp_path, DAY, Always(10), strategy=Broken("uniform", device="base"), public=20, base_iterations=2
    )
    with pytest.raises(DeviceError, match="not finite: model/w"):
        runner.run(experiment, tmp_path / "run", "local")


def test_guarded_devices_never_end_an_exchange_worse_on_their_own_pictures(tmp_path: Path) -> None:
    """Every merge with a liar makes a number smaller: kept as written, refused when guarded."""
    hundredths = (20, 30, 60, 50)
    day = [(slot, a, b) for slot in range(6) for a, b in ((0, 1), (2, 3), (0, 3), (1, 2))]
    kept = {}
    for policy in (FedTour(10, HOPEFUL), Guarded(10, HOPEFUL)):
        run = tmp_path / type(policy).__name__
        experiment = tour(tmp_path, day, policy, hundredths, liars=0.5)
        runner.run(replace(experiment, evaluation=Evaluation(every=1000, holdout=0.3)), run, "local")
        kept[type(policy).__name__] = [
            (before, after)
            for event in events_of(run)
            for before, after, adopted in zip(event.get("before", []), event.get("after", []), event.get("adopted", []))
            if adopted
        ]
    assert any(after < before for before, after in kept["FedTour"])
    assert kept["Guarded"] and all(after >= before for before, after in kept["Guarded"])


def test_a_failed_device_is_left_out_and_reported(tmp_path: Path) -> None:
    experiment = tour(tmp_path, DAY, FedTour(10, HOPEFUL), strategy=Given("uniform", (20, 30)))  # c2 has no number
    summary = runner.run(experiment, tmp_path / "run", "local")
    assert summary["refused"] == 1
    assert columns_of(tmp_path / "run")["accuracy"][2] <= 0.6


# ---- what does not fit


def test_misfits_are_refused(tmp_path: Path) -> None:
    def message(**changes: Any) -> str:
        settings = {"exchange": Never(), "hundredths": (20, 30, 60), **changes}
        experiment = tour(tmp_path, DAY, settings.pop("exchange"), settings.pop("hundredths"), **settings)
        with pytest.raises(ConfigError) as told:
            runner.run(experiment, tmp_path / str(len(list(tmp_path.iterdir()))), "local")
        return str(told.value)

    assert "only 3 devices" in message(hundredths=(1, 2, 3, 4))
    assert "topology.public" in message(exchange=FedTour(10))
    assert "topology.public" in message(base_iterations=3)
    assert "only 40" in message(probe=39)
    assert "needs positions" in message(matching="nearest", exchange=Always())
    with pytest.raises(ConfigError, match=r"topology\.traces is missing"):
        Encounters().check(3)
    with pytest.raises(ConfigError, match="encounters"):
        Experiment(exchange=Never())
    with pytest.raises(ConfigError, match="class by class"):
        runner.run(tour(tmp_path, DAY, Never(), task=Blind()), tmp_path / "blind", "local")


class Blind(Numbers):
    """Cannot count by class."""

    provides: ClassVar[frozenset[str]] = frozenset({"features", "classes"})


@pytest.mark.parametrize("policy", [Gossip(20, probability=0.5), FedTour(20, HOPEFUL)], ids=["gossip", "fedtour"])
def test_checkpoints_may_be_rarer_than_slots(tmp_path: Path, policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same models, with a checkpoint after each slot or after seven; also where few models may wait in memory."""
    hundredths, day = (
        (20, 30, 60, 90),
        [(slot, a, b) for slot in range(20) for a, b in ((0, 1), (2, 3), (1, 2), (0, 3))],
    )
    runs = []
    for name, slots, room in (("each", 1, 2**28), ("rare", 7, 2**28), ("little room", 7, 8)):
        monkeypatch.setattr("wayfare.core.rows._ROOM", room)
        experiment = tour(tmp_path, day, policy, hundredths, slots=slots)
        runs.append(runner.run(experiment, tmp_path / name, "local"))
    assert [run["rounds"] for run in runs] == [21, 4, 4]
    assert len({run["model_sha256"] for run in runs}) == 1
    counted = [columns(tmp_path / name, "accuracy", "sent", "taken", "meetings") for name in ("each", "rare")]
    assert counted[0] == [list(column.expected) for column in counted[1]]
    takers = [
        [taker for event in events_of(tmp_path / name) for taker in event.get("taker", [])] for name in ("each", "rare")
    ]
    assert takers[0] == takers[1] != []
    with pytest.raises(ConfigError, match=r"topology\.iterations"):
        runner.run(tour(tmp_path, day, policy, hundredths, slots=7, iterations=1), tmp_path / "no", "local")


# ---- means that are taken on rows


CROWD = [(slot, a, b) for slot in range(12) for a, b in ((0, 1), (2, 3), (1, 2), (0, 3))]


@pytest.mark.parametrize(
    ("settings", "gate", "refusals"),
    [
        ({"slots": 4}, Policy(), 0),
        ({"slots": 4, "liars": 0.5, "lie": "nan"}, Policy(), 12),
        ({"slots": 4}, Policy(max_change=0.18), 1),  # for the numbers that are far apart at first
        ({}, Policy(max_examples=8), 12),
        ({"iterations": 1}, Policy(), 0),
        ({"exchange": FedTour(20, HOPEFUL)}, Policy(), 0),
    ],
    ids=["plain", "liars", "gate", "examples", "training", "scored"],
)
@pytest.mark.parametrize("weighting", ["uniform", "examples"])
def test_the_short_way_to_a_mean_is_the_long_one(
    tmp_path: Path, weighting: Any, settings: dict[str, Any], gate: Policy, refusals: int, monkeypatch: Any
) -> None:
    """One mean for both of a pair, taken on rows, gives the bits and the refusals of two merges through the gate."""
    short, means = EncounterState.mean, Counter[str]()

    def counted(self: EncounterState, *pair: Any) -> Bundle | None:
        found = short(self, *pair)
        means[type(self.scenario.strategy).__name__] += found is not None
        return found

    monkeypatch.setattr(EncounterState, "mean", counted)
    settings, told, hashes = dict(settings), [], set()
    exchange = settings.pop("exchange", Always(20))
    for kind in (Given, LongWay):
        run = tmp_path / kind.__name__
        strategy = kind(weighting, (20, 30, 61, 93))
        experiment = tour(tmp_path, CROWD, exchange, (20, 30, 61, 93), strategy=strategy, **settings)
        experiment = replace(experiment, partition=Quantity(4), policy=gate)
        hashes.add(runner.run(experiment, run, "local")["model_sha256"])
        lines = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
        told.append([[line.get(name) for name in ("events", "refused", "clients", "bytes_up")] for line in lines])
    assert len(hashes) == 1 and told[0] == told[1]
    assert sum(len(refused) for _, refused, _, _ in told[0]) >= refusals
    assert (means["Given"] > 0) == (gate.max_examples > 8)
    assert means["LongWay"] == 0


def test_a_state_of_two_devices_lies_in_two_rows_and_is_summed_once(tmp_path: Path, monkeypatch: Any) -> None:
    rows = Rows(tmp_path / "models.rows", Bundle({"model": {"w": torch.zeros(2), "b": torch.zeros(1)}}))
    summed: list[torch.Tensor] = []
    real = wayfare.core.rows._checksum
    monkeypatch.setattr("wayfare.core.rows._checksum", lambda flat: (summed.append(flat), real(flat))[1])
    shared = rows.shaped(torch.tensor([1.0, 2.0, 3.0]))
    places = [rows.put_later(state) for state in (shared, Bundle({"model": {"b": torch.ones(1), "w": torch.ones(2)}}))]
    places.append(rows.put_later(shared))
    found = rows.settle()
    assert len(summed) == 2 and found[places[0]] == found[places[2]] != found[places[1]]
    for place, numbers in zip(places, ([1, 2, 3], [1, 1, 1], [1, 2, 3])):
        state = rows.get(place, found[place])
        assert state["model"]["w"].tolist() == numbers[:2] and state["model"]["b"].tolist() == numbers[2:]
    rows.close()


def test_what_nobody_adopts_leaves_no_row_behind(tmp_path: Path) -> None:
    """Two phones, 12 slots in one round: in each slot each takes the other's model, and keeps its own."""
    experiment = tour(tmp_path, [(slot, 0, 1) for slot in range(12)], Picky(40), (50, 60), slots=12)
    runner.run(experiment, tmp_path / "run", "local")
    [event] = events_of(tmp_path / "run")
    assert event["adopted"] == [False] * 24 and columns_of(tmp_path / "run")["accuracy"].tolist() == [0.5, 0.6]
    assert (tmp_path / "run" / "models.rows").stat().st_size == 4 * (1 + 2 + 2)  # the base, theirs, two to look at
