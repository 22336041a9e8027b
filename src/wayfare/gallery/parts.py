"""What a gatherer hands back about one data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wayfare.data.findings import Problems
from wayfare.gallery.maps import Source
from wayfare.reports.dataset_parts import Bars, Card, Scene, Strip


@dataclass(frozen=True)
class Gathered:
    """The parts of the page that are about it, and what of it goes on maps."""

    counts: Mapping[str, int | float | str]
    problems: Problems
    strips: Sequence[Strip] = ()
    scenes: Sequence[Scene] = ()
    cards: Sequence[Card] = ()
    classes: Sequence[Strip] = ()
    bars: Sequence[Bars] = ()
    sources: Sequence[Source] = field(default_factory=tuple)
