"""What is true of a photograph as a whole: labels as MIRFlickr has them, and forty attributes as CelebA has them.

Both follow from what is seen and from the circumstances, never from the tags.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from wayfare.town.items import SeenItem
from wayfare.town.model import Shot
from wayfare.town.words import SIGHTS, THINGS

LABELS = (
    "animals", "bird", "car", "clouds", "dog", "flower", "fog", "food", "hill", "night", "people", "plant_life",
    "portrait", "rain", "sights", "sky", "snow", "square", "street", "structures", "sunset", "transport", "tree",
    "water",
)  # fmt: skip
ATTRIBUTES = (
    "Backlit", "Bright", "Clear_Weather", "Close_Building", "Close_Person", "Cloudy", "Colourful", "Crowded", "Dark",
    "Empty_Street", "Evening", "Foggy", "Greenery", "Has_Bicycle", "Has_Bird", "Has_Car", "Has_Dog", "Has_Person",
    "Has_Tree", "Large_Vehicle", "Low_Contrast", "Many_Cars", "Morning", "Night", "No_Sky", "On_Square", "Open_Sky",
    "Rainy", "Red_Car", "Seating", "Sight_Close", "Sight_Visible", "Snowy", "Street_Canyon", "Street_Lamp", "Summer",
    "Tall_Building", "Traffic_Control", "Water_Visible", "Winter",
)  # fmt: skip
_HOUR = 3600.0
_ANIMALS, _VEHICLES = THINGS["Animals"], THINGS["Vehicles"]


class PictureFacts:
    """Numbers about a picture, each computed once."""

    def __init__(self, shot: Shot, seen: Sequence[SeenItem], segments: np.ndarray, pixels: np.ndarray) -> None:
        self.shot, self.seen, self.segments, self.pixels = shot, seen, segments, pixels
        self.height, self.width = segments.shape
        self.counts: dict[str, int] = {}
        self.shares: dict[str, float] = {}  # of the picture's area
        self.nearest: dict[str, float] = {}
        for one in seen:
            self.counts[one.kind] = self.counts.get(one.kind, 0) + 1
            self.shares[one.kind] = self.shares.get(one.kind, 0.0) + one.item.area / segments.size
            self.nearest[one.kind] = min(self.nearest.get(one.kind, one.distance), one.distance)
        # red, green, blue of every fourth pixel: enough to tell how bright and how colourful it is
        self.coarse = pixels[::4, ::4].transpose(2, 0, 1).astype(np.float32, order="C")
        self.in_sky = segments[::4, ::4] == self.place("sky")

    def share(self, *kinds: str) -> float:
        """The part of the picture that these take up together."""
        return sum(self.shares.get(kind, 0.0) for kind in kinds)

    def count(self, *kinds: str) -> int:
        return sum(self.counts.get(kind, 0) for kind in kinds)

    def place(self, kind: str) -> int:
        """Of the first item of a kind; -2 where there is none (-1 is a pixel of no item)."""
        return next((one.item.segment for one in self.seen if one.kind == kind), -2)

    def tallest(self, kind: str) -> float:
        """The height of the tallest one of a kind, as a part of the picture's."""
        heights = [one.item.box[3] - one.item.box[1] for one in self.seen if one.kind == kind]
        found: float = max(heights, default=0) / self.height
        return found


def labels(scene: PictureFacts) -> tuple[str, ...]:
    """Those of LABELS that hold, in their order."""
    shot, share, count = scene.shot, scene.share, scene.count
    sky = share("sky")
    grey = shot.weather in ("cloudy", "rain", "snow")
    holds = {
        "animals": count(*_ANIMALS) > 0,
        "bird": count("bird", "duck") > 0,
        "car": share("car") >= 0.004,
        "clouds": grey and sky >= 0.08 and not shot.night,
        "dog": count("dog") > 0,
        "flower": share("flower") >= 0.005,
        "fog": shot.weather == "fog",
        "food": count("fruit", "cake") > 0 or share("market") >= 0.02,
        "hill": share("hill") >= 0.01,
        "night": shot.night,
        "people": share("person") >= 0.004,
        "plant_life": share("tree", "grass", "flower", "potted plant") >= 0.04,
        "portrait": scene.tallest("person") >= 0.4,
        "rain": shot.weather == "rain",
        "sights": share(*SIGHTS) >= 0.01,
        "sky": sky >= 0.12,
        "snow": shot.weather == "snow",
        "square": share("square") >= 0.08,
        "street": share("road") >= 0.08,
        "structures": share("building", "wall", "fence", *SIGHTS) >= 0.2,
        "sunset": sky >= 0.08 and not shot.night and _is_golden(scene),
        "transport": share(*_VEHICLES) >= 0.006,
        "tree": share("tree") >= 0.03,
        "water": share("water", "fountain") >= 0.01,
    }
    return tuple(name for name in LABELS if holds[name])


