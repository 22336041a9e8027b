"""The task: batches and buffers around a base method, and MAP as the metric.

A sample is a pair of a picture and a text with labels; pairs that share a label are relevant to each other. Two
encoders learn by a base method to give numbers whose signs are codes, near each other where pairs are relevant.

    labels     where there are two levels, the fine one says what is relevant; SHDCH learns from both
    protocol   MAP of queries against the retrieval set, both ways, over the whole list; ties at their expectation

A local pass is a phase of batches of one view and then one of the other, each batch drawn afresh: floor(n / batch_size)
of each, at least one. A device that forgets everything between rounds begins each by encoding all its pairs once.
`training.iterations` counts steps of both views: with few of them only order = "alternate" trains both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from wayfare.components import part
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Batch, Client, Output, Progress, SampleFiles, Task
from wayfare.core.seeds import rng_for
from wayfare.core.values import SHARE, Kind
from wayfare.hashing import ranking
from wayfare.hashing.base_method import BaseMethod
from wayfare.hashing.buffers import Buffers, joint_codes
from wayfare.hashing.data.base import PairData, PairFiles
from wayfare.hashing.data.pairs import Paired
from wayfare.hashing.data.sample import SamplePairs
from wayfare.hashing.dealing import dealt, samples_of
from wayfare.hashing.images import GivenImages
from wayfare.hashing.inputs import PairInputs
from wayfare.hashing.model import BagOfWords, PairEncoders
from wayfare.hashing.nets import VIEWS
from wayfare.partition.semantics import Categories, Level

_CUTOFFS = (1, 5, 10)
_LEARNT = 0.02  # of the way from chance to 1 that a model must have gone to be better than chance
_QUERY_EVERY = 5  # of a device's own pairs, every fifth is a query and the others are searched
_DATA = {
    "sample": "wayfare.hashing.data.sample:SamplePairs",
    "mirflickr": "wayfare.hashing.data.mirflickr_pairs:MirFlickr",
    "nuswide": "wayfare.hashing.data.nuswide:NusWide",
    "fashion": "wayfare.hashing.data.fashion_pairs:FashionPairs",
    "wikipedia": "wayfare.hashing.data.wikipedia:Wikipedia",
    "coco": "wayfare.hashing.data.coco:Coco",
    "table": "wayfare.hashing.data.csv_pairs:TablePairs",
    "town": "wayfare.hashing.data.town_pairs:TownTaggedPhotos",
    "town-fashion": "wayfare.hashing.data.town_pairs:TownFashion",
}
_BASES = {
    "dcmh": "wayfare.hashing.dcmh:DCMH",
    "shdch": "wayfare.hashing.shdch:SHDCH",
    "contrastive": "wayfare.hashing.contrastive:Contrastive",
}
_MOVED = {
    **{name: f"data.{name}" for name in ("path", "query", "train", "split", "min_count", "max_words", "drop")},
    **{name: f"data.{name}" for name in ("turned", "town", "town_seed")},
    **{name: f"data.terms.{name}" for name in ("names", "levels", "within", "words")},
    **{name: f"task.base.{name}" for name in ("gamma", "eta", "alpha", "beta", "sweeps")},
    "data_seed": "data.seed",
    "label_source": "data.labels",
    "text_source": "data.text",
    "photo_source": "data.photo",
    "features_path": "data.features",
    "own": 'data.split = "none"',
    "everybody": "task.examples",
    "bits": "model.bits",
    "features": "model.image",
    "image_size": "model.image.side",
    "image_hidden": "model.image.hidden",
    "text_hidden": "model.text.hidden",
    "weights": "model.image.weights",
    "lrn": "model.image.lrn",
}


@dataclass
class Step(Batch):
    """A batch to train on, with what is known of all the client's pairs."""

    buffers: Buffers | None = None
    asked: Tensor | None = None  # which labels a text is the names of, float32 (b, C); a row of zeros: it is its own


