"""Settings of the topology, each by hand: signage, who takes part, areas, what travels, and a policy that is wrong."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from tour_parts import HOPEFUL, Given, Numbers, columns_of, events_of, tour
from wayfare import Evaluation, Experiment, runner
from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError
from wayfare.core.exchange import Decision
from wayfare.encounters.areas import GivenArea, areas_of
from wayfare.encounters.coding import ModelCoding
from wayfare.encounters.contacts import ContactProcess, LocatedContacts
from wayfare.encounters.dense import densest
from wayfare.encounters.policies.always import Always
from wayfare.encounters.policies.fedtour import FedTour
from wayfare.encounters.policies.gossip import Gossip
from wayfare.encounters.policies.upward import Upward
from wayfare.encounters.topology import Encounters
from wayfare.encounters.traces import Traces
from wayfare.partition.random import Random
from wayfare.partition.virtual import Virtual

# ---- signage

SQUARE = """device,time,x,y,stationary
a,2024-06-21T09:00:00,0,0,False
b,2024-06-21T09:00:00,10,0,False
c,2024-06-21T09:00:00,20,0,False
sign,2024-06-21T09:00:00,0,10,True
a,2024-06-21T09:00:30,0,0,False
b,2024-06-21T09:00:30,10,0,False
c,2024-06-21T09:00:30,20,0,False
sign,2024-06-21T09:00:30,0,10,True
"""


def square(folder: Path, signage: str, **settings: Any) -> Experiment:
    """Three people, 0.2, 0.3 and 0.6, and a sign: s0 would learn what c0 has."""
    file = folder / "square.csv"
    file.write_text(SQUARE)
    topology = Encounters(str(file), signage=signage, probe=2, judge=2, public=4, **settings)  # type: ignore[arg-type]
    return Experiment(
        Numbers(), Random(3), Given("uniform", (20, 30, 60)), topology, exchange=FedTour(10, HOPEFUL),
        evaluation=Evaluation(every=1000, holdout=0.0), rounds=1,
    )  # fmt: skip


@pytest.mark.parametrize(("signage", "scores"), [("none", []), ("untrained", [0.0]), ("trained", [0.2])])
def test_signage_counts_in_no_mean_median_or_minimum(signage: str, scores: list[float], tmp_path: Path) -> None:
    """Of 0.2, 0.3 and 0.6 the median is 0.3; txn is 10 (Q - 0.2) / 0.4, for a sign of 0 or 0.2 at least 0."""
    summary = runner.run(square(tmp_path, signage), tmp_path / "run", "local")
    columns = columns_of(tmp_path / "run")
    assert columns["score"].tolist() == pytest.approx([0.2, 0.3, 0.6, *scores])
    assert columns["threshold"].tolist() == pytest.approx([0.3, 0.3, 0.6, *([0.3] if scores else [])])
    assert columns["can_send"].tolist() == [0, 2, 10, *([0] if scores else [])]
    assert summary["metrics"]["test/accuracy"] == pytest.approx(1.1 / 3)
    assert summary["metrics"]["test/accuracy_min"] == pytest.approx(0.2)


def test_trained_signage_needs_pictures(tmp_path: Path) -> None:
    experiment = square(tmp_path, "trained")
    with pytest.raises(ConfigError, match=r"topology\.public, the pictures that signage learns from"):
        replace(experiment.topology, public=0).check(3)  # type: ignore[type-var]


def test_public_pictures_can_be_dealt_too(tmp_path: Path) -> None:
    apart, dealt = (replace(square(tmp_path, "none"), topology=replace(square(tmp_path, "none").topology, **more))
                    for more in ({}, {"public_is_dealt": True}))  # fmt: skip
    assert [sum(map(len, e.split())) for e in (apart, dealt)] == [40 - 8, 40 - 4]


def test_virtual_clients_get_no_reserved_picture(tmp_path: Path) -> None:
    """More devices than pictures: each draws 3 of the 36 that are not reserved."""
    experiment = replace(square(tmp_path, "none", public_is_dealt=True), partition=Virtual(100, 3))
    split = experiment.split()
    assert [len(own) for own in split] == [3] * 100
    left = np.setdiff1d(np.arange(40), experiment.reserved())
    assert np.unique(np.concatenate(list(split))).tolist() == left.tolist() and len(left) == 36


# ---- who takes part


class Written(ContactProcess):
    """Pairs, slot by slot."""

    def __init__(self, *slots: list[tuple[int, int]], devices: int = 6) -> None:
        self.listed, self.slots = slots, len(slots)
        self.devices = tuple(map(str, range(devices)))

    def pairs(self, slot: int) -> np.ndarray:
        return np.array(self.listed[slot], np.int64).reshape(-1, 2)

    distances = touching = present = positions = select = hours = None  # type: ignore[assignment]


def test_the_dense_part_are_those_who_meet_each_other() -> None:
    """0, 1 and 2 meet each other twice. 5 meets 3 and 4 three times each, who meet nobody else: 3 + 3 + 6 contacts.

    Fewest contacts first, the lower number of equal ones: 3 (3), then 4 and 5 (3 each, since 5 has lost 3).
    """
    triangle = [(0, 1), (0, 2), (1, 2)]
    found = Written(triangle, triangle, [(3, 5), (4, 5)], [(3, 5), (4, 5)], [(3, 5), (4, 5)])
    assert densest(found, 3).tolist() == [0, 1, 2]
    assert densest(found, 5).tolist() == [0, 1, 2, 4, 5]
    assert densest(found, 6).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_dense_part_of_a_trace_takes_part(tmp_path: Path) -> None:
    """Of five people, 2 and 4 of the list meet four times and the others once."""
    contacts = [(0, 0, 1), (0, 2, 3), (1, 2, 4), (2, 2, 4), (3, 2, 4), (4, 2, 4)]
    experiment = tour(tmp_path, contacts, Always(8), (20, 60), draw="dense")
    summary = runner.run(experiment, tmp_path / "run", "local")
    assert summary["metrics"]["tour/meetings"] == 4


# ---- areas


def located(*people: list[tuple[float, float]], geographic: bool = False) -> LocatedContacts:
    positions = np.array(people, np.float32).transpose(1, 0, 2)
    names = tuple(map(str, range(len(people))))
    still = np.zeros(len(people), bool)
    origin = (100.0, 200.0)
    traces = Traces(names, 30.0, 0.0, "", positions=positions, stationary=still, origin=origin, geographic=geographic)
    return LocatedContacts(traces)


def test_given_areas_by_hand() -> None:
    """Objects overlap: fawn is in two areas. The second person spends one slot of five in the east: a fifth."""
    given = [GivenArea.read(text) for text in ("100 200: deer, fawn", "1100, 200: fawn,carp")]
    assert given[1] == GivenArea((1100.0, 200.0), ("fawn", "carp"))
    contacts = located([(0, 0)] * 5, [(0, 0)] * 4 + [(990, 10)], [(900, 0)] * 5)
    areas = areas_of(contacts, given, 0, 0, classes=("carp", "deer", "fawn"), seed=0)
    assert areas.objects.tolist() == [[False, True, True], [True, False, True]]
    assert areas.targets.tolist() == [[False, True, True], [True, True, True], [True, False, True]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("here: deer", "expected a centre"),
        ("1 2: ", "expected a centre"),
        ("1 2", "expected a centre"),
        ("nan 2: deer", "expected a centre"),
        ("1 2: dear", "unknown object 'dear'"),
    ],
)
def test_given_areas_that_are_wrong(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        areas_of(located([(0, 0)]), [GivenArea.read(text)], 0, 0, classes=("deer", "fawn"), seed=0)


def test_areas_share_objects() -> None:
    contacts = located(*([(float(x), 0.0)] for x in range(0, 900, 100)))
    areas = areas_of(contacts, [], 3, 5, classes=tuple("abcdefghij"), seed=1)
    assert areas.objects.sum(1).tolist() == [5, 5, 5] and areas.objects.any(0).all()
    assert areas_of(contacts, [], 3, 0, classes=tuple("abcdefghij"), seed=1).objects.sum(1).tolist() == [4, 3, 3]
    with pytest.raises(ConfigError, match="area_objects = 3: expected 4 to 10"):
        areas_of(contacts, [], 3, 3, classes=tuple("abcdefghij"), seed=1)


# ---- what travels


def test_a_model_in_fewer_bytes() -> None:
    """A row of 100 numbers and one of 8, which travels as it is: 32 bytes; n has 8."""
    rng = np.random.default_rng(0)
    base = Bundle({"model": {"w": torch.zeros(1, 100), "b": torch.zeros(8)}})
    w = torch.linspace(-1, 1, 100).reshape(1, -1)
    report = Bundle({"model": {"w": w, "b": torch.ones(8)}}, {"n": 3})
    sizes = {form: ModelCoding(form, 0.1).nbytes(report) - 32 - 8 for form in ("fp32", "fp16", "int8", "topk")}  # type: ignore[arg-type]
    assert sizes == {"fp32": 400, "fp16": 200, "int8": 100 + 2, "topk": 10 * 2 + 2}
    for form, error in (("fp32", 0.0), ("fp16", 1e-3), ("int8", 1 / 127)):
        got = ModelCoding(form, 0.1).received(report, base, rng)  # type: ignore[arg-type]
        assert float((got["model"]["w"] - w).abs().max()) <= error and got["model"]["b"].tolist() == [1.0] * 8
        assert got.values == {"n": 3}
    got = ModelCoding("topk", 0.1).received(report, base, rng)
    assert np.flatnonzero(got["model"]["w"].numpy()).tolist() == [0, 1, 2, 3, 4, 95, 96, 97, 98, 99]
    spoilt = Bundle({"model": {"w": w * float("nan"), "b": torch.ones(8)}})
    assert torch.isnan(ModelCoding("int8", 0.1).received(spoilt, base, rng)["model"]["w"]).all(), "the gate must see it"


@pytest.mark.parametrize(("resume", "accuracy", "taken"), [(False, 0.2, 0), (True, 0.4, 1)])
def test_a_transfer_that_was_cut_is_continued(resume: bool, accuracy: float, taken: int, tmp_path: Path) -> None:
    """12 bytes at 2 bit/s take 48 s, a contact lasts 30. 5 bytes are missing then, which take 20 s of the next one."""
    contacts = [(0, 0, 1), (2, 0, 1)]
    experiment = tour(tmp_path, contacts, Upward(20), (20, 60), rate=2e-6, resume=resume)
    runner.run(experiment, tmp_path / "run", "local")
    columns = columns_of(tmp_path / "run")
    assert columns["accuracy"].tolist() == pytest.approx([accuracy, 0.6])
    assert columns["taken"].tolist() == [taken, 0] and columns["bytes_taken"].tolist() == [12 * taken, 0]
    assert [event.get("cut", 0) for event in events_of(tmp_path / "run")] == [1, 0, 0 if resume else 1]


def test_what_had_come_of_another_model_is_of_no_use(tmp_path: Path) -> None:
    """c1 takes c2's model in between, so that c0 begins again, and has 7 of 12 bytes when the day ends."""
    contacts = [(0, 0, 1), (2, 1, 2), (3, 1, 2), (5, 0, 1)]
    experiment = tour(tmp_path, contacts, Upward(20), (20, 60, 80), rate=2e-6, resume=True)
    runner.run(experiment, tmp_path / "run", "local")
    columns = columns_of(tmp_path / "run")
    assert columns["accuracy"].tolist() == pytest.approx([0.2, 0.7, 0.8])
    assert columns["bytes_taken"].tolist() == [14, 12, 0]
    assert columns["partial"][:, [0, 1, 3]].tolist() == [[0, 1, 7]]


