"""The command that starts the web application."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from wayfare.cli.console import AllowCode, err
from wayfare.core.errors import ConfigError


def serve(
    runs: Annotated[
        Path | None, typer.Argument(help="A folder with runs and the indexes in them.", metavar="[RUNS_DIR]")
    ] = None,
    index: Annotated[
        list[Path] | None, typer.Option("--index", help="An index that [bold]wayfare index[/bold] made. Repeatable.")
    ] = None,
    certificates: Annotated[
        list[Path] | None,
        typer.Option("--certificates", help="A federation's folder of keys, to invite and revoke nodes. Repeatable."),
    ] = None,
    device: Annotated[
        list[Path] | None,
        typer.Option("--device", help="The folder of a device that meets others (its --home). Repeatable."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any that is free.")] = 8080,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
    lan: Annotated[
        str | None,
        typer.Option(
            "--lan",
            help="Let other machines connect at this address (0.0.0.0 or one of this machine's). Needs --tls-cert, "
            "--tls-key, --host-name, and a password in the environment variable WAYFARE_PASSWORD.",
            metavar="ADDRESS",
        ),
    ] = None,
    host_name: Annotated[
        list[str] | None, typer.Option("--host-name", help="With --lan: a name that browsers use. Repeatable.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="With --lan: the certificate, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="With --lan: its private key, PEM.")] = None,
    allow_code: AllowCode = None,
) -> None:
    """Use models and watch runs in a browser: locate photos, search by words, scene graphs, live curves.

    It listens on this machine only, and opens only with the address that it prints. Photos are decoded in a separate
    process, sandboxed where the system allows it. Their pixels are kept until the server stops; the files are not kept.
    """
    try:
        from wayfare.serve.launch import Lan, launch
        from wayfare.serve.served import Settings
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed: pip install 'wayfare[serve]'") from error

    folder = runs if runs is not None or index else Path("runs")
    for place in [
        *([folder] if folder is not None and runs is not None else []),
        *(index or ()),
        *(certificates or ()),
        *(device or ()),
    ]:
        if not place.is_dir():
            raise ConfigError(f"there is no folder {place}")
    network = None
    if lan is not None:
        if tls_cert is None or tls_key is None or not host_name:
            raise ConfigError("--lan needs --tls-cert, --tls-key and --host-name: passwords must not travel in clear")
        password = os.environ.get("WAYFARE_PASSWORD", "")
        network = Lan(lan, host_name, tls_cert, key=tls_key, password=password)
    settings = Settings(
        runs=folder, indexes=index or (), federations=certificates or (), devices=device or (),
        allow_code=allow_code or (),
    )  # fmt: skip
    launch(
        settings, port, network, open_browser=open_browser,
        say=lambda line: err.print(line, markup=False, highlight=False, soft_wrap=True),
    )  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Register this command."""
    app.command()(serve)
