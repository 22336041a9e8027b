"""A federation of real devices: nodes with folders of their own, in this process; as programs in test_federation."""

import json
import os
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

import device_folders
from command_lines import parsed
from grids import Grid, job, said
from wayfare.cli import main
from wayfare.core.errors import ConfigError, DataError, StoreError
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
    """The devices' folders."""
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
        (replace(experiment, strategy=Centralised()), "stay on the devices"),
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
def test_what_is_wrong_with_a_nodes_photographs_is_told_there_only(homes, identity):
    from wayfare.deploy.server_run import gather

    grid = Grid(homes, ("nobody", "anna"))
    events = []
    found = gather(grid, device_folders.experiment(homes), count=1, wanted=(), wait=5, listen=said(events))
    assert list(found) == ["anna"]
    [warning] = [data["text"] for event, data in events if event == "warning"]
    assert "DataError" in warning and str(homes) not in warning
    assert str(homes / "nobody") in (homes / "state/nobody/node.log").read_text()


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
        (["server", "--recipe", "quickstart"], "invite the nodes first"),
        (["server", "--recipe", "quickstart", "--listen", "nowhere"], "is not an address"),
        (["invite", "a b", "--server", "localhost:1"], "cannot be a node's name"),
        (["invite", "anna", "--server", "localhost"], "is not an address"),
        (["invite", "anna", "--server", "local host:1"], "is not a host name"),
        (["join", "missing", "--photos", "."], "cannot read the invitation"),
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
    lines = [json.dumps({"event": event, "time": when, "data": data}) for when, (event, data) in enumerate(events, 7)]
    (folder / "flower/events.jsonl").write_text("\n".join([*lines, '{"eve']))  # one is being written
    capfd.readouterr()
    assert main(["federate", "status", str(folder), "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["round"], found["rounds"], found["finished"]) == (2, 2, True)
    assert found["bytes_up"] == summary["bytes_up"] > 0
    assert [(row["name"], row["replies"], row["now"]) for row in found["nodes"]] == [
        ("anna", 0, ""), ("bert", 2, "has answered"), ("carl", 0, ""),
    ]  # fmt: skip
    assert [row["seen"] for row in found["nodes"]] == [0, 9, 0]
    assert main(["federate", "status", str(folder), "--watch"]) == 0  # it is finished, so there is nothing to wait for
    shown = " ".join(capfd.readouterr().out.split())
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
    with started([sys.executable, "-c", deaf], os.environ, log, lock=lock) as process:
        while "up" not in log.read_text():
            time.sleep(0.01)
        process.terminate()
        assert holder(lock) == process.pid
        await_end(lock, seconds=0.2)
        assert process.wait(10) == -signal.SIGKILL and holder(lock) == 0


@needs_flower
def test_one_server_to_a_run(tmp_path):
    from wayfare.core.locks import held
    from wayfare.deploy.invite import invite
    from wayfare.deploy.server import serve
    from wayfare.io.address import Address

    here = Address("127.0.0.1", 1)
    invite(tmp_path / "keys", "anna", here, 1, tmp_path / "anna.invite")
    (tmp_path / "flower").mkdir()
    with held(tmp_path / "flower/server.lock", os.getpid()), pytest.raises(StoreError, match=f"process {os.getpid()}"):
        serve(
            device_folders.experiment(tmp_path),
            tmp_path,
            listen=here,
            certificates=tmp_path / "keys",
            nodes=1,
            wait=1.0,
            notify=said([]),
        )


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


# ---- invitations


@needs_flower
def test_an_invitation_is_one_private_file_and_a_name_is_given_once(tmp_path, monkeypatch, capsys):
    from wayfare.deploy.invite import read_invite
    from wayfare.deploy.keys import Roll
    from wayfare.io.certificates import fingerprint

    monkeypatch.chdir(tmp_path)
    assert main(["federate", "invite", "camera-1", "--server", "server.example.org:8000", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    file = tmp_path / "camera-1.invite"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kept = [path for path in (tmp_path / "keys").rglob("*") if path.is_file()]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in kept)
    assert sorted(path.name for path in kept) == ["ca.crt", "ca.key", "camera-1.crt", "server.key", "server.pem"]
    found = read_invite(file)
    assert (found.name, found.server) == ("camera-1", "server.example.org:8000")
    assert told["key"] == fingerprint(Roll(tmp_path / "keys").public_keys()["camera-1"])
    authority = (tmp_path / "keys/ca.crt").read_bytes()
    again = ["federate", "invite", "camera-1", "--server", "server.example.org:8000", "--out", "again.invite"]
    assert main(again) == 2 and "a name belongs to one key" in " ".join(capsys.readouterr().err.split())
    assert main(["federate", "revoke", "camera-1"]) == 0 and main(again) == 0
    assert read_invite(tmp_path / "again.invite").certificate != found.certificate
    assert (tmp_path / "keys/ca.crt").read_bytes() == authority
    assert main(["federate", "revoke", "nobody"]) == 2


@needs_flower
def test_the_servers_certificate_is_for_the_hosts_of_all_invitations(tmp_path):
    from wayfare.deploy.invite import invite
    from wayfare.deploy.keys import _hosts_of
    from wayfare.io.address import Address

    for name, host in (("anna", "one.example.org"), ("bert", "192.0.2.7"), ("carl", "2001:db8::1")):
        invite(tmp_path / "keys", name, Address(host, 8000), 1 + 30, tmp_path / name)
    hosts = _hosts_of(tmp_path / "keys/server.pem")
    assert {"one.example.org", "192.0.2.7", "2001:db8::1", "localhost", "127.0.0.1"} <= set(hosts)


@pytest.fixture(scope="module")
def invitation(tmp_path_factory):
    from wayfare.deploy.invite import invite
    from wayfare.io.address import Address

    folder = tmp_path_factory.mktemp("invitation")
    invite(folder / "keys", "anna", Address("localhost", 8000), 1, folder / "anna.invite")
    invite(folder / "others", "anna", Address("localhost", 8000), 1, folder / "other.invite")
    return folder


@needs_flower
@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda text, other: text.replace('name = "anna"', 'name = "bert"'), "for another name"),
        (lambda text, other: text.replace('name = "anna"', 'name = "../x"'), "cannot be a node's name"),
        (lambda text, other: text.replace("localhost:8000", "localhost"), "is not an address"),
        (lambda text, other: text.replace("localhost:8000", "a b;c:8000"), "not a host name"),
        (lambda text, other: text.replace('app = "', 'app = "0'), "not a SHA-256"),
        (lambda text, other: text.replace("version = 1", "version = 2"), "expected version = 1"),
        (lambda text, other: text + 'run = "rm"\n', "expected exactly the fields"),
        (lambda text, other: text.replace("version = 1", "version = 1\nx = " + "[" * 5000), "not a valid invitation"),
        (lambda text, other: text + "#" * 2**16, "more than 65536 bytes"),
        (lambda text, other: text.replace(text[text.index("key =") :], other[other.index("key =") :]), "not belong"),
        (lambda text, other: _with(text, other, "authority"), "not from its authority"),
        (lambda text, other: text[: len(text) // 2], "not a valid invitation"),
        (lambda text, other: "\x00\x1b[2J", "not a valid invitation"),
    ],
)  # fmt: skip
def test_an_invitation_that_was_changed_is_refused(invitation, tmp_path, change, wrong):
    from wayfare.deploy.invite import read_invite

    changed = change((invitation / "anna.invite").read_text(), (invitation / "other.invite").read_text())
    (tmp_path / "changed").write_text(changed)
    with pytest.raises(ConfigError, match=wrong):
        read_invite(tmp_path / "changed")


def _with(text, other, field):
    """The text with one field of another invitation."""
    pattern = re.compile(rf"{field} = '''.*?'''", re.DOTALL)
    return pattern.sub(lambda _: pattern.search(other)[0], text, count=1)


# ---- one app, and no way out


@needs_flower
def test_the_app_is_one_that_flower_takes_and_its_hash_is_pinned():
    from flwr.common.config import get_fab_config

    from wayfare.deploy.app_bundle import app_bundle, app_hash

    components = get_fab_config(app_bundle())["tool"]["flwr"]["app"]["components"]
    assert components["clientapp"] == "wayfare.deploy.client_app:app"
    # invitations hold it: if it changes, nodes that were invited before refuse the server
    assert app_hash() == "14378a4d356c880ba4431b87b63284266c9fab87ad026570a0869dab84c240dc"


@needs_flower
def test_a_node_takes_no_other_app(invitation, tmp_path, monkeypatch):
    from flwr.proto.fab_pb2 import Fab, GetFabRequest, GetFabResponse
    from flwr.supernode.fleet_http_client import FleetHttpClient

    from wayfare.deploy.app_bundle import app_bundle
    from wayfare.deploy.invite import read_invite
    from wayfare.deploy.node import Node
    from wayfare.deploy.supernode import pinned_client

    (tmp_path / "photos").mkdir()
    node = Node(read_invite(invitation / "anna.invite"), tmp_path / "photos", tmp_path / "home")
    node.settle()
    client = pinned_client(node._settings(tmp_path))("https://localhost:8000")
    sent = GetFabResponse(fab=Fab(content=app_bundle()))
    monkeypatch.setattr(FleetHttpClient, "GetFab", lambda self, request: sent)
    with client:
        assert client.GetFab(GetFabRequest()) is sent
        sent = GetFabResponse(fab=Fab(content=app_bundle() + b" "))
        with pytest.raises(BaseException, match="refused: the server sent an app"):
            client.GetFab(GetFabRequest())
    assert "refused: the server sent an app" in (tmp_path / "home/node.log").read_text()
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (tmp_path / "home").glob("*.key"))


@needs_flower
def test_two_nodes_do_not_share_a_home(invitation, tmp_path):
    """The second would overwrite the first one's keys and memories."""
    from wayfare.deploy.invite import read_invite
    from wayfare.deploy.node import Node

    (tmp_path / "photos").mkdir()
    node = Node(read_invite(invitation / "anna.invite"), tmp_path / "photos", tmp_path / "home", "off")
    with (
        node.running(notify=lambda text: None),
        pytest.raises(StoreError, match=f"home is in use by process {os.getpid()}"),
        node.running(),
    ):
        pass
    with node.running(notify=lambda text: None):  # it was released
        pass


def test_a_node_says_when_its_server_cannot_be_reached_and_when_it_can_again(tmp_path):
    from wayfare.deploy.relay import relay
    from wayfare.io.address import Address

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        address, told = Address("127.0.0.1", one.getsockname()[1]), []

    def knock():
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(tmp_path / "relay"))
            line.settimeout(20)
            return line.recv(1)

    with relay(tmp_path / "relay", address, told.append):
        assert knock() == knock() == b""
        assert told == [f"cannot reach {address} (Connection refused): trying again until it answers"]
        with socket.create_server((address.host, address.port)) as server:
            thread = threading.Thread(target=lambda: server.accept()[0].close())
            thread.start()
            assert knock() == b""
            thread.join()
    assert told[1:] == [f"{address} answers again"]