def attributes(scene: PictureFacts) -> tuple[str, ...]:
    """Those of ATTRIBUTES that hold, in their order."""
    shot, share, count = scene.shot, scene.share, scene.count
    red, green, blue = scene.coarse
    grey = (red + green + blue) / 3
    brightness = _mean(grey)
    contrast = math.sqrt(_mean(np.square(grey - brightness)))
    colour = _mean(np.maximum(np.maximum(red, green), blue) - np.minimum(np.minimum(red, green), blue))
    people, vehicles = count("person"), count(*_VEHICLES)
    sky, sights = share("sky"), share(*SIGHTS)
    holds = {
        "Backlit": not shot.night and _is_backlit(scene, grey),
        "Bright": brightness >= 140,
        "Clear_Weather": shot.weather == "clear",
        "Close_Building": share("building") >= 0.25 and scene.nearest["building"] < 6,
        "Close_Person": scene.tallest("person") >= 0.35,
        "Cloudy": shot.weather == "cloudy",
        "Colourful": colour >= 42,
        "Crowded": people >= 5,
        "Dark": brightness < 70,
        "Empty_Street": people == 0 and vehicles == 0 and share("road", "pavement") >= 0.1,
        "Evening": shot.time >= 16 * _HOUR,
        "Foggy": shot.weather == "fog",
        "Greenery": share("tree", "grass", "flower") >= 0.2,
        "Has_Bicycle": count("bicycle") > 0,
        "Has_Bird": count("bird", "duck") > 0,
        "Has_Car": share("car") >= 0.005,
        "Has_Dog": count("dog") > 0,
        "Has_Person": people > 0,
        "Has_Tree": share("tree") >= 0.02,
        "Large_Vehicle": count("bus", "truck") > 0,
        "Low_Contrast": contrast < 30,
        "Many_Cars": count("car") >= 3,
        "Morning": shot.time < 9 * _HOUR,
        "Night": shot.night,
        "No_Sky": sky < 0.02,
        "On_Square": share("square") >= 0.2,
        "Open_Sky": sky >= 0.35,
        "Rainy": shot.weather == "rain",
        "Red_Car": _red_car(scene),
        "Seating": count("bench", "chair") > 0,
        "Sight_Close": sights >= 0.08,
        "Sight_Visible": sights > 0,
        "Snowy": shot.weather == "snow",
        "Street_Canyon": _walled_in(scene),
        "Street_Lamp": count("street lamp") > 0,
        "Summer": shot.season == "summer",
        "Tall_Building": _reaches_the_top(scene),
        "Traffic_Control": count("traffic light", "stop sign") > 0,
        "Water_Visible": share("water") > 0,
        "Winter": shot.season == "winter",
    }
    return tuple(name for name in ATTRIBUTES if holds[name])


def _mean(values: np.ndarray) -> float:
    """Like np.mean, but three times as fast."""
    return float(values.sum()) / values.size


def _is_golden(scene: PictureFacts) -> bool:
    """Whether a good part of the sky is more red than blue, after removing the camera's own colour cast."""
    if scene.shot.weather not in ("clear", "cloudy") or not scene.in_sky.any():
        return False
    gain = scene.shot.camera.gain
    red, blue = scene.coarse[0][scene.in_sky], scene.coarse[2][scene.in_sky]
    return bool(np.count_nonzero(red * gain[2] > blue * gain[0]) >= 0.12 * len(red))


def _is_backlit(scene: PictureFacts, grey: np.ndarray) -> bool:
    """Whether the sky is far brighter than everything below it."""
    sky, rest = grey[scene.in_sky], grey[~scene.in_sky]
    return sky.size > 0 and rest.size > 0 and _mean(sky) > 2.3 * _mean(rest)


def _walled_in(scene: PictureFacts) -> bool:
    """Whether buildings fill the upper half of the picture's left and right edge."""
    half, walls = scene.height // 2, scene.place("building")
    edges = scene.segments[:half, 0], scene.segments[:half, -1]
    return all(np.count_nonzero(edge == walls) >= 0.5 * half for edge in edges)


def _reaches_the_top(scene: PictureFacts) -> bool:
    return bool(np.count_nonzero(scene.segments[0] == scene.place("building")) >= 0.3 * scene.width)


def _red_car(scene: PictureFacts) -> bool:
    """Whether a car that is large enough for its colour to be seen is red."""
    for place, one in enumerate(scene.seen):
        if one.kind == "car" and one.item.area >= 40:
            x0, y0, x1, y1 = one.item.box
            body = scene.pixels[y0:y1, x0:x1][scene.segments[y0:y1, x0:x1] == place]
            red, green, blue = body.sum(axis=0).tolist()
            if red > 1.35 * max(green, blue):
                return True
    return False
