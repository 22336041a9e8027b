"""How the items of a picture relate: what holds in the world and can be seen in the picture, and what is written down.

What things do is known (`Thing.doing`). Where they are follows from the picture: from boxes, distances, and from how
long the borders between segments are. `candidates` lists everything that holds; an annotator does not write all of
that, so `choose` takes a handful, mostly of what is large, central, or an action.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wayfare.town.items import SeenItem
from wayfare.town.runs import runs
from wayfare.town.words import SIGHTS, THINGS

GROUNDS = ("road", "pavement", "square", "grass", "water", "flower", "bridge")
_FLAT = frozenset(GROUNDS)
_ON_ROADS = frozenset(("car", "bus", "truck"))  # what else is seen below them only hides the road
_ROADS = frozenset(("road",))
_SOIL = frozenset(("grass", "flower", "pavement", "square"))  # trees grow there
_ENCLOSED = frozenset(("grass", "flower", "square", "water"))
_BEHIND = frozenset(("building", "tree", "wall", "fence", "hill", "water"))
_LIVING = frozenset((*THINGS["Person"], *THINGS["Animals"]))
# what an action without a partner is directed at, where that is not the ground under the feet
_TARGETS: dict[str, frozenset[str]] = {
    "swimming in": frozenset(("water",)),
    "crossing": frozenset(("road",)),
    "entering": frozenset(("building", "temple", "gate", "market", "tower", "pavilion")),
    "leaning on": frozenset(("building", "wall", "fence", "tree")),
    "hanging from": frozenset(("building", "tree", "wall", "street lamp")),
    "over": frozenset(("water",)),
}
# how they go about it who do this
_WALKS = frozenset(("crossing", "pulling", "pushing", "carrying", "guiding", "entering"))
_RUNS = frozenset(("kicking", "chasing"))
_AIRBORNE = frozenset(("riding", "flying over", "swimming in", "lying on", "sitting on"))
_BELOW_FLIERS = _FLAT | {"building", "tree"}
# how eagerly each is written down: what someone does is what a picture is about
_EAGER = {
    "in front of": 0.45, "beside": 0.9, "over": 0.6, "on": 1.1, "in": 1.1, "attached to": 1.5, "enclosing": 1.0,
    "standing on": 2.5, "walking on": 2.5, "driving on": 1.5, "parked on": 0.8, "growing on": 0.4,
}  # fmt: skip
_EAGER_FOR_ACTIONS = 25.0
_PLAINLY = 0.12  # how often a plainer word is used for it
_PLAIN = {
    "standing on": "on", "walking on": "on", "parked on": "on", "driving on": "on", "sitting on": "on",
    "lying on": "on", "growing on": "on", "swimming in": "in", "flying over": "over",
}  # fmt: skip
_TIRED = 0.45  # off the logarithm of the eagerness, each time the same predicate has been used
_DULL = 0.5  # off that logarithm for how two surfaces lie to each other, and as much on it for how two things stand
_FIFTHS = np.array((1, 3, 5, 7, 9))  # tenths of a box's width: the middles of its five parts
_SLANT = 0.15  # rows per column of a border that is said to run away from the camera


class ItemRelation(NamedTuple):
    subject: int  # places in the items
    object: int
    predicate: str


class Borders(NamedTuple):
    """How many pixels of one item border on another."""

    right: list[list[int]]  # [a][b]: pixels of a with b on their right
    below: list[list[int]]  # [a][b]: pixels of a with b below them
    under: list[list[int]]  # [a]: items at points just under a's box, and beside its lower corners


def borders(seen: Sequence[SeenItem], segments: np.ndarray) -> Borders:
    """All of them at once."""
    count, (height, width) = len(seen) + 1, segments.shape
    numbers = segments.ravel()
    starts, _ = runs(numbers, width)
    starts = starts[starts % width > 0]
    feet = (numbers[width:] != numbers[:-width]).nonzero()[0]
    right = _pairs(numbers.take(starts - 1), numbers.take(starts), count)
    below = _pairs(numbers.take(feet), numbers.take(feet + width), count)
    x0, _, x1, y1 = np.array([one.item.box for one in seen]).reshape(-1, 4, 1).transpose(1, 0, 2)
    columns, rows = np.empty((2, len(seen), 7), np.intp)
    columns[:, :5], columns[:, 5:6], columns[:, 6:] = x0 + (x1 - x0) * _FIFTHS // 10, x0 - 1, x1
    rows[:, :5], rows[:, 5:] = y1, y1 - 1
    at = np.minimum(rows, height - 1) * width + np.minimum(np.maximum(columns, 0), width - 1)
    return Borders(right, below, numbers.take(at).tolist())


def _pairs(first: np.ndarray, second: np.ndarray, count: int) -> list[list[int]]:
    # pixels that belong to no item, -1, come last
    table = np.bincount(first.astype(np.intp) % count * count + second % count, minlength=count * count)
    rows: list[list[int]] = table.reshape(count, count).tolist()
    return rows


def candidates(seen: Sequence[SeenItem], segments: np.ndarray) -> list[ItemRelation]:
    """Every relation that holds in the picture, actions first."""
    if not seen:
        return []
    touching = borders(seen, segments)
    grounds = [_ground_under(place, seen, touching) for place in range(len(seen))]
    found = _actions(seen, segments, touching, grounds)
    busy = {frozenset((one.subject, one.object)) for one in found}
    held = {one.object for one in found if one.predicate in ("holding", "carrying", "riding", "flying", "eating")}
    placed = _supported(seen, grounds, touching, held)
    placed += _things_to_things(seen, touching)
    placed += _things_to_backgrounds(seen, touching)
    placed += _surfaces(seen, touching)
    free = [one for one in placed if frozenset((one.subject, one.object)) not in busy]
    return list(dict.fromkeys(found + _postures(seen, grounds, found) + free))


def _ground_under(place: int, seen: Sequence[SeenItem], touching: Borders) -> int:
    """The surface on which an item stands; -1 where that cannot be seen."""
    kinds = _ROADS if seen[place].kind in _ON_ROADS else _FLAT
    votes: dict[int, int] = {}
    for other in touching.under[place]:
        if other >= 0 and other != place and seen[other].kind in kinds:
            votes[other] = votes.get(other, 0) + 1
    if not votes:
        below = touching.below[place]
        votes = {other: below[other] for other in range(len(seen)) if below[other] and seen[other].kind in kinds}
    return max(votes, key=lambda other: votes[other], default=-1)


# ---- What they do


def _actions(
    seen: Sequence[SeenItem], segments: np.ndarray, touching: Borders, grounds: Sequence[int]
) -> list[ItemRelation]:
    place_of = {one.thing.id: place for place, one in enumerate(seen) if one.thing is not None}
    found = []
    for place, one in enumerate(seen):
        if one.thing is None or one.thing.doing is None:
            continue
        predicate, other = one.thing.doing
        if predicate == "standing on" and one.kind not in _LIVING:
            continue  # a bench does not act: see _supported
        if other >= 0:
            target = place_of.get(other, -1)
        elif predicate == "flying over":
            target = _straight_below(one, seen, segments)
        elif predicate in _TARGETS:
            target = _most_touched(place, _TARGETS[predicate], seen, touching)
        else:
            target = grounds[place]
        if predicate == "hanging from" and target >= 0 and _is_aside(place, target, seen, touching):
            predicate = "attached to"
        if target not in (-1, place):
            found.append(ItemRelation(place, target, predicate))
    return found


def _postures(seen: Sequence[SeenItem], grounds: Sequence[int], actions: Sequence[ItemRelation]) -> list[ItemRelation]:
    """Postures on the ground of those who also do something else."""
    on_ground = {one.subject for one in actions if one.object == grounds[one.subject] and one.predicate != "crossing"}
    found = []
    for place, one in enumerate(seen):
        if one.kind not in _LIVING or one.thing is None or grounds[place] < 0 or place in on_ground:
            continue
        doing = one.thing.doing[0] if one.thing.doing else ""
        upright = one.kind != "person" or one.thing.height > 1.0  # who is lower sits, and one does not see on what
        if doing not in _AIRBORNE and one.thing.z < 0.3 and upright:
            posture = "running on" if doing in _RUNS else "walking on" if doing in _WALKS else "standing on"
            found.append(ItemRelation(place, grounds[place], posture))
    return found


def _is_aside(place: int, other: int, seen: Sequence[SeenItem], touching: Borders) -> bool:
    """Whether one is next to the other in the picture, not in front of it."""
    _, y0, _, y1 = seen[place].item.box
    sides = touching.right[place][other], touching.right[other][place]
    return max(sides) >= 0.5 * (y1 - y0) and max(sides) > 2 * min(sides)


def _straight_below(one: SeenItem, seen: Sequence[SeenItem], segments: np.ndarray) -> int:
    x0, _, x1, y1 = one.item.box
    column = segments[y1:, (x0 + x1) // 2].tolist()
    return next((other for other in column if other >= 0 and seen[other].kind in _BELOW_FLIERS), -1)


def _most_touched(place: int, kinds: frozenset[str], seen: Sequence[SeenItem], touching: Borders) -> int:
    lengths = {
        other: _border(place, other, touching) for other, one in enumerate(seen) if one.kind in kinds and other != place
    }
    best = max(lengths, key=lambda other: lengths[other], default=-1)
    return best if best >= 0 and lengths[best] > 0 else -1


# ---- Where they are


def _supported(
    seen: Sequence[SeenItem], grounds: Sequence[int], touching: Borders, held: set[int]
) -> list[ItemRelation]:
    """What stands there: in a surface that goes on to both sides of its foot, else on it; beside another one."""
    found = []
    for place, one in enumerate(seen):
        ground = grounds[place]
        if one.thing is None or ground < 0 or place in held or one.thing.z > 0.3:
            continue
        sides = touching.under[place][5:]
        if one.kind not in _LIVING:
            inside = sides == [ground, ground] and seen[ground].kind in ("square", "grass", "flower", "water")
            found.append(ItemRelation(place, ground, "in" if inside else "on"))
        for other in sorted(set(sides) - {ground, place, -1}):
            if seen[other].kind in _FLAT:
                found.append(ItemRelation(place, other, "beside"))
    return found


def _things_to_things(seen: Sequence[SeenItem], touching: Borders) -> list[ItemRelation]:
    """Who is in front of whom, and who is beside whom."""
    found = []
    things = sorted((one.distance, place) for place, one in enumerate(seen) if one.thing is not None)
    for position, (near_by, near) in enumerate(things):
        for far_off, far in things[position + 1 :]:
            apart = far_off - near_by
            if apart >= max(1.0, 0.15 * near_by) and _hides(seen[near], seen[far], _border(near, far, touching)):
                found.append(ItemRelation(near, far, "in front of"))
            elif apart <= max(1.5, 0.2 * near_by) and _abreast(seen[near], seen[far]):
                found.append(ItemRelation(near, far, "beside"))
    return found


def _border(a: int, b: int, touching: Borders) -> int:
    return touching.right[a][b] + touching.right[b][a] + touching.below[a][b] + touching.below[b][a]


def _hides(near: SeenItem, far: SeenItem, border: int) -> bool:
    """Whether the nearer one partly hides the farther one."""
    return border > 0 and _overlap(near.item.box, far.item.box, 0) >= 0.4


def _abreast(one: SeenItem, other: SeenItem) -> bool:
    """Whether two things are side by side in the picture, with little between them."""
    a, b = one.item.box, other.item.box
    widest = max(a[2] - a[0], b[2] - b[0])
    gap = max(a[0], b[0]) - min(a[2], b[2])
    return gap < widest and _overlap(a, b, 0) <= 0.3 and _overlap(a, b, 1) >= 0.5


def _overlap(a: Sequence[int], b: Sequence[int], axis: int) -> float:
    """How much of the shorter one's extent is covered by the other's: 0 to 1."""
    shared = min(a[axis + 2], b[axis + 2]) - max(a[axis], b[axis])
    return max(0, shared) / min(a[axis + 2] - a[axis], b[axis + 2] - b[axis])


def _things_to_backgrounds(seen: Sequence[SeenItem], touching: Borders) -> list[ItemRelation]:
    """What stands before buildings, trees and water or beside them; trees over things; fences that end at a house."""
    found = []
    for place, one in enumerate(seen):
        if one.thing is None and one.kind not in ("tree", "fence", "wall"):
            continue
        x0, y0, x1, y1 = one.item.box
        width, height = x1 - x0, y1 - y0
        for other, behind in enumerate(seen):
            if other == place or behind.thing is not None or behind.kind not in _BEHIND:
                continue
            left, right = touching.right[other][place], touching.right[place][other]
            if one.thing is None:
                before = _border(place, other, touching) >= 0.4 * _outline(place, seen, touching)
                before &= min(left, right) >= 0.2 * max(left, right)
                aside = not before and left + right >= 8
            else:
                before = min(left, right) >= 0.25 * height
                aside = max(left, right) >= 0.4 * height and min(left, right) < 0.1 * height
            if before:
                found.append(ItemRelation(place, other, "in front of"))
            elif behind.kind == "tree" and touching.below[other][place] >= 0.6 * width:
                found.append(ItemRelation(other, place, "over"))
            elif aside and behind.kind != "hill":  # which is far away
                joined = one.kind in ("fence", "wall") and behind.kind == "building"
                found.append(ItemRelation(place, other, "attached to" if joined else "beside"))
    return found


def _outline(place: int, seen: Sequence[SeenItem], touching: Borders) -> int:
    """The length of an item's border with everything that is not below it."""
    return sum(
        touching.right[place][other] + touching.right[other][place] + touching.below[other][place]
        for other in range(len(seen))
    )


