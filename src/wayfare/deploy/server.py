"""The server of a federation: a SuperLink, the nodes that may join it, and a run that goes through it.

What Flower keeps is in RUN/flower: its database, its log, the app that it starts (which is only a name: Wayfare is
installed on every machine), the job, and what is heard of it.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wayfare.core import errors
from wayfare.core.errors import ConfigError, DeviceError, StoreError, WayfareError
from wayfare.core.locks import await_end, held, holder
from wayfare.deploy.commands import flwr
from wayfare.deploy.flower_tools import environment, program, started, tail
from wayfare.deploy.local_folder import check_federable
from wayfare.experiment import Experiment

Listener = Callable[[str, dict[str, Any]], None]
_UP = 90.0  # seconds within which the SuperLink must answer
_LOOK = 0.5  # seconds between two looks at what has happened
_ASK = 60.0  # seconds between two questions to Flower whether a run that has not begun still is one
_SUPERLINK, _RUN = "superlink.lock", "run.lock"  # held by Flower's process, and by the one that runs the rounds
_LINK = "wayfare"  # the name of the connection in Flower's settings

_APP = """\
[project]
name = "wayfare-federation"
version = "1.0.0"
description = "The installed Wayfare, on both sides"
dependencies = []
[tool.flwr.app]
publisher = "wayfare"
[tool.flwr.app.components]
serverapp = "wayfare.deploy.server_app:app"
clientapp = "wayfare.deploy.client_app:app"
"""


@dataclass(frozen=True)
class Address:
    """Where the server listens."""

    host: str
    port: int

    @classmethod
    def read(cls, text: str) -> Address:
        """From HOST:PORT."""
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(f"{text!r} is not an address: expected HOST:PORT, such as 127.0.0.1:8000")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def near(self) -> Address:
        """The same as seen from this machine."""
        return Address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host), self.port)


def serve(
    experiment: Experiment | None,
    folder: Path,
    *,
    listen: Address,
    certificates: Path | None,
    nodes: int,
    wait: float,
    notify: Listener,
    rounds: int = 0,
) -> dict[str, Any]:
    """Run an experiment with real devices (None: go on with the one in the folder); returns the summary.

    Without `certificates` anybody can join and read along: for a trial on one machine.
    """
    place = folder / "flower"
    keys = _public_keys(certificates) if certificates else []
    nodes = nodes or len(keys)
    if not nodes:
        raise ConfigError("--nodes is missing: how many devices to wait for (certificates would say it)")
    job = _job(experiment, folder, nodes, wait, rounds)
    place.mkdir(parents=True, exist_ok=True)
    with held(place / "server.lock", os.getpid()):
        return _serve(job, place, listen=listen, certificates=certificates, keys=keys, notify=notify)


def _serve(
    job: dict[str, Any],
    place: Path,
    *,
    listen: Address,
    certificates: Path | None,
    keys: list[Path],
    notify: Listener,
) -> dict[str, Any]:
    # Of an earlier server that was killed. A SuperLink that ends stops listening seconds before it is gone: until
    # then what it has started would come to ours, take work there, and let it fall when it is ended.
    for lock in (place / _SUPERLINK, place / _RUN):
        if earlier := holder(lock):
            notify(
                "warning",
                {"text": f"an earlier server of this run was killed: waiting until its process {earlier} ends"},
            )
        await_end(lock)
    for old in ("outcome.json", "events.jsonl", _RUN):
        (place / old).unlink(missing_ok=True)
    _check_free(listen)
    (place / "job.json").write_text(json.dumps(job), encoding="utf-8")
    (place / "app").mkdir(exist_ok=True)
    (place / "app" / "pyproject.toml").write_text(_APP, encoding="utf-8")
    (place / "config.toml").write_text(_connection(listen, certificates), encoding="utf-8")
    env = environment(place, WAYFARE_JOB=str((place / "job.json").absolute()))
    log = place / "superlink.log"
    with started(_superlink(listen, place, certificates), env, log, place / _SUPERLINK) as process:
        _wait_until_up(listen, certificates, process, log)
        registered = [["supernode", "register", str(key.absolute()), _LINK, "--name", key.stem] for key in keys]
        begun = ["run", str(place / "app"), _LINK, "--format", "json"]
        *_, answer = flwr([*registered, begun], env, tolerated="already")  # nodes may have been let in before
        notify("listening", {"address": str(listen), "nodes": job["nodes"]})
        return _outcome(place, process, str(json.loads(answer)["run-id"]), env=env, log=log, notify=notify)


def _job(experiment: Experiment | None, folder: Path, nodes: int, wait: float, rounds: int) -> dict[str, Any]:
    before = folder / "flower" / "job.json"
    if experiment is None:
        if not (folder / "experiment.toml").exists() or not before.exists():
            raise StoreError(f"{folder} holds no federation to go on with")
        run = json.loads(before.read_text(encoding="utf-8"))["run"]
        text = ""
    else:
        if (folder / "experiment.toml").exists():
            raise StoreError(f"{folder} already holds a run: go on with it by --resume, or choose another folder")
        check_federable(experiment)
        run, text = secrets.token_hex(8), experiment.to_toml()
    return {
        "experiment": text, "folder": str(folder.absolute()), "run": run, "nodes": nodes, "wait": wait,
        "rounds": rounds,
    }  # fmt: skip


def _superlink(listen: Address, place: Path, certificates: Path | None) -> list[str]:
    command = [
        program("flower-superlink"), "--host", listen.host, "--port", str(listen.port),
        "--database", str((place / "state.db").absolute()), "--disable-runtime-dependency-installation",
    ]  # fmt: skip
    if certificates is None:
        return [*command, "--insecure"]
    files = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.pem", "--ssl-keyfile": "server.key"}
    for option, name in files.items():
        if not (certificates / name).is_file():
            raise ConfigError(f"no {name} in {certificates}: make it with `wayfare federate keys --out {certificates}`")
        command += [option, str((certificates / name).absolute())]
    return [*command, "--enable-supernode-auth"]


def _connection(listen: Address, certificates: Path | None) -> str:
    """Flower's own settings for its command line."""
    secured = f"root-certificates = {json.dumps(str((certificates / 'ca.crt').absolute()))}" if certificates else ""
    lines = ["[superlink]", f'default = "{_LINK}"', f"[superlink.{_LINK}]", f'address = "{listen.near}"']
    return "\n".join([*lines, secured or "insecure = true"]) + "\n"


