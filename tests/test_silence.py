"""Runs that came to nothing say so, baselines stand beside a run, and lists fit the terminal."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from wayfare import Experiment, run
from wayfare.attributes.task import Attributes
from wayfare.baselines import with_baselines
from wayfare.cli import main
from wayfare.cli.search import cut
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Training
from wayfare.encounters.topology import Encounters
from wayfare.hashing.task import Hashing
from wayfare.objects.task import Objects
from wayfare.partition.random import Random
from wayfare.partition.split import Split
from wayfare.places.task import Places
from wayfare.strategies.local import Local


def test_a_model_no_better_than_chance_is_said_to_be_so(tmp_path):
    heard = []
    still = Experiment(training=Training(lr=1e-9), rounds=1)
    summary = run(still, tmp_path / "run", "local", listen=lambda event, data: heard.append((event, data)))
    (text,) = [data["text"] for event, data in heard if event == "warning"]
    assert text in summary["warnings"] and text.startswith("no better than chance")


def test_chance_by_hand():
    # 355 test digits, of which 36 are of one kind: 10.1 %, and two deviations more are 13.3 %
    objects = Objects()
    assert "no better than chance: 13.0 %" in objects.doubt({"test/accuracy": 0.13}, {})
    assert not objects.doubt({"test/accuracy": 0.15}, {}) and not objects.doubt({}, {})
    assert re.fullmatch(
        r"test set: 355 pictures of 10 classes; always answering '1' would be right for 10.1 %", objects.protocol
    )
    hashing = Hashing.example()
    assert "MAP 0.1255" in hashing.doubt({"test/MAP": 0.1255, "test/random MAP": 0.1242}, {})
    assert not hashing.doubt({"test/MAP": 0.2, "test/random MAP": 0.1242}, {})
    assert "0.510" in Attributes.example().doubt({"test/balanced_accuracy": 0.51}, {})
    places = Places.example()
    assert "was 40.0 before it and is 30.0" in places.doubt({"test/R@1": 0.3}, {"test/R@1": 0.4})
    assert not places.doubt({"test/R@1": 0.4}, {"test/R@1": 0.3})


def test_meetings_without_an_exchange_are_said_with_the_reason():
    topology = Encounters(traces="town:10")
    events = [{}, {"met": 300, "cut": 0}, {"met": 270, "cut": 0}]
    lines = [{"events": each, "metrics": {}} for each in events]
    assert topology.doubt(lines).startswith("570 meetings and no exchange: the policy asked for none")
    lines[1]["events"]["cut"] = 7
    assert "7 exchanges did not fit" in topology.doubt(lines)
    lines[2]["events"]["taker"] = [1]
    assert topology.doubt(lines) == "" and topology.doubt(lines[:1]) == ""
    assert "no two devices met" in topology.doubt([{"events": {"met": 0}}])


def test_clients_that_can_never_train_take_no_part(tmp_path, monkeypatch):
    monkeypatch.setattr(Objects, "cannot_train", lambda self, samples: "too few" if len(samples) < 3 else "")
    experiment = replace(Experiment(rounds=1), evaluation=replace(Experiment().evaluation, holdout=0.0))
    parts = [np.arange(40), np.arange(40, 42), np.arange(50, 90)]
    able, unable = experiment.able(Split.from_parts(parts))
    assert list(able.ids) == ["c0", "c2"] and unable == {"c1": "too few"}
    monkeypatch.setattr(Experiment, "split", lambda self: Split.from_parts(parts, {"samples": self.task.samples}))
    heard = []
    summary = run(experiment, tmp_path / "run", "local", listen=lambda event, data: heard.append(data.get("text", "")))
    assert any("1 of 3 clients can never train and take no part: c1: too few" in text for text in heard)
    assert summary["refused"] == 0
    lines = [json.loads(line) for line in (tmp_path / "run/rounds.jsonl").read_text().splitlines()]
    assert sorted(lines[1]["clients"]) == ["c0", "c2"]


def test_photos_without_a_neighbour_cannot_train():
    places = Places.example()
    assert places.cannot_train(np.arange(places.samples)) == ""
    assert "nothing to train on" in places.cannot_train(np.arange(1))


# ---- baselines


def test_baselines_stand_beside_the_run_on_one_page(tmp_path, capsys):
    command = ["run", "quickstart", "--baselines", "--rounds", "1", "--engine", "local", "--track", "none", "--json"]
    assert main([*command, "--set", "model.width=2", "--out", str(tmp_path / "b")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert list(result["metrics"]) == ["untrained", "federated", "local", "centralised"]
    first = json.loads((tmp_path / "b/federated/rounds.jsonl").read_text().splitlines()[0])
    assert result["metrics"]["untrained"]["test/accuracy"] == first["metrics"]["test/accuracy"]
    page = (tmp_path / "b/compare.html").read_text()
    assert all(name in page for name in result["metrics"])
    assert main([*command, "--seeds", "2"]) == 2


def test_what_has_no_baselines_is_refused():
    with pytest.raises(ConfigError, match=r"exchange\.name=never"):
        with_baselines(Experiment(topology=Encounters(traces="town:10")))
    with pytest.raises(ConfigError, match="one of the baselines itself"):
        with_baselines(Experiment(partition=Random(3), strategy=Local()))


# ---- lists


def test_recipes_are_listed_in_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list", "recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and any(line.split()[:1] == ["quickstart"] for line in lines)
    assert any("fedcafe/table2-nuswide" in line for line in lines)  # no name is cut


def test_texts_of_search_results_are_cut_to_a_line():
    assert cut("red shirt", 44) == "red shirt"
    assert cut("red shirt\nwith sleeves", 44) == "red shirt…"
    assert cut("x" * 60, 44) == "x" * 43 + "…" and len(cut("x" * 60, 44)) == 44
    assert cut("red shirt\nwith sleeves", None) == "red shirt\nwith sleeves"
