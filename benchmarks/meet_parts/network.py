"""Network namespaces on a bridge, and links between them that come and go.

Each device has a namespace with one interface. All are on one bridge, in a namespace of its own, so that nothing of the
machine's network changes. Two devices reach each other while both have a route to the other: a link is raised and
dropped by these two routes. `tc` limits the rate of every interface (tbf) and drops a share of its packets (a filter of
four BPF instructions, as netem is not in every kernel).
"""

import ctypes
import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_NETWORK = 0x40000000  # CLONE_NEWNET
_LATENCY = "400ms"  # of a queue: longer ones are dropped


def unavailable():
    """Why namespaces cannot be made here; "" if they can."""
    if os.geteuid() != 0:
        return "it needs root, to make network namespaces"
    if shutil.which("ip") is None:
        return "it needs ip (iproute2)"
    made = subprocess.run(["ip", "netns", "add", "wayfare-try"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", "wayfare-try"], capture_output=True)
    return "" if made.returncode == 0 else f"network namespaces are not possible: {made.stderr.strip()}"


class Network:
    """So many devices, with no link between any two."""

    def __init__(self, count, rate_mbit=0.0, loss=0.0):
        self.count, self._rate, self._loss = count, rate_mbit, loss
        self._prefix = f"wf{os.getpid() % 100000}"
        self._up, self.limited, self.lossy = set(), False, False

    def name(self, device):
        return f"{self._prefix}-{device}"

    def address(self, device):
        return f"10.77.{device // 250}.{device % 250 + 1}"

    def __enter__(self):
        hub = self._hub = f"{self._prefix}-hub"
        _ip("netns", "add", hub)
        _ip("-n", hub, "link", "add", "br0", "type", "bridge")
        _ip("-n", hub, "link", "set", "br0", "up")
        for device in range(self.count):
            space = self.name(device)
            _ip("netns", "add", space)
            _ip("-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", f"p{device}", "netns", hub)
            _ip("-n", hub, "link", "set", f"p{device}", "master", "br0", "up")
            _ip("-n", space, "address", "add", f"{self.address(device)}/32", "dev", "eth0")
            _ip("-n", space, "link", "set", "lo", "up")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "route", "add", "224.0.0.0/4", "dev", "eth0")
            self._limit(space)
        return self

    def _limit(self, space):
        if self._rate:
            done = _tc(space, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{self._rate}mbit",
                       "burst", "16k", "latency", _LATENCY)  # fmt: skip
            self.limited = done
        if self._loss:
            # load a random number; at or above the share pass on (-1), else drop (2)
            code = f"4,32 0 0 4294963256,53 0 1 {int(self._loss * 2**32)},6 0 0 4294967295,6 0 0 2"
            self.lossy = _tc(space, "qdisc", "add", "dev", "eth0", "clsact") and _tc(
                space, "filter", "add", "dev", "eth0", "egress", "bpf", "da", "bytecode", code
            )

    def __exit__(self, *error):
        for space in [*(self.name(device) for device in range(self.count)), self._hub]:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)

    def links(self, pairs):
        """Raise the links of these pairs, and drop all others."""
        wanted = {(min(pair), max(pair)) for pair in pairs}
        lines = {}
        for word, changed in (("del", self._up - wanted), ("replace", wanted - self._up)):
            for one, other in changed:
                for here, there in ((one, other), (other, one)):
                    lines.setdefault(here, []).append(f"route {word} {self.address(there)}/32 dev eth0")
        for device, text in lines.items():
            subprocess.run(["ip", "-n", self.name(device), "-batch", "-"], input="\n".join(text), text=True, check=True)
        self._up = wanted

    def start(self, device, program, arguments, log):
        """Start a program in a device's namespace: a function of these arguments, in a process of its own."""
        made = _CONTEXT.Process(
            target=_become, args=(self.name(device), program, list(map(str, arguments)), str(log)), daemon=True
        )
        made.start()
        return made


def _become(space, program, arguments, log):
    """In the new process: move to the namespace, write to the log, run. Importing was done once, by the fork server."""
    with Path("/run/netns", space).open("rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _NETWORK):
            raise OSError(ctypes.get_errno(), f"cannot enter {space}")
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.exit(program(arguments))


def _ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _tc(space, *words):
    return subprocess.run(["ip", "netns", "exec", space, "tc", *words], capture_output=True).returncode == 0