def _surfaces(seen: Sequence[SeenItem], touching: Borders) -> list[ItemRelation]:
    """The sky over all, and how the surfaces lie to each other."""
    found = []
    surfaces = [place for place, one in enumerate(seen) if one.thing is None]
    for place in surfaces:
        one = seen[place]
        if one.kind == "sky":
            found += _under_the_sky(place, seen, touching)
            continue
        for other in surfaces:
            flat = one.kind in _FLAT
            if seen[other].kind in _FLAT and (place < other if flat else place != other):
                found += _lie(place, other, seen, touching)
    return found


def _under_the_sky(sky: int, seen: Sequence[SeenItem], touching: Borders) -> list[ItemRelation]:
    found = []
    least = 0.015 * sum(one.item.area for one in seen)
    for place, one in enumerate(seen):
        x0, _, x1, _ = one.item.box
        tall = one.item.area >= least or one.kind in SIGHTS
        if place != sky and tall and touching.below[sky][place] >= 0.3 * (x1 - x0):
            found.append(ItemRelation(sky, place, "over"))
    return found


def _lie(place: int, other: int, seen: Sequence[SeenItem], touching: Borders) -> list[ItemRelation]:
    """How a surface lies to a piece of ground: nothing, or one relation. The nearer one is its subject."""
    one, ground = seen[place], seen[other]
    left, right = touching.right[place][other], touching.right[other][place]
    above, below = touching.below[place][other], touching.below[other][place]
    if one.kind == "tree":
        # a trunk is narrow, and has most of its ground below it; what is wide is a crown that hangs over the ground
        if above > 0.25 * (one.item.box[2] - one.item.box[0]):
            return [ItemRelation(place, other, "over")]
        rooted = ground.kind in _SOIL and above >= max(2, *(touching.below[place][soil] for soil in _soils(seen)))
        return [ItemRelation(place, other, "growing on")] if rooted else []
    if left + right + above + below < 8:
        return []
    if _surrounds(one, ground, min(left, right), above):
        return [ItemRelation(place, other, "enclosing")]
    if _surrounds(ground, one, min(left, right), below):
        return [ItemRelation(other, place, "enclosing")]
    if one.kind == "bridge" and ground.kind == "water":
        return [ItemRelation(place, other, "over")] if above >= 3 else []
    near, far = (other, place) if above >= below else (place, other)
    slanted = left + right >= _SLANT * (above + below)  # their border runs away from the camera
    return [ItemRelation(near, far, "beside" if slanted else "in front of")]


