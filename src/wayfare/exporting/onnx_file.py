"""A network as an ONNX file, and ONNX Runtime to run it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wayfare.core import disk
from wayfare.core.errors import ConfigError
from wayfare.exporting.eight_bits import in_eight_bits
from wayfare.portable import PortablePart

OPSET = 18
_MOST = 4096  # of an axis of any length
_LARGE = 2**31  # numbers of a tensor: all are folded
_EXTRA = "pip install 'wayfare[export]'"


def write_onnx(part: PortablePart, file: Path) -> None:
    """Trace a part and write it; nothing of this machine is in the file."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401  # torch's exporter needs it
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed: {_EXTRA}") from error
    program = _program(part, free=True)
    if program.model_proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value:
        program = _program(part, free=False)  # something in the network depends on how many inputs there are
    _fold(program.model)
    model = without_traces(program.model_proto)
    disk.write(file, model.SerializeToString(deterministic=True))


def round_weights(source: Path, target: Path) -> None:
    """The network of an ONNX file with weights of 8 bits."""
    import onnx

    disk.write(target, in_eight_bits(onnx.load(source)).SerializeToString(deterministic=True))


def _fold(model: Any) -> None:
    """Compute once what depends on no input: weights with a norm folded in are weights again, to round or to run."""
    from onnxscript import optimizer

    optimizer.fold_constants(model, input_size_limit=_LARGE, output_size_limit=_LARGE)
    optimizer.remove_unused_nodes(model)


def _program(part: PortablePart, free: bool) -> Any:
    """Traced with axes of any length; or else for one input at a time."""
    examples = tuple(each.example if free else each.example[:1] for each in part.inputs)
    axes = [{axis: name for axis, name in each.free.items() if free or axis} for each in part.inputs]
    dims = {name: torch.export.Dim(name, min=1, max=_MOST) for each in axes for name in each.values()}
    shapes = tuple({axis: dims[name] for axis, name in each.items()} for each in axes)
    with quiet():
        return torch.onnx.export(
            part.module, examples, dynamo=True, dynamic_shapes=shapes, opset_version=OPSET,
            input_names=[each.name for each in part.inputs], output_names=[part.output], verbose=False,
        )  # fmt: skip


def without_traces(model: Any) -> Any:
    """Without the lines of code and the paths that torch notes beside each node."""
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for holder in (*model.graph.value_info, *model.graph.initializer, *model.graph.input, *model.graph.output):
        del holder.metadata_props[:]
        holder.doc_string = ""
    for function in model.functions:
        del function.metadata_props[:]
        for node in function.node:
            del node.metadata_props[:]
    del model.graph.metadata_props[:], model.metadata_props[:]
    model.doc_string = model.graph.doc_string = ""
    return model


class OnnxNetwork:
    """An ONNX file in use, on one thread."""

    def __init__(self, file: Path) -> None:
        try:
            import onnxruntime
        except ModuleNotFoundError as error:
            raise ConfigError(f"{error.name} is not installed: {_EXTRA}") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self.shapes = {each.name: list(each.shape) for each in self._session.get_inputs()}

    def __call__(self, *inputs: Tensor) -> np.ndarray:
        given = {name: each.numpy() for name, each in zip(self.shapes, inputs)}
        if all(isinstance(shape[0], str) for shape in self.shapes.values()):
            found: np.ndarray = self._session.run(None, given)[0]
            return found
        rows = [{name: each[row : row + 1] for name, each in given.items()} for row in range(len(inputs[0]))]
        return np.concatenate([self._session.run(None, row)[0] for row in rows])


@contextmanager
def quiet() -> Iterator[None]:
    """Without what exporters say to their own developers."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
