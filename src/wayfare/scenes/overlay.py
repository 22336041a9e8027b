"""Segments, boxes and relations drawn over a photograph, large enough to be read."""

from __future__ import annotations

import colorsys
import io
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from wayfare.pages.tables import plain

WIDTH = 640  # of what comes out, about
MOST = 6  # relations that are drawn
_TINT = 0.42  # how much of a segment's colour lies over the photograph
_FONT = 17
_LETTERS = 22  # of a name
_QUALITY = 76
_SHORTEST = 36  # pixels, of an arrow: a shorter one would vanish under the words
_LARGEST_BOX = 0.4  # of the picture: a larger one says nothing
_ALONG = (0.5, 0.4, 0.6, 0.3, 0.7)  # where an arrow's word may stand
_ASIDE = ((0, 0), (0, 20), (0, -20), (36, 20), (-36, 20), (36, -20), (-36, -20), (0, 40), (0, -40))  # of a place
_Colour = tuple[int, int, int]
_Point = tuple[float, float]
_Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Graph:
    """What is drawn: objects with names and boxes, which of them each pixel shows, and some relations."""

    names: Sequence[str]
    boxes: Sequence[_Box]  # x0, y0, x1, y1 in pixels of the photograph
    relations: Sequence[tuple[int, str, int]]  # subject, predicate, object
    segments: np.ndarray | None = None  # (H, W): places in names; -1 for none
    boxed: Collection[int] | None = None  # objects that get a box if they take part in a relation; None is all


def draw(pixels: np.ndarray, graph: Graph) -> tuple[bytes, int, int]:
    """A JPEG of the photograph with its graph over it, its width and its height.

    Of the relations only the first few that can be seen are drawn, and only their objects get a box and a name, so that
    few enough words stand in the picture.
    """
    height, width = pixels.shape[:2]
    scale = max(1, round(WIDTH / width)) if width < WIDTH else WIDTH / width
    size = (round(width * scale), round(height * scale))
    colours = [colour(place) for place in range(len(graph.names))]
    image = Image.fromarray(_tinted(pixels, graph, colours, size))
    canvas = _Canvas(image)
    ends = {place for subject, _, other in graph.relations for place in (subject, other)}
    middles = {place: _middle(graph, place, pixels.shape[:2], scale) for place in ends}
    relations = [(s, word, o) for s, word, o in graph.relations if math.dist(middles[s], middles[o]) >= _SHORTEST]
    relations = (relations or list(graph.relations))[:MOST]
    used = sorted({place for subject, _, other in relations for place in (subject, other)})
    for place in used if graph.boxed is None else sorted(set(used) & set(graph.boxed)):
        canvas.box([value * scale for value in graph.boxes[place]], colours[place])
    for subject, _, other in relations:
        canvas.arrow(middles[subject], middles[other])
    for place in used:
        canvas.text(graph.names[place], [middles[place]], (20, 20, 20), colours[place])
    for subject, predicate, other in relations:
        canvas.text(predicate, _along(middles[subject], middles[other]), (255, 255, 255), (20, 20, 20))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=_QUALITY)
    return file.getvalue(), *size


def draw_objects(pixels: np.ndarray, graph: Graph, shown: Sequence[int], tallest: float = 1.25) -> Image.Image:
    """The photograph with segments, and the boxes and names of some objects; no relations.

    It is `WIDTH` pixels wide, or less where it would be higher than `tallest` times that. The names of large objects
    are placed last, since there is most room for them.
    """
    height, width = pixels.shape[:2]
    scale = min(WIDTH / width, tallest * WIDTH / height)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    colours = [colour(place) for place in range(len(graph.names))]
    image = Image.fromarray(_tinted(pixels, graph, colours, size))
    canvas = _Canvas(image)
    boxes = {place: [value * scale for value in graph.boxes[place]] for place in shown}
    by_size = sorted(shown, key=lambda place: (boxes[place][2] - boxes[place][0]) * (boxes[place][3] - boxes[place][1]))
    for place in reversed(by_size) if graph.boxed is None else [place for place in by_size if place in graph.boxed]:
        canvas.box(boxes[place], colours[place], largest=1.0)
    for place in by_size:
        spots = [_middle(graph, place, (height, width), scale)] if graph.segments is not None else []
        canvas.text(graph.names[place], [*spots, *_within(boxes[place])], ink_on(colours[place]), colours[place])
    return image


def colour(place: int) -> _Colour:
    """Neighbours in a list get colours that are far apart."""
    red, green, blue = colorsys.hsv_to_rgb(place * 0.618034 % 1, 0.75 if place % 2 else 0.6, 1.0 - 0.12 * (place % 3))
    return round(255 * red), round(255 * green), round(255 * blue)


def ink_on(paper: _Colour) -> _Colour:
    """Dark letters on a light colour, and light ones on a dark one."""
    red, green, blue = paper
    return (20, 20, 20) if 0.299 * red + 0.587 * green + 0.114 * blue > 118 else (255, 255, 255)


