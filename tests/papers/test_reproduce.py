"""Recipes of FedVPR's tables and figures, and `wayfare reproduce` with the paper's values."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.progress import Progress

import wayfare.papers.reproduce as reproduce_module
import wayfare.runner
from photo_tables import street
from wayfare.cli import main
from wayfare.cli.console import TimeLeft, TimeLeftColumn, Watch
from wayfare.core.errors import ConfigError
from wayfare.experiment import Experiment
from wayfare.nets.pooling import GemPooling
from wayfare.objects.data.digits import Digits
from wayfare.pages.compare import Spread
from wayfare.papers.paper import Cell, Paper, Scale
from wayfare.papers.plan import read_plan
from wayfare.papers.reproduction import Reproduction, Row, reproduction
from wayfare.places.backbones import ResNet18Layer3
from wayfare.places.data.msls_photos import MslsPhotos
from wayfare.places.data.town import TownPhotos
from wayfare.places.losses import TripletLoss
from wayfare.places.mining import PartialMiner
from wayfare.places.model import PlaceModel
from wayfare.places.task import Places

RECIPES = Path(__file__).parents[2] / "recipes" / "fedvpr"
NAMES = sorted(file.stem for file in RECIPES.glob("*.toml"))
TOY = """
about = "Digits with three learning rates."
rounds = 20
seed = 3

[model]
width = 4
hidden = 8

[task]
name = "objects"

[partition]
name = "dirichlet"
clients = 4
alpha = 0.5

[topology]
per_round = 2

[training]
batch_size = 64

[evaluation]
holdout = 0.0

[paper]
title = "A paper, Tab. 1"
metric = "test/accuracy"
unit = "%"
runs = "toy"

[small]
about = "two rounds"
rounds = 2

[cells.slow]
label = "Slow"
paper = 50.0
paper_sd = 1.0
also.clients = 100
training.lr = 0.00001

[cells.fast]
paper = 80.0
paper_sd = 1.0
training.lr = 0.05
"""


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def plan_of(name, scale):
    """At the paper's scale the data set is any folder: nothing is read from it."""
    return read_plan(RECIPES / f"{name}.toml", scale, Path.cwd() if scale is Scale.paper else None)


def toy(*more):
    Path("toy.toml").write_text(TOY + "\n".join(more))
    return Path("toy.toml")


def call(capsys, *arguments):
    status = main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def reproduce(capsys, *more):
    return call(capsys, "reproduce", "toy.toml", "--engine", "local", "--track", "none", *more)


# ---- running


def test_cells_read_their_data_once_and_the_plan_keeps_none_of_it(capsys, monkeypatch):
    """What a run has read goes with it: a table of many cells must not hold the data of each."""
    reads, plans = [], []
    load = Digits.load
    monkeypatch.setattr(Digits, "load", lambda self, progress: (reads.append(1), load(self, progress))[1])
    real = reproduce_module.run_all
    monkeypatch.setattr(
        reproduce_module, "run_all", lambda plan, *more, **how: (plans.append(plan), real(plan, *more, **how))[1]
    )
    toy()
    assert reproduce(capsys, "--seeds", "2")[0] == 0
    assert sum(len(plan) for plan in plans) == 4 and len(reads) == 1
    assert all("loaded" not in vars(e.task) for plan in plans for e in plan.values())


# ---- the recipes


def test_there_is_a_recipe_for_every_table_and_figure():
    wanted = [f"table{i}" for i in range(1, 11)] + [f"figure{i}" for i in range(3, 6)]
    assert set(wanted) <= set(NAMES) and set(NAMES) - set(wanted) == {"base", "centralised"}
    for name in wanted:
        plan = plan_of(name, Scale.paper)
        assert plan.about and plan.paper.title.startswith("FedVPR, ")
        assert bool(plan.cells) is (plan.whole is None), "a figure of the split has no cells, all others have"


