"""Large sets of photographs: splitting them into clients, and finding one photo among them."""

import statistics
import time
from pathlib import Path

import numpy as np
import torch

from places_parts.common import cpu_seconds
from wayfare import Experiment
from wayfare.core.seeds import rng_for
from wayfare.places.backbones import ResNet18Layer3
from wayfare.places.data.place_photos import Group, PlacePhotos, text_column
from wayfare.places.data.town import TownPhotos
from wayfare.places.index import Index
from wayfare.places.indexing import add
from wayfare.places.locate import locate
from wayfare.places.model import PlaceModel
from wayfare.places.partition.proximity import Proximity
from wayfare.places.task import Places
from wayfare.places.trained_model import Described, TrainedPlaceModel


def split(photos, cities=30):
    """Seconds for the proximity split of that many photographs, 40 of a sequence, in cities of 20 x 20 km."""
    rng = rng_for(0, "synthetic coordinates")
    frames = rng.integers(20, 61, photos // 39)  # a few more than are needed
    city = rng.choice(cities, len(frames), p=rng.dirichlet(np.full(cities, 3.0)))
    heading = rng.uniform(0, 2 * np.pi, len(frames))
    start = rng.uniform(0, 20_000, (len(frames), 2))
    sequence = np.repeat(np.arange(len(frames)), frames)[:photos]
    frame = np.arange(len(sequence)) - np.searchsorted(sequence, sequence)
    bend = heading[sequence] + 0.01 * frame
    place = start[sequence] + 8.0 * frame[:, None] * np.stack((np.cos(bend), np.sin(bend)), 1)
    names = text_column([f"{row:07}" for row in range(len(sequence))])
    table = PlacePhotos(
        Path("nowhere"),
        names,
        keys=names,
        groups=tuple(Group(f"city{number:02}", "33N") for number in range(cities)),
        group=city[sequence].astype(np.int32),
        easting=place[:, 0],
        northing=place[:, 1],
        split=np.full(len(sequence), "train"),
        query=(rng.random(len(frames)) < 1 / 3)[sequence],
        sequence=sequence.astype(np.int32),
        frame=frame,
        sequences=tuple(f"s{number}" for number in range(len(frames))),
    )
    began = time.perf_counter()
    cpu, made = cpu_seconds(lambda: Proximity(2000.0)(table, rng_for(0, "partition")))
    return {"photos": len(table), "clients": len(made), "cpu_seconds": cpu, "seconds": time.perf_counter() - began}


def locating(descriptors, folder, photos=9):
    """Milliseconds for one photo in an index of so many descriptors of 256 numbers: medians, with all threads."""
    task = Places(TownPhotos(size="tiny"), PlaceModel(ResNet18Layer3(), "random"))
    model = TrainedPlaceModel("speed", Experiment(task).to_toml(), task, task.network().eval())
    rng = rng_for(0, "descriptors")
    names = text_column([f"{row}.jpg" for row in range(descriptors)])
    place = rng.uniform(0, 20_000, (descriptors, 2))
    table = PlacePhotos(
        folder / "photos",
        names,
        keys=names,
        groups=(Group("city", "33N"),),
        group=np.zeros(descriptors, np.int32),
        easting=place[:, 0],
        northing=place[:, 1],
        split=np.full(descriptors, ""),
    )

    def described(_model, files):
        for start in range(0, len(files), 50_000):
            rows = np.arange(start, min(start + 50_000, len(files)))
            found = rng.standard_normal((len(rows), 256), np.float32)
            yield Described(rows, found / np.linalg.norm(found, axis=1, keepdims=True), [], 0.0, 0.0)

    add(model, table, folder / "index", describe=described)
    index, files = Index(folder / "index"), task.loaded.table.paths()[: photos + 1]
    times = [locate(index, [file]).seconds for file in files][1:]  # the first one loads libraries and reads the disk
    medians = {name: 1000 * statistics.median(each[name] for each in times) for name in times[0]}
    return {"descriptors": descriptors, "threads": torch.get_num_threads(), "milliseconds": medians}
