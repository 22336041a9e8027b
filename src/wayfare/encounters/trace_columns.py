"""What the columns of a file of bare numbers are: who and when, by how the numbers behave.

    t i j             meetings     who was near whom, as SocioPatterns publishes them; names of groups may follow
    i j t             meetings     the same with the time last, as in most collections of temporal networks
    i j start end     intervals    from when to when two were near each other, as CRAWDAD and MobEmu have them
    t CONN i j up     connections  as the ONE simulator reports them
    t id x y          positions    of several devices, also `id t x y`, and latitude, longitude in place of x, y
    t x y             walk         of one device

What fits none of these, or two, is not guessed: it has to be said (`--layout intervals`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

PlainForm = Literal["meetings", "intervals", "connections", "positions", "walk"]
FORMS: tuple[PlainForm, ...] = ("meetings", "intervals", "connections", "positions", "walk")
LINES: Mapping[str, str] = {
    "meetings": "t i j or i j t", "intervals": "i j start end", "connections": "t CONN i j up",
    "positions": "t id x y or id t x y", "walk": "t x y",
}  # fmt: skip
Row = Sequence[str]
_ENOUGH = 5  # rows by which an order is told from chance


def form_of(rows: Sequence[Row]) -> PlainForm | None:
    """The form of lines without a header, by their first fields; None if they are of no known form."""
    widths = {len(row) for row in rows}
    if len(widths) != 1 or not rows:
        return None
    width = widths.pop()
    if width == 5 and all(row[1].upper() == "CONN" and row[4].lower() in ("up", "down") for row in rows):
        return "connections"
    if named_column(rows[0]) is not None and all(named_column(row) == named_column(rows[0]) for row in rows):
        return "positions" if time_column(rows) is not None else None
    if width < 3 or not all(_is_number(field) for row in rows for field in row[:3]):
        return None
    more = all(_is_number(field) for row in rows for field in row[3:])
    if width == 3 or (width <= 5 and not more):
        return _of_three(rows, width)
    return _of_four(rows) if more and width in (4, 6) else None


def _of_three(rows: Sequence[Row], width: int) -> PlainForm | None:
    if all(field.isdigit() for row in rows for field in row[:3]):
        return "meetings"
    return "walk" if width == 3 else None


def _of_four(rows: Sequence[Row]) -> PlainForm | None:
    if _are_intervals(rows) and not _are_degrees(rows):
        return "intervals"
    return "positions" if len(rows[0]) == 4 and time_column(rows) is not None else None


def _are_intervals(rows: Sequence[Row]) -> bool:
    named = all(row[0].isdigit() and row[1].isdigit() and row[0] != row[1] for row in rows)
    return named and all(float(row[2]) <= float(row[3]) for row in rows)


def _are_degrees(rows: Sequence[Row]) -> bool:
    """Whether the last two columns can only be latitude and longitude: broken numbers in their range."""
    near = all(abs(float(row[2])) <= 90 and abs(float(row[3])) <= 180 for row in rows)
    return near and all("." in row[2] and "." in row[3] for row in rows)


def is_geographic(rows: Sequence[Row]) -> bool:
    """Whether positions in the last two of four columns are degrees; metres may be as small, but not all of them."""
    return _are_degrees(rows) and any(len(row[2].partition(".")[2]) >= 4 for row in rows)


def time_column(rows: Sequence[Row]) -> int | None:
    """Which of the first two columns of positions is the time; the other one names the device. None if unclear."""
    if rows and (name := named_column(rows[0])) is not None:
        return 1 - name if _rises(rows, 1 - name) else None
    fits = [column for column in (0, 1) if _rises(rows, column)]
    if len(fits) != 1:
        distinct = [len({row[column] for row in rows}) for column in (0, 1)]
        if not fits or distinct[0] == distinct[1]:
            return None
        return int(distinct[1] > distinct[0])  # there are fewer devices than times
    return fits[0]


def named_column(row: Row) -> int | None:
    """Which of the first two of four fields is the name of a device, where one is no number and all others are."""
    words = [place for place, field in enumerate(row) if not _is_number(field)]
    return words[0] if len(row) == 4 and len(words) == 1 and words[0] < 2 else None


def _rises(rows: Sequence[Row], column: int) -> bool:
    """Whether each device's numbers in this column rise, and some device has several."""
    last: dict[str, float] = {}
    several = False
    for row in rows:
        name, value = row[1 - column], float(row[column])
        if name in last:
            several = True
            if value <= last[name]:
                return False
        last[name] = value
    return several


def meeting_time(rows: Sequence[Row]) -> int:
    """The column of the time in lines of three: the first, or the last where only that is in order."""
    first, last = ([float(row[column]) for row in rows] for column in (0, 2))
    return 2 if len(rows) >= _ENOUGH and first != sorted(first) and last == sorted(last) else 0


def _is_number(field: str) -> bool:
    try:
        return abs(float(field)) < float("inf")
    except ValueError:
        return False
