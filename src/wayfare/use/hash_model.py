"""A trained hashing model, taken out of its run: codes of texts and of photos, and a name for all that makes them.

The name (`HashModel.digest`) is made of everything that changes a code: all weights, FedCAFE's memory among them, the
frozen network before the encoder of pictures, the vocabulary, and the settings of both networks. Codes are only
comparable under one name. A packed model has all of this in it, so that neither the run nor its data is needed again.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from wayfare.core.bundle import Bundle, digest, load_into
from wayfare.data.pair_source import strings
from wayfare.data.pairs import Paired
from wayfare.data.weights import load_weights
from wayfare.data.words import bags
from wayfare.errors import ConfigError, DataError, StoreError
from wayfare.experiment import Experiment
from wayfare.tasks.hash.inputs import Inputs
from wayfare.tasks.hash.nets import CNNF
from wayfare.tasks.hashing import Hashing
from wayfare.tasks.nets.frozen import Trunk
from wayfare.use.model import Trained, trained, untrained

_FORM = 1  # of texts and pictures on their way to the network: raise it when the same file comes to give another code
_SETTINGS = ("bits", "features", "image_size", "lrn")  # of the task, besides weights and words
_AT_ONCE = {"pixels": 32, "frozen": 64}  # pictures that go through the network together
_TEXTS = 1000
_SIDE = 224  # of pictures, where the network learns from pixels


@dataclass(frozen=True)
class HashModel:
    """Encoders in evaluation mode, and their task, which knows words and labels but no pairs."""

    name: str  # of the run that trained it
    recipe: str  # the experiment as TOML
    trained: str  # digest of the weights alone, as the run has it
    task: Hashing
    net: nn.Module
    trunk: Trunk | None  # what makes features of pictures

    @cached_property
    def digest(self) -> str:
        """The name under which codes are comparable."""
        parts = [digest(weights) for weights in self._parts.values()]
        strategy = tomllib.loads(self.recipe).get("strategy", {})  # FedCAFE's says what codes are the signs of
        facts = [_FORM, *parts, self.words, strategy, *(getattr(self.task, name) for name in _SETTINGS)]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    @property
    def title(self) -> str:
        """For messages that name one model beside another."""
        return f"{self.digest[:12]} ({self.name})"

    @property
    def bits(self) -> int:
        return self.task.bits

    @property
    def words(self) -> tuple[str, ...]:
        """The vocabulary; () where the data did not say what its columns stand for."""
        return self.task.pairs.words

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of pictures as the network is shown them."""
        side = self.task.image_size if self.trunk is not None else _SIDE
        return side, side

    def check_words(self) -> None:
        """Raise where texts cannot be turned into codes."""
        if not self.words:
            raise ConfigError(
                f"model {self.title} learnt from texts that were numbers, and does not know which words they stand "
                "for: it cannot read a text. A model of data with words is needed, see docs/hashing-data.md"
            )

    def check_photos(self) -> None:
        """Raise where photos cannot be turned into codes."""
        if self.task.features == "file":
            raise ConfigError(
                f"model {self.title} learnt from features that came in a file (task.features = 'file'): it cannot "
                "describe other photos. Train one with task.features = 'frozen' or 'pixels'"
            )

    def knows(self, text: str) -> bool:
        """Whether a text has a word that the model knows: without one, all texts have the same code."""
        return bool(bags([text], self.words).nnz)

    def of_texts(self, texts: Sequence[str]) -> np.ndarray:
        """What the codes of texts are the signs of, float32 (n, bits)."""
        self.check_words()
        rows = bags(texts, self.words)
        starts = range(0, len(texts), _TEXTS)
        return self._said("text", [torch.from_numpy(rows[at : at + _TEXTS].toarray()) for at in starts])

    def of_pictures(self, images: np.ndarray) -> np.ndarray:
        """The same for pictures, uint8 (n, H, W, 3)."""
        self.check_photos()
        step = _AT_ONCE[self.task.features]
        parts = [torch.from_numpy(images[at : at + step]) for at in range(0, len(images), step)]
        return self._said("image", [self._seen(part.permute(0, 3, 1, 2).float()) for part in parts])

    def pack(self) -> bytes:
        """One file from which `unpack` makes the model again, without its run and data."""
        pairs = self.task.pairs
        known = {
            "words": pairs.words, "names": pairs.names, "levels": pairs.levels, "text": pairs.bags.shape[1],
            "image": 0 if pairs.features is None else pairs.features.shape[1],
        }  # fmt: skip
        names = {"recipe": self.recipe, "name": self.name, "trained": self.trained, "digest": self.digest}
        return Bundle(self._parts, {**names, "known": json.dumps(known)}).pack()

    @property
    def _parts(self) -> dict[str, dict[str, Tensor]]:
        """All numbers that make codes."""
        return {
            "network": self.net.state_dict(),
            "trunk": {} if self.trunk is None else self.trunk.backbone.state_dict(),
            "means": {str(at): net.mean for at, net in enumerate(_pixel_nets(self.net))},  # are in no state dict
        }

    def _seen(self, pictures: Tensor) -> Tensor:
        return pictures if self.trunk is None else self.trunk(pictures / 255)

    @torch.no_grad()
    def _said(self, view: str, parts: Sequence[Tensor]) -> np.ndarray:
        where = next(self.net.parameters()).device
        said = [self.net.enhance(view, self.net.encode(view, part.to(where))).cpu() for part in parts]  # type: ignore[operator]
        return torch.cat([*said, torch.empty(0, self.bits)]).numpy()


