"""A network as an ExecuTorch program for phones, lowered to XNNPACK where that is possible, and running it.

A program takes one picture at a time: XNNPACK plans its memory for a fixed shape. It is tried in a process of its own,
because a runtime that is not Python ends its process where something is wrong.
"""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import GraphModule

from wayfare.core import disk
from wayfare.core.errors import ConfigError
from wayfare.exporting.onnx_file import quiet
from wayfare.portable import PortablePart

_EXTRA = "pip install 'wayfare[executorch]'"
_SECONDS = 600


def write_pte(part: PortablePart, file: Path) -> None:
    """Lower a part and write it."""
    try:
        with quiet():
            from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
            from executorch.exir import to_edge_transform_and_lower
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed: {_EXTRA}") from error
    examples = tuple(each.example[:1].contiguous() for each in part.inputs)
    plain = copy.deepcopy(part.module).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    with quiet():
        traced = _in_plain_memory(torch.export.export(plain, examples))
        lowered = to_edge_transform_and_lower(traced, partitioner=[XnnpackPartitioner()])
        disk.write(file, bytes(lowered.to_executorch().buffer))


def _in_plain_memory(traced: Any) -> Any:
    """Without the orders of memory that a network asks for: after such a step ExecuTorch's results are wrong.

    What stands under `no_grad` has a graph of its own.
    """
    graphs = [part.graph for part in traced.graph_module.modules() if isinstance(part, GraphModule)]
    for node in (node for graph in graphs for node in graph.nodes):
        if "memory_format" in node.kwargs:
            node.kwargs = {**node.kwargs, "memory_format": torch.contiguous_format}
    return traced


class PteNetwork:
    """An ExecuTorch program in use."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __call__(self, *inputs: Tensor) -> np.ndarray:
        with TemporaryDirectory() as folder:
            given, found = Path(folder) / "given.npz", Path(folder) / "found.npy"
            np.savez(given, *(each.numpy() for each in inputs))
            command = [sys.executable, "-P", "-m", __name__, str(self._file), str(given), str(found)]
            done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
            if done.returncode != 0 or not found.exists():
                raise ConfigError(
                    f"{self._file.name}: ExecuTorch cannot run it (status {done.returncode}): export to onnx instead"
                )
            outputs: np.ndarray = np.load(found, allow_pickle=False)
            return outputs


def _run(file: str, given: str, found: str) -> None:
    from executorch.runtime import Runtime

    with np.load(given, allow_pickle=False) as table:
        inputs = [torch.from_numpy(table[name]) for name in sorted(table)]
    program = Runtime.get().load_program(file)  # kept: the method's memory is the program's
    method = program.load_method("forward")
    rows = [[each[row : row + 1].contiguous() for each in inputs] for row in range(len(inputs[0]))]
    np.save(found, np.concatenate([method.execute(row)[0].numpy().copy() for row in rows]))


if __name__ == "__main__":
    _run(*sys.argv[1:])
