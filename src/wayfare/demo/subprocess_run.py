"""A run in a process of its own: with all data in one place there is one client, which uses one core of several."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from wayfare.core import disk
from wayfare.core.errors import WayfareError
from wayfare.experiment import Experiment


class SubprocessRun:
    """Starts or resumes the run in this folder; a context manager that ends the process when it is left."""

    def __init__(self, experiment: Experiment, place: Path) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        recipe, self._log = place.with_suffix(".toml"), place.with_suffix(".log")
        disk.write(recipe, experiment.to_toml().encode())
        arguments = (
            ["resume", str(place)] if (place / "experiment.toml").exists() else ["run", str(recipe), "-o", str(place)]
        )
        command = [sys.executable, "-P", "-m", "wayfare", *arguments, "--engine", "local", "--track", "none", "--json"]
        paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, env=environment
            )

    def __enter__(self) -> SubprocessRun:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # if something else failed; its rounds are stored
        self._process.wait()

    def wait(self) -> None:
        """Until it is done; an error if it failed."""
        if self._process.wait():
            last = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            raise WayfareError(f"the run of {self._log.with_suffix('.toml')} failed: {' '.join(last)}")
