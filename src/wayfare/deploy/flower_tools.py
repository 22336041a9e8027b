"""Flower's own programs: where they are, their environment, how they are started and ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from wayfare.core.errors import ConfigError
from wayfare.core.locks import held, sign
from wayfare.engines.flower.simulation import QUIET, require

_QUICK = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5"}  # seconds between two looks for work, on one machine
_END = 15.0  # seconds that a program has to end by itself


def environment(home: Path, **more: str) -> dict[str, str]:
    """For Flower's programs: nothing is reported or installed, and everything that they keep is in `home`."""
    here = str(Path(sys.executable).parent)
    path = os.pathsep.join([here, os.environ.get("PATH", os.defpath)])  # they start each other by name
    return {**os.environ, **QUIET, **_QUICK, "PATH": path, "FLWR_HOME": str(home.absolute()), **more}


def module(name: str) -> list[str]:
    """The command for a module of ours as a program; the current folder is no place to import from."""
    return [sys.executable, "-P", "-m", f"wayfare.deploy.{name}"]


def program(name: str) -> str:
    """Where this program of Flower is."""
    require("flwr")
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise ConfigError(f"Flower's program {name!r} is not beside {sys.executable}: pip install 'wayfare[flower]'")
    return found


@contextlib.contextmanager
def started(
    command: Sequence[str],
    env: Mapping[str, str],
    log: Path | None,
    *,
    lock: Path | None = None,
    handles: Sequence[int] = (),
    cwd: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A program in the background, with a process group of its own; all of the group is ended at the end.

    It holds `lock` as long as it lives, even if this process is killed. It inherits the open files in `handles`.
    """
    with contextlib.ExitStack() as stack:
        out = None
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            out = stack.enter_context(log.open("ab"))
        with contextlib.ExitStack() as passing:
            passed = [passing.enter_context(held(lock, process=0))] if lock else []
            process = subprocess.Popen(
                list(command), env=dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None, pass_fds=[*passed, *handles],
                cwd=cwd,
            )  # fmt: skip
            for handle in passed:
                sign(handle, process.pid)
        try:
            yield process
        finally:
            _end(process)


def _end_with_parent() -> None:
    """Before the program begins: if we are killed, it is to end too, or it would keep the port."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _end(process: subprocess.Popen[bytes]) -> None:
    for each in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, each)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END)


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log."""
    try:
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
