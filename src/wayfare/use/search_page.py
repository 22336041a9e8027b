"""What the page of `wayfare search` shows, gathered from the answers and the photos."""

from __future__ import annotations

from pathlib import Path

from wayfare.gallery.album import Album, Wanted
from wayfare.reports.dataset_parts import Picture
from wayfare.reports.found_page import Asked, Page, Result, write_found
from wayfare.use.search import Answer, Hit, Searched, SearchIndex

_MOST_SHOWN = 100  # queries
_LARGE, _SMALL = 520, 240  # pixels, of a photo that asks and of one that was found


def write_page(index: SearchIndex, searched: Searched, out: Path) -> Path:
    """Write the page and return where it is."""
    album = Album()
    page = Page(
        index=str(index.folder), model=index.model.title, bits=index.model.bits, counts=index.counts(),
        asked=[_asked(answer, album) for answer in searched.answers[:_MOST_SHOWN]],
        more=max(0, len(searched.answers) - _MOST_SHOWN),
        refused=[(item.file, item.reason) for item in searched.refused], seconds=searched.seconds,
    )  # fmt: skip
    return write_found(page, out)


def _asked(answer: Answer, album: Album) -> Asked:
    photo = answer.query.photo
    shown = None if photo is None else album.picture(Wanted(photo, f"the photo {photo.name}"), _LARGE)
    return Asked(
        title=answer.query.words if photo is None else photo.name, picture=shown, by_photo=photo is not None,
        find=answer.find, results=[_result(hit, album) for hit in answer.hits], unknown=answer.unknown,
        nearest=answer.nearest,
    )  # fmt: skip


def _result(hit: Hit, album: Album) -> Result:
    return Result(hit.name, _picture(hit, album), " · ".join(hit.texts), hit.labels, hit.distance, hit.score)


def _picture(hit: Hit, album: Album) -> Picture | None:
    """The photo; of a text the first of its photos that can be opened."""
    words = hit.texts[0] if hit.texts else hit.name
    made = (album.picture(Wanted(file, words), _SMALL) for file in hit.files)
    return next((picture for picture in made if picture is not None), None)
