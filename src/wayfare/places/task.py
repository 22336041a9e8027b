"""Places: where was this photo taken? Visual place recognition with a network that describes photographs by vectors.

FedVPR (Dutto et al., Collaborative Visual Place Recognition through Federated Learning, 2024). Photographs of one place
get descriptors that are near each other. A client trains on triplets of its own photographs: a query, a photograph of
the same place, and others that look like it but are elsewhere (Eq. 1 to 3). To find where a photo was taken is then to
find the nearest descriptors in a database of photographs whose positions are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from wayfare.components import part
from wayfare.core.errors import ConfigError, WayfareError
from wayfare.core.protocols import Batch, Client, Output, Population, Progress, SampleFiles, Task
from wayfare.core.seeds import rng_for
from wayfare.core.values import SHARE, Kind, Number
from wayfare.places.augment import Augmentation
from wayfare.places.backbones import SmallCnnBackbone
from wayfare.places.client_photos import ClientPhotos
from wayfare.places.data.base import PlaceData
from wayfare.places.data.place_photos import PlacePhotos
from wayfare.places.data.town import TownPhotos
from wayfare.places.descriptor import Descriptor
from wayfare.places.feature_maps import pictures
from wayfare.places.losses import InfoNCE, PlaceLoss, TripletBatch, ViewsBatch, collapsed, spread
from wayfare.places.mining import Miner, RandomMiner
from wayfare.places.model import PlaceModel
from wayfare.places.partition.census import census
from wayfare.places.recall import Denominator, Protocol, Result, Search, parts_of, recalls
from wayfare.places.samples import PlaceSamples
from wayfare.places.views import PlaceViews

_SCAN = 64  # photographs per batch where no gradient is needed
_MODULE = "wayfare.places"


class _Phase(NamedTuple):
    """How a stretch of training learns."""

    miner: Miner
    loss: PlaceLoss


_FARTHEST = 21_000_000  # metres: no two places on Earth are farther apart


@dataclass(frozen=True)
class Places(Task):
    """Visual place recognition with mined triplets."""

    data: PlaceData = part("data", "town", {
        "town": f"{_MODULE}.data.town:TownPhotos",
        "msls": f"{_MODULE}.data.msls_photos:MslsPhotos",
        "photos": f"{_MODULE}.data.photo_folder:PhotoFolder",
    })  # fmt: skip
    model: PlaceModel = part("model", "descriptor", {"descriptor": f"{_MODULE}.model:PlaceModel"})
    mining: Miner | PlaceViews = part("mining", "partial", {
        "partial": f"{_MODULE}.mining:PartialMiner",
        "full": f"{_MODULE}.mining:FullMiner",
        "random": f"{_MODULE}.mining:RandomMiner",
        "local": f"{_MODULE}.mining:LocalMiner",
        "places": f"{_MODULE}.views:PlaceViews",
    })  # fmt: skip
    loss: PlaceLoss = part("loss", "triplet", {
        "triplet": f"{_MODULE}.losses:TripletLoss",
        "infonce": f"{_MODULE}.losses:InfoNCE",
        "multi_similarity": f"{_MODULE}.losses:MultiSimilarity",
    })  # fmt: skip
    augment: Augmentation = part("augment", "none", {
        "none": f"{_MODULE}.augment:NoAugmentation",
        "jitter": f"{_MODULE}.augment:ColourJitter",
        "jitter_crop": f"{_MODULE}.augment:JitterCrop",
        "client_jitter": f"{_MODULE}.augment:ClientJitter",
    })  # fmt: skip
    warmup: int = 0  # steps with InfoNCE and random negatives first, for networks that start from random weights
    radius: float = 25.0  # metres up to which an answer is right
    denominator: Denominator = "queries with a positive"
    search: Search = "city"  # look for a query in its own city's database, or in those of all cities at once

    provides: ClassVar[frozenset[str]] = frozenset({"features"})
    sources: ClassVar[frozenset[str]] = frozenset({"labels", "photos", "features", "files"})
    finished: ClassVar[str] = "wayfare.places.finished:PlacesRun"
    moved: ClassVar[Mapping[str, str]] = {
        **{key: f"data.{key}" for key in (
            "path", "height", "width", "test_cities", "subtask", "tolerance", "queries", "test", "piece", "own",
            "cache",
        )},
        **{key: f"data.test.{key}" for key in ("folds", "fold", "strip")},
        "town": "data.size",
        "town_seed": "data.seed",
        **{key: f"model.{key}" for key in ("weights", "train", "pooling", "l2", "linear", "whiten", "statistics")},
        "architecture": "model.backbone",
        "cnn_width": "model.backbone.width",
        "positive_radius": "task.mining.radius",
        "negative_pool": "task.mining.pool",
        **{key: f"task.mining.{key}" for key in (
            "negative_radius", "negatives", "refresh", "sequences", "per_sequence",
        )},
        **{key: f"task.loss.{key}" for key in ("margin", "distances")},
    }  # fmt: skip

    def __post_init__(self) -> None:
        if self.warmup < 0 or (self.warmup and isinstance(self.mining, PlaceViews)):
            raise ConfigError(f"task.warmup = {self.warmup}: expected at least 0 steps, and 0 with mining = 'places'")
        self._protocol("all")  # refuses what it cannot use

    @classmethod
    def example(cls) -> Places:
        """A task that is quick to try things with."""
        return cls(TownPhotos(size="tiny", height=32, width=48), PlaceModel(SmallCnnBackbone(4)))

    # ---- data

    @cached_property
    def loaded(self) -> PlaceSamples:
        """The photographs, which are read on first use."""
        return PlaceSamples(self.data)

    def describe_split(self, split: Population) -> dict[str, Any]:
        """Cities, continents and maps of who has which photographs."""
        places = census(split, self.photos)
        return {"table": places.pop("table"), "places": places}

    def read(self, progress: Progress) -> None:
        self.loaded.read(progress)

    def prepare(self, progress: Progress) -> None:
        self.loaded.read(progress)
        if not self.model.is_random:  # a random trunk is another one for every seed
            self.loaded.maps(self.network(), progress)

    def on_folder(self, path: str) -> Self | None:
        data = self.data.on_folder(path)
        return None if data is None else replace(self, data=data)

    def missing_files(self) -> list[str]:
        return self.model.missing_files()

    @property
    def samples(self) -> int:
        return len(self.loaded.divided.pool)

    @property
    def skipped(self) -> list[dict[str, str]]:
        return self.loaded.skipped

    @property
    def photos(self) -> PlacePhotos:
        """The pool of photographs that partitions deal out."""
        return self.loaded.pool

    @cached_property
    def features(self) -> tuple[PlacePhotos, np.ndarray]:
        """The pool, and the features that the network has of each photograph before it is trained."""
        torch.default_generator.manual_seed(0)  # a network without weights of its own is the same for every seed
        net = self.network().eval()
        return self.photos, self.embed(net, self.loaded.divided.pool)

    def source(self, name: str) -> Any:
        if name == "photos":
            return self.photos
        if name == "files":
            return SampleFiles(self.photos.root, tuple(self.photos.files.tolist()))
        return self.features if name == "features" else None

    # ---- network

    def network(self) -> Descriptor:
        net = self.model.network()
        if self.warmup:
            net.register_buffer("age", torch.zeros(()))  # steps so far; it travels, so that a warm-up has an end
        return net

    def views(self, net: nn.Module) -> dict[str, int]:
        return {"image": _checked(net).feature_dim}

    def embed(self, net: Descriptor, rows: np.ndarray) -> np.ndarray:
        """What the head makes of photographs of the table, in evaluation mode."""
        maps, was_training = self.loaded.maps(net), net.training
        found = np.empty((len(rows), net.feature_dim), np.float32)
        net.eval()
        with torch.no_grad():
            for start in range(0, len(rows), _SCAN):
                part = slice(start, start + _SCAN)
                found[part] = net.head(maps(net, rows[part])).float().cpu().numpy()
        net.train(was_training)
        return found

    def describe(self, net: nn.Module, images: np.ndarray) -> np.ndarray:
        """Descriptors (n, d) of any pictures, uint8 (n, height, width, 3)."""
        net = _checked(net).eval()
        found = [np.empty((0, net.feature_dim), np.float32)]
        with torch.no_grad():
            for start in range(0, len(images), _SCAN):
                part = torch.from_numpy(images[start : start + _SCAN]).to(net.mean.device)
                found.append(net(part.permute(0, 3, 1, 2).float().div_(255)).float().cpu().numpy())
        return np.concatenate(found)

    # ---- learning

    def steps(
        self, net: nn.Module, client: Client, batch_size: int, memo: dict[str, Any], rng: np.random.Generator
    ) -> Iterator[Batch]:
        """One local epoch, `batch_size` triplets at a time; or a pass over all photographs, that many places."""
        net = _checked(net)
        rows = self.loaded.divided.pool[np.unique(client.train)]
        if net.observes and "observed" not in memo:
            memo["observed"] = True
            maps = self.loaded.maps(net)
            net.observe(maps(net, rows[start : start + _SCAN]) for start in range(0, len(rows), _SCAN))
        if isinstance(self.mining, PlaceViews):
            yield from self._view_steps(self.mining, net, client, batch_size, memo=memo, rng=rng)
            return
        if "photos" not in memo:
            memo["photos"] = self.loaded.of_client(rows, self.mining)
        photos: ClientPhotos = memo["photos"]
        warming_up = self._is_warming_up(net)
        miner, loss = self._phase(self.mining, warming_up)
        for triplets in miner.triplets(photos, lambda members: self.embed(net, rows[members]), rng, batch_size):
            count, members = len(triplets.query), triplets.photos
            apart = torch.from_numpy(photos.apart(triplets.query, members[count:])) if loss.compares_all else None
            if warming_up:
                net.age += 1  # before the step, which may be the last that is asked for
            inputs = self._inputs(net, rows[members], count, client, rng)
            yield TripletBatch(inputs, queries=count, apart=apart, warmup=loss if warming_up else None)
            if warming_up and not self._is_warming_up(net):
                return  # from here on with hard negatives

    def cannot_train(self, samples: np.ndarray) -> str:
        rows = self.loaded.divided.pool[np.unique(samples)]
        try:
            if isinstance(self.mining, PlaceViews):
                self.mining.client(self.loaded.divided.photos.take(rows))
            else:
                self.loaded.of_client(rows, self.mining).check_usable()
        except WayfareError as error:
            return str(error)
        return super().cannot_train(samples)

    def _is_warming_up(self, net: Descriptor) -> bool:
        return self.warmup > 0 and float(net.age) < self.warmup

    def _view_steps(
        self,
        mining: PlaceViews,
        net: Descriptor,
        client: Client,
        places: int,
        *,
        memo: dict[str, Any],
        rng: np.random.Generator,
    ) -> Iterator[Batch]:
        rows = self.loaded.divided.pool[np.unique(client.train)]
        if "views" not in memo:
            memo["views"] = mining.client(self.loaded.divided.photos.take(rows))
            is_needed = mining.bank or not memo["views"].has_headings
            memo["features"] = self.embed(net, rows) if is_needed else None
        views, features = memo["views"], memo["features"]
        bank = torch.from_numpy(features) if mining.bank else None
        for photos, same, apart in mining.batches(views, rng, places, None if views.has_headings else features):
            # all views are augmented: none of them is the query
            inputs = self._inputs(net, rows[photos], len(photos), client, rng)
            yield ViewsBatch(inputs, same=torch.from_numpy(same), apart=torch.from_numpy(apart), bank=bank)

    def _phase(self, m: Miner, warming_up: bool) -> _Phase:
        if not warming_up:
            return _Phase(m, self.loss)
        return _Phase(RandomMiner(m.radius, m.negative_radius, m.negatives, m.refresh, steps=m.steps), InfoNCE())

    def _inputs(
        self, net: Descriptor, rows: np.ndarray, queries: int, client: Client, rng: np.random.Generator
    ) -> Tensor:
        """The trunk's maps; queries are augmented first, as in related code."""
        maps = self.loaded.maps(net)
        if not self.augment.changes:
            return maps(net, rows)
        shown = pictures(self.loaded.images, rows[:queries], net.mean.device)
        changed = self.augment(shown, rng, rng_for("augmentation", client.id))
        return torch.cat((net.trunk(changed), maps(net, rows[queries:])))

    def forward(self, net: nn.Module, batch: Batch) -> Output:
        return Output({"image": _checked(net).head(batch.inputs)})

    def scan(self, net: nn.Module, client: Client) -> Iterator[Batch]:
        maps, rows = self.loaded.maps(_checked(net)), self.loaded.divided.pool[client.train]
        for start in range(0, len(rows), _SCAN):
            yield Batch(maps(_checked(net), rows[start : start + _SCAN]))

    # ---- evaluation

    @property
    def protocol(self) -> str:
        divided = self.loaded.divided
        protocol = self._protocol(divided.test_name, divided.photos.pairs is not None)
        return protocol.words(len(divided.test_queries), self._answerable)

    @property
    def _answerable(self) -> int:
        """How many queries of the test have a right answer in its database."""
        divided = self.loaded.divided
        right = divided.photos.positives(self.radius, divided.test_queries, divided.test_database)
        return sum(len(rows) > 0 for rows in right)

    def _protocol(self, queries: str, paired: bool = False) -> Protocol:
        radius, data = None if paired else self.radius, self.data
        return Protocol(queries, radius, self.denominator, f"{data.height}x{data.width}", search=self.search)

    @property
    def metrics(self) -> Mapping[str, Kind]:
        metres = Number(0, _FARTHEST)
        return {"R@*": SHARE, "median_error_m*": metres, "p90_error_m*": metres, "spread": Number(0, 2)}

    def evaluate(self, net: nn.Module, samples: np.ndarray | None) -> dict[str, float]:
        result, descriptors = self.judge(_checked(net), samples)
        return {**result.metrics, "spread": spread(descriptors)} if len(descriptors) else result.metrics

    @property
    def warnings(self) -> list[str]:
        return self.model.warnings

    def alarm(self, now: dict[str, float], start: dict[str, float]) -> str:
        for name in ("test/spread", "clients/spread", "validation/spread"):
            if name in now and name in start:
                return collapsed(now[name], start[name])
        return ""

    def doubt(self, now: dict[str, float], start: dict[str, float]) -> str:
        reached, before = now.get("test/R@1"), start.get("test/R@1")
        if reached is None or before is None or reached >= before:
            return ""
        return (
            f"training has not helped: R@1 was {100 * before:.1f} before it and is {100 * reached:.1f}. Set "
            "evaluation.monitor = 'test/R@1' to keep the best round, or lower training.lr"
        )

    def judge(self, net: Descriptor, samples: np.ndarray | None) -> tuple[Result, np.ndarray]:
        """Every answer to the queries of the test, or of these samples; and descriptors of queries and database."""
        divided = self.loaded.divided
        photos = divided.photos
        if samples is None:
            queries, database = divided.test_queries, divided.test_database
        else:
            rows = divided.pool[np.unique(samples)]
            is_query = photos.query[rows] if photos.query is not None else np.zeros(len(rows), bool)
            queries, database = rows[is_query], rows[~is_query]
        vectors = torch.from_numpy(self.embed(net, np.concatenate((queries, database))))
        descriptors = net.finish(vectors.to(net.mean.device)).cpu().numpy()
        pairs = None
        if photos.pairs is not None:
            pairs = photos.take(np.concatenate((queries, database))).pairs
        if pairs is not None:
            pairs = pairs - np.array([0, len(queries)])
        positions = None if pairs is not None else np.stack((photos.easting, photos.northing), 1)
        result = recalls(
            descriptors[: len(queries)],
            descriptors[len(queries) :],
            query_positions=None if positions is None else positions[queries],
            database_positions=None if positions is None else positions[database],
            query_groups=photos.group[queries],
            database_groups=photos.group[database],
            protocol=self._protocol(divided.test_name, pairs is not None),
            parts=_parts(photos, queries) if samples is None else None,
            pairs=pairs,
        )
        return result, descriptors


def _parts(photos: PlacePhotos, queries: np.ndarray) -> dict[str, np.ndarray]:
    """Masks of the queries by city, light and direction, as far as they are known."""
    return parts_of(
        photos.city[queries] if len(set(photos.group[queries])) > 1 else None,
        None if photos.night is None else photos.night[queries],
        None if photos.direction is None else photos.direction[queries],
    )


def _checked(net: nn.Module) -> Descriptor:
    if not isinstance(net, Descriptor):
        raise WayfareError(f"place recognition needs a descriptor network, not {type(net).__name__}")
    return net
