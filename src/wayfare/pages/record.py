"""A run folder, read back: what every table, figure and page of the reports is made from.

Only `experiment.toml` must be there, because a run that was killed early has little else. A file that is there but
cannot be understood is an error which names it: a report on half-read numbers would be worse than none.
"""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
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
# Words in a metric's name which say that less is better; everything else is read as "more is better".
_LESS_IS_BETTER = ("loss", "error", "distance", "perplexity", "regret")
CLOCK = "clock/seconds"  # virtual time at the end of a round, where there is a [clock]
_NUMBER = (int, float)
_LARGE = 2**26  # bytes, which no experiment has
# What devices that meet have done, a device in the mean; more of it is neither better nor worse.
_TOUR = ("tour/taken", "tour/sent", "tour/joules", "tour/bytes_sent", "tour/meetings", "tour/lonely")
_TAILS = ("_min", "_p10", "_p90", "_of_the_lonely")  # of a spread over devices: behind its mean, median and maximum


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


@dataclass(frozen=True)
class Record:
    """A run as recorded in its folder."""

    path: Path
    experiment: Mapping[str, Any]
    recipe: str
    rounds: tuple[RoundLine, ...]
    partition: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] | None = None
    per_client: PerClient | None = None

    @classmethod
    def read(cls, path: Path | str) -> Record:
        """Read a run folder; DataError if it is not one, StoreError if a file in it is damaged."""
        path = Path(path)
        recipe, experiment = _experiment(path)
        summary = _json_object(path / SUMMARY)
        lines = _lines(path / ROUNDS, needed=summary is not None)
        return cls(
            path=path,
            experiment=experiment,
            recipe=recipe,
            rounds=tuple(_round(entry, where) for entry, where in lines),
            partition=_partition(path / PARTITION),
            environment=_json_object(path / ENVIRONMENT) or {},
            summary=summary,
            per_client=_clients(lines),
        )

    @property
    def name(self) -> str:
        """What the experiment calls itself, else the folder's name."""
        return str(self.experiment.get("name") or self.path.resolve().name)

    def best_of_clients(self, measure: str) -> dict[str, float]:
        """Of each client its best figure in all evaluations; read from the folder, since only the last is kept."""
        best: dict[str, float] = {}
        for entry, where in _lines(self.path / ROUNDS, needed=False):
            measures = _get(entry, "per_client", Mapping, {}, where)
            for id, value in _values(measures.get(measure) or {}, f"{where}: field 'per_client'").items():
                best[id] = max(value, best.get(id, value))
        return best

    @property
    def finished(self) -> bool:
        """Whether the run reached its end: the summary is written last."""
        return self.summary is not None

    @property
    def done(self) -> int:
        """The last committed round."""
        return self.rounds[-1].round if self.rounds else 0

    @property
    def total(self) -> int | None:
        """How many rounds were asked for, where the experiment says so; 0 is as many as there are."""
        rounds = self.experiment.get("rounds")
        return rounds if isinstance(rounds, int) and rounds > 0 else None

    @property
    def updated(self) -> datetime:
        """When the last round was committed; the age of the folder where no round says when."""
        for line in reversed(self.rounds):
            try:
                moment = datetime.fromisoformat(line.time)
            except ValueError:
                continue
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return datetime.fromtimestamp((self.path / EXPERIMENT).stat().st_mtime, tz=UTC)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every metric that was measured at least once, the most telling first."""
        names = {name for line in self.rounds for name in line.metrics} | set(self._final)
        return tuple(sorted(names, key=_rank))

    @property
    def main_metric(self) -> str | None:
        """The metric to show if there is space for only one."""
        return self.metrics[0] if self.metrics else None

    @property
    def bytes_up(self) -> int:
        return self._total("bytes_up")

    @property
    def bytes_down(self) -> int:
        return self._total("bytes_down")

    @property
    def is_tour(self) -> bool:
        """Whether devices exchange models where they meet, without a server."""
        return self.component("topology") == "encounters"

    @property
    def unit(self) -> str:
        """What a round is called: a slot, where devices meet and each slot is one."""
        topology = self.experiment.get("topology")
        slots = topology.get("slots", 1) if isinstance(topology, Mapping) else 1
        return "slot" if self.is_tour and slots == 1 else "round"

    @property
    def is_private(self) -> bool:
        """Whether its rounds record nothing of single clients."""
        return "privacy" in self.experiment

    @property
    def privacy(self) -> str:
        """What the privacy of a finished run is worth, in words; "" where there is none."""
        found = (self.summary or {}).get("privacy")
        if not isinstance(found, Mapping) or not _is_number(found.get("epsilon")):
            return ""
        whose = {"client": "a client with all its samples", "sample": "one sample"}.get(str(found.get("unit")), "?")
        return f"differential privacy of {whose}: epsilon {found['epsilon']:.4g} at delta {found.get('delta')}"

    @property
    def travelled(self) -> int:
        """Bytes sent; between devices that meet, what one sends up is what the other takes down."""
        return self.bytes_up if self.is_tour else self.bytes_up + self.bytes_down

    @property
    def seconds(self) -> float:
        if self.summary is not None and isinstance(self.summary.get("seconds"), _NUMBER):
            return float(self.summary["seconds"])
        return sum(line.seconds for line in self.rounds)

    @property
    def refused(self) -> tuple[Refused, ...]:
        return tuple(refusal for line in self.rounds for refusal in line.refused)

    @property
    def cold(self) -> tuple[tuple[int, str], ...]:
        """(round, device) for every reply that came without the memory the device should have had."""
        return tuple((line.round, device) for line in self.rounds for device in line.cold)

    @property
    def void(self) -> tuple[int, ...]:
        """The rounds that changed nothing, for want of a quorum."""
        return tuple(line.round for line in self.rounds if line.void)

    @property
    def model_sha256(self) -> str:
        if self.summary is not None and self.summary.get("model_sha256"):
            return str(self.summary["model_sha256"])
        return next((line.model_sha256 for line in reversed(self.rounds) if line.model_sha256), "")

    @property
    def weights_sha256(self) -> str:
        """Of the weights in model.safetensors: where every device has a model of its own, they are the mean of all."""
        found = (self.summary or {}).get("weights_sha256")
        return str(found) if found else self.model_sha256

    @property
    def skipped_files(self) -> tuple[tuple[str, str], ...]:
        """(file, reason) for every data file that was left out; known once the run has finished."""
        entries = (self.summary or {}).get("skipped_files") or []
        return tuple((str(e.get("file", "")), str(e.get("reason", ""))) for e in entries if isinstance(e, Mapping))

    @property
    def protocol(self) -> str:
        """What the metrics of the test set mean, where the task says so; known once the run has finished."""
        return str((self.summary or {}).get("protocol") or "")

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the task has to say about the model at the end."""
        found = (self.summary or {}).get("warnings") or []
        return tuple(str(text) for text in found) if isinstance(found, list) else ()

    def component(self, kind: str) -> str:
        """The name of the task, strategy, topology ... of the experiment; empty where it has none."""
        part = self.experiment.get(kind, "")
        return str(part.get("name", "") if isinstance(part, Mapping) else part)

    def series(self, metric: str) -> tuple[list[int], list[float]]:
        """The rounds in which a metric was measured, and its values."""
        lines = [line for line in self.rounds if metric in line.metrics]
        return [line.round for line in lines], [line.metrics[metric] for line in lines]

    def final(self, metric: str) -> float | None:
        """The value the run ended with, or has reached so far; None where it was never measured."""
        if metric in self._final:
            return self._final[metric]
        values = self.series(metric)[1]
        return values[-1] if values else None

    @property
    def final_metrics(self) -> dict[str, float | None]:
        """Every metric as last measured."""
        return {name: self.final(name) for name in self.metrics}

    def elapsed(self) -> dict[int, float]:
        """Virtual seconds from the start to the end of each round; empty where the run had no [clock]."""
        found = {line.round: line.metrics[CLOCK] for line in self.rounds if CLOCK in line.metrics}
        return {0: 0.0, **found} if found else {}

    def sent(self) -> dict[int, int]:
        """Bytes sent from the start to the end of each round."""
        total, after = 0, {}
        for line in self.rounds:
            total += line.bytes_up if self.is_tour else line.bytes_up + line.bytes_down
            after[line.round] = total
        return after

    @property
    def _final(self) -> dict[str, float]:
        metrics = (self.summary or {}).get("metrics")
        if not isinstance(metrics, Mapping):
            return {}
        return {str(name): float(value) for name, value in metrics.items() if _is_number(value)}

    def _total(self, key: str) -> int:
        if self.summary is not None and isinstance(self.summary.get(key), int):
            return int(self.summary[key])
        return sum(getattr(line, key) for line in self.rounds)


