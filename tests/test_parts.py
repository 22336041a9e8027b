"""Parts of a task that are chosen by name: in tables, in TOML, on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest

from wayfare.components import allow_code, build, chosen_settings, part, parts_of, settings_of
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Task
from wayfare.experiment import Experiment
from wayfare.recipe import override


@dataclass(frozen=True)
class Folder:
    path: str = ""
    size: int = 32


@dataclass(frozen=True)
class Drawn:
    seed: int = 0


@dataclass(frozen=True)
class Margin:
    margin: float = 0.1


@dataclass(frozen=True)
class Plain:
    pass


@dataclass(frozen=True)
class Small:
    width: int = 4
    pooling: Margin | Plain = part("pooling", "plain", {"plain": f"{__name__}:Plain", "margin": f"{__name__}:Margin"})


@dataclass(frozen=True)
class Seeing(Task):
    data: Folder | Drawn = part("data", "drawn", {"drawn": f"{__name__}:Drawn", "folder": f"{__name__}:Folder"})
    model: Small = part("model", "small", {"small": f"{__name__}:Small"})
    loss: Margin | Plain = part("loss", "margin", {"margin": f"{__name__}:Margin", "plain": f"{__name__}:Plain"})
    radius: float = 25.0

    provides: ClassVar[frozenset[str]] = frozenset({"features"})
    moved: ClassVar[Mapping[str, str]] = {"path": "data.path", "margin": "task.loss.margin"}


NAME = f"{__name__}:Seeing"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules[Seeing.__module__])


def test_a_part_is_a_name_or_a_table() -> None:
    by_name = build(Seeing, {"loss": "plain"}, "task 'seeing'")
    assert by_name.loss == Plain() and by_name.data == Drawn()
    by_table = build(Seeing, {"loss": {"name": "margin", "margin": 0.5}, "data": {"name": "folder"}}, "task 'seeing'")
    assert by_table.loss == Margin(0.5) and by_table.data == Folder()
    assert build(Seeing, {"loss": {"margin": 0.5}}, "task 'seeing'").loss == Margin(0.5)  # of the default part
    inner = build(Seeing, {"model": {"pooling": {"name": "margin", "margin": 2.0}}}, "task 'seeing'")
    assert inner.model.pooling == Margin(2.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "margn"}, "unknown loss 'margn'; did you mean 'margin'"),
        ({"loss": {"name": "plain", "margin": 1.0}}, "task 'seeing'.loss: unknown setting 'margin'"),
        ({"data": {"name": "folder", "pth": ""}}, "data: unknown setting 'pth'; did you mean 'path'"),
        ({"data": {"name": "folder", "size": "x"}}, 'data.size = "x": input should be a valid integer'),
        ({"loss": 3}, r"task 'seeing'.loss = 3: expected a name, or a table"),
        ({"loss": {"name": 3}}, "loss.name = 3: expected a name"),
        ({"loss": "os:path"}, "must be a dataclass"),
        ({"loss": "nowhere:Loss"}, "loss 'nowhere:Loss' cannot be imported"),
    ],
)
def test_what_is_refused(settings: dict, message: str) -> None:
    allow_code("os", "nowhere")
    with pytest.raises(ConfigError, match=message):
        build(Seeing, settings, "task 'seeing'")


def test_settings_that_moved_say_where_to() -> None:
    with pytest.raises(ConfigError, match=r"task.path has moved: it is data.path now"):
        build(Seeing, {"path": "x"}, "task 'seeing'", (), Seeing.moved)


def test_settings_are_written_whole_and_chosen_ones_with_dots() -> None:
    task = Seeing(Folder("here"), Small(pooling=Margin(2.0)), Plain(), 10.0)
    assert settings_of(task) == {
        "data": {"name": "folder", "path": "here", "size": 32},
        "model": {"name": "small", "width": 4, "pooling": {"name": "margin", "margin": 2.0}},
        "loss": "plain",
        "radius": 10.0,
    }
    assert chosen_settings(task) == {
        "data.name": "folder", "data.path": "here", "model.pooling.name": "margin", "model.pooling.margin": 2.0,
        "loss.name": "plain", "radius": 10.0,
    }  # fmt: skip
    assert chosen_settings(Seeing()) == {} and set(parts_of(Seeing)) == {"data", "model", "loss"}


def test_toml_has_tables_for_data_and_model() -> None:
    task = Seeing(Folder('a "path"'), Small(8, Margin(2.0)), Margin(0.3), 10.0)
    experiment = Experiment(task=task)
    text = experiment.to_toml()
    for header in ("[data]", "[model]", "[model.pooling]", "[task]", "[task.loss]"):
        assert f"\n{header}\n" in text
    assert Experiment.from_toml(text) == experiment
    assert experiment.chosen()["task.data.path"] == 'a "path"'


def test_overriding_a_part() -> None:
    table = {"task": {"name": NAME, "loss": {"name": "margin", "margin": 0.3}}, "data": {"name": "folder", "path": "x"}}
    assert override(table, {"task.loss.margin": 0.5})["task"]["loss"] == {"name": "margin", "margin": 0.5}
    assert override(table, {"task.loss.name": "plain"})["task"]["loss"] == {"name": "plain"}
    assert override(table, {"task.loss": "plain"})["task"]["loss"] == "plain"
    assert override({"task": {"loss": "margin"}}, {"task.loss.margin": 1.0})["task"]["loss"] == {
        "name": "margin", "margin": 1.0,
    }  # fmt: skip
    assert override(table, {"data.name": "drawn", "data.seed": 3})["data"] == {"name": "drawn", "seed": 3}
    unnamed = {"task": {"name": NAME, "loss": {"margin": 0.3}}, "model": {"width": 8, "pooling": {"margin": 2.0}}}
    assert override(unnamed, {"task.loss.name": "plain"})["task"]["loss"] == {"name": "plain"}  # not the default's
    assert override(unnamed, {"task.loss.name": "margin"})["task"]["loss"] == {"name": "margin", "margin": 0.3}
    assert override(unnamed, {"model.pooling.name": "margin"})["model"]["pooling"] == {"name": "margin"}
    assert override(table, {"data.size": 64})["data"] == {"name": "folder", "path": "x", "size": 64}
    other = override(table, {"task.name": "objects", "data.name": "digits"})
    assert other == {"task": {"name": "objects"}, "data": {"name": "digits"}}  # data and model go with their task
    assert table["task"]["loss"]["margin"] == 0.3  # nothing was changed in place
    with pytest.raises(ConfigError, match=r"task.radius.x: task.radius is not a table"):
        override({"task": {"radius": 3.0}}, {"task.radius.x": 1})


def test_an_experiment_from_tables_with_data_and_model() -> None:
    table = {"task": {"name": NAME, "loss": "plain"}, "data": {"name": "folder", "path": "x"}, "model": {"width": 9}}
    task = Experiment.from_table(table).task
    assert task == Seeing(Folder("x"), Small(9), Plain())
    with pytest.raises(ConfigError, match=r"task.data has moved: it is data.name now, in a table \[data\]"):
        Experiment.from_table({"task": {"name": NAME, "data": "folder"}})
    with pytest.raises(ConfigError, match=r"data = 3: expected a name, or a table \[data\]"):
        Experiment.from_table({**table, "data": 3})
