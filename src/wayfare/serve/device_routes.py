"""Devices of this machine that meet others: whom they met, what they took, what is left. Read from their own files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from wayfare.core.errors import WayfareError
from wayfare.meeting.diary import Diary
from wayfare.meeting.peer_page import PeerRecord
from wayfare.serve.api_routes import Here
from wayfare.serve.offers import MissingError, id_of
from wayfare.serve.served import Served, as_json
from wayfare.serve.templating import page

device_api = APIRouter(prefix="/api/v1", tags=["devices that meet"])
device_pages = APIRouter()


@device_api.get("/devices")
async def devices(here: Here) -> Response:
    """The devices whose folders this server was given."""
    return as_json({"devices": await device_rows(here)})


@device_pages.get("/devices/{id}")
async def device(request: Request, here: Here, id: str) -> Response:
    """The page that `wayfare peer show` writes."""
    homes = _homes(here)
    if id not in homes:
        raise MissingError(f"there is no device {id!r} here")
    changed = await asyncio.to_thread(_changed, homes[id])
    made, _ = await here.pages.make("device", changed, home=str(homes[id]))
    return page(request, "framed.html", here="federation", title=homes[id].name, made=made, back="/federation")


async def device_rows(here: Served) -> list[dict[str, Any]]:
    """What their files say; of one that cannot be read, why."""
    return [await asyncio.to_thread(_row, id, home) for id, home in _homes(here).items()]


def _homes(here: Served) -> dict[str, Path]:
    return {id_of(home.name, home): home for home in here.settings.devices}


def _row(id: str, home: Path) -> dict[str, Any]:
    try:
        return {"id": id, **PeerRecord.read(home).as_json(), "error": ""}
    except WayfareError as error:
        return {"id": id, "name": home.name, "error": str(error)}


def _changed(home: Path) -> float:
    try:
        return Diary(home).file.stat().st_mtime
    except OSError:
        return 0.0
