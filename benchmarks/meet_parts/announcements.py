"""Devices in namespaces on a bridge that find each other by mDNS."""

import json
import time

from meet_parts.network import Network
from meet_parts.programs import wait_for
from wayfare.io.address import Address
from wayfare.meeting.discovery import Mdns


def measure(quick, out):
    count = 4 if quick else 20
    root = out / "announcements"
    root.mkdir()
    with Network(count) as network:
        network.links({(a, b) for a in range(count) for b in range(a)})
        began = time.monotonic()
        programs = [
            network.start(place, announce, [network.address(place), count - 1], root / f"{place}.log")
            for place in range(count)
        ]
        wait_for(lambda: all(not process.is_alive() for process in programs), 240)
        seconds = time.monotonic() - began
        for process in programs:
            process.kill()
            process.join()
        logs = [(root / f"{place}.log").read_text().splitlines() for place in range(count)]
        found = [json.loads(log[-1]) for log in logs if log]
    return {
        "devices": count,
        "pairs": count * (count - 1),
        "found": sum(each["found"] for each in found),
        "seconds": max((each["seconds"] for each in found), default=None),
        "seconds with start": seconds,
    }


def targets(figures):
    return [{"name": "pairs that found each other by mDNS", "value": figures["found"],
             "target": f"all {figures['pairs']}", "met": figures["found"] == figures["pairs"]}]  # fmt: skip


def show(figures, console):
    for name, value in figures.items():
        console.print(f"  {name}: {value}", highlight=False)


def announce(arguments):
    """In a namespace: announce, and wait until all others are found."""
    address, others = arguments[0], int(arguments[1])
    began = time.monotonic()
    with Mdns(Address(address, 8100)) as link:
        wait_for(lambda: len(set(link.near())) >= others, 120)  # they do not all start at once
        took, found = time.monotonic() - began, len(set(link.near()))  # later, others will have gone
        time.sleep(10)  # until the others have found this one too
        print(json.dumps({"found": found, "seconds": took}), flush=True)
