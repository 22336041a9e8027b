"""Three nodes and a server as processes, over SuperLink, TLS and keys, in trouble: see tests/federation.py.

It takes two to three minutes, most of it Flower's start and deadlines, and all tests here look at the same federation.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import federation
import offline

pytestmark = [
    pytest.mark.skipif(find_spec("flwr") is None, reason="Flower is not installed: wayfare[flower]"),
    pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc"),
    pytest.mark.timeout(600),
]


def _beside_a_clone(folder: Path) -> Path:
    """Where people start: the folder with the clone in it. Neither Python nor Flower may take ./wayfare for its own."""
    clone = folder / "start" / "wayfare"
    clone.mkdir(parents=True)
    (clone / "__init__.py").write_text("raise ImportError('imported from the current folder')\n")
    (clone / "pyproject.toml").write_bytes(Path(__file__).parents[2].joinpath("pyproject.toml").read_bytes())
    return clone.parent


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """What came of it; without any network but the loopback, where that can be had."""
    folder, alone = tmp_path_factory.mktemp("federation"), offline.is_possible()
    command = [sys.executable, federation.__file__, str(folder), "--runs", "trouble"]
    command = [*offline.WITHOUT_NETWORK, *command, "--alone"] if alone else command
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, cwd=_beside_a_clone(folder))
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])  # libraries may print before it


def test_in_trouble_the_model_is_that_of_a_local_run_without_those_devices(played):
    local, there = played["trouble"]["local"], played["trouble"]["summary"]
    for key in ("model_sha256", "metrics", "bytes_up", "bytes_down", "rounds"):
        assert there[key] == local[key], key
    assert there["cold"] == there["void"] == 0  # whoever came back has not forgotten


def test_every_fault_is_counted_and_no_other(played):
    refused = {f"{each['device']}@{each['round']}": each["reason"] for each in played["trouble"]["refused"]}
    assert played["trouble"]["summary"]["refused"] == len(played["trouble"]["refused"]) == 3
    assert refused.keys() == {federation.NAN, federation.KILLED, federation.STOPPED}
    assert refused[federation.NAN].startswith("not finite: model/")
    assert all(refused[name].startswith("failed: ") for name in (federation.KILLED, federation.STOPPED))


def test_the_server_was_killed_between_rounds_two_and_three(played):
    assert played["trouble"]["lines_before_the_cut"] == 3  # rounds 0 to 2
    assert played["trouble"]["waited_for_the_old_one"]  # what Flower still did for it would have mixed with the new


def test_a_stranger_is_turned_away_and_everybody_is_on_record(played):
    seen = played["trouble"]["seen"]
    assert {line["name"] for line in seen if line["event"] == "join"} == {"anna", "bert", "carl"}
    keys = {line["name"]: line["key"] for line in seen if line["event"] == "join"}
    assert all(key.startswith("SHA256:") for key in keys.values()) and len(set(keys.values())) == 3
    strangers = [line for line in seen if line["event"] == "refused" and not line["name"]]
    assert strangers and all("no certificate of this federation" in line["reason"] for line in strangers)
    assert [line for line in seen if line["event"] == "leave"]


def test_nothing_but_the_loopback_is_contacted(played):
    if "devices" not in played:
        pytest.skip("this system does not let us take the network away (unshare -rn)")
    assert played["devices"] == ["lo"] and played["tried_elsewhere"] == 0


def test_attempts_to_go_elsewhere_are_seen():
    if not offline.is_possible():
        pytest.skip("this system does not let us take the network away (unshare -rn)")
    code = (
        "import socket, offline as f; f.alone(); before = f.tried_elsewhere()\n"
        "for family, to in ((socket.AF_INET, '192.0.2.1'), (socket.AF_INET6, '2001:db8::1')):\n"
        "    with socket.socket(family, socket.SOCK_DGRAM) as one: one.connect_ex((to, 53))\n"
        "print(before, f.tried_elsewhere())"
    )
    command = [*offline.WITHOUT_NETWORK, sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(federation.__file__).parent)
    assert done.stdout.split() == ["0", "2"], done.stderr
