"""Questions and their answers: the photo or words, an index, and what the model process says. Answers are kept a while,
so that a page and the JSON that is downloaded from it are one answer."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any, Literal

from wayfare.core.errors import ConfigError
from wayfare.serve.offers import Offers
from wayfare.serve.photos import Photos, Size, Uploaded
from wayfare.serve.workers import Workers

View = Literal["photos", "texts"]
_MOST = 500  # answers
_MOST_WORDS = 500  # letters of a query
MOST_BOXES = 100


class Answering:
    """Everything that can be asked of indexes and models."""

    def __init__(self, offers: Offers, photos: Photos, models: Workers) -> None:
        self.offers, self.photos, self._models = offers, photos, models
        self._kept: OrderedDict[str, dict[str, Any]] = OrderedDict()

    async def add_photo(self, data: bytes, name: str) -> Uploaded:
        """Decode a photo for all that is open."""
        offers = await self.offers.opened()
        sizes: list[Size] = sorted({offer.size for offer in offers if offer.size is not None})
        return await self.photos.add(data, name, sizes, any(offer.size is None for offer in offers))

    async def locate(self, index: str, photo: str, k: int, threshold: float | None) -> dict[str, Any]:
        """Where a photo was taken."""
        offer, given = await self.offers.get(index, "places"), self.photos.uploaded(photo)
        settings = {"folder": str(offer.folder), "photo": str(given.pixels(offer.size)), "name": given.name, "k": k}
        return await self._asked("locate", **settings, threshold=threshold)

    async def search(self, index: str, words: str, photo: str, k: int, find: View | None) -> dict[str, Any]:
        """Photos or texts for words or for a photo."""
        if bool(words.strip()) == bool(photo):
            raise ConfigError("expected either words or a photo")
        if len(words) > _MOST_WORDS:
            raise ConfigError(f"the query has {len(words)} letters, at most {_MOST_WORDS} are accepted")
        offer = await self.offers.get(index, "search")
        given = self.photos.uploaded(photo) if photo else None
        pixels = None if given is None else str(given.pixels(offer.size))
        settings = {"folder": str(offer.folder), "words": words, "photo": pixels, "k": k, "find": find}
        return await self._asked("search", **settings, name="" if given is None else given.name)

    async def graph(
        self, run: str, photo: str, *, top: int, boxes: list[dict[str, Any]] | None, score: float, least: float | None
    ) -> dict[str, Any]:
        """How the things in a photo relate."""
        offer, given = await self.offers.get(run, "scenes"), self.photos.uploaded(photo)
        if boxes is not None and len(boxes) > MOST_BOXES:
            raise ConfigError(f"{len(boxes)} boxes, at most {MOST_BOXES} are accepted")
        settings = {"run": str(offer.folder), "photo": str(given.pixels(None)), "name": given.name, "top": top}
        shape = [given.height, given.width]
        return await self._asked("graph", **settings, shape=shape, boxes=boxes, score=score, least=least)

    async def _asked(self, what: str, **settings: Any) -> dict[str, Any]:
        key = json.dumps([what, settings, _age(settings)], sort_keys=True)
        if key not in self._kept:
            self._kept[key] = (await self._models.ask(what, **settings))[0]
        self._kept.move_to_end(key)
        if len(self._kept) > _MOST:
            self._kept.popitem(last=False)
        return self._kept[key]


def _age(settings: dict[str, Any]) -> list[int]:
    """Changes when the index does: an index that grows gives other answers."""
    folder = Path(settings.get("folder") or settings["run"])
    files = [folder / "index.json", folder / "photos" / "codes.json", folder / "texts" / "codes.json"]
    return [file.stat().st_mtime_ns for file in files if file.exists()]
