"""A federation's state for people: rounds, nodes, bytes; from the run folder alone, so that anybody there can look."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from wayfare.core.errors import StoreError, WayfareError
from wayfare.pages.record import Record
from wayfare.pages.tables import human_bytes, human_seconds, plain

_COLUMNS = {"device": "device", "name": "name", "samples": "samples", "replies": "replies", "now": "this round",
            "refused": "refused", "reason": "last reason"}  # fmt: skip
_NUMBERS = ("samples", "replies", "refused")


def status_of(run: Path) -> dict[str, Any]:
    """What is known of a federation."""
    nodes = run / "flower" / "nodes.json"
    if not nodes.exists():
        raise StoreError(f"{run} is not a federation, or no node has joined yet")
    record, heard = Record.read(run), _heard(run / "flower" / "events.jsonl")
    rows = []
    for row in json.loads(nodes.read_text(encoding="utf-8")):
        refused = [r.reason for line in record.rounds for r in line.refused if r.device == row["device"]]
        here = [device == row["device"] for device, _ in heard]
        now = any(mine and is_new for mine, (_, is_new) in zip(here, heard))
        rows.append({
            **row, "replies": sum(here), "now": "has answered" if now else "", "refused": len(refused),
            "reason": refused[-1] if refused else "",
        })  # fmt: skip
    last = record.rounds[-1] if record.rounds else None
    return {
        "run": str(run),
        "round": record.done,
        "rounds": record.experiment.get("rounds", 0),
        "finished": record.finished,
        "nodes": rows,
        "bytes_up": sum(line.bytes_up for line in record.rounds),
        "bytes_down": sum(line.bytes_down for line in record.rounds),
        "void": sum(line.void for line in record.rounds),
        "seconds": last.seconds if last else 0.0,
        "metrics": dict(last.metrics) if last else {},
    }


def _heard(events: Path) -> list[tuple[str, bool]]:
    """The device of each reply since the server was started, and whether it belongs to the round in progress."""
    replies: list[tuple[str, bool]] = []
    for line in events.read_text(encoding="utf-8").splitlines() if events.exists() else []:
        try:
            event = json.loads(line)
        except ValueError:  # it is being written
            break
        if event["event"] == "round":
            replies = [(device, False) for device, _ in replies]
        elif event["event"] == "device":
            replies.append((str(event["data"]["device"]), True))
    return replies


def view(found: dict[str, Any]) -> RenderableType:
    """The same as a table and a line."""
    state = "finished" if found["finished"] else f"last round {human_seconds(found['seconds'])}"
    title = f"{escape(plain(found['run']))}: round {found['round']} of {found['rounds']}, {state}"
    table = Table(title=title, title_justify="left", box=None)
    for key, head in _COLUMNS.items():
        table.add_column(head, justify="right" if key in _NUMBERS else "left")
    for row in found["nodes"]:
        table.add_row(*(escape(plain(row[key], 60)) for key in _COLUMNS))
    sent = f"up {human_bytes(found['bytes_up'])}, down {human_bytes(found['bytes_down'])}, {found['void']} void rounds"
    metrics = "  ".join(f"{escape(plain(name, 80))} {value:.4g}" for name, value in found["metrics"].items())
    return Group(table, sent, *([metrics] if metrics else []))


@contextmanager
def watched(run: Path, console: Console) -> Iterator[None]:
    """Keep the view on a terminal up to date; nothing where there is none."""
    if not console.is_terminal:
        yield
        return

    def now() -> RenderableType:
        try:
            return view(status_of(run))
        except WayfareError:
            return f"{run}: nobody has joined yet"

    with Live(get_renderable=now, console=console, refresh_per_second=1):
        yield
