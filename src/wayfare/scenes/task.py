"""Scenes: how do the things in a picture relate? Graphs by IMP, MOTIFS, VCTree or GPS-Net (federated PSG benchmark).

A sample is a picture with its objects; a head says of each ordered pair of them which predicate holds, if any. The
package's docstring says where each part is.

    protocol   R@K and mR@K over pictures, with graph constraint and without (ngR@K, ngmR@K); the label-pair frequency
               baseline stands beside them
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from wayfare.components import part
from wayfare.core.bundle import Weights
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Batch, Client, Output, Population, Progress, Task, silent
from wayfare.core.seeds import rng_for
from wayfare.core.values import SHARE, Kind
from wayfare.scenes import evaluation, frequency, recall
from wayfare.scenes.batch import GraphBatch, HeadOutput
from wayfare.scenes.counting import PlainSum
from wayfare.scenes.data import client_files
from wayfare.scenes.data.scene_data import SceneData, TownScenes
from wayfare.scenes.data.scene_graphs import SceneGraphs
from wayfare.scenes.debiasing import Adjusted, LogitAdjustment, NoDebiasing, at_tau, better_tau
from wayfare.scenes.heads.common import adopt_counts
from wayfare.scenes.loaded import LoadedScenes
from wayfare.scenes.models import HeadSpec, RelationModel
from wayfare.scenes.modes import SceneMode
from wayfare.scenes.pairs import PairLimits

_SCAN = 32  # pictures judged together


@dataclass
class RelationOutput(Output):
    """With how much each target counts in the loss, where that differs."""

    weights: Tensor | None = None


@dataclass(frozen=True)
class Scenes(Task):
    """Relations between the objects of pictures."""

    data: SceneData = part(
        "data",
        "town",
        {"town": "wayfare.scenes.data.scene_data:TownScenes", "psg": "wayfare.scenes.data.scene_data:PsgScenes"},
    )
    model: RelationModel = part(
        "model",
        "motifs",
        {
            "imp": "wayfare.scenes.models:ImpModel",
            "motifs": "wayfare.scenes.models:MotifsModel",
            "vctree": "wayfare.scenes.models:VCTreeModel",
            "gpsnet": "wayfare.scenes.models:GPSNetModel",
        },
    )
    mode: SceneMode = part(
        "mode", "predcls", {"predcls": "wayfare.scenes.modes:PredCls", "sgdet": "wayfare.scenes.modes:SGDet"}
    )
    debias: NoDebiasing = part(
        "debias",
        "none",
        {
            "none": "wayfare.scenes.debiasing:NoDebiasing",
            "adjust": "wayfare.scenes.debiasing:LogitAdjustment",
            "reweight": "wayfare.scenes.debiasing:Reweighting",
            "tde": "wayfare.scenes.debiasing:DirectEffect",
        },
    )
    sum: PlainSum = part(
        "sum", "plain", {"plain": "wayfare.scenes.counting:PlainSum", "noised": "wayfare.scenes.counting:NoisedSum"}
    )
    pairs: int = 1024  # of a picture, at most, in training
    positive: int = 256  # of these, at most, related ones
    as_paper: bool = False  # pictures without a guess are left out of the mean, not counted as 0

    sources: ClassVar[frozenset[str]] = frozenset({"labels", "categories", "ids"})
    provides: ClassVar[frozenset[str]] = frozenset({"features"})
    finished: ClassVar[str] = "wayfare.scenes.finished:ScenesRun"
    moved: ClassVar[Mapping[str, str]] = {
        **{key: f"data.{key}" for key in ("path", "super_classes", "test", "own")},
        **{"town": "data.size", "town_seed": "data.seed", "data_seed": "data.test_seed"},
        **{"head": "model.name", "features_path": "model.features.path"},
        **{key: f"model.{key}" for key in ("features", "widths", "preset", "start", "word_vectors", "frequency_bias")},
        **{key: f"model.{key}" for key in ("nps", "layers", "order", "tree")},
        **{key: f"task.mode.{key}" for key in ("detections", "overlap")},
    }

    def __post_init__(self) -> None:
        if min(self.pairs, self.positive) < 1:
            raise ConfigError(f"task.pairs = {self.pairs}, task.positive = {self.positive}: expected at least 1")
        if self.positive > self.pairs:
            raise ConfigError(f"task.positive = {self.positive}: expected at most task.pairs = {self.pairs}")
        self.model.check_mode(self.mode.mode)

    @classmethod
    def example(cls) -> Scenes:
        """A task that is quick to try things with."""
        return cls(data=TownScenes(size="tiny", test=20), pairs=64, positive=16)

    # ---- data

    @cached_property
    def loaded(self) -> LoadedScenes:
        """The pictures, read once."""
        return LoadedScenes(self.data, self.mode, self.model.features, self.as_paper)

    def prepare(self, progress: Progress) -> None:
        self.data.load(progress)  # `loaded` then finds it made and read
        self.loaded.prepare(progress)

    def on_folder(self, path: str) -> Self | None:
        data = self.data.on_folder(path)
        return None if data is None else replace(self, data=data)

    def fixed(self) -> Self:
        """The same: annotations name their classes."""
        return self

    def source(self, name: str) -> Any:
        """A picture has many relations and no one class: partitions go by `categories`, or by the pictures' ids."""
        if name == "ids":
            return self.loaded.train.truth.image_ids
        return self.loaded.categories if name == "categories" else None

    def save_split(self, split: Population, path: Path) -> bool:
        """As FL-PSG publishes splits: a folder of UserN.json, or FILE.json with ids."""
        if path.suffix not in ("", ".json"):
            return False
        ids = self.loaded.train.truth.image_ids
        clients = [[str(image_id) for image_id in ids[np.sort(rows)]] for rows in split]
        if path.suffix:
            client_files.write_lists(path, clients)
        else:
            client_files.write_folder(path, self.data.file(silent), clients)
        return True

    @property
    def terms(self) -> tuple[str, ...]:
        """What the numbers of annotations stand for: devices of one federation mean the same by them."""
        return (*self.loaded.all.truth.classes, "", *self.loaded.all.truth.predicates)

    @property
    def samples(self) -> int:
        return len(self.loaded.train.truth)

    @property
    def classes(self) -> tuple[str, ...]:
        """The predicates."""
        return self.loaded.train.truth.predicates

    @property
    def protocol(self) -> str:
        """What a recall is a recall of."""
        pictures, empty = len(self.loaded.test.truth), "left out" if self.as_paper else "count 0"
        constraint = "with graph constraint (ng: without)"
        return f"{self.mode.protocol}, {constraint}, {pictures} pictures; those without a guess {empty}"

    # ---- learning

    def network(self) -> nn.Module:
        loaded = self.loaded
        spec = HeadSpec(
            classes=loaded.train.truth.classes,
            predicates=len(self.classes),
            width_x=loaded.provider.width_x,
            width_u=loaded.provider.width_u,
            mode=self.mode.mode,
        )
        return self.debias.wrap(self.model.network(spec), spec.predicates)

    def views(self, net: nn.Module) -> dict[str, int]:
        with torch.no_grad():
            output: HeadOutput = net.eval()(self._graphs(np.arange(1), rng_for(0, "scan")))
        net.train()
        return {"relation": output.features.shape[1]}

    def steps(
        self, net: nn.Module, client: Client, batch_size: int, memo: dict[str, Any], rng: np.random.Generator
    ) -> Iterator[Batch]:
        order = rng.permutation(client.train[self.loaded.has_pairs[client.train]])
        for start in range(0, len(order), batch_size):
            yield self._batch(net, order[start : start + batch_size], rng)

    def steps_in_pass(self, client: Client, batch_size: int) -> int:
        return -(-int(self.loaded.has_pairs[client.train].sum()) // batch_size)

    def forward(self, net: nn.Module, batch: Batch) -> Output:
        graphs: GraphBatch = batch.inputs
        output: HeadOutput = net(graphs)
        extra = output.extra
        if output.objects is not None and len(graphs.targets):
            naming = self.model.label_loss(output.objects, graphs)
            extra = naming if extra is None else extra + naming
        features = {"relation": _by_picture(output.features, graphs)}
        return RelationOutput(features, output.predicates, extra, output.weights)

    def loss(self, output: Output, batch: Batch, memo: dict[str, Any]) -> Tensor:
        if output.logits is None:
            raise TypeError("relations need logits")
        weights = output.weights if isinstance(output, RelationOutput) else None
        loss = cross_entropy(output.logits, batch.inputs.targets, weights)
        return loss if output.extra is None else loss + output.extra

    def scan(self, net: nn.Module, client: Client) -> Iterator[Batch]:
        for start in range(0, len(client.train), _SCAN):
            yield self._batch(net, client.train[start : start + _SCAN], rng_for(0, "scan"))

    def _batch(self, net: nn.Module, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        return Batch(self._graphs(rows, rng).to(next(net.parameters()).device))

    def _graphs(self, rows: np.ndarray, rng: np.random.Generator) -> GraphBatch:
        pictures = self.loaded.train.select(rows)
        return self.mode.batch(pictures, self.loaded.provider, rng, PairLimits(self.pairs, self.positive))

    # ---- counts before the first round

    @property
    def counted(self) -> bool:
        return self.model.counted or self.debias.counted

    @property
    def about_counts(self) -> str:
        return self.sum.about

    def counts(self, client: Client) -> Weights:
        return self.sum.counted(self.loaded.train.truth.select(client.train))

    def blurred(self, counts: Weights, rng: np.random.Generator) -> Weights:
        """On a real device the noise is nobody's to know; in a simulation it comes from the run's seed."""
        return self.sum.blurred(counts, np.random.default_rng() if self.data.is_own else rng)

    def counts_fault(self, counts: Weights, examples: int) -> str:
        return self.sum.fault(counts, examples)

    def adopt_counts(self, net: nn.Module, sums: Weights) -> None:
        adopt_counts(net, self.sum.frequencies(sums))

    def baseline(self, sums: Weights) -> dict[str, float]:
        return self.loaded.baseline(self.sum.frequencies(sums))

    # ---- evaluation

    @property
    def metrics(self) -> Mapping[str, Kind]:
        return dict.fromkeys(("R@*", "mR@*", "ngR@*", "ngmR@*", "zR@*", "single *", "frequency *"), SHARE)

    def evaluate(self, net: nn.Module, samples: np.ndarray | None) -> dict[str, float]:
        loaded = self.loaded
        pictures = loaded.test if samples is None else loaded.train.select(samples)
        found = evaluation.guesses(net, loaded.provider, pictures.scenes, pictures.scores)
        metrics = loaded.metrics(found, samples)
        return metrics if samples is None else metrics | self._tried(net, samples)

    def doubt(self, now: dict[str, float], start: dict[str, float]) -> str:
        """That the head is below the baseline, or that another tau is better on clients that do not train."""
        found = []
        if floor := frequency.below(now):
            remedy = "" if self.model.counted else ", or begin with counts: model.frequency_bias = true"
            found.append(f"{floor}. Train longer{remedy}")
        if isinstance(self.debias, LogitAdjustment) and (best := better_tau(now, self.debias.tau)) is not None:
            found.append(f"On the clients that do not train, another tau is better: task.debias.tau = {best:g}")
        return ". ".join(found)

    def predicate_recalls(self, net: nn.Module, cutoff: int = 50) -> dict[str, float]:
        """R@K of each predicate on the test pictures."""
        loaded, test = self.loaded, self.loaded.test
        (found,) = evaluation.guesses(net, loaded.provider, test.scenes, test.scores, constraints=(True,))
        return loaded.predicate_recalls(found, cutoff)

    def _tried(self, net: nn.Module, samples: np.ndarray) -> dict[str, float]:
        """Recalls with each further value of tau on a client's samples."""
        found: dict[str, float] = {}
        tried = self.debias.tried if isinstance(self.debias, LogitAdjustment) else ()
        pictures = self.loaded.train.select(samples)
        for head in (module for module in net.modules() if isinstance(module, Adjusted)):
            for tau in tried:
                with head.using(tau):
                    some = evaluation.guesses(
                        net, self.loaded.provider, pictures.scenes, pictures.scores, constraints=(True,)
                    )
                metrics = self.loaded.metrics(some, samples)
                found |= {at_tau(name, tau): metrics[name] for name in ("R@20", "mR@20") if name in metrics}
        return found

    def guesses(self, net: nn.Module, scenes: SceneGraphs, most: int = max(recall.CUTOFFS)) -> recall.Guesses:
        """The best guesses for pictures whose objects have boxes and labels, one predicate for each pair."""
        return evaluation.guesses(net, self.loaded.provider, scenes, most=most, constraints=(True,))[0]


def _by_picture(features: Tensor, graphs: GraphBatch) -> Tensor:
    """The mean over a picture's pairs: a sample is a picture."""
    image = graphs.image.index_select(0, graphs.pairs[:, 0])
    sums = features.new_zeros(graphs.images, features.shape[1]).index_add(0, image, features)
    return sums / torch.bincount(image, minlength=graphs.images).clamp(min=1)[:, None]
