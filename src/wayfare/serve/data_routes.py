"""The pages about data: what a data set holds, who has what of it, and what leaves a device."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from wayfare.core.errors import DataError
from wayfare.pages.record import Record
from wayfare.serve.api_routes import Here
from wayfare.serve.served import Served
from wayfare.serve.templating import page

data_pages = APIRouter()


@data_pages.get("/data")
async def data(request: Request, here: Here) -> Response:
    """The runs, by what data they were made with."""
    rows = [row for row in await here.watch.rows() if row["state"] != "damaged"]
    return page(request, "data.html", here="data", rows=rows)


@data_pages.get("/data/{id}")
async def data_of(request: Request, here: Here, id: str) -> Response:
    """The data of one run."""
    row, record = await here.watch.row(id), await _record(here, id)
    return page(request, "data_of.html", here="data", row=row, path=_path(record), named=_named(record))


@data_pages.get("/part/data/{id}/show")
async def show(request: Request, here: Here, id: str) -> Response:
    """What `wayfare data show` writes about it."""
    path = _path(await _record(here, id))
    if not path:
        raise DataError("this run's data is not read from a folder: it comes with Wayfare, or is made on first use")
    made, _ = await here.pages.make("dataset", "", path=path)
    return page(request, "part_made.html", made=made, title="The data set")


@data_pages.get("/part/data/{id}/split")
async def split(request: Request, here: Here, id: str) -> Response:
    """What `wayfare split` writes about the run's partition."""
    made, _ = await here.pages.make("split", "", run=str(await here.watch.path(id)))
    return page(request, "part_made.html", made=made, title="Who has what")


@data_pages.get("/part/data/{id}/traffic")
async def traffic(request: Request, here: Here, id: str) -> Response:
    """What `wayfare explain-traffic` says of the run's recipe."""
    path = await here.watch.path(id)
    found = (await here.slow.ask("traffic", run=str(path)))[0]["result"]
    return page(request, "part_traffic.html", found=found)


async def _record(here: Served, id: str) -> Record:
    return await asyncio.to_thread(Record.read, await here.watch.path(id))


def _table(record: Record) -> dict[str, Any]:
    found = record.experiment.get("data", {})
    return dict(found) if isinstance(found, dict) else {}


def _path(record: Record) -> str:
    return str(_table(record).get("path") or "")


def _named(record: Record) -> str:
    return str(_table(record).get("name") or "")
