"""Reading files of contacts: who was near whom, as moments, as intervals, or as links that go up and down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wayfare.core.errors import DataError
from wayfare.encounters.trace_columns import meeting_time
from wayfare.encounters.trace_sources import TraceSource, delimiter_of, fields_of, first_line, is_number, names_of
from wayfare.io import tables
from wayfare.io.findings import Problems

SECONDS = tables.number(-3e11, 3e11)  # a hundred centuries
_MOST = 20_000_000  # contacts, slot by slot
_MANY = 50  # rows from which on it is told whether they can be contacts at all
_SPAN = 600.0  # seconds in which not thousands of devices meet


@dataclass(frozen=True)
class Meetings:
    """Who was near whom: the usable rows of one file."""

    file: Path
    times: np.ndarray  # float64
    ones: Sequence[str]
    others: Sequence[str]


class _Interval(NamedTuple):
    one: str
    other: str
    start: float
    end: float


def read_meetings(source: TraceSource, problems: Problems) -> Meetings:
    """Lines of `t i j` or `i j t`, or a table with the columns time, i and j."""
    if not is_number((fields_of(first_line(source.data)) or [""])[0]):
        rows, lines = _table(source, {"time": SECONDS, "one": tables.text, "other": tables.text}, problems)
    else:
        some = [fields_of(line) for line in tables.decode_text(source.data, source.name).split("\n")[:1000]]
        if meeting_time([row for row in some if len(row) >= 3 and all(map(is_number, row[:3]))]) == 0:
            rows, lines = plain_rows(source, (SECONDS, tables.text, tables.text), "t i j", problems, more=2)
        else:
            found, lines = plain_rows(source, (tables.text, tables.text, SECONDS), "i j t", problems)
            rows = [[time, one, other] for one, other, time in found]
    first: dict[tuple[Any, ...], int] = {}
    kept = []
    for row, line in zip(rows, lines):
        time, one, other = row
        if one == other:
            problems.add(f"{one[:40]!r} meets itself", source.name, line, remedy="remove the line")
        elif (before := first.setdefault((time, *sorted((one, other))), line)) != line:
            problems.add(f"the same contact is on line {before}", source.name, line, remedy="remove one of them")
        else:
            kept.append(row)
    return Meetings(
        source.name, np.array([row[0] for row in kept], float), [row[1] for row in kept], [row[2] for row in kept]
    )


def read_intervals(source: TraceSource, slot: float, problems: Problems) -> Meetings:
    """Lines of `i j start end`, or a table with these columns, as one meeting for each slot that they last."""
    text = tables.text
    if is_number((fields_of(first_line(source.data)) or [""])[0]):
        rows, lines = plain_rows(source, (text, text, SECONDS, SECONDS), "i j start end", problems, more=2)
    else:
        rows, lines = _table(source, {"one": text, "other": text, "start": SECONDS, "end": SECONDS}, problems)
    found = []
    for row, line in zip(rows, lines):
        interval = _Interval(*row)
        if interval.one == interval.other:
            problems.add(f"{interval.one[:40]!r} meets itself", source.name, line, remedy="remove the line")
        elif interval.end < interval.start:
            what = f"it ends at {interval.end:g}, before it begins at {interval.start:g}"
            problems.add(what, source.name, line, remedy="correct or remove the line")
        else:
            found.append(interval)
    return _slot_by_slot(source.name, found, slot)


def read_connections(source: TraceSource, slot: float, problems: Problems) -> Meetings:
    """Lines of `t CONN i j up`, until the same with `down`, or until the end of the file."""
    rows, lines = plain_rows(source, (SECONDS, str.upper, tables.text, tables.text, _up), "t CONN i j up", problems)
    up: dict[tuple[str, str], float] = {}
    found: list[_Interval] = []
    for (time, _, one, other, rises), line in zip(rows, lines):
        pair = (one, other) if one <= other else (other, one)
        if rises:
            up.setdefault(pair, time)
        elif pair in up:
            found.append(_Interval(*pair, up.pop(pair), time))
        else:
            problems.add("a link goes down that was not up", source.name, line, remedy="remove the line")
    last = rows[-1][0] if rows else 0.0
    return _slot_by_slot(source.name, [*found, *(_Interval(*pair, start, last) for pair, start in up.items())], slot)


def _up(value: str) -> bool:
    if value.lower() not in ("up", "down"):
        raise ValueError(f"expected up or down, found {value[:40]!r}")
    return value.lower() == "up"


def _slot_by_slot(file: Path, intervals: Sequence[_Interval], slot: float) -> Meetings:
    """One meeting in every slot that an interval touches; those of overlapping intervals of a pair once."""
    first = np.floor(np.array([each.start for each in intervals], float) / slot).astype(np.int64)
    last = np.floor(np.array([each.end for each in intervals], float) / slot).astype(np.int64)
    count = last - first + 1
    if count.sum() > _MOST:
        what = f"{int(count.sum()):,} contacts in slots of {slot:g} s: more than {_MOST:,}"
        raise DataError(what, file, remedy="are the times really seconds? If so, choose longer slots")
    row = np.repeat(np.arange(len(intervals)), count)
    slots = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    ones, others = [each.one for each in intervals], [each.other for each in intervals]
    return Meetings(file, slots * slot, [ones[at] for at in row], [others[at] for at in row])


def check_plausible(found: Meetings) -> None:
    """Refuse numbers that cannot be contacts: nearly every line about devices of its own, or thousands in minutes."""
    if len(found.times) < _MANY:
        return
    devices, span = len({*found.ones, *found.others}), float(np.ptp(found.times))
    what = ""
    if devices > len(found.times):
        what = f"{len(found.times):,} contacts of {devices:,} devices, so most devices are there once"
    elif devices > 1000 and span < _SPAN:
        what = f"{devices:,} devices meet within {span:g} seconds"
    if what:
        remedy = "which column is the time? Name the format with --layout or topology.layout: meetings, intervals, ..."
        raise DataError(f"{what}: these are not contacts in this format", found.file, remedy=remedy)


def plain_rows(
    source: TraceSource, parsers: Sequence[tables.Parser], names: str, problems: Problems, more: int = 0
) -> tuple[list[Any], list[int]]:
    """Rows of fields between blanks, without a header; up to `more` fields after the named ones are not looked at."""
    rows, lines = [], []
    for line, text in enumerate(tables.decode_text(source.data, source.name).split("\n"), start=1):
        if not (fields := fields_of(text)):
            continue
        if not len(parsers) <= len(fields) <= len(parsers) + more:
            problems.add(f"{len(fields)} fields, expected {names}", source.name, line, remedy="correct the line")
            continue
        try:
            rows.append([parse(field) for parse, field in zip(parsers, fields)])
        except ValueError as error:
            problems.add(f"{error}, in a line of {names}", source.name, line, remedy="correct or remove the line")
            continue
        lines.append(line)
    return rows, lines


def _table(
    source: TraceSource, parsers: Mapping[str, tables.Parser], problems: Problems
) -> tuple[list[Any], list[int]]:
    header = first_line(source.data)
    names = names_of(header)
    called = {names.get(name, name): parser for name, parser in parsers.items()}
    found = tables.read_csv(source.name, called, problems, delimiter=delimiter_of(header), content=source.data)
    return [list(row) for row in zip(*(found[name] for name in called))], found.lines