@dataclass(frozen=True)
class Hashing(Task):
    """Cross-modal hashing: pictures are found by words and texts by pictures, through short binary codes."""

    data: PairData = part("data", "town-fashion", _DATA)
    model: PairEncoders = part("model", "encoders", {"encoders": "wayfare.hashing.model:PairEncoders"})
    base: BaseMethod = part("base", "dcmh", _BASES)
    order: Literal["image", "text", "alternate"] = "image"  # which view has the first phase, or both in turns
    scale: float = 1.0  # of the whole loss; FedCAFE's code has 1 / clients here
    label_texts: float = 0.0  # share of the texts that are replaced by names of some of their labels, drawn anew
    examples: int = 0  # pairs to learn from on all devices together; 0: all are in this data
    clients_judged: Literal["held out", "dealt"] = "held out"  # by their own pairs, or by a share of the common test

    sources: ClassVar[frozenset[str]] = frozenset({"labels", "categories", "files"})
    provides: ClassVar[frozenset[str]] = frozenset({"features", "classes", "codes"})
    finished: ClassVar[str] = "wayfare.hashing.finished:HashingRun"
    moved: ClassVar[Mapping[str, str]] = _MOVED

    def __post_init__(self) -> None:
        if not 0 <= self.scale < float("inf"):
            raise ConfigError(f"task.scale = {self.scale}: expected a weight, at least 0")
        if not 0 <= self.label_texts <= 1:
            raise ConfigError(f"task.label_texts = {self.label_texts}: expected a share from 0 to 1")

    @classmethod
    def example(cls) -> Hashing:
        """A task that is quick to try things with."""
        return cls(SamplePairs(), PairEncoders(GivenImages(hidden=16), BagOfWords(hidden=32), bits=16))

    # ---- data

    @cached_property
    def loaded(self) -> PairInputs:
        """The pairs, read when they are first needed."""
        return PairInputs(self.data, self.model)

    @property
    def pairs(self) -> Paired:
        """All pairs; the pool that partitions divide is their `train`."""
        return self.loaded.pairs

    def read(self, progress: Progress) -> None:
        self.loaded.read(progress)

    def prepare(self, progress: Progress) -> None:
        self.loaded.prepare(progress)

    def on_folder(self, path: str) -> Self | None:
        data = self.data.on_folder(path)
        return None if data is None else replace(self, data=data)

    def fixed(self) -> Self:
        within = self.loaded.within
        places = [] if within is None else within.flatten().nonzero().flatten().tolist()
        return replace(self, data=self.data.fixed(self.pairs, places))

    def among(self, examples: int) -> Self:
        return replace(self, examples=examples)

    def missing_files(self) -> list[str]:
        return self.model.missing_files()

    @property
    def terms(self) -> tuple[str, ...]:
        pairs = self.pairs
        sides = *self.model.text.terms(pairs), self.model.image.terms(pairs)
        return (*pairs.names, *map(str, pairs.levels), *sides)

    @property
    def samples(self) -> int:
        return len(self.pairs.train)

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels; where there are levels, the fine ones."""
        return self.loaded.names

    @cached_property
    def labels(self) -> np.ndarray | None:
        """The one label of each pair; None where a pair has none or several, and partitions go by `categories`."""
        found = self.loaded.labels(self.pairs.train)[-1]
        return found.argmax(1) if (found.sum(1) == 1).all() else None

    @cached_property
    def categories(self) -> Categories:
        """Which labels each pair has: what the partition `semantic` goes by."""
        values = self.loaded.labels(self.pairs.train)[-1].astype(np.float32)
        return Categories(values, self.classes, (self.classes,), {"label": Level(values, self.classes)})

    def source(self, name: str) -> Any:
        if name == "files":
            place = self.data.path if isinstance(self.data, PairFiles) else ""
            return SampleFiles(Path(place), tuple(self.pairs.ids[self.pairs.train].tolist())) if place else None
        return self.categories if name == "categories" else self.labels

    @property
    def told(self) -> str:
        return "" if isinstance(self.data, PairFiles) and self.data.terms.given else "labels and vocabulary"

    @property
    def skipped(self) -> list[dict[str, str]]:
        return [{"file": str(error.file), "reason": str(error)} for error in self.pairs.problems.found]

    @property
    def protocol(self) -> str:
        own = "a query's own other half is among the first k of all queries', the mean of both directions"
        if not self.classes:
            return f"{len(self.pairs.query)} queries, no labels. R@k: {own}"
        return (
            f"MAP over the whole list by Hamming distance, ties at their expectation; {len(self.pairs.query)} queries, "
            f"{len(self.pairs.retrieval)} to find; relevant: one of {len(self.classes)} labels in common. R@k: {own}"
        )

    # ---- network

    def network(self) -> nn.Module:
        if self.base.needs_labels and not self.classes:
            raise ConfigError(
                f"{self.pairs.name}: these pairs have no labels to learn from; name a column of them (data.labels), or "
                "set task.base = 'contrastive', which needs none"
            )
        return self.model.network(self.pairs, self.base.initial_codes(self.model.bits, self.loaded.levels))

    def views(self, net: nn.Module) -> dict[str, int]:
        return dict.fromkeys(VIEWS, self.model.bits)

    # ---- learning

    def steps(
        self, net: nn.Module, client: Client, batch_size: int, memo: dict[str, Any], rng: np.random.Generator
    ) -> Iterator[Batch]:
        held = len(client.train)
        if not held:
            return
        buffers = memo.get("buffers")
        if buffers is None:
            buffers = memo["buffers"] = self._begin(net, client)
        size = min(batch_size, held)
        for view in self._turns(held // size):
            places = rng.choice(held, size, replace=False)
            batch = self._batch(net, client, places, (view,), buffers)
            if view == "text" and self.label_texts:
                self._ask_for_labels(batch, rng)
            yield batch
        self._settle(buffers)

    def steps_in_pass(self, client: Client, batch_size: int) -> int:
        held = len(client.train)
        return len(self._turns(held // min(batch_size, held))) if held else 0

    def _ask_for_labels(self, batch: Step, rng: np.random.Generator) -> None:
        """Replace some of a batch's texts by names of some of their labels, at least one of each."""
        if batch.labels is None:
            return
        has = batch.labels.cpu().numpy() > 0
        kept = has & (rng.random(has.shape) < 0.5)
        kept = np.where(kept.any(1, keepdims=True), kept, has)
        kept &= rng.random((len(has), 1)) < self.label_texts
        texts = {row: self.loaded.label_text(kept[row]) for row in np.flatnonzero(kept.any(1)).tolist()}
        read = [row for row, text in texts.items() if text]
        kept[[row for row, text in texts.items() if not text]] = False
        if read:
            inputs = batch.inputs["text"]
            inputs[read] = self.loaded.of_texts([texts[row] for row in read]).to(inputs)
        batch.asked = torch.from_numpy(kept).to(batch.labels)

    def _turns(self, count: int) -> list[str]:
        """Whose batch comes when."""
        first, second = VIEWS[::-1] if self.order == "text" else VIEWS
        return [first, second] * count if self.order == "alternate" else [first] * count + [second] * count

    def forward(self, net: nn.Module, batch: Batch) -> Output:
        return Output({view: net.encode(view, inputs) for view, inputs in batch.inputs.items()})  # type: ignore[operator]

    def loss(self, output: Output, batch: Batch, memo: dict[str, Any]) -> Tensor:
        """The base method's; the outputs of the batch's view are written into the buffers."""
        if not isinstance(batch, Step) or batch.buffers is None or batch.rows is None:
            raise TypeError("only the batches of steps() can be trained on")
        ((view, raw),) = output.features.items()
        if batch.asked is not None:
            batch.buffers.asked[batch.rows] = batch.asked
        loss = self.base.loss(batch.buffers, view, batch.rows, raw)
        batch.buffers.write(view, batch.rows, raw)
        return self.scale * loss

    def _begin(self, net: nn.Module, client: Client) -> Buffers:
        """F, G and B as the received network sees the client's pairs, and what the base method adds to them."""
        rows, device = self.pairs.train[client.train], _device(net)
        features = {view: self.features(net, view, rows) for view in VIEWS}
        labels = tuple(torch.from_numpy(level).to(device, torch.float32) for level in self.loaded.labels(rows))
        buffers = Buffers(net, features, labels)
        self.base.begin(buffers)
        buffers.codes = joint_codes(*self._outputs(buffers))
        if self.base.settles_first:
            self._settle(buffers)
        return buffers

    @torch.no_grad()
    def _settle(self, buffers: Buffers) -> None:
        """B, and what the base method keeps beside it, that fit F and G best."""
        outputs = self._outputs(buffers)
        buffers.codes = joint_codes(*outputs)
        share = len(buffers) / (self.examples or self.samples)
        self.base.settle(buffers, outputs, self.loaded.within, share)

    def _outputs(self, buffers: Buffers) -> list[Tensor]:
        """F and G."""
        return [self.base.outputs(buffers.features[view]) for view in VIEWS]

    def scan(self, net: nn.Module, client: Client) -> Iterator[Batch]:
        size = self.model.image.batch
        for start in range(0, len(client.train), size):
            places = np.arange(start, min(start + size, len(client.train)))
            yield self._batch(net, client, places, VIEWS, None)

    def _batch(
        self, net: nn.Module, client: Client, places: np.ndarray, views: Sequence[str], buffers: Buffers | None
    ) -> Step:
        rows, device = self.pairs.train[client.train[places]], _device(net)
        labels = torch.from_numpy(self.loaded.labels(rows)[-1]).to(device, torch.float32)
        inputs = {view: self.loaded.of(view, rows).to(device) for view in views}
        return Step(inputs, labels, torch.from_numpy(places).to(device), buffers)

    # ---- evaluation

    @torch.no_grad()
    def features(self, net: nn.Module, view: str, rows: np.ndarray) -> Tensor:
        """What codes are the signs of, float32 (n, bits), for these rows of all pairs."""
        device, size = _device(net), self.model.image.batch
        found = torch.empty(len(rows), self.model.bits, device=device)
        for start in range(0, len(rows), size):
            some = self.loaded.of(view, rows[start : start + size]).to(device)
            found[start : start + size] = net.enhance(view, net.encode(view, some))  # type: ignore[operator]
        return found

    def codes(self, net: nn.Module, view: str, rows: np.ndarray) -> np.ndarray:
        """Packed codes, uint8 (n, ceil(bits / 8)), of these rows of all pairs."""
        return ranking.pack(self.features(net, view, rows).cpu().numpy())

    @property
    def metrics(self) -> Mapping[str, Kind]:
        return dict.fromkeys(("MAP i2t", "MAP t2i", "MAP", "random MAP", *(f"R@{k}" for k in _CUTOFFS)), SHARE)

    def doubt(self, now: dict[str, float], start: dict[str, float]) -> str:
        reached, chance = now.get("test/MAP"), now.get("test/random MAP")
        if not self.classes:
            return self._doubt_without_labels(now)
        if reached is None or chance is None or reached > chance + _LEARNT * (1 - chance):
            return ""
        return (
            f"no better than chance: MAP {reached:.4f}, and a random order has {chance:.4f}. Train longer, or with "
            "another training.lr or base method"
        )

    def _doubt_without_labels(self, now: dict[str, float]) -> str:
        """By R@10: of q queries, each in its own place by chance, k / q are among the first k."""
        most, queries = _CUTOFFS[-1], len(self.pairs.query)
        reached = now.get(f"test/R@{most}")
        chance = min(1.0, most / max(1, queries))
        if reached is None or reached > chance + _LEARNT * (1 - chance):
            return ""
        return (
            f"no better than chance: R@{most} {reached:.3f}, and a random order has {chance:.3f} with {queries} "
            "queries. Train longer, with more pairs, or with another training.lr"
        )

    def evaluate(self, net: nn.Module, samples: np.ndarray | None) -> dict[str, float]:
        """MAP of queries against the retrieval set; of given samples, every fifth is a query for the others.

        Pairs without labels are relevant only to themselves: they have R@k.
        """
        if samples is None:
            return self._judged(net, self.pairs.query, self.pairs.retrieval)
        rows, is_query = self.pairs.train[samples], np.arange(len(samples)) % _QUERY_EVERY == 0
        return self._judged(net, rows[is_query], rows[~is_query])

    def evaluate_client(self, net: nn.Module, client: Client, samples: np.ndarray) -> dict[str, float]:
        if self.clients_judged == "held out":
            return self.evaluate(net, samples)
        pairs, train = self.pairs, self.pairs.train
        own, pool = (self.loaded.labels(train[rows])[-1] for rows in (samples_of(client), slice(None)))
        parts = [
            rows[dealt(self.loaded.labels(rows)[-1], own, pool, rng_for("dealt", client.id, name))]
            for name, rows in (("query", pairs.query), ("retrieval", pairs.retrieval))
        ]
        return self._judged(net, *parts)

    def _judged(self, net: nn.Module, queries: np.ndarray, database: np.ndarray) -> dict[str, float]:
        if not len(queries) or not len(database):
            return {}
        own = dict(zip((f"R@{k}" for k in _CUTOFFS), self._own_recall(net, queries).tolist()))
        if not self.classes:
            return own
        labels = self.loaded.labels(queries)[-1], self.loaded.labels(database)[-1]
        tallies = [
            ranking.tally(self.codes(net, view, queries), self.codes(net, other, database), *labels)
            for view, other in (VIEWS, VIEWS[::-1])
        ]
        image, text = (tally.map() for tally in tallies)
        floor = tallies[0].random_map()
        return {"MAP i2t": image, "MAP t2i": text, "MAP": (image + text) / 2, "random MAP": floor} | own

    def _own_recall(self, net: nn.Module, queries: np.ndarray) -> np.ndarray:
        """Of the queries' pictures and texts, how often a picture finds its own text and a text its picture."""
        image, text = (self.codes(net, view, queries) for view in VIEWS)
        both = [ranking.own_recall(*sides, _CUTOFFS) for sides in ((image, text), (text, image))]
        return np.asarray(np.mean(both, axis=0))


def _device(net: nn.Module) -> torch.device:
    return next(net.parameters()).device
