"""Devices that meet: what they gain, at which scale, how fast, and what liars can do.

    python benchmarks/encounters.py [--quick] [--json] [--only accuracy,speed,...] [--seeds 3] [--out DIR]

- accuracy: initial, gossip, FedTour and an oracle on CIFAR-10 with 300 devices, beside the paper's numbers.
- scale: the paper's 1,900 devices for a day on a frozen network, seconds and memory; an estimate for VGG16.
- regressor: pairs of models that improve, and the regressor's error on models it has not seen.
- contacts: who is near whom, beside a scipy cKDTree for each slot.
- speed: merged models judged, beside a plain torch loop; the same gossip workload beside gossipy.
- faults: devices that lie about their models.
- policies: the simple ones beside FedTour and `budgeted`, on three real traces (the folder WAYFARE_TRACES).
accuracy, scale and regressor need CIFAR-10 (`wayfare data get cifar10`), and take digits with --quick. With --out the
runs of accuracy are kept, and an interrupted benchmark goes on with them. With --quick these three and faults are
shown, but not judged: they take seeds and a whole day. Exit status 1 when a target is missed.
"""

import sys

from command import left_out, main
from encounters_parts import accuracy, contacts, faults, policies, regressor, scale, speed
from wayfare.engines import open_engine
from wayfare.io.cache import cache_dir

PARTS = {"contacts": contacts, "speed": speed, "accuracy": accuracy, "scale": scale, "regressor": regressor,
         "faults": faults, "policies": policies}  # fmt: skip
ON_CIFAR = {"accuracy", "scale", "regressor", "policies"}
SHOWN_ONLY = {"accuracy", "scale", "regressor", "faults"}  # with --quick


def measure(name, args, out):
    if name == "contacts":
        return contacts.measure(args.quick)
    if name == "speed":
        return speed.measure(args.quick, out)
    if name == "scale":
        return scale.measure(args.quick, out)
    if name == "faults":
        return faults.measure(args.quick, args.seeds)
    if name == "policies":
        return policies.measure(args.quick, args.seeds, out, args.workers or 2)
    with open_engine("auto", args.workers) as machine:
        if name == "regressor":
            return regressor.measure(args.quick, machine, args.seeds)
        return accuracy.measure(args.quick, args.seeds, out, machine)


def is_possible(name, quick):
    """With --quick it is digits instead of CIFAR-10."""
    if name == "policies" and (quick or not policies.is_possible()):
        left_out(name, "it needs real traces (WAYFARE_TRACES), and is not part of --quick")
        return False
    missing = name in ON_CIFAR and not quick and not (cache_dir() / "cifar10").is_dir()
    if missing:
        left_out(name, "it needs CIFAR-10: wayfare data get cifar10")
    return not missing


if __name__ == "__main__":
    quick = "a minute for each part: few devices, one seed"
    sys.exit(main(__doc__, quick, PARTS, measure, is_possible, shown_only=SHOWN_ONLY))
