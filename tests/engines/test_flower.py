"""The engine on Flower: its records, its order, its failures and memories in one process, and its simulation over Ray.

Most of it runs on nodes that are plain function calls. What needs Ray takes half a minute to start, once.
"""

import math
import os
import time
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch

from amount import FULL
from faults import Dies, Fails, go, outcome, rounds, tiny
from tour_parts import written
from wayfare import Evaluation
from wayfare.clock.drawn import Drawn
from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError, DeviceError, StoreError, WayfareError
from wayfare.core.memory import Memories
from wayfare.core.protocols import Failure
from wayfare.encounters.policies.always import Always
from wayfare.encounters.topology import Encounters
from wayfare.engines.flower.engine import Flower
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.moon import Moon
from wayfare.strategies.scaffold import Scaffold
from wayfare.topologies.buffered import Buffered

needs_flower = pytest.mark.skipif(find_spec("flwr") is None, reason="Flower is not installed: wayfare[flower]")


def ray(test):
    """Needs Ray, which leaves files open."""
    there = find_spec("flwr") is not None and find_spec("ray") is not None
    test = pytest.mark.skipif(not there, reason="Flower and Ray are not installed: wayfare[flower]")(test)
    return pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")(
        test
    )


BUNDLE = Bundle(
    {
        "model": {
            "z.weight": torch.arange(12.0).view(3, 4).T,  # not contiguous, and before "a"
            "a": torch.tensor(-0.0),
            "half": torch.tensor([1.5, math.pi], dtype=torch.bfloat16),
        },
        "odd//name": {"none": torch.empty(0, 3, dtype=torch.int64), "mask": torch.tensor([True, False])},
        "empty": {},
    },
    {"n": 3, "loss": 3.0, "cold": True, "tiny": 5e-324, "text": "naïve", "large": 2**63 - 1, "values": 0, "": ""},
)


class Nodes:
    """A link to nodes that are calls of the app, answered when looked for: the last asked first."""

    workers, nap, ours, place = 2, 0.0, True, ""

    def __init__(self):
        from wayfare.deploy.client_app import app

        self.grid, self.app, self.answered = self, app, []
        self.waiting, self.contexts, self.homes, self.ended = {}, {}, {}, 0

    def node_of(self, device):
        return self.homes.setdefault(device, len(self.homes) + 1)

    def push_messages(self, messages):
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(len(self.waiting) + len(self.answered))
            self.waiting[message.metadata.message_id] = message
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, ids):
        if not self.waiting:
            return []
        _, message = self.waiting.popitem()
        self.answered.append(message)
        return [self.reply(message)]

    def reply(self, message):
        return self.app(message, self.context(message.metadata.dst_node_id))

    def context(self, node):
        from flwr.app import Context, RecordDict

        return self.contexts.setdefault(node, Context(1, node, {}, RecordDict(), {}))

    def check(self):
        pass

    def begin(self):
        return ""

    def end(self, sign_in):
        self.ended += 1
        self.waiting.clear()

    def close(self):
        pass


@pytest.fixture
def nodes(monkeypatch):
    """Nodes in this process. Flower's messages want to know who they are from."""
    from flwr.supercore.task_identity import TaskIdentity

    for name, value in (("_run_id", 1), ("_node_id", 1), ("_task_id", 1)):
        monkeypatch.setattr(TaskIdentity, name, value)
    return Nodes()


@pytest.fixture(scope="module")
def simulation(tmp_path_factory):
    """In a folder with files that are called like libraries: nobody imports them."""
    folder = tmp_path_factory.mktemp("unpacked")
    for name in ("flwr", "json", "numpy", "struct", "torch", "wayfare"):
        (folder / f"{name}.py").write_text(f"open({str(folder / 'canary')!r}, 'a').write(__name__)")
    with pytest.MonkeyPatch.context() as patch, Flower(2) as engine:
        patch.chdir(folder)
        yield engine
    assert not (folder / "canary").exists()


# ---- records


def wire(records):
    """What arrives at the other end of a deployed Flower: it takes messages apart and puts them together again."""
    from flwr.app import RecordDict
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

    sent = RecordDict(records)
    contents = {id: part.deflate() for id, part in get_all_nested_objects(sent).items()}
    size = sum(map(len, contents.values()))
    return inflate_object_from_contents(sent.object_id, contents), size


