"""The specification of a run: TOML and back, what it refuses, and overrides."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
import tomllib
import typing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wayfare.clients import Clients
from wayfare.clock.indoors import Indoors
from wayfare.clock.measured import Measured
from wayfare.components import allow_code, find, name_of, names
from wayfare.core.clock import Clock
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Policy, Training
from wayfare.encounters.policies.fedtour import FedTour
from wayfare.encounters.topology import Encounters
from wayfare.experiment import Evaluation, Experiment
from wayfare.objects.data.cifar import Cifar10
from wayfare.objects.data.sights import TownSights
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.papers.plan import read_plan
from wayfare.partition.joined import Joined
from wayfare.partition.split import Split
from wayfare.places.partition.proximity import Proximity
from wayfare.places.task import Places
from wayfare.recipe import COMPONENTS, flatten, override
from wayfare.resuming import early_fingerprint, fingerprint
from wayfare.scenes.task import Scenes
from wayfare.strategies.centralised import Centralised
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedproto import FedProto
from wayfare.strategies.local import Local
from wayfare.testing import task_for
from wayfare.topologies.hierarchy import Hierarchy
from wayfare.topologies.server import Server

RECIPES = sorted((Path(__file__).parents[1] / "recipes").rglob("*.toml"))


def made(cls: type, other: bool) -> Any:
    """A component with what it must be given; or with another value in every setting that has an obvious one."""
    hints, values = typing.get_type_hints(cls), {}
    for field in dataclasses.fields(cls):
        hint, needed = hints[field.name], field.default is dataclasses.MISSING
        if not field.init:
            continue
        default = 3 if needed else field.default
        if typing.get_origin(hint) is typing.Literal and other:
            values[field.name] = typing.get_args(hint)[-1]
        elif hint is bool and other:
            values[field.name] = not default
        elif hint is int and (other or needed):
            values[field.name] = default + 1
        elif hint is float and (other or needed):
            values[field.name] = default / 2 + 0.1
        elif hint is str and (other or needed):
            values[field.name] = 'a "path"/ü\\n'
    if cls is Joined:
        values |= {"names": ("ann", "bob"), "sizes": (3, 4)}
    if other and issubclass(cls, Clock):
        values |= {"over": 1.5, "weak": 0.0}  # FedAvg has nothing that the weak do less of
    if other and cls is Indoors:
        values |= {"online": 1.0, "period": 86400.0}  # its trace says both
    if issubclass(cls, Indoors | Measured):
        values |= {"path": 'a "path"/ü\\n'}
    if other and issubclass(cls, FedTour):
        values |= {"raise_by": 1.3, "predict_with": "regressor"}  # a factor that raises; what reads the study's file
    return cls(**values)


EVERY = [(kind, name, other) for kind in COMPONENTS for name in names(kind) for other in (False, True)]


# ---- TOML and back


@pytest.mark.parametrize(("kind", "name", "other"), EVERY)
def test_every_component_goes_through_toml(kind, name, other) -> None:
    component = made(find(kind, name), other)
    source = component.source if kind == "partition" else "labels"
    tasks = {"labels": None, "categories": Scenes(), "photos": Places(), "features": Places(), "files": Places()}
    tasks["ids"] = Scenes()
    task = {"task": tasks[source]} if source != "labels" else {}
    task |= {"task": task_for(component)} if kind == "strategy" else {}
    meets = {"topology": Encounters()} if kind == "exchange" else {}
    experiment = Experiment(**{kind: component}, **task, **meets, seed=3)
    back = Experiment.from_toml(experiment.to_toml())
    assert back == experiment
    assert getattr(back, kind) == component and type(getattr(back, kind)) is type(component)
    assert back.to_toml() == experiment.to_toml()


def test_every_strategy_with_every_topology_goes_through_toml_or_is_refused() -> None:
    fitting = 0
    for strategy in names("strategy"):
        for topology in names("topology"):
            parts = {"strategy": find("strategy", strategy)(), "topology": find("topology", topology)()}
            parts["task"] = task_for(parts["strategy"])
            if topology in parts["strategy"].topologies:
                assert Experiment.from_toml(Experiment(**parts).to_toml()) == Experiment(**parts)
                fitting += 1
            else:
                with pytest.raises(ConfigError, match=f"does not run on the topology {topology!r}"):
                    Experiment(**parts)
    assert fitting > len(names("strategy"))


def test_a_partition_of_photographs_needs_a_task_that_has_some() -> None:
    with pytest.raises(ConfigError, match="the partition 'proximity' divides by photos, which Objects does not have"):
        Experiment(partition=Proximity())
    assert Experiment(task=Places(), partition=Proximity()).partition == Proximity()


def test_every_setting_is_written_out() -> None:
    text = Experiment().to_toml()
    for part in (Training(), Evaluation(), Policy(), Objects(), FedAvg(), Server()):
        for field in dataclasses.fields(part):
            assert f"\n{field.name} = " in text or f"\n[{field.name}]\n" in text
    assert text.startswith('name = ""\nseed = 0\nrounds = 10\ndevice = "auto"\n')


def test_all_plain_settings_go_through_toml() -> None:
    experiment = Experiment(
        training=Training(
            2,
            7,
            at_most=9,
            batch_size=5,
            optimizer="adamw",
            lr=1e-5,
            decay=0.97,
            momentum=0.9,
            weight_decay=1e-4,
            clip=2.5,
        ),
        evaluation=Evaluation(
            3, False, clients=4, holdout=0.25, validation_clients=2, monitor="validation/accuracy", patience=5
        ),
        policy=Policy(0.75, 12.5, on_error="raise", max_void=2, max_change=1e16, max_norm=3e300, max_examples=77),
        rounds=123,
        seed=2**62,
        name="a name",
        device="cpu",
    )
    assert Experiment.from_toml(experiment.to_toml()) == experiment


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        'qu"ote',
        "back\\slash",
        "new\nline",
        "tab\t",
        "ünïcode",
        "€",
        "\x01\x1f",
        "\x7f",
        "emoji 😀",
        "'''",
        '"""',
    ],
    ids=ascii,
)
def test_any_text_goes_through_toml(text) -> None:
    experiment = Experiment(name=text, task=Objects(TownSights(text)))
    assert Experiment.from_toml(experiment.to_toml()) == experiment


