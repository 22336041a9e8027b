"""A finished run of hashing in use: vectors of photos and texts, an index of them, and search in it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from wayfare.core.errors import ConfigError
from wayfare.finished import FinishedRun, Photos, whole
from wayfare.hashing.hash_model import HashModel, load_hash_model
from wayfare.hashing.indexing import index_run
from wayfare.hashing.portable_sides import portable_sides
from wayfare.hashing.search import Query, SearchAnswer, SearchIndex, is_search_index, search
from wayfare.io.folders import photo_files
from wayfare.io.images import decode_all
from wayfare.portable import PortablePart


class HashingRun(FinishedRun):
    """Photos and texts that are found by each other."""

    offers: ClassVar[tuple[str, ...]] = ("embed", "index", "search")

    @cached_property
    def model(self) -> HashModel:
        return load_hash_model(self.found, self.device)

    def portable(self) -> tuple[PortablePart, ...]:
        return portable_sides(self.model, self.task)

    def thresholds(self) -> dict[str, Any]:
        model = self.model
        return {
            "close": dict(model.close),
            "centres": {kind: model.centre(kind).tolist() for kind in ("words", "text", "image")},
        }

    def embed(self, photos: Photos = (), texts: Sequence[str] = ()) -> np.ndarray:
        """What codes are the signs of, float32 (n, bits): of photos, or of texts."""
        if texts:
            self.model.check_words()
            return self.model.of_texts(list(texts))
        self.model.check_photos()
        images, _, skipped = decode_all(photo_files(photos), self.model.size)
        return whole(self.model.of_pictures(images), skipped)

    def index(
        self,
        photos: str | PathLike[str] | None = None,
        out: str | PathLike[str] | None = None,
        texts: str | PathLike[str] | None = None,
    ) -> SearchIndex:
        """Put photos and texts (a line each, or a table) into an index; without either, the run's own data."""
        folder = self.index_folder(out)
        shown, read = (None if path is None else Path(path) for path in (photos, texts))
        index_run(self.folder, folder, photos=shown, texts=read, data=self.moved_to)
        self._opened = SearchIndex(folder)
        return self._opened

    @cached_property
    def _opened(self) -> SearchIndex:
        folder = self.index_folder()
        if not is_search_index(folder):
            self.lacks_index(folder)
        return SearchIndex(folder)

    def search(self, words: str = "", photo: str | PathLike[str] | None = None, k: int = 10) -> SearchAnswer:
        if bool(words) == (photo is not None):
            raise ConfigError("give some words, or a photo: search('red shirt'), search(photo='look.jpg')")
        query = Query(words) if photo is None else Query(photo=Path(photo))
        return search(self._opened, [query], k).answers[0]
