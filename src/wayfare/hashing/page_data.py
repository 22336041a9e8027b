"""What the page of `wayfare search` shows, gathered from the answers and the photos."""

from __future__ import annotations

from pathlib import Path

from wayfare.hashing.page import QueryShown, ResultShown, SearchPage, write_found
from wayfare.hashing.search import Hit, SearchAnswer, Searched, SearchIndex
from wayfare.pages.dataset_parts import Picture
from wayfare.pages.thumbnails import PictureSource, Thumbnails

_MOST_SHOWN = 100  # queries
_LARGE, _SMALL = 520, 240  # pixels, of a photo that is the query and of one that was found


def write_page(index: SearchIndex, searched: Searched, out: Path) -> Path:
    """Write the page and return where it is."""
    thumbnails = Thumbnails()
    page = SearchPage(
        index=str(index.folder), model=index.model.title, bits=index.model.bits, counts=index.counts(),
        queries=[_query(answer, thumbnails) for answer in searched.answers[:_MOST_SHOWN]],
        more=max(0, len(searched.answers) - _MOST_SHOWN),
        refused=[(item.file, item.reason) for item in searched.refused], seconds=searched.seconds,
    )  # fmt: skip
    return write_found(page, out)


def _query(answer: SearchAnswer, thumbnails: Thumbnails) -> QueryShown:
    photo = answer.query.photo
    shown = None if photo is None else thumbnails.picture(PictureSource(photo, f"the photo {photo.name}"), _LARGE)
    return QueryShown(
        title=answer.query.words if photo is None else photo.name, picture=shown, by_photo=photo is not None,
        find=answer.find, results=[_result(hit, thumbnails) for hit in answer.hits], unknown=answer.unknown,
        nearest=answer.nearest, read_as=tuple(answer.read_as.items()), close=answer.close,
    )  # fmt: skip


def _result(hit: Hit, thumbnails: Thumbnails) -> ResultShown:
    return ResultShown(
        hit.name,
        _picture(hit, thumbnails),
        " · ".join(hit.texts),
        labels=hit.labels,
        distance=hit.distance,
        score=hit.score,
    )


def _picture(hit: Hit, thumbnails: Thumbnails) -> Picture | None:
    """The photo; of a text the first of its photos that can be opened."""
    words = hit.texts[0] if hit.texts else hit.name
    made = (thumbnails.picture(PictureSource(file, words), _SMALL) for file in hit.files)
    return next((picture for picture in made if picture is not None), None)
