"""Whole runs of place recognition: the same bits on every engine and after every stop, and what a run says."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from amount import FULL
from place_pictures import Photo, places, write_frames, write_msls, write_picture
from wayfare import Bundle, Evaluation, Experiment, Training, resume, run, testing
from wayfare.components import find
from wayfare.core.errors import ConfigError, StoreError
from wayfare.engines.pool.engine import Pool
from wayfare.partition.random import Random
from wayfare.places.feature_maps import FeatureMaps
from wayfare.places.partition.proximity import Proximity
from wayfare.places.task import Places
from wayfare.strategies.centralised import Centralised
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedproto import FedProto
from wayfare.strategies.fedprox import FedProx
from wayfare.strategies.fedvc import FedVC
from wayfare.strategies.local import Local
from wayfare.strategies.moon import Moon
from wayfare.strategies.scaffold import Scaffold
from wayfare.topologies.hierarchy import Hierarchy
from wayfare.topologies.server import Server

SAME = ("model_sha256", "metrics", "bytes_up", "bytes_down", "refused", "rounds", "best_round", "protocol")


@pytest.fixture
def small(hamlets: Path) -> Experiment:
    """Four clients, two in each of two cities."""
    return Experiment(
        places(hamlets),
        Proximity(400.0),
        training=Training(iterations=2, batch_size=2, lr=0.02),
        evaluation=Evaluation(clients=2, holdout=0.3),
        rounds=2,
    )


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def state(folder: Path, round: int) -> Bundle:
    return Bundle.unpack((folder / "checkpoints" / f"{round:06}.safetensors").read_bytes())


class Stopped(Exception):
    """Somebody pulled the plug."""


def interrupted(experiment: Experiment, folder: Path, engine: Any, after: int = 1) -> None:
    """Begin a run, and stop it behind this round."""

    def listen(event: str, line: dict[str, Any]) -> None:
        if event == "round" and line["round"] == after:
            raise Stopped

    with pytest.raises(Stopped):
        run(experiment, folder, engine, listen=listen)


# ---- every strategy


STRATEGIES = {
    "fedavg": FedAvg(),
    "fedprox": FedProx(mu=1.0),
    "scaffold": Scaffold(),
    "moon": Moon(),
    "fedvc": FedVC(examples=0),
    "local": Local(),
    "centralised": Centralised(),
}
RESULTS: dict[str, str] = {}
CHOSEN = STRATEGIES if FULL else ("fedavg", "scaffold", "fedvc", "centralised")


@pytest.mark.parametrize("name", CHOSEN)
def test_engines_and_stops_change_nothing(name: str, small: Experiment, pool: Pool, tmp_path: Path) -> None:
    """One process without a stop, and two processes with one."""
    asked = 3 if name == "fedvc" else 0
    experiment = replace(small, strategy=STRATEGIES[name], topology=Server(asked))
    whole = run(experiment, tmp_path / "local", "local")
    interrupted(experiment, tmp_path / "pool", pool)
    parts = resume(tmp_path / "pool", pool)
    assert {key: whole[key] for key in SAME} == {key: parts[key] for key in SAME}
    assert whole["refused"] == 0 and whole["void"] == 0 and whole["warnings"] == []
    assert {"test/R@1", "test/R@20/night", "clients/R@1", "train/loss"} <= set(whole["metrics"])
    RESULTS[name] = whole["model_sha256"]


def test_strategies_end_in_models_of_their_own() -> None:
    if len(RESULTS) < len(CHOSEN):
        pytest.skip("the runs above have not all been made")
    assert len(set(RESULTS.values())) == len(CHOSEN)


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "scaffold", "moon"])
def test_strategies_conform_with_places(name: str, hamlets: Path, tmp_path: Path) -> None:
    """The checks of `wayfare.testing` that meet the task; those that run whole runs are above."""
    for check in (testing.terms_have_gradients, testing.memory_survives, testing.replies_are_lawful):
        check(testing._Lab(find("strategy", name)(), places(hamlets, task__mining__negatives=1), tmp_path))


def test_a_strategy_of_classes_is_refused(hamlets: Path) -> None:
    with pytest.raises(ConfigError, match=r"FedProto needs classes, which Places does not provide"):
        Experiment(places(hamlets), strategy=FedProto())


# ---- shapes of a run


def test_a_hierarchy_of_cities(small: Experiment, tmp_path: Path) -> None:
    assert small.split().groups == ("alba", "alba", "brod", "brod")
    experiment = replace(small, topology=Hierarchy(interval=2))
    whole = run(experiment, tmp_path / "whole", "local")
    apart, together = state(tmp_path / "whole", 1), state(tmp_path / "whole", 2)
    weight = "backbone.0.0.weight"
    assert not torch.equal(apart["model@0"][weight], apart["model@1"][weight]), "each city has a model of its own"
    assert torch.equal(together["model@0"][weight], together["model@1"][weight]), "until the servers meet"
    # cities of the same number of photographs weigh the same; nothing else happens between their servers
    interrupted(experiment, tmp_path / "parts", "local")
    assert resume(tmp_path / "parts", "local")["model_sha256"] == whole["model_sha256"]


def test_centralised_training_stops_early(small: Experiment, tmp_path: Path) -> None:
    judged = Evaluation(holdout=0.0, clients=0, validation_clients=1, monitor="validation/R@1", patience=2)
    experiment = replace(
        small, strategy=Centralised(), evaluation=judged, rounds=9, training=Training(at_most=2, batch_size=2, lr=0.05)
    )
    result = run(experiment, tmp_path / "run", "local")
    history = [line["metrics"]["validation/R@1"] for line in lines(tmp_path / "run")]
    best = history.index(max(history))
    assert result["best_round"] == best and result["rounds"] == best + 2 == len(history) - 1 < 9
    assert result["metrics"]["validation/R@1"] == max(history)
    # of three clients with 16 photographs each, all in one place; 2 steps although a pass is more
    assert [line["examples"] for line in lines(tmp_path / "run")[1:]] == [48] * result["rounds"]


def test_errors_in_metres_are_better_when_smaller(small: Experiment, tmp_path: Path) -> None:
    judged = Evaluation(clients=0, holdout=0.0, monitor="test/p90_error_m")
    result = run(replace(small, evaluation=judged, rounds=3), tmp_path / "run", "local")
    history = [line["metrics"]["test/p90_error_m"] for line in lines(tmp_path / "run")]
    assert result["metrics"]["test/p90_error_m"] == min(history) < max(history)
    assert result["best_round"] == history.index(min(history))


def test_what_a_run_says_of_its_data(small: Experiment, tmp_path: Path) -> None:
    def street(role: str) -> list[Photo]:
        return [Photo(place, role == "query", 30.0 * place, 0.0, f"{place % 2}") for place in range(4)]

    cities = {city: {role: street(role) for role in ("query", "database")} for city in ("alba", "zeta")}
    root = write_msls(tmp_path / "msls", cities)
    (root / "train_val" / "alba" / "database" / "images" / "alba-database-3.png").write_bytes(b"no picture")
    heard: list[tuple[str, dict[str, Any]]] = []
    experiment = replace(small, task=places(root), partition=Random(1), rounds=1)
    result = run(experiment, tmp_path / "run", "local", listen=lambda *news: heard.append(news))
    assert result["protocol"].startswith("4 queries: all; right: a photo within 25 m; only the 4 queries that have one")
    (skipped,) = result["skipped_files"]
    assert skipped["file"].endswith("alba-database-3.png") and "not a JPEG" in skipped["reason"]
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == result
    assert [data for event, data in heard if event == "preparing"] == [
        {"text": "reading photographs", "done": 16, "total": 16}
    ]
    table = json.loads((tmp_path / "run" / "partition.json").read_text())
    assert [city["city"] for city in table["places"]["maps"]] == ["alba"] and table["places"]["maps"][0]["images"] == 7
    # the photograph is mended: rows of the pool would be others
    write_picture(root / "train_val" / "alba" / "database" / "images" / "alba-database-3.png", 3)
    with pytest.raises(StoreError, match="began with 7 samples, and now there are 8"):
        resume(tmp_path / "run", "local", rounds=2)


def test_paired_frames_run(small: Experiment, tmp_path: Path) -> None:
    corridor = write_frames(tmp_path / "corridor", 24)
    task = places(
        corridor,
        data__tolerance=2,
        data__test__name="strips",
        data__test__strip=6.0,
        data__test__folds=4,
        data__test__fold=3,
    )
    result = run(replace(small, task=task, partition=Random(2)), tmp_path / "run", "local")
    assert result["refused"] == 0 and "paired with the query" in result["protocol"]
    assert 0 <= result["metrics"]["test/R@1"] <= 1 and "test/median_error_m" not in result["metrics"]
    with pytest.raises(ConfigError, match="proximity needs positions"):
        run(replace(small, task=task), tmp_path / "near", "local")


# ---- the warm-up in a run


def test_the_warm_up_ends_and_goes_on_after_a_stop(small: Experiment, hamlets: Path, tmp_path: Path) -> None:
    experiment = replace(small, task=places(hamlets, task__warmup=3), rounds=3)
    whole = run(experiment, tmp_path / "whole", "local")
    ages = []
    for rounds in (1, 2, 3):
        if rounds == 1:
            run(replace(experiment, rounds=1), tmp_path / "parts", "local")
        else:
            result = resume(tmp_path / "parts", "local", rounds=rounds)
        ages.append(float(state(tmp_path / "parts", rounds)["model"]["age"]))
    assert ages == [2, 3, 3], "two steps a round on each client, and then no more counting"
    assert result["model_sha256"] == whole["model_sha256"]
    # InfoNCE among 11 is about log 11 = 2.4, the loss of hard triplets at most 0.1 + 2
    losses = [line["metrics"]["train/loss"] for line in lines(tmp_path / "whole")[1:]]
    assert losses[0] > 0.5 > losses[2]


# ---- collapse


@dataclass(frozen=True)
class Zeroes(FedAvg):
    """A server that forgets everything in one round."""

    def merge(self, state: Bundle, replies: Any) -> Bundle:
        model = self.average(replies)
        done = state.number("rounds") + 1
        if done == 2:
            model = {name: torch.zeros_like(tensor) for name, tensor in model.items()}
            model["pool.pool.p"] += 3
        return Bundle({"model": model}, {**state.values, "rounds": done})


def test_a_collapse_is_told_wherever_somebody_may_look(small: Experiment, tmp_path: Path) -> None:
    heard: list[str] = []

    def listen(event: str, data: dict[str, Any]) -> None:
        if event == "warning":
            heard.append(data["text"])

    result = run(replace(small, strategy=Zeroes()), tmp_path / "run", "local", listen=listen)
    told = [line["warnings"] for line in lines(tmp_path / "run")]
    assert told[0] == told[1] == []
    (text,) = told[2]
    assert text.startswith("the descriptors have collapsed: they differ by 0 of their length")
    assert result["warnings"][0] == text and heard[0] == f"round 2: {text}"
    assert all("training has not helped" in other for other in (*result["warnings"][1:], *heard[1:]))
    assert result["metrics"]["test/spread"] == 0.0


def test_the_alarm_goes_by_what_was_measured(hamlets: Path) -> None:
    task = places(hamlets)
    assert task.alarm({"test/spread": 0.1}, {"test/spread": 0.2}) == ""
    assert "0.01 of their length (0.2 before" in task.alarm({"test/spread": 0.01}, {"test/spread": 0.2})
    assert "collapsed" in task.alarm({"validation/spread": 0.0}, {"validation/spread": 0.2})
    assert "collapsed" in task.alarm({"clients/spread": float("nan")}, {"clients/spread": 0.2})
    assert task.alarm({"test/R@1": 0.0}, {"test/spread": 0.2}) == "" == task.alarm({}, {})


# ---- maps of frozen layers, made by whichever process comes first


def test_maps_made_by_a_worker_are_the_same_bytes(
    small: Experiment, hamlets: Path, pool: Pool, tmp_path: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = places(hamlets, model__train="block3", model__backbone__width=3)
    unjudged = replace(small, task=task, evaluation=Evaluation(every=0, holdout=0.0), rounds=1)
    with_pool = run(unjudged, tmp_path / "pool", pool)  # two workers wanted the maps, one made them
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "own"))
    torch.set_num_threads(2)
    fresh = replace(unjudged, task=replace(task))
    FeatureMaps(fresh.bench(tmp_path / "pool").net(0), fresh.task.loaded.images, 2.0**30)  # type: ignore[attr-defined, arg-type]
    (mine,) = (tmp_path / "own" / "maps").glob("*/maps.npy")
    made = shared_cache / "maps" / mine.parent.name / "maps.npy"  # other tests make maps of their own beside it
    assert mine.read_bytes() == made.read_bytes()
    assert run(fresh, tmp_path / "local", "local")["model_sha256"] == with_pool["model_sha256"]


def test_clients_hold_what_the_partition_says(small: Experiment) -> None:
    """Rows of the pool are rows of `task.photos`: a client's photographs are all of its own street."""
    task, split = small.task, small.split()
    assert isinstance(task, Places)
    for rows, city in zip(split, split.groups or ()):
        photos = task.photos.take(rows)
        assert set(photos.city) == {city} and np.ptp(photos.easting) < 400
        assert (task.loaded.divided.photos.keys[task.loaded.divided.pool[rows]] == photos.keys).all()
