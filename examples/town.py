"""Look around in the town: contact sheets.

python examples/town.py [FOLDER]
"""

import io
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from wayfare.scenes import overlay
from wayfare.town import render, truth
from wayfare.town.make import Spec, Town
from wayfare.town.photographing import PHONES

HEIGHT, WIDTH = 144, 192
town = Town(Spec("small"))


def photo(shot, **changes):
    """A shot as it would look under other circumstances."""
    shot = replace(shot, **changes)
    return render.view(town.city(shot.city), shot, HEIGHT, WIDTH).pixels


def sheet(rows, path):
    """Pictures side by side, with a thin line between them."""
    padded = [[np.pad(picture, ((0, 4), (0, 4), (0, 0)), constant_values=255) for picture in row] for row in rows]
    Image.fromarray(np.vstack([np.hstack(row) for row in padded])[:-4, :-4]).save(path, quality=88)
    print(path)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    flat = [shot for shot in town.shots if not shot.pano and not shot.night and shot.weather == "clear"]
    by_city = [next(shot for shot in flat if shot.city == name and shot.role == "vehicle") for name in town.names]
    noon = {"time": 12.5 * 3600, "weather": "clear", "season": "summer", "date": "2024-06-21"}
    conditions = {
        "noon": noon,
        "evening": {**noon, "time": 20.6 * 3600},
        "night": {**noon, "time": 23.5 * 3600, "night": True},
        "fog": {**noon, "weather": "fog", "season": "autumn", "date": "2023-10-20"},
        "rain": {**noon, "weather": "rain"},
        "snow": {**noon, "weather": "snow", "season": "winter", "date": "2023-01-20"},
    }
    sheet([[photo(shot, **how) for shot in by_city] for how in conditions.values()], folder / "conditions.jpg")

    sequence = by_city[0].sequence
    walk = [shot for shot in town.shots if shot.sequence == sequence][:8]
    sheet([[photo(shot) for shot in walk[:4]], [photo(shot) for shot in walk[4:]]], folder / "walk.jpg")

    sheet([[photo(by_city[1], camera=camera) for camera in PHONES[:4]]], folder / "cameras.jpg")

    tourists = [shot for shot in flat if shot.role == "tourist"]
    sights = {}
    for shot in tourists:
        city = town.city(shot.city)
        square = min(city.squares, key=lambda s: np.hypot(s.x - shot.x, s.y - shot.y))
        distance = np.hypot(square.x - shot.x, square.y - shot.y)
        if square.sight not in sights or abs(distance - 18) < abs(sights[square.sight][0] - 18):
            sights[square.sight] = (distance, shot)
    shots = [shot for _, shot in (sights[name] for name in sorted(sights))][:10]
    sheet([[photo(shot) for shot in shots[row : row + 5]] for row in (0, 5)], folder / "sights.jpg")

    views = [(shot, render.view(town.city(shot.city), shot, HEIGHT, WIDTH)) for shot in tourists[:40]]
    graphs = [(view, truth.describe(shot, view, 0)) for shot, view in views]
    graphs.sort(key=lambda pair: -len({predicate for *_, predicate in pair[1].relations}))
    sheet([[graph(*pair) for pair in graphs[:2]]], folder / "graphs.jpg")


def graph(view, known):
    """Segments, boxes and relations over a photo."""
    relations = [(subject, predicate, other) for subject, other, predicate in known.relations]
    drawn = overlay.Graph([i.kind for i in known.items], [i.box for i in known.items], relations, known.segments)
    return np.asarray(Image.open(io.BytesIO(overlay.draw(view.pixels, drawn)[0])))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "town-pictures"))
