"""The run folder in milliseconds: what is written, what is kept, and what `latest` takes back."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
import torch

from wayfare.core import disk, locks
from wayfare.core.bundle import Bundle
from wayfare.core.errors import StoreError
from wayfare.core.store import Store


def state(number: int) -> Bundle:
    return Bundle({"model": {"w": torch.tensor([float(number)])}}, {"round": number})


def committed(folder: Path, rounds: int) -> Store:
    store = Store(folder)
    for number in range(rounds):
        store.memories.save("c1", number, Bundle({}, {"seen": number}))
        store.commit({"round": number}, state(number))
    return store


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def found(folder: Path) -> tuple[int | None, list[str], Store]:
    """The round of the newest sound state, what was warned of, and the store."""
    store, warnings = Store(folder), list[str]()
    newest = store.latest(warnings.append)
    return None if newest is None else int(newest.number("round")), warnings, store


# ---- committing


def test_a_commit_leaves_a_line_and_the_last_two_checkpoints(tmp_path: Path) -> None:
    store = committed(tmp_path, 5)
    assert kept(tmp_path) == ["000003.safetensors", "000004.safetensors"]
    assert [line["round"] for line in store.lines] == [0, 1, 2, 3, 4]
    data = (tmp_path / "checkpoints" / "000004.safetensors").read_bytes()
    told = {"file": "checkpoints/000004.safetensors", "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    assert store.lines[-1]["checkpoint"] == told
    lines = (tmp_path / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [0, 1, 2, 3, 4]
    assert all("crc" in json.loads(line) for line in lines) and "crc" not in store.lines[-1]


def test_the_state_after_a_round(tmp_path: Path) -> None:
    store = committed(tmp_path, 3)
    assert store.state(store.lines[1]).is_same(state(1))
    file = tmp_path / "checkpoints" / "000001.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(StoreError, match=r"000001\.safetensors is damaged"):
        store.state(store.lines[1])
    with pytest.raises(StoreError, match="is not a run folder: it has no checkpoints/000000"):
        store.state(store.lines[0])


# ---- the newest sound state


def test_an_empty_folder_has_no_state(tmp_path: Path) -> None:
    newest, warnings, store = found(tmp_path)
    assert (newest, warnings, store.lines) == (None, [], [])
    assert not list(tmp_path.iterdir())


def test_a_sound_run_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed(tmp_path, 4)
    record = (tmp_path / "rounds.jsonl").read_bytes()
    for change in ("truncate", "remove", "write", "append"):
        monkeypatch.delattr(disk, change)  # nothing is changed: none of these is called
    newest, warnings, store = found(tmp_path)
    assert (newest, warnings, len(store.lines)) == (3, [], 4)
    assert (tmp_path / "rounds.jsonl").read_bytes() == record
    memory = store.memories.load("c1", 9)
    assert memory is not None and memory.number("seen") == 3


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_damaged_checkpoint_costs_one_round(tmp_path: Path, damage: str) -> None:
    committed(tmp_path, 5)
    record = (tmp_path / "rounds.jsonl").read_bytes().splitlines(keepends=True)
    last = tmp_path / "checkpoints" / "000004.safetensors"
    if damage == "changed":
        last.write_bytes(last.read_bytes()[:-1] + b"!")
    else:
        last.unlink()
    newest, warnings, store = found(tmp_path)
    assert (newest, len(store.lines)) == (3, 4)
    (warning,) = warnings
    assert "000004.safetensors" in warning and warning.endswith("going back one round")
    assert (tmp_path / "rounds.jsonl").read_bytes() == b"".join(record[:4])
    assert kept(tmp_path) == ["000003.safetensors"]
    memory = store.memories.load("c1", 9)
    assert memory is not None and memory.number("seen") == 3
    store.commit({"round": 4}, state(4))
    assert found(tmp_path)[0] == 4


def test_without_any_sound_checkpoint_the_run_begins_anew(tmp_path: Path) -> None:
    committed(tmp_path, 3)
    for file in (tmp_path / "checkpoints").iterdir():
        file.write_bytes(b"")
    newest, warnings, store = found(tmp_path)
    assert (newest, store.lines, len(warnings)) == (None, [], 3)
    assert (tmp_path / "rounds.jsonl").read_bytes() == b""
    assert kept(tmp_path) == []
    assert store.memories.load("c1", 9) is None


def test_a_checkpoint_without_its_line_and_litter_go(tmp_path: Path) -> None:
    committed(tmp_path, 1)
    for name in ("checkpoints/000001.safetensors", "checkpoints/.000001.safetensors.tmp", ".summary.json.tmp"):
        (tmp_path / name).write_bytes(b"x")
    assert found(tmp_path)[:2] == (0, [])
    assert kept(tmp_path) == ["000000.safetensors"]
    assert not (tmp_path / ".summary.json.tmp").exists()


def test_a_checkpoint_before_the_first_line_goes(tmp_path: Path) -> None:
    """The crash was between the first checkpoint and its line: the run begins anew, without its memories."""
    store = Store(tmp_path)
    store.write("checkpoints/000000.safetensors", state(0).pack())
    store.memories.save("c1", 0, Bundle({}, {"seen": 0}))
    assert found(tmp_path)[0] is None
    assert kept(tmp_path) == [] and store.memories.load("c1", 9) is None


# ---- the record


def test_a_torn_line_is_dropped_without_a_word(tmp_path: Path) -> None:
    committed(tmp_path, 3)
    record = tmp_path / "rounds.jsonl"
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(b"".join(lines) + b'{"round": 3, "x')
    assert found(tmp_path)[:2] == (2, [])
    assert record.read_bytes() == b"".join(lines)


def test_a_changed_line_is_told_of_and_all_after_it_goes(tmp_path: Path) -> None:
    committed(tmp_path, 4)
    record = tmp_path / "rounds.jsonl"
    lines = record.read_bytes().splitlines(keepends=True)
    for changed in (lines[3].replace(b'"round": 3', b'"round":  3'), lines[3].replace(b'"crc"', b'"car"')):
        record.write_bytes(b"".join(lines[:3]) + changed + lines[3])
        newest, warnings, store = found(tmp_path)
        assert (newest, len(store.lines)) == (2, 3)
        (warning,) = warnings
        assert warning.startswith(f"{record}:4 is damaged") and warning.endswith("going back to the round before it")
        assert record.read_bytes() == b"".join(lines[:3])


def test_one_line_that_is_damaged_leaves_an_empty_record(tmp_path: Path) -> None:
    (tmp_path / "rounds.jsonl").write_bytes(b"x")
    assert found(tmp_path)[:2] == (None, [])
    assert (tmp_path / "rounds.jsonl").read_bytes() == b""


# ---- files and the lock


def test_files_of_a_run(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.is_run() is False
    store.write("experiment.toml", b"rounds = 1")
    assert store.is_run() is True and store.read("experiment.toml") == b"rounds = 1"
    store.write("summary.json", {"a": 1, "path": Path("b")})
    assert store.read("summary.json") == b'{\n "a": 1,\n "path": "b"\n}\n'
    with pytest.raises(StoreError, match=r"has no partition\.json"):
        store.read("partition.json")


def test_the_lock_names_its_holder_and_nobody_afterwards(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    with Store(folder).held():
        assert (folder / "lock").read_text() == str(os.getpid())
    assert (folder / "lock").read_text() == ""


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot use .*file as a run folder"), Store(tmp_path / "file").held():
        pass


def test_a_lock_that_cannot_be_released_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, process: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreError, match=r"cannot release .*lock: No space left"), Store(tmp_path).held():
        monkeypatch.setattr(locks, "sign", full)