@needs_flower
def test_a_bundle_arrives_as_it_was_sent():
    from wayfare.engines.flower import records

    got = records.read(wire(records.write(BUNDLE))[0])
    assert list(got.tensors) == list(BUNDLE.tensors)
    for section, weights in BUNDLE.tensors.items():
        assert list(got[section]) == list(weights)
        for name, tensor in weights.items():
            assert got[section][name].dtype == tensor.dtype and got[section][name].shape == tensor.shape
            assert torch.equal(got[section][name], tensor)
    assert math.copysign(1, got["model"]["a"]) == -1
    got["model"]["z.weight"].add_(1)  # may be written to
    assert got.values == BUNDLE.values
    assert [type(value) for value in got.values.values()] == [type(value) for value in BUNDLE.values.values()]


@needs_flower
def test_ten_megabytes_cost_less_than_a_twentieth_more():
    from wayfare.engines.flower import records

    model = {f"layer{i}.weight": torch.randn(41_000) for i in range(61)}  # 10 MB in as many tensors as a ResNet has
    _, size = wire(records.write(Bundle({"model": model})))
    assert 61 * 41_000 * 4 < size < 1.05 * 61 * 41_000 * 4


@needs_flower
def test_a_section_that_goes_to_many_is_written_once():
    from wayfare.engines.flower.records import Writer

    writer, model = Writer(), {"w": torch.ones(2)}
    first, second = writer.write(Bundle({"model": model}, {"n": 1})), writer.write(Bundle({"model": model}, {"n": 2}))
    assert first["tensors/model"] is second["tensors/model"] and second["values"]["n"] == 2
    assert writer.write(Bundle({"model": dict(model)}))["tensors/model"] is not first["tensors/model"]


@needs_flower
@pytest.mark.parametrize(
    "dtype, shape, stype, data, wrong",
    [
        ("float32", (2,), "wayfare.tensor", bytes(7), "7 bytes"),
        ("float32", (10**12,), "wayfare.tensor", bytes(4), "4 bytes"),  # must not be allocated
        ("float32", (-1, -2), "wayfare.tensor", bytes(8), r"\(-1, -2\)"),
        ("object", (1,), "wayfare.tensor", bytes(8), "'object'"),
        ("float32", (0,), "wayfare.tensor", bytes(9), "9 bytes"),
        ("float32", (1,), "numpy.ndarray", bytes(4), "numpy.ndarray"),
    ],
)
def test_arrays_that_are_not_what_they_say_are_refused(dtype, shape, stype, data, wrong):
    from flwr.app import Array, ArrayRecord

    from wayfare.engines.flower import records

    sent = records.write(Bundle()) | {"tensors/model": ArrayRecord({"w": Array(dtype, shape, stype, data)})}
    with pytest.raises(StoreError, match=f"malformed: tensors/model/w .*{wrong}"):
        records.read(sent)


@needs_flower
@pytest.mark.parametrize("values, wrong", [({"n": 2**63}, "'n'.*64 bits"), ({"n": None}, "'n'.*NoneType")])
def test_values_that_cannot_travel_are_refused(values, wrong):
    from wayfare.engines.flower import records

    with pytest.raises(StoreError, match=wrong):
        records.write(Bundle({}, values))


# ---- the engine, on nodes in this process


@needs_flower
def test_virtual_time_has_the_bits_of_local(nodes, tmp_path):
    clock = Drawn(law="pareto", speed_spread=1.0)
    experiment = replace(tiny(Moon()), topology=Buffered(concurrency=3, buffer=2), clock=clock)
    go(experiment, tmp_path / "local")
    go(replace(experiment, rounds=2), tmp_path / "flower", Flower(link=nodes))
    go(experiment, tmp_path / "flower", Flower(link=nodes), rounds=3)
    assert outcome(tmp_path / "flower")["model"] == outcome(tmp_path / "local")["model"]


@needs_flower
@pytest.mark.parametrize("strategy", [FedAvg(), Scaffold(), Moon()], ids=["fedavg", "scaffold", "moon"])
def test_the_bits_are_those_of_local(strategy, nodes, tmp_path):
    go(tiny(strategy), tmp_path / "local")
    go(tiny(strategy), tmp_path / "flower", Flower(link=nodes))
    assert outcome(tmp_path / "flower") == outcome(tmp_path / "local")
    calls = [message.content["call"] for message in nodes.answered]
    asked = [call["device"] for call in calls if call["program"] == "train"]
    merged = [line["clients"] for line in rounds(tmp_path / "flower")]
    assert asked == [id for clients in merged for id in reversed(clients)]  # answered in another order


