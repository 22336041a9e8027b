"""Command lines in text: what they name is there. For the tests of the docs and of the help."""

import re
import shlex
from pathlib import Path

import typer

from wayfare.cli import app
from wayfare.cli.console import parse_settings
from wayfare.experiment import Experiment
from wayfare.papers.files import recipe_path
from wayfare.papers.plan import read_plan
from wayfare.reference import commands

ROOT = Path(__file__).parents[1]
COMMANDS = dict(commands(typer.main.get_command(app)))


def lines_of(text: str) -> list[list[str]]:
    """The commands of a block, as words."""
    lines = text.replace("\\\n", " ").splitlines()
    words = [shlex.split(part, comments=True) for line in lines for part in line.removeprefix("$ ").split(" && ")]
    return [each for each in words if each]


def parsed(words: list[str]) -> None:
    """Fail if there is no such command, option, recipe or setting."""
    if words[:1] == ["wayfare"]:
        name = " ".join(words[1:3]) if " ".join(words[1:3]) in COMMANDS else " ".join(words[1:2])
        assert name in COMMANDS, f"there is no command {name!r}"
        with COMMANDS[name].make_context(name, words[1 + len(name.split()) :]) as context:
            recipe_fits(name, context.params)
    elif words[0] == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(words[1:]) <= set(targets), words
    elif words[0].rpartition("/")[2] in ("python", "python3"):
        assert words[1] == "-m" or (ROOT / words[1]).is_file(), words
    else:
        assert words[0].rpartition("/")[2] in ("git", "cd", "pip", "export"), f"what is {words[0]!r}?"


def recipe_fits(command: str, given: dict) -> None:
    """The recipe is one of ours, or a file of the reader's; its settings are there."""
    name = given.get("recipe")
    if not name or name.endswith((".toml", ".invite")) or (command == "run" and name.startswith("my-")):
        return  # a file or folder of the reader's
    changes = parse_settings(given.get("set_"))
    if any(":" in str(value) for key, value in changes.items() if key.endswith(".name")):
        return  # a part of the reader's own
    if command == "reproduce":
        plan = read_plan(recipe_path(name), changes=changes)  # at small scale: the paper's needs its data
        assert {cell for cell in given["cells"].split(",") if cell} <= plan.cells.keys()
    else:
        Experiment.read(recipe_path(name), changes)