@pytest.mark.parametrize("number", [0.1, 1e-300, 1e300, 5e-324, 1 / 3, 1e16, 123456789.123456789, math.inf])
def test_any_number_goes_through_toml(number) -> None:
    experiment = Experiment(policy=Policy(max_change=number))
    assert Experiment.from_toml(experiment.to_toml()).policy.max_change == number


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_and_each_of_its_cells_is_an_experiment(path) -> None:
    for experiment in (Experiment.read(path), *read_plan(path).experiments.values()):
        assert experiment.name and Experiment.from_toml(experiment.to_toml()) == experiment


def test_an_empty_recipe_is_the_default() -> None:
    assert Experiment.from_toml("") == Experiment()


def test_tables_without_a_name_are_the_default_component() -> None:
    assert Experiment.from_toml('[strategy]\nweighting = "uniform"').strategy == FedAvg("uniform")


def test_the_name_is_the_files_unless_given(tmp_path) -> None:
    (tmp_path / "mine.toml").write_text("rounds = 3")
    assert (Experiment.read(tmp_path / "mine.toml").name, Experiment.read(tmp_path / "mine.toml").rounds) == ("mine", 3)
    (tmp_path / "mine.toml").write_text('name = "other"')
    assert Experiment.read(tmp_path / "mine.toml").name == "other"


# ---- what is refused


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ruonds = 3", r"recipe: unknown setting 'ruonds'; did you mean 'rounds'\?.*training"),
        ("[trainnig]\nlr = 1.0", "unknown setting 'trainnig'; did you mean 'training'"),
        ("[training]\nlearning_rate = 1.0", "training: unknown setting 'learning_rate'.* Known: at_most, batch_size"),
        ("[training]\nepoch = 1", r"unknown setting 'epoch'; did you mean 'epochs'\?"),
        (
            '[strategy]\nname = "fedavg"\nwieghting = "uniform"',
            "strategy 'fedavg': unknown setting 'wieghting'; did you",
        ),
        ('[strategy]\nname = "fedagv"', "unknown strategy 'fedagv'; did you mean 'fedavg'"),
        ('[partition]\nname = "random"', "partition 'random': clients must be given"),
        ('[partition]\nname = "shard"\nclients = 2', "unknown partition 'shard'; did you mean 'shards'"),
        ('[topology]\nname = "star"', "unknown topology 'star'.* Known: async, buffered, encounters, hier"),
        ("[strategy]\nname = 3", "strategy.name = 3: expected text"),
        ('strategy = "fedavg"', r"strategy = 'fedavg': expected a table, \[strategy\]"),
        ("training = 3", r"training = 3: expected a table, \[training\]"),
        ('rounds = "3"', 'recipe.rounds = "3": input should be a valid integer'),
        ("rounds = 3.0", "recipe.rounds = 3.0: input should be a valid integer"),
        ("rounds = true", "recipe.rounds = true: expected a number"),
        ("seed = [1]", "recipe.seed"),
        ("name = 3", "recipe.name = 3: input should be a valid string"),
        ('[training]\nlr = "fast"', 'training.lr = "fast": input should be a valid number'),
        ("[training]\nepochs = 1.5", "training.epochs = 1.5"),
        ('[training]\noptimizer = "lion"', "training.optimizer = \"lion\": input should be 'sgd', 'adam' or 'adamw'"),
        ('[evaluation]\ntest = "yes"', "evaluation.test"),
        ('[policy]\non_error = "ignore"', "policy.on_error = \"ignore\": input should be 'skip' or 'raise'"),
        ('[partition]\nname = "random"\nclients = 0', "clients"),
        ('device = "gpu"', "unknown device 'gpu'"),
    ],
    ids=lambda text: text if "\n" not in text else text.replace("\n", " "),
)
def test_recipes_that_are_refused(text, told) -> None:
    with pytest.raises(ConfigError, match=told):
        Experiment.from_toml(text)


