"""Small pictures for the camera: every sprite and texture in one long array of texels, at several sizes.

One array for all of them lets numpy fetch the texels of many things at once. Colour and opacity of a texel are packed
into 32 bits (red lowest); its glow in the dark is stored separately.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

import numpy as np
from PIL import Image, ImageDraw

LEVELS = 7  # each half as large as the one before
Colour = tuple[int, ...]


def shade(colour: Colour, factor: float) -> Colour:
    """A lighter or darker colour, with the same opacity."""
    return tuple(max(0, min(255, round(value * factor))) for value in colour[:3]) + tuple(colour[3:])


class Pen:
    """Draws with coordinates from 0 to 1, x to the right and y up, and records what glows."""

    OVER = 3  # drawn so many times larger, then reduced: smooth edges

    def __init__(self, width: int, height: int, ground: Colour = (0, 0, 0, 0)) -> None:
        self._size = width * self.OVER, height * self.OVER
        self._image = Image.new("RGBA", self._size, ground)
        self._glow: Image.Image | None = None  # as long as nothing glows
        self._drawn = [ImageDraw.Draw(self._image)]

    def _on(self, colour: Colour, glow: int) -> Iterator[tuple[ImageDraw.ImageDraw, Colour | int]]:
        """The images to draw on and their colours: the picture, and the glow if there is any."""
        if glow and self._glow is None:
            self._glow = Image.new("L", self._size, 0)
            self._drawn.append(ImageDraw.Draw(self._glow))
        return zip(self._drawn, (colour, glow))

    def _points(self, points: list[tuple[float, float]]) -> list[tuple[float, float]]:
        width, height = self._size
        return [(x * width, (1 - y) * height) for x, y in points]

    def shape(self, points: list[tuple[float, float]], colour: Colour, glow: int = 0) -> None:
        """A filled polygon."""
        at = self._points(points)
        for draw, fill in self._on(colour, glow):
            draw.polygon(at, fill=fill)

    def box(self, x0: float, y0: float, x1: float, y1: float, colour: Colour, glow: int = 0) -> None:
        """A filled rectangle; its corners are x0, y0 and x1, y1."""
        (a, b), (c, d) = self._points([(x0, y1), (x1, y0)])
        if c - a < 1 or d - b < 1:
            return
        at = (round(a), round(b), round(c) - 1, round(d) - 1)
        for draw, fill in self._on(colour, glow):
            draw.rectangle(at, fill=fill)

    def disc(self, x: float, y: float, rx: float, ry: float, colour: Colour, glow: int = 0) -> None:
        """A filled ellipse around x, y."""
        (a, b), (c, d) = self._points([(x - rx, y + ry), (x + rx, y - ry)])
        for draw, fill in self._on(colour, glow):
            draw.ellipse((a, b, c, d), fill=fill)

    def line(self, points: list[tuple[float, float]], colour: Colour, width: float, glow: int = 0) -> None:
        """A line through the points; its width is a part of the picture's width."""
        at = self._points(points)
        thick = max(1, round(width * self._size[0]))
        for draw, fill in self._on(colour, glow):
            draw.line(at, fill=fill, width=thick, joint="curve")

    def pictures(self) -> tuple[Image.Image, Image.Image | None]:
        """What was drawn, and its glow if there is any. Colours are weighted by opacity."""
        return self._image.reduce(self.OVER), self._glow and self._glow.reduce(self.OVER)

    def tile(self) -> np.ndarray:
        """Four channels and the glow, uint8 (height, width, 5), of a texture whose fourth channel is not opacity."""
        glow = self._glow or Image.new("L", self._size, 0)
        bands = [*self._image.split(), glow]  # one by one: together, colours would be weighed with the fourth
        return np.dstack([np.asarray(band.reduce(self.OVER)) for band in bands])


class Atlas:
    """Sprites and textures of all sizes, each with its smaller versions."""

    def __init__(self) -> None:
        self.texels = np.zeros(1 << 16, np.uint32)
        self.glow = np.zeros(1 << 16, np.uint8)
        self.sizes = np.zeros(256, np.float32)  # how many texels each entry has
        self.levels = np.zeros((3, 256 * LEVELS), np.int32)  # and of each of its levels: offset, width, height
        self._used = 0
        self._entries: dict[Hashable, int] = {}

    def entry(self, key: Hashable, draw: Callable[[], Pen]) -> int:
        """The number of the picture with this key; it is drawn on first use."""
        found = self._entries.get(key)
        if found is None:
            found = self._entries[key] = len(self._entries)
            self._add(found, *draw().pictures())
        return found

    def opacity(self, texels: np.ndarray) -> np.ndarray:
        """How opaque these texels are, float32 from 0 to 1."""
        opaque: np.ndarray = self.texels.take(texels).view(np.uint8)[3::4] * np.float32(1 / 255)
        return opaque

    def _add(self, number: int, image: Image.Image, glow: Image.Image | None) -> None:
        if number == len(self.sizes):
            self.sizes = np.concatenate((self.sizes, np.zeros_like(self.sizes)))
            self.levels = np.concatenate((self.levels, np.zeros_like(self.levels)), 1)
        self.sizes[number] = image.width * image.height
        for level in range(LEVELS):
            packed = np.frombuffer(image.tobytes(), "<u4")
            end = self._used + len(packed)
            while end > len(self.texels):
                self.texels, self.glow = _twice(self.texels, self._used), _twice(self.glow, self._used)
            self.texels[self._used : end] = packed
            self.glow[self._used : end] = np.frombuffer(glow.tobytes(), np.uint8) if glow else 0
            self.levels[:, number * LEVELS + level] = self._used, image.width, image.height
            self._used = end
            if min(image.width, image.height) > 1:
                image, glow = image.reduce(2), glow and glow.reduce(2)


def _twice(texels: np.ndarray, used: int) -> np.ndarray:
    """An array twice as large; only the used part takes memory."""
    larger = np.empty(2 * len(texels), texels.dtype)
    larger[:used] = texels[:used]
    return larger


class Tiles:
    """Square textures of one size, so that where a texel is follows from the number of its tile and level alone."""

    def __init__(self, side: int) -> None:
        self.side = side
        self.levels = side.bit_length()
        sizes = [(side >> level) ** 2 for level in range(self.levels)]
        self.stride = sum(sizes)
        self.offsets = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int32)
        self.texels = np.zeros(0, np.uint32)
        self.glow = np.zeros(0, np.uint8)

    def add(self, tiles: list[np.ndarray]) -> int:
        """Put these, uint8 (side, side, 5), side by side; returns the number of the first."""
        first = len(self.texels) // self.stride
        texels, glows = [self.texels], [self.glow]
        for tile in tiles:
            for _ in range(self.levels):
                texels.append(np.ascontiguousarray(tile[..., :4]).reshape(-1).view("<u4"))
                glows.append(tile[..., 4].reshape(-1))
                tile = _smaller(tile) if len(tile) > 1 else tile
        self.texels, self.glow = np.concatenate(texels), np.concatenate(glows)
        return first


def _smaller(tile: np.ndarray) -> np.ndarray:
    """Half as large: the means of four texels each."""
    wide = tile.astype(np.uint16)
    rows = wide[::2] + wide[1::2]
    return ((rows[:, ::2] + rows[:, 1::2] + 2) >> 2).astype(np.uint8)


def channels(texels: np.ndarray) -> np.ndarray:
    """Red, green, blue and opacity, float32 (4, n) from 0 to 1, of packed texels."""
    result = np.empty((4, len(texels)), np.float32)
    result[:] = texels.view(np.uint8).reshape(-1, 4).T
    result *= 1 / 255
    return result
