"""The page of a partition on its own, as `wayfare split` draws it; and the maps of one that deals out photographs.

What is shown of semantic clusters is in `semantic_split`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wayfare.reports import page, semantic_split
from wayfare.reports.dataset_figures import bars_figure, map_figure
from wayfare.reports.dataset_parts import Bars, Layer, Map
from wayfare.reports.figures import COLOURS, Figure, Key, partition_figure
from wayfare.reports.page import Html
from wayfare.reports.tables import PLACE_HEADS, number, partition_rows, per_client, place_row

MOST_MAPS = 24
_GREY = 9  # of the colours: for what is nobody's
_PALETTE = [f"@c{i}" for i in range(1, COLOURS + 1) if i != _GREY]
NOBODY = Key("nobody", "in no client", f"@c{_GREY}")


def write_partition(summary: Mapping[str, Any], out: Path, opens: semantic_split.Opens | None = None) -> Path:
    """Draw who has what on one self-contained page; with `opens`, also example pictures that the summary names."""
    rule = str(summary["provenance"].get("rule", "partition"))
    lead = "Which client holds how many samples of which class, and how far the clients are from each other."
    parts: tuple[str, ...] = ()
    style = ""
    if "places" in summary:
        sections, drawn = _place_sections(summary)
        lead = "Which client holds the photographs of which places, and how much there is in each city."
        parts = ("clients", "map", "cities", "provenance")
    elif "semantics" in summary:
        sections, drawn = _semantic_sections(summary, opens)
        lead = "What the samples mean, which client holds which meanings, and how far the clients are from each other."
        parts, style = (*semantic_split.PARTS, "partition", "provenance"), semantic_split.STYLE
    else:
        sections, drawn = _class_sections(summary)
    header = page.tag(
        "header",
        page.tag("p", "Wayfare · partition", class_="eyebrow"),
        page.tag("h1", f"{rule}, {page.several(summary['table']['clients'], 'client')}"),
        page.tag("p", lead, class_="lead"),
        page.menu(parts) if parts else None,
    )
    provenance = page.facts("Provenance", list(page.flatten(summary["provenance"]).items()))
    sections.append(page.section("provenance", "Where it comes from", provenance))
    return page.save(page.document(f"partition {rule}", header, sections, drawn, style), out)


def _class_sections(summary: Mapping[str, Any]) -> tuple[list[Html], list[Figure]]:
    drawn = partition_figure(summary)
    picture = [page.legend(drawn.keys) if drawn.keys else None, page.plots([drawn], titles=False)] if drawn else []
    facts = page.facts("The partition in numbers", partition_rows(summary["table"]))
    return [page.section("partition", "Who has what", *picture, facts)], [drawn] if drawn else []


def _semantic_sections(
    summary: Mapping[str, Any], opens: semantic_split.Opens | None
) -> tuple[list[Html], list[Figure]]:
    """The clusters; below them sizes, and who has what of the labels, where samples have one too."""
    sections, drawn = semantic_split.sections(summary, opens)
    if "counts" not in summary:
        facts = page.facts("The partition in numbers", partition_rows(summary["table"]))
        return [*sections, page.section("partition", "In numbers", facts)], drawn
    more, figures = _class_sections(summary)
    return [*sections, *more], [*drawn, *figures]


# ---- Photographs


def _place_sections(summary: Mapping[str, Any]) -> tuple[list[Html], list[Figure]]:
    places = summary["places"]
    table = summary["table"]
    tiles = [(name, mean, f"± {sd}") for name, mean, sd in per_client(table)]
    tiles = [("clients", number(table["clients"]), ""), *tiles, ("in no client", number(table["left_out"]), "images")]
    note = f"{summary['note']}. " if "note" in summary else ""
    maps, bars = map_figures(places), _bars(places)
    sections = [
        page.section(
            "clients",
            "What a client has",
            page.tiles(tiles),
            page.tag("p", f"{note}Means ± standard deviations over clients.", class_="note"),
        ),
        page.section("map", "Whose photographs are where", *map_parts(places, maps)),
        page.section("cities", "Cities and continents", page.plots(bars), *_tables(places)),
    ]
    return sections, [*maps, *bars]


def map_parts(places: Mapping[str, Any], maps: Sequence[Figure]) -> list[Html]:
    """The maps with what has to be said of them."""
    if not maps:
        return [page.empty("The positions of these photographs are not known.")]
    words = ["On each map a colour is a client; with many of them colours come again."]
    if places["radius"] is not None:
        words.append(f"A circle of {number(places['radius'])} m is drawn around the photograph a client began with.")
    else:
        words.append("A photograph that several clients have has the colour of the first.")
    if sum(len(shown["x"]) for shown in places["maps"]) < sum(shown["images"] for shown in places["maps"]):
        words.append("Of very many photographs only some are drawn, evenly.")
    if len(places["maps"]) > len(maps):
        words.append(f"The {len(maps)} cities of {len(places['maps'])} with the most photographs.")
    nobody = any(-1 in shown["client"] for shown in places["maps"])
    legend = [page.legend([NOBODY])] if nobody else []
    return [*legend, page.plots(maps), page.tag("p", " ".join(words), class_="note")]


def stored_pictures(summary: Mapping[str, Any]) -> tuple[list[Html], list[Figure]]:
    """What a run's partition.json has to show beyond labels: maps, or semantic clusters; nothing if it is damaged."""
    return stored_maps(summary) if "places" in summary else semantic_split.stored_parts(summary)


def stored_maps(summary: Mapping[str, Any]) -> tuple[list[Html], list[Figure]]:
    """The maps of a run's partition.json; none where it has none, or not in the form in which it was written."""
    try:
        maps = map_figures(summary["places"])
        return map_parts(summary["places"], maps) if maps else [], maps
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        return [], []


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


def _tables(places: Mapping[str, Any]) -> list[Html]:
    return [
        page.table(f"By {where}", (where, *PLACE_HEADS), map(place_row, places[kind]))
        for kind, where in (("cities", "city"), ("continents", "continent"))
        if places[kind]
    ]
