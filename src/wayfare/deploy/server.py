"""The server of a federation: a SuperLink, the fence before it, the nodes that may pass, and a run through it.

What Flower keeps is in RUN/flower: its database, the logs, the job, what is heard of it, and fence.jsonl, which says
who joined, who left and who was refused.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

from wayfare.components import allowed_code
from wayfare.core import errors
from wayfare.core.errors import ConfigError, DeviceError, StoreError, WayfareError
from wayfare.core.locks import await_end, held, holder
from wayfare.deploy.control import Control
from wayfare.deploy.flower_tools import environment, module, program, started, tail
from wayfare.deploy.keys import Roll
from wayfare.deploy.local_folder import check_federable
from wayfare.experiment import Experiment
from wayfare.io.address import Address

Listener = Callable[[str, dict[str, Any]], None]
_UP = 90.0  # seconds within which the SuperLink must answer
_LOOK = 0.5  # seconds between two looks at what has happened
_ASK = 60.0  # seconds between two questions to Flower whether a run that has not begun still is one
_SUPERLINK, _FENCE, _RUN = "superlink.lock", "fence.lock", "run.lock"  # held by the processes; the last runs the rounds
_SEEN = "fence.jsonl"


def serve(
    experiment: Experiment | None,
    folder: Path,
    *,
    listen: Address,
    certificates: Path,
    nodes: int,
    wait: float,
    notify: Listener,
    rounds: int = 0,
    allow_changed: Collection[str] = (),
) -> dict[str, Any]:
    """Run an experiment with real devices (None: go on with the one in the folder); returns the summary.

    Those may take part whose certificates are in the folder `certificates`.
    """
    place, roll = folder / "flower", Roll(certificates.absolute())
    roll.check()
    nodes = nodes or len(roll.names())
    if not nodes:
        raise ConfigError(
            f"nobody has been invited in {certificates}: run `wayfare federate invite NAME --server HOST:PORT`"
        )
    job = _job(experiment, folder, nodes, wait, rounds) | {"allow_changed": list(allow_changed)}
    place.mkdir(parents=True, exist_ok=True)
    if sys.platform != "linux":
        notify("warning", {"text": "on this system other users of this machine are kept out by a secret only"})
    with held(place / "server.lock", os.getpid()):
        return _serve(job, place, listen=listen, roll=roll, notify=notify)


def _serve(job: dict[str, Any], place: Path, *, listen: Address, roll: Roll, notify: Listener) -> dict[str, Any]:
    _await_earlier(place, notify)
    for old in ("outcome.json", "events.jsonl", _RUN):
        (place / old).unlink(missing_ok=True)
    (place / "job.json").write_text(json.dumps(job), encoding="utf-8")
    env = environment(place, WAYFARE_JOB=str((place / "job.json").absolute()))
    with ExitStack() as stack:
        # Only its owner can enter this folder; and the name of a socket must be short, which that of a run may not be.
        private = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wayfare-")))
        public = stack.enter_context(_listening(listen))
        process, port = stack.enter_context(_superlink(private, place, env))
        control = stack.enter_context(Control(private / "socket"))
        _wait_until_up(control, process, place / "superlink.log")
        control.register(roll)
        run = control.start_run()
        stack.enter_context(_superexec(port, private, place, env))
        fence = [*module("fence"), str(public.fileno()), str(roll.folder), str(private / "socket"), str(place / _SEEN)]
        door = stack.enter_context(
            started(fence, env, place / "fence.log", lock=place / _FENCE, handles=[public.fileno()])
        )
        notify("listening", {"address": str(listen), "nodes": job["nodes"]})
        programs = {place / "superlink.log": process, place / "fence.log": door}
        return _outcome(place, programs, run, control=control, roll=roll, notify=notify)


def _await_earlier(place: Path, notify: Listener) -> None:
    """Wait until the programs of an earlier server of this run, which was killed, have ended.

    What they have started would otherwise go on to write into the run's folder.
    """
    for lock in (place / _SUPERLINK, place / _FENCE, place / _RUN):
        if earlier := holder(lock):
            notify(
                "warning",
                {"text": f"an earlier server of this run was killed: waiting until its process {earlier} ends"},
            )
        await_end(lock)


@contextmanager
def _superlink(private: Path, place: Path, env: dict[str, str]) -> Iterator[tuple[Popen[bytes], int]]:
    """Flower's SuperLink on a socket in the private folder; gives its process, and the port for its own apps."""
    secret = private / "secret"
    secret.touch(mode=0o600)
    secret.write_bytes(secrets.token_bytes(32))
    with socket.socket(socket.AF_UNIX) as owner, socket.create_server(("127.0.0.1", 0)) as apps:
        owner.bind(str(private / "socket"))
        (private / "socket").chmod(0o600)
        owner.listen()
        handles = [owner.fileno(), apps.fileno()]
        command = [*module("superlink"), *map(str, handles), str((place / "state.db").absolute()), str(secret)]
        with started(command, env, place / "superlink.log", lock=place / _SUPERLINK, handles=handles) as process:
            yield process, int(apps.getsockname()[1])


