"""What Flower starts as the server of a federation: it hands over the grid, and the run goes through it.

The job is a file that the environment names, and so is all that is said about it: Flower keeps no result of a run.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.serverapp import ServerApp

from wayfare.core.locks import held

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid

JOB = "WAYFARE_JOB"

app = ServerApp()


def main(grid: Grid, context: Context) -> None:
    """Run the job, and leave its outcome beside it."""
    place = Path(os.environ[JOB])
    job = json.loads(place.read_text(encoding="utf-8"))
    log = place.with_name("events.jsonl")
    with held(place.with_name("run.lock"), os.getpid()), log.open("a", encoding="utf-8") as events:

        def listen(event: str, data: dict[str, Any]) -> None:
            events.write(json.dumps({"event": event, "time": round(time.time(), 3), "data": data}) + "\n")
            events.flush()

        try:
            from wayfare.deploy.server_run import run_job

            outcome: dict[str, Any] = {"summary": run_job(grid, job, listen)}
        except Exception as error:
            outcome = {"kind": type(error).__name__, "error": str(error), "detail": traceback.format_exc()}
        kept = place.with_name("outcome.part")
        kept.write_text(json.dumps(outcome, default=str), encoding="utf-8")
        kept.replace(place.with_name("outcome.json"))


app.main()(main)
