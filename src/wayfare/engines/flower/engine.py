"""The engine on Flower: devices are its nodes, requests and replies are its messages. Needs the extra "flower".

The strategy, the admission gate and the run are ours, unchanged; of Flower only messages, contexts and the grid are
used. By itself the engine opens a simulation; given a link to nodes that run elsewhere it uses those.
Flower is imported in functions, so that `require` can say what is missing.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import torch

from wayfare.components import allowed_code
from wayfare.core.bundle import Bundle
from wayfare.core.device import Bench
from wayfare.core.errors import StoreError, WayfareError
from wayfare.core.protocols import Engine, Failure, Prefetch
from wayfare.engines.flower import records
from wayfare.engines.flower.simulation import Simulation, require

_GRACE = 5.0  # a device stops by itself at the deadline; this long after it, the engine stops waiting
_BUILD = 600.0  # seconds that an experiment may take to build
READY = "ready"  # beside the programs: build the experiment and do nothing else
_MANY, _LARGE = 64, 2**26  # so many requests may be on their way at once, and so many bytes


class Link(Protocol):
    """The way to the nodes."""

    grid: Any  # Flower's Grid
    workers: int  # devices that can run at the same time
    nap: float  # seconds between two looks for replies
    ours: bool  # whether the nodes are part of this run: they share its clock, and a full disk there ends it
    place: str  # what nodes call this run, where they cannot see its folder; else ""

    def node_of(self, device: str) -> int:
        """The number of the node that runs this device."""

    def check(self) -> None:
        """Raise if nothing can come any more."""

    def begin(self) -> str:
        """A call begins; returns the folder in which those who work for it sign in, if there is one."""

    def end(self, sign_in: str) -> None:
        """A call is over: whoever still works for it is to stop."""

    def close(self) -> None:
        """Let the nodes go."""


_Request = tuple[int, str, Bundle]  # its place in the order, its device, the message


@dataclass
class _Call:
    """What one call has sent, and what came back."""

    program: str
    deadline: float
    sign_in: str  # the folder in which those who work for it sign in
    source: Iterator[tuple[int, tuple[str, Bundle]]]
    exhausted: bool = False
    writer: records.Writer = field(default_factory=records.Writer)
    sent: dict[str, tuple[int, str]] = field(default_factory=dict)  # by message: its place in the order, its device
    answered: dict[int, tuple[str, Bundle | Failure]] = field(default_factory=dict)  # not yet handed out
    held: dict[int, int] = field(default_factory=dict)  # bytes of what was taken and is not yet handed out


class Flower(Engine):
    """Runs devices on Flower's nodes."""

    def __init__(self, workers: int = 0, link: Link | None = None) -> None:
        require(*(("flwr",) if link is not None else ("flwr", "ray")))
        self.workers = workers or os.cpu_count() or 1
        self._link = link
        # where a message takes seconds, one can carry two requests
        self.prefetches: Prefetch = "evaluation" if link is not None and not link.ours else ""
        self._opening, self._spec, self._folder, self._devices = 0, "", "", 0
        self._next = "", dict[str, Bundle]()  # the program that comes next, and the messages of its devices
        self._early: dict[str, Bundle] = {}  # replies to it that came with others
        self._threads = torch.get_num_threads()

    def open(self, spec: str, folder: str, bench: Callable[[], Bench]) -> None:
        """Serve this experiment from now on; the nodes build it themselves, from its text."""
        torch.set_num_threads(1)
        self._opening += 1
        self._spec, self._folder, self._devices = spec, str(Path(folder).absolute()), len(bench().population)
        if self._link is None:
            self._connect()
        elif self._link.ours:
            self._warm_up()

    def prefetch(self, program: str, requests: Iterable[tuple[str, Bundle]], round: int, seconds: float) -> None:
        """What will be asked next. A node that is asked something else about the same tensors first does this as well.

        It changes no result: what a device does depends on its message and on what it knew before that round, and what
        nobody asks for in the end is not used.
        """
        messages = {id: Bundle(message.tensors, {**message.values, "round": round}) for id, message in requests}
        self._next, self._early = (program, messages), {}

    def call(
        self, program: str, requests: Iterable[tuple[str, Bundle]], deadline: float
    ) -> Iterator[tuple[str, Bundle | Failure]]:
        link, handed = self._connect(), 0
        call = _Call(program, deadline, link.begin(), enumerate(requests))
        try:
            while not call.exhausted or call.held:
                fresh = self._take(call)
                call.answered |= self._answered_early(call, fresh)
                self._push(link, call, [request for request in fresh if request[0] not in call.answered])
                self._pull(link, call)
                while handed in call.answered:
                    del call.held[handed]
                    yield call.answered.pop(handed)
                    handed += 1
        finally:
            if program == self._next[0]:
                self._next, self._early = ("", {}), {}
            link.end(call.sign_in)  # if the caller left early, what is being done must not be written any more

    def _take(self, call: _Call) -> list[_Request]:
        """New requests, as many as may be on their way at once."""
        fresh: list[_Request] = []
        while self._has_room(call.held):
            item = next(call.source, None)
            if item is None:
                call.exhausted = True
                break
            order, (device, message) = item
            call.held[order] = message.nbytes
            fresh.append((order, device, message))
        return fresh

    def _has_room(self, held: dict[int, int]) -> bool:
        return len(held) < 4 * self.workers or (len(held) < _MANY and sum(held.values()) < _LARGE)

    def _push(self, link: Link, call: _Call, fresh: list[_Request]) -> None:
        """Send requests; a device whose node Flower does not know has failed."""
        if not fresh:
            return
        messages = [self._message(link, call, device, message) for _, device, message in fresh]
        ids = [str(id or "") for id in link.grid.push_messages(messages)]
        if len(ids) != len(fresh):
            raise WayfareError(f"Flower took {len(ids)} of {len(fresh)} messages: are its nodes gone?")
        for id, (order, device, _) in zip(ids, fresh):
            if id:
                call.sent[id] = order, device
            else:
                call.answered[order] = device, Failure("Flower no longer knows its node")

    def _message(self, link: Link, call: _Call, device: str, message: Bundle) -> Any:
        from flwr.app import ConfigRecord, Message, RecordDict

        left = call.deadline - time.monotonic()
        order: dict[str, Any] = {
            "program": call.program, "device": device, "experiment": self._spec,
            "folder": link.place or self._folder, "opening": self._opening, "seconds": left,
            "until": time.time() + left if link.ours else 0.0, "sign_in": call.sign_in,
        }  # fmt: skip
        if link.ours:
            order["allow_code"] = allowed_code()
        parts, after = call.writer.write(message), self._next[1].get(device)
        if call.program != self._next[0] and after is not None and after.is_same(message, but_for_values=True):
            order["then"] = self._next[0]
            parts[records.THEN] = records.values(after)
        content = RecordDict({"call": ConfigRecord(order), **parts})
        # Flower drops a message some time after its reply is no longer awaited
        ttl = left + 2 * _GRACE if math.isfinite(left) else None
        return Message(content, dst_node_id=link.node_of(device), message_type="query", ttl=ttl)

    def _pull(self, link: Link, call: _Call) -> None:
        """Take the replies that are there, and give up late ones. Sleeps a moment if there is nothing."""
        if not call.sent:
            return
        replies = list(link.grid.pull_messages(list(call.sent)))
        for reply in replies:
            order, device = call.sent.pop(reply.metadata.reply_to_message_id, (-1, ""))
            if order < 0:
                continue  # nobody asked for it, or it has come before
            call.answered[order] = device, _opened(reply, link.ours)
            if not reply.has_error() and (early := records.read_then(reply.content)) is not None:
                self._early[device] = early
        if replies:
            return
        link.check()
        if time.monotonic() > call.deadline + _GRACE:
            late = Failure("late: no reply before the round's deadline")
            call.answered |= {order: (device, late) for order, device in call.sent.values()}
            call.sent.clear()
            return
        time.sleep(link.nap)

    def _answered_early(self, call: _Call, fresh: list[_Request]) -> dict[int, tuple[str, Bundle | Failure]]:
        """Requests that need no message: all when it is too late, else those whose reply has come with another."""
        if time.monotonic() > call.deadline:
            late = Failure("late: not started before the round's deadline")
            return {order: (device, late) for order, device, _ in fresh}
        expected = self._next[1] if call.program == self._next[0] else {}
        return {
            order: (device, self._early.pop(device))
            for order, device, message in fresh
            if device in self._early and device in expected and expected[device].is_same(message)
        }

    def _connect(self) -> Link:
        if self._link is None:
            if not self._opening:
                raise RuntimeError("the engine has not been opened")
            self._link = Simulation(self._devices, self.workers)
            self.workers = self._link.workers
            self._warm_up()
        return self._link

    def _warm_up(self) -> None:
        """Have every worker build the experiment before a deadline runs. What is wrong, its first order will tell."""
        workers = ((f"worker {number}", Bundle()) for number in range(self.workers))
        for _ in self.call(READY, workers, time.monotonic() + _BUILD):
            pass

    def close(self) -> None:
        """Let the nodes go."""
        if self._link is not None:
            self._link.close()
        self._link = None
        torch.set_num_threads(self._threads)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _opened(reply: Any, ours: bool) -> Bundle | Failure:
    """What a message says. It may come from anywhere: if it makes no sense, that is its device's failure."""
    if reply.has_error():
        reason, _, detail = str(reply.error.reason).partition("\n")
        return Failure(f"its node failed: {reason}", detail)
    outcome = reply.content.get("outcome", {})
    if "stopped" in outcome and ours:
        raise StoreError(str(outcome["stopped"]))
    if "stopped" in outcome:
        return Failure(str(outcome["stopped"]))
    if "failed" in outcome:
        return Failure(str(outcome["failed"]), str(outcome.get("detail", "")))
    try:
        return records.read(reply.content)
    except StoreError as error:
        return Failure(str(error))
