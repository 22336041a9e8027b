"""Which tensors of a message are packed, and what the packing loses: it stays on the device until the next round.

With error feedback (Seide et al., 2014; Karimireddy et al., 2019) a device sends C(change + rest) and keeps
rest = change + rest - C(change + rest) in its memory, so that what is small is sent later instead of never.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from wayfare.compression.coders import Coder, CodingError, Factors, Halves, Largest, Levels
from wayfare.core.bundle import Bundle, Weights
from wayfare.core.device import Device
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Compression, Strategy, Topology

_MODEL, _REST, _MARK = "model", "rest", "~"  # the section that is packed; what is kept; between section and part
_SMALL = 16  # tensors with fewer numbers travel as they are
_VECTORS = 8  # bits of a number in a vector: a bias or a scale says much in few bytes
_RUNNING = "running_"  # statistics of normalisation layers travel as they are


@dataclass(frozen=True)
class Packing(Compression):
    """What all ways have in common: only the model is packed, whatever else a strategy sends goes as it is."""

    down: Literal[32, 16, 8, 4, 3, 2] = 32  # bits of a weight on the way to a device; 32: as it is
    feedback: bool = True  # what a device could not send is added to its next change

    @property
    def up(self) -> Coder:
        """How the change of a matrix is written."""
        raise NotImplementedError

    def _up(self, tensor: Tensor) -> Coder:
        return self.up if tensor.ndim > 1 else Levels(_VECTORS, random=not self.feedback)

    def _down(self, tensor: Tensor) -> Coder:
        if self.down == 16:
            return Halves()
        return (
            Levels(self.down, random=False, even=self.down < 8) if tensor.ndim > 1 else Levels(_VECTORS, random=False)
        )

    def misfit(self, strategy: Strategy, topology: Topology) -> str:
        name = type(strategy).__name__
        if strategy.pooled or strategy.personal:
            return f"is of no use with {name}: {'nothing travels' if strategy.pooled else 'models stay on the devices'}"
        if topology.meets:
            return "is for devices that report to a server: devices that meet send whole models"
        return ""

    # ---- to a device

    def pack_message(self, message: Bundle, rng: np.random.Generator) -> Bundle:
        if self.down == 32 or _MODEL not in message:
            return message
        plain, parts = dict(message[_MODEL]), dict[str, Weights]()
        for name, tensor in message[_MODEL].items():
            if _fits(name, tensor, self._down(tensor)):
                del plain[name]
                _put(parts, name, self._down(tensor).encode(tensor.detach().cpu().float(), rng))
        return message.with_(**{_MODEL: plain}, **parts)

    def unpack_message(self, message: Bundle, like: Weights) -> Bundle:
        parts = _parts_of(message)
        if not parts:
            return message
        model = dict(message[_MODEL])
        for name, found in parts:
            model[name] = self._down(like[name]).decode(found, like[name].shape).to(like[name].dtype)
        return _without_parts(message, {name: model[name] for name in like if name in model})

    def message_bytes(self, message: Bundle) -> int:
        if self.down == 32:
            return message.nbytes
        return _bytes(message, self._down)

    # ---- from a device

    def pack_reply(self, reply: Bundle, message: Bundle, device: Device) -> Bundle:
        sent = message.tensors.get(_MODEL, {})
        model = reply.tensors.get(_MODEL, {})
        changes = {
            name: tensor.detach().cpu().float() - sent[name].cpu().float()
            for name, tensor in model.items()
            if name in sent and _fits(name, tensor, self._up(tensor))
        }
        if not all(bool(change.isfinite().all()) for change in changes.values()):
            return reply  # the server refuses it, and says why
        before, rest = device.memory.tensors.get(_REST, {}), dict[str, Tensor]()
        rng, parts = device.rng("compression"), dict[str, Weights]()
        for name, change in changes.items():
            whole = change + before[name] if self.feedback and name in before else change
            coder = self._up(whole)
            found = coder.encode(whole, rng)
            rest[name] = whole - coder.decode(found, whole.shape)
            _put(parts, name, found)
        if self.feedback and rest:
            device.memory = device.memory.with_(**{_REST: rest})
        return reply.with_(**{_MODEL: {n: t for n, t in model.items() if n not in changes}}, **parts)

    def unpack_reply(self, reply: Bundle, message: Bundle) -> Bundle:
        parts = dict(_parts_of(reply))
        if not parts:
            return reply
        sent, model = message.tensors.get(_MODEL, {}), dict(reply.tensors.get(_MODEL, {}))
        for name, found in parts.items():
            if name not in sent or name in model:
                raise CodingError(f"{name!r} was not sent to this device, or came twice")
            start = sent[name]
            change = self._up(start).decode(found, start.shape)
            model[name] = (start.detach().cpu().float() + change).to(start.dtype)
        ordered = {name: model.pop(name) for name in sent if name in model}
        return _without_parts(reply, ordered | model)

    def reply_bytes(self, reply: Bundle) -> int:
        return _bytes(reply, self._up)


@dataclass(frozen=True)
class Quantise(Packing):
    """Changes in 8 or 4 bits a number, rounded at random (QSGD, Alistarh et al., 2017)."""

    bits: Literal[8, 4, 3, 2] = 8  # of each number

    @property
    def up(self) -> Coder:
        return Levels(self.bits, random=not self.feedback)


@dataclass(frozen=True)
class TopK(Packing):
    """Only the largest entries of each tensor's change, and their places (Aji and Heafield, 2017)."""

    share: float = 0.05  # of the entries

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ConfigError(f"compression.share = {self.share}: expected a number between 0 and 1")

    @property
    def up(self) -> Coder:
        return Largest(self.share)


