"""What a run measures, keeps and decides."""

import json
from dataclasses import dataclass, replace

import pytest

from wayfare import Bundle, Evaluation, Experiment, Policy, Training, resume, run
from wayfare.core.bundle import digest
from wayfare.core.errors import ConfigError, DeviceError, QuorumError
from wayfare.core.values import Number
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.partition.random import Random
from wayfare.partition.virtual import Virtual
from wayfare.strategies.centralised import Centralised
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.local import Local

SMALL = Experiment(
    task=Objects(model=CnnClassifier(width=4, hidden=8)),
    partition=Random(6),
    training=Training(iterations=3, batch_size=16),
    evaluation=Evaluation(clients=3, holdout=0.2),
    rounds=2,
)


def lines(folder):
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def test_the_model_file_is_the_last_state_and_its_hash_the_summary_s(tmp_path):
    result = run(SMALL, tmp_path / "run", "local")
    model = Bundle.unpack((tmp_path / "run" / "model.safetensors").read_bytes())
    state = Bundle.unpack((tmp_path / "run" / "checkpoints" / "000002.safetensors").read_bytes())
    assert result["model_sha256"] == digest(model["model"]) == digest(state["model"])
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == result


def test_bytes_are_counted_by_hand(tmp_path):
    result = run(SMALL, tmp_path / "run", "local")
    # 8x8 grey digits: one block (3x3 conv 1 -> 4, halved to 4x4), 64 -> 8 -> 10:
    # 4*9+4 + 64*8+8 + 8*10+10 = 650 parameters of 4 bytes, to 6 clients in 2 rounds
    assert result["bytes_down"] == 2 * 6 * 4 * 650
    # back come also n, steps, loss, round, cold and kept: 6 values of 8 bytes
    assert result["bytes_up"] == 2 * 6 * (4 * 650 + 6 * 8)


def test_every_scope_is_measured_where_it_says(tmp_path):
    e = replace(SMALL, evaluation=Evaluation(clients=2, holdout=0.2, validation_clients=2))
    run(e, tmp_path / "run", "local")
    first, _, last = lines(tmp_path / "run")
    scopes = {name.split("/")[0] for name in last["metrics"]}
    assert scopes == {"train", "test", "clients", "validation"}
    assert len(last["per_client"]["accuracy"]) == 2
    crowd = e.clients(e.split())
    assert not set(crowd.validation) & set(last["clients"])  # they never train
    assert len(last["clients"]) == 4
    assert "train/loss" not in first["metrics"]


def test_held_out_samples_are_never_trained_on():
    crowd = SMALL.clients(SMALL.split())
    for i in range(6):
        client = crowd.client(f"c{i}")
        assert not set(client.train) & set(client.holdout)
        assert len(client.holdout) == round(0.2 * (len(client.train) + len(client.holdout)))


@pytest.mark.parametrize("every", [0, 2])
def test_evaluation_every_k_rounds(tmp_path, every):
    run(replace(SMALL, rounds=3, evaluation=Evaluation(every=every, clients=0)), tmp_path / "run", "local")
    measured = [line["round"] for line in lines(tmp_path / "run") if "test/accuracy" in line["metrics"]]
    assert measured == ([] if every == 0 else [0, 2, 3])


def test_personal_models_are_judged_even_without_held_out_samples(tmp_path):
    e = replace(SMALL, strategy=Local(), evaluation=Evaluation(clients=2, holdout=0))
    metrics = run(e, tmp_path / "run", "local")["metrics"]
    assert "test/accuracy" in metrics and "clients/accuracy" not in metrics


def test_pooled_data_is_everybody_s_and_nothing_travels(tmp_path):
    e = replace(SMALL, strategy=Centralised())
    result = run(e, tmp_path / "run", "local")
    crowd = e.clients(e.split())
    parts = [crowd.client(f"c{i}").train for i in range(6)]
    assert lines(tmp_path / "run")[1]["examples"] == sum(map(len, parts))
    assert result["bytes_up"] == result["bytes_down"] == 0


def test_early_stopping_keeps_the_best_model(tmp_path):
    # a learning rate that destroys the model: the untrained one, or an early one, stays the best
    e = replace(
        SMALL,
        training=Training(iterations=3, lr=0.05),
        strategy=Jumps(),
        evaluation=Evaluation(clients=0, monitor="test/loss", patience=2),
        rounds=20,
    )
    result = run(e, tmp_path / "run", "local")
    history = [line["metrics"]["test/loss"] for line in lines(tmp_path / "run")]
    best = history.index(min(history))
    assert result["best_round"] == best and result["rounds"] == best + 2
    assert result["metrics"]["test/loss"] == min(history)
    again = resume(tmp_path / "run", "local")  # a stopped run stays stopped
    assert again["rounds"] == result["rounds"] and again["model_sha256"] == result["model_sha256"]


