"""A federation of real devices: nodes with folders of their own, in this process; as programs in test_federation."""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

import device_folders
from command_lines import parsed
from grids import Grid, job, said
from wayfare.cli import main
from wayfare.core.errors import ConfigError, DataError, StoreError, WayfareError
from wayfare.deploy.local_folder import check_federable, checked, own
from wayfare.experiment import Evaluation, Experiment
from wayfare.partition.joined import Joined
from wayfare.runner import run
from wayfare.strategies.centralised import Centralised
from wayfare.strategies.fedproto import FedProto
from wayfare.strategies.scaffold import Scaffold
from wayfare.topologies.hierarchy import Hierarchy

needs_flower = pytest.mark.skipif(find_spec("flwr") is None, reason="Flower is not installed: wayfare[flower]")


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    """The households' folders."""
    root = tmp_path_factory.mktemp("households")
    device_folders.photograph(root)
    return root


@pytest.fixture
def identity(monkeypatch):
    """Flower's messages want to know who they are from."""
    from flwr.supercore.task_identity import TaskIdentity

    for name, value in (("_run_id", 1), ("_node_id", 1), ("_task_id", 1)):
        monkeypatch.setattr(TaskIdentity, name, value)


# ---- what a node makes of an experiment


def test_a_joined_population_by_hand():
    split = Joined(("anna", "bert"), (2, 3))(None, None)
    assert [list(split[i]) for i in range(2)] == [[0, 1], [0, 1, 2]]
    assert (
        [split.id(i) for i in range(2)]
        == ["c0", "c1"]
        == [Joined(("anna", "bert"), (2, 3)).client(n) for n in ("anna", "bert")]
    )


@pytest.mark.parametrize(
    ("names", "sizes", "wrong"),
    [
        ((), (), "names"),
        (("a",), (1, 2), "one size per name"),
        (("a", "a"), (1, 2), "same name"),
        (("a",), (0,), "no sam"),
    ],
)
def test_impossible_populations(names, sizes, wrong):
    with pytest.raises(ConfigError, match=wrong):
        Joined(names, sizes)


def test_what_cannot_be_federated(homes):
    experiment = device_folders.experiment(homes)
    for other, wrong in [
        (Experiment(), "reads no folder"),
        (replace(experiment, strategy=Centralised()), "stay where they are"),
        (replace(experiment, topology=Hierarchy(groups=2)), "simulation only"),
    ]:
        with pytest.raises(ConfigError, match=wrong):
            check_federable(other)


def test_a_node_that_has_changed_or_never_joined(homes):
    anna = own(device_folders.experiment(homes), str(homes / "anna"))
    there = anna.task.samples
    assert checked(replace(anna, partition=Joined(("anna",), (there,))), "anna").task.data.path == str(homes / "anna")
    with pytest.raises(DataError, match=f"{there} samples, and {there + 1} when"):
        checked(replace(anna, partition=Joined(("anna",), (there + 1,))), "anna")
    with pytest.raises(ConfigError, match="has not joined"):
        checked(replace(anna, partition=Joined(("bert",), (there,))), "anna")


# ---- a whole run, nodes in this process


@needs_flower
@pytest.mark.parametrize("strategy", [None, Scaffold()], ids=["fedavg", "scaffold"])
def test_the_model_is_that_of_a_local_run(strategy, homes, identity, tmp_path):
    from wayfare.deploy.server_run import run_job

    experiment = device_folders.experiment(homes, strategy)
    local = run(replace(experiment, partition=device_folders.dealt(homes)), tmp_path / "local", "local")
    events = []
    summary = run_job(Grid(homes, state=tmp_path / "state"), job(experiment, tmp_path / "run"), said(events))
    assert summary["model_sha256"] == local["model_sha256"] and summary["metrics"] == local["metrics"]
    assert summary["refused"] == 0 and summary["bytes_up"] == local["bytes_up"]
    assert [data["name"] for event, data in events if event == "node"] == list(device_folders.NAMES)
    rows = json.loads((tmp_path / "run/flower/nodes.json").read_text())
    assert [(row["device"], row["name"]) for row in rows] == [("c0", "anna"), ("c1", "bert"), ("c2", "carl")]


