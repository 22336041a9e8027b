"""The tensors of an ONNX file as a state dict: a reader of the few protobuf fields that hold weights.

PyTorch's exporter keeps the names of most parameters. Matrices of linear layers are stored transposed, and convolutions
together with the norm after them, under numbers such as `onnx::MatMul_1368`. The nodes that use those carry the layer's
path in the name of their output:

    /blocks.0/attn/qkv/MatMul_output_0            blocks.0.attn.qkv.weight, transposed back
    /model/stem/conv1/Conv_output_0               stem.conv1.weight and stem.conv1.bias

Any other numbered tensor keeps its name. The graph itself is not run or kept: a network of the same structure must be
defined elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from wayfare.core.errors import DataError

_GRAPH = 7  # field numbers of onnx.proto: of ModelProto,
_NODE, _INITIALISER = 1, 5  # GraphProto,
_INPUT, _OUTPUT, _OPERATOR = 1, 2, 4  # NodeProto,
_DIMS, _TYPE, _NAME, _RAW = 1, 2, 8, 9  # and TensorProto
_TYPES = {1: "<f4", 7: "<i8", 10: "<f2", 11: "<f8"}
_NUMBERED = "onnx::"
_PREFIX = "model"  # the attribute of a wrapper around the network
_MOST_DIMS = 8

Fields = Iterator[tuple[int, int | memoryview]]


@dataclass(frozen=True)
class OnnxNode:
    """An operation of the graph, and the names of what it takes and gives."""

    operator: str
    inputs: list[str]
    outputs: list[str]


def state_dict(data: bytes) -> dict[str, np.ndarray]:
    """The initialisers of an ONNX model under the names of the layers that they belong to."""
    graph = [value for number, value in _fields(memoryview(data)) if number == _GRAPH]
    if len(graph) != 1:
        raise DataError(f"expected an ONNX model, with one graph; found {len(graph)}")
    stored: dict[str, np.ndarray] = {}
    nodes: list[OnnxNode] = []
    for number, value in _fields(_bytes(graph[0])):
        if number == _INITIALISER:
            name, tensor = _tensor(_bytes(value))
            stored[name] = tensor
        elif number == _NODE:
            nodes.append(_node(_bytes(value)))
    if not stored:
        raise DataError("the ONNX model holds no weights")
    return _named(stored, nodes)


def _named(stored: dict[str, np.ndarray], nodes: list[OnnxNode]) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    placed: set[str] = set()
    for node in nodes:
        if node.operator not in ("MatMul", "Conv") or not node.outputs:
            continue
        for name, kind in zip(node.inputs[1:], ("weight", "bias")):
            if name in stored and name.startswith(_NUMBERED):
                tensor = stored[name].T if node.operator == "MatMul" else stored[name]
                found[f"{_path(node.outputs[0])}.{kind}"] = np.ascontiguousarray(tensor)
                placed.add(name)
    for name in (name for name in stored if name not in placed):
        short = name.removeprefix(f"{_PREFIX}.")
        if short in found:
            raise DataError(f"two tensors of the ONNX model would be called {short[:80]!r}")
        found[short] = stored[name]
    return found


def _path(output: str) -> str:
    """`/model/blocks/blocks.0/attn/qkv/MatMul_output_0` is of the layer `blocks.0.attn.qkv`."""
    parts = output.strip("/").split("/")[:-1]
    kept = [part for part, after in zip(parts, [*parts[1:], ""]) if not after.startswith(f"{part}.")]
    return ".".join(kept[1:] if kept[:1] == [_PREFIX] else kept)


def _node(data: memoryview) -> OnnxNode:
    inputs, outputs, operator = [], [], ""
    for number, value in _fields(data):
        if number == _INPUT:
            inputs.append(_text(value))
        elif number == _OUTPUT:
            outputs.append(_text(value))
        elif number == _OPERATOR:
            operator = _text(value)
    return OnnxNode(operator, inputs, outputs)


def _tensor(data: memoryview) -> tuple[str, np.ndarray]:
    dims: list[int] = []
    kind, name, raw = 0, "", None
    for number, value in _fields(data):
        if number == _DIMS:
            dims += [value] if isinstance(value, int) else _packed(value)
        elif number == _TYPE and isinstance(value, int):
            kind = value
        elif number == _NAME:
            name = _text(value)
        elif number == _RAW:
            raw = _bytes(value)
    if raw is None or kind not in _TYPES or len(dims) > _MOST_DIMS:
        raise DataError(f"the tensor {name[:80]!r} of the ONNX model is stored in a way that is not read")
    size = np.dtype(_TYPES[kind]).itemsize
    for dim in dims:
        size *= dim
    if size != len(raw):
        raise DataError(f"the tensor {name[:80]!r} of the ONNX model has {len(raw)} bytes, expected {size}")
    return name, np.frombuffer(raw, _TYPES[kind]).reshape(dims)


# ---- Protobuf


def _fields(data: memoryview) -> Fields:
    """Numbers and values of a message's fields: whole numbers, or the bytes of anything else."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            number, at = _varint(data, at)
            yield key >> 3, number
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise DataError("not an ONNX file")
        if at + size > len(data):
            raise DataError("not an ONNX file, or a truncated one")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    number = 0
    for place in range(10):
        if at + place >= len(data):
            break
        byte = data[at + place]
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, at + place + 1
    raise DataError("not an ONNX file, or a truncated one")


def _packed(data: memoryview) -> list[int]:
    numbers, at = [], 0
    while at < len(data):
        number, at = _varint(data, at)
        numbers.append(number)
    return numbers


def _bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise DataError("not an ONNX file")
    return value


def _text(value: int | memoryview) -> str:
    return bytes(_bytes(value)).decode(errors="replace")
