"""The pages to use models: a photo or words in, answers out. Each answer is a part of its own, which comes when it is
ready, beside those of other indexes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import FileResponse, Response

from wayfare.io.images import MAX_BYTES
from wayfare.serve.answer_views import graphed, located, searched
from wayfare.serve.api_routes import Count, GraphAsked, Here, Id, graph_of
from wayfare.serve.offers import Offer
from wayfare.serve.served import Served
from wayfare.serve.templating import page

use_pages = APIRouter()
_SHOWN = 8  # results of one question
_SAMPLES = 12
_MOST_CARDS = 8
On = Annotated[list[str] | None, Query(max_length=20)]


@use_pages.get("/")
async def home(request: Request, here: Here) -> Response:
    """Drop a photo, or type words."""
    offers = await here.offers.all()
    kinds = {offer.kind for offer in offers}
    return page(request, "home.html", here="use", offers=offers, kinds=kinds, example=_example(offers))


@use_pages.get("/part/samples")
async def samples(request: Request, here: Here) -> Response:
    """Some photos of the indexes, for who has none at hand."""
    found = [file for offer in await here.offers.opened() for file in offer.about.get("samples", ())]
    step = max(1, len(found) // _SAMPLES)
    pictures = [here.photos.name(file) for file in found[::step][:_SAMPLES]]
    return page(request, "part_samples.html", pictures=pictures, offers=await here.offers.all())


@use_pages.post("/part/samples/{id}")
async def take_sample(here: Here, id: str) -> Response:
    """Ask with a photo of an index."""
    data = await asyncio.to_thread(here.photos.file(id).read_bytes)
    made = await here.answering.add_photo(data[:MAX_BYTES], here.photos.file(id).name)
    return Response(json.dumps({"photo": made.id}), 201, media_type="application/json")


@use_pages.get("/search")
async def search_page(
    request: Request, here: Here, words: Annotated[str, Query(max_length=500)] = "", on: On = None
) -> Response:
    """What is found for words, in each index."""
    offers = [offer for offer in await _chosen(here, on) if offer.kind == "search"]
    cards = [_search_card(offer, "Photos", words=words) for offer in offers] if words.strip() else []
    example = _example(offers)
    return page(request, "search.html", here="use", words=words, cards=cards, offers=offers, example=example)


@use_pages.get("/photo/{id}")
async def photo_page(request: Request, here: Here, id: str, on: On = None) -> Response:
    """What is found for a photo, in each index."""
    photo, offers = here.photos.uploaded(id), await _chosen(here, on)
    cards = []
    for offer in offers[:_MOST_CARDS]:
        if offer.kind == "places":
            query = urlencode({"index": offer.id, "photo": id})
            cards.append(_card(offer, "Where was it taken?", f"/part/locate?{query}", f"/api/v1/locate?{query}"))
        elif offer.kind == "search":
            cards.append(_search_card(offer, "Similar photos", photo=id, find="photos"))
            cards.append(_search_card(offer, "Texts that fit", photo=id, find="texts"))
        else:
            query = urlencode({"run": offer.id, "photo": id})
            cards.append(_card(offer, "What is in it, and how do things relate?", f"/part/graph?{query}", ""))
    counts = {offer.id: offer.about for offer in offers}
    cards = [card for card in cards if not _is_empty(card, counts)]
    return page(request, "photo.html", here="use", photo=photo, cards=cards, offers=await here.offers.all())


def _example(offers: Sequence[Offer]) -> str:
    """Words that an index knows, once it is open."""
    return next((str(offer.about["example"]) for offer in offers if "example" in offer.about), "red shirt")


def _is_empty(card: dict[str, str], counts: dict[str, dict[str, object]]) -> bool:
    """Whether it would look for what the index does not have."""
    about = counts[card["offer"]]
    return bool(about) and bool(card["find"]) and not about.get(card["find"])


async def _chosen(here: Served, on: list[str] | None) -> list[Offer]:
    offers = await here.offers.all()
    return [offer for offer in offers if (offer.usual if on is None else offer.id in on)]


def _card(offer: Offer, title: str, part: str, data: str, find: str = "") -> dict[str, str]:
    return {"title": title, "of": offer.title, "part": part, "json": data, "offer": offer.id, "find": find,
            "kind": offer.kind}  # fmt: skip


def _search_card(offer: Offer, title: str, *, words: str = "", photo: str = "", find: str = "") -> dict[str, str]:
    given = {"index": offer.id, "words": words, "photo": photo, "find": find, "k": str(_SHOWN)}
    query = urlencode({key: value for key, value in given.items() if value})
    return _card(offer, title, f"/part/search?{query}", f"/api/v1/search?{query}", find)


# ---- Parts


@use_pages.get("/part/locate")
async def locate_part(request: Request, here: Here, index: Id, photo: Id, k: Count = 5) -> Response:
    """Where a photo was taken."""
    answer = await here.answering.locate(index, photo, k, None)
    offer = await here.offers.get(index, "places")
    return page(request, "part_locate.html", found=located(answer, here.photos), about=offer.about)


@use_pages.get("/part/search")
async def search_part(
    request: Request,
    here: Here,
    index: Id,
    words: str = "",
    photo: Id = "",
    *,
    k: Count = 8,
    find: Literal["photos", "texts"] | None = None,
) -> Response:
    """Photos or texts."""
    answer = await here.answering.search(index, words, photo, k, find)
    return page(request, "part_search.html", found=searched(answer, here.photos))


@use_pages.get("/part/graph")
async def graph_part(request: Request, here: Here, run: Id, photo: Id) -> Response:
    """The graph of a photo whose objects a detector finds; without one, a sheet on which to draw boxes."""
    offer, given = await here.offers.get(run, "scenes"), here.photos.uploaded(photo)
    if not offer.about.get("detector"):
        return page(request, "part_boxes.html", photo=given, run=run, classes=offer.about.get("classes", []))
    return await graph_with_boxes(request, here, GraphAsked(run=run, photo=photo))


@use_pages.post("/part/graph")
async def graph_with_boxes(request: Request, here: Here, asked: GraphAsked) -> Response:
    """The graph of a photo: with boxes that were drawn, or those that the detector finds."""
    answer, given = await graph_of(here, asked), here.photos.uploaded(asked.photo)
    return page(request, "part_graph.html", found=graphed(answer), photo=given, asked=asked.model_dump_json())


# ---- Pictures


@use_pages.get("/photo/{id}/shown.jpg")
async def shown(here: Here, id: str) -> Response:
    """A photo that was uploaded."""
    return FileResponse(here.photos.uploaded(id).shown, media_type="image/jpeg", headers=_KEPT)


@use_pages.get("/picture/{id}")
async def picture(here: Here, id: str, side: int = 320) -> Response:
    """A photo of an index, small."""
    return Response(await here.photos.small(id, side), media_type="image/jpeg", headers=_KEPT)


_KEPT = {"cache-control": "private, max-age=3600"}
