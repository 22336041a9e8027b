"""Recipes that say what differs from another one."""

from pathlib import Path

import pytest

from wayfare import Experiment
from wayfare.core.errors import ConfigError
from wayfare.recipe import read_table

BASE = """
about = "the base"
rounds = 7
[strategy]
name = "fedprox"
mu = 0.5
[training]
lr = 0.5
epochs = 3
[paper]
title = "of the base"
[cells.a]
training.lr = 0.1
[small]
rounds = 2
training.lr = 0.25
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "base.toml").write_text(BASE)
    return tmp_path


def write(folder: Path, text: str, name: str = "recipe.toml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_what_is_not_said_is_the_bases(base: Path) -> None:
    recipe = write(base, 'base = "base.toml"\nseed = 4\n[training]\nlr = 0.125\n')
    experiment = Experiment.read(recipe)
    assert (experiment.rounds, experiment.seed, experiment.name) == (7, 4, "recipe")
    assert (experiment.training.lr, experiment.training.epochs) == (0.125, 3)
    assert experiment.strategy.mu == 0.5  # type: ignore[attr-defined]
    assert "base" not in read_table(recipe)


def test_another_component_does_not_inherit_the_settings_of_the_bases(base: Path) -> None:
    same = Experiment.read(write(base, 'base = "base.toml"\n[strategy]\nname = "fedprox"\n'))
    other = Experiment.read(write(base, 'base = "base.toml"\n[strategy]\nname = "moon"\n'))
    assert same.strategy.mu == 0.5 and other.strategy.mu == 1.0  # type: ignore[attr-defined]


def test_tables_of_cells_are_not_mixed_but_small_settings_are(base: Path) -> None:
    own = '[cells.b]\nrounds = 1\n[paper]\nmetric = "x"\n[small.training]\nepochs = 9\n'
    table = read_table(write(base, 'base = "base.toml"\nabout = "mine"\n' + own))
    assert table["about"] == "mine"
    assert table["cells"] == {"b": {"rounds": 1}} and table["paper"] == {"metric": "x"}
    assert table["small"] == {"rounds": 2, "training": {"lr": 0.25, "epochs": 9}}


def test_a_base_of_a_base_and_one_in_another_folder(base: Path) -> None:
    (base / "below").mkdir()
    write(base, 'base = "base.toml"\nrounds = 5\n', "middle.toml")
    table = read_table(write(base / "below", 'base = "../middle.toml"\nseed = 1\n'))
    assert (table["rounds"], table["seed"], table["strategy"]["mu"]) == (5, 1, 0.5)


@pytest.mark.parametrize("text", ['base = "recipe.toml"\n', 'base = "other.toml"\n'])
def test_a_circle_of_bases(base: Path, text: str) -> None:
    write(base, 'base = "recipe.toml"\n', "other.toml")
    with pytest.raises(ConfigError, match=r"recipe.toml: base = .*the name of another recipe in the same folder"):
        read_table(write(base, text))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("base = 3\n", "base = 3: expected the name of another recipe"),
        ('base = "absent.toml"\n', r"no recipe .*absent\.toml"),
        ('base = "base.toml"\ncells = 3\n', r"recipe\.toml: cells = 3: expected a table"),
        ('base = "base.toml"\nsmall = "very"\n', r"small = 'very': expected a table"),
        ('base = "base.toml"\nstrategy = "moon"\n', r"strategy = 'moon': expected a table"),
        ('base = "broken.toml"\n', r"broken\.toml: not a readable recipe"),
    ],
)
def test_bases_that_are_refused(base: Path, text: str, told: str) -> None:
    write(base, "rounds = = 3\n", "broken.toml")
    with pytest.raises(ConfigError, match=told):
        Experiment.read(write(base, text))
