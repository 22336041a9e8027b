"""Flat pieces on pixels.

A pixel's ray is inside a quad if it is on the inner side of the four planes through the camera and the quad's edges.
That holds for panoramas, and for pieces that reach behind the camera, too. All pieces of a picture are done at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wayfare.data.town.camera.atlas import LEVELS
from wayfare.data.town.camera.backdrop import Frame
from wayfare.data.town.camera.eye import NEAREST, Eye, Lens, bounded
from wayfare.data.town.camera.solids import ATLAS

_CLIP = np.float32(0.2)  # metres ahead: where pieces that reach behind the camera are cut
_HALF, _ONE = np.float32(0.5), np.float32(1)
_EDGE = np.float32(0.3)  # a card's outermost columns and rows are drawn if more of them is covered


class Pieces(NamedTuple):
    """Quads before the camera."""

    corners: np.ndarray  # float32 (3, 4, n): right, ahead, up of the camera; lower left, lower right, upper right, ...
    thing: np.ndarray  # int32 (n,): which thing each belongs to
    texture: np.ndarray  # int32 (n,): number in the atlas
    colour: np.ndarray  # float32 (3, n): the light that falls on them, times their own colour
    mirrored: np.ndarray  # bool (n,): seen from behind

    def joined(self, other: Pieces) -> Pieces:
        """These and others."""
        return Pieces(*(np.concatenate(pair, -1) for pair in zip(self, other)))


class Fragments(NamedTuple):
    """Pixels that pieces cover, one entry for each piece and pixel."""

    piece: np.ndarray
    pixel: np.ndarray
    depth: np.ndarray
    texel: np.ndarray
    cover: np.ndarray  # how much of the pixel is covered, 0 to 1

    def joined(self, other: Fragments, first: int) -> Fragments:
        """These and others, whose pieces are counted from `first` on."""
        both = [np.concatenate(pair) for pair in zip(self, other._replace(piece=other.piece + first))]
        return Fragments(*both)


class _Forms(NamedTuple):
    """Linear forms of a ray: (3, n) or, with a constant, (4, n) numbers for n pieces."""

    edges: tuple[np.ndarray, ...]  # distances from the four edges in pixels, positive inside
    near: np.ndarray  # 1 / depth
    u: np.ndarray  # place on the piece: this times depth, less the constant
    v: np.ndarray


def cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The vectors' cross products, along the first axis."""
    result = np.empty(np.broadcast_shapes(a.shape, b.shape), np.float32)
    for k, (i, j) in enumerate(((1, 2), (2, 0), (0, 1))):
        np.subtract(a[i] * b[j], a[j] * b[i], out=result[k])
    return result


