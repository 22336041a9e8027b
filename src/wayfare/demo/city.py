"""A city of the town seen from above: its ground and houses as a small picture, on which the page puts its points."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageDraw

from wayfare.pages.dataset_parts import Picture
from wayfare.town.model import GROUND, City

_INK = {
    "grass": (205, 220, 186), "road": (250, 249, 246), "crossing": (240, 238, 232), "pavement": (233, 230, 222),
    "square": (243, 231, 208), "water": (170, 203, 226), "flower": (220, 202, 208), "bridge": (222, 214, 200),
}  # fmt: skip
_HOUSE, _EDGE = (214, 206, 194), (190, 180, 166)


def picture_of(city: City, width: int = 460) -> Picture:
    """The map, so many pixels wide; its lower left corner is the city's south-west."""
    colours = np.array([_INK[name] for name in GROUND], np.uint8)
    fine = 2  # drawn larger first: smooth edges
    size = (fine * width, round(fine * width * city.height / city.width))
    image = Image.fromarray(colours[city.ground[::-1]]).resize(size, Image.Resampling.NEAREST)
    pen, scale = ImageDraw.Draw(image), size[0] / city.width
    for building in np.unique(city.wall_building):
        # both ends of each wall: where houses touch there is none between them
        corners = city.walls[city.wall_building == building, :4].reshape(-1, 2) * scale
        if len(corners) >= 3:
            pen.polygon([(float(x), size[1] - float(y)) for x, y in corners], fill=_HOUSE, outline=_EDGE)
    image = image.resize((width, size[1] // fine), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return Picture(file.getvalue(), image.width, image.height, f"map of {city.name}")
