"""The program of one device: it listens, calls others, meets one at a time and at most one in a slot (Eq. 5).

Whatever a peer says or leaves unsaid costs at most the meeting: a deadline, a size cap, and a bound on connections.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from wayfare.core.errors import ConfigError
from wayfare.core.text import printable
from wayfare.encounters.alone import LoneDevice
from wayfare.io.address import Address
from wayfare.meeting.diary import Diary, Transfer
from wayfare.meeting.identity import Identity, Pins, UnknownPeer, peer_of
from wayfare.meeting.session import Contact, Session, merge_taken
from wayfare.meeting.wire import Line, PeerFault

_WAITING, _WAITING_OF_ADDRESS = 32, 8  # connections that have not begun a meeting
_SHAKE, _CONNECT = 10.0, 5.0  # seconds
_PATIENCE = 1.0  # seconds that a caller waits while another meeting is held
_TICK = 0.1
_REST = 5.0  # seconds, at most, between two calls of an address
_MOST_TOLD = 1000


@dataclass(frozen=True, kw_only=True)
class Habits:
    """How a device meets others."""

    listen: Address
    peers: Sequence[Address] = ()
    slot: float = 30.0  # seconds: at most one meeting in each
    deadline: float = 120.0  # seconds of a meeting
    meetings: int = 0  # it ends after so many; 0: when it is told to
    about: str = ""  # digest of what the recipe means


class MeetingPeer:
    """A device among others."""

    def __init__(
        self, identity: Identity, pins: Pins, device: LoneDevice, diary: Diary, habits: Habits,
        notify: Callable[[str], None] = lambda text: None, nearby: Callable[[], Iterable[Address]] = tuple,
    ) -> None:  # fmt: skip
        self.identity, self.pins, self.device, self.diary, self.habits = identity, pins, device, diary, habits
        self._notify, self._nearby = notify, nearby
        self._meeting, self.over = threading.Lock(), threading.Event()
        self._waiting: Counter[str] = Counter()
        self._rests: dict[Address, float] = {}  # until when an address is not called again
        self._told: set[str] = set()
        self._counting = threading.Lock()
        self._last_slot = -1
        self._failure: BaseException | None = None

    # ---- the program

    def run(self) -> None:
        """Until told to end, or after so many meetings; what was taken and not merged before comes first."""
        self._say(merge_taken(self.device, self.diary))
        self.diary.save(self.device.state)
        family = socket.AF_INET6 if ":" in self.habits.listen.host else socket.AF_INET
        try:
            listener = socket.create_server((self.habits.listen.host, self.habits.listen.port), family=family)
        except OSError as error:
            raise ConfigError(f"--listen {self.habits.listen}: {error.strerror or error}") from error
        with listener:
            listener.settimeout(_TICK)
            server = threading.Thread(target=self._serve, args=(listener,), daemon=True)
            server.start()
            try:
                self._call_others()
            finally:
                self.over.set()
                server.join(5)
                with self._meeting:  # the last one is brought to its end
                    pass
        if self._failure is not None:
            raise self._failure

    def _is_done(self) -> bool:
        return self.over.is_set() or bool(self.habits.meetings and self.diary.meetings >= self.habits.meetings)

    def _call_others(self) -> None:
        while not self._is_done():
            for address in dict.fromkeys([*self.habits.peers, *self._nearby()]):
                if self._is_done():
                    return
                if self._slot() == self._last_slot:
                    break
                self._call(address)
            self.over.wait(_TICK * (1 + secrets.randbelow(10) / 10))

    def _slot(self) -> int:
        """By this device's own clock, which it tells nobody."""
        return int(time.time() / self.habits.slot)

    # ---- calling and being called

    def _call(self, address: Address) -> None:
        """Connect first, so that an address that does not answer keeps nobody else from a meeting."""
        if self._rests.get(address, 0.0) > time.monotonic():
            return
        self._rests[address] = time.monotonic() + min(self.habits.slot, _REST)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:  # it is not there, or not one of us
            wire = stack.enter_context(socket.create_connection((address.host, address.port), _CONNECT))
            wire.settimeout(_SHAKE)
            line = stack.enter_context(self.identity.tls(serves=False).wrap_socket(wire))
            if not self._meeting.acquire(blocking=False):
                with contextlib.suppress(PeerFault):
                    Line(line, _SHAKE).send("busy")
                return
            try:
                self._hold(line, calls=True)
            finally:
                self._meeting.release()

    def _serve(self, listener: socket.socket) -> None:
        tls = self.identity.tls(serves=True)
        while not self._is_done():
            try:
                wire, (host, *_) = listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            with self._counting:
                if self._waiting.total() >= _WAITING or self._waiting[host] >= _WAITING_OF_ADDRESS:
                    wire.close()
                    continue
                self._waiting[host] += 1
            threading.Thread(target=self._welcome, args=(wire, host, tls), daemon=True).start()

    def _welcome(self, wire: socket.socket, host: str, tls: ssl.SSLContext) -> None:
        is_counted = True
        try:
            with wire:
                wire.settimeout(_SHAKE)
                with tls.wrap_socket(wire, server_side=True) as line:
                    if not self._meeting.acquire(timeout=_PATIENCE):
                        Line(line, _SHAKE).send("busy")
                        return
                    try:
                        is_counted = self._left(host)
                        self._hold(line, calls=False)
                    finally:
                        self._meeting.release()
        except (OSError, PeerFault):
            pass  # it has no certificate of this kind, or went away
        finally:
            if is_counted:
                self._left(host)

    def _left(self, host: str) -> bool:
        with self._counting:
            self._waiting[host] -= 1
        return False

    # ---- a meeting, with the lock held

    def _hold(self, line: ssl.SSLSocket, calls: bool) -> None:
        name, key = peer_of(line)
        try:
            self.pins.check(name, key)
        except UnknownPeer as error:
            self._tell(f"refused: {printable(error)}")
            return
        slot, words = self._slot(), Line(line, self.habits.deadline)
        if slot == self._last_slot or self._is_done():
            with contextlib.suppress(PeerFault):
                words.send("busy")
            return
        begins = self.diary.last.get(key, -2) < slot - 1
        contact = Contact(name, key, self.diary.number(key), slot, calls=calls, begins=begins)
        session = Session(words, self.device, self.diary, contact, self.habits.about)
        try:
            session.hold()
        except PeerFault as error:
            if session.is_greeted:
                self._tell(f"{printable(name)}: {printable(error)}")
        except BaseException as error:  # a full disk, say: it is no fault of the peer
            self._failure = error
            self.over.set()
            return
        if session.met:
            self._last_slot = slot
            self._notify(f"met {printable(name)} (meeting {self.diary.meetings})")
        try:
            self._say(merge_taken(self.device, self.diary))
        except BaseException as error:
            self._failure = error
            self.over.set()

    def _tell(self, text: str) -> None:
        """Once: a peer that fails is called again and again."""
        if text not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(text)
            self._notify(text)

    def _say(self, lines: Sequence[Transfer]) -> None:
        for line in lines:
            how = "adopted" if line.adopted else f"not adopted{f' ({printable(line.reason)})' if line.reason else ''}"
            scores = "" if line.after is None or line.before is None else f", {line.before:.3f} -> {line.after:.3f}"
            left = int(self.device.state.columns["can_take"][0])
            self._notify(f"took the model of {printable(line.name)}: {how}{scores}; {left} more may be taken")