@needs_flower
def test_a_failure_comes_with_its_traceback(nodes, tmp_path):
    with pytest.raises(DeviceError, match="ValueError: this device has had enough") as caught:
        go(tiny(Fails(devices=("c0", "c1", "c2", "c3"))), tmp_path, Flower(link=nodes))
    assert 'raise ValueError("this device has had enough")' in caught.value.detail
    go(tiny(Fails(devices=("c2",)), rounds=1), tmp_path / "one", Flower(link=nodes))
    assert rounds(tmp_path / "one")[-1]["refused"] == [
        {"device": "c2", "reason": "failed: ValueError: this device has had enough"}
    ]


@needs_flower
def test_what_makes_no_sense_is_the_failure_of_its_device(nodes, tmp_path, monkeypatch):
    """Without a bundle, with an error of Flower's own, and with a full disk, which ends a run only if it is ours."""
    from flwr.app import ConfigRecord, Error, Message, RecordDict

    def reply(message):
        kind = message.content["call"]["device"]
        if kind == "c0":
            return Message(RecordDict({}), reply_to=message)
        if kind == "c1":
            return Message(Error(1, "gone\nwith a traceback"), reply_to=message)
        if kind == "c2":
            return Message(RecordDict({"outcome": ConfigRecord({"stopped": "disk full"})}), reply_to=message)
        return Nodes.reply(nodes, message)

    nodes.ours = False
    monkeypatch.setattr(nodes, "reply", reply)
    go(tiny(FedAvg(), rounds=1, policy=replace(tiny(FedAvg()).policy, quorum=0.25)), tmp_path, Flower(link=nodes))
    assert {refusal["device"]: refusal["reason"] for refusal in rounds(tmp_path)[-1]["refused"]} == {
        "c0": "failed: malformed: no record 'values' among []",
        "c1": "failed: its node failed: gone",
        "c2": "failed: disk full",
    }
    nodes.ours = True
    with pytest.raises(StoreError, match="disk full"):
        go(tiny(FedAvg(), rounds=1), tmp_path / "ours", Flower(link=nodes))


@needs_flower
def test_late_replies_are_given_up_and_leaving_early_ends_the_call(nodes, monkeypatch):
    engine = Flower(link=nodes)
    nobody = [(f"c{i}", Bundle()) for i in range(3)]
    assert list(engine.call("train", nobody, time.monotonic() - 1)) == [
        (id, Failure("late: not started before the round's deadline")) for id, _ in nobody
    ]
    with monkeypatch.context() as patch:
        patch.setattr(nodes, "pull_messages", lambda ids: [])
        patch.setattr("wayfare.engines.flower.engine._GRACE", 0.0)
        assert list(engine.call("train", nobody, time.monotonic() + 0.05)) == [
            (id, Failure("late: no reply before the round's deadline")) for id, _ in nobody
        ]
    before = nodes.ended
    replies = engine.call("ready", nobody, math.inf)
    assert next(replies) == ("c0", Bundle())
    replies.close()
    assert nodes.ended == before + 1


@needs_flower
def test_a_node_that_flower_does_not_know_is_a_failure_of_its_device(nodes, tmp_path, monkeypatch):
    def push(messages):
        ids = Nodes.push_messages(nodes, messages)
        for place, message in enumerate(messages):
            if message.content["call"]["device"] == "c1":
                nodes.waiting.pop(ids[place])
                ids[place] = ""
        return ids

    monkeypatch.setattr(nodes, "push_messages", push)
    go(tiny(FedAvg(), rounds=1), tmp_path, Flower(link=nodes))
    assert rounds(tmp_path)[-1]["refused"] == [{"device": "c1", "reason": "failed: Flower no longer knows its node"}]


