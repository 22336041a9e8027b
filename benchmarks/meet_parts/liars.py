"""What those that lie can do: invited ones, and one that comes again and again with new keys."""

import json
import time

from meet_parts.attackers import attack
from meet_parts.network import Network
from meet_parts.programs import Programs, wait_for
from meet_parts.world import invite, write_world

SLOT, DEADLINE = 1.0, 8.0


def measure(quick, out):
    root = out / "liars"
    root.mkdir()
    honest, liars, seconds, sybils = (4, 1, 20, 10) if quick else (8, 2, 90, 60)
    experiment, names = write_world(root, honest + liars)
    with Network(honest + liars) as network:
        network.links({(a, b) for a in range(honest + liars) for b in range(a)})
        return {
            "invited liars": invited(root, network, experiment, names, honest, seconds),
            "new keys, no invitations": new_keys(root / "without", network, names, honest, sybils, invites=None),
            "new keys, invitations": new_keys(root / "within", network, names, honest, sybils, invites=experiment),
        }


def invited(root, network, experiment, names, honest, seconds):
    """Honest devices and liars, all invited, all near each other."""
    crew = Programs(network, root, names, SLOT, DEADLINE)
    addresses = [crew.address(place) for place in range(len(names))]
    liars = []
    for place, name in enumerate(names):
        peers = [a for a in addresses if a != addresses[place]]
        given = invite(root, experiment, name, peers, None)
        if place < honest:
            crew.start(name, given)
        else:
            command = ["liar", given, root / name, root / "probe", crew.home(name),
                       addresses[place], *peers]  # fmt: skip
            liars.append(network.start(place, attack, command, root / f"{name}.log"))
    assert wait_for(lambda: all(map(crew.is_ready, names)), 900), "a device did not start"
    time.sleep(seconds)
    bad = crew.stop()
    for process in liars:
        process.terminate()
        process.join()
    found = {name: crew.record(name) for name in names[:honest]}
    lies = [line for record in found.values() for line in record.ledger
            if line.way == "taken" and line.name in names[honest:]]  # fmt: skip
    per_pair = max((sum(x.name == liar for x in record.ledger if x.way == "taken")
                    for record in found.values() for liar in names[honest:]), default=0)  # fmt: skip
    return {
        "honest": honest, "liars": len(names) - honest, "seconds": seconds, "ended badly": bad,
        "meetings": sum(record.meetings for record in found.values()) / 2,
        "models taken from liars": len(lies), "most by one from one liar": per_pair,
        "adopted from liars": sum(bool(line.adopted) for line in lies),
        "accuracy before": _mean(record.started for record in found.values()),
        "accuracy after": _mean(record.score for record in found.values()),
        "most lost by one": max(record.started - record.score for record in found.values()),
    }  # fmt: skip


def new_keys(root, network, names, honest, sybils, invites):
    """An attacker with a new name and key for every meeting."""
    root.mkdir()
    crew = Programs(network, root, names, SLOT, DEADLINE)
    for folder in [*names, "probe", "tour.toml"]:
        (root / folder).symlink_to(root.parent / folder)
    for name in names[:honest]:
        given = invite(root, invites, name, [], None) if invites else root / "tour.toml"
        crew.start(name, given, *([] if invites else ["--name", name]))
    assert wait_for(lambda: all(map(crew.is_ready, names[:honest])), 900), "a device did not start"
    command = ["sybils", sybils, root / "tour.toml", root / names[-1], root / "probe",
               root / "homes" / "sybils", crew.address(honest),
               *(crew.address(place) for place in range(honest))]  # fmt: skip
    began = time.monotonic()
    program = network.start(honest, attack, command, root / "sybils.log")
    program.join()
    seconds = time.monotonic() - began
    bad = crew.stop()
    found = [crew.record(name) for name in names[:honest]]
    said = json.loads((root / "sybils.log").read_text().splitlines()[-1])
    taken = [line for record in found for line in record.ledger if line.way == "taken"]
    return {
        "honest": honest, **said, "seconds": seconds, "ended badly": bad,
        "of the honest devices' budget": sum(x.budget["can_take"] + x.budget["taken"] for x in found),
        "adopted": sum(bool(line.adopted) for line in taken),
        "most lost by one": max(record.started - record.score for record in found),
    }  # fmt: skip


def _mean(values):
    found = list(values)
    return sum(found) / len(found)


def targets(figures):
    liars, group = figures["invited liars"], figures["new keys, invitations"]
    return [
        _zero("models of invited liars that were adopted", liars["adopted from liars"]),
        {"name": "models that one device took from one liar", "value": liars["most by one from one liar"],
         "target": "at most 1", "met": liars["most by one from one liar"] <= 1},
        _zero("meetings of a group with keys that nobody invited", group["meetings"]),
        _zero("models of new keys that were adopted", figures["new keys, no invitations"]["adopted"]),
        _zero("programs that ended badly", sum(len(each["ended badly"]) for each in figures.values())),
    ]  # fmt: skip


def _zero(name, value):
    return {"name": name, "value": value, "target": "0", "met": value == 0}


def show(figures, console):
    for part, values in figures.items():
        console.print(f"  {part}", highlight=False)
        for name, value in values.items():
            text = f"{value:.3f}" if isinstance(value, float) else value
            console.print(f"    {name}: {text}", highlight=False, markup=False, soft_wrap=True)
