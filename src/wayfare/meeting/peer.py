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
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from wayfare.core.errors import ConfigError
from wayfare.core.text import printable
from wayfare.encounters.alone import LoneDevice
from wayfare.io.address import Address
from wayfare.meeting.diary import Diary, Transfer
from wayfare.meeting.discovery import PeerLink
from wayfare.meeting.identity import Identity, Pins, UnknownPeer, peer_of
from wayfare.meeting.session import Contact, Session, merge_taken
from wayfare.meeting.wire import Line, PeerFault, PeerGone, PeerTimeout

_WAITING, _WAITING_OF_ADDRESS = 32, 8  # connections that have not begun a meeting
_SHAKE, _CONNECT = 10.0, 5.0  # seconds
_PATIENCE = 0.1, 0.6  # seconds that a caller waits while another meeting is held: not the same for two that call
_RETRY = 0.3  # seconds until a device that was busy is called again
_TICK = 0.1
_REST = 5.0  # seconds, at most, between two calls of an address
_MOST_TOLD = 1000
_MOST_DOUBLINGS = 10


@dataclass(frozen=True, kw_only=True)
class Habits:
    """How a device meets others."""

    listen: Address
    slot: float = 30.0  # seconds: at most one meeting in each
    deadline: float = 120.0  # seconds of a meeting
    meetings: int = 0  # it ends after so many; 0: when it is told to
    about: str  # digest of what the recipe means
    trusts: Container[str] = ()  # names of devices whose published record is believed, beside signage of the group


class MeetingPeer:
    """A device among others."""

    def __init__(
        self, identity: Identity, pins: Pins, device: LoneDevice, diary: Diary, habits: Habits,
        notify: Callable[[str], None] = lambda text: None, links: Sequence[PeerLink] = (),
    ) -> None:  # fmt: skip
        self.identity, self.pins, self.device, self.diary, self.habits = identity, pins, device, diary, habits
        self._notify, self._links = notify, links
        self._stopped = False
        self._meeting, self.over = threading.Lock(), threading.Event()
        self._waiting: Counter[str] = Counter()
        self._rests: dict[Address, float] = {}  # until when an address is not called again
        self._told: set[str] = set()
        self._late: dict[str, tuple[int, float]] = {}  # by key: how often in a row, and until when it is left alone
        self._counting = threading.Lock()
        self._last_slot = -1
        self._failure: BaseException | None = None

    # ---- the program

    def stop(self) -> None:
        """End now, also in a meeting. It takes no lock: handlers of signals may call it."""
        self._stopped = True

    def run(self) -> None:
        """Until told to end, or after so many meetings; what was taken and not merged before comes first."""
        self.pins.read()  # an error is told now
        self._say(merge_taken(self.device, self.diary))
        self._use_record()
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
        return (
            self._stopped
            or self.over.is_set()
            or bool(self.habits.meetings and self.diary.meetings >= self.habits.meetings)
        )

    def _call_others(self) -> None:
        while not self._is_done():
            near = list(dict.fromkeys(address for link in self._links for address in link.near()))
            secrets.SystemRandom().shuffle(near)  # nobody is always the first
            for address in near:
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
            try:
                line = stack.enter_context(self.identity.tls(serves=False).wrap_socket(wire))
            except ssl.SSLCertVerificationError:
                is_invited = self.identity.is_invited
                why = "it does not belong to this group" if is_invited else "this device has no invitation to its group"
                self._tell(f"{address} is not met: {why}")
                return
            if not self._meeting.acquire(blocking=False):
                with contextlib.suppress(PeerFault):
                    Line(line, _SHAKE).send("busy")
                return
            try:
                if not self._hold(line, calls=True):
                    self._rests[address] = time.monotonic() + _RETRY
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
                    if not self._meeting.acquire(timeout=secrets.SystemRandom().uniform(*_PATIENCE)):
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

    def _hold(self, line: ssl.SSLSocket, calls: bool) -> bool:
        """Whether both were free; a peer that is refused counts as free."""
        try:
            who = peer_of(line)
            if who.key == self.identity.key:  # its own address may be among those that it was given
                return True
            self.pins.check(who.name, who.key)
        except UnknownPeer as error:
            self._tell(f"refused: {printable(error)}")
            return True
        except BaseException as error:  # pins that cannot be read or written
            self._fail(error)
            return True
        slot, words = self._slot(), Line(line, self.habits.deadline, lambda: self._stopped)
        times, until = self._late.pop(who.key, (0, 0.0))
        if time.monotonic() < until:
            self._late[who.key] = times, until
            return True
        if slot == self._last_slot or self._is_done():
            with contextlib.suppress(PeerFault):
                words.send("busy")
            return False
        trusted = who.is_sign or who.name in self.habits.trusts
        begins = self.diary.last.get(who.key, -2) < slot - 1
        contact = Contact(
            who.name, who.key, self.diary.number(who.key), slot, calls=calls, begins=begins, is_trusted=trusted
        )
        session = Session(words, self.device, self.diary, contact, self.habits.about)
        try:
            session.hold()
        except PeerFault as error:
            if isinstance(error, PeerTimeout) and len(self._late) < _MOST_TOLD:  # the second time it waits, then longer
                until = time.monotonic() + self.habits.deadline * (2 ** min(times, _MOST_DOUBLINGS) - 1)
                self._late[who.key] = times + 1, until
            if session.is_greeted and not self._stopped:
                self._tell(f"{printable(who.name)}: {printable(error)}")
            elif contact.calls and isinstance(error, PeerGone):
                own = self.identity.name
                self._tell(f"{printable(who.name)} ended the connection: perhaps it knows another key for {own}")
        except BaseException as error:  # a full disk, say: it is no fault of the peer
            self._fail(error)
            return True
        if session.met:
            self._last_slot = slot
        self._after(session)
        return session.is_greeted

    def _after(self, session: Session) -> None:
        """Merge what was taken, and say what has happened; meetings in which nothing did are said once."""
        try:
            done = merge_taken(self.device, self.diary)
            self._use_record()
        except BaseException as error:
            self._fail(error)
            return
        if session.met:
            last = self.diary.encounters[-1]
            what = [word for word, is_so in (("asked for its model", last.asks), ("it asked for mine", last.asked))
                    if is_so]  # fmt: skip
            text = f"met {printable(last.name)} (meeting {last.meeting})"
            if what:
                self._notify(f"{text}: {', '.join(what)}")
            elif last.peer not in self._told:
                self._told.add(last.peer)
                self._notify(f"{text}: nobody asked")
        self._say(done)

    def _fail(self, error: BaseException) -> None:
        """End the program with this error, which `run` raises."""
        self._failure = error
        self.over.set()

    def _use_record(self) -> None:
        """A published record sets the budget, if nothing of it was used; else it is for the next day."""
        record, device = self.diary.record, self.device
        if record is None or record.ends == device.state.published:
            return
        if not device.is_unspent:
            self._tell("heard a published record: it is used from the next day on (--new-day)")
            return
        device.begin_anew(record.ends)
        self.diary.save(device.state)
        columns = device.state.columns
        self._notify(
            f"published record {record}: budget {int(columns['can_send'][0])} to send, "
            f"{int(columns['can_take'][0])} to take"
        )

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