@needs_flower
def test_a_memory_is_in_the_context_and_on_the_disk(nodes, tmp_path):
    """Either alone is enough, the newer one counts, and one of another run is none."""
    from wayfare.engines.flower.memory import NodeMemories

    def memory(value):
        return Bundle({"model": {"w": torch.tensor([value])}}, {"seen": int(value)})

    state = nodes.context(7).state
    there, elsewhere = tmp_path / "there", tmp_path / "elsewhere"
    NodeMemories(there, state, opening=1).save("c1", 3, memory(3.0))
    assert NodeMemories(elsewhere, state, 1).load("c1", 3).values == {"seen": 3}  # no disk
    assert Memories(there).load("c1", 3).values == {"seen": 3}  # no context
    for device, round, opening in [("c2", 3, 1), ("c1", 2, 1), ("c1", 3, 2)]:
        assert NodeMemories(elsewhere, state, opening).load(device, round) is None
    Memories(there).save("c1", 4, memory(4.0))
    assert NodeMemories(there, state, 1).load("c1", 4).values == {"seen": 4}  # the disk's is newer
    assert NodeMemories(there, state, 1).load("c1", 3)["model"]["w"].item() == 3.0
    NodeMemories(there, state, 1).save("c1", 5, Bundle({"model": {"w": torch.zeros(2**22 + 1)}}))  # 16 MB and 4 bytes
    assert not state and NodeMemories(there, state, 1).load("c1", 5)["model"]["w"].shape == (2**22 + 1,)


@needs_flower
def test_a_node_that_lost_its_context_or_its_disk_has_not_forgotten(nodes, tmp_path):
    go(tiny(Moon()), tmp_path / "local")
    engine = Flower(link=nodes)
    go(tiny(Moon(), rounds=2), tmp_path / "flower", engine)
    nodes.contexts.clear()
    go(tiny(Moon()), tmp_path / "flower", engine, rounds=3)
    assert outcome(tmp_path / "flower") == outcome(tmp_path / "local")
    assert rounds(tmp_path / "flower")[-1]["cold"] == []


@needs_flower
def test_a_worker_signs_in_and_refuses_when_nobody_waits(tmp_path):
    from wayfare.deploy.client_app import _signed_in

    sign_in = tmp_path / "call"
    sign_in.mkdir()
    with pytest.raises(ZeroDivisionError), _signed_in(sign_in):
        assert [mark.name for mark in sign_in.iterdir()] == [str(os.getpid())]
        1 / 0  # noqa: B018
    assert not list(sign_in.iterdir())
    sign_in.rmdir()
    with pytest.raises(WayfareError, match="no longer waits"), _signed_in(sign_in):
        pytest.fail("it went to work")
    with _signed_in(tmp_path / "another machine's" / "call"):
        pass


def test_without_flower_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("wayfare.engines.flower.simulation.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs flwr and ray.*pip install 'wayfare\[flower\]'"):
        Flower()


# ---- over Ray


@ray
@pytest.mark.parametrize(
    "strategy", [Scaffold(), *([FedAvg(), Moon()] if FULL else [])], ids=lambda each: type(each).__name__
)
def test_the_simulation_has_the_bits_of_local(strategy, simulation, tmp_path):
    """In one go, and stopped after two rounds and resumed."""
    go(tiny(strategy), tmp_path / "local")
    go(tiny(strategy), tmp_path / "flower", simulation)
    assert outcome(tmp_path / "flower") == outcome(tmp_path / "local")
    go(tiny(strategy, rounds=2), tmp_path / "parts", simulation)
    assert go(tiny(strategy), tmp_path / "parts", simulation, rounds=3)["cold"] == 0
    assert outcome(tmp_path / "parts")["model"] == outcome(tmp_path / "local")["model"]


@ray
def test_a_tour_is_relayed(simulation, tmp_path):
    """Phones that meet do so through the simulation's driver: there is no way from node to node in Flower."""
    traces = written(tmp_path, [(slot, a, b) for slot in range(3) for a, b in ((0, 1), (2, 3), (1, 2))])
    experiment = replace(
        tiny(FedAvg("uniform"), evaluation=Evaluation(every=100, holdout=0.0)), rounds=0,
        topology=Encounters(traces, probe=40, judge=1, test=40, iterations=1), exchange=Always(20),
    )  # fmt: skip
    one, other = go(experiment, tmp_path / "local"), go(experiment, tmp_path / "flower", simulation)
    assert one["metrics"]["tour/taken"] > 2
    assert (one["model_sha256"], one["metrics"]) == (other["model_sha256"], other["metrics"])


@ray
def test_a_process_that_dies_is_replaced_and_its_device_asked_once_more(simulation, tmp_path):
    (tmp_path / "marks").mkdir()
    go(tiny(FedAvg()), tmp_path / "local")
    go(tiny(Dies(devices=("c1",), once=str(tmp_path / "marks"))), tmp_path / "flower", simulation)
    assert (tmp_path / "marks" / "c1").exists()
    assert outcome(tmp_path / "flower")["model"] == outcome(tmp_path / "local")["model"]
    assert rounds(tmp_path / "flower")[1]["refused"] == []
