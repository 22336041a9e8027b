"""A network namespace with only the loopback device, in which attempts to send elsewhere are counted."""

from __future__ import annotations

import fcntl
import socket
import struct
import subprocess
from pathlib import Path

WITHOUT_NETWORK = ["unshare", "-rn"]  # before a command


def is_possible() -> bool:
    """Whether the system allows it."""
    try:
        return subprocess.run([*WITHOUT_NETWORK, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


def alone() -> list[str]:
    """Bring the loopback up; return the names of the network devices."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up, running
    return [line.partition(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]]


def tried_elsewhere() -> int:
    """Number of packets without a route since the namespace was created."""
    names, values = (line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line[:3] == "Ip:")
    six = dict(line.split() for line in Path("/proc/net/snmp6").read_text().splitlines())
    return int(dict(zip(names, values))["OutNoRoutes"]) + int(six["Ip6OutNoRoutes"])
