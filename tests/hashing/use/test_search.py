"""Photos found by words and texts by photos: the model, the index, the commands and the page."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from wayfare.cli import main
from wayfare.components import settings_of
from wayfare.core.bundle import Bundle, digest
from wayfare.core.errors import ConfigError, DataError, StoreError, WayfareError
from wayfare.core.protocols import Training
from wayfare.core.seeds import rng_for
from wayfare.experiment import Evaluation, Experiment
from wayfare.hashing import code_index as codes
from wayfare.hashing import lexicon
from wayfare.hashing.data.csv_pairs import TablePairs
from wayfare.hashing.hash_model import hashing_run, load_hash_model, unpack
from wayfare.hashing.images import FrozenImages
from wayfare.hashing.indexing import add, model_for
from wayfare.hashing.lexicon import Lexicon
from wayfare.hashing.model import BagOfWords, PairEncoders
from wayfare.hashing.page import QueryShown, ResultShown, SearchPage, page_of
from wayfare.hashing.ranking import pack
from wayfare.hashing.search import Query, SearchIndex, nearest_items, search, similar_words
from wayfare.hashing.shdch import SHDCH
from wayfare.hashing.task import Hashing
from wayfare.hashing.texts import read_texts
from wayfare.io.images import decode
from wayfare.nets.efficientnet import EfficientNetLite0
from wayfare.partition.random import Random
from wayfare.runner import run as run_experiment
from wayfare.strategies.fedcafe import FedCAFE

COLOURS = {"red": (210, 40, 40), "green": (40, 170, 60), "blue": (40, 60, 200)}
EACH = 14


def draw(file: Path, colour: str, number: int) -> None:
    rng = rng_for(0, colour, number)
    noisy = np.array(COLOURS[colour]) + rng.normal(0, 25, (24, 24, 3))
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of plain pictures in three colours, and a network for pictures that never learnt; do not change it."""
    folder = tmp_path_factory.mktemp("shop")
    lines = ["photo,text,labels"]
    for number in range(EACH):
        for colour in COLOURS:
            draw(folder / f"{colour}{number:02}.png", colour, number)
            lines.append(f"{colour}{number:02}.png,one {colour} thing,{colour}")
    (folder / "pairs.csv").write_text("\n".join(lines))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        save_file(EfficientNetLite0().state_dict(), folder / "trunk.safetensors")
    return folder


