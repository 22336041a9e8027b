"""The things in a picture: which of them can be seen, what their pieces look like from here, and their shadows.

fragments.py finds which pixels the pieces cover.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wayfare.data.town.camera.atlas import channels
from wayfare.data.town.camera.backdrop import GROUND_0, HOUSE_0, LAMP, THING_0, Frame, coarse_at, hazy, shadow_top
from wayfare.data.town.camera.eye import NEAREST, Eye, bounded
from wayfare.data.town.camera.fragments import Fragments, Pieces, card_fragments, cross, fragments
from wayfare.data.town.camera.light import Light
from wayfare.data.town.camera.scene import Scene
from wayfare.data.town.camera.shapes import shape_of
from wayfare.data.town.camera.solids import ATLAS, BLOB
from wayfare.data.town.model import Thing

_RANGE = 170.0  # metres
_SMALLEST = 3.0  # pixels: the side of the smallest square of pixels that is drawn
_ASIDE = np.float32(0.8)  # metres: nobody photographs what is nearer; one steps aside
_LOOKS = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]  # where across a thing it is tested for being hidden
_SHADOWS = 22.0  # metres: farther things cast none
_UNDER, _IN_SHADE = np.float32(0.3), 0.5  # how much darker the ground is under a thing, and in its shadow
_SUN_ON_CARDS, _SKY_ON_CARDS = np.float32(0.5), np.float32(0.95)


def in_view(rows: np.ndarray, eye: Eye) -> np.ndarray:
    """Indices of the things, given as scene.thing_rows, that may be seen if nothing hides them."""
    lens = eye.lens
    x, y, _, _, _, _, _, radius, side = rows
    across, ahead = eye.turned(x - np.float32(eye.x), y - np.float32(eye.y))
    away = across * across + ahead * ahead
    limit = np.minimum(side * np.float32(lens.focal / _SMALLEST), np.float32(_RANGE)) + radius
    seen = (away < limit * limit) & (away > (np.minimum(radius, np.float32(0.6)) + _ASIDE) ** 2)
    if not lens.pano:
        slant = np.float32(-lens.p[0])
        margin = (radius + np.float32(0.4)) * np.float32(np.hypot(1, slant))
        seen &= (ahead > NEAREST - radius) & (np.abs(across) < slant * ahead + margin)
    return np.flatnonzero(seen)


def unhidden(rows: np.ndarray, eye: Eye, frame: Frame) -> np.ndarray:
    """Indices of those of these things that stand at least partly before what is behind them in the picture."""
    lens = eye.lens
    x, y, z, _, _, height, _, radius, _ = rows
    across, ahead = eye.turned(x - np.float32(eye.x), y - np.float32(eye.y))
    depth = np.hypot(across, ahead) if lens.pano else ahead
    near = np.maximum(depth - radius, np.float32(NEAREST))
    top = z + height - np.float32(eye.z)
    row = eye.rows(top / np.where(top > 0, near, depth + radius))
    row = bounded(row, 0, lens.height - 1).astype(np.int32)
    middle = eye.columns(across, ahead if lens.pano else np.maximum(ahead, np.float32(NEAREST)))
    reach = (radius + np.float32(0.3)) * np.float32(lens.focal) / near
    column = (middle + reach * _LOOKS).astype(np.int32)
    column = column % np.int32(lens.width) if lens.pano else bounded(column, 0, lens.width - 1)
    behind = frame.depth.take(row * np.int32(lens.width) + column).max(0)
    return np.flatnonzero((behind > near) | (near < 2))


class Rest(NamedTuple):
    """What can only be drawn when the picture is painted: shadows on the ground, and pixels that are partly covered."""

    shaded: np.ndarray  # pixels
    shade: np.ndarray  # how dark they are, 0 to 1
    pixel: np.ndarray
    colour: np.ndarray  # float32 (3, n)
    cover: np.ndarray  # how much of the pixel has this colour


def draw_things(
    frame: Frame, things: Sequence[Thing], rows: np.ndarray, scene: Scene, eye: Eye, light: Light, season: str
) -> Rest | None:
    """Draw these things into the picture; `rows` are theirs, as of scene.thing_rows.

    So far the frame needs to have its depths only: this comes first, so that what things hide need not be painted.
    """
    if not things:
        return None
    x, y = rows[0] - np.float32(eye.x), rows[1] - np.float32(eye.y)
    turned = (np.degrees(np.arctan2(-x, -y)) - rows[6]) % 360  # where the camera is, clockwise from the thing's heading
    across, ahead = eye.turned(x, y)
    shapes = [shape_of(thing, angle, season, light.snow) for thing, angle in zip(things, turned.tolist())]
    sun, lamp = _light_on(rows, scene, light)
    table = _table(rows, (across, ahead), turned, eye, sun, lamp)
    quads = _quads(*_collected([shape.quads for shape in shapes]), table, eye, light)
    cards = _cards(*_collected([shape.cards for shape in shapes]), table, eye, light)
    long, long_dark = _long_shadows(rows, (across, ahead), eye, light, sun)
    contact, contact_dark = _contact_shadows(rows, (across, ahead), table, eye)
    flat, upright = quads.joined(long), contact.joined(cards)
    pieces = flat.joined(upright)
    strength = np.concatenate((long_dark, contact_dark))
    if eye.lens.pano:
        found = fragments(frame, pieces, eye)
    else:
        found = fragments(frame, flat, eye).joined(card_fragments(frame, upright, eye), len(flat.thing))
    first = len(quads.thing)
    of_shadow = np.flatnonzero((found.piece >= first) & (found.piece < first + len(strength)))
    dark = found.cover.take(of_shadow) * strength.take(found.piece.take(of_shadow) - first)
    found.cover[of_shadow] = 0
    return Rest(found.pixel.take(of_shadow), dark, *_draw(frame, found, pieces, light))


def add_rest(frame: Frame, rest: Rest | None) -> None:
    """Darken the ground where shadows lie, and mix the things' edges with what is behind them."""
    if rest is None:
        return
    at = rest.shaded
    shown = frame.shows.take(at)
    shade = np.zeros(len(frame.depth), np.float32)
    np.maximum.at(shade, at, rest.shade * ((shown >= GROUND_0) & (shown < HOUSE_0)))  # the darkest counts
    left = 1 - shade.take(at)
    for channel, plane in enumerate(frame.light):
        plane[at] = plane.take(at) * left
        behind = plane.take(rest.pixel)
        plane[rest.pixel] = behind + (rest.colour[channel] - behind) * rest.cover


