"""What a gatherer hands back about one data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wayfare.io.findings import Problems
from wayfare.pages.dataset_parts import Bars, Card, SceneShown, Strip
from wayfare.pages.maps import MapSource


@dataclass(frozen=True)
class Gathered:
    """The parts of the page that are about it, and what of it goes on maps."""

    counts: Mapping[str, int | float | str]
    problems: Problems
    strips: Sequence[Strip] = ()
    scenes: Sequence[SceneShown] = ()
    cards: Sequence[Card] = ()
    classes: Sequence[Strip] = ()
    bars: Sequence[Bars] = ()
    sources: Sequence[MapSource] = field(default_factory=tuple)
