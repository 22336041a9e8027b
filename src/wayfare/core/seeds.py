"""Seeds are computed from what they are for, never consumed: any order, engine or restart gives the same numbers."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.random  # which numpy imports when it is first used: here, before workers are forked


def seed_for(*parts: int | str) -> int:
    """A 63-bit seed for (run seed, round, device, purpose, ...)."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def rng_for(*parts: int | str) -> np.random.Generator:
    """A NumPy generator for the same purpose."""
    return np.random.default_rng(seed_for(*parts))