def _superexec(port: int, private: Path, place: Path, env: dict[str, str]) -> AbstractContextManager[Popen[bytes]]:
    """What starts the run's process when the SuperLink asks for it."""
    options = ["--runtime-api-address", f"127.0.0.1:{port}", "--superexec-auth-secret-file", str(private / "secret")]
    command = [program("flower-superexec"), "--insecure", *options, "--parent-pid", str(os.getpid())]
    return started(command, env, place / "superlink.log")


def _listening(listen: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    try:
        return socket.create_server((listen.host, listen.port), family=family, backlog=128)
    except OSError as error:
        raise ConfigError(f"cannot listen on {listen}: {error.strerror}. Choose another --listen") from error


def _job(experiment: Experiment | None, folder: Path, nodes: int, wait: float, rounds: int) -> dict[str, Any]:
    before = folder / "flower" / "job.json"
    if experiment is None:
        if not (folder / "experiment.toml").exists() or not before.exists():
            raise StoreError(f"{folder} holds no federation to continue")
        run = json.loads(before.read_text(encoding="utf-8"))["run"]
        text = ""
    else:
        if (folder / "experiment.toml").exists():
            raise StoreError(f"{folder} already holds a run: continue it with --resume, or choose another folder")
        check_federable(experiment)
        run, text = secrets.token_hex(8), experiment.to_toml()
    return {
        "experiment": text, "folder": str(folder.absolute()), "run": run, "nodes": nodes, "wait": wait,
        "rounds": rounds, "allow_code": allowed_code(),
    }  # fmt: skip


def _wait_until_up(control: Control, process: Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _UP
    while time.monotonic() < end:
        if process.poll() is not None:
            raise WayfareError(f"Flower's SuperLink ended at once:\n{tail(log)}")
        if control.is_up():
            return
        time.sleep(_LOOK)
    raise WayfareError(f"Flower's SuperLink does not answer within {_UP:.0f} s:\n{tail(log)}")


def _outcome(
    place: Path, programs: dict[Path, Popen[bytes]], run: int, *, control: Control, roll: Roll, notify: Listener
) -> dict[str, Any]:
    """Pass on what is heard until the run is over."""
    events, asked, invited = _events(place / "events.jsonl"), time.monotonic(), roll.state()
    done = place / "outcome.json"
    while True:
        over = done.exists()  # before the last events are read
        for event in next(events):
            notify(event["event"], event["data"])
        if over:
            return _summary(json.loads(done.read_text(encoding="utf-8")))
        for log, process in programs.items():
            if process.poll() is not None:
                raise WayfareError(f"a program of this server has ended, see {log}:\n{tail(log)}")
        if invited != (now := roll.state()):  # somebody was invited or revoked
            invited = now
            control.register(roll)
        runner = holder(place / _RUN)
        ended = runner == 0
        if runner is None and time.monotonic() - asked > _ASK:  # it has not even begun
            asked, ended = time.monotonic(), control.is_over(run)
        if ended and not done.exists():
            raise WayfareError(f"the server's process ended without a message:\n{tail(place / 'superlink.log')}")
        time.sleep(_LOOK)


def _events(path: Path) -> Iterator[list[dict[str, Any]]]:
    """Whole lines that have come since the last look."""
    read = 0
    while True:
        data = path.read_bytes()[read:] if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        read += len(whole)
        yield [json.loads(line) for line in whole.splitlines()]


def _summary(outcome: dict[str, Any]) -> dict[str, Any]:
    """The summary, or the error that there was, as it was."""
    if "summary" in outcome:
        return dict(outcome["summary"])
    kind = getattr(errors, outcome["kind"], WayfareError)
    if not (isinstance(kind, type) and issubclass(kind, WayfareError)) or kind is DeviceError:
        kind = WayfareError
    raise kind(outcome["error"] if kind is not WayfareError else f"{outcome['kind']}: {outcome['error']}")
