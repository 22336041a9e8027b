"""What the page of the demo is made from: plain data, gathered by `wayfare.demo`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wayfare.encounters.player import Ground
from wayfare.pages.dataset_parts import Picture
from wayfare.pages.record import Record
from wayfare.scenes.graph_page import GraphShown


@dataclass(frozen=True)
class MapPoint:
    """Something on a map, in metres east and north of its corner."""

    x: float
    y: float
    look: str = ""  # a class of the style sheet: "c1" to "c12", "nobody"


@dataclass(frozen=True)
class CityMap:
    """A city from above."""

    name: str
    ground: Picture
    width: float  # metres
    height: float
    photos: Sequence[MapPoint] = ()
    sights: Sequence[tuple[float, float, str]] = ()
    note: str = ""


@dataclass(frozen=True)
class DemoTown:
    """What was made before anything was learnt."""

    photos: int
    bytes: int  # of these photos as files
    maps: Sequence[CityMap]  # coloured by client
    clients: int
    samples: Sequence[Picture]


@dataclass(frozen=True)
class LocatedPhoto:
    """A photo, where the model says it was taken, and where it was."""

    picture: Picture
    match: Picture | None  # the nearest photograph of the index
    about: str  # which photo this is
    known: bool  # its place is in the index
    unknown: bool | None  # the model calls it unknown; None where it cannot say
    confidence: float | None
    metres: float | None  # from the truth; None where that is in another city
    guess: MapPoint
    truth: MapPoint | None


@dataclass(frozen=True)
class LocateExample:
    """Three photos on the map, and the results of all others."""

    city: CityMap
    index: int  # photographs in it
    photos: Sequence[LocatedPhoto]
    threshold: float | None  # of confidence; None: too few photos to learn confidence from
    is_certain: bool  # whether the threshold is one at which the wanted precision is certain
    queries: int  # photos of places in the index
    right: int
    accepted: int  # of these, not called unknown
    accepted_right: int
    outside: int  # photos of places that are not in the index
    refused: int  # of these, called unknown
    radius: float


@dataclass(frozen=True)
class FoundPhoto:
    """A picture that was found by words."""

    picture: Picture | None
    labels: str
    text: str
    right: bool  # it shows what the query names


@dataclass(frozen=True)
class SearchExample:
    """What was found for some words."""

    words: str
    found: Sequence[FoundPhoto]
    share: float  # of all pictures in the index that have it


@dataclass(frozen=True)
class GraphExample:
    """The scene graph of one picture."""

    photo: Picture | None  # as it is
    shown: GraphShown
    right: Sequence[bool]  # of the relations shown: the town's own record has them


@dataclass(frozen=True)
class DemoPage:
    """All that the page shows."""

    town: DemoTown
    runs: Mapping[str, Mapping[str, Record]]  # by task and cell
    locate: LocateExample
    searches: Sequence[SearchExample]
    graph: GraphExample
    ground: Ground | None = None  # the map under the devices that meet
    seconds: Mapping[str, float] = field(default_factory=dict)  # what took how long
    quick: bool = False
    site: str = ""  # the address of a page that locates photos in the browser, from here; "" where none was made