def test_in_the_sandbox_photographs_cannot_be_changed_and_nothing_is_reached(tmp_path):
    from wayfare.deploy import sandbox

    if subprocess.run([sys.executable, "-IS", sandbox.__file__, "--check"], capture_output=True).returncode:
        pytest.skip("this system does not allow a sandbox")
    home, photos = tmp_path / "home", tmp_path / "home/photos"
    photos.mkdir(parents=True)
    code = """
import os, socket, sys
def tried(what, *arguments):
    try:
        what(*arguments)
        return "done"
    except OSError as error:
        return error.strerror
def write(path):
    open(path, "w").close()
home, photos, outside = sys.argv[1:]
print(tried(write, home + "/x"), tried(write, photos + "/x"), tried(write, outside + "/x"), tried(os.rmdir, photos))
print(sorted(name for _, name in socket.if_nameindex()))
print(tried(socket.create_connection, ("192.0.2.1", 80), 2))
with socket.create_server(("127.0.0.1", 0)) as near:
    print(tried(socket.create_connection, near.getsockname()))
"""
    given = ["--writable", str(home), "--read-only", str(photos)]
    command = [sys.executable, "-IS", sandbox.__file__, *given, "--", sys.executable, "-c", code]
    done = subprocess.run([*command, str(home), str(photos), str(tmp_path)], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("done Read-only file system Read-only file system"), done.stdout + done.stderr
    assert "done" not in lines[0][5:]
    assert lines[1:] == ["['lo']", "Network is unreachable", "done"]


def test_what_is_said_where_there_is_no_sandbox(monkeypatch):
    from wayfare.deploy import node

    monkeypatch.setattr(node.sandbox, "__file__", "/nowhere/sandbox.py")
    said = []
    assert not node.confined("auto", said.append) and "no sandbox on this system" in said[0]
    assert not node.confined("off", said.append) and "switched off" in said[1]
    with pytest.raises(ConfigError, match="no sandbox for --sandbox required"):
        node.confined("required", said.append)


# ---- the fence's rules and log, and Flower's local port


@needs_flower
def test_a_reply_may_be_so_large_and_a_node_pulls_what_it_was_sent():
    import base64

    from flwr.proto import fleet_pb2 as fleet
    from flwr.proto import message_pb2 as message

    from wayfare.deploy.fence_rules import Conduct, FenceRefusal

    conduct, key = Conduct(b"key"), base64.b64encode(b"key").decode()
    tree = message.ObjectTree(object_id="m", children=[message.ObjectTree(object_id="part")])
    asked = message.Message(metadata=message.Metadata(message_id="m"))
    sent = fleet.PullMessagesResponse(messages_list=[asked], message_object_trees=[tree])
    conduct.note("pull-messages", sent.SerializeToString())
    for part in ("m", "part"):
        conduct.check("pull-object", key, message.PullObjectRequest(object_id=part).SerializeToString())
    conduct.check("confirm-message-received", key,
                  message.ConfirmMessageReceivedRequest(message_object_id="m").SerializeToString())  # fmt: skip
    conduct.note("pull-object", b"0" * 2**20)
    conduct.note("push-messages", fleet.PushMessagesResponse(objects_to_push=["mine"]).SerializeToString())
    push = message.PushObjectRequest(object_id="mine", object_content=b"0" * 2**20).SerializeToString()
    for _ in range(64 + 4):  # 64 MiB, and four times the one that it was sent
        conduct.check("push-object", key, push)
    with pytest.raises(FenceRefusal, match="its reply has more than 4 times") as found:
        conduct.check("push-object", key, push)
    assert found.value.status == 413
    with pytest.raises(FenceRefusal, match="not a message of Flower"):
        conduct.check("push-object", key, b"\xff\xff")
    with pytest.raises(FenceRefusal, match="cannot be read"):
        conduct.check("push-object", "\u00fc", push)


@needs_flower
def test_a_node_that_asks_too_much_has_to_wait(invitation):
    from cryptography import x509

    from wayfare.deploy.fence import _BURST, InvitedDevice, Peer

    certificate = x509.load_pem_x509_certificate((invitation / "keys/nodes/anna.crt").read_bytes())
    guest = InvitedDevice(Peer("anna", "SHA256:x", "127.0.0.1", certificate))
    pauses = [guest.pause() for _ in range(int(_BURST) + 200)]
    assert pauses[: int(_BURST)] == [0.0] * int(_BURST) and 0.5 < pauses[-1] <= 2.0


def test_equal_refusals_are_counted_and_the_log_stays_small(tmp_path):
    from wayfare.deploy.fence_log import FenceLog, read_fence_log

    now = [0.0]
    log = FenceLog(tmp_path / "fence.jsonl", clock=lambda: now[0])
    log.joined("anna", "SHA256:x", "127.0.0.1")
    for _ in range(1000):
        log.refused("", "", "192.0.2.1", "no certificate")
    for number in range(1000):
        log.refused("", "", f"192.0.2.{number}", "no certificate")
    now[0] = 61.0
    log.flush()
    lines = read_fence_log(tmp_path / "fence.jsonl")
    assert [line["event"] for line in lines].count("join") == 1 and len(lines) < 210
    assert sum(line.get("times", 1) for line in lines if line["event"] == "refused") == 2000
    with (tmp_path / "fence.jsonl").open("a") as file:
        file.write('{"event": "jo')  # it is being written
    assert read_fence_log(tmp_path / "fence.jsonl") == lines


def test_who_passes_to_flowers_local_port():
    from wayfare.deploy.owner_only import _may_pass

    def scope(path, server=("127.0.0.1", 1), client=("127.0.0.1", 2), headers=()):
        return {"type": "http", "path": path, "server": server, "client": client, "headers": list(headers)}

    assert _may_pass(scope("/v1/control/start-run", server=("/a/socket", None), client=None))
    assert not _may_pass(scope("/v1/control/start-run"))
    assert not _may_pass({**scope("/v1/runtime/acquire-task"), "type": "websocket"})
    with socket.create_server(("127.0.0.1", 0)) as near, socket.create_connection(near.getsockname()) as far:
        ends = {"server": near.getsockname(), "client": far.getsockname()}
        assert _may_pass(scope("/v1/runtime/acquire-task", **ends))
        assert not _may_pass(scope("/v1/runtime/create-task", **ends))
        assert not _may_pass(scope("/v1/runtime/acquire-task", headers=[(b"X-Forwarded-For", b"127.0.0.1")], **ends))
        if sys.platform == "linux":  # no such connection
            assert not _may_pass(scope("/v1/runtime/acquire-task", server=near.getsockname(), client=("127.0.0.1", 1)))
