"""The same work as `flower_peer.py`, started as Flower wants it to be: `flwr run`.

    python flower_run_peer.py --work DIR --size small|large --rounds R [--processes P]

Run it with the interpreter of `environments.py flower`. `flwr run` starts a SuperLink of its own and leaves it running;
here it is stopped at the end. Its CPU seconds cannot be told, since its processes are not ours, and are given as 0.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import work as common

APP = """[project]
name = "rounds"
version = "1.0.0"
dependencies = []
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[tool.flwr.app]
publisher = "local"
[tool.flwr.app.components]
serverapp = "flower_app:server"
clientapp = "flower_app:client"
[tool.flwr.app.config]
folder = ""
size = ""
rounds = 1
started = 0.0
result = ""
"""
PATIENCE = 600


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def stop_all(home: Path) -> None:
    """End every process that was started under this Flower home."""
    mark = f"FLWR_HOME={home}".encode()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environ.read_bytes() and int(environ.parent.name) != os.getpid():
                os.kill(int(environ.parent.name), signal.SIGKILL)
        except OSError:  # it has ended, or is not ours
            continue


def main() -> None:
    args = common.arguments("FedAvg by `flwr run`.").parse_args()
    started = common.process_start() if args.started is None else args.started
    out = common.claim_stdout()
    work, *_ = common.read(args.work)
    with tempfile.TemporaryDirectory(prefix="wf", ignore_cleanup_errors=True) as place:
        home, app, result = Path(place) / "flwr", Path(place) / "app", Path(place) / "result.json"
        app.mkdir()
        (app / "pyproject.toml").write_text(APP)
        environment = {
            **os.environ, "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1", "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(free_port()),
            "PYTHONPATH": str(Path(__file__).resolve().parent), "RAY_TMPDIR": place,
            "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }  # fmt: skip
        told = f'folder="{args.work.absolute()}" size="{args.size}" rounds={args.rounds}'
        told += f' started={started} result="{result}"'
        federation = f"num-supernodes={work.clients} client-resources-num-cpus=1 init-args-num-cpus={args.processes}"
        command = [Path(sys.executable).with_name("flwr"), "run", ".", "local"]
        command += ["--stream", "--federation-config", federation, "-c", told]
        try:
            with subprocess.Popen(command, cwd=app, env=environment, stdin=subprocess.DEVNULL) as run:
                end = time.monotonic() + PATIENCE
                while not result.exists() and time.monotonic() < end and (run.poll() is None or run.returncode == 0):
                    time.sleep(0.1)
                run.terminate()
            if not result.exists():
                sys.exit("`flwr run` ended without a result")
            os.write(out, result.read_bytes())
        finally:
            stop_all(home)


if __name__ == "__main__":
    main()
