"""A federation's state for people: rounds, nodes, bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from wayfare.core.errors import WayfareError
from wayfare.deploy.status import status_of
from wayfare.pages.tables import human_bytes, human_seconds, plain

_COLUMNS = {"device": "device", "name": "name", "key": "key", "samples": "samples", "replies": "replies",
            "now": "this round", "refused": "refused", "reason": "last reason"}  # fmt: skip
_NUMBERS = ("samples", "replies", "refused")


def view(found: dict[str, Any]) -> RenderableType:
    """What `status_of` found, as a table and a line."""
    state = "finished" if found["finished"] else f"last round {human_seconds(found['seconds'])}"
    title = f"{escape(plain(found['run']))}: round {found['round']} of {found['rounds']}, {state}"
    table = Table(title=title, title_justify="left", box=None)
    for key, head in _COLUMNS.items():
        table.add_column(head, justify="right" if key in _NUMBERS else "left")
    for row in found["nodes"]:
        table.add_row(*(escape(plain(row[key], 15 if key == "key" else 60)) for key in _COLUMNS))
    sent = f"up {human_bytes(found['bytes_up'])}, down {human_bytes(found['bytes_down'])}, {found['void']} void rounds"
    metrics = "  ".join(f"{escape(plain(name, 80))} {value:.4g}" for name, value in found["metrics"].items())
    return Group(table, sent, *([metrics] if metrics else []), *_fence_lines(found["fence"]))


def _fence_lines(fence: dict[str, Any]) -> list[RenderableType]:
    if not fence["refused"]:
        return []
    lines: list[RenderableType] = [f"connections refused: {fence['refused']}; the latest:"]
    for line in fence["last"]:
        when = datetime.fromtimestamp(line["time"]).strftime("%H:%M:%S")
        who = " ".join(filter(None, [line["name"], line["key"]])) or "a stranger"
        lines.append(escape(plain(f"  {when} {line['address']} {who}: {line['reason']}", 160)))
    return lines


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
