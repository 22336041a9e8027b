"""Components by name, and what is said of names that lead nowhere."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from typing import Literal

import pytest

from wayfare.components import ABILITIES, allow_code, build, find, name_of, names, settings_of
from wayfare.core.errors import ConfigError

HERE = '''
from dataclasses import dataclass
from wayfare.strategies.fedavg import FedAvg

@dataclass(frozen=True)
class Mine(FedAvg):
    """My own."""
    strength: float = 0.5
    layers: tuple[int, ...] = (1, 2)

@dataclass(frozen=True)
class Outer:
    @dataclass(frozen=True)
    class Inner(FedAvg):
        """Inside another class."""

class Plain(FedAvg.__base__):
    """Not a dataclass, though it can do things."""
    def merge(self, state, replies): ...
    def __call__(self, labels, rng): ...

class NotOne:
    """Cannot merge."""

fedavg = FedAvg()
'''


@pytest.fixture
def mine(tmp_path, monkeypatch) -> str:
    """A module of the user's own."""
    (tmp_path / "my_own_parts.py").write_text(HERE)
    allow_code("my_own_parts")
    monkeypatch.syspath_prepend(tmp_path)
    yield "my_own_parts"
    sys.modules.pop("my_own_parts", None)


ALL = [(kind, name) for kind in ABILITIES for name in names(kind)]


# ---- by name


def test_there_are_components_of_every_kind() -> None:
    assert {kind for kind, _ in ALL} == set(ABILITIES)
    assert len(names("strategy")) >= 12 and len(names("topology")) >= 2 and len(names("partition")) >= 5


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_what_is_listed_is_found_under_its_name(kind, name) -> None:
    cls = find(kind, name)
    assert cls.__name__.lower() == name
    assert callable(getattr(cls, ABILITIES[kind]))
    assert sys.modules[cls.__module__].__doc__


@pytest.mark.parametrize(("kind", "name"), [pair for pair in ALL if pair[0] != "engine"])
def test_settings_are_frozen_dataclass_fields_with_types(kind, name) -> None:
    cls = find(kind, name)
    assert dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen


def test_helpers_beside_components_are_not_components() -> None:
    """Modules of shared code, and classes that a module only imports."""
    assert "split" not in names("partition") and "heterogeneity" not in names("partition")
    assert "programs" not in names("engine") and "nets" not in names("task")
    with pytest.raises(ConfigError):
        find("partition", "split")


@pytest.mark.parametrize("kind", ABILITIES)
def test_an_unknown_name_gets_the_list_of_known_ones(kind) -> None:
    with pytest.raises(ConfigError) as told:
        find(kind, "nowhere")
    assert f"unknown {kind} 'nowhere'" in str(told.value)
    assert all(name in str(told.value) for name in names(kind))
    assert "package.module:Name" in str(told.value)


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="unknown strategy 'fedavgg'; did you mean 'fedavg'"):
        find("strategy", "fedavgg")


@pytest.mark.parametrize("name", ["", ".", "..", "fed avg", "../fedavg", "fedavg.py", "__init__", "os", "FedAvg", "ü"])
def test_names_that_are_no_names(name) -> None:
    with pytest.raises(ConfigError, match="unknown strategy"):
        find("strategy", name)


# ---- any importable thing


def test_a_component_of_ones_own(mine) -> None:
    cls = find("strategy", f"{mine}:Mine")
    assert cls.__doc__ == "My own."
    assert name_of("strategy", cls()) == f"{mine}:Mine"
    made = build(cls, {"strength": 2, "layers": [3, 4]}, "strategy")
    assert (made.strength, made.layers) == (2.0, (3, 4))
    assert settings_of(made) == {"weighting": "examples", "strength": 2.0, "layers": [3, 4]}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (":Mine", "cannot be imported"),
        ("my_own_parts:", "cannot be imported"),
        ("my_own_parts:Nothing", "'my_own_parts:Nothing' cannot be imported: .*has no attribute 'Nothing'"),
        ("not_there:Mine", "cannot be imported: No module named 'not_there'"),
        ("my_own_parts:NotOne", "is not a strategy: it has no merge"),
        ("my_own_parts:fedavg", "is not a strategy"),
        ("my_own_parts:__name__", "is not a strategy"),
        (".relative:Mine", "cannot be imported"),
        ("my_own_parts:Mine:more", "cannot be imported"),
    ],
)
def test_what_cannot_be_imported(mine, name, told) -> None:
    allow_code(name.partition(":")[0])
    with pytest.raises(ConfigError, match=told):
        find("strategy", name)


