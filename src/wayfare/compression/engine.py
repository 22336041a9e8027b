"""An engine whose messages and replies travel packed: strategies, attacks and the gate see plain models."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from wayfare.compression.coders import CodingError
from wayfare.core.bundle import Bundle
from wayfare.core.device import Bench
from wayfare.core.protocols import Compression, Engine, Failure
from wayfare.core.seeds import rng_for

Requests = Iterable[tuple[str, Bundle]]
Answer = Bundle | Failure


class PackedEngine(Engine):
    """An engine behind a narrow link."""

    def __init__(self, engine: Engine, compression: Compression, seed: int) -> None:
        self.inner, self.compression, self.seed = engine, compression, seed
        self.workers, self.prefetches = engine.workers, engine.prefetches

    def open(self, spec: str, folder: str, bench: Callable[[], Bench]) -> None:
        self.inner.open(spec, folder, bench)

    def set_client_sizes(self, size: Callable[[str], int]) -> None:
        self.inner.set_client_sizes(size)

    def finish(self) -> None:
        self.inner.finish()

    def bytes_down(self, program: str, message: Bundle) -> int:
        return self.compression.message_bytes(message) if program == "train" else message.nbytes

    def bytes_up(self, program: str, reply: Bundle) -> int:
        return self.compression.reply_bytes(reply) if program == "train" else reply.nbytes

    def prefetch(self, program: str, requests: Requests, round: int, seconds: float) -> None:
        packed = ((id, self._packed(message, round)) for id, message in requests)
        self.inner.prefetch(program, packed if program == "train" else requests, round, seconds)

    def call(self, program: str, requests: Requests, deadline: float) -> Iterator[tuple[str, Answer]]:
        if program != "train":
            return self.inner.call(program, requests, deadline)
        return self._train(requests, deadline)

    def _train(self, requests: Requests, deadline: float) -> Iterator[tuple[str, Answer]]:
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
        return self.compression.pack_message(message, rng_for(self.seed, round, "compression"))

    def _unpacked(self, reply: Bundle, message: Bundle) -> Answer:
        try:
            return self.compression.unpack_reply(reply, message)
        except CodingError as error:
            return Failure(f"a packed reply that cannot be read: {error}")
