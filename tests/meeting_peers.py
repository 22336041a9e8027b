"""Devices that really meet: folders cut from a simulation's split, and a process for each device."""

from __future__ import annotations

import contextlib
import shutil
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from wayfare.core.bundle import digest
from wayfare.experiment import Experiment
from wayfare.io.address import Address
from wayfare.meeting.peer import MeetingPeer
from wayfare.meeting.program import MeetingPlan, opened
from wayfare.meeting.published import PublishedRecord
from wayfare.meeting.session import Contact, Session, merge_taken
from wayfare.meeting.wire import Line, PeerFault

RECIPE = """
rounds = 0
[data]
name = "folder"
path = "{root}/union"
image_size = 8
names = ["a", "b", "c", "d"]
[model]
name = "cnn"
width = 4
hidden = 16
[task]
name = "objects"
[partition]
name = "quantity"
clients = 4
distribution = "pareto"
exponent = 1.0
min_size = 2
[strategy]
name = "fedavg"
weighting = "uniform"
[topology]
name = "encounters"
traces = "{root}/contacts.dat"
probe = 60
judge = 1
[exchange]
name = "guarded"
predict_with = "overlap"
limit = 6
reserve = 2
[training]
epochs = 4
batch_size = 8
optimizer = "adam"
lr = 0.01
[evaluation]
every = 0
holdout = 0.0
"""
TAKEN = "2025:07:14 09:26:53"  # when all photos of this world were taken
NAMES = ("c0", "c1", "c2", "c3")


def write_contacts(root: Path, pairs: list[tuple[int, int]], name: str = "contacts.dat") -> None:
    """A pair in each slot of 30 s."""
    (root / name).write_text("".join(f"{30 * slot} {a} {b}\n" for slot, (a, b) in enumerate(pairs)))


def write_world(root: Path) -> Experiment:
    """A simulation's data, and a folder for each device with what it holds, and one to measure with."""
    from sklearn.datasets import load_digits

    digits, exif = load_digits(n_class=4), Image.Exif()
    exif[0x0132] = TAKEN
    exif.get_ifd(0x8825).update({1: "N", 2: (47.0, 22.0, 37.0), 3: "E", 4: (8.0, 32.0, 29.0)})  # GPS
    for number in range(180):
        part, kind = "train" if number < 160 else "test", "abcd"[digits.target[number]]
        file = root / "union" / part / kind / f"{number:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = (digits.images[number] * 15.9).astype(np.uint8)
        Image.fromarray(pixels).convert("RGB").save(file, exif=exif)
    (root / "tour.toml").write_text(RECIPE.format(root=root))
    write_contacts(root, [(0, 1), (1, 2), (2, 3)])
    experiment = Experiment.read(root / "tour.toml")
    files, split = experiment.task.source("files").files, experiment.split()
    held = {name: np.sort(split[number]) for number, name in enumerate(NAMES)}
    for folder, positions in {**held, "probe": np.sort(experiment.reserved()[:60])}.items():
        for position in positions:
            source = root / "union" / files[position]
            target = root / folder / source.parent.name / source.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    return experiment


def plan(root: Path, name: str, port: int = 8100, peers: tuple[int, ...] = (), **more: Any) -> MeetingPlan:
    """A device of this world."""
    more = {"photos": root / name, "probe": root / "probe", "slot": 0.2, **more}
    experiment = more.pop("experiment", None) or Experiment.read(root / "tour.toml")
    return MeetingPlan(
        experiment=experiment, name=name, home=root / "homes" / name, listen=Address("127.0.0.1", port),
        peers=tuple(Address("127.0.0.1", each) for each in peers), **more,
    )  # fmt: skip


def be(root: str, name: str, port: int, peers: tuple[int, ...], published: tuple[float, float, float]) -> None:
    """A process: this device, until the file `end` is there."""
    made = plan(Path(root), name, port, peers, published=PublishedRecord(*published))
    with opened(made, lambda text: None) as peer:
        ended = threading.Thread(target=_wait, args=(Path(root) / "end", peer.over), daemon=True)
        ended.start()
        peer.run()
        (Path(root) / f"{name}.model").write_text(digest(peer.device.state.model["model"]))


def _wait(file: Path, over: threading.Event) -> None:
    while not file.exists() and not over.wait(0.05):
        pass
    over.set()


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [wire.getsockname()[1] for wire in wires]


def until(true: Callable[[], bool], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


class Killed(BaseException):
    """As by kill -9: nothing is done after it."""


def talk(
    one: MeetingPeer, other: MeetingPeer, dies: tuple[int, int] = (-1, -1), *, slot: int = 0, trusted: bool = False
) -> list[BaseException | None]:
    """A meeting of two over a pair of sockets; side `dies[0]` dies at its `dies[1]`-th step, written or said."""
    ends: list[BaseException | None] = [None, None]
    wires = socket.socketpair()

    def side(number: int, me: MeetingPeer, peer: MeetingPeer) -> None:
        steps = [dies[1] if dies[0] == number else -1]
        line, diary = Line(wires[number], 10), me.diary

        def counted(real: Callable[..., None]) -> Callable[..., None]:
            def step(*args: Any, **fields: Any) -> None:
                if steps[0] == 0:
                    raise Killed
                steps[0] -= 1
                real(*args, **fields)

            return step

        line.send_bytes = counted(line.send_bytes)  # type: ignore[method-assign]
        diary.save = counted(diary.save)  # type: ignore[method-assign]
        key = peer.identity.key
        contact = Contact(peer.identity.name, key, diary.number(key), slot, number == 0, True, is_trusted=trusted)
        try:
            Session(line, me.device, diary, contact, "a" * 64).hold()
        except (PeerFault, Killed) as error:
            ends[number] = error
        finally:
            wires[number].close()
        try:
            if not isinstance(ends[number], Killed):
                merge_taken(me.device, diary)
        except Killed as error:
            ends[number] = error

    threads = [threading.Thread(target=side, args=(0, one, other)), threading.Thread(target=side, args=(1, other, one))]
    for thread in threads:
        thread.start()
        time.sleep(0)
    for thread in threads:
        thread.join(60)
    return ends


def agree(peers: list[MeetingPeer]) -> bool:
    """What one says that it sent, the other says that it took, and budgets are what the ledgers say."""
    for giver, taker in (peers, peers[::-1]):
        sent = {x.transfer: x.state for x in giver.diary.ledger if x.way == "sent"}
        taken = {
            x.transfer: "taken" if x.state == "merged" else x.state for x in taker.diary.ledger if x.way == "taken"
        }
        columns = giver.device.state.columns
        if sent != taken or columns["sent"][0] != len(sent) or columns["sent"][0] + columns["can_send"][0] != 1:
            return False
    return True