@pytest.mark.parametrize(("megabytes", "exchanges"), [(0.0, 6), (60e-6, 5), (30e-6, 2), (13e-6, 1), (11e-6, 0)])
def test_a_byte_budget(megabytes: float, exchanges: int, tmp_path: Path) -> None:
    """An exchange both ways costs each side 24 bytes; where only 12 are left, one direction is done."""
    contacts = [(slot, 0, 1) for slot in range(3)]
    experiment = tour(tmp_path, contacts, Gossip(20, 1.0), (20, 60), megabytes=megabytes)
    runner.run(experiment, tmp_path / "run", "local")
    assert columns_of(tmp_path / "run")["taken"].sum() == exchanges


def test_several_slots_make_a_round_that_still_knows_when(tmp_path: Path) -> None:
    contacts = [(slot, 0, 1) for slot in (0, 1, 4)]
    experiment = tour(tmp_path, contacts, Gossip(20, 1.0), (20, 60), slots=10)
    runner.run(experiment, tmp_path / "run", "local")
    [events] = events_of(tmp_path / "run")
    assert events["at"] == [0, 0, 1, 1, 4, 4] and (events["slots"], events["empty"]) == (5, 2)


# ---- a policy that is wrong


@dataclass(frozen=True)
class Forgetful(Upward):
    """Compares accuracies, and does not say that it needs them."""

    scored: ClassVar[bool] = False


