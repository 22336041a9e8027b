"""Damage to what is on disk: every changed bit and missing byte is noticed, and the run goes back to what is sound."""

from __future__ import annotations

import json
import random
import shutil

import numpy as np
import pytest
import torch

from amount import FULL, some
from faults import complete_lines, go, outcome, tiny
from wayfare.core.bundle import Bundle, digest
from wayfare.core.errors import DataError, StoreError, WayfareError
from wayfare.core.memory import Memories
from wayfare.core.store import Store
from wayfare.experiment import Evaluation
from wayfare.partition.split import load_split
from wayfare.runner import resume
from wayfare.strategies.scaffold import Scaffold

EXPERIMENT = tiny(Scaffold())


def state(number):
    """Some 100 kB that tell which round they are of."""
    rng = np.random.default_rng(number)
    return Bundle({"model": {"w": torch.from_numpy(rng.standard_normal((50, 500), np.float32))}}, {"round": number})


def flipped(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.fixture
def store(tmp_path):
    """A store of three committed rounds, the last two with a checkpoint."""
    store = Store(tmp_path / "store")
    with store.held():
        for number in range(3):
            store.commit({"round": number, "metrics": {"loss": 1e-07 * number, "größe": 0.1}}, state(number))
    return store


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    go(EXPERIMENT, folder)
    return folder


@pytest.fixture
def ended(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def resumed(folder):
    """Continue; the warnings on the way."""
    warnings = []
    resume(folder, "local", listen=lambda event, data: event == "warning" and warnings.append(data["text"]))
    return warnings


def survives(folder, name, data, expected):
    """Damage a file, find the run falling back by one round, and put things right again."""
    record, whole = (folder / "rounds.jsonl").read_bytes(), (folder / name).read_bytes()
    (folder / name).write_bytes(data)
    warnings = []
    found = Store(folder).latest(warnings.append)
    assert digest(found["model"]) == expected, "a damaged state was taken for sound"
    (folder / "rounds.jsonl").write_bytes(record)
    (folder / name).write_bytes(whole)
    return warnings


# ---- checkpoints


def test_cut_checkpoint(store, figure):
    name, before = "checkpoints/000002.safetensors", digest(state(1)["model"])
    data = store.read(name)
    sizes = sorted({*range(0, len(data), 4096), 1, 7, 8, 9, 4095, 4097, len(data) // 2, len(data) - 1})
    for size in sizes:
        (warning,) = survives(store.folder, name, data[:size], before)
        assert name in warning
        assert "going back one round" in warning
    survives(store.folder, name, data + b"\0", before)
    figure(f"a checkpoint cut at {len(sizes)} places: {len(sizes)} noticed, 0 loaded")


def test_flipped_checkpoint(store, figure):
    name, before, count = "checkpoints/000002.safetensors", digest(state(1)["model"]), some(3000)
    data, rng = store.read(name), random.Random(0)
    header = range(8 * (8 + int.from_bytes(data[:8], "little")))
    for bit in [*rng.sample(header, count // 4), *rng.sample(range(8 * len(data)), count - count // 4)]:
        (warning,) = survives(store.folder, name, flipped(data, bit), before)
        assert name in warning
    figure(f"{count} bits flipped in a checkpoint: {count} noticed, 0 loaded")


def test_missing_checkpoint(store):
    (store.folder / "checkpoints/000002.safetensors").unlink()
    warnings = []
    assert Store(store.folder).latest(warnings.append).values["round"] == 1
    assert "No such file" in warnings[0]


def test_checkpoint_of_another_round(store):
    """Sound in itself, but not what the record says."""
    survives(store.folder, "checkpoints/000002.safetensors", state(1).pack(), digest(state(1)["model"]))


def test_damage_after_it_was_read(store):
    line = json.loads(store.read("rounds.jsonl").splitlines()[-1])
    assert store.state(line).values["round"] == 2
    data = store.read("checkpoints/000002.safetensors")
    (store.folder / "checkpoints/000002.safetensors").write_bytes(flipped(data, 8 * len(data) - 1))
    with pytest.raises(StoreError, match=r"000002\.safetensors is damaged"):
        store.state(line)


@pytest.mark.parametrize("kind", ["cut", "empty", "flipped", "gone", "litter"])
def test_run_with_a_damaged_checkpoint(ended, whole, kind):
    """It goes back one round, says so, does the round again, and ends in the same model, memories and record."""
    path = ended / "checkpoints/000003.safetensors"
    data = path.read_bytes()
    match kind:
        case "cut":
            path.write_bytes(data[:-100])
        case "empty":
            path.write_bytes(b"")
        case "flipped":
            path.write_bytes(flipped(data, 8 * len(data) - 77))
        case "gone":
            path.unlink()
        case "litter":  # an unfinished file beside it is not taken for anything
            path.rename(path.with_name(f".{path.name}.tmp"))
    (warning,) = resumed(ended)
    assert str(path) in warning
    assert outcome(ended) == outcome(whole)


def test_run_with_both_checkpoints_damaged(ended, whole):
    """Nothing sound is left: it begins anew, and ends in the same model."""
    for path in sorted((ended / "checkpoints").iterdir()):
        path.write_bytes(flipped(path.read_bytes(), 8 * 3000))
    warnings = resumed(ended)
    assert sum("checkpoints/00000" in warning for warning in warnings) == 4  # two damaged, two that are not kept
    assert outcome(ended) == outcome(whole)


# ---- the record


def test_flipped_record(store, figure):
    """Whichever bit of the record changes, only lines before it are believed."""
    data = store.read("rounds.jsonl")
    checkpoints = {path: path.read_bytes() for path in (store.folder / "checkpoints").iterdir()}
    lines = [json.loads(line) for line in data.splitlines()]
    for line in lines:
        del line["crc"]
    bits = range(0, 8 * len(data), 1 if FULL else 7)  # each position in a byte, every byte
    for bit in bits:
        (store.folder / "rounds.jsonl").write_bytes(flipped(data, bit))
        again = Store(store.folder)
        found = again.latest(lambda text: None)
        damaged = data[: bit // 8].count(b"\n")
        believed = damaged if damaged == 2 else 0  # the rounds before it; of those, only round 1 has a checkpoint
        assert again.lines == lines[:believed]
        assert (found.values["round"] if found else -1) == believed - 1
        for path, content in checkpoints.items():
            if not path.exists():
                path.write_bytes(content)
    figure(f"{len(bits)} of {8 * len(data)} bits flipped in rounds.jsonl: none believed")


@pytest.mark.parametrize("line", [0, 2, 3])
def test_run_with_a_damaged_record(ended, whole, line):
    path = ended / "rounds.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b'"void": false', b'"void": true ')
    path.write_bytes(b"".join(lines))
    assert f"rounds.jsonl:{line + 1} is damaged" in resumed(ended)[0]
    assert outcome(ended) == outcome(whole)


def test_torn_record(ended, whole):
    """A line without its end is the mark of a crash, and no reason to warn."""
    path = ended / "rounds.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[:-20])
    assert resumed(ended) == []
    assert complete_lines(ended).startswith(data[: data[:-20].rfind(b"\n") + 1])
    assert outcome(ended) == outcome(whole)


# ---- what devices remember


def test_flipped_memory(tmp_path, figure):
    memories, rng, count = Memories(tmp_path), random.Random(0), some(2000)
    memories.save("phone/1 ", 4, Bundle({"control": {"w": torch.arange(500.0)}}, {"seen": 3}))
    (path,) = (path for path in tmp_path.rglob("*") if path.is_file())
    data = path.read_bytes()
    damages = [flipped(data, bit) for bit in rng.sample(range(8 * len(data)), count)]
    damages += [data[:size] for size in range(0, len(data), 50)]
    for damaged in damages:
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match=r"damaged.*let device 'phone/1 ' start over"):
            memories.load("phone/1 ", 4)
    path.write_bytes(data)
    assert memories.load("phone/1 ", 4)
    figure(f"{len(damages)} damages to a device's memory: all noticed")


def test_run_with_a_damaged_memory(ended, whole):
    """The round that wrote it is done again."""
    (path,) = (ended / "memory").glob("*/c1@3")
    path.write_bytes(flipped(path.read_bytes(), 999))
    (warning,) = resumed(ended)
    assert warning == f"{path} is damaged: going back one round"
    assert outcome(ended) == outcome(whole)


def test_run_with_a_memory_that_is_lost(ended):
    """No round that is kept is without it. To go on would give another model: the run stops and says what to do."""
    for path in (ended / "memory").glob("*/c1@*"):
        path.write_bytes(flipped(path.read_bytes(), 999))
    before = {path: path.read_bytes() for path in ended.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match=r"c1@3 is damaged, and no earlier.*--allow-changed memory"):
        resume(ended, "local", rounds=4)
    before |= {ended / name: (ended / name).read_bytes() for name in ("experiment.toml", "environment.json", "lock")}
    assert {path: path.read_bytes() for path in ended.rglob("*") if path.is_file()} == before


def test_memory_of_an_unfinished_round_is_not_seen(tmp_path):
    memories = Memories(tmp_path)
    for round in range(1, 6):
        memories.save("a", round, Bundle({}, {"round": round}))
    assert [memories.load("a", round).values["round"] for round in (3, 4, 5, 9)] == [3, 4, 5, 5]
    memories.rewind(4)
    assert memories.load("a", 5).values["round"] == 4


def test_memories_go_back_with_the_checkpoint(ended):
    """What devices learnt in a round that does not count is forgotten."""
    assert list(ended.glob("memory/*/*@3"))
    (ended / "checkpoints/000003.safetensors").unlink()
    (ended / "memory/12/.c0@4.tmp").write_bytes(b"half a mem")
    Store(ended).latest(lambda text: None)
    assert sorted(path.name for path in ended.glob("memory/*/*")) == [f"c{c}@{r}" for c in range(4) for r in (1, 2)]


# ---- the files that begin a run


def test_flipped_partition(whole, figure):
    """No change of the file gives another partition."""
    data, rng, count = (whole / "partition.safetensors").read_bytes(), random.Random(0), some(4000)
    header = range(8 * (8 + int.from_bytes(data[:8], "little")))
    for bit in [*rng.sample(header, count // 2), *rng.sample(range(8 * len(data)), count // 2)]:
        with pytest.raises(DataError):
            load_split(flipped(data, bit))
    figure(f"{count} bits flipped in the partition: {count} noticed, 0 loaded")


def test_run_with_a_damaged_partition(ended, whole):
    path = ended / "partition.safetensors"
    path.write_bytes(flipped(path.read_bytes(), 8 * 5000))
    with pytest.raises(StoreError, match=r"partition\.safetensors.*Delete it"):
        resume(ended, "local")
    path.unlink()
    assert resumed(ended) == []
    assert path.read_bytes() == (whole / "partition.safetensors").read_bytes()
    assert outcome(ended) == outcome(whole)


@pytest.mark.parametrize(
    ("before", "after"), [(b"rounds = 3", b"rounds = \xff"), (b"seed = 0", b"seed = '"), (b"]\n", b"")]
)
def test_run_with_an_unreadable_experiment(ended, before, after):
    path = ended / "experiment.toml"
    path.write_bytes(path.read_bytes().replace(before, after))
    with pytest.raises(WayfareError, match=r"experiment\.toml"):
        resume(ended, "local")


def test_run_with_a_changed_experiment(ended):
    """One flipped bit, and still a lawful experiment: to go on with it would mix two runs."""
    path = ended / "experiment.toml"
    path.write_bytes(path.read_bytes().replace(b"lr = 0.05", b"lr = 0.15"))
    with pytest.raises(StoreError, match=r"experiment\.toml"):
        resume(ended, "local", rounds=4)


def test_run_with_a_damaged_best_model(tmp_path):
    """The model of the best round is kept beside the checkpoints, and is the result of the run."""
    folder = tmp_path / "run"
    go(tiny(Scaffold(), evaluation=Evaluation(test=False, clients=2, monitor="clients/loss")), folder)
    expected, path = outcome(folder)["model"], folder / "best.safetensors"
    path.write_bytes(flipped(path.read_bytes(), 8 * path.stat().st_size - 30))
    try:
        resume(folder, "local")
    except StoreError as error:
        assert str(path) in str(error)
    else:
        assert outcome(folder)["model"] == expected


def test_not_a_run_folder(tmp_path):
    with pytest.raises(StoreError, match="no run folder"):
        resume(tmp_path / "nowhere", "local")
    with pytest.raises(StoreError, match=r"no experiment\.toml"):
        resume(tmp_path, "local")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot use"):
        go(EXPERIMENT, tmp_path / "file")
    with pytest.raises(StoreError, match="cannot use"):
        go(EXPERIMENT, tmp_path / "file" / "run")
