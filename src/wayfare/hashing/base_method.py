"""The interface of base methods: the loss of a batch, and what is updated after a pass. DCMH and SHDCH are two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from wayfare.hashing.buffers import Buffers


class BaseMethod:
    """A hashing method without federation; extend it for your own."""

    needs_labels: ClassVar[bool] = True

    @property
    def settles_first(self) -> bool:
        """Whether `settle` comes before a client's first pass too."""
        return False

    def initial_codes(self, bits: int, levels: Sequence[int]) -> Tensor | None:
        """Codes of the classes of all levels to begin with, float32 (bits, C); None where a method has none."""
        return None

    def begin(self, buffers: Buffers) -> None:
        """Initialise what the method stores in addition to the outputs, before a client's first step."""

    def outputs(self, features: Tensor) -> Tensor:
        """A view's outputs as the paper's F and G have them."""
        return features

    def loss(self, buffers: Buffers, view: str, rows: Tensor, raw: Tensor) -> Tensor:
        """Of a batch's outputs `raw` (b, bits) of one view; `rows` are its places in the buffers."""
        raise NotImplementedError

    def settle(self, buffers: Buffers, outputs: Sequence[Tensor], within: Tensor | None, share: float) -> None:
        """Update what is stored in addition to B after a pass.

        `outputs` are F and G, `within` (C1, C2) says which fine class belongs to which coarse one, and `share` is the
        part of all devices' pairs that this client has.
        """
