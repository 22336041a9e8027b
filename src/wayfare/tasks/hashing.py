"""Hashing: pictures are found by words and texts by pictures, through short binary codes (FedCAFE, DCMH, SHDCH).

A sample is a pair of a picture and a text with labels; pairs that share a label are relevant to each other. Two
encoders learn by a base method to say numbers whose signs are codes, near each other where pairs are relevant.

    data       docs/hashing-data.md; "sample": a few pairs drawn from a seed
    base       dcmh: similar outputs for similar pairs; shdch: outputs like the codes of classes, of up to two levels
    features   what is known of a picture: "frozen", the features of a network from ImageNet, computed once; "pixels",
               which CNN-F learns from; "file", features that the data or task.features_path brings
    labels     where there are two levels, the fine one says what is relevant; SHDCH learns from both
    protocol   MAP of queries against the retrieval set, both ways, over the whole list; ties at their expectation

A local pass is a phase of batches of one view and then one of the other, each batch drawn anew: floor(n / batch_size)
of each, at least one. A device that forgets everything between rounds begins each with one look at all its pairs.
`training.iterations` counts steps of both views: with few of them only order = "alternate" trains both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from wayfare.core.protocols import Batch, Client, Output
from wayfare.data.pairs import Paired, load
from wayfare.data.semantics import Categories, Level
from wayfare.errors import ConfigError
from wayfare.tasks.hash import dcmh, ranking, shdch
from wayfare.tasks.hash.buffers import Buffers, joint_codes
from wayfare.tasks.hash.inputs import Inputs, Known
from wayfare.tasks.hash.nets import CLASS_CODES, CNNF, VIEWS, Encoders, Layers, Lrn, signs
from wayfare.tasks.hash.sample import sample
from wayfare.tasks.nets.frozen import SMALLEST

Data = Literal[
    "sample", "mirflickr", "nuswide", "fashion", "wikipedia", "coco", "table", "town", "town-fashion"
]  # fmt: skip
_SCAN = {"pixels": 32, "frozen": 1000, "file": 1000}  # pairs per batch where no gradient is needed
_ASK = 5  # of a device's own pairs, every fifth asks and the others are searched
_CHOSEN = {"dcmh": (1.0, 1.0), "shdch": (10.0, 100.0)}  # gamma and eta of the papers


@dataclass
class Step(Batch):
    """A batch to train on, with what is known of all the client's pairs."""

    buffers: Buffers | None = None


