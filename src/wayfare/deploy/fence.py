"""The fence: the only way from the network to a SuperLink. A program:

    python -m wayfare.deploy.fence LISTENER_FD KEYS UNIX_SOCKET LOG

It ends TLS 1.3, and lets nobody in without a certificate of the federation's own authority that is on the roll. Of an
admitted node it passes on the requests that fence_rules.py allows, and drops all headers but Flower's own. Everything
has a bound: connections, before and after the handshake, in all and for each address; headers; bodies; requests in a
second; bytes that wait in memory; the time that anything may take.

It is asyncio and h11. Flower installs h11 (under uvicorn and httpx), so nothing is added; h11 parses strictly and has a
bound for headers, and on bare asyncio a connection can be counted before its handshake and a certificate can be seen,
which uvicorn does not offer. It is a process of its own, and what it does with foreign bytes is all that it does.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h11
import httpx
from cryptography import x509

from wayfare.deploy.fence_log import FenceLog
from wayfare.deploy.fence_rules import KEY_HEADER, LARGE, PREFIX, ROUTES, Conduct, FenceRefusal, route_of
from wayfare.deploy.keys import Roll
from wayfare.io.certificates import fingerprint, name_in

_CONNECTIONS, _PER_ADDRESS, _PER_NODE = 1024, 128, 16
_HANDSHAKES, _HANDSHAKES_PER_ADDRESS = 64, 16
_LARGE_BODIES = 32  # requests of more than 64 KiB that may wait in memory at once, of at most 8 MiB each
_LARGE_OF_NODE = 4  # of one node: who sends slowly must not have them all
_HEADERS = 2**14  # bytes
_SHAKE, _IDLE, _STALL, _REQUEST, _UPSTREAM = 10.0, 120.0, 20.0, 300.0, 120.0  # seconds
_RATE, _BURST = 100.0, 400.0  # requests of a node: in a second for long, and at once
_SILENCE = 90.0  # seconds after which a node that says nothing has left: it calls every three
_SWEEP = 5.0
_PASSED_ON = frozenset({b"content-type", b"accept"})


@dataclass(frozen=True)
class Peer:
    """The other end of a connection, by its certificate."""

    name: str
    key: str  # fingerprint
    address: str
    certificate: Any


class InvitedDevice:
    """A node that has come: its conduct, and how much it asks."""

    def __init__(self, peer: Peer) -> None:
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes

        self.peer, self.connections = peer, 0
        self.conduct = Conduct(public_key_to_bytes(peer.certificate.public_key()))
        self.large = asyncio.Semaphore(_LARGE_OF_NODE)
        self.is_in, self.heard = False, time.monotonic()
        self._tokens = _BURST

    def pause(self) -> float:
        """A request comes; returns how long it has to wait."""
        now = time.monotonic()
        self._tokens = min(_BURST, self._tokens + (now - self.heard) * _RATE) - 1.0
        self.heard = now
        return max(0.0, -self._tokens / _RATE)


class Fence:
    """Serves one listening socket."""

    def __init__(self, roll: Roll, upstream: Path, log: FenceLog) -> None:
        self._roll, self._log = roll, log
        self._tls = tls_of(roll.folder)
        self._addresses: Counter[str] = Counter()
        self._shaking: Counter[str] = Counter()  # by address
        self._guests: dict[str, InvitedDevice] = {}  # by name
        self._large = asyncio.Semaphore(_LARGE_BODIES)
        transport = httpx.AsyncHTTPTransport(uds=str(upstream), limits=httpx.Limits(max_connections=64))
        self._upstream = httpx.AsyncClient(
            transport=transport, base_url="http://superlink", timeout=_UPSTREAM, trust_env=False
        )

    async def serve(self, listener: socket.socket) -> None:
        """Until it is cancelled."""
        listener.setblocking(False)
        loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()
        tasks.add(loop.create_task(self._sweep()))
        try:
            await self._accept(listener, tasks)
        finally:
            for guest in self._guests.values():
                self._leave(guest, "the server has ended")

    async def _accept(self, listener: socket.socket, tasks: set[asyncio.Task[None]]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                wire, (host, *_) = await loop.sock_accept(listener)
            except OSError:  # no more files may be open just now
                await asyncio.sleep(0.1)
                continue
            if not self._has_room(host):
                wire.close()
                self._log.refused("", "", host, "too many connections")
                continue
            self._addresses[host] += 1
            self._shaking[host] += 1
            task = loop.create_task(self._welcome(wire, host))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            await asyncio.sleep(0)  # to accept is not to wait: let the others have their turn

    def _has_room(self, host: str) -> bool:
        return (
            self._addresses.total() < _CONNECTIONS
            and self._addresses[host] < _PER_ADDRESS
            and self._shaking.total() < _HANDSHAKES
            and self._shaking[host] < _HANDSHAKES_PER_ADDRESS
        )

    async def _sweep(self) -> None:
        """Now and then: who has left, and what was only counted."""
        while True:
            await asyncio.sleep(_SWEEP)
            self._log.flush()
            for name, guest in list(self._guests.items()):
                if time.monotonic() - guest.heard > _SILENCE and not guest.connections:
                    self._leave(guest, f"nothing heard for {_SILENCE:.0f} s")
                    del self._guests[name]

    def _leave(self, guest: InvitedDevice, reason: str) -> None:
        if guest.is_in:
            guest.is_in = False
            self._log.left(guest.peer.name, guest.peer.key, guest.peer.address, reason)

    async def _welcome(self, wire: socket.socket, host: str) -> None:
        """A connection from its handshake to its end."""
        try:
            reader, writer = await self._handshake(wire, host)
        except (OSError, asyncio.IncompleteReadError) as error:
            reason = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else _reason(error)
            self._log.refused("", "", host, f"no certificate of this federation: {reason}")
            wire.close()
            self._gone(host)
            return
        try:
            with contextlib.suppress(OSError, h11.ProtocolError, asyncio.TimeoutError):
                await self._converse(reader, writer, host)
        finally:
            writer.transport.abort() if writer.is_closing() else writer.close()
            self._gone(host)

    def _gone(self, host: str) -> None:
        _less(self._addresses, host)

    async def _handshake(self, wire: socket.socket, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=2**16)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, wire, ssl=self._tls, ssl_handshake_timeout=_SHAKE, ssl_shutdown_timeout=2.0
            )
        finally:
            _less(self._shaking, host)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        """Requests one after another."""
        peer = _peer(writer, host)
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEADERS)
        stream = _Stream(http, reader, writer)
        guest = self._admitted(peer)
        async with _counted(guest):
            while isinstance(request := await stream.event(_IDLE), h11.Request):
                try:
                    status, kind, body = await self._answer(guest, peer, request, stream)
                except FenceRefusal as refusal:
                    self._log.refused(peer.name, peer.key, host, refusal.reason)
                    await stream.send(refusal.status, "text/plain", refusal.reason.encode(), last=True)
                    return
                await stream.send(status, kind, body)
                if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                    return
                http.start_next_cycle()

    def _admitted(self, peer: Peer) -> InvitedDevice | None:
        """Who this is, if it is on the roll."""
        if not self._roll.holds(peer.name, peer.certificate):
            return None
        guest = self._guests.get(peer.name)
        if guest is None or guest.peer.key != peer.key:  # new, or invited anew with another key
            guest = self._guests[peer.name] = InvitedDevice(peer)
        return guest

    async def _answer(
        self, guest: InvitedDevice | None, peer: Peer, request: h11.Request, stream: _Stream
    ) -> tuple[int, str, bytes]:
        """What the SuperLink says to a request that may pass."""
        route = route_of(request.method.decode("ascii"), request.target.decode("ascii", "replace"))
        if guest is None or not self._roll.holds(peer.name, peer.certificate):  # it may have been revoked just now
            raise FenceRefusal(
                "its certificate was revoked, or is not on the list of nodes", 401
            )  # Flower's node ends then
        if guest.connections > _PER_NODE:
            raise FenceRefusal("too many connections from one node", 429)
        await asyncio.sleep(guest.pause())
        length = dict(request.headers).get(b"content-length", b"0")
        if int(length) > ROUTES[route]:
            raise FenceRefusal(f"a request of more than {ROUTES[route]:,} bytes", 413)
        headers = {name: value for name, value in request.headers if name in _PASSED_ON or name.startswith(b"flwr-")}
        async with contextlib.AsyncExitStack() as places:
            for place in (guest.large, self._large) if ROUTES[route] > LARGE else ():
                await places.enter_async_context(place)
            body = await asyncio.wait_for(stream.body(ROUTES[route]), _REQUEST)
            guest.conduct.check(route, headers.get(KEY_HEADER.encode(), b"").decode("ascii", "replace"), body)
            try:
                reply = await self._upstream.post(PREFIX + route, content=body, headers=list(headers.items()))
            except httpx.TransportError:
                return 503, "text/plain", b"the server is not there just now"
        if reply.is_success:
            guest.conduct.note(route, reply.content)
        self._note(guest, peer, route, reply)
        return reply.status_code, reply.headers.get("content-type", "application/octet-stream"), reply.content

    def _note(self, guest: InvitedDevice, peer: Peer, route: str, reply: httpx.Response) -> None:
        """Joins, leaves, and what the SuperLink itself refuses."""
        if route == "activate-node" and reply.is_success:
            guest.is_in = True
            self._log.joined(peer.name, peer.key, peer.address)
        elif route == "deactivate-node" and reply.is_success:
            self._leave(guest, "said goodbye")
        elif reply.status_code in (401, 403) or (route == "activate-node" and not reply.is_success):
            self._log.refused(peer.name, peer.key, peer.address, f"Flower refused {route}: {reply.status_code}")


def _less(counts: Counter[str], host: str) -> None:
    counts[host] -= 1
    if not counts[host]:
        del counts[host]


class _Stream:
    """HTTP on one connection."""

    def __init__(self, http: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._http, self._reader, self._writer = http, reader, writer

    async def event(self, seconds: float) -> Any:
        """The next event; all of its headers, or some of its body, within so many seconds."""
        async with asyncio.timeout(seconds):
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(2**16))
        return event

    async def body(self, largest: int) -> bytes:
        """The body of a request; refused as soon as it is too large."""
        parts, size = list[bytes](), 0
        while isinstance(event := await self.event(_STALL), h11.Data):
            size += len(event.data)
            if size > largest:
                raise FenceRefusal(f"a request of more than {largest:,} bytes", 413)
            parts.append(bytes(event.data))
        if not isinstance(event, h11.EndOfMessage):
            raise ConnectionResetError("it ended in the middle")
        return b"".join(parts)

    async def send(self, status: int, kind: str, body: bytes, last: bool = False) -> None:
        """A whole response."""
        headers = [("content-type", kind), ("content-length", str(len(body)))]
        headers += [("connection", "close")] if last else []
        events = [h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()]
        for event in events:
            self._writer.write(self._http.send(event) or b"")
        async with asyncio.timeout(_REQUEST):
            await self._writer.drain()


@contextlib.asynccontextmanager
async def _counted(guest: InvitedDevice | None) -> AsyncIterator[None]:
    """One more connection of this node."""
    if guest is None:
        yield
        return
    guest.connections += 1
    try:
        yield
    finally:
        guest.connections -= 1


def _peer(writer: asyncio.StreamWriter, host: str) -> Peer:
    certificate = x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
    return Peer(name_in(certificate), fingerprint(certificate.public_key()), host, certificate)


def _reason(error: Exception) -> str:
    text = error.reason if isinstance(error, ssl.SSLError) else ""
    return (text or type(error).__name__).lower().replace("_", " ")


def tls_of(folder: Path) -> ssl.SSLContext:
    """The server's side of TLS: certificates of this authority only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.load_verify_locations(folder / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0  # every connection shows its certificate
    return context


async def _run(listener: socket.socket, keys: Path, upstream: Path, log: FenceLog) -> None:
    await Fence(Roll(keys), upstream, log).serve(listener)


def main(arguments: list[str]) -> None:
    """Serve until a signal comes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    listener = socket.socket(fileno=int(arguments[0]))
    log = FenceLog(Path(arguments[3]))
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(listener, Path(arguments[1]), Path(arguments[2]), log))
    log.flush(all=True)


if __name__ == "__main__":
    main(sys.argv[1:])
