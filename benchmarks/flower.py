"""Experiments on Flower: the same bits as elsewhere, what goes over the wire, how fast, and what faults do to it.

    python benchmarks/flower.py [--quick] [--json] [--only equal,wire,...] [--out DIR]

- equal: final models of the local engine and of Flower's simulation, every strategy on each task, small.
- speed: seconds per round in the simulation beside Flower's own FedAvg doing the same work.
- wire: bytes between a node and the server, counted by a relay, beside the tensors of a model of 10 MB.
- time: where the time of a deployed round goes, with a warm process on the node and without; imports.
- large: MOTIFS at paper width, messages of 296 MB, through the simulation and through SuperLink and SuperNode.
- hosts: a Ray cluster of two hosts in network namespaces, of which one is cut off in the middle; as root.
- faults: nodes killed, stopped, sending NaN, with a wrong key; a server killed and resumed. No network but loopback.
All but equal, speed and hosts start Flower's own programs on the loopback address. It needs the extra "flower". Exit
status 1 when a target is missed.
"""

import sys
from importlib.util import find_spec

from command import left_out, main
from flower_parts import equal, faults, hosts, large, speed, time, wire

_FULL_ONLY = {
    "time": "--quick does not judge times",
    "large": "it takes minutes: without --quick it is run",
    "faults": "it takes minutes: without --quick it is run; `make test` runs the same program",
    "hosts": "it takes minutes: without --quick it is run",
}
PARTS = {"equal": equal, "speed": speed, "wire": wire, "time": time, "large": large, "faults": faults, "hosts": hosts}


def measure(name, args, out):
    return PARTS[name].measure(args.quick, out)


def is_possible(name, quick):
    if find_spec("flwr") is None or find_spec("ray") is None:
        left_out(name, "Flower and Ray are not installed: pip install 'wayfare[flower]'")
        return False
    if name in _FULL_ONLY and quick:
        left_out(name, _FULL_ONLY[name])
        return False
    if name == "hosts" and (reason := hosts.unavailable()):
        left_out(name, reason)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(__doc__, "half a minute for each part, three parts", PARTS, measure, is_possible))
