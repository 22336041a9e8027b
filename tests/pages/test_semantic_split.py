"""What is told of a semantic partition: the record by hand, the words, the page, `wayfare split`; and its sources."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from wayfare.attributes.categories import attribute_categories
from wayfare.attributes.table import AttributeTable
from wayfare.cli import main
from wayfare.core.errors import ConfigError, DataError
from wayfare.core.protocols import Task
from wayfare.pages.dataset_parts import Picture
from wayfare.pages.partition import write_partition
from wayfare.pages.semantic_split import SceneBox, drawing, level_rows, semantic_tables, stored_part
from wayfare.pages.thumbnails import PictureSource, Thumbnails
from wayfare.partition import semantic, semantics
from wayfare.partition.centroids import read_centroids
from wayfare.partition.semantic import Clusters, Semantic, clusters_of
from wayfare.partition.semantic_stats import semantics_of, summaries
from wayfare.partition.semantics import Categories, as_categories, count
from wayfare.partition.split import load_split
from wayfare.partition.summary import summarise_split
from wayfare.scenes.categories import scene_categories
from wayfare.scenes.data import psg
from wayfare.scenes.data.scene_data import PsgScenes
from wayfare.scenes.task import Scenes

SHARED = Path(os.environ.get("WAYFARE_SHARED") or Path(__file__).parents[3] / "shared") / "data" / "scenes"
DOCS = Path(__file__).parents[2] / "docs" / "scenes-splits.md"
RECIPE = """
[data]
name = "psg"
path = "{path}"
test = 1
[task]
name = "scenes"
[partition]
name = "semantic"
clients = 2
clusters = {clusters}
most = 3
rule = "shard"
"""
FROM_FILE = """
[partition]
name = "file"
path = "split.bin"
"""


def write_graphs(folder: Path) -> Path:
    """Twelve pictures in turns: a dog on grass, or a person who holds a ball; the first has its photograph."""
    kinds = (([0, 1], [[0, 1, 0]]), ([2, 3], [[0, 1, 1]]))
    data = [
        {
            "file_name": f"{number}.png",
            "image_id": f"<i>{number}",
            "height": 60,
            "width": 80,
            "annotations": [{"bbox": [0, 10, 40, 50], "category_id": a}, {"bbox": [20, 20, 80, 60], "category_id": b}],
            "relations": relations * (1 + number % 3),
        }
        for number, ((a, b), relations) in ((number, kinds[number % 2]) for number in range(13))
    ]
    words = {"thing_classes": ["dog", "grass-merged", "person", "ball"], "predicate_classes": ["on", "holding"]}
    (folder / "psg.json").write_text(json.dumps({"data": data, "stuff_classes": [], **words}))
    Image.fromarray(np.full((60, 80, 3), 90, np.uint8)).save(folder / "0.png")
    return folder


class Pictures(Task):
    """A task of pictures that only have categories."""

    sources = frozenset({"categories"})

    def __init__(self, categories: Categories) -> None:
        self.categories = categories

    def source(self, name: str) -> Categories:
        return self.categories


def record(folder: Path, **settings: Any) -> dict[str, Any]:
    """What is told of a split of these pictures."""
    data = scene_categories(psg.load(write_graphs(folder), drop=("duplicates",)))
    split = Semantic(2, **{"rule": "shard", "clusters": 2, **settings})(data, np.random.default_rng(0))
    return summarise_split(split, Pictures(data))


def test_the_record_by_hand(tmp_path: Path) -> None:
    told = record(tmp_path)["semantics"]
    assert json.loads(json.dumps(told)) == told
    # 7 pictures of a dog, 6 of a person; 6 of each are dealt out, a cluster to each client
    assert told["counts"] == [[6, 0], [0, 6]] and told["ids"] == ["c0", "c1"] and told["unit"] == "relations"
    expected = {"entropy": 0.0, "total_variation": 0.5, "largest_share": 1.0}
    assert told["heterogeneity"]["cluster"] == {"classes": 2, **expected}
    # every client has one predicate, and two kinds of objects of four, alike
    assert told["heterogeneity"]["predicate"] == {"classes": 2, **expected}
    assert told["heterogeneity"]["object"] == {
        "classes": 4, "entropy": pytest.approx(0.5), "total_variation": 0.5, "largest_share": 0.5,
    }  # fmt: skip
    dogs, people = told["clusters"]
    assert (dogs["size"], people["size"], dogs["mean_sum"]) == (7, 6, 1.0)
    assert dogs["top"] == [{"cell": "dog - on - grass-merged", "value": 1.0}]
    assert people["typical"] == [{"cell": "person - holding - ball", "value": pytest.approx(7 / 13)}]
    first = dogs["examples"][0]
    assert (first["sample"], first["id"], first["words"]) == (0, "<i>0", ["dog on grass"])
    assert first["picture"] == str(tmp_path / "0.png") and "picture" not in dogs["examples"][1]
    assert first["drawing"] == {
        "size": [60, 80], "names": ["dog", "grass"], "relations": [[0, "on", 1]],
        "boxes": [[0, 10, 40, 50], [20, 20, 80, 60]],
    }  # fmt: skip


def test_clusters_are_not_sought_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = scene_categories(psg.load(write_graphs(tmp_path)))
    split = Semantic(2, clusters=2)(data, np.random.default_rng(0))
    again = load_split(split.pack())
    assert np.array_equal(clusters_of(again, data).labels, clusters_of(split, data).labels)
    assert semantics_of(again, data) == semantics_of(split, data)
    monkeypatch.setattr(semantic, "_k_means", None)
    assert clusters_of(split, data) is split.found and semantics_of(split, data)["clusters"]
    with pytest.raises(TypeError):
        clusters_of(again, data)


def test_in_words(tmp_path: Path) -> None:
    told = record(tmp_path, clusters=0, most=3)["semantics"]
    assert level_rows(told)[0] == ("cluster", "2", "0.000", "0.500", "1.000")
    shown = Console(file=io.StringIO(), width=120)
    for item in semantic_tables(told):
        shown.print(item)
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    for words in (
        "predicate         2     0.000             0.500           1.000",
        "2                    1.000",  # the silhouette of two clusters without any spread
        "2 were chosen",
        "cluster 1   7 samples, 53.8%, 1.0 relations per sample",
        "frequent 1.00  dog - on - grass-merged",
        "typical  +0.54  person - holding - ball",
        "examples <i>1, <i>3",
    ):
        assert words in text, text


def opened(file: str, side: int) -> Picture | None:
    return Thumbnails().picture(PictureSource(Path(file), ""), side)


def test_the_page(tmp_path: Path) -> None:
    summary = record(tmp_path)
    text = write_partition(summary, tmp_path / "page.html", opened).read_text()
    for words in ("semantic, 2 clients", "total variation", "7 samples · 53.8% · 1.0 relations", "person holding ball"):
        assert words in text
    assert text.count("<article>") == 2 and text.count("<img") == 1 and text.count("<svg viewBox") == 7
    assert "<i>0" not in text and "&lt;i&gt;0" in text
    # a run's record may come from elsewhere: no file that it names is opened
    stored = stored_part(json.loads(json.dumps(summary)))
    assert stored is not None and [figure.id for figure in stored.figures] == ["clusters-picture"]
    examples = [example for cluster in stored.clusters for example in cluster.examples]
    assert len(examples) == 8 and all(example.drawing and example.photo is None for example in examples)
    (tmp_path / "0.png").write_bytes(b"no picture")
    assert "<img" not in write_partition(summary, tmp_path / "page.html", opened).read_text()


@pytest.mark.parametrize(
    "change",
    [
        {"clusters": 3},
        {"clusters": [{}]},
        {"heterogeneity": []},
        {"silhouettes": 1},
        {"ids": 4, "counts": [[1, 1]]},
        {"clusters": [{"name": "", "size": "x", "share": "", "mean_sum": 0, "top": [], "typical": [], "examples": []}]},
    ],
)
def test_a_damaged_record_shows_nothing(change: dict[str, Any], tmp_path: Path) -> None:
    summary = record(tmp_path)
    assert stored_part({**summary, "semantics": summary["semantics"] | change}) is None
    assert stored_part({}) is None


def test_boxes_by_hand() -> None:
    """A picture 50 wide and 100 high is drawn 120 wide and 240 high, in the middle of 320: 2.4 pixels for each."""
    graph = {
        "size": [100, 50],
        "names": ["a", "b"],
        "boxes": [[0, 0, 10, 10], [25, 50, 90, 90]],
        "relations": [[0, "x", 1]],
    }
    drawn = drawing(graph, "words")
    assert drawn.boxes == [
        SceneBox("100.0", "0.0", "120.0", "240.0", kind="frame"),
        SceneBox("100.0", "0.0", "24.0", "24.0", colour="c1"),
        SceneBox("160.0", "120.0", "60.0", "96.0", colour="c2"),  # cut at the picture's edge
    ]
    assert drawn.arrows == [("112.0", "12.0", "190.0", "168.0")]


def test_wayfare_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipe.toml").write_text(RECIPE.format(path=write_graphs(tmp_path).as_posix(), clusters=0))
    assert main(["split", "recipe.toml", "--json", "--out", "page.html"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["semantics"]["heterogeneity"]["cluster"]["total_variation"] == 0.5
    assert told["semantics"]["silhouettes"] == {"2": 1.0}  # no more different samples for a third
    assert "silhouettes" in Path(told["page"]).read_text()
    assert main(["split", "recipe.toml", "--set", "partition.clusters=2", "--save", "split.bin"]) == 0
    assert "relations per sample" in capsys.readouterr().out
    Path("again.toml").write_text(Path("recipe.toml").read_text().split("[partition]")[0] + FROM_FILE)
    assert main(["split", "again.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["semantics"]["counts"] == told["semantics"]["counts"]


#### Where categories come from


def test_a_tensor_of_very_many_cells_is_a_row_of_those_used(monkeypatch: pytest.MonkeyPatch) -> None:
    sample, places = np.array([0, 1, 1]), np.array([[2, 1], [0, 0], [2, 1]])
    axes = [["a", "b", "c"], ["x", "y"]]
    whole = count(3, sample, places, axes)
    monkeypatch.setattr(semantics, "MOST_CELLS", 5)
    found = count(3, sample, places, axes)
    assert (found.names, found.axes) == (("a - x", "c - y"), ())
    assert found.values.tolist() == whole.values[:, [0, 5]].tolist() == [[0, 1], [1, 1], [0, 0]]
    monkeypatch.setattr(semantics, "MOST_VALUES", 5)
    with pytest.raises(
        ConfigError, match=r"3 x 2 = 6 cells, 2 of them used by 3 samples, would take 0\.00 GB.*super-classes"
    ):
        count(3, sample, places, axes)


def test_groups_of_scenes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def task(groups: str = "") -> Scenes:
        return Scenes(data=PsgScenes(path=str(tmp_path), test=1, super_classes=groups))

    write_graphs(tmp_path)  # "ball" is no class of PSG's
    assert task().loaded.categories.axes[2] == ("on", "holding") and len(task().loaded.categories.names) == 4 * 4 * 2
    with pytest.raises(DataError, match="no group holds 'ball'"):
        _ = task("paper").loaded.categories
    words = {
        "categories": {"Being": ["dog", "person"], "Thing": ["grass-merged", "ball"]},
        "relations": {"R": ["on", "holding"]},
    }
    (tmp_path / "word_categorized.json").write_text(json.dumps(words))
    assert task().loaded.categories.names[1] == "Being - R - Thing" and len(task("none").loaded.categories.names) == 32
    (tmp_path / "word_categorized.json").unlink()
    text = (tmp_path / "psg.json").read_text()
    (tmp_path / "psg.json").write_text(text.replace('"ball"', '"sports ball"'))  # now they all are
    assert task().loaded.categories.axes == task("paper").loaded.categories.axes == read_centroids("paper").axes
    monkeypatch.setattr(semantics, "MOST_VALUES", 5)
    with pytest.raises(ConfigError, match=r"would take .* GB.* name their file in data\.super_classes"):
        _ = task("none").loaded.categories


def test_labels_of_which_a_sample_has_several() -> None:
    table = np.array([[1, 0, 1], [0, 1, 0]], bool)
    found = as_categories(table, names=("dog", "cat", "snow"))
    assert found.names == ("dog", "cat", "snow") and found.levels["label"].counts.tolist() == table.tolist()
    with pytest.raises(ConfigError, match="none may be below 0"):
        as_categories(-table.astype(int), names=("dog", "cat", "snow"))


def test_examples_of_attributes(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "1.jpg")
    files = np.array(["0.jpg", "1.jpg"], object)
    table = AttributeTable(("Smiling", "Bald"), files, np.array([[1, 0], [1, 1]], bool), folder=tmp_path)
    faces = attribute_categories(table)
    assert faces.example is not None and faces.example(0) == ("0.jpg", ("Smiling",), None, None)
    assert faces.example(1) == ("1.jpg", ("Smiling", "Bald"), tmp_path / "1.jpg", None)
    [whole] = summaries(faces, Clusters(np.zeros(2, int), np.zeros((1, 2)), ("all",), 0.0))
    assert whole["mean_sum"] == 1.5 and whole["top"] == [{"cell": "Smiling", "value": 1.0}]  # one and two attributes


def test_real_relations_without_groups() -> None:
    """VRD: 100 x 100 x 70 cells, of which few occur."""
    file = SHARED / "vrd_psg_like.json.gz"
    if not file.is_file():
        pytest.skip(f"{file} is absent: set WAYFARE_SHARED to the folder that holds data/scenes")
    graphs = psg.load(file)
    data = scene_categories(graphs)
    assert data.values.shape == (4735, 7735) and data.axes == () and "person - wear - shirt" in data.names
    data = scene_categories(graphs.select(np.arange(800)))
    split = Semantic(10, "shard", clusters=3, n_init=1)(data, np.random.default_rng(0))
    told = semantics_of(split, data)
    assert (
        told["heterogeneity"]["cluster"]["entropy"] == 0 and told["heterogeneity"]["predicate"]["total_variation"] > 0.1
    )


def test_the_example_in_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = [part.split("```")[0] for part in DOCS.read_text().split("```python\n")[1:]]
    exec(compile("\n".join(blocks), str(DOCS), "exec"), {"__name__": "docs"})
    assert "total_variation" in capsys.readouterr().out
    assert isinstance(as_categories(np.zeros((2, 2))), Categories)


#### Bad annotations


def test_data_check_tells_of_every_bad_annotation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads((write_graphs(tmp_path) / "psg.json").read_text())
    (tmp_path / "0.png").unlink()
    data = content["data"] = content["data"][:6:2]
    data[0]["relations"] = [[0, 1, 0], [0, 1, 0], [1, 1, 0], [0, 7, 0]]  # twice the same; with itself; to nothing
    data[1]["annotations"][1]["category_id"] = 9
    data[2]["annotations"][0]["bbox"] = [-5, 10, 40, 70]
    (tmp_path / "psg.json").write_text(json.dumps(content))
    assert main(["data", "check", str(tmp_path), "--json"]) == 1
    [found] = json.loads(capsys.readouterr().out)["found"]
    told = {problem["field"]: problem["text"] for problem in found["problems"]}
    for field, what in (
        ("data[0].relations[3]", "[0, 7, 0], but the picture has 2 objects"),
        ("data[1].annotations[1].category_id", "9, but there are 4 classes"),
        ("data[2].annotations[0].bbox", "[-5, 10, 40, 70] reaches beyond the picture: cut off"),
    ):
        assert what in told.pop(field)
    assert not told
    assert found["counts"]["self-relations"] == 1 and found["counts"]["repeated triplets"] >= 1
    assert found["counts"]["images"] == 2  # the one with the unknown class is left out
