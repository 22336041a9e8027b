"""A federation of real devices: who is invited, who takes part, what was refused; inviting and revoking."""

from __future__ import annotations

import asyncio
import io
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import segno
from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from wayfare.core.errors import ConfigError, WayfareError
from wayfare.deploy.invite import invite
from wayfare.deploy.keys import Roll
from wayfare.deploy.status import status_of
from wayfare.io.address import Address
from wayfare.io.certificates import fingerprint
from wayfare.serve.api_routes import Asked, Here, Whole
from wayfare.serve.device_routes import device_rows
from wayfare.serve.offers import MissingError, id_of
from wayfare.serve.served import Served, as_json
from wayfare.serve.templating import page

federation_api = APIRouter(prefix="/api/v1", tags=["federation"])
federation_pages = APIRouter()
_MOST_IN_CODE = 2953  # bytes of the largest QR code


class InviteAsked(Asked):
    """Whom to invite, and by which address the node reaches the server."""

    name: str = Field(max_length=63)
    server: str = Field(max_length=300)
    days: Whole = Field(default=365, ge=1, le=3650)


class RevokeAsked(Asked):
    """Whose invitation to take back."""

    name: str = Field(max_length=63)


@federation_pages.get("/federation")
async def federation(request: Request, here: Here) -> Response:
    """All federations of this server."""
    found = [await asyncio.to_thread(_federation, id, folder) for id, folder in _folders(here).items()]
    runs = [(row, status) for row in await here.watch.rows() if (status := await _status(here, row["id"]))]
    _join(found, [status for _, status in runs])
    devices = await device_rows(here)
    return page(request, "federation.html", here="federation", federations=found, runs=runs, devices=devices)


@federation_api.get("/federations")
async def federations(here: Here) -> Response:
    """The federations whose keys this server was given, with their nodes."""
    found = [await asyncio.to_thread(_federation, id, folder) for id, folder in _folders(here).items()]
    statuses = [await _status(here, row["id"]) for row in await here.watch.rows()]
    _join(found, [status for status in statuses if status])
    return as_json({"federations": found})


@federation_api.post("/federations/{id}/invite", status_code=201)
async def invite_node(here: Here, id: str, asked: InviteAsked) -> Response:
    """An invitation: its text, and the same as a QR code. The key in it is kept nowhere else."""
    folder = _folder(here, id)
    text = await asyncio.to_thread(_invited, folder, asked)
    content = {"file": f"{asked.name}.invite", "text": text, "qr": _code(text)}
    return Response(json.dumps(content), 201, media_type="application/json")


@federation_api.post("/federations/{id}/revoke")
async def revoke(here: Here, id: str, asked: RevokeAsked) -> Response:
    """Take an invitation back: from now on the node is refused, also by a server that is running."""
    key = await asyncio.to_thread(Roll(_folder(here, id)).revoke, asked.name)
    return as_json({"revoked": asked.name, "key": key})


def _folders(here: Served) -> dict[str, Path]:
    return {id_of(folder.name, folder): folder for folder in here.settings.federations}


def _folder(here: Served, id: str) -> Path:
    found = _folders(here)
    if id not in found:
        raise MissingError(f"there is no federation {id!r} here")
    return found[id]


def _invited(folder: Path, asked: InviteAsked) -> str:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "invite"
        invite(folder, asked.name, Address.read(asked.server), asked.days, file)
        return file.read_text(encoding="utf-8")


def _code(text: str) -> str:
    """A QR code as an SVG picture; "" if the text is too long for one."""
    if len(text.encode()) > _MOST_IN_CODE:
        return ""
    file = io.BytesIO()
    segno.make(text, error="l", micro=False).save(file, kind="svg", border=4, scale=3, light="#ffffff", xmldecl=False)
    return file.getvalue().decode()


def _federation(id: str, folder: Path) -> dict[str, Any]:
    """Who is invited, by the keys alone."""
    roll = Roll(folder)
    try:
        keys = {name: fingerprint(key) for name, key in roll.public_keys().items()}
    except ValueError as error:
        raise ConfigError(f"{folder}: a certificate cannot be read: {error}") from error
    nodes = [{"name": name, "key": key, "state": "invited", "replies": 0, "refused": 0, "reason": "", "seen": "",
              "samples": None} for name, key in keys.items()]  # fmt: skip
    revoked = sorted(file.stem.rpartition("-")[0] for file in (folder / "revoked").glob("*.crt"))
    return {"id": id, "folder": str(folder), "nodes": nodes, "revoked": revoked}


async def _status(here: Served, id: str) -> dict[str, Any] | None:
    """What a run knows of its nodes; None if it is no run of real devices."""
    path = await here.watch.path(id)
    if not (path / "flower" / "nodes.json").exists():
        return None
    try:
        found = await asyncio.to_thread(status_of, path)
    except WayfareError as error:
        return {"nodes": [], "error": str(error), "finished": False, "fence": {"refused": 0, "last": []}}
    nodes = [{**node, "seen": _clock(node["seen"]) if node["seen"] else ""} for node in found["nodes"]]
    fence = {**found["fence"], "last": [{**line, "when": _clock(line["time"])} for line in found["fence"]["last"]]}
    return {**found, "nodes": nodes, "fence": fence, "error": ""}


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _join(found: list[dict[str, Any]], statuses: list[dict[str, Any]]) -> None:
    """Put what runs know of nodes beside those that are invited; the run that changed last counts."""
    known = {node["name"]: (node, status) for status in reversed(statuses) for node in status["nodes"]}
    for federation in found:
        for node in federation["nodes"]:
            if node["name"] in known:
                seen, status = known[node["name"]]
                state = "finished" if status["finished"] else seen["now"] or "has joined"
                node |= {key: seen[key] for key in ("replies", "refused", "reason", "samples", "seen")}
                node["state"] = state