def _public_keys(certificates: Path) -> list[Path]:
    keys = sorted((certificates / "nodes").glob("*.pub"))
    if not keys:
        raise ConfigError(
            f"no keys of nodes in {certificates / 'nodes'}: make them with `wayfare federate keys --out {certificates} "
            "--node NAME`"
        )
    return keys


def _check_free(listen: Address) -> None:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((listen.host, listen.port))
        except OSError as error:
            raise ConfigError(f"cannot listen on {listen}: {error.strerror}. Choose another --listen") from error


def _wait_until_up(listen: Address, certificates: Path | None, process: Any, log: Path) -> None:
    scheme, context = "http", None
    if certificates:
        scheme, context = "https", ssl.create_default_context(cafile=str(certificates / "ca.crt"))
    reason, end = "", time.monotonic() + _UP
    while time.monotonic() < end:
        if process.poll() is not None:
            raise WayfareError(f"Flower's SuperLink ended at once:\n{tail(log)}")
        try:
            handler = urllib.request.ProxyHandler({})  # a proxy has no part in this
            opener = urllib.request.build_opener(handler, urllib.request.HTTPSHandler(context=context))
            with opener.open(f"{scheme}://{listen.near}/health", timeout=5):
                return
        except urllib.error.HTTPError:
            return  # it answers
        except OSError as error:
            reason = str(error)
            if "CERTIFICATE_VERIFY_FAILED" in reason:
                raise ConfigError(
                    f"the certificate in {certificates} is not for {listen.near.host}: {reason}. "
                    f"Make keys anew, in another folder: wayfare federate keys --host {listen.near.host} ..."
                ) from error
        time.sleep(_LOOK)
    raise WayfareError(f"Flower's SuperLink does not answer on {listen.near}: {reason}")


def _outcome(
    place: Path, process: Any, run: str, *, env: dict[str, str], log: Path, notify: Listener
) -> dict[str, Any]:
    """Pass on what is heard until the run is over."""
    events, asked = _events(place / "events.jsonl"), time.monotonic()
    done = place / "outcome.json"
    while True:
        over = done.exists()  # before the last events are read
        for event in next(events):
            notify(event["event"], event["data"])
        if over:
            return _summary(json.loads(done.read_text(encoding="utf-8")))
        if process.poll() is not None:
            raise WayfareError(f"Flower's SuperLink has ended:\n{tail(log)}")
        runner = holder(place / _RUN)
        ended = runner == 0
        if runner is None and time.monotonic() - asked > _ASK:  # it has not even begun
            asked, ended = time.monotonic(), _is_over(run, env)
        if ended and not done.exists():
            raise WayfareError(f"the server's process has ended without a word:\n{tail(log)}")
        time.sleep(_LOOK)


def _is_over(run: str, env: dict[str, str]) -> bool:
    """Whether Flower takes the run for finished."""
    listing = json.loads(flwr([["list", _LINK, "--run-id", run, "--format", "json"]], env)[0])
    return any(str(each.get("status", "")).startswith("finished") for each in listing.get("runs", []))


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
