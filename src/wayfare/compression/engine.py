"""An engine whose messages and replies travel packed: strategies, attacks and the gate see plain models."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from wayfare.compression.coders import CodingError
from wayfare.core.bundle import Bundle, Weights
from wayfare.core.protocols import Compression, Engine, Failure
from wayfare.core.seeds import rng_for
from wayfare.core.wrapped_engine import Answer, Requests, WrappedEngine


class PackedEngine(WrappedEngine):
    """An engine behind a narrow link."""

    def __init__(self, engine: Engine, compression: Compression, seed: int) -> None:
        super().__init__(engine)
        self.compression, self.seed = compression, seed
        self.prefetches = engine.prefetches
        self._last: tuple[Weights, int, Bundle] | None = None  # a model goes to many devices: it is packed once

    def bytes_down(self, program: str, message: Bundle) -> int:
        return self.compression.message_bytes(message) if program == "train" else message.nbytes

    def bytes_up(self, program: str, reply: Bundle) -> int:
        return self.compression.reply_bytes(reply) if program == "train" else reply.nbytes

    def prefetch(self, program: str, requests: Requests, round: int, seconds: float) -> None:
        packed = ((id, self._packed(message, round)) for id, message in requests)
        self.inner.prefetch(program, packed if program == "train" else requests, round, seconds)

    def train(self, requests: Requests, deadline: float) -> Iterator[tuple[str, Answer]]:
        received: dict[str, deque[Bundle]] = {}

        def packed() -> Requests:
            for id, message in requests:
                received.setdefault(id, deque()).append(message)
                yield id, self._packed(message, int(message.number("round")))

        for id, reply in self.inner.call("train", packed(), deadline):
            waiting = received.get(id)
            if isinstance(reply, Bundle) and waiting:
                yield id, self._unpacked(reply, waiting.popleft())
            else:
                yield id, reply

    def _packed(self, message: Bundle, round: int) -> Bundle:
        model = message.tensors.get("model")
        if model is None:
            return message
        if self._last is None or self._last[0] is not model or self._last[1] != round:
            rng = rng_for(self.seed, round, "compression")
            self._last = model, round, self.compression.pack_message(message.only("model"), rng)
        return message.with_(**self._last[2].tensors)

    def _unpacked(self, reply: Bundle, message: Bundle) -> Answer:
        try:
            return self.compression.unpack_reply(reply, message)
        except CodingError as error:
            return Failure(f"a packed reply that cannot be read: {error}")
