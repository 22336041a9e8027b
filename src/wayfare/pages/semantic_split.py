"""What is shown of a semantic partition: how different clients are at each level, and what each cluster is about.

Everything is drawn from the record that `wayfare.partition.semantic_stats.semantics_of` makes. Photographs that it
names are opened only for a record that was made just now (`open_picture`): a run's, which may be a stranger's,
gets boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from wayfare.pages import page
from wayfare.pages.dataset_figures import bars_figure
from wayfare.pages.dataset_parts import Bars, Picture
from wayfare.pages.figures import Figure, colour, partition_figure
from wayfare.pages.tables import NOTHING, number, plain

OpenPicture = Callable[[str, int], Picture | None]  # a file, not larger than so many pixels; None: unreadable
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
    return [levels, *chosen, *(_in_words(cluster, semantics["unit"]) for cluster in semantics["clusters"])]


def _in_words(cluster: Mapping[str, Any], unit: str) -> Text:
    """A cluster in some lines."""
    name, size, share, total = _cluster_row(cluster)
    text = Text(name, style="bold")
    text.append(f"   {size}, {share}, {total} {plain(unit)} per sample\n", style="not bold")
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


@dataclass(frozen=True)
class CellBar:
    """A cell of the clusters' table with its mean, and the length of its bar in percent."""

    name: str
    value: str
    percent: str


@dataclass(frozen=True)
class SceneBox:
    """A box of a drawing; `colour` is "c1" and so on where the object is named, else `kind` is a class of the style."""

    x: str
    y: str
    width: str
    height: str
    colour: str = ""
    kind: str = ""


@dataclass(frozen=True)
class SceneDrawing:
    """A scene graph without its photograph: boxes, arrows from subject to object, and names. Numbers are in pixels."""

    words: str
    boxes: Sequence[SceneBox]
    arrows: Sequence[tuple[str, str, str, str]]
    names: Sequence[tuple[str, str, str]]  # text, x, y
    width: int = _WIDTH
    height: int = _HEIGHT


@dataclass(frozen=True)
class ClusterExample:
    """A sample near the centroid."""

    id: str
    words: str
    photo: Picture | None
    drawing: SceneDrawing | None


@dataclass(frozen=True)
class ClusterCard:
    """What the page shows of a cluster."""

    name: str
    colour: str
    about: str
    frequent: Sequence[CellBar]
    typical: Sequence[CellBar]
    examples: Sequence[ClusterExample]


@dataclass(frozen=True)
class SemanticPart:
    """What the page shows of a semantic partition."""

    clients: Figure | None
    heads: Sequence[str]
    levels: Sequence[tuple[str, ...]]
    silhouettes: Sequence[Figure]
    clusters: Sequence[ClusterCard]

    @property
    def figures(self) -> list[Figure]:
        return [*([self.clients] if self.clients else []), *self.silhouettes]


def semantic_part(semantics: Mapping[str, Any], open_picture: OpenPicture | None = None) -> SemanticPart:
    """From the record of a partition that was drawn just now."""
    unit = plain(semantics["unit"])
    cards = [_card(place, cluster, unit, open_picture) for place, cluster in enumerate(semantics["clusters"])]
    return SemanticPart(client_figure(semantics), _HEADS, level_rows(semantics), _silhouette_figures(semantics), cards)


def stored_part(summary: Mapping[str, Any]) -> SemanticPart | None:
    """The same from a run's partition.json; None where it is not in the form in which it was written."""
    try:
        return semantic_part(summary["semantics"])
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None


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


def _silhouette_figures(semantics: Mapping[str, Any]) -> list[Figure]:
    scores = semantics["silhouettes"]
    if not scores:
        return []
    bars = Bars("Mean silhouette by number of clusters", "silhouette", list(scores), list(scores.values()), True)
    return [bars_figure("silhouettes", replace(bars, axis="clusters"))]


def _card(place: int, cluster: Mapping[str, Any], unit: str, open_picture: OpenPicture | None) -> ClusterCard:
    name, size, share, total = _cluster_row(cluster)
    return ClusterCard(
        name=name,
        colour=colour(place)[1:],
        about=f"{size} · {share} · {total} {unit} per sample",
        frequent=_cell_bars(cluster["top"], ""),
        typical=_cell_bars(cluster["typical"], "+"),
        examples=[_example(example, open_picture) for example in cluster["examples"]],
    )


