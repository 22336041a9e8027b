"""The reference pages, written from the code: `python -m wayfare.reference [DOCS]`, or `make docs`.

The command line from its own help, settings from the dataclasses they are and the comments beside their fields. A test
compares the pages with what this writes.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import typer

from wayfare.cli import app
from wayfare.cli.help import EXAMPLES, HEADINGS
from wayfare.comments import comments
from wayfare.components import Part, find, names, parts_of
from wayfare.core.protocols import Evaluation, Policy, Training
from wayfare.experiment import Experiment
from wayfare.recipe import DEFAULTS, OF_TASK

_NOTE = "<!-- Written by `make docs` from the code. Do not edit. -->"
_MARKS = "<!-- settings: begin -->", "<!-- settings: end -->"
_PLAIN = {  # keys that stand outside all tables
    "name": "of the experiment; by default the name of its file",
    "rounds": "rounds of federation; with the topology `encounters`, 0 means all of them",
    "seed": "of all random numbers",
    "device": "`auto`, `cpu`, `cuda` or `cuda:1`: where torch computes",
    "base": "another recipe in the same folder; this one then lists only what differs",
    "about": "one sentence, shown by `wayfare list recipes`",
}
_TABLES = {
    "task": "What is learnt from which data.",
    "partition": "Who has which samples.",
    "strategy": "The federated algorithm: see [strategies.md](strategies.md).",
    "topology": "Who talks to whom.",
    "exchange": "Which models a device takes from those it meets: for the topology `encounters`.",
    "privacy": "Differential privacy: see [privacy.md](privacy.md). Without this table there is none.",
    "robust": "A robust rule in place of the mean, for devices that may lie. Without this table: the mean.",
    "attack": "Devices that lie, to test robust rules. Without this table: none.",
    "compression": "How models are packed on their way to a device and back. Without this table: not at all.",
    "clock": "Virtual time for unlike devices: see [clock.md](clock.md). Without this table there is none.",
}


def pages(docs: Path) -> dict[str, str]:
    """Every page that is written, or of which a part is, by name."""
    strategies = (docs / "strategies.md").read_text(encoding="utf-8")
    before, rest = strategies.split(_MARKS[0])
    after = rest.split(_MARKS[1])[1]
    return {
        "reference-cli.md": command_page(),
        "reference-toml.md": settings_page(),
        "strategies.md": f"{before}{_MARKS[0]}\n{strategy_table()}{_MARKS[1]}{after}",
    }


# ---- the command line


def command_page() -> str:
    """Every command with its arguments, options and examples."""
    lines = [
        "# The command line",
        "",
        _NOTE,
        "",
        "Every command has `--help`. With `--json` the result is one JSON object on standard output; messages go to",
        "standard error.",
        "Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.",
        "",
    ]
    found = dict(commands(typer.main.get_command(app)))
    for heading, groups in HEADINGS.items():
        lines += [f"## {heading}", ""]
        for group in groups:
            for name in found:
                if name.split()[0] == group:
                    lines += _command(name, found[name])
    return "\n".join(lines).rstrip() + "\n"


def commands(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by the words it is called with."""
    if isinstance(command, click.Group):
        for word, below in command.commands.items():
            yield from commands(below, f"{name} {word}".strip())
    else:
        yield name, command


def _command(name: str, command: click.Command) -> list[str]:
    usage = " ".join(_word(p) for p in command.params if isinstance(p, click.Argument))
    text = _unstyled(inspect.cleandoc(command.help or ""))
    lines = [f"### wayfare {name} {usage}".rstrip(), "", text, ""]
    rows = [(_spelling(p), _default(p), _unstyled(getattr(p, "help", "") or "")) for p in command.params]
    if rows:
        lines += ["| | default | |", "|---|---|---|", *(f"| `{_cell(a)}` | {b} | {_cell(c)} |" for a, b, c in rows), ""]
    return [*lines, "```console parse-only", *EXAMPLES.get(name, ()), "```", ""]


def _word(parameter: click.Parameter) -> str:
    word = (parameter.metavar or str(parameter.name).upper()).strip("[]")
    return word if parameter.required else f"[{word}]"


def _spelling(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Argument):
        return _word(parameter)
    short = ", ".join(sorted(parameter.opts, key=len, reverse=True))
    if getattr(parameter, "is_flag", False):
        return short
    choices = "/".join(map(str, getattr(parameter.type, "choices", ())))
    return f"{short} {choices or parameter.metavar or parameter.type.name.upper().removesuffix(' RANGE')}"


def _default(parameter: click.Parameter) -> str:
    if parameter.required:
        return "needed"
    value = parameter.default
    if value is None or value is False or value == "" or callable(value):
        return ""
    return f"`{getattr(value, 'value', value)}`"


def _unstyled(text: str) -> str:
    """Help text as Markdown."""
    return re.sub(r"\[bold\](.*?)\[/bold\]", r"`\1`", text)


# ---- settings


