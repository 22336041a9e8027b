"""The program that decodes photos for the server, and does nothing else.

A picture file is the most dangerous thing that a stranger can send. So it is decoded in a process of its own: where the
system allows it in a sandbox (no network, nothing can be written), and everywhere with limits on memory, files and
time. It is given bytes and gives back pixels, without what else was in the file, such as a position.
"""

from __future__ import annotations

import io
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from PIL import Image

from wayfare.core.errors import DataError
from wayfare.io.images import MAX_PIXELS, decode, decode_near
from wayfare.serve.frames import Message, serve_requests

MEMORY = 3 * 2**30  # bytes of address space; WebP of 50 million pixels needs about 1 GB
_FILES = 64
_QUALITY = 85
_LARGEST = MAX_PIXELS  # no picture has a longer side, so that it is decoded as it is


def look(data: bytes, sizes: list[list[int]], whole: bool, side: int) -> Message:
    """A photo for a page, at most `side` pixels; as PNG in each of some sizes (height, width); and its plain pixels.

    Networks see photos in one size, which depends on how the file is reduced; so it is done here, from the file.
    """
    pixels, (height, width) = _near(data, max(_LARGEST, side) if whole else side)
    parts = [_jpeg(pixels, side)]
    parts += [_png(_decoded(data, (size[0], size[1]))) for size in sizes]
    parts += [pixels.tobytes()] if whole else []
    return {"width": width, "height": height}, parts


def thumbnail(data: bytes, side: int) -> Message:
    """A small JPEG of a photo."""
    return {}, [_jpeg(_near(data, side)[0], side)]


def _near(data: bytes, side: int) -> tuple[np.ndarray, tuple[int, int]]:
    with _named():
        return decode_near(data, side)


def _decoded(data: bytes, size: tuple[int, int]) -> np.ndarray:
    with _named():
        return decode(data, size=size)


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except DataError as error:
        raise DataError(f"the photo cannot be used: {str(error).removeprefix('<bytes>: ')}") from error


def _jpeg(pixels: np.ndarray, side: int) -> bytes:
    image = Image.fromarray(pixels)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=_QUALITY)
    return file.getvalue()


def _png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    return file.getvalue()


def _limit() -> None:
    for what, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_NOFILE, _FILES), (resource.RLIMIT_FSIZE, 0)):
        hard = resource.getrlimit(what)[1]
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (allowed, allowed))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    _limit()
    serve_requests({"look": look, "thumbnail": thumbnail})
