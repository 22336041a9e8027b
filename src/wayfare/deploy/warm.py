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
_SHELL = '#!/bin/sh\nexec {python} -IS {script} {door} {real} "$@"\n'
_SCRIPT = """\
import json, os, socket, sys
door, real, *arguments = sys.argv[1:]
try:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(60)
        line.connect(door)
        line.sendall(json.dumps(arguments).encode() + b"\\n")
        if line.recv(1):
            sys.exit()
except OSError:
    pass
os.execv(real, [real, *arguments])
"""


@contextmanager
def warmed(home: Path, log: Path | None) -> Iterator[dict[str, str]]:
    """Keep a warm process; gives the environment in which Flower's node finds it."""
    with tempfile.TemporaryDirectory(prefix="wayfare-", ignore_cleanup_errors=True) as place:  # only its owner's
        door, env = Path(place) / "door", environment(home)
        _write_program(Path(place), door, program(_NAME))
        env["PATH"] = os.pathsep.join([place, env["PATH"]])
        # a fork has no threads but one, so its parent must not have begun any
        alone = {**env, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with started([sys.executable, "-m", "wayfare.deploy.warm", str(door)], alone, log):
            yield env


def _write_program(place: Path, door: Path, real: str) -> Path:
    """The program that passes its arguments on to the door, or becomes the real one."""
    script, shell = place / "pass_on.py", place / _NAME
    script.write_text(_SCRIPT, encoding="utf-8")
    parts = {"python": sys.executable, "script": script, "door": door, "real": real}
    shell.write_text(_SHELL.format(**{key: shlex.quote(str(part)) for key, part in parts.items()}), encoding="utf-8")
    shell.chmod(0o700)
    return shell


def _hire(door: str) -> list[str]:
    """Wait for work and fork for each; returns the arguments, in the fork."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a fork ended
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(door)
        listener.listen()
        while True:
            line, _ = listener.accept()
            with line, line.makefile("rb") as told:
                arguments: list[str] = json.loads(told.readline())
                if not os.fork():
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    line.sendall(b"1")
                    return arguments


def main(door: str) -> None:
    """Import everything, then be Flower's program as often as one is wanted."""
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp

    import wayfare.deploy.household
    import wayfare.engines.flower_memory
    import wayfare.engines.programs
    import wayfare.flower_app  # noqa: F401

    sys.argv = [_NAME, *_hire(door)]
    flwr_clientapp()


if __name__ == "__main__":
    main(sys.argv[1])