def settings_page() -> str:
    """Every key of a recipe."""
    lines = [
        "# The keys of a recipe",
        "",
        _NOTE,
        "",
        "A recipe is a TOML file. Every key has a default except those marked *needed*; an unknown key is an error",
        "that lists the known ones. On the command line the same keys are written with dots: `--set training.lr=0.1`.",
        "`[data]` and `[model]` are listed with the task that they belong to. `[cells]`, `[paper]` and `[small]`,",
        "which only `wayfare reproduce` reads, are in [reproducing.md](reproducing.md).",
        "",
        "## Outside all tables",
        "",
        "| key | default | |",
        "|---|---|---|",
    ]
    plain = {field.name: field for field in dataclasses.fields(Experiment)}
    for key, what in _PLAIN.items():
        default = f"`{_toml(plain[key].default)}`" if key in plain else ""
        lines.append(f"| `{key}` | {default} | {what} |")
    for section, cls in (("training", Training), ("evaluation", Evaluation), ("policy", Policy)):
        lines += ["", f"## [{section}]", "", _first(cls), "", *_settings(cls)]
    for kind, what in _TABLES.items():
        lines += ["", f"## [{kind}]", "", f"{what} `name` chooses one; the other keys are its settings.", ""]
        standard = DEFAULTS[kind]
        lines.append(f"`name` = one of {', '.join(f'`{name}`' for name in names(kind))}, or `package.module:Name` of")
        lines.append(f"your own; by default `{standard}`.")
        for name in names(kind):
            cls = find(kind, name)
            lines += ["", f"### {kind} {name}", "", f"{_first(sys.modules[cls.__module__], cls)} (`{_file(cls)}`)", ""]
            lines += _settings(cls)
            for key, part in parts_of(cls).items():
                lines += _part(f"{kind} {name}", key if key in OF_TASK else f"{kind}.{key}", part)
    return "\n".join(lines) + "\n"


def _part(owner: str, table: str, part: Part) -> list[str]:
    """A setting that is a part with settings of its own: each class that it can be, and their own parts."""
    lines = ["", f"#### {owner}: [{table}]", ""]
    lines.append(
        f"`name` = one of {', '.join(f'`{name}`' for name in part.known)}, or `package.module:Name` of your own;"
    )
    lines.append(f"by default `{part.default}`.")
    below: list[str] = []
    for name in part.known:
        cls = part.find(name, table)
        lines += ["", f"`{name}`: {_first(cls, sys.modules[cls.__module__])} (`{_file(cls)}`)", "", *_settings(cls)]
        for key, inner in parts_of(cls).items():
            below += _part(f"{owner}, {name}", f"{table}.{key}", inner)
    return lines + below


def strategy_table() -> str:
    """Every strategy with its settings, needs and file."""
    lines = ["| strategy | settings and defaults | needs of the task | topologies | file |", "|---|---|---|---|---|"]
    for name in names("strategy"):
        cls = find("strategy", name)
        own = [f for f in dataclasses.fields(cls) if f.init]
        settings = ", ".join(f"`{f.name} = {_toml(f.default)}`" for f in own)
        cells = name, settings, ", ".join(sorted(cls.requires)) or "–", ", ".join(sorted(cls.topologies))
        lines.append(f"| {' | '.join(cells)} | [{Path(_file(cls)).name}](../{_file(cls)}) |")
    return "\n".join(lines) + "\n"


def _settings(cls: type[Any]) -> list[str]:
    fields = [field for field in dataclasses.fields(cls) if field.init]
    if not fields:
        return ["No settings."]
    said, hints = comments(cls), typing.get_type_hints(cls)
    lines = ["| key | default | values | |", "|---|---|---|---|"]
    for field in fields:
        part: Part | None = field.metadata.get("part")
        values = _type(hints[field.name]) if part is None else "a name, or a table"
        default = _default_of(field) if part is None else f'`"{part.default}"`'
        lines.append(f"| `{field.name}` | {default} | {values} | {_cell(said.get(field.name, ''))} |")
    return lines


def _default_of(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f"`{_toml(field.default_factory())}`"
    if field.default is dataclasses.MISSING:
        return "needed"
    return "–" if field.default is None else f"`{_toml(field.default)}`"


def _type(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(f"`{value}`" for value in typing.get_args(hint))
    if parts := typing.get_args(hint):
        inner = [_type(part) for part in parts if part not in (type(None), ...)]
        return f"list of {inner[0]}" if typing.get_origin(hint) is tuple else " or ".join(inner)
    known = {"int": "whole number", "float": "number", "str": "text", "bool": "`true`, `false`"}
    return known.get(getattr(hint, "__name__", ""), str(hint))


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return str(list(value) if isinstance(value, tuple) else value)


def _first(*documented: Any) -> str:
    """The first sentence or line of what is said about a thing."""
    return next(str(each.__doc__).strip().splitlines()[0] for each in documented if each.__doc__)


def _file(cls: type[Any]) -> str:
    return f"src/{cls.__module__.replace('.', '/')}.py"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(docs: Path) -> None:
    """Write the pages."""
    for name, text in pages(docs).items():
        (docs / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
