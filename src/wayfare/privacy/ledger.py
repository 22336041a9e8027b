"""The privacy ledger of a run: what was released, written down before it is.

A crash can only make it count a round too many: a round that is done again with the same sum is the same release and
counts once; with another sum it is another release.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from wayfare.core import disk
from wayfare.core.errors import StoreError

FILE = "privacy.json"


@dataclass(frozen=True)
class Release:
    """One noised sum: the sampling rate, the noise over the clip, and a tag that names the sum."""

    round: int
    rate: float
    noise: float
    tag: str


class Ledger:
    """The releases of a run folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.releases = self._read()

    def add(self, release: Release) -> None:
        """Write it down; it is on the disk when this returns."""
        if release not in self.releases:
            self.releases.append(release)
            disk.write(self.path, json.dumps([asdict(one) for one in self.releases], indent=1).encode())

    def counted(self) -> Counter[tuple[float, float]]:
        """How many releases there were of each rate and noise."""
        return Counter((one.rate, one.noise) for one in self.releases)

    def _read(self) -> list[Release]:
        if not self.path.exists():
            return []
        try:
            rows = json.loads(self.path.read_text())
            return [Release(int(r["round"]), float(r["rate"]), float(r["noise"]), str(r["tag"])) for r in rows]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise StoreError(
                f"{self.path} is damaged: {error}. It says how much privacy is spent: restore it from a copy"
            ) from error
