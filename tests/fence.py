"""A network of one's own, without any device but the loopback, in which attempts to go elsewhere are counted."""

from __future__ import annotations

import fcntl
import socket
import struct
import subprocess
from pathlib import Path

FENCE = ["unshare", "-rn"]  # before a command


def is_possible() -> bool:
    """Whether this system lets us have one."""
    try:
        return subprocess.run([*FENCE, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


def alone() -> list[str]:
    """Bring the loopback up; returns the network devices that there are."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up, running
    return [line.partition(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]]


def tried_elsewhere() -> int:
    """How often somebody has tried to send to where no way leads, since this network began."""
    names, values = (line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line[:3] == "Ip:")
    six = dict(line.split() for line in Path("/proc/net/snmp6").read_text().splitlines())
    return int(dict(zip(names, values))["OutNoRoutes"]) + int(six["Ip6OutNoRoutes"])
