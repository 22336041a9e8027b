"""Starting the server: its socket, its secrets, the address to open, and TLS where others may connect."""

from __future__ import annotations

import asyncio
import socket
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from wayfare.core.errors import ConfigError
from wayfare.serve.access import Keys
from wayfare.serve.application import build
from wayfare.serve.connections import PatientProtocol
from wayfare.serve.served import Settings
from wayfare.serve.workers import sandbox_fault

_HERE = ("127.0.0.1", "localhost")
_LEAST_PASSWORD = 12
_BACKLOG = 256


@dataclass(frozen=True)
class Lan:
    """What it takes to let other machines connect."""

    host: str  # the address to listen at
    names: Sequence[str]  # by which browsers call this server
    certificate: Path
    key: Path
    password: str

    def check(self) -> None:
        """Refuse what would not be safe."""
        if len(self.password) < _LEAST_PASSWORD:
            raise ConfigError(f"the password for --lan has fewer than {_LEAST_PASSWORD} characters")
        for file in (self.certificate, self.key):
            if not file.is_file():
                raise ConfigError(f"--lan needs TLS: there is no file {file}")


def launch(settings: Settings, port: int, lan: Lan | None, *, open_browser: bool, say: Callable[[str], None]) -> None:
    """Serve until interrupted."""
    if lan is not None:
        lan.check()
    scheme, host = ("http", _HERE[0]) if lan is None else ("https", lan.host)
    sock = _bound(host, port)
    number = sock.getsockname()[1]
    names = _HERE if lan is None else tuple(dict.fromkeys([*lan.names, *_HERE]))
    keys = Keys(password="" if lan is None else lan.password)
    fault = asyncio.run(sandbox_fault())
    if fault:
        say(f"photos are decoded in a process with limits, but without a sandbox: {fault}")
    app = build(settings, keys, _hosts(names, number, scheme), scheme=scheme, sandboxed=not fault)
    address = f"{scheme}://{names[0]}:{number}/"
    say(f"{address}?token={keys.token}")
    if lan is not None:
        say(f"others: {address} with the password")
    if open_browser:
        webbrowser.open(f"{address}?token={keys.token}")
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, date_header=False, lifespan="on",
        timeout_keep_alive=20, timeout_graceful_shutdown=3, ws="none", http=PatientProtocol,
        ssl_certfile=None if lan is None else str(lan.certificate), ssl_keyfile=None if lan is None else str(lan.key),
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[sock])


def _bound(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise ConfigError(
            f"cannot listen at {host}:{port}: {error.strerror or error}; choose another --port"
        ) from error
    sock.listen(_BACKLOG)
    return sock


def _hosts(names: Sequence[str], port: int, scheme: str) -> frozenset[str]:
    """What a Host header may say."""
    usual = 443 if scheme == "https" else 80
    return frozenset(f"{name.lower()}:{port}" for name in names) | (
        frozenset(name.lower() for name in names) if port == usual else frozenset()
    )