@pytest.mark.parametrize("scale", list(Scale))
@pytest.mark.parametrize("name", NAMES)
def test_every_cell_is_an_experiment_at_both_scales(name, scale):
    plan = plan_of(name, scale)
    for experiment in [*plan.experiments.values(), *([plan.whole] if plan.whole else [])]:
        assert Experiment.from_toml(experiment.to_toml()).to_toml() == experiment.to_toml()
        assert (experiment.task.data.path == "") is (scale is Scale.small)
        assert experiment.task.data.height >= 32 and experiment.evaluation.holdout == 0


def test_cells_of_one_name_are_one_experiment():
    """So that tables that have a cell in common share its runs."""
    for scale in Scale:
        seen = {}
        for name in NAMES:
            for cell, experiment in plan_of(name, scale).experiments.items():
                first = seen.setdefault(cell, (name, experiment.to_toml()))
                assert first[1] == experiment.to_toml(), f"{scale} {cell}: {first[0]} and {name}"


def test_the_default_is_the_papers():
    e = plan_of("table3", Scale.paper).experiments["fedavg"]
    task, training = e.task, e.training
    assert task.model == PlaceModel(ResNet18Layer3(), "resnet18.safetensors", pooling=GemPooling(), l2="before")
    assert (task.data.height, task.data.width) == (288, 384)
    assert (task.mining, task.loss) == (
        PartialMiner(25.0, 25.0, 5, 1000, 1000, steps="images"),
        TripletLoss(0.1, "squared"),
    )
    assert (training.optimizer, training.lr, training.batch_size) == ("adam", 1e-5, 2)
    assert (training.epochs, training.at_most, e.rounds, e.topology.per_round) == (1, 2500, 300, 5)
    assert (e.partition.radius, e.partition.least, e.evaluation.validation_clients) == (2000.0, 2, 12)


def test_table_3_has_the_papers_values_hyper_parameters_and_budgets():
    plan = plan_of("table3", Scale.paper)
    assert {name: (cell.paper, cell.paper_sd) for name, cell in plan.cells.items()} == {
        "fedavg": (61.0, 0.6), "fedavgm": (61.2, 1.4), "fedadam": (61.1, 1.2), "fedadagrad": (61.6, 0.3),
        "hfl-continent": (46.9, 1.3), "fedavg-75x20": (55.6, 0.8), "hfl-city": (33.3, 0.1),
        "fedavg-15x105": (44.2, 0.4),
    }  # fmt: skip
    cells = plan.experiments
    assert (cells["fedavgm"].strategy.server_lr, cells["fedavgm"].strategy.beta) == (0.1, 0.9)
    assert (cells["fedadam"].strategy.server_lr, cells["fedadam"].strategy.beta1) == (0.1, 0.9)
    assert (cells["fedadagrad"].strategy.server_lr, cells["fedadagrad"].strategy.beta1) == (0.01, 0.9)
    continents, cities = cells["hfl-continent"], cells["hfl-city"]
    assert continents.partition.groups == "continent" and cities.partition.groups == "city"
    # Tab. 9: 4 continents and 21 cities by 5 clients
    assert (continents.rounds, 4 * continents.topology.per_group) == (75, 20)
    assert (cities.rounds, 21 * cities.topology.per_group) == (15, 105)
    small = plan_of("table3", Scale.small).experiments
    base, wide = small["fedavg"], small["fedavg-75x20"]
    assert base.rounds * base.topology.per_round == wide.rounds * wide.topology.per_round, "the same budget"


def test_table_4_has_13_cells_and_a_constant_budget():
    plan = plan_of("table4", Scale.paper)
    assert len(plan.cells) == 13
    values = {name: (cell.paper, cell.paper_sd) for name, cell in plan.cells.items()}
    assert values["fedavg-125"] == (66.6, 0.8) and values["fedavg-4000"] == (57.3, 2.5)
    assert values["fedvc-125"] == (62.3, 1.1) and values["fedvc-500"] == (67.7, 0.4)
    for scale, total in ((Scale.paper, 400_000), (Scale.small, 1_280)):
        for name, e in plan_of("table4", scale).experiments.items():
            if name != "fedavg":
                assert e.rounds * e.training.iterations == total, f"{scale} {name}"
                assert e.strategy.weighting == ("uniform" if name.startswith("fedvc") else "examples")


