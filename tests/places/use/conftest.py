"""A street of 30 places, and a model that was trained on it for a moment."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from wayfare.core.protocols import Training
from wayfare.experiment import Evaluation, Experiment
from wayfare.partition.random import Random
from wayfare.places.backbones import SmallCnnBackbone
from wayfare.places.data.photo_folder import PhotoFolder
from wayfare.places.data.place_photos import Group, PlacePhotos, text_column
from wayfare.places.index import Index
from wayfare.places.indexing import add
from wayfare.places.leave_one_out import Calibrator
from wayfare.places.model import PlaceModel
from wayfare.places.positions import read_photographs
from wayfare.places.task import Places
from wayfare.places.trained_model import Described, TrainedPlaceModel, load_model
from wayfare.runner import run as run_experiment

sys.path.insert(0, str(Path(__file__).parent))  # for the helper
from street import PLACES, write_street

Table = Callable[..., PlacePhotos]
Made = Callable[..., Index]


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAYFARE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def street(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("street") / "photos"
    write_street(folder, range(PLACES))
    return folder


@pytest.fixture(scope="session")
def run(street: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of one round; do not change it."""
    folder = tmp_path_factory.mktemp("runs") / "street"
    task = Places(PhotoFolder(str(street), 32, 32), PlaceModel(SmallCnnBackbone(4)))
    experiment = Experiment(
        task, Random(3), training=Training(at_most=2, batch_size=2, lr=0.001),
        evaluation=Evaluation(clients=0, holdout=0.0, every=0), rounds=1, name="street",
    )  # fmt: skip
    run_experiment(experiment, folder, engine="local")
    return folder


@pytest.fixture(scope="session")
def model(run: Path) -> TrainedPlaceModel:
    return load_model(run)


@pytest.fixture(scope="session")
def whole(model: TrainedPlaceModel, run: Path, street: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the whole street; do not change it."""
    folder = tmp_path_factory.mktemp("whole") / "index"
    add(model, read_photographs(street), folder, Calibrator(model, run))
    return folder


@pytest.fixture
def mine(whole: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(whole, tmp_path / "index"))


@pytest.fixture(scope="session")
def table() -> Table:
    """Photographs that are no files, at positions (east, north); of several groups where asked."""

    def made(
        positions: Sequence[tuple[float, float]], group: Sequence[int] = (), degrees: object = None
    ) -> PlacePhotos:
        names = text_column([f"photo-{row}.jpg" for row in range(len(positions))])
        place = np.array(positions, float).reshape(-1, 2)
        where = {} if degrees is None else dict(zip(("latitude", "longitude"), np.array(degrees, float).T))
        numbers = np.array(group or [0] * len(positions), np.int32)
        groups = tuple(Group(f"city{number}", "33N") for number in range(int(numbers.max(initial=0)) + 1))
        return PlacePhotos(
            Path("/nowhere"),
            names,
            keys=names,
            groups=groups,
            group=numbers,
            easting=place[:, 0],
            northing=place[:, 1],
            split=np.full(len(positions), "", "U5"),
            **where,
        )

    return made


@pytest.fixture
def made(model: TrainedPlaceModel, table: Table, tmp_path: Path) -> Made:
    """An index of given positions whose descriptors are at given distances from the origin, along one axis."""

    def index(positions: Sequence[tuple[float, float]], distances: Sequence[float], **more: object) -> Index:
        descriptors = np.zeros((len(positions), model.net.feature_dim), np.float32)
        descriptors[:, 0] = distances
        whole = Described(np.arange(len(positions)), descriptors, [], 0.0, 0.0)
        add(model, table(positions, **more), tmp_path / "made", describe=lambda *_: [whole])
        return Index(tmp_path / "made")

    return index
