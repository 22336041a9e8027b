"""What the page about a data set is made from: plain data, gathered by `wayfare.gallery`.

Everything here may come from strangers' files; the page escapes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

MOST_BARS = 40  # of a distribution over names


@dataclass(frozen=True)
class Picture:
    """A small JPEG that goes into the page."""

    jpeg: bytes
    width: int
    height: int
    words: str  # what it is, for those who do not see it
    caption: str = ""


@dataclass(frozen=True)
class Strip:
    """Some pictures that are looked at together; with `pairs` every two of them belong together."""

    title: str
    pictures: Sequence[Picture]
    note: str = ""
    pairs: bool = False


@dataclass(frozen=True)
class SceneShown:
    """A photograph with its segments and relations drawn over it."""

    plain: Picture
    drawn: Picture
    relations: Sequence[tuple[str, str, str]]  # subject, predicate, object


@dataclass(frozen=True)
class Card:
    """A photograph with the words that go with it."""

    picture: Picture
    tags: Sequence[str]
    labels: Sequence[str]


@dataclass(frozen=True)
class Bars:
    """How often each of some things occurs; `ordered` ones keep their order, as hours do, others go by frequency."""

    title: str
    unit: str  # what is counted: "photos"
    names: Sequence[str]
    counts: Sequence[float]
    ordered: bool = False
    log: bool = False
    axis: str = ""  # what the names are, where that is not plain: "hour"

    def shown(self) -> list[tuple[str, float]]:
        """What is drawn: all if they are ordered, else the most frequent."""
        pairs = list(zip(self.names, self.counts))
        return pairs if self.ordered else sorted(pairs, key=lambda pair: -pair[1])[:MOST_BARS]


@dataclass(frozen=True)
class Layer:
    """Points or lines of a map, in metres; a None in both x and y ends a line."""

    name: str
    kind: Literal["photos", "ways", "fixed"]
    x: Sequence[float | None]
    y: Sequence[float | None]
    words: Sequence[str] = ()  # of each point


@dataclass(frozen=True)
class Map:
    """One city seen from above."""

    title: str
    layers: Sequence[Layer]
    note: str = ""


@dataclass(frozen=True)
class DataSet:
    """What was found in one folder or file."""

    name: str
    layout: str
    description: str
    counts: Mapping[str, int | float | str] = field(default_factory=dict)
    problems: Sequence[str] = ()
    problem_count: int = 0
    strips: Sequence[Strip] = ()
    scenes: Sequence[SceneShown] = ()
    cards: Sequence[Card] = ()
    classes: Sequence[Strip] = ()
    bars: Sequence[Bars] = ()

    @property
    def card_shape(self) -> str:
        return _shape(card.picture for card in self.cards)

    @property
    def class_shape(self) -> str:
        return _shape(item for strip in self.classes for item in strip.pictures)


def _shape(pictures: Iterable[Picture]) -> str:
    """Pictures of many shapes are cut to one, so that they stand in line; those that are all square remain so."""
    return "square" if all(item.width == item.height for item in pictures) else "wide"


@dataclass(frozen=True)
class Collection:
    """A data set, or several that belong together as in a town."""

    title: str
    path: str
    sets: Sequence[DataSet]
    maps: Sequence[Map] = ()
    town: Mapping[str, str] = field(default_factory=dict)  # what the town's record says of it
