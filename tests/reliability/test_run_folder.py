"""What people, synchronisers and other programs do to a run folder, and to the data beside it.

After each manipulation `resume` gives the model of the untouched run, or an error that says what is wrong and what to
do; and every command that reads the folder ends with a status, never with a traceback.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import zlib
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from faults import go, outcome, rounds, tiny
from wayfare.cli import main
from wayfare.clock.drawn import Drawn
from wayfare.components import find
from wayfare.core import manifest
from wayfare.core.errors import ConfigError, StoreError, WayfareError
from wayfare.core.protocols import Policy
from wayfare.core.store import Store
from wayfare.experiment import Experiment
from wayfare.objects.data.folder import ClassFolders
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.privacy.client_level import ClientLevel
from wayfare.resuming import early_fingerprint
from wayfare.runner import resume
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.moon import Moon
from wayfare.strategies.scaffold import Scaffold
from wayfare.topologies.buffered import Buffered
from wayfare.topologies.server import Server
from wayfare.trained import trained

EXPERIMENT = tiny(Scaffold())
DEEP = b"[" * 200_000


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of three rounds, the same of four, and another run."""
    place = tmp_path_factory.mktemp("runs")
    go(EXPERIMENT, place / "three")
    go(replace(EXPERIMENT, rounds=4), place / "four")
    go(tiny(Scaffold(), seed=7), place / "other")
    flower = place / "three" / "flower"
    flower.mkdir()
    rows = [{"device": f"c{k}", "name": f"phone-{k}", "samples": 9, "node": str(k)} for k in range(4)]
    (flower / "nodes.json").write_text(json.dumps(rows))
    (flower / "events.jsonl").write_text('{"event": "device", "data": {"device": "c0"}}\n')
    return place


@pytest.fixture
def run(runs, tmp_path):
    return shutil.copytree(runs / "three", tmp_path / "run")


def resumed(folder, rounds=4):
    """Continue; the warnings on the way."""
    told = []
    resume(folder, "local", rounds=rounds, listen=lambda event, data: event == "warning" and told.append(data["text"]))
    return told


