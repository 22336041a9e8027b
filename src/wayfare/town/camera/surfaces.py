"""Textures of the ground by season, and clouds."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from wayfare.core.seeds import rng_for
from wayfare.town.camera.atlas import Tiles, channels
from wayfare.town.model import GROUND

SURFACES = (*GROUND, "kerb")
PAINT = (232, 230, 222)  # of stripes and dashes
SIDE = 128  # texels along a tile
METRES = 3.2  # along a tile
CLOUDS = 512  # texels along the tile of clouds

_GRASS = {"spring": (106, 148, 72), "summer": (96, 138, 64), "autumn": (142, 134, 70), "winter": (132, 134, 98)}
_PETALS = {
    "spring": ((236, 92, 118), (248, 214, 84), (250, 246, 240)),
    "summer": ((222, 62, 92), (246, 178, 58), (176, 96, 190)),
    "autumn": ((206, 112, 48), (176, 70, 60), (226, 176, 66)),
    "winter": ((150, 128, 100), (132, 126, 92), (170, 152, 130)),
}
_PAVING = ((184, 178, 168), (176, 168, 158), (190, 180, 162), (168, 168, 170))
_SQUARE = ((214, 200, 176), (196, 184, 172), (206, 186, 158), (186, 188, 190))
_SNOW = (236, 240, 246)


@lru_cache(maxsize=48)
def ground_tiles(season: str, snow: bool, wet: bool, stones: int) -> tuple[Tiles, np.ndarray]:
    """Textures of all SURFACES, in their order; `stones` chooses a city's paving. And their mean colours from afar,
    float32 (3, 256): where a pixel shows two of them, a and b, that is column 16 a + b."""
    rng = rng_for("ground", season, stones)
    tiles = Tiles(SIDE)
    tiles.add([_finish(name, _draw(name, season, stones, rng), snow, wet, rng) for name in SURFACES])
    palette = channels(tiles.texels[tiles.offsets[-1] :: tiles.stride].copy())[:3]
    crossing = palette[:, GROUND.index("crossing")]
    crossing += (np.array(PAINT, np.float32) / 255 - crossing) * np.float32(0.5)
    means = np.zeros((3, 16), np.float32)
    means[:, : len(SURFACES)] = palette
    return tiles, ((means[:, :, None] + means[:, None]) * np.float32(0.5)).reshape(3, 256)


def _draw(name: str, season: str, stones: int, rng: np.random.Generator) -> np.ndarray:
    """Colours of one surface, float (SIDE, SIDE, 3)."""
    rough = _noise(rng, 1.0)
    fine = rng.normal(0, 1, (SIDE, SIDE))
    if name in ("grass", "flower"):
        blades = _noise(rng, 0.35)
        base = _tinted(_GRASS[season], 1 + 0.09 * rough + 0.1 * blades)
        return base if name == "grass" else _with_petals(base * 0.86, season, rng)
    if name in ("road", "crossing"):
        return _tinted((98, 98, 102), 1 + 0.05 * rough + 0.05 * fine)
    if name == "water":
        return _tinted((78, 112, 122), 1 + 0.05 * rough)
    if name == "kerb":
        return _slabs((206, 202, 194), 40, 40, 0.03, rng) * (1 + 0.02 * fine)[..., None]
    if name == "bridge":
        return _slabs((150, 112, 78), 8, SIDE, 0.09, rng) * (1 + 0.03 * fine)[..., None]
    high, wide = ((16, 32), (32, 32), (21, 42), (16, 16))[stones % 4]
    if name == "square":
        high, wide = ((10, 10), (32, 64), (16, 16), (25, 25))[stones % 4]
        colour, variety = _SQUARE[stones % 4], 0.06
    else:
        colour, variety = _PAVING[stones % 4], 0.035
    return _slabs(colour, high, wide, variety, rng) * (1 + 0.03 * rough + 0.02 * fine)[..., None]


def _finish(name: str, tile: np.ndarray, snow: bool, wet: bool, rng: np.random.Generator) -> np.ndarray:
    """Add snow where nobody drives, darken wet stone, and return a tile of the atlas."""
    if snow and name != "water":
        cover = {"road": 0.5, "crossing": 0.5, "pavement": 0.82}.get(name, 0.96)
        amount = np.clip(cover + 0.32 * (1 - cover) * _noise(rng, 1.0), 0, 1)[..., None]
        tile = tile + (_tinted(_SNOW, 1 + 0.015 * rng.normal(0, 1, (SIDE, SIDE))) - tile) * amount
    if wet:
        tile = tile * (0.9 if name in ("grass", "flower", "water") else 0.74)
    result = np.zeros((SIDE, SIDE, 5), np.uint8)
    result[..., :3] = np.clip(tile, 0, 255)
    return result


def _tinted(colour: tuple[int, int, int], factor: np.ndarray) -> np.ndarray:
    return np.asarray(factor[..., None] * np.array(colour, np.float64))


def _noise(rng: np.random.Generator, size: float) -> np.ndarray:
    """Clouded noise that repeats at the tile's borders, with variance 1; `size` 1 is coarse, 0 is fine."""
    wave = np.hypot(*np.meshgrid(np.fft.fftfreq(SIDE, 1 / SIDE), np.fft.fftfreq(SIDE, 1 / SIDE)))
    spectrum = np.fft.fft2(rng.normal(0, 1, (SIDE, SIDE))) / np.maximum(wave, 1) ** (0.4 + size)
    spectrum[0, 0] = 0
    noise = np.fft.ifft2(spectrum).real
    found: np.ndarray = noise / noise.std()
    return found


