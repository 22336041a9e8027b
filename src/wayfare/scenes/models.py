"""The four relation heads as models of a recipe: one class each, with the options that it has.

    [model]
    name = "gpsnet"        # imp, motifs, vctree or gpsnet
    features = "roi"       # geometry, roi or file: what the head sees
    layers = 2             # an option of GPS-Net

The networks themselves are in `heads`, each with the paper's equations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from wayfare.components import part
from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError, StoreError
from wayfare.core.protocols import Model
from wayfare.scenes.batch import GraphBatch
from wayfare.scenes.features import FeatureSource
from wayfare.scenes.heads.common import PRESETS, HeadSizes, Mode, Widths
from wayfare.scenes.heads.gpsnet import GPSNet, nps_gammas, nps_loss
from wayfare.scenes.heads.imp import IMP
from wayfare.scenes.heads.motifs import MOTIFS
from wayfare.scenes.heads.vctree import VCTree
from wayfare.scenes.reward import recall_of_targets
from wayfare.scenes.word_vectors import word_vectors

_DESCRIBED_DROPOUT = 0.2


class HeadSpec(NamedTuple):
    """What the data decides about a head."""

    classes: tuple[str, ...]
    predicates: int
    width_x: int  # features of an object
    width_u: int  # and of a pair
    mode: Mode

    def sizes(self, widths: Widths, background: bool) -> HeadSizes:
        return HeadSizes(len(self.classes), self.predicates, self.width_x, self.width_u, widths, background=background)


@dataclass(frozen=True, kw_only=True)
class RelationModel(Model):
    """The settings that all heads share. Your own head returns a network from `head` whose forward gives HeadOutput."""

    features: FeatureSource = part(
        "features",
        "geometry",
        {
            "geometry": "wayfare.scenes.features:GeometryFeatures",
            "roi": "wayfare.scenes.cached_regions:RoiFeatures",
            "file": "wayfare.scenes.features:PrecomputedFeatures",
        },
    )
    widths: Literal["small", "paper"] = "small"
    preset: Literal["as-run", "as-described"] = "as-run"  # the latter: with parts that only the paper's text has
    frequency_bias: bool = False  # a table of how often labels are related: off in the code that the paper ran
    background: bool = False  # a refined label may be "no annotated object" (sgdet)
    start: str = ""  # a finished run, or its model's file, whose weights the network begins with

    @property
    def is_described(self) -> bool:
        return self.preset == "as-described"

    @property
    def has_background(self) -> bool:
        return self.background or self.is_described

    def network(self, spec: HeadSpec) -> nn.Module:
        """The head, with the weights of `start` if that is given."""
        net = self.head(spec)
        if self.start:
            _load_start(net, Path(self.start))
        return net

    def head(self, spec: HeadSpec) -> nn.Module:
        raise NotImplementedError

    def label_loss(self, logits: Tensor, graphs: GraphBatch) -> Tensor:
        """The loss of refined labels: the mean cross-entropy of objects whose class is known; 0 if that is none."""
        labels = self.names(logits, graphs)
        return cross_entropy(logits, labels, ignore_index=-1, reduction="sum") / (labels >= 0).sum().clamp(min=1)

    def names(self, logits: Tensor, graphs: GraphBatch) -> Tensor:
        """What each object is to be called: its class; an object without one the background, or -1 for nothing."""
        labels = graphs.true_labels
        return labels.where(labels >= 0, logits.shape[1] - 1) if self.has_background else labels

    def check_mode(self, mode: Mode) -> None:
        """Refuse options that need the other mode."""
        if self.background and mode == "predcls":
            raise ConfigError("model.background is a refined label, which predcls does not have: task.mode = 'sgdet'")

    @property
    def is_biased(self) -> bool:
        return self.frequency_bias or self.is_described

    @property
    def counted(self) -> bool:
        """Whether the head begins with counts over all devices."""
        return self.is_biased

    def table(self, spec: HeadSpec) -> Tensor | None:
        """A table of zeros where the head has one, filled by what devices count before the first round."""
        shape = (len(spec.classes), len(spec.classes), spec.predicates + 1)
        return torch.zeros(shape) if self.is_biased else None


@dataclass(frozen=True, kw_only=True)
class ImpModel(RelationModel):
    """IMP, iterative message passing. It has no bias in its paper: only `frequency_bias` gives it one."""

    order: Literal["parallel", "sequential"] = "parallel"  # of its messages

    @property
    def is_biased(self) -> bool:
        return self.frequency_bias

    def head(self, spec: HeadSpec) -> nn.Module:
        sizes = spec.sizes(PRESETS[self.widths], self.has_background)
        return IMP(sizes, mode=spec.mode, order=self.order, frequency=self.table(spec))


@dataclass(frozen=True, kw_only=True)
class LabelModel(RelationModel):
    """A head that reads labels, and may begin with how often they are related."""

    word_vectors: str = ""  # initial label vectors: "wordllama", a file in GloVe's format, or "": random numbers

    def _options(self, spec: HeadSpec) -> dict[str, Any]:
        """Sizes, mode, labels' vectors and the table of frequencies."""
        widths: Widths = PRESETS[self.widths]
        options: dict[str, Any] = {"mode": spec.mode, "frequency": self.table(spec)}
        if self.word_vectors:
            options["vectors"] = vectors = word_vectors(self.word_vectors, spec.classes)
            widths = replace(widths, embedding=vectors.shape[1])
        return options | {"sizes": spec.sizes(widths, self.has_background)}


