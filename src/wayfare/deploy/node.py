"""A node of a federation: a SuperNode of Flower whose device has one folder of photographs.

What it keeps is in its home folder: its keys, what it remembers of each run, its own log and Flower's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any, Literal

from cryptography.hazmat.primitives import serialization

from wayfare.core.errors import ConfigError
from wayfare.core.locks import folder_held
from wayfare.deploy import sandbox
from wayfare.deploy.flower_tools import environment, module, program, started
from wayfare.deploy.invite import Invite
from wayfare.deploy.node_log import lines_since_now
from wayfare.deploy.relay import relay
from wayfare.io.address import Address
from wayfare.io.cache import cache_dir

Sandbox = Literal["auto", "off", "required"]
Start = Callable[[], AbstractContextManager[Popen[bytes]]]
_PAUSE = 15.0  # seconds between two tries to join
_PATIENCE = 150.0  # seconds of tries: for one, a SuperLink lets nobody in for a minute who seems to be there still
_LONG = 60.0  # seconds after which it had joined: the tries begin anew
_LOOK = 0.5  # seconds between two looks at its log


@dataclass(frozen=True)
class Node:
    """Who joins what, with which photographs."""

    invite: Invite
    photos: Path
    home: Path
    sandbox: Sandbox = "auto"
    allow_code: Sequence[str] = ()  # modules of the owner's own that the server's recipe may name
    server: Address | None = None  # if the server is reached by another way than the invitation says
    warm: bool = True  # keep a process that has imported everything; without, each message starts a fresh one

    def __post_init__(self) -> None:
        if not self.photos.is_dir():
            raise ConfigError(f"--photos {self.photos}: no such folder")

    def settle(self) -> None:
        """Write the keys of the invitation and Flower's settings into the home folder."""
        program("flower-supernode")  # says what to install, if it is not there
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = serialization.load_pem_private_key(self.invite.key.encode(), password=None)
        ssh, no_password = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        node: dict[str, object] = {
            "photos": self.photos.absolute(),
            "name": self.invite.name,
            "home": self.home.absolute(),
        }
        node["allow_code"] = " ".join(self.allow_code)
        config = [f"{key} = {json.dumps(str(value), ensure_ascii=False)}\n" for key, value in node.items()]
        files = {
            "ca.crt": self.invite.authority.encode(), "node.crt": self.invite.certificate.encode(),
            "node.key": self.invite.key.encode(), "node.toml": "".join(config).encode(),
            "flower.key": key.private_bytes(serialization.Encoding.PEM, ssh, no_password),
        }  # fmt: skip
        for name, data in files.items():
            with os.fdopen(os.open(self.home / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(data)

    def _settings(self, place: Path) -> dict[str, Any]:
        home = self.home.absolute()
        files = {
            "authority": "ca.crt", "certificate": "node.crt", "key": "node.key", "flower_key": "flower.key",
            "node_config": "node.toml",
        }  # fmt: skip
        settings: dict[str, Any] = {key: str(home / name) for key, name in files.items()}
        settings |= {"relay": str(place / "relay"), "secret": str(place / "secret"), "home": str(home)}
        return settings | {"server": self.invite.server, "app": self.invite.app, "warm": self.warm}

    @contextmanager
    def running(self, log: Path | None = None, notify: Callable[[str], None] = print) -> Iterator[Start]:
        """Keep what a node needs beside Flower's program; gives what starts that program."""
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with folder_held(self.home):  # two nodes there would exchange keys and memories
            yield from self._running(log or self.home / "flower.log", notify)

    def _running(self, log: Path, notify: Callable[[str], None]) -> Iterator[Start]:
        self.settle()
        fenced, cache = confined(self.sandbox, notify), cache_dir().absolute()
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="wayfare-", ignore_cleanup_errors=True) as folder:  # only its owner's
            place = Path(folder)
            (place / "settings.json").write_text(json.dumps(self._settings(place)), encoding="utf-8")
            command = [*module("supernode"), str(place / "settings.json")]
            if fenced:
                free = [word for each in (self.home.absolute(), cache, place) for word in ("--writable", str(each))]
                kept = ["--read-only", str(self.photos.absolute())]
                command = [sys.executable, "-IS", sandbox.__file__, *free, *kept, "--", *command]
            env = environment(self.home / "flower", TMPDIR=folder, WAYFARE_CACHE=str(cache))
            with relay(place / "relay", self.server or Address.read(self.invite.server), notify):
                yield lambda: started(command, env, log, cwd=self.home)

    def join(self, notify: Callable[[str], None] = print) -> int:
        """Take part until interrupted, or refused for some time; returns the program's exit status.

        A node that comes before its server has registered the keys is refused, and so is one that was killed and comes
        back before its server has noticed. And Flower's program ends, as if all were well, when another server has
        taken the place of the one that it knew.
        """
        with self.running(notify=notify) as start:
            end, lines = time.monotonic() + _PATIENCE, lines_since_now(self.home)
            while True:
                began = time.monotonic()
                with start() as process:
                    status = _watched(process, lines, notify)
                if time.monotonic() - began > _LONG:
                    end = time.monotonic() + _PATIENCE
                if time.monotonic() > end:
                    return status
                time.sleep(_PAUSE)


def _watched(process: Popen[bytes], lines: Iterator[list[str]], notify: Callable[[str], None]) -> int:
    """Pass on what the node says until it ends; returns its status."""
    while True:
        status = process.poll()
        for line in next(lines):
            notify(line)
        if status is not None:
            return status
        time.sleep(_LOOK)


def confined(wish: Sandbox, notify: Callable[[str], None]) -> bool:
    """Whether the node will run in a sandbox; says so if it will not."""
    if wish == "off":
        notify("the sandbox is switched off: this node's programs have your rights and your network")
        return False
    done = subprocess.run([sys.executable, "-IS", sandbox.__file__, "--check"], capture_output=True, text=True)
    if done.returncode == 0:
        return True
    reason = (done.stderr.strip().splitlines() or ["it cannot be tried"])[-1]
    if wish == "required":
        raise ConfigError(f"this system has no sandbox for --sandbox required: {reason}")
    notify(f"no sandbox on this system ({reason}): this node's programs have your rights and your network")
    return False
