"""imagenet-vgg-f.mat, as MatConvNet's authors gave it away: the weights of CNN-F and the mean image.

The file is of nested cells and structs, whose names have changed over the years. What has not changed is the order of
the layers and the shape of their kernels, (height, width, in, out), each followed by its bias; that is what is gone by.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from wayfare.core.errors import DataError
from wayfare.io import mat5
from wayfare.io.matfiles import damaged

LAYERS = {  # kernels as MATLAB shows them
    "conv1": (11, 11, 3, 64),
    "conv2": (5, 5, 64, 256),
    "conv3": (3, 3, 256, 256),
    "conv4": (3, 3, 256, 256),
    "conv5": (3, 3, 256, 256),
    "fc6": (6, 6, 256, 4096),
    "fc7": (1, 1, 4096, 4096),
}
SIDE = 224
Place = tuple[str | int, ...]  # numbers of variables and cells and names of fields, from the outside


def read(file: Path) -> dict[str, np.ndarray]:
    """Weights and biases by layer, kernels as (out, in, height, width), fc7 as (out, in), and `mean` (3, 224, 224)."""
    found: dict[str, np.ndarray] = {}
    used: set[Place] = set()
    for place, values in nested(file):
        name = next((name for name in LAYERS if f"{name}.bias" not in found), "")
        if values.shape == (SIDE, SIDE, 3):
            found["mean"] = _float(values.transpose(2, 0, 1))
        elif name and f"{name}.weight" in found:
            if values.size == LAYERS[name][3] and place[:2] in used:
                found[f"{name}.bias"] = _float(values.reshape(-1))
        elif name and values.shape == LAYERS[name] and place[:2] not in used:
            used.add(place[:2])  # a layer may hold more of this shape: what its training left behind
            kernel = values.transpose(3, 2, 0, 1)
            found[f"{name}.weight"] = _float(kernel.reshape(kernel.shape[:2]) if name == "fc7" else kernel)
    wanted = ["mean", *(f"{name}.{part}" for name in LAYERS for part in ("weight", "bias"))]
    if missing := [name for name in wanted if name not in found]:
        raise DataError(f"not the weights of VGG-F: no {', '.join(missing[:4])} in it", file)
    if broken := [name for name in wanted if not np.isfinite(found[name]).all()]:
        raise DataError("has values that are not numbers", file, field=broken[0], remedy="copy it again")
    return found


def _float(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32)


def nested(file: Path) -> Iterator[tuple[Place, np.ndarray]]:
    """All arrays of numbers in the cells and structs of a version 5 or 7 file, in the file's order."""
    try:
        with file.open("rb") as stream:
            order = mat5.byte_order(stream.read(128))
        if not order:
            raise DataError("not a MATLAB file of version 5 or 7", file, remedy="save it with -v7")
        for number, variable in enumerate(mat5.variables(file, order)):
            yield from _walk(variable.read((*mat5.NUMBERS, mat5.CELL, mat5.STRUCT, mat5.TEXT)), (number,))
    except (DataError, GeneratorExit):
        raise
    except Exception as error:  # SciPy raises nearly anything for damaged bytes
        raise damaged(file, error) from error


def _walk(values: np.ndarray, place: Place) -> Iterator[tuple[Place, np.ndarray]]:
    if values.dtype.names:  # structs
        for number, each in enumerate(values.ravel(order="F")):
            own = (*place, number) if values.size > 1 else place  # a struct on its own has no number
            for field in values.dtype.names:
                yield from _walk(each[field], (*own, field))
    elif values.dtype == object:  # cells
        for number, each in enumerate(values.ravel(order="F")):
            yield from _walk(each, (*place, number))
    elif values.dtype.kind in "iufb":
        yield place, values
