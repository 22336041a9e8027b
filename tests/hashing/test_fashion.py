"""FashionVC-style files and MATLAB files: the same arrays as scipy and h5py give, or a named reason."""

from __future__ import annotations

import json
import os
import random
import re
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse

from amount import some
from damaged_files import quick_folder
from mutations import outcomes, spoilt_bytes, spoilt_json
from wayfare.core.errors import DataError
from wayfare.hashing.data import fashion
from wayfare.io import mat5, matfiles
from wayfare.io.archives import unpack
from wayfare.io.findings import Problems

RNG = np.random.default_rng(5)
IMAGES = RNG.integers(0, 256, (4, 6, 5, 3), np.uint8)
TAGS = np.array([[1, 0], [0, 0], [1, 1], [0, 1]], np.uint8)
# two classes above three: the third row's fine class 2 is under coarse class 1
LABELS = np.array([[1, 0, 1, 0, 0], [1, 0, 0, 1, 0], [0, 1, 0, 0, 1], [1, 0, 1, 0, 0]], np.uint8)
FACTS = {"levels": [2, 3], "queries": 1, "names": [["a", "b"], ["x", "y", "z"]], "words": ["red", "blue"]}


def v5(file: Path, name: str, values: np.ndarray, packed: bool = False) -> None:
    scipy.io.savemat(file, {name: values}, do_compression=packed)


def v7(file: Path, name: str, values: np.ndarray) -> None:
    v5(file, name, values, packed=True)


def v73(file: Path, name: str, values: np.ndarray, packed: bool = True, by_matlab: bool = True) -> None:
    with h5py.File(file, "w", userblock_size=512) as out:
        values_there = values.T if by_matlab else values
        chunks = tuple(-(-side // 2) for side in values_there.shape)
        data = out.create_dataset(
            name, data=values_there, chunks=chunks if packed else None, compression="gzip" if packed else None
        )
        if by_matlab:
            data.attrs["MATLAB_class"] = np.bytes_(str(values.dtype))


def ours(file: Path, name: str, values: np.ndarray) -> None:
    matfiles.write(file, name, values)


WRITERS = [v5, v7, v73, ours]
Save = Callable[[Path, str, np.ndarray], None]


def write(folder: Path, save: Save = ours, **changed: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for name, values in {"Image": IMAGES, "Tag": TAGS, "Label": LABELS, **changed}.items():
        save(folder / f"{name.lower()}.mat", name, np.asarray(values))
    (folder / "levels.json").write_text(json.dumps(FACTS))
    return folder


# ---- MATLAB files


@pytest.mark.parametrize("save", WRITERS)
@pytest.mark.parametrize("kind", ["u1", "i1", "u2", "i2", "i4", "u4", "i8", "u8", "f4", "f8"])
def test_arrays_of_every_kind(tmp_path: Path, save: Save, kind: str) -> None:
    for shape in ((3, 4), (1, 1), (1, 3), (2, 3, 4, 5)):
        values = RNG.integers(0, 100, shape).astype(kind)
        save(tmp_path / "a.mat", "Some", values)
        found = matfiles.array(tmp_path / "a.mat", "some")
        assert (found.name, found.shape, found.dtype) == ("Some", shape, values.dtype)
        np.testing.assert_array_equal(found.read(), values)


def test_scipy_reads_what_is_written(tmp_path: Path) -> None:
    for shape in ((3, 4), (5, 1), (0, 2), (3, 2, 7, 3)):
        values = RNG.integers(0, 256, shape, np.uint8)
        matfiles.write(tmp_path / "a.mat", "Image", values)
        found = scipy.io.loadmat(tmp_path / "a.mat")["Image"]
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, values)
        before = (tmp_path / "a.mat").read_bytes()
        matfiles.write(tmp_path / "a.mat", "Image", np.asfortranarray(values))
        assert (tmp_path / "a.mat").read_bytes() == before


@pytest.mark.parametrize("packed", [True, False])
def test_arrays_in_many_pieces(tmp_path: Path, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matfiles, "_BLOCK", 40)
    v73(tmp_path / "a.mat", "Image", IMAGES, packed=packed)
    found = matfiles.array(tmp_path / "a.mat", "Image")
    assert len(list(found.pieces())) > 1
    np.testing.assert_array_equal(found.read(), IMAGES)


def test_the_other_byte_order(tmp_path: Path) -> None:
    """The same file as a big-endian machine wrote it, by hand."""
    head = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x01\x00MI"
    array = struct.pack(">IIII", 6, 8, 10, 0) + struct.pack(">IIii", 5, 8, 1, 3)
    array += struct.pack(">HH4s", 1, 1, b"x\0\0\0") + struct.pack(">II3hxx", 3, 6, 1, -2, 300)
    (tmp_path / "a.mat").write_bytes(head + struct.pack(">II", 14, len(array)) + array)
    assert matfiles.array(tmp_path / "a.mat", "x").read().tolist() == [[1, -2, 300]]
    assert scipy.io.loadmat(tmp_path / "a.mat")["x"].tolist() == [[1, -2, 300]]


def test_hdf5_that_matlab_did_not_write_keeps_its_order(tmp_path: Path) -> None:
    v73(tmp_path / "a.mat", "x", IMAGES, by_matlab=False)
    np.testing.assert_array_equal(matfiles.array(tmp_path / "a.mat", "x").read(), IMAGES)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (np.array([[{"a": 1}, "b"]], object), "a cell array"),
        ({"field": 1.0}, "a struct"),
        ("text", "text"),
        (scipy.sparse.csc_matrix(np.eye(3)), "a sparse array"),
        (np.array([[1j]]), "complex numbers"),
    ],
)
def test_what_is_not_an_array_of_numbers_is_refused(tmp_path: Path, value: object, what: str) -> None:
    scipy.io.savemat(tmp_path / "a.mat", {"x": value})
    with pytest.raises(DataError, match=f"has no array of numbers: it holds 'x', {what}"):
        matfiles.array(tmp_path / "a.mat", "x")