def _light_on(rows: np.ndarray, scene: Scene, light: Light) -> tuple[np.ndarray, np.ndarray]:
    """How much sun, and how much lamplight, each thing gets."""
    coarse = coarse_at(scene, rows[0], rows[1])
    top = shadow_top(scene, coarse, light)
    sun = np.ones(rows.shape[1], np.float32)
    if top is not None:
        sun -= bounded((top - rows[2]) / np.maximum(rows[5], np.float32(0.5)), 0, 1)
    return sun, scene.lamps.reshape(-1).take(coarse) * np.float32(light.dark * 0.75 / 255)


def _table(
    rows: np.ndarray, place: tuple[np.ndarray, np.ndarray], turned: np.ndarray, eye: Eye, sun: np.ndarray,
    lamp: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """What the things' pieces need to know of their thing, float32 (11, things): what turns coordinates into the
    camera's (8), sun, lamplight, and how wide it is as seen from here."""
    _, _, z, width, depth, height, heading, _, _ = rows
    angle = np.radians(heading) - np.float32(np.arctan2(eye.ahead[0], eye.ahead[1]))
    sin, cos = np.sin(angle), np.cos(angle)
    turn = np.radians(turned)
    table = np.empty((11, rows.shape[1]), np.float32)
    table[0], table[3] = place
    table[1], table[2], table[4], table[5] = width * cos, depth * sin, -width * sin, depth * cos
    table[6], table[7], table[8], table[9] = z - np.float32(eye.z), height, sun, lamp
    table[10] = np.abs(np.sin(turn)) * depth + np.abs(np.cos(turn)) * width
    return table


def _cards(cards: np.ndarray, thing: np.ndarray, table: np.ndarray, eye: Eye, light: Light) -> Pieces:
    x, y, low, wide, tall, sprite = cards
    at = table.take(thing, axis=1)
    middle_x, middle_y = at[0] + x * at[1] + y * at[2], at[3] + x * at[4] + y * at[5]
    bottom = at[6] + low * at[7]
    corners = _facing(middle_x, middle_y, wide * at[10] / 2, bottom, bottom + tall * at[7], eye)
    colour = _brightness(_SUN_ON_CARDS * at[8], _SKY_ON_CARDS, at[9], light)
    return Pieces(corners, thing, sprite.astype(np.int32), colour, np.zeros(len(thing), bool))


def _facing(
    x: np.ndarray, y: np.ndarray, half: np.ndarray, bottom: np.ndarray, top: np.ndarray, eye: Eye
) -> np.ndarray:
    """Corners, (3, 4, n), of upright rectangles that face the camera."""
    corners = np.empty((3, 4, len(x)), np.float32)
    half_y = np.zeros_like(half)
    if eye.lens.pano:
        length = np.maximum(np.hypot(x, y), np.float32(1e-3))
        half, half_y = half * y / length, -half * x / length
    corners[0, 0] = corners[0, 3] = x - half
    corners[0, 1] = corners[0, 2] = x + half
    corners[1, 0] = corners[1, 3] = y - half_y
    corners[1, 1] = corners[1, 2] = y + half_y
    corners[2, :2] = bottom
    corners[2, 2:] = top
    return corners


def _collected(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The columns of all these, and from which of them each comes."""
    counts = [part.shape[1] for part in parts]
    filled = [part for part in parts if part.shape[1]] or parts[:1]
    return np.concatenate(filled, 1), np.arange(len(parts), dtype=np.int32).repeat(counts)


def _quads(quads: np.ndarray, thing: np.ndarray, table: np.ndarray, eye: Eye, light: Light) -> Pieces:
    at = table.take(thing, axis=1)
    x, y, z = quads[:12].reshape(3, 4, -1)
    corners = np.empty((3, 4, len(thing)), np.float32)
    corners[0] = at[0] + x * at[1] + y * at[2]
    corners[1] = at[3] + x * at[4] + y * at[5]
    corners[2] = at[6] + z * at[7]
    first = corners[:, 0]
    normal = cross(corners[:, 1] - first, corners[:, 3] - first)
    facing = -(normal * first).sum(0)  # positive if its outer side is seen
    keep = np.flatnonzero((facing > 0) | (quads[16] > 0))
    corners, normal, at = corners.take(keep, axis=2), normal.take(keep, axis=1), at.take(keep, axis=1)
    away = facing.take(keep) < 0
    if away.any():  # seen from behind: the corners the other way round
        corners[:, :, away] = corners[:, :, away][:, [1, 0, 3, 2]]
        normal[:, away] *= -1
    normal /= np.maximum(np.sqrt((normal * normal).sum(0)), np.float32(1e-9))
    right, front = (sum(a * b for a, b in zip(way, light.sun)) for way in (eye.right, eye.ahead))
    to_sun = normal[0] * np.float32(right) + normal[1] * np.float32(front) + normal[2] * np.float32(light.sun[2])
    to_sun = np.maximum(to_sun * np.float32(0.85) + np.float32(0.15), 0) * at[8]
    colour = quads[12:15].take(keep, axis=1)
    colour *= _brightness(to_sun, np.float32(0.84) + normal[2] * np.float32(0.16), at[9], light)
    return Pieces(corners, thing.take(keep), quads[15].take(keep).astype(np.int32), colour, away)


def _brightness(sun: np.ndarray, sky: np.ndarray | np.float32, lamp: np.ndarray, light: Light) -> np.ndarray:
    """Light on pieces, (3, n)."""
    result = light.sun_colour[:, None] * sun
    result += light.ambient[:, None] * sky
    if light.dark:
        result += LAMP * lamp
    return result


def _contact_shadows(
    rows: np.ndarray, place: tuple[np.ndarray, np.ndarray], table: np.ndarray, eye: Eye
) -> tuple[Pieces, np.ndarray]:
    """Soft dark patches under the things, and how dark they are.

    A disc on the ground is seen as an ellipse: drawn as a rectangle before the camera, at the disc's nearest point.
    """
    across, ahead = place
    depth = np.hypot(across, ahead) if eye.lens.pano else ahead
    radius = rows[7]
    near = np.flatnonzero((rows[2] < 0.6) & (depth < _SHADOWS) & (depth > radius + NEAREST))
    across, ahead, depth, radius = (part.take(near) for part in (across, ahead, depth, radius))
    height, half = rows[5].take(near), table[10].take(near) / 2
    foot = np.where(height > 2 * half, np.float32(0.6), np.float32(1.1))  # what is tall is narrower at its foot
    half, reach = half * foot, np.minimum(half, radius) * foot
    closer = (depth - reach) / depth
    bottom, top = np.full(len(near), np.float32(-eye.z)), np.float32(-eye.z) * (depth - reach) / (depth + reach)
    corners = _facing(across * closer, ahead * closer, half * closer, bottom, top, eye)
    return _of_nothing(corners), np.full(len(near), _UNDER)


def _long_shadows(
    rows: np.ndarray, place: tuple[np.ndarray, np.ndarray], eye: Eye, light: Light, sun: np.ndarray
) -> tuple[Pieces, np.ndarray]:
    """Shadows on the ground away from the sun where it reaches the things, and how dark they are."""
    across, ahead = place
    if light.sun_colour[0] < 0.08:
        return _of_nothing(np.empty((3, 4, 0), np.float32)), np.empty(0, np.float32)
    near = np.flatnonzero((rows[2] < 0.6) & (sun > 0.2) & (across * across + ahead * ahead < _SHADOWS * _SHADOWS))
    across, ahead, sun = across.take(near), ahead.take(near), sun.take(near)
    _, _, _, width, depth, height, _, radius, _ = rows.take(near, axis=1)
    level = max(float(np.hypot(light.sun[0], light.sun[1])), 1e-3)
    way_x, way_y = (
        np.float32(-(way[0] * light.sun[0] + way[1] * light.sun[1]) / level) for way in (eye.right, eye.ahead)
    )
    long = height * np.float32(min(level / max(light.sun[2], 0.05), 3.0))
    half = np.minimum(radius, np.float32(0.42) * np.maximum(width, depth))
    along = long + 2 * half
    corners = _on_ground(
        across + long / 2 * way_x, ahead + long / 2 * way_y, (2 * half * way_y, -2 * half * way_x),
        (along * way_x, along * way_y), eye,
    )  # fmt: skip
    return _of_nothing(corners), sun * np.float32(_IN_SHADE * min(1.0, float(light.sun_colour[0]) * 1.8))


def _of_nothing(corners: np.ndarray) -> Pieces:
    """Shadows as pieces that belong to no thing."""
    count = corners.shape[2]
    return Pieces(
        corners, np.zeros(count, np.int32), np.full(count, BLOB, np.int32), corners[:, 0], np.zeros(count, bool)
    )


def _on_ground(
    x: np.ndarray, y: np.ndarray, side: tuple[np.ndarray, np.ndarray], way: tuple[np.ndarray, np.ndarray], eye: Eye
) -> np.ndarray:
    """Corners, (3, 4, n), of parallelograms just above the ground around points, a little larger than these sides."""
    corners = np.empty((3, 4, len(x)), np.float32)
    for axis, middle in enumerate((x, y)):
        a, b = side[axis] * np.float32(0.58), way[axis] * np.float32(0.58)
        corners[axis] = middle - a - b, middle + a - b, middle + a + b, middle - a + b
    corners[2] = 0.015 - eye.z
    return corners


def _draw(frame: Frame, found: Fragments, pieces: Pieces, light: Light) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The nearest fragments that cover half their pixel or more own it; returns pixels, colours and cover of others."""
    solid = np.flatnonzero(found.cover >= 0.5)
    pixel, depth = found.pixel.take(solid), found.depth.take(solid)
    np.minimum.at(frame.depth, pixel, depth)
    solid = solid[depth <= frame.depth.take(pixel)]
    soft = np.flatnonzero((found.cover > 0.06) & (found.cover < 0.5) & (found.depth <= frame.depth.take(found.pixel)))
    some = np.concatenate((solid, soft))
    piece, texel = found.piece.take(some), found.texel.take(some)
    colour = channels(ATLAS.texels.take(texel))[:3]
    lit = pieces.colour.take(piece, axis=1)
    if light.dark:
        shine = ATLAS.glow.take(texel) * np.float32(light.dark / 255)
        lit += (np.float32(1.1) - lit) * shine
    colour *= lit
    hazy(colour, found.depth.take(some), light)
    at, owned = found.pixel.take(some), len(solid)
    frame.put(at[:owned], colour[:, :owned])
    frame.shows[at[:owned]] = pieces.thing.take(piece[:owned]) + np.int32(THING_0)
    return at[owned:], colour[:, owned:], found.cover.take(soft)
