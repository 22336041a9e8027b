"""Pairs in tables, lists and JSON: NUS-WIDE, COCO, MIRFlickr's folders, tables of one's own, the town."""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mutations import outcomes, spoilt_bytes, spoilt_json, spoilt_words
from toy_pairs import load_pairs as load
from toy_pairs import pair_data
from wayfare import Experiment, run
from wayfare.core.errors import ConfigError, DataError
from wayfare.gallery import gather
from wayfare.hashing.contrastive import Contrastive
from wayfare.hashing.data import csv_pairs as pair_table
from wayfare.hashing.data import nuswide as pair_nuswide
from wayfare.hashing.data.csv_pairs import TablePairs
from wayfare.hashing.dcmh import DCMH
from wayfare.hashing.images import FrozenImages
from wayfare.hashing.model import BagOfWords, PairEncoders
from wayfare.hashing.task import Hashing
from wayfare.io import layouts, matfiles
from wayfare.io.findings import Problems
from wayfare.partition.random import Random
from wayfare.town import make as town_maker

SHARED = Path(os.environ.get("WAYFARE_SHARED") or Path(__file__).parents[3] / "shared") / "data" / "hashing"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "cache"))


def picture(file: Path, shade: int = 0) -> None:
    """Five wide and three high, red at the top left, else grey."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((3, 5, 3), shade, np.uint8)
    pixels[0, 0] = (255, 0, 0)
    Image.fromarray(pixels).save(file)


# ---- Tables

TABLE = """id,photo,text,labels,split
a,1.png,"Red shirt, red",shirt;red,query
b,2.png,blue shirt,shirt; blue,train
c,3.png,Blue hat,hat;blue,train
d,4.png,,hat,retrieval
e,5.png,unheard words,,retrieval
f,6.png,no picture,hat,train
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "album"
    for number in range(1, 6):
        picture(folder / f"{number}.png", number)
    (folder / "pairs.csv").write_text(TABLE)
    return folder