def test_hdf5_does_not_lead_to_other_files(tmp_path: Path) -> None:
    v73(tmp_path / "other.mat", "x", TAGS)
    (tmp_path / "raw").write_bytes(bytes(100))
    layout = h5py.VirtualLayout(shape=(2, 4), dtype="u1")
    layout[:] = h5py.VirtualSource(str(tmp_path / "other.mat"), "x", shape=(2, 4))
    with h5py.File(tmp_path / "a.mat", "w") as file:
        file["linked"] = h5py.ExternalLink("other.mat", "/x")
        file["soft"] = h5py.SoftLink("/good")
        file.create_dataset("raw", (10,), "u1", external=str(tmp_path / "raw"))
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("names", data=np.array([b"a"], object), dtype=h5py.string_dtype())
        file.create_dataset("references", (1,), h5py.ref_dtype)
        file.create_dataset("mostly absent", (10**6, 10**6), "u1", chunks=(1000, 1000))
        file.create_dataset("odd filter", data=TAGS, chunks=(2, 2), compression="lzf")
        file.create_group("struct")
        file.create_dataset("good", data=TAGS)
    assert list(matfiles.arrays(tmp_path / "a.mat")) == ["good"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda data: b"", "not a MATLAB file of version 5, 7 or 7.3"),
        (lambda data: data[:-20], "damaged: .* bytes should follow byte 136, but the file ends at"),
        (lambda data: data[:128] + struct.pack("<II", 14, 16) + data[136:152], "damaged"),
        (lambda data: data.replace(struct.pack("<ii", 4, 5), struct.pack("<ii", 4, 6)), "bytes for 4 x 6 numbers"),
        (lambda data: data.replace(struct.pack("<ii", 4, 5), struct.pack("<ii", -4, 5)), "no flags and shape of an"),
        (lambda data: data.replace(struct.pack("<II", 2, 20), struct.pack("<II", 99, 20)), "numbers of type 99"),
    ],
)
def test_damaged_files(tmp_path: Path, change: Callable[[bytes], bytes], what: str) -> None:
    matfiles.write(tmp_path / "a.mat", "Label", LABELS)
    (tmp_path / "a.mat").write_bytes(change((tmp_path / "a.mat").read_bytes()))
    with pytest.raises(DataError, match=f"{re.escape(str(tmp_path / 'a.mat'))}: .*{what}"):
        matfiles.array(tmp_path / "a.mat", "Label").read()


