"""What is shown of a semantic partition: how different clients are at each level, and what each cluster is about.

Everything is drawn from the record that `wayfare.data.partition.semantic_stats.semantics_of` makes. Photographs that it
names are opened only for a record that was made just now (`opens`): a run's, which may be a stranger's, gets boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from wayfare.reports import page
from wayfare.reports.dataset_figures import bars_figure
from wayfare.reports.dataset_parts import Bars, Picture
from wayfare.reports.figures import Figure, colour, partition_figure
from wayfare.reports.page import Html
from wayfare.reports.tables import NOTHING, number, plain

Opens = Callable[[str, int], Picture | None]  # a picture file, not larger than so many pixels; None: unreadable
PARTS = ("clients", "levels", "clusters")
_HEADS = ("level", "classes", "entropy", "total variation", "largest share")
_WIDTH, _HEIGHT = 320, 240  # of an example
_MOST_NAMED = 8  # objects of a drawing
_MOST_WORDS = 4  # below an example
_LETTER = 8.4  # pixels, of a name in a drawing
_LINE = 17


# ---- In the terminal


def semantic_tables(semantics: Mapping[str, Any]) -> list[Table | Text]:
    """The levels, the clusters, and how their number was chosen, where it was."""
    levels = _table("How different clients are (means over clients)", *_HEADS)
    for row in level_rows(semantics):
        levels.add_row(*row)
    chosen = [_silhouettes(semantics)] if semantics["silhouettes"] else []
    return [levels, *chosen, *(_in_words(cluster, semantics["said"]) for cluster in semantics["clusters"])]


def _in_words(cluster: Mapping[str, Any], said: str) -> Text:
    """A cluster in some lines."""
    name, size, share, total = _cluster_row(cluster)
    text = Text(name, style="bold")
    text.append(f"   {size}, {share}, {total} {plain(said)} per sample\n", style="not bold")
    for title, key, sign in (("frequent", "top", ""), ("typical", "typical", "+")):
        for place, cell in enumerate(cluster[key]):
            shown = f"  {title if place == 0 else '':9}{sign}{cell['value']:.2f}  {plain(cell['cell'])}\n"
            text.append(shown, style="not bold")
    ids = ", ".join(plain(example["id"], 40) for example in cluster["examples"])
    text.append(f"  {'examples':9}{ids}\n", style="not bold")
    return text


def level_rows(semantics: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A row by level, the clusters first: classes and the three statistics."""
    return [
        (
            plain(name),
            number(row["classes"]),
            *(_three(row[key]) for key in ("entropy", "total_variation", "largest_share")),
        )
        for name, row in semantics["heterogeneity"].items()
    ]


def _cluster_row(cluster: Mapping[str, Any]) -> tuple[str, ...]:
    """Its name, size, share, and the mean sum of a sample's cells."""
    size = page.several(cluster["size"], "sample")
    return plain(cluster["name"]), size, f"{cluster['share']:.1%}", f"{cluster['mean_sum']:.1f}"


def _silhouettes(semantics: Mapping[str, Any]) -> Table:
    table = _table("Silhouettes", "clusters", "mean silhouette")
    chosen = len(semantics["clusters"])
    for count, score in semantics["silhouettes"].items():
        table.add_row(plain(count), _three(score), style="bold" if count == str(chosen) else "")
    table.caption = f"{chosen} were chosen"
    return table


