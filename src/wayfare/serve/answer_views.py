"""What a page shows of an answer: the same JSON that programs get, with pictures by id and words beside the numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wayfare.serve.photos import Photos

_MOST_DRAWN = 12  # relations over a photo
_COLOURS = 12
_HEAD = 0.018  # of an arrow, as a share of the photo's longer side


def located(answer: Mapping[str, Any], photos: Photos) -> dict[str, Any]:
    """An answer of `locate` with its verdict, its map, and the matching photos."""
    result, shown = answer["result"], answer["shown"]
    found = result["answers"][0]
    places = []
    for number, (place, where) in enumerate(zip(found["places"], shown["places"]), start=1):
        match = place["matches"][0]
        places.append({
            "number": number, "colour": (number - 1) % 6 + 1, "picture": photos.name(match["file"]), "where": where,
            "away": _away(place["metres"]), "count": len(place["matches"]), "distance": place["distance"],
        })  # fmt: skip
    spot = found["position"]
    return {
        "unknown": found["unknown"],
        "confidence": found["confidence"],
        "threshold": result["threshold"],
        "position": shown["position"],
        "link": _map_link(spot["latitude"], spot["longitude"]),
        "agreeing": spot["photos"],
        "spread": spot["spread_m"],
        "places": places,
        "map": shown["map"],
        "doubts": result["calibration"].get("doubts", []),
        "uncalibrated": result["calibration"].get("uncalibrated", ""),
    }


def _away(metres: float | None) -> str:
    if metres is None:
        return "in another city"
    return f"{metres:,.0f} m away" if metres < 10_000 else f"{metres / 1000:,.0f} km away"


def _map_link(latitude: float | None, longitude: float | None) -> str:
    if latitude is None or longitude is None:
        return ""
    where = f"mlat={latitude:.6f}&mlon={longitude:.6f}"
    return f"https://www.openstreetmap.org/?{where}#map=18/{latitude:.6f}/{longitude:.6f}"


def searched(answer: Mapping[str, Any], photos: Photos) -> dict[str, Any]:
    """An answer of `search` with its pictures."""
    result = answer["result"]
    found = result["answers"][0]
    hits = [
        {"picture": photos.name(hit["files"][0]) if hit["files"] else "", "text": " · ".join(hit["texts"]),
         "name": hit["name"], "labels": hit["labels"][:4], "score": hit["score"], "distance": hit["distance"],
         "near": round(min(max(50 + 50 * hit["score"], 0), 100))}
        for hit in found["results"]
    ]  # fmt: skip
    return {**found, "hits": hits, "bits": result["bits"]}


@dataclass(frozen=True)
class DrawnRelation:
    """An arrow over a photo, in its pixels."""

    sentence: tuple[str, str, str]
    score: float
    path: str
    head: str
    x: float
    y: float


def graphed(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer of `graph` as a drawing over the photo."""
    result = answer["result"]
    graph, names = result["graphs"][0], answer["shown"]["names"]
    width, height = graph["size"]
    unit = max(width, height)
    boxes = [thing["box"] for thing in graph["objects"]]
    drawn = [_relation(each, names, boxes, _HEAD * unit) for each in graph["relations"]]
    used = {place for each in graph["relations"][:_MOST_DRAWN] for place in (each["subject"], each["object"])}
    things = [
        {"name": name, "colour": place % _COLOURS + 1, "x": box[0], "y": box[1], "width": box[2] - box[0],
         "height": box[3] - box[1], "used": place in used or not used, "score": thing["score"], "label": thing["label"]}
        for place, (name, box, thing) in enumerate(zip(names, boxes, graph["objects"]))
    ]  # fmt: skip
    return {
        "width": width, "height": height, "unit": unit, "things": things, "relations": drawn,
        "drawn": drawn[:_MOST_DRAWN], "unknown": result["unknown_labels"], "notes": result["notes"],
    }  # fmt: skip


def _relation(
    each: Mapping[str, Any], names: Sequence[str], boxes: Sequence[Sequence[float]], head: float
) -> DrawnRelation:
    start, end = (_middle(boxes[each[side]]) for side in ("subject", "object"))
    length = math.dist(start, end) or 1.0
    east, north = (end[0] - start[0]) / length, (end[1] - start[1]) / length
    middle = (start[0] + end[0]) / 2 - north * length / 8, (start[1] + end[1]) / 2 + east * length / 8
    tip = math.dist(middle, end) or 1.0
    east, north = (end[0] - middle[0]) / tip, (end[1] - middle[1]) / tip
    foot = end[0] - head * east, end[1] - head * north
    wings = [
        (foot[0] - north * head / 2, foot[1] + east * head / 2),
        (foot[0] + north * head / 2, foot[1] - east * head / 2),
    ]
    return DrawnRelation(
        (names[each["subject"]], each["predicate"], names[each["object"]]),
        each["score"],
        f"M{start[0]:.1f} {start[1]:.1f}Q{middle[0]:.1f} {middle[1]:.1f} {foot[0]:.1f} {foot[1]:.1f}",
        " ".join(f"{x:.1f},{y:.1f}" for x, y in (end, *wings)),
        x=0.25 * start[0] + 0.5 * middle[0] + 0.25 * end[0],
        y=0.25 * start[1] + 0.5 * middle[1] + 0.25 * end[1],
    )


def _middle(box: Sequence[float]) -> tuple[float, float]:
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