def contents(folder):
    """All files but the lock, which says who was there last."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def sealed(line):
    """A line as the store writes it, with the checksum that belongs to it."""
    text = json.dumps({key: value for key, value in line.items() if key != "crc"})
    return f'{text[:-1]}, "crc": {zlib.crc32(text.encode())}}}\n'.encode()


def lines_of(folder):
    return (folder / "rounds.jsonl").read_bytes().splitlines(keepends=True)


def put_lines(folder, lines):
    (folder / "rounds.jsonl").write_bytes(b"".join(lines))


def edited(folder, number, **changes):
    """Change fields of a line; its checksum is right again afterwards. None: take the field away."""
    lines = lines_of(folder)
    line = {**json.loads(lines[number]), **changes}
    lines[number] = sealed({key: value for key, value in line.items() if value is not None})
    put_lines(folder, lines)


def cut(path, share=0.5):
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


def memory(folder, name):
    (path,) = folder.glob(f"memory/*/{name}")
    return path


def swapped(one, other):
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def instead(path, make):
    path.unlink()
    make(path)


def copied(path, name):
    shutil.copy(path, path.with_name(name))


LAST = "checkpoints/000003.safetensors"
SAME = ""  # the model of the untouched run
# what is done to the run r (o: another run), and what `resume` says where it does not give the same model
MANIPULATIONS = {
    "checkpoint cut": (lambda r, o: cut(r / LAST), SAME),
    "checkpoint emptied": (lambda r, o: (r / LAST).write_bytes(b""), SAME),
    "checkpoint deleted": (lambda r, o: (r / LAST).unlink(), SAME),
    "all checkpoints deleted": (lambda r, o: shutil.rmtree(r / "checkpoints"), SAME),
    "checkpoint renamed": (lambda r, o: (r / LAST).rename(r / "checkpoints/000004.safetensors"), SAME),
    "checkpoint copied by a synchroniser": (lambda r, o: copied(r / LAST, "000003 (1).safetensors"), SAME),
    "checkpoint of the round before": (lambda r, o: copied(r / "checkpoints/000002.safetensors", LAST[12:]), SAME),
    "checkpoint of another run": (lambda r, o: shutil.copy(o / LAST, r / LAST), SAME),
    "checkpoint is a folder": (lambda r, o: instead(r / LAST, os.mkdir), r"000003\.safetensors: Is a directory"),
    "checkpoint is a link to zeros": (lambda r, o: instead(r / LAST, lambda p: p.symlink_to("/dev/zero")), SAME),
    "record cut": (lambda r, o: cut(r / "rounds.jsonl", 0.7), SAME),
    "record emptied": (lambda r, o: (r / "rounds.jsonl").write_bytes(b""), SAME),
    "record deleted": (lambda r, o: (r / "rounds.jsonl").unlink(), SAME),
    "record is a folder": (lambda r, o: instead(r / "rounds.jsonl", os.mkdir), r"rounds\.jsonl: Is a directory"),
    "record of another run": (lambda r, o: shutil.copy(o / "rounds.jsonl", r), r"experiment\.toml was changed"),
    "lines in another order": (lambda r, o: put_lines(r, [lines_of(r)[k] for k in (0, 2, 1, 3)]), SAME),
    "a line twice": (lambda r, o: put_lines(r, [lines_of(r)[k] for k in (0, 1, 2, 2, 3)]), SAME),
    "a line without its checkpoint": (lambda r, o: edited(r, 3, checkpoint=None), SAME),
    "a line with a checkpoint elsewhere": (
        lambda r, o: edited(r, 3, checkpoint={"file": "../../etc/passwd", "sha256": "", "bytes": 1}), SAME,
    ),
    "a line edited": (lambda r, o: edited(r, 3, examples=1, seconds=1.0, cold=["c1"]), SAME),
    "a line edited to another kind": (lambda r, o: edited(r, 2, kept=3), r"rounds\.jsonl:3: field 'kept'"),
    "a line edited in its metrics": (lambda r, o: edited(r, 3, metrics={"a": "b"}), r"jsonl:4: field 'metrics'"),
    "a line edited in its memories": (lambda r, o: edited(r, 3, memory={"c1": "00"}), SAME),
    "a line that is nested deeply": (lambda r, o: put_lines(r, [*lines_of(r)[:3], DEEP + b"\n"]), SAME),
    "a line that is no text": (lambda r, o: put_lines(r, [*lines_of(r)[:3], b"\xff\xfe\n"]), SAME),
    "experiment edited": (
        lambda r, o: (r / "experiment.toml").write_text((r / "experiment.toml").read_text().replace("0.05", "0.06")),
        r"experiment\.toml was changed since round 3",
    ),
    "experiment deleted": (lambda r, o: (r / "experiment.toml").unlink(), r"no experiment\.toml"),
    "experiment is a folder": (lambda r, o: instead(r / "experiment.toml", os.mkdir), r"experiment\.toml"),
    "experiment is no text": (lambda r, o: (r / "experiment.toml").write_bytes(b"name = '\xff'"), r"experiment\.toml"),
    "experiment nested deeply": (lambda r, o: (r / "experiment.toml").write_bytes(b"a = " + DEEP), r"experiment\.toml"),
    "experiment huge": (lambda r, o: os.truncate(r / "experiment.toml", 2**27), r"experiment\.toml"),
    "experiment with strange rounds": (
        lambda r, o: (r / "experiment.toml").write_text((r / "experiment.toml").read_text().replace("= 3", "= 'x'")),
        r"experiment\.toml",
    ),
    "experiment of another run": (lambda r, o: shutil.copy(o / "experiment.toml", r), r"experiment\.toml was changed"),
    "partition of another run": (
        lambda r, o: shutil.copy(o / "partition.safetensors", r), r"partition\.safetensors is not.*delete it",
    ),
    "partition deleted": (lambda r, o: (r / "partition.safetensors").unlink(), SAME),
    "partition is a folder": (lambda r, o: instead(r / "partition.safetensors", os.mkdir), r"partition\.safetensors"),
    "partition is a dead link": (
        lambda r, o: instead(r / "partition.safetensors", lambda p: p.symlink_to("nowhere")), SAME,
    ),
    "partition for people edited": (lambda r, o: (r / "partition.json").write_bytes(DEEP), SAME),
    "summary damaged": (lambda r, o: (r / "summary.json").write_bytes(b'{"model_sha256": 3, "metrics": [1'), SAME),
    "summary nested deeply": (lambda r, o: (r / "summary.json").write_bytes(DEEP), SAME),
    "environment edited": (lambda r, o: (r / "environment.json").write_bytes(b"[1]"), SAME),
    "manifest deleted": (lambda r, o: (r / manifest.FILE).unlink(), SAME),
    "manifest damaged": (lambda r, o: cut(r / manifest.FILE), SAME),
    "manifest edited": (lambda r, o: (r / manifest.FILE).write_text('{"data": {"files": 3}, "code": 3}'), SAME),
    "manifest nested deeply": (lambda r, o: (r / manifest.FILE).write_bytes(DEEP), SAME),
    "manifest of another run": (lambda r, o: shutil.copy(o / manifest.FILE, r), SAME),
    "memory deleted": (lambda r, o: memory(r, "c1@3").unlink(), SAME),
    "memory emptied": (lambda r, o: memory(r, "c1@3").write_bytes(b""), SAME),
    "memory of the round before": (lambda r, o: copied(memory(r, "c1@2"), "c1@3"), SAME),
    "memories swapped between devices": (lambda r, o: swapped(memory(r, "c0@3"), memory(r, "c1@3")), SAME),
    "memory of another run": (lambda r, o: shutil.copy(memory(o, "c1@3"), memory(r, "c1@3")), SAME),
    "memory copied by a synchroniser": (
        lambda r, o: [copied(memory(r, "c1@3"), name) for name in ("c1@3~", "c1@3 (1)", "c1@03", "c1@")], SAME,
    ),
    "memory of a round to come": (lambda r, o: copied(memory(r, "c1@3"), "c1@9"), SAME),
    "memory is a folder": (lambda r, o: instead(memory(r, "c1@3"), os.mkdir), r"cannot remove .*c1@3"),
    "a device's memories deleted": (
        lambda r, o: [path.unlink() for path in r.glob("memory/*/c1@*")], r"c1@3 is missing.*--allow-changed memory",
    ),
    "all memories deleted": (lambda r, o: shutil.rmtree(r / "memory"), r"is missing.*--allow-changed memory"),
    "model damaged": (lambda r, o: cut(r / "model.safetensors"), SAME),
    "model of another run": (lambda r, o: shutil.copy(o / "model.safetensors", r), SAME),
    "unfinished files": (lambda r, o: [(r / n).write_bytes(b"x") for n in (".a.tmp", "checkpoints/.b.tmp")], SAME),
    "lock deleted": (lambda r, o: (r / "lock").unlink(), SAME),
    "lock is a folder": (lambda r, o: instead(r / "lock", os.mkdir), r"cannot lock .*lock"),
    "lock of garbage": (lambda r, o: (r / "lock").write_bytes(b"\xff" * 100), SAME),
    "nodes of a federation damaged": (lambda r, o: (r / "flower/nodes.json").write_bytes(DEEP), SAME),
    "nodes of a federation edited": (lambda r, o: (r / "flower/nodes.json").write_text('[1, {"a": 2}]'), SAME),
    "events of a federation edited": (lambda r, o: (r / "flower/events.jsonl").write_text('{"event": 1}\n[]\n'), SAME),
}  # fmt: skip


def status(*words):
    """The status of a command; what is raised instead of it fails the test."""
    return main([str(word) for word in words])


def read_all(run, runs, place):
    """Every command that reads a run without changing it."""
    assert status("report", run, "--out", place / "report.html") in (0, 1, 2)
    assert status("compare", run, runs / "four") in (0, 1, 2)
    assert status("federate", "status", run) in (0, 1, 2)
    with contextlib.suppress(WayfareError):  # what an index is made of
        trained(run, Objects, "only", "this")


@pytest.mark.parametrize("name", MANIPULATIONS)
def test_manipulated(run, runs, name, tmp_path, capfd):
    manipulate, refusal = MANIPULATIONS[name]
    manipulate(run, runs / "other")
    read_all(run, runs, tmp_path)
    if refusal:
        with pytest.raises(WayfareError, match=refusal):
            resume(run, "local", rounds=4)
        assert status("resume", run, "--engine", "local", "--track", "none") in (1, 2)
    else:
        resume(run, "local", rounds=4)
        found, expected = outcome(run), outcome(runs / "four")
        for part in ("model", "file", "memory"):
            assert found[part] == expected[part], part
        trained(run, Objects, "only", "this")
    assert "Traceback" not in capfd.readouterr().err


def test_count(figure):
    assert len(MANIPULATIONS) >= 23
    same = sum(not refusal for _, refusal in MANIPULATIONS.values())
    figure(
        f"{len(MANIPULATIONS)} manipulations of a run folder: {same} end in the same model, "
        f"{len(MANIPULATIONS) - same} in an error with its reason, 0 in a traceback"
    )


# ---- runs with a clock and compression, and with differential privacy

WITH_TABLES = replace(
    tiny(Moon()),
    topology=Buffered(concurrency=3, buffer=2),
    clock=Drawn(law="pareto"),
    compression=find("compression", "quantise")(bits=4, down=8),
    policy=Policy(quorum=0.3),
)
PRIVATE = replace(tiny(FedAvg()), privacy=ClientLevel())
SOME = (
    "checkpoint cut", "checkpoint of the round before", "checkpoint is a link to zeros", "record cut", "a line twice",
    "a line that is nested deeply", "experiment edited", "partition of another run", "manifest damaged",
    "model of another run", "all memories deleted",
)  # fmt: skip
KEY, LEDGER = "privacy.key", "privacy.json"
PRIVATE_ONLY = {
    "key deleted": (lambda r, o: (r / KEY).unlink(), r"privacy\.key is missing"),
    "key emptied": (lambda r, o: (r / KEY).write_bytes(b""), r"privacy\.key is damaged"),
    "key of another run": (lambda r, o: shutil.copy(o / KEY, r), r"privacy\.key is not the key of this run"),
    "ledger deleted": (lambda r, o: (r / LEDGER).unlink(), r"privacy\.json has no entry for round 1"),
    "ledger cut": (lambda r, o: cut(r / LEDGER), r"privacy\.json is damaged"),
    "ledger nested deeply": (lambda r, o: (r / LEDGER).write_bytes(DEEP), r"privacy\.json is damaged"),
    "ledger of another kind": (lambda r, o: (r / LEDGER).write_text('{"a": 1}'), r"privacy\.json is damaged"),
    "ledger without its last entry": (lambda r, o: released(r, lambda rows: rows[:-1]), r"no entry for round 3"),
    "ledger of NaN": (lambda r, o: noise(r, float("nan")), r"privacy\.json is damaged"),
    "ledger of 1e308": (lambda r, o: noise(r, 1e308), r"privacy\.json is damaged"),
    "ledger of a huge integer": (lambda r, o: noise(r, 10**400), r"privacy\.json is damaged"),
    "ledger of another run": (lambda r, o: shutil.copy(o / LEDGER, r), r"privacy\.key is not the key of this run"),
}  # fmt: skip


def released(folder, change):
    (folder / LEDGER).write_text(json.dumps(change(json.loads((folder / LEDGER).read_text()))))


def noise(folder, value):
    released(folder, lambda rows: [row | {"noise": value} for row in rows])


@pytest.mark.parametrize(
    ("experiment", "manipulations"),
    [
        (WITH_TABLES, {name: MANIPULATIONS[name] for name in SOME}),
        (PRIVATE, {name: MANIPULATIONS[name] for name in SOME if "memor" not in name} | PRIVATE_ONLY),
    ],
)
def test_other_kinds_of_runs(experiment, manipulations, tmp_path, capfd):
    go(experiment, tmp_path / "three")
    go(replace(experiment, seed=7), tmp_path / "other")
    shutil.copytree(tmp_path / "three", tmp_path / "four")  # with the same key
    resume(tmp_path / "four", "local", rounds=4)
    expected = outcome(tmp_path / "four")
    for name, (manipulate, refusal) in manipulations.items():
        run = shutil.copytree(tmp_path / "three", tmp_path / name)
        manipulate(run, tmp_path / "other")
        assert status("report", run, "--out", tmp_path / "report.html") in (0, 1, 2), name
        if refusal:
            with pytest.raises(WayfareError, match=refusal):
                resume(run, "local", rounds=4)
        else:
            resume(run, "local", rounds=4)
            found = outcome(run)
            assert {part: found[part] == expected[part] for part in ("model", "file", "memory")} == {
                "model": True, "file": True, "memory": True,
            }, name  # fmt: skip
    assert "Traceback" not in capfd.readouterr().err


# ---- its data


@pytest.fixture
def photos(tmp_path):
    return made(tmp_path / "here" / "photos")


def made(folder, seed=0):
    """Two classes of pictures, all files of one size."""
    rng = np.random.default_rng(seed)
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(12):
            picture = Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8))
            picture.save(folder / name / f"{number}.png", compress_level=0)
    return folder


def of_photos(path, rounds=2):
    task = Objects(data=ClassFolders(path=str(path), image_size=8), model=CnnClassifier(width=2, hidden=4))
    return replace(tiny(FedAvg(), clients=2, rounds=rounds), task=task)


def swap_labels(folder):
    (folder / "cat").rename(folder / "x")
    (folder / "dog").rename(folder / "cat")
    (folder / "x").rename(folder / "dog")


def other_pictures(folder):
    shutil.rmtree(folder)
    made(folder, seed=1)


def renamed(folder):
    (folder / "cat/3.png").rename(folder / "cat/33.png")


def one_less(folder):
    (folder / "dog/11.png").unlink()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (swap_labels, r"contents of 24 of 24 sampled files differ: cat/0\.png"),
        (other_pictures, r"data\.path: contents of 24 of 24 sampled files differ"),
        (renamed, r"data\.path: names or sizes of files differ"),
        (one_less, r"began with 20 samples, and now there are 19"),
    ],
)
def test_other_data_are_refused(photos, tmp_path, change, reason):
    """With the reason, and before anything in the folder is changed."""
    run = tmp_path / "run"
    go(of_photos(photos), run)
    before = contents(run)
    change(photos)
    with pytest.raises(StoreError, match=reason):
        resume(run, "local", rounds=3)
    assert contents(run) == before


def test_other_data_can_be_allowed(photos, tmp_path, capfd):
    """The next round and the summary say so; after that, these are the data of the run."""
    run = tmp_path / "run"
    go(of_photos(photos), run)
    swap_labels(photos)
    command = ["resume", run, "--engine", "local", "--track", "none", "--rounds"]
    assert status(*command, 3) == 1
    assert "--allow-changed data" in " ".join(capfd.readouterr().err.split())
    assert status(*command, 3, "--allow-changed", "data") == 0
    assert status(*command, 4) == 0
    found = rounds(run)
    assert [len(line.get("changed", [])) for line in found] == [0, 0, 0, 1, 0]
    assert "the data is not that of the earlier rounds" in found[3]["warnings"][0]
    (warning,) = json.loads((run / "summary.json").read_text())["warnings"]
    assert warning.startswith("from round 3 on: the data is not that")


def test_a_relative_path_from_another_folder(photos, tmp_path, monkeypatch):
    """The same pictures in another place are the same data; others of the same name are not."""
    experiment, run = of_photos("photos"), tmp_path / "run"
    made(tmp_path / "there" / "photos", seed=1)
    shutil.copytree(photos, tmp_path / "copy" / "photos")
    monkeypatch.chdir(photos.parent)
    go(experiment, run)
    whole = go(replace(experiment, rounds=3), tmp_path / "whole")["model_sha256"]
    monkeypatch.chdir(tmp_path / "there")
    with pytest.raises(StoreError, match=rf"it was {photos} when the run began, and is {tmp_path}/there/photos now"):
        resume(run, "local", rounds=3)
    monkeypatch.chdir(tmp_path / "copy")
    assert resume(run, "local", rounds=3)["model_sha256"] == whole


def test_what_is_not_data(photos):
    """Files that other programs leave in a folder of pictures, and runs that lie there, are not part of the data."""
    before = manifest.files_digest(photos)
    for name in (".DS_Store", "cat/Thumbs.db", "cat-data.html", "runs/first/experiment.toml", "runs/first/model"):
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        (photos / name).write_bytes(b"x")
    (photos / "cat" / "again").symlink_to(photos)
    assert manifest.files_digest(photos) == before
    (photos / "cat" / "notes.csv").write_bytes(b"x")
    assert manifest.files_digest(photos) != before


def test_only_a_sample_is_read(tmp_path):
    """Of 500 pictures and one table, the table and 32 pictures; of a large file, 1 MB."""
    for number in range(500):
        (tmp_path / f"{number}.jpg").write_bytes(bytes([number % 256]))
    (tmp_path / "places.csv").write_bytes(b"x" * 2**22)
    found = manifest.files_digest(tmp_path)
    assert (found["files"], found["bytes"]) == (501, 500 + 2**22)
    assert "places.csv" in found["contents"] and 17 <= len(found["contents"]) <= 33
    (tmp_path / "places.csv").write_bytes(b"x" * (2**22 - 1) + b"y")
    assert manifest.files_digest(tmp_path)["contents"] != found["contents"]


def test_labels_and_classes_are_part_of_the_data():
    class Swapped(Objects):
        @property
        def labels(self):
            return super().labels[::-1]

    mine, theirs = Objects().data_digest(), Swapped().data_digest()
    assert {key for key in mine if mine[key] != theirs[key]} == {"labels"}
    assert mine["samples"] == len(Objects().labels)


# ---- what devices remember


def test_a_device_may_start_over(run, runs, capfd):
    """Without its memory it is counted in `cold`, and the run is not asked about it again."""
    for path in run.glob("memory/*/c1@*"):
        path.unlink()
    summary = resume(run, "local", rounds=4, allow_changed=["memory"])
    assert summary["cold"] == 1
    assert summary["model_sha256"] != outcome(runs / "four")["model"]
    last = rounds(run)[-1]
    assert (last["cold"], last["forgotten"]) == (["c1"], ["c1"])
    assert resume(run, "local", rounds=5)["cold"] == 1


def test_what_was_forgotten_stays_so(tmp_path):
    """A device that starts over and is not asked in the next round is not missed when the run is resumed again."""
    run = tmp_path / "run"
    go(replace(tiny(Scaffold(), clients=6, rounds=9), topology=Server(per_round=1)), run)
    asked = [line["clients"][0] for line in rounds(run)[1:]]
    lost = next(device for device in asked if device not in asked[6:])
    for path in run.glob(f"memory/*/{lost}@*"):
        path.unlink()
    with pytest.raises(StoreError, match=f"{lost}@.* is missing, and no earlier round"):
        resume(run, "local", rounds=10)
    resume(run, "local", rounds=10, allow_changed=["memory"])
    resume(run, "local", rounds=11)


def test_a_memory_that_no_round_wrote(tmp_path):
    """Planted for a device that was not asked in that round: the round is done again without it."""
    run, experiment = tmp_path / "run", replace(tiny(Scaffold(), clients=6, rounds=2), topology=Server(per_round=1))
    go(experiment, run)
    whole = go(replace(experiment, rounds=12), tmp_path / "whole")["model_sha256"]
    (asked,) = rounds(run)[2]["clients"]
    planted = next(f"c{k}" for k in range(6) if f"c{k}" not in {asked, *rounds(run)[1]["clients"]})
    memories = Store(run).memories
    memories.save(planted, 2, memories.load(asked, 2))
    (warning,) = resumed(run, rounds=12)
    assert f"{planted}@2 is none of the memories that round 2 left: going back" in warning
    assert outcome(run)["model"] == whole


# ---- other versions


def test_another_version_of_the_code(run, runs, monkeypatch):
    """Not refused: told once, in the record and in the summary."""
    monkeypatch.setattr(manifest, "code_version", lambda: {"wayfare": "9.9", "source": "abc", "torch": "1"})
    summary = resume(run, "local", rounds=4)
    assert summary["model_sha256"] == outcome(runs / "four")["model"]
    (warning,) = summary["warnings"]
    assert "from round 4 on: another version of the code" in warning and "9.9 now" in warning
    assert rounds(run)[-1]["warnings"] == rounds(run)[-1]["changed"]
    assert len(json.loads((run / manifest.FILE).read_text())["code"]) == 2
    resume(run, "local", rounds=5)
    assert rounds(run)[-1]["warnings"] == []


def aged(folder, version="0.0.9"):
    """The run as a version without a manifest would have left it, with fewer settings in its experiment."""
    experiment = Experiment.from_toml((folder / "experiment.toml").read_text())
    lines = []
    for raw in lines_of(folder):
        line = json.loads(raw)
        line = {key: value for key, value in line.items() if key not in ("manifest", "code", "memory")}
        lines.append(sealed({**line, "experiment": early_fingerprint(experiment)}))
    put_lines(folder, lines)
    text = (folder / "experiment.toml").read_text()
    (folder / "experiment.toml").write_text(text.replace("clip = 0.0\n", "").replace("patience = 0\n", ""))
    (folder / manifest.FILE).unlink()
    (folder / "environment.json").write_text(json.dumps({"wayfare": version}))
    return folder


def test_an_older_run_is_resumed(run, runs):
    """Its experiment lacks settings that came later, and it has no manifest; its text stays as it was."""
    warnings = resumed(aged(run))
    assert outcome(run)["model"] == outcome(runs / "four")["model"]
    assert warnings == ["the earlier rounds did not record their data, so it cannot be compared"]
    assert "clip" not in (run / "experiment.toml").read_text()
    assert resume(run, "local", rounds=5)["rounds"] == 5


def test_an_older_run_with_a_key_that_has_moved(run):
    path = aged(run) / "experiment.toml"
    text = path.read_text()
    path.write_text(text.replace('[task]\nname = "objects"\n', '[task]\nname = "objects"\nwidth = 2\n'))
    with pytest.raises(
        ConfigError, match=r"task\.width has moved: it is model\.width now\. Wayfare 0\.0\.9 made this run"
    ):
        resume(run, "local")


def test_an_older_run_whose_settings_mean_something_else(run):
    """A default that has changed since cannot be told from an edited file: both reasons are given."""
    edited(aged(run), 3, experiment="0" * 64)
    with pytest.raises(
        StoreError, match=r"was changed since round 3, or means something else to Wayfare .* than to 0\.0\.9"
    ):
        resume(run, "local")


def test_more_rounds_leave_the_rest_of_the_text_alone(run):
    path = run / "experiment.toml"
    path.write_text("# mine\n" + path.read_text())
    before = path.read_text()
    resume(run, "local", rounds=4)
    assert path.read_text() == before.replace("rounds = 3", "rounds = 4")