@dataclass(frozen=True)
class Jumps(FedAvg):
    """A server that takes ever larger steps in the wrong direction from the third round on."""

    def merge(self, state, replies):
        model = self.average(replies)
        rounds = state.number("rounds") + 1
        if rounds > 2:
            model = {name: w - rounds * (model[name] - w) for name, w in state["model"].items()}
        return Bundle({"model": model}, {**state.values, "rounds": rounds})


def test_a_metric_that_is_not_measured_cannot_be_watched(tmp_path):
    with pytest.raises(ConfigError, match=r"validation/accuracy.*test/accuracy"):
        run(replace(SMALL, evaluation=Evaluation(monitor="validation/accuracy")), tmp_path / "run", "local")


@dataclass(frozen=True)
class Picky(FedAvg):
    """Fails on some devices."""

    failing: str = ""

    def client(self, device, message):
        if device.id in self.failing.split(","):
            raise ValueError("no battery")
        return super().client(device, message)


def test_a_failing_device_is_counted_and_the_round_goes_on(tmp_path):
    result = run(replace(SMALL, strategy=Picky(failing="c1,c4")), tmp_path / "run", "local")
    assert result["refused"] == 4 and result["void"] == 0
    last = lines(tmp_path / "run")[-1]
    assert {r["device"] for r in last["refused"]} == {"c1", "c4"} and "no battery" in last["refused"][0]["reason"]
    assert len(last["clients"]) == 4


def test_below_the_quorum_rounds_are_void_and_then_the_run_stops(tmp_path):
    e = replace(SMALL, strategy=Picky(failing="c0,c1,c2,c3"), rounds=9)
    with pytest.raises(QuorumError, match=r"3 rounds in a row.*no battery"):
        run(e, tmp_path / "run", "local")
    hashes = {line["checkpoint"]["sha256"] for line in lines(tmp_path / "run")}
    assert len(hashes) == 1 and all(line["void"] for line in lines(tmp_path / "run")[1:])


def test_a_fault_of_the_experiment_stops_it_with_the_traceback(tmp_path):
    with pytest.raises(DeviceError, match="no battery") as caught:
        run(replace(SMALL, strategy=Picky(failing="c0,c1,c2,c3,c4,c5")), tmp_path / "run", "local")
    assert "raise ValueError" in caught.value.detail
    e = replace(SMALL, strategy=Picky(failing="c1"), policy=Policy(on_error="raise"))
    with pytest.raises(DeviceError, match="c1"):
        run(e, tmp_path / "strict", "local")


@dataclass(frozen=True)
class BadDay(FedAvg):
    """In one round nobody can."""

    day: int = 2

    def client(self, device, message):
        if message.number("round") == self.day:
            raise ValueError("no network")
        return super().client(device, message)


def test_one_round_in_which_nobody_can_does_not_end_a_run(tmp_path):
    result = run(replace(SMALL, strategy=BadDay(), rounds=3), tmp_path / "run", "local")
    assert (result["rounds"], result["void"]) == (3, 1)
    assert [line["void"] for line in lines(tmp_path / "run")] == [False, False, True, False]
    states = [line["checkpoint"]["sha256"] for line in lines(tmp_path / "run")]
    assert states[1] == states[2] != states[3]
    with pytest.raises(DeviceError, match="no network"):  # a run of nothing else has failed
        run(replace(SMALL, strategy=BadDay(day=1), rounds=1), tmp_path / "short", "local")


@dataclass(frozen=True)
class NoJudges(FedAvg):
    """From some round on no device can judge."""

    first: int = 1

    def resume(self, device, message):
        if "split" in message.values and message.number("round") >= self.first:
            raise ValueError("no light")
        return super().resume(device, message)


def test_judges_that_cannot_are_told_of_and_from_the_beginning_an_error(tmp_path):
    heard = []
    result = run(
        replace(SMALL, strategy=NoJudges()), tmp_path / "run", "local", listen=lambda event, data: heard.append(data)
    )
    assert result["rounds"] == 2
    told = [data["text"] for data in heard if "text" in data]
    (text,) = result["warnings"]
    assert (
        text.startswith("no new value for clients, the last one is kept: 0 usable") and "ValueError: no light" in text
    )
    assert told == [f"round {number}: {text}" for number in (1, 2)]
    assert lines(tmp_path / "run")[1]["warnings"] == [text]
    assert result["metrics"]["clients/accuracy"] == lines(tmp_path / "run")[0]["metrics"]["clients/accuracy"]
    with pytest.raises(DeviceError, match="no light"):
        run(replace(SMALL, strategy=NoJudges(first=0)), tmp_path / "never", "local")