def test_a_table_by_hand(table: Path) -> None:
    found = load("table", table, size=(3, 5), min_count=1, drop=())
    assert found.ids.tolist() == ["a", "b", "c", "d", "e"]
    assert found.names == ("blue", "hat", "red", "shirt") and found.levels == (4,)
    rows = [[0, 0, 1, 1], [1, 0, 0, 1], [1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert found.labels.astype(int).tolist() == rows
    assert [part.tolist() for part in (found.query, found.train, found.retrieval)] == [[0], [1, 2], [1, 2, 3, 4]]
    assert found.words == ("blue", "hat", "shirt")  # of b and c alone: a asks, d and e are only searched
    assert found.bags.toarray().tolist() == [[0, 0, 1], [1, 0, 1], [1, 1, 0], [0, 0, 0], [0, 0, 0]]  # type: ignore[union-attr]
    assert found.texts.tolist() == ["Red shirt, red", "blue shirt", "Blue hat", "", "unheard words"]
    assert found.without_words.sum() == 2
    assert found.pictures is not None and found.pictures.size == (3, 5)
    read = found.pictures.read(np.array([4, 0]))
    assert read[:, 0, 0].tolist() == [[255, 0, 0]] * 2 and read[:, 2, 4].tolist() == [[5] * 3, [1] * 3]
    assert [str(problem) for problem in found.problems.found] == [
        f"{table / 'pairs.csv'}:7: field 'photo': no such picture: '6.png' (add it)"
    ]
    with pytest.raises(DataError, match=r"pairs\.csv:7"):
        load("table", table, strict=True)


def test_what_is_left_out_of_a_table(table: Path) -> None:
    options: dict[str, Any] = {"size": (3, 5), "min_count": 1}
    assert load("table", table, **options).left_out == {"without a label": 1}
    both = load("table", table, drop=("unlabelled", "untexted"), **options)
    assert both.left_out == {"without a label": 1, "without a word": 1} and both.ids.tolist() == ["a", "b", "c"]
    (table / "2.png").write_bytes(b"\x89PNG")
    found = load("table", table, split="random", query=1, **options)
    assert "b" not in found.ids and found.problems.count == 2
    assert found.pictures is not None and found.pictures.read(np.array([1]))[0, 2, 4, 0] == 3  # rows moved up
    assert load("table", table, split="random", query=1, max_words=2, **options).bags.shape == (3, 2)
    np.save(table / "f.npy", np.arange(10).reshape(5, 2))  # a row for each line whose file is there
    features = load("table", table, split="random", query=1, features=str(table / "f.npy"), **options).features
    assert features is not None and features.tolist() == [[0, 1], [4, 5], [6, 7]]


COLUMNS = """code,kind,group,shade,name,note
1,shirt,top,red,A shirt,soft
2,shirt,top,blue,B shirt,
3,cap,top,red,Cap,
4,boots,feet,red,Boots,warm
5,boots,feet,green,Boots,warm
"""


@pytest.mark.parametrize(
    ("labels", "names", "levels", "rows"),
    [
        ("kind", ["boots", "cap", "shirt"], (3,), 5),
        ("kind:2", ["boots", "shirt"], (2,), 4),
        ("kind:2+shade:3", ["boots", "shirt", "red"], (3,), 5),
        ("group>kind:2", ["feet", "top", "boots", "shirt"], (2, 2), 4),  # the cap has no label of the last level
        ("kind+kind", ["boots", "cap", "shirt", "kind: boots", "kind: cap", "kind: shirt"], (6,), 5),
    ],
)
def test_columns_that_are_labels(
    tmp_path: Path, labels: str, names: list[str], levels: tuple[int, ...], rows: int
) -> None:
    for number in range(1, 6):
        picture(tmp_path / "images" / f"{number}.png")
    (tmp_path / "things.csv").write_text(COLUMNS)
    found = load("table", tmp_path, photo="{code}.png", text="name+note", labels=labels, min_count=1, size=(3, 5))
    assert (list(found.names), found.levels, len(found)) == (names, levels, rows)
    assert "Boots warm" in found.texts and "B shirt" in found.texts and found.ids[0] == "1.png"


@pytest.mark.parametrize(
    ("content", "options", "error", "message"),
    [
        ("photo,words,labels\n", {}, DataError, ":1: field 'text': no column text or caption or captions; found 'ph"),
        (TABLE, {"labels": "words:5"}, DataError, "no word is in 5 lines or more, and in a third at most"),
        ("", {}, DataError, "found nothing"),
        (TABLE, {"labels": "kind"}, ConfigError, "has no column 'kind'; it has 'id', 'photo'"),
        (TABLE, {"labels": "labels+"}, ConfigError, "labels = 'labels+': expected columns"),
        (TABLE, {"labels": "labels:9"}, DataError, "no label of labels:9"),
        (TABLE, {"photo": "{kod}.png"}, ConfigError, "has no column 'kod'"),
        (TABLE.replace(".png", ".jpg"), {}, DataError, "none of its 6 pairs has a picture"),
        (TABLE.replace("train", "learn"), {"strict": True}, DataError, "pairs.csv:3: field 'split': expected query"),
        (TABLE.replace("2.png", "../2.png"), {"strict": True}, DataError, "'../2.png' points outside the folder"),
        (TABLE.replace("\nb,", "\na,"), {"strict": True}, DataError, "'a' is already on line 2"),
        (TABLE.replace("shirt; blue", '"shirt'), {}, DataError, "album: 1 pairs: at least 2 are needed"),
    ],
)
def test_tables_that_cannot_be(
    table: Path, content: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    (table / "pairs.csv").write_text(content)
    with pytest.raises(error, match=re.escape(message)):
        load("table", table, size=(3, 5), **options)


def test_tables_are_recognised_checked_and_shown(table: Path) -> None:
    assert [item.layout for item in layouts.find(table)] == ["csv_pairs"]
    (table / "2.png").write_bytes(b"")
    found = next(layouts.check(table))
    assert found.counts == {
        "pairs": 5, "whole pictures": 4, "without a word": 1, "labels": 4, "without a label": 1,
    }  # fmt: skip
    assert found.problems.count == 2
    shown = gather(table).sets[0]
    assert (shown.layout, shown.counts["pairs"], len(shown.cards), shown.problem_count) == ("csv_pairs", 5, 4, 2)
    (table / "more.csv").write_text(TABLE)
    (table / "pairs.csv").rename(table / "other.csv")
    with pytest.raises(DataError, match=r"expected one CSV table in it, found more\.csv, other\.csv \(name the table"):
        load("table", table)


# ---- NUS-WIDE


@pytest.fixture
def nuswide(tmp_path: Path) -> Path:
    """Five pictures, four concepts, three tags; the last has no concept of the two most frequent."""
    files = {
        "Concepts81.txt": "sky\nlake\ndog\ncat\n",
        "ImageList/Imagelist.txt": "".join(f"actor\\000{number}_2.jpg \r\n" for number in range(1, 6)),
        "Groundtruth/AllLabels/Labels_sky.txt": "1\n1\n1\n0\n0\n",
        "Groundtruth/AllLabels/Labels_lake.txt": "0\n0\n0\n0\n0\n",
        "Groundtruth/AllLabels/Labels_dog.txt": "0\n0\n0\n1\n1\n",
        "Groundtruth/AllLabels/Labels_cat.txt": "1\n0\n1\n1\n0\n",
        "NUS_WID_Tags/TagList1k.txt": "nature\nblue\nb&w\n",
        "NUS_WID_Tags/AllTags1k.txt": "1\t0\t0\t\r\n0\t1\t1\t\r\n0\t0\t0\t\r\n1\t1\t1\t\r\n0\t1\t0",
    }
    folder = tmp_path / "NUS-WIDE"
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode())
    return folder


@pytest.mark.parametrize("block", [2**22, 16])
def test_nuswide_lists_by_hand(nuswide: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_nuswide, "_BLOCK", block)
    found = load("nuswide", nuswide, labels="2", query=1)
    assert found.names == ("sky", "cat") and found.left_out == {"without a label": 1}
    assert found.labels.astype(int).tolist() == [[1, 1], [1, 0], [1, 1], [0, 1]]
    assert found.words == ("nature", "blue", "b&w") and found.texts.tolist()[:2] == ["nature", "blue b&w"]
    assert found.bags.toarray().tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1]]  # type: ignore[union-attr]
    assert found.ids[0] == "actor/0001_2.jpg" and found.pictures is None
    every = load("nuswide", nuswide, labels="all", drop=("untexted",), query=1)
    assert every.names == ("sky", "dog", "cat") and len(every) == 4  # nothing shows a lake
    with pytest.raises(ConfigError, match="labels = '5': expected a number of concepts, up to 4, or 'all'"):
        load("nuswide", nuswide, labels="5")


