"""A federation's state, from its run folder alone, so that anybody on the server's machine can look."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from wayfare.core.errors import StoreError
from wayfare.deploy.fence_log import read_fence_log
from wayfare.pages.record import Record

_LAST = 5  # refusals at the fence that are shown
_NODE = {"device", "name", "samples"}  # what is known of each


def status_of(run: Path) -> dict[str, Any]:
    """What is known of a federation."""
    nodes = run / "flower" / "nodes.json"
    if not nodes.exists():
        raise StoreError(f"{run} is not a federation, or no node has joined yet")
    record, heard = Record.read(run), _heard(run / "flower" / "events.jsonl")
    seen = read_fence_log(run / "flower" / "fence.jsonl")
    last_seen = {line["name"]: line for line in seen if line["event"] in ("join", "leave")}
    rows = []
    for row in _nodes(nodes):
        refused = [r.reason for line in record.rounds for r in line.refused if r.device == row["device"]]
        here = [reply for reply in heard if reply.device == row["device"]]
        known = last_seen.get(row["name"], {})
        seen_at = max([float(known.get("time", 0)), *(reply.time for reply in here)])
        now = "left" if known.get("event") == "leave" and not record.finished else ""
        now = "has answered" if any(reply.is_new for reply in here) else now
        rows.append({
            **row, "replies": len(here), "seen": seen_at, "now": now, "refused": len(refused),
            "reason": refused[-1] if refused else "", "key": known.get("key", ""),
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
        "fence": _at_the_fence(seen),
    }


def _at_the_fence(seen: list[dict[str, Any]]) -> dict[str, Any]:
    """How many were refused there, and the last few of them."""
    refused = [line for line in seen if line["event"] == "refused"]
    return {"refused": sum(line.get("times", 1) for line in refused), "last": refused[-_LAST:]}


def _nodes(file: Path) -> list[dict[str, Any]]:
    """Who has joined."""
    try:
        rows = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{file}: cannot be read: {error}. The server writes it again when it starts") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) and row.keys() >= _NODE for row in rows):
        raise StoreError(f"{file}: expected a list of nodes, each with {', '.join(sorted(_NODE))}")
    return rows


class _Reply(NamedTuple):
    device: str
    time: float  # in seconds since 1970; 0 in files of earlier versions
    is_new: bool  # it belongs to the round in progress


def _heard(events: Path) -> list[_Reply]:
    """The replies since the server was started."""
    replies: list[_Reply] = []
    for line in events.read_bytes().splitlines() if events.exists() else []:
        try:
            event = json.loads(line)
            kind, data, when = event["event"], event["data"], float(event.get("time", 0))
            device = str(data["device"]) if kind == "device" else ""
        except (ValueError, RecursionError, TypeError, LookupError, AttributeError):  # it is being written, or edited
            break
        if kind == "round":
            replies = [reply._replace(is_new=False) for reply in replies]
        elif kind == "device":
            replies.append(_Reply(device, when, True))
    return replies
