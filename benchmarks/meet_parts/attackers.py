"""Those that mean harm. Each is a program of its own, started in a namespace that reaches everybody.

liar INVITATION PHOTOS PROBE HOME LISTEN PEER...       an invited device that claims 0.99 and sends noise
sybils COUNT RECIPE PHOTOS PROBE HOME LISTEN PEER...   the same under new names and keys that nobody has invited
slow INVITATION HOME PEER...                           an invited device that says one byte every half second
flood SECONDS PEER...                                  connections that say nothing
"""

import contextlib
import json
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import torch

from wayfare.core.bundle import Bundle
from wayfare.encounters.alone import DeviceOffer, LoneDevice
from wayfare.experiment import Experiment
from wayfare.io.address import Address
from wayfare.meeting.diary import Diary
from wayfare.meeting.discovery import GivenAddresses
from wayfare.meeting.identity import Identity, Pins
from wayfare.meeting.invitation import read_invitation
from wayfare.meeting.peer import MeetingPeer
from wayfare.meeting.program import MeetingPlan, opened

CLAIM = 0.99


class Liar(LoneDevice):
    """Claims to be very good, and sends noise of the size of its model."""

    def offer(self, peer: int, slot: int) -> DeviceOffer:
        return replace(super().offer(peer, slot), score=CLAIM, announced=True, avoids=False)

    def report(self) -> Bundle:
        real = super().report()
        noise = {section: {n: torch.randn_like(t) * t.std() if t.numel() > 1 else t for n, t in part.items()}
                 for section, part in real.tensors.items()}  # fmt: skip
        return Bundle(noise, real.values)


def plan(experiment, photos, probe, home, listen, peers, **more):
    return MeetingPlan(experiment=experiment, name=more.pop("name", "stranger"), photos=Path(photos), home=Path(home),
                       probe=Path(probe), listen=Address.read(listen), peers=tuple(map(Address.read, peers)), slot=1.0,
                       deadline=8.0, **more)  # fmt: skip


def liar(invitation, photos, probe, home, listen, *peers):
    """An invited device that lies, until it is interrupted."""
    found = read_invitation(Path(invitation))
    made = plan(Experiment.from_toml(found.recipe), photos, probe, home, listen, peers, name=found.name,
                invited=found.credentials, published=None)  # fmt: skip
    with opened(made, lambda text: None) as peer:
        peer.device = Liar(peer.device.parts, peer.device.state)
        peer.device.state.columns["can_send"] += 10_000
        print("its state is in", home, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            peer.run()


def sybils(count, recipe, photos, probe, home, listen, *peers):
    """One after another, each with a new name and key that nobody has invited. Says after each how many were let in."""
    experiment = Experiment.read(Path(recipe))
    met = sent = 0
    with opened(plan(experiment, photos, probe, f"{home}/first", listen, peers), lambda text: None) as first:
        state = first.device.state
        for number in range(int(count)):
            folder = Path(home) / str(number)
            folder.mkdir(parents=True)
            identity = Identity(folder, f"sybil-{number}")
            identity.settle()
            device = Liar(first.device.parts, replace(state, columns={n: c.copy() for n, c in state.columns.items()}))
            device.state.columns["can_send"] += 10_000
            peer = MeetingPeer(
                identity, Pins(folder / "known.json", identity.key), device, Diary(folder),
                replace(first.habits, slot=0.05), links=[GivenAddresses([Address.read(each) for each in peers])],
            )  # fmt: skip
            timer = threading.Timer(2.0, peer.over.set)
            timer.start()
            peer.run()
            met += peer.diary.meetings
            sent += sum(line.way == "sent" and line.state == "taken" for line in peer.diary.ledger)
            # after each: what is stopped early, as with the day, has said how far it came
            said = {"identities": number + 1, "meetings": met, "models taken by honest devices": sent}
            print(json.dumps(said), flush=True)


def slow(invitation, home, *peers):
    """Holds everybody up as long as they let it."""
    found = read_invitation(Path(invitation))
    Path(home).mkdir(parents=True, exist_ok=True)
    identity = Identity(Path(home), found.name)
    identity.settle(found.credentials)
    tls = identity.tls(serves=False)
    held = dict.fromkeys(peers, 0.0)
    connections = 0

    def hold(address):
        nonlocal connections
        while True:
            began = time.monotonic()
            with contextlib.suppress(OSError), socket.create_connection((address.host, address.port), 3) as wire:
                wire.settimeout(10)
                with tls.wrap_socket(wire) as line:
                    connections += 1
                    line.sendall((200).to_bytes(4, "big") + b"{")
                    while True:
                        time.sleep(0.5)
                        line.sendall(b" ")
            held[str(address)] += time.monotonic() - began
            time.sleep(0.2)

    for each in peers:
        threading.Thread(target=hold, args=(Address.read(each),), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(1)
            print(json.dumps({"connections": connections}), flush=True)


def flood(seconds, *peers):
    """Connections that say nothing. Says now and then how many there were."""
    end, count = time.monotonic() + float(seconds), 0
    print(json.dumps({"connections": count}), flush=True)
    wires = []
    addresses = [Address.read(each) for each in peers]
    while time.monotonic() < end:
        for address in addresses:
            wire = socket.socket()
            wire.setblocking(False)
            with contextlib.suppress(OSError):  # it is not waited for; and a link that is down has no route
                wire.connect((address.host, address.port))
            wires.append(wire)
            count += 1
        if len(wires) > 800:
            for wire in wires:
                wire.close()
            wires.clear()
            print(json.dumps({"connections": count}), flush=True)
        time.sleep(0.05)
    print(json.dumps({"connections": count}), flush=True)


def attack(arguments):
    """The first one says what."""
    {"liar": liar, "sybils": sybils, "slow": slow, "flood": flood}[arguments[0]](*arguments[1:])
