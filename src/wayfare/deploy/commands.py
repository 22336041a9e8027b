"""Commands of Flower's command line, one after another in one process: most of their time goes into its imports."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from wayfare.core.errors import WayfareError
from wayfare.deploy.flower_tools import called


def flwr(commands: Sequence[Sequence[str]], env: Mapping[str, str], tolerated: str = "") -> list[str]:
    """Give Flower these commands; returns what each says. One that fails is an error, but for what is tolerated."""
    results = json.loads(called([sys.executable, "-m", __name__, json.dumps(commands)], env))
    for command, (status, text) in zip(commands, results):
        if status and not (tolerated and tolerated in text.lower()):
            raise WayfareError(f"`flwr {' '.join(command[:2])}` failed: {text.strip()[-1000:]}")
    return [text for _, text in results]


def _run(app: Any, command: list[str]) -> tuple[int, str]:
    with tempfile.TemporaryFile() as output:
        for handle in (1, 2):  # below Python: Flower plays with its standard output too
            os.dup2(output.fileno(), handle)
        try:
            app(command)
            status = 0
        except SystemExit as end:  # also where all went well
            status = 1 if end.code else 0
        except Exception:
            status = 1
            traceback.print_exc()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        output.seek(0)
        return status, output.read().decode(errors="replace")


def main(commands: list[list[str]]) -> None:
    """Run them, then print status and words of each."""
    from flwr.cli.app import app

    with os.fdopen(os.dup(1), "w") as out:
        out.write(json.dumps([_run(app, command) for command in commands]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
