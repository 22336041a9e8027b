"""A trained hashing model from a run: codes of texts and photos, and a digest of everything that affects them.

The digest (`HashModel.digest`) covers everything that changes a code: all weights, including FedCAFE's memory, the
frozen network before the image encoder, the vocabulary, and the settings of both networks. Codes are comparable only
if the digests are equal. A packed model contains all of this, so that neither the run nor its data is needed again.
Only published encoders (`nets.published`) are not packed: they are named, and read from the cache.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from wayfare.components import build, settings_of
from wayfare.core.bundle import Bundle, digest, load_into
from wayfare.core.errors import ConfigError, DataError, StoreError
from wayfare.experiment import Experiment
from wayfare.hashing.calibration import centres, close_scores
from wayfare.hashing.data.base import PairFiles
from wayfare.hashing.data.pairs import Paired
from wayfare.hashing.data.without_pairs import WithoutPairs
from wayfare.hashing.model import PairEncoders
from wayfare.hashing.nets import CNNF
from wayfare.hashing.task import Hashing
from wayfare.nets.features import PictureTrunk
from wayfare.trained import Trained, trained, untrained

_CENTRES = "centres"
_FORM = 1  # of texts and pictures on their way to the network: raise it when the same file comes to give another code
_AT_ONCE = 32  # pictures that go through the network together
_TEXTS = 1000


@dataclass(frozen=True)
class HashModel:
    """Encoders in evaluation mode, and their task, which knows words and labels but no pairs."""

    name: str  # of the run that trained it
    recipe: str  # the experiment as TOML
    trained: str  # digest of the weights alone, as the run has it
    task: Hashing
    net: nn.Module
    trunk: PictureTrunk | None  # what makes features of pictures
    close: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(("photos", "texts"), -1.0))
    # the score from which on an item counts as close to a query of words, see `calibration`
    centres: Mapping[str, Tensor] = field(default_factory=dict)  # means of outputs of length 1, see `calibration`

    @cached_property
    def digest(self) -> str:
        """The name under which codes are comparable."""
        parts = [digest(weights) for weights in self._parts.values()]
        strategy = tomllib.loads(self.recipe).get("strategy", {})  # FedCAFE's says what codes are the signs of
        facts = [_FORM, *parts, self.words, strategy, _settings(self.task.model)]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    @property
    def title(self) -> str:
        """For messages that name one model beside another."""
        return f"{self.digest[:12]} ({self.name})"

    @property
    def bits(self) -> int:
        return self.task.model.bits

    @property
    def words(self) -> tuple[str, ...]:
        """The vocabulary; () where the data did not say what its columns stand for."""
        return self.task.pairs.words

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of pictures as the network is shown them."""
        return self.task.model.image.size

    def check_words(self) -> None:
        """Raise where texts cannot be turned into codes."""
        if not self.words and not self.task.model.text.any_word:
            raise ConfigError(
                f"model {self.title} was trained on texts given as numbers, without the words that they stand "
                "for, so it cannot read text: train one on data with words, see docs/hashing-data.md"
            )

    def check_photos(self) -> None:
        """Raise where photos cannot be turned into codes."""
        if not self.task.model.image.reads_photos:
            raise ConfigError(
                f"model {self.title} was trained on features from a file (model.image = 'file'): it cannot "
                "encode other photos. Train one with model.image = 'efficientnet_lite0', 'dinov2-s' or 'cnnf'"
            )

    def knows(self, text: str) -> bool:
        """Whether a text has a word that the model can read: without one, all texts have the same code."""
        return self.task.model.text.reads(text, self.vocabulary)

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """The words of the texts that the model learnt from."""
        return frozenset(self.words)

    def of_texts(self, texts: Sequence[str]) -> np.ndarray:
        """What the codes of texts are the signs of, float32 (n, bits)."""
        self.check_words()
        side, starts = self.task.model.text, range(0, len(texts), _TEXTS)
        return self._encode("text", [side.inputs(texts[at : at + _TEXTS], self.words) for at in starts])

    def of_pictures(self, images: np.ndarray) -> np.ndarray:
        """The same for pictures, uint8 (n, H, W, 3)."""
        self.check_photos()
        side, starts = self.task.model.image, range(0, len(images), _AT_ONCE)
        return self._encode("image", [side.shown(self.trunk, images[at : at + _AT_ONCE]) for at in starts])

    def pack(self) -> bytes:
        """One file from which `unpack` makes the model again, without its run and data."""
        known = settings_of(self.task.data)
        names = {"recipe": self.recipe, "name": self.name, "trained": self.trained, "digest": self.digest}
        tables = {"known": json.dumps(known), "close": json.dumps(dict(self.close))}
        return Bundle({**self._parts, _CENTRES: dict(self.centres)}, {**names, **tables}).pack()

    def centre(self, kind: str) -> np.ndarray:
        """What outputs have in common: of "words" that are asked for, of each "text", of each "image"."""
        found = self.centres.get(kind)
        return np.zeros(self.bits, np.float32) if found is None else found.numpy()

    @property
    def _parts(self) -> dict[str, dict[str, Tensor]]:
        """All numbers that make codes."""
        return {
            "network": self.net.state_dict(),
            "trunk": {} if self.trunk is None else self.trunk.own_weights(),
            "means": {str(at): net.mean for at, net in enumerate(_pixel_nets(self.net))},  # are in no state dict
        }

    @torch.no_grad()
    def _encode(self, view: str, parts: Sequence[Tensor]) -> np.ndarray:
        device = next(self.net.parameters()).device
        found = [self.net.enhance(view, self.net.encode(view, part.to(device))).cpu() for part in parts]  # type: ignore[operator]
        return torch.cat([*found, torch.empty(0, self.bits)]).numpy()


