"""The page of a partition on its own, as `wayfare split` draws it; and the maps of one that deals out photographs.

What is shown of semantic clusters is in `semantic_split`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wayfare.pages import page, semantic_split
from wayfare.pages.dataset_figures import bars_figure, map_figure
from wayfare.pages.dataset_parts import Bars, Layer, Map
from wayfare.pages.figures import COLOURS, Figure, Key, partition_figure
from wayfare.pages.tables import PLACE_HEADS, number, partition_rows, per_client, place_row

MOST_MAPS = 24
_GREY = 9  # of the colours: for what is nobody's
_PALETTE = [f"@c{i}" for i in range(1, COLOURS + 1) if i != _GREY]
NOBODY = Key("nobody", "in no client", f"@c{_GREY}")


@dataclass(frozen=True)
class MapPart:
    """The maps of a partition of photographs, with what has to be said of them."""

    figures: Sequence[Figure]
    note: str
    keys: Sequence[Key]  # of its legend


def write_partition(
    summary: Mapping[str, Any], out: Path, open_picture: semantic_split.OpenPicture | None = None
) -> Path:
    """Draw who has what on one self-contained page, with example pictures that the summary names where they can be
    opened."""
    rule = str(summary["provenance"].get("rule", "partition"))
    content: dict[str, Any] = {"maps": None, "semantic": None, "lead": "classes", "menu": ()}
    drawn = partition_figure(summary) if "places" not in summary else None
    figures = [drawn] if drawn else []
    if "places" in summary:
        content |= _place_content(summary)
        figures = [*content["maps"].figures, *content["bars"]]
        content |= {"lead": "places", "menu": ("clients", "map", "cities", "provenance")}
    elif "semantics" in summary:
        part = semantic_split.semantic_part(summary["semantics"], open_picture)
        figures = [*part.figures, *figures]
        menu = ("clients", "levels", "clusters", "partition", "provenance")
        content |= {"semantic": part, "lead": "semantics", "menu": menu}
    text = page.render(
        "partition.html",
        title=f"partition {rule}",
        figures=figures,
        heading=f"{rule}, {page.several(summary['table']['clients'], 'client')}",
        labels=drawn,
        rows=partition_rows(summary["table"]),
        provenance=list(page.flatten(summary["provenance"]).items()),
        **content,
    )
    return page.save(text, out)


# ---- Photographs


def _place_content(summary: Mapping[str, Any]) -> dict[str, Any]:
    places, table = summary["places"], summary["table"]
    means = [(name, mean, f"± {sd}") for name, mean, sd in per_client(table)]
    tiles = [("clients", number(table["clients"]), ""), *means, ("in no client", number(table["left_out"]), "images")]
    note = f"{summary['note']}. " if "note" in summary else ""
    tables = [
        (f"By {where}", (where, *PLACE_HEADS), [place_row(row) for row in places[kind]])
        for kind, where in (("cities", "city"), ("continents", "continent"))
        if places[kind]
    ]
    return {
        "tiles": tiles,
        "note": f"{note}Means ± standard deviations over clients.",
        "maps": map_part(places),
        "bars": _bars(places),
        "tables": tables,
    }


def map_part(places: Mapping[str, Any]) -> MapPart:
    """The maps with what has to be said of them."""
    maps = map_figures(places)
    words = ["On each map a colour is a client; with many clients, colours repeat."]
    if places["radius"] is not None:
        words.append(f"A circle of {number(places['radius'])} m is drawn around the photograph a client began with.")
    else:
        words.append("A photograph that several clients have has the colour of the first.")
    if sum(len(shown["x"]) for shown in places["maps"]) < sum(shown["images"] for shown in places["maps"]):
        words.append("If there are very many photographs, an even selection is drawn.")
    if len(places["maps"]) > len(maps):
        words.append(f"The {len(maps)} cities of {len(places['maps'])} with the most photographs.")
    nobody = any(-1 in shown["client"] for shown in places["maps"])
    return MapPart(maps, " ".join(words), [NOBODY] if nobody else [])


def stored_maps(summary: Mapping[str, Any]) -> MapPart | None:
    """The maps of a run's partition.json; None where it has none, or not in the form in which it was written."""
    try:
        found = map_part(summary["places"])
        return found if found.figures else None
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None


def map_figures(places: Mapping[str, Any]) -> list[Figure]:
    """A map of each city, the largest first: photographs in the colours of their clients, and proximity's discs."""
    shown = sorted(places["maps"], key=lambda found: -found["images"])[:MOST_MAPS]
    width = 1030 if len(shown) == 1 else 500
    return [_map(f"clients-map-{i}", found, places["radius"], width) for i, found in enumerate(shown)]


def _map(name: str, found: Mapping[str, Any], radius: float | None, width: int) -> Figure:
    points: dict[int, tuple[list[float], list[float]]] = {}
    for x, y, client in zip(found["x"], found["y"], found["client"]):
        across, up = points.setdefault(client, ([], []))
        across.append(x)
        up.append(y)
    west = {client: x for client, x, _ in found["discs"]} | {
        client: sum(x) / len(x) for client, (x, _) in points.items()
    }
    # From west to east the colours take turns: neighbours seldom have the same.
    clients = sorted((client for client in west if client >= 0), key=lambda client: (west[client], client))
    keys = {client: Key(f"c{client}", f"c{client}", _PALETTE[i % len(_PALETTE)]) for i, client in enumerate(clients)}
    keys[-1] = NOBODY
    layers = [Layer(keys[client].name, "photos", *points[client]) for client in [-1, *clients] if client in points]
    around = min(radius or 0.0, 0.15 * max(max(found["x"]), max(found["y"])))  # room for circles, but not too much
    figure = map_figure(name, Map(found["city"], layers), {key.name: key for key in keys.values()}, width, around)
    if radius is None:
        return figure
    circles = [_circle(x, y, radius, keys[client].colour) for client, x, y in found["discs"]]
    layout = figure.spec["layout"] | {"shapes": circles}
    return replace(figure, spec={"data": figure.spec["data"], "layout": layout})


def _circle(x: float, y: float, radius: float, colour: str) -> dict[str, Any]:
    ends = {"x0": x - radius, "x1": x + radius, "y0": y - radius, "y1": y + radius}
    look = {"fillcolor": f"{colour}/0.07", "line": {"color": f"{colour}/0.6", "width": 1.2}, "layer": "below"}
    return {"type": "circle", **ends, **look}


def _bars(places: Mapping[str, Any]) -> list[Figure]:
    """FedVPR's Fig. 4 and 5."""
    found = []
    for kind, where in (("cities", "city"), ("continents", "continent")):
        rows = places[kind]
        names = [row["name"] for row in rows]
        for what, title in (("clients", "Clients"), ("images", "Images")):
            if rows:
                bars = Bars(f"{title} by {where}", what, names, [row[what] for row in rows])
                found.append(bars_figure(f"{kind}-{what}", bars))
    return found
