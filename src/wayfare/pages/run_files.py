"""The files of a run folder, read and checked: the experiment, the log of rounds, and JSON objects.

A file that is there but cannot be understood is an error which names it: a report on half-read numbers would be worse
than none.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wayfare.core import disk
from wayfare.core.errors import DataError, StoreError

EXPERIMENT, ROUNDS, PARTITION, ENVIRONMENT, SUMMARY = (
    "experiment.toml",
    "rounds.jsonl",
    "partition.json",
    "environment.json",
    "summary.json",
)
NUMBER = (int, float)
_LARGE = 2**26  # bytes, which no experiment has


@dataclass(frozen=True)
class Refused:
    """A reply the admission gate turned away."""

    round: int
    device: str
    reason: str


@dataclass(frozen=True)
class RoundLine:
    """One committed round. Round 0 is the untrained model."""

    round: int
    time: str
    seconds: float
    metrics: Mapping[str, float]
    clients: int
    examples: int
    bytes_up: int
    bytes_down: int
    refused: tuple[Refused, ...]
    cold: tuple[str, ...]
    void: bool
    model_sha256: str


@dataclass(frozen=True)
class PerClient:
    """The last evaluation client by client: the round, and for each measure the value at each client."""

    round: int
    values: Mapping[str, Mapping[str, float]]


def is_number(value: object) -> bool:
    return isinstance(value, NUMBER) and not isinstance(value, bool)


def read_experiment(folder: Path) -> tuple[str, dict[str, Any]]:
    file = folder / EXPERIMENT
    try:
        if file.stat().st_size > _LARGE:
            raise StoreError(f"{file}: damaged: it has {file.stat().st_size:,} bytes")
        text = disk.read(file).decode()
    except (FileNotFoundError, NotADirectoryError):
        what = f"no {EXPERIMENT} here, so this is not a run" if folder.is_dir() else "there is no such folder"
        raise DataError(what, file=folder, remedy="give the folder that `wayfare run --out` made") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{file}: cannot be read: {error}") from error
    try:
        return text, tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise StoreError(f"{file}: not a TOML file: {error}") from error


def json_object(file: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None where there is no file."""
    try:
        content = json.loads(disk.read(file))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{file}: cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{file}: not a JSON file: {error}") from error
    if not isinstance(content, dict):
        raise StoreError(f"{file}: expected a JSON object, found {type(content).__name__}")
    return content


def read_partition(file: Path) -> dict[str, Any]:
    content = json_object(file) or {}
    for key, kind in (("table", Mapping), ("provenance", Mapping), ("ids", list), ("classes", list), ("counts", list)):
        typed_field(content, key, kind, None, str(file))
    return content


def log_lines(file: Path, needed: bool) -> list[tuple[dict[str, Any], str]]:
    """The rounds of the log with the place of each, in order, one per round."""
    try:
        raw = disk.read(file).splitlines()
    except FileNotFoundError:
        if needed:
            raise StoreError(f"{file}: missing, although the run has a {SUMMARY}; restore it or run again") from None
        return []
    except OSError as error:
        raise StoreError(f"{file}: cannot be read: {error}") from error
    kept: list[tuple[dict[str, Any], str]] = []
    for entry, where in _entries(raw, file):
        # A run resumed from an older checkpoint writes rounds again: the later line is the one that counts.
        while kept and kept[-1][0]["round"] >= entry["round"]:
            kept.pop()
        kept.append((entry, where))
    return kept


def _entries(raw: Sequence[bytes], file: Path) -> Iterator[tuple[dict[str, Any], str]]:
    for number, line in enumerate(raw, start=1):
        where = f"{file}:{number}"
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(raw):  # torn by a crash in mid-write: the round was never committed
                return
            if not line.strip():
                continue
            raise StoreError(f"{where}: not a line of JSON: {error}") from error
        if not isinstance(entry, dict) or not isinstance(entry.get("round"), int):
            raise StoreError(f"{where}: expected an object with a whole number 'round', found {str(entry)[:80]}")
        yield entry, where


def round_line(entry: Mapping[str, Any], where: str) -> RoundLine:
    number = int(entry["round"])
    metrics = typed_field(entry, "metrics", Mapping, {}, where)
    refused = typed_field(entry, "refused", list, [], where)
    return RoundLine(
        round=number,
        time=str(entry.get("time", "")),
        seconds=float(typed_field(entry, "seconds", NUMBER, 0.0, where)),
        metrics=numbers(metrics, f"{where}: field 'metrics'"),
        clients=len(typed_field(entry, "clients", list, [], where)),
        examples=int(typed_field(entry, "examples", NUMBER, 0, where)),
        bytes_up=int(typed_field(entry, "bytes_up", NUMBER, 0, where)),
        bytes_down=int(typed_field(entry, "bytes_down", NUMBER, 0, where)),
        refused=tuple(_refusal(number, item, where) for item in refused),
        cold=tuple(str(device) for device in typed_field(entry, "cold", list, [], where)),
        void=bool(entry.get("void", False)),
        model_sha256=str(entry.get("model_sha256") or ""),
    )


def typed_field(entry: Mapping[str, Any], key: str, kind: Any, default: Any, where: str) -> Any:
    """A field of a line, of the kind it should be; the default where it is absent or null."""
    value = entry.get(key)
    if value is None:
        return default
    finite = not isinstance(value, float) or math.isfinite(value)
    if not isinstance(value, kind) or isinstance(value, bool) or not finite:
        wanted = "a number" if kind is NUMBER else "a list" if kind is list else "an object"
        raise StoreError(f"{where}: field {key!r}: expected {wanted}, found {str(value)[:80]}")
    return value


def numbers(metrics: Mapping[str, Any], where: str) -> dict[str, float]:
    """Numbers by name. A null was not measured; a nan was, and says that training diverged."""
    for name, value in metrics.items():
        if value is not None and not is_number(value):
            raise StoreError(f"{where}: {name!r}: expected a number, found {str(value)[:80]}")
    return {str(name): float(value) for name, value in metrics.items() if value is not None}


def _refusal(number: int, item: Any, where: str) -> Refused:
    if not isinstance(item, Mapping):
        raise StoreError(f"{where}: field 'refused': expected 'device' and 'reason', found {str(item)[:80]}")
    return Refused(number, str(item.get("device", "")), str(item.get("reason", "")))


def last_per_client(lines: Sequence[tuple[dict[str, Any], str]]) -> PerClient | None:
    """Only the last evaluation is kept: every one of a long run with many clients would fill the memory."""
    for entry, where in reversed(lines):
        measures = typed_field(entry, "per_client", Mapping, {}, where)
        if any(measures.values()):
            values = {str(m): numbers(v, f"{where}: field 'per_client'") for m, v in measures.items() if v}
            return PerClient(int(entry["round"]), values)
    return None
