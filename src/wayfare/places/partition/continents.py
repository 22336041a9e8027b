"""On which continent a city is, roughly, from its latitude and longitude.

The borders are straight lines, right for cities and most of the land, not for every island and border town. Six names:
Africa, America (one, as FedVPR's Fig. 4 has it), Antarctica, Asia, Europe, Oceania.

    Antarctica  south of 60 S
    Oceania     south of 10 S and east of 110 E; or in the Pacific south of 25 N, from 130 E to 125 W
    America     from 170 W to 30 W
    Africa      30 W to 60 E, below the Mediterranean (35.95 N in its west, 37.4 N from 0 to 11.5 E, 34.3 N further
                east) and west of a line from Suez to the mouth of the Red Sea
    Asia        east of 60 E; or of 50 E below 51 N; or of 29.1 E below 43.3 N (the Black Sea and the Caucasus); or of
                26.6 E below 40.9 N (Anatolia)
    Europe      the rest
"""

from __future__ import annotations

import numpy as np

from wayfare.places.data.place_photos import PlacePhotos

_SUEZ, _BAB = (30.0, 32.5), (12.5, 43.3)  # latitude and longitude of the ends of the Red Sea
_KM = 1000.0
_DEGREE = 111.2  # kilometres, of a great circle


def continent(latitude: float, longitude: float) -> str:
    """The continent of a place in degrees; longitude from -180 to 180."""
    if latitude < -60:
        return "Antarctica"
    if (latitude < -10 and longitude >= 110) or (latitude < 25 and not -125 <= longitude < 130):
        return "Oceania"
    if -170 <= longitude < -30:
        return "America"
    if -30 <= longitude < 60 and latitude < _mediterranean(longitude) and longitude < _red_sea(latitude):
        return "Africa"
    asian = ((60, 90.0), (50, 51.0), (29.1, 43.3), (26.6, 40.9))
    east = longitude if longitude >= -170 else 180.0  # Chukotka goes on beyond 180
    return "Asia" if any(east >= west and latitude < north for west, north in asian) else "Europe"


def _mediterranean(longitude: float) -> float:
    """The latitude of its middle."""
    return 35.95 if longitude < 0 else 37.4 if longitude < 11.5 else 34.3


def _red_sea(latitude: float) -> float:
    """The longitude of its middle; north of it that of Suez, and south of it Africa ends in the ocean."""
    if latitude < _BAB[0]:
        return 60.0
    along = (_SUEZ[0] - min(latitude, _SUEZ[0])) / (_SUEZ[0] - _BAB[0])
    return _SUEZ[1] + along * (_BAB[1] - _SUEZ[1])


def continent_of(photos: PlacePhotos, group: int) -> str | None:
    """The continent of the middle of a group's photographs; None where nothing says where on Earth they are."""
    middle = _middle(photos, group)
    return None if middle is None else continent(*middle)


def _middle(photos: PlacePhotos, group: int) -> tuple[float, float] | None:
    """Latitude and longitude, taken from the UTM coordinates where the layout has only those: to about a degree."""
    members = photos.group == group
    if photos.latitude is not None and photos.longitude is not None:
        known = members & np.isfinite(photos.latitude) & np.isfinite(photos.longitude)
        if known.any():
            return float(np.median(photos.latitude[known])), float(np.median(photos.longitude[known]))
    zone = photos.groups[group].zone
    known = members & np.isfinite(photos.easting) & np.isfinite(photos.northing)
    if not (known.any() and zone[:-1].isdecimal() and 1 <= int(zone[:-1]) <= 60):
        return None
    north = float(np.median(photos.northing[known])) / _KM - (10_000 if zone.endswith("S") else 0)
    latitude = float(np.clip(north / _DEGREE, -80, 84))
    east = float(np.median(photos.easting[known])) / _KM - 500
    longitude = int(zone[:-1]) * 6 - 183 + east / (_DEGREE * float(np.cos(np.radians(latitude))))
    return latitude, (longitude + 180) % 360 - 180
