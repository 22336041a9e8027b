"""wayfare init: from a folder of one's own to a recipe."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from rich.progress import MofNCompleteColumn
from rich.text import Text as Sentence

from wayfare.cli.console import (
    ColumnOfLabels,
    ColumnOfPhotos,
    ColumnOfTexts,
    Json,
    Layout,
    answer,
    err,
    foreign,
    list_notes,
    progress_bar,
    tell,
)
from wayfare.core import disk
from wayfare.core.errors import ConfigError
from wayfare.core.text import printable

if TYPE_CHECKING:
    from wayfare.experiment import Experiment
    from wayfare.starting.columns import PairColumns
    from wayfare.starting.inspect import Inspected
    from wayfare.starting.templates import Choices

_NONE, _WORDS_AS_LABELS = "none", "words:5"
_MOST_TRIED = 5000  # samples up to which a device is tried before the run
_TASKS = {
    "places": "where a photo was taken",
    "objects": "what is in a photo",
    "hashing": "finding photos by words",
    "scenes": "how things in a picture relate",
    "attributes": "an attribute of faces",
    "tour": "devices that meet",
}
Task = Annotated[
    str, typer.Option("--task", help="What to learn, if the data allows several tasks: places, objects, ...")
]
By = Annotated[
    str,
    typer.Option("--by", help="How photos are assigned to clients: a column of the table, folder, place or random."),
]
Clients = Annotated[int, typer.Option("--clients", min=0, help="Number of clients to divide the data among.")]
Pictures = Annotated[
    Path | None, typer.Option("--pictures", help="For traces: class folders of pictures that the devices hold.")
]


def init(
    data: Annotated[Path, typer.Argument(help="Your folder or file: photos, class folders, pairs, psg.json, traces.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The recipe to write. Default: NAME.toml in the current folder.")
    ] = None,
    task: Task = "",
    by: By = "",
    clients: Clients = 0,
    rounds: Annotated[
        int, typer.Option("--rounds", min=0, help="Number of rounds. Default: that of similar recipes.")
    ] = 0,
    pictures: Pictures = None,
    photo: ColumnOfPhotos = "",
    text: ColumnOfTexts = "",
    labels: ColumnOfLabels = "",
    layout: Layout = "",
    force: Annotated[bool, typer.Option("--force", help="Replace an existing recipe.")] = False,
    json: Json = False,
) -> None:
    """Inspect your data and write a recipe for it, with a page about its clients and an estimate of what a run takes.

    In a terminal it asks up to three questions about what the data does not say; options answer them in advance.
    """
    from wayfare.starting.columns import PairColumns
    from wayfare.starting.templates import Choices

    recipe = out or Path(f"{data.resolve().name.partition('.')[0] or 'mine'}.toml")
    if recipe.exists() and not force:
        raise ConfigError(f"{recipe} already exists: run it with `wayfare run {recipe}`, or replace it with --force")
    made = make_recipe(
        data,
        recipe,
        Choices(task, by, clients, rounds, pictures),
        layout,
        asks=not json,
        columns=PairColumns(photo, text, labels),
    )
    shown = (
        f"recipe: {recipe} ({made['task']}: {_TASKS[made['task']]}; {made['clients']:,} clients)",
        f"page: {made['page']}",
        *map(Sentence, (made["estimate"], *made["hints"])),  # sentences: broken between words
        f"Next: wayfare run {quote(str(recipe))}",
    )
    answer(made, json, *shown)


def make_recipe(
    data: Path,
    recipe: Path,
    choices: Choices,
    layout: str = "",
    asks: bool = True,
    *,
    columns: PairColumns | None = None,
) -> dict[str, Any]:
    """Look at data, ask what is not clear, and write recipe and split page; what was found and what a run takes."""
    from wayfare.starting.inspect import inspect
    from wayfare.starting.templates import first_that_fits, hints

    def look(told: PairColumns | None) -> Inspected:
        with progress_bar(f"looking at {data}", MofNCompleteColumn(), transient=True) as progress:
            found = inspect(data, layout, partial(progress, f"looking at {data}"), told)
        tell(printable(found.sentence(), 1000))
        list_notes(found.odd)
        return found

    inspected = look(columns)
    if asks and err.is_terminal and sys.stdin.isatty():
        chosen = _asked_columns(inspected, columns)
        if chosen != inspected.columns:
            inspected = look(chosen)
        choices = _asked(inspected, choices)
    with err.status("writing a recipe for it"):
        text, experiment = first_that_fits(inspected, choices, recipe.stem)
    disk.write(recipe, text.encode())
    page, found = _split_page(experiment, recipe.with_name(f"{recipe.stem}-split.html"))
    taken, task = _estimate(experiment, recipe), inspected.task(choices.task)
    return {
        "recipe": str(recipe),
        "page": str(page),
        "layout": inspected.found.layout,
        "task": task,
        "counts": dict(inspected.findings.counts),
        "odd": inspected.odd,
        "clients": found,
        "estimate": taken,
        "hints": hints(task),
    }


def _split_page(experiment: Experiment, file: Path) -> tuple[Path, int]:
    from wayfare.pages.partition import write_partition
    from wayfare.pages.thumbnails import PictureSource, Thumbnails
    from wayfare.partition.summary import summarise_split

    split, thumbnails = experiment.split(), Thumbnails()
    summary = summarise_split(split, experiment.task)
    return (
        write_partition(summary, file, lambda f, side: thumbnails.picture(PictureSource(Path(f), ""), side)),
        len(split),
    )


def _estimate(experiment: Experiment, recipe: Path) -> str:
    """What a run will take, by a trial; what the trial prepares, the run finds in the cache."""
    from wayfare.starting.estimate import estimate

    if experiment.task.samples > _MOST_TRIED:
        return (
            f"not estimated, because preparing {experiment.task.samples:,} samples takes long: a run shows the time "
            f"left, and `wayfare explain-traffic {recipe}` shows what a device sends"
        )
    with progress_bar("trying one device", MofNCompleteColumn(), transient=True) as progress:
        experiment.task.prepare(progress)
        return estimate(experiment, experiment.split()).text()


# ---- questions


def _asked_columns(inspected: Inspected, told: PairColumns | None) -> PairColumns:
    """Which columns are texts and labels, where their names do not say it."""
    from wayfare.starting.columns import PairColumns, guessed

    found = inspected.columns
    if not found:
        return found
    for role, examples in guessed(inspected.path, found, told or PairColumns()).items():
        words = dict(examples)
        if role == "labels":
            words.pop(found.text, None)
            words = words | {_NONE: ""} if found.labels else {_NONE: "", **words}
        answer = _choice(f"Which column has the {'texts' if role == 'text' else role} of the photos?", words)
        if answer != _NONE:
            found = replace(found, **{role: answer})
        elif found.labels:
            found = replace(found, labels=_WORDS_AS_LABELS)
    return found


def _asked(inspected: Inspected, choices: Choices) -> Choices:
    """What cannot be told from the data: what to learn, and whose photos are whose."""
    if len(inspected.tasks) > 1 and not choices.task:
        words = {task: _TASKS[task] for task in inspected.tasks}
        choices = replace(choices, task=_choice("What should the model learn?", words))
    if inspected.owners and not choices.by and not choices.clients:
        words = {name: f"{count} clients" for name, count in inspected.owners.items()}
        choices = replace(
            choices, by=_choice("How are the photos assigned to clients?", words | {"random": "at random"})
        )
    if not inspected.owners and not choices.clients and inspected.task(choices.task) in ("objects", "hashing"):
        question = "The data does not say whose photos are whose. Among how many clients should they be divided?"
        clients = typer.prompt(question, 10, type=click.IntRange(2))
        choices = replace(choices, clients=clients)
    return choices


def _choice(question: str, words: dict[str, str]) -> str:
    err.print(question)
    for number, (name, about) in enumerate(words.items(), start=1):
        err.print(f"  {number}  {foreign(name)}{': ' if about else ''}{foreign(about, 60)}", highlight=False)
    return list(words)[typer.prompt("Number", 1, type=click.IntRange(1, len(words))) - 1]


def add_to(app: typer.Typer) -> None:
    """Register this command."""
    app.command()(init)
