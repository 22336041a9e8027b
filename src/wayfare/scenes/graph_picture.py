"""A scene graph as a picture: the photo with its objects, and the graph beside it; as PNG, and drawn for a page."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from wayfare.pages.tables import plain
from wayfare.scenes.graph_layout import GraphLayout, arrange, border
from wayfare.scenes.overlay import Graph, colour, draw_objects, ink_on

MOST = 16  # relations in a drawn graph: more would be a thicket
_WIDTH = 440.0  # of a drawn graph, in its own units
_LETTERS = 24
_FONT, _WORD_FONT = 15, 13
_PAPER, _INK, _LINE = (255, 255, 255), (29, 33, 38), (120, 128, 138)
_FINE = 2  # the graph is drawn so much larger first, and then reduced: smooth lines
_HEAD = 9.0  # pixels, of an arrow


@dataclass(frozen=True)
class SceneDrawn:
    """What is drawn of a picture: its objects, and relations (subject, predicate, object, score), the surest first."""

    pixels: np.ndarray | None  # uint8 RGB; None: a plain sheet
    size: tuple[int, int]  # width, height
    names: Sequence[str]
    boxes: Sequence[tuple[float, float, float, float]]
    relations: Sequence[tuple[int, str, int, float]]
    segments: np.ndarray | None = None  # (H, W): places in names; -1 for none
    boxed: frozenset[int] | None = None  # where there are segments, the objects that get a box too


class GraphSketch:
    """The drawn graph of a picture: laid out once, for every form it is drawn in."""

    def __init__(self, drawn: SceneDrawn) -> None:
        self.drawn = drawn
        self.relations = list(drawn.relations[:MOST])
        self.shown = sorted({place for s, _, o, _ in self.relations for place in (s, o)}) or list(
            range(len(drawn.names))
        )
        self.place = {shown: at for at, shown in enumerate(self.shown)}
        self.names = [plain(drawn.names[shown], _LETTERS) for shown in self.shown]
        self.words = [f"{plain(word, _LETTERS)} {_score(score)}" for _, word, _, score in self.relations]
        big, small = ImageFont.load_default(_FONT), ImageFont.load_default(_WORD_FONT)
        self.node_sizes = np.array([(big.getlength(n) * 1.08 + 20, 27.0) for n in self.names]).reshape(-1, 2)
        self.word_sizes = np.array([(small.getlength(w) * 1.08 + 10, 19.0) for w in self.words]).reshape(-1, 2)
        self.edges = [(self.place[s], self.place[o]) for s, _, o, _ in self.relations]
        middles = np.array([(b[0] + b[2], b[1] + b[3]) for b in drawn.boxes]).reshape(-1, 2) / 2 / drawn.size
        starts = middles[self.shown].clip(0, 1)
        self.layout: GraphLayout = arrange(starts, self.node_sizes, self.edges, self.word_sizes, _WIDTH)

    def lines(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Of each arrow the point where it leaves the subject, its word's centre, and where it meets the object."""
        nodes, words = self.layout.nodes, self.layout.words
        return [
            (border(nodes[s], self.node_sizes[s], word), word, border(nodes[o], self.node_sizes[o] + 4, word))
            for (s, o), word in zip(self.edges, words)
        ]


def _score(score: float) -> str:
    return f"{score:.2f}" if score >= 0.005 else "<0.01"


def photo(sketch: GraphSketch) -> Image.Image:
    """The photo with segments or boxes and names; a plain sheet where there is no photo."""
    drawn = sketch.drawn
    pixels = drawn.pixels
    if pixels is None:
        pixels = np.full((drawn.size[1], drawn.size[0], 3), 236, np.uint8)
    over = Graph(drawn.names, drawn.boxes, (), drawn.segments, drawn.boxed)
    return draw_objects(pixels, over, sketch.shown)