@needs_flower
@pytest.mark.parametrize("strategy", [Scaffold(), FedProto()], ids=["scaffold", "fedproto"])
def test_a_model_is_judged_and_trained_on_in_one_message(strategy, homes, identity, tmp_path):
    from wayfare.deploy.server_run import run_job

    experiment = replace(
        device_folders.experiment(homes, strategy, rounds=3), evaluation=Evaluation(every=1, test=False, holdout=0.2)
    )
    local = run(replace(experiment, partition=device_folders.dealt(homes)), tmp_path / "local", "local")
    grid = Grid(homes, state=tmp_path / "state")
    summary = run_job(grid, job(experiment, tmp_path / "run"), said([]))
    for key in ("metrics", "bytes_up", "bytes_down", "refused", "cold"):
        assert summary[key] == local[key], key
    calls = [message.content["call"] for message in grid.heard if message.content["call"]["program"] != "hello"]
    # round 0 to 2 are judged with the training of the next, round 3 alone
    assert [(call["program"], call.get("then", "")) for call in calls] == [("evaluate", "train")] * 9 + [
        ("evaluate", "")
    ] * 3


@needs_flower
def test_what_was_done_ahead_and_failed_is_asked_again(homes, identity, tmp_path):
    """The same, but for a device that has to be asked twice, and one whose early reply makes no sense."""
    from wayfare.deploy.server_run import run_job

    experiment = replace(device_folders.experiment(homes, Scaffold()), evaluation=Evaluation(every=1, holdout=0.2))
    local = run(replace(experiment, partition=device_folders.dealt(homes)), tmp_path / "local", "local")

    class Forgetful(Grid):
        def pull_messages(self, ids):
            [reply] = super().pull_messages(ids)
            for name in [name for name in reply.content if name.startswith("then/")]:
                if reply.metadata.src_node_id == 7 or (reply.metadata.src_node_id == 8 and "values" in name):
                    del reply.content[name]
            return [reply]

    grid = Forgetful(homes, state=tmp_path / "state")
    summary = run_job(grid, job(experiment, tmp_path / "run"), said([]))
    assert (summary["model_sha256"], summary["metrics"]) == (local["model_sha256"], local["metrics"])
    calls = [message.content["call"]["program"] for message in grid.heard]
    assert calls.count("train") == 4 and calls.count("evaluate") == 9


@needs_flower
def test_a_server_goes_on_with_its_run_and_nodes_under_other_numbers(homes, identity, tmp_path):
    from wayfare.deploy.server_run import run_job

    experiment = device_folders.experiment(homes, Scaffold(), rounds=4)
    whole = run_job(Grid(homes, state=tmp_path / "a"), job(experiment, tmp_path / "whole"), said([]))
    short = replace(experiment, rounds=2)
    run_job(Grid(homes, state=tmp_path / "b"), job(short, tmp_path / "run"), said([]))
    back = Grid(homes, ("carl", "anna", "bert"), tmp_path / "b")  # started anew: only their disks remember
    summary = run_job(back, job(short, tmp_path / "run", rounds=4), said([]))
    assert summary["model_sha256"] == whole["model_sha256"] and summary["cold"] == 0


@needs_flower
def test_what_is_wrong_with_a_nodes_photographs_is_told_there_only(homes, identity, tmp_path, capfd):
    from wayfare.deploy.server_run import gather

    grid = Grid(homes, ("nobody", "anna"))
    events = []
    found = gather(grid, device_folders.experiment(homes), count=1, wanted=(), wait=5, listen=said(events))
    assert list(found) == ["anna"]
    [warning] = [data["text"] for event, data in events if event == "warning"]
    assert "DataError" in warning and str(homes) not in warning
    assert str(homes / "nobody") in capfd.readouterr().err


