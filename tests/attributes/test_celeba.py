"""CelebA's lists in all the forms they come in, and lists that are not what they should be."""

from __future__ import annotations

import io
import os
import random
import re
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from damaged_files import quick_folder
from mutations import outcomes, spoilt_bytes, spoilt_words
from wayfare.attributes.data import celeba
from wayfare.attributes.table import PARTS as PARTS_OF_TABLE
from wayfare.core.errors import DataError

LIST = "4\nSmiling Young Hat\na.jpg  1 -1 -1\nb.jpg -1  1 -1\nc.jpg -1 -1 -1\nd.jpg  1  1 1 \n"
PARTS = "a.jpg 0\nb.jpg 1\nc.jpg 0\nd.jpg 2\n"
WHOSE = "a.jpg 31\nb.jpg 7\nc.jpg 31\nd.jpg 8\n"
VALUES = [[True, False, False], [False, True, False], [False, False, False], [True, True, True]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "list_attr_celeba.txt").write_text(LIST)
    (tmp_path / "list_eval_partition.txt").write_text(PARTS)
    (tmp_path / "identity_CelebA.txt").write_text(WHOSE)
    (tmp_path / "img_align_celeba").mkdir()
    for name in "abcd":
        Image.new("RGB", (5, 4), "red").save(tmp_path / "img_align_celeba" / f"{name}.jpg")
    return tmp_path


def rewrite(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_the_lists(folder: Path) -> None:
    table = celeba.load(folder, strict=True)
    assert table.names == ("Smiling", "Young", "Hat")
    assert table.files.tolist() == ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]
    assert table.values.tolist() == VALUES
    assert table.column("Young").tolist() == [False, True, False, True]
    assert table.partition is not None and table.partition.tolist() == [0, 1, 0, 2]
    assert table.part("train").tolist() == [0, 2]
    assert table.identity is not None and table.identity.tolist() == [31, 7, 31, 8]
    assert table.folder == folder / "img_align_celeba"
    some = table.select(np.array([3, 0]))
    assert (some.files.tolist(), some.values.tolist()) == (["d.jpg", "a.jpg"], [VALUES[3], VALUES[0]])
    with pytest.raises(DataError, match="no attribute 'Old'; there are Smiling"):
        table.column("Old")


def test_the_authors_folders_and_a_file_alone(folder: Path) -> None:
    for name, part in (("list_attr_celeba.txt", "Anno"), ("list_eval_partition.txt", "Eval")):
        (folder / part).mkdir()
        (folder / name).rename(folder / part / name)
    for path in (folder, folder / "Anno" / "list_attr_celeba.txt"):
        assert celeba.recognises(path)
        assert celeba.load(path).part("test").tolist() == [3]
    alone = folder / "alone"
    alone.mkdir()
    (alone / "list_attr_celeba.txt").write_text(LIST)
    table = celeba.load(alone)
    assert (table.partition, table.identity, table.folder) == (None, None, None)
    with pytest.raises(DataError, match="add the partition file"):
        table.part("train")


def test_kaggles_tables(tmp_path: Path) -> None:
    rows = [line.split() for line in LIST.splitlines()[1:]]
    lines = ["image_id," + ",".join(rows[0]), *(",".join(row) for row in rows[1:])]
    (tmp_path / "list_attr_celeba.csv").write_text("\r\n".join(lines) + "\r\n")
    (tmp_path / "list_eval_partition.csv").write_text("image_id,partition\n" + PARTS.replace(" ", ","))
    (tmp_path / "img_align_celeba" / "img_align_celeba").mkdir(parents=True)
    table = celeba.load(tmp_path, strict=True)
    assert table.values.tolist() == VALUES
    assert table.part("validate").tolist() == [1]


def packed(**parts: Any) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **parts)
    return out.getvalue()


GOOD = {
    "bits": np.packbits(np.array(VALUES), axis=1),
    "names": np.array(["Smiling", "Young", "Hat"]),
    "partition": np.array([0, 1, 0, 2], np.uint8),
}


