"""The weights of an ONNX network in 8 bits: one scale for each output of a layer, and arithmetic in float32 as before.

Only weights are rounded, so a network needs no pictures to be converted with, and every runtime of opset 13 can run
it. It takes a quarter of the bytes, and no less time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_SMALLEST = 1024  # numbers of a weight that is worth it
_LARGEST = 127
_AXES = {"Conv": 0, "ConvTranspose": 1, "MatMul": -1, "Gather": 0}  # along which a weight's outputs lie


def in_eight_bits(model: Any) -> Any:
    """An onnx.ModelProto whose large weights are int8; the given one is changed."""
    from onnx import helper, numpy_helper

    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    nodes, taken = [], dict[str, int]()
    for node in graph.node:
        for place, name in enumerate(node.input):
            axis = _axis(node, place)
            if axis is not None and name in weights and _is_large(numpy_helper.to_array(weights[name])):
                taken.setdefault(name, axis)
                if taken[name] == axis:
                    node.input[place] = f"{name}.whole"
        nodes.append(node)
    made = []
    for name, axis in taken.items():
        values = numpy_helper.to_array(weights[name])
        rounded, scale = rounded_rows(values, axis)
        graph.initializer.remove(weights[name])
        graph.initializer.append(numpy_helper.from_array(rounded, f"{name}.int8"))
        graph.initializer.append(numpy_helper.from_array(scale, f"{name}.scale"))
        inputs = [f"{name}.int8", f"{name}.scale"]
        made.append(helper.make_node("DequantizeLinear", inputs, [f"{name}.whole"], axis=axis % values.ndim))
    del graph.node[:]
    graph.node.extend([*made, *nodes])
    return model


def rounded_rows(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """int8 of the same shape, and the scale of each place on the axis: the largest number there becomes 127."""
    others = tuple(other for other in range(values.ndim) if other != axis % values.ndim)
    most = np.abs(values).max(axis=others, keepdims=True)
    scale = np.where(most > 0, most / _LARGEST, 1).astype(np.float32)
    return np.rint(values / scale).astype(np.int8), scale.reshape(-1)


def _is_large(values: np.ndarray) -> bool:
    return values.dtype == np.float32 and values.ndim >= 2 and values.size >= _SMALLEST


def _axis(node: Any, place: int) -> int | None:
    """Along which axis of this input the outputs lie, if it is a weight."""
    if node.op_type == "Gemm" and place == 1:
        turned = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
        return 0 if turned else 1
    where = 0 if node.op_type == "Gather" else 1
    return _AXES.get(node.op_type) if place == where else None
