"""Weights from outside: good ones are converted, harmful ones do nothing, greedy ones are stopped."""

from __future__ import annotations

import hashlib
import os
import pickle
import socket
import subprocess
import sys
import warnings
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from wayfare.core.errors import DataError
from wayfare.io import weights
from wayfare.io.weights import import_weights, load_weights


def good() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(5, 2)).state_dict()


def saved(value: Any, path: Path, old: bool = False) -> Path:
    torch.save(value, path, _use_new_zipfile_serialization=not old)
    return path


def convert_here(source: Path) -> Path:
    """What happens behind the fence, without the process: for the many cases that need no limit to be stopped."""
    target = source.with_suffix(".safetensors")
    weights._convert(source, target)
    return target


# ---- Good ones, through the fence


def test_a_state_dict_arrives_unchanged(tmp_path: Path) -> None:
    expected = good()
    source = saved(expected, tmp_path / "net.pth")
    target = tmp_path / "new" / "net.safetensors"
    facts = import_weights(source, target)
    assert [entry.name for entry in target.parent.iterdir()] == ["net.safetensors"]
    content = target.read_bytes()
    assert facts == {"sha256": hashlib.sha256(content).hexdigest(), "tensors": len(expected), "bytes": len(content)}
    found = load_weights(target, sha256=str(facts["sha256"]))
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_the_form_before_torch_1_6_is_read(tmp_path: Path) -> None:
    found = load_file(convert_here(saved(good(), tmp_path / "net.pth", old=True)))
    assert found.keys() == good().keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in good().items())


@pytest.mark.parametrize("wrapper", ["state_dict", "model_state_dict", "model"])
def test_a_checkpoint_is_looked_into(wrapper: str, tmp_path: Path) -> None:
    source = saved({"epoch": 3, wrapper: OrderedDict(good())}, tmp_path / "net.pth")
    assert load_file(convert_here(source)).keys() == good().keys()


def test_tensors_that_share_memory_are_written_each(tmp_path: Path) -> None:
    table = torch.arange(600.0).reshape(20, 30)
    found = load_file(convert_here(saved({"a": table, "b": table, "c": table.T}, tmp_path / "net.pth")))
    assert torch.equal(found["b"], table)
    assert torch.equal(found["c"], table.T)


# ---- Harmful ones