def hashing_run(run: Path | str, data: Path | None = None) -> Trained[Hashing]:
    """What a finished run of the task hashing left; `data` is where its pairs are now, if not as the run says."""
    found = trained(run, Hashing, "only models of 'hashing' find pictures by words", "an index")
    if data is None:
        return found
    if not isinstance(found.task.data, PairFiles):
        raise ConfigError(f"{run} learnt from data without a path: --data does not apply")
    return found._replace(task=replace(found.task, data=replace(found.task.data, path=str(data))))


def pairs_of(found: Trained[Hashing]) -> Paired:
    """The pairs that the run was trained on; others would give words and labels wrong names."""
    try:
        pairs = found.task.pairs
    except DataError as error:
        remedy = "the model takes its words from them; if they were moved, say where they are with --data"
        raise DataError(f"the pairs that {found.record.name!r} was trained on: {error}", remedy=remedy) from error
    samples = found.record.partition.get("provenance", {}).get("samples", len(pairs.train))
    if samples != len(pairs.train):
        raise ConfigError(
            f"the data has {len(pairs.train)} pairs to train on, but {found.record.name!r} was trained on {samples}: "
            "give the data of that run with --data"
        )
    return pairs


def load_hash_model(found: Trained[Hashing], device: str = "auto") -> HashModel:
    """The model of `hashing_run`; its data is read for the words."""
    task = replace(found.task, data=WithoutPairs.of(pairs_of(found)))
    net = untrained(replace(found.experiment, task=task))
    load_into(net, found.weights)
    ready = _ready(net, device)
    middle = centres(found.task, ready)
    return HashModel(
        found.record.name,
        found.record.recipe,
        trained=found.record.model_sha256,
        task=task,
        net=ready,
        trunk=task.model.image.trunk(),
        close=close_scores(found.task, ready, middle),
        centres=middle,
    )


def unpack(file: Path, device: str = "auto") -> HashModel:
    """What `HashModel.pack` wrote."""
    try:
        bundle = Bundle.unpack(file.read_bytes())
        recipe, known = str(bundle.values["recipe"]), json.loads(str(bundle.values["known"]))
        experiment = Experiment.from_toml(recipe)
        if not isinstance(experiment.task, Hashing):
            raise StoreError("it is not a model of the task hashing")
        data = build(WithoutPairs, known, "known")
        task = replace(experiment.task, data=data, model=experiment.task.model.without_weights())
        lacking = task.model.missing_files()
        net = untrained(replace(experiment, task=task))
        net.load_state_dict(bundle["network"])
        for at, part in enumerate(_pixel_nets(net)):
            part.mean = bundle["means"][str(at)]
        close = {str(view): float(score) for view, score in json.loads(str(bundle.values["close"])).items()}
        middle = {kind: mean.reshape(task.model.bits) for kind, mean in bundle[_CENTRES].items()}
        trunk = None if lacking else task.model.image.trunk(bundle["trunk"])
    except (OSError, StoreError, ConfigError, DataError, KeyError, ValueError, TypeError, AttributeError,
            RuntimeError, RecursionError) as error:  # fmt: skip
        raise StoreError(f"{file}: the model cannot be read: {error}; restore it, or make the index again") from error
    if lacking:
        names = [Path(missing).stem for missing in lacking]
        remedy = " and ".join(f"wayfare data get {name}" for name in names)
        raise DataError(f"this model needs {' and '.join(names)}, not fetched on this machine", file, remedy=remedy)
    name, weights = (str(bundle.values.get(key, "")) for key in ("name", "trained"))
    ready = _ready(net, device)
    model = HashModel(name, recipe, weights, task=task, net=ready, trunk=trunk, close=close, centres=middle)
    if model.digest != bundle.values.get("digest"):
        raise StoreError(f"{file}: the model is damaged; restore it, or make the index again")
    return model


def _settings(model: PairEncoders) -> dict[str, Any]:
    """Those that change codes. Models of before there were colours are known by settings without them."""
    found = settings_of(model.without_weights())
    if isinstance(found["image"], dict) and not found["image"].get("colours"):
        found["image"].pop("colours", None)
    return found


def _pixel_nets(net: nn.Module) -> list[CNNF]:
    return [part for part in net.modules() if isinstance(part, CNNF)]


def _ready(net: nn.Module, device: str) -> nn.Module:
    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    return net.to(chosen).eval()