def test_the_packed_table(tmp_path: Path) -> None:
    file = tmp_path / "packed.npz"
    file.write_bytes(packed(**GOOD))
    assert celeba.recognises(file)
    table = celeba.load(file, strict=True)
    assert table.names == ("Smiling", "Young", "Hat")
    assert table.values.tolist() == VALUES  # three bits: 160 is 1 0 1, here 128, 64, 0 and 224
    assert GOOD["bits"].ravel().tolist() == [128, 64, 0, 224]
    assert table.files.tolist()[0] == "000001.jpg"
    assert table.part("train").tolist() == [0, 2]


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ({"names": np.array(["a", 2, None], object)}, "field 'names': it holds Python objects"),
        ({"names": np.arange(3)}, "field 'names': expected a row of names, found int64"),
        ({"names": np.array(["a", "a", "b"])}, "field 'names': two attributes have one name"),
        ({"bits": np.zeros((4, 2), np.uint8)}, "field 'bits': expected uint8 (N, 1) for 3 names, found uint8 (4, 2)"),
        ({"partition": np.array([0, 1, 2, 3])}, "field 'partition': expected 4 of 0, 1 and 2"),
        ({"partition": np.zeros(3, int)}, "field 'partition': expected 4 of 0, 1 and 2"),
    ],
)
def test_a_packed_table_that_cannot_be_used(tmp_path: Path, parts: dict[str, Any], what: str) -> None:
    file = tmp_path / "packed.npz"
    file.write_bytes(packed(**{**GOOD, **parts}))
    with pytest.raises(DataError, match=f"^{re.escape(str(file))}: {re.escape(what)}"):
        celeba.load(file)


def test_a_packed_table_that_promises_too_much(tmp_path: Path) -> None:
    file = tmp_path / "packed.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (10**12, 1)})
    with zipfile.ZipFile(file, "w") as archive:
        for name, part in GOOD.items():
            out = io.BytesIO()
            np.save(out, part)
            archive.writestr(f"{name}.npy", header.getvalue() if name == "bits" else out.getvalue())
    with pytest.raises(DataError, match="field 'bits': not a readable array"):
        celeba.load(file)
    file.write_bytes(b"PK")
    with pytest.raises(DataError, match="not a readable array: File is not a zip file"):
        celeba.load(file)
    assert not celeba.recognises(file)


# ---- A line that cannot be used: listed, or raised

WRONG = [
    ("list_attr_celeba.txt", "b.jpg -1  1 -1", "b.jpg -1  1", 4, None, "2 values, expected 3"),
    ("list_attr_celeba.txt", "b.jpg -1  1 -1", "b.jpg -1  2 -1", 4, "Young", "expected 1 or -1, found '2'"),
    ("list_attr_celeba.txt", "b.jpg -1", "a.jpg -1", 4, None, "a.jpg is already on line 3"),
    ("list_attr_celeba.txt", "b.jpg -1", "../b -1", 4, None, "not the name of a picture: '../b'"),
    ("list_eval_partition.txt", "b.jpg 1", "b.jpg 3", 2, "partition", "expected a whole number from 0 to 2, found '3'"),
    ("list_eval_partition.txt", "b.jpg 1", "b.jpg", 2, None, "expected a picture and its partition, found 1 words"),
    ("identity_CelebA.txt", "b.jpg 7", "b.jpg x", 2, "identity", "found 'x'"),
    ("identity_CelebA.txt", "b.jpg 7", "a.jpg 7", 2, None, "a.jpg is already on line 1"),
]


@pytest.mark.parametrize(("name", "old", "new", "line", "field", "what"), WRONG, ids=[row[-1][:40] for row in WRONG])
def test_a_line_that_cannot_be_used(
    folder: Path, name: str, old: str, new: str, line: int, field: str | None, what: str
) -> None:
    rewrite(folder / name, old, new)
    table = celeba.load(folder)
    assert table.files.tolist() == ["a.jpg", "c.jpg", "d.jpg"]
    assert table.values.tolist() == [VALUES[0], *VALUES[2:]]
    with pytest.raises(DataError) as caught:
        celeba.load(folder, strict=True)
    for error in (table.problems.found[0], caught.value):
        assert (error.file, error.line, error.field) == (folder / name, line, field)
        assert what in str(error)


def test_pictures_without_attributes_and_the_other_way_round(folder: Path) -> None:
    rewrite(folder / "list_eval_partition.txt", "b.jpg", "z.jpg")
    table = celeba.load(folder)
    texts = [str(error) for error in table.problems.found]
    assert any("no line for b.jpg, which has attributes" in text for text in texts)
    assert any("z.jpg has no attributes" in text for text in texts)
    assert table.files.tolist() == ["a.jpg", "c.jpg", "d.jpg"]


def test_a_wrong_number_of_lines_is_listed(folder: Path) -> None:
    rewrite(folder / "list_attr_celeba.txt", "4\n", "5\n")
    assert "it says 5 pictures, but 4 follow" in str(celeba.load(folder).problems.found[0])


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("list_attr_celeba.txt", "", ":1: expected the number of pictures on the first line"),
        ("list_attr_celeba.txt", "Smiling Young\na.jpg 1 1\n", ":1: expected the number of pictures"),
        ("list_attr_celeba.txt", "4\n", ":2: expected the attributes' names, found 0 words"),
        ("list_attr_celeba.txt", "0\nHat Hat\n", ":2: field 'Hat': two attributes are called 'Hat'"),
        ("list_attr_celeba.csv", "name,Hat\na.jpg,1\n", ":1: field 'image_id': no column 'image_id' at the start"),
        ("list_attr_celeba.txt", "1\nHat\n\0 1\n", ":3: contains a NUL character"),
    ],
)
def test_a_list_that_cannot_be_used(tmp_path: Path, name: str, content: str, what: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=re.escape(f"{tmp_path / name}{what}")):
        celeba.load(tmp_path)


