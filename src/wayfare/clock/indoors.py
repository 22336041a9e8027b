"""The walkers of a town as devices: a phone can be reached while its owner is indoors, with a network and a plug.

A trace (`traces/<city>.csv` of `wayfare town`) has a row for every moment at which someone is out; where it has none,
they are indoors. The traced day comes again every day; virtual time begins at midnight. Signage always can be reached.
Clients whose id is not in the trace live the day of a walker who is drawn. Speeds and links are drawn, as by `drawn`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from wayfare.clock.drawn import Drawn, DrawnDevices, recurring
from wayfare.core.clock import ALWAYS, Window
from wayfare.core.errors import ConfigError, DataError
from wayfare.core.seeds import rng_for
from wayfare.io.findings import Problems
from wayfare.io.tables import boolean, read_csv, text

_DAY = 86400.0


@dataclass(frozen=True)
class Indoors(Drawn):
    """Availability from the walkers of a town; speeds and links from distributions."""

    path: str = ""  # a trace: CSV with device, time and stationary, as `wayfare town` writes it
    gap: float = 300.0  # seconds without a row after which someone is indoors

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.path:
            raise ConfigError("clock.path must be given: a trace, such as traces/<city>.csv of `wayfare town`")
        if self.online != 1 or self.period != _DAY:
            raise ConfigError("clock.online and clock.period are for the clock 'drawn': here the trace says both")

    def devices(self, seed: int) -> IndoorsDevices:
        columns = {"device": text, "time": _moment}
        table = read_csv(Path(self.path), columns, Problems(strict=True), also={"stationary": boolean})
        still = table.columns.get("stationary") or [False] * len(table)
        out: dict[str, list[float]] = {}
        for device, time, fixed in zip(table["device"], table["time"], still, strict=True):
            out.setdefault(device, []).extend([] if fixed else [time])
        if not out:
            raise DataError("nobody is in this trace", self.path)
        return IndoorsDevices(self, seed, {name: indoors(sorted(times), self.gap) for name, times in out.items()})


class IndoorsDevices(DrawnDevices):
    """When each walker is indoors."""

    def __init__(self, settings: Indoors, seed: int, spans: dict[str, tuple[Window, ...]]) -> None:
        super().__init__(settings, seed)
        self.spans, self.names, self.always = spans, sorted(spans), False

    def window(self, device: str, time: float) -> Window:
        walker = device
        if walker not in self.spans:
            walker = self.names[int(rng_for(self.seed, "walker", device).integers(len(self.names)))]
        spans = self.spans[walker]
        return recurring(time, _DAY, spans) if spans else ALWAYS


def indoors(out: list[float], gap: float) -> tuple[Window, ...]:
    """The spans of a day that a walker, who is out at these moments, spends indoors; () where that is all day.

    The last one goes on into the next day, until the walker first goes out.
    """
    if not out:
        return ()
    spans = [(left, back) for left, back in pairwise(out) if back - left > gap]
    night = (out[-1], out[0] + _DAY)
    return (*spans, night)


def _moment(value: str) -> float:
    """Seconds since midnight."""
    found = datetime.fromisoformat(value.strip())
    return found.hour * 3600.0 + found.minute * 60.0 + found.second
