"""Scenes: how do the things in a picture relate? Graphs by IMP, MOTIFS, VCTree or GPS-Net (federated PSG benchmark).

A sample is a picture with its objects; a head says of each ordered pair of them which predicate holds, if any. What it
sees of objects and pairs comes from a provider: `geometry` needs no pictures.

    data       psg.json (a file or its folder), VRD in the same form, or the town's, made on first use
    test       the pictures that the file names as test pictures, or else so many drawn from the seed
    predcls    boxes and labels are the annotated ones, and a guess must name the very objects
    sgdet      they are a detector's (`detections`), or the annotated segments taken as such; a guess must name objects
               of the annotated classes that overlap the annotated ones by half, boxes or masks. Heads also learn to
               refine labels; their certainty of the best label counts in a guess, but the detector's label is judged,
               as in the paper's code
    protocol   R@K and mR@K over pictures, with graph constraint and without (ngR@K, ngmR@K); the label-pair frequency
               baseline stands beside them
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
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
from wayfare.tasks.sgg import detections, frequency, judging, recall
from wayfare.tasks.sgg.building import GOES_WITH, build, check_option
from wayfare.tasks.sgg.features import Provider, batch, provider
from wayfare.tasks.sgg.graphs import Graphs, Said
from wayfare.tasks.sgg.heads.common import preset
from wayfare.tasks.sgg.judging import Part
from wayfare.tasks.sgg.kept import Kept
from wayfare.tasks.sgg.pairs import box_overlaps, detected_pairs, training_pairs
from wayfare.tasks.sgg.reward import recall_of_targets
from wayfare.tasks.sgg.roi import Roi

Head = Literal["imp", "motifs", "vctree", "gpsnet"]
_SCAN = 32  # pictures judged together


@dataclass(frozen=True)
class Scenes:
    """Relations between the objects of pictures."""

    path: str = ""  # a psg.json or its folder; "": the town's, made on first use
    town: Literal["tiny", "small", "city"] = "small"
    town_seed: int = 0
    super_classes: str = ""  # groups of classes and predicates: a file, "paper" or "none"; "": see super_classes.choose
    mode: Literal["predcls", "sgdet"] = "predcls"  # objects are the annotated ones, or a detector's
    detections: str = ""  # of sgdet: the detector's file (see sgg/detections.py); "": the annotated segments
    overlap: Literal["boxes", "masks"] = "boxes"  # by which sgdet is judged; masks need panoptic pictures of both sides
    head: Head = "motifs"
    widths: Literal["small", "paper"] = "small"
    preset: Literal["as-run", "as-described"] = "as-run"  # the latter: with parts that only the paper's text has
    start: str = ""  # a finished run, or its model's file, whose weights the network begins with
    word_vectors: str = ""  # a file in GloVe's form that labels' vectors begin with; "": normal numbers
    features: Literal["geometry", "roi", "file"] = "geometry"
    features_path: str = ""  # the folder of features = "file"
    frequency_bias: bool = False  # MOTIFS' and VCTree's bias, GPS-Net's ARM: off in the code that the paper ran
    nps: bool = False  # GPS-Net's loss of refined labels, which cares most for those with many relations (sgdet)
    layers: int = 1  # GPS-Net's rounds of messages; 2 when first published
    order: Literal["", "parallel", "sequential", "right-left", "left-right"] = ""  # IMP's messages, MOTIFS' objects
    tree: Literal["supervised", "reinforced"] = "supervised"  # how VCTree's scores learn; the latter needs `start`
    test: int = 2000  # pictures to test with, where the data names none
    data_seed: int = 0  # which these are
    pairs: int = 1024  # of a picture, at most, in training
    positive: int = 256  # of these, at most, related ones
    as_paper: bool = False  # pictures without a guess are left out of the mean, not counted as 0
    own: bool = False  # the data is a device's own: nothing is held back to test with

    provides: ClassVar[frozenset[str]] = frozenset({"features"})

    def __post_init__(self) -> None:
        if (self.features == "file") != bool(self.features_path):
            raise ConfigError("task.features_path goes with task.features = 'file', the folder of what was computed")
        defaults = {field.name: field.default for field in fields(self)}
        for name in GOES_WITH:
            if getattr(self, name) != defaults[name]:
                check_option(name, self.head)
        if min(self.test, self.pairs, self.positive, self.layers) < 1:
            raise ConfigError("task.test, task.pairs, task.positive and task.layers: at least 1")
        if self.positive > self.pairs:
            raise ConfigError(f"task.positive = {self.positive} are among task.pairs = {self.pairs}: at most as many")
        if self.mode == "predcls" and (self.detections or self.overlap == "masks"):
            raise ConfigError("task.detections and task.overlap go with task.mode = 'sgdet': predcls has no detector")
        if self.nps and self.mode == "predcls":
            raise ConfigError("task.nps is a loss of refined labels, and predcls has given ones: task.mode = 'sgdet'")
        if self._is_reinforced and not self.start:
            raise ConfigError(
                "a reinforced tree changes only the scores of a network that has learned all else with "
                "task.tree = 'supervised': name that run in task.start"
            )

    @classmethod
    def example(cls) -> Scenes:
        """A task that is quick to try things with."""
        return cls(town="tiny", test=20, pairs=64, positive=16)

    # ---- data

    def ready(self, progress: Any) -> None:
        """Do what takes long before the first round, saying how far it is: progress(what, done, total)."""
        if not self.path:
            self._town(progress)
        if self.features == "roi":
            self._kept.compute(lambda done, total: progress("looking at the pictures", done, total))

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
    def _whole(self) -> Part:
        """All pictures that have relations."""
        file = psg.the_file(self._file)
        graphs = _read(file, file.stat().st_mtime_ns if file.is_file() else 0)
        if self.mode == "predcls":
            return Part(graphs)
        if not self.detections:
            return Part(graphs, detections.annotated(graphs))
        return Part(graphs, detections.read(Path(self.detections), graphs))

    @cached_property
    def _pools(self) -> tuple[Part, Part]:
        """Pictures to train on and to test with."""
        graphs = self._whole.truth
        test = graphs.test
        if not test.any() and not self.own:
            if self.test >= len(graphs):
                raise ConfigError(f"task.test = {self.test} leaves none of {len(graphs)} pictures to train on")
            test = np.zeros(len(graphs), bool)
            test[rng_for(self.data_seed, "test pictures").permutation(len(graphs))[: self.test]] = True
        return self._whole.select(np.flatnonzero(~test)), self._whole.select(np.flatnonzero(test))

    @property
    def _parts(self) -> tuple[SceneGraphs, SceneGraphs]:
        """What is annotated of the pictures to train on and to test with; none is without relations."""
        return self._pools[0].truth, self._pools[1].truth

    @property
    def tested(self) -> SceneGraphs:
        """What is annotated of the pictures to test with."""
        return self._parts[1]

    def settled(self) -> Scenes:
        """The same: annotations name their classes. Refuses what devices would not have in common."""
        if self.head == "gpsnet" and (self.frequency_bias or self._is_described("gpsnet")):
            raise ConfigError(
                "GPS-Net's table of frequencies is counted and not learnt, and each device of a federation would count "
                "its own: use task.frequency_bias = false, or motifs or vctree, whose table is learnt and travels"
            )
        return self

    @property
    def terms(self) -> tuple[str, ...]:
        """What the numbers of annotations stand for: devices of one federation mean the same by them."""
        return (*self._whole.truth.classes, "", *self._whole.truth.predicates)

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
        """Which relations between which kinds of things each picture has: what the partition `semantic` goes by.

        Without groups each class and each predicate is a group of its own.
        """
        pool, folder = self._parts[0], self._file if self._file.is_dir() else self._file.parent
        groups = super_classes.choose(self.super_classes, folder, pool.classes, pool.predicates)
        try:
            return categories(pool, groups=groups)
        except ConfigError as error:
            raise ConfigError(f"{error}: name their file in task.super_classes") from error

    @property
    def protocol(self) -> str:
        """What a recall is a recall of."""
        empty = "left out" if self.as_paper else "count 0"
        kind = "PredCls"
        if self.mode == "sgdet":
            kind = f"SGDet on {Path(self.detections).name or 'annotated segments'}, {self.overlap} at IoU 0.5"
        pictures = f"{len(self._parts[1])} pictures; those without a guess {empty}"
        return f"{kind}, with graph constraint (ng: without), {pictures}"

    # ---- network

    @cached_property
    def _provider(self) -> Provider:
        if self.features == "roi":
            return self._kept
        folder = Path(self.features_path) if self.features_path else None
        return provider(self.features, len(self._parts[0].classes), folder)

    @cached_property
    def _kept(self) -> Kept:
        return Kept(Roi(), self._whole.scenes)

    @cached_property
    def _frequencies(self) -> frequency.Frequencies:
        """Counted over everybody's pictures: a sum that the federation discloses (docs)."""
        return frequency.count(self._parts[0])

    def _is_described(self, head: Head) -> bool:
        return self.preset == "as-described" and self.head == head

    @property
    def _is_reinforced(self) -> bool:
        return self.tree == "reinforced" or self._is_described("vctree")

    @property
    def _has_nps(self) -> bool:
        return self.nps or (self._is_described("gpsnet") and self.mode == "sgdet")

    def network(self) -> nn.Module:
        options: dict[str, Any] = {"mode": self.mode}
        if self.frequency_bias or self._is_described("motifs") or self._is_described("gpsnet"):
            options["frequency"] = torch.from_numpy(self._frequencies.log_table())
        if self.order:
            options["order"] = self.order
        if self.head == "gpsnet":
            options |= {"layers": self.layers, "nps": self._has_nps}
        if self._is_reinforced:
            options |= {"tree": "reinforced", "reward": recall_of_targets}
        features = self._provider.width_x, self._provider.width_u
        names = self._parts[0].classes
        widths = preset(self.widths)
        return build(self.head, names, len(self.classes), features, widths, options, self.word_vectors, self.start)

    def views(self, net: nn.Module) -> dict[str, int]:
        with torch.no_grad():
            said: Said = net.eval()(self._graphs(np.arange(1), rng_for(0, "scan")))
        net.train()
        return {"relation": said.features.shape[1]}

    # ---- learning

    def steps(
        self, net: nn.Module, client: Client, batch_size: int, memo: dict[str, Any], rng: np.random.Generator
    ) -> Iterator[Batch]:
        order = rng.permutation(client.train[self._usable[client.train]])
        for start in range(0, len(order), batch_size):
            yield self._batch(net, order[start : start + batch_size], rng)

    @cached_property
    def _usable(self) -> np.ndarray:
        """bool, for each picture to train on: it has objects to pair."""
        return np.diff(self._pools[0].scenes.object_offsets) > 1

    def forward(self, net: nn.Module, batch: Batch) -> Output:
        graphs: Graphs = batch.inputs
        said: Said = net(graphs)
        extra = said.extra
        if said.objects is not None and not self._has_nps and len(graphs.targets):  # NPS stands in its place
            naming = _of_known_labels(said.objects, graphs.true_labels)
            extra = naming if extra is None else extra + naming
        return Output({"relation": _by_picture(said.features, graphs)}, said.predicates, extra)

    def loss(self, output: Output, batch: Batch, memo: dict[str, Any]) -> Tensor:
        if output.logits is None:
            raise TypeError("relations need logits")
        loss = cross_entropy(output.logits, batch.inputs.targets)
        return loss if output.extra is None else loss + output.extra

    def scan(self, net: nn.Module, client: Client) -> Iterator[Batch]:
        for start in range(0, len(client.train), _SCAN):
            yield self._batch(net, client.train[start : start + _SCAN], rng_for(0, "scan"))

    def evaluate(self, net: nn.Module, samples: np.ndarray | None) -> dict[str, float]:
        part = self._pools[1] if samples is None else self._pools[0].select(samples)
        overlaps = self._test_overlaps if samples is None else part.overlaps(self.overlap)
        most = max(recall.CUTOFFS)
        found = judging.guesses(net, self._provider, part.scenes, part.scores, most, (True, False))
        metrics = judging.metrics(found, part, overlaps, self.as_paper)
        return metrics | (self._floor if samples is None else {})

    def guesses(
        self,
        net: nn.Module,
        scenes: SceneGraphs,
        most: int = max(recall.CUTOFFS),
        *,
        scores: np.ndarray | None = None,
        constraint: bool = True,
    ) -> recall.Guesses:
        """The best guesses for pictures whose objects have boxes, labels and, perhaps, scores (a number each)."""
        return judging.guesses(net, self._provider, scenes, scores, most, (constraint,))[0]

    @cached_property
    def _floor(self) -> dict[str, float]:
        """What the label-pair frequency baseline finds of the test pictures."""
        part, table = self._pools[1], self._frequencies
        both = [frequency.guesses(table, part.scenes, part.scores, constraint=one) for one in (True, False)]
        metrics = judging.metrics(both, part, self._test_overlaps, self.as_paper)
        return {f"frequency {name}": value for name, value in metrics.items() if "/" not in name}

    @cached_property
    def _test_overlaps(self) -> np.ndarray | None:
        return self._pools[1].overlaps(self.overlap)

    def _batch(self, net: nn.Module, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        return Batch(self._graphs(rows, rng).to(_where(net)))

    def _graphs(self, rows: np.ndarray, rng: np.random.Generator) -> Graphs:
        part = self._pools[0].select(rows)
        if part.seen is None:
            return batch(part.truth, self._provider, *training_pairs(part.truth, rng, self.pairs, self.positive))
        overlaps = box_overlaps(part.scenes, part.truth)
        sample = detected_pairs(part.scenes, part.truth, rng, overlaps, self.pairs, self.positive)
        labels = detections.true_labels(part.scenes, part.truth, overlaps)
        return batch(part.scenes, self._provider, *sample, labels)


def _of_known_labels(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of the objects whose class is known; 0 if that is none."""
    return cross_entropy(logits, labels, ignore_index=-1, reduction="sum") / (labels >= 0).sum().clamp(min=1)


def _by_picture(features: Tensor, graphs: Graphs) -> Tensor:
    """The mean over a picture's pairs: a sample is a picture."""
    image = graphs.image.index_select(0, graphs.pairs[:, 0])
    sums = features.new_zeros(graphs.images, features.shape[1]).index_add(0, image, features)
    return sums / torch.bincount(image, minlength=graphs.images).clamp(min=1)[:, None]


def _where(net: nn.Module) -> torch.device:
    return next(net.parameters()).device


@lru_cache(maxsize=1)
def _read(file: Path, date: int) -> SceneGraphs:
    """Pictures that have relations: read once for all experiments that a process plays, unless the file changes."""
    return psg.load(file, drop=("self", "duplicates", "empty"))
