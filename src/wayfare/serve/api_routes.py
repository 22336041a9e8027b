"""/api/v1: what the command line prints with --json, for programs. Its names are those of the Python API."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field, Strict
from starlette.responses import Response, StreamingResponse

from wayfare.core.errors import WayfareError
from wayfare.pages.compare import compare
from wayfare.pages.record import Record
from wayfare.papers.files import recipes
from wayfare.serve.answering import MOST_BOXES
from wayfare.serve.offers import MissingError
from wayfare.serve.run_watch import holder, table_of
from wayfare.serve.served import Served, as_json, served
from wayfare.serve.uploads import MOST_BYTES

Here = Annotated[Served, Depends(served)]
Id = Annotated[str, Query(max_length=100)]
Count = Annotated[int, Query(ge=1, le=200)]
Share = Annotated[float | None, Query(ge=0, le=1)]
Whole = Annotated[int, Strict()]  # in bodies: `true` is no number there
Real = Annotated[float, Strict()]
_STOPS_AFTER = 8.0  # seconds after which a run that did not heed the first signal is sent a second one
_PHOTO_BODY = {
    "requestBody": {
        "required": True,
        "content": {"image/*": {"schema": {"type": "string", "format": "binary"}}},
        "description": f"A JPEG, PNG or WebP file of at most {MOST_BYTES:,} bytes.",
    }
}
api = APIRouter(prefix="/api/v1")


class Asked(BaseModel):
    """Bodies have these fields and no others."""

    model_config = ConfigDict(extra="forbid")


class BoxGiven(Asked):
    """An object in a photo: pixels from its upper left corner."""

    label: str = Field(max_length=100)
    box: tuple[Real, Real, Real, Real]
    score: Real = Field(default=1.0, ge=0, le=1)


class GraphAsked(Asked):
    """A photo to draw the graph of; without boxes a detector finds the objects."""

    run: str = Field(max_length=100)
    photo: str = Field(max_length=100)
    boxes: list[BoxGiven] | None = Field(default=None, max_length=MOST_BOXES)
    top: Whole = Field(default=10, ge=1, le=100)
    score: Real = Field(default=0.45, ge=0, le=1)
    least: Real | None = Field(default=None, ge=0, le=1)  # None: as the command line


class RunAsked(Asked):
    """A recipe, a name for the run's folder, and settings as texts: {"training.lr": "0.1"}."""

    recipe: str = Field(max_length=200)
    name: str = Field(max_length=63)
    settings: dict[str, str] = Field(default_factory=dict, max_length=300)


class ResumeAsked(Asked):
    """With `rounds`, up to a new total."""

    rounds: Whole | None = Field(default=None, ge=1, le=1_000_000)


class FormAsked(Asked):
    """The parts that were chosen so far."""

    settings: dict[str, str] = Field(default_factory=dict, max_length=300)


# ---- Use


@api.get("/indexes", tags=["use"])
async def indexes(here: Here) -> Response:
    """What can be asked: indexes for locate and search, runs for graph."""
    await here.offers.opened()
    return as_json({"indexes": [offer.as_table() for offer in await here.offers.all()]})


@api.post("/photos", tags=["use"], status_code=201, openapi_extra=_PHOTO_BODY)
async def photos(request: Request, here: Here, name: Annotated[str, Query(max_length=300)] = "photo") -> Response:
    """Upload a photo; the id in the answer stands for it until the server ends."""
    data = await here.uploads.read(request, MOST_BYTES)
    made = await here.answering.add_photo(data, name)
    content = {"photo": made.id, "name": made.name, "width": made.width, "height": made.height}
    return Response(json.dumps(content), 201, media_type="application/json")


@api.get("/locate", tags=["use"])
async def locate(here: Here, index: Id, photo: Id, k: Count = 5, threshold: Share = None) -> Response:
    """Where a photo was taken: what `wayfare locate PHOTO --index INDEX --json` prints."""
    return as_json((await here.answering.locate(index, photo, k, threshold))["result"])


@api.get("/search", tags=["use"])
async def search(
    here: Here,
    index: Id,
    words: Annotated[str, Query(max_length=500)] = "",
    photo: Id = "",
    *,
    k: Count = 10,
    find: Literal["photos", "texts"] | None = None,
) -> Response:
    """Photos or texts for words or for a photo: what `wayfare search --json` prints."""
    return as_json((await here.answering.search(index, words, photo, k, find))["result"])


