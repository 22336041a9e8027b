"""A node of a federation: a SuperNode of Flower whose device has one folder of photographs.

What it keeps is in its home folder: what it remembers of each run, its log, its settings.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

from wayfare.core.errors import ConfigError
from wayfare.deploy.flower_tools import program, started
from wayfare.deploy.keys import check_name
from wayfare.deploy.server import Address
from wayfare.deploy.warm_process import warm_process

_PAUSE = 15.0  # seconds between two tries to join
_PATIENCE = 150.0  # seconds of tries: for one, a SuperLink lets nobody in for a minute who seems to be there still
_LONG = 60.0  # seconds after which it had joined: the tries begin anew


@dataclass(frozen=True)
class Node:
    """Who joins what, with which photographs."""

    server: Address
    photos: Path
    name: str
    home: Path
    key: Path | None = None  # the private key; without one the connection is open to everybody
    authority: Path | None = None  # the certificate that vouches for the server

    def __post_init__(self) -> None:
        check_name(self.name)
        if not self.photos.is_dir():
            raise ConfigError(f"--photos {self.photos}: no such folder")
        if (self.key is None) != (self.authority is None):
            raise ConfigError("--key and --authority belong together: the node's private key, and the server's ca.crt")
        for option, file in (("--key", self.key), ("--authority", self.authority)):
            if file is not None and not file.is_file():
                raise ConfigError(f"{option} {file}: no such file")

    def command(self) -> list[str]:
        """Flower's program with everything it needs; writes the settings that it reads."""
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        settings = {"photos": self.photos.absolute(), "name": self.name, "home": self.home.absolute()}
        file = self.home / "node.toml"
        lines = [f"{key} = {json.dumps(str(value), ensure_ascii=False)}" for key, value in settings.items()]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [
            program("flower-supernode"), "--superlink", str(self.server), "--host", "127.0.0.1",
            "--port", str(_free_port()), "--node-config", str(file.absolute()),
        ]  # fmt: skip
        if self.key is None or self.authority is None:
            return [*command, "--insecure"]
        keys = ["--root-certificates", str(self.authority.absolute())]
        return [*command, *keys, "--auth-supernode-private-key", str(self.key.absolute())]

    @contextmanager
    def running(self, log: Path | None = None) -> Iterator[Callable[[], AbstractContextManager[Popen[bytes]]]]:
        """Keep what a node needs beside Flower's program; gives what starts that program."""
        with warm_process(self.home / "flower", log) as env:
            yield lambda: started(self.command(), env, log)

    def join(self, log: Path | None = None) -> int:
        """Take part until interrupted, or refused for some time; returns the program's exit status.

        A node that comes before its server has registered the keys is refused, and so is one that was killed and comes
        back before its server has noticed. And Flower's program ends, as if all were well, when another server has
        taken the place of the one that it knew.
        """
        with self.running(log) as start:
            end = time.monotonic() + _PATIENCE
            while True:
                began = time.monotonic()
                with start() as process:
                    status = process.wait()
                if time.monotonic() - began > _LONG:
                    end = time.monotonic() + _PATIENCE
                if time.monotonic() > end:
                    return status
                time.sleep(_PAUSE)


def _free_port() -> int:
    """A port on this machine: Flower's node talks to its own processes there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