def test_table_1_keeps_the_papers_proportions_at_small_scale():
    cells = plan_of("table1", Scale.small).experiments
    radius = cells["fedavg"].partition.radius
    assert cells["proximity-1000"].partition.radius == radius / 2
    assert cells["proximity-4000"].partition.radius == radius * 2
    assert cells["clustering"].partition.radius == cells["random"].partition.radius == radius
    assert plan_of("table1", Scale.paper).cells["proximity-1000"].also["images"] == (897, 808)


def test_table_10_meets_as_often_at_both_scales():
    for scale in Scale:
        cells = plan_of("table10", scale).experiments
        assert [e.rounds / e.topology.interval for e in cells.values()] == [60, 30, 20, 15, 12]


# ---- how a recipe is read


def test_settings_lie_over_each_other_in_the_order_that_is_said():
    path = toy("small.rounds = 1", "small.training.lr = 0.2")
    paper, small = read_plan(path, Scale.paper), read_plan(path)
    assert (paper.scale, small.scale) == ("paper", "small")
    assert [e.rounds for e in paper.experiments.values()] == [20, 20]
    assert [e.rounds for e in small.experiments.values()] == [2, 1]
    assert [e.training.lr for e in small.experiments.values()] == [0.00001, 0.2]
    changed = read_plan(path, changes={"training.lr": 0.5, "rounds": 7})
    assert [(e.training.lr, e.rounds) for e in changed.experiments.values()] == [(0.5, 7)] * 2


def test_a_change_need_only_fit_the_cells_that_are_run(capsys):
    toy("[cells.prox]", 'strategy.name = "fedprox"')
    status, out, _ = reproduce(capsys, "--cells", "prox", "--set", "strategy.mu=0.5", "--json")
    assert status == 0 and json.loads(out)["page"]
    assert "mu = 0.5" in Path("runs/toy/small/prox/seed-3/experiment.toml").read_text()
    status, _, err = reproduce(capsys, "--set", "strategy.mu=0.5")
    assert status == 2 and "unknown setting 'mu'" in err


def test_what_stands_in_for_data_is_not_asked_of_a_users_own():
    town, own = plan_of("table1", Scale.small), read_plan(RECIPES / "table1.toml", Scale.small, Path.cwd())
    size = {"height": 96, "width": 128}
    cities = ("sundarpal", "wirrabeck")
    assert town.experiments["fedavg"].task.data == TownPhotos(size="city", test_cities=cities, **size)
    assert own.experiments["fedavg"].task.data == MslsPhotos(str(Path.cwd()), **size)
    assert own.experiments["fedavg"].training == town.experiments["fedavg"].training


def test_data_replaces_the_path_of_the_recipes_own_kind_of_data():
    with pytest.raises(
        ConfigError, match=r"the data 'digits' is not read from a path; data\.name can be cifar10, folder"
    ):
        read_plan(toy(), data=Path.cwd())
    plan = read_plan(toy(), Scale.small, Path.cwd(), {"data.name": "folder"})
    assert {e.task.data.path for e in plan.experiments.values()} == {str(Path.cwd())}


