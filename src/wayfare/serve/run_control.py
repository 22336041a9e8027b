"""Starting, stopping and continuing runs: each is a process of its own, the same command that a person would type."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from wayfare.core.errors import ConfigError, StoreError
from wayfare.serve.run_watch import holder
from wayfare.serve.templating import lines

MOST = 2  # runs that were started here and still go on
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_LOGS = ".serve"  # in the folder of runs
_TAIL = 4000  # bytes of a log


class RunControl:
    """The runs that this server started. They go on when it ends."""

    def __init__(self, folder: Path | None, allow_code: Sequence[str] = ()) -> None:
        self._folder, self._allowed = folder, [part for name in allow_code for part in ("--allow-code", name)]
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def root(self) -> Path:
        """The folder of runs."""
        if self._folder is None:
            raise ConfigError("no folder of runs was given: `wayfare serve RUNS_DIR`")
        return self._folder

    def start(self, name: str, recipe: Path, settings: Sequence[str]) -> Path:
        """Begin a run in a new folder."""
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} cannot be a run's name: expected at most 63 letters, digits, - and _")
        place = self.root / name
        if place.exists():
            raise ConfigError(f"a run {name!r} already exists: choose another name")
        given = [part for setting in settings for part in ("--set", setting)]
        self._begin(name, ["run", str(recipe), "--out", str(place), *given])
        return place

    def resume(self, path: Path, rounds: int | None) -> None:
        """Continue a run where it stopped, or up to a new total of rounds."""
        if holder(path):
            raise ConfigError("this run is already running")
        more = [] if rounds is None else ["--rounds", str(rounds)]
        self._begin(path.name, ["resume", str(path), *more])

    def stop(self, path: Path) -> None:
        """End a run after what it has committed; it can be continued."""
        process = holder(path)
        if not process:
            raise ConfigError("this run is not running")
        try:
            os.kill(process, signal.SIGINT)
        except OSError as error:
            raise StoreError(f"the run cannot be stopped: {error.strerror}") from error

    def insist(self, path: Path, process: int) -> None:
        """End a run that did not heed the first signal."""
        if process and holder(path) == process:
            with suppress(OSError):
                os.kill(process, signal.SIGTERM)

    def starting(self, name: str) -> bool:
        """Whether the process that was started for a run still lives."""
        return name in self._started and self._started[name].poll() is None

    def log(self, path: Path) -> str:
        """The last lines of what a run said that was started here."""
        file = self.root / _LOGS / f"{path.name}.log"
        try:
            with file.open("rb") as opened:
                opened.seek(max(0, file.stat().st_size - _TAIL))
                return lines(opened.read().decode("utf-8", "replace"))
        except OSError:
            return ""

    def _begin(self, name: str, arguments: Sequence[str]) -> None:
        if sum(process.poll() is None for process in self._started.values()) >= MOST:
            raise ConfigError(f"{MOST} runs started here are still running: stop one, or wait")
        logs = self.root / _LOGS
        logs.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-P", "-m", "wayfare", *arguments, *self._allowed, "--json"]
        with (logs / f"{name}.log").open("wb") as log:
            self._started[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True
            )
