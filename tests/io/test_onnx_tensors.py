"""Tensors from ONNX files, which are written here byte by byte: names, transposition, and what is refused."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from onnx_files import field, model, node, tensor
from wayfare.core.errors import DataError
from wayfare.io.onnx_tensors import state_dict
from wayfare.io.weights import import_weights

MATRIX = np.array([[1, 2, 3], [4, 5, 6]], "<f4")
KERNEL = np.arange(8, dtype="<f4").reshape(2, 1, 2, 2)
GOOD = model(
    node("MatMul", ["/x", "onnx::MatMul_7"], "/model/blocks/blocks.0/attn/qkv/MatMul_output_0"),
    node("Conv", ["input", "onnx::Conv_1", "onnx::Conv_2"], "/model/stem/conv1/Conv_output_0"),
    node("Conv", ["/y", "model.last.weight"], "/model/last/Conv_output_0"),
    node("Reshape", ["onnx::Reshape_9", "/shape"], "/Reshape_output_0"),
    tensor("onnx::MatMul_7", MATRIX),
    tensor("onnx::Conv_1", KERNEL, packed=True),
    tensor("onnx::Conv_2", np.array([0.5, -0.5], "<f4")),
    tensor("model.last.weight", KERNEL),
    tensor("onnx::Reshape_9", np.array([3, 300], "<i8"), kind=7),
)


def test_numbered_tensors_get_the_names_of_their_layers() -> None:
    found = state_dict(GOOD)
    assert sorted(found) == [
        "blocks.0.attn.qkv.weight", "last.weight", "onnx::Reshape_9", "stem.conv1.bias", "stem.conv1.weight",
    ]  # fmt: skip
    assert found["blocks.0.attn.qkv.weight"].tolist() == [[1, 4], [2, 5], [3, 6]]
    assert found["stem.conv1.weight"].tolist() == KERNEL.tolist() == found["last.weight"].tolist()
    assert found["stem.conv1.bias"].tolist() == [0.5, -0.5]
    assert found["onnx::Reshape_9"].tolist() == [3, 300]


def test_a_tensor_of_two_layers_is_both_layers() -> None:
    twice = model(
        node("MatMul", ["/x", "onnx::MatMul_7"], "/a/MatMul_output_0"),
        node("MatMul", ["/y", "onnx::MatMul_7"], "/b/MatMul_output_0"),
        tensor("onnx::MatMul_7", MATRIX),
    )
    found = state_dict(twice)
    assert sorted(found) == ["a.weight", "b.weight"]
    assert found["a.weight"].tolist() == found["b.weight"].tolist() == [[1, 4], [2, 5], [3, 6]]


def test_a_file_becomes_safetensors_behind_the_fence(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(GOOD)
    facts = import_weights(tmp_path / "net.onnx", tmp_path / "net.safetensors")
    assert facts["tensors"] == 5
    found = load_file(tmp_path / "net.safetensors")
    assert torch.equal(found["blocks.0.attn.qkv.weight"], torch.from_numpy(MATRIX.T.copy()))


@pytest.mark.parametrize(("data", "expected"), [
    (GOOD[:-1], "not an ONNX file, or a truncated one"),
    (b"", "one graph; found 0"),
    (field(7, 3), "not an ONNX file"),
    (b"\x3b", "not an ONNX file"),  # a group, which ONNX has none of
    (b"\xff" * 20, "truncated"),
    (model(), "holds no weights"),
    (model(field(5, field(1, 2) + field(2, 1) + field(8, "w") + field(9, bytes(4)))), "'w'.* has 4 bytes, expected 8"),
    (model(field(5, field(1, 2) + field(2, 1) + field(8, "w") + field(4, bytes(8)))), "'w'.* a way that is not read"),
    (model(field(5, field(1, 2**62) + field(1, 4) + field(2, 1) + field(9, b""))), "has 0 bytes, expected 7378697629"),
    (model(tensor("w", MATRIX), tensor("model.w", MATRIX)), "two tensors .* 'w'"),
])  # fmt: skip
def test_what_is_no_model_is_refused(data: bytes, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        state_dict(data)


def test_damaged_files_are_refused_or_read_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(5000):
        data = bytearray(GOOD[: rng.integers(1, len(GOOD) + 1)])
        for place in rng.integers(0, len(data), rng.integers(0, 4)):
            data[place] = rng.integers(256)
        try:
            state_dict(bytes(data))
        except DataError:
            refused += 1
    assert 4000 < refused < 5000


def test_little_endian_whatever_the_machine_is() -> None:
    raw = struct.pack("<f", 1.5)
    data = model(field(5, field(1, 1) + field(2, 1) + field(8, "w") + field(9, raw)))
    assert state_dict(data)["w"].tolist() == [1.5]
