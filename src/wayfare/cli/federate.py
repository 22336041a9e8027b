"""wayfare federate: real devices, over Flower."""

from __future__ import annotations

import signal
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from wayfare.cli.console import AllowCode, Json, Settings, Watch, answer, err, interruptible, out, parse_settings
from wayfare.cli.federation_view import view, watched
from wayfare.cli.runs import Changed, fresh_folder
from wayfare.core.errors import ConfigError, WayfareError
from wayfare.deploy.status import status_of
from wayfare.pages.record import Record
from wayfare.pages.tables import run_table
from wayfare.papers.files import recipe_path
from wayfare.report import write_report

Certificates = Annotated[Path, typer.Option(help="The folder with the federation's keys, on the server.")]
_LOOK = 1.0  # seconds between two looks at a run


class Sandbox(StrEnum):
    """When to run a node in a sandbox."""

    auto = "auto"
    off = "off"
    required = "required"


federate = typer.Typer(no_args_is_help=True, help="Train with real devices whose photographs stay where they are.")


@federate.command()
def invite(
    name: Annotated[str, typer.Argument(help="The node's name: letters, digits, - and _.")],
    server: Annotated[str, typer.Option(help="The address at which the node reaches the server, HOST:PORT.")],
    certificates: Certificates = Path("keys"),
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file. Default: NAME.invite.")] = None,
    days: Annotated[int, typer.Option(min=1, help="How long the invitation is valid.")] = 365,
    json: Json = False,
) -> None:
    """Invite a node: write one file with all that it needs to join.

    The first invitation also creates the federation's certificate authority. The file holds the node's private key,
    which is kept nowhere else: give it to the node's owner over a secure channel.
    """
    from wayfare.deploy.invite import invite as write_invite
    from wayfare.deploy.keys import Roll
    from wayfare.engines.flower.simulation import require
    from wayfare.io.address import Address
    from wayfare.io.certificates import fingerprint

    require("flwr")
    file = out or Path(f"{name}.invite")
    write_invite(certificates, name, Address.read(server), days, file)
    key = fingerprint(Roll(certificates).public_keys()[name])
    text = f"{file}: for {name}, key {key}, valid for {days} days"
    answer({"invite": str(file), "name": name, "key": key, "days": days}, json, text)


@federate.command()
def revoke(
    name: Annotated[str, typer.Argument(help="The node's name.")],
    certificates: Certificates = Path("keys"),
    json: Json = False,
) -> None:
    """Revoke an invitation: from now on the node is refused, also by a running server."""
    from wayfare.deploy.keys import Roll
    from wayfare.engines.flower.simulation import require

    require("flwr")
    key = Roll(certificates).revoke(name)
    answer({"revoked": name, "key": key}, json, f"{name} is revoked, key {key}")


