"""Places: where was this photo taken? Visual place recognition with a network that describes photographs by vectors.

FedVPR (Dutto et al., Collaborative Visual Place Recognition through Federated Learning, 2024). Photographs of one place
get descriptors that are near each other. A client trains on triplets of its own photographs: a query, a photograph of
the same place, and others that look like it but are elsewhere (Eq. 1 to 3). To find where a photo was taken is then to
find the nearest descriptors in a database of photographs whose positions are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from wayfare.core.protocols import Batch, Client, Output
from wayfare.core.seeds import rng_for
from wayfare.data import layouts, msls
from wayfare.data.cache import cache_dir
from wayfare.data.decoded import Decoded, decoded
from wayfare.data.places import PlacePhotos
from wayfare.errors import ConfigError, DataError, WayfareError
from wayfare.tasks.nets.descriptor import Descriptor, Network, Statistics, descriptor
from wayfare.tasks.nets.pooling import L2Place, Pooling
from wayfare.tasks.vpr.augment import Augment, Augmentation
from wayfare.tasks.vpr.grounds import Choice, Grounds, Queries, Test, choose
from wayfare.tasks.vpr.maps import Maps, pictures
from wayfare.tasks.vpr.mining import Miner, Mining
from wayfare.tasks.vpr.recall import Denominator, Protocol, Result, parts_of, recalls
from wayfare.tasks.vpr.triplet import collapsed, info_nce, split, spread, triplet_loss

_SCAN = 64  # photographs per batch where no gradient is needed
_GIB = 2.0**30


@dataclass
class Triplets(Batch):
    """Maps of queries, positives and negatives in a row; see `mining.Triplets.photos`."""

    queries: int = 0
    apart: Tensor | None = None  # which of the others are negatives of which query; only for the warm-up


@dataclass(frozen=True)
class Places:
    """Visual place recognition with mined triplets."""

    # ---- the photographs
    path: str = ""  # an MSLS tree, or a folder of photos with positions in any form; "": the town, made on first use
    town: Literal["tiny", "small", "city"] = "small"
    town_seed: int = 0
    height: int = 96
    width: int = 128
    test_cities: tuple[str, ...] = ()  # of an MSLS tree, instead of the official ones
    subtask: Literal["", "all", "s2w", "w2s", "o2n", "n2o", "d2n", "n2d"] = ""  # MSLS's queries to test with; "": every
    tolerance: int = -1  # of paired frames without a file of pairs: how many frames two of one place may be apart
    queries: Queries = "layout"
    test: Test = "layout"
    folds: int = 4
    fold: int = 0
    strip: float = 40.0
    piece: float = 0.0
    own: bool = False  # the folder is a device's own: nothing is held back to test with
    cache: float = 8.0  # GiB on disk for decoded pictures, and for maps of frozen layers; beyond it they are made anew

    # ---- the network
    architecture: Network = "efficientnet_lite0"
    weights: str = "auto"  # auto: ImageNet's for EfficientNet-Lite0; random for the CNN; else a file, or "random"
    train: str = "default"  # the first stage that is trained
    pooling: Pooling = "gem"
    l2: L2Place = "after"
    linear: bool = False
    whiten: float = 0.0  # descriptors by what those of all devices are like: 0.5 half the way to white, 1 white; 0: not
    statistics: Statistics = "batch"
    cnn_width: int = 32

    # ---- learning
    mining: Literal["partial", "full", "random"] = "partial"
    positive_radius: float = 25.0  # metres; related code trains with 10
    negative_radius: float = 25.0
    negatives: int = 5
    negative_pool: int = 1000  # photographs among which the hardest are looked for
    refresh: int = 1000
    sequences: int = 0
    per_sequence: int = 3
    distances: Literal["squared", "unsquared"] = "squared"  # Eq. 3, or as in related code
    margin: float = 0.1
    warmup: int = 0  # steps with InfoNCE and random negatives first, for networks that start from random weights
    augment: Augmentation = "none"

    # ---- judging
    radius: float = 25.0
    denominator: Denominator = "queries with a positive"

    provides: ClassVar[frozenset[str]] = frozenset({"features"})
    classes: ClassVar[tuple[str, ...]] = ()
    labels: ClassVar[None] = None

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 32:
            raise ConfigError(f"task.height and width = {self.height} x {self.width}: at least 32 x 32 pixels")
        if not 0 <= self.whiten <= 1:
            raise ConfigError(f"task.whiten = {self.whiten}: a power from 0 to 1")
        if self.margin <= 0 or self.warmup < 0 or self.cache < 0:
            raise ConfigError("task.margin must be above 0, task.warmup and task.cache at least 0")
        _ = self._mining, self._choice, self._protocol("all")  # each refuses what it cannot use

    @classmethod
    def example(cls) -> Places:
        """A task that is quick to try things with."""
        return cls(town="tiny", height=32, width=48, architecture="cnn", cnn_width=4)

    # ---- data

    @cached_property
    def _mining(self) -> Mining:
        return Mining(
            self.mining, self.positive_radius, self.negative_radius, self.negatives,
            self.negative_pool, self.refresh, self.sequences, self.per_sequence,
        )  # fmt: skip

    @cached_property
    def _choice(self) -> Choice:
        return Choice(self.queries, self.test, self.folds, self.fold, self.strip, self.piece)

    def _protocol(self, queries: str, paired: bool = False) -> Protocol:
        radius = None if paired else self.radius
        return Protocol(queries, radius, self.denominator, f"{self.height}x{self.width}")

    def ready(self, progress: Any) -> None:
        """Do what takes long before the first round, saying how far it is: progress(what, done, total)."""
        self._root(progress)
        self._photographs(lambda done, total: progress("reading photographs", done, total))
        if self.weights != "random" and self.architecture != "cnn":  # a random trunk is another one for every seed
            self._maps(self.network(), lambda done, total: progress("frozen layers", done, total))

    def _root(self, progress: Any = lambda *_: None) -> Path:
        if self.path:
            return Path(self.path)
        from wayfare.data.town.make import Spec, make

        spec = Spec(self.town, self.town_seed, layouts=("msls",))
        folder = cache_dir() / "towns" / f"{spec.size}-{spec.seed}-form{spec.form}"
        make(folder, spec, progress=lambda text, done, total: progress(f"making the town: {text}", done, total))
        return folder / "msls"

    def _photographs(self, progress: Any = None) -> tuple[PlacePhotos, Decoded]:
        """The whole table and its pictures, row by row."""
        if "_loaded" not in self.__dict__:
            tested = (
                () if self.own else self.test_cities
            )  # those are the server's, and need not be in a device's folder
            photos = _read(self._root(), tested, self.subtask, self.tolerance)
            images = decoded(photos.root, photos.paths(), (self.height, self.width), self.cache * _GIB, progress)
            if not len(images):
                first = images.skipped[0]
                raise DataError(f"none of {len(photos)} photographs can be read: {first.reason}", first.file)
            self.__dict__["_loaded"] = photos.take(images.kept) if len(images) < len(photos) else photos, images
        loaded: tuple[PlacePhotos, Decoded] = self.__dict__["_loaded"]
        return loaded

    @cached_property
    def grounds(self) -> Grounds:
        """Which photographs are trained and tested on."""
        return choose(self._photographs()[0], self._choice, self.subtask or "all", self.own)

    @cached_property
    def photos(self) -> PlacePhotos:
        """The pool of photographs that partitions deal out."""
        return self.grounds.photos.take(self.grounds.pool)

    @property
    def samples(self) -> int:
        return len(self.grounds.pool)

    @property
    def skipped(self) -> list[dict[str, str]]:
        """Files that were left out, and why."""
        photos, images = self._photographs()
        broken = [{"file": str(item.file), "reason": item.reason} for item in images.skipped]
        return broken + [{"file": str(e.file or photos.root), "reason": str(e)} for e in photos.problems.found]

    @cached_property
    def looks(self) -> tuple[PlacePhotos, np.ndarray]:
        """The pool, and what each photograph looks like to the network before it is trained."""
        torch.default_generator.manual_seed(0)  # a network without weights of its own looks the same to every seed
        net = self.network().eval()
        return self.photos, self._embed(net, self.grounds.pool)

    @cached_property
    def protocol(self) -> str:
        """What the recalls of the test set mean."""
        return self._protocol(self.grounds.tested, self.grounds.photos.pairs is not None).text

    # ---- network

    def network(self) -> Descriptor:
        weights: str | None = self.weights
        if weights == "auto":
            if self.architecture in ("resnet18_layer3", "resnet18", "vgg16"):
                raise ConfigError(
                    f"task.weights: no package carries ImageNet's for {self.architecture}; give torchvision's file, "
                    "after `wayfare data import-weights`, or 'random'"
                )
            weights = "random" if self.architecture == "cnn" else "imagenet"
        net = descriptor(
            self.architecture, self.pooling, self.l2, self.train, None if weights == "random" else weights,
            linear=self.linear, statistics=self.statistics, width=self.cnn_width, whiten=self.whiten,
        )  # fmt: skip
        if self.warmup:
            net.register_buffer("age", torch.zeros(()))  # steps so far; it travels, so that a warm-up has an end
        return net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def views(self, net: nn.Module) -> dict[str, int]:
        return {"image": int(net.feature_dim)}  # type: ignore[arg-type]

    def _maps(self, net: Descriptor, progress: Any = None) -> Maps:
        known: dict[tuple[str, str], Maps] = self.__dict__.setdefault("_known_maps", {})
        key = net.trunk_key, net.mean.device.type  # another kind of device rounds otherwise
        if key not in known:
            known[key] = Maps(net, self._photographs()[1], self.cache * _GIB, progress)
        return known[key]

    # ---- learning

    def steps(
        self, net: nn.Module, client: Client, batch_size: int, memo: dict[str, Any], rng: np.random.Generator
    ) -> Iterator[Batch]:
        """One pass over the queries, `batch_size` triplets at a time."""
        net = _checked(net)
        rows = self.grounds.pool[np.unique(client.train)]
        if net.whitening is not None and "looked" not in memo:
            memo["looked"] = True
            net.whitening.look(torch.from_numpy(self._embed(net, rows)))
        young = self._is_young(net)
        name, mining = "miner", self._mining
        if young:
            name, mining = "random miner", replace(mining, mode="random", sequences=0)
        if name not in memo:
            memo[name] = self._miner(rows, mining)
        miner: Miner = memo[name]
        for triplets in miner.triplets(lambda places: self._embed(net, rows[places]), rng, batch_size):
            count, photos = len(triplets.query), triplets.photos
            apart = torch.from_numpy(miner.apart(triplets.query, photos[count:])) if young else None
            if young:
                net.age += 1  # before the step, which may be the last that is asked for
            yield Triplets(self._inputs(net, rows[photos], count, client, rng), queries=count, apart=apart)
            if young and not self._is_young(net):
                return  # from here on with hard negatives

    def _miner(self, rows: np.ndarray, mining: Mining) -> Miner:
        photos = self.grounds.photos.take(rows)
        positions = np.stack((photos.easting, photos.northing), 1)
        query = photos.query if photos.query is not None else np.zeros(len(photos), bool)
        return Miner(positions, photos.group, query, mining, photos.sequence, photos.pairs)

    def _is_young(self, net: Descriptor) -> bool:
        return self.warmup > 0 and float(net.age) < self.warmup

    def _inputs(
        self, net: Descriptor, rows: np.ndarray, queries: int, client: Client, rng: np.random.Generator
    ) -> Tensor:
        """The trunk's maps; queries are augmented first, as in related code."""
        maps = self._maps(net)
        if self.augment == "none":
            return maps(net, rows)
        asked = pictures(self._photographs()[1], rows[:queries], net.mean.device)
        asked = Augment(self.augment)(asked, rng, rng_for("augmentation", client.id))
        return torch.cat((net.trunk(asked), maps(net, rows[queries:])))

    def forward(self, net: nn.Module, batch: Batch) -> Output:
        return Output({"image": _checked(net).head(batch.inputs)})

    def loss(self, output: Output, batch: Batch, memo: dict[str, Any]) -> Tensor:
        if not isinstance(batch, Triplets):
            raise TypeError("place recognition learns from triplets")
        query, positive, negatives = split(output.features["image"], batch.queries)
        if batch.apart is not None:
            return info_nce(query, positive, negatives, batch.apart.to(query.device))
        return triplet_loss(query, positive, negatives, self.margin, self.distances == "squared")

    def scan(self, net: nn.Module, client: Client) -> Iterator[Batch]:
        maps, rows = self._maps(_checked(net)), self.grounds.pool[client.train]
        for start in range(0, len(rows), _SCAN):
            yield Batch(maps(_checked(net), rows[start : start + _SCAN]))

    # ---- judging

    def evaluate(self, net: nn.Module, samples: np.ndarray | None) -> dict[str, float]:
        result, descriptors = self._judged(_checked(net), samples)
        return {**result.metrics, "spread": spread(descriptors)} if len(descriptors) else result.metrics

    def result(self, net: nn.Module) -> Result:
        """The test's every answer, for those who want more than the metrics."""
        return self._judged(_checked(net), None)[0]

    def alarm(self, now: dict[str, float], start: dict[str, float]) -> str:
        """What to tell the user of a run whose metrics were `start` before training."""
        for name in ("test/spread", "clients/spread", "validation/spread"):
            if name in now and name in start:
                return collapsed(now[name], start[name])
        return ""

    def _judged(self, net: Descriptor, samples: np.ndarray | None) -> tuple[Result, np.ndarray]:
        photos, grounds = self.grounds.photos, self.grounds
        if samples is None:
            queries, database = grounds.test_queries, grounds.test_database
        else:
            rows = grounds.pool[np.unique(samples)]
            asks = photos.query[rows] if photos.query is not None else np.zeros(len(rows), bool)
            queries, database = rows[asks], rows[~asks]
        learnt = torch.from_numpy(self._embed(net, np.concatenate((queries, database))))
        descriptors = net.finish(learnt.to(net.mean.device)).cpu().numpy()
        asked, known = descriptors[: len(queries)], descriptors[len(queries) :]
        parts = parts_of(
            photos.city[queries] if len(set(photos.group[queries])) > 1 else None,
            None if photos.night is None else photos.night[queries],
            None if photos.direction is None else photos.direction[queries],
        )
        paired = photos.take(np.concatenate((queries, database))).pairs if photos.pairs is not None else None
        if paired is not None:
            paired = paired - np.array([0, len(queries)])
        positions = np.stack((photos.easting, photos.northing), 1)
        result = recalls(
            asked, known,
            None if paired is not None else positions[queries], None if paired is not None else positions[database],
            photos.group[queries], photos.group[database],
            self._protocol(grounds.tested, paired is not None), parts if samples is None else None, paired,
        )  # fmt: skip
        return result, descriptors

    def describe(self, net: nn.Module, images: np.ndarray) -> np.ndarray:
        """Descriptors (n, d) of any pictures, uint8 (n, height, width, 3)."""
        net = _checked(net).eval()
        found = [np.empty((0, net.feature_dim), np.float32)]
        with torch.no_grad():
            for start in range(0, len(images), _SCAN):
                part = torch.from_numpy(images[start : start + _SCAN]).to(net.mean.device)
                found.append(net(part.permute(0, 3, 1, 2).float().div_(255)).float().cpu().numpy())
        return np.concatenate(found)

    def _embed(self, net: Descriptor, rows: np.ndarray) -> np.ndarray:
        """What the head says of photographs of the table, in evaluation mode."""
        maps, was_training = self._maps(net), net.training
        found = np.empty((len(rows), net.feature_dim), np.float32)
        net.eval()
        with torch.no_grad():
            for start in range(0, len(rows), _SCAN):
                part = slice(start, start + _SCAN)
                found[part] = net.head(maps(net, rows[part])).float().cpu().numpy()
        net.train(was_training)
        return found


def _checked(net: nn.Module) -> Descriptor:
    if not isinstance(net, Descriptor):
        raise WayfareError(f"place recognition needs a descriptor network, not {type(net).__name__}")
    return net


def _read(root: Path, test_cities: tuple[str, ...], subtask: Any, tolerance: int) -> PlacePhotos:
    """The photographs of an MSLS tree or of a folder of photos."""
    found = {item.layout: item.path for item in layouts.find(root)}
    if "msls" in found:
        kept = () if test_cities else None  # where cities to test on are named, all others are trained on
        return msls.load(found["msls"], val_cities=kept, test_cities=test_cities, subtask=subtask or None)
    if "photos" in found:
        from wayfare.data import photos

        return photos.load(found["photos"], tolerance=tolerance if tolerance >= 0 else None)
    raise ConfigError(f"task.path = {root}: a data set in the layout {sorted(found)[0]!r}; places needs msls or photos")