@dataclass(frozen=True)
class LowRank(Packing):
    """Changes of matrices as products of two thin ones (PowerSGD, Vogels et al., 2019); vectors travel in 8 bits."""

    rank: int = 4

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ConfigError(f"compression.rank = {self.rank}: expected 1 or more")

    @property
    def up(self) -> Coder:
        return Factors(self.rank)


def _fits(name: str, tensor: Tensor, coder: Coder) -> bool:
    """Whether a tensor is packed: if it is worth it."""
    return (
        tensor.is_floating_point()
        and tensor.numel() >= _SMALL
        and tensor.ndim >= 1
        and not name.rpartition(".")[2].startswith(_RUNNING)
        and coder.nbytes(tensor.shape) < tensor.nbytes
    )


def _put(parts: dict[str, Weights], name: str, found: Weights) -> None:
    for part, tensor in found.items():
        parts.setdefault(_MODEL + _MARK + part, {})[name] = tensor


def _parts_of(bundle: Bundle) -> list[tuple[str, Weights]]:
    """The parts of each packed tensor, by its name."""
    found: dict[str, Weights] = {}
    for section, weights in bundle.tensors.items():
        if section.startswith(_MODEL + _MARK):
            for name, tensor in weights.items():
                found.setdefault(name, {})[section.partition(_MARK)[2]] = tensor
    return list(found.items())


def _without_parts(bundle: Bundle, model: Weights) -> Bundle:
    sections = {name: w for name, w in bundle.tensors.items() if not name.startswith(_MODEL + _MARK)}
    return Bundle({**sections, _MODEL: model}, bundle.values)


def _bytes(bundle: Bundle, coder: Callable[[Tensor], Coder]) -> int:
    """What a bundle weighs when its model is packed; from shapes alone."""
    model = bundle.tensors.get(_MODEL, {})
    fitting = [tensor for name, tensor in model.items() if _fits(name, tensor, coder(tensor))]
    return bundle.nbytes + sum(coder(tensor).nbytes(tensor.shape) - tensor.nbytes for tensor in fitting)
