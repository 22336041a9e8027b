"""The task `scenes`: parts that can be switched on, detections instead of annotated objects, and what does not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from small_graphs import random_graph
from wayfare import Evaluation, Experiment, Training, runner
from wayfare.core.bundle import Bundle, snapshot
from wayfare.core.errors import ConfigError, DataError
from wayfare.core.protocols import Client
from wayfare.core.seeds import rng_for
from wayfare.partition.random import Random
from wayfare.scenes import evaluation
from wayfare.scenes.batch import HeadOutput
from wayfare.scenes.heads.treelstm import Decoder
from wayfare.scenes.heads.trees import forest
from wayfare.scenes.models import GPSNetModel, ImpModel, MotifsModel, RelationModel, VCTreeModel
from wayfare.scenes.modes import PredCls, SGDet
from wayfare.scenes.reward import recall_of_targets
from wayfare.scenes.task import Scenes
from wayfare.strategies.fedavg import FedAvg
from wayfare.topologies.server import Server

HEADS = (ImpModel, MotifsModel, VCTreeModel, GPSNetModel)
FEW = Client("c0", np.arange(12), np.empty(0, np.int64))


def everything(task: Scenes) -> Client:
    return Client("", np.arange(task.samples), np.empty(0, np.int64))


@pytest.fixture
def scenes(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Scenes:
    monkeypatch.setenv("WAYFARE_CACHE", str(shared_cache))
    return Scenes.example()


def first_loss(task: Scenes, net: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Of the predicates alone, and what is added."""
    batch = next(iter(task.steps(net, FEW, 12, {}, rng_for(1))))
    output = task.forward(net.train(), batch)
    whole = task.loss(output, batch, {})
    assert output.logits is not None
    alone = torch.nn.functional.cross_entropy(output.logits, batch.inputs.targets)
    assert whole.item() == pytest.approx((alone + (0 if output.extra is None else output.extra)).item())
    return alone, output.extra


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Scenes(model=GPSNetModel(nps=True)), r"task\.mode = 'sgdet'"),
        (lambda: Scenes(model=ImpModel(background=True)), r"task\.mode = 'sgdet'"),
        (lambda: Scenes(model=MotifsModel(dropout=0.2)), r"task\.mode = 'sgdet'"),
        (lambda: VCTreeModel(dropout=1.0), "from 0 to below 1"),
        (lambda: VCTreeModel(tree="reinforced"), r"model\.start"),
        (lambda: GPSNetModel(layers=-1), "at least 1"),
        (lambda: Scenes(positive=0), "at least 1"),
        (lambda: Scenes(pairs=5, positive=6), r"at most task\.pairs = 5"),
    ],
)
def test_misfits_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_what_the_paper_describes_is_what_its_text_names(scenes: Scenes) -> None:
    parts = {}
    for head, mode in (
        (ImpModel, PredCls()),
        (MotifsModel, PredCls()),
        (VCTreeModel, PredCls()),
        (GPSNetModel, PredCls()),
        (GPSNetModel, SGDet()),
    ):
        presets = ("as-run", "as-described")
        nets = [replace(scenes, model=head(preset=name), mode=mode).network() for name in presets]
        names = [net.state_dict().keys() for net in nets]
        parts[head, mode] = names[1] - names[0]
    assert parts[ImpModel, PredCls()] == set()
    assert parts[MotifsModel, PredCls()] == {"pairing.frequency.table"}
    assert parts[VCTreeModel, PredCls()] == {"pairing.frequency.table", "scores.prior"}
    assert parts[GPSNetModel, PredCls()] == parts[GPSNetModel, SGDet()]
    assert {n for n in parts[GPSNetModel, PredCls()] if not n.startswith("layers.1.")} == {
        "trust.weight",
        "trust.bias",
        "log_frequency",
    }
    for model in (GPSNetModel(layers=2), GPSNetModel(preset="as-described")):
        assert len(replace(scenes, model=model).network().layers) == 2
    assert replace(scenes, model=MotifsModel(order="left-right")).network().order == "left-right"


