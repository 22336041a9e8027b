"""Recipes of FedTour's figures, the newcomers' tour, and what docs/encounters.md says of settings and policies."""

import json
import math
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from wayfare.cli import main
from wayfare.encounters.policies.fedtour import FedTour
from wayfare.encounters.policies.guarded import Guarded
from wayfare.encounters.topology import Encounters
from wayfare.experiment import Experiment
from wayfare.objects.data.digits import Digits
from wayfare.objects.models import FrozenHeadClassifier, Vgg16PooledClassifier
from wayfare.pages.compare import Spread
from wayfare.papers.files import recipes
from wayfare.papers.paper import Cell, Paper, Scale
from wayfare.papers.plan import read_plan
from wayfare.papers.reproduction import MEASURES, Reproduction, Row

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "recipes" / "fedtour"
NAMES = sorted(file.stem for file in FOLDER.glob("*.toml"))
LIMITS = (20, 30, 40, 50, 70, 100)
DOCS = (ROOT / "docs" / "encounters.md").read_text(encoding="utf-8")


def plan_of(name, scale):
    return read_plan(FOLDER / f"{name}.toml", scale)


# ---- the recipes


def test_there_is_a_recipe_for_every_figure():
    assert NAMES == ["areas", "base", "figure4", "figure5", "figure6", "policies", "study"]
    for name in ("figure4", "figure5", "figure6", "policies"):
        plan = plan_of(name, None)
        assert plan.about and plan.cells and plan.scale == "small" and plan.paper.metric == "test/accuracy"


@pytest.mark.parametrize("scale", list(Scale))
@pytest.mark.parametrize("name", NAMES)
def test_every_cell_is_an_experiment_at_both_scales(name, scale):
    for experiment in plan_of(name, scale).experiments.values():
        assert Experiment.from_toml(experiment.to_toml()).to_toml() == experiment.to_toml()
        assert isinstance(experiment.topology, Encounters) and experiment.rounds == 0
        small = scale is Scale.small
        assert experiment.partition.clients == (300 if small else 1900)
        assert isinstance(experiment.task.model, FrozenHeadClassifier if small else Vgg16PooledClassifier)
        assert experiment.strategy.weighting == "uniform" and experiment.evaluation.holdout == 0


def test_the_default_is_the_papers():
    e = plan_of("figure5", Scale.paper).experiments["fedtour"]
    place = e.topology
    assert (place.traces, place.radius, place.slot, place.window) == ("town:1900", 50.0, 30.0, "06:00-18:00")
    assert e.exchange == FedTour(limit=40, lab=231), "Algorithm 1 as it is written"
    small = plan_of("figure5", Scale.small).experiments["fedtour"]
    assert small.exchange == FedTour(limit=40)
    assert (small.topology.public, small.topology.probe, small.topology.judge, small.topology.test) == (
        10_000, 500, 1000, 2000,
    )  # fmt: skip
    training = small.training
    assert (training.optimizer, training.lr, training.epochs, training.batch_size) == ("adam", 1e-3, 5, 32)
    assert (small.partition.distribution, small.partition.exponent) == ("zipf", 1.0)


def test_the_papers_values():
    cells = plan_of("figure5", Scale.small).cells
    known = {name: (c.paper, c.also["best_percent"]) for name, c in cells.items() if c.paper is not None}
    assert known == {"never": (27.22, 61.14), "gossip": (45.97, 59.04), "fedtour": (57.74, 62.45)}
    assert cells["fedtour-floor"].paper is None
    assert plan_of("figure4", Scale.small).cells["never"].paper == 27.22


@pytest.mark.parametrize("scale", list(Scale))
def test_figure_6_has_two_policies_at_six_limits(scale):
    plan = plan_of("figure6", scale)
    found = [(type(e.exchange).__name__, e.exchange.limit) for e in plan.experiments.values()]
    assert found == [(policy, limit) for limit in LIMITS for policy in ("Gossip", "FedTour")]
    assert {name for name, cell in plan.cells.items() if cell.paper is not None} == {"gossip", "fedtour"}


