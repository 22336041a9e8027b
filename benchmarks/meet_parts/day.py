"""A day of real programs: links by a real contact list, kills, strangers, and then the same day in the simulation."""

import hashlib
import math
import os
import random
import threading
import time
from pathlib import Path

import numpy as np

from meet_parts.attackers import attack
from meet_parts.network import Network
from meet_parts.programs import Programs, faults_of_ledgers, model_bytes, wait_for
from meet_parts.replay import done, first_scores, hash_of, meetings_of, replay
from meet_parts.world import invite, write_world
from wayfare.cli import main
from wayfare.core.seeds import rng_for
from wayfare.encounters.contacts import contact_process

SHARED = Path(os.environ.get("WAYFARE_SHARED") or Path(__file__).resolve().parents[3] / "shared")
KAIST = SHARED / "data" / "traces" / "kaist.zip"
FIRST = 120  # slots: people are on their way after an hour
RATE, LOSS = 4.0, 0.01  # Mbit/s, share of packets
SECONDS, DEADLINE = 1.0, 6.0  # of a slot, of a meeting
ATTACKERS = 4  # a stranger of no group, one of another group, a slow insider, one that floods and comes with many keys
SYBILS = 40


def contacts(count, slots, quick):
    """Pairs in each slot: people of KAIST, drawn once; or made up, as four of them hardly meet."""
    if quick:
        rng = rng_for(0, "contacts", count)
        return "made up", [{tuple(sorted(rng.choice(count, 2, replace=False).tolist())) for _ in range(count // 2)}
                           for _ in range(slots)]  # fmt: skip
    process = contact_process(KAIST, fold=True)
    people = rng_for(0, "kaist", count).permutation(92)[:count]
    place = {int(person): number for number, person in enumerate(people)}
    found = []
    for slot in range(FIRST, FIRST + slots):
        pairs, _ = process.at(slot)
        chosen = pairs[np.isin(pairs, people).all(1)]
        found.append({tuple(sorted((place[int(a)], place[int(b)]))) for a, b in chosen})
    return "KAIST", found


def measure(quick, out):
    count, slots, most_kills = (4, 40, 2) if quick else (20, 240, 20)
    root = out / "day"
    root.mkdir()
    experiment, names = write_world(root, count)
    published = first_scores(experiment, root / "before")
    where, near = contacts(count, slots, quick)
    figures = {"devices": count, "slots": slots, "contacts": where, "slot-contacts": sum(map(len, near)),
               "model bytes": model_bytes(experiment), "kills": 0, "restarts": 0}  # fmt: skip
    with Network(count + ATTACKERS, RATE, LOSS) as network:
        figures |= {"rate": RATE if network.limited else None, "loss": LOSS if network.lossy else None}
        crew = Programs(network, root, names, SECONDS, DEADLINE)
        addresses = [crew.address(place) for place in range(count)]
        invitations = {
            name: invite(root, experiment, name, [a for a in addresses if a != addresses[place]], published)
            for place, name in enumerate(names)
        }
        began = time.monotonic()
        for name in names:
            crew.start(name, invitations[name])
        assert wait_for(lambda: all(map(crew.is_ready, names)), 900), "a device did not start"
        figures["seconds to start"] = time.monotonic() - began
        hostile = Hostile(crew, experiment, addresses, slots * SECONDS / 2)
        assert wait_for(hostile.is_about, 900), "an attacker did not start"
        over = threading.Event()
        killer = threading.Thread(target=kill, args=(crew, invitations, most_kills, over, figures))
        killer.start()
        around = {(place, count + each) for place in range(count) for each in range(ATTACKERS)}
        began, late = time.monotonic(), 0.0
        for number, pairs in enumerate(near):
            network.links(pairs | around)
            late = max(late, time.monotonic() - began - (number + 1) * SECONDS)
            time.sleep(max(0.0, began + (number + 1) * SECONDS - time.monotonic()))
        figures["longest delay of the links, s"] = late
        over.set()
        killer.join()
        figures |= hostile.stop()
        # whoever was killed last comes back, and all that is on its way is settled
        network.links({(a, b) for a in range(count) for b in range(a)})
        wait_for(lambda: not any(line.state == "open" for r in records(crew).values() for line in r.ledger), 60)
        figures["ended badly"] = crew.stop()
    found = records(crew)
    faults, figures["open transfers"] = faults_of_ledgers(found)
    order = meetings_of(found)
    played, model = replay(experiment, names, order, root / "after")
    real = [done(one) for one in order]
    exchanges = sum(map(len, real))
    figures |= {
        "ledger faults": faults,
        "meetings": len(order),
        "pairs that met": len({one.pair for one in order}),
        "exchanges": exchanges,
        "adopted": sum(row[-1] for rows in real for row in rows),
        "cut transfers": sum(len(one.cut) for one in order),
        "exchanges as in the simulation": sum(a == b for a, b in zip(real, played))
        and exchanges - sum(len(a) for a, b in zip(real, played) if a != b),
        "meetings as in the simulation": sum(a == b for a, b in zip(real, played)),
        "same models": model == hash_of({name: found[name].model_sha256 for name in names}, names),
        "accuracy before": float(np.mean([r.started for r in found.values()])),
        "accuracy after": float(np.mean([r.score for r in found.values()])),
        "resumed transfers": sum(line.start > 0 for r in found.values() for line in r.ledger),
        "outsiders met": sum(line.name not in names for r in found.values() for line in r.encounters),
        "tracebacks": sum(crew.log(name).count("Traceback") for name in names),
    }
    return figures


def records(crew):
    return {name: record for name in crew.names if (record := crew.record(name)) is not None}


def kill(crew, invitations, most, over, figures):
    """kill -9 whoever takes part in a transfer: the taker, or by turns the giver; and start it again."""
    rng = random.Random(0)
    keys = {}
    while not over.wait(0.02) and figures["kills"] < most:
        for name, _size in crew.receiving():
            keys = keys or {_short(record.key): each for each, record in records(crew).items()}
            partial = next(iter((crew.home(name) / "partial").glob("*")), None)
            giver = keys.get(partial.name.partition("-")[0]) if partial else None
            victim = giver if giver in crew.running and figures["kills"] % 2 else name
            crew.kill(victim)
            figures["kills"] += 1
            time.sleep(0.5)
            crew.start(victim, invitations[victim])
            figures["restarts"] += 1
            over.wait(rng.uniform(2, 8))
            break


def _short(key):
    return hashlib.sha256(key.encode()).hexdigest()[:16]


class Hostile:
    """A stranger, one of another group, a slow insider, and one that floods and then comes with many keys."""

    def __init__(self, crew, experiment, addresses, seconds):
        self._crew, self._root = crew, crew.root
        network, first = crew.network, len(crew.names)
        peers, calls = list(map(str, addresses)), [w for a in addresses for w in ("--peer", a)]
        photos, probe, homes = self._root / crew.names[0], self._root / "probe", self._root / "homes"
        other = invite(self._root, experiment, "other", addresses, None, "other-group")
        slow = invite(self._root, experiment, "slow", addresses, None)
        listen = [f"{network.address(first + place)}:8100" for place in range(ATTACKERS)]

        def start(number, place, program, *arguments):
            return network.start(first + place, program, arguments, self._root / f"x{number}.log")

        meet = ["--photos", photos, "--probe", probe, "--slot", SECONDS, "--deadline", DEADLINE]
        recipe = self._root / "tour.toml"
        self.programs = [
            start(0, 0, main, "meet", recipe, *meet, "--listen", listen[0], "--name", "stranger", *calls,
                  "--home", homes / "stranger"),
            start(1, 1, main, "meet", other, *meet, "--listen", listen[1], "--home", homes / "other"),
            start(2, 2, attack, "slow", slow, homes / "slow", *peers),
            start(3, 3, attack, "sybils", SYBILS, recipe, photos, probe, homes / "sybils", listen[3], *peers),
            start(4, 3, attack, "flood", seconds, *peers),
        ]  # fmt: skip

    def is_about(self):
        """Whether all have begun: two are `wayfare meet`, the others say how far they are."""
        return all("its state is in" in log or log.startswith("{") for log in self._logs())

    def stop(self):
        for process in self.programs:
            process.terminate()
        for process in self.programs:
            process.join()
        names = ("stranger", "other group", "slow", "sybils", "flood")
        return {"attackers": {name: log.splitlines()[-1] for name, log in zip(names, self._logs())}}

    def _logs(self):
        files = [self._root / f"x{place}.log" for place in range(len(self.programs))]
        return [file.read_text(errors="replace") if file.exists() else "" for file in files]


def targets(figures):
    def target(name, value, met, wanted):
        return {"name": name, "value": value, "target": wanted, "met": met}

    whole = figures["exchanges"]
    return [
        target("exchanges that are those of the simulation", figures["exchanges as in the simulation"],
               figures["exchanges as in the simulation"] == whole > 0, f"all {whole}"),
        target("models in the end are those of the simulation", int(figures["same models"]), figures["same models"],
               "all, by hash"),
        target("faults of ledgers and budgets", len(figures["ledger faults"]), not figures["ledger faults"], "0"),
        target("programs that ended badly", len(figures["ended badly"]), not figures["ended badly"], "0"),
        target("tracebacks", figures["tracebacks"], not figures["tracebacks"], "0"),
        target("meetings with outsiders", figures["outsiders met"], not figures["outsiders met"], "0"),
        target("kills survived", figures["restarts"], figures["restarts"] == figures["kills"] > 0, "all"),
    ]  # fmt: skip


def show(figures, console):
    for name, value in figures.items():
        text = f"{value:.3f}" if isinstance(value, float) and not math.isnan(value) else value
        console.print(f"  {name}: {text}", highlight=False, markup=False, soft_wrap=True)
