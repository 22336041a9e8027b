"""Arrays of a pickle whose opcodes are read and never run."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wayfare.core.errors import DataError
from wayfare.io.pickled_arrays import object_array, state_dict, torchvision_names
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


def lists() -> np.ndarray:
    found = np.empty((2, 2), object)
    found[:] = [[3, [1, np.int16(2)]], [np.uint8(4), np.array([[5, 6]])]]
    return found


@pytest.mark.parametrize("protocol", [2, 3, 4])  # numpy saves 2 to 4
def test_numbers_and_lists_of_an_array_of_objects(protocol: int) -> None:
    assert object_array(pickle.dumps(lists(), protocol)) == [3, [1, 2], 4, [5, 6]]


def test_an_array_that_python_2_saved() -> None:
    """Bytes were strings there; VPR-Bench's files are of it."""
    made = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    kind = b"cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb"
    objects = made + b"(K\x01K\x02\x85" + kind + b"\x89](K\x07](K\x08K\x09eetb."
    assert object_array(objects) == [7, [8, 9]]


@pytest.mark.parametrize("value", [1.5, "x", None, True, [[1]], np.array([0.5]), np.array(["x"]), {}])
def test_elements_that_are_no_integers_are_refused(value: Any) -> None:
    found = np.empty(1, object)
    found[0] = value
    with pytest.raises(DataError):
        object_array(pickle.dumps(found, protocol=4))


def test_an_object_array_cannot_run_or_swell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = np.empty(3, object)
    found[:] = [1, 2, Harmful(tmp_path / "done")]
    with pytest.raises(DataError, match="mkdir"):
        object_array(pickle.dumps(found, protocol=4))
    assert not (tmp_path / "done").exists()
    monkeypatch.setattr("wayfare.io.pickled_arrays._MOST_NUMBERS", 1000)
    shared = list(range(100))
    found = np.empty(20, object)
    for place in range(20):
        found[place] = shared
    with pytest.raises(DataError, match="more than 1000 numbers"):
        object_array(pickle.dumps(found, protocol=4))


def test_a_cut_object_array_is_refused() -> None:
    data = pickle.dumps(lists(), protocol=4)
    for cut in range(len(data)):
        with pytest.raises(DataError):
            object_array(data[:cut])