def png(sketch: GraphSketch, left: Image.Image) -> bytes:
    """The photo, as `photo` gives it, and the graph beside it."""
    right = _drawn(sketch) if sketch.shown else None
    width = left.width + (right.width + 16 if right is not None else 0)
    height = max(left.height, right.height if right is not None else 0)
    sheet = Image.new("RGB", (width, height), _PAPER)
    sheet.paste(left, (0, (height - left.height) // 2))
    if right is not None:
        sheet.paste(right, (left.width + 16, (height - right.height) // 2))
    file = io.BytesIO()
    sheet.save(file, "PNG")
    return file.getvalue()


def _drawn(sketch: GraphSketch) -> Image.Image:
    layout, fine = sketch.layout, _FINE
    size = (round(layout.width), round(layout.height))
    image = Image.new("RGB", (size[0] * fine, size[1] * fine), _PAPER)
    pen = ImageDraw.Draw(image)
    for start, word, end in sketch.lines():
        tip, foot, wings = _head(word, end)
        pen.line([tuple(start * fine), tuple(word * fine), tuple(foot * fine)], fill=_LINE, width=round(1.6 * fine))
        pen.polygon([tuple(point * fine) for point in (tip, *wings)], fill=_LINE)
    for text, at, box in zip(sketch.words, layout.words, sketch.word_sizes):
        _rectangle(pen, at * fine, box * fine, radius=4 * fine, fill=_PAPER, edge=None)
        _text(pen, text, at * fine, _WORD_FONT * fine, _INK)
    for text, place, at, box in zip(sketch.names, sketch.shown, layout.nodes, sketch.node_sizes):
        _rectangle(pen, at * fine, box * fine, radius=13 * fine, fill=colour(place), edge=_INK)
        _text(pen, text, at * fine, _FONT * fine, ink_on(colour(place)))
    return image.resize(size, Image.Resampling.LANCZOS)


def _rectangle(
    pen: ImageDraw.ImageDraw,
    at: np.ndarray,
    size: np.ndarray,
    *,
    radius: float,
    fill: tuple[int, int, int],
    edge: tuple[int, int, int] | None,
) -> None:
    corners = [*(at - size / 2).tolist(), *(at + size / 2).tolist()]
    pen.rounded_rectangle(corners, radius, fill=fill, outline=edge, width=_FINE)


def _text(pen: ImageDraw.ImageDraw, text: str, at: np.ndarray, size: int, ink: tuple[int, int, int]) -> None:
    pen.text((float(at[0]), float(at[1])), text, fill=ink, font=ImageFont.load_default(size), anchor="mm")


def _head(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """An arrow's tip, where its line ends, and its two wings."""
    step = end - start
    step = step / max(float(np.hypot(*step)), 1e-9)
    foot = end - _HEAD * step
    across = np.array([-step[1], step[0]]) * _HEAD * 0.45
    return end, foot, (foot + across, foot - across)


@dataclass(frozen=True)
class DrawnLabel:
    """A text in a box; numbers are in the drawing's own units."""

    text: str
    x: str  # of the text
    y: str
    left: str  # of the box
    top: str
    width: str
    height: str
    fill: str = ""  # of the box
    ink: str = ""


@dataclass(frozen=True)
class GraphDrawing:
    """The graph for a page, which draws it in its own colours."""

    words: str  # what it shows
    width: str
    height: str
    edges: Sequence[tuple[str, str]]  # the path of a line, the points of its arrow head
    predicates: Sequence[DrawnLabel]
    objects: Sequence[DrawnLabel]


def drawing(sketch: GraphSketch, words: str) -> GraphDrawing:
    """The graph for a page; `words` say what it shows."""
    layout = sketch.layout
    edges = []
    for start, word, end in sketch.lines():
        tip, foot, wings = _head(word, end)
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in (start, word, foot))
        edges.append((path, " ".join(f"{x:.1f},{y:.1f}" for x, y in (tip, *wings))))
    # the text stands a little below the middle of its box
    predicates = [_label(text, at, size, 4.5) for text, at, size in zip(sketch.words, layout.words, sketch.word_sizes)]
    objects = [
        replace(_label(text, at, size, 5), fill=_css(colour(place)), ink=_css(ink_on(colour(place))))
        for text, place, at, size in zip(sketch.names, sketch.shown, layout.nodes, sketch.node_sizes)
    ]
    return GraphDrawing(
        words=words,
        width=f"{layout.width:.0f}",
        height=f"{layout.height:.0f}",
        edges=edges,
        predicates=predicates,
        objects=objects,
    )


def _label(text: str, at: np.ndarray, size: np.ndarray, lower: float) -> DrawnLabel:
    left, top = at - size / 2
    numbers = [f"{value:.1f}" for value in (at[0], at[1] + lower, left, top, *size)]
    return DrawnLabel(text, *numbers)


def _css(rgb: tuple[int, int, int]) -> str:
    return "rgb({},{},{})".format(*rgb)