OUT_OF_RANGE = [
    ("rounds", 0), ("rounds", -1), ("seed", -1),
    ("training.epochs", 0), ("training.iterations", -1), ("training.at_most", -1), ("training.batch_size", 0),
    ("training.lr", 0.0), ("training.lr", -0.1), ("training.lr", math.nan),
    ("training.decay", 0.0), ("training.decay", 1.5), ("training.momentum", 1.0), ("training.momentum", -0.1),
    ("training.weight_decay", -1e-9), ("training.clip", -1.0), ("training.clip", math.nan),
    ("evaluation.every", -1), ("evaluation.clients", -1), ("evaluation.holdout", 1.0), ("evaluation.holdout", -0.1),
    ("evaluation.validation_clients", -1), ("evaluation.patience", -1),
    ("policy.quorum", 1.1), ("policy.quorum", -0.1), ("policy.quorum", math.nan), ("policy.deadline", 0.0),
    ("policy.max_void", 0), ("policy.max_change", 0.0), ("policy.max_change", math.nan),
    ("policy.max_norm", math.nan), ("policy.max_norm", 0.0), ("policy.max_examples", 0),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), OUT_OF_RANGE)
def test_values_out_of_range(key, value) -> None:
    with pytest.raises(ConfigError, match=f"{key} = {value} is out of range"):
        Experiment.from_table(override({}, {key: value}))


def test_patience_needs_something_to_watch() -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.patience needs evaluation.monitor"):
        Experiment(evaluation=Evaluation(patience=3))


@pytest.mark.parametrize("text", ["rounds = ", "[training", "a = 1\na = 2", "\x00"])
def test_files_that_are_no_toml(tmp_path, text) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.toml: not a readable recipe"):
        Experiment.read(path)