def hashing_run(run: Path | str, data: Path | None = None) -> Trained[Hashing]:
    """What a finished run of the task hashing left; `data` is where its pairs are now, if not as the run says."""
    found = trained(run, Hashing, "only models of 'hashing' find pictures by words", "an index")
    return found if data is None else found._replace(task=replace(found.task, path=str(data)))


def pairs_of(found: Trained[Hashing]) -> Paired:
    """The pairs that the run was trained on; others would give words and labels wrong names."""
    try:
        pairs = found.task.pairs
    except DataError as error:
        remedy = "a model knows its words by them; if they were moved, say where they are with --data"
        raise DataError(f"the pairs that {found.record.name!r} was trained on: {error}", remedy=remedy) from error
    samples = found.record.partition.get("provenance", {}).get("samples", len(pairs.train))
    if samples != len(pairs.train):
        raise ConfigError(
            f"{found.task.path}: {len(pairs.train)} pairs to train on, but {found.record.name!r} was trained on "
            f"{samples}: give the data of that run with --data"
        )
    return pairs


def load_hash_model(found: Trained[Hashing], device: str = "auto") -> HashModel:
    """The model of a run, see `hashing_run`; its data is read for the words."""
    pairs, task = pairs_of(found), found.task
    width = Trunk.feature_dim if task.features == "frozen" else 0
    if task.features == "file" and pairs.features is not None:
        width = pairs.features.shape[1]
    task = _without_pairs(task, pairs.words, pairs.names, pairs.levels, pairs.bags.shape[1], width)
    net = untrained(replace(found.experiment, task=task))
    load_into(net, found.weights)
    trunk = None
    if task.features == "frozen":
        trunk = Trunk(task.image_size, load_weights(Path(task.weights)) if task.weights else None)
    return HashModel(
        found.record.name, found.record.recipe, found.record.model_sha256, task, _ready(net, device), trunk
    )  # fmt: skip


def unpack(file: Path, device: str = "auto") -> HashModel:
    """What `HashModel.pack` wrote."""
    try:
        bundle = Bundle.unpack(file.read_bytes())
        recipe, known = str(bundle.values["recipe"]), json.loads(str(bundle.values["known"]))
        experiment = Experiment.from_toml(recipe)
        if not isinstance(experiment.task, Hashing):
            raise StoreError("it is no model of the task hashing")
        words, names = (tuple(map(str, known[key])) for key in ("words", "names"))
        levels, sizes = tuple(map(int, known["levels"])), (int(known["text"]), int(known["image"]))
        task = _without_pairs(replace(experiment.task, weights=""), words, names, levels, *sizes)
        net = untrained(replace(experiment, task=task))
        net.load_state_dict(bundle["network"])
        for at, part in enumerate(_pixel_nets(net)):
            part.mean = bundle["means"][str(at)]
        trunk = Trunk(task.image_size, bundle["trunk"]) if task.features == "frozen" else None
    except (OSError, StoreError, ConfigError, DataError, KeyError, ValueError, TypeError, AttributeError,
            RuntimeError, RecursionError) as error:  # fmt: skip
        raise StoreError(f"{file}: the model cannot be read: {error}; restore it, or make the index again") from error
    name, weights = (str(bundle.values.get(key, "")) for key in ("name", "trained"))
    model = HashModel(name, recipe, weights, task, _ready(net, device), trunk)
    if model.digest != bundle.values.get("digest"):
        raise StoreError(f"{file}: the model is damaged; restore it, or make the index again")
    return model


def _without_pairs(
    task: Hashing, words: tuple[str, ...], names: tuple[str, ...], levels: tuple[int, ...], text: int, image: int
) -> Hashing:
    """The task with the same words and labels, and the same widths of texts and features, but without a single pair."""
    from scipy.sparse import csr_array

    nobody = np.empty(0, np.int64)
    pairs = Paired(
        name=task.data, ids=strings([]), texts=strings([]), bags=csr_array((0, text), dtype=np.float32), words=words,
        labels=np.empty((0, len(names)), bool), names=names, levels=levels, pictures=None,
        features=np.empty((0, image), np.float32), query=nobody, train=nobody, retrieval=nobody,
    )  # fmt: skip
    task = replace(task)
    task.__dict__["_inputs"] = Inputs(pairs, "pixels" if task.features == "pixels" else "file")
    return task


def _pixel_nets(net: nn.Module) -> list[CNNF]:
    return [part for part in net.modules() if isinstance(part, CNNF)]


def _ready(net: nn.Module, device: str) -> nn.Module:
    where = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    return net.to(where).eval()
