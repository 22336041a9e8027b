"""Joined: the devices of a real federation, each with a folder of its own.

The server knows only their names and numbers of samples. Sample indices refer to the device's own folder, so the same
index means a different sample on each device; only the device itself can look it up.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Partition
from wayfare.partition.split import Split


@dataclass(frozen=True)
class Joined(Partition):
    """Client `ck` is the device called names[k], with sizes[k] samples. `wayfare federate server` writes it."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.sizes) or not self.names:
            raise ConfigError(
                f"partition: expected one size per name, found {len(self.names)} names and {len(self.sizes)} sizes"
            )
        if len(set(self.names)) != len(self.names):
            raise ConfigError("partition: two devices have the same name: invite one of them under another name")
        if min(self.sizes) < 1:
            raise ConfigError(f"partition: {self.names[self.sizes.index(min(self.sizes))]!r} has no samples")

    def __call__(self, labels: np.ndarray, rng: np.random.Generator) -> Split:
        parts = [np.arange(size) for size in self.sizes]
        return Split.from_parts(parts, {"rule": "joined", "settings": asdict(self)})

    def client(self, name: str) -> str:
        """The id of the device with this name."""
        return f"c{self.names.index(name)}"