def test_a_base_gives_its_small_settings_too():
    toy()
    text = 'base = "toy.toml"\ntraining.momentum = 0.5\n[small]\ntraining.epochs = 2\n[cells.only]\ntraining.lr = 0.3\n'
    Path("other.toml").write_text(text)
    plan = read_plan(Path("other.toml"))
    (only,) = plan.experiments.values()
    assert (only.rounds, only.training.epochs, only.training.momentum, only.training.lr) == (2, 2, 0.5, 0.3)
    assert plan.small == "two rounds" and plan.paper.title == "A paper, Tab. 1"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("also.colour = 3", "unknown column 'colour'"),
        ('paper = "many"', "paper"),
        ("training.speed = 3", "unknown setting 'speed'"),
    ],
)
def test_a_cell_with_a_mistake_is_refused(line, says):
    with pytest.raises(ConfigError, match=says):
        read_plan(toy("[cells.wrong]", line))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fedvpr/table4", "--scale", "paper"], "--data"),
        (["fedvpr/table4", "--data", "nowhere"], "nowhere"),
        (["fedvpr/table4", "--data", "."], "resnet18.safetensors"),
        (["fedvpr/table7", "--cells", "vgg16"], "vgg16.safetensors"),
        (["fedvpr/base"], "wayfare run"),
        (["quickstart", "--scale", "small"], "[small]"),
    ],
)
def test_what_is_missing_is_said_before_anything_runs(capsys, arguments, says):
    status, _, err = call(capsys, "reproduce", *arguments, "--engine", "local")
    assert status == 2 and says in " ".join(err.split()) and not Path("runs").exists()


# ---- the comparison with the paper


def rows(*values):
    """(paper, sd, measured values) of cells a, b, c, ..."""
    return tuple(
        Row(name, Cell(paper=paper, paper_sd=sd), Spread.of(found) if found else None, {})
        for name, (paper, sd, found) in zip("abcdef", values)
    )


def test_orderings_counted_by_hand():
    """Tab. 5: of six pairs five are clear; 64.7 and 65.7 are 1.0 apart, with a spread of sqrt(0.9^2 + 0.6^2) = 1.08."""
    measured = rows((61.0, 0.6, [40.0]), (53.5, 2.5, [41.0]), (64.7, 0.9, [39.0]), (65.7, 0.6, [50.0]))
    found = Reproduction(Paper("T", "R", "%"), measured, "small", "a town")
    pairs = [(p.above.name, p.below.name, p.same) for p in found.orderings]
    # a over b, c over a, d over a, c over b, d over b
    assert pairs == [
        ("a", "b", False), ("c", "a", False), ("d", "a", True), ("c", "b", False), ("d", "b", True),
    ]  # fmt: skip
    result = found.as_dict()["orderings"]
    assert result == {"clear_in_the_paper": 5, "same_here": 2, "not_so": [["a", "b"], ["c", "a"], ["c", "b"]]}
    notes = " ".join(found.notes)
    assert "Of 5 pairs" in notes and "2 come out in the same order." in notes and "a town" in notes
    assert "a (61.0 ± 0.6) over b (53.5 ± 2.5): here 40.0 and 41.0." in notes
    assert found.rows[0].difference == -21.0


def test_what_is_as_far_apart_as_its_spread_is_not_clear():
    clear = [(61.0, 0.6, [1.0]), (61.7, 0.0, [2.0])]
    assert len(Reproduction(Paper(), rows(*clear), "paper").orderings) == 1
    assert not Reproduction(Paper(), rows((61.0, 0.6, [1.0]), (61.6, 0.0, [2.0])), "paper").orderings


def test_an_ordering_within_the_seeds_spread_is_marked():
    # means 10 and 11, sd 1.414 each: the spread of the difference is 2
    found = Reproduction(Paper("T", "R", "%"), rows((60.0, 1.0, [9.0, 11.0]), (50.0, 1.0, [10.0, 12.0])), "paper")
    (pair,) = found.orderings
    assert not pair.same and pair.gap == -1 and pair.noise == pytest.approx(2.0) and not pair.clear
    assert any("within the seeds' spread" in note for note in found.notes)


def test_a_cell_that_was_not_measured_is_named_and_not_counted():
    found = Reproduction(Paper("T", "R"), rows((60.0, 1.0, [9.0]), (50.0, 1.0, [math.nan]), (40.0, 1.0, None)), "paper")
    assert not found.orderings
    assert sum("Without a finite R" in note for note in found.notes) == 2