@needs_flower
def test_other_classes_twins_and_those_who_do_not_come(homes, identity, tmp_path):
    from wayfare.deploy.server_run import gather

    (tmp_path / "zoe" / "elk").mkdir(parents=True)
    (tmp_path / "zoe" / "elk" / "1.png").symlink_to(homes / "anna/train/cat/anna-02.png")
    (tmp_path / "anna").symlink_to(homes / "anna")
    grid, events = Grid(tmp_path, ("zoe", "anna", "anna", "anna")), []
    grid.keys[10] = "bert"
    with pytest.raises(ConfigError, match="1 of 2 nodes came"):
        gather(grid, device_folders.experiment(homes), count=2, wanted=(), wait=0.5, listen=said(events))
    warnings = " ".join(data["text"] for event, data in events if event == "warning")
    assert "'zoe' has other classes" in warnings and "another 'anna'" in warnings
    assert "its key is that of 'bert'" in warnings


# ---- the commands, as far as they go without Flower's programs


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["server"], "--recipe is missing"),
        (["server", "--resume"], "--resume continues the run in --out"),
        (["server", "--recipe", "quickstart", "--nodes", "1", "--out", "new"], "reads no folder"),
        (["server", "--recipe", "quickstart"], "--nodes is missing"),
        (["server", "--recipe", "quickstart", "--listen", "nowhere"], "is not an address"),
        (["join", "--server", "localhost:1", "--photos", "missing", "--as", "x"], "no such folder"),
        (["join", "--server", "localhost:1", "--photos", ".", "--as", "a b"], "cannot be a node's name"),
        (["join", "--server", "localhost:1", "--photos", ".", "--as", "x", "--key", "k"], "belong together"),
        (["status", "."], "is not a federation"),
    ],
)
def test_wrong_use_is_explained(arguments, wrong, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["federate", *arguments]) in (1, 2)
    assert wrong in " ".join(capsys.readouterr().err.split())


