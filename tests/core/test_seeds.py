"""Seeds are computed from what they are for."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from wayfare.core.seeds import rng_for, seed_for


def test_the_same_for_the_same() -> None:
    assert seed_for(3, 7, "c5", "pass 0") == seed_for(3, 7, "c5", "pass 0")
    assert rng_for(3, 7).integers(2**60, size=5).tolist() == rng_for(3, 7).integers(2**60, size=5).tolist()


def test_known_seeds_stay_as_they_are() -> None:
    """Old runs can be repeated only as long as this does not change.

    printf 'int:0\\x1fstr:network' | sha256sum begins 8444ad11577bd3cb: as a little-endian number, halved.
    """
    assert seed_for(0, "network") == int.from_bytes(bytes.fromhex("8444ad11577bd3cb"), "little") // 2
    assert seed_for(0, 1, "c0", "pass 0") == int.from_bytes(bytes.fromhex("6fa1fc59b2f519c1"), "little") // 2
    assert seed_for(0, "network") == 7343609211837129282


def test_another_part_another_seed() -> None:
    parts = [
        (s, r, d, p) for s in (0, 1, 11) for r in (0, 1, 11) for d in ("c1", "c11", "") for p in ("torch", "pass 0")
    ]
    assert len({seed_for(*part) for part in parts}) == len(parts)


def test_what_must_not_run_together() -> None:
    assert seed_for(1, 11) != seed_for(11, 1) != seed_for(111)
    assert seed_for("a", "b") != seed_for("ab") != seed_for("a b")
    assert seed_for(1) != seed_for("1")
    assert seed_for() != seed_for("")


def test_63_bits_and_all_of_them_used() -> None:
    seeds = np.array([seed_for(i) for i in range(2000)], dtype=np.uint64)
    assert seeds.max() < 2**63
    ones = [(int((seeds >> np.uint64(bit) & np.uint64(1)).sum())) for bit in range(63)]
    assert min(ones) > 850 and max(ones) < 1150  # 1000, with a standard deviation of 22


def test_another_process_has_the_same() -> None:
    """Python's own hash would not: it is salted in every process."""
    code = "from wayfare.core.seeds import seed_for; print(seed_for(0, 1, 'c0', 'pass 0'))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(told.stdout) == seed_for(0, 1, "c0", "pass 0")
