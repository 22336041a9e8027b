"""Photos as iPhones take them, where the extra `heic` is installed; and what is said where it is not."""

import base64
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from wayfare.core.errors import DataError
from wayfare.io import images
from wayfare.io.exif import read_facts
from wayfare.io.images import decode, decode_near, shape_of

# 48 x 32, green above, red on the left, blue on the right; to be turned by 90 degrees clockwise; 45.5 N, 9.25 E
PHOTO = base64.b64decode(
    """
    AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAchtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAAAAAAAAADRpbG9j
    AAAAAERAAAIAAQAAAAAB7AABAAAAAAAAADYAAgAAAAACIgABAAAAAAAAAKgAAAA4aWluZgAAAAAAAgAAABVpbmZlAgAAAAABAABodmMxAAAA
    ABVpbmZlAgAAAQACAABFeGlmAAAAAA5waXRtAAAAAAABAAABB2lwcnAAAADmaXBjbwAAAHZodmNDAQNwAAAAkAAAAAAAHvAA/P34+AAADwNg
    AAEAGEABDAH//wNwAAADAJAAAAMAAAMAHroCQGEAAQAqQgEBA3AAAAMAkAAAAwAAAwAeoCCBBZbq5Ka5uAhoMCAAAAMDIAAAAwAhYgABAAZE
    AcFzwIkAAAATY29scm5jbHgAAQANAAaAAAAAFGlzcGUAAAAAAAAAQAAAAEAAAAAoY2xhcAAAADAAAAABAAAAIAAAAAH////wAAAAAv///+AA
    AAACAAAAEHBpeGkAAAAAAwgICAAAAAlpcm90AwAAABlpcG1hAAAAAAAAAAEAAQaBAgMFhIYAAAAaaXJlZgAAAAAAAAAOY2RzYwACAAEAAQAA
    AOZtZGF0AAAAMigBrxOA26g2/fgiPpybCqftkxLmt2l5SxPll+rFiXgfTfiAKez6AymhdsspvOi2uFFkAAAABkV4aWYAAE1NACoAAAAIAAMB
    DwACAAAABQAAADIBEgADAAAAAQAGAACIJQAEAAAAAQAAADgAAAAAVGVzdAAAAAQAAQACAAAAAk4AAAAAAgAFAAAAAwAAAG4AAwACAAAAAkUA
    AAAABAAFAAAAAwAAAIYAAAAAAAAALQAAAAEAAAAeAAAAAQAAAAAAAAABAAAACQAAAAEAAAAPAAAAAQAAAAAAAAAB
    """
)
GREEN, RED, BLUE = (40, 180, 60), (200, 40, 40), (40, 60, 200)

needs_heic = pytest.mark.skipif(not images.READS_HEIC, reason="the extra heic is not installed")


@needs_heic
def test_a_photo_is_decoded_upright(tmp_path: Path) -> None:
    (tmp_path / "a.heic").write_bytes(PHOTO)
    pixels = decode(tmp_path / "a.heic")
    assert pixels.shape == (48, 32, 3) and shape_of(tmp_path / "a.heic") == (48, 32)
    for found, colour in ((pixels[24, 28], GREEN), (pixels[4, 8], RED), (pixels[44, 8], BLUE)):
        assert np.abs(found.astype(int) - colour).max() < 12
    assert decode(PHOTO, size=(6, 4)).shape == (6, 4, 3)
    near, shape = decode_near(PHOTO, 16)
    assert shape == (48, 32) and max(near.shape) >= 16


@needs_heic
def test_its_position_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.heic").write_bytes(PHOTO)
    facts = read_facts(tmp_path / "a.heic")
    assert (facts.latitude, facts.longitude, facts.camera) == (45.5, 9.25, "Test")


@needs_heic
def test_a_photo_cut_anywhere_is_refused() -> None:
    for end in range(0, len(PHOTO), 5):
        with pytest.raises(DataError):
            decode(PHOTO[:end])


@needs_heic
def test_damaged_photos_give_a_picture_or_a_reason() -> None:
    rng = np.random.default_rng(0)
    for _ in range(500):
        damaged = bytearray(PHOTO)
        for place in rng.integers(0, len(PHOTO), 3):
            damaged[place] = rng.integers(256)
        try:
            pixels = decode(bytes(damaged))
        except DataError:
            continue
        assert pixels.dtype == np.uint8 and pixels.ndim == 3


def test_without_the_extra_the_remedy_is_said(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "a.heic").write_bytes(PHOTO)
    program = (
        "import sys; sys.modules['pillow_heif'] = None\n"
        "from pathlib import Path\n"
        "from wayfare.core.errors import DataError\n"
        "from wayfare.io.images import SUFFIXES, decode\n"
        "from wayfare.starting.inspect import inspect\n"
        "assert '.heic' not in SUFFIXES\n"
        "for call in (lambda: decode(Path('cat/a.heic')), lambda: inspect(Path('.'))):\n"
        "    try:\n"
        "        call()\n"
        "    except DataError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    decoding, inspecting = done.stdout.splitlines()
    assert "a HEIC picture: install the extra heic (pip install 'wayfare[heic]')" in decoding
    assert "1 HEIC file, not read: install the extra heic" in inspecting
