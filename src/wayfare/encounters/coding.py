"""How a model travels between two devices: as it is, or in fewer bytes as its change from the common base.

Both have the base, so that only the change is written: in 16 bits a number, in 8 with a step for each 128
(QSGD), or only its largest entries. Tensors of fewer than 64 numbers travel as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from wayfare.compression.coders import Coder, Halves, Largest, Levels
from wayfare.core.bundle import Bundle, Weights

Form = Literal["fp32", "fp16", "int8", "topk"]
_SMALL = 64


@dataclass(frozen=True)
class ModelCoding:
    """Writes and reads models."""

    form: Form
    share: float  # of the entries, for topk

    def received(self, report: Bundle, base: Bundle, rng: np.random.Generator) -> Bundle:
        """The report as the other side reads it."""
        if self.form == "fp32":
            return report
        tensors = {
            section: {name: self._received(tensor, base[section][name], rng) for name, tensor in weights.items()}
            for section, weights in report.tensors.items()
        }
        return Bundle(tensors, report.values)

    def nbytes(self, report: Bundle) -> int:
        """What it weighs on its way."""
        tensors = [
            tensor for weights in report.tensors.values() for tensor in weights.values() if self._is_coded(tensor)
        ]
        return report.nbytes + sum(self._coder.nbytes(tensor.shape) - tensor.nbytes for tensor in tensors)

    def _received(self, tensor: Tensor, base: Tensor, rng: np.random.Generator) -> Tensor:
        change = tensor - base if self._is_coded(tensor) else tensor
        if not self._is_coded(tensor) or not bool(change.isfinite().all()):  # the gate refuses it, and says why
            return tensor
        found: Weights = self._coder.encode(change, rng)
        return base + self._coder.decode(found, change.shape)

    def _is_coded(self, tensor: Tensor) -> bool:
        return self.form != "fp32" and tensor.is_floating_point() and tensor.numel() >= _SMALL

    @property
    def _coder(self) -> Coder:
        if self.form == "topk":
            return Largest(self.share)
        return Levels(8) if self.form == "int8" else Halves()