def test_a_changed_byte_in_a_packed_array_is_found(tmp_path: Path) -> None:
    v7(tmp_path / "a.mat", "Image", IMAGES)
    data = bytearray((tmp_path / "a.mat").read_bytes())
    data[-6] ^= 1
    (tmp_path / "a.mat").write_bytes(data)
    with pytest.raises(DataError, match=r"a.mat: damaged: Error -3 while decompressing"):
        matfiles.array(tmp_path / "a.mat", "Image").read()


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_unpacks_to_more_than_it_declares(tmp_path: Path, packed: bool) -> None:
    """The gate unpacks no more than the declared length, and SciPy sees nothing that the gate refused."""
    v5(tmp_path / "a.mat", "x", np.zeros((100, 100), np.uint8), packed)
    data = (tmp_path / "a.mat").read_bytes()
    content = zlib.decompress(data[136:]) if packed else data[128:]
    longer = content[:4] + struct.pack("<I", len(content) - 16) + content[8:]
    element = struct.pack("<II", 15, len(zlib.compress(longer))) + zlib.compress(longer)
    (tmp_path / "a.mat").write_bytes(data[:128] + element)
    with pytest.raises(DataError, match=r"damaged: (more bytes than the array needs|an element is longer)"):
        matfiles.array(tmp_path / "a.mat", "x").read()


def test_damage_within_cells_and_structs_is_refused(tmp_path: Path) -> None:
    """Each byte of a small file in turn: SciPy alone would end the process for some of them."""
    inner = {"numbers": np.arange(3.0), "text": "abc", "cells": np.array([[np.eye(2), "d"]], object)}
    scipy.io.savemat(tmp_path / "a.mat", {"x": inner})
    whole = (tmp_path / "a.mat").read_bytes()
    kinds = (*mat5.NUMBERS, mat5.CELL, mat5.STRUCT, mat5.TEXT)
    outcomes_seen = set()
    for place in range(128, len(whole)):
        (tmp_path / "a.mat").write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            for variable in mat5.variables(tmp_path / "a.mat", "<"):
                variable.read(kinds)
            outcomes_seen.add("read")
        except (ValueError, TypeError, StopIteration):
            outcomes_seen.add("refused")
    assert outcomes_seen == {"read", "refused"}


def test_a_small_file_cannot_ask_for_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
    array = struct.pack("<IIII", 6, 8, 6, 0) + struct.pack("<IIii", 5, 8, 20_000, 20_000)
    array += struct.pack("<HH4s", 1, 1, b"x\0\0\0") + struct.pack("<II", 9, 20_000 * 20_000 * 8)
    (tmp_path / "a.mat").write_bytes(head + struct.pack("<II", 14, len(array)) + array)
    with pytest.raises(DataError, match="3200000000 bytes cannot be in 48"):
        matfiles.array(tmp_path / "a.mat", "x")
    declared = zlib.compress(struct.pack("<II", 14, 0) + bytes(2**20))  # a length of 0 is no bound
    (tmp_path / "a.mat").write_bytes(head + struct.pack("<II", 15, len(declared)) + declared)
    with pytest.raises(DataError, match="damaged: 0 bytes cannot be in"):
        matfiles.array(tmp_path / "a.mat", "x")
    monkeypatch.setattr(matfiles, "MAX_BYTES", 10)
    matfiles.write(tmp_path / "b.mat", "x", LABELS)
    with pytest.raises(DataError, match="field 'x': too large: 20 bytes, at most 10 are read"):
        matfiles.array(tmp_path / "b.mat", "x").read()


def test_which_array(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "a.mat", {"Tag": TAGS, "Other": LABELS})
    assert matfiles.array(tmp_path / "a.mat", "YAll", "tag").shape == (4, 2)
    with pytest.raises(DataError, match="field 'Image': has no array 'Image'; found 'Tag', 'Other'"):
        matfiles.array(tmp_path / "a.mat", "Image")
    v5(tmp_path / "b.mat", "whatever", TAGS)
    assert matfiles.array(tmp_path / "b.mat", "Image").name == "whatever"


def test_a_real_file(tmp_path: Path) -> None:
    shared = Path(os.environ.get("WAYFARE_SHARED") or Path(__file__).parents[3] / "shared")
    archive = shared / "data" / "hashing" / "wikipedia.zip"
    if not archive.is_file():
        pytest.skip(f"{archive} is absent: set WAYFARE_SHARED to the folder that holds data/hashing/wikipedia.zip")
    unpack(archive, tmp_path / "real")
    file = tmp_path / "real" / "wikipedia" / "raw_features.mat"
    known = scipy.io.loadmat(file)
    found = matfiles.arrays(file)
    shapes = {name: item.shape for name, item in found.items()}
    assert shapes == {"I_tr": (2173, 128), "I_te": (693, 128), "T_tr": (2173, 10), "T_te": (693, 10)}
    for name, item in found.items():
        np.testing.assert_array_equal(item.read(), known[name])