def _cell_bars(cells: Sequence[Mapping[str, Any]], sign: str) -> list[CellBar]:
    most = max((cell["value"] for cell in cells), default=0) or 1
    return [
        CellBar(str(cell["cell"]), f"{sign}{cell['value']:.2f}", f"{100 * cell['value'] / most:.1f}") for cell in cells
    ]


def _example(example: Mapping[str, Any], open_picture: OpenPicture | None) -> ClusterExample:
    words = [plain(word, 60) for word in example.get("words", [])]
    more = f" and {len(words) - _MOST_WORDS} more" if len(words) > _MOST_WORDS else ""
    text, id = ", ".join(words[:_MOST_WORDS]) + more, plain(example["id"])
    photo = open_picture(example["picture"], _WIDTH) if open_picture is not None and "picture" in example else None
    if photo is not None:
        return ClusterExample(id, text, replace(photo, words=f"{id}: {text}"), None)
    drawn = drawing(example["drawing"], f"Boxes of sample {id}: {text}") if "drawing" in example else None
    return ClusterExample(id, text, None, drawn)


def drawing(graph: Mapping[str, Any], words: str) -> SceneDrawing:
    """A scene graph without its photograph: boxes of the objects that take part in a relation, with their names, and
    an arrow from subject to object of each relation."""
    height, width = (max(float(side), 1.0) for side in graph["size"])
    scale = min(_WIDTH / width, _HEIGHT / height)
    left, above = (_WIDTH - scale * width) / 2, (_HEIGHT - scale * height) / 2
    frame = [left, above, _WIDTH - left, _HEIGHT - above]
    boxes = [_inside([scale * float(value) for value in corners], frame) for corners in graph["boxes"]]
    part = list(dict.fromkeys(place for subject, _, other in graph["relations"] for place in (subject, other)))
    named = part[:_MOST_NAMED]
    others = [_box(boxes[place], kind="other") for place in range(len(boxes)) if place not in named]
    arrows = [
        _arrow(boxes[subject], boxes[other])
        for subject, _, other in graph["relations"]
        if subject in named and other in named and subject != other
    ]
    taken: list[tuple[float, float, float]] = []
    return SceneDrawing(
        words=words,
        boxes=[
            _box(frame, kind="frame"),
            *others,
            *(_box(boxes[place], colour=colour(rank)[1:]) for rank, place in enumerate(named)),
        ],
        arrows=arrows,
        names=[_name(graph["names"][place], boxes[place], taken) for place in named],
    )


def _inside(corners: Sequence[float], frame: Sequence[float]) -> list[float]:
    """Moved into the frame, and cut at its edges."""
    return [min(max(corners[k] + frame[k % 2], frame[k % 2]), frame[k % 2 + 2]) for k in range(4)]


def _box(corners: Sequence[float], colour: str = "", kind: str = "") -> SceneBox:
    x0, y0, x1, y1 = corners
    sides = [f"{value:.1f}" for value in (x0, y0, max(x1 - x0, 1.0), max(y1 - y0, 1.0))]
    return SceneBox(sides[0], sides[1], sides[2], sides[3], colour=colour, kind=kind)


def _arrow(start: Sequence[float], end: Sequence[float]) -> tuple[str, str, str, str]:
    """A line from middle to middle."""
    (x0, y0), (x1, y1) = (((c[0] + c[2]) / 2, (c[1] + c[3]) / 2) for c in (start, end))
    return f"{x0:.1f}", f"{y0:.1f}", f"{x1:.1f}", f"{y1:.1f}"


def _name(name: object, corners: Sequence[float], taken: list[tuple[float, float, float]]) -> tuple[str, str, str]:
    """In the box's upper left corner, or as near to it as no other name stands."""
    text = plain(name, 18)
    width = _LETTER * len(text)
    x = min(max(corners[0] + 4, 2), max(_WIDTH - width - 2, 2))
    y = min(max(corners[1] + _LINE - 3, _LINE - 3), _HEIGHT - 4)
    rows = [y + step * _LINE for step in (0, 1, -1, 2, -2, 3, -3)]
    inside = [row for row in rows if _LINE - 3 <= row <= _HEIGHT - 2]
    y = next((row for row in inside if not any(_covers(x, row, width, other) for other in taken)), y)
    taken.append((x, y, width))
    return text, f"{x:.1f}", f"{y:.1f}"


def _covers(x: float, y: float, width: float, other: tuple[float, float, float]) -> bool:
    return abs(y - other[1]) < _LINE - 2 and x < other[0] + other[2] and other[0] < x + width
