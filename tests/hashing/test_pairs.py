"""Pairs of pictures and texts: words, rows and splits, and what MATLAB files give."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io

from mutations import outcomes, spoilt_bytes
from toy_pairs import load_pairs as load
from wayfare.core.errors import ConfigError, DataError
from wayfare.experiment import Experiment
from wayfare.hashing.data import fashion, words
from wayfare.hashing.data import rows as pair_rows
from wayfare.hashing.data.source import PairSource, SplitSizes, strings
from wayfare.io import layouts, matfiles

RNG = np.random.default_rng(7)
N = 8
IMAGES = RNG.integers(0, 256, (N, 6, 5, 3), np.uint8)  # no side is another: height 6, width 5
TAGS = np.array([[1, 0, 0, 2], [0, 0, 0, 0], *([[0, 1, 1, 0]] * 6)], np.uint8)
LABELS = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 1, 0], *([[0, 1, 0]] * 4)], np.uint8)  # the third row has none
FEATURES = RNG.normal(size=(N, 9))

# ---- Words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("  ... !", []),
        ("A RED shirt, size 42", ["a", "red", "shirt", "size", "42"]),
        ("Men's T-Shirt_new", ["men", "s", "t", "shirt", "new"]),
        ("Ünter Straße\u00a0café", ["ünter", "straße", "café"]),
        ("cafe\u0301", ["café"]),  # two characters that are one letter
        ("ＦＵＬＬ ①", ["full", "1"]),
        ("हिन्दी शब्द", ["हिन्दी", "शब्द"]),  # vowel signs belong to their letters
        ("红色shirt", ["红", "色", "shirt"]),
        ("ok 😀 ok", ["ok", "ok"]),
    ],
)
def test_words_of_a_text(text: str, found: list[str]) -> None:
    assert words.tokens(text) == found


def test_a_vocabulary_by_hand() -> None:
    texts = ["red red shirt", "blue shirt", "Blue sky", ""]
    assert words.vocabulary(texts) == ("blue", "shirt", "red", "sky")  # two texts each, then one each, by letters
    assert words.vocabulary(texts, min_count=2) == ("blue", "shirt")
    assert words.vocabulary(texts, max_words=3) == ("blue", "shirt", "red")


def bag(text: str, known: tuple[str, ...]) -> list[int]:
    return words.bags([text], known).toarray()[0].tolist()  # type: ignore[no-any-return]


def test_bags_by_hand() -> None:
    known = ("blue", "shirt", "b&w", "Paris")
    assert bag("Shirt! shirt in b&w, Paris", known) == [0, 1, 0, 1]  # "b&w," is not "b&w"
    assert bag("B&W blue", known) == [1, 0, 1, 0]
    assert bag("", known) == [0, 0, 0, 0] and bag("blue", ()) == []
    texts = ["blue shirt", "", "b&w Paris"]
    together = words.bags(texts, known)
    assert together.dtype == np.float32 and together.shape == (3, 4)
    np.testing.assert_array_equal(together.toarray(), [bag(text, known) for text in texts])


# ---- Rows


NO_SIZES = SplitSizes()


def source(count: int, sizes: SplitSizes = NO_SIZES, **facts: object) -> PairSource:
    labels = np.ones((count, 1), bool)
    return PairSource("some", range(count), labels, ["a"], (1,), sizes=sizes, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "sizes", "expected"),
    [
        (20_015, SplitSizes(2000, 10_000), (2000, 10_000, 18_015)),  # the paper's table 1
        (195_834, SplitSizes(2100, 10_500), (2100, 10_500, 193_734)),
        (19_862, SplitSizes(3000), (3000, 16_862, 16_862)),
        (15_696, SplitSizes(2000), (2000, 13_696, 13_696)),
        (11_999, SplitSizes(2000, 10_000), (1199, 10_800, 10_800)),  # too few for the paper's
        (2, SplitSizes(), (1, 1, 1)),
        (50_000, SplitSizes(), (2000, 48_000, 48_000)),
    ],
)
@pytest.mark.parametrize("in_order", [True, False])
def test_how_many_rows_are_what(count: int, sizes: SplitSizes, expected: tuple[int, ...], in_order: bool) -> None:
    found = pair_rows.split(source(count, sizes, in_order=in_order), 0, 0, 3, how="auto", path=Path())
    assert tuple(map(len, found)) == expected
    query, train, retrieval = found
    np.testing.assert_array_equal(np.sort(np.concatenate([query, retrieval])), np.arange(count))
    assert np.isin(train, retrieval).all() and (np.diff(train) > 0).all()
    assert (query[-1] == len(query) - 1) == (in_order or (count == 2 and query[0] == 0))


def test_the_seed_draws_and_order_does_not() -> None:
    def queries(seed: int, how: str) -> list[int]:
        return pair_rows.split(source(100), 5, 10, seed, how=how, path=Path()).query.tolist()

    assert queries(1, "random") == queries(1, "random") != queries(2, "random")
    assert queries(1, "order") == queries(2, "order") == [0, 1, 2, 3, 4]
    with pytest.raises(ConfigError, match="100 pairs are not enough for query = 95 and train = 10: lower them"):
        pair_rows.split(source(100), 95, 10, 0, how="auto", path=Path())


def test_roles_that_the_data_has() -> None:
    roles = strings(["train", "query", "retrieval", "train"])
    found = pair_rows.split(source(4, roles=roles), 0, 0, 0, how="auto", path=Path())
    assert [part.tolist() for part in found] == [[1], [0, 3], [0, 2, 3]]
    with pytest.raises(ConfigError, match=r"data.query and data.train need data.split = 'random' or 'order'"):
        pair_rows.split(source(4, roles=roles), 1, 0, 0, how="auto", path=Path())
    with pytest.raises(DataError, match="some rows that are queries and some that are not"):
        pair_rows.split(source(2, roles=strings(["train", "train"])), 0, 0, 0, how="auto", path=Path())


# ---- MATLAB files


def old(file: Path, **arrays: np.ndarray) -> None:
    scipy.io.savemat(file, arrays, do_compression=True)


def new(file: Path, **arrays: np.ndarray) -> None:
    """As MATLAB saves with -v7.3: HDF5 with axes in reverse."""
    with h5py.File(file, "w", userblock_size=512) as out:
        for name, values in arrays.items():
            out.create_dataset(name, data=values.T).attrs["MATLAB_class"] = np.bytes_(str(values.dtype))


def foreign(file: Path, **arrays: np.ndarray) -> None:
    """HDF5 that MATLAB did not write."""
    with h5py.File(file, "w") as out:
        for name, values in arrays.items():
            out.create_dataset(name, data=values)


Save = Callable[..., None]


@pytest.mark.parametrize("save", [old, new, foreign])
@pytest.mark.parametrize("across", [(False, False), (True, True), (True, False), (False, True)])
@pytest.mark.parametrize("axes", [(1, 2, 3, 0), (0, 1, 2, 3), (0, 3, 1, 2), (3, 1, 2, 0)])
def test_dcmh_in_every_orientation(
    tmp_path: Path, save: Save, across: tuple[bool, bool], axes: tuple[int, ...]
) -> None:
    file = tmp_path / "FLICKR-25K.mat"
    tags, labels = (TAGS.T if across[0] else TAGS), (LABELS.T if across[1] else LABELS)
    save(file, images=IMAGES.transpose(axes), YAll=tags.astype(float), LAll=labels)
    found = load("mirflickr", file, drop=())
    assert found.pictures is not None and found.pictures.size == (6, 5)
    read = found.pictures.read(np.array([3, 0]))
    np.testing.assert_array_equal(read, IMAGES[[3, 0]])
    read[:] = 0  # the caller's own
    np.testing.assert_array_equal(found.pictures.read(np.arange(N)), IMAGES)
    assert found.bags.dtype == np.float32 and found.bags.toarray().tolist() == TAGS.tolist()  # type: ignore[union-attr]
    assert found.labels.astype(int).tolist() == LABELS[:, :2].tolist()  # nobody has the third label
    assert (found.levels, found.names, found.words, found.texts[0]) == ((2,), ("label 1", "label 2"), (), "")
    assert found.query.tolist() == [0] and found.ids[0] == "1"
    assert found.without_words.tolist() == [False, True] + [False] * 6
    assert np.flatnonzero(~found.labels.any(1)).tolist() == [2]
    turned = load("mirflickr", file, drop=(), turned=True).pictures
    assert turned is not None and turned.size == (5, 6)
    np.testing.assert_array_equal(turned.read(np.arange(N)), IMAGES.transpose(0, 2, 1, 3))


def test_a_file_for_each_array(tmp_path: Path) -> None:
    new(tmp_path / "mirflickr25k-iall.mat", IAll=IMAGES.transpose(1, 2, 3, 0))
    old(tmp_path / "mirflickr25k-yall.mat", YAll=TAGS)
    old(tmp_path / "mirflickr25k-lall.mat", LAll=LABELS)
    old(tmp_path / "mirflickr25k-iall-vgg.mat", XAll=FEATURES.T)
    assert [found.layout for found in layouts.find(tmp_path)] == ["mat_pairs"]
    counts = next(layouts.check(tmp_path)).counts
    assert counts == {
        "pairs": 8, "size": "5 x 6", "columns of texts": 4, "without a word": 1, "labels": 3, "without a label": 1,
    }  # fmt: skip
    found = load("mirflickr", tmp_path, query=2, train=3)
    assert found.left_out == {"without a label": 1} and len(found) == 7
    assert found.ids.tolist() == ["1", "2", "4", "5", "6", "7", "8"]
    np.testing.assert_array_equal(found.features, np.delete(FEATURES, 2, axis=0).astype(np.float32))
    assert found.pictures is not None
    np.testing.assert_array_equal(found.pictures.read(found.train), IMAGES[[3, 4, 5]])
    assert len(load("mirflickr", tmp_path, drop=("unlabelled", "untexted"))) == 6
    (tmp_path / "mirflickr25k-iall.mat").unlink()
    assert load("mirflickr", tmp_path).pictures is None


def test_which_of_two_sets_of_files(tmp_path: Path) -> None:
    for name, labels in (("tc10", LABELS[:, :2]), ("tc21", LABELS)):
        old(tmp_path / f"nus-wide-{name}-yall.mat", YAll=TAGS)
        old(tmp_path / f"nus-wide-{name}-lall.mat", LAll=labels)
    assert load("nuswide", tmp_path, labels="21", split="random", query=2).name == "nuswide"
    with pytest.raises(DataError, match=r"two files of labels: nus-wide-tc10-lall\.mat and nus-wide-tc21-lall\.mat"):
        load("nuswide", tmp_path)


def test_text_features_that_are_no_counts(tmp_path: Path) -> None:
    old(tmp_path / "a.mat", TAll=FEATURES, LAll=LABELS)
    found = load("mirflickr", tmp_path / "a.mat", drop=())
    assert isinstance(found.bags, np.ndarray) and found.bags.dtype == np.float32
    np.testing.assert_array_equal(found.bags, FEATURES.astype(np.float32))


def test_features_of_ones_own(tmp_path: Path) -> None:
    old(tmp_path / "a.mat", YAll=TAGS, LAll=LABELS)
    np.save(tmp_path / "f.npy", FEATURES)
    old(tmp_path / "f.mat", features=FEATURES)
    for name in ("f.npy", "f.mat"):
        features = load("mirflickr", tmp_path / "a.mat", features=str(tmp_path / name)).features
        assert features is not None and features.dtype == np.float32
        np.testing.assert_array_equal(features, np.delete(FEATURES, 2, axis=0).astype(np.float32))
    np.save(tmp_path / "f.npy", FEATURES[:7])
    with pytest.raises(
        DataError, match=r"f\.npy: expected numbers in 8 rows, a row for each pair, found float64 \(7, 9"
    ):
        load("mirflickr", tmp_path / "a.mat", features=str(tmp_path / "f.npy"))
    np.save(tmp_path / "f.npy", np.array([[{}]] * 8, object), allow_pickle=True)
    with pytest.raises(DataError, match=r"not a readable \.npy array"):
        load("mirflickr", tmp_path / "a.mat", features=str(tmp_path / "f.npy"))


def test_large_pictures_stay_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fashion, "IN_MEMORY", 100)
    new(tmp_path / "a.mat", images=IMAGES.transpose(1, 2, 3, 0), YAll=TAGS, LAll=LABELS)
    pictures = load("mirflickr", tmp_path / "a.mat").pictures
    assert pictures is not None and len(list((tmp_path / "cache" / "mat").glob("*/images.npy"))) == 1
    read = pictures.read(np.array([2]))
    np.testing.assert_array_equal(read, IMAGES[[3]])
    assert read.flags.writeable  # torch warns of arrays that are not


def fashion_files(folder: Path) -> Path:
    labels = np.array([[1, 0, 1, 0, 0], [1, 0, 0, 1, 0], [0, 1, 0, 0, 1], [1, 0, 1, 0, 0]], np.uint8)
    for name, values in (("Image", IMAGES[:4]), ("Tag", TAGS[:4]), ("Label", labels)):
        matfiles.write(folder / f"{name.lower()}.mat", name, values)
    (folder / "levels.json").write_text('{"levels": [2, 3], "queries": 1, "words": ["a", "b", "c", "d"]}')
    return folder


def test_fashion_and_its_levels(tmp_path: Path) -> None:
    found = load("fashion", fashion_files(tmp_path))
    assert (found.levels, found.labels.shape) == ((2, 3), (4, 5))
    assert found.names == ("coarse 1", "coarse 2", "fine 1", "fine 2", "fine 3")
    assert (found.texts.tolist(), found.words) == (["a d", "", "b c", "b c"], ("a", "b", "c", "d"))
    assert (found.query.tolist(), found.train.tolist(), found.retrieval.tolist()) == ([0], [1, 2, 3], [1, 2, 3])
    fine = load("fashion", tmp_path, labels="fine")
    assert fine.levels == (3,) and fine.labels.argmax(axis=1).tolist() == [0, 1, 2, 0]
    assert load("fashion", tmp_path, labels="coarse").labels.argmax(axis=1).tolist() == [0, 0, 1, 0]
    frequent = load("fashion", tmp_path, least=2)  # only the first fine class has two pairs
    assert (frequent.names, frequent.levels, frequent.ids.tolist()) == (("coarse 1", "fine 1"), (1, 1), ["1", "4"])
    with pytest.raises(ConfigError, match=r"data.labels = .middle.: input should be 'both', 'fine' or 'coarse'"):
        Experiment.from_table({"task": {"name": "hashing"}, "data": {"name": "fashion", "labels": "middle"}})


def wikipedia_files(folder: Path) -> Path:
    old(folder / "raw_features.mat", I_te=FEATURES[:2], I_tr=FEATURES[2:], T_te=TAGS[:2] / 2, T_tr=TAGS[2:] / 2)
    (folder / "testset_txt_img_cat.list").write_text("t1\ti1\t2\nt2\ti2\t1\n")
    (folder / "trainset_txt_img_cat.list").write_text("".join(f"t{n} i{n} {n % 2 + 1}\n" for n in range(3, 9)))
    (folder / "categories.list").write_text("art\nwar\n")
    return folder


@pytest.mark.parametrize("form", ["lists", "numbers", "ones"])
def test_wikipedia(tmp_path: Path, form: str) -> None:
    wikipedia_files(tmp_path)
    numbers = np.array([2, 1, 2, 1, 2, 1, 2, 1], np.uint8)
    if form != "lists":
        labels = numbers[:, None] if form == "numbers" else np.eye(2, dtype=np.uint8)[numbers - 1]
        parts = scipy.io.loadmat(tmp_path / "raw_features.mat")
        (tmp_path / "raw_features.mat").unlink()
        arrays = {name: parts[name] for name in ("I_te", "I_tr", "T_te", "T_tr")}
        old(tmp_path / "wikiData.mat", **arrays, L_te=labels[:2], L_tr=labels[2:])
    found = load("wikipedia", tmp_path)
    assert found.names == ("art", "war")
    assert found.labels.argmax(axis=1).tolist() == (numbers - 1).tolist() and found.labels.sum() == N
    np.testing.assert_array_equal(found.features, FEATURES.astype(np.float32))
    assert (found.query.tolist(), found.retrieval.tolist(), found.pictures) == ([0, 1], [2, 3, 4, 5, 6, 7], None)
    assert [item.layout for item in layouts.find(tmp_path)] == ["wikipedia"]
    assert next(layouts.check(tmp_path)).counts["labels"] == 2


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-200])


def _list_line(text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "testset_txt_img_cat.list").write_text(text) and None  # type: ignore[func-returns-value]


BROKEN: list[tuple[str, Callable[[Path], object], str]] = [
    ("mirflickr", lambda f: old(f / "a.mat", YAll=TAGS), "no LAll in it (expected images or IAll, YAll and LAll)"),
    (
        "mirflickr",
        lambda f: old(f / "a.mat", YAll=TAGS[:5], LAll=LABELS),
        "the arrays have different numbers of rows: YAll 5 x 4",
    ),
    (
        "mirflickr",
        lambda f: old(f / "a.mat", YAll=TAGS, LAll=LABELS, images=IMAGES[:, :, :, :2]),
        "expected 8 pictures, (8, height, width, 3), found 8 x 6 x 5 x 2",
    ),
    (
        "mirflickr",
        lambda f: old(f / "a.mat", YAll=TAGS, LAll=LABELS * 3),
        "expected whole numbers from 0 to 1, found 3",
    ),
    ("mirflickr", lambda f: old(f / "a.mat", YAll=TAGS * np.nan, LAll=LABELS), "'YAll': expected finite numbers"),
    ("mirflickr", lambda f: old(f / "a.mat", YAll=TAGS, LAll=LABELS * 0), "no pair with labels is left of 8 without"),
    ("mirflickr", lambda f: (f / "a.mat").write_bytes(b"no"), "a.mat: not a MATLAB file"),
    ("mirflickr", lambda f: (new(f / "a.mat", YAll=TAGS, LAll=LABELS), _cut(f / "a.mat")), "a.mat: damaged"),
    ("mirflickr", lambda f: None, "no such file or folder"),
    ("wikipedia", lambda f: old(f / "raw_features.mat", I_te=TAGS), "has no array 'T_te'"),
    ("wikipedia", lambda f: wikipedia_files(f) and (f / "testset_txt_img_cat.list").unlink(), "no such file"),
    ("wikipedia", lambda f: (wikipedia_files(f), _list_line("t1 i1 2\n")(f)), ".list: 1 lines, but 2 rows"),
    ("wikipedia", lambda f: (wikipedia_files(f), _list_line("t1 i1 2\nt2 i2 x\n")(f)), ".list:2: expected a text, a"),
    ("wikipedia", lambda f: old(f / "x.mat", I_te=TAGS, T_te=TAGS[:3]), "3 x 4, but I_te is 8 x 4: expected tables"),
]


@pytest.mark.parametrize(("data", "spoil", "message"), BROKEN)
def test_what_is_wrong_is_said(tmp_path: Path, data: str, spoil: Callable[[Path], object], message: str) -> None:
    spoil(tmp_path)
    with pytest.raises(DataError, match=re.escape(message)):
        load(data, tmp_path / "a.mat" if data == "mirflickr" else tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "mirflicker"}, "data: unknown data 'mirflicker'; did you mean 'mirflickr'"),
        ({"path": ""}, "this data needs data.path"),
        ({"query": -1}, "data.query = -1: expected at least 0"),
        ({"min_count": -1}, "data.min_count = -1: expected at least 0"),
    ],
)
def test_settings_that_cannot_be(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        load(**{"name": "mirflickr", "path": "x", **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("save", [old, new])
def test_damaged_files_give_a_reason(tmp_path: Path, save: Save) -> None:
    file = tmp_path / "a.mat"
    save(file, images=IMAGES, YAll=TAGS, LAll=LABELS)
    whole, draw = file.read_bytes(), random.Random(3)

    def use(content: bytes) -> None:
        file.write_bytes(content)
        load("mirflickr", file)

    _, refused = outcomes((spoilt_bytes(whole, draw) for _ in range(60)), use, DataError)
    assert refused > 10