def test_nuswide_pictures(nuswide: Path) -> None:
    for number in (1, 2, 4):
        picture(nuswide / "Flickr" / "actor" / f"000{number}_2.jpg", 100)
    found = load("nuswide", nuswide, labels="2", query=1, size=(3, 5))
    assert found.left_out == {"without a picture": 2, "without a label": 0} and len(found) == 3
    assert found.pictures is not None and found.pictures.read(np.arange(3)).shape == (3, 3, 5, 3)
    assert [item.layout for item in layouts.find(nuswide)] == ["nuswide"]
    assert next(layouts.check(nuswide)).counts == {
        "pairs": 3, "without a picture": 2, "pictures": 3, "tags": 3, "without a tag": 0, "concepts": 4,
        "without a concept": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("NUS_WID_Tags/AllTags1k.txt", "1 0 0\n0 1 1\n", "2 rows, but 5 pictures in the list (is the file complete?)"),
        ("NUS_WID_Tags/AllTags1k.txt", "1 0 0\n0 1\n", "AllTags1k.txt:2: 2 values, expected 3"),
        ("NUS_WID_Tags/AllTags1k.txt", "1 0 0\n0 2 1\n", "AllTags1k.txt:2: expected 0 and 1 with space between them"),
        ("NUS_WID_Tags/AllTags1k.txt", "1 0 0\n\n0 10 1\n", "AllTags1k.txt:3: expected 0 and 1"),
        ("Groundtruth/AllLabels/Labels_dog.txt", "0\n1\n", "Labels_dog.txt: 2 rows, but 5"),
        ("Concepts81.txt", "sky\nfox\n", "no Labels_fox.txt in it"),
        ("ImageList/Imagelist.txt", "a.jpg\n\\etc\\passwd\n", "Imagelist.txt:2: "),
        ("ImageList/Imagelist.txt", "", "Imagelist.txt: an empty list"),
        ("Concepts81.txt", " \n", "Concepts81.txt: an empty list"),
        ("NUS_WID_Tags/TagList1k.txt", "", "TagList1k.txt: an empty list"),
        ("NUS_WID_Tags/TagList1k.txt", None, "no TagList1k.txt in it"),
    ],
)
def test_nuswide_lists_that_cannot_be(nuswide: Path, file: str, content: str | None, message: str) -> None:
    (nuswide / file).unlink() if content is None else (nuswide / file).write_text(content)
    with pytest.raises(DataError, match=re.escape(message)):
        load("nuswide", nuswide, labels="all")


