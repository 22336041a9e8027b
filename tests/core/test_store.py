"""The run folder in milliseconds: what is written, what is kept, and what `latest` takes back."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize(
    "change",
    [{"round": 2}, {"checkpoint": None}, {"checkpoint": {}}, {"memory": []}, {"file": None}, {"sha256": 1},
     {"bytes": "9"}, {"file": "checkpoints/000000.safetensors"}],
    ids=str,
)  # fmt: skip
def test_a_line_that_is_not_of_its_round(tmp_path: Path, change: dict[str, Any]) -> None:
    """Its checksum is right: somebody else wrote it."""
    store = committed(tmp_path, 1)
    store.commit({"round": 1}, state(1))
    line = dict(store.lines[1])
    if set(change) <= set(line["checkpoint"]):
        change = {"checkpoint": line["checkpoint"] | change}
    line |= change
    text = json.dumps(line)
    record = tmp_path / "rounds.jsonl"
    first = record.read_bytes().splitlines(keepends=True)[0]
    record.write_bytes(first + f'{text[:-1]}, "crc": {zlib.crc32(text.encode())}}}\n'.encode())
    newest, warnings, _ = found(tmp_path)
    assert newest == 0 and len(warnings) == 1 and f"{record}:2 is damaged or out of order" in warnings[0]


# ---- memories


def remembered(folder: Path, rounds: int = 4, devices: tuple[str, ...] = ("c1", "c2")) -> Store:
    """A run whose rounds recorded what these devices wrote."""
    store = Store(folder)
    for number in range(rounds):
        for device in devices:
            store.memories.save(device, number, Bundle({}, {"seen": number}))
        store.commit({"round": number, "memory": store.memories.digests(devices, number)}, state(number))
    return store


def lose(folder: Path, *names: str) -> None:
    for name in names:
        next((folder / "memory").glob(f"*/{name}")).unlink()


def test_a_lost_memory_costs_one_round(tmp_path: Path) -> None:
    remembered(tmp_path)
    lose(tmp_path, "c1@3")
    newest, warnings, store = found(tmp_path)
    assert (newest, len(store.lines), store.forgotten) == (2, 3, [])
    assert len(warnings) == 1 and warnings[0].endswith("c1@3 is missing: going back one round")


def test_two_lost_memories_of_a_round_are_one_step_back(tmp_path: Path) -> None:
    remembered(tmp_path)
    lose(tmp_path, "c1@3", "c2@3")
    last, warnings, _ = found(tmp_path)
    assert last == 2 and len(warnings) == 1 and "c1@3" in warnings[0]


def test_a_copy_of_a_checkpoint_is_left_alone(tmp_path: Path) -> None:
    """Programs that synchronise folders make them."""
    committed(tmp_path, 2)
    copy = tmp_path / "checkpoints" / "000001 (1).safetensors"
    copy.write_bytes((tmp_path / "checkpoints" / "000001.safetensors").read_bytes())
    assert found(tmp_path)[:2] == (1, [])
    assert copy.exists()


def test_a_memory_that_no_kept_round_is_without_ends_the_run(tmp_path: Path) -> None:
    remembered(tmp_path)
    lose(tmp_path, "c1@3", "c1@2")
    warnings = list[str]()
    with pytest.raises(StoreError, match=r"c1@3 is missing, and no earlier round .* --allow-changed memory"):
        Store(tmp_path).latest(warnings.append)
    assert [text.rpartition("/")[2] for text in warnings] == [  # and none about a checkpoint that is not kept
        f"c1@{number} is missing: going back one round" for number in (3, 2)
    ]


def test_devices_start_over_if_that_is_allowed(tmp_path: Path) -> None:
    remembered(tmp_path)
    lose(tmp_path, "c1@3")
    store, warnings = Store(tmp_path), list[str]()
    newest = store.latest(warnings.append, forgetful=True)
    assert newest is not None and newest.number("round") == 3 and store.forgotten == ["c1"]
    assert len(warnings) == 1 and warnings[0].endswith("c1@3 is missing: device 'c1' starts over")
    assert store.memories.load("c1", 9) is None and store.memories.load("c2", 9) is not None
    store.commit({"round": 4, "forgotten": ["c1"]}, state(4))
    assert found(tmp_path)[:2] == (4, [])  # c1's memory is no longer expected


def test_memories_that_no_round_knows(tmp_path: Path) -> None:
    """c2 was refused in round 1 and may have written late; c3 was not asked."""
    store = Store(tmp_path)
    for number in range(3):
        store.memories.save("c1", number, Bundle({}, {"seen": number}))
        digests = store.memories.digests(["c1"], number)
        refused = [{"device": "c2", "reason": "late"}] if number == 1 else []
        store.commit({"round": number, "memory": digests, "refused": refused}, state(number))

    def newest(strict: bool) -> tuple[int, list[str]]:
        warnings = list[str]()
        last = Store(tmp_path).latest(warnings.append, strict=strict)
        return -1 if last is None else int(last.number("round")), warnings

    store.memories.save("c2", 1, Bundle())
    store.memories.save("c3", 3, Bundle())  # of a round that does not count: it just goes
    assert newest(strict=True) == (2, [])
    store.memories.save("c3", 2, Bundle())
    assert newest(strict=False) == (2, [])
    assert found(tmp_path)[:2] == (2, [])  # which is the default
    last, warnings = newest(strict=True)
    assert last == 1 and len(warnings) == 1 and "c3@2 is none of the memories that round 2 left" in warnings[0]


def test_rounds_of_runs_that_recorded_no_memories(tmp_path: Path) -> None:
    committed(tmp_path, 2)
    warnings = list[str]()
    last = Store(tmp_path).latest(warnings.append, strict=True)
    assert last is not None and last.number("round") == 1 and warnings == []


# ---- files and the lock


def test_a_text_that_cannot_be_read_or_is_huge(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (tmp_path / "environment.json").mkdir()
    with pytest.raises(StoreError, match=r"cannot read .*environment\.json: Is a directory"):
        store.read("environment.json")
    file = tmp_path / "manifest.json"
    file.touch()
    os.truncate(file, 2**26)
    assert len(store.read_text("manifest.json")) == 2**26
    os.truncate(file, 2**26 + 1)
    with pytest.raises(StoreError, match=r"manifest\.json is damaged: it has 67,108,865 bytes"):
        store.read_text("manifest.json")
    assert store.read_json("manifest.json") is None
    file.write_text('{"a": 1}')
    assert store.read_json("manifest.json") == {"a": 1}
    file.write_text("[1]")
    assert store.read_json("manifest.json") is None


def test_nothing_is_written_into_a_folder_that_was_replaced(tmp_path: Path) -> None:
    store = Store(tmp_path / "run")
    with store.held():
        store.commit({"round": 0}, state(0))
        store.folder.rename(tmp_path / "away")
        store.folder.mkdir()
        with pytest.raises(StoreError, match="was moved, removed or replaced"):
            store.commit({"round": 1}, state(1))
        assert not list(store.folder.iterdir())
        store.folder.rmdir()
        (tmp_path / "away").rename(store.folder)
        store.commit({"round": 1}, state(1))
    store.commit({"round": 2}, state(2))  # held no more, and nobody asks for a lock
    assert found(store.folder)[0] == 2


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
