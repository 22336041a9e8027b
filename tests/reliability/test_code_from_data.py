"""Recipes, run folders, indexes and a server's recipe are data: code that they name runs only if it was allowed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from wayfare import Evaluation, Experiment, components, run
from wayfare.cli import app, main
from wayfare.components import allow_code, allowed_code
from wayfare.core.errors import ConfigError
from wayfare.engines.pool.engine import Pool

EVIL = """
from pathlib import Path
Path("canary").touch()
from dataclasses import dataclass
from wayfare.strategies.fedavg import FedAvg

@dataclass(frozen=True)
class Evil(FedAvg):
    pass
"""
PLACES = [
    "[task]\nname = {}",
    "[data]\nname = {}",
    "[model]\nname = {}",
    "[partition]\nname = {}",
    "[strategy]\nname = {}",
    "[topology]\nname = {}",
    "[topology]\nname = 'encounters'\n[exchange]\nname = {}",
    "[task]\nname = 'places'\n[task.loss]\nname = {}",
    "[task]\nname = 'places'\nmining = {}",
    "[task]\nname = 'places'\n[model.backbone]\nname = {}",
    "[task]\nname = 'places'\n[model]\npooling = {}",
    "[task]\nname = 'hashing'\n[model.image]\nname = {}",
]


LATER_PLACES = [
    *(f"[{section}]\nname = {{}}" for section in ("clock", "compression", "privacy", "robust", "attack")),
    "[topology]\nname = 'encounters'\ntraces = 'x'\n[exchange]\nname = 'fedtour'\npredict_with = {}",
]
LATER_COMMANDS = [
    ["run", "evil.toml"],
    ["sweep", "evil.toml", "--try", "rounds=1,2", "--out", "tried"],
    ["leakage", "evil.toml"],
    ["meet", "evil.toml", "--name", "me", "--photos", "."],
    ["peer", "invite", "bert", "--recipe", "evil.toml"],
]


@pytest.fixture
def canary(tmp_path, monkeypatch):
    """A folder with a module that leaves a mark when it runs; the current folder, as for someone who unpacked it."""
    (tmp_path / "evil.py").write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(components, "_allowed", set())
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path / "canary"
    sys.modules.pop("evil", None)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run; do not change it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    run(Experiment(rounds=1, evaluation=Evaluation(every=0)), folder, "local")
    return folder


def refused(capsys, *command):
    """The command fails without a traceback and says how to allow the code."""
    assert main([*map(str, command)]) in (1, 2)
    message = " ".join(capsys.readouterr().err.split())
    assert "--allow-code evil" in message and "Traceback" not in message, message


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("command", ["explain-traffic", "split", "run", "reproduce"])
def test_a_recipe(command, place, canary, capsys) -> None:
    Path("evil.toml").write_text(place.format("'evil:Evil'") + "\n[cells.one]\nrounds = 1")
    refused(capsys, command, "evil.toml")
    assert not canary.exists()


@pytest.mark.parametrize("place", LATER_PLACES)
def test_a_recipe_with_other_tables(place, canary, capsys) -> None:
    """Whatever comes of the command: a predictor is not looked for before devices meet."""
    Path("evil.toml").write_text(place.format("'evil:Evil'"))
    for command in LATER_COMMANDS:
        main(command)
        assert "Traceback" not in capsys.readouterr().err and not canary.exists(), command


def test_code_can_be_allowed_wherever_a_recipe_or_a_run_may_ask_for_it() -> None:
    def commands(group, path=()):
        for name, each in getattr(group, "commands", {}).items():
            yield (*path, name), {parameter.name for parameter in each.params}
            yield from commands(each, (*path, name))

    readers = {path: names for path, names in commands(typer.main.get_command(app)) if {"recipe", "set_"} <= names}
    assert len(readers) > 8 and [path for path, names in readers.items() if "allow_code" not in names] == []


def test_a_setting_on_the_command_line(canary, capsys) -> None:
    refused(capsys, "run", "quickstart", "--set", "strategy.name=evil:Evil", "--set", "training.lr=0.1")
    assert not canary.exists()


@pytest.mark.parametrize("module", ["evil", "evil.deeper", ".evil", "", "evil:Evil"])
def test_other_spellings(module, canary) -> None:
    with pytest.raises(ConfigError, match="allow"):
        Experiment.from_toml(f'[strategy]\nname = "{module}:Evil"')
    assert not canary.exists()


@pytest.mark.parametrize(
    "command",
    [["resume", "--rounds", "2"], ["report"], ["compare"], ["index"], ["graph"], ["export", "--to", "onnx"],
     ["evaluate"], ["predict"], ["privacy", "spent"]],
)  # fmt: skip
def test_a_run_folder(command, finished, canary, capsys) -> None:
    folder = Path(shutil.copytree(finished, "theirs"))
    text = (folder / "experiment.toml").read_text()
    (folder / "experiment.toml").write_text(text.replace('name = "fedavg"', 'name = "evil:Evil"'))
    name, *more = command
    of_run = ["x.jpg", "--run", folder]
    arguments = {"compare": [folder, finished], "index": [folder, "--photos", "."], "graph": of_run, "predict": of_run}
    main([name, *more, *map(str, arguments.get(name, [folder]))])
    assert "Traceback" not in capsys.readouterr().err
    assert not canary.exists()


def test_what_was_allowed_runs_and_no_more(canary) -> None:
    Path("evil.toml").write_text('rounds = 1\n[strategy]\nname = "evil:Evil"\n[evaluation]\nevery = 0')
    assert main(["run", "evil.toml", "--allow-code", "evils", "--allow-code", "evi", "--out", "no"]) == 2
    assert not canary.exists()
    assert main(["run", "evil.toml", "--allow-code", "evil", "--engine", "pool", "--workers", "1", "--out", "yes"]) == 0
    assert canary.exists()


def test_a_package_allows_its_modules(canary) -> None:
    allow_code("wayfare.strategies")
    assert Experiment.from_toml('[strategy]\nname = "wayfare.strategies.fedprox:FedProx"').strategy
    with pytest.raises(ConfigError, match=r"--allow-code wayfare\.topologies\.server"):
        Experiment.from_toml('[topology]\nname = "wayfare.topologies.server:Server"')


def test_objects_made_in_python_need_no_permission(canary) -> None:
    sys.path.append(str(Path.cwd()))
    from evil import Evil

    experiment = Experiment(strategy=Evil())
    assert allowed_code() == ["evil:Evil"]
    assert Experiment.from_toml(experiment.to_toml()) == experiment


def test_workers_see_what_the_caller_has_set_since_they_began(tmp_path, monkeypatch, pool: Pool) -> None:
    """The fork server is older than most runs of a notebook."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"parts_{name}.py").write_text(EVIL.replace('"canary"', 'os.environ["MARK"]').replace(
            "from pathlib", "import os\nfrom pathlib"
        ))  # fmt: skip
        monkeypatch.chdir(tmp_path / name)
        monkeypatch.setenv("MARK", f"mark-{name}")
        allow_code(f"parts_{name}")
        experiment = Experiment.from_toml(f'rounds = 1\n[strategy]\nname = "parts_{name}:Evil"')
        (tmp_path / name / f"mark-{name}").unlink()  # this process's own
        sys.modules.pop(f"parts_{name}")
        run(experiment, tmp_path / name / "run", pool)
        assert (tmp_path / name / f"mark-{name}").exists()


