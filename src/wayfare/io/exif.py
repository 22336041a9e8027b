"""EXIF data of a photograph: position, time, direction and camera.

A position that is missing or makes no sense is a `DataError` that names the tag. Cameras often fill the other tags with
nonsense when they do not know the value (a direction of 0/0, the year 0000): such values are treated as unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from wayfare.core.errors import DataError
from wayfare.io.folders import moment
from wayfare.io.images import inspect

MAKE, MODEL, EXIF_IFD, GPS_IFD = 0x010F, 0x0110, 0x8769, 0x8825
TAKEN = 0x9003  # DateTimeOriginal
LATITUDE_REF, LATITUDE, LONGITUDE_REF, LONGITUDE, DIRECTION_REF, DIRECTION = 1, 2, 3, 4, 16, 17

_REMEDY = "leave the photo out, or give its position in a table"


class ExifFacts(NamedTuple):
    """The EXIF data of one photograph."""

    latitude: float
    longitude: float
    heading: float  # NaN if unknown
    captured: int | None  # milliseconds since 1970 by the camera's clock
    camera: str


def read_facts(path: Path) -> ExifFacts:
    """Read the EXIF data of a picture file."""
    main, taken, gps = inspect(path, _tags)
    if LATITUDE not in gps and LONGITUDE not in gps:
        raise DataError("no position in its EXIF", path, field="GPSLatitude", remedy=_REMEDY)
    latitude = _degrees(path, gps, (LATITUDE, LATITUDE_REF), name="GPSLatitude", sides="NS", limit=90)
    longitude = _degrees(path, gps, (LONGITUDE, LONGITUDE_REF), name="GPSLongitude", sides="EW", limit=180)
    if latitude == 0 and longitude == 0:
        raise DataError("the position is 0, 0: the camera did not know it", path, field="GPSLatitude", remedy=_REMEDY)
    heading = _real(gps.get(DIRECTION))
    camera = " ".join(filter(None, (_text(main.get(MAKE)), _text(main.get(MODEL)))))
    return ExifFacts(
        latitude, longitude, heading if 0 <= heading <= 360 else math.nan, _moment(taken.get(TAKEN)), camera
    )


def has_position(path: Path) -> bool:
    """Whether the EXIF data contain a position."""
    try:
        read_facts(path)
    except DataError:
        return False
    return True


def _tags(image: Image.Image) -> tuple[dict[int, Any], dict[int, Any], dict[int, Any]]:
    exif = image.getexif()
    return dict(exif), dict(exif.get_ifd(EXIF_IFD)), dict(exif.get_ifd(GPS_IFD))


def _degrees(
    path: Path, gps: Mapping[int, Any], tags: tuple[int, int], *, name: str, sides: str, limit: float
) -> float:
    """Degrees, minutes, seconds and hemisphere as one signed number; `tags` are those of value and hemisphere."""
    value = gps.get(tags[0])
    parts = [_real(part) for part in value] if isinstance(value, tuple | list) else [_real(value)]
    if not 1 <= len(parts) <= 3 or not all(math.isfinite(part) for part in parts):
        raise DataError("expected degrees, minutes and seconds", path, field=name, remedy=_REMEDY)
    side = _text(gps.get(tags[1])).upper()
    if side not in tuple(sides):
        found = f"expected {sides[0]} or {sides[1]}, found {side[:20]!r}"
        raise DataError(found, path, field=f"{name}Ref", remedy=_REMEDY)
    degrees = sum(part / 60.0**power for power, part in enumerate(parts))
    if not 0 <= degrees <= limit:
        raise DataError(f"out of range: {degrees:g}, expected 0 to {limit:g}", path, field=name, remedy=_REMEDY)
    return degrees if side == sides[0] else -degrees


def _real(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        return math.nan


def _text(value: Any) -> str:
    text = value.decode("latin-1") if isinstance(value, bytes) else value if isinstance(value, str) else ""
    return text.split("\0")[0].strip()


def _moment(value: Any) -> int | None:
    try:
        return moment(_text(value))
    except ValueError:
        return None