def test_no_lists_at_all(tmp_path: Path) -> None:
    assert not celeba.recognises(tmp_path) and not celeba.recognises(tmp_path / "absent")
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(DataError):
            celeba.load(path)


# ---- Pictures


def test_check(folder: Path) -> None:
    found = celeba.check(folder)
    assert found.counts == {
        "rows": 4, "attributes": 3, "to train": 2, "to validate": 1, "to test": 1, "identities": 3,
        "whole pictures": 4,
    }  # fmt: skip
    assert (found.layout, found.problems.count) == ("celeba", 0)


def test_pictures_that_are_absent_or_cut_short(folder: Path) -> None:
    (folder / "img_align_celeba" / "a.jpg").unlink()
    cut = folder / "img_align_celeba" / "c.jpg"
    cut.write_bytes(cut.read_bytes()[:-60])
    found = celeba.check(folder)
    assert found.counts["whole pictures"] == 2
    texts = [str(error).removeprefix(str(folder)) for error in found.problems.found]
    assert "/img_align_celeba/a.jpg: no such picture, but it has attributes" in texts[0]
    assert texts[1].startswith("/img_align_celeba/c.jpg: truncated")
    assert celeba.load(folder, pictures=True).files.tolist() == ["b.jpg", "c.jpg", "d.jpg"]
    with pytest.raises(DataError, match="no such picture"):
        celeba.load(folder, pictures=True, strict=True)


# ---- The real table


def test_the_real_table(tmp_path: Path) -> None:
    shared = Path(os.environ.get("WAYFARE_SHARED") or Path(__file__).parents[3] / "shared")
    file = shared / "data" / "scenes" / "celeba_attr_packed.npz"
    if not file.is_file():
        pytest.skip(f"{file} is absent: set WAYFARE_SHARED to the folder that holds data/scenes/{file.name}")
    table = celeba.load(file, strict=True)
    assert (len(table), len(table.names), table.names[0]) == (202_599, 40, "5_o_Clock_Shadow")
    assert [len(table.part(name)) for name in PARTS_OF_TABLE] == [162_770, 19_867, 19_962]
    assert round(float(table.column("Smiling").mean()), 4) == 0.4821
    some = table.select(np.arange(0, len(table), 40))
    rows = [" ".join(["1" if value else "-1" for value in row]) for row in some.values]
    lines = [str(len(some)), " ".join(some.names), *(f"{name} {row}" for name, row in zip(some.files, rows))]
    (tmp_path / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    again = celeba.load(tmp_path, strict=True)
    np.testing.assert_array_equal(again.values, some.values)
    assert again.files.tolist() == some.files.tolist()


# ---- Ten thousand malformed files


def test_malformed_files_are_refused_or_listed() -> None:
    draw = random.Random(2)
    whole = packed(**GOOD)
    listed = 0

    def use(folder: Path, name: str) -> Callable[[bytes], None]:
        def load(content: bytes) -> None:
            nonlocal listed
            (folder / name).write_bytes(content)
            path = folder / name if name.endswith(".npz") else folder
            celeba.recognises(path)
            table = celeba.load(path)
            assert table.values.shape == (len(table), len(table.names))
            listed += table.problems.count > 0

        return load

    def many(content: bytes, count: int, spoil: Callable[[bytes, random.Random], bytes]) -> Iterator[bytes]:
        return (spoil(content, draw) for _ in range(count))

    texts = {"list_attr_celeba.txt": LIST, "list_eval_partition.txt": PARTS, "identity_CelebA.txt": WHOSE}
    used = refused = 0
    began = time.process_time()
    with quick_folder() as folder:
        for name, text in texts.items():
            for other, content in texts.items():
                (folder / other).write_text(content)
            for spoil in (spoilt_bytes, spoilt_words):
                counts = outcomes(many(text.encode(), 1400, spoil), use(folder, name), DataError)
                used, refused = used + counts[0], refused + counts[1]
        counts = outcomes(many(whole, 2000, spoilt_bytes), use(folder, "packed.npz"), DataError)
    assert used + refused + sum(counts) == 3 * 2800 + 2000
    assert min(used, refused, listed) > 300 and counts[1] > 1000
    assert time.process_time() - began < 60  # a third of it where it was measured
