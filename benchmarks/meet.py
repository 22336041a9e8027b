"""Devices that really meet: `wayfare meet` in network namespaces, beside the simulation.

    python benchmarks/meet.py [--quick] [--json] [--only day,liars,announcements] [--out DIR]

- day: 20 programs, each in a namespace; links are raised and dropped as 20 people of KAIST come near each other (a slot
  of 30 s is played in 1 s), with a limited rate and lost packets. Some are killed in mid-transfer; strangers, a flood
  and a slow peer are about. Then the simulation gets the same meetings: the same exchanges and models?
- liars: invited devices that lie, and an attacker that comes again and again with new keys.
- announcements: how long devices take to find each other by mDNS over the bridge.

It needs root and iproute2, and the traces in WAYFARE_SHARED (data/traces); --quick makes contacts up. No radio takes
part. Exit status 1 when a target is missed.
"""

import multiprocessing
import os
import sys
from multiprocessing import forkserver

import torch

from command import left_out, main
from meet_parts import announcements, day, liars
from meet_parts.network import unavailable

PARTS = {"announcements": announcements, "liars": liars, "day": day}


def measure(name, args, out):
    return PARTS[name].measure(args.quick, out)


def is_possible(name, quick):
    why = unavailable()
    if not why and name == "day" and not quick and not day.KAIST.is_file():
        why = "the traces are not here: set WAYFARE_SHARED"
    if why:
        left_out(name, why)
    return not why


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # in the simulation as in the programs: the same sums in the same order
    torch.set_num_threads(1)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["wayfare.worker", "wayfare.cli", "wayfare.meeting.program", "meet_parts.attackers"])
    forkserver.ensure_running()
    sys.exit(main(__doc__, "4 programs, a minute for each part", PARTS, measure, is_possible))
