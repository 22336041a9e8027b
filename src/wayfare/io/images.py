"""The only place where picture files are decoded to arrays.

Files come from unknown cameras and from the internet, so nothing here trusts them. Only JPEG, PNG and WebP are
accepted, and HEIC, as iPhones take photos, where the extra `heic` is installed. The number of pixels is checked before
any is decoded. Everything is decoded to the end, because a file that opens may still be truncated. Every failure is a
`DataError` with the file's name and the reason. The result is always upright uint8 RGB: the EXIF orientation is
applied, 16 bits are scaled to 8, only the first frame of an animation is used, and transparency is blended over white.
A truncated picture is never returned half grey.

One kind of damage cannot be detected, since these formats have no checksums: a JPEG, WebP or HEIC file whose altered
bytes still decode to the full number of pixels.
"""

from __future__ import annotations

import io
import math
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image, UnidentifiedImageError

from wayfare.core.errors import DataError
from wayfare.io.pictures import Skipped

READS_HEIC = find_spec("pillow_heif") is not None
if READS_HEIC:
    import pillow_heif

    pillow_heif.register_heif_opener(thumbnails=False, depth_images=False, aux_images=False, decode_threads=1)

FORMATS = ("JPEG", "PNG", "WEBP", *(("HEIF",) if READS_HEIC else ()))
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", *((".heic", ".heif") if READS_HEIC else ())})
TO_READ_HEIC = "install the extra heic (pip install 'wayfare[heic]'), or convert to JPEG"
MAX_PIXELS = 50_000_000  # the largest common phone sensor; WebP, the hungriest, then stays below 1 GB while decoding
MAX_BYTES = 256 * 2**20
# A progressive JPEG can add a pass over all its pixels with 92 bytes: 9 KB took 6 s. A pass takes about 1 ns per pixel.
MAX_SCANNED_PIXELS = 2_000_000_000

_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ON_ITS_SIDE = 5  # and all above it: height and width are exchanged
_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF")
_HEIC = (b"ftypheic", b"ftypheix", b"ftyphevc", b"ftypmif1", b"ftypmsf1")  # after the first four bytes
_PNG_END = b"IEND\xaeB`\x82"
_warning_filters = threading.RLock()
Found = TypeVar("Found")


