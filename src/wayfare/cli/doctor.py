"""wayfare doctor: what is installed, and what is missing."""

from __future__ import annotations

from typing import Any

import typer
from rich.table import Table

from wayfare.cli.console import Json, answer, plain_table
from wayfare.core.errors import WayfareError
from wayfare.pages.tables import human_bytes


def doctor(json: Json = False) -> None:
    """Show what is installed and what is missing, whether torch has a GPU, where the caches are and how large they are.

    The exit status is 1 if a package is missing that Wayfare cannot do without.
    """
    from wayfare.doctor import examine

    found = examine()
    answer(found, json, _table(found), *_advice(found))
    if found["missing"]:
        raise WayfareError(f"not installed: {', '.join(found['missing'])}; install Wayfare again with pip")


def _table(found: dict[str, Any]) -> Table:
    table = plain_table("doctor")
    table.add_column("what", no_wrap=True)
    table.add_column("found", overflow="fold")
    table.add_row("wayfare", f"{found['wayfare']} in {found['where']}")
    table.add_row("python", f"{found['python']} on {found['platform']}, {found['processors']} processors")
    there = sum(held is not None for held in found["packages"].values())
    table.add_row("packages", f"{there} of {len(found['packages'])} installed")
    torch = found["torch"]
    gpu = ", ".join(torch.get("gpus", [])) or "no GPU: it computes on the processors"
    table.add_row("torch", f"{torch['version']}, {gpu}" if torch else "not installed")
    for extra, held in found["extras"].items():
        state = f"missing: {', '.join(held['missing'])}" if held["missing"] else "installed"
        table.add_row(f"extra {extra}", state)
    for name, is_there in found["weights"].items():
        table.add_row(f"weights {name}", "fetched" if is_there else f"not fetched: wayfare data get {name}")
    cache = found["cache"]
    parts = ", ".join(f"{name} {human_bytes(size)}" for name, size in cache["parts"].items())
    table.add_row("cache", f"{cache['path']}: {human_bytes(cache['bytes'])}" + (f" ({parts})" if parts else ""))
    devices = found["devices"]
    if devices["bytes"]:
        table.add_row("devices", f"{devices['path']}: {human_bytes(devices['bytes'])}, keys and memories of devices")
    return table


def _advice(found: dict[str, Any]) -> list[str]:
    lacking = [extra for extra, held in found["extras"].items() if held["missing"]]
    lines = [f"To install an extra: pip install 'wayfare[{lacking[0]}]'"] if lacking else []
    if found["cache"]["bytes"]:
        lines.append(
            f"The cache may be deleted at any time; only weights have to be fetched anew: {found['cache']['path']}"
        )
    if not found["missing"]:
        lines.append("Everything that Wayfare needs is installed.")
    return lines


def add_to(app: typer.Typer) -> None:
    """Register this command."""
    app.command()(doctor)