def less_is_better(metric: str) -> bool:
    """Whether a metric is a loss, judging by its name."""
    return any(word in metric.lower() for word in _LESS_IS_BETTER)


def is_count(metric: str) -> bool:
    """Whether a metric counts what was done, so that no value of it is the best."""
    return metric.startswith(("tour/", "privacy/", "clock/"))


def round_entries(folder: Path) -> list[tuple[dict[str, Any], str]]:
    """The lines of a run's log as they are, with the place of each, for what only some runs log."""
    return _lines(folder / ROUNDS, needed=False)


def find_runs(folder: Path | str) -> list[Path]:
    """Every run in a folder, at any depth, in order of path; the folder itself if it is a run."""
    found = []
    for here, below, files in os.walk(folder):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if EXPERIMENT in files:
            found.append(Path(here))
            below.clear()  # what lies inside a run is its own
    return found


def _rank(metric: str) -> tuple[int, bool, int, int, str]:
    """Test before validation before the rest; within each, losses last; percentiles of a spread and time at the end."""
    split = metric.split("/", 1)[0]
    order = {"test": 0, "validation": 1, "clients": 2, "train": 4}
    place = _TOUR.index(metric) if metric in _TOUR else len(_TOUR)
    last = 2 if metric.startswith("clock/") else int(less_is_better(metric))
    return last, metric.endswith(_TAILS), order.get(split, 3), place, metric


