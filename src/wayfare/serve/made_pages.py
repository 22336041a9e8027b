"""Pages that commands write (`report`, `data show`, `split`), made when they are asked for and kept by id.

Such a page brings its scripts with it. So it is shown in a frame without any right: another origin, no cookies, no
requests; its own content policy admits only the scripts that it was written with.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

from wayfare.serve.offers import MissingError
from wayfare.serve.workers import Workers

POLICY = "sandbox allow-scripts; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
_MOST = 60


class MadePages:
    """They lie in a folder of their own until the server ends."""

    def __init__(self, models: Workers) -> None:
        self._models = models
        self._folder = Path(tempfile.mkdtemp(prefix="wayfare-pages-"))
        self._made: OrderedDict[str, tuple[Path, dict[str, Any]]] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}

    async def make(self, what: str, version: object, **settings: str) -> tuple[str, dict[str, Any]]:
        """The id of a page and what was said with it; made again only where `version` is another."""
        key = json.dumps([what, str(version), settings], sort_keys=True)
        id = hashlib.sha256(key.encode()).hexdigest()[:24]
        async with self._locks.setdefault(id, asyncio.Lock()):
            if id not in self._made:
                file = self._folder / f"{id}.html"
                self._made[id] = file, (await self._models.ask(what, **settings, out=str(file)))[0]
                while len(self._made) > _MOST:
                    self._made.popitem(last=False)[1][0].unlink(missing_ok=True)
        return id, self._made[id][1]

    def file(self, id: str) -> Path:
        """The page of this id."""
        if id not in self._made:
            raise MissingError("this page has expired: reload the page that it was on")
        return self._made[id][0]

    def close(self) -> None:
        """Delete them all."""
        shutil.rmtree(self._folder, ignore_errors=True)