@pytest.fixture(scope="module")
def trained(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; do not change it."""
    folder = tmp_path_factory.mktemp("hash-runs") / "shop"
    image = FrozenImages(side=32, hidden=0, weights=str(shop / "trunk.safetensors"))
    task = Hashing(
        TablePairs(path=str(shop), query=6), PairEncoders(image, BagOfWords(hidden=0), bits=32), SHDCH(gamma=1.0),
        order="alternate",
    )  # fmt: skip
    experiment = Experiment(
        task, Random(1), FedCAFE(), training=Training(epochs=12, batch_size=6, optimizer="adam", lr=0.01),
        evaluation=Evaluation(clients=0, holdout=0.0, every=0), rounds=3, name="shop",
    )  # fmt: skip
    run_experiment(experiment, folder, engine="local")
    return folder


@pytest.fixture(scope="module")
def whole(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the run's own pairs; do not change it."""
    folder = tmp_path_factory.mktemp("hash-index") / "index"
    assert main(["index", str(trained), "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def mine(whole: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(whole, tmp_path / "mine"))


def answered(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == status
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


# ---- The model


def test_a_model_is_the_same_without_its_run(trained: Path, whole: Path, shop: Path) -> None:
    model, again = load_hash_model(hashing_run(trained)), unpack(whole / "model.safetensors")
    assert model.digest == again.digest and again.words == ("one", "thing", *sorted(COLOURS)) and again.bits == 32
    images = rng_for(1).integers(0, 256, (3, 32, 32, 3), np.uint8)
    assert np.array_equal(model.of_pictures(images), again.of_pictures(images))
    assert np.array_equal(model.of_texts(["red", "blue thing"]), again.of_texts(["red", "blue thing"]))


def test_models_of_before_there_were_colours_keep_their_names(trained: Path) -> None:
    """Their recipes did not have the setting, so it counts only where it is set."""
    model = load_hash_model(hashing_run(trained))
    settings = settings_of(model.task.model.without_weights())
    assert settings["image"].pop("colours") is False
    parts = [digest(weights) for weights in (model.net.state_dict(), model.trunk.own_weights(), {})]  # type: ignore[union-attr]
    facts = [1, *parts, model.words, tomllib.loads(model.recipe)["strategy"], settings]
    assert model.digest == sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    coloured = replace(model.task.model, image=FrozenImages(side=32, hidden=0, colours=True))
    assert replace(model, task=replace(model.task, model=coloured)).digest != model.digest


def test_what_queries_of_their_kind_have_in_common_is_taken_out(whole: Path) -> None:
    """Of a single word the mean of words, of several the mean of texts: then the score is the cosine."""
    index = SearchIndex(whole)
    for words, kind in (("red", "words"), ("red thing", "text")):
        (answer,) = search(index, [Query(words)], k=1, use_texts=False).answers
        asked = unit(index.model.of_texts([words])[0]) - index.model.centre(kind)
        item = unit(index.codes["photos"].numbers_of(answer.hits[0].id)) - index.model.centre("image")
        assert answer.hits[0].score == pytest.approx(float(unit(asked) @ unit(item)), abs=1e-5)


def unit(values: np.ndarray) -> np.ndarray:
    return np.asarray(values / np.linalg.norm(values), np.float32)


def test_codes_are_those_that_the_run_is_judged_by(trained: Path, whole: Path, shop: Path) -> None:
    found, index = hashing_run(trained), SearchIndex(whole)
    rows = found.task.pairs.query
    files = [shop / str(found.task.pairs.ids[row]) for row in rows]
    pictures = np.stack([decode(file, size=(32, 32)) for file in files])
    net = index.model.net
    assert np.array_equal(pack(index.model.of_pictures(pictures)), found.task.codes(net, "image", rows))
    texts = [str(found.task.pairs.texts[row]) for row in rows]
    assert np.array_equal(pack(index.model.of_texts(texts)), found.task.codes(net, "text", rows))


def test_the_memory_is_part_of_the_name(whole: Path) -> None:
    model = unpack(whole / "model.safetensors")
    before = model.digest
    model.net.memory[0, 0] += 1  # type: ignore[index, operator]
    del model.__dict__["digest"]
    assert model.digest != before


# ---- Searching


def test_words_find_photos_and_photos_find_texts(whole: Path, shop: Path) -> None:
    index = SearchIndex(whole)
    asked = [Query(f"{colour} thing") for colour in COLOURS] + [Query(photo=shop / f"{c}00.png") for c in COLOURS]
    found = search(index, asked, 4)
    assert [answer.find for answer in found.answers] == ["photos"] * 3 + ["texts"] * 3
    for answer, colour in zip(found.answers, [*COLOURS, *COLOURS]):
        assert all(hit.labels == (colour,) for hit in answer.hits), answer.query
        assert answer.hits[0].files[0].name.startswith(colour) and colour in answer.hits[0].texts[0]
    alike = search(index, [Query(photo=shop / "blue00.png"), Query("green")], 3, "texts").answers
    assert [answer.hits[0].texts for answer in alike] == [("one blue thing",), ("one green thing",)]
    assert index.counts() == {"photos": 42, "texts": 42}


def four(folder: Path, values: np.ndarray | None = None) -> codes.Codes:
    """Items a to d with all codes of two bits."""
    packed = np.array([[0b00], [0b01], [0b10], [0b11]], np.uint8)
    codes.add(folder, "m", "run", [codes.CodePart(list("abcd"), packed, values=values)])
    return codes.Codes(folder)


def test_items_are_ordered_by_what_the_query_is_surest_of(tmp_path: Path) -> None:
    found = nearest_items(four(tmp_path), np.array([0.25, 0.75], np.float32), 4)
    # the query's code is d; cosines with (1, 1), (-1, 1), (1, -1) and (-1, -1): (0.25 + 0.75) / sqrt(0.625 * 2), ...
    assert [(hit.id, hit.distance) for hit in found] == [("d", 0), ("c", 1), ("b", 1), ("a", 2)]
    assert [hit.score for hit in found] == pytest.approx([0.894427, 0.447214, -0.447214, -0.894427], abs=1e-5)
    first = nearest_items(four(tmp_path / "other"), np.array([-0.1, 0.0], np.float32), 2)
    assert [hit.id for hit in first] == ["c", "a"]  # equal in score; 0 is a set bit, so c is nearer in bits


def test_numbers_order_items_of_one_code(tmp_path: Path) -> None:
    values = np.array([[127, 12], [127, 127], [12, 127], [127, 60]], np.int8)
    packed = np.full((4, 1), 0b11, np.uint8)
    codes.add(tmp_path, "m", "run", [codes.CodePart(list("abcd"), packed, values=values)])
    found = nearest_items(codes.Codes(tmp_path), np.array([1.0, 0.1], np.float32), 2)
    assert [hit.id for hit in found] == ["a", "d"]
    assert found[0].score == pytest.approx((127 + 1.2) / (127**2 + 12**2) ** 0.5 / 1.01**0.5, abs=1e-6)


def test_what_items_have_in_common_does_not_count(tmp_path: Path) -> None:
    values = np.array([[127, 0], [0, 127]], np.int8)
    codes.add(tmp_path, "m", "run", [codes.CodePart(["a", "b"], np.array([[0b01], [0b10]], np.uint8), values=values)])
    common = np.array([0.5, 0.0], np.float32)  # so they are (0.5, 0) and (-0.5, 1)
    found = nearest_items(codes.Codes(tmp_path), np.array([1.0, 0.0], np.float32), 2, centre=common)
    assert [hit.score for hit in found] == pytest.approx([1.0, -0.5 / 1.25**0.5])


def test_ties_beyond_what_is_looked_at_are_not_cut_by_name(tmp_path: Path) -> None:
    """5,000 items of one code: the best by their numbers is the last by its name."""
    values = np.tile(np.array([[127, 60]], np.int8), (5000, 1))
    values[-1] = [127, 0]
    ids = [f"{number:04}" for number in range(5000)]
    codes.add(tmp_path, "m", "run", [codes.CodePart(ids, np.full((5000, 1), 3, np.uint8), values=values)])
    assert nearest_items(codes.Codes(tmp_path), np.array([1.0, 0.0], np.float32), 1)[0].id == "4999"


def test_a_text_that_is_about_a_word_comes_before_one_that_has_it(tmp_path: Path) -> None:
    texts = ["man pilot aviator plane airplane human person", "airplane airplane vehicle", *["a grey thing"] * 9]
    tables = [{"texts": [text]} for text in texts]
    codes.add(tmp_path, "m", "run", [codes.CodePart(list("abcdefghijk"), np.zeros((11, 1), np.uint8), tables)])
    opened = codes.Codes(tmp_path)
    hits = nearest_items(opened, np.ones(2, np.float32), 2, Lexicon(opened).search("airplane"))
    assert [hit.id for hit in hits] == ["b", "a"] and hits[0].words == 1  # a share of the query's words


def test_items_that_have_the_words_come_first(tmp_path: Path) -> None:
    packed, tables = np.zeros((40, 1), np.uint8), [{"texts": ["a grey thing"]} for _ in range(40)]
    tables[30] = {"texts": ["two old bags"]}
    index = codes.add(tmp_path, "m", "run", [codes.CodePart([f"{at:02}" for at in range(40)], packed, tables)])
    assert index.new == 40
    for made in (False, True):  # in memory, and from its file
        opened = codes.Codes(tmp_path)
        if made:
            lexicon.write(opened)
        found = Lexicon(opened)
        rows, shares = found.search("bag")
        assert rows.tolist() == [30] and 0.3 < shares[0] <= 1
        assert found.has("bags") and not found.has("shoe") and found.search("shoe")[0].size == 0
        hits = nearest_items(opened, np.array([1.0, 1.0], np.float32), 1, (rows, shares))
        assert hits[0].id == "30" and hits[0].words == shares[0]
    (tmp_path / "words.sqlite").write_bytes(b"damaged")
    assert Lexicon(codes.Codes(tmp_path)).has("bag")
    codes.add(tmp_path, "m", "run", [codes.CodePart(["30"], packed[:1], [{"texts": ["a shoe"]}])])
    assert Lexicon(codes.Codes(tmp_path)).has("shoe") and not Lexicon(codes.Codes(tmp_path)).has("bag")


def test_codes_that_tell_nothing_apart_are_noticed(tmp_path: Path) -> None:
    ids = [f"{number:02}" for number in range(21)]
    codes.add(tmp_path / "photos", "m", "run", [codes.CodePart(ids[:19], np.full((19, 2), 7, np.uint8))])
    assert SearchIndex(tmp_path).tells_nothing() == []  # so few may be alike
    codes.add(tmp_path / "photos", "m", "run", [codes.CodePart(ids[19:20], np.full((1, 2), 7, np.uint8))])
    assert SearchIndex(tmp_path).tells_nothing() == ["photos"]
    codes.add(tmp_path / "photos", "m", "run", [codes.CodePart(ids[20:], np.full((1, 2), 8, np.uint8))])
    assert SearchIndex(tmp_path).tells_nothing() == []


def test_misspelt_words_are_read_and_it_is_said(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answered(capsys, "search", "geren", "things", "--index", whole, "-k", 3)["answers"][0]
    assert found["read_as"] == {"geren": "green", "things": "thing"} and found["unknown_words"] == []
    assert all(result["labels"] == ["green"] for result in found["results"])
    assert main(["search", "geren", "--index", str(whole)]) == 0
    assert "read 'geren' as 'green'" in capsys.readouterr().err
    assert similar_words(["shirts"], {"shirt", "red"}) == ("shirt",)


def test_far_queries_are_told_that_nothing_is_close(whole: Path) -> None:
    index = SearchIndex(whole)
    object.__setattr__(index.model, "close", {"photos": 2.0, "texts": 2.0})
    (answer,) = search(index, [Query("red")], 1).answers
    assert answer.close  # it has the word
    (answer,) = search(index, [Query(photo=answer.hits[0].files[0])], 1, "photos").answers
    assert not answer.close


# ---- Indexing


def test_photos_and_texts_of_ones_own_are_added(
    trained: Path, shop: Path, mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = tmp_path / "photos"
    (photos / "more").mkdir(parents=True)
    for place, colour in enumerate(("red", "blue")):
        draw(photos / "more" / f"my {colour}.png", colour, 100 + place)
    (photos / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing")
    table = tmp_path / "captions.csv"
    table.write_text("file,text\nmore/my red.png,a red zebra\nmore/my blue.png,a  blue one\nlost.png,green\n,purple\n")
    first = answered(capsys, "index", trained, "--photos", photos, "--texts", table, "--out", mine)
    assert (first["photos"], first["texts"], first["new"], first["kept"], first["skipped"]) == (44, 45, 5, 0, 3)
    reasons = {Path(item["file"]).name: item["reason"] for item in first["skipped_files"]}
    assert "damaged" in reasons["broken.jpg"] and "none of its words" in reasons["purple"]
    assert "'lost.png'" in reasons["captions.csv"]
    found = answered(capsys, "search", "red", "--index", mine, "-k", "60")["answers"][0]["results"]
    own = next(hit for hit in found if hit["name"] == "my red.png")
    assert own["texts"] == ["a red zebra"] and own["files"] == [str(photos / "more" / "my red.png")]
    assert own["distance"] <= max(hit["distance"] for hit in found if hit["labels"] == ["red"])
    by_text = answered(capsys, "search", "zebra", "--index", mine)["answers"][0]["results"]
    assert [hit["name"] for hit in by_text] == ["my red.png"]  # the model has never read this word
    draw(photos / "more" / "my red.png", "green", 7)
    draw(photos / "last.png", "green", 8)
    again = answered(capsys, "index", trained, "--photos", photos, "--out", mine)
    assert [again[key] for key in ("photos", "texts", "new", "kept", "replaced", "skipped")] == [45, 45, 1, 1, 1, 1]
    assert SearchIndex(mine).codes["photos"].metadata(str(photos / "more" / "my blue.png"))["texts"] == ["a blue one"]


def test_an_index_needs_neither_run_nor_data(trained: Path, mine: Path, shop: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    recipe = (run / "experiment.toml").read_text().replace(str(shop), str(tmp_path / "gone"))
    (run / "experiment.toml").write_text(recipe)
    with pytest.raises(DataError, match="say where they are with --data"):
        load_hash_model(hashing_run(run))
    moved = load_hash_model(hashing_run(run, shop)._replace(task=hashing_run(trained).task))
    assert moved.digest == SearchIndex(mine).model.digest
    shutil.rmtree(run)
    assert search(SearchIndex(mine), [Query("red")], 1).answers[0].hits[0].labels == ("red",)


def test_texts_alone(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines.txt").write_text("red thing\n\nblue   thing\nred thing\n", encoding="utf-8-sig")
    out = tmp_path / "index"
    made = answered(capsys, "index", trained, "--texts", tmp_path / "lines.txt", "--out", out)
    assert (made["photos"], made["texts"], made["new"]) == (0, 2, 2)
    found = answered(capsys, "search", "blue", "--index", out)  # there are no photos, so texts are looked for
    assert [hit["texts"] for hit in found["answers"][0]["results"]] == [["blue thing"], ["red thing"]]
    answered(capsys, "search", "blue", "--index", out, "--find", "photos", status=2)


def test_another_model_is_refused(trained: Path, mine: Path, shop: Path) -> None:
    model = load_hash_model(hashing_run(trained))
    next(model.net.parameters()).data += 1
    before = (mine / "photos" / "codes.json").read_bytes()
    with pytest.raises(ConfigError, match="cannot be compared"):
        add(model, mine, [shop / "red00.png"])
    assert (mine / "photos" / "codes.json").read_bytes() == before


def test_pictures_in_arrays_are_kept_in_the_index(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = Hashing.example()
    experiment = Experiment(
        task, Random(1), training=Training(epochs=1, batch_size=32, lr=0.01), rounds=1, name="sample",
        evaluation=Evaluation(clients=0, holdout=0.0, every=0),
    )  # fmt: skip
    run_experiment(experiment, tmp_path / "run", engine="local")
    assert main(["index", str(tmp_path / "run")]) == 0
    index = tmp_path / "run" / "index"
    hit = answered(capsys, "search", "blue", "wave", "--index", index, "-k", 1)["answers"][0]["results"][0]
    assert Path(hit["files"][0]).is_relative_to(index) and decode(Path(hit["files"][0])).shape == (8, 8, 3)
    photos = tmp_path / "photos"
    photos.mkdir()
    draw(photos / "red.png", "red", 0)
    for arguments in (["index", tmp_path / "run", "--photos", photos], ["search", "--photo", photos / "red.png",
                                                                       "--index", index]):  # fmt: skip
        assert "features from a file" in answered(capsys, *arguments, status=2)["error"]


# ---- What is wrong


def spoilt(folder: Path, name: str, at: int = -9) -> None:
    content = bytearray((folder / name).read_bytes())
    content[at] ^= 255
    (folder / name).write_bytes(content)


@pytest.mark.parametrize("name", ["model.safetensors", "photos/codes.json", "photos/codes.bin", "texts/ids.txt"])
def test_a_damaged_index(name: str, mine: Path) -> None:
    spoilt(mine, name)
    with pytest.raises(StoreError, match=r"damaged|cannot be read"):
        search(SearchIndex(mine), [Query("red")])
    (mine / name).unlink()
    with pytest.raises(WayfareError, match=r"cannot be read|no index|damaged") if "json" not in name else (
        pytest.raises(ConfigError, match="has no photos")):  # fmt: skip
        search(SearchIndex(mine), [Query("red")], find="photos")


def test_a_damaged_model_is_written_anew(trained: Path, mine: Path, shop: Path) -> None:
    spoilt(mine, "model.safetensors")
    add(model_for(hashing_run(trained), mine), mine, [shop / "red00.png"])
    assert search(SearchIndex(mine), [Query("red")], 1).answers


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["  "], 1, "the query is empty"),
        (["?!"], 1, "has no word in it"),
        (["rad", "blu"], 1, "none of these words is known to the model: 'rad', 'blu'; nearest to them are 'blue'"),
        (["xyzzy"], 1, "it knows 'one', 'thing'"),
        ([], 2, "give the words of a query"),
        (["red", "--photo", "x.jpg"], 2, "give the words of a query"),
        (["--photo", "gone.jpg"], 1, "gone.jpg: no such file"),
        (["red", "--find", "people"], 2, "expected photos or texts"),
        (["--queries", "gone.txt"], 1, "gone.txt: no such file"),
    ],
)
def test_queries_that_cannot_be_asked(
    arguments: list[str], status: int, said: str, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in answered(capsys, "search", *arguments, "--index", whole, status=status)["error"]


def test_folders_that_are_no_index_or_no_photos(
    trained: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "places").mkdir()
    (tmp_path / "places" / "index.json").write_text("{}")
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.png").write_bytes(b"")
    for arguments, status, message in (
        (["search", "red", "--index", tmp_path / "none"], 1, "there is no index to search here"),
        (["search", "red", "--index", tmp_path / "places"], 2, "an index of places"),
        (["locate", "x.jpg", "--index", whole], 2, "wayfare search --photo"),
        (["index", trained, "--photos", tmp_path / "none"], 1, "there is no such folder"),
        (["index", trained, "--photos", tmp_path / "places", "--out", tmp_path / "o"], 1, "no photo in it"),
        (
            ["index", trained, "--photos", tmp_path / "bad", "--out", tmp_path / "o"],
            1,
            "none of the photos can be used",
        ),
        (["index", trained, "--texts", tmp_path / "empty.txt"], 1, "no text in it"),
        (["index", trained, "--texts", tmp_path / "x.csv"], 1, "no column of texts; found 'a', 'b'"),
        (["index", trained, "--database"], 2, "--database, --strangers and --precision are for runs of task places"),
    ):
        assert message in answered(capsys, *arguments, status=status)["error"], arguments
    assert not (tmp_path / "none").exists()


def test_a_model_that_knows_no_words(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = unpack(whole / "model.safetensors")
    model.task.pairs.__dict__["words"] = ()
    with pytest.raises(ConfigError, match="without the words that they stand"):
        model.of_texts(["red"])


# ---- Commands and page


def test_many_queries_and_a_page(whole: Path, shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "queries.txt").write_text("red thing\n\nxyzzy\ngreen <b>thing</b>\n")
    page = tmp_path / "page.html"
    found = answered(capsys, "search", "--queries", tmp_path / "queries.txt", "--index", whole, "--page", page)
    assert [answer["query"] for answer in found["answers"]] == ["red thing", "green <b>thing</b>"]
    assert found["answers"][1]["unknown_words"] == ["b"] and "xyzzy" in found["refused"][0]["reason"]
    assert [len(answer["results"]) for answer in found["answers"]] == [10, 10] and found["photos"] == 42
    text = page.read_text()
    assert text.count('src="data:image/jpeg') == 20 and "<b>thing" not in text and "xyzzy" in text
    assert not re.search(r'(src|href)="(?!data:|#)', text)  # nothing is fetched
    assert main(["search", "--photo", str(shop / "red01.png"), "--index", str(whole), "-k", "2"]) == 0
    told = capsys.readouterr().out
    assert "one red thing" in told and "texts of 42" in told and "encode" in told
    (tmp_path / "queries.txt").write_text("xyzzy\nplugh\n")
    assert (
        answered(capsys, "search", "--queries", tmp_path / "queries.txt", "--index", whole, status=1)["answers"] == []
    )


def test_the_page_has_what_is_known() -> None:
    results = [
        ResultShown("a.jpg", None, "", labels=(), distance=0, score=1.0),
        ResultShown("b.jpg", None, "A <i>red</i> shirt", labels=("red",), distance=1, score=0.5),
    ]
    asked = QueryShown(
        "red shrit", None, by_photo=False, find="photos", results=results, unknown=("shrit",), nearest=("shirt",)
    )
    text = page_of(SearchPage("index", "model", 32, {"photos": 2, "texts": 0}, [asked], seconds={"search": 0.5}))
    for said in ("the same code", "1 bit of 32 differ", "Not known, and left out: shrit", "Similar known words: shirt",
                 "A &lt;i&gt;red&lt;/i&gt; shirt", "no picture", "Among 2 photos."):  # fmt: skip
        assert said in text, said


def test_texts_are_read(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"")
    (tmp_path / "t.tsv").write_text("title\timage\nfirst\ta.jpg\nfirst\t../a.jpg\n\tb.jpg\n")
    found = read_texts(tmp_path / "t.tsv")
    assert found.of_texts() == {"first": [(tmp_path / "photos" / "a.jpg").resolve()]}
    assert [error.line for error in found.problems.found] == [4, 3]  # no text; points outside the folder


def test_a_shared_index_runs_no_code(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (mine / "evil.py").write_text("from pathlib import Path\nPath(__file__).with_name('canary').touch()\n")
    file = next(mine.glob("model*"))
    bundle = Bundle.unpack(file.read_bytes())
    recipe = re.sub(r'(\[strategy\]\nname = )"\w+"', r'\1"evil:Evil"', str(bundle.values["recipe"]))
    assert "evil:Evil" in recipe
    file.write_bytes(Bundle(bundle.tensors, {**bundle.values, "recipe": recipe}).pack())
    monkeypatch.chdir(mine)
    assert main(["search", "red", "--index", "."]) == 1
    assert "--allow-code evil" in " ".join(capsys.readouterr().err.split())
    assert not (mine / "canary").exists()
