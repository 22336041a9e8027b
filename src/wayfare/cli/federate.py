"""wayfare federate: real devices, over Flower."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from wayfare.cli.console import Json, Settings, Watch, answer, err, interruptible, out, parse_settings
from wayfare.cli.federation_view import view, watched
from wayfare.cli.runs import fresh_folder
from wayfare.core.errors import ConfigError, WayfareError
from wayfare.deploy.status import status_of
from wayfare.pages.record import Record
from wayfare.pages.tables import run_table
from wayfare.papers.files import recipe_path
from wayfare.report import write_report

_LOOK = 1.0  # seconds between two looks at a run

federate = typer.Typer(no_args_is_help=True, help="Train with real devices whose photographs stay where they are.")


@federate.command()
def keys(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for them.")],
    node: Annotated[list[str] | None, typer.Option(help="A node's name; repeatable. More can be added later.")] = None,
    host: Annotated[
        list[str] | None, typer.Option(help="Name or address by which nodes reach the server; repeatable.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="How long the certificates are valid.")] = 365,
    json: Json = False,
) -> None:
    """Make certificates and keys for a trial: an authority, the server's certificate, a key for each node.

    Give each node its own file of nodes/ and ca.crt. Without --host the certificate is for this machine only.
    """
    from wayfare.deploy.keys import make_keys
    from wayfare.engines.flower.simulation import require

    require("flwr")
    made = make_keys(out, node or [], host or ["localhost", "127.0.0.1", "::1"], days)
    answer({"made": [str(path) for path in made]}, json, *(str(path) for path in made))


@federate.command()
def server(
    recipe: Annotated[str, typer.Option(help="A recipe: path or name. Not with --resume.")] = "",
    listen: Annotated[str, typer.Option(help="Address for nodes, HOST:PORT.")] = "127.0.0.1:8000",
    certificates: Annotated[
        Path | None, typer.Option(help="What `wayfare federate keys` made. Without: no encryption, anybody may join.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The run folder.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds to run, instead of the recipe's.")] = None,
    nodes: Annotated[int, typer.Option(min=0, help="Nodes to wait for; 0: all that have keys.")] = 0,
    wait: Annotated[float, typer.Option(help="Seconds to wait for them.")] = 3600.0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    set_: Settings = None,
    json: Json = False,
) -> None:
    """Wait for nodes, then run an experiment with them.

    The recipe's data.path is the server's own data: it says what the classes are, and is what the model is tested on.
    """
    from wayfare.deploy.server import Address, serve
    from wayfare.experiment import Experiment

    if resume and (recipe or set_ or out is None):
        raise ConfigError("--resume continues the run in --out unchanged: leave out --recipe and --set")
    if not resume and not recipe:
        raise ConfigError("--recipe is missing: the experiment to run")
    changes = parse_settings(set_) | ({"rounds": rounds} if rounds is not None else {})
    experiment = None if resume else Experiment.read(recipe_path(recipe), changes)
    folder = out or fresh_folder(experiment.name if experiment else "")
    if certificates is None:
        err.print("[yellow]warning[/yellow] without --certificates nothing is encrypted and anybody may join")
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
        )
    answer(summary, json, run_table(Record.read(folder)), f"report: {write_report(folder)}")


@federate.command()
def join(
    server: Annotated[str, typer.Option(help="The server's address, HOST:PORT.")],
    photos: Annotated[Path, typer.Option(help="The folder that this device has. Nothing in it leaves this machine.")],
    as_: Annotated[str, typer.Option("--as", help="This device's name; by default this machine's.")] = "",
    key: Annotated[Path | None, typer.Option(help="This node's private key.")] = None,
    authority: Annotated[Path | None, typer.Option(help="ca.crt; by default the one beside nodes/ or the key.")] = None,
    home: Annotated[Path | None, typer.Option(help="Where it keeps its state. Default: ~/.wayfare/nodes/NAME.")] = None,
) -> None:
    """Take part in a federation with a folder of photographs, until interrupted.

    A node does what its server asks, and Flower lets the server send it programs: join only one that you trust.
    [bold]wayfare explain-traffic RECIPE[/bold] shows what would leave the device.
    """
    from wayfare.deploy.node import Node
    from wayfare.deploy.server import Address

    name = as_ or (key.stem if key else socket.gethostname().partition(".")[0])
    if key is not None and authority is None:
        beside = [key.parent / "ca.crt", key.parent.parent / "ca.crt"]
        authority = next((file for file in beside if file.is_file()), None)
    place = home or Path("~/.wayfare/nodes").expanduser() / name
    node = Node(Address.read(server), photos, name, place, key=key, authority=authority)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as services are stopped: all that was started ends too
    status = node.join()
    raise WayfareError(
        f"Flower's node ended with status {status}: see its output above. If it was not activated, the server does not "
        "know its key: make it with `wayfare federate keys` in the folder that the server uses"
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
