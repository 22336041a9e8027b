"""What a run was made with, so that `resume` can tell whether it still is: `manifest.json` in the run folder.

    data        what the task says of its samples, and a digest of the files that each setting names
    partition   the SHA-256 of partition.safetensors
    code        each version of the code that worked on the run, by its digest
    location    where those files were

Each line of rounds.jsonl carries the digest of data and partition, and that of the code. So a lost manifest can be made
again from what is there, and is only taken for the old one if nothing has changed.

Files are digested by their names and sizes, and by the contents of some of them, evenly spread over the names. It makes
no difference where the folder lies.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

FILE = "manifest.json"
_DIGITS = 16  # of a SHA-256, in hexadecimal: this guards against mistakes, not against forgery
_OF_A_KIND, _IN_ALL = 32, 128  # files whose contents are read: of one suffix, and altogether
_BLOCK, _BLOCKS = 2**16, 16  # bytes read at a time, and so often; of a larger file, evenly spread
_NOT_DATA = frozenset({"Thumbs.db", "desktop.ini"})  # written by programs that show a folder
_RUN = "experiment.toml"  # a folder with this file is a run, not data
_MOST_LISTED = 3

Manifest = dict[str, Any]


def digest_of(value: Any) -> str:
    """Of anything that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:_DIGITS]


# ---- files


def located(settings: Mapping[str, Any]) -> dict[str, Path]:
    """The settings that name a file or folder which exists, and where it is."""
    texts = {key: value for key, value in settings.items() if isinstance(value, str) and value}
    paths = {key: Path(os.path.abspath(value)) for key, value in texts.items() if _exists(value)}  # noqa: PTH100
    return {key: path for key, path in paths.items() if not key.endswith("name")}


def _exists(path: str) -> bool:
    try:
        return os.path.exists(path)  # noqa: PTH110  (False for what cannot be a path)
    except ValueError:
        return False


def files_digest(root: Path) -> dict[str, Any]:
    """Names, sizes, and the contents of a sample of the files below a folder; of a file, that of itself."""
    sizes = dict(sorted(_files(root))) if root.is_dir() else {"": root.stat().st_size}
    return {
        "files": len(sizes),
        "bytes": sum(sizes.values()),
        "names": digest_of(list(sizes.items())),
        "contents": {name: _contents(root / name, sizes[name]) for name in _sample(list(sizes))},
    }


def _files(root: Path) -> Iterator[tuple[str, int]]:
    """Name and size of each file; links are followed, but never in a circle."""
    seen = set()
    for folder, below, files in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen or (_RUN in files and folder != str(root)):
            below.clear()
            continue
        seen.add(real)
        below[:] = [name for name in below if not name.startswith(".")]
        prefix = "" if folder == str(root) else os.path.relpath(folder, root) + os.sep
        for name in files:
            if not name.startswith(".") and name not in _NOT_DATA and not name.endswith(".html"):
                yield prefix + name, _size(f"{folder}/{name}")


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:  # a dangling link
        return -1


def _sample(names: Sequence[str]) -> list[str]:
    """Some of each kind of file, the rare kinds first: a table among photographs says more than one of them."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for name in names:
        kinds[name.rpartition(".")[2].lower()].append(name)
    chosen: list[str] = []
    for members in sorted(kinds.values(), key=lambda members: (len(members), members)):
        chosen += members[:: -(-len(members) // _OF_A_KIND)]
    return sorted(chosen[:_IN_ALL])


def _contents(path: Path, size: int) -> str:
    sha = hashlib.sha256()
    try:
        with path.open("rb") as file:
            for number in range(_BLOCKS):
                if size > _BLOCK * _BLOCKS:
                    file.seek((size - _BLOCK) * number // (_BLOCKS - 1))
                sha.update(file.read(_BLOCK))
    except OSError as error:
        return f"unreadable: {error.strerror}"
    return sha.hexdigest()[:_DIGITS]


# ---- code


@cache
def code_version() -> dict[str, str]:
    """The version of Wayfare, a digest of its source, and the version of torch."""
    package, sha = Path(__file__).parents[1], hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        sha.update(f"{file.relative_to(package)}:".encode() + hashlib.sha256(file.read_bytes()).digest())
    return {"wayfare": version("wayfare"), "source": sha.hexdigest()[:_DIGITS], "torch": str(torch.__version__)}


def code_difference(before: Any, now: dict[str, str]) -> str:
    """What differs between two versions of the code, in words."""
    if not isinstance(before, dict):
        return "another version of the code made the rounds before"
    parts = [f"{key} {before.get(key)} before, {now[key]} now" for key in now if before.get(key) != now[key]]
    return f"another version of the code made the rounds before ({'; '.join(parts)})"


# ---- the manifest


def make(about: Mapping[str, Any], files: Mapping[str, Path], partition: bytes) -> Manifest:
    """The manifest of a run: `about` is what the task says of its data, `files` are those that settings name."""
    code = code_version()
    return {
        "data": {**about, "files": {key: files_digest(path) for key, path in files.items()}},
        "partition": hashlib.sha256(partition).hexdigest(),
        "code": {digest_of(code): code},
        "location": {key: str(path) for key, path in files.items()},
    }


def seal_of(manifest: Manifest) -> str:
    """What ties rounds to the data and the partition that they were made with."""
    return digest_of([manifest.get("data"), manifest.get("partition")])


def differences(before: Manifest, now: Manifest) -> list[str]:
    """What differs in data and partition, in words."""
    old, new = as_dict(before.get("data")), now["data"]
    found = [_part(key, old.get(key), new.get(key)) for key in sorted({*old, *new} - {"files"})]
    old_files, places = as_dict(old.get("files")), as_dict(before.get("location"))
    for key, described in old_files.items():
        found += _of_files(key, as_dict(described), new["files"].get(key), places.get(key), now["location"].get(key))
    if not any(found) and before.get("partition") != now["partition"]:
        found.append("partition.safetensors is not the one that the run began with (delete it: it is made again)")
    return [text for text in found if text]


def _part(key: str, old: Any, new: Any) -> str:
    if old == new:
        return ""
    return f"{key}: {old} before, {new} now" if isinstance(old, int) and isinstance(new, int) else f"{key} differ"


def _of_files(key: str, old: dict[str, Any], new: dict[str, Any] | None, before: Any, now: Any) -> Iterator[str]:
    place = f" (it was {before} when the run began, and is {now} now)" if now and before and before != now else ""
    if new is None:
        yield f"{key}: {before} is no longer there"
    elif (old.get("files"), old.get("bytes")) != (new["files"], new["bytes"]):
        yield f"{key}: {_several(old)} before, {_several(new)} now{place}"
    elif old.get("names") != new["names"]:
        yield f"{key}: names or sizes of files differ{place}"
    elif old.get("contents") != new["contents"]:
        contents = as_dict(old.get("contents"))
        other = [name or key for name, digest in new["contents"].items() if contents.get(name) != digest]
        listed = ", ".join(other[:_MOST_LISTED]) + (", ..." if len(other) > _MOST_LISTED else "")
        yield f"{key}: contents of {len(other)} of {len(new['contents'])} sampled files differ: {listed}{place}"


def _several(files: Mapping[str, Any]) -> str:
    return f"{files.get('files')} files with {files.get('bytes')} bytes"


def as_dict(value: Any) -> dict[str, Any]:
    """A table of a file that may have been edited by hand; empty if it is none."""
    return value if isinstance(value, dict) else {}