def _table(title: str, *heads: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for place, head in enumerate(heads):
        table.add_column(plain(head), justify="left" if place == 0 else "right")
    return table


def _three(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3f}"


# ---- On a page


def sections(summary: Mapping[str, Any], opens: Opens | None = None) -> tuple[list[Html], list[Figure]]:
    """The parts of the page of a partition that was drawn just now, and its figures."""
    semantics = summary["semantics"]
    bars, chosen = client_figure(semantics), _chosen_figures(semantics)
    parts = [
        page.section("clients", "Which clusters a client has", *_bars(bars)),
        page.section("levels", "How different clients are", level_table(semantics), *_number_parts(semantics, chosen)),
        page.section("clusters", "What the clusters are about", cluster_cards(semantics, opens)),
    ]
    return parts, [*([bars] if bars else []), *chosen]


def stored_parts(summary: Mapping[str, Any]) -> tuple[list[Html], list[Figure]]:
    """The same of a run's partition.json; nothing where it is not in the form in which it was written."""
    try:
        semantics = summary["semantics"]
        bars, chosen = client_figure(semantics), _chosen_figures(semantics)
        parts = [*_bars(bars), page.tag("h3", "How different clients are"), level_table(semantics)]
        parts += [*_number_parts(semantics, chosen), page.tag("h3", "What the clusters are about")]
        return [*parts, cluster_cards(semantics)], [*([bars] if bars else []), *chosen]
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        return [], []


def client_figure(semantics: Mapping[str, Any]) -> Figure | None:
    """Each client's samples by cluster."""
    names = [cluster["name"] for cluster in semantics["clusters"]]
    drawn = partition_figure({"classes": names, "counts": semantics["counts"], "ids": semantics["ids"]})
    if drawn is None:
        return None
    # labels may be drawn in the same section: their legend must not switch these
    keys = tuple(replace(key, group=f"cluster-{key.group}") for key in drawn.keys)
    traces = [trace | {"legendgroup": key.group} for trace, key in zip(drawn.spec["data"], keys)]
    spec = {**drawn.spec, "data": traces} if keys else drawn.spec
    words = drawn.description.replace("classes", "clusters")
    return replace(
        drawn, id="clusters-picture", title="Samples by client and cluster", description=words, spec=spec, keys=keys
    )


def _bars(drawn: Figure | None) -> list[Html]:
    if drawn is None:
        return [page.empty("No client has samples.")]
    return [*([page.legend(drawn.keys)] if drawn.keys else []), page.plots([drawn], titles=False)]


def level_table(semantics: Mapping[str, Any]) -> Html:
    """Entropy, total variation and largest share by level, with what they mean."""
    words = (
        "Means over clients. Entropy is 1 where a client has all classes alike and 0 where it has one; total variation "
        "is 0 where it is like all clients together; largest share is that of its commonest class."
    )
    return page.join([page.table("Levels", _HEADS, level_rows(semantics)), page.tag("p", words, class_="note")])


def _chosen_figures(semantics: Mapping[str, Any]) -> list[Figure]:
    scores = semantics["silhouettes"]
    if not scores:
        return []
    bars = Bars("Mean silhouette by number of clusters", "silhouette", list(scores), list(scores.values()), True)
    return [bars_figure("silhouettes", replace(bars, axis="clusters"))]


def _number_parts(semantics: Mapping[str, Any], drawn: Sequence[Figure]) -> list[Html]:
    if not drawn:
        return []
    words = f"{len(semantics['clusters'])} clusters were chosen: with them the mean silhouette is largest."
    return [page.plots(drawn), page.tag("p", words, class_="note")]


def cluster_cards(semantics: Mapping[str, Any], opens: Opens | None = None) -> Html:
    """A card for each cluster: how large it is, what is frequent and typical in it, and some of its samples."""
    note = (
        "Frequent: what a sample of the cluster has most of, in the mean. Typical: where it is most above the mean of "
        "all samples. Examples are nearest to the centroid. This is about the clusters as they were found, before "
        "they were cut down to the size of the smallest."
    )
    cards = [_card(place, cluster, semantics["said"], opens) for place, cluster in enumerate(semantics["clusters"])]
    return page.join([page.tag("div", *cards, class_="clusters"), page.tag("p", note, class_="note")])


def _card(place: int, cluster: Mapping[str, Any], said: str, opens: Opens | None) -> Html:
    name, size, share, total = _cluster_row(cluster)
    head = page.tag("h3", page.tag("i", class_=f"swatch {colour(place)[1:]}"), name)
    line = page.tag("p", f"{size} · {share} · {total} {plain(said)} per sample", class_="note")
    lists = page.tag(
        "div", _cells("Frequent", cluster["top"], ""), _cells("Typical", cluster["typical"], "+"), class_="cells"
    )
    shown = page.tag("div", *(_example(example, opens) for example in cluster["examples"]), class_="examples")
    return page.tag("article", head, line, lists, shown)


def _cells(title: str, cells: Sequence[Mapping[str, Any]], sign: str) -> Html:
    most = max((cell["value"] for cell in cells), default=0) or 1
    rows = [
        page.tag(
            "li",
            page.tag("span", cell["cell"]),
            page.tag("b", f"{sign}{cell['value']:.2f}"),
            page.tag("i", style=f"width:{100 * cell['value'] / most:.1f}%"),
        )
        for cell in cells
    ]
    body = page.tag("ol", *rows) if rows else page.empty("Nothing above the mean.")
    return page.tag("div", page.tag("h4", title), body)


def _example(example: Mapping[str, Any], opens: Opens | None) -> Html:
    words = [plain(word, 60) for word in example.get("words", [])]
    said = ", ".join(words[:_MOST_WORDS]) + (
        f" and {len(words) - _MOST_WORDS} more" if len(words) > _MOST_WORDS else ""
    )
    photo = opens(example["picture"], _WIDTH) if opens is not None and "picture" in example else None
    seen = None
    if photo is not None:
        seen = page.picture(photo.jpeg, f"{plain(example['id'])}: {said}", photo.width, photo.height)
    elif "drawing" in example:
        seen = drawing(example["drawing"], f"Boxes of sample {plain(example['id'])}: {said}")
    caption = page.tag("figcaption", page.tag("b", example["id"]), f" {said}" if said else None)
    return page.tag("figure", seen, caption, class_="example")


def drawing(graph: Mapping[str, Any], words: str) -> Html:
    """A scene graph without its photograph: boxes of the objects that take part in a relation, with their names, and
    an arrow from subject to object of each relation."""
    height, width = (max(float(side), 1.0) for side in graph["size"])
    scale = min(_WIDTH / width, _HEIGHT / height)
    left, above = (_WIDTH - scale * width) / 2, (_HEIGHT - scale * height) / 2
    frame = [left, above, _WIDTH - left, _HEIGHT - above]
    boxes = [_inside([scale * float(value) for value in corners], frame) for corners in graph["boxes"]]
    part = list(dict.fromkeys(place for subject, _, other in graph["relations"] for place in (subject, other)))
    named = part[:_MOST_NAMED]
    shapes = [_box(frame, "frame")]
    shapes += [_box(boxes[place], "other") for place in range(len(boxes)) if place not in named]
    shapes += [_box(boxes[place], colour(rank)) for rank, place in enumerate(named)]
    shapes += [
        _arrow(boxes[subject], boxes[other])
        for subject, _, other in graph["relations"]
        if subject in named and other in named and subject != other
    ]
    taken: list[tuple[float, float, float]] = []
    shapes += [_name(graph["names"][place], boxes[place], taken) for place in named]
    return page.tag("svg", *shapes, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=words)


def _inside(corners: Sequence[float], frame: Sequence[float]) -> list[float]:
    """Moved into the frame, and cut at its edges."""
    return [min(max(corners[k] + frame[k % 2], frame[k % 2]), frame[k % 2 + 2]) for k in range(4)]


def _box(corners: Sequence[float], kind: str) -> Html:
    """`kind` is "@c1" and so on, the colour of an object that has a name, or a class of the style."""
    x0, y0, x1, y1 = corners
    place = {"x": x0, "y": y0, "width": max(x1 - x0, 1.0), "height": max(y1 - y0, 1.0)}
    ink = f"var(--{kind[1:]})"
    look = {"style": f"stroke:{ink};fill:{ink}"} if kind.startswith("@") else {"class_": kind}
    return page.tag("rect", **{name: f"{value:.1f}" for name, value in place.items()}, **look)


def _arrow(start: Sequence[float], end: Sequence[float]) -> Html:
    """A line from middle to middle, with a dot where it ends."""
    (x0, y0), (x1, y1) = (((c[0] + c[2]) / 2, (c[1] + c[3]) / 2) for c in (start, end))
    line = page.tag("line", x1=f"{x0:.1f}", y1=f"{y0:.1f}", x2=f"{x1:.1f}", y2=f"{y1:.1f}")
    return page.join([line, page.tag("circle", cx=f"{x1:.1f}", cy=f"{y1:.1f}", r="3.5")])


def _name(name: object, corners: Sequence[float], taken: list[tuple[float, float, float]]) -> Html:
    """In the box's upper left corner, or as near to it as no other name stands."""
    text = plain(name, 18)
    width = _LETTER * len(text)
    x = min(max(corners[0] + 4, 2), max(_WIDTH - width - 2, 2))
    y = min(max(corners[1] + _LINE - 3, _LINE - 3), _HEIGHT - 4)
    rows = [y + step * _LINE for step in (0, 1, -1, 2, -2, 3, -3)]
    inside = [row for row in rows if _LINE - 3 <= row <= _HEIGHT - 2]
    y = next((row for row in inside if not any(_covers(x, row, width, other) for other in taken)), y)
    taken.append((x, y, width))
    return page.tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}")


