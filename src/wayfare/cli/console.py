"""What every command shares: two consoles, options, progress.

Names, reasons and metrics come from elsewhere. `foreign` makes them text that stands between our own markup, and the
consoles write no control character that is not rich's own, whoever forgot it.
"""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.errors import MarkupError
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Task as ProgressTask
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from wayfare.core.errors import ConfigError
from wayfare.core.text import printable, printable_lines
from wayfare.pages.tables import human_bytes, human_seconds, number, plain

Show = Callable[[str, int, int | None], None]  # what is being done, how far, of how many
_MOST_LISTED = 20  # lines of what was left out, and of notes


class SafeConsole(Console):
    """A console on which text from elsewhere is only text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield (
                segment if segment.control else segment._replace(text=printable_lines(segment.text, len(segment.text)))
            )

    def render_str(self, text: str, **options: Any) -> Text:
        try:
            return super().render_str(text, **options)
        except MarkupError:  # brackets that are no markup
            return super().render_str(text, **{**options, "markup": False})


out = SafeConsole()
err = SafeConsole(stderr=True)


def foreign(value: object, limit: int = 300) -> str:
    """Text from elsewhere, to stand between markup of ours."""
    return escape(printable(value, limit))


Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print the result as one JSON object on standard output; messages go to standard error."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change a setting of the recipe, for example training.lr=0.1 or strategy.name=moon. Repeatable.",
        metavar="KEY=VALUE",
    ),
]
AllowCode = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-code",
        help="Let the recipe, run or index use your own classes from this module or package. Repeatable.",
        metavar="NAME",
        callback=lambda names: _allow(names or []),
    ),
]
Layout = Annotated[
    str,
    typer.Option(
        "--layout",
        help="The layout, if it is not recognised correctly: photos, folder, csv_pairs, psg, traces, intervals, ...",
        metavar="NAME",
    ),
]
ColumnOfPhotos = Annotated[
    str, typer.Option("--photo", help='Of a table: the column that names photos, or a pattern like "img/{id}.jpg".')
]
ColumnOfTexts = Annotated[
    str, typer.Option("--text", help='Of a table: the column of texts, or several: "title+tags".')
]
ColumnOfLabels = Annotated[str, typer.Option("--labels", help="Of a table: the column of labels.")]
MadeIndex = Annotated[Path | None, typer.Option("--index", help="The folder that [bold]wayfare index[/bold] made.")]
IndexedRun = Annotated[
    Path | None, typer.Option("--run", help="Instead of --index: the folder of the run, whose index is RUN/index.")
]
Recipe = Annotated[
    str, typer.Argument(help="The path of a TOML file, or a name from [bold]wayfare list recipes[/bold].")
]


def _allow(names: list[str]) -> list[str]:
    if names:
        from wayfare.components import allow_code

        allow_code(*names)
    return names


def index_of(index: Path | None, run: Path | None) -> Path:
    """The folder that --index names, or that of the run that --run names."""
    if (index is None) == (run is None):
        raise ConfigError("say which index to look in: --index DIR, or --run RUN, whose index is RUN/index")
    return index if index is not None else Path(run or "", "index")


def tell(text: str | Text) -> None:
    """Write sentences to standard error: broken between words in a terminal, in one line elsewhere."""
    shown = Text(text) if isinstance(text, str) else text
    err.print(shown, highlight=False, soft_wrap=not err.is_terminal)


def answer(result: dict[str, Any], as_json: bool, *shown: Any) -> None:
    """A command's result: JSON on standard output, or something to look at."""
    if as_json:
        print(json.dumps(result, default=str))
    else:
        for item in shown:
            is_text = isinstance(item, str)  # a path or a command in it is not broken, so that it can be copied
            out.print(item, markup=False if is_text else None, soft_wrap=is_text)


def plain_table(title: str) -> Table:
    """An empty table under a title that may hold anything, such as the name of a file."""
    return Table(
        title=Text(plain(title)), box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False
    )