def fragments(frame: Frame, pieces: Pieces, eye: Eye) -> Fragments:
    """All pixels that pieces cover and that nothing in the frame hides."""
    lens = eye.lens
    c0, c1, r0, r1 = _bounds(pieces.corners, eye)
    some = np.flatnonzero((c1 > c0) & (r1 > r0))
    c0, c1, r0, r1 = (part.take(some) for part in (c0, c1, r0, r1))
    corners = pieces.corners.take(some, axis=2)
    forms = _forms(corners, lens)
    # one entry for each row of each piece, then one for each pixel
    row, span = _counted(r1 - r0)
    row += r0.take(span)
    wide = (c1 - c0).take(span)
    piece = span.repeat(wide)
    column = np.arange(len(piece))
    column -= (np.cumsum(wide) - wide - c0.take(span)).repeat(wide)
    if lens.pano:
        column %= lens.width
    pixel = (row * lens.width).repeat(wide)
    pixel += column
    p = lens.p.take(column)
    q = lens.q.take(column) if lens.pano else None
    slope = lens.slope.take(row)

    def value(form: np.ndarray) -> np.ndarray:
        by_row = form[2].take(span) * slope
        if q is None:
            by_row += form[1].take(span)
        result = by_row.repeat(wide)
        result += form[0].take(piece) * p
        if q is not None:
            result += form[1].take(piece) * q
        return result

    def between(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """How much of a pixel lies between two edges."""
        one, other = value(one), value(other)
        one += _HALF
        other += _HALF
        np.minimum(one, _ONE, out=one)
        np.minimum(other, _ONE, out=other)
        one += other
        one -= _ONE
        return np.maximum(one, 0, out=one)

    edges = forms.edges
    cover = between(edges[0], edges[2])
    cover *= between(edges[1], edges[3])
    near = value(forms.near)
    np.maximum(near, np.float32(1e-9), out=near)
    depth = np.divide(_ONE, near, out=near)
    inside = np.flatnonzero((cover > 0.05) & (depth < frame.depth.take(pixel)) & (depth > NEAREST))
    piece, pixel, depth, cover = (part.take(inside) for part in (piece, pixel, depth, cover))
    texel = _texels(pieces, corners, some, forms, piece, pixel, depth, eye)
    cover *= (ATLAS.texels.take(texel) >> np.uint32(24)) * np.float32(1 / 255)
    return Fragments(some.take(piece), pixel, depth, texel, cover)


def card_fragments(frame: Frame, cards: Pieces, eye: Eye) -> Fragments:
    """The same for upright pieces that face a pinhole camera: there each is a rectangle, which is much less work."""
    lens = eye.lens
    across, up = cards.corners[0], cards.corners[2]
    depth = cards.corners[1, 0]
    some = np.flatnonzero(depth > NEAREST)
    depth = depth.take(some)
    scale = np.float32(lens.focal) / depth
    left, right = (across[k].take(some) * scale + np.float32(lens.width / 2) for k in (0, 1))
    top, bottom = (np.float32(lens.height / 2) - up[k].take(some) * scale for k in (2, 0))
    c0, r0 = np.floor(left + _EDGE), np.floor(top + _EDGE)
    c1, r1 = np.maximum(np.ceil(right - _EDGE), c0 + _ONE), np.maximum(np.ceil(bottom - _EDGE), r0 + _ONE)
    c0, c1 = (bounded(part, 0, lens.width).astype(np.int32) for part in (c0, c1))
    r0, r1 = (bounded(part, 0, lens.height).astype(np.int32) for part in (r0, r1))
    wide, tall = c1 - c0, (r1 - r0) * (c1 > c0)
    offset, width, height = _sized(cards.texture.take(some), (right - left) * (bottom - top))
    # where in the texture each column and each row of each card is
    row, span = _counted(tall)
    row += r0.take(span)
    v = (row + _HALF - top.take(span)) * (height / (bottom - top)).take(span)
    texel_row = bounded(v.astype(np.int32), 0, height.take(span) - 1) * width.take(span) + offset.take(span)
    column, card = _counted(wide)
    column += c0.take(card)
    u = (column + _HALF - left.take(card)) * (width / (right - left)).take(card)
    texel_column = bounded(u.astype(np.int32), 0, width.take(card) - 1)
    # one entry for each pixel
    length = wide.take(span)
    number, line = _counted(length)
    pixel = (row * lens.width + c0.take(span)).repeat(length)
    pixel += number
    number += (np.cumsum(wide) - wide).take(span).repeat(length)
    at_depth = depth.take(span).repeat(length)
    seen = np.flatnonzero(at_depth < frame.depth.take(pixel))
    line = line.take(seen)
    texel = texel_column.take(number.take(seen)) + texel_row.take(line)
    cover = (ATLAS.texels.take(texel) >> np.uint32(24)) * np.float32(1 / 255)
    return Fragments(some.take(span.take(line)), pixel.take(seen), at_depth.take(seen), texel, cover)


def _counted(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """0, 1, ... up to each count, one after the other; and to which count each number belongs."""
    owner = np.arange(len(counts)).repeat(counts)
    number = np.arange(len(owner))
    number -= (np.cumsum(counts) - counts).repeat(counts)
    return number, owner


def _texels(
    pieces: Pieces, corners: np.ndarray, some: np.ndarray, forms: _Forms, piece: np.ndarray, pixel: np.ndarray,
    depth: np.ndarray, eye: Eye,
) -> np.ndarray:  # fmt: skip
    lens = eye.lens
    column = lens.column.take(pixel)
    p, slope = lens.p.take(column), lens.slope.take(lens.row.take(pixel))
    place = []
    for form in (forms.u, forms.v):
        along = form[0].take(piece) * p
        along += form[2].take(piece) * slope
        along += form[1].take(piece) * lens.q.take(column) if lens.pano else form[1].take(piece)
        along *= depth
        along -= form[3].take(piece)
        place.append(along)
    u, v = place
    mirrored = pieces.mirrored.take(some)
    if mirrored.any():
        np.subtract(1, u, out=u, where=mirrored.take(piece))
    offset, width, height = _level(pieces.texture.take(some), corners, eye)
    width, height = width.take(piece), height.take(piece)
    bounded(u, 0, np.float32(0.9999))
    bounded(v, np.float32(0.0001), 1)
    texel = ((1 - v) * height).astype(np.int32)
    texel *= width
    texel += (u * width).astype(np.int32)
    texel += offset.take(piece)
    return texel


def _bounds(corners: np.ndarray, eye: Eye) -> tuple[np.ndarray, ...]:
    """Columns and rows between which pieces may lie: first column, last + 1, first row, last + 1."""
    lens = eye.lens
    across, ahead, up = corners
    if lens.pano:
        away = np.maximum(np.hypot(across, ahead), np.float32(0.05))
        column = eye.columns(across, ahead)
        half = np.float32(lens.width / 2)
        column = column[0] + (column - column[0] + half) % np.float32(lens.width) - half
        # an edge that is straight in the world bends away from the horizon between its ends
        nearest = np.minimum(away.min(0), np.hypot(across.mean(0), ahead.mean(0))) * np.float32(0.9)
        row = eye.rows(np.concatenate((up / np.maximum(nearest, np.float32(0.05)), up / away)))
        c0, c1 = np.floor(column.min(0) - _HALF), np.ceil(column.max(0) + _HALF)
        around = c1 - c0 > lens.width * 0.6
        c0, c1 = np.where(around, 0, c0), np.where(around, lens.width, c1)
    else:
        across, ahead, up = _clipped(across, ahead, up)
        column, row = eye.columns(across, ahead), eye.rows(up / ahead)
        c0, c1 = np.floor(column.min(0) - _HALF), np.ceil(column.max(0) + _HALF)
        c0, c1 = bounded(c0, 0, lens.width), bounded(c1, 0, lens.width)
    r0, r1 = np.floor(row.min(0) - _HALF), np.ceil(row.max(0) + _HALF)
    r0, r1 = bounded(r0, 0, lens.height), bounded(r1, 0, lens.height)
    return tuple(part.astype(np.int32) for part in (c0, c1, r0, r1))


def _clipped(across: np.ndarray, ahead: np.ndarray, up: np.ndarray) -> tuple[np.ndarray, ...]:
    """Corners of the parts of pieces that lie before the camera; where there is none, a point beside the picture."""
    behind = ahead < _CLIP
    if not behind.any():
        return across, ahead, up
    after = [np.roll(part, -1, 0) for part in (across, ahead, up)]
    crossing = behind != np.roll(behind, -1, 0)
    share = np.where(crossing, (_CLIP - ahead) / np.where(crossing, after[1] - ahead, _ONE), 0)
    cuts = [part + (other - part) * share for part, other in zip((across, ahead, up), after)]
    keep = ~np.concatenate((behind, ~crossing))
    points = [np.concatenate(pair) for pair in zip((across, ahead, up), cuts)]
    first, number = keep.argmax(0), np.arange(keep.shape[1])
    gone = ~keep.any(0)
    across, ahead, up = (np.where(keep, part, part[first, number]) for part in points)
    return np.where(gone, np.float32(1e5), across), np.where(gone, _ONE, np.maximum(ahead, _CLIP)), up


def _forms(corners: np.ndarray, lens: Lens) -> _Forms:
    edges = cross(corners[:, (1, 2, 3, 0)], corners)
    if lens.pano:
        middle = corners.mean(1)
        p, q, s = middle / np.maximum(np.hypot(middle[0], middle[1]), np.float32(0.05))
        by_column = (edges[0] * q - edges[1] * p) * np.float32(2 * np.pi / lens.width)
        by_row = edges[2] * (1 + s * s) * np.float32(np.pi / lens.height)
    else:
        by_column, by_row = edges[0] * np.float32(1 / lens.focal), edges[2] * np.float32(1 / lens.focal)
    edges /= np.maximum(np.sqrt(by_column * by_column + by_row * by_row), np.float32(1e-12))
    first = corners[:, 0]
    right, up = corners[:, 1] - first, corners[:, 3] - first
    normal = cross(right, up)
    size = np.maximum((normal * normal).sum(0), np.float32(1e-12))
    forms = []
    for form in (cross(up, normal), cross(normal, right)):
        form /= size
        forms.append(np.concatenate((form, (form * first).sum(0)[None])))
    plane = (normal * first).sum(0)
    return _Forms(tuple(edges[:, k] for k in range(4)), normal / np.where(plane == 0, np.float32(1e-9), plane), *forms)


def _level(texture: np.ndarray, corners: np.ndarray, eye: Eye) -> np.ndarray:
    """Of each piece's texture the version whose texels are about as large as pixels: offset, width, height."""
    across, ahead = corners[0, 0] + corners[0, 2], corners[1, 0] + corners[1, 2]
    depth = np.maximum(np.sqrt(across * across + ahead * ahead) / 2, np.float32(NEAREST))
    right, up = corners[:, 1] - corners[:, 0], corners[:, 3] - corners[:, 0]
    area = np.sqrt((right * right).sum(0) * (up * up).sum(0)) * np.float32(eye.lens.focal**2) / (depth * depth)
    return _sized(texture, area)


def _sized(texture: np.ndarray, area: np.ndarray) -> np.ndarray:
    """Offset, width and height of textures as they are drawn on so many pixels."""
    full = ATLAS.levels[texture, 0]
    texels = (full[:, 1] * full[:, 2]).astype(np.float32) / np.maximum(area, np.float32(0.05))
    level = np.log2(bounded(texels * np.float32(1.2), 1, np.float32(4.0 ** (LEVELS - 0.6)))) * _HALF
    return np.ascontiguousarray(ATLAS.levels[texture, level.astype(np.int32)].T)
