"""Devices from a table, such as measurements of real ones.

    client,speed,up,down,online
    c0,12.5,8,40,0-21600 72000-86400
    c1,2.0,1.5,10,

One row for each device. `speed` is in local steps a second, `up` and `down` are in megabits a second. `online` lists
the spans of every period, in seconds, in which the device can be reached; empty or absent: always. `client` is the id
in the run's partition. In a table without this column each client gets a row that is drawn by the run's seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from wayfare.clock.drawn import BYTES, recurring
from wayfare.core.clock import ALWAYS, Clock, Devices, Pace, Window
from wayfare.core.errors import ConfigError, DataError, suggestion
from wayfare.core.ranges import Range
from wayfare.core.seeds import rng_for
from wayfare.io.findings import Problems
from wayfare.io.tables import number, optional, read_csv, text

_LEAST, _MOST = 1e-6, 1e9  # of a speed and of a rate


@dataclass(frozen=True)
class Measured(Clock):
    """Speeds, links and availability from a CSV file."""

    path: str = ""  # CSV: speed, up, down; optionally client and online
    period: float = 86400.0  # seconds after which the spans of `online` come again

    ranges: ClassVar[dict[str, Range]] = Clock.ranges | {"period": Range(0, open_low=True)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.path:
            raise ConfigError("clock.path must be given: a CSV file with the columns speed, up, down")

    def devices(self, seed: int) -> MeasuredDevices:
        columns = {name: number(_LEAST, _MOST) for name in ("speed", "up", "down")}
        table = read_csv(
            Path(self.path),
            columns,
            Problems(strict=True),
            also={"client": text, "online": optional(_Spans(self.period), ())},
            key="client" if _has_clients(Path(self.path)) else None,
        )
        if not len(table):
            raise DataError("no device in this table", self.path, remedy="a row for each device below the header")
        paces = [
            Pace(speed, up * BYTES, down * BYTES)
            for speed, up, down in zip(table["speed"], table["up"], table["down"], strict=True)
        ]
        online = table.columns.get("online") or [()] * len(paces)
        return MeasuredDevices(self, seed, paces, online, table.columns.get("client"))


class MeasuredDevices(Devices):
    """The rows of a table, by client."""

    def __init__(
        self,
        settings: Measured,
        seed: int,
        paces: list[Pace],
        online: list[tuple[Window, ...]],
        clients: list[str] | None,
    ) -> None:
        self.settings, self.seed, self.paces, self.online = settings, seed, paces, online
        self.rows = None if clients is None else {client: row for row, client in enumerate(clients)}
        self.always = not any(online)

    def _row(self, device: str) -> int:
        if self.rows is None:
            return int(rng_for(self.seed, "pace", device).integers(len(self.paces)))
        if device not in self.rows:
            raise DataError(
                f"no row for the client {device!r}{suggestion(device, self.rows)}",
                self.settings.path,
                remedy="add it, or leave out the column client: then each client gets a row that is drawn",
            )
        return self.rows[device]

    def pace(self, device: str) -> Pace:
        return self.paces[self._row(device)]

    def window(self, device: str, time: float) -> Window:
        spans = () if self.always else self.online[self._row(device)]
        return recurring(time, self.settings.period, spans) if spans else ALWAYS


def _has_clients(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as lines:
            return "client" in [name.strip() for name in lines.readline().split(",")]
    except OSError:
        return False  # reading the table says what is wrong


@dataclass(frozen=True)
class _Spans:
    """Reads "0-3600 7200-9000": spans in order, apart, within a period."""

    period: float

    def __call__(self, value: str) -> tuple[Window, ...]:
        found = tuple(self._span(word) for word in value.replace(";", " ").split())
        if any(later[0] <= earlier[1] for earlier, later in pairwise(found)):
            raise ValueError(f"expected spans in order that do not touch, found {value!r}")
        return found

    def _span(self, word: str) -> Window:
        opens, _, closes = word.partition("-")
        within = number(0, self.period)
        start, end = within(opens), within(closes)
        if end <= start:
            raise ValueError(f"expected start-end in seconds, found {word!r}")
        return start, end
