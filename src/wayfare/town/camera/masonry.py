"""What the sights share: colours of stone, tiles and metal, and their textures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wayfare.town.camera.atlas import Colour, Pen, shade
from wayfare.town.camera.solids import ATLAS

STONE: tuple[Colour, ...] = ((222, 210, 186), (206, 200, 190), (230, 222, 206), (196, 178, 150))
ROOF_TILE: tuple[Colour, ...] = ((176, 84, 58), (96, 108, 124), (70, 116, 104), (140, 66, 58))
WOOD: Colour = (124, 86, 56)
GOLD: Colour = (226, 184, 84)


def pick(rng: np.random.Generator, colours: tuple[Colour, ...]) -> Colour:
    colour = colours[int(rng.integers(len(colours)))]
    return shade(colour, float(rng.uniform(0.92, 1.06)))


def texture(
    key: tuple[object, ...], width: int, height: int, draw: Callable[[Pen], None], ground: Colour = (0, 0, 0, 0)
) -> int:
    def drawn() -> Pen:
        pen = Pen(width, height, ground)
        draw(pen)
        return pen

    return ATLAS.entry(key, drawn)


def opaque(colour: Colour) -> Colour:
    return (*colour[:3], 255)