def test_a_class_inside_a_class_is_found_under_the_name_it_is_given(mine) -> None:
    inner = __import__(mine).Outer.Inner()
    assert find("strategy", name_of("strategy", inner)) is type(inner)


@pytest.mark.parametrize("kind", ["strategy", "partition"])
def test_a_class_that_is_no_dataclass_is_refused(mine, kind) -> None:
    """Settings are dataclass fields, so without them nothing can be built, or written down again."""
    with pytest.raises(ConfigError, match="dataclass"):
        build(find(kind, f"{mine}:Plain"), {}, kind)


def test_what_is_no_partition_is_refused(mine) -> None:
    """Every class can be called, to make one; a partition is one whose objects can be."""
    with pytest.raises(ConfigError, match="is not a partition"):
        find("partition", f"{mine}:Mine")


# ---- building from settings


@dataclass(frozen=True)
class Sample:
    count: int
    share: float = 0.5
    flag: bool = False
    text: str = ""
    choice: Literal["one", "two"] = "one"
    several: tuple[int, ...] = ()
    maybe: int | None = None
    inner: int = dataclasses.field(default=3, init=False)


def test_build() -> None:
    table = {"count": 3, "share": 1, "flag": True, "text": "x", "choice": "two", "several": [1, 2], "maybe": 4}
    made = build(Sample, table, "here")
    assert made == Sample(3, 1.0, flag=True, text="x", choice="two", several=(1, 2), maybe=4)
    assert isinstance(made.share, float)
    assert settings_of(made) == table
    assert settings_of(Sample(1)) == {
        "count": 1, "share": 0.5, "flag": False, "text": "", "choice": "one", "several": []
    }  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "here: count must be given"),
        ({"cuont": 3}, r"here: unknown setting 'cuont'; did you mean 'count'\? Known: choice, count, flag, maybe, sev"),
        ({"zzz": 3}, "here: unknown setting 'zzz'.* Known: choice, count"),
        ({"inner": 4}, "here: unknown setting 'inner'"),
        ({"count": "3"}, 'here.count = "3": input should be a valid integer'),
        ({"count": 3.0}, "here.count = 3.0: input should be a valid integer"),
        ({"count": True}, "here.count = true: expected a number"),
        ({"count": None}, "here.count = None"),
        ({"count": 1, "share": "x"}, 'here.share = "x": input should be a valid number'),
        ({"count": 1, "share": False}, "here.share = false: expected a number"),
        ({"count": 1, "flag": 1}, "here.flag = 1: input should be a valid boolean"),
        ({"count": 1, "flag": "yes"}, "here.flag"),
        ({"count": 1, "text": 5}, "here.text = 5: input should be a valid string"),
        ({"count": 1, "choice": "three"}, "here.choice = \"three\": input should be 'one' or 'two'"),
        ({"count": 1, "several": [1, "x"]}, "here.several"),
        ({"count": 1, "several": 3}, "here.several"),
        ({"count": 1, "text": {"a": 1}}, "here.text"),
    ],
)
def test_build_refuses(settings, told) -> None:
    with pytest.raises(ConfigError, match=told):
        build(Sample, settings, "here")


def test_a_part_of_ones_own_is_found_in_the_folder_one_is_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    before = list(sys.path)
    (tmp_path / "part_of_mine.py").write_text(
        "from dataclasses import dataclass\nfrom wayfare.strategies.fedavg import FedAvg\n"
        "@dataclass(frozen=True)\nclass Mine(FedAvg):\n    pass\n"
    )
    allow_code("part_of_mine")
    assert find("strategy", "part_of_mine:Mine").__name__ == "Mine"
    assert sys.path == [*before, str(tmp_path)]  # last, so that no other module is taken from there