def one(policy: Any, folder: Path) -> None:
    experiment = tour(folder, [(0, 0, 1)], Always(4), (20, 60))
    runner.run(replace(experiment, exchange=policy), folder / "run", "local")


def test_forgetting_that_it_needs_accuracies_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Forgetful reads columns\['score'\].*add `scored: ClassVar\[bool\] = True`"):
        one(Forgetful(), tmp_path)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.ones(2, bool), r"decide must return Decision\(asks, predicted\), not ndarray"),
        (Decision(np.ones(2), np.ones(2)), r"asks must be an array of 2 booleans.*not float64 \(2,\)"),
        (Decision(np.ones(3, bool), np.ones(3)), r"not bool \(3,\)"),
        (Decision(np.ones(2, bool), None), "predicted must be an array of 2 accuracies.*not NoneType"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_answer_is_told(answer: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Always, "decide", lambda self, columns, meeting, predictor: answer)
    with pytest.raises(ConfigError, match=message):
        one(Always(4), tmp_path)


def test_a_policy_may_not_change_budgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Always, "update", lambda self, columns, outcome, adopted: {"can_take": np.full(2, 99)})
    with pytest.raises(ConfigError, match=r"Always\.update changes can_take, which only the topology may"):
        one(Always(4), tmp_path)


# ---- a predictor that does not fit


def test_a_bad_predictor_is_said() -> None:
    lines = [{"events": {"met": 3, "taker": ["c0"]}, "metrics": {"tour/mape": 0.295, "tour/outside": 0.84}}]
    assert "error of 29.5 %" in Encounters().doubt(lines) and "84 % of the predictions" in Encounters().doubt(lines)
    lines[0]["metrics"] = {"tour/mape": 0.05, "tour/outside": 0.01}
    assert Encounters().doubt(lines) == ""


def test_prediction_errors_are_measured(tmp_path: Path) -> None:
    """c0 expects 0.6 and gets (0.2 + 0.6) / 2: off by half. c1 asks nobody: 0.6 is not above its threshold."""
    experiment = tour(tmp_path, [(0, 0, 1)], FedTour(10, HOPEFUL, reserve=1), (20, 60))
    summary = runner.run(experiment, tmp_path / "run", "local")
    assert summary["metrics"]["tour/mape"] == pytest.approx(0.5)
