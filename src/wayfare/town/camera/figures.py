"""The things in a picture: which of them are visible, what their pieces look like from here, and their shadows.

fragments.py finds which pixels the pieces cover.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wayfare.town.camera.atlas import channels
from wayfare.town.camera.backdrop import (
    GROUND_0,
    HOUSE_0,
    LAMP,
    THING_0,
    Frame,
    coarse_at,
    hazy,
    lamplight,
    shadow_top,
)
from wayfare.town.camera.eye import HALF, NEAREST, ONE, ZERO, Eye, Lens, share
from wayfare.town.camera.fragments import Fragments, Pieces, card_fragments, cross, fragments, joined
from wayfare.town.camera.light import Light
from wayfare.town.camera.scene import CityScene
from wayfare.town.camera.shapes import shape_of
from wayfare.town.camera.solids import ATLAS, BLOB
from wayfare.town.model import Thing
from wayfare.town.plane import bounded

_RANGE = 170.0  # metres
_PART = 64.0  # metres
_SMALLEST = 3.0  # pixels: the side of the smallest square of pixels that is drawn
_ASIDE = 0.8  # metres: nobody photographs what is nearer; one steps aside
_MIRRORED = np.array((1, 0, 3, 2))  # corners
_LOOKS = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]  # where across a thing it is tested for being hidden
_SHADOWS = 22.0  # metres: farther things cast none
_UNDER, _IN_SHADE = 0.3, 0.5  # how much darker the ground is under a thing, and in its shadow
_SKY_ON_CARDS = np.array(0.95, np.float32)


def things_near(scene: CityScene, eye: Eye) -> np.ndarray:
    """Numbers of the city's things that may be visible from this part of the city; cached for the next shot."""
    i, j = int(eye.x // _PART), int(eye.y // _PART)
    key = i, j, eye.lens.focal
    if key not in scene.near:
        x, y = scene.things[:2]
        away = np.hypot(x - (i + 0.5) * _PART, y - (j + 0.5) * _PART)
        scene.near[key] = (away < _limit(scene.things, eye.lens) + _PART * math.sqrt(0.5)).nonzero()[0]
    return scene.near[key]


def _limit(rows: np.ndarray, lens: Lens) -> np.ndarray:
    """The distance at which things are too small to be seen."""
    return np.asarray(np.minimum(rows[8] * (lens.focal / _SMALLEST), _RANGE) + rows[7])


def in_view(rows: np.ndarray, eye: Eye) -> np.ndarray:
    """Indices of the things, given as scene.thing_rows, that would be visible if nothing hid them."""
    radius, _, across, ahead = rows[7:]
    away = across * across + ahead * ahead
    limit = _limit(rows, eye.lens)
    near = np.minimum(radius, 0.6) + _ASIDE
    found: np.ndarray = ((away < limit * limit) & (away > near * near) & eye.faces(across, ahead, radius)).nonzero()[0]
    return found


def unhidden(rows: np.ndarray, eye: Eye, frame: Frame) -> np.ndarray:
    """Indices of the things that are at least partly in front of the rest of the picture."""
    lens = eye.lens
    _, _, z, _, _, height, _, radius, _, across, ahead = rows
    depth = np.hypot(across, ahead) if lens.pano else ahead
    near = np.maximum(depth - radius, NEAREST)
    top = z + height - eye.z
    row = eye.rows(top / np.where(top > 0, near, depth + radius))
    row = bounded(row, 0, lens.height - 1).astype(np.int32)
    middle = eye.columns(across, ahead if lens.pano else np.maximum(ahead, NEAREST))
    reach = (radius + 0.3) * lens.scale / near
    column = (middle + reach * _LOOKS).astype(np.int32)
    column = column % lens.width if lens.pano else bounded(column, 0, lens.width - 1)
    behind = frame.depth.take(row * lens.width + column).max(0)
    found: np.ndarray = ((behind > near) | (near < 2)).nonzero()[0]
    return found


class Rest(NamedTuple):
    """What can be drawn only after painting: shadows on the ground, and partly covered pixels."""

    shaded: np.ndarray  # pixels
    shade: np.ndarray  # how dark they are, 0 to 1
    pixel: np.ndarray
    colour: np.ndarray  # float32 (3, n)
    cover: np.ndarray  # how much of the pixel has this colour


def draw_things(
    frame: Frame, things: Sequence[Thing], rows: np.ndarray, scene: CityScene, eye: Eye, light: Light, season: str
) -> Rest | None:
    """Draw these things into the picture; `rows` are theirs, as of scene.thing_rows.

    So far the frame needs to have its depths only: this comes first, so that hidden parts need not be painted.
    """
    if not things:
        return None
    away = rows[:2] - eye.here
    # where the camera is, clockwise from the thing's heading
    turned = (np.degrees(np.arctan2(-away[0], -away[1])) - rows[6]) % 360
    shapes = [shape_of(thing, angle, season, light.snow) for thing, angle in zip(things, turned.tolist())]
    sun, lamp = _light_on(rows, scene, light)
    table = _table(rows, turned, eye, sun, lamp)
    quads = _quads(*_collected([shape.quads for shape in shapes]), table, eye, light)
    cards = _cards(*_collected([shape.cards for shape in shapes]), table, eye, light)
    long, long_dark = _long_shadows(rows, eye, light, sun)
    contact, contact_dark = _contact_shadows(rows, table, eye)
    pieces = joined((quads, long, contact, cards))
    first, flat = len(quads.thing), len(quads.thing) + len(long.thing)
    if eye.lens.pano:
        found = fragments(frame, pieces, eye)
    else:
        found = fragments(frame, pieces.some(0, flat), eye)
        found = found.joined(card_fragments(frame, pieces.some(flat, len(pieces.thing)), eye), flat)
    # fragments are in the order of their pieces
    begin, end = found.piece.searchsorted((first, flat + len(contact.thing))).tolist()
    dark = np.concatenate((long_dark, contact_dark)).take(found.piece[begin:end] - first) * found.cover[begin:end]
    found.cover[begin:end] = 0
    return Rest(found.pixel[begin:end], dark, *_draw(frame, found, pieces, light))


def add_rest(frame: Frame, rest: Rest | None) -> None:
    """Draw shadows on the ground, and blend the things' edges with what is behind them."""
    if rest is None:
        return
    shown = frame.shows.take(rest.shaded)
    on_ground = ((shown >= GROUND_0) & (shown < HOUSE_0)).nonzero()[0]
    at = rest.shaded.take(on_ground)
    shade = np.zeros(len(frame.depth), np.float32)
    np.maximum.at(shade, at, rest.shade.take(on_ground))  # the darkest counts
    frame.put(at, frame.light.take(at, axis=1) * (ONE - shade.take(at)))
    behind = frame.light.take(rest.pixel, axis=1)
    frame.put(rest.pixel, behind + (rest.colour - behind) * rest.cover)


def _light_on(rows: np.ndarray, scene: CityScene, light: Light) -> tuple[np.ndarray, np.ndarray]:
    """How much sun, and how much lamplight, each thing gets."""
    coarse = coarse_at(scene, rows[:2])
    top = shadow_top(scene, coarse, light)
    sun = np.ones(rows.shape[1], np.float32)
    if top is not None:
        sun -= share((top - rows[2]) / np.maximum(rows[5], HALF))
    return sun, lamplight(scene, coarse, light.dark * 0.75)


def _table(rows: np.ndarray, turned: np.ndarray, eye: Eye, sun: np.ndarray, lamp: np.ndarray) -> np.ndarray:
    """What the things' pieces need to know of their thing, float32 (11, things): where it is to the right and ahead;
    what a part of its width, and one of its depth, makes there; its foot and height; sun, lamplight, and how wide it is
    as seen from here."""
    _, _, z, width, depth, height, heading = rows[:7]
    angle = np.radians(heading) - math.atan2(eye.ahead[0], eye.ahead[1])
    sin, cos = np.sin(angle), np.cos(angle)
    turn = np.radians(turned)
    table = np.empty((11, rows.shape[1]), np.float32)
    table[:2] = rows[9:]
    table[2], table[3], table[4], table[5] = width * cos, -width * sin, depth * sin, depth * cos
    table[6], table[7], table[8], table[9] = z - eye.z, height, sun, lamp
    table[10] = np.abs(np.sin(turn)) * depth + np.abs(np.cos(turn)) * width
    return table


def _cards(cards: np.ndarray, thing: np.ndarray, table: np.ndarray, eye: Eye, light: Light) -> Pieces:
    x, y, low, wide, tall, sprite = cards
    at = table.take(thing, axis=1)
    middle_x, middle_y = at[:2] + x * at[2:4] + y * at[4:6]
    bottom = at[6] + low * at[7]
    corners = _facing(middle_x, middle_y, wide * at[10] / 2, bottom=bottom, top=bottom + tall * at[7], eye=eye)
    colour = _brightness(HALF * at[8], _SKY_ON_CARDS, at[9], light)
    return Pieces(corners, thing, sprite.astype(np.int32), colour, np.zeros(len(thing), bool))


def _facing(
    x: np.ndarray, y: np.ndarray, half: np.ndarray, bottom: np.ndarray, top: np.ndarray, eye: Eye
) -> np.ndarray:
    """Corners, (3, 4, n), of upright rectangles that face the camera."""
    corners = np.empty((3, 4, len(x)), np.float32)
    half_y = np.zeros_like(half)
    if eye.lens.pano:
        length = np.maximum(np.hypot(x, y), 1e-3)
        half, half_y = half * y / length, -half * x / length
    corners[0, 0] = corners[0, 3] = x - half
    corners[0, 1] = corners[0, 2] = x + half
    corners[1, 0] = corners[1, 3] = y - half_y
    corners[1, 1] = corners[1, 2] = y + half_y
    corners[2, :2] = bottom
    corners[2, 2:] = top
    return corners


def _collected(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """All their columns, concatenated, and the source of each."""
    counts = [part.shape[1] for part in parts]
    filled = [part for part in parts if part.shape[1]] or parts[:1]
    return np.concatenate(filled, 1), np.arange(len(parts), dtype=np.int32).repeat(counts)


def _quads(quads: np.ndarray, thing: np.ndarray, table: np.ndarray, eye: Eye, light: Light) -> Pieces:
    at = table.take(thing, axis=1)
    x, y, z = quads[:12].reshape(3, 4, -1)
    corners = np.empty((3, 4, len(thing)), np.float32)
    corners[:2] = at[:2, None] + x * at[2:4, None] + y * at[4:6, None]
    corners[2] = at[6] + z * at[7]
    first = corners[:, 0]
    normal = cross(corners[:, 1] - first, corners[:, 3] - first)
    facing = -(normal * first).sum(0)  # positive if its outer side is seen
    keep = ((facing > 0) | (quads[16] > 0)).nonzero()[0]
    corners, normal, at = corners.take(keep, axis=2), normal.take(keep, axis=1), at.take(keep, axis=1)
    away = facing.take(keep) < 0
    if away.any():  # seen from behind: the corners the other way round
        corners, normal = np.where(away, corners.take(_MIRRORED, 1), corners), np.where(away, -normal, normal)
    normal /= np.maximum(np.sqrt((normal * normal).sum(0)), 1e-9)
    right, front = (sum(a * b for a, b in zip(way, light.sun)) for way in (eye.right, eye.ahead))
    to_sun = normal[0] * right + normal[1] * front + normal[2] * light.sun[2]
    to_sun = np.maximum(to_sun * 0.85 + 0.15, ZERO) * at[8]
    colour = quads[12:15].take(keep, axis=1)
    colour *= _brightness(to_sun, 0.84 + normal[2] * 0.16, at[9], light)
    return Pieces(corners, thing.take(keep), quads[15].take(keep).astype(np.int32), colour, away)


def _brightness(sun: np.ndarray, sky: np.ndarray | np.float32, lamp: np.ndarray, light: Light) -> np.ndarray:
    """Light on pieces, (3, n)."""
    result: np.ndarray = light.sun_colour[:, None] * sun
    result += light.ambient[:, None] * sky
    if light.dark:
        result += LAMP * lamp
    return result


def _contact_shadows(rows: np.ndarray, table: np.ndarray, eye: Eye) -> tuple[Pieces, np.ndarray]:
    """Soft dark patches under things, and their darkness.

    A disc on the ground is seen as an ellipse: drawn as a rectangle before the camera, at the disc's nearest point.
    """
    depth = np.hypot(rows[9], rows[10]) if eye.lens.pano else rows[10]
    near = ((rows[2] < 0.6) & (depth < _SHADOWS) & (depth > rows[7] + NEAREST)).nonzero()[0]
    radius, _, across, ahead = rows[7:].take(near, axis=1)
    depth = depth.take(near)
    height, half = rows[5].take(near), table[10].take(near) / 2
    foot = np.where(height > 2 * half, np.float32(0.6), np.float32(1.1))  # what is tall is narrower at its foot
    half, reach = half * foot, np.minimum(half, radius) * foot
    closer = (depth - reach) / depth
    bottom, top = np.full(len(near), -eye.z, np.float32), (depth - reach) * -eye.z / (depth + reach)
    corners = _facing(across * closer, ahead * closer, half * closer, bottom=bottom, top=top, eye=eye)
    return _of_nothing(corners), np.full(len(near), _UNDER, np.float32)


def _long_shadows(rows: np.ndarray, eye: Eye, light: Light, sun: np.ndarray) -> tuple[Pieces, np.ndarray]:
    """Shadows on the ground of things in the sun, and their darkness."""
    if light.sun_colour[0] < 0.08:
        return _of_nothing(np.empty((3, 4, 0), np.float32)), np.empty(0, np.float32)
    across, ahead = rows[9:]
    near = ((rows[2] < 0.6) & (sun > 0.2) & (across * across + ahead * ahead < _SHADOWS * _SHADOWS)).nonzero()[0]
    width, depth, height, _, radius, _, across, ahead = rows[3:].take(near, axis=1)
    level = max(math.hypot(light.sun[0], light.sun[1]), 1e-3)
    x, y = (-(way[0] * light.sun[0] + way[1] * light.sun[1]) / level for way in (eye.right, eye.ahead))
    way, aside = np.array(((x, y), (y, -x)), np.float32)[:, :, None]
    long = height * min(level / max(light.sun[2], 0.05), 3.0)
    wide = 2 * np.minimum(radius, 0.42 * np.maximum(width, depth))
    # parallelograms just above the ground, a little larger than the shadows
    middle = np.array((across, ahead)) + long / 2 * way
    a, b = wide * aside * 0.58, (long + wide) * way * 0.58
    left, right = middle - a, middle + a
    corners = np.empty((3, 4, len(near)), np.float32)
    corners[:2, 0], corners[:2, 1], corners[:2, 2], corners[:2, 3] = left - b, right - b, right + b, left + b
    corners[2] = 0.015 - eye.z
    return _of_nothing(corners), sun.take(near) * (_IN_SHADE * min(1.0, float(light.sun_colour[0]) * 1.8))


def _of_nothing(corners: np.ndarray) -> Pieces:
    """Shadows as pieces that belong to no thing."""
    count = corners.shape[2]
    return Pieces(
        corners, np.zeros(count, np.int32), np.full(count, BLOB, np.int32), corners[:, 0], np.zeros(count, bool)
    )


def _draw(frame: Frame, found: Fragments, pieces: Pieces, light: Light) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw the nearest fragments that cover at least half of a pixel; pixels, colours and coverage of the others."""
    solid = (found.cover >= 0.5).nonzero()[0]
    pixel, depth = found.pixel.take(solid), found.depth.take(solid)
    np.minimum.at(frame.depth, pixel, depth)
    solid = solid[depth <= frame.depth.take(pixel)]
    soft = ((found.cover > 0.06) & (found.cover < 0.5) & (found.depth <= frame.depth.take(found.pixel))).nonzero()[0]
    some = np.concatenate((solid, soft))
    piece, texel = found.piece.take(some), found.texel.take(some)
    colour = channels(ATLAS.texels.take(texel))[:3]
    lit = pieces.colour.take(piece, axis=1)
    if light.dark:
        shine = ATLAS.glow.take(texel) * np.float32(light.dark / 255)
        lit += (1.1 - lit) * shine
    colour *= lit
    hazy(colour, found.depth.take(some), light)
    at, owned = found.pixel.take(some), len(solid)
    frame.put(at[:owned], colour[:, :owned])
    frame.shows[at[:owned]] = (pieces.thing + THING_0).take(piece[:owned])
    return at[owned:], colour[:, owned:], found.cover.take(soft)