# ---- The three files


@pytest.mark.parametrize("save", WRITERS)
def test_pairs_with_labels_of_two_levels(tmp_path: Path, save: Save) -> None:
    pairs = fashion.load(write(tmp_path, save), problems=Problems(strict=True))
    np.testing.assert_array_equal(pairs.images, IMAGES)
    assert pairs.images.dtype == np.uint8 and pairs.images.flags.c_contiguous
    assert (pairs.tags.tolist(), pairs.labels.tolist()) == (TAGS.tolist(), LABELS.tolist())
    assert (pairs.levels, pairs.queries) == ((2, 3), 1)
    assert pairs.coarse.tolist() == [0, 0, 1, 0]
    assert pairs.fine.tolist() == [0, 1, 2, 0]
    assert pairs.parents.tolist() == [0, 0, 1]
    assert (pairs.names, pairs.words) == ((("a", "b"), ("x", "y", "z")), ("red", "blue"))
    assert fashion.recognises(tmp_path)


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (1, 2, 3, 0), (0, 3, 1, 2), (3, 1, 2, 0)])
def test_pictures_in_any_order_of_axes(tmp_path: Path, axes: tuple[int, ...]) -> None:
    write(tmp_path, Image=IMAGES.transpose(axes))
    np.testing.assert_array_equal(fashion.load(tmp_path).images, IMAGES)


def test_tables_that_lie_across(tmp_path: Path) -> None:
    pairs = fashion.load(write(tmp_path, Tag=TAGS.T, Label=LABELS.T, Image=IMAGES.transpose(1, 2, 3, 0)))
    assert (pairs.tags.tolist(), pairs.labels.tolist()) == (TAGS.tolist(), LABELS.tolist())


def test_numbers_of_other_types(tmp_path: Path) -> None:
    write(tmp_path, Image=IMAGES.astype(np.float64) + 0.2 * (IMAGES < 255), Label=LABELS.astype(float))
    np.testing.assert_array_equal(fashion.load(tmp_path).images, IMAGES)


@pytest.mark.parametrize("save", WRITERS)
def test_large_pictures_go_through_the_cache(tmp_path: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fashion, "IN_MEMORY", 100)
    monkeypatch.setattr(matfiles, "_BLOCK", 60)
    folder = write(tmp_path / "data", save)
    images = fashion.load(folder).images
    assert isinstance(images, np.memmap)
    np.testing.assert_array_equal(images, IMAGES)
    files = list((tmp_path / "cache" / "mat").glob("*/images.npy"))
    assert len(files) == 1
    before = files[0].stat().st_mtime_ns
    np.testing.assert_array_equal(fashion.load(folder).images, IMAGES)
    assert files[0].stat().st_mtime_ns == before  # not made anew


def test_known_shapes_need_no_levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fashion.KNOWN == {(19862, 35): ((8, 27), 3000), (15696, 32): ((4, 28), 2000)}
    write(tmp_path)
    (tmp_path / "levels.json").unlink()
    with pytest.raises(DataError, match=r"label.mat: 5 columns: how many belong to the first level\? \(say levels"):
        fashion.load(tmp_path)
    assert fashion.load(tmp_path, levels=(2, 3)).levels == (2, 3)
    with pytest.raises(DataError, match=r"5 columns, expected 2 [+] 2"):
        fashion.load(tmp_path, levels=(2, 2))
    monkeypatch.setitem(fashion.KNOWN, (4, 5), ((2, 3), 3))
    assert fashion.load(tmp_path).queries == 3


def test_check(tmp_path: Path) -> None:
    found = fashion.check(write(tmp_path))
    assert found.counts == {
        "pairs": 4, "queries": 1, "size": "5 x 6", "words": 2, "without a word": 1, "classes of the first level": 2,
        "classes of the second level": 3, "of these with examples": 3,
    }  # fmt: skip
    assert (found.layout, found.problems.count) == ("fashion", 0)
    labels = LABELS.copy()
    labels[3, :2] = [0, 1]
    found = fashion.check(write(tmp_path, Label=labels))
    assert "class 0 of the second level is under 2 of the first: [0, 1]" in str(found.problems.found[0])


# ---- What cannot be used


