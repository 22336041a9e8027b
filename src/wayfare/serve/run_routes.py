"""The pages to watch, compare and start runs."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, Response

from wayfare.core.errors import WayfareError
from wayfare.pages.compare import compare
from wayfare.pages.record import Record
from wayfare.pages.tables import metric_spread
from wayfare.papers.files import recipes
from wayfare.recipe import read_table
from wayfare.serve.api_routes import Here
from wayfare.serve.made_pages import POLICY
from wayfare.serve.templating import page

run_pages = APIRouter()
_MOST_METRICS = 12
_GROUPS = {  # folders of recipes
    "To begin with": ("",), "The demo": ("demo",),
    "The papers' tables and figures": ("fedvpr", "fedtour", "psg", "fedcafe"),
}  # fmt: skip


@run_pages.get("/runs")
async def runs(request: Request, here: Here) -> Response:
    """All runs, live."""
    return page(request, "runs.html", here="runs", rows=await here.watch.rows(), folder=here.settings.runs)


@run_pages.get("/runs/{id}")
async def run(request: Request, here: Here, id: str) -> Response:
    """One run, live."""
    path, row = await here.watch.path(id), await here.watch.row(id)
    if row["state"] == "damaged":
        return page(request, "error.html", status=400, text=row["error"])
    record = await asyncio.to_thread(Record.read, path)
    log = here.control.log(path)
    return page(request, "run.html", here="runs", row=row, record=record, log=log)


@run_pages.get("/runs/{id}/report")
async def report(request: Request, here: Here, id: str) -> Response:
    """The report that `wayfare report` writes."""
    path, row = await here.watch.path(id), await here.watch.row(id)
    made, _ = await here.pages.make("report", (row["updated"], row["state"], row["done"]), run=str(path))
    return page(request, "framed.html", here="runs", title=f"Report of {row['name']}", made=made, back=f"/runs/{id}")


@run_pages.get("/compare")
async def compared(
    request: Request, here: Here, run: Annotated[list[str] | None, Query(max_length=20)] = None
) -> Response:
    """Runs beside each other."""
    ids = run or []
    if len(ids) < 2:
        return page(
            request, "error.html", status=400, text="Tick two or more runs on the page of runs to compare them."
        )
    found = await asyncio.to_thread(compare, [await here.watch.path(id) for id in ids])
    metrics = found.metrics[:_MOST_METRICS]
    rows = [
        (
            group.label,
            [metric_spread(name, group.metric(name)) for name in metrics],
            group.bytes_sent.mean,
            group.seconds.mean,
        )
        for group in found.groups
    ]
    return page(
        request,
        "compare.html",
        here="runs",
        ids=ids,
        metrics=metrics,
        rows=rows,
        runs=[await here.watch.row(id) for id in ids],
    )


@run_pages.get("/start")
async def start(request: Request, here: Here, recipe: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Choose a recipe, change its settings, start."""
    known = await asyncio.to_thread(_described)
    chosen = recipe if recipe in known else ""
    groups = {title: [name for name in known if _folder(name) in folders] for title, folders in _GROUPS.items()}
    folder = here.settings.runs
    return page(request, "start.html", here="runs", recipes=known, groups=groups, recipe=chosen, folder=folder)


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _described() -> dict[str, str]:
    """What each recipe says it is about."""
    found = {}
    for name, path in recipes().items():
        try:
            found[name] = str(read_table(path).get("about", ""))
        except WayfareError:
            continue
    return found


@run_pages.get("/made/{id}")
async def made(here: Here, id: str) -> Response:
    """A page that a command wrote, for a frame without rights."""
    file = here.pages.file(id)
    text = await asyncio.to_thread(file.read_text, "utf-8")
    return HTMLResponse(
        text, headers={"content-security-policy": POLICY, "cross-origin-resource-policy": "same-origin"}
    )
