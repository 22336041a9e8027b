"""Where photographs were taken, as an index keeps it: a row of fixed size for each.

Positions are compared by easting and northing within a group (a city and its zone), and across groups by latitude and
longitude, where both photographs have them: a town may have got another zone when more photographs of it were added.
Others cannot be compared: they are infinitely far from each other.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from wayfare.core.errors import DataError
from wayfare.io import layouts
from wayfare.io.earth import from_centre, to_degrees, to_metres
from wayfare.io.folders import pictures_below
from wayfare.places.data import msls
from wayfare.places.data import photos as folder
from wayfare.places.data.place_photos import Group, PlacePhotos

ROW = np.dtype(
    [
        ("name_end", "<i8"),  # of its file's name among all names, which follow each other
        ("size", "<i8"),  # of its file, and when that was changed: by these it is known again
        ("changed", "<i8"),
        ("easting", "<f8"),
        ("northing", "<f8"),
        ("latitude", "<f8"),  # NaN where it is not known, as in the next two
        ("longitude", "<f8"),
        ("heading", "<f8"),
        ("captured", "<M8[ms]"),  # NaT where it is not known
        ("group", "<i4"),  # -1: not one of the index's groups
        ("sequence", "<u4"),  # a checksum of its sequence's name; 0 where it is not known
    ]
)
_EARTH = 6_371_009.0  # its mean radius, metres


class Spot(NamedTuple):
    """A position; NaN and "" for what is not known."""

    latitude: float
    longitude: float
    easting: float
    northing: float
    city: str
    zone: str


def read_photographs(root: Path, database: bool = False) -> PlacePhotos:
    """The photographs of an MSLS tree or of a folder of photos, those that have a position; or only the database."""
    try:
        found = {item.layout: item.path for item in layouts.find(root)}
    except DataError as error:  # it says of every layout that this is not it
        if not root.is_dir():
            raise
        raise (_no_positions(root) if pictures_below(root, 1) else DataError("no photographs in it", root)) from error
    if "msls" in found:
        photos = msls.load(found["msls"])
    elif "photos" in found:
        if folder.form_of(found["photos"]) == "frames":
            raise _no_positions(root)
        photos = folder.load(found["photos"])
    else:
        what = f"a data set in the layout {sorted(found)[0]!r}"
        raise DataError(what, root, remedy="an index needs photos with positions: MSLS, @-names, a CSV table, or EXIF")
    placed = photos.take(np.isfinite(photos.easting) & np.isfinite(photos.northing))
    if not len(placed):
        raise _no_positions(root)
    if not database:
        return placed
    if placed.query is None or placed.query.all():
        raise DataError("the files do not say which photographs are the database", root, remedy="index all of them")
    return placed.take(~placed.query)


def _no_positions(root: Path) -> DataError:
    remedy = "an index needs them: in EXIF, in the names, or in a CSV table with file, lat and lon"
    return DataError("these photographs have no positions", root, remedy=remedy)


def rows_of(photos: PlacePhotos, groups: Sequence[Group]) -> np.ndarray:
    """The table's positions as rows; groups are numbered as in `groups`."""
    rows = np.zeros(len(photos), ROW)
    for name, unknown in (("latitude", np.nan), ("longitude", np.nan), ("heading", np.nan), ("captured", "NaT")):
        column = getattr(photos, name)
        rows[name] = unknown if column is None else column
    rows["easting"], rows["northing"] = photos.easting, photos.northing
    numbers = np.array([groups.index(group) if group in groups else -1 for group in photos.groups], np.int32)
    rows["group"] = numbers[photos.group]
    if photos.sequence is not None:
        sums = [zlib.crc32(name.encode(errors="surrogateescape")) or 1 for name in photos.sequences]
        rows["sequence"] = np.array([*sums, 0], np.uint32)[photos.sequence]
    return rows


def metres(rows: np.ndarray, one: Any) -> np.ndarray:
    """How far each row is from one row, over the ground; inf where that is not known."""
    flat = np.hypot(rows["easting"] - one["easting"], rows["northing"] - one["northing"])
    same = (rows["group"] == one["group"]) & (rows["group"] >= 0)
    if same.all():
        return np.asarray(flat)
    straight = np.linalg.norm(_in_space(rows) - _in_space(one), axis=-1)
    around = 2 * _EARTH * np.arcsin(np.minimum(straight / (2 * _EARTH), 1))
    return np.where(same, flat, np.where(np.isfinite(around), around, np.inf))


def closest(rows: np.ndarray, among: np.ndarray) -> np.ndarray:
    """How far each row is from the closest of others; inf where nothing can be compared with it."""
    found = np.full(len(rows), np.inf)
    pairs = [(_in_space(rows), _in_space(among))]
    for group in np.unique(rows["group"][rows["group"] >= 0]):
        mine, theirs = (np.where((table["group"] == group)[:, None], _flat(table), np.nan) for table in (rows, among))
        pairs.append((mine, theirs))
    for mine, theirs in pairs:
        usable, known = np.isfinite(mine).all(1), np.isfinite(theirs).all(1)
        if usable.any() and known.any():
            found[usable] = np.minimum(found[usable], cKDTree(theirs[known]).query(mine[usable])[0])
    return found


def mean_spot(rows: np.ndarray, weights: np.ndarray, group: Group) -> tuple[Spot, float]:
    """The weighted mean of positions near the first row's, which is of `group`, and how many metres they scatter."""
    same = rows["group"] == rows["group"][0]
    plane, shares = _flat(rows[same]), weights[same] / weights[same].sum()
    middle = shares @ plane
    spread = float(np.sqrt(shares @ ((plane - middle) ** 2).sum(1)))
    degrees = np.stack((rows["latitude"], rows["longitude"]), -1)
    known = np.isfinite(degrees).all(1)
    place = np.full(2, np.nan)
    if known[0]:
        origin = (float(degrees[0, 0]), float(degrees[0, 1]))
        place = to_degrees(weights[known] / weights[known].sum() @ to_metres(degrees[known], origin), origin)
    return Spot(
        float(place[0]), float(place[1]), float(middle[0]), northing=float(middle[1]), city=group.city, zone=group.zone
    ), spread


def _in_space(rows: Any) -> np.ndarray:
    return from_centre(np.stack((rows["latitude"], rows["longitude"]), -1))


def _flat(rows: np.ndarray) -> np.ndarray:
    return np.stack((rows["easting"], rows["northing"]), -1)
