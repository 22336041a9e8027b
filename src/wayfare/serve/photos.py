"""Photos by id: those that were uploaded, until the server ends, and those of indexes, which stay where they are."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import shutil
import tempfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from wayfare.core.errors import DataError
from wayfare.core.text import printable
from wayfare.io.images import MAX_BYTES
from wayfare.serve.workers import Workers

SHOWN = 1280  # pixels of the longer side of a photo on a page
SIDES = (160, 320, 640)  # of the photos of indexes
_MOST, _MOST_BYTES = 200, 2 * 2**30  # photos that are kept; the oldest go first
_WHOLE = "whole.rgb"  # plain pixels, row by row
_MOST_KNOWN = 100_000  # photos of indexes that have been named on some page
_MOST_SMALL = 2000  # small pictures that are kept in memory, of about 20 kB
_SMALL_AT_ONCE = 32
Size = tuple[int, int]


@dataclass(frozen=True)
class Uploaded:
    """A photo that somebody gave us, as pixels."""

    id: str
    name: str
    width: int
    height: int
    folder: Path
    bytes: int  # of all its files

    @property
    def shown(self) -> Path:
        """As a page shows it."""
        return self.folder / "shown.jpg"

    def pixels(self, size: Size | None) -> Path:
        """As a network sees it: in one size (height, width), or as it is."""
        file = self.folder / (_WHOLE if size is None else f"{size[0]}x{size[1]}.png")
        if not file.exists():
            raise DataError("this photo was uploaded before the index was opened: upload it again")
        return file


class Photos:
    """All of them. What a picture file holds beside pixels never gets here."""

    def __init__(self, decoders: Workers) -> None:
        self._decoders, self._secret = decoders, secrets.token_bytes(32)
        self._folder = Path(tempfile.mkdtemp(prefix="wayfare-serve-"))  # which nobody else can read
        self._uploaded: OrderedDict[str, Uploaded] = OrderedDict()
        self._known: OrderedDict[str, Path] = OrderedDict()
        self._small: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._places = asyncio.Semaphore(_SMALL_AT_ONCE)

    def close(self) -> None:
        """Delete what was uploaded."""
        shutil.rmtree(self._folder, ignore_errors=True)

    # ---- uploaded ones

    async def add(self, data: bytes, name: str, sizes: list[Size], whole: bool) -> Uploaded:
        """Decode a photo and keep its pixels."""
        if not data:
            raise DataError("the photo is empty")
        id = hmac.new(self._secret, data, hashlib.sha256).hexdigest()[:24]
        known = self._uploaded.get(id)
        if known is not None and all((known.folder / f"{h}x{w}.png").exists() for h, w in sizes):
            self._uploaded.move_to_end(id)
            return known
        about, parts = await self._decoders.ask("look", data, sizes=sizes, whole=whole, side=SHOWN)
        return self._keep(id, name, (int(about["width"]), int(about["height"])), sizes, parts)

    def _keep(self, id: str, name: str, shape: Size, sizes: list[Size], parts: list[bytes]) -> Uploaded:
        names = ["shown.jpg", *(f"{height}x{width}.png" for height, width in sizes), _WHOLE]
        if len(parts) == len(names) and len(parts[-1]) != 3 * shape[0] * shape[1]:
            raise DataError("the photo cannot be used: it was not decoded as it says")
        folder = self._folder / id
        folder.mkdir(exist_ok=True)
        for file, part in zip(names, parts):
            (folder / file).write_bytes(part)
        made = Uploaded(id, printable(Path(name).name or "photo", 120), *shape, folder, sum(map(len, parts)))
        self._uploaded[id] = made
        self._uploaded.move_to_end(id)
        while len(self._uploaded) > 1 and (len(self._uploaded) > _MOST or self._bytes() > _MOST_BYTES):
            shutil.rmtree(self._uploaded.popitem(last=False)[1].folder, ignore_errors=True)
        return made

    def _bytes(self) -> int:
        return sum(photo.bytes for photo in self._uploaded.values())

    def uploaded(self, id: str) -> Uploaded:
        """The photo of this id."""
        if id not in self._uploaded:
            raise DataError("this photo is no longer available: photos are kept until the server stops")
        return self._uploaded[id]

    # ---- those of indexes

    def name(self, file: Path | str) -> str:
        """An id for a photo file of an index; nobody can make one up."""
        path = Path(file)
        id = hmac.new(self._secret, str(path).encode(errors="surrogateescape"), hashlib.sha256).hexdigest()[:24]
        self._known[id] = path
        self._known.move_to_end(id)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        return id

    def file(self, id: str) -> Path:
        """The photo of an index that was named so."""
        if id not in self._known:
            raise DataError("there is no such picture")
        return self._known[id]

    async def small(self, id: str, side: int) -> bytes:
        """A photo of an index as a small JPEG."""
        file = self.file(id)
        if side not in SIDES:
            raise DataError(f"pictures have {', '.join(map(str, SIDES))} pixels")
        if (id, side) not in self._small:
            async with self._places:
                data = await asyncio.to_thread(_read, file)
                self._small[id, side] = (await self._decoders.ask("thumbnail", data, side=side))[1][0]
        self._small.move_to_end((id, side))
        if len(self._small) > _MOST_SMALL:
            self._small.popitem(last=False)
        return self._small[id, side]


def _read(file: Path) -> bytes:
    try:
        if not file.is_file() or file.stat().st_size > MAX_BYTES:
            raise DataError("the photo is not where the index says, or too large")
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"the photo cannot be read: {error.strerror or error}") from error