def test_policies_has_all_of_them_and_every_predictor():
    from wayfare.encounters.predictors import NAMES as PREDICTORS

    experiments = plan_of("policies", Scale.small).experiments
    assert {type(e.exchange).__name__ for e in experiments.values()} == {
        "Never", "Always", "Gossip", "Opportunistic", "FedTour", "Guarded", "Upward", "Budgeted", "Greedy",
    }  # fmt: skip
    assert {e.exchange.predict_with for e in experiments.values() if hasattr(e.exchange, "lab")} == set(PREDICTORS)
    assert {e.exchange.lab for e in experiments.values() if isinstance(e.exchange, FedTour)} == {33}
    changed = {name: e for name, e in experiments.items() if name.startswith("fedtour")}
    assert [e.exchange.floor for e in changed.values()] == [False, True, False, False, False]


def test_cells_of_one_name_are_one_experiment():
    """So that figures that have a cell in common share its runs."""
    for scale in Scale:
        seen = {}
        for name in NAMES:
            if name == "areas":  # which has a folder of its own
                continue
            for cell, experiment in plan_of(name, scale).experiments.items():
                first = seen.setdefault(cell, (name, experiment.to_toml()))
                assert first[1] == experiment.to_toml(), f"{scale} {cell}: {first[0]} and {name}"


def test_the_study_needs_no_weights_and_the_tour_no_download():
    study = Experiment.read(FOLDER / "study.toml")
    assert study.task.model == FrozenHeadClassifier()
    tour = Experiment.read(ROOT / "recipes" / "tour.toml")
    assert tour.task.data == Digits() and tour.topology.traces == "town:60" and tour.partition.clients == 60
    assert {"tour", "fedtour/figure5", "fedtour/study"} <= set(recipes())


# ---- columns that the paper has nothing for


def test_a_column_without_a_value_of_the_paper():
    cell = Cell(paper=50.0, also={"exchanges": math.nan, "best_percent": 60.0})
    row = Row("a", cell, Spread.of([51.0]), {"exchanges": 8.25, "best_percent": 61.5})
    found = Reproduction(Paper("T", "test/accuracy", "%"), (row,), "small")
    assert found.as_dict()["cells"]["a"]["also"] == {
        "exchanges": {"paper": None, "measured": 8.25}, "best_percent": {"paper": 60.0, "measured": 61.5},
    }  # fmt: skip
    assert found._cells(row, 1.0)[3:5] == ["– / 8.25", "60 / 61.5"]


def test_the_best_device_and_exchanges_are_read_from_the_runs():
    class Group:
        def metric(self, name):
            known = {"test/accuracy_max": [0.5, 0.7], "tour/sent": [3.0], "tour/taken": [4.0]}
            return Spread.of(known[name]) if name in known else None

    assert MEASURES["best_percent"](Group()) == pytest.approx(60.0)
    assert MEASURES["exchanges"](Group()) == 7.0

    class Nothing:
        def metric(self, name):
            return None

    assert MEASURES["exchanges"](Nothing()) is None


# ---- a figure, small enough to be run here