START = "from wayfare.engines.pool.processes import Worker\nWorker().stop()"


def test_files_called_like_a_library_in_the_current_folder(tmp_path) -> None:
    """Somebody unpacks photos with a `struct.py` beside them, goes there and runs a command. Flower: test_flower.py."""
    for name in ("json", "numpy", "sitecustomize", "socket", "struct", "torch", "wayfare", "yaml"):
        (tmp_path / f"{name}.py").write_text("open('canary', 'a').write(__name__ + ' ')")
    script = tmp_path / "elsewhere" / "script.py"  # Python imports from the script's own folder, for `wayfare` too
    script.parent.mkdir()
    script.write_text(START)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert not (tmp_path / "canary").exists(), (tmp_path / "canary").read_text()
    assert done.returncode == 0, done.stderr


def test_every_program_that_is_started_imports_from_no_current_folder() -> None:
    found = []
    for path in Path(components.__file__).parent.rglob("*.py"):
        found += re.findall(r"\[(?:\*\S+ )?sys\.executable, (\S+),", path.read_text())
    assert len(found) > 6 and set(found) == {'"-P"', '"-IS"'}


@pytest.mark.parametrize(("photos", "runs"), [("somewhere", False), ("", True)])
def test_a_node_allows_only_what_its_owner_has_allowed(photos, runs, canary) -> None:
    """A simulation is the caller's own machine; a node with photos of its own is not."""
    pytest.importorskip("flwr", reason="Flower is not installed: wayfare[flower]")
    from wayfare.deploy import client_app

    text = '[strategy]\nname = "evil:Evil"'
    call = {
        "program": "ready", "experiment": text, "folder": "run", "seconds": 60.0, "until": 0.0, "sign_in": "",
        "allow_code": ["evil"],
    }  # fmt: skip
    node = {"photos": photos, "name": "anna", "home": "home"} if photos else {}
    message, context = SimpleNamespace(content={"call": call}), SimpleNamespace(node_config=node, state={})
    if runs:
        client_app._perform(message, context, {})
    else:
        with pytest.raises(ConfigError, match="--allow-code evil"):
            client_app._perform(message, context, {})
    assert canary.exists() == runs
