"""All that one server has, made once and given to every route."""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import Request
from starlette.responses import Response

from wayfare.serve.access import Keys
from wayfare.serve.answering import Answering
from wayfare.serve.made_pages import MadePages
from wayfare.serve.offers import Offers
from wayfare.serve.photos import Photos
from wayfare.serve.run_control import RunControl
from wayfare.serve.run_watch import RunWatch
from wayfare.serve.uploads import Uploads
from wayfare.serve.workers import Workers

_DECODERS = "wayfare.serve.decoder"
_MODELS = "wayfare.serve.model_worker"
_PHOTO_SECONDS, _ANSWER_SECONDS, _PAGE_SECONDS = 20.0, 120.0, 900.0
_DECODER_LIVES = 200  # photos, after which a decoder is replaced


@dataclass(frozen=True)
class Settings:
    """What `wayfare serve` was told."""

    runs: Path | None = None
    indexes: Sequence[Path] = ()
    federations: Sequence[Path] = ()  # folders of keys
    devices: Sequence[Path] = ()  # homes of devices that meet others
    allow_code: Sequence[str] = ()
    workers: int = field(default_factory=lambda: min(4, os.cpu_count() or 1))


class Served:
    """The parts of a server. `open` and `close` belong to the life of its event loop."""

    def __init__(self, settings: Settings, keys: Keys, sandboxed: bool) -> None:
        self.settings, self.keys, self.sandboxed = settings, keys, sandboxed
        self.decoders = Workers(
            _DECODERS, settings.workers, seconds=_PHOTO_SECONDS, fenced=sandboxed, lives=_DECODER_LIVES
        )
        code = list(settings.allow_code)
        self.models = Workers(_MODELS, settings.workers, seconds=_ANSWER_SECONDS, arguments=code)
        self.slow = Workers(_MODELS, 1, seconds=_PAGE_SECONDS, arguments=code)  # for pages over whole data sets
        self.photos, self.pages = Photos(self.decoders), MadePages(self.slow)
        self.offers = Offers(settings.runs, settings.indexes, self.models)
        self.answering = Answering(self.offers, self.photos, self.models)
        self.watch, self.control = RunWatch(settings.runs), RunControl(settings.runs, settings.allow_code)
        self.uploads = Uploads()
        self._opening: asyncio.Task[Any] | None = None

    def open(self) -> None:
        """Load the models while the browser still opens."""
        self._opening = asyncio.create_task(self.offers.opened())

    async def close(self) -> None:
        """End all processes and delete what was uploaded."""
        if self._opening is not None:
            self._opening.cancel()
        for workers in (self.decoders, self.models, self.slow):
            await workers.close()
        self.photos.close()
        self.pages.close()


def served(request: Request) -> Served:
    """The server's parts, for a route."""
    found: Served = request.app.state.served
    return found


def as_json(content: Any) -> Response:
    """As the command line prints it; what is no number becomes null."""
    return Response(json.dumps(_finite(content), default=str), media_type="application/json")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
