"""A virtual environment for each peer that cannot share Wayfare's.

    python environments.py [pfl] [flower] [gossipy]      makes what is missing, prints the interpreters

They are kept in $WAYFARE_CACHE/bench-envs (else ~/.cache/wayfare/bench-envs) and made once: a marker in each holds what
it was made from. Installation is by plain pip under the project's constraints, which pin torch (a bare torch pulls
gigabytes of CUDA). Each peer pins much of what it needs, so each has an environment of its own and none limits another
or Wayfare. Whoever needs a peer catches `Unavailable` and says that it was left out.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from contextlib import contextmanager
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"

# What to install, and what must import afterwards. All work beside torch 2.13 and numpy 2.4 as they are.
PEERS = {
    "pfl": (["pfl[pytorch]==0.6.0", "torch", "numpy"], "import pfl.model.pytorch"),
    "flower": (["flwr[simulation]==1.41.0", "torch", "numpy"], "import flwr.simulation, ray, torch"),
    # it imports torchvision without asking for it, to fetch pictures; what pip has does not fit torch's CPU build
    "gossipy": (
        ["gossipy-dfl==0.0.1", "torch", "numpy"],
        "import sys, types; sys.modules['torchvision'] = types.ModuleType('torchvision'); import gossipy.simul",
    ),
}


class Unavailable(Exception):
    """The environment of a peer could not be made; the message says why."""


def cache() -> Path:
    root = os.environ.get("WAYFARE_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "wayfare") / "bench-envs"


@contextmanager
def locked(path: Path):
    """Two benchmarks at once must not make the same environment."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def fingerprint(peer: str) -> str:
    made_of = [*PEERS[peer][0], CONSTRAINTS.read_text(), sys.version]
    return hashlib.sha256("\n".join(made_of).encode()).hexdigest()


def call(peer: str, step: str, command: list[str], log: Path) -> None:
    """Run one step with its output in the log; what went wrong is in the exception."""
    with log.open("a") as out:
        status = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL).returncode
    if status:
        lines = log.read_text(errors="replace").splitlines()
        lines = [line for line in lines if not line.startswith(("WARNING", "Looking in"))]
        last = "\n  ".join(lines[-8:])
        raise Unavailable(f"{peer}: {step} failed (status {status}); the whole output is in {log}, it ends\n  {last}")


def make(peer: str, home: Path, log: Path) -> None:
    requirements, check = PEERS[peer]
    log.write_text("")
    say(f"{peer}: making its environment in {home} (a minute or two, about 1 GB)")
    if home.exists():
        shutil.rmtree(home)
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    say(f"{peer}: installing {' '.join(requirements)}")
    call(peer, "pip install", [python, "-m", "pip", "install", "-c", str(CONSTRAINTS), *requirements], log)
    call(peer, "pip check", [python, "-m", "pip", "check"], log)
    call(peer, f"the check `{check}`", [python, "-c", check], log)


def python(peer: str, install: bool = True) -> Path:
    """The interpreter of a peer's environment; if it is missing or outdated, it is made, or refused."""
    folder = cache()
    home, marker = folder / peer, folder / peer / "wayfare-made-from"
    interpreter = home / "bin" / "python"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / f"{peer}.lock"):
            wanted = fingerprint(peer)
            if not (marker.exists() and marker.read_text() == wanted and interpreter.exists()):
                if not install:
                    raise Unavailable(f"{peer}: its environment is not there yet; without --quick it is made")
                make(peer, home, folder / f"{peer}.log")
                marker.write_text(wanted)
                say(f"{peer}: ready")
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"{peer}: its environment could not be made in {home}: {error}") from error
    return interpreter


def main() -> int:
    failed = False
    for peer in sys.argv[1:] or PEERS:
        if peer not in PEERS:
            say(f"unknown peer {peer!r}; known: {', '.join(PEERS)}")
            return 2
        try:
            print(python(peer))
        except Unavailable as error:
            say(str(error))
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
