"""A whole town on disk: the same bytes from one seed, however it was made."""

import hashlib
import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from amount import FULL
from wayfare.core.errors import ConfigError, DataError
from wayfare.io import layouts
from wayfare.town import make as making
from wayfare.town.make import LAYOUTS, Size, Spec, Town, jpeg, make

SMALLEST = Size(cities=2, blocks=3, residents=3, tourists=3, vehicles=2, signage=1, shots=24)


@pytest.fixture(autouse=True, scope="module")
def smallest():
    """A size of its own: a few pictures, in more than one chunk."""
    before = dict(making.SIZES)
    making.SIZES["tiny"] = SMALLEST
    yield
    making.SIZES.clear()
    making.SIZES.update(before)


def content(folder):
    """Every file's name and hash."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    folder = tmp_path_factory.mktemp("towns") / "town"
    make_here(folder)
    return folder


def make_here(folder, spec=None, chunks=None, progress=lambda *_: None):
    """As make(), but in this process, where the size is changed; `chunks` stops after that many."""
    spec = spec or Spec("tiny")
    made = 0

    def photograph(folder, town, workers, progress):
        nonlocal made
        for chunk in town.chunks:
            if not making._record(folder / ".town", chunk).exists():
                if chunks is not None and made >= chunks:
                    raise KeyboardInterrupt
                making._make_chunk(folder, town, chunk)
                made += 1

    original, making._photograph = making._photograph, photograph
    try:
        return make(folder, spec, progress=progress)
    finally:
        making._photograph = original


def test_one_seed_one_town(town, tmp_path):
    make_here(tmp_path / "again")
    assert content(tmp_path / "again") == content(town)
    assert not (town / ".town").exists()


def test_photographs_are_the_same_one_by_one_and_together():
    town = Town(Spec("tiny"))
    together = town.take_all(range(20, 30))  # from two cities
    for index, photo in zip(range(20, 30), together, strict=True):
        alone = town.take(index)
        assert jpeg(photo) == jpeg(alone)
        assert (photo.shot, photo.latitude, photo.longitude) == (town.shots[index], alone.latitude, alone.longitude)
        assert (photo.truth.items, photo.truth.relations) == (alone.truth.items, alone.truth.relations)
    assert len({photo.shot.city for photo in together}) == 2


def test_large_photographs_are_taken_one_by_one():
    assert [list(group) for group in Town(Spec("tiny", height=1024, width=1024)).groups(range(3))] == [[0], [1], [2]]
    assert [len(group) for group in Town(Spec("tiny", height=512, width=512)).groups(range(7))] == [4, 3]
    assert [len(group) for group in Town(Spec("tiny")).groups(range(32))] == [32]


def test_another_seed_is_another_town(town, tmp_path):
    make_here(tmp_path / "other", Spec("tiny", seed=1))
    ours, others = content(town), content(tmp_path / "other")
    pictures = [name for name in ours if name.endswith(".jpg")]
    assert pictures
    assert not any(ours[name] == others.get(name) for name in pictures)
    traces = [name for name in ours if name.startswith("traces/")]
    assert traces
    assert not any(ours[name] in others.values() for name in traces)


def test_interrupted_and_continued(town, tmp_path):
    for chunks in (0, 1):
        with pytest.raises(KeyboardInterrupt):
            make_here(tmp_path / "town", chunks=chunks)
        assert not (tmp_path / "town" / "town.json").exists()
    # what a kill in the middle of a file leaves
    (tmp_path / "town" / "msls").mkdir(exist_ok=True)
    make_here(tmp_path / "town")
    assert content(tmp_path / "town") == content(town)


def test_one_waits_while_another_makes_it(town, tmp_path):
    folder, told = tmp_path / "town", []
    making._claim(folder, Spec("tiny"))
    with ThreadPoolExecutor(1) as other:
        with making._held(folder, lambda *_: None):
            waiting = other.submit(make_here, folder, progress=lambda what, *_: told.append(what))
            while not told:
                time.sleep(0.01)
            assert not waiting.done()
        waiting.result()
    assert told[0] == "another process is making this town"
    assert content(folder) == content(town)


def test_a_whole_town_is_left_alone(town):
    before = content(town)
    summary = make(town, Spec("tiny"))
    assert summary["photos"] == 2 * SMALLEST.shots
    assert content(town) == before


def test_another_town_is_not_overwritten(town, tmp_path):
    with pytest.raises(DataError, match=r"this folder holds another town: seed 0 instead of 5.*choose another folder"):
        make(town, Spec("tiny", seed=5))
    (tmp_path / "photo.jpg").write_text("mine")
    with pytest.raises(DataError, match="not empty, and not an unfinished town"):
        make(tmp_path, Spec("tiny"))
    assert (tmp_path / "photo.jpg").read_text() == "mine"


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"size": "huge"}, "unknown size 'huge'.*tiny"),
        ({"layouts": ("mslz",)}, "unknown layout 'mslz'; did you mean 'msls'"),
        ({"height": 8}, "pictures of 8 x 128 pixels"),
        ({"seed": -1}, "seed -1"),
    ],
)
def test_what_cannot_be_made_is_refused(settings, what):
    with pytest.raises(ConfigError, match=what):
        Spec(**settings)


def test_every_layout_is_recognised_and_sound(town):
    """The town goes through the loaders of the real data sets, and they find nothing wrong with it."""
    found = {item.path.name: item.layout for item in layouts.find(town)}
    assert found == {**{name: name for name in LAYOUTS}, "traces": "traces"}
    for findings in layouts.check(town):
        assert findings.problems.count == 0, (findings.layout, [str(p) for p in findings.problems.found[:3]])


def test_processes(tmp_path):
    """By the command, with 1 and with 3 processes, killed on the way (twice, if there is time): the same bytes."""

    def command(folder, workers):
        only = ["--only", "msls,psg", "--height", "24", "--width", "32"]
        arguments = ["town", str(folder), "--size", "tiny", "--workers", str(workers), *only, "--json"]
        return [sys.executable, "-c", "import sys; from wayfare.cli import main; main()", *arguments]

    for _ in range(2 if FULL else 1):
        with subprocess.Popen(
            command(tmp_path / "b", 3), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            records = tmp_path / "b" / ".town" / "chunks"
            before = len(list(records.glob("*.json"))) if records.exists() else 0
            end = time.monotonic() + 60
            while time.monotonic() < end and process.poll() is None:
                if records.exists() and len(list(records.glob("*.json"))) > before:
                    break
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
    whole = subprocess.run(command(tmp_path / "a", 1), capture_output=True, text=True, check=True)
    again = subprocess.run(command(tmp_path / "b", 2), capture_output=True, text=True, check=True)
    assert json.loads(whole.stdout)["layouts"] == json.loads(again.stdout)["layouts"]
    assert content(tmp_path / "a") == content(tmp_path / "b")
