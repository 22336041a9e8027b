"""What the help of a command shows beside its options: examples, and the heading under which it stands.

They are in one place so that one test can go over all of them, and over all commands.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand

HEADINGS = {
    "Train": ("demo", "init", "run", "resume", "sweep", "federate", "meet", "peer"),
    "Inspect": ("report", "compare", "list", "split", "explain-traffic", "leakage", "privacy", "doctor"),
    "Use a trained model": ("serve", "predict", "index", "locate", "search", "detect", "graph", "evaluate", "export"),
    "Data": ("town", "data"),
    "The papers": ("reproduce", "claims", "study"),
}

EXAMPLES = {
    "demo": ["wayfare demo --out runs/demo", "wayfare demo --quick --out runs/quick"],
    "init": [
        "wayfare init my-photos",
        "wayfare init my-photos --by photographer --out mine.toml",
        "wayfare init shop --text title --labels kind",
    ],
    "run": [
        "wayfare run quickstart",
        "wayfare run quickstart --baselines",
        "wayfare run quickstart --set strategy.name=scaffold --seeds 3",
        "wayfare run my.toml --rounds 50 --out runs/mine",
    ],
    "sweep": [
        "wayfare sweep quickstart --try training.lr=0.01..0.3 --trials 15",
        "wayfare sweep quickstart --try training.epochs=1,2,5",
    ],
    "resume": ["wayfare resume runs/mine", "wayfare resume runs/mine --rounds 100"],
    "reproduce": [
        "wayfare reproduce quickstart",
        "wayfare reproduce fedvpr/table4 --cells fedavg,fedvc-500 --seeds 3",
        "wayfare reproduce fedvpr/table4 --data MSLS",
    ],
    "claims": ["wayfare claims --list", "wayfare claims --only 'fedvpr/gem-*' --seeds 9"],
    "study": ["wayfare study fedtour/study --out study.safetensors --models 33"],
    "report": ["wayfare report runs/mine"],
    "compare": [
        "wayfare compare runs/mine runs/other",
        "wayfare compare runs --out compare.html",
        "wayfare compare runs/mine runs/other --reach test/accuracy=0.9",
    ],
    "list": ["wayfare list strategies", "wayfare list recipes", "wayfare list runs --in runs"],
    "split": [
        "wayfare split quickstart",
        "wayfare split quickstart --set partition.alpha=0.1 --out split.html",
    ],
    "index": [
        "wayfare index runs/places --photos my-city",
        "wayfare index runs/shop --texts captions.csv --photos my-photos",
    ],
    "predict": ["wayfare predict holiday.jpg --run runs/sights", "wayfare predict my-photos --run runs/sights -k 5"],
    "locate": ["wayfare locate holiday.jpg --index runs/places/index --out where.html"],
    "evaluate": [
        "wayfare evaluate runs/mine",
        "wayfare evaluate runs/mine --photos my-test-photos",
        "wayfare evaluate runs/places/index --photos my-queries --out score.html",
    ],
    "search": [
        'wayfare search "red shirt" --index runs/shop/index',
        "wayfare search --photo look.jpg --index runs/shop/index -k 5",
    ],
    "detect": [
        "wayfare detect photos --head town.head --learn my-town/psg --out found",
        "wayfare detect holiday.jpg --head town.head --out found",
    ],
    "graph": [
        "wayfare graph holiday.jpg --run runs/scenes --head my.head --out graphs",
        "wayfare graph holiday.jpg --run runs/scenes --boxes boxes.json --out graphs",
    ],
    "serve": [
        "wayfare serve runs",
        "wayfare serve runs --index my-city/index --no-open --port 8000",
        "wayfare serve runs --certificates keys",
        "wayfare serve --device ~/.wayfare/peers/anna",
    ],
    "export": [
        "wayfare export runs/places --to web",
        "wayfare export runs/mine --to onnx --int8 --out for-my-app",
        "wayfare export runs/mine --to executorch",
    ],
    "town": ["wayfare town my-town --size tiny", "wayfare town my-town --only msls,psg --seed 3"],
    "explain-traffic": [
        "wayfare explain-traffic quickstart",
        "wayfare explain-traffic quickstart --set strategy.name=fedproto --json",
    ],
    "leakage": [
        "wayfare leakage quickstart",
        "wayfare leakage quickstart --set strategy.name=fedproto --rounds 3 --json",
    ],
    "doctor": ["wayfare doctor --json"],
    "privacy plan": ["wayfare privacy plan --clients 1000 --per-round 100 --rounds 200 --epsilon 4"],
    "privacy spent": ["wayfare privacy spent runs/mine"],
    "data check": [
        "wayfare data check my-town",
        "wayfare data check my-photos --strict",
        "wayfare data check my-shop --text title --labels kind",
    ],
    "data show": ["wayfare data show my-town --out my-town.html"],
    "data get": [
        "wayfare data get cifar10",
        "wayfare data get dinov2-s",
        "wayfare data get minilm",
        "wayfare data get onnxruntime-web",
    ],
    "data import-weights": ["wayfare data import-weights resnet18-f37072fd.pth resnet18.safetensors"],
    "peer invite": [
        "wayfare peer invite anna --recipe phones.toml --peer 10.0.0.7:8100",
        "wayfare peer invite sign-1 --recipe phones.toml --signage",
    ],
    "peer show": ["wayfare peer show anna", "wayfare peer show anna --out anna.html"],
    "meet": [
        "wayfare meet anna.invite --photos mine --listen 0.0.0.0:8100",
        "wayfare meet phones.toml --name anna --photos mine --listen 0.0.0.0:8100",
        "wayfare meet phones.toml --name bert --photos mine --peer 10.0.0.7:8100",
        "wayfare meet phones.toml --name sign --signage --probe measure --discover",
    ],
    "federate invite": ["wayfare federate invite camera-1 --server example.org:8000"],
    "federate revoke": ["wayfare federate revoke camera-1"],
    "federate server": [
        "wayfare federate server --recipe my.toml --listen 0.0.0.0:8000 --out runs/1",
        "wayfare federate server --resume --listen 0.0.0.0:8000 --out runs/1",
    ],
    "federate join": ["wayfare federate join camera-1.invite --photos my-photos"],
    "federate status": ["wayfare federate status runs/first", "wayfare federate status runs/first --watch"],
}


class Command(TyperCommand):
    """A command whose arguments keep their help: with typer 0.20, click 8.5 loses it."""

    def __init__(self, name: str | None, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        hints = typing.get_type_hints(inspect.unwrap(self.callback), include_extras=True) if self.callback else {}
        for parameter in self.params:
            if isinstance(parameter, TyperArgument):
                said = getattr(hints.get(str(parameter.name)), "__metadata__", ())
                parameter.help = next((each.help for each in said), parameter.help)


def explain(app: typer.Typer) -> None:
    """Give every command its examples and its heading."""
    headings = {name: heading for heading, names in HEADINGS.items() for name in names}
    app.registered_commands.sort(key=lambda command: [*headings, _name(command)].index(_name(command)))
    for group in app.registered_groups:
        group.rich_help_panel = headings.get(str(group.name))
    for name, command in _commands(app):
        command.rich_help_panel, command.cls = headings.get(name), Command
        command.help = paragraphs(command.help or inspect.getdoc(command.callback) or "")
        if name in EXAMPLES:
            command.epilog = "\n\n".join(["[bold]Examples[/bold]", *EXAMPLES[name]])


def paragraphs(text: str) -> str:
    """A docstring as typer should show it: it keeps the line ends of all paragraphs but the first, and takes [privacy]
    for markup. Only [bold] is.
    """
    kept = [each if each.startswith("\b") else " ".join(each.split()) for each in inspect.cleandoc(text).split("\n\n")]
    return re.sub(r"(?<!\\)\[(?!/?bold\])", r"\\[", "\n\n".join(kept))


def _name(command: typer.models.CommandInfo) -> str:
    return command.name or str(getattr(command.callback, "__name__", ""))


def _commands(app: typer.Typer, before: str = "") -> Iterator[tuple[str, typer.models.CommandInfo]]:
    for command in app.registered_commands:
        yield before + _name(command), command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _commands(group.typer_instance, f"{group.name} ")
