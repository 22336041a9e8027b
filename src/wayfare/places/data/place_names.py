"""Photographs whose names say where they were taken, in the two forms that place recognition code uses.

    @E@N@zone@letter@lat@lon@pano@tile@heading@pitch@roll@height@timestamp@note@.jpg    only E and N are needed
    @E@N@sequence@frame@pano@city@timestamp@.jpg                                        keeps sequences, has no zone

For photographs of MSLS the note of the first form is `day_forward_paris`: light, view direction, city.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from wayfare.core.errors import DataError
from wayfare.io.folders import moment
from wayfare.io.tables import number, whole
from wayfare.places.data.place_photos import Group

_NOTE = re.compile(r"(day|night)_(forward|backward|sideways)_(.+)", re.DOTALL)
_BANDS = "CDEFGHJKLMNPQRSTUVWX"  # from south to north; N is the first above the equator
_SEQUENCE_FIELDS = 9
_metres = number(-2e7, 2e7)


class Named(NamedTuple):
    """What a name says; None, NaN or "" where it says nothing."""

    easting: float
    northing: float
    group: Group
    latitude: float = math.nan
    longitude: float = math.nan
    heading: float = math.nan
    captured: int | None = None
    sequence: str = ""
    frame: int = -1
    night: bool | None = None
    direction: str = ""


def parse(path: Path) -> Named:
    """Read the name of a file; a `DataError` names the field that cannot be read."""
    fields = path.name.split("@")
    if len(fields) < 4 or fields[0]:
        raise DataError("expected a name such as @0395201.31@5673135.24@.jpg", path, remedy="rename it")

    def read(place: int, name: str, parser: Callable[[str], Any], empty: Any) -> Any:
        value = fields[place].strip() if place < len(fields) - 1 else ""
        if not value and empty is not None:
            return empty[0]
        try:
            return parser(value)
        except ValueError as error:
            raise DataError(str(error), path, field=name, remedy="rename it") from None

    easting, northing = read(1, "easting", _metres, None), read(2, "northing", _metres, None)
    in_sequence = len(fields) == _SEQUENCE_FIELDS and fields[4] not in tuple(_BANDS)
    if in_sequence:
        return Named(
            easting,
            northing,
            Group(fields[6], ""),
            captured=read(7, "timestamp", moment, (None,)),
            sequence=fields[3],
            frame=read(4, "frame", whole(0, 2**31), (-1,)),
        )
    zone = read(3, "zone", whole(1, 60), (None,))
    letter = read(4, "zone letter", _band, ("",))
    note = _NOTE.fullmatch(fields[14]) if len(fields) > 15 else None
    return Named(
        easting,
        northing,
        Group(note[3] if note else "", "" if zone is None else f"{zone}{'S' if letter and letter < 'N' else 'N'}"),
        latitude=read(5, "latitude", number(-90, 90), (math.nan,)),
        longitude=read(6, "longitude", number(-180, 180), (math.nan,)),
        heading=read(9, "heading", number(-360, 360), (math.nan,)) % 360,
        captured=read(13, "timestamp", moment, (None,)),
        night=note[1] == "night" if note else None,
        direction=note[2].capitalize() if note else "",
    )


def _band(value: str) -> str:
    if value.upper() not in tuple(_BANDS):
        raise ValueError(f"expected a letter from C to X, found {value[:20]!r}")
    return value.upper()