def test_files_that_are_not_there(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"no recipe .*wayfare list recipes"):
        Experiment.read(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="is a folder, not a recipe"):
        Experiment.read(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(ConfigError, match="not a readable recipe"):
        Experiment.read(tmp_path / "latin.toml")


# ---- what does not fit


def test_a_strategy_that_needs_classes_and_a_task_without() -> None:
    with pytest.raises(ConfigError) as told:
        Experiment(task=Places(), strategy=FedProto())
    assert str(told.value) == "FedProto needs classes, which Places does not provide (it has features)"
    Experiment(task=Places(), strategy=FedAvg())


@pytest.mark.parametrize("strategy", [Local(), Centralised(), FedProto()], ids=lambda s: type(s).__name__)
def test_a_strategy_that_does_not_run_in_groups(strategy) -> None:
    with pytest.raises(ConfigError) as told:
        Experiment(strategy=strategy, topology=Hierarchy(groups=2))
    name = type(strategy).__name__
    assert "hierarchy" not in strategy.topologies
    runs = ", ".join(sorted(strategy.topologies))
    assert str(told.value) == f"{name} does not run on the topology 'hierarchy'; it runs on {runs}"


def test_a_topology_of_ones_own_is_tried() -> None:
    """Its author knows better than a list that was written before it."""

    @dataclass(frozen=True)
    class Ring(Server):
        pass

    Experiment(strategy=Local(), topology=Ring())


# ---- overrides


TABLE = {
    "rounds": 5,
    "strategy": {"name": "fedadam", "server_lr": 0.1, "beta1": 0.5},
    "training": {"lr": 0.1, "epochs": 2},
}


def test_override_changes_one_key() -> None:
    found = override(TABLE, {"training.lr": 0.5, "rounds": 7, "strategy.tau": 0.1})
    assert found == {
        "rounds": 7,
        "strategy": {"name": "fedadam", "server_lr": 0.1, "beta1": 0.5, "tau": 0.1},
        "training": {"lr": 0.5, "epochs": 2},
    }
    assert TABLE["training"] == {"lr": 0.1, "epochs": 2} and TABLE["rounds"] == 5  # the given table stays


def test_a_new_component_drops_the_settings_of_the_old_one() -> None:
    assert override(TABLE, {"strategy.name": "fedavgm"})["strategy"] == {"name": "fedavgm"}
    # in whatever order the changes come
    for changes in (
        {"strategy.name": "fedavgm", "strategy.beta": 0.5},
        {"strategy.beta": 0.5, "strategy.name": "fedavgm"},
    ):
        assert override(TABLE, changes)["strategy"] == {"name": "fedavgm", "beta": 0.5}


def test_the_same_component_keeps_its_settings() -> None:
    assert override(TABLE, {"strategy.name": "fedadam"})["strategy"] == TABLE["strategy"]
    # a table without a name stands for the default component
    table = {"strategy": {"weighting": "uniform"}}
    assert override(table, {"strategy.name": "fedavg"})["strategy"] == {"weighting": "uniform", "name": "fedavg"}
    assert override(table, {"strategy.name": "local"})["strategy"] == {"name": "local"}


def test_override_makes_sections_and_refuses_what_is_none() -> None:
    assert override({}, {"policy.quorum": 0.1}) == {"policy": {"quorum": 0.1}}
    with pytest.raises(ConfigError, match=r"rounds\.more: rounds is not a table"):
        override({"rounds": 3}, {"rounds.more": 1})


def test_overrides_of_a_file(tmp_path) -> None:
    (tmp_path / "r.toml").write_text('rounds = 3\n[strategy]\nname = "fedadam"\nserver_lr = 0.5')
    found = Experiment.read(tmp_path / "r.toml", {"strategy.name": "fedavg", "training.lr": 0.5})
    assert (found.strategy, found.training.lr, found.rounds) == (FedAvg(), 0.5, 3)
    with pytest.raises(ConfigError, match="unknown setting 'lrr'"):
        Experiment.read(tmp_path / "r.toml", {"training.lrr": 0.5})


def test_flatten_is_the_other_way_round() -> None:
    flat = dict(flatten({"a": 1, "b": {"c": 2, "d": {"e": 3}}}))
    assert flat == {"a": 1, "b.c": 2, "b.d.e": 3}


def test_with_seed() -> None:
    assert Experiment().with_seed(5) == Experiment(seed=5)


# ---- parts of one's own


OWN = """
from dataclasses import dataclass
from wayfare.strategies.fedavg import FedAvg

@dataclass(frozen=True)
class Mine(FedAvg):
    strength: float = 0.5
"""


def test_a_strategy_from_a_module_of_ones_own(tmp_path, monkeypatch) -> None:
    (tmp_path / "parts_of_mine.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    text = '[strategy]\nname = "parts_of_mine:Mine"\nstrength = 2.0'
    allow_code("parts_of_mine")
    experiment = Experiment.from_toml(text)
    assert (type(experiment.strategy).__name__, experiment.strategy.strength) == ("Mine", 2.0)
    assert 'name = "parts_of_mine:Mine"' in experiment.to_toml()
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    with pytest.raises(
        ConfigError, match="strategy 'parts_of_mine:Mine': unknown setting 'strenght'; did you mean 'str"
    ):
        Experiment.from_toml(text.replace("strength", "strenght"))
    sys.modules.pop("parts_of_mine")


SCRIPT = (
    OWN
    + """
import sys
from wayfare import Evaluation, Experiment, resume, run
from wayfare.core.errors import ConfigError
from wayfare.hashing.task import Hashing
from wayfare.objects.models import CnnClassifier
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.places.task import Places
from wayfare.scenes.task import Scenes

if __name__ == "__main__":
    task = Objects(model=CnnClassifier(width=4, hidden=8))
    experiment = Experiment(task=task, strategy=Mine(), rounds=1, evaluation=Evaluation(every=0))
    assert '"__main__:Mine"' in experiment.to_toml()
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    print(run(experiment, sys.argv[1] + "/auto", workers=2)["rounds"])  # goes to the local engine by itself
    print(resume(sys.argv[1] + "/auto", rounds=2)["rounds"])
    try:
        run(experiment, sys.argv[1] + "/pool", engine="pool", workers=1)
    except ConfigError as error:
        print(error)
"""
)


def test_a_strategy_from_the_script_itself(tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    told = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    one, two, refused = told.stdout.splitlines()
    assert (one, two) == ("1", "2")
    assert refused == "parts defined in the script itself run with engine 'local' only: move them to a module"


@dataclass(frozen=True)
class Own(Objects):
    """A task of one's own."""


def test_names_of_parts() -> None:
    assert name_of("strategy", FedAvg()) == "fedavg"
    assert name_of("task", Own()) == f"{__name__}:Own"
    assert name_of("task", Places()) == "places"


# ---- who takes part


def crowd(parts: int = 8, size: int = 10, pooled: bool = False, seed: int = 0, **settings: Any) -> Clients:
    split = Split.from_parts([np.arange(size * i, size * (i + 1)) for i in range(parts)])
    return Clients(split, Evaluation(**settings), seed, pooled)


def test_held_out_samples_are_never_trained_on() -> None:
    people = crowd(holdout=0.2)
    for i in range(8):
        client = people.client(f"c{i}")
        assert len(client.holdout) == 2 and len(client.train) == 8
        assert sorted([*client.train, *client.holdout]) == list(range(10 * i, 10 * i + 10))
    again, other = crowd(holdout=0.2).client("c3"), crowd(holdout=0.2, seed=1)
    assert again.holdout.tolist() == people.client("c3").holdout.tolist()
    assert any(other.client(f"c{i}").holdout.tolist() != people.client(f"c{i}").holdout.tolist() for i in range(8))


def test_without_a_holdout_everything_is_trained_on() -> None:
    people = crowd(holdout=0.0)
    assert len(people.client("c0").train) == 10 and len(people.client("c0").holdout) == 0
    assert len(crowd(size=4, holdout=0.5).client("c0").holdout) == 0  # too few to set some aside


def test_validation_clients_never_train() -> None:
    people = crowd(validation_clients=3)
    trained = {people.trained.id(i) for i in range(len(people.trained))}
    assert len(people.validation) == 3 and len(trained) == 5 and not trained & set(people.validation)
    assert set(people.evaluation_clients()) <= trained
    held = people.client(people.validation[0])
    assert len(held.train) == 10  # all their samples validate
    with pytest.raises(ConfigError, match="validation_clients = 8 leaves none of the 8 clients to train"):
        crowd(validation_clients=8)


def test_judges_are_the_same_every_time() -> None:
    people = crowd(parts=50, clients=5)
    assert (
        len(people.evaluation_clients()) == 5
        and people.evaluation_clients() == crowd(parts=50, clients=5).evaluation_clients()
    )
    assert len(crowd(clients=99).evaluation_clients()) == 8
    assert crowd(clients=0).evaluation_clients() == []


def test_the_partition_is_drawn_from_the_seed() -> None:
    experiment = Experiment()
    assert experiment.split().pack() == experiment.split().pack()
    assert experiment.split().pack() == replace(experiment, rounds=3, strategy=Local()).split().pack()
    assert experiment.split().pack() != experiment.with_seed(1).split().pack()


def test_a_later_version_with_more_settings_knows_its_old_runs():
    """A setting that did not exist then is as by default: the run is found and goes on."""
    before = Experiment(task=Objects(model=CnnClassifier(width=8)), rounds=2, device="cpu")
    text = before.to_toml()
    old = "\n".join(line for line in text.splitlines() if not line.startswith(("norm =", "normalise =")))
    assert len(old) < len(text) and before.is_in(old) and before.is_in(text)
    assert early_fingerprint(Experiment.from_toml(old)) == early_fingerprint(before)
    chosen = before.chosen()
    of_task = {key: value for key, value in chosen.items() if key.startswith("task.")}
    assert of_task == {"task.name": "objects", "task.model.width": 8}
    others = [
        replace(before, seed=1),
        replace(before, task=Objects(Cifar10(), CnnClassifier(width=8))),
        replace(before, task=Objects()),
    ]
    assert len({early_fingerprint(each) for each in (before, *others)}) == 4
    assert not any(each.is_in(old) for each in others)
    assert early_fingerprint(replace(before, rounds=9)) == early_fingerprint(before)
    tables = [tomllib.loads(each) for each in (text, replace(before, rounds=9).to_toml(), old)]
    assert [fingerprint(table) == fingerprint(tables[0]) for table in tables] == [True, True, False]  # of the text
    assert not before.is_in(old + "\n[nonsense]\n") and not before.is_in("rounds = ")
