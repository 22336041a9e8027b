"""wayfare explain-traffic: what it says leaves a device is what a run counts."""

import json
from dataclasses import replace

import pytest

from faults import tiny
from wayfare.cli import main
from wayfare.core.bundle import Bundle
from wayfare.experiment import Evaluation, Experiment
from wayfare.hashing.shdch import SHDCH
from wayfare.hashing.task import Hashing
from wayfare.partition.random import Random
from wayfare.places.backbones import SmallCnnBackbone
from wayfare.places.model import PlaceModel
from wayfare.places.task import Places
from wayfare.runner import run
from wayfare.strategies.centralised import Centralised
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedcafe import FedCAFE
from wayfare.strategies.fedproto import FedProto
from wayfare.strategies.local import Local
from wayfare.strategies.scaffold import Scaffold
from wayfare.traffic import explain


class Talkative(FedAvg):
    """Sends something that nobody has words for."""

    def client(self, device, message):
        reply = super().client(device, message)
        return Bundle({**reply.tensors, "diary": {"x": reply["model"]["head.bias"]}}, {**reply.values, "mood": 1.0})


@pytest.mark.parametrize(
    ("strategy", "sections"),
    [
        (FedAvg(), {"model"}),
        (Scaffold(), {"model", "control"}),
        (FedProto(), {"prototypes", "counts"}),
        (Local(), set()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_bytes_and_sections_are_those_of_a_run(strategy, sections, tmp_path):
    experiment = tiny(strategy, clients=4, rounds=1)
    found = explain(experiment)
    [message] = found["messages"]  # nobody judges in this experiment
    assert run(experiment, tmp_path / "run", "local")["bytes_up"] == 4 * message["bytes"]
    assert {tensor["section"] for tensor in message["tensors"]} == sections == message["reveals"].keys()
    assert {"n", "loss", "steps", "round"} <= message["values"].keys()


def test_shapes_by_hand():
    [message] = explain(tiny(FedAvg()))["messages"]
    head = next(tensor for tensor in message["tensors"] if tensor["name"] == "head.weight")
    assert head == {"section": "model", "name": "head.weight", "shape": [10, 4], "type": "float32", "bytes": 160}
    # six values of 8 bytes: n, steps, loss, round, cold, kept
    assert message["bytes"] == sum(tensor["bytes"] for tensor in message["tensors"]) + 6 * 8


def test_judges_are_said_to_send_figures_only():
    found = explain(tiny(FedAvg(), evaluation=Evaluation(test=False)))
    judged = found["messages"][1]
    assert not judged["tensors"] and "metric/accuracy" in judged["values"]


def test_a_pooled_strategy_is_said_to_take_everything():
    found = explain(tiny(Centralised()))
    assert found["pooled"] and not found["messages"] and not found["stays"]
    assert "everything leaves" in found["caution"][0]


@pytest.mark.parametrize(
    ("task", "strategy", "parts"),
    [
        (replace(Hashing.example(), base=SHDCH()), FedCAFE(), {"model/memory", "model/class_codes"}),
        (Hashing.example(), FedAvg(), set()),
        (replace(Places.example(), model=PlaceModel(SmallCnnBackbone(4), whiten=0.5)), FedAvg(), {"model/whitening"}),
    ],
)
def test_what_is_more_than_weights_is_named(task, strategy, parts):
    experiment = Experiment(task, Random(2), strategy, evaluation=Evaluation(clients=0, test=False), rounds=1)
    [message] = explain(experiment)["messages"]
    assert message["reveals"].keys() == {"model"} | parts


def test_what_is_unknown_is_assumed_to_reveal_samples():
    [message] = explain(tiny(Talkative()))["messages"]
    assert "assume that it reveals them" in message["reveals"]["diary"] and "mood" in message["values"]


def test_the_command(capsys):
    assert main(["explain-traffic", "quickstart", "--set", "model.width=2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["strategy"] == "fedavg"
    assert main(["explain-traffic", "quickstart", "--set", "model.width=2"]) == 0
    shown = capsys.readouterr().out
    assert "head.weight" in shown and "stays on the device" in shown and "gradients" in shown