def _soils(seen: Sequence[SeenItem]) -> list[int]:
    return [place for place, one in enumerate(seen) if one.kind in _SOIL and one.thing is None]


def _surrounds(outer: SeenItem, inner: SeenItem, side: int, above: int) -> bool:
    """Whether a surface is on both sides of a piece of ground, and behind it; lengths are of their border."""
    x0, y0, x1, y1 = inner.item.box
    around = side >= 0.5 * (y1 - y0) and above >= 0.5 * (x1 - x0)
    return around and inner.kind in _ENCLOSED and outer.kind not in ("road", "bridge")


# ---- What is written down


def choose(
    found: Sequence[ItemRelation], seen: Sequence[SeenItem], size: tuple[int, int], rng: np.random.Generator
) -> tuple[ItemRelation, ...]:
    """What an annotator would write down: about six relations of large, central or active items."""
    if not found:
        return ()
    height, width = size
    salience = [_salience(one, width, height) for one in seen]
    draws = rng.random(len(found) + 2).tolist()
    plain = rng.random(len(found)).tolist()
    wanted = 3 + int(0.25 * len(seen)) + int(4 * draws[-1])
    scores = [_score(one, seen, salience) - math.log(-math.log(max(draw, 1e-12))) for one, draw in zip(found, draws)]
    uses: dict[str, int] = {}
    for place in sorted(range(len(found)), key=lambda place: -scores[place]):
        scores[place] -= _TIRED * uses.get(found[place].predicate, 0)
        uses[found[place].predicate] = uses.get(found[place].predicate, 0) + 1
    chosen: dict[frozenset[int], list[ItemRelation]] = {}
    doubles = draws[-2] < 0.3  # some write two predicates for a pair
    for place in sorted(range(len(found)), key=lambda place: -scores[place])[:wanted]:
        pair = chosen.setdefault(frozenset(found[place][:2]), [])
        if doubles or not pair:
            pair.append(_plainly(found[place]) if plain[place] < _PLAINLY else found[place])
    return tuple(dict.fromkeys(one for pair in chosen.values() for one in pair))


def _plainly(one: ItemRelation) -> ItemRelation:
    return one._replace(predicate=_PLAIN.get(one.predicate, one.predicate))


def _salience(one: SeenItem, width: int, height: int) -> float:
    """The logarithm of an item's salience."""
    x0, _, x1, _ = one.item.box
    off_centre = abs((x0 + x1) / width - 1)
    share = one.item.area / (width * height)
    return 0.35 * math.log(min(share, 0.1)) - 0.7 * off_centre


def _score(one: ItemRelation, seen: Sequence[SeenItem], salience: Sequence[float]) -> float:
    eager = math.log(_EAGER.get(one.predicate, _EAGER_FOR_ACTIONS))
    if one.predicate in ("in front of", "beside"):
        things = sum(seen[place].thing is not None for place in (one.subject, one.object))
        eager += _DULL * (things - 1)
    return eager + salience[one.subject] + salience[one.object]