class Calls:
    """Pickles to a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def harmful(canary: Path) -> dict[str, Any]:
    code = f"open({str(canary)!r}, 'w').close()"
    tensor = torch.zeros(2)
    return {
        "system": Calls(os.system, f"touch {canary}"),
        "exec": Calls(exec, code),
        "eval": Calls(eval, code),
        "open": Calls(open, str(canary), "w"),
        "mkdir": Calls(os.mkdir, str(canary)),
        "popen": Calls(subprocess.Popen, ["touch", str(canary)]),
        "run": Calls(subprocess.run, ["touch", str(canary)]),
        "in a dict": {"weight": tensor, "x": Calls(exec, code)},
        "as a key": {Calls(os.system, f"touch {canary}"): tensor},
        "nested": {"state_dict": {"weight": [Calls(exec, code)]}},
        "torch.load": Calls(torch.load, str(canary)),
        "torch.save": Calls(torch.save, tensor, str(canary)),
        "numpy": Calls(__import__("numpy").save, str(canary), [1]),
        "pickle in a pickle": Calls(pickle.loads, pickle.dumps(Calls(exec, code))),
    }


HARMFUL = [(kind, form) for kind in harmful(Path("x")) for form in ("zip", "bare")]
HARMFUL += [("exec", "old"), ("system", "old")]


def harmful_file(kind: str, form: str, folder: Path) -> Path:
    value = harmful(folder / "canary")[kind]
    path = folder / "net.pth"
    if form == "bare":
        path.write_bytes(pickle.dumps(value, 2))
        return path
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return saved(value, path, old=form == "old")


@pytest.mark.parametrize(("kind", "form"), HARMFUL)
def test_a_harmful_file_is_refused_and_does_nothing(kind: str, form: str, tmp_path: Path) -> None:
    source = harmful_file(kind, form, tmp_path)
    with pytest.raises(Exception) as caught:  # whatever it is, the fence turns it into a reason
        convert_here(source)
    assert weights._explained(caught.value, 1).startswith("it refers to ")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["net.pth"]


def test_there_are_twenty_harmful_files_and_they_would_do_harm(tmp_path: Path) -> None:
    assert len(HARMFUL) >= 20
    for kind in ("exec", "mkdir", "nested"):
        pickle.loads(harmful_file(kind, "bare", tmp_path).read_bytes())  # noqa: S301
        canary = tmp_path / "canary"
        assert canary.exists(), kind
        canary.rmdir() if canary.is_dir() else canary.unlink()


def test_a_harmful_file_is_refused_through_the_fence(tmp_path: Path) -> None:
    source = harmful_file("system", "zip", tmp_path)
    with pytest.raises(DataError) as caught:
        import_weights(source, tmp_path / "net.safetensors")
    assert str(caught.value).startswith(f"{source}: it refers to posix.system, which is not a plain tensor")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["net.pth"]


# ---- Greedy ones


def test_a_tensor_that_claims_more_than_is_stored_is_refused(tmp_path: Path) -> None:
    source = saved({"weight": torch.zeros(1).expand(10**12)}, tmp_path / "net.pth")
    assert source.stat().st_size < 5000
    with pytest.raises(DataError, match="claims 4000000000000 bytes of numbers, but only 4 are stored"):
        convert_here(source)


def test_many_views_of_one_storage_are_refused(tmp_path: Path) -> None:
    table = torch.zeros(10_000)
    source = saved({str(number): table for number in range(200)}, tmp_path / "net.pth")
    with pytest.raises(DataError, match="add up to 8000000 bytes"):
        convert_here(source)


def test_a_packed_file_is_refused_unopened(tmp_path: Path) -> None:
    plain = saved({"weight": torch.zeros(2_000_000)}, tmp_path / "plain.pth")
    source = tmp_path / "net.pth"
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(source, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
    assert source.stat().st_size < 100_000
    with pytest.raises(DataError, match="torch never compresses its files"):
        convert_here(source)


def test_a_file_that_asks_for_memory_is_stopped(tmp_path: Path) -> None:
    whole = saved({"weight": torch.zeros(12345)}, tmp_path / "plain.pth", old=True).read_bytes()
    source = tmp_path / "net.pth"  # in the old form, storage is set aside before it is read: here 8 GB
    source.write_bytes(whole.replace(b"M90", b"J\xff\xff\xff\x7f"))
    with pytest.raises(DataError, match=r"net\.pth: it needs more than \d+ bytes of memory"):
        import_weights(source, tmp_path / "net.safetensors")
    assert not (tmp_path / "net.safetensors").exists()


def test_a_file_that_takes_time_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_SECONDS", 1)  # hardly enough to import torch
    rows = torch.zeros(60_000, 1)
    many = saved({f"weight{n}": row for n, row in enumerate(rows)}, tmp_path / "net.pth")
    with pytest.raises(DataError, match="more than 1 s"):
        import_weights(many, tmp_path / "net.safetensors")
    assert [entry.name for entry in tmp_path.iterdir()] == ["net.pth"]


def test_there_is_no_network_behind_the_fence() -> None:
    if not weights._without_network():
        pytest.skip("this system does not let us take the network away (unshare -n)")
    with socket.create_server(("127.0.0.1", 0)) as server:
        call = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)"
        assert subprocess.run([sys.executable, "-c", call], check=False).returncode == 0
        fenced = [*weights._without_network(), sys.executable, "-c", call]
        assert subprocess.run(fenced, check=False, capture_output=True).returncode != 0


def test_the_fence_is_around_what_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = list(weights._without_network())
    ran: list[list[str]] = []

    def slow(command: list[str], timeout: float, **_: object) -> None:
        ran.append(command)
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", slow)
    with pytest.raises(DataError, match="stopped: it took more than 600 s"):
        import_weights(saved(good(), tmp_path / "net.pth"), tmp_path / "net.safetensors")
    assert ran[0][: len(prefix) + 4] == [*prefix, sys.executable, "-P", "-m", "wayfare.io.weights"]


def test_weights_that_cannot_be_put_in_place_leave_the_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    target = tmp_path / "net.safetensors"
    target.write_bytes(b"old")
    monkeypatch.setattr(weights, "_run_isolated", lambda source, part: save_file(good(), part))
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(DataError, match=r"net\.safetensors: cannot be written: No space left"):
        import_weights(saved(good(), tmp_path / "net.pth"), target)
    assert target.read_bytes() == b"old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["net.pth", "net.safetensors"]


# ---- What is no state dict


@pytest.mark.parametrize(("value", "expected"), [
    ([1, 2], "expected a state dict, names and tensors; found list"),
    ({}, "found an empty dict"),
    ({"epoch": 3}, "found int under 'epoch'"),
    ({3: torch.zeros(1)}, "found Tensor under '3'"),
    ({"a": torch.zeros(2, 2).to_sparse()}, "not an ordinary tensor"),
    ({"a": torch.zeros(2, device="meta")}, "not an ordinary tensor"),
])  # fmt: skip
def test_what_is_no_state_dict_is_refused(value: Any, expected: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        convert_here(saved(value, tmp_path / "net.pth"))
    assert expected in str(caught.value)


def test_what_cannot_be_read_is_told_plainly(tmp_path: Path) -> None:
    for content in (b"", b"no weights", b"PK\x03\x04 broken", saved(good(), tmp_path / "a").read_bytes()[:-100]):
        (tmp_path / "net.pth").write_bytes(content)
        with pytest.raises(Exception) as caught:
            convert_here(tmp_path / "net.pth")
        reason = weights._explained(caught.value, 1)
        assert reason.startswith("not a state dict that torch can read")
        assert "weights_only" not in reason  # torch's advice to do without it


def test_names_are_checked_before_anything_is_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.pth: no such file"):
        import_weights(tmp_path / "absent.pth", tmp_path / "x.safetensors")
    with pytest.raises(DataError, match=r"ends in \.safetensors"):
        import_weights(saved(good(), tmp_path / "net.pth"), tmp_path / "x.bin")


# ---- Reading


def test_only_safetensors_are_read(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    for name in ("net.pth", "net.pt", "net.ckpt", "net.bin", "net.pkl"):
        torch.save(Calls(os.system, f"touch {canary}"), tmp_path / name)
        with pytest.raises(DataError, match=f"wayfare data import-weights {tmp_path / name}"):
            load_weights(tmp_path / name)
    torch.save(Calls(os.system, f"touch {canary}"), tmp_path / "net.safetensors")
    with pytest.raises(DataError, match="not a readable safetensors file"):
        load_weights(tmp_path / "net.safetensors")
    assert not canary.exists()
    with pytest.raises(DataError, match="no such file"):
        load_weights(tmp_path / "absent.safetensors")


def test_altered_weights_are_noticed(tmp_path: Path) -> None:
    save_file(good(), tmp_path / "net.safetensors")
    whole = (tmp_path / "net.safetensors").read_bytes()
    known = hashlib.sha256(whole).hexdigest()
    assert load_weights(tmp_path / "net.safetensors", sha256=known).keys() == good().keys()
    (tmp_path / "net.safetensors").write_bytes(whole[:-1] + bytes((whole[-1] ^ 1,)))
    assert load_weights(tmp_path / "net.safetensors")  # the format itself does not notice
    with pytest.raises(DataError, match=f"expected {known}"):
        load_weights(tmp_path / "net.safetensors", sha256=known)


def test_cut_weights_are_refused(tmp_path: Path) -> None:
    save_file(good(), tmp_path / "net.safetensors")
    whole = (tmp_path / "net.safetensors").read_bytes()
    for length in range(0, len(whole), 7):
        (tmp_path / "net.safetensors").write_bytes(whole[:length])
        with pytest.raises(DataError, match="not a readable safetensors file"):
            load_weights(tmp_path / "net.safetensors")


def test_the_only_pickle_that_is_read_is_read_with_weights_only() -> None:
    text = Path(weights.__file__).read_text()
    assert text.count("torch.load(") == 2  # the docstring and the call
    assert 'torch.load(source, map_location="cpu", weights_only=True)' in text
