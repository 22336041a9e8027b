"""Downloaded weights: converted once to safetensors in an isolated process; afterwards only safetensors are read.

A .pth file is a pickle, so it may contain code, and even without code it may unpack to more memory than there is.
`import_weights` therefore opens it in a separate process with limits on memory, time and output size, and without a
network where the system allows that. There it calls `torch.load(weights_only=True)`: the only place in Wayfare where a
pickle is loaded. Before loading, the unpacked size is checked; afterwards, that no tensor claims more numbers than are
stored. An .onnx file holds no code; it is read there too (`io.onnx_tensors`), as is a .ckpt of JAX, a pickle of arrays
whose opcodes are read and not run (`io.pickled_arrays`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from wayfare.core.errors import DataError
from wayfare.io import onnx_tensors, pickled_arrays
from wayfare.io.cache import sync

if TYPE_CHECKING:
    from torch import Tensor

_MEMORY = 3 * 2**30  # address space for the interpreter and torch; five times the file size is added
_SECONDS = 60  # of processor time; one second per 10 MB is added
_WRAPPERS = ("state_dict", "model_state_dict", "model", "weights")  # keys used by other programs' checkpoints
_MOST_COPIES = 4  # tensors that share a storage are each written in full; real files share little


def load_weights(path: Path, sha256: str | None = None) -> dict[str, Tensor]:
    """The tensors of a .safetensors file; with `sha256`, its checksum is verified first."""
    if path.suffix != ".safetensors":
        remedy = f"convert it first: wayfare data import-weights {path}"
        raise DataError("only .safetensors files are read; others may run code when loaded", file=path, remedy=remedy)
    if not path.is_file():
        raise DataError("no such file", file=path)
    if sha256 is not None and (found := file_sha256(path)) != sha256:
        raise DataError(f"has the sha256 {found}, expected {sha256}", file=path, remedy="import the weights again")
    from safetensors.torch import load_file  # it imports torch, which the caller of `import_weights` does not need

    try:
        return dict(load_file(path))
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise DataError(f"not a readable safetensors file: {error}", file=path) from error


def missing(weights: str) -> list[str]:
    """The weight file that a setting names, if it does not exist; names such as "auto" have no suffix."""
    return [weights] if Path(weights).suffix and not Path(weights).is_file() else []


def import_weights(source: Path, target: Path) -> dict[str, str | int]:
    """Convert a .pth, .pt, .onnx or .ckpt file to safetensors; return the new file's sha256, tensors and size."""
    if not source.is_file():
        raise DataError("no such file", file=source)
    if target.suffix != ".safetensors":
        raise DataError("expected a name that ends in .safetensors", file=target)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _run_isolated(source, part)
        facts: dict[str, str | int] = {
            "sha256": file_sha256(part),
            "tensors": _count(part),
            "bytes": part.stat().st_size,
        }
        sync(part)
        part.replace(target)
        sync(target.parent)
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror or error}", file=target) from error
    finally:
        part.unlink(missing_ok=True)
    return facts


def _count(part: Path) -> int:
    try:
        with safe_open(part, "pt") as file:
            return len(list(file.keys()))
    except SafetensorError as error:
        raise DataError(f"the conversion failed: {error}", file=part) from error