def test_a_million_clients_are_a_rule(tmp_path):
    from wayfare.topologies.server import Server

    e = replace(SMALL, partition=Virtual(1_000_000, 5), topology=Server(3), evaluation=Evaluation(every=0, holdout=0))
    run(e, tmp_path / "run", "local")
    assert sum(f.stat().st_size for f in (tmp_path / "run").rglob("*") if f.is_file()) < 200_000


@dataclass(frozen=True)
class Telling(Objects):
    """A task that has something to prepare, to warn of and to explain, and a metric that only some clients have."""

    protocol = "by heart"

    def prepare(self, progress):
        progress("sharpening pencils", 1, 2)
        progress("sharpening pencils", 2, 2)

    def alarm(self, now, start):
        return "worse than nothing" if now.get("test/loss", 0) > start.get("test/loss", 99) else ""

    metrics = {**Objects().metrics, "odd": Number()}

    def evaluate(self, net, samples):
        metrics = super().evaluate(net, samples)
        if samples is not None and samples.min() % 2:
            metrics["odd"] = float(len(samples))
        return metrics


def test_preparations_are_told_before_the_first_round(tmp_path):
    heard = []

    def listen(event, data):
        heard.append((event, data))

    run(
        replace(SMALL, task=Telling(model=CnnClassifier(width=4, hidden=8)), rounds=1),
        tmp_path / "run",
        "local",
        listen=listen,
    )
    first = len(heard)
    resume(tmp_path / "run", "local", rounds=2, listen=listen)
    for news in (heard[:first], heard[first:]):
        events = [event for event, _ in news]
        assert events[:2] == ["preparing", "preparing"] and "preparing" not in events[2:] and "round" in events
        assert news[1][1] == {"text": "sharpening pencils", "done": 2, "total": 2}


def test_a_metric_that_some_clients_lack_is_the_mean_of_the_others(tmp_path):
    e = replace(
        SMALL,
        task=Telling(model=CnnClassifier(width=4, hidden=8)),
        evaluation=Evaluation(clients=6, holdout=0.03),
        rounds=1,
    )
    run(e, tmp_path / "run", "local")
    line, crowd = lines(tmp_path / "run")[-1], e.clients(e.split())
    sizes = {f"c{i}": len(crowd.client(f"c{i}").holdout) for i in range(6)}
    some = line["per_client"]["odd"]
    assert 0 < len(some) < 6 and line["per_client"]["accuracy"].keys() == sizes.keys()
    # each that has it says its size n, and weighs n: sum n^2 / sum n
    wanted = sum(sizes[id] ** 2 for id in some) / sum(sizes[id] for id in some)
    assert line["metrics"]["clients/odd"] == pytest.approx(wanted)


def test_an_alarm_is_in_the_line_the_summary_and_the_ear(tmp_path):
    heard = []
    e = replace(
        SMALL,
        task=Telling(model=CnnClassifier(width=4, hidden=8)),
        strategy=Jumps(),
        rounds=5,
        evaluation=Evaluation(clients=0),
    )
    result = run(e, tmp_path / "run", "local", listen=lambda *news: heard.append(news))
    losses = [line["metrics"]["test/loss"] for line in lines(tmp_path / "run")]
    wanted = [["worse than nothing"] if loss > losses[0] else [] for loss in losses]
    assert [line["warnings"] for line in lines(tmp_path / "run")] == wanted and wanted[-1] and not wanted[1]
    assert [data["text"] for event, data in heard if event == "warning"] == [
        *(f"round {number}: worse than nothing" for number, told in enumerate(wanted) if told),
        result["warnings"][-1],  # that it is no better than chance, at the end
    ]
    assert result["warnings"][0] == "worse than nothing" and result["protocol"] == "by heart"
    # of a task that warns of nothing, nothing is said
    quiet = run(replace(SMALL, rounds=1), tmp_path / "quiet", "local")
    assert not [text for text in quiet["warnings"] if "chance" not in text] and quiet["protocol"] == SMALL.task.protocol


def test_rounds_that_are_not_judged_raise_no_alarm(tmp_path):
    e = replace(
        SMALL,
        task=Telling(model=CnnClassifier(width=4, hidden=8)),
        strategy=Jumps(),
        rounds=5,
        evaluation=Evaluation(every=3, clients=0),
    )
    run(e, tmp_path / "run", "local")
    told = [bool(line["warnings"]) for line in lines(tmp_path / "run")]
    assert not told[1] and not told[2] and not told[4] and told[5]
