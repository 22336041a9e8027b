"""The command line: `wayfare --help`.

Commands import what they call inside their functions, so that help and mistyped options do not wait for torch.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import click
import typer
from rich.text import Text

from wayfare.cli import (
    claims,
    data,
    demo,
    doctor,
    export,
    federate,
    graph,
    help,
    init,
    leakage,
    look,
    meet,
    predict,
    privacy,
    reproduce,
    runs,
    search,
    serve,
    study,
    sweep,
    town,
    traffic,
    use,
)
from wayfare.cli.console import err, tell
from wayfare.core.errors import WayfareError, suggestion

_HELP = """Learning from photographs without collecting them.

\b
[bold]Start here:[/bold]
  wayfare demo                       everything it does, on one page
  wayfare init DIR                   a recipe for your own photos or traces
  wayfare run quickstart             train a small federation
  wayfare serve                      all of it in a browser
  wayfare list recipes               all experiments that are ready to run
  wayfare COMMAND --help             help on a command, with examples
"""

app = typer.Typer(
    name="wayfare",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    suggest_commands=not hasattr(click.exceptions, "NoSuchCommand"),  # click 8.4 and newer do so themselves
    help=_HELP,
)
for module in (
    demo,
    init,
    runs,
    sweep,
    reproduce,
    claims,
    study,
    look,
    predict,
    use,
    search,
    graph,
    serve,
    export,
    data,
    town,
    traffic,
    leakage,
    privacy,
    federate,
    meet,
    doctor,
):
    module.add_to(app)
help.explain(app)


def _version(wanted: bool) -> None:
    if wanted:
        print(version("wayfare"))
        raise typer.Exit


@app.callback()
def root(
    show: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@functools.cache
def command() -> click.Command:
    """All commands; putting them together takes 0.1 s, so it is done once."""
    return typer.main.get_command(app)


def _suggest(error: click.BadParameter) -> None:
    """The value of a list that somebody may have meant."""
    choices, given = getattr(error.param and error.param.type, "choices", ()), error.message.split("'")
    if choices and len(given) > 1 and (meant := suggestion(given[1], map(str, choices))):
        err.print(meant.replace("; d", "D", 1), markup=False, highlight=False)


def _tell(kind: str, text: str, given: Sequence[str]) -> None:
    """An error, for people and for programs."""
    tell(Text.assemble((kind, "red bold"), " ", text))
    if "--json" in given:
        print(json.dumps({"error": text, "kind": kind}))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; exit status 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result = command()(given, standalone_mode=False)
        status = result if isinstance(result, int) else 0
    except click.ClickException as error:
        error.show(sys.stderr)
        if isinstance(error, click.BadParameter):
            _suggest(error)
        status = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        status = 130
    except WayfareError as error:
        if error.detail:
            err.print(error.detail, style="dim", markup=False, highlight=False)
        _tell(type(error).__name__, str(error), given)
        status = error.exit_status
    except BrokenPipeError:  # the reader of our output has gone, as in `wayfare list | head`
        sys.stderr.close()
        status = 1
    except OSError as error:  # a name that is too long, a folder that may not be written
        if error.filename is None or error.strerror is None:
            raise
        _tell("OSError", f"{error.filename}: {error.strerror}", given)
        status = 1
    if arguments is None:
        sys.exit(status)
    return status
