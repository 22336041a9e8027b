"""Where devices run, and how models travel there and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from wayfare.core.bundle import Bundle, Weights

if TYPE_CHECKING:
    from wayfare.core.device import Bench, Device
    from wayfare.core.protocols.strategy import Strategy
    from wayfare.core.protocols.topology import Topology


@dataclass(frozen=True)
class Failure:
    """A device that gave no reply, and why."""

    reason: str
    detail: str = ""  # the traceback from there, if there was one


Prefetch = Literal["", "evaluation", "commit"]


class Engine:
    """Runs programs on devices. `core/gate.py` asks; nothing else calls it."""

    workers: int = 1
    prefetches: Prefetch = ""
    """Before which part of a round it wants to know the next round's requests; "" if never."""

    def open(self, spec: str, folder: str, bench: Callable[[], Bench]) -> None:
        """Serve this experiment from now on."""

    def set_client_sizes(self, size: Callable[[str], int]) -> None:
        """How many samples each client has: large ones can be started first."""

    def call(
        self, program: str, requests: Iterable[tuple[str, Bundle]], deadline: float
    ) -> Iterator[tuple[str, Bundle | Failure]]:
        """Run a program on each device; replies in the order asked, as they become available."""
        raise NotImplementedError

    def bytes_down(self, program: str, message: Bundle) -> int:
        """What a message weighs on its way to a device."""
        return message.nbytes

    def bytes_up(self, program: str, reply: Bundle) -> int:
        """What a reply weighed on its way here."""
        return reply.nbytes

    def prefetch(self, program: str, requests: Iterable[tuple[str, Bundle]], round: int, seconds: float) -> None:
        """Begin what the next `call` will ask; only for engines that say when (`prefetches`)."""

    def finish(self) -> None:
        """The run is over: drop what was prefetched."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of workers and connections."""


class Compression:
    """How a model is written for its way to a device and back. By default as it is. A frozen dataclass of settings."""

    def misfit(self, strategy: Strategy, topology: Topology) -> str:
        """Why it cannot be used with these; "" if it can."""
        return ""

    def pack_message(self, message: Bundle, rng: np.random.Generator) -> Bundle:
        """What travels to a device in place of a message to `train`."""
        return message

    def unpack_message(self, message: Bundle, like: Weights) -> Bundle:
        """On the device: the message again; `like` has the names, shapes and types of the model."""
        return message

    def pack_reply(self, reply: Bundle, message: Bundle, device: Device) -> Bundle:
        """On the device: what travels in place of a reply to `train`, which answers this message."""
        return reply

    def unpack_reply(self, reply: Bundle, message: Bundle) -> Bundle:
        """The reply again, from what came and what was sent."""
        return reply

    def message_bytes(self, message: Bundle) -> int:
        """What a message weighs when it is packed."""
        return message.nbytes

    def reply_bytes(self, reply: Bundle) -> int:
        """What a reply weighs when it is packed."""
        return reply.nbytes


AS_IS = Compression()
