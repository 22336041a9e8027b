"""Flat pieces on pixels.

A pixel's ray is inside a quad if it is on the inner side of the four planes through the camera and the quad's edges.
That holds for panoramas, and for pieces that reach behind the camera, too. All pieces of a picture are done at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wayfare.town.camera.atlas import LEVELS
from wayfare.town.camera.backdrop import Frame
from wayfare.town.camera.eye import HALF, NEAREST, ONE, ZERO, Eye, Lens, counted
from wayfare.town.camera.solids import ATLAS
from wayfare.town.plane import bounded

_CLIP = 0.2  # metres ahead: where pieces that reach behind the camera are cut
_NEXT, _BEFORE = np.array((1, 2, 0)), np.array((2, 0, 1))  # axes
_DOWN = np.array([[1], [-1]], np.float32)  # rows are counted from above
_EDGE = np.array(0.3, np.float32)  # a card's outermost columns and rows are drawn if more of them is covered


class Pieces(NamedTuple):
    """Quads in front of the camera."""

    corners: np.ndarray  # float32 (3, 4, n): right, ahead, up of the camera; lower left, lower right, upper right, ...
    thing: np.ndarray  # int32 (n,): which thing each belongs to
    texture: np.ndarray  # int32 (n,): number in the atlas
    colour: np.ndarray  # float32 (3, n): the light that falls on them, times their own colour
    mirrored: np.ndarray  # bool (n,): seen from behind

    def some(self, first: int, end: int) -> Pieces:
        """Those in a range of numbers."""
        return Pieces(*(part[..., first:end] for part in self))


def joined(several: Sequence[Pieces]) -> Pieces:
    """All of these, concatenated."""
    return Pieces(*(np.concatenate(parts, -1) for parts in zip(*several)))


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
    """Linear forms of a ray: its three parts are multiplied with the numbers along the first axis, and added up."""

    inside: np.ndarray  # (3, 5, n) for n pieces: distances from the four edges in pixels, positive inside; 1 / depth
    place: np.ndarray  # (4, 2, n): u and v on the piece are this times depth, less the fourth number


def cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The vectors' cross products, along the first axis."""
    found: np.ndarray = a.take(_NEXT, 0) * b.take(_BEFORE, 0) - a.take(_BEFORE, 0) * b.take(_NEXT, 0)
    return found


def fragments(frame: Frame, pieces: Pieces, eye: Eye) -> Fragments:
    """All pixels that pieces cover and that nothing in the frame hides."""
    lens = eye.lens
    c0, c1, r0, r1 = _bounds(pieces.corners, eye)
    some = ((c1 > c0) & (r1 > r0)).nonzero()[0]
    c0, c1, r0, r1 = (part.take(some) for part in (c0, c1, r0, r1))
    corners = pieces.corners.take(some, axis=2)
    forms = _forms(corners, lens)
    # one entry for each row of each piece, then one for each pixel
    row, span = counted(r1 - r0)
    row += r0.take(span)
    wide = (c1 - c0).take(span)
    piece = span.repeat(wide)
    column = np.arange(len(piece))
    column -= (wide.cumsum() - wide - c0.take(span)).repeat(wide)
    if lens.pano:
        column %= lens.width
    pixel = (row * lens.width).repeat(wide)
    pixel += column
    # the forms: what depends on the row, then what depends on the column
    form = forms.inside
    values = form[2].take(span, axis=1) * lens.slope.take(row)
    if not lens.pano:
        values += form[1].take(span, axis=1)
    values = values.repeat(wide, axis=1)
    values += form[0].take(piece, axis=1) * lens.p.take(column)
    if lens.pano:
        values += form[1].take(piece, axis=1) * lens.q.take(column)
    # how much of a pixel lies between two opposite edges, and between the other two
    edges = values[:4]
    edges += HALF
    np.minimum(edges, ONE, out=edges)
    between = edges[:2] + edges[2:]
    between -= ONE
    np.maximum(between, ZERO, out=between)
    cover = between[0] * between[1]
    depth = np.maximum(values[4], 1e-9)
    np.divide(ONE, depth, out=depth)
    inside = ((cover > 0.05) & (depth < frame.depth.take(pixel)) & (depth > NEAREST)).nonzero()[0]
    piece, pixel, depth, cover = (part.take(inside) for part in (piece, pixel, depth, cover))
    texel = _texels(pieces, corners, some=some, forms=forms, piece=piece, pixel=pixel, depth=depth, eye=eye)
    cover *= ATLAS.opacity(texel)
    return Fragments(some.take(piece), pixel, depth, texel, cover)


