"""The decoding gate: right pixels from whole files, a named reason for every other one."""

from __future__ import annotations

import io
import os
import struct
import time
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from wayfare.core.errors import DataError
from wayfare.io import images
from wayfare.io.images import decode, decode_all, decode_near

RNG = np.random.default_rng(7)
BLOCKS = np.kron(RNG.integers(0, 256, (4, 6, 3)), np.ones((8, 8, 1))).astype(np.uint8)  # 32 high, 48 wide
RED, BLUE = (255, 0, 0), (0, 0, 255)


def packed(image: Image.Image, form: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def png(width: int, height: int, depth: int, colour: int, raw: bytes) -> bytes:
    """A PNG made by hand: Pillow does not write 16-bit colour, nor bombs in a reasonable time."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def halves(width: int, height: int) -> Image.Image:
    """Red above, blue below."""
    image = Image.new("RGB", (width, height), BLUE)
    image.paste(RED, (0, 0, width, height // 2))
    return image


def with_orientation(value: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = value
    return packed(Image.fromarray(BLOCKS), "JPEG", quality=95, exif=exif.tobytes())


def seeds() -> dict[str, bytes]:
    """One small file of each kind."""
    photo = Image.fromarray(BLOCKS)
    alpha = photo.convert("RGBA")
    alpha.putalpha(Image.linear_gradient("L").resize(photo.size))
    return {
        "jpeg": packed(photo, "JPEG"),
        "progressive jpeg": packed(photo, "JPEG", progressive=True),
        "grey jpeg": packed(photo.convert("L"), "JPEG"),
        "cmyk jpeg": packed(photo.convert("CMYK"), "JPEG"),
        "turned jpeg": with_orientation(6),
        "png": packed(photo, "PNG"),
        "16-bit png": packed(Image.fromarray(BLOCKS[..., 0].astype(np.uint16) * 257), "PNG"),
        "palette png": packed(photo.quantize(16), "PNG", transparency=3),
        "alpha png": packed(alpha, "PNG"),
        "animated png": packed(photo, "PNG", save_all=True, append_images=[Image.new("RGB", photo.size)]),
        "webp": packed(photo, "WEBP"),
        "animated webp": packed(alpha, "WEBP", save_all=True, append_images=[Image.new("RGBA", photo.size)]),
    }


# ---- Right pixels


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_a_picture_to_be_shown_is_reduced_but_never_below_its_side(mode: str, orientation: int) -> None:
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    Image.radial_gradient("L").resize((800, 600)).convert(mode).save(file, "JPEG", exif=exif)
    whole = decode(file.getvalue())
    same, shape = decode_near(file.getvalue(), 10_000)
    small, _ = decode_near(file.getvalue(), 150)
    assert np.array_equal(same, whole) and shape == whole.shape[:2]
    assert small.shape[:2] == (shape[0] // 4, shape[1] // 4)  # 200 pixels: an eighth would be 100
    assert abs(float(small.mean()) - float(whole.mean())) < 2


@pytest.mark.parametrize("kind", list(seeds()))
def test_every_kind_becomes_upright_rgb_bytes(kind: str) -> None:
    found = decode(seeds()[kind])
    assert found.dtype == np.uint8
    assert found.shape == ((48, 32, 3) if kind.startswith("turned") else (32, 48, 3))
    assert decode(seeds()[kind], size=(20, 30)).shape == (20, 30, 3)


def test_png_pixels_are_exact(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(packed(Image.fromarray(BLOCKS), "PNG"))
    np.testing.assert_array_equal(decode(tmp_path / "a.png"), BLOCKS)


def test_16_bit_grey_is_scaled_not_clipped() -> None:
    # 0x1234 = 4660 of 65535 is 18 of 255; clipping would give 255
    values = np.array([[0x0000, 0x1234, 0x8000, 0xFFFF]], np.uint16)
    found = decode(packed(Image.fromarray(values), "PNG"))
    assert found[0, :, 0].tolist() == [0, 18, 128, 255]
    assert (found == found[..., :1]).all()


def test_16_bit_colour_is_scaled_not_clipped() -> None:
    raw = b"\x00" + struct.pack(">6H", 0x1234, 0x8000, 0xFFFF, 0x00FF, 0x0100, 0xABCD)
    assert decode(png(2, 1, 16, 2, raw)).tolist() == [[[18, 128, 255], [0, 1, 171]]]


def test_orientation_six_puts_the_stored_top_on_the_right() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    found = decode(packed(halves(32, 16), "JPEG", quality=95, subsampling=0, exif=exif.tobytes()))
    assert found.shape == (32, 16, 3)
    assert found[16, 14, 0] > 200 > 50 > found[16, 1, 0]  # red is right, blue is left


@pytest.mark.parametrize("value", range(1, 9))
def test_orientations_agree_with_pillows(value: int) -> None:
    data = with_orientation(value)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    np.testing.assert_array_equal(decode(data), np.asarray(expected))
    assert decode(data, size=(10, 20)).shape == (10, 20, 3)


def test_damaged_exif_does_not_cost_the_picture() -> None:
    data = packed(Image.fromarray(BLOCKS), "JPEG", exif=b"Exif\x00\x00MM\x00\x2a\xff\xff\xff\xff\x00\x01")
    assert decode(data).shape == BLOCKS.shape


def test_cmyk_red_is_red() -> None:
    data = packed(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=95)
    assert np.abs(decode(data)[4, 4].astype(int) - RED).max() <= 2


def test_palette_colours_come_through_and_transparency_is_white() -> None:
    image = Image.new("P", (3, 1))
    image.putpalette([255, 0, 0, 0, 0, 255, 9, 9, 9])
    image.putdata([0, 1, 2])
    assert decode(packed(image, "PNG")).tolist() == [[[255, 0, 0], [0, 0, 255], [9, 9, 9]]]
    assert decode(packed(image, "PNG", transparency=2)).tolist() == [[[255, 0, 0], [0, 0, 255], [255, 255, 255]]]
    half = packed(image, "PNG", transparency=bytes((255, 255, 0)))  # one alpha for each colour
    assert decode(half).tolist() == [[[255, 0, 0], [0, 0, 255], [255, 255, 255]]]


def test_alpha_is_laid_over_white() -> None:
    image = Image.new("RGBA", (2, 1), (0, 0, 0, 0))
    image.putpixel((1, 0), (0, 0, 0, 51))  # a fifth of black leaves 204 of white
    assert decode(packed(image, "PNG")).tolist() == [[[255, 255, 255], [204, 204, 204]]]


@pytest.mark.parametrize("form", ["PNG", "WEBP"])
def test_of_an_animation_the_first_frame_is_taken(form: str) -> None:
    frames = [Image.new("RGB", (16, 16), RED), Image.new("RGB", (16, 16), BLUE)]
    found = decode(packed(frames[0], form, save_all=True, append_images=frames[1:], duration=100))
    assert np.abs(found[8, 8].astype(int) - RED).max() <= 3


def test_a_picture_made_small_while_decoding_looks_like_one_made_small_afterwards() -> None:
    smooth = Image.fromarray(BLOCKS).resize((480, 320), Image.Resampling.BICUBIC)
    data = packed(smooth, "JPEG", quality=90)
    expected = np.asarray(Image.fromarray(decode(data)).resize((60, 40), Image.Resampling.BILINEAR), float)
    assert np.abs(decode(data, size=(40, 60)) - expected).mean() < 2


# ---- Refused, with the file and the reason


@pytest.mark.parametrize("kind", ["jpeg", "progressive jpeg", "png", "webp", "16-bit png", "cmyk jpeg"])
@pytest.mark.parametrize("size", [None, (8, 12)])
def test_a_file_cut_anywhere_is_refused(kind: str, size: tuple[int, int] | None) -> None:
    whole = seeds()[kind]
    for length in range(len(whole)):
        with pytest.raises(DataError):
            decode(whole[:length], size=size)


def test_the_error_names_the_file_and_the_reason(tmp_path: Path) -> None:
    whole = seeds()["jpeg"]
    contents = {
        "cut.jpg": (whole[:-40], "truncated"),
        "text.jpg": (b"this is no picture", "not a JPEG, PNG or WebP picture"),
        "empty.jpg": (b"", "empty file"),
        "start.jpg": (whole[:30], "truncated"),
        "gif.jpg": (packed(Image.fromarray(BLOCKS), "GIF"), "not a JPEG, PNG or WebP picture"),
        "bmp.png": (packed(Image.fromarray(BLOCKS), "BMP"), "not a JPEG, PNG or WebP picture"),
    }
    for name, (data, reason) in contents.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError) as caught:
            decode(tmp_path / name)
        assert str(caught.value).startswith(f"{tmp_path / name}: ")
        assert reason in str(caught.value)
        assert caught.value.file == tmp_path / name


def test_what_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")  # opening it would wait for a writer
    with pytest.raises(DataError, match="not a regular file"):
        decode(tmp_path / "pipe.jpg")
    with pytest.raises(DataError, match="not a regular file"):
        decode(tmp_path)
    with pytest.raises(DataError, match=r"absent\.jpg: no such file"):
        decode(tmp_path / "absent.jpg")


def test_a_file_larger_than_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.png").write_bytes(seeds()["png"])
    monkeypatch.setattr(images, "MAX_BYTES", 10)
    with pytest.raises(DataError, match="too large"):
        decode(tmp_path / "a.png")


@pytest.mark.parametrize("side", [8_100, 12_000, 20_000])  # above our limit; where Pillow warns; where Pillow refuses
def test_a_bomb_is_refused_before_it_is_decoded(side: int) -> None:
    start = png(side, side, 1, 0, b"\x00" * 100)  # the declared size alone must be enough to refuse it
    began = time.perf_counter()
    with pytest.raises(DataError, match="too large"):
        decode(start)
    assert time.perf_counter() - began < 0.5


def test_the_pixel_limit_is_exact() -> None:
    data = packed(Image.fromarray(BLOCKS), "PNG")
    assert decode(data, max_pixels=32 * 48).shape == BLOCKS.shape
    with pytest.raises(DataError, match=r"too large: 48 x 32 pixels, at most 1535"):
        decode(data, max_pixels=32 * 48 - 1)


def test_a_jpeg_that_repeats_its_scans_is_refused() -> None:
    whole = packed(Image.new("L", (4000, 4000), 77), "JPEG", progressive=True)
    last = whole[whole.rfind(b"\xff\xda") : -2]
    decode(whole, size=(8, 8))
    began = time.perf_counter()
    with pytest.raises(DataError, match="scans"):
        decode(whole[:-2] + 2000 * last + whole[-2:])
    assert time.perf_counter() - began < 1


def test_damage_inside_a_png_is_never_passed_on() -> None:
    whole = seeds()["png"]
    start = whole.index(b"IDAT")
    for place in range(start, start + 200):
        broken = bytearray(whole)
        broken[place] ^= 4
        with pytest.raises(DataError):
            decode(bytes(broken))


MUTATIONS: list[Callable[[bytearray, np.random.Generator], bytes]] = [
    lambda data, rng: _flip(data, rng, 1),
    lambda data, rng: _flip(data, rng, 8),
    lambda data, rng: bytes(data[: int(rng.integers(len(data)))]),
    lambda data, rng: bytes(data[: int(rng.integers(len(data)))]) + bytes(data[-2:]),
    lambda data, rng: _replace(data, rng, b""),
    lambda data, rng: _replace(data, rng, rng.bytes(9)),
    lambda data, rng: _replace(data, rng, b"\xff" * 4),
    lambda data, rng: _replace(data, rng, b"\x00" * 200),
    lambda data, rng: _replace(data[: max(40, len(data) // 8)], rng, rng.bytes(2)) + bytes(data[len(data) // 8 :]),
]


def _flip(data: bytearray, rng: np.random.Generator, count: int) -> bytes:
    for place in rng.integers(len(data), size=count):
        data[place] ^= 1 << int(rng.integers(8))
    return bytes(data)


def _replace(data: bytearray, rng: np.random.Generator, by: bytes) -> bytes:
    start, length = int(rng.integers(len(data))), int(rng.integers(1, 40))
    return bytes(data[:start]) + by + bytes(data[start + length :])


def test_thousands_of_damaged_files_give_a_picture_or_a_reason() -> None:
    rng = np.random.default_rng(1)
    accepted, refused, slowest = 0, 0, 0.0
    for data in seeds().values():
        for number in range(28 * len(MUTATIONS)):
            broken = MUTATIONS[number % len(MUTATIONS)](bytearray(data), rng)
            began = time.perf_counter()
            try:
                found = decode(broken, size=None if number % 2 else (24, 24))
                accepted += 1
                assert found.dtype == np.uint8
                assert found.ndim == 3
                assert found.shape[2] == 3
            except DataError as error:
                refused += 1
                assert str(error).startswith("<bytes>: ")
                assert len(str(error)) > len("<bytes>: ")
            slowest = max(slowest, time.perf_counter() - began)
    assert accepted + refused == 12 * 28 * len(MUTATIONS) >= 3000
    assert refused > 1500
    assert accepted > 100  # else the damage was too coarse to tell us anything
    assert slowest < 2


# ---- Many at once


def test_decode_all_keeps_the_order_and_lists_the_broken(tmp_path: Path) -> None:
    files = []
    for number in range(40):
        files.append(tmp_path / f"{number}.png")
        files[-1].write_bytes(packed(Image.new("RGB", (20, 10), (number, 0, 0)), "PNG"))
    files[0].write_bytes(b"no")
    files[17].write_bytes(files[17].read_bytes()[:-30])
    filters = list(warnings.filters)
    found, kept, skipped = decode_all(files, (4, 6))
    assert found.shape == (38, 4, 6, 3)
    assert found[:, 0, 0, 0].tolist() == kept.tolist() == [n for n in range(40) if n not in (0, 17)]
    assert [item.file for item in skipped] == [str(files[0]), str(files[17])]
    assert skipped[0].reason == "not a JPEG, PNG or WebP picture"
    assert list(warnings.filters) == filters  # no thread left its own filters behind
    with pytest.raises(DataError, match=r"0\.png: not a JPEG"):
        decode_all(files, (4, 6), strict=True)


def test_decode_all_of_nothing() -> None:
    found, kept, skipped = decode_all([], (4, 6))
    assert found.shape == (0, 4, 6, 3)
    assert len(kept) == 0
    assert skipped == []


def test_a_wrong_size_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        decode(seeds()["png"], size=(0, 4))
