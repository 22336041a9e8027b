"""CIFAR-10's three forms give the same pictures, and a pickle that does anything else does nothing."""

from __future__ import annotations

import os
import pickle
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mangle import bytes_of, quick_folder
from wayfare.data import cifar
from wayfare.data.cache import write_pair
from wayfare.data.pictures import Pictures
from wayfare.errors import DataError

RNG = np.random.default_rng(3)
BATCHES = {"data_batch_1": 5, "data_batch_2": 3, "data_batch_10": 4, "test_batch": 6}  # any number, any length
ROWS = {name: RNG.integers(0, 256, (count, 3072), np.uint8) for name, count in BATCHES.items()}
LABELS = {name: [int(label) for label in RNG.integers(0, 10, count)] for name, count in BATCHES.items()}
NAMES = list(cifar.CLASSES)


def python3(protocol: int, keys: type = str) -> Callable[[Any], bytes]:
    def write(value: dict[str, Any]) -> bytes:
        renamed = {key.encode() if keys is bytes else key: item for key, item in value.items()}
        return pickle.dumps(renamed, protocol)

    return write


def python2(value: dict[str, Any]) -> bytes:
    """The instructions that cPickle of Python 2 wrote with protocol 2, as in the files that the authors give out."""
    return b"\x80\x02" + _py2(value) + b"."