# ---- COCO

CAPTIONS = {
    "images": [{"id": number, "file_name": f"{number:012}.jpg"} for number in (9, 3, 5, 7)],
    "annotations": [
        {"image_id": 9, "caption": "A dog  on grass.\n"},
        {"image_id": 3, "caption": "A cat."},
        {"image_id": 9, "caption": "The dog runs"},
        {"image_id": 5, "caption": "Nothing here"},
    ],
}
INSTANCES = {
    "categories": [{"id": 18, "name": "dog"}, {"id": 2, "name": "cat"}, {"id": 90, "name": "toothbrush"}],
    "annotations": [
        {"image_id": 9, "category_id": 18, "segmentation": [[1, 2, 3]]},
        {"image_id": 9, "category_id": 18},
        {"image_id": 3, "category_id": 2},
        {"image_id": 3, "category_id": 18},
        {"image_id": 4711, "category_id": 2},
    ],
}


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    folder = tmp_path / "coco" / "annotations"
    folder.mkdir(parents=True)
    (folder / "captions_val2017.json").write_text(json.dumps(CAPTIONS))
    (folder / "instances_val2017.json.gz").write_bytes(gzip.compress(json.dumps(INSTANCES).encode()))
    return folder.parent


def test_coco_by_hand(coco: Path) -> None:
    found = load("coco", coco, min_count=1, query=1, split="order", drop=())
    assert found.ids.tolist() == ["000000000003.jpg", "000000000005.jpg", "000000000009.jpg"]  # 7 has no caption
    assert found.texts.tolist() == ["A cat.", "Nothing here", "A dog on grass.\nThe dog runs"]
    assert found.names == ("cat", "dog") and found.labels.astype(int).tolist() == [[1, 1], [0, 0], [0, 1]]
    assert found.words == ("a", "dog", "grass", "here", "nothing", "on", "runs", "the") and found.pictures is None
    assert load("coco", coco, min_count=1, query=1).left_out == {"without a label": 1}
    for number in (3, 9):
        picture(coco / "val2017" / f"{number:012}.jpg")
    assert [item.layout for item in layouts.find(coco)] == ["coco"]
    assert next(layouts.check(coco)).counts == {
        "pairs": 2, "without a picture": 1, "pictures": 2, "categories": 3, "without a category": 0,
    }  # fmt: skip
    shown = load("coco", coco, min_count=1, query=1, size=(3, 5))
    assert shown.pictures is not None and shown.pictures.read(shown.query).shape == (1, 3, 5, 3)