def list_notes(lines: Sequence[str]) -> None:
    """Print notes on standard error, and how many more there are where they are many."""
    for line in lines[:_MOST_LISTED]:
        tell(Text(plain(line, 1000), style="yellow"))
    if len(lines) > _MOST_LISTED:
        err.print(f"and {number(len(lines) - _MOST_LISTED)} more", style="yellow")


@contextmanager
def progress_bar(text: str, *columns: ProgressColumn, transient: bool = False) -> Iterator[Show]:
    """A bar on standard error that the function it gives moves; by default with counts and the time left."""
    columns = columns or (MofNCompleteColumn(), TimeRemainingColumn())
    shown = (TextColumn("{task.description}"), BarColumn(), *columns)
    with Progress(*shown, console=err, transient=transient) as progress:
        bar = progress.add_task(foreign(text), total=None)

        def show(text: str, done: int, total: int | None) -> None:
            progress.update(bar, description=foreign(text), completed=done, total=total or None)

        yield show


def parse_settings(pairs: list[str] | None) -> dict[str, Any]:
    """KEY=VALUE pairs; values are TOML, and plain words are text."""
    changes: dict[str, Any] = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {pair!r}: expected KEY=VALUE, such as training.lr=0.1")
        try:
            changes[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            changes[key.strip()] = value
    return changes


_MANY = 200  # rounds of which not every one gets a line


class Watch:
    """Shows a run's progress on standard error: a live bar on a terminal, a line per round elsewhere."""

    def __init__(self, progress: Progress | None, rounds: int, label: str, left: TimeLeft | None = None) -> None:
        self.progress, self.label, self.rounds, self.several = progress, foreign(label), rounds, left is not None
        self.left = left or TimeLeft(rounds)
        self.devices, self.sent, self.exchanges, self.preparing, self.unit = 0, 0, 0, "", "round"
        self.metrics: dict[str, float] = {}
        self.task = progress.add_task(self.label, total=rounds) if progress else None

    def __call__(self, event: str, data: dict[str, Any]) -> None:
        if event == "warning":
            err.print(f"[yellow]warning[/yellow] {foreign(data['text'], 1000)}")
        elif event == "rounds":
            self.unit = "slot" if data.get("slots") else "round"
            self._count(data["rounds"])
        elif event == "preparing":
            self._prepare(data["text"], data["done"], data["total"])
        elif event == "device":
            self.devices += 1
            self._show(f"{self.label}  {self.devices} replies")
        elif event == "round":
            self._round(data)

    def _count(self, rounds: int) -> None:
        """How many rounds there are, now that it is known."""
        self.rounds = self.left.rounds = rounds
        if self.progress is not None and self.task is not None:
            self.progress.update(self.task, total=rounds)

    def _prepare(self, text: str, done: int, total: int) -> None:
        text = foreign(text)
        if self.progress is not None and self.task is not None:
            self.progress.update(self.task, description=f"{self.label}  {text} {done:,}/{total:,}")
        elif text != self.preparing:
            err.print(f"{self.label}  {text} ({total:,}) ...", soft_wrap=True, highlight=False)
        self.preparing = text

    def _round(self, line: dict[str, Any]) -> None:
        self.devices = 0
        self.sent += line["bytes_up"] + line["bytes_down"]
        self.exchanges += len(line.get("events", {}).get("taker", ()))
        self.metrics = line["metrics"] or self.metrics
        shown = _shown(self.metrics)[: 2 if self.progress is None else 1]
        metrics = "  ".join(f"{foreign(name, 80)} {self.metrics[name]:.4g}" for name in shown)
        metrics += f"  {self.exchanges:,} exchanges" if self.exchanges else ""
        noted = ("refused", "shortened", "cold")
        notes = "".join(f"  [red]{len(line[key])} {key}[/red]" for key in noted if line.get(key))
        text = f"{self.label}  {metrics}  {human_bytes(self.sent)}{notes}{'  [red]void[/red]' if line['void'] else ''}"
        self.left.hear(line)
        if self.progress is None or self.task is None:
            text += self.left.text if self.several else ""
            if self.rounds > _MANY and line["round"] % (self.rounds // 20) and not line["metrics"]:
                return
            place = f"{self.unit} {line['round']}/{self.rounds}"
            err.print(f"{place}  {text}  {line['seconds']:.2f} s", soft_wrap=True, highlight=False)
        else:
            self.progress.update(self.task, completed=line["round"], description=text, end=self.left.end_time)

    def _show(self, text: str) -> None:
        if self.progress is not None and self.task is not None and self.progress.tasks[self.task].completed == 0:
            self.progress.update(self.task, description=text)


class TimeLeft:
    """How long runs still take: the present one by its rounds so far, the others like those that are done."""

    def __init__(self, rounds: int = 0) -> None:
        self.waiting = 0  # runs after the present one
        self.taken: list[float] = []  # seconds of each run that is done
        self.rounds, self.round, self.heard = rounds, 0, list[float]()

    def begin(self, rounds: int, waiting: int) -> None:
        """The next run, of so many rounds."""
        self.rounds, self.waiting, self.round, self.heard = rounds, waiting, 0, []

    def hear(self, line: dict[str, Any]) -> None:
        """A round is done; round 0 is only an evaluation."""
        if line["round"]:
            self.round = line["round"]
            self.heard.append(line["seconds"])

    def end(self, seconds: float) -> None:
        """The present run is done."""
        self.taken.append(seconds)

    @property
    def seconds(self) -> float | None:
        """None before the first round."""
        if not self.heard:
            return None
        each = sum(self.heard) / len(self.heard)
        whole = sum(self.taken) / len(self.taken) if self.taken else each * self.rounds
        return each * (self.rounds - self.round) + whole * self.waiting

    @property
    def end_time(self) -> float | None:
        """By `time.monotonic`."""
        return None if self.seconds is None else time.monotonic() + self.seconds

    @property
    def text(self) -> str:
        return "" if self.seconds is None else f"  about {human_seconds(self.seconds)} left in all"


class TimeLeftColumn(ProgressColumn):
    """What `TimeLeft` says, counted down.

    Rich's own column forgets what is older than 30 seconds: it has no estimate where rounds take longer.
    """

    max_refresh = 0.5

    def render(self, task: ProgressTask) -> Text:
        end = task.fields.get("end")
        seconds = 0.0 if end is None else max(0.0, end - time.monotonic())
        return Text("" if end is None else f"{human_seconds(seconds)} left", style="progress.remaining")


class WatchAll:
    """Shows the progress of several runs, one after another."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._left = progress, TimeLeft()
        self._watch = Watch(None, 0, "")

    def __call__(self, event: str, data: dict[str, Any]) -> None:
        if event == "experiment":
            self._left.begin(data["rounds"], data["waiting"])
            label = f"[{data['number']}/{data['total']}] {data['name']}"
            self._watch = Watch(self._progress, data["rounds"], label, self._left)
        elif event == "finished":
            self._left.end(data["seconds"])
        else:
            self._watch(event, data)


def _shown(metrics: dict[str, float]) -> list[str]:
    scores = [name for name in metrics if not name.endswith("loss")]
    scores.sort(key=lambda name: name.startswith(("privacy/", "clock/")))
    return scores or list(metrics)


@contextmanager
def interruptible(how_to_go_on: str, kept: str = "every completed round") -> Iterator[None]:
    """Ctrl-C ends cleanly and says how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        err.print(f"[yellow]Interrupted.[/yellow] {kept.capitalize()} is kept. To continue:", highlight=False)
        err.print(f"  {how_to_go_on}", markup=False, highlight=False, soft_wrap=True)
        raise


@contextmanager
def watching() -> Iterator[Progress | None]:
    """A live display in a terminal, and in a notebook that can show one: it needs ipywidgets."""
    if not (err.is_terminal or (err.is_jupyter and find_spec("ipywidgets"))):
        yield None
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=12), MofNCompleteColumn(), TimeLeftColumn(),
    )  # fmt: skip
    with Progress(*columns, console=err) as progress:
        yield progress