def test_a_row_without_one_label_of_each_level(tmp_path: Path) -> None:
    labels = LABELS.copy()
    labels[0, 0] = 0
    labels[2, 3] = 1
    write(tmp_path, Label=labels)
    pairs = fashion.load(tmp_path)
    np.testing.assert_array_equal(pairs.images, IMAGES[[1, 3]])
    assert (pairs.tags.tolist(), pairs.queries) == (TAGS[[1, 3]].tolist(), 0)
    texts = [str(error) for error in pairs.problems.found]
    assert "label.mat: field 'Label(1, :)': 0 classes of the first level and 1 of the second" in texts[0]
    assert "field 'Label(3, :)': 1 classes of the first level and 2 of the second" in texts[1]
    with pytest.raises(DataError, match="0 classes of the first level"):
        fashion.load(tmp_path, problems=Problems(strict=True))


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (
            {"Label": LABELS[:3]},
            "the arrays have different numbers of rows: Image 4 x 6 x 5 x 3, Tag 4 x 2, Label 3 x 5",
        ),
        ({"Image": IMAGES[..., :2]}, "expected 4 pictures, (4, height, width, 3), found 4 x 6 x 5 x 2"),
        ({"Image": IMAGES / 255}, "field 'Image': values from 0 to 1: expected 0 to 255"),
        ({"Image": IMAGES * 2.0}, "field 'Image': expected values from 0 to 255"),
        ({"Tag": TAGS * np.nan}, "field 'Tag': expected whole numbers from 0 to 255, found nan"),
        ({"Tag": TAGS * 0.5}, "field 'Tag': expected whole numbers from 0 to 255, found 0.5"),
        ({"Label": LABELS * 2}, "field 'Label': expected whole numbers from 0 to 1, found 2"),
        ({"Label": LABELS[None]}, "field 'Label': expected a table, found 1 x 4 x 5"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, changed: dict[str, np.ndarray], what: str) -> None:
    write(tmp_path, **changed)
    with pytest.raises(DataError, match=f"^{re.escape(str(tmp_path))}.*{re.escape(what)}"):
        fashion.load(tmp_path)


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        ([], "levels.json: expected an object"),
        ({"levels": [2]}, "field 'levels': expected the number of classes of both levels"),
        ({"levels": [2, 3], "queries": -1}, "field 'queries': expected a number of rows"),
        ({"levels": [2, 3], "names": [["a"], ["b"]]}, "field 'names': expected 2 and 3 names"),
        ({"levels": [2, 3], "words": ["a"]}, "field 'words': expected 2 words"),
    ],
)
def test_levels_that_do_not_fit(tmp_path: Path, facts: object, what: str) -> None:
    write(tmp_path)
    (tmp_path / "levels.json").write_text(json.dumps(facts))
    with pytest.raises(DataError, match=re.escape(what)):
        fashion.load(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "tag.mat").unlink()
    assert not fashion.recognises(tmp_path)
    with pytest.raises(DataError, match=re.escape("no tag.mat in it: expected image.mat, tag.mat and label.mat")):
        fashion.load(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        fashion.load(tmp_path / "absent")


# ---- Ten thousand malformed files


def bytes_of(save: Save, values: np.ndarray) -> bytes:
    with quick_folder() as folder:
        save(folder / "a.mat", "Label", values)
        return (folder / "a.mat").read_bytes()


def test_malformed_files_are_refused_or_read() -> None:
    draw = random.Random(4)
    began = time.process_time()
    used = refused = 0
    with quick_folder() as folder:
        write(folder)

        def use(name: str) -> Callable[[bytes], None]:
            def load(content: bytes) -> None:
                (folder / name).write_bytes(content)
                pairs = fashion.load(folder)
                assert pairs.images.shape[1:] == (6, 5, 3) and len(pairs) == len(pairs.tags) == len(pairs.images)

            return load

        def many(content: bytes, count: int, spoil: Any = spoilt_bytes) -> Iterator[bytes]:
            return (spoil(content, draw) for _ in range(some(count)))

        facts = json.dumps(FACTS).encode()
        for name, contents in (
            ("label.mat", many(bytes_of(ours, LABELS), 4000)),
            ("label.mat", many(bytes_of(v7, LABELS), 3000)),
            ("label.mat", many(bytes_of(v73, LABELS), 1500)),
            ("label.mat", many(bytes_of(lambda *a: v73(*a, packed=False), LABELS), 1000)),
            ("levels.json", many(facts, 1000, spoilt_json)),
        ):
            counts = outcomes(contents, use(name), DataError)
            used, refused = used + counts[0], refused + counts[1]
            write(folder)
    assert used + refused == some(10_500)
    assert min(used, refused) > some(500)
    assert time.process_time() - began < 60  # a third of it where it was measured
