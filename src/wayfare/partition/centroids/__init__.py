"""Centroids of semantic clusters: those of the federated scene-graph benchmark, which come with Wayfare, or a file's.

A file is safetensors with a tensor `centroids`, (clusters, cells) or (clusters, *axes), and may say in one metadata
entry `centroids` (JSON) the clusters' `names`, the names on its `axes`, and its `provenance`; or a plain .npy.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from wayfare.core.errors import DataError
from wayfare.partition.semantics import Categories

PAPER = Path(__file__).with_name("psg_5x13x13x7.safetensors")


@dataclass(frozen=True)
class Centroids:
    """Where clusters are, in a space of categories."""

    file: Path
    values: np.ndarray  # float64 (clusters, D)
    names: tuple[str, ...]  # of the clusters
    axes: tuple[tuple[str, ...], ...]  # () where the file does not say
    provenance: str
    sha256: str  # of the file


def read_centroids(name: str) -> Centroids:
    """The centroids of a file, or the "paper"'s."""
    file = PAPER if name == "paper" else Path(name)
    try:
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        tensor, metadata = _read(file)
        names = tuple(map(str, metadata.get("names", [f"cluster {k + 1}" for k in range(len(tensor))])))
        axes = tuple(tuple(map(str, axis)) for axis in metadata.get("axes", ()))
        provenance = str(metadata.get("provenance", ""))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", file, remedy='or say "paper"') from error
    except Exception as error:  # whatever the readers make of a damaged file
        raise DataError(f"no centroids here, or damaged ones: {error}", file) from error
    if tensor.ndim < 2 or not len(tensor) or tensor.dtype.kind not in "iuf" or not np.isfinite(tensor).all():
        raise DataError(
            f"expected finite numbers, a row or a tensor for each cluster; found {tensor.dtype} {tensor.shape}", file
        )
    if len(names) != len(tensor):
        raise DataError(f"{len(names)} names for {len(tensor)} clusters", file)
    values = tensor.reshape(len(tensor), -1).astype(np.float64)
    return Centroids(file, values, names, axes=axes, provenance=provenance, sha256=sha256)


def check_fits(centroids: Centroids, categories: Categories) -> None:
    """Whether they are about the same cells."""
    cells = categories.values.shape[1]
    if centroids.values.shape[1] != cells:
        raise DataError(f"centroids of {centroids.values.shape[1]} cells, but the data's have {cells}", centroids.file)
    for number, (theirs, ours) in enumerate(zip(centroids.axes, categories.axes)):
        if theirs != ours:
            what = f"axis {number} of the centroids is {', '.join(theirs)}; the data's is {', '.join(ours)}"
            raise DataError(what, centroids.file, remedy="use the super-classes that they were made with")


def _read(file: Path) -> tuple[np.ndarray, dict[str, Any]]:
    if file.suffix == ".npy":
        with file.open("rb") as opened:
            return np.lib.format.read_array(opened, allow_pickle=False), {}

    with safe_open(file, "numpy") as tensors:
        return tensors.get_tensor("centroids"), json.loads((tensors.metadata() or {}).get("centroids", "{}"))
