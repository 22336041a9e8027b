"""A warm process on a node. Flower starts a program for every message, and imports would be most of what it does.

Flower finds that program by its name, so a node puts another of that name first on its path. It only passes its
arguments on, through a socket, to the process here, which has imported everything and forks. Where nobody answers, it
becomes Flower's own program.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wayfare.deploy.flower_tools import environment, program, started

_NAME = "flwr-clientapp"
_SHELL = '#!/bin/sh\nexec {python} -IS {script} {address} {real} "$@"\n'
_SCRIPT = """\
import json, os, socket, sys
address, real, *arguments = sys.argv[1:]
try:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(address)
        connection.sendall(json.dumps(arguments).encode() + b"\\n")
        if connection.recv(1):
            sys.exit()
except OSError:
    pass
os.execv(real, [real, *arguments])
"""


@contextmanager
def warm_process(home: Path, log: Path | None) -> Iterator[dict[str, str]]:
    """Keep a warm process; gives the environment in which Flower's node finds it."""
    with tempfile.TemporaryDirectory(prefix="wayfare-", ignore_cleanup_errors=True) as place:  # only its owner's
        address, env = Path(place) / "address", environment(home)
        _write_program(Path(place), address, program(_NAME))
        env["PATH"] = os.pathsep.join([place, env["PATH"]])
        # a fork has no threads but one, so its parent must not have begun any
        one_thread = {**env, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with started([sys.executable, "-P", "-m", "wayfare.deploy.warm_process", str(address)], one_thread, log):
            yield env


def _write_program(place: Path, address: Path, real: str) -> Path:
    """The program that passes its arguments on to the socket, or becomes the real one."""
    script, shell = place / "pass_on.py", place / _NAME
    script.write_text(_SCRIPT, encoding="utf-8")
    parts = {"python": sys.executable, "script": script, "address": address, "real": real}
    shell.write_text(_SHELL.format(**{key: shlex.quote(str(part)) for key, part in parts.items()}), encoding="utf-8")
    shell.chmod(0o700)
    return shell


def _wait_for_work(address: str) -> list[str]:
    """Wait for work and fork for each; returns the arguments, in the fork."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a fork ended
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as request:
                arguments: list[str] = json.loads(request.readline())
                if not os.fork():
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    connection.sendall(b"1")
                    return arguments


def main(address: str) -> None:
    """Import everything, then be Flower's program as often as one is needed."""
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp

    sys.argv = [_NAME, *_wait_for_work(address)]
    flwr_clientapp()


if __name__ == "__main__":
    main(sys.argv[1])
