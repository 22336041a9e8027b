"""Scenes: how do the things in a picture relate? Graphs by IMP, MOTIFS, VCTree or GPS-Net (federated PSG benchmark).

A sample is a picture with its objects (boxes and labels are given: PredCls); a head says of each ordered pair of them
which predicate holds, if any. What it sees of objects and pairs comes from a provider: `geometry` needs no pictures.

    data       psg.json (a file or its folder), VRD in the same form, or the town's, made on first use
    test       the pictures that the file names as test pictures, or else so many drawn from the seed
    protocol   with graph constraint, R@K and mR@K over pictures; the label-pair frequency baseline stands beside it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from wayfare.core.protocols import Batch, Client, Output
from wayfare.core.seeds import rng_for
from wayfare.data import psg, super_classes
from wayfare.data.cache import cache_dir
from wayfare.data.scene_graphs import SceneGraphs
from wayfare.data.semantics import Categories, categories
from wayfare.errors import ConfigError
from wayfare.tasks.sgg import frequency, recall
from wayfare.tasks.sgg.features import Provider, batch, provider
from wayfare.tasks.sgg.graphs import Graphs, Said
from wayfare.tasks.sgg.heads.common import preset
from wayfare.tasks.sgg.pairs import all_pairs, training_pairs

Head = Literal["imp", "motifs", "vctree", "gpsnet"]
_SCAN = 32  # pictures judged together
_GROUPS = "word_categorized.json"


@dataclass(frozen=True)
class Scenes:
    """Relations between given objects (PredCls)."""

    path: str = ""  # a psg.json or its folder; "": the town's, made on first use
    town: Literal["tiny", "small", "city"] = "small"
    town_seed: int = 0
    super_classes: str = ""  # the file that groups classes and predicates; "": word_categorized.json beside the data
    head: Head = "motifs"
    widths: Literal["small", "paper"] = "small"
    features: Literal["geometry", "roi", "file"] = "geometry"
    features_path: str = ""  # the folder of features = "file"
    frequency_bias: bool = False  # MOTIFS' and VCTree's bias, GPS-Net's ARM: off in the code that the paper ran
    test: int = 2000  # pictures to test with, where the data names none
    data_seed: int = 0  # which these are
    pairs: int = 1024  # of a picture, at most, in training
    positive: int = 256  # of these, at most, related ones
    as_paper: bool = False  # pictures without a guess are left out of the mean, not counted as 0

    provides: ClassVar[frozenset[str]] = frozenset({"features"})

    def __post_init__(self) -> None:
        if (self.features == "file") != bool(self.features_path):
            raise ConfigError("task.features_path goes with task.features = 'file', the folder of what was computed")
        if self.frequency_bias and self.head == "imp":
            raise ConfigError("IMP has no frequency bias: task.frequency_bias goes with motifs, vctree and gpsnet")
        if min(self.test, self.pairs, self.positive) < 1:
            raise ConfigError("task.test, task.pairs and task.positive: at least 1")

    @classmethod
    def example(cls) -> Scenes:
        """A task that is quick to try things with."""
        return cls(town="tiny", test=20, pairs=64, positive=16)

    # ---- data

    def ready(self, progress: Any) -> None:
        """Do what takes long before the first round, saying how far it is: progress(what, done, total)."""
        if not self.path:
            self._town(progress)

    def _town(self, progress: Any = lambda *_: None) -> Path:
        from wayfare.data.town.make import Spec, make

        spec = Spec(self.town, self.town_seed, layouts=("psg",))
        folder = cache_dir() / "towns" / f"scenes-{spec.size}-{spec.seed}-form{spec.form}"
        make(folder, spec, progress=lambda text, done, total: progress(f"making the town: {text}", done, total))
        return folder / "psg"

    @cached_property
    def _file(self) -> Path:
        return Path(self.path) if self.path else self._town()

    @cached_property
    def _parts(self) -> tuple[SceneGraphs, SceneGraphs]:
        """Pictures to train on and to test with; none is without relations."""
        graphs = psg.load(self._file, drop=("self", "duplicates", "empty"))
        test = graphs.test
        if not test.any():
            if self.test >= len(graphs):
                raise ConfigError(f"task.test = {self.test} leaves none of {len(graphs)} pictures to train on")
            test = np.zeros(len(graphs), bool)
            test[rng_for(self.data_seed, "test pictures").permutation(len(graphs))[: self.test]] = True
        return graphs.select(~test), graphs.select(test)

    @property
    def samples(self) -> int:
        return len(self._parts[0])

    @property
    def labels(self) -> None:
        """A picture has many relations and no one class: partitions go by `categories`."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The predicates."""
        return self._parts[0].predicates

    @cached_property
    def categories(self) -> Categories:
        """Which relations between which kinds of things each picture has: what the partition `semantic` goes by."""
        pool, folder = self._parts[0], self._file if self._file.is_dir() else self._file.parent
        file = Path(self.super_classes) if self.super_classes else folder / _GROUPS
        if not file.exists():
            raise ConfigError(f"the groups of classes and predicates are wanted in {file}: set task.super_classes")
        return categories(pool, groups=super_classes.load(file, pool.classes, pool.predicates))

    @property
    def protocol(self) -> str:
        """What a recall is a recall of."""
        empty = "left out" if self.as_paper else "count 0"
        return f"PredCls, graph constraint, {len(self._parts[1])} pictures; those without a guess {empty}"

    # ---- network

    @cached_property
    def _provider(self) -> Provider:
        folder = Path(self.features_path) if self.features_path else None
        return provider(self.features, len(self._parts[0].classes), folder)

    @cached_property
    def _frequencies(self) -> frequency.Frequencies:
        """Counted over everybody's pictures: a sum that the federation discloses (docs)."""
        return frequency.count(self._parts[0])

    def network(self) -> nn.Module:
        from wayfare.tasks.sgg.heads.gpsnet import GPSNet
        from wayfare.tasks.sgg.heads.imp import IMP
        from wayfare.tasks.sgg.heads.motifs import MOTIFS
        from wayfare.tasks.sgg.heads.vctree import VCTree

        kinds: dict[str, Any] = {"imp": IMP, "motifs": MOTIFS, "vctree": VCTree, "gpsnet": GPSNet}
        extra = {"frequency": torch.from_numpy(self._frequencies.log_table())} if self.frequency_bias else {}
        sizes = len(self._parts[0].classes), len(self.classes), self._provider.width_x, self._provider.width_u
        net: nn.Module = kinds[self.head](*sizes, preset(self.widths), **extra)
        return net

    def views(self, net: nn.Module) -> dict[str, int]:
        with torch.no_grad():
            said: Said = net.eval()(self._graphs(self._parts[0], np.arange(1), None))
        net.train()
        return {"relation": said.features.shape[1]}

    # ---- learning

    def steps(
        self, net: nn.Module, client: Client, batch_size: int, memo: dict[str, Any], rng: np.random.Generator
    ) -> Iterator[Batch]:
        order = rng.permutation(client.train)
        for start in range(0, len(order), batch_size):
            yield self._batch(net, order[start : start + batch_size], rng)

    def forward(self, net: nn.Module, batch: Batch) -> Output:
        said: Said = net(batch.inputs)
        return Output({"relation": _by_picture(said.features, batch.inputs)}, said.predicates, said.extra)

    def loss(self, output: Output, batch: Batch, memo: dict[str, Any]) -> Tensor:
        if output.logits is None:
            raise TypeError("relations need logits")
        loss = cross_entropy(output.logits, batch.inputs.targets)
        return loss if output.extra is None else loss + output.extra

    def scan(self, net: nn.Module, client: Client) -> Iterator[Batch]:
        for start in range(0, len(client.train), _SCAN):
            yield self._batch(net, client.train[start : start + _SCAN], rng_for(0, "scan"))

    @torch.no_grad()
    def evaluate(self, net: nn.Module, samples: np.ndarray | None) -> dict[str, float]:
        whole = self._parts[0] if samples is not None else self._parts[1]
        rows = np.arange(len(whole)) if samples is None else samples
        found: recall.Tally | None = None
        for start in range(0, len(rows), _SCAN):
            scenes = whole.select(rows[start : start + _SCAN])
            pairs = all_pairs(scenes)
            said: Said = net(batch(scenes, self._provider, pairs).to(_where(net)))
            guesses = recall.ranked(said.predicates.softmax(1).cpu().numpy(), pairs, scenes)
            counted = recall.tally(guesses, scenes, as_paper=self.as_paper)
            found = counted if found is None else found + counted
        metrics = {} if found is None else found.metrics
        return metrics | (self._floor if samples is None else {})

    @cached_property
    def _floor(self) -> dict[str, float]:
        """What the label-pair frequency baseline finds of the test pictures."""
        test = self._parts[1]
        metrics = recall.tally(frequency.guesses(self._frequencies, test), test, as_paper=self.as_paper).metrics
        return {f"frequency {name}": value for name, value in metrics.items() if "/" not in name}

    def _batch(self, net: nn.Module, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        return Batch(self._graphs(self._parts[0], rows, rng).to(_where(net)))

    def _graphs(self, whole: SceneGraphs, rows: np.ndarray, rng: np.random.Generator | None) -> Graphs:
        scenes = whole.select(rows)
        pairs, targets = training_pairs(scenes, rng or rng_for(0, "scan"), self.pairs, self.positive)
        return batch(scenes, self._provider, pairs, targets)


def _by_picture(features: Tensor, graphs: Graphs) -> Tensor:
    """The mean over a picture's pairs: a sample is a picture."""
    image = graphs.image.index_select(0, graphs.pairs[:, 0])
    sums = features.new_zeros(graphs.images, features.shape[1]).index_add(0, image, features)
    return sums / torch.bincount(image, minlength=graphs.images).clamp(min=1)[:, None]


def _where(net: nn.Module) -> torch.device:
    return next(net.parameters()).device
