"""What runs in a worker process of the pool engine (`engines/pool`).

It reads JSON messages from a pipe: `open` brings an experiment, its run folder, and what the asking process has set
since the fork server started (environment, current folder, allowed code); `do` runs a program as a device. The
fork server imports this module, and with it all that workers need; it must not start threads.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import multiprocessing
import os
import signal
import threading
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pydantic.type_adapter  # noqa: F401  (which every worker needs, and components.py imports when it is needed)
import torch

from wayfare.components import allow_code
from wayfare.core.device import Bench
from wayfare.core.errors import StoreError
from wayfare.core.protocols import Failure
from wayfare.engines.pool import shared
from wayfare.engines.pool.processes import ONE_THREAD
from wayfare.engines.programs import perform
from wayfare.experiment import Experiment


def serve(connection: Connection) -> None:
    """Do what is asked until the other end closes."""
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks; it ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    bench: Bench | None = None
    opening: dict[str, Any] = {}
    while True:
        try:
            message = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        if "open" in message:
            opening, bench = message, None
            _adopt(message)
            with contextlib.suppress(Exception):  # built now to save time; if it fails, the first reply says why
                bench = _build(opening)
            continue
        try:
            bench = bench or _build(opening)
            reply = _perform(bench, message)
        except StoreError as error:  # a full disk is not the device's fault: leaving it out would change the result
            reply = {"stopped": str(error)}
        except Exception as error:
            reply = {"failed": f"{type(error).__name__}: {error}", "detail": traceback.format_exc()}
        try:
            connection.send_bytes(json.dumps(reply).encode())
        except OSError:
            return


def _end_with_parent() -> None:
    """End this process, whatever it is doing, when the one that asks is killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _adopt(opening: dict[str, Any]) -> None:
    """Take over what the asking process has set."""
    os.environ.clear()
    os.environ.update(opening["environment"] | ONE_THREAD)  # one thread: also in libraries that are loaded later
    os.chdir(opening["current"])
    allow_code(*opening["allow_code"])


def _build(opening: dict[str, Any]) -> Bench:
    """The experiment's bench, from its text."""
    return Experiment.from_toml(opening["open"]).bench(Path(opening["folder"]))


def _perform(bench: Bench, message: dict[str, Any]) -> dict[str, Any]:
    """Run one program and leave its reply in shared memory."""
    reply = perform(bench, message["do"], message["device"], shared.get(message["message"]), message["deadline"])
    if isinstance(reply, Failure):
        return {"failed": reply.reason, "detail": reply.detail}
    return {"reply": shared.put(reply, Path(message["reply"]))}