@dataclass(frozen=True)
class Hashing:
    """Cross-modal hashing; see the module."""

    data: Data = "town-fashion"
    path: str = ""  # of the data; a town without one is made on first use
    query: int = 0  # pairs that ask; 0: as the paper, or a tenth
    train: int = 0  # pairs to learn from; 0: as the paper, or all that do not ask
    split: Literal["auto", "order", "random"] = "auto"
    data_seed: int = 0  # of the split, and of the sample
    label_source: str = ""  # which labels, texts and pictures, in words of the data: the columns of a table
    text_source: str = ""
    photo_source: str = ""
    min_count: int = 0  # texts that a word of the vocabulary is in; 0: the data's own number
    max_words: int = 0
    drop: tuple[Literal["unlabelled", "untexted"], ...] | None = None  # pairs without a label or a word
    turned: bool = False  # exchange height and width of pictures in arrays
    town: Literal["tiny", "small", "city"] = "small"
    town_seed: int = 0
    names: tuple[str, ...] = ()  # the labels, where the data may have some of them only; (): those it has
    levels: tuple[int, ...] = ()  # how many of them are on each level, the coarse ones first
    within: tuple[int, ...] = ()  # which of these belong together: coarse label * fine labels + fine label
    words: tuple[str, ...] = ()  # the vocabulary; (): the data's, or words of the texts to learn from
    own: bool = False  # the data is a device's own: nothing is held back to test with
    everybody: int = 0  # pairs to learn from that all devices have together; 0: all are in this data

    base: Literal["dcmh", "shdch"] = "dcmh"
    bits: int = 32
    features: Known = "frozen"
    features_path: str = ""  # a .npy or .mat file, a row for each pair, where the data brings none
    image_size: int = 64  # of the pictures before the frozen network
    image_hidden: int = 512  # between features and bits; 0: no hidden layer
    text_hidden: int = 8192
    weights: str = ""  # of CNN-F: imagenet-vgg-f.mat or .safetensors; of the frozen network: .safetensors
    lrn: Lrn = "authors"  # CNN-F's normalisation; "ports": as in the published PyTorch code
    order: Literal["image", "text", "alternate"] = "image"  # which view has the first phase, or both by turns
    gamma: float | None = None  # of the distance to the codes; by default DCMH 1, SHDCH 10
    eta: float | None = None  # DCMH: of the balance of bits, 1; SHDCH: of the hierarchy, 100 for all pairs together
    alpha: float = 0.3  # SHDCH: of the coarse labels
    beta: float = 0.7  # SHDCH: of the fine labels
    sweeps: int = 20  # SHDCH: over the class codes, at most; 1: as the published code
    scale: float = 1.0  # of the whole loss; FedCAFE's code has 1 / clients here

    provides: ClassVar[frozenset[str]] = frozenset({"features", "classes", "codes"})

    def __post_init__(self) -> None:
        for name, least in (("bits", 1), ("text_hidden", 0), ("image_hidden", 0), ("sweeps", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"task.{name} = {getattr(self, name)}: at least {least}")
        for name in ("alpha", "beta", "gamma", "eta", "scale"):
            if (value := getattr(self, name)) is not None and not 0 <= value < float("inf"):
                raise ConfigError(f"task.{name} = {value}: a weight, at least 0")
        if self.features == "frozen" and self.image_size < SMALLEST:
            raise ConfigError(f"task.image_size = {self.image_size}: at least {SMALLEST} pixels")
        if self.names and sum(self.levels) != len(self.names):
            raise ConfigError(f"task.levels = {list(self.levels)} of {len(self.names)} task.names: their sum is wanted")
        if self.features_path and self.features != "file":
            raise ConfigError("task.features_path goes with task.features = 'file'")
        if self.weights and self.features == "file":
            raise ConfigError("task.weights are of a network for pictures, and task.features = 'file' has none")

    @classmethod
    def example(cls) -> Hashing:
        """A task that is quick to try things with."""
        return cls(data="sample", features="file", bits=16, image_hidden=16, text_hidden=32)

    # ---- data

    @cached_property
    def _inputs(self) -> Inputs:
        return self._load()

    def _load(self, progress: Any = lambda *_: None) -> Inputs:
        if self.data == "sample":
            found = sample(self.data_seed)
        else:
            side = self.image_size if self.features == "frozen" else 224
            found = load(
                self.data, self.path, query=self.query, train=self.train, seed=self.data_seed, split=self.split,
                labels=self.label_source, text=self.text_source, photo=self.photo_source, min_count=self.min_count,
                max_words=self.max_words, drop=self.drop, size=(side, side), features=self.features_path,
                turned=self.turned, town=self.town, town_seed=self.town_seed, names=self.names, levels=self.levels,
                words=self.words, own=self.own, progress=progress,
            )  # fmt: skip
        return Inputs(found, self.features, self.image_size, self.weights, self.within)

    def ready(self, progress: Any) -> None:
        """Do what takes long before the first round, saying how far it is: progress(what, done, total)."""
        if "_inputs" not in self.__dict__:
            self.__dict__["_inputs"] = self._load(progress)
        if self.features == "frozen":
            self._inputs.features(lambda done, total: progress("features of the pictures", done, total))

    @property
    def pairs(self) -> Paired:
        """All pairs; the pool that partitions deal out is their `train`."""
        return self._inputs.pairs

    def settled(self) -> Hashing:
        """The same for data that has not all labels and words."""
        pairs, within = self.pairs, self._inputs.within
        places = () if within is None else tuple(within.flatten().nonzero().flatten().tolist())
        return replace(self, names=pairs.names, levels=pairs.levels, within=places, words=pairs.words)

    @property
    def terms(self) -> tuple[str, ...]:
        """What the numbers of pairs stand for: devices of one federation mean the same by them."""
        pairs = self.pairs
        features = pairs.features.shape[1] if self.features == "file" and pairs.features is not None else self.features
        return (*pairs.names, *map(str, pairs.levels), *pairs.words, str(pairs.bags.shape[1]), str(features))

    @property
    def samples(self) -> int:
        return len(self.pairs.train)

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels; where there are levels, the fine ones."""
        return self._inputs.names

    @cached_property
    def labels(self) -> np.ndarray | None:
        """The one label of each pair; None where a pair has none or several, and partitions go by `categories`."""
        found = self._inputs.labels(self.pairs.train)[-1]
        return found.argmax(1) if (found.sum(1) == 1).all() else None

    @cached_property
    def categories(self) -> Categories:
        """Which labels each pair has: what the partition `semantic` goes by."""
        values = self._inputs.labels(self.pairs.train)[-1].astype(np.float32)
        return Categories(values, self.classes, (self.classes,), {"label": Level(values, self.classes)})

    @property
    def skipped(self) -> list[dict[str, str]]:
        """What was left out, and why."""
        return [{"file": str(error.file), "reason": str(error)} for error in self.pairs.problems.found]

    @property
    def protocol(self) -> str:
        """What a MAP is the mean of."""
        return (
            f"MAP over the whole list by Hamming distance, ties at their expectation; {len(self.pairs.query)} queries, "
            f"{len(self.pairs.retrieval)} to find; relevant: one of {len(self.classes)} labels in common"
        )

    # ---- network

    def network(self) -> nn.Module:
        text = Layers(self.pairs.bags.shape[1], self.text_hidden, self.bits)
        if self.features != "pixels":
            width = self._inputs.features().shape[1]
            return Encoders(Layers(width, self.image_hidden, self.bits), text, self.bits, self._first_codes)
        image = CNNF(self.bits, self.lrn)
        if self.weights:
            image.load(Path(self.weights))
        return Encoders(image, text, self.bits, self._first_codes)

    @property
    def _first_codes(self) -> Tensor | None:
        """Of the classes of all levels, float32 (bits, C)."""
        if self.base != "shdch":
            return None
        return torch.cat([shdch.first_codes(self.bits, count) for count in self._inputs.levels], 1).float()

    def views(self, net: nn.Module) -> dict[str, int]:
        return dict.fromkeys(VIEWS, self.bits)

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
            yield self._batch(net, client, places, (view,), buffers)
        self._settle(buffers)

    def _turns(self, count: int) -> list[str]:
        """Whose batch comes when."""
        first, second = VIEWS[::-1] if self.order == "text" else VIEWS
        return [first, second] * count if self.order == "alternate" else [first] * count + [second] * count

    def forward(self, net: nn.Module, batch: Batch) -> Output:
        return Output({view: net.encode(view, inputs) for view, inputs in batch.inputs.items()})  # type: ignore[operator]

    def loss(self, output: Output, batch: Batch, memo: dict[str, Any]) -> Tensor:
        """The base method's; what the batch's view says is put down in the buffers."""
        if not isinstance(batch, Step) or batch.buffers is None or batch.rows is None or batch.labels is None:
            raise TypeError("only the batches of steps() can be trained on")
        buffers, rows = batch.buffers, batch.rows
        ((view, raw),) = output.features.items()
        codes, (gamma, eta) = buffers.codes[rows], self._pressures
        if self.base == "dcmh":
            other = buffers.features["text" if view == "image" else "image"]
            similar = dcmh.similarity(batch.labels, buffers.labels[-1])
            loss = dcmh.loss(raw, other, similar, codes, buffers.rest(view, rows), gamma, eta)
        else:
            labels = [level[rows] for level in buffers.labels]
            loss = shdch.loss(raw, codes, labels, buffers.classes, self._level_weights, gamma, len(buffers))
        buffers.write(view, rows, raw)
        return self.scale * loss

    @property
    def _pressures(self) -> tuple[float, float]:
        """Gamma and eta."""
        gamma, eta = _CHOSEN[self.base]
        return gamma if self.gamma is None else self.gamma, eta if self.eta is None else self.eta

    @property
    def _level_weights(self) -> tuple[float, ...]:
        return (self.alpha, self.beta)[-len(self._inputs.levels) :]

    def _begin(self, net: nn.Module, client: Client) -> Buffers:
        """F, G and B as the received network sees the client's pairs, in one pass over them, and its class codes."""
        rows, where = self.pairs.train[client.train], _where(net)
        seen = {view: self.said(net, view, rows) for view in VIEWS}
        labels = tuple(torch.from_numpy(level).to(where, torch.float32) for level in self._inputs.labels(rows))
        buffers = Buffers(net, seen, labels)
        if self.base == "shdch":
            buffers.classes = signs(_class_codes(net).double()).split(list(self._inputs.levels), 1)
        buffers.codes = joint_codes(*self._outputs(buffers))
        return buffers

    @torch.no_grad()
    def _settle(self, buffers: Buffers) -> None:
        """B and the class codes that fit F and G best."""
        outputs = self._outputs(buffers)
        buffers.codes = joint_codes(*outputs)
        if self.base == "shdch":
            within = self._inputs.within
            within = None if within is None else within.to(outputs[0].device)
            share = len(buffers) / (self.everybody or self.samples)
            settings = self._level_weights, self._pressures[1] * share, within, self.sweeps
            buffers.classes = shdch.class_codes(buffers.classes, outputs, buffers.labels, *settings)
            _class_codes(buffers.net).copy_(torch.cat(buffers.classes, 1))

    def _outputs(self, buffers: Buffers) -> list[Tensor]:
        """F and G as the base method has them."""
        views = [buffers.features[view] for view in VIEWS]
        return [view.tanh() for view in views] if self.base == "shdch" else views

    def scan(self, net: nn.Module, client: Client) -> Iterator[Batch]:
        for start in range(0, len(client.train), _SCAN[self.features]):
            places = np.arange(start, min(start + _SCAN[self.features], len(client.train)))
            yield self._batch(net, client, places, VIEWS, None)

    def _batch(
        self, net: nn.Module, client: Client, places: np.ndarray, views: Sequence[str], buffers: Buffers | None
    ) -> Step:
        rows, where = self.pairs.train[client.train[places]], _where(net)
        labels = torch.from_numpy(self._inputs.labels(rows)[-1]).to(where, torch.float32)
        inputs = {view: self._inputs.of(view, rows).to(where) for view in views}
        return Step(inputs, labels, torch.from_numpy(places).to(where), buffers)

    # ---- judging

    @torch.no_grad()
    def said(self, net: nn.Module, view: str, rows: np.ndarray) -> Tensor:
        """What codes are the signs of, float32 (n, bits), for these rows of all pairs."""
        where, size = _where(net), _SCAN[self.features]
        found = torch.empty(len(rows), self.bits, device=where)
        for start in range(0, len(rows), size):
            some = self._inputs.of(view, rows[start : start + size]).to(where)
            found[start : start + size] = net.enhance(view, net.encode(view, some))  # type: ignore[operator]
        return found

    def codes(self, net: nn.Module, view: str, rows: np.ndarray) -> np.ndarray:
        """Packed codes, uint8 (n, ceil(bits / 8)), of these rows of all pairs."""
        return ranking.pack(self.said(net, view, rows).cpu().numpy())

    def evaluate(self, net: nn.Module, samples: np.ndarray | None) -> dict[str, float]:
        """MAP of queries against the retrieval set; of given samples, every fifth asks for the others."""
        asking, sought = self.pairs.query, self.pairs.retrieval
        if samples is not None:
            rows, asks = self.pairs.train[samples], np.arange(len(samples)) % _ASK == 0
            asking, sought = rows[asks], rows[~asks]
        if not len(asking) or not len(sought):
            return {}
        labels = self._inputs.labels(asking)[-1], self._inputs.labels(sought)[-1]
        tallies = [
            ranking.tally(self.codes(net, view, asking), self.codes(net, other, sought), *labels)
            for view, other in (VIEWS, VIEWS[::-1])
        ]
        image, text = (tally.map() for tally in tallies)
        floor = tallies[0].random_map()
        return {"MAP i2t": image, "MAP t2i": text, "MAP": (image + text) / 2, "random MAP": floor}


def _class_codes(net: nn.Module) -> Tensor:
    """The encoders' buffer of them, however a strategy has wrapped the encoders."""
    return next(codes for name, codes in net.named_buffers() if name.split(".")[-1] == CLASS_CODES)


def _where(net: nn.Module) -> torch.device:
    return next(net.parameters()).device