def _tinted(pixels: np.ndarray, graph: Graph, colours: Sequence[_Colour], size: tuple[int, int]) -> np.ndarray:
    """The enlarged photograph, each segment in its colour with a light edge around it."""
    large = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS)).astype(np.float32)
    segments = graph.segments
    if segments is None or segments.shape != pixels.shape[:2]:
        return large.astype(np.uint8)
    rows = np.arange(size[1]) * segments.shape[0] // size[1]
    columns = np.arange(size[0]) * segments.shape[1] // size[0]
    which = segments[rows][:, columns]
    tints = np.array([*colours, (0, 0, 0)], np.float32)[which]  # -1 finds the last one
    share = np.where(which < 0, 0.0, _TINT)[..., None]
    large = large * (1 - share) + tints * share
    edge = np.zeros(which.shape, bool)
    edge[1:] |= which[1:] != which[:-1]
    edge[:, 1:] |= which[:, 1:] != which[:, :-1]
    large[edge] = large[edge] * 0.35 + 255 * 0.65
    tinted: np.ndarray = large.round().astype(np.uint8)
    return tinted


def _middle(graph: Graph, place: int, shape: tuple[int, int], scale: float) -> _Point:
    """A point of the object: the pixel of its segment nearest to the segment's centre, else the middle of its box."""
    if graph.segments is not None and graph.segments.shape == shape:
        rows, columns = np.nonzero(graph.segments == place)
        if len(rows):
            nearest = np.argmin((rows - rows.mean()) ** 2 + (columns - columns.mean()) ** 2)
            return (float(columns[nearest]) + 0.5) * scale, (float(rows[nearest]) + 0.5) * scale
    x0, y0, x1, y1 = graph.boxes[place]
    return (x0 + x1) / 2 * scale, (y0 + y1) / 2 * scale


class _Canvas:
    """Draws, and remembers where words stand, so that they do not cover each other."""

    def __init__(self, image: Image.Image) -> None:
        self.size = image.size
        self.pen = ImageDraw.Draw(image)
        self.font = ImageFont.load_default(_FONT)
        self.taken: list[_Box] = []

    def box(self, corners: Sequence[float], colour: _Colour, largest: float = _LARGEST_BOX) -> None:
        width, height = self.size
        x0, x1 = sorted(min(max(value, 0), width - 1) for value in corners[::2])
        y0, y1 = sorted(min(max(value, 0), height - 1) for value in corners[1::2])
        if (x1 - x0) * (y1 - y0) <= largest * width * height:
            self.pen.rectangle((x0, y0, x1, y1), outline=colour, width=3)

    def arrow(self, start: _Point, end: _Point) -> None:
        length = math.dist(start, end)
        if length < 1:
            return
        east, north = (end[0] - start[0]) / length, (end[1] - start[1]) / length
        foot = end[0] - 12 * east, end[1] - 12 * north
        head = [end, (foot[0] - 6 * north, foot[1] + 6 * east), (foot[0] + 6 * north, foot[1] - 6 * east)]
        self.pen.line([start, foot], fill=(20, 20, 20), width=5)
        self.pen.line([start, foot], fill=(255, 255, 255), width=3)
        self.pen.polygon(head, fill=(255, 255, 255), outline=(20, 20, 20))

    def text(self, text: str, places: Sequence[_Point], ink: _Colour, paper: _Colour) -> None:
        """At or beside one of the places, where it covers as little of other texts as can be."""
        text = plain(text, _LETTERS)
        width, height = self.pen.textlength(text, self.font) + 8, _FONT + 5
        near = [(x + east, y + south) for east, south in _ASIDE for x, y in places]
        spots = [self._inside(x - width / 2, y - height / 2, width, height) for x, y in near]
        spot = min(spots, key=lambda spot: sum(_overlap(spot, other) for other in self.taken))
        self.taken.append(spot)
        self.pen.rounded_rectangle(spot, 5, fill=paper)
        self.pen.text((spot[0] + 4, spot[1] + 1), text, fill=ink, font=self.font)

    def _inside(self, x: float, y: float, width: float, height: float) -> _Box:
        x, y = max(0.0, min(x, self.size[0] - width)), max(0.0, min(y, self.size[1] - height))
        return x, y, x + width, y + height


def _along(start: _Point, end: _Point) -> list[_Point]:
    return [(start[0] + t * (end[0] - start[0]), start[1] + t * (end[1] - start[1])) for t in _ALONG]


def _within(box: Sequence[float]) -> list[_Point]:
    """Where the name of a box may stand: along its upper edge, then its lower one, then inside."""
    x0, y0, x1, y1 = box
    across = (0.5, 0.2, 0.8)
    return [(x0 + t * (x1 - x0), y) for y in (y0, y1, (y0 + y1) / 2, y0 * 0.75 + y1 * 0.25) for t in across]


def _overlap(one: _Box, other: _Box) -> float:
    """The area in common."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0) * max(height, 0)
