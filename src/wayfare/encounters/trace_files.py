"""Reading trace files of the usual formats into rows; `trace_sources` finds the files, `traces` combines the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal
from xml.parsers import expat

import gpxpy
import numpy as np

from wayfare.core.errors import DataError, unknown
from wayfare.encounters.contact_files import (
    SECONDS,
    Meetings,
    check_plausible,
    plain_rows,
    read_connections,
    read_intervals,
    read_meetings,
)
from wayfare.encounters.trace_columns import FORMS, is_geographic, named_column, time_column
from wayfare.encounters.trace_sources import (
    TraceSource,
    beginning,
    content,
    delimiter_of,
    fields_of,
    first_line,
    is_number,
    kind_of,
    names_of,
    sources,
)
from wayfare.io import tables
from wayfare.io.findings import Problems

EXPECTED = (
    "expected a table with the columns device, time, lat, lon (or x, y), or i, j, start, end; lines of `t x y`, "
    "`t id x y`, `t i j` or `i j start end`; or a GPX track"
)
_LATITUDE, _LONGITUDE, _METRES = tables.number(-90, 90), tables.number(-180, 180), tables.number(-2e7, 2e7)


# What times count from: a midnight, each device's own start, or some hour of a day that all have been moved to.
Since = Literal["midnight", "start", "opening"]


@dataclass(frozen=True)
class Fixes:
    """Where devices were: the usable rows of one file."""

    file: Path
    devices: Sequence[str]
    times: np.ndarray  # float64: seconds; since 1970 if dated
    places: np.ndarray  # float64 (N, 2): latitude and longitude, or x and y
    stationary: np.ndarray  # bool
    lines: Sequence[int]
    geographic: bool
    dated: bool
    gap: float = 900.0  # seconds without a row after which a device is usually taken to be absent
    since: Since = "midnight"


def read(path: Path, problems: Problems, slot: float = 30.0, form: str = "") -> list[Fixes] | list[Meetings]:
    """Every trace file at this path, all of one kind; `form` says which, where that is not to be guessed.

    Contacts that last are given as one meeting in each slot.
    """
    if form and form not in FORMS:
        raise unknown("form of traces", form, FORMS)
    fixes: list[Fixes] = []
    meetings: list[Meetings] = []
    others: dict[str, list[TraceSource]] = {"visits": [], "places": [], "": []}
    for source in sources(path):
        kind = form or kind_of(source.data) or ""
        if kind in others:
            others[kind].append(source)
        elif isinstance(found := _read_one(source, kind, slot, problems), Meetings):
            meetings.append(found)
            if not form:
                check_plausible(found)
        else:
            fixes.append(found)
    visits, places, strangers = others.values()
    if visits:
        fixes += [_visits(visit, _nearest_name(visit, places or _places_beside(path)), problems) for visit in visits]
    if not fixes and not meetings:
        for source in strangers:
            if names_of(first_line(source.data)):  # some columns are there: say which are not
                _table(source, problems)
        raise DataError(f"no traces: {EXPECTED}{_columns_seen(strangers)}", path)
    for source in strangers:
        problems.add(f"not a trace: {EXPECTED}", source.name, remedy="remove or correct it")
    if (fixes and meetings) or len({(found.geographic, found.dated) for found in fixes}) > 1:
        raise DataError("holds traces of several kinds", path, remedy="give one file, or put each kind in its folder")
    return meetings or fixes


def _read_one(source: TraceSource, kind: str, slot: float, problems: Problems) -> Fixes | Meetings:
    if kind == "meetings":
        return read_meetings(source, problems)
    if kind in ("intervals", "connections"):
        return (read_intervals if kind == "intervals" else read_connections)(source, slot, problems)
    readers = {"table": _table, "walk": _walk, "gpx": _gpx, "positions": _positions}
    return readers[kind](source, problems)


def _columns_seen(strangers: Sequence[TraceSource]) -> str:
    """What a file of numbers looks like that is of no known form."""
    for source in strangers:
        fields = fields_of(first_line(source.data))
        if len(fields) > 1 and all(map(is_number, fields)):
            return (
                f"; {source.name.name} has {len(fields)} columns of numbers, and what they are is unclear: name the "
                f"format with --layout or topology.layout ({', '.join(FORMS)})"
            )
    return ""


# ---- Each kind


class _TimeParser:
    """Reads times: dates or seconds, whichever comes first is expected from then on."""

    def __init__(self) -> None:
        self.dated: bool | None = None

    def __call__(self, value: str) -> float:
        if self.dated is not True and (self.dated is False or is_number(value)):
            found = float(SECONDS(value))
            self.dated = False
        else:
            found = _since_1970(value)
            self.dated = True
        return found


def _since_1970(value: str) -> float:
    """Seconds; a time without a zone is taken as it is, one with a zone is turned into UTC."""
    try:
        found = datetime.fromisoformat(value.strip())
    except ValueError:
        raise ValueError(f"expected a time as 2024-06-21T06:00:00, found {value[:40]!r}") from None
    return _seconds(found)


def _seconds(moment: datetime) -> float:
    if not 1900 <= moment.year < 2200:
        raise ValueError(f"out of range: the year {moment.year}, expected 1900 to 2199")
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (zoned - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()


def _table(source: TraceSource, problems: Problems) -> Fixes:
    header = first_line(source.data)
    names = names_of(header)
    geographic = {"lat", "lon"} <= names.keys() or not names.keys() & {"x", "y"}
    first, second = ("lat", "lon") if geographic else ("x", "y")
    clock = _TimeParser()
    parsers: dict[str, Callable[[str], object]] = {
        "device": tables.text,
        "time": clock,
        first: _LATITUDE if geographic else _METRES,
        second: _LONGITUDE if geographic else _METRES,
    }
    called = {name: names.get(name, name) for name in (*parsers, "stationary")}
    table = tables.read_csv(
        source.name,
        {called[name]: parser for name, parser in parsers.items()},
        problems,
        also={called["stationary"]: tables.boolean},
        delimiter=delimiter_of(header),
        content=source.data,
    )
    still = table.columns.get(called["stationary"], [False] * len(table))
    places = np.array([table[called[first]], table[called[second]]], float).T
    return Fixes(
        source.name,
        table[called["device"]],
        times=np.array(table[called["time"]], float),
        places=places.reshape(-1, 2),
        stationary=np.array(still, bool),
        lines=table.lines,
        geographic=geographic,
        dated=bool(clock.dated),
    )


def _walk(source: TraceSource, problems: Problems) -> Fixes:
    rows, lines = plain_rows(source, (SECONDS, _METRES, _METRES), "t x y", problems)
    numbers = np.array(rows, float).reshape(-1, 3)
    return replace(_one_device(source.name, numbers[:, 0], numbers[:, 1:], lines, geographic=False), since="start")


def _one_device(file: Path, times: np.ndarray, places: np.ndarray, lines: Sequence[int], geographic: bool) -> Fixes:
    devices = [file.name.split(".")[0]] * len(lines)
    return Fixes(
        file,
        devices,
        times=times,
        places=places,
        stationary=np.zeros(len(lines), bool),
        lines=lines,
        geographic=geographic,
        dated=geographic,
    )


def _positions(source: TraceSource, problems: Problems) -> Fixes:
    """Lines of `t id x y` or `id t x y`; latitude and longitude may stand for x and y."""
    some = [fields_of(line) for line in tables.decode_text(source.data, source.name).split("\n")[:1000]]
    some = [row for row in some if len(row) == 4]
    named = named_column(some[0]) if some else None
    some = [row for row in some if (all(map(is_number, row)) if named is None else named_column(row) == named)]
    time = (time_column(some) or 0) if named is None else 1 - named
    geographic = is_geographic(some)
    first, second = (_LATITUDE, _LONGITUDE) if geographic else (_METRES, _METRES)
    who = (SECONDS, tables.text) if time == 0 else (tables.text, SECONDS)
    names = f"{'t id' if time == 0 else 'id t'} {'lat lon' if geographic else 'x y'}"
    rows, lines = plain_rows(source, (*who, first, second), names, problems)
    return Fixes(
        source.name,
        [row[1 - time] for row in rows],
        times=np.array([row[time] for row in rows], float),
        places=np.array([row[2:] for row in rows], float).reshape(-1, 2),
        stationary=np.zeros(len(rows), bool),
        lines=lines,
        geographic=geographic,
        dated=False,
    )


def _gpx(source: TraceSource, problems: Problems) -> Fixes:
    """Track points with a time. A point without one is left out; what gpxpy cannot read at all refuses the file."""
    text = tables.decode_text(source.data, source.name)
    found = _point_lines(text, source.name)
    try:
        parsed = gpxpy.parse(text)
    except Exception as error:  # whatever gpxpy meets in a stranger's file
        raise DataError(f"not GPX: {str(error)[:200]}", source.name) from error
    points = [point for track in parsed.tracks for segment in track.segments for point in segment.points]
    if len(points) != len(found):
        raise DataError(f"not GPX: it has {len(found)} track points, of which {len(points)} can be read", source.name)
    rows: list[tuple[float, float, float]] = []
    lines: list[int] = []
    for point, line in zip(points, found):
        try:
            if point.time is None:
                raise ValueError("expected a time as 2024-06-21T06:00:00Z")
            place = _LATITUDE(str(point.latitude)), _LONGITUDE(str(point.longitude))
            rows.append((_seconds(point.time), *place))
            lines.append(line)
        except ValueError as error:
            problems.add(str(error), source.name, line, "trkpt", "correct or remove the point")
    numbers = np.array(rows, float).reshape(-1, 3)
    return _one_device(source.name, numbers[:, 0], numbers[:, 1:], lines, geographic=True)


def _point_lines(text: str, file: Path) -> list[int]:
    """The lines of a GPX file's track points, which gpxpy does not tell.

    This is also the guard before gpxpy, whose parser would expand entities: no document type is accepted, and so no
    entity that grows.
    """
    lines: list[int] = []
    inside: list[str] = []
    parser = expat.ParserCreate(namespace_separator=" ")

    def refuse(*_: object) -> None:
        raise DataError("has a document type (<!DOCTYPE), which no GPX needs", file, parser.CurrentLineNumber)

    def start(name: str, attributes: dict[str, str]) -> None:
        inside.append(name.rpartition(" ")[2])
        if inside[-2:] == ["trkseg", "trkpt"]:
            lines.append(parser.CurrentLineNumber)

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda name: inside.pop()
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise DataError(f"not XML: {expat.ErrorString(error.code)}", file, error.lineno) from error
    return lines


# ---- Visits to attractions


def _visits(source: TraceSource, places: TraceSource, problems: Problems) -> Fixes:
    """Each visitor's longest visit, all moved to one day, which begins when the fewest photographs are taken.

    Whose clock the times follow is not known, so they count from then. A visit ends with the day, and where the column
    `sequence` says so. Of several photographs in one second the first counts.
    """
    spots = _spots(places, problems)
    header = first_line(source.data)
    names = names_of(header)
    columns = {names["device"]: tables.text, names["time"]: SECONDS, names["poi"]: _spot_of(spots, places.name)}
    also = {names["sequence"]: tables.text} if "sequence" in names else {}
    delimiter = delimiter_of(header)
    table = tables.read_csv(source.name, columns, problems, also=also, delimiter=delimiter, content=source.data)
    by_visitor: dict[str, list[int]] = {}
    for row, visitor in enumerate(table[names["device"]]):
        by_visitor.setdefault(visitor, []).append(row)
    where = np.array(table[names["poi"]], float).reshape(-1, 2)
    times = np.array(table[names["time"]], float)
    times -= 3600 * _quiet_hour(times)
    sequences = table[names["sequence"]] if also else None
    chosen: list[int] = []
    for rows in by_visitor.values():
        rows.sort(key=lambda row: times[row])
        visit = _longest(rows, times, sequences)
        chosen += [row for row, before in zip(visit, [None, *visit]) if before is None or times[row] > times[before]]
    devices, lines = [table[names["device"]][row] for row in chosen], [table.lines[row] for row in chosen]
    still = np.zeros(len(lines), bool)
    # people who photograph at one attraction and then at another were in the park in between
    times, where = times[chosen] % 86400, where[chosen]
    return Fixes(
        source.name,
        devices,
        times=times,
        places=where,
        stationary=still,
        lines=lines,
        geographic=True,
        dated=False,
        gap=5400.0,
        since="opening",
    )


def _quiet_hour(times: np.ndarray) -> int:
    """The hour of the day in which, with the one before and the one after it, least happens."""
    busy = np.bincount((times // 3600 % 24).astype(int), minlength=24)
    return int((np.roll(busy, 1) + busy + np.roll(busy, -1)).argmin())


def _longest(rows: list[int], times: np.ndarray, sequences: list[str] | None) -> list[int]:
    visits: dict[tuple[float, str], list[int]] = {}
    for row in rows:
        visits.setdefault((times[row] // 86400, sequences[row] if sequences else ""), []).append(row)
    return max(visits.values(), key=lambda visit: (times[visit[-1]] - times[visit[0]], len(visit)))


def _spots(source: TraceSource, problems: Problems) -> dict[str, tuple[float, float]]:
    header = first_line(source.data)
    names = names_of(header)
    if not {"lat", "lon"} <= names.keys():
        raise DataError("attractions need the columns lat and lon", source.name, 1)
    columns = {names["poi"]: tables.text, names["lat"]: _LATITUDE, names["lon"]: _LONGITUDE}
    delimiter = delimiter_of(header)
    table = tables.read_csv(source.name, columns, problems, key=names["poi"], delimiter=delimiter, content=source.data)
    return dict(zip(table[names["poi"]], zip(table[names["lat"]], table[names["lon"]])))


def _spot_of(spots: dict[str, tuple[float, float]], file: Path) -> tables.Parser:
    def parse(value: str) -> tuple[float, float]:
        if value.strip() not in spots:
            raise ValueError(f"no attraction {value[:40]!r} in {file.name}")
        return spots[value.strip()]

    return parse


def _places_beside(visits: Path) -> list[TraceSource]:
    beside = visits.parent.iterdir() if visits.is_file() else ()
    files = sorted(file for file in beside if file.name.lower().endswith((".csv", ".csv.gz")) and file != visits)
    return [TraceSource(file, content(file)) for file in files[:100] if kind_of(beginning(file)) == "places"]


def _nearest_name(visits: TraceSource, places: Sequence[TraceSource]) -> TraceSource:
    """The table of places whose name begins most like the visits'."""
    if not places:
        remedy = "put the table of attractions (poi, lat, lon) beside it"
        raise DataError("the visits have no table with the positions of the attractions", visits.name, remedy=remedy)
    return max(places, key=lambda source: _alike(source.name.name, visits.name.name))


def _alike(one: str, other: str) -> int:
    """How many letters two names begin with in common."""
    return next((place for place, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
