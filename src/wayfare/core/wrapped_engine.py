"""An engine around another one: everything passes through, and a subclass changes what is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from wayfare.core.bundle import Bundle
from wayfare.core.device import Bench
from wayfare.core.protocols import Engine, Failure

Requests = Iterable[tuple[str, Bundle]]
Answer = Bundle | Failure


class WrappedEngine(Engine):
    """Passes everything on to `inner`, except calls to train."""

    def __init__(self, inner: Engine) -> None:
        self.inner, self.workers = inner, inner.workers

    def train(self, requests: Requests, deadline: float) -> Iterator[tuple[str, Answer]]:
        """What `call` does with the program "train"."""
        raise NotImplementedError

    def call(self, program: str, requests: Requests, deadline: float) -> Iterator[tuple[str, Answer]]:
        if program == "train":
            return self.train(requests, deadline)
        return self.inner.call(program, requests, deadline)

    def open(self, spec: str, folder: str, bench: Callable[[], Bench]) -> None:
        self.inner.open(spec, folder, bench)

    def set_client_sizes(self, size: Callable[[str], int]) -> None:
        self.inner.set_client_sizes(size)

    def finish(self) -> None:
        self.inner.finish()

    def bytes_down(self, program: str, message: Bundle) -> int:
        return self.inner.bytes_down(program, message)

    def bytes_up(self, program: str, reply: Bundle) -> int:
        return self.inner.bytes_up(program, reply)
