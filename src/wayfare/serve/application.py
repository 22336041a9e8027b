"""The application: routes, errors, static files, and the checks around all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from wayfare.core.errors import WayfareError
from wayfare.serve.access import Access, Keys
from wayfare.serve.api_routes import api
from wayfare.serve.data_routes import data_pages
from wayfare.serve.device_routes import device_api, device_pages
from wayfare.serve.federation_routes import federation_api, federation_pages
from wayfare.serve.offers import MissingError
from wayfare.serve.page_routes import use_pages
from wayfare.serve.run_routes import run_pages
from wayfare.serve.served import Served, Settings
from wayfare.serve.templating import page
from wayfare.serve.uploads import UploadError
from wayfare.serve.workers import BusyError, WorkerError


class ErrorAnswer(BaseModel):
    """What is answered instead: a sentence, and the kind of error."""

    error: str
    kind: str


_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": words}
    for status, words in {
        400: "It cannot be done as asked", 401: "Without the token", 403: "From another site", 404: "No such thing",
        408: "The body came too slowly", 413: "The body is too large", 422: "A value that cannot be",
        429: "Too many requests at a time",
    }.items()
}  # fmt: skip
_TOKEN = HTTPBearer(auto_error=False)  # it only says so in the description: Access checks it
_APIS = (api, federation_api, device_api)
_PAGES = (use_pages, run_pages, data_pages, federation_pages, device_pages)
_STATIC = Path(__file__).with_name("static")
_SHARED = Path(__file__).parents[1] / "pages" / "static"


def build(settings: Settings, keys: Keys, hosts: frozenset[str], *, scheme: str, sandboxed: bool) -> ASGIApp:
    """The whole application, ready for a server."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        here = app.state.served = Served(settings, keys, sandboxed)
        here.open()
        yield
        await here.close()

    app = FastAPI(
        title="Wayfare", version=version("wayfare"), lifespan=life, docs_url=None, redoc_url=None,
        openapi_url="/api/v1/openapi.json", description=api_help(), responses=_REFUSALS,
    )  # fmt: skip
    for router in _APIS:
        app.include_router(router, dependencies=[Security(_TOKEN)])
    for router in _PAGES:
        app.include_router(router, include_in_schema=False)
    app.mount("/static/shared", StaticFiles(directory=_SHARED))
    app.mount("/static", StaticFiles(directory=_STATIC))
    app.add_exception_handler(WayfareError, _wayfare_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)
    return Access(_WithCsrf(app, keys), keys, hosts, scheme)


def api_help() -> str:
    """What the description of the API says."""
    return "Send the token that `wayfare serve` printed: Authorization: Bearer TOKEN."


class _WithCsrf:
    """Gives pages the token that their scripts send back."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "wayfare.csrf": self._keys.csrf}, receive, send)


def _status(error: WayfareError) -> int:
    if isinstance(error, UploadError):
        return error.status
    statuses = {MissingError: 404, BusyError: 429, WorkerError: 422}
    return statuses.get(type(error), 400)


async def _wayfare_error(request: Request, error: Exception) -> Response:
    status = _status(error) if isinstance(error, WayfareError) else 400
    return _said(request, str(error), type(error).__name__, status)


async def _invalid(request: Request, error: Exception) -> Response:
    found = error.errors() if isinstance(error, RequestValidationError) else []
    text = "; ".join(f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in found[:5])
    return _said(request, text or "this request cannot be read", "RequestError", 422)


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 400
    texts = {404: "There is no such page.", 405: "This cannot be done here."}
    response = _said(request, texts.get(status, "This request cannot be answered."), "RequestError", status)
    if status == 405:
        response.headers["allow"] = ", ".join(sorted(_methods(request)))
    return response


def _methods(request: Request) -> set[str]:
    """What may be done at an address."""
    routes = [route for router in (*_APIS, *_PAGES) for route in router.routes if isinstance(route, Route)]
    fitting = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return {name for route in fitting for name in route.methods or ()}


async def _unexpected(request: Request, error: Exception) -> Response:
    """A fault of ours: the terminal has it all, the browser nothing of it."""
    return _said(request, "This is a fault of Wayfare: the terminal says more.", "InternalError", 500)


def _said(request: Request, text: str, kind: str, status: int) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": text, "kind": kind}, status)
    if request.url.path.startswith("/part/"):  # it stands in a page that is in order itself
        return page(request, "part_error.html", text=text)
    return page(request, "error.html", status=status, text=text)