def _py2(value: Any) -> bytes:
    if isinstance(value, dict):
        return b"}q\x01(" + b"".join(_py2(key) + _py2(item) for key, item in value.items()) + b"u"
    if isinstance(value, list):
        return b"]q\x02(" + b"".join(map(_py2, value)) + b"e"
    if isinstance(value, str):
        return b"U" + bytes((len(value),)) + value.encode() + b"q\x03"
    if isinstance(value, int):
        return b"K" + bytes((value,)) if value < 256 else b"M" + struct.pack("<H", value)
    shape = b"".join(map(_py2, value.shape)) + b"\x86"
    data = value.tobytes()
    return (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x04cnumpy\nndarray\nq\x05K\x00\x85U\x01b\x87Rq\x06(K\x01" + shape
        + b"cnumpy\ndtype\nq\x07U\x02u1K\x00K\x01\x87Rq\x08(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        + b"T" + struct.pack("<I", len(data)) + data + b"tb"
    )  # fmt: skip


def batch(name: str) -> dict[str, Any]:
    files = [f"{number}.png" for number in LABELS[name]]
    return {"batch_label": name, "labels": LABELS[name], "data": ROWS[name], "filenames": files}


def write_python(folder: Path, write: Callable[[Any], bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for name in BATCHES:
        (folder / name).write_bytes(write(batch(name)))
    (folder / "batches.meta").write_bytes(write({"num_vis": 3072, "label_names": NAMES}))
    return folder


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


WRITERS = {
    "python 2": python2,
    **{f"python 3, protocol {p}": python3(p) for p in (2, 3, 4, 5)},
    **{f"python 3, protocol {p}, bytes as keys": python3(p, bytes) for p in (2, 4)},
}


@pytest.mark.parametrize("form", list(WRITERS))
def test_the_python_form(form: str, tmp_path: Path) -> None:
    check(cifar.load(write_python(tmp_path / "x", WRITERS[form])))


def test_the_python_2_file_of_these_tests_is_a_true_one() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy has moved what the file names
        found = pickle.loads(python2(batch("test_batch")), encoding="latin1")  # noqa: S301
    np.testing.assert_array_equal(found["data"], ROWS["test_batch"])
    assert found["labels"] == LABELS["test_batch"]


def test_an_array_by_columns_is_read_by_columns(tmp_path: Path) -> None:
    folder = write_python(tmp_path / "x", python3(2))
    turned = batch("test_batch") | {"data": np.asfortranarray(ROWS["test_batch"])}
    for protocol in (2, 5):
        (folder / "test_batch").write_bytes(pickle.dumps(turned, protocol))
        check(cifar.load(folder))


def test_the_binary_form(tmp_path: Path) -> None:
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
    (write_python(tmp_path / "py", python2) / "batches.meta").unlink()
    check(cifar.load(tmp_path / "bin"))
    check(cifar.load(tmp_path / "py"))


# ---- Refused, with the file and what was expected


def refusal(folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        cifar.load(folder)
    return str(caught.value)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path}: no CIFAR-10 here" in refusal(tmp_path)
    assert "expected a folder" in refusal(tmp_path / "absent")
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"")
    assert "unpack it first" in refusal(tmp_path / "cifar-10-python.tar.gz")
    folder = write_binary(tmp_path / "bin")
    (folder / "test_batch.bin").unlink()
    assert f"{folder / 'test_batch.bin'}: no such file" in refusal(folder)
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "data_batch_x").write_bytes(b"")
    assert "expected data_batch_1" in refusal(tmp_path / "odd")


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


@pytest.mark.parametrize(("change", "expected"), [
    ({"labels": [0]}, "1 labels for 6 pictures"),
    ({"labels": [11] * 6}, "labels run from 11 to 11, expected 0 to 9"),
    ({"labels": ["cat"] * 6}, "expected a list of class numbers"),
    ({"labels": [-1] * 6}, "expected a list of class numbers"),
    ({"data": np.zeros((6, 3071), np.uint8)}, "expected an array of uint8 (N, 3072), found (6, 3071)"),
    ({"data": np.zeros(6 * 3072, np.uint8)}, "expected an array of uint8"),
    ({"data": np.zeros((6, 3072), np.float32)}, "an array of uint8 has no need of"),
    ({"data": np.zeros((6, 3072), np.int8)}, "an array of uint8 has no need of"),
    ({"data": [[0] * 3072] * 6}, "field 'data'"),
    ({"data": None}, "field 'data'"),
    ({"data": np.zeros((6, 3072), object)}, "an array of uint8 has no need of"),
])  # fmt: skip
@pytest.mark.parametrize("protocol", [2, 5])
def test_python_contents_are_checked(change: dict[str, Any], expected: str, protocol: int, tmp_path: Path) -> None:
    folder = write_python(tmp_path / "py", python2)
    (folder / "test_batch").write_bytes(pickle.dumps(batch("test_batch") | change, protocol))
    text = refusal(folder)
    assert str(folder / "test_batch") in text
    assert expected in text


def test_a_cut_python_file_is_refused_at_every_length(tmp_path: Path) -> None:
    folder = write_python(tmp_path / "py", python2)
    whole = (folder / "test_batch").read_bytes()
    for length in [*range(200), *range(200, len(whole), 997), *range(len(whole) - 60, len(whole))]:
        (folder / "test_batch").write_bytes(whole[:length])
        assert "not a CIFAR-10 batch" in refusal(folder)


# ---- Files that would do something


class Calls:
    """Pickles to a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def harmful(canary: Path) -> dict[str, bytes]:
    """Pickles that make the canary file when they are loaded, in the ways known to us."""
    path = str(canary)
    code = f"open({path!r}, 'w').close()"
    good = batch("test_batch")
    text = code.encode()
    loads = pickle.dumps(Calls(os.system, f"touch {path}"), 2)
    return {
        **{f"system, protocol {p}": pickle.dumps(Calls(os.system, f"touch {path}"), p) for p in range(6)},
        **{f"exec, protocol {p}": pickle.dumps(Calls(exec, code), p) for p in (0, 2, 4)},
        **{f"in a value, protocol {p}": pickle.dumps(good | {"x": Calls(exec, code)}, p) for p in (2, 3, 4, 5)},
        "in a list": pickle.dumps(good | {"labels": [Calls(exec, code)]}, 2),
        "in the place of the array": pickle.dumps(good | {"data": Calls(eval, code)}, 2),
        "open": pickle.dumps(Calls(open, path, "w"), 2),
        "os.open": pickle.dumps(Calls(os.open, path, os.O_CREAT), 4),
        "mkdir": pickle.dumps(Calls(os.mkdir, path), 4),
        "getattr": b"c__builtin__\ngetattr\n(cos\nenviron\nS'x'\ntR.",
        "inst": b"(S'" + text.replace(b"'", b'"') + b"'\ni__builtin__\nexec\n.",
        "obj": b"(c__builtin__\nexec\nS'" + text.replace(b"'", b'"') + b"'\no.",
        "newobj": b"\x80\x02cos\nsystem\n(U\x01xt\x81.",
        "nested pickle": b"\x80\x03c_pickle\nloads\n(C" + bytes((len(loads),)) + loads + b"tR.",
        "numpy's own": b"\x80\x02cnumpy\nload\n(U\x01xt\x85R.",
        "numpy.testing": b"\x80\x02cnumpy.testing._private.utils\nrunstring\n(U" + bytes((len(text),)) + text + b"}tR.",
        "encode to another codec": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00xX\x05\x00\x00\x00rot13\x86R.",
        "persistent": b"\x80\x02U\x01xQ.",
        "extension": b"\x80\x02\x82\x01.",
        "buffers": b"\x80\x05\x97.",
        "state of a class": b"\x80\x02cnumpy\nndarray\n}U\x01xU\x01ysb.",
    }


@pytest.mark.parametrize("kind", list(harmful(Path("x"))))
@pytest.mark.parametrize("file", ["data_batch_1", "test_batch", "batches.meta"])
def test_a_harmful_file_is_refused_and_does_nothing(kind: str, file: str, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    folder = write_python(tmp_path / "py", python2)
    (folder / file).write_bytes(harmful(canary)[kind])
    assert f"{folder / file}: not a CIFAR-10 batch" in refusal(folder)
    assert not canary.exists()


def test_the_error_tells_what_the_file_would_import(tmp_path: Path) -> None:
    folder = write_python(tmp_path / "py", python2)
    (folder / "test_batch").write_bytes(harmful(tmp_path / "canary")["system, protocol 4"])
    assert "STACK_GLOBAL: it names 'posix system', which a batch has no need of" in refusal(folder)


def test_the_length_of_an_array_is_checked(tmp_path: Path) -> None:
    folder = write_python(tmp_path / "py", python2)
    whole = python2(batch("test_batch"))
    (folder / "test_batch").write_bytes(whole.replace(b"K\x06M\x00\x0c\x86", b"K\x07M\x00\x0c\x86"))
    assert "expected 7 x 3072 bytes of an array, found 18432" in refusal(folder)


def test_the_harmful_files_of_these_tests_would_do_harm(tmp_path: Path) -> None:
    files = harmful(tmp_path / "canary")
    for kind in ("exec, protocol 2", "in a value, protocol 4", "inst", "obj", "nested pickle"):
        pickle.loads(files[kind])  # noqa: S301
        assert (tmp_path / "canary").exists(), kind
        (tmp_path / "canary").unlink()


def test_a_few_bytes_cannot_ask_for_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_python(tmp_path / "py", python2)
    text = b"X" + struct.pack("<I", 100_000) + b"x" * 100_000 + b"q\x01"
    encode = b"c_codecs\nencode\nh\x01X\x06\x00\x00\x00latin1\x86R"
    (folder / "test_batch").write_bytes(b"\x80\x02]" + text + b"(" + encode * 50_000 + b"e.")  # 5 GB of copies
    assert "more bytes than the file has" in refusal(folder)
    deep = b")" + b"\x85" * 300_000  # a tuple so deep that to hash it, as a key is, would end the process
    (folder / "test_batch").write_bytes(b"\x80\x02}" + deep + b"Ns.")
    assert "expected a string as a key" in refusal(folder)
    monkeypatch.setattr(cifar, "_MAX_STEPS", 1000)
    (folder / "test_batch").write_bytes(b"\x80\x02" + b"]" * 1001 + b".")
    assert "more than 1000 instructions" in refusal(folder)


# ---- Any bytes at all


@pytest.fixture(scope="module")
def python_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_python(tmp_path_factory.mktemp("cifar") / "py", python2)


SMALL = {"labels": [3], "data": RNG.integers(0, 256, (1, 3072), np.uint8)}
WHOLE = [python2(SMALL), *(pickle.dumps(SMALL, protocol) for protocol in (2, 3, 4, 5))]
SEARCH = settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


# near the ends, not in the pixels: there a change is one of meaning
CHANGES = st.lists(st.tuples(st.integers(-80, 250), st.integers(0, 255)), min_size=1, max_size=6)


def only_data_errors(folder: Path, content: bytes) -> None:
    (folder / "test_batch").write_bytes(content)
    try:
        _, test = cifar.load(folder)
    except DataError as error:
        assert str(folder) in str(error)
    else:
        assert test.images.shape[1:] == (32, 32, 3)


@SEARCH
@given(st.sampled_from(WHOLE), CHANGES)
def test_changed_files_give_pictures_or_a_data_error(
    python_folder: Path, whole: bytes, changes: list[tuple[int, int]]
) -> None:
    content = bytearray(whole)
    for place, value in changes:
        content[place] = value
    only_data_errors(python_folder, bytes(content))


OPCODES = [code.code.encode("latin-1") for code in __import__("pickletools").opcodes]
PIECES = st.one_of(
    st.sampled_from(OPCODES),
    st.binary(min_size=1, max_size=4),
    st.sampled_from([b"cnumpy\ndtype\n", b"cnumpy\nndarray\n", b"cnumpy.core.multiarray\n_reconstruct\n", b"K\x00",
                     b"c_codecs\nencode\n", b"cnumpy._core.numeric\n_frombuffer\n", b"(", b"t", b"R", b"b", b"}", b"]",
                     b"U\x04data", b"U\x06labels", b"U\x02u1", b"q\x00", b"h\x00", b"\x85", b"\x86", b"\x87", b"\x94"]),
)  # fmt: skip


@SEARCH
@given(st.lists(PIECES, max_size=40))
def test_any_instructions_give_pictures_or_a_data_error(python_folder: Path, pieces: list[bytes]) -> None:
    only_data_errors(python_folder, b"\x80\x02" + b"".join(pieces) + b".")


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


def test_ten_thousand_broken_files() -> None:
    """Both forms, each of their files: pictures or a DataError that names the folder, and nothing else."""
    rng, refused, read = np.random.default_rng(0), 0, 0
    with quick_folder() as place:
        for folder in (write_binary(place / "binary"), write_python(place / "py", python2)):
            for file in sorted(folder.iterdir()):
                whole = file.read_bytes()
                # mostly near the ends of a batch: in the pixels a change is one of meaning
                for _ in range(10_000 // (2 * len(list(folder.iterdir()))) + 1):
                    head, tail = whole[:300], whole[300:]
                    file.write_bytes(bytes_of(head, rng) + tail if rng.random() < 0.8 else bytes_of(whole, rng))
                    try:
                        cifar.load(folder)
                        read += 1
                    except DataError as error:
                        assert str(folder) in str(error)
                        refused += 1
                file.write_bytes(whole)
    assert refused + read >= 10_000 and refused > 3_000 and read > 300


def test_the_real_set_where_it_was_fetched() -> None:
    folder = Path(os.environ.get("WAYFARE_CACHE") or "absent") / "cifar10"
    if not folder.is_dir():
        pytest.skip("CIFAR-10 is not in WAYFARE_CACHE: call wayfare.data.get.cifar10() to have it")
    train, test = cifar.load(folder)
    assert np.bincount(train.labels).tolist() == [5000] * 10
    assert np.bincount(test.labels).tolist() == [1000] * 10
    means = train.images.reshape(-1, 3).mean(axis=0, dtype=np.float64) / 255
    np.testing.assert_allclose(means, [0.49139968, 0.48215841, 0.44653091], atol=1e-8)
