"""Flower's simulation, in a thread: its nodes are Ray actors on this machine, or on the cluster that RAY_ADDRESS names.

Flower wants to be the one who calls; here the run is. So its server part does nothing but hand over the grid (through
which messages go) and wait until the run is over.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from wayfare.core.errors import ConfigError, WayfareError

# Nothing is reported to anybody and nothing is installed while running. Some of it is read on import.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",  # a call after the end must not start another Ray
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # else Ray writes to standard output that an actor died; the engine says so
    "RAY_worker_niceness": "0",  # as the other engines' workers
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # actors see the GPUs that this process sees
}
HOME = "WAYFARE_NODE_HOME"  # the user's home folder, for actors
NODE = "wayfare.deploy.client_app"  # what a node runs: by name, since it knows all of Wayfare, an engine only the core
_START = 300.0  # seconds within which the simulation must stand
_STOP = 60.0  # seconds within which it must be gone
_NODES = 64  # at most: Flower looks at each of them ten times a second


def require(*packages: str) -> None:
    """Refuse to go on without these packages."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the engine 'flower' needs {' and '.join(missing)}, which is not installed: pip install 'wayfare[flower]'"
        )


class Simulation:
    """Nodes on this machine's cores. Devices get one of them in the order in which they are first asked."""

    nap = 0.005  # seconds between two looks for replies
    ours = True
    place = ""

    def __init__(self, devices: int, workers: int) -> None:
        os.environ.update(QUIET)
        if not os.environ.get("RAY_ADDRESS"):
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # it also keeps Ray on the loopback address
        self.grid: Any = None
        self._nodes: list[int] = []
        self._node_of: dict[str, int] = {}
        self._over, self._standing = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._folder = _folder()
        self._thread = threading.Thread(target=self._run, args=(devices, workers), name="flower", daemon=True)
        try:
            with self._borrowed_home():
                self._thread.start()
                self._wait(min(devices, _NODES))
        except BaseException:
            self.close()
            raise
        self.workers = self._actors(workers)

    def node_of(self, device: str) -> int:
        """The number of the node that runs this device."""
        return self._node_of.setdefault(device, self._nodes[len(self._node_of) % len(self._nodes)])

    def check(self) -> None:
        """Raise if the simulation has ended by itself."""
        if self._over.is_set():
            raise WayfareError(f"Flower's simulation ended: {self._error or 'no reason given'}") from self._error

    def begin(self) -> str:
        """A folder for one call: workers leave their process numbers there, and refuse to work when it is gone."""
        return tempfile.mkdtemp(prefix="call", dir=self._folder)

    def end(self, sign_in: str) -> None:
        """Remove the folder and kill those who are still at work; Ray starts them again."""
        gone = Path(sign_in).rename(f"{sign_in}-over")  # at once: nobody can sign in any more
        for mark in gone.iterdir():
            if _is_actor(mark.name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(mark.name), signal.SIGKILL)
        shutil.rmtree(gone)

    def close(self) -> None:
        """End it."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP)
        shutil.rmtree(self._folder, ignore_errors=True)

    # ---- in the thread; it also is the parent of Ray's processes, which end with it

    def _run(self, devices: int, workers: int) -> None:
        try:
            from flwr.serverapp import ServerApp
            from flwr.simulation import run_simulation

            logging.getLogger("flwr").setLevel(logging.CRITICAL)  # what goes wrong on a node is told by the engine
            server = ServerApp()
            server.main()(self._hand_over)
            # Ray's own settings of an actor pass through Flower with the resources: one that dies is started again and
            # asked once more, where Flower alone would send everything else to the dead one.
            actor: dict[str, Any] = {"num_cpus": 1, "num_gpus": 0.0, "max_restarts": -1, "max_task_retries": 1}
            _start_ray(self._settings(workers))
            if os.environ.get("RAY_ADDRESS"):
                _let_actors_move()
            run_simulation(
                server,
                importlib.import_module(NODE).app,
                num_supernodes=min(devices, _NODES),
                backend_config={"client_resources": actor},
            )
        except BaseException as error:
            self._error = error
        finally:
            self._over.set()

    def _settings(self, workers: int) -> dict[str, Any]:
        talk: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if os.environ.get("RAY_ADDRESS"):
            return talk  # a cluster has its own size and folders
        return {**talk, "num_cpus": workers, "_temp_dir": str(self._folder)}

    def _hand_over(self, grid: Any, context: Any) -> None:
        self.grid = grid
        self._standing.set()
        self._over.wait()

    # ---- while it starts

    def _wait(self, nodes: int) -> None:
        end = time.monotonic() + _START
        while len(self._nodes) < nodes or not self._is_up():
            self.check()
            if time.monotonic() > end:
                raise WayfareError(f"Flower's simulation did not start within {_START:.0f} s")
            time.sleep(0.02)
            if self._standing.is_set():
                self._nodes = sorted(self.grid.get_node_ids())

    def _is_up(self) -> bool:
        return bool(_ray().is_initialized())

    def _actors(self, workers: int) -> int:
        return int(_ray().cluster_resources().get("CPU", workers)) if os.environ.get("RAY_ADDRESS") else workers

    @contextlib.contextmanager
    def _borrowed_home(self) -> Iterator[None]:
        """Start Ray with a home folder of its own, in which it finds a description of its cluster, an empty one.

        Where there is none, Ray asks the metadata services of three clouds where it is, even with its reports off.
        """
        (self._folder / "ray_bootstrap_config.yaml").write_text("{}\n")
        before = {name: os.environ.get(name) for name in ("HOME", HOME, "FLWR_HOME", "PYTHONPATH")}
        os.environ[HOME] = os.path.expanduser("~")  # noqa: PTH111
        os.environ["HOME"] = str(self._folder)
        os.environ.setdefault("FLWR_HOME", str(self._folder / "flwr"))
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _ray() -> Any:
    return importlib.import_module("ray")


class _NoFolders(list[str]):
    """Where Ray adds folders from which its workers are to import first: the current one, whatever lies there."""

    def extend(self, folders: object) -> None:
        """Leave them out."""


def _start_ray(settings: dict[str, Any]) -> None:
    """As Flower would, but workers import from where this process does, and from nowhere else."""
    if _ray().is_initialized():  # by the caller
        return
    path = os.pathsep.join(folder or str(Path.cwd()) for folder in sys.path)
    os.environ["PYTHONPATH"] = path
    job = importlib.import_module("ray.job_config").JobConfig()
    job._py_driver_sys_path = _NoFolders()
    _ray().init(runtime_env={"env_vars": {"PYTHONPATH": path}}, job_config=job, include_dashboard=False, **settings)


def _let_actors_move() -> None:
    """Actors that reserve nothing, spread over the hosts of a cluster: those of a host that is gone start on another.

    There are still as many as there are cores. With a core reserved for each, none would be left for those that move:
    Ray would wait for the host for ever. Flower chooses what makes its actors by name, and has only one.
    """
    made: Any = importlib.import_module("flwr.server.superlink.fleet.vce.backend.raybackend")

    class Anywhere(made.RayBackend):  # type: ignore[misc]
        def build(self, app_fn: Any) -> None:
            found = self.client_resources  # the pool counts the cores with these, and makes actors with them later
            self.pool = made.BasicActorPool(made.ClientAppActor, found, self.actor_kwargs)
            found.update(num_cpus=0, scheduling_strategy="SPREAD")
            self.pool.add_actors_to_pool(self.pool.actors_capacity)
            self.app_fn = app_fn

    made.RayBackend = Anywhere


def _folder() -> Path:
    """For what Ray writes, with a short path: the names of its sockets have a limit. Killed runs' are cleared away."""
    place = Path("/tmp")
    for left in place.glob("wf-*-*"):
        if not Path(f"/proc/{left.name.split('-')[1]}").exists() and Path("/proc/self").exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"wf-{os.getpid()}-", dir=place))


def _is_actor(process: str) -> bool:
    """Whether this is still one of Ray's: numbers are used again."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().startswith(b"ray::")
    except OSError:
        return False
