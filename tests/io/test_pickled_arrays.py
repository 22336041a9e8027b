"""Arrays of a pickle whose opcodes are read and never run."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wayfare.core.errors import DataError
from wayfare.io.pickled_arrays import state_dict, torchvision_names
from wayfare.io.weights import import_weights, load_weights


def test_arrays_are_those_that_were_pickled() -> None:
    tree = {
        "a": {"kernel": np.arange(24, dtype=np.float32).reshape(2, 3, 4), "bias": np.array([1.5, 2.5])},
        "b": np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
        "c": np.float16([[1.0]]),
    }
    found = state_dict(pickle.dumps(tree, protocol=3))
    assert list(found) == ["a.kernel", "a.bias", "b", "c"]
    expected = [tree["a"]["kernel"], tree["a"]["bias"], tree["b"], tree["c"]]  # type: ignore[call-overload, index]
    for ours, theirs in zip(found.values(), expected):
        assert ours.dtype == theirs.dtype and ours.tolist() == theirs.tolist()


class Harmful:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.file),)


@pytest.mark.parametrize("protocol", [0, 2, 3, 4])
def test_a_program_is_refused_and_not_run(protocol: int, tmp_path: Path) -> None:
    data = pickle.dumps({"a": np.zeros(3), "b": Harmful(tmp_path / "done")}, protocol)
    with pytest.raises(DataError):
        state_dict(data)
    assert not (tmp_path / "done").exists()


@pytest.mark.parametrize("value", [{}, {"a": 3}, {"a": np.array(["x"])}, [np.zeros(2)], {"a": np.zeros(2, ">f4")}])
def test_what_is_no_dict_of_arrays_is_refused(value: Any) -> None:
    with pytest.raises(DataError):
        state_dict(pickle.dumps(value, protocol=3))


def test_cut_and_random_files_are_refused() -> None:
    data = pickle.dumps({"a": np.arange(9.0)}, protocol=3)
    rng = np.random.default_rng(0)
    for cut in range(0, len(data), 3):
        with pytest.raises(DataError):
            state_dict(data[:cut])
    for _ in range(100):
        with pytest.raises(DataError):
            state_dict(rng.integers(0, 256, 60, dtype=np.uint8).tobytes())


def test_vgg16_gets_torchvisions_names(tmp_path: Path) -> None:
    """A kernel is (height, width, in, out) in JAX and (out, in, height, width) in torch; other layers are dropped."""
    rng = np.random.default_rng(0)
    layers = {f"Conv_{i}": {"kernel": rng.random((3, 3, 2, 4), np.float32), "bias": rng.random(4)} for i in range(13)}
    tree = {"VGG16_0": layers, "NetLinLayer_0": {"Conv_0": {"kernel": np.ones((1, 1, 4, 1))}}}
    (tmp_path / "vgg16.ckpt").write_bytes(pickle.dumps(tree, protocol=3))
    assert import_weights(tmp_path / "vgg16.ckpt", tmp_path / "vgg16.safetensors")["tensors"] == 26
    found = load_weights(tmp_path / "vgg16.safetensors")
    assert found["features.28.weight"].shape == (4, 2, 3, 3)
    assert found["features.5.weight"][1, 0, 2, 1] == layers["Conv_2"]["kernel"][2, 1, 0, 1]
    assert torchvision_names({"other": np.ones(1)}).keys() == {"other"}
