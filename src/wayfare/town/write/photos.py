"""The town as plain photographs with EXIF, as people have them on their phones: <walker>/IMG_20240621_081523.jpg.

Every second resident and tourist has such a folder, with about a third of the photographs they took.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.TiffImagePlugin import IFDRational

from wayfare.core.seeds import seed_for
from wayfare.io import exif
from wayfare.town.model import Photo, Shot

MAKE = "Wayfare"
_SECONDS = 10**6  # parts of a second of arc: 0.03 mm on the ground


def wants(shot: Shot) -> bool:
    """Flat photographs by some people on foot."""
    on_foot = shot.role in ("resident", "tourist") and not shot.pano
    return on_foot and seed_for("phone", shot.walker) % 2 == 0 and seed_for("phone", shot.key) % 10 < 3


def take(folder: Path, stage: Path, number: int, photo: Photo, jpeg: bytes) -> dict[str, Any]:
    """Write the picture under its key; `index` knows which names are free."""
    path = _picture(folder, photo.shot)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(with_exif(jpeg, photo))
    return {}


def index(folder: Path, stage: Path, entries: Sequence[tuple[Shot, dict[str, Any]]], seed: int) -> None:
    """Give the pictures the names that a phone would: the second they were taken in; later ones in it are numbered."""
    taken: set[tuple[str, str]] = set()
    for shot, _ in entries:
        name = plain = f"IMG_{shot.date.replace('-', '')}_{_clock(shot.time).replace(':', '')}"
        count = 1
        while (shot.walker, name) in taken:
            name, count = f"{plain}_{count}", count + 1
        taken.add((shot.walker, name))
        source = _picture(folder, shot)
        if source.exists():  # otherwise this was interrupted after it had been renamed
            source.replace(source.with_name(f"{name}.jpg"))


def _picture(folder: Path, shot: Shot) -> Path:
    return folder / shot.walker / f"{shot.key}.jpg"


def with_exif(jpeg: bytes, photo: Photo) -> bytes:
    """The same picture, not encoded again, with a phone's EXIF data in an APP1 segment after the start marker."""
    content = _exif(photo).tobytes()
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(content) + 2) + content + jpeg[2:]


def _exif(photo: Photo) -> Image.Exif:
    shot, found = photo.shot, Image.Exif()
    found[exif.MAKE], found[exif.MODEL] = MAKE, shot.camera.name
    found.get_ifd(exif.EXIF_IFD)[exif.TAKEN] = f"{shot.date.replace('-', ':')} {_clock(shot.time)}"
    found.get_ifd(exif.GPS_IFD).update(
        {
            exif.LATITUDE_REF: "N" if photo.latitude >= 0 else "S",
            exif.LATITUDE: _angle(photo.latitude),
            exif.LONGITUDE_REF: "E" if photo.longitude >= 0 else "W",
            exif.LONGITUDE: _angle(photo.longitude),
            exif.DIRECTION_REF: "T",
            exif.DIRECTION: IFDRational(round(shot.heading * 100) % 36_000, 100),
        }
    )
    return found


def _angle(degrees: float) -> tuple[IFDRational, IFDRational, IFDRational]:
    """Degrees, minutes, seconds."""
    minutes, parts = divmod(round(abs(degrees) * 3600 * _SECONDS), 60 * _SECONDS)
    return IFDRational(minutes // 60, 1), IFDRational(minutes % 60, 1), IFDRational(parts, _SECONDS)


def _clock(time: float) -> str:
    seconds = int(time) % 86_400
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
