"""Three devices with folders of photographs, and the same photographs in one folder: for tests of federations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from wayfare.core.protocols import Training
from wayfare.core.seeds import rng_for
from wayfare.experiment import Evaluation, Experiment
from wayfare.objects.data.folder import ClassFolders
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.partition.file import File
from wayfare.partition.split import Split
from wayfare.strategies.fedavg import FedAvg

NAMES = ("anna", "bert", "carl")
CLASSES = ("cat", "dog", "owl")


def photograph(root: Path) -> None:
    """root/NAME/train/CLASS/NAME-k.png for everybody, some to test with, and all in root/all; no picture is twice."""
    for person, name in enumerate(NAMES):
        for label, kind in enumerate(CLASSES):
            for k in range(9 + 4 * person + label):
                noise = rng_for("households", name, kind, k).integers(0, 120, (8, 8, 3))
                noise[..., label] += 120
                part = "test" if k < 2 else "train"
                for place in (root / name / part, root / "all" / part):
                    (place / kind).mkdir(parents=True, exist_ok=True)
                    Image.fromarray(noise.astype(np.uint8)).save(place / kind / f"{name}-{k:02}.png")


def experiment(root: Path, strategy: object = None, rounds: int = 2) -> Experiment:
    """Small, on the folder of all."""
    return Experiment(
        Objects(ClassFolders(str(root / "all"), image_size=8), CnnClassifier(width=2, hidden=4)),
        strategy=strategy or FedAvg(),
        training=Training(iterations=3, batch_size=4),
        evaluation=Evaluation(every=2, holdout=0.2),
        rounds=rounds,
        device="cpu",
    )


def dealt(root: Path) -> File:
    """The partition of the folder of all in which each client has the photographs of one household."""
    whole = _pictures(root / "all")
    parts = [np.array([whole[picture] for picture in _pictures(root / name)]) for name in NAMES]
    file = root / "households.safetensors"
    file.write_bytes(Split.from_parts(parts, {"rule": "households"}).pack())
    return File(str(file))


def _pictures(folder: Path) -> dict[bytes, int]:
    """Positions in the pool, by picture."""
    images = Objects(ClassFolders(str(folder), image_size=8)).loaded.parts[0].images
    return {np.asarray(image).tobytes(): place for place, image in enumerate(images)}