def test_a_figure_is_reproduced(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    pairs = [(0, 1), (2, 3), (0, 2), (1, 3)]
    rows = [f"{30 * slot} {a} {b}" for slot in range(8) for a, b in (pairs[slot % 4], pairs[(slot + 1) % 4])]
    Path("contacts.txt").write_text("\n".join(rows) + "\n")
    changes = {
        "data.name": "digits", "model.name": "cnn", "model.width": 2, "model.hidden": 4,
        "partition.clients": 4, "topology.traces": "contacts.txt", "topology.window": "", "topology.public": 50,
        "topology.probe": 40, "topology.judge": 40, "topology.test": 40, "training.epochs": 1,
    }  # fmt: skip
    more = [part for key, value in changes.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    command = [
        "reproduce",
        str(FOLDER / "figure5.toml"),
        "--cells",
        "never,gossip",
        "--out",
        "out",
        "--engine",
        "local",
    ]
    status = main([*command, "--track", "none", "--json", *more])
    found = json.loads(capsys.readouterr().out)
    assert status == 0 and found["scale"] == "small"
    assert (
        found["cells"]["gossip"]["paper"] == 45.97 and found["cells"]["never"]["also"]["best_percent"]["measured"] > 0
    )
    assert Path(found["page"]).is_file()


# ---- the documentation


def described(heading):
    """Setting -> default, of a table of docs/encounters.md."""
    table = DOCS.split(f"| `[{heading}]` | default |")[1].split("\n\n")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (?:`(.*?)`)?", table, re.MULTILINE))


@pytest.mark.parametrize(("heading", "made"), [("topology", Encounters()), ("exchange", FedTour())])
def test_every_setting_is_described_with_its_default(heading, made):
    defaults = {f.name: getattr(made, f.name) for f in fields(made)}
    found = described(heading)
    assert list(found) == list(defaults)
    for name, default in defaults.items():
        assert found[name] == repr(default).replace("'", '"') or (name == "traces" and found[name] == ""), name


def test_the_defaults_of_guarded_are_those_described():
    made = Guarded()
    assert f"`back_off` slots ({made.back_off})" in DOCS and f"`lie` ({made.lie})" in DOCS


def test_the_documented_policy_is_the_examples_and_works():
    import numpy as np

    from wayfare.core.exchange import DeviceFacts, Meeting

    block = DOCS.split("```python\n")[1].split("```")[0]
    example = (ROOT / "examples" / "objects_tour.py").read_text(encoding="utf-8")
    assert block[block.index("@dataclass") :].strip() in example
    space = {"__name__": "documented"}
    exec(compile(block, "docs/encounters.md", "exec"), space)  # it is ours
    policy = space["Upward"]()
    ones = np.ones(2, np.int64)
    facts = DeviceFacts(
        40 * ones,
        np.array([0.5, 0.6]),
        ones,
        labels=np.ones((2, 3), np.int64),
        targets=np.ones((2, 3), bool),
        stationary=ones < 0,
    )
    columns = policy.begin(facts) | {"score": facts.score}
    yes = np.ones(2, bool)
    meeting = Meeting(
        0,
        np.array([0, 1]),
        peer=np.array([1, 0]),
        announced=yes,
        score=facts.score[::-1],
        chance=np.zeros(2),
        begins=yes,
        same_model=~yes,
        facts=facts,
        merged_accuracy=lambda a, b: a,
    )
    assert policy.decide(columns, meeting, None).asks.tolist() == [True, False]  # 0.6 > 0.5 + 0.05; 0.5 is not > 0.65
    assert replace(policy, margin=0.2).decide(columns, meeting, None).asks.tolist() == [False, False]


@pytest.mark.parametrize("name", ["encounters", "fedtour"])
def test_documented_commands_name_recipes_and_settings_that_exist(name):
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    known, commands = recipes(), re.findall(r"^wayfare (run|reproduce|study) (\S+)(.*)$", text, re.MULTILINE)
    assert commands
    for kind, recipe, rest in commands:
        assert recipe in known, recipe
        table = {
            f"{part}.{f.name}" for part, of in (("topology", Encounters), ("exchange", FedTour)) for f in fields(of)
        }
        for key in re.findall(r"--set ([\w.]+)=", rest):
            assert key in table | {"exchange.name"}, key
        if cells := re.search(r"--cells (\S+)", rest):
            assert set(cells[1].split(",")) <= set(read_plan(known[recipe]).cells)
        assert kind != "reproduce" or read_plan(known[recipe]).cells