@federate.command()
def server(
    recipe: Annotated[str, typer.Option(help="A recipe: path or name. Not with --resume.")] = "",
    listen: Annotated[str, typer.Option(help="Address for nodes, HOST:PORT.")] = "127.0.0.1:8000",
    certificates: Certificates = Path("keys"),
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The run folder.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds to run, instead of the recipe's.")] = None,
    nodes: Annotated[int, typer.Option(min=0, help="Nodes to wait for; 0: all invited ones.")] = 0,
    wait: Annotated[float, typer.Option(help="Seconds to wait for them.")] = 3600.0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    allow_changed: Annotated[
        list[Changed] | None, typer.Option(help="With --resume: continue although this has changed. Repeatable.")
    ] = None,
    set_: Settings = None,
    allow_code: AllowCode = None,
    json: Json = False,
) -> None:
    """Wait for nodes, then run an experiment with them.

    The recipe's data.path is the server's own data: it defines the classes, and the model is tested on it.
    """
    from wayfare.deploy.server import serve
    from wayfare.experiment import Experiment
    from wayfare.io.address import Address

    if resume and (recipe or set_ or out is None):
        raise ConfigError("--resume continues the run in --out unchanged: leave out --recipe and --set")
    if not resume and not recipe:
        raise ConfigError("--recipe is missing: the experiment to run")
    changes = parse_settings(set_) | ({"rounds": rounds} if rounds is not None else {})
    experiment = None if resume else Experiment.read(recipe_path(recipe), changes)
    folder = out or fresh_folder(experiment.name if experiment else "")
    err.print(f"run folder: {folder}", highlight=False)
    with interruptible(f"wayfare federate server --resume --out {folder}"), watched(folder, err):
        watch = Watch(None, experiment.rounds if experiment else rounds or 0, folder.name)

        def notify(event: str, data: dict[str, Any]) -> None:
            if event == "listening":
                err.print(f"waiting for {data['nodes']} nodes on {data['address']}", highlight=False)
            elif event == "node":
                text = f"{data['name']} has joined with {data['samples']} samples ({data['found']} of {data['need']})"
                err.print(text, highlight=False, markup=False)
            elif event == "warning" or not err.is_terminal:  # the rest is in the view
                watch(event, data)

        summary = serve(
            experiment,
            folder,
            listen=Address.read(listen),
            certificates=certificates,
            nodes=nodes,
            wait=wait,
            notify=notify,
            rounds=rounds or 0 if resume else 0,
            allow_changed=allow_changed or (),
        )
    answer(summary, json, run_table(Record.read(folder)), f"report: {write_report(folder)}")


@federate.command()
def join(
    invite: Annotated[Path, typer.Argument(help="The file that `wayfare federate invite` wrote for this node.")],
    photos: Annotated[Path, typer.Option(help="This device's folder of photos. No file in it leaves this machine.")],
    home: Annotated[Path | None, typer.Option(help="Where it keeps its state. Default: ~/.wayfare/nodes/NAME.")] = None,
    sandbox: Annotated[
        Sandbox, typer.Option(help="auto: where the system allows it; required: refuse to run without; off.")
    ] = Sandbox.auto,
    allow_code: Annotated[
        list[str] | None,
        typer.Option(
            help="Let the server's recipe use classes of this module, installed here. Repeatable.", metavar="NAME"
        ),
    ] = None,
) -> None:
    """Take part in a federation with a folder of photographs, until interrupted.

    The node runs the installed Wayfare and no other app, whatever its server sends. On Linux it runs in a sandbox where
    the photographs cannot be changed and nothing but the server can be reached.
    [bold]wayfare explain-traffic RECIPE[/bold] shows what would leave the device.
    """
    from wayfare.deploy.invite import read_invite
    from wayfare.deploy.node import Node
    from wayfare.engines.flower.simulation import require

    require("flwr")
    found = read_invite(invite)
    if invite.stat().st_mode & 0o077:
        err.print(f"warning: others can read {invite}; it holds this node's key: chmod 600", markup=False)
    node = Node(
        found, photos, home or Path("~/.wayfare/nodes").expanduser() / found.name, sandbox.value, allow_code or ()
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as services are stopped: all that was started ends too
    err.print(f"{found.name} joins {found.server}; its log is {node.home / 'node.log'}", markup=False, highlight=False)
    status = node.join(lambda line: err.print(line, markup=False, highlight=False, soft_wrap=True))
    raise WayfareError(
        f"{found.name} was refused, or the server cannot be reached: Flower's node ended with status {status}, see "
        f"{node.home / 'flower.log'}. The server's owner sees refusals with `wayfare federate status RUN`"
    )


@federate.command()
def status(
    run: Annotated[Path, typer.Argument(help="The run folder, on the server's machine.")],
    watch: Annotated[bool, typer.Option("--watch", help="Keep it up to date, until the run is finished.")] = False,
    json: Json = False,
) -> None:
    """Show a federation's nodes, rounds and bytes."""
    found = status_of(run)
    if watch and not json:
        with watched(run, out):
            while not found["finished"]:
                time.sleep(_LOOK)
                found = status_of(run)
        if out.is_terminal:
            return  # it is there to be seen
    answer(found, json, view(found))


def add_to(app: typer.Typer) -> None:
    """Register these commands."""
    app.add_typer(federate, name="federate")