def _is_number(value: object) -> bool:
    return isinstance(value, _NUMBER) and not isinstance(value, bool)


def _experiment(folder: Path) -> tuple[str, dict[str, Any]]:
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


def _json_object(file: Path) -> dict[str, Any] | None:
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


def _partition(file: Path) -> dict[str, Any]:
    content = _json_object(file) or {}
    for key, kind in (("table", Mapping), ("provenance", Mapping), ("ids", list), ("classes", list), ("counts", list)):
        _get(content, key, kind, None, str(file))
    return content


def _lines(file: Path, needed: bool) -> list[tuple[dict[str, Any], str]]:
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


def _round(entry: Mapping[str, Any], where: str) -> RoundLine:
    number = int(entry["round"])
    metrics = _get(entry, "metrics", Mapping, {}, where)
    refused = _get(entry, "refused", list, [], where)
    return RoundLine(
        round=number,
        time=str(entry.get("time", "")),
        seconds=float(_get(entry, "seconds", _NUMBER, 0.0, where)),
        metrics=_values(metrics, f"{where}: field 'metrics'"),
        clients=len(_get(entry, "clients", list, [], where)),
        examples=int(_get(entry, "examples", _NUMBER, 0, where)),
        bytes_up=int(_get(entry, "bytes_up", _NUMBER, 0, where)),
        bytes_down=int(_get(entry, "bytes_down", _NUMBER, 0, where)),
        refused=tuple(_refusal(number, item, where) for item in refused),
        cold=tuple(str(device) for device in _get(entry, "cold", list, [], where)),
        void=bool(entry.get("void", False)),
        model_sha256=str(entry.get("model_sha256") or ""),
    )


def _get(entry: Mapping[str, Any], key: str, kind: Any, default: Any, where: str) -> Any:
    """A field of a line, of the kind it should be; the default where it is absent or null."""
    value = entry.get(key)
    if value is None:
        return default
    finite = not isinstance(value, float) or math.isfinite(value)
    if not isinstance(value, kind) or isinstance(value, bool) or not finite:
        wanted = "a number" if kind is _NUMBER else "a list" if kind is list else "an object"
        raise StoreError(f"{where}: field {key!r}: expected {wanted}, found {str(value)[:80]}")
    return value


def _values(metrics: Mapping[str, Any], where: str) -> dict[str, float]:
    """Numbers by name. A null was not measured; a nan was, and says that training diverged."""
    for name, value in metrics.items():
        if value is not None and not _is_number(value):
            raise StoreError(f"{where}: {name!r}: expected a number, found {str(value)[:80]}")
    return {str(name): float(value) for name, value in metrics.items() if value is not None}


def _refusal(number: int, item: Any, where: str) -> Refused:
    if not isinstance(item, Mapping):
        raise StoreError(f"{where}: field 'refused': expected 'device' and 'reason', found {str(item)[:80]}")
    return Refused(number, str(item.get("device", "")), str(item.get("reason", "")))


def _clients(lines: Sequence[tuple[dict[str, Any], str]]) -> PerClient | None:
    """Only the last evaluation is kept: every one of a long run with many clients would fill the memory."""
    for entry, where in reversed(lines):
        measures = _get(entry, "per_client", Mapping, {}, where)
        if any(measures.values()):
            values = {str(m): _values(v, f"{where}: field 'per_client'") for m, v in measures.items() if v}
            return PerClient(int(entry["round"]), values)
    return None