def card_fragments(frame: Frame, cards: Pieces, eye: Eye) -> Fragments:
    """The same for upright pieces that face a pinhole camera: there each is a rectangle, which is much faster."""
    lens = eye.lens
    across, up = cards.corners[0], cards.corners[2]
    depth = cards.corners[1, 0]
    some = (depth > NEAREST).nonzero()[0]
    depth = depth.take(some)
    scale = lens.scale / depth
    # columns and rows of the upper left and of the lower right corner
    start, end = (np.array(corner).take(some, axis=1) * scale for corner in ((across[0], up[2]), (across[1], up[0])))
    start, end = start * _DOWN + lens.middle, end * _DOWN + lens.middle
    size, (left, top) = end - start, start
    begin = np.floor(start + _EDGE)
    end = np.maximum(np.ceil(end - _EDGE), begin + ONE)
    limits = lens.middle * 2
    (c0, r0), (c1, r1) = (bounded(part, ZERO, limits).astype(np.int32) for part in (begin, end))
    wide, tall = c1 - c0, (r1 - r0) * (c1 > c0)
    offset, width, height = _sized(cards.texture.take(some), size[0] * size[1])
    # where in the texture each column and each row of each card is
    row, span = counted(tall)
    row += r0.take(span)
    v = (row + HALF - top.take(span)) * (height / size[1]).take(span)
    texel_row = bounded(v.astype(np.int32), 0, height.take(span) - 1) * width.take(span) + offset.take(span)
    column, card = counted(wide)
    column += c0.take(card)
    u = (column + HALF - left.take(card)) * (width / size[0]).take(card)
    texel_column = bounded(u.astype(np.int32), 0, width.take(card) - 1)
    # one entry for each pixel
    length = wide.take(span)
    number, line = counted(length)
    pixel = (row * lens.width + c0.take(span)).repeat(length)
    pixel += number
    number += (wide.cumsum() - wide).take(span).repeat(length)
    at_depth = depth.take(span).repeat(length)
    seen = (at_depth < frame.depth.take(pixel)).nonzero()[0]
    line = line.take(seen)
    texel = texel_column.take(number.take(seen)) + texel_row.take(line)
    return Fragments(some.take(span.take(line)), pixel.take(seen), at_depth.take(seen), texel, ATLAS.opacity(texel))


def _texels(
    pieces: Pieces, corners: np.ndarray, some: np.ndarray, forms: _Forms, piece: np.ndarray, pixel: np.ndarray,
    depth: np.ndarray, eye: Eye,
) -> np.ndarray:  # fmt: skip
    lens = eye.lens
    column = lens.column.take(pixel)
    form = forms.place
    place = form[0].take(piece, axis=1) * lens.p.take(column)
    place += form[2].take(piece, axis=1) * lens.slope.take(lens.row.take(pixel))
    ahead = form[1].take(piece, axis=1)
    place += ahead * lens.q.take(column) if lens.pano else ahead
    place *= depth
    place -= form[3].take(piece, axis=1)
    u, v = place
    mirrored = pieces.mirrored.take(some)
    if mirrored.any():
        np.subtract(1, u, out=u, where=mirrored.take(piece))
    offset, width, height = _level(pieces.texture.take(some), corners, eye)
    width, height = width.take(piece), height.take(piece)
    bounded(u, ZERO, 0.9999)
    bounded(v, 0.0001, ONE)
    texel: np.ndarray = ((ONE - v) * height).astype(np.int32)
    texel *= width
    texel += (u * width).astype(np.int32)
    texel += offset.take(piece)
    return texel