def test_time_left_by_hand():
    left = TimeLeft()
    left.begin(rounds=10, waiting=2)
    assert left.seconds is None and left.text == ""
    left.hear({"round": 0, "seconds": 100.0})
    left.hear({"round": 1, "seconds": 2.0})
    left.hear({"round": 2, "seconds": 4.0})
    assert left.seconds == 3.0 * 8 + 2 * 30.0  # mean of 3 s: 8 rounds of this run, and two runs of 10
    left.end(50.0)
    left.begin(rounds=10, waiting=1)
    left.hear({"round": 1, "seconds": 1.0})
    assert left.seconds == 9.0 + 50.0 and "59.0 s left" in left.text


def test_a_bar_has_an_estimate_after_one_long_round():
    with Progress(TimeLeftColumn()) as progress:
        watch = Watch(progress, 5, "slow")
        line = {"bytes_up": 0, "bytes_down": 0, "metrics": {}, "void": False}
        watch("round", {"round": 0, "seconds": 9.0, **line})
        assert not TimeLeftColumn().render(progress.tasks[0]).plain  # round 0 is only an evaluation
        watch("round", {"round": 1, "seconds": 600.0, **line})
        assert TimeLeftColumn().render(progress.tasks[0]).plain in ("40 min 00 s left", "39 min 59 s left")


# ---- the command


def test_reproduce_prints_the_paper_beside_what_was_measured(capsys):
    toy()
    status, out, err = reproduce(capsys, "--seeds", 2)
    assert status == 0, err
    assert "80.0 ± 1.0" in out and "Slow" in out and "difference" not in out
    assert "Small scale, not the paper's: two rounds." in " ".join(out.split())
    assert "left in all" in err
    page = Path("runs/toy/small/toy.html").read_text()
    assert "A paper, Tab. 1" in page and "80.0 ± 1.0" in page and 'id="paper"' in page
    status, out, _ = reproduce(capsys, "--seeds", 2, "--json")
    result = json.loads(out)
    assert [Path(run).as_posix() for run in result["groups"][0]["runs"]] == [
        f"runs/toy/small/slow/seed-{seed}" for seed in (3, 4)
    ]
    slow = result["cells"]["slow"]
    assert slow["paper"] == 50.0 and slow["measured"]["n"] == 2 and slow["difference"] is None
    shares = [100 * value for value in result["groups"][0]["metrics"]["test/accuracy"]["values"]]
    assert slow["measured"]["values"] == pytest.approx(shares)
    assert slow["also"]["clients"] == {"paper": 100, "measured": 4}
    assert result["orderings"]["clear_in_the_paper"] == 1 and result["scale"] == "small"


def test_at_the_papers_scale_the_difference_is_printed(capsys):
    toy()
    status, out, _ = reproduce(capsys, "--scale", "paper", "--set", "rounds=1", "--cells", "fast")
    assert status == 0 and "difference" in out and "Small scale" not in out
    assert "Changed for these runs: rounds = 1." in out
    assert Path("runs/toy/paper/fast/seed-3/summary.json").exists()


def test_an_interrupted_reproduction_goes_on_where_it_was(capsys, monkeypatch):
    toy()
    assert reproduce(capsys, "--out", "whole")[0] == 0
    begin = wayfare.runner.run

    def interrupted(experiment, out, *arguments, listen, **more):
        def hears(event, data):
            listen(event, data)
            if event == "round" and data["round"] == 1 and experiment.name == "fast":
                raise KeyboardInterrupt

        return begin(experiment, out, *arguments, listen=hears, **more)

    monkeypatch.setattr(wayfare.runner, "run", interrupted)
    status, _, err = reproduce(capsys, "--out", "parts")
    assert status == 130 and "the same command again" in err
    assert len(Path("parts/fast/seed-3/rounds.jsonl").read_text().splitlines()) == 2
    done = Path("parts/slow/seed-3/rounds.jsonl").stat().st_mtime_ns
    status, out, err = reproduce(capsys, "--out", "parts", "--json")
    assert status == 0 and set(json.loads(out)["cells"]) == {"slow", "fast"}
    assert Path("parts/slow/seed-3/rounds.jsonl").stat().st_mtime_ns == done, "a finished cell is not run again"
    models = [json.loads(Path(f"{f}/fast/seed-3/summary.json").read_text())["model_sha256"] for f in ("whole", "parts")]
    assert models[0] == models[1]


