"""CIFAR-10's binary form and our cached arrays give the same pictures; python batches are refused."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amount import some
from damaged_files import bytes_of, quick_folder
from wayfare.core.errors import DataError
from wayfare.io.cache import write_pair
from wayfare.io.pictures import Pictures
from wayfare.objects.data import cifar

RNG = np.random.default_rng(3)
BATCHES = {"data_batch_1": 5, "data_batch_2": 3, "data_batch_10": 4, "test_batch": 6}  # any number, any length
ROWS = {name: RNG.integers(0, 256, (count, 3072), np.uint8) for name, count in BATCHES.items()}
LABELS = {name: [int(label) for label in RNG.integers(0, 10, count)] for name, count in BATCHES.items()}
NAMES = list(cifar.CLASSES)


def write_binary(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name in BATCHES:
        rows = np.concatenate([np.array(LABELS[name], np.uint8)[:, None], ROWS[name]], axis=1)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(NAMES) + "\n\n")
    return folder


def check(pair: tuple[Pictures, Pictures]) -> None:
    train, test = pair
    order = ("data_batch_1", "data_batch_2", "data_batch_10")  # by number, not by letter
    assert train.images.shape == (12, 32, 32, 3)
    assert train.labels.tolist() == [label for name in order for label in LABELS[name]]
    assert test.labels.tolist() == LABELS["test_batch"]
    assert train.classes == test.classes == cifar.CLASSES
    # of the second picture, the green value at row 3, column 5 is at 1024 + 3 * 32 + 5
    assert train.images[1, 3, 5, 1] == ROWS["data_batch_1"][1, 1125]
    assert test.images[5, 31, 31].tolist() == ROWS["test_batch"][5, [1023, 2047, 3071]].tolist()


def test_the_binary_version(tmp_path: Path) -> None:
    check(cifar.load(write_binary(tmp_path / "x")))


def test_the_folder_above_is_good_enough(tmp_path: Path) -> None:
    write_binary(tmp_path / "cifar-10-batches-bin")
    check(cifar.load(tmp_path))


def test_the_cached_form_is_mapped_into_memory(tmp_path: Path) -> None:
    pair = cifar.load(write_binary(tmp_path / "x"))
    (tmp_path / "cache").mkdir()
    write_pair(tmp_path / "cache", *pair)
    again = cifar.load(tmp_path / "cache")
    check(again)
    assert isinstance(again[0].images, np.memmap)
    assert not again[0].images.flags.writeable


@pytest.mark.parametrize("file", ["train_images.npy", "test_labels.npy", "pictures.json"])
@pytest.mark.parametrize("damage", ["cut", "empty", "pickle", "absent"])
def test_a_damaged_cache_is_named(file: str, damage: str, tmp_path: Path) -> None:
    write_pair(tmp_path, *cifar.load(write_binary(tmp_path / "x")))
    target = tmp_path / file
    whole = target.read_bytes()
    content = {"cut": whole[:-8], "empty": b"", "pickle": pickle.dumps([1]), "absent": whole}
    target.write_bytes(content[damage])
    if damage == "absent":
        target.unlink()
    with pytest.raises(DataError):
        cifar.load(tmp_path)


def test_without_the_names_of_the_classes_the_usual_ones_are_taken(tmp_path: Path) -> None:
    (write_binary(tmp_path / "bin") / "batches.meta.txt").unlink()
    check(cifar.load(tmp_path / "bin"))


# ---- Refused, with the file and what was expected


def refusal(folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        cifar.load(folder)
    return str(caught.value)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path}: no CIFAR-10 here" in refusal(tmp_path)
    assert "expected a folder" in refusal(tmp_path / "absent")
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"")
    assert "unpack it first" in refusal(tmp_path / "cifar-10-binary.tar.gz")
    folder = write_binary(tmp_path / "bin")
    (folder / "test_batch.bin").unlink()
    assert f"{folder / 'test_batch.bin'}: no such file" in refusal(folder)
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "data_batch_x.bin").write_bytes(b"")
    assert "expected data_batch_1.bin" in refusal(tmp_path / "odd")


class MakesAFile:
    """Pickles to a call."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("inside", [".", "cifar-10-batches-py"])
def test_python_batches_are_refused_and_not_opened(inside: str, tmp_path: Path) -> None:
    canary, folder = tmp_path / "canary", tmp_path / "cifar"
    (folder / inside).mkdir(parents=True)
    for name in ("data_batch_1", "test_batch", "batches.meta"):
        (folder / inside / name).write_bytes(pickle.dumps(MakesAFile(canary)))
    assert cifar.recognises(folder)
    text = refusal(folder)
    assert "the python version of CIFAR-10, which is pickled, is not read" in text
    assert "cifar-10-binary.tar.gz" in text and "wayfare data get cifar10" in text
    assert not canary.exists()
    write_binary(folder / "cifar-10-batches-bin")  # beside it the binary version is enough
    check(cifar.load(folder))


def test_binary_lengths_and_labels_are_checked(tmp_path: Path) -> None:
    folder = write_binary(tmp_path / "bin")
    file = folder / "data_batch_2.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert f"{file}: 9218 bytes, expected a multiple of 3073" in refusal(folder)
    file.write_bytes(b"\x0a" + whole[1:])
    assert f"{file}: field 'labels': labels run" in refusal(folder)
    file.write_bytes(b"")
    assert "holds no pictures" in refusal(folder)


# ---- Any bytes at all


SEARCH = settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@SEARCH
@given(st.binary(max_size=200), st.sampled_from(["data_batch_1.bin", "test_batch.bin", "batches.meta.txt"]))
def test_any_bytes_in_the_binary_form(tmp_path_factory: pytest.TempPathFactory, content: bytes, file: str) -> None:
    folder = write_binary(tmp_path_factory.getbasetemp() / "binary-fuzz")
    (folder / file).write_bytes(content)
    try:
        train, _ = cifar.load(folder)
    except DataError:
        return
    assert train.classes


def test_broken_files() -> None:
    """Each of the files: pictures or a DataError that names the folder, and nothing else."""
    rng, refused, read = np.random.default_rng(0), 0, 0
    with quick_folder() as place:
        folder = write_binary(place / "binary")
        files = sorted(folder.iterdir())
        for file in files:
            whole = file.read_bytes()
            for _ in range(some(5_000) // len(files) + 1):
                head, tail = whole[:300], whole[300:]
                file.write_bytes(bytes_of(head, rng) + tail if rng.random() < 0.8 else bytes_of(whole, rng))
                try:
                    cifar.load(folder)
                    read += 1
                except DataError as error:
                    assert str(folder) in str(error)
                    refused += 1
            file.write_bytes(whole)
    assert refused + read >= some(5_000) and refused > some(1_000) and read > some(300)


def test_the_real_set_where_it_was_fetched() -> None:
    folder = Path(os.environ.get("WAYFARE_CACHE") or "absent") / "cifar10"
    if not folder.is_dir():
        pytest.skip("CIFAR-10 is not in WAYFARE_CACHE: run `wayfare data get cifar10` to have it")
    train, test = cifar.load(folder)
    assert np.bincount(train.labels).tolist() == [5000] * 10
    assert np.bincount(test.labels).tolist() == [1000] * 10
    means = train.images.reshape(-1, 3).mean(axis=0, dtype=np.float64) / 255
    np.testing.assert_allclose(means, [0.49139968, 0.48215841, 0.44653091], atol=1e-8)