@needs_flower
def test_status_shows_nodes_rounds_and_bytes(homes, identity, tmp_path, capfd):
    from wayfare.deploy.server_run import run_job

    folder = tmp_path / "run"
    summary = run_job(Grid(homes, state=tmp_path / "state"), job(device_folders.experiment(homes), folder), said([]))
    events = [("device", {"device": "c1"}), ("round", {"round": 2}), ("device", {"device": "c1"})]
    lines = [json.dumps({"event": event, "data": data}) for event, data in events]
    (folder / "flower/events.jsonl").write_text("\n".join([*lines, '{"eve']))  # one is being written
    capfd.readouterr()
    assert main(["federate", "status", str(folder), "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["round"], found["rounds"], found["finished"]) == (2, 2, True)
    assert found["bytes_up"] == summary["bytes_up"] > 0
    assert [(row["name"], row["replies"], row["now"]) for row in found["nodes"]] == [
        ("anna", 0, ""), ("bert", 2, "has answered"), ("carl", 0, ""),
    ]  # fmt: skip
    assert main(["federate", "status", str(folder), "--watch"]) == 0  # it is finished, so there is nothing to wait for
    shown = capfd.readouterr().out
    assert "round 2 of 2, finished" in shown and "bert" in shown and "has answered" in shown


def test_the_examples_commands_are_understood():
    """Those of units and of the compose file; the guide's are looked at with all other pages."""
    texts = [file.read_text() for file in sorted((Path(__file__).parents[2] / "examples/federation").iterdir())]
    found = [line for text in texts for line in re.findall(r"(?:wayfare federate|command:) ([a-z]+ .*)", text)]
    assert len(found) == 7, found
    for line in found:
        parsed(["wayfare", "federate", *shlex.split(line)])


# ---- Flower's programs


def test_a_lock_tells_who_holds_it(tmp_path):
    from wayfare.core.locks import await_end, held, holder

    lock = tmp_path / "lock"
    assert holder(lock) is None
    with held(lock, 0):  # for a process that is still to begin
        assert holder(lock) is None
    with held(lock, os.getpid()):
        assert holder(lock) == os.getpid()
        with pytest.raises(StoreError, match=rf"{tmp_path} is in use by process {os.getpid()}"), held(lock, 1):
            pass
    assert holder(lock) == 0
    await_end(lock, seconds=0)


def test_a_program_holds_its_lock_until_it_ends_and_is_killed_if_it_does_not(tmp_path):
    from wayfare.core.locks import await_end, holder
    from wayfare.deploy.flower_tools import started

    lock, log = tmp_path / "lock", tmp_path / "log"
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    with started([sys.executable, "-c", deaf], os.environ, log, lock) as process:
        while "up" not in log.read_text():
            time.sleep(0.01)
        process.terminate()
        assert holder(lock) == process.pid
        await_end(lock, seconds=0.2)
        assert process.wait(10) == -signal.SIGKILL and holder(lock) == 0


def test_one_server_to_a_run(tmp_path):
    from wayfare.core.locks import held
    from wayfare.deploy.server import Address, serve

    (tmp_path / "flower").mkdir()
    with held(tmp_path / "flower/server.lock", os.getpid()), pytest.raises(StoreError, match=f"process {os.getpid()}"):
        serve(
            device_folders.experiment(tmp_path),
            tmp_path,
            listen=Address("127.0.0.1", 1),
            certificates=None,
            nodes=1,
            wait=1.0,
            notify=said([]),
        )


def test_what_flowers_commands_say_and_how_they_end(monkeypatch):
    from wayfare.deploy import commands

    told = [[0, "{}"], [1, "This key is ALREADY known"]]
    monkeypatch.setattr(commands, "called", lambda command, env: json.dumps(told))
    asked = [["run", "app"], ["supernode", "register", "key"]]
    assert commands.flwr(asked, {}, tolerated="already") == ["{}", "This key is ALREADY known"]
    with pytest.raises(WayfareError, match="`flwr supernode register` failed: This key is ALREADY known"):
        commands.flwr(asked, {})


def test_nothing_is_reported_or_installed(tmp_path, monkeypatch):
    from wayfare.deploy.flower_tools import environment

    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")  # whatever the user's is
    env = environment(tmp_path)
    off = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    assert off.items() <= env.items() and env["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert env["FLWR_HOME"] == str(tmp_path)


# ---- a warm process


def test_a_program_passes_its_arguments_on_or_becomes_the_real_one(tmp_path):
    from wayfare.deploy.warm_process import _write_program

    real, door = tmp_path / "the real one", tmp_path / "door"
    real.write_text('#!/bin/sh\necho "$0: $@"\n')
    real.chmod(0o700)
    program = _write_program(tmp_path, door, str(real))
    call = [program, "--token", "a b"]
    assert subprocess.run(call, capture_output=True, text=True).stdout == f"{real}: --token a b\n"  # nobody is there
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(door))
        listener.listen()
        with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as process:
            line, _ = listener.accept()
            with line, line.makefile("rb") as told:
                assert json.loads(told.readline()) == ["--token", "a b"]
                line.sendall(b"1")
            assert process.communicate()[0] == "" and process.returncode == 0


# ---- keys


@needs_flower
def test_keys(tmp_path):
    from wayfare.deploy.keys import make_keys

    made = make_keys(tmp_path / "k", ["anna"], ["localhost", "127.0.0.1"])
    assert sorted(path.name for path in made) == ["anna", "anna.pub", "ca.crt", "ca.key", "server.key", "server.pem"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in made)
    before = (tmp_path / "k/ca.crt").read_bytes()
    assert [path.name for path in make_keys(tmp_path / "k", ["anna", "bert"], ["x"])] == ["bert", "bert.pub"]
    assert (tmp_path / "k/ca.crt").read_bytes() == before
    with pytest.raises(ConfigError, match="node's name"):
        make_keys(tmp_path / "k", ["../anna"], ["x"])


@needs_flower
def test_a_certificate_for_another_address(tmp_path):
    """The server's own look at its port says so, and what to do, instead of waiting."""
    from wayfare.deploy.keys import make_keys
    from wayfare.deploy.server import Address, _wait_until_up

    make_keys(tmp_path / "keys", ["anna"], ["elsewhere.example.org"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "keys/server.pem", tmp_path / "keys/server.key")

    def answer(listening):
        with contextlib.suppress(OSError):
            context.wrap_socket(listening.accept()[0], server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=answer, args=(listening,), daemon=True).start()
        here = Address("127.0.0.1", listening.getsockname()[1])
        process = SimpleNamespace(poll=lambda: None)
        with pytest.raises(ConfigError, match=r"not for 127.0.0.1: .*federate keys --host 127.0.0.1"):
            _wait_until_up(here, tmp_path / "keys", process, tmp_path / "log")