def _captions(folder: Path, **changed: object) -> None:
    (folder / "annotations" / "captions_val2017.json").write_text(json.dumps({**CAPTIONS, **changed}))


def _instances(folder: Path, **changed: object) -> None:
    (folder / "annotations" / "instances_val2017.json.gz").write_text(json.dumps({**INSTANCES, **changed}))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: _captions(f, images=3), "field 'images': expected a list"),
        (lambda f: _captions(f, images=[{"id": 9}]), "field 'images[0]': expected id and file_name"),
        (lambda f: _captions(f, images=CAPTIONS["images"][1:]), "captions of picture 9, which is not in the list"),
        (
            lambda f: _captions(f, annotations=[{"image_id": 3}]),
            "json:1: annotations[0]: expected image_id and caption",
        ),
        (lambda f: _instances(f, categories=[]), "json.gz:1: field 'category_id': category 18 is not in the list"),
        (lambda f: _instances(f, categories=[{}]), "field 'categories[0]': expected id and name"),
        (lambda f: _instances(f, annotations=[7]), "annotations[0]: expected image_id and category_id"),
        (lambda f: (f / "annotations" / "instances_val2017.json.gz").unlink(), "no captions_<part>.json with a"),
    ],
)
def test_coco_that_cannot_be(coco: Path, spoil: Callable[[Path], None], message: str) -> None:
    spoil(coco)
    with pytest.raises(DataError, match=re.escape(message)):
        load("coco", coco, min_count=1, query=1, strict=True)


# ---- Damage


def _spoilt_nuswide(data: bytes, draw: random.Random) -> bytes:
    return spoilt_words(data.replace(b"\t", b" "), draw) if draw.random() < 0.5 else spoilt_bytes(data, draw)


