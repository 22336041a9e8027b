"""The command line as people and programs use it."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wayfare.cli import main
from wayfare.cli.look import Things

FAST = ["--engine", "local", "--set", "model.width=4", "--set", "model.hidden=8", "--set", "training.epochs=1"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def call(capsys, *arguments):
    """Exit status, standard output, standard error."""
    status = main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def a_run(capsys, folder="run", *more):
    status, out, err = call(capsys, "run", "quickstart", "--out", folder, "--rounds", 2, "--json", *FAST, *more)
    assert status == 0, err
    return json.loads(out)


def test_run_prints_one_json_object_with_the_promised_keys(capsys):
    result = a_run(capsys)
    wanted = {"run", "rounds", "metrics", "model_sha256", "seconds", "bytes_up", "bytes_down", "refused", "cold"}
    assert wanted <= result.keys()
    assert result["rounds"] == 2 and result["refused"] == 0 and len(result["model_sha256"]) == 64
    # 5 clients x 2 rounds x the model; down there is only the model, up also four numbers and two flags
    assert result["bytes_down"] % 10 == 0 and result["bytes_up"] > result["bytes_down"] > 0


def test_the_same_run_twice_gives_the_same_model_and_another_seed_another(capsys):
    first, second = a_run(capsys, "a"), a_run(capsys, "b")
    other = a_run(capsys, "c", "--seed", "1")
    assert first["model_sha256"] == second["model_sha256"] != other["model_sha256"]


def test_settings_reach_the_experiment(capsys):
    a_run(capsys, "run", "--set", "strategy.name=fedprox", "--set", "strategy.mu=0.5")
    text = Path("run/experiment.toml").read_text()
    assert 'name = "fedprox"' in text and "mu = 0.5" in text


def test_a_finished_run_is_extended_by_resume(capsys):
    whole = a_run(capsys, "whole", "--rounds", "3")
    a_run(capsys, "part")
    status, out, _ = call(capsys, "resume", "part", "--rounds", 3, "--engine", "local", "--json")
    assert status == 0 and json.loads(out)["model_sha256"] == whole["model_sha256"]


def test_seeds_give_mean_and_deviation(capsys):
    result = a_run(capsys, "seeds", "--seeds", "2")
    values = [run["metrics"]["test/accuracy"] for run in result["runs"]]
    assert result["metrics"]["test/accuracy"] == pytest.approx(sum(values) / 2)
    assert result["sd"]["test/accuracy"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    status, out, _ = call(capsys, "compare", "seeds", "--json")
    assert status == 0 and json.loads(out)["groups"][0]["n"] == 2


def test_reproduce_runs_the_cells_once(capsys):
    arguments = ["reproduce", "quickstart", "--out", "table", "--cells", "local,fedavg", "--json", *FAST]
    arguments += ["--set", "rounds=1"]
    status, out, err = call(capsys, *arguments)
    assert status == 0, err
    result = json.loads(out)
    assert [group["label"] for group in result["groups"]] == ["local", "fedavg"]
    assert Path("table/index.html").stat().st_size > 100_000
    before = Path("table/fedavg/rounds.jsonl").stat().st_mtime_ns
    assert call(capsys, *arguments)[0] == 0
    assert Path("table/fedavg/rounds.jsonl").stat().st_mtime_ns == before


def test_report_split_and_list(capsys):
    a_run(capsys, "runs/one")
    status, out, _ = call(capsys, "report", "runs/one", "--json")
    assert status == 0 and Path(json.loads(out)["page"]).exists()
    status, out, _ = call(capsys, "list", "--json")
    assert status == 0 and json.loads(out)["runs"][0]["rounds"] == 2
    status, out, _ = call(capsys, "split", "quickstart", "--out", "split.html", "--save", "split.bin", "--json")
    table = json.loads(out)["table"]
    assert status == 0 and table["clients"] == 10 and 0 < table["entropy"] < 1
    assert Path("split.html").exists() and Path("split.bin").exists()


def test_list_tells_parts_of_one_file_apart(capsys):
    _, out, _ = call(capsys, "list", "robust", "--json")
    about = {name: each["about"] for name, each in json.loads(out)["robust"].items()}
    assert about["median"] == "The median of each number (Yin et al., 2018)." and len(set(about.values())) == len(about)


@pytest.mark.parametrize("what", [each.value for each in Things if each is not Things.runs])
def test_list_shows_what_there_is(capsys, what):
    status, out, _ = call(capsys, "list", what, "--json")
    assert status == 0 and json.loads(out)[what]
    status, out, _ = call(capsys, "list", what)
    assert status == 0 and out.strip()


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["run", "quickstrat"], 2, "quickstart"),
        (["run", "missing.toml"], 2, "missing.toml"),
        (["run", "x" * 300], 1, "File name too long"),
        (["run", "."], 1, "the folder is empty"),
        (["run", "quickstart", "--set", "strategy.name=fedporx"], 2, "did you mean 'fedprox'"),
        (["run", "quickstart", "--set", "training.learning_rate=1"], 2, "Known: at_most, batch_size"),
        (["run", "quickstart", "--set", "training.lr=fast"], 2, "training.lr"),
        (["run", "quickstart", "--set", "training.lr"], 2, "KEY=VALUE"),
        (["run", "quickstart", "--set", "topology.per_round=99"], 2, "10 clients"),
        (["run", "quickstart", "--rounds", "0"], 2, "rounds"),
        (["run", "quickstart", "--engine", "warp"], 2, "pool"),
        (["run", "quickstart", "--track", "wandb"], 2, "tensorboard"),
        (["run", "quickstart", "--set", "data.name=folder", "--set", "data.path=nowhere"], 1, "nowhere"),
        (["run", "quickstart", "--set", "device=cuda"], 2, "cuda"),
        (["resume", "nowhere"], 1, "nowhere"),
        (["resume", "."], 1, "experiment.toml"),
        (["report", "nowhere"], 1, "nowhere"),
        (["compare", "nowhere"], 1, "nowhere"),
        (["reproduce", "quickstart", "--cells", "fedawg"], 2, "fedavg"),
        (["frobnicate"], 2, "frobnicate"),
        (["run"], 2, "RECIPE"),
        (["data", "get", "imagenet"], 2, "cifar10"),
    ],
)
def test_mistakes_get_a_clear_answer(capsys, arguments, status, says):
    got, _, err = call(capsys, *arguments)
    assert got == status, err
    assert says.lower() in " ".join(err.lower().split()), err


def test_a_second_run_does_not_overwrite_the_first(capsys):
    first = a_run(capsys)
    status, out, err = call(capsys, "run", "quickstart", "--out", "run", "--json", *FAST)
    assert status == 1 and "resume" in err and json.loads(out)["kind"] == "StoreError"
    assert json.loads(Path("run/summary.json").read_text())["model_sha256"] == first["model_sha256"]


def test_an_interrupted_run_says_how_to_continue():
    command = [sys.executable, "-c", "from wayfare.cli import main; main()", "run", "quickstart", "--out", "run"]
    process = subprocess.Popen(
        [*command, "--rounds", "500", *FAST],
        stderr=subprocess.PIPE,
        text=True,
        # a shell that runs the tests in the background has Ctrl-C ignored, and children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not Path("run/rounds.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "wayfare resume run" in err
    lines = Path("run/rounds.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["round"] == len(lines) - 1


def test_standard_output_holds_nothing_but_the_json(capfd):
    assert main(["run", "quickstart", "--out", "run", "--rounds", "1", "--json", *FAST]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out) and "round 1/1" in err
