"""Which client has which pictures, in the two forms in which the federated scene-graph benchmark publishes it.

FOLDER/User0.json, User1.json, ...    a psg.json for each client, with its own pictures only
FILE.json                             {"0": ["2396297", ...], "1": [...]}: the pictures' ids for each client
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wayfare.core import disk
from wayfare.core.errors import DataError
from wayfare.io.entries import read_entries
from wayfare.io.tables import kind_of, read_json

_CLIENT = re.compile(r"User(\d{1,9})\.json(\.gz)?")


def read_lists(path: Path) -> list[list[str]]:
    """The image ids of each client, in the order of the clients' numbers. An id twice is an error."""
    lists = _of_folder(path) if path.is_dir() else _of_file(path)
    if not lists:
        raise DataError("no clients here", path, remedy="expected User0.json, User1.json, ... or lists of image ids")
    known: set[str] = set()
    for image_id in (image_id for ids in lists for image_id in ids):
        if image_id in known:
            raise DataError(f"picture {image_id!r} is listed twice", path, remedy="each picture has one client")
        known.add(image_id)
    return lists


def _of_file(path: Path) -> list[list[str]]:
    content = read_json(path)
    if isinstance(content, dict) and all(key.isdecimal() for key in content):
        content = [content[key] for key in sorted(content, key=int)]
    if not isinstance(content, list) or not all(isinstance(ids, list) for ids in content):
        raise DataError(
            f"expected a list of image ids for each client, found {kind_of(content)}",
            path,
            remedy='write {"0": ["2396297"], "1": [...]}',
        )
    return [[_id(value, path) for value in ids] for ids in content]


def _id(value: Any, path: Path) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise DataError(f"an image id is {kind_of(value)}", path, remedy="write ids as text")
    return str(value)


def _of_folder(folder: Path) -> list[list[str]]:
    found = ((_CLIENT.fullmatch(file.name), file) for file in folder.iterdir())
    files = sorted((int(match[1]), file) for match, file in found if match)
    return [_ids_of(file) for _, file in files]


def _ids_of(file: Path) -> list[str]:
    ids: list[str] = []

    def take(number: int, line: int, entry: Any) -> None:
        if not isinstance(entry, dict) or "image_id" not in entry:
            raise DataError("an entry without an image_id", file, line)
        ids.append(_id(entry["image_id"], file))

    read_entries(file, "data", take)
    return ids


def write_lists(path: Path, clients: Sequence[Sequence[str]]) -> None:
    """FILE.json: ids for each client."""
    text = json.dumps({str(number): list(ids) for number, ids in enumerate(clients)})
    disk.write(path, text.encode())


def write_folder(folder: Path, annotations: Path, clients: Sequence[Sequence[str]]) -> None:
    """UserN.json for each client: everything that `annotations` says, with only its own pictures."""
    entries: dict[str, Any] = {}

    def take(number: int, line: int, entry: Any) -> None:
        entries[str(entry["image_id"])] = entry

    facts = read_entries(annotations, "data", take)
    disk.make_folder(folder)
    for number, ids in enumerate(clients):
        disk.write(folder / f"User{number}.json", _psg(facts, [entries[image_id] for image_id in ids]))


def _psg(facts: Mapping[str, Any], entries: list[Any]) -> bytes:
    return json.dumps({**facts, "data": entries}, ensure_ascii=False).encode()
