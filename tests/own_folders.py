"""Folders as people have them, for `wayfare init`: photos along a street, and things of a shop with their texts."""

import json
from pathlib import Path

import numpy as np
from PIL import Image
from PIL.TiffImagePlugin import IFDRational

COLOURS = {"red": (220, 40, 40), "green": (40, 200, 60), "blue": (40, 60, 220)}


def picture(file: Path, colour: tuple[int, int, int], seed: int, position: tuple[float, float] | None = None) -> Path:
    """A noisy field of one colour with a bright square, whose place depends on the seed."""
    rng = np.random.default_rng(seed)
    pixels = np.clip(np.array(colour) + rng.integers(-40, 41, (48, 48, 3)), 0, 255).astype(np.uint8)
    row, column = rng.integers(0, 36, 2)
    pixels[row : row + 8, column : column + 8] = 255
    exif = Image.Exif()
    if position is not None:
        degrees = [(IFDRational(round(abs(part) * 1e6), 10**6), IFDRational(0), IFDRational(0)) for part in position]
        exif[0x8825] = {1: "N", 2: degrees[0], 3: "E", 4: degrees[1]}
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file, quality=90, exif=exif)
    return file


def street(folder: Path) -> None:
    """Two photos of each of twelve places, by two people; some fields of the table are odd."""
    rows = ["file,lat,lon,heading,time,photographer"]
    colours = list(COLOURS.values())
    for number in range(24):
        place = number // 2  # two photos of each place
        picture(folder / f"{number:02d}.jpg", colours[place % 3], place)
        odd = "372" if number == 5 else "90"
        rows.append(f"{number:02d}.jpg,48.0,{11 + 8e-5 * place:.6f},{odd},15:03,{('anna', 'ben')[place // 3 % 2]}")
    (folder / "photos.csv").write_text("\n".join(rows) + "\n")


def shop(folder: Path, header: str = "photo,text") -> None:
    """Seventy things with a text each."""
    rows = [header]
    things = ("shirt", "hat", "sock", "shoe", "glove", "scarf", "belt")
    for number in range(70):
        name, colour = list(COLOURS.items())[number % 3]
        picture(folder / f"{number}.jpg", colour, number)
        rows.append(f"{number}.jpg,a {name} {things[number % 7]} for the {number % 10}th day")
    (folder / "pairs.csv").write_text("\n".join(rows) + "\n")


def park(folder: Path, images: int = 40) -> None:
    """Annotated images of a man and a dog on grass; which images are for testing is not said."""
    folder.mkdir()
    boxes = ((1, 2, 5, 9), (6, 5, 9, 9), (0, 8, 12, 10))
    data = [
        {
            "file_name": f"{number}.jpg",
            "height": 10,
            "width": 12,
            "image_id": str(number),
            "annotations": [{"bbox": list(box), "bbox_mode": 0, "category_id": kind} for kind, box in enumerate(boxes)],
            "segments_info": [
                {"id": kind + 1, "category_id": kind, "iscrowd": 0, "isthing": 1, "area": 12} for kind in range(3)
            ],
            "relations": [[0, 1, number % 2], [1, 2, 2]],
        }
        for number in range(images)
    ]
    names = {"thing_classes": ["man", "dog"], "stuff_classes": ["grass"], "predicate_classes": ["beside", "over", "on"]}
    (folder / "psg.json").write_text(json.dumps({**names, "test_image_ids": [], "data": data}))