def test_word_vectors_make_labels_as_wide_as_they_are(scenes: Scenes, tmp_path: Path) -> None:
    name = scenes.loaded.train.truth.classes[3]
    (tmp_path / "v.txt").write_text(f"the 0 0 0\n{max(name.split(), key=len)} 1 2 3\n")
    net = replace(scenes, model=MotifsModel(word_vectors=str(tmp_path / "v.txt"))).network()
    assert net.labels.weight.shape[1] == 3 and net.labels.weight[3].tolist() == [1, 2, 3]
    (tmp_path / "v.txt").write_text("")
    with pytest.raises(DataError, match="no word and numbers"):
        replace(scenes, model=MotifsModel(word_vectors=str(tmp_path / "v.txt"))).network()


def test_a_reward_by_hand() -> None:
    """Four related pairs: one guessed first, one last, one wrong; the image without relations gets 0."""
    graph = random_graph(0, 3, 6)
    targets = torch.tensor([1, 0, 2, 3, 0, 1])
    graph = replace(graph, targets=targets, sizes=graph.sizes.repeat(2, 1))
    sure = [5.0, 4.0, 1.0, 3.0, 2.0, 0.5]
    guessed = [1, 1, 2, 1, 3, 1]
    logits = torch.zeros(6, 4)
    logits[torch.arange(6), torch.tensor(guessed)] = torch.tensor(sure)
    said = HeadOutput(logits, logits)
    assert recall_of_targets(graph, said).tolist() == [0.75, 0]
    assert recall_of_targets(graph, said, most=5).tolist() == [0.5, 0]
    assert recall_of_targets(graph, said, most=4).tolist() == [0.25, 0]


def test_reinforcement_starts_from_a_run_and_changes_scores_alone(scenes: Scenes, tmp_path: Path) -> None:
    task = replace(scenes, model=VCTreeModel())
    begun = task.network()
    (tmp_path / "model.safetensors").write_bytes(Bundle({"model": snapshot(begun)}).pack())
    net = replace(task, model=VCTreeModel(tree="reinforced", start=str(tmp_path))).network()
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, begun.state_dict()[name]), name
    assert {n.split(".")[0] for n, p in net.named_parameters() if p.requires_grad} == {"scores"}
    assert net.reward is recall_of_targets
    with pytest.raises(ConfigError, match="weights of another network"):
        replace(scenes, model=MotifsModel(start=str(tmp_path))).network()
    with pytest.raises(ConfigError, match="name a finished run's folder"):
        replace(scenes, model=MotifsModel(start=str(tmp_path / "nothing"))).network()


# ---- SGDet


def detections_of(task: Scenes, file: Path) -> dict:
    """A detector that is right, but misses everything in the last test picture and calls one object wrong."""
    everything = {}
    for part in (task.loaded.train.truth, task.loaded.test.truth):
        for place in range(len(part)):
            scene = part[place]
            found = [{"label": int(c), "box": b.tolist(), "score": 0.9} for c, b in zip(scene.labels, scene.boxes)]
            everything[scene.image_id] = found
    everything[task.loaded.test.truth.image_ids[-1]] = []
    file.write_text(json.dumps(everything))
    return everything


