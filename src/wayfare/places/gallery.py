"""What the page shows of photographs of places: MSLS and folders of geotagged photographs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from wayfare.io.findings import Problems
from wayfare.pages.counting import histogram, tally
from wayfare.pages.dataset_parts import Bars, Strip
from wayfare.pages.gallery_parts import Gathered
from wayfare.pages.maps import MapSource
from wayfare.pages.thumbnails import PictureSource, Thumbnails, evenly
from wayfare.places.data import frames, msls, photos
from wayfare.places.data.place_photos import PlacePhotos

_SAMPLE, _KIND, _WALK, _PAIRS = 24, 8, 16, 6
_STEPS = 0.5, 50.0  # metres from one frame of a walk to the next, at least and at most
_NEAR, _TURNED = 12.0, 25.0  # metres and degrees by which two photographs of a place may differ
_ELSEWHERE = 30.0  # metres from one pair to the next
_SOME = 20_000  # photographs among which pairs are looked for
_SECTORS = ("N", "NE", "E", "SE", "S", "SW", "W", "NW")


def gather(path: Path, layout: str, thumbnails: Thumbnails) -> Gathered:
    """Of either layout."""
    found = msls.load(path, exclude_panos=False) if layout == "msls" else _photos(path)
    view = _View(found, thumbnails)
    strips = [view.sample(), *view.by_light(), view.walk(), view.two_by_two(), view.panoramas()]
    return Gathered(
        counts=view.counts(),
        problems=found.problems,
        strips=[strip for strip in strips if strip is not None and strip.pictures],
        bars=view.bars(),
        sources=view.sources(),
    )


def _photos(path: Path) -> PlacePhotos:
    if photos.form_of(path) == "frames":  # they are worth seeing also where nothing says which belong together
        return frames.load(path, None, None, Problems(), truth_needed=False)
    return photos.load(path)


class _View:
    """Photographs, seen from all sides."""

    def __init__(self, found: PlacePhotos, thumbnails: Thumbnails) -> None:
        self.found, self.thumbnails = found, thumbnails
        self.count = len(found)
        self.position = np.stack((found.easting, found.northing), -1)
        self.flat = np.ones(self.count, bool) if found.pano is None else ~found.pano
        self.night = found.night if found.night is not None else np.zeros(self.count, bool)
        self.sequence = found.sequence if found.sequence is not None else np.full(self.count, -1)
        self.frame = found.frame if found.frame is not None else np.arange(self.count)
        self.order = np.lexsort((self.frame, self.sequence, found.group))
        self.origin = self.sequence  # whose photograph it is: two of one place must not be of one origin
        if found.sequence is None and found.camera is not None:
            self.origin = np.unique(found.camera.astype(str), return_inverse=True)[1]
        self.cities = found.city
        self.several = len(set(self.cities)) > 1  # cities

    def counts(self) -> dict[str, int | float | str]:
        found = self.found
        counts: dict[str, int | float | str] = {"photos": self.count}
        if self.several:
            counts["cities"] = len({group.city for group in found.groups})
        if found.query is not None:
            counts |= {"queries": int(found.query.sum()), "database": int((~found.query).sum())}
        if found.sequence is not None:
            counts["sequences"] = len(found.sequences)
        if found.night is not None:
            counts["by night"] = int(found.night.sum())
        if found.pano is not None:
            counts["panoramas"] = int(found.pano.sum())
        return counts

    # ---- Pictures

    def wanted(self, row: int, caption: str = "") -> PictureSource:
        file = self.found.files[row]
        return PictureSource(self.found.root / file, ", ".join(filter(None, (file, self.taken(row)))), caption)

    def some(self, mask: np.ndarray, most: int) -> list[PictureSource]:
        return [
            self.wanted(row, self.cities[row] if self.several else "")
            for row in evenly(self.order[mask[self.order]], most)
        ]

    def sample(self) -> Strip:
        title = f"{_SAMPLE} of {self.count:,} photos" if self.count > _SAMPLE else "All photos"
        return Strip(title, self.thumbnails.pictures(self.some(self.flat, _SAMPLE)))

    def by_light(self) -> list[Strip]:
        if not self.night.any() or self.night.all():
            return []
        rows = (("By day", ~self.night), ("By night", self.night))
        self.thumbnails.conditions.add("By night")
        return [Strip(title, self.thumbnails.pictures(self.some(mask & self.flat, _KIND))) for title, mask in rows]

    def walk(self) -> Strip | None:
        """A long way by day, frame after frame; one that looks ahead, if there is any."""
        usable = self.flat & ~self.night & (self.sequence >= 0) & np.isfinite(self.position).all(1)
        ahead = usable & (self.found.direction == "Forward") if self.found.direction is not None else usable
        rows = max((self.longest(mask) for mask in (ahead, usable)), key=lambda rows: min(len(rows), _WALK // 2))
        if len(rows) < 3:
            return None
        along = np.append(0, np.cumsum(np.hypot(*np.diff(self.position[rows], axis=0).T)))
        title = f"A walk along a street{f' in {self.cities[rows[0]]}' if self.several else ''}"
        wanted = [self.wanted(int(row), f"{metres:.0f} m") for row, metres in zip(rows, along)]
        return Strip(title, self.thumbnails.pictures(wanted))

    def longest(self, usable: np.ndarray) -> np.ndarray:
        """The beginning of the longest run of a sequence's frames without a wide gap; standing still does not count."""
        rows = self.order[usable[self.order]]
        steps = np.hypot(*np.diff(self.position[rows], axis=0).T)
        same = self.sequence[rows[1:]] == self.sequence[rows[:-1]]
        rows = rows[np.append(True, ~same | (steps >= _STEPS[0]))[: len(rows)]]
        steps = np.hypot(*np.diff(self.position[rows], axis=0).T)
        ends = (self.sequence[rows[1:]] != self.sequence[rows[:-1]]) | (steps > _STEPS[1])
        return max(np.split(rows, np.flatnonzero(ends) + 1), key=len)[:_WALK]

    def two_by_two(self) -> Strip | None:
        """Photographs of one place from two sequences, or what the layout itself says belongs together."""
        if self.found.pairs is not None:
            pairs = self.found.pairs[evenly(range(len(self.found.pairs)), _PAIRS)]
            chosen = [(int(one), int(other), "") for one, other in pairs]
        else:
            chosen = self.near_pairs()
        wanted = [
            (self.wanted(one, self.taken(one)), self.wanted(b, f"{gap}{self.taken(b)}")) for one, b, gap in chosen
        ]
        note = "Their headings are not known." if self.found.heading is None and self.found.pairs is None else ""
        return Strip("One place, twice", self.thumbnails.pairs(wanted), note, pairs=True) if wanted else None

    def near_pairs(self) -> list[tuple[int, int, str]]:
        """The nearest ones of two sequences or cameras that look the same way, each pair at another place."""
        usable = self.flat & np.isfinite(self.position).all(1) & (self.origin >= 0)
        rows = np.array(evenly(np.flatnonzero(usable), _SOME), np.int64)
        if len(rows) < 2:
            return []
        # far enough apart that those of different groups are never near
        place = np.column_stack((self.position[rows], self.found.group[rows] * 1e9))
        far, near = cKDTree(place).query(place, min(24, len(rows)), distance_upper_bound=_NEAR)
        one, rank = np.nonzero(np.isfinite(far))
        first, second, distance = rows[one], rows[near[one, rank]], far[one, rank]
        turned = self.turned(first, second)
        good = (first < second) & (self.origin[first] != self.origin[second]) & (turned <= _TURNED)
        order = np.flatnonzero(good)[np.argsort((distance + turned / 5)[good], kind="stable")]
        same_light = self.night[first[order]] == self.night[second[order]]
        found: list[tuple[int, int, str]] = []
        # half of them in the same light, half not, as far as there are such
        for some, most in ((order[same_light], _PAIRS // 2), (order[~same_light], _PAIRS), (order, _PAIRS)):
            for at in some:
                if len(found) == most:
                    break
                if all(self.elsewhere(first[at], other) for other, _, _ in found):
                    found.append((int(first[at]), int(second[at]), f"{distance[at]:.1f} m away, "))
        return found

    def elsewhere(self, one: int, other: int) -> bool:
        if self.found.group[one] != self.found.group[other]:
            return True
        return bool(np.hypot(*(self.position[one] - self.position[other])) > _ELSEWHERE)

    def turned(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Degrees between the headings; 0 where nothing is known."""
        if self.found.heading is None:
            return np.zeros(len(first))
        angle = np.abs((self.found.heading[first] - self.found.heading[second] + 180) % 360 - 180)
        return np.asarray(np.nan_to_num(angle))

    def taken(self, row: int) -> str:
        """Who, when and in which light, as far as it is known."""
        found, parts = self.found, []
        if found.camera is not None and found.camera[row]:
            parts.append(str(found.camera[row]))
        if found.captured is not None and not np.isnat(found.captured[row]):
            parts.append(str(found.captured[row])[:10])
        if found.night is not None:
            parts.append("night" if found.night[row] else "day")
        return ", ".join(parts)

    def panoramas(self) -> Strip | None:
        if self.flat.all():
            return None
        return Strip("Panoramas", self.thumbnails.pictures(self.some(~self.flat, _KIND // 2)))

    # ---- Numbers

    def bars(self) -> list[Bars]:
        found = self.found
        bars = self.over_time()
        if found.heading is not None and np.isfinite(found.heading).any():
            sector = np.floor((found.heading[np.isfinite(found.heading)] + 22.5) % 360 / 45).astype(int)
            bars.append(_ordered("Where cameras look", _SECTORS, np.bincount(sector, minlength=8), "direction"))
        if found.sequence is not None:
            lengths = np.bincount(found.sequence[found.sequence >= 0], minlength=len(found.sequences))
            if len(set(lengths.tolist())) > 1:
                bars.append(histogram("Length of sequences", "sequences", lengths[lengths > 0], "photos"))
        if found.subtasks:
            counts = np.array([flags.sum() for flags in found.subtasks.values()])
            bars.append(_ordered("In subtasks", list(found.subtasks), counts, "subtask"))
        for title, column in (("Cities", self.cities), ("View direction", found.direction), ("Cameras", found.camera)):
            if column is not None and len(set(column)) > 1:
                bars.append(tally(title, "photos", [name or "not known" for name in column]))
        return bars

    def over_time(self) -> list[Bars]:
        if self.found.captured is None:
            return []
        known = self.found.captured[~np.isnat(self.found.captured)]
        minutes = (known - known.astype("datetime64[D]")).astype("timedelta64[m]").astype(int)
        months = np.datetime_as_string(known, "M").tolist()
        bars = []
        if minutes.any():  # dates alone are at midnight
            counts = np.bincount(minutes // 60, minlength=24)
            bars.append(_ordered("Over the day", [str(hour) for hour in range(24)], counts, "hour"))
        if len(set(months)) > 1:
            names = sorted(set(months))
            bars.append(_ordered("By month", names, np.array([months.count(name) for name in names]), "month"))
        return bars

    # ---- Map

    def sources(self) -> list[MapSource]:
        found = self.found
        query = found.query if found.query is not None else np.zeros(self.count, bool)
        names = ("photos", "photos") if found.query is None else ("database", "queries")
        degrees = None
        if found.latitude is not None and found.longitude is not None:
            degrees = np.stack((found.latitude, found.longitude), -1)
        places = self.position if degrees is None else degrees
        sources = []
        for number, group in enumerate(found.groups):
            for asked in (False, True):
                for dark in (False, True):
                    rows = np.flatnonzero((found.group == number) & (query == asked) & (self.night == dark))
                    if not len(rows):
                        continue
                    layer = names[asked] + (" by night" if dark else "")
                    words = [Path(found.files[row]).stem for row in rows]
                    plane = "" if degrees is not None else " ".join(part for part in group if part) or "photos"
                    sources.append(
                        MapSource(layer, "photos", [places[rows]], words=words, city=group.city, plane=plane)
                    )
        return sources


def _ordered(title: str, names: Sequence[str], counts: np.ndarray, axis: str) -> Bars:
    return Bars(title, "photos", names, counts.tolist(), ordered=True, axis=axis)