def test_cells_without_their_weights_are_left_out_at_small_scale_and_said_so(capsys):
    toy("[cells.pretrained]", 'model.name = "vgg16"', 'model.weights = "vgg16.safetensors"', "paper = 70.0")
    status, out, err = reproduce(capsys, "--cells", "fast,pretrained", "--json")
    result = json.loads(out)
    assert status == 0 and list(result["cells"]) == ["fast"] and "left out" in err
    assert "vgg16.safetensors" in result["left_out"]["pretrained"]


@pytest.mark.parametrize(("figure", "counted"), [("figure4", {"a": 2, "b": 1}), ("figure5", {"a": 9, "b": 4})])
def test_a_figure_of_the_split_counts_and_trains_nothing(capsys, monkeypatch, figure, counted):
    """Two neighbourhoods in city a, of 5 and 4 photographs, and one of 4 in city b."""
    drives = [("q1", "a", [0, 10]), ("q2", "a", [20]), ("d1", "a", [5]), ("d2", "a", [15])]
    drives += [("q3", "a", [1000]), ("q4", "a", [1010]), ("d3", "a", [1005]), ("d4", "a", [1020])]
    drives += [("q5", "b", [0]), ("q6", "b", [10]), ("d5", "b", [5]), ("d6", "b", [20])]
    monkeypatch.setattr(Places, "photos", street(*drives))
    what = "clients" if figure == "figure4" else "images"
    status, out, err = call(capsys, "reproduce", f"fedvpr/{figure}", "--engine", "local", "--json")
    assert status == 0, err
    result = json.loads(out)
    assert {row["name"]: row[what] for row in result["cities"]} == counted
    assert [row[what] for row in result["continents"]] == [sum(counted.values())]
    assert Path(result["page"]).exists() and not list(Path("runs").rglob("experiment.toml"))
    status, out, _ = call(capsys, "reproduce", f"fedvpr/{figure}", "--engine", "local")
    first, second = counted.values()
    assert status == 0 and f"{first / (first + second):.1%}" in out and "Small scale" in out


def test_metrics_as_columns_and_the_baseline_beside_them():
    seeds = {"test/R@20": (0.25, 0.35), "test/R@50": (0.5, 0.7), "test/frequency R@20": (0.4, 0.4),
             "test/MAP i2t": (0.1, 0.1), "test/random MAP": (0.07, 0.09)}  # fmt: skip
    group = SimpleNamespace(
        records=[SimpleNamespace(summary={})], metric=lambda name: Spread.of(seeds[name]) if name in seeds else None
    )
    cells = {"a": Cell(paper=30.0, also={"test/R@50": 55.0, "test/R@100": math.nan})}
    runs = SimpleNamespace(groups=[group])
    found = reproduction(Paper("T", "test/R@20", "%", floor="frequency"), cells, runs, "")
    assert found.rows[0].also["test/R@50"] == pytest.approx((60.0, 14.1421356))  # 50 and 70
    assert found.rows[0].also["test/R@100"] is None
    assert found.floor == pytest.approx({"test/R@20": 40.0})  # of R@50 there is none
    assert "The frequency baseline, with nothing trained: test/R@20 40.0." in found.notes
    one_for_all = reproduction(Paper("T", "test/MAP i2t", floor="random"), {"a": Cell()}, runs, "")
    assert one_for_all.floor == pytest.approx({"test/MAP": 0.08})