def _slabs(colour: tuple[int, int, int], high: int, wide: int, variety: float, rng: np.random.Generator) -> np.ndarray:
    """Paving stones in rows, each a little different."""
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    row = y // high
    shifted = (x + (row % 2) * (wide // 2)) % SIDE
    tone = rng.normal(0, variety, (SIDE, SIDE))[row, shifted // wide]
    joint = (y % high == 0) | (shifted % wide == 0)
    return _tinted(colour, 1 + tone - 0.16 * joint)


def _with_petals(base: np.ndarray, season: str, rng: np.random.Generator) -> np.ndarray:
    colours = np.array(_PETALS[season], np.float64)
    for _ in range(170):
        y, x, which, size = (int(rng.integers(high)) for high in (SIDE, SIDE, 3, 3))
        rows, columns = np.arange(y, y + size + 3) % SIDE, np.arange(x, x + size + 3) % SIDE
        base[np.ix_(rows, columns)] = colours[which] * rng.uniform(0.85, 1.08)
    return base


@lru_cache(maxsize=1)
def clouds() -> np.ndarray:
    """How thick the clouds are, float32 (CLOUDS * CLOUDS,), from 0 to 1 in even shares; repeats at its borders."""
    rng = rng_for("clouds")
    wave = np.hypot(*np.meshgrid(np.fft.fftfreq(CLOUDS, 1 / CLOUDS), np.fft.fftfreq(CLOUDS, 1 / CLOUDS)))
    spectrum = np.fft.fft2(rng.normal(0, 1, (CLOUDS, CLOUDS))) / np.maximum(wave, 3) ** 1.75
    spectrum[0, 0] = 0
    rank = np.fft.ifft2(spectrum).real.reshape(-1).argsort().argsort()
    return (rank / rank.size).astype(np.float32)


@lru_cache(maxsize=1)
def stars() -> np.ndarray:
    """Directions of stars and how bright they are: float32 (4, n) of east, north, up, brightness."""
    rng = rng_for("stars")
    way = rng.normal(0, 1, (3, 900))
    way[2] = np.abs(way[2]) + 0.05
    return np.concatenate((way / np.sqrt((way * way).sum(0)), rng.uniform(0.2, 0.9, (1, 900)) ** 2)).astype(np.float32)
