"""What this process and all that it has started have used until now. Linux only: it is read from /proc."""

import os
from pathlib import Path


def cpu_seconds():
    """CPU seconds of those that are still running, and of those that have ended and were waited for."""
    ticks = sum(sum(map(int, fields[11:15])) for fields in _family().values())
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_mib():
    """The sum of each one's own peak: no less than what all had together at any time, since they share pages."""
    total = 0
    for process in _family():
        try:
            lines = Path(f"/proc/{process}/status").read_text().splitlines()
        except OSError:  # it has just ended
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return total / 1024


def _family():
    """Process -> the fields of its stat after the name, for this one and all below it."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(file.parent.name)] = file.read_text().rpartition(")")[2].split()
        except OSError:
            continue
    family, grown = {os.getpid()}, True
    while grown:
        more = {process for process, fields in found.items() if int(fields[1]) in family} - family
        family |= more
        grown = bool(more)
    return {process: found[process] for process in sorted(family) if process in found}
