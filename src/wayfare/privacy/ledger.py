"""The privacy ledger of a run: what was released, written down before it is.

A crash can only make it count a round too many: a round that is done again with the same sum is the same release and
counts once; with another sum it is another release. Both are sums over the same sample of clients, so the second is not
made more private by sampling: together they cost what one release costs that has noise_1 and noise_2 at once,
(noise_1^-2 + noise_2^-2)^(-1/2).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from wayfare.core import disk
from wayfare.core.errors import StoreError
from wayfare.privacy.accounting import RANGES
from wayfare.privacy.secrets import FILE as KEY

FILE = "privacy.json"


@dataclass(frozen=True)
class Release:
    """One noised sum: the sampling rate, the noise over the clip, and tags that name the sum and the sample."""

    round: int
    rate: float
    noise: float
    tag: str
    sample: str = ""


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
        """How many samples of clients there were of each rate, and with which noise all was released of them."""
        return _counted(self.releases)

    def counted_with(self, release: Release) -> Counter[tuple[float, float]]:
        """The same with one release more."""
        return _counted([*self.releases, release])

    def has_sample(self, sample: str) -> bool:
        """Whether something was released of this sample of clients already."""
        return any(one.sample == sample for one in self.releases)

    def check(self, rounds: Collection[int]) -> None:
        """Refuse a ledger without one of these rounds."""
        if missing := sorted(set(rounds) - {one.round for one in self.releases}):
            raise StoreError(
                f"{self.path} has no entry for round {missing[0]}, whose model was released: epsilon would be counted "
                "too small. Restore it from a copy"
            )

    def check_samples(self, tag_of: Callable[[int], str]) -> None:
        """Refuse a key that did not draw these samples: a round done again would be released with other noise."""
        if any(one.sample != tag_of(one.round) for one in self.releases):
            raise StoreError(f"{self.path.with_name(KEY)} is not the key of this run: restore it from a copy")

    def _read(self) -> list[Release]:
        if not self.path.exists():
            return []
        try:
            rows = json.loads(self.path.read_text())
            return [
                _lawful(Release(int(r["round"]), float(r["rate"]), float(r["noise"]), str(r["tag"]), str(r["sample"])))
                for r in rows
            ]
        except (OSError, ValueError, OverflowError, KeyError, TypeError, RecursionError) as error:
            raise StoreError(
                f"{self.path} is damaged: {error}. It says how much privacy is spent: restore it from a copy"
            ) from error


def _lawful(one: Release) -> Release:
    if not (0 < one.rate < math.inf and RANGES["noise"].holds(one.noise)):
        raise ValueError(f"round {one.round} has the rate {one.rate} and the noise {one.noise}")
    return one


def _noise_of(same: Collection[Release]) -> float:
    """Of one release that says as much as all of these."""
    noises = [one.noise for one in same]
    return noises[0] if len(noises) == 1 else sum(noise**-2 for noise in noises) ** -0.5


def _counted(releases: Iterable[Release]) -> Counter[tuple[float, float]]:
    samples: dict[tuple[int, str], list[Release]] = {}
    for one in releases:
        samples.setdefault((one.round, one.sample), []).append(one)
    return Counter((max(one.rate for one in same), _noise_of(same)) for same in samples.values())


def check_key(ledger: Ledger) -> None:
    """Refuse to go on with other noise."""
    key = ledger.path.with_name(KEY)
    if ledger.releases and not key.exists():
        raise StoreError(
            f"{key} is missing: the noise and the samples of this run were made from it. Restore it from a copy, or "
            "start a new run"
        )
