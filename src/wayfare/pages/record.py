"""A run folder, read back: what every table, figure and page of the reports is made from.

Only `experiment.toml` must be there, because a run that was killed early has little else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wayfare.pages.run_files import (
    ENVIRONMENT,
    EXPERIMENT,
    NUMBER,
    PARTITION,
    ROUNDS,
    SUMMARY,
    PerClient,
    Refused,
    RoundLine,
    is_number,
    json_object,
    last_per_client,
    log_lines,
    numbers,
    read_experiment,
    read_partition,
    round_line,
    typed_field,
)

# Words in a metric's name which say that less is better; everything else is read as "more is better".
_LESS_IS_BETTER = ("loss", "error", "distance", "perplexity", "regret")
CLOCK = "clock/seconds"  # virtual time at the end of a round, where there is a [clock]
# What devices that meet have done, a device in the mean; more of it is neither better nor worse.
_TOUR = ("tour/taken", "tour/sent", "tour/joules", "tour/bytes_sent", "tour/meetings", "tour/lonely")
_TAILS = ("_min", "_p10", "_p90", "_of_the_lonely")  # of a spread over devices: behind its mean, median and maximum


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
        recipe, experiment = read_experiment(path)
        summary = json_object(path / SUMMARY)
        lines = log_lines(path / ROUNDS, needed=summary is not None)
        return cls(
            path=path,
            experiment=experiment,
            recipe=recipe,
            rounds=tuple(round_line(entry, where) for entry, where in lines),
            partition=read_partition(path / PARTITION),
            environment=json_object(path / ENVIRONMENT) or {},
            summary=summary,
            per_client=last_per_client(lines),
        )

    @property
    def name(self) -> str:
        """What the experiment calls itself, else the folder's name."""
        return str(self.experiment.get("name") or self.path.resolve().name)

    def best_of_clients(self, measure: str) -> dict[str, float]:
        """Of each client its best figure in all evaluations; read from the folder, since only the last is kept."""
        best: dict[str, float] = {}
        for entry, where in log_lines(self.path / ROUNDS, needed=False):
            measures = typed_field(entry, "per_client", Mapping, {}, where)
            for id, value in numbers(measures.get(measure) or {}, f"{where}: field 'per_client'").items():
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
        if not isinstance(found, Mapping) or not is_number(found.get("epsilon")):
            return ""
        whose = {"client": "a client with all its samples", "sample": "one sample"}.get(str(found.get("unit")), "?")
        return f"differential privacy of {whose}: epsilon {found['epsilon']:.4g} at delta {found.get('delta')}"

    @property
    def travelled(self) -> int:
        """Bytes sent; between devices that meet, what one sends up is what the other takes down."""
        return self.bytes_up if self.is_tour else self.bytes_up + self.bytes_down

    @property
    def seconds(self) -> float:
        if self.summary is not None and isinstance(self.summary.get("seconds"), NUMBER):
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
        return {str(name): float(value) for name, value in metrics.items() if is_number(value)}

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
    return log_lines(folder / ROUNDS, needed=False)


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
