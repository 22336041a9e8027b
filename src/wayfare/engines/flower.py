"""The engine on Flower: devices are its nodes, requests and replies are its messages. Needs the extra "flower".

The strategy, the admission gate and the run are ours, unchanged; of Flower only messages, contexts and the grid are
used. By itself the engine opens a simulation; given a link to nodes that run elsewhere it uses those.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import torch

from wayfare.core.bundle import Bundle
from wayfare.core.device import Bench
from wayfare.core.protocols import Failure
from wayfare.engines import flower_records as records
from wayfare.engines.flower_simulation import Simulation, require
from wayfare.engines.programs import keep_freed_memory
from wayfare.errors import StoreError, WayfareError

_GRACE = 5.0  # a device stops by itself at the deadline; this long after it, nobody waits for it any more
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

    def home(self, device: str) -> int:
        """The number of the node that this device is."""

    def check(self) -> None:
        """Raise if nothing can come any more."""

    def begin(self) -> str:
        """A call begins; returns the folder in which those who work for it sign in, if there is one."""

    def end(self, desk: str) -> None:
        """A call is over: whoever still works for it is to stop."""

    def close(self) -> None:
        """Let the nodes go."""


class Flower(AbstractContextManager["Flower"]):
    """Runs devices on Flower's nodes."""

    def __init__(self, workers: int = 0, link: Link | None = None) -> None:
        require(*(("flwr",) if link is not None else ("flwr", "ray")))
        self.workers = workers or os.cpu_count() or 1
        self._link = link
        self._opening, self._spec, self._folder, self._devices = 0, "", "", 0
        self._next = "", dict[str, Bundle]()  # the program that comes next, and what its devices will be told
        self._early: dict[str, Bundle] = {}  # replies to it that came with others
        self._threads = torch.get_num_threads()

    def open(self, spec: str, folder: str, bench: Callable[[], Bench]) -> None:
        """Serve this experiment from now on; the nodes build it themselves, from its text."""
        torch.set_num_threads(1)
        keep_freed_memory()
        self._opening += 1
        self._spec, self._folder, self._devices = spec, str(Path(folder).absolute()), len(bench().population)
        if self._link is None:
            self._connect()
        elif self._link.ours:
            self._warm_up()

    @property
    def foresees(self) -> str:
        """Before what it wants to know what will be asked next: where a message takes seconds, one can ask twice."""
        return "judging" if self._link is not None and not self._link.ours else ""

    def foresee(self, program: str, requests: Iterable[tuple[str, Bundle]], round: int, seconds: float) -> None:
        """What will be asked next. A node that is asked something else about the same tensors first does this as well.

        It changes no result: what a device does depends on what it is told and on what it knew before that round, and
        what nobody asks for in the end is not used.
        """
        told = {id: Bundle(message.tensors, {**message.values, "round": round}) for id, message in requests}
        self._next, self._early = (program, told), {}

    def call(
        self, program: str, requests: Iterable[tuple[str, Bundle]], deadline: float
    ) -> Iterator[tuple[str, Bundle | Failure]]:
        link, writer, source = self._connect(), records.Writer(), enumerate(requests)
        asked: dict[str, tuple[int, str]] = {}  # by message: its place in the order, its device
        done: dict[int, tuple[str, Bundle | Failure]] = {}  # answered, not yet handed out
        held: dict[int, int] = {}  # bytes of what was asked and is not yet handed out
        handed, exhausted, desk = 0, False, link.begin()
        try:
            while not exhausted or held:
                fresh: list[tuple[int, str, Bundle]] = []
                while not exhausted and self._has_room(held):
                    item = next(source, None)
                    if item is None:
                        exhausted = True
                        break
                    order, (device, message) = item
                    held[order] = message.nbytes
                    fresh.append((order, device, message))
                done |= self._answered(program, fresh, deadline)
                if fresh := [request for request in fresh if request[0] not in done]:
                    for id, (order, device) in self._push(link, desk, program, fresh, deadline, writer):
                        if id:
                            asked[id] = order, device
                        else:
                            done[order] = device, Failure("its node is not known any more")
                for order, device, reply in self._pull(link, asked, deadline):
                    done[order] = (device, reply)
                while handed in done:
                    del held[handed]
                    yield done.pop(handed)
                    handed += 1
        finally:
            if program == self._next[0]:
                self._next, self._early = ("", {}), {}
            link.end(desk)  # if the caller left early, what is being done must not be written any more

    def _has_room(self, held: dict[int, int]) -> bool:
        return len(held) < 4 * self.workers or (len(held) < _MANY and sum(held.values()) < _LARGE)

    def _push(
        self,
        link: Link,
        desk: str,
        program: str,
        fresh: list[tuple[int, str, Bundle]],
        deadline: float,
        writer: records.Writer,
    ) -> Iterator[tuple[str, tuple[int, str]]]:
        """Send requests; gives the message of each, or none where Flower does not take it."""
        from flwr.app import ConfigRecord, Message, RecordDict

        left = deadline - time.monotonic()
        messages = []
        for _, device, message in fresh:
            call: dict[str, Any] = {
                "program": program, "device": device, "experiment": self._spec,
                "folder": link.place or self._folder, "opening": self._opening, "seconds": left,
                "until": time.time() + left if link.ours else 0.0, "desk": desk,
            }  # fmt: skip
            parts, after = writer.write(message), self._next[1].get(device)
            if program != self._next[0] and after is not None and after.is_same(message, but_for_values=True):
                call["then"] = self._next[0]
                parts[records.THEN] = records.values(after)
            content = RecordDict({"call": ConfigRecord(call), **parts})
            # Flower drops a message some time after nobody waits for its reply any more
            ttl = left + 2 * _GRACE if math.isfinite(left) else None
            messages.append(Message(content, dst_node_id=link.home(device), message_type="query", ttl=ttl))
        ids = [str(id or "") for id in link.grid.push_messages(messages)]
        if len(ids) != len(fresh):
            raise WayfareError(f"Flower took {len(ids)} of {len(fresh)} messages: are its nodes gone?")
        return zip(ids, ((order, device) for order, device, _ in fresh))

    def _pull(
        self, link: Link, asked: dict[str, tuple[int, str]], deadline: float
    ) -> Iterator[tuple[int, str, Bundle | Failure]]:
        """Replies that are there; late ones are given up. Sleeps a moment if there is nothing."""
        if not asked:
            return
        replies = list(link.grid.pull_messages(list(asked)))
        for reply in replies:
            place = asked.pop(reply.metadata.reply_to_message_id, None)
            if place is not None:  # else nobody asked for it, or it has come before
                yield *place, _opened(reply, link.ours)
                if not reply.has_error() and (early := records.read_then(reply.content)) is not None:
                    self._early[place[1]] = early
        if replies:
            return
        link.check()
        if time.monotonic() > deadline + _GRACE:
            late = Failure("late: no reply before the round's deadline")
            yield from ((order, device, late) for order, device in asked.values())
            asked.clear()
            return
        time.sleep(link.nap)

    def _answered(
        self, program: str, fresh: list[tuple[int, str, Bundle]], deadline: float
    ) -> dict[int, tuple[str, Bundle | Failure]]:
        """Requests that need no message: all when it is too late, else those whose reply has come with another."""
        if time.monotonic() > deadline:
            late = Failure("late: not started before the round's deadline")
            return {order: (device, late) for order, device, _ in fresh}
        foreseen = self._next[1] if program == self._next[0] else {}
        return {
            order: (device, self._early.pop(device))
            for order, device, message in fresh
            if device in self._early and device in foreseen and foreseen[device].is_same(message)
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
