"""Where in a city something can happen: spots at which scenes are played, routes for walkers, lanes for vehicles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import hypot
from typing import NamedTuple

import numpy as np

from wayfare.core.seeds import rng_for
from wayfare.town.acts import SPREAD
from wayfare.town.model import GROUND, City, Thing
from wayfare.town.plane import heading, left, unit

POST = 12  # metres between posts
ROUTE, ROUTES = 400, 6  # metres that a stroll around a block is long; how many there are of each block
_LIVELY = {"Old Town": 1.1, "Market Quarter": 1.25, "Offices": 1.0, "Harbour": 0.85, "Terraces": 0.75, "Mills": 0.6,
           "Gardens": 0.6, "Villas": 0.5}  # fmt: skip
_CODE = {name: code for code, name in enumerate(GROUND)}


class _Flow(NamedTuple):
    """How vehicles of one sort move."""

    lane: float  # metres to the right of the middle of the road
    pace: float  # metres a second
    gap: float  # seconds between possible vehicles
    busy: float  # how likely each of them comes, at noon


_FLOWS = {"traffic": _Flow(1.5, 8.0, 6.0, 0.4), "cycling": _Flow(2.4, 4.5, 11.0, 0.12)}


class StageSpot(NamedTuple):
    """A place where one scene can be played at a time."""

    play: str
    x: float
    y: float
    heading: float
    period: float  # seconds from one scene to the next
    busy: float  # how likely something happens there, at noon
    partner: int = -1  # a bench, a sight, ...
    reach: float = 0.0  # how far from the point its actors may come
    route: int = -1  # for strolls, the first of the routes it may take


def _spot(
    play: str, at: np.ndarray, facing: float, period: float, busy: float,
    partner: int = -1, reach: float = 0.0, route: int = -1,
) -> StageSpot:  # fmt: skip
    return StageSpot(
        play,
        float(at[0]),
        y=float(at[1]),
        heading=facing,
        period=period,
        busy=busy,
        partner=partner,
        reach=reach,
        route=route,
    )


class Lane(NamedTuple):
    """One direction of a street from end to end, for vehicles that go at one speed."""

    play: str
    points: np.ndarray  # (n, 2), one metre apart


class Stage(NamedTuple):
    """Everything in a city where something can happen."""

    places: list[tuple[str, int, float]]  # play, partner, reach of the spots, then of the lanes
    spread: np.ndarray  # how far from there the things of these may be
    numbers: np.ndarray  # (6, S): x, y, heading, reach, period, busy of the spots
    strolls: int  # so many of the spots, the first, are for walkers
    first_route: np.ndarray  # (strolls,): the first of the ROUTES routes that they may take
    routes: np.ndarray  # (2, R x (ROUTE + 1)): points one metre apart, route after route
    tracks: np.ndarray  # (2, points of all lanes)
    spans: np.ndarray  # (2, L): where a lane begins in these, and how many of its points a vehicle can pass
    posts: np.ndarray  # (5, P): x, y of points along all lanes, for finding near ones; which lane it is, how many
    # vehicles come there a second, and how many would have come by when the first does
    paces: np.ndarray  # (3, L): metres a second, seconds between possible vehicles, how likely each comes


def find(city: City) -> Stage:
    """Find them in the city; takes a fraction of a second."""
    routes, spots = _strolls(city)
    strolls = len(spots)
    for more in (_crossings, _corners, _doors, _seats, _squares, _lawns, _water):
        spots += more(city)
    numbers = np.array([(spot.x, spot.y, spot.heading, spot.reach, spot.period, spot.busy) for spot in spots]).T.copy()
    numbers[5] *= _lively(city, numbers[:2].T)
    first_route = np.array([spot.route for spot in spots[:strolls]])
    lanes = _lanes(city)
    places = [(spot.play, spot.partner, spot.reach) for spot in spots] + [(lane.play, -1, 0.0) for lane in lanes]
    spread = np.array([SPREAD[play] for play, _, _ in places])
    spread[strolls : len(spots)] += numbers[3, strolls:]
    paces = np.array([_FLOWS[lane.play][1:] for lane in lanes]).T.copy()
    lengths = np.array([len(lane.points) for lane in lanes])
    return Stage(
        places,
        spread,
        numbers=numbers,
        strolls=strolls,
        first_route=first_route,
        routes=routes.reshape(-1, 2).T.copy(),
        tracks=np.concatenate([lane.points for lane in lanes]).T.copy(),
        spans=np.stack((np.cumsum(lengths) - lengths, lengths - 5)),
        posts=np.concatenate([_posts(number, lane) for number, lane in enumerate(lanes)]).T.copy(),
        paces=paces,
    )


def _posts(number: int, lane: Lane) -> np.ndarray:
    """Rows of Stage.posts; each is passed by those who are less than a little more than half way to the next one."""
    flow = _FLOWS[lane.play]
    metres = np.arange(0, len(lane.points), POST)
    late = (metres - 0.6 * POST) / (flow.pace * flow.gap)
    return np.column_stack((lane.points[::POST], np.full((len(metres), 2), (number, 1 / flow.gap)), late))


def _lively(city: City, places: np.ndarray) -> np.ndarray:
    """Relative activity by district."""
    lively = np.ones(len(places))
    for district in city.districts:
        low, high = (district.x0, district.y0), (district.x1, district.y1)
        lively[((places >= low) & (places < high)).all(1)] = _LIVELY.get(district.name, 0.8)
    return lively


def _surface(city: City, places: np.ndarray) -> np.ndarray:
    """The surface at points (..., 2); border cells continue outside."""
    cells = np.clip((places / city.cell).astype(int), 0, (city.ground.shape[1] - 1, city.ground.shape[0] - 1))
    return np.asarray(city.ground[cells[..., 1], cells[..., 0]])


def _footways(city: City) -> tuple[dict[int, list[int]], set[int]]:
    """For each node its neighbours on pavements and paths; and the nodes that are on roads."""
    on_road = set(city.edges[city.edge_road].ravel().tolist())
    beside: dict[int, list[int]] = defaultdict(list)
    for a, b in city.edges[~city.edge_road].tolist():
        if a not in on_road and b not in on_road:
            beside[a].append(b)
            beside[b].append(a)
    return beside, on_road


def _strolls(city: City) -> tuple[np.ndarray, list[StageSpot]]:
    """Routes around blocks and through squares, and as many places for walkers as the ways are long."""
    rng = rng_for("town strolls", city.name, city.seed)
    beside, _ = _footways(city)
    nodes = city.nodes.astype(float)
    routes: list[np.ndarray] = []
    spots = []
    for part in _parts(beside):
        length = sum(hypot(*(nodes[a] - nodes[b])) for a in part for b in beside[a]) / 2
        centre = (nodes[part].min(0) + nodes[part].max(0)) / 2
        reach = float(np.hypot(*(nodes[part] - centre).T).max()) + 2
        first = len(routes)
        routes += [_ramble(rng, nodes, beside, part) for _ in range(ROUTES)]
        for _ in range(max(1, round(length / 16))):
            period = float(rng.uniform(150, 300))
            spots.append(_spot("way", centre, 0.0, period, 0.36, reach=reach, route=first))
    return np.array(routes, np.float32), spots


def _parts(beside: dict[int, list[int]]) -> list[list[int]]:
    """The nodes of each connected piece."""
    parts, seen = [], set()
    for start in sorted(beside):
        if start in seen:
            continue
        part, todo = [], [start]
        seen.add(start)
        while todo:
            node = todo.pop()
            part.append(node)
            fresh = [other for other in beside[node] if other not in seen]
            seen.update(fresh)
            todo += fresh
        parts.append(sorted(part))
    return parts


def _ramble(rng: np.random.Generator, nodes: np.ndarray, beside: dict[int, list[int]], part: list[int]) -> np.ndarray:
    """A walk that turns back only where it must, as points one metre apart."""
    here = part[int(rng.integers(len(part)))]
    before, total, way = -1, 0.0, [here]
    while total < ROUTE + 1:
        onward = [node for node in beside[here] if node != before] or [before]
        before, here = here, onward[int(rng.integers(len(onward)))]
        total += hypot(*(nodes[here] - nodes[before]))
        way.append(here)
    return _every_metre(nodes[way])[: ROUTE + 1]


def _every_metre(corners: np.ndarray) -> np.ndarray:
    """Points along a line through corners."""
    run = np.concatenate(([0.0], np.cumsum(np.hypot(*np.diff(corners, axis=0).T))))
    at = np.arange(0.0, run[-1], 1.0)
    return np.column_stack([np.interp(at, run, corners[:, k]) for k in (0, 1)])


# ---- Spots


def _crossings(city: City) -> list[StageSpot]:
    """Where people go over the road: the middle of each crossing, the heading across."""
    _, on_road = _footways(city)
    ends: dict[int, list[int]] = defaultdict(list)
    for a, b in city.edges[~city.edge_road].tolist():
        for middle, end in ((a, b), (b, a)):
            if middle in on_road and end not in on_road:
                ends[middle].append(end)
    spots = []
    for middle, (a, b, *_) in sorted((middle, found) for middle, found in ends.items() if len(found) > 1):
        across = city.nodes[b] - city.nodes[a]
        reach = float(np.hypot(*across)) / 2
        spots.append(_spot("crossing", city.nodes[middle], heading(across), 31.0, 0.5, reach=reach))
    return spots


def _corners(city: City) -> list[StageSpot]:
    """Corners of pavements, where people stand; some lean on a lamp."""
    rng = rng_for("town corners", city.name, city.seed)
    beside, _ = _footways(city)
    spots = []
    for node in sorted(beside):
        at = city.nodes[node] + rng.uniform(-0.6, 0.6, 2)
        spots.append(_spot("corner", at, float(rng.uniform(0, 360)), float(rng.uniform(60, 240)), 0.4))
    for lamp in _of_kind(city, "street lamp"):
        if lamp.id % 3 == 0:
            spots.append(
                StageSpot(
                    "lamp",
                    lamp.x,
                    y=lamp.y,
                    heading=lamp.heading,
                    period=float(rng.uniform(60, 240)),
                    busy=0.12,
                    partner=lamp.id,
                )
            )
    return spots


def _doors(city: City) -> list[StageSpot]:
    """In the middle of walls at a pavement, half a metre before the door, facing it."""
    rng = rng_for("town doors", city.name, city.seed)
    a, b = city.walls[:, :2].astype(float), city.walls[:, 2:4].astype(float)
    inward = left(unit(b - a))
    out = (a + b) / 2 - inward * 0.5
    street = (_surface(city, out - inward * 0.6) == _CODE["pavement"]) & (np.hypot(*(b - a).T) > 4)
    return [
        _spot("door", out[i], heading(inward[i]), float(rng.uniform(30, 90)), 0.1)
        for i in np.flatnonzero(street & (rng.random(len(out)) < 0.6)).tolist()
    ]


def _of_kind(city: City, *kinds: str) -> Iterator[Thing]:
    return (thing for thing in city.things if thing.kind in kinds)


def _seats(city: City) -> list[StageSpot]:
    """Benches, and chairs at tables; stalls with fruit."""
    rng = rng_for("town seats", city.name, city.seed)
    spots = [
        StageSpot(
            thing.kind,
            thing.x,
            y=thing.y,
            heading=thing.heading,
            period=float(rng.uniform(200, 600)),
            busy=0.5 if thing.kind == "bench" else 0.25,
            partner=thing.id,
        )
        for thing in _of_kind(city, "bench", "chair")
    ]
    for market in _of_kind(city, "market"):
        for thing in _of_kind(city, "dining table"):
            if hypot(thing.x - market.x, thing.y - market.y) < 40:
                angle = float(rng.uniform(0, 2 * np.pi))
                at = np.array((thing.x, thing.y)) + np.array((np.cos(angle), np.sin(angle))) * 1.1
                facing = heading(np.array((thing.x, thing.y)) - at)
                spots.append(
                    _spot("stall", at, facing, period=float(rng.uniform(60, 200)), busy=0.8, partner=market.id)
                )
    return spots


def _squares(city: City) -> list[StageSpot]:
    """Around each sight, facing it, where there is open ground."""
    rng = rng_for("town squares", city.name, city.seed)
    spots = []
    for square in city.squares:
        centre = np.array((square.x, square.y))
        sight = min(_of_kind(city, square.sight), key=lambda thing: hypot(*(centre - (thing.x, thing.y))))
        inner = max(sight.width, sight.depth) / 2 + 2.5
        for _ in range(22):
            angle, away = float(rng.uniform(0, 2 * np.pi)), float(rng.uniform(inner, max(inner, square.radius) + 1))
            at = centre + np.array((np.cos(angle), np.sin(angle))) * away
            code = int(_surface(city, at))
            facing = heading(centre - at) + float(rng.uniform(-15, 15))
            play = "lawn" if code == _CODE["grass"] else "square"
            if code in (_CODE["square"], _CODE["pavement"], _CODE["grass"], _CODE["bridge"]):
                spots.append(_spot(play, at, facing, period=float(rng.uniform(90, 300)), busy=0.5, partner=sight.id))
    return spots


def _lawns(city: City) -> list[StageSpot]:
    """On the grass at both sides of paths through parks."""
    rng = rng_for("town lawns", city.name, city.seed)
    a, b = (city.nodes[city.edges[~city.edge_road, k]].astype(float) for k in (0, 1))
    aside = left(unit(b - a))
    spots = []
    for t in (0.3, 0.7):
        middle = a + (b - a) * t
        sides = [middle + aside * shift for shift in (4.0, -4.0)]
        park = np.logical_and(*(_surface(city, side) == _CODE["grass"] for side in sides))
        for side in sides:
            lawn = side[park]
            for place in lawn[_far_from_walls(city, lawn, 4.0)]:
                turn, period = float(rng.uniform(0, 360)), float(rng.uniform(120, 400))
                spots.append(_spot("lawn", place, turn, period, 0.3))
    return spots


def _far_from_walls(city: City, places: np.ndarray, distance: float) -> np.ndarray:
    """Which points have no wall within this many metres."""
    a, b = city.walls[:, :2].astype(float), city.walls[:, 2:4].astype(float)
    along = b - a
    squared = np.maximum((along**2).sum(1), 1e-9)
    far = np.ones(len(places), bool)
    for i, place in enumerate(places):
        t = np.clip(((place - a) * along).sum(1) / squared, 0, 1)
        gap = a + along * t[:, None] - place
        far[i] = (gap**2).sum(1).min(initial=np.inf) > distance**2
    return far


def _water(city: City) -> list[StageSpot]:
    """Ducks on ponds, boats on basins, and people at the shore."""
    rng = rng_for("town water", city.name, city.seed)
    x, y = np.meshgrid(np.arange(3.0, city.width - 3, 5.0), np.arange(3.0, city.height - 3, 5.0))
    places = np.column_stack((x.ravel(), y.ravel())) + rng.uniform(-1.5, 1.5, (x.size, 2))
    places = places[_surface(city, places) == _CODE["water"]]
    around = np.stack([np.array((np.cos(k * np.pi / 4), np.sin(k * np.pi / 4))) for k in range(8)])

    def is_clear(distance: float) -> np.ndarray:
        found: np.ndarray = (_surface(city, places[:, None] + around * distance) == _CODE["water"]).all(1)
        return found

    near, far = is_clear(1.8), is_clear(7.0)
    border = np.minimum(places, (city.width, city.height) - places).min(1) < 12
    spots = []
    for place, wide, outer in zip(places[near], far[near], border[near], strict=True):
        play, busy = ("basin", 0.15) if wide else ("pond", 0.05 if outer else 0.3)
        spots.append(_spot(play, place, float(rng.uniform(0, 360)), float(rng.uniform(200, 500)), busy))
    for place in places[~near]:
        shore = place + around * 2.6
        dry = np.isin(_surface(city, shore), (_CODE["grass"], _CODE["pavement"]))
        for at, way in zip(shore[dry][:1], -around[dry][:1], strict=True):
            ducks = [at + way * ahead + left(way) * aside for ahead in (1.5, 2.3) for aside in (-0.7, 0.0, 0.7)]
            if (_surface(city, np.stack(ducks)) == _CODE["water"]).all():
                spots.append(_spot("shore", at, heading(way), float(rng.uniform(90, 300)), 0.3))
    return spots


# ---- Lanes


def _lanes(city: City) -> list[Lane]:
    """Both directions of each street, followed straight on over junctions."""
    lanes = []
    for line in _lines(city):
        for way in (line, line[::-1]):
            points = _every_metre(city.nodes[way].astype(float))
            if len(points) < 30:
                continue
            ahead = np.concatenate((points[4:], np.repeat(points[-1:], 4, 0)))
            behind = np.concatenate((np.repeat(points[:1], 4, 0), points[:-4]))
            right = -left(unit(ahead - behind))
            lanes += [Lane(play, points + right * flow.lane) for play, flow in _FLOWS.items()]
    return lanes


def _lines(city: City) -> list[list[int]]:
    """The roads as long lines of nodes: at a node, each edge continues in the most nearly opposite one."""
    roads = city.edges[city.edge_road].tolist()
    at: dict[int, list[int]] = defaultdict(list)
    for number, (a, b) in enumerate(roads):
        at[a].append(number)
        at[b].append(number)
    onward: dict[tuple[int, int], int] = {}
    for node, edges in at.items():
        ways = [unit(city.nodes[sum(roads[edge]) - node].astype(float) - city.nodes[node]) for edge in edges]
        pairs = [(float(ways[i] @ ways[j]), i, j) for i in range(len(edges)) for j in range(i)]
        for straight, i, j in sorted(pairs):
            if straight < -0.6 and not {(edges[i], node), (edges[j], node)} & onward.keys():
                onward[edges[i], node], onward[edges[j], node] = edges[j], edges[i]
    lines, seen = [], set()
    starts = [(edge, node) for edge, ends in enumerate(roads) for node in ends if (edge, node) not in onward]
    for start in starts:
        if start[0] in seen:
            continue
        edge, node = start
        line = [node]
        while True:
            seen.add(edge)
            node = sum(roads[edge]) - node
            line.append(node)
            if (edge, node) not in onward:
                break
            edge = onward[edge, node]
        lines.append(line)
    return lines
