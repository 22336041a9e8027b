"""What trackers are told."""

import posixpath
import re
import sys
import types

import pytest

from wayfare import Experiment, resume, run
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Training
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.tracking import mlflow_name


def tiny(rounds=2):
    task = Objects(model=CnnClassifier(width=4, hidden=8))
    return Experiment(task=task, training=Training(iterations=1), rounds=rounds)


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def test_tensorboard_gets_every_round_once_also_after_a_resume(tmp_path):
    lines = []
    run(tiny(), tmp_path / "run", "local", track=["tensorboard"])
    resume(tmp_path / "run", "local", track=["tensorboard"], rounds=4,
           listen=lambda event, data: lines.append(data) if event == "round" else None)  # fmt: skip
    seen = events(tmp_path / "run" / "tensorboard")
    assert [step for step, _ in seen["test/accuracy"]] == [0, 1, 2, 3, 4]
    assert seen["test/accuracy"][-1][1] == pytest.approx(lines[-1]["metrics"]["test/accuracy"])
    assert seen["round/bytes_up"][1][1] == lines[0]["bytes_up"]


def test_mlflow_is_told_in_its_own_words(tmp_path, monkeypatch):
    calls = []
    names = ("set_tracking_uri", "set_experiment", "start_run", "log_params", "log_metrics", "end_run")
    fake = types.SimpleNamespace(**{n: (lambda *a, n=n, **k: calls.append((n, a, k))) for n in names})
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run(tiny(), tmp_path / "run", "local", track=["mlflow"])
    told = [name for name, *_ in calls]
    assert told == ["set_tracking_uri", "set_experiment", "start_run", "log_params", *["log_metrics"] * 3, "end_run"]
    assert calls[3][1][0]["training.iterations"] == 1
    assert calls[-2][2] == {"step": 2} and "test/accuracy" in calls[-2][1][0]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("test/accuracy", "test/accuracy"),
        ("R@1", "R_at_1"),
        ("test/R@100P/São Paulo", "test/R_at_100P/São Paulo"),
        ("share (%): p-90.5", "share ____ p-90.5"),
        ("R@5/", "R_at_5/_"),
        ("/a//../b\n", "_/a/_/_/b_"),
    ],
)
def test_names_that_mlflow_takes(ours, theirs):
    assert mlflow_name(ours) == theirs
    assert re.fullmatch(r"[/\w.\- ]+", theirs) and posixpath.normpath(theirs) == theirs  # MLflow's own rules


def test_a_tracker_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ConfigError, match="wayfare\\[mlflow\\]"):
        run(tiny(), tmp_path / "a", "local", track=["mlflow"])