@pytest.mark.parametrize("head", HEADS)
def test_detections_are_learned_and_judged(scenes: Scenes, head: type[RelationModel], tmp_path: Path) -> None:
    detections_of(scenes, tmp_path / "found.json")
    task = replace(scenes, model=head(), mode=SGDet(str(tmp_path / "found.json")))
    torch.manual_seed(0)
    net = task.network()
    _, extra = first_loss(task, net)
    assert extra is not None and extra.item() > 1  # of classes: about log of their number
    extra.backward()
    named = {n for n, p in net.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert any(n.startswith(("label_out", "decoder")) for n in named)
    usual, paper = (
        one.evaluate(net, None) | one.baseline(one.counts(everything(one)))
        for one in (task, replace(task, as_paper=True))
    )
    images = len(task.loaded.test.truth)
    for name in ("R@100", "ngR@100", "frequency R@20", "frequency ngR@50"):
        assert paper[name] * (images - 1) == pytest.approx(usual[name] * images)  # the empty one counts 0, or not
    assert "SGDet on found.json, boxes" in task.protocol


def test_annotated_segments_are_their_own_detections(scenes: Scenes) -> None:
    """By boxes the baseline finds at least what it finds by the very objects, and training has the same pairs."""
    task = replace(scenes, mode=SGDet())
    given, found = (one.baseline(one.counts(everything(one))) for one in (scenes, task))
    assert found["frequency R@20"] >= given["frequency R@20"] > 0.1
    assert found["frequency ngR@20"] >= given["frequency ngR@20"]
    graphs, own = (one._graphs(np.arange(6), rng_for(0)) for one in (task, scenes))
    assert graphs.true_labels.tolist() == own.labels.tolist() == graphs.labels.tolist()
    related = {tuple(pair) for pair in graphs.pairs[graphs.targets > 0].tolist()}
    assert {tuple(pair) for pair in own.pairs[own.targets > 0].tolist()} <= related


def test_objects_that_are_found_twice_count_once_by_one_mask_for_each(scenes: Scenes, tmp_path: Path) -> None:
    """The second finding of an object, less sure, takes places among the best guesses; without it all is as before."""
    found = detections_of(scenes, tmp_path / "once.json")
    twice = {name: [*some, *({**one, "score": 0.8} for one in some)] for name, some in found.items()}
    (tmp_path / "twice.json").write_text(json.dumps(twice))
    tasks = [replace(scenes, mode=SGDet(str(tmp_path / name))) for name in ("once.json", "twice.json")]
    once, double = (one.baseline(one.counts(everything(scenes))) for one in tasks)
    assert once["frequency single R@20"] == pytest.approx(once["frequency R@20"])
    assert double["frequency single R@20"] == pytest.approx(once["frequency R@20"])
    assert double["frequency R@20"] < once["frequency R@20"]


def test_nps_stands_in_the_place_of_the_loss_of_labels(scenes: Scenes) -> None:
    torch.manual_seed(0)
    task = replace(scenes, model=GPSNetModel(background=True), mode=SGDet())
    weights = task.network().state_dict()
    losses = []
    models = (GPSNetModel(background=True), GPSNetModel(background=True, nps=True))
    for model in (*models, GPSNetModel(preset="as-described", layers=1)):
        other = replace(task, model=model)
        net = other.network()
        net.load_state_dict(weights, strict=False)
        losses.append(first_loss(other, net)[1].item())
    assert 0 < losses[1] == losses[2] < losses[0]  # each object's loss times a number below 1


@pytest.mark.parametrize("head", HEADS)
def test_what_is_no_annotated_object_learns_to_be_background(scenes: Scenes, head: type[RelationModel]) -> None:
    task = replace(scenes, model=head(preset="as-described"), mode=SGDet())
    net = task.network()
    graphs = task._graphs(np.arange(6), rng_for(0))
    strange = replace(graphs, truth=torch.full_like(graphs.labels, -1))
    torch.manual_seed(0)
    logits = net.train()(strange).objects
    classes = len(task.loaded.train.truth.classes)
    assert logits.shape[1] == classes + 1
    assert task.model.names(logits, strange).tolist() == [classes] * len(graphs.labels)
    assert task.model.names(logits, graphs).tolist() == graphs.labels.tolist()
    # it is never a guess: however likely the background is, each object is called by a class
    with torch.no_grad():
        next(p for n, p in net.named_parameters() if n.endswith(("label_out.bias", "decoder.out.bias")))[-1] = 99
    found = evaluation.guesses(net, task.loaded.provider, task.loaded.test.scenes)
    assert max(one.scores.max() for one in found) < 1e-6


def test_the_decoder_drops_the_same_numbers_along_a_line() -> None:
    torch.manual_seed(0)
    decoder = Decoder(3, 50, torch.zeros(4, 2), dropout=0.5)
    with torch.no_grad():  # logits that are the states
        decoder.out = torch.nn.Linear(50, 50, bias=False)
        decoder.out.weight.copy_(torch.eye(50))
    # a line of three objects, and one of two
    forest_of = forest(np.array([1, 2, -1, 4, -1]), np.full(5, -1), torch.device("cpu"))
    choose = lambda logits, nodes: torch.zeros(len(nodes), dtype=torch.int64)  # noqa: E731
    states, _ = decoder(torch.randn(5, 3), forest_of, choose)
    dropped = states == 0
    assert torch.equal(dropped[0], dropped[1]) and torch.equal(dropped[0], dropped[2])
    assert torch.equal(dropped[3], dropped[4]) and not torch.equal(dropped[0], dropped[3])
    assert 0.25 < float(dropped[0].float().mean()) < 0.75
    assert not (decoder.eval()(torch.randn(5, 3), forest_of, choose)[0] == 0).any()


def test_predcls_may_match_by_class_and_overlap(scenes: Scenes) -> None:
    """As in SGDet on the annotated segments: no less than what the very objects have."""
    tasks = (scenes, replace(scenes, mode=PredCls("boxes")), replace(scenes, mode=SGDet()))
    exact, boxes, detected = (one.baseline(one.counts(everything(one))) for one in tasks)
    assert boxes.items() <= detected.items() and boxes["frequency R@20"] >= exact["frequency R@20"]
    assert tasks[1].protocol.startswith("PredCls, boxes at IoU 0.5")


def test_pictures_without_two_objects_are_not_trained_on(scenes: Scenes, tmp_path: Path) -> None:
    found = detections_of(scenes, tmp_path / "found.json")
    for image_id in scenes.loaded.train.truth.image_ids[:5]:
        found[image_id] = found[image_id][:1]
    (tmp_path / "found.json").write_text(json.dumps(found))
    task = replace(scenes, mode=SGDet(str(tmp_path / "found.json")))
    net = task.network()
    [batch] = task.steps(net, FEW, 12, {}, rng_for(0))
    assert batch.inputs.images == 7
    assert [len(task.forward(net.eval(), one).features["relation"]) for one in task.scan(net, FEW)] == [12]


def test_masks_of_the_towns_panoptic_pictures(scenes: Scenes) -> None:
    """Each segment is itself: masks find what boxes find, or more exactly no less than the very objects."""
    task = replace(scenes, mode=SGDet(overlap="masks"))
    masks, objects = (one.baseline(one.counts(everything(one)))["frequency R@20"] for one in (task, scenes))
    assert masks >= objects
    overlaps = task.mode.overlaps(task.loaded.test)
    assert overlaps is not None and overlaps.max() == 1


def test_a_run_with_detections(scenes: Scenes, tmp_path: Path) -> None:
    detections_of(scenes, tmp_path / "found.json")
    task = replace(scenes, mode=SGDet(str(tmp_path / "found.json")), model=ImpModel())
    training = Training(batch_size=8, lr=0.02, clip=35.0)
    runs = [
        runner.run(
            Experiment(
                task,
                Random(4),
                FedAvg(),
                topology=Server(2),
                training=training,
                evaluation=Evaluation(every=1),
                rounds=1,
            ),
            tmp_path / str(number),
            "local",
        )
        for number in range(2)
    ]
    assert runs[0]["model_sha256"] == runs[1]["model_sha256"]
    assert {"test/R@20", "test/ngR@20", "test/ngmR@100", "test/frequency ngR@20"} <= runs[0]["metrics"].keys()