@api.post("/graph", tags=["use"])
async def graph(here: Here, asked: GraphAsked) -> Response:
    """How the things in a photo relate: what `wayfare graph PHOTO --run RUN --json` prints."""
    return as_json((await graph_of(here, asked))["result"])


async def graph_of(here: Served, asked: GraphAsked) -> dict[str, Any]:
    """The answer, with the names by which a page calls the objects."""
    boxes = None if asked.boxes is None else [{**box.model_dump(), "box": list(box.box)} for box in asked.boxes]
    return await here.answering.graph(
        asked.run, asked.photo, top=asked.top, boxes=boxes, score=asked.score, least=asked.least
    )


# ---- Watch


@api.get("/runs", tags=["runs"])
async def runs(here: Here) -> Response:
    """All runs, in short."""
    return as_json({"runs": await here.watch.rows()})


@api.get("/runs/{id}", tags=["runs"])
async def run(here: Here, id: str) -> Response:
    """A run with all its rounds."""
    path = await here.watch.path(id)
    row = await here.watch.row(id)
    try:
        return as_json(table_of(await asyncio.to_thread(Record.read, path), row))
    except WayfareError as error:
        return as_json({**row, "error": str(error)})


@api.get("/events", tags=["runs"])
async def events(here: Here) -> Response:
    """Runs as they change, as server-sent events: each is what /runs says of a run."""

    async def stream() -> Any:
        yield "retry: 2000\n\n"
        async for row in here.watch.changes():
            yield ": still here\n\n" if row is None else f"event: run\ndata: {bytes(as_json(row).body).decode()}\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


@api.get("/compare", tags=["runs"])
async def compared(here: Here, run: Annotated[list[str], Query(min_length=1, max_length=20)]) -> Response:
    """Runs side by side: what `wayfare compare RUN... --json` prints."""
    paths = [await here.watch.path(id) for id in run]
    return as_json((await asyncio.to_thread(compare, paths)).as_dict())


@api.get("/recipes", tags=["runs"])
async def known_recipes() -> Response:
    """The recipes by name."""
    return as_json({"recipes": sorted(recipes())})


@api.post("/recipes/{name:path}/form", tags=["runs"])
async def form(here: Here, name: str, asked: FormAsked) -> Response:
    """The settings of a recipe: type, range, choices and help of each."""
    return as_json((await here.models.ask("form", recipe=str(_recipe(name)), texts=asked.settings))[0])


@api.post("/runs", tags=["runs"], status_code=201)
async def start(here: Here, asked: RunAsked) -> Response:
    """Start a run, after its settings were checked."""
    recipe = _recipe(asked.recipe)
    found = (await here.models.ask("check", recipe=str(recipe), texts=asked.settings))[0]
    place = here.control.start(asked.name, recipe, found["settings"])
    here.watch.look_for_new()
    return Response(json.dumps({"name": place.name}), 201, media_type="application/json")


@api.get("/starting/{name}", tags=["runs"])
async def starting(here: Here, name: str) -> Response:
    """Whether a run that was started has begun: its id once it has, and what it says."""
    here.watch.look_for_new()
    rows = [row for row in await here.watch.rows() if row["name"] == name]
    alive = here.control.starting(name)
    log = "" if rows or alive else here.control.log(here.control.root / name.replace("/", "-"))
    return as_json({"id": rows[0]["id"] if rows else None, "alive": alive, "log": log})


@api.post("/runs/{id}/stop", tags=["runs"])
async def stop(here: Here, id: str) -> Response:
    """Stop a run; every committed round is kept."""
    path = await here.watch.path(id)
    process = holder(path)
    here.control.stop(path)
    asyncio.get_running_loop().call_later(_STOPS_AFTER, here.control.insist, path, process)
    return as_json({"stopping": id})


@api.post("/runs/{id}/resume", tags=["runs"])
async def resume(here: Here, id: str, asked: ResumeAsked) -> Response:
    """Continue a run; with `rounds`, up to a new total."""
    here.control.resume(await here.watch.path(id), asked.rounds)
    return as_json({"resuming": id})


def _recipe(name: str) -> Any:
    known = recipes()
    if name not in known:
        raise MissingError(f"there is no recipe {name!r}")
    return known[name]


# ---- Data


@api.get("/runs/{id}/traffic", tags=["data"])
async def traffic(here: Here, id: str) -> Response:
    """What leaves a device: what `wayfare explain-traffic --json` prints, for the recipe of a run."""
    path = await here.watch.path(id)
    return as_json((await here.slow.ask("traffic", run=str(path)))[0]["result"])
