"""Settings chosen by validation: what is tried, what decides, and that a sweep continues as it would have gone on."""

import json

import pytest
from typer.testing import CliRunner

from wayfare.cli import app
from wayfare.core.errors import ConfigError, WayfareError
from wayfare.experiment import Experiment
from wayfare.sweep import Interval, Values, parse, sweep

RECIPE = {
    "rounds": 2,
    "data": {"name": "digits"},
    "model": {"name": "cnn", "width": 4, "hidden": 32},
    "partition": {"name": "random", "clients": 4},
    "training": {"epochs": 2, "batch_size": 16},
    "evaluation": {"holdout": 0.2},
}
RANGE = {"training.lr": Interval(1e-3, 1.0), "training.epochs": Interval(1, 2)}


def run(*words):
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def test_what_is_tried_is_read():
    assert parse("training.lr=1e-4..1e-1") == ("training.lr", Interval(1e-4, 1e-1))
    assert parse("training.epochs = 1..5") == ("training.epochs", Interval(1, 5))
    assert parse("strategy.name=fedavg, fedprox") == ("strategy.name", Values(("fedavg", "fedprox")))
    assert parse("training.momentum=0,0.9") == ("training.momentum", Values((0, 0.9)))


@pytest.mark.parametrize("text", ["training.lr", "training.lr=", "training.lr=0.1", "a=2..1", "a=x..y", "a=1,1"])
def test_what_cannot_be_tried_is_refused(text):
    with pytest.raises(ConfigError, match="--try"):
        parse(text)


def test_lists_are_tried_in_every_combination_and_the_best_is_kept(tmp_path):
    tried = {"training.lr": Values((1e-6, 0.2)), "training.epochs": Values((1, 2))}
    found = sweep(RECIPE, tried, tmp_path / "out", "local")
    assert [dict(trial.settings) for trial in found.trials] == [
        {"training.lr": lr, "training.epochs": epochs} for lr in (1e-6, 0.2) for epochs in (1, 2)
    ]
    assert found.metric == "clients/accuracy"
    values = [trial.value for trial in found.trials]
    assert found.best.value == max(values) > min(values)
    written = Experiment.read(tmp_path / "out" / "best.toml")
    assert written.training.lr == found.best.settings["training.lr"]
    assert written.training.epochs == found.best.settings["training.epochs"]


def test_the_least_loss_is_the_best(tmp_path):
    found = sweep(RECIPE, {"training.lr": Values((1e-6, 0.2))}, tmp_path / "out", "local", metric="clients/loss")
    assert found.best.value == min(trial.value for trial in found.trials)


def test_a_sweep_goes_on_as_it_would_have_gone_without_a_stop(tmp_path):
    pytest.importorskip("optuna", reason="Optuna is not installed: wayfare[sweep]")
    recipe = {**RECIPE, "rounds": 1, "training": {"batch_size": 64}}
    whole = sweep(recipe, RANGE, tmp_path / "whole", "local", trials=11)
    assert all(1e-3 <= trial.settings["training.lr"] <= 1.0 for trial in whole.trials)
    assert len({trial.settings["training.lr"] for trial in whole.trials}) > 9
    sweep(recipe, RANGE, tmp_path / "parts", "local", trials=5)
    log = tmp_path / "parts" / "trial-002" / "rounds.jsonl"  # with the time of each round
    made = log.read_text()
    parts = sweep(recipe, RANGE, tmp_path / "parts", "local", trials=11)
    assert parts.trials == whole.trials
    assert log.read_text() == made  # not run again


def test_another_sweep_does_not_go_into_the_same_folder(tmp_path):
    tried = {"training.lr": Values((0.1, 0.2))}
    sweep(RECIPE, tried, tmp_path / "out", "local")
    with pytest.raises(ConfigError, match="another sweep"):
        sweep(RECIPE, {"training.lr": Values((0.1, 0.3))}, tmp_path / "out", "local")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "photo.jpg").write_bytes(b"")
    with pytest.raises(ConfigError, match="not empty"):
        sweep(RECIPE, tried, tmp_path / "mine", "local")


def test_a_trial_that_fails_is_named_and_the_others_count(tmp_path):
    recipe = {**RECIPE, "policy": {"max_void": 1, "quorum": 1.0}}
    found = sweep(recipe, {"training.lr": Values((0.1, 1e30))}, tmp_path / "out", "local")
    good, bad = found.trials
    assert good.value is not None
    assert bad.value is None and bad.failed
    with pytest.raises(ConfigError, match="all 2 trials failed"):
        sweep(recipe, {"training.lr": Values((1e29, 1e30))}, tmp_path / "none", "local")


def test_without_anything_held_out_a_metric_has_to_be_named(tmp_path):
    recipe = {**RECIPE, "evaluation": {"holdout": 0.0}}
    with pytest.raises(WayfareError, match="nothing is held out"):
        sweep(recipe, {"training.lr": Values((0.1, 0.2))}, tmp_path / "out", "local")
    with pytest.raises(ConfigError, match="not measured"):
        sweep(recipe, {"training.lr": Values((0.1, 0.2))}, tmp_path / "other", "local", metric="test/beauty")


def test_the_command_says_what_was_best_and_how_to_judge_it(tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text(Experiment.from_table(RECIPE).to_toml())
    tried = ["--try", "training.lr=1e-6,0.2", "--engine", "local", "--out", str(tmp_path / "out")]
    done = run("sweep", str(recipe), *tried, "--json")
    found = json.loads(done.stdout)
    assert found["best"]["settings"] == {"training.lr": 0.2}
    assert found["metric"] == "clients/accuracy"
    page = (tmp_path / "out" / "sweep.html").read_text()
    assert "trial-001" in page and "training.lr" in page
    again = run("sweep", str(recipe), *tried)
    assert "wayfare run" in again.stdout and "best.toml" in again.stdout
    judged = run("sweep", str(recipe), "--try", "training.lr=0.1,0.2", "--metric", "test/accuracy",
                    "--engine", "local", "--out", str(tmp_path / "test"))  # fmt: skip
    assert "look better than they are" in judged.stderr
