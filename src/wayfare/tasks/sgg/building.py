"""Relation heads by name, with the options that each has, and from the weights of an earlier run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from wayfare.core.bundle import Bundle
from wayfare.errors import ConfigError, StoreError
from wayfare.tasks.sgg.heads.common import Widths, vector_width, word_vectors
from wayfare.tasks.sgg.heads.gpsnet import GPSNet
from wayfare.tasks.sgg.heads.imp import IMP
from wayfare.tasks.sgg.heads.motifs import MOTIFS
from wayfare.tasks.sgg.heads.vctree import VCTree

HEADS: dict[str, Any] = {"imp": IMP, "motifs": MOTIFS, "vctree": VCTree, "gpsnet": GPSNet}
GOES_WITH = {
    "frequency_bias": ("motifs", "vctree", "gpsnet"),
    "nps": ("gpsnet",),
    "layers": ("gpsnet",),
    "order": ("imp", "motifs"),
    "tree": ("vctree",),
    "word_vectors": ("motifs", "vctree", "gpsnet"),
}


def check_option(name: str, head: str) -> None:
    """Refuse an option that a head has no use for."""
    if head not in GOES_WITH[name]:
        raise ConfigError(f"task.{name} is an option of {', '.join(GOES_WITH[name])}: {head} has none; leave it out")


def build(
    head: str,
    classes: Sequence[str],
    predicates: int,
    features: tuple[int, int],
    widths: Widths,
    options: dict[str, Any],
    vectors: str = "",
    start: str = "",
) -> nn.Module:
    """A head for features of these widths; `vectors` is a file of word vectors, `start` a run or its model's file."""
    if vectors:
        widths = replace(widths, embedding=vector_width(Path(vectors)))
        options = options | {"vectors": word_vectors(Path(vectors), classes, widths.embedding)}
    net: nn.Module = HEADS[head](len(classes), predicates, *features, widths, **options)
    if start:
        _begin_from(net, Path(start))
    return net


def _begin_from(net: nn.Module, path: Path) -> None:
    """Load all weights; also those that this network will not train, which would stay random otherwise."""
    file = path / "model.safetensors" if path.is_dir() else path
    try:
        weights = Bundle.unpack(file.read_bytes())["model"]
    except (OSError, StoreError, KeyError) as error:
        raise ConfigError(f"task.start: no model in {file}: {error}; name a finished run's folder") from error
    own = {name: tensor for name, tensor in net.state_dict().items() if tensor.is_floating_point()}
    odd = sorted(own.keys() ^ weights.keys()) or [n for n in own if own[n].shape != weights[n].shape]
    if odd:
        raise ConfigError(f"task.start: the weights of {file} are of another network, {odd[0]} differs: same settings?")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])
