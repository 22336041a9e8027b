"""Devices that really meet: folders cut from a simulation's split, and a process for each device."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from wayfare.core.bundle import digest
from wayfare.experiment import Experiment
from wayfare.io.address import Address
from wayfare.meeting.program import MeetingPlan, opened

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
clients = 3
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
NAMES = ("c0", "c1", "c2")


def write_contacts(root: Path, pairs: list[tuple[int, int]], name: str = "contacts.dat") -> None:
    """A pair in each slot of 30 s."""
    (root / name).write_text("".join(f"{30 * slot} {a} {b}\n" for slot, (a, b) in enumerate(pairs)))


def write_world(root: Path) -> Experiment:
    """A simulation's data, and a folder for each device with what it holds, and one to measure with."""
    from sklearn.datasets import load_digits

    digits = load_digits(n_class=4)
    for number in range(180):
        part, kind = "train" if number < 160 else "test", "abcd"[digits.target[number]]
        file = root / "union" / part / kind / f"{number:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = (digits.images[number] * 15.9).astype(np.uint8)
        Image.fromarray(pixels).convert("RGB").save(file)
    (root / "tour.toml").write_text(RECIPE.format(root=root))
    write_contacts(root, [(0, 1), (1, 2), (0, 2)])
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
    made = plan(Path(root), name, port, peers, published=published)
    with opened(made, lambda text: None) as peer:
        ended = threading.Thread(target=_wait, args=(Path(root) / "end", peer.over), daemon=True)
        ended.start()
        peer.run()
        found = {"model": digest(peer.device.state.model["model"]), "ledger": [asdict(x) for x in peer.diary.ledger]}
        (Path(root) / f"{name}.json").write_text(json.dumps(found))


def _wait(file: Path, over: threading.Event) -> None:
    while not file.exists() and not over.wait(0.05):
        pass
    over.set()