@dataclass(frozen=True, kw_only=True)
class DecodingModel(LabelModel):
    """A head that names one object after the other, each knowing the last name (sgdet)."""

    dropout: float = 0.0  # where it does; as described: 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"model.dropout = {self.dropout}: expected a number from 0 to below 1")

    def check_mode(self, mode: Mode) -> None:
        super().check_mode(mode)
        if self.dropout and mode == "predcls":
            raise ConfigError("model.dropout is where labels are refined, not in predcls: task.mode = 'sgdet'")

    def _options(self, spec: HeadSpec) -> dict[str, Any]:
        described = _DESCRIBED_DROPOUT if self.is_described else 0.0
        return super()._options(spec) | {"dropout": self.dropout or described}


@dataclass(frozen=True, kw_only=True)
class MotifsModel(DecodingModel):
    """MOTIFS, which reads the objects like a sentence."""

    order: Literal["right-left", "left-right"] = "right-left"  # of the objects

    def head(self, spec: HeadSpec) -> nn.Module:
        return MOTIFS(**self._options(spec), order=self.order)


@dataclass(frozen=True, kw_only=True)
class VCTreeModel(DecodingModel):
    """VCTree, which puts the objects into a tree."""

    tree: Literal["supervised", "reinforced"] = "supervised"  # how its scores learn; the latter needs `start`
    prior: bool = False  # its scores are weighted by how often two classes are related

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._is_reinforced and not self.start:
            raise ConfigError(
                "a reinforced tree changes only the scores of a network that has learned all else with "
                "model.tree = 'supervised': name that run in model.start"
            )

    @property
    def counted(self) -> bool:
        return self.is_biased or self.prior

    @property
    def _is_reinforced(self) -> bool:
        return self.tree == "reinforced" or (self.is_described and bool(self.start))

    def head(self, spec: HeadSpec) -> nn.Module:
        options = self._options(spec) | {"prior": self.prior or self.is_described}
        if self._is_reinforced:
            options |= {"tree": "reinforced", "reward": recall_of_targets}
        return VCTree(**options)


@dataclass(frozen=True, kw_only=True)
class GPSNetModel(LabelModel):
    """GPS-Net, whose messages know subject from object."""

    layers: int = 0  # rounds of messages; 0: 1, or 2 as described
    nps: bool = False  # a loss on refined labels with more weight on objects with many relations (sgdet)

    def __post_init__(self) -> None:
        if self.layers < 0:
            raise ConfigError(f"model.layers = {self.layers}: expected at least 1, or 0 for the preset's")

    @property
    def _layers(self) -> int:
        return self.layers or (2 if self.is_described else 1)

    def head(self, spec: HeadSpec) -> nn.Module:
        return GPSNet(**self._options(spec), layers=self._layers)

    def label_loss(self, logits: Tensor, graphs: GraphBatch) -> Tensor:
        if self.nps or self.is_described:
            return nps_loss(logits, self.names(logits, graphs), nps_gammas(graphs))
        return super().label_loss(logits, graphs)

    def check_mode(self, mode: Mode) -> None:
        super().check_mode(mode)
        if self.nps and mode == "predcls":
            raise ConfigError("model.nps is a loss of refined labels, which predcls does not have: task.mode = 'sgdet'")


def _load_start(net: nn.Module, path: Path) -> None:
    """Load all weights; also those that this network will not train, which would stay random otherwise."""
    file = path / "model.safetensors" if path.is_dir() else path
    try:
        weights = Bundle.unpack(file.read_bytes())["model"]
    except (OSError, StoreError, KeyError) as error:
        raise ConfigError(f"model.start: no model in {file}: {error}; name a finished run's folder") from error
    own = {name: tensor for name, tensor in net.state_dict().items() if tensor.is_floating_point()}
    odd = sorted(own.keys() ^ weights.keys()) or [n for n in own if own[n].shape != weights[n].shape]
    if odd:
        raise ConfigError(f"model.start: {file} has the weights of another network, {odd[0]} differs: same settings?")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])