def file_sha256(path: Path) -> str:
    """The checksum of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# ---- The calling process


def _run_isolated(source: Path, part: Path) -> None:
    size = source.stat().st_size
    memory, seconds = _MEMORY + 5 * size, _SECONDS + size // 10**7
    # -P: do not import from the current folder
    command = [*_without_network(), sys.executable, "-P", "-m", __name__]
    command += [str(source.resolve()), str(part.resolve()), str(memory), str(seconds)]
    # many arenas and threads would only use up the address space
    around = os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    try:
        done = subprocess.run(
            command, env=around, stdin=subprocess.DEVNULL, capture_output=True, timeout=10 * seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(f"stopped: it took more than {10 * seconds} s", file=source) from error
    if done.returncode != 0:
        raise DataError(_reason(done, memory, seconds), file=source)


def _reason(done: subprocess.CompletedProcess[bytes], memory: int, seconds: int) -> str:
    if done.returncode < 0:
        return f"stopped by signal {-done.returncode}: it used more than {seconds} s or {memory} bytes of memory"
    lines = done.stdout.decode(errors="replace").splitlines()
    try:
        return str(json.loads(lines[-1])["refused"])
    except (IndexError, ValueError, KeyError, TypeError):
        words = done.stderr.decode(errors="replace").strip().splitlines()
        return f"the conversion failed: {words[-1] if words else 'no message'}"


@cache
def _without_network() -> tuple[str, ...]:
    """The prefix that runs a command without a network; empty where the system does not allow it."""
    unshare = shutil.which("unshare")
    for options in (("-n",), ("-r", "-n")):
        if unshare and subprocess.run([unshare, *options, "true"], capture_output=True, check=False).returncode == 0:
            return (unshare, *options)
    return ()


# ---- The isolated process: torch is imported here, once the limits are set


def _main(arguments: list[str]) -> int:
    source, part, memory, seconds = Path(arguments[0]), Path(arguments[1]), int(arguments[2]), int(arguments[3])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (memory, memory))
    try:
        _convert(source, part)
    except Exception as error:  # any error is passed on as a reason only
        print(json.dumps({"refused": _explained(error, memory)}))
        return 1
    return 0


def _explained(error: Exception, memory: int) -> str:
    text = str(error)
    if isinstance(error, DataError):
        return text
    if isinstance(error, MemoryError) or "can't allocate memory" in text or "not enough memory" in text:
        return f"it needs more than {memory} bytes of memory"
    if found := re.search(r"GLOBAL (\S+) (?:was not an allowed|whose module)", text):
        return f"it refers to {found[1]}, which is not a plain tensor and might run code"
    # torch then explains how to load the file anyway: do not pass that on
    detail = text.partition("WeightsUnpickler error:")[2] if "Weights only" in text else text
    detail = " ".join(detail.partition("Check the documentation")[0].split())[:300]
    return f"not a state dict that torch can read: {detail or type(error).__name__}"


def _convert(source: Path, part: Path) -> None:
    import torch
    from safetensors.torch import save_file

    size = source.stat().st_size
    if source.suffix == ".onnx":
        state = {name: torch.tensor(values) for name, values in onnx_tensors.state_dict(source.read_bytes()).items()}
    elif source.suffix == ".ckpt" and not zipfile.is_zipfile(source):
        arrays = pickled_arrays.torchvision_names(pickled_arrays.state_dict(source.read_bytes()))
        state = {name: torch.tensor(values) for name, values in arrays.items()}
    else:
        _refuse_packed(source, size)
        state = _state_dict(torch.load(source, map_location="cpu", weights_only=True))
    _refuse_inflated(state, size)
    # clones: safetensors refuses tensors that share memory
    save_file({name: tensor.detach().clone().contiguous() for name, tensor in state.items()}, part)


def _refuse_packed(source: Path, size: int) -> None:
    with source.open("rb") as stream:
        if stream.read(2) != b"PK":
            return  # the format before torch 1.6 is not compressed
    with zipfile.ZipFile(source) as archive:
        unpacked = sum(info.file_size for info in archive.infolist())
    if unpacked > size:
        raise DataError(f"it unpacks to {unpacked} bytes from a file of {size}; torch never compresses its files")


def _state_dict(loaded: object) -> dict[str, Tensor]:
    import torch

    for key in _WRAPPERS:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(key), Mapping):
            loaded = loaded[key]
            break
    if not isinstance(loaded, Mapping) or not loaded:
        raise DataError(f"expected a state dict, names and tensors; found {_kind(loaded)}")
    for name, value in loaded.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise DataError(f"expected names and tensors; found {_kind(value)} under {str(name)[:80]!r}")
    return dict(loaded)


def _kind(value: Any) -> str:
    return "an empty dict" if isinstance(value, Mapping) and not value else type(value).__name__


def _refuse_inflated(state: Mapping[str, Tensor], size: int) -> None:
    import torch

    total = 0
    for name, tensor in state.items():
        if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
            raise DataError(f"{name!r} is not an ordinary tensor in memory ({tensor.layout}, {tensor.device})")
        claimed, stored = tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()
        if claimed > stored:
            raise DataError(f"{name!r} claims {claimed} bytes of numbers, but only {stored} are stored")
        total += claimed
    if total > _MOST_COPIES * size:
        raise DataError(f"its tensors add up to {total} bytes, but the file has only {size}")


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
