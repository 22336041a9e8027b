"""The secret of a run: who is sampled, and the noise.

The seed of a recipe is known to every device, so neither may come from it. A key of 32 random bytes is made with the
run folder, readable by its owner only. Everything else is computed from it, so that a resumed run gives the same bits:

    sampling  stream(key, round)
    noise     stream(key, round, the sum that it is added to)

A stream is the keystream of ChaCha20 under HMAC-SHA256 of what it is for. The noise depends on the sum: the same sum
gets the same noise however often the round is done again, and another sum (a device was away the second time) gets
independent noise. Two sums with the same noise would give away their difference.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from scipy.special import ndtri

from wayfare.core import disk
from wayfare.core.errors import StoreError

FILE = "privacy.key"
_BYTES = 32


class Secret:
    """The key of a run folder, made when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.key = _key(folder / FILE)

    def tag(self, *parts: str | int | bytes) -> str:
        """What names these, and tells nothing about them without the key."""
        return self._hmac(*parts).hex()

    def uniform(self, count: int, *parts: str | int | bytes) -> np.ndarray:
        """Numbers in (0, 1), float64."""
        cipher = Cipher(algorithms.ChaCha20(self._hmac(*parts), bytes(16)), mode=None)
        bits = np.frombuffer(cipher.encryptor().update(bytes(8 * count)), "<u8") >> 11
        return np.asarray((bits + 0.5) * 2.0**-53)

    def normal(self, count: int, *parts: str | int | bytes) -> np.ndarray:
        """Standard normal numbers, float64."""
        return np.asarray(ndtri(self.uniform(count, *parts)))

    def _hmac(self, *parts: str | int | bytes) -> bytes:
        message = b"".join(len(part := _bytes(one)).to_bytes(8, "little") + part for one in parts)
        return hmac.new(self.key, message, hashlib.sha256).digest()


def _bytes(part: str | int | bytes) -> bytes:
    return part if isinstance(part, bytes) else f"{type(part).__name__}:{part}".encode()


def _key(path: Path) -> bytes:
    if not path.exists():
        _make(path)
    try:
        key = path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    if len(key) != _BYTES:
        raise StoreError(f"{path} is damaged: it has {len(key)} bytes instead of {_BYTES}. Restore it from a copy")
    return key


def _make(path: Path) -> None:
    """Whole or not at all, and never readable by others."""
    temporary = path.with_name(f".{path.name}.tmp")
    with disk.explained(path, _BYTES, temporary):
        disk.make_folder(path.parent)
        disk.remove(temporary)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(handle, os.urandom(_BYTES))
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, path)  # noqa: PTH105
        disk.sync_folder(path.parent)