@pytest.mark.parametrize(
    ("data", "name", "spoil"),
    [
        ("table", "pairs.csv", spoilt_bytes),
        ("nuswide", "NUS_WID_Tags/AllTags1k.txt", _spoilt_nuswide),
        ("nuswide", "ImageList/Imagelist.txt", spoilt_bytes),
        ("coco", "annotations/captions_val2017.json", spoilt_json),
        ("coco", "annotations/captions_val2017.json", spoilt_bytes),
    ],
)
def test_damaged_files_give_a_reason(
    data: str, name: str, spoil: Callable[[bytes, random.Random], bytes], request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(data)
    whole, draw = (folder / name).read_bytes(), random.Random(5)
    options = {"labels": "all"} if data == "nuswide" else {}

    def use(content: bytes) -> None:
        (folder / name).write_bytes(content)
        try:
            pair_data(data, **options).read(folder, Problems())
        except ConfigError as error:  # a column that the settings name is gone
            raise DataError(str(error)) from error

    used, refused = outcomes((spoil(whole, draw) for _ in range(80)), use, DataError)
    assert used + refused == 80 and refused > 5


# ---- MIRFlickr's folders, and the town


def mirflickr(root: Path) -> Path:
    """Four photographs: the second has no label, the third no common tag."""
    files = {
        "mirflickr/doc/common_tags.txt": "sky 3\nblue 2\n",
        "annotations/clouds.txt": "1\n3\n4\n",
        "annotations/clouds_r1.txt": "1\n",
        "annotations/sea.txt": "4\n",
    }
    for number, tags in enumerate(("sky\nblue", "sky", "other", "blue\nsky"), 1):
        picture(root / "mirflickr" / f"im{number}.jpg")
        files[f"mirflickr/meta/tags/tags{number}.txt"] = tags
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def test_mirflickr_folders(tmp_path: Path) -> None:
    root = mirflickr(tmp_path / "mir")
    found = load("mirflickr", root, query=1, size=(3, 5))
    assert found.ids.tolist() == ["im1.jpg", "im4.jpg"] and found.texts.tolist() == ["sky blue", "blue sky"]
    assert found.left_out == {"without a label": 1, "without a word": 1}
    assert (found.words, found.names) == (("sky", "blue"), ("clouds", "sea"))
    assert found.bags.toarray().tolist() == [[1, 1], [1, 1]]  # type: ignore[union-attr]
    assert load("mirflickr", root, labels="all", drop=(), query=1, size=(3, 5)).names == ("clouds", "clouds_r1", "sea")


def test_the_town_is_made_on_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a town holds is tested with the town; here, that the right one is asked for and read."""
    made: list[tuple[Path, town_maker.Spec]] = []

    def make(folder: Path, spec: town_maker.Spec, progress: Callable[[str, int, int], None]) -> None:
        made.append((folder, spec))
        progress("houses", 1, 2)
        mirflickr(folder / "mirflickr")
        (folder / "fashion").mkdir(exist_ok=True)
        for name, values in (
            ("Image", np.zeros((2, 4, 4, 3), np.uint8)),
            ("Tag", np.eye(2, dtype=np.uint8)),
            ("Label", np.array([[1, 1, 0], [1, 0, 1]], np.uint8)),
        ):
            matfiles.write(folder / "fashion" / f"{name.lower()}.mat", name, values)
        (folder / "fashion" / "levels.json").write_text('{"levels": [1, 2], "queries": 1}')
        (folder / "town.json").write_text("{}")

    monkeypatch.setattr(town_maker, "make", make)
    told: list[str] = []
    found = load("town", town="tiny", town_seed=4, size=(3, 5), query=1, progress=lambda text, *_: told.append(text))
    assert (found.name, len(found), told[0]) == ("town", 2, "making the town: houses")
    things = load("town-fashion", town="tiny")
    assert (things.name, things.levels, things.query.tolist()) == ("town-fashion", (1, 2), [0])
    specs = [(spec.size, spec.seed, spec.layouts) for _, spec in made]
    assert specs == [("tiny", 4, ("mirflickr",)), ("tiny", 0, ("fashion",))]
    assert made[0][0] == tmp_path / "cache" / "towns" / f"pairs-mirflickr-tiny-4-form{made[0][1].form}"
    assert len(load("town-fashion", made[1][0])) == 2  # a town's folder, given


# ---- Real data


def _real(name: str) -> zipfile.ZipFile:
    archive = SHARED / f"{name}.zip"
    if not archive.is_file():
        pytest.skip(f"{archive} is absent: set WAYFARE_SHARED to the folder that holds data/hashing/{name}.zip")
    return zipfile.ZipFile(archive)


@pytest.fixture
def _all_present(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read the lines of a table no pictures are needed."""

    def all_present(folders: list[Path], names: list[str]) -> tuple[list[Path], int]:
        return [folders[0] / name for name in names], len(names)

    monkeypatch.setattr(pair_table, "find_pictures", all_present)


@pytest.mark.usefixtures("_all_present")
def test_real_fashion_products(tmp_path: Path) -> None:
    with _real("fashion_products") as archive:
        file = Path(archive.extract("fashion_products/pairs.csv", tmp_path))
        options = {"photo": "image", "text": "productDisplayName"}
        levels = TablePairs(labels="subCategory>articleType:50", **options).read(file, Problems())  # type: ignore[arg-type]
        assert len(levels) == 9583 and levels.levels[1] == 30 and levels.labelled.sum() == 9082
        many = TablePairs(labels="articleType:50+baseColour:100", **options).read(file, Problems())  # type: ignore[arg-type]
        assert many.levels == (45,) and many.problems.count == 0
        few = "\n".join(file.read_text().split("\n")[:41]) + "\n"
        (file.parent / "few.csv").write_text(few)
        archive.extractall(tmp_path, [f"fashion_products/{name}" for name in re.findall(r"images/\d+\.jpg", few)])
    found = load("table", file.parent / "few.csv", labels="masterCategory>articleType", query=10, **options)  # type: ignore[arg-type]
    assert len(found) == 40 and found.problems.count == 0 and found.pictures is not None
    assert found.pictures.read(found.query).shape == (10, 224, 224, 3)


@pytest.mark.usefixtures("_all_present")
def test_real_emoji(tmp_path: Path) -> None:
    with _real("emoji") as archive:
        file = Path(archive.extract("emoji/pairs.csv", tmp_path))
    data = TablePairs(photo="assets/72x72/{code}.png", text="name+keywords", labels="group")
    found = data.read(file, Problems())
    assert (len(found), found.levels, found.problems.count) == (1906, (9,), 0)
    assert found.files is not None and found.files[0].name == "1f600.png"


def test_real_wikipedia(tmp_path: Path) -> None:
    with _real("wikipedia") as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / "wikipedia"
    found = load("wikipedia", folder)
    assert (len(found.query), len(found.retrieval), found.names[0]) == (693, 2173, "art")
    assert found.features is not None and (found.features.shape, found.bags.shape) == ((2866, 128), (2866, 10))
    for name in ("wikiData_RFDH.mat", "wikiData_MTFH.mat"):  # class numbers, and ones: the same pairs
        np.testing.assert_array_equal(load("wikipedia", folder / name).labels.sum(axis=0), found.labels.sum(axis=0))


def test_a_table_without_labels_has_words_for_labels(tmp_path: Path) -> None:
    for number in range(12):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{number}.png")
    kinds = ["red shirt 42", "blue shirt", "red cap", "any cap"]
    lines = [f"{number}.png,the {kinds[number % 4]}" for number in range(12)]
    (tmp_path / "mine.csv").write_text("\n".join(["photo,text", *lines]))
    pairs = load("table", tmp_path, labels="words:3")
    # "the" is in more than a third, and so are red, shirt and cap (6 of 12); 42 is no word
    assert pairs.names == ("any", "blue")
    assert pairs.labels.sum(0).tolist() == [3, 3] and len(pairs) == 12  # pairs without a label are kept
    without = load("table", tmp_path)  # where no number is said, a table may have no labels
    assert (without.names, without.levels, without.labels.shape) == ((), (0,), (12, 0))


def test_spreadsheets_part_columns_by_semicolons(table: Path) -> None:
    commas = load("table", table, size=(3, 5))
    rows = list(csv.reader((table / "pairs.csv").read_text().splitlines()))
    with (table / "pairs.csv").open("w", newline="") as file:
        csv.writer(file, delimiter=";").writerows(rows)
    assert [item.layout for item in layouts.find(table)] == ["csv_pairs"]
    found = load("table", table, size=(3, 5))
    assert list(found.texts) == list(commas.texts) and found.names == commas.names


def test_texts_that_share_no_words_and_have_no_labels(tmp_path: Path) -> None:
    """A contrastive loss needs neither labels nor a vocabulary; other methods say what they lack."""
    rows = ["photo,text", *(f"{number}.png,word{number} thing{number}" for number in range(12))]
    for number in range(12):
        picture(tmp_path / f"{number}.png")
    (tmp_path / "pairs.csv").write_text("\n".join(rows) + "\n")
    bag = PairEncoders(FrozenImages(side=32), BagOfWords(hidden=4), bits=8)
    task = Hashing(TablePairs(str(tmp_path), min_count=1), bag, base=Contrastive())
    found = run(Experiment(task, Random(2), rounds=1), tmp_path / "run", "local")
    assert set(found.metrics) == {"test/R@1", "test/R@5", "test/R@10", "train/loss"} and found["refused"] == 0
    assert task.protocol.startswith("1 queries, no labels")
    assert "R@10 1.000, and a random order has 1.000" in task.doubt(found.metrics, {})
    model = found.load()
    model.index()
    assert len(model.search("word3", k=2).hits) == 2
    with pytest.raises(ConfigError, match="no labels to learn from"):
        replace(task, base=DCMH()).network()
    with pytest.raises(ConfigError, match="no word is in enough of the 11 texts"):
        replace(task, data=TablePairs(str(tmp_path))).network()