def _bounds(corners: np.ndarray, eye: Eye) -> tuple[np.ndarray, ...]:
    """Columns and rows between which pieces may lie: first column, last + 1, first row, last + 1."""
    lens = eye.lens
    across, ahead, up = corners
    if lens.pano:
        away = np.maximum(np.hypot(across, ahead), 0.05)
        column = eye.columns(across, ahead)
        half = lens.width / 2
        column = column[0] + (column - column[0] + half) % lens.width - half
        # an edge that is straight in the world bends away from the horizon between its ends
        nearest = np.minimum(away.min(0), np.hypot(across.mean(0), ahead.mean(0))) * 0.9
        row = eye.rows(np.concatenate((up / np.maximum(nearest, 0.05), up / away)))
        c0, c1 = np.floor(column.min(0) - HALF), np.ceil(column.max(0) + HALF)
        around = c1 - c0 > lens.width * 0.6
        c0, c1 = np.where(around, 0, c0), np.where(around, lens.width, c1)
    else:
        across, ahead, up = _clipped(across, ahead, up)
        column, row = eye.columns(across, ahead), eye.rows(up / ahead)
        c0, c1 = np.floor(column.min(0) - HALF), np.ceil(column.max(0) + HALF)
        c0, c1 = bounded(c0, ZERO, lens.width), bounded(c1, ZERO, lens.width)
    r0, r1 = np.floor(row.min(0) - HALF), np.ceil(row.max(0) + HALF)
    r0, r1 = bounded(r0, ZERO, lens.height), bounded(r1, ZERO, lens.height)
    return tuple(part.astype(np.int32) for part in (c0, c1, r0, r1))


def _clipped(across: np.ndarray, ahead: np.ndarray, up: np.ndarray) -> tuple[np.ndarray, ...]:
    """Corners of the parts of pieces in front of the camera; a point outside the picture if there are none."""
    behind = ahead < _CLIP
    if not behind.any():
        return across, ahead, up
    after = [np.roll(part, -1, 0) for part in (across, ahead, up)]
    crossing = behind != np.roll(behind, -1, 0)
    share = np.where(crossing, (_CLIP - ahead) / np.where(crossing, after[1] - ahead, ONE), 0)
    cuts = [part + (other - part) * share for part, other in zip((across, ahead, up), after)]
    keep = ~np.concatenate((behind, ~crossing))
    points = [np.concatenate(pair) for pair in zip((across, ahead, up), cuts)]
    first, number = keep.argmax(0), np.arange(keep.shape[1])
    gone = ~keep.any(0)
    across, ahead, up = (np.where(keep, part, part[first, number]) for part in points)
    return np.where(gone, 1e5, across), np.where(gone, ONE, np.maximum(ahead, _CLIP)), up


def _forms(corners: np.ndarray, lens: Lens) -> _Forms:
    edges = cross(corners[:, (1, 2, 3, 0)], corners)
    if lens.pano:
        middle = corners.mean(1)
        p, q, s = middle / np.maximum(np.hypot(middle[0], middle[1]), 0.05)
        by_column = (edges[0] * q - edges[1] * p) * (2 * np.pi / lens.width)
        by_row = edges[2] * (1 + s * s) * (np.pi / lens.height)
    else:
        by_column, by_row = edges[::2] * (1 / lens.focal)
    edges /= np.maximum(np.sqrt(by_column * by_column + by_row * by_row), 1e-12)
    first = corners[:, 0]
    right, up = corners[:, 1] - first, corners[:, 3] - first
    normal = cross(right, up)
    size = np.maximum((normal * normal).sum(0), 1e-12)
    place = np.empty((4, 2, len(size)), np.float32)
    place[:3, 0], place[:3, 1] = cross(up, normal), cross(normal, right)
    place[:3] /= size
    place[3] = (place[:3] * first[:, None]).sum(0)
    plane = (normal * first).sum(0)
    plane[plane == 0] = 1e-9
    return _Forms(np.concatenate((edges, (normal / plane)[:, None]), 1), place)


def _level(texture: np.ndarray, corners: np.ndarray, eye: Eye) -> np.ndarray:
    """For each piece, the version of its texture whose texels are about as large as pixels: offset, width, height."""
    across, ahead = corners[0, 0] + corners[0, 2], corners[1, 0] + corners[1, 2]
    depth = np.maximum(np.sqrt(across * across + ahead * ahead) / 2, NEAREST)
    right, up = corners[:, 1] - corners[:, 0], corners[:, 3] - corners[:, 0]
    area = np.sqrt((right * right).sum(0) * (up * up).sum(0)) * (eye.lens.focal**2) / (depth * depth)
    return _sized(texture, area)


def _sized(texture: np.ndarray, area: np.ndarray) -> np.ndarray:
    """Offset, width and height of textures as they are drawn on so many pixels."""
    texels = ATLAS.sizes.take(texture) / np.maximum(area, 0.05)
    level = np.log2(bounded(texels * 1.2, ONE, 4.0 ** (LEVELS - 0.6))) * HALF
    found: np.ndarray = ATLAS.levels.take(level.astype(np.int32) + texture * LEVELS, axis=1)
    return found