def _covers(x: float, y: float, width: float, other: tuple[float, float, float]) -> bool:
    return abs(y - other[1]) < _LINE - 2 and x < other[0] + other[2] and other[0] < x + width


STYLE = """
.clusters{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,480px),1fr));gap:16px;margin-bottom:12px}
.clusters article{border:1px solid var(--line);border-radius:12px;padding:14px 16px;min-width:0}
.clusters h3{margin:0 0 2px;font-size:1.05rem;display:flex;gap:8px;align-items:center}
.clusters h4{font-size:.85rem;margin:6px 0 4px;font-weight:600;color:var(--muted)}
.clusters p.note{margin:0 0 6px}
.cells{display:grid;grid-template-columns:1fr 1fr;gap:4px 20px}
.cells ol{list-style:none;margin:0;padding:0;font-size:.84rem;line-height:1.35}
.cells li{display:grid;grid-template-columns:1fr auto;gap:0 8px;padding:3px 0}
.cells li b{font-weight:600;font-variant-numeric:tabular-nums}
.cells li i{grid-column:1/-1;height:3px;border-radius:2px;background:var(--c9);opacity:.55}
.examples{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,200px),1fr));gap:12px;margin-top:12px;align-items:start}
.example figcaption{font-weight:400;font-size:.78rem;line-height:1.35;color:var(--muted);padding-top:4px}
.example b{color:var(--ink);font-weight:600}
.example img,.example svg{display:block;width:100%;height:auto;aspect-ratio:4/3;object-fit:contain;border-radius:6px;
background:var(--page)}
.example svg{border:1px solid var(--grid)}
.example rect{fill-opacity:.1;stroke-width:2}
.example rect.frame{fill:var(--surface);fill-opacity:1;stroke:none}
.example rect.other{fill:none;stroke:var(--line);stroke-width:1}
.example line{stroke:var(--muted);stroke-width:1.3}
.example circle{fill:var(--muted)}
.example text{font-size:13px;font-weight:600;fill:var(--ink);stroke:var(--surface);stroke-width:3px;paint-order:stroke}
@media (max-width:560px){.cells{grid-template-columns:1fr}}
"""
