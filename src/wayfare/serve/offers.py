"""What can be used: indexes of places and of search, and runs that draw scene graphs; each by an id."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from wayfare.core.errors import WayfareError
from wayfare.pages.record import Record, find_runs
from wayfare.serve.photos import Size
from wayfare.serve.workers import Workers

Kind = Literal["places", "search", "scenes"]
_ORDER: tuple[Kind, ...] = ("places", "search", "scenes")  # on a page
_MOST_USUAL = 3
_LOOK = 5.0  # seconds between two looks at the folders
_PERSONAL = ("local", "fedproto")  # strategies that leave no common model


class MissingError(WayfareError):
    """No such thing, by the id that was given."""


def id_of(name: str, folder: Path) -> str:
    """An id for a folder: the same at each launch, and readable."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "run"
    return f"{words}-{hashlib.sha256(str(folder.resolve()).encode(errors='surrogateescape')).hexdigest()[:8]}"


@dataclass
class Offer:
    """Something that answers questions."""

    id: str
    kind: Kind
    folder: Path  # as it was named, so that answers say the same as those of the command line
    title: str
    about: dict[str, Any] = field(default_factory=dict)  # what its model says of itself, once it was opened
    error: str = ""  # why it cannot be opened
    usual: bool = True  # whether it is asked where nothing else is chosen

    @property
    def size(self) -> Size | None:
        """Height and width of photos as its network sees them; None: as they are."""
        found = self.about.get("size")
        return None if found is None else (int(found[0]), int(found[1]))

    def as_table(self) -> dict[str, Any]:
        """For JSON."""
        about = {key: value for key, value in self.about.items() if key != "samples"}
        return {"id": self.id, "kind": self.kind, "title": self.title, "folder": str(self.folder),
                "about": about, "error": self.error}  # fmt: skip


class Offers:
    """All of them; what appears in the folder of runs meanwhile is found too."""

    def __init__(self, runs: Path | None, indexes: Sequence[Path], models: Workers) -> None:
        self._runs, self._indexes, self._models = runs, indexes, models
        self._found: dict[str, Offer] = {}
        self._looked = -_LOOK
        self._opening = asyncio.Lock()

    async def all(self) -> list[Offer]:
        """Every one, opened or not."""
        if time.monotonic() - self._looked >= _LOOK:
            self._looked = time.monotonic()
            found = await asyncio.to_thread(lambda: list(self._look()))
            found.sort(key=lambda offer: _ORDER.index(offer.kind))
            self._found = {offer.id: self._found.get(offer.id, offer) for offer in found}
            _choose_usual(list(self._found.values()))
        return list(self._found.values())

    async def opened(self) -> list[Offer]:
        """Every one that can be used."""
        async with self._opening:
            await asyncio.gather(*(self._open(offer) for offer in await self.all() if not offer.about))
        return [offer for offer in self._found.values() if offer.about]

    async def get(self, id: str, kind: Kind) -> Offer:
        """The one of this id, opened."""
        await self.all()
        offer = self._found.get(id)
        if offer is None or offer.kind != kind:
            raise MissingError(f"there is no {'run' if kind == 'scenes' else 'index'} {id!r} here")
        if not offer.about:
            async with self._opening:
                await self._open(offer)
        if offer.error:
            raise WayfareError(offer.error)
        return offer

    async def _open(self, offer: Offer) -> None:
        try:
            offer.about = (await self._models.ask("about", kind=offer.kind, folder=str(offer.folder)))[0]
            offer.error = ""
        except WayfareError as error:
            offer.error = str(error)

    def _look(self) -> Iterator[Offer]:
        for folder in self._indexes:
            yield _index(folder, folder.parent.name if folder.name == "index" else folder.name)
        for run in find_runs(self._runs) if self._runs is not None else []:
            title = str(run.relative_to(self._runs)) if self._runs is not None and run != self._runs else run.name
            if (run / "index").is_dir() and _is_index(run / "index"):
                yield _index(run / "index", title)
            if _draws_graphs(run):
                yield Offer(id_of(title, run), "scenes", run, title)


def _choose_usual(offers: list[Offer]) -> None:
    """Of runs that draw graphs one, if possible one of a federation; of indexes the first few."""
    for kind in _ORDER:
        some = [offer for offer in offers if offer.kind == kind]
        if kind == "scenes":
            some.sort(key=lambda offer: "centralised" in offer.title)
        for place, offer in enumerate(some):
            offer.usual = place < (1 if kind == "scenes" else _MOST_USUAL)


def _index(folder: Path, title: str) -> Offer:
    return Offer(id_of(title, folder), "search" if _has_codes(folder) else "places", folder, title)


def _is_index(folder: Path) -> bool:
    return (folder / "index.json").exists() or _has_codes(folder)


def _has_codes(folder: Path) -> bool:
    return any((folder / view / "codes.json").exists() for view in ("photos", "texts"))


def _draws_graphs(run: Path) -> bool:
    if not (run / "summary.json").exists() or not (run / "model.safetensors").exists():
        return False
    try:
        record = Record.read(run)
    except WayfareError:
        return False
    return record.component("task") == "scenes" and record.component("strategy") not in _PERSONAL