def decode(source: Path | bytes, *, size: tuple[int, int] | None = None, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """The picture as uint8 RGB (H, W, 3); `size` = (H, W) resizes it without keeping its proportions.

    Every failure is a DataError that names the file. Pillow's own pixel limit applies too, if it is lower.
    """
    if size is not None and min(size) < 1:
        raise ValueError(f"size must be (height, width), both at least 1, not {size}")
    name = "<bytes>" if isinstance(source, bytes) else source
    data = b""
    try:
        data = source if isinstance(source, bytes) else _read(source)
        return _decode(data, size, max_pixels)
    except Exception as error:  # decoders raise almost anything on damaged bytes
        raise DataError(_reason(error, data), file=name) from error


def decode_near(data: bytes, side: int) -> tuple[np.ndarray, tuple[int, int]]:
    """A picture to be shown small: its longer side is at least `side` pixels, where it has as many; and its true shape.

    A large JPEG is reduced while it is decoded, which takes a fraction of the time and memory.
    """
    try:
        shape = _upright_shape(_open(data))
        share = min(1.0, side / max(shape))
        least = max(1, math.ceil(shape[0] * share)), max(1, math.ceil(shape[1] * share))
        return np.array(_upright(_checked(data, MAX_PIXELS), least)), shape
    except Exception as error:  # as above
        raise DataError(_reason(error, data), file="<bytes>") from error


def decode_all(
    files: Sequence[Path], size: tuple[int, int], strict: bool = False
) -> tuple[np.ndarray, np.ndarray, list[Skipped]]:
    """Decode many files to one array (K, H, W, 3); also return the K indices of its files and the skipped files.

    `strict` raises at the first broken file instead.
    """
    height, width = size
    rows = np.empty((len(files), height, width, 3), np.uint8)

    def one(index: int) -> str | None:
        try:
            rows[index] = decode(files[index], size=size)
        except DataError as error:
            if strict:
                raise
            return str(error).removeprefix(f"{files[index]}: ")
        return None

    # Pillow releases the interpreter lock while it decodes, so threads are enough
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        try:
            reasons = list(pool.map(one, range(len(files))))
        except DataError:
            pool.shutdown(cancel_futures=True)
            raise
    kept = np.array([i for i, reason in enumerate(reasons) if reason is None], np.int64)
    for place, index in enumerate(kept):  # close the gaps in place, without a second array
        if place != index:
            rows[place] = rows[index]
    skipped = [Skipped(str(files[i]), reason) for i, reason in enumerate(reasons) if reason is not None]
    return rows[: len(kept)], kept, skipped


def inspect(path: Path, look: Callable[[Image.Image], Found]) -> Found:
    """Call `look` on a picture that is opened but not decoded, to read its EXIF for example. Failures are DataErrors.

    Only the start of the file is read, so this is fast for large photographs too.
    """
    start = b""
    try:
        _refuse_irregular(path)
        with path.open("rb") as file, _strict_about_bombs():
            start = file.read(16)
            file.seek(0)
            with Image.open(file, formats=FORMATS) as image:
                if image.width * image.height > MAX_PIXELS:  # some formats store EXIF after the pixels
                    raise DataError(f"too large: {image.width} x {image.height} pixels")
                return look(image)
    except Exception as error:  # as above
        raise DataError(_reason(error, start), file=path) from error


def shape_of(path: Path) -> tuple[int, int]:
    """Height and width of a picture as it is shown; only its head is read."""

    return inspect(path, _upright_shape)


def _upright_shape(image: Image.Image) -> tuple[int, int]:
    width, height = image.size
    return (width, height) if _orientation(image) >= _ON_ITS_SIDE else (height, width)


def _read(path: Path) -> bytes:
    _refuse_irregular(path)
    return path.read_bytes()


def _refuse_irregular(path: Path) -> None:
    if not path.exists():
        raise DataError("no such file")
    if not path.is_file():  # opening a pipe would block forever
        raise DataError("not a regular file")
    if path.stat().st_size > MAX_BYTES:
        raise DataError(f"too large: {path.stat().st_size} bytes, at most {MAX_BYTES} are read")


def _decode(data: bytes, size: tuple[int, int] | None, max_pixels: int) -> np.ndarray:
    image = _upright(_checked(data, max_pixels), size)
    if size is not None:
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return np.array(image)


def _checked(data: bytes, max_pixels: int) -> Image.Image:
    """Opened; what would take too long is refused, and so is a PNG that is damaged."""
    image = _open(data)
    pixels = image.width * image.height
    if pixels > max_pixels:
        raise DataError(f"too large: {image.width} x {image.height} pixels, at most {max_pixels} are decoded")
    scans = data.count(b"\xff\xda") if image.info.get("progressive") else 1
    if scans * pixels > max(MAX_SCANNED_PIXELS, max_pixels):
        raise DataError(f"too large: {scans} scans of {image.width} x {image.height} pixels")
    return _verified_png(image, data) if image.format == "PNG" else image


def _upright(image: Image.Image, least: tuple[int, int] | None) -> Image.Image:
    """Decoded, RGB. With `least`, a JPEG is decoded at a half, a quarter or an eighth of its size if that is enough."""
    turn = _UPRIGHT.get(_orientation(image))
    if least is not None:
        image.draft("RGB", _draft_size(least, turn))
    image.load()
    image = _rgb(image)  # one name throughout, so that each step frees the pixels of the previous one
    return image if turn is None else image.transpose(turn)


def _verified_png(image: Image.Image, data: bytes) -> Image.Image:
    """Verify the checksums, which load() ignores; verify() leaves the image unusable, so it is opened again."""
    image.verify()
    if _PNG_END not in data:
        raise DataError("truncated: its last chunk is incomplete")
    return _open(data)


def _open(data: bytes) -> Image.Image:
    with _strict_about_bombs():
        return Image.open(io.BytesIO(data), formats=FORMATS)


@contextmanager
def _strict_about_bombs() -> Iterator[None]:
    # filters are global to the process: without the lock, two threads could leave these in place permanently
    with _warning_filters, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def _orientation(image: Image.Image) -> int:
    try:
        with _strict_about_bombs():
            return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged EXIF in a good picture is common: do not turn it
        return 1


def _draft_size(size: tuple[int, int], turn: Image.Transpose | None) -> tuple[int, int]:
    """Required width and height before the picture is turned upright."""
    height, width = size
    sideways = turn is not None and turn in (_UPRIGHT[5], _UPRIGHT[6], _UPRIGHT[7], _UPRIGHT[8])
    return (height, width) if sideways else (width, height)


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16-bit grey: convert() would clip at 255, so take the high byte as for 16-bit RGB
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        overlay = image if image.mode == "RGBA" else image.convert("RGBA")
        over_white = Image.new("RGB", overlay.size, "white")
        over_white.paste(overlay, mask=overlay.getchannel("A"))
        return over_white
    return image if image.mode == "RGB" else image.convert("RGB")


def _reason(error: Exception, data: bytes) -> str:
    if isinstance(error, DataError):
        return str(error)
    if isinstance(error, Image.DecompressionBombWarning | Image.DecompressionBombError):
        return f"too large: {error}"
    if isinstance(error, UnidentifiedImageError):
        if not data:
            return "empty file"
        is_heic = data[4:12] in _HEIC
        if is_heic and not READS_HEIC:
            return f"a HEIC picture: {TO_READ_HEIC}"
        known = is_heic or data.startswith(_SIGNATURES)
        return "truncated or damaged at its start" if known else "not a JPEG, PNG or WebP picture"
    if isinstance(error, MemoryError):
        return "not enough memory to decode it"
    if not data and isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    text = str(error) or type(error).__name__
    return f"truncated: {text}" if "truncated" in text.lower() else f"damaged: {text}"
