"""Runs side by side: those that differ only in their seeds are one group, with mean and sample sd over them.

The name of an experiment is what people call it, not a setting, so it does not part groups. A seed never counts twice
in one mean: where the same settings and seed were run again (before and after a change to the code, say), the runs
are told apart by their folders.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from wayfare.core.errors import DataError
from wayfare.pages import page
from wayfare.pages.record import Record, find_runs, is_count, less_is_better
from wayfare.pages.tables import rounds_done

_SEED_FOLDER = re.compile(r"seeds?[-_ =]?\d+", re.IGNORECASE)


@dataclass(frozen=True)
class Spread:
    """Mean and sample sd (n - 1) of one number over runs; no sd for a single run."""

    mean: float
    sd: float | None
    values: tuple[float, ...]

    @property
    def n(self) -> int:
        return len(self.values)

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """From at least one value; a diverged run makes the mean nan, as it should."""
        values = tuple(float(value) for value in values)
        if not all(math.isfinite(value) for value in values):
            return cls(math.nan, None, values)
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, values)

    def as_dict(self) -> dict[str, Any]:
        values = [_finite(value) for value in self.values]
        return {"mean": _finite(self.mean), "sd": self.sd, "n": self.n, "values": values}


@dataclass(frozen=True)
class RunGroup:
    """Runs of one setting over seeds."""

    label: str
    records: tuple[Record, ...]

    @property
    def n(self) -> int:
        return len(self.records)

    @property
    def seeds(self) -> tuple[Any, ...]:
        return tuple(record.experiment.get("seed") for record in self.records)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Every setting by its dotted name, except seeds and name."""
        return _settings(self.records[0])

    @cached_property
    def bytes_sent(self) -> Spread:
        return self.over(lambda record: record.travelled)

    @cached_property
    def seconds(self) -> Spread:
        return self.over(lambda record: record.seconds)

    def over(self, measure: Callable[[Record], float]) -> Spread:
        """Any number of a run, over the runs of the group."""
        return Spread.of(measure(record) for record in self.records)

    def metric(self, name: str) -> Spread | None:
        """The final value of a metric over the runs that measured it; None if none did."""
        values = [value for record in self.records if (value := record.final(name)) is not None]
        return Spread.of(values) if values else None

    def curve(self, name: str) -> list[tuple[int, float, float | None, Spread]]:
        """For each round in which a metric was measured: mean bytes and virtual time by then, the metric over seeds."""
        points: dict[int, list[tuple[int, float | None, float]]] = {}
        for record in self.records:
            sent, elapsed = record.sent(), record.elapsed()
            for when, value in zip(*record.series(name)):
                points.setdefault(when, []).append((sent[when], elapsed.get(when), value))
        return [(when, *_means(points[when])) for when in sorted(points)]

    def as_dict(self, metrics: Sequence[str], differing: Sequence[str]) -> dict[str, Any]:
        found = {name: self.metric(name) for name in metrics}
        return {
            "label": self.label,
            "n": self.n,
            "seeds": [_json_ready(seed) for seed in self.seeds],
            "runs": [str(record.path) for record in self.records],
            "finished": sum(record.finished for record in self.records),
            "settings": {key: _json_ready(self.settings.get(key)) for key in differing},
            "metrics": {name: value.as_dict() for name, value in found.items() if value is not None},
            "bytes_up": self.over(lambda record: record.bytes_up).as_dict(),
            "bytes_down": self.over(lambda record: record.bytes_down).as_dict(),
            "seconds": self.seconds.as_dict(),
            "refused": sum(len(record.refused) for record in self.records),
            "cold": sum(len(record.cold) for record in self.records),
        }


def _means(points: Sequence[tuple[int, float | None, float]]) -> tuple[float, float | None, Spread]:
    sent, times, values = zip(*points)
    known = [time for time in times if time is not None]
    return statistics.fmean(sent), statistics.fmean(known) if len(known) == len(times) else None, Spread.of(values)


@dataclass(frozen=True)
class Comparison:
    """Groups of runs, and the settings in which the groups differ."""

    groups: tuple[RunGroup, ...]

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Every metric of any run, the most telling first."""
        return _merged([record.metrics for group in self.groups for record in group.records])

    @cached_property
    def differing(self) -> dict[str, tuple[Any, ...]]:
        """Setting -> its value in each group (None where the group has no such setting)."""
        return _differing([group.settings for group in self.groups])

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know before trusting the means."""
        notes = []
        for group in self.groups:
            open_ = [record for record in group.records if not record.finished]
            if open_:
                done = ", ".join(rounds_done(record) for record in open_)
                notes.append(
                    f"{group.label}: {len(open_)} of {page.several(group.n, 'run')} not finished (rounds {done})"
                )
        if any(group.n == 1 for group in self.groups):
            notes.append("a group of one run has no sd (--seeds 3 runs an experiment over three)")
        return tuple(notes)

    def best(self, metric: str) -> RunGroup | None:
        """The group with the best mean; None if there is only one."""
        means = [(value.mean, group) for group in self.groups if (value := group.metric(metric)) is not None]
        means = [(mean, group) for mean, group in means if math.isfinite(mean)]
        if len(self.groups) < 2 or not means or is_count(metric):
            return None
        sign = -1 if less_is_better(metric) else 1
        return max(means, key=lambda pair: sign * pair[0])[1]

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON: no nan, no dates."""
        return {
            "metrics": list(self.metrics),
            "differing": {key: [_json_ready(value) for value in values] for key, values in self.differing.items()},
            "groups": [group.as_dict(self.metrics, list(self.differing)) for group in self.groups],
            "notes": list(self.notes),
        }


def compare(paths: Sequence[Path]) -> Comparison:
    """Group the runs found in folders, each of which is a run or holds runs at any depth."""
    records = [Record.read(path) for path in _expand(paths)]
    bases = _common_parent(paths)
    parted = [part for alike in _alike(records) for part in _without_repeats(alike)]
    labels = _labels(parted, bases)
    # several folders are shown in the order they were named in; what one folder holds, by name
    order = range(len(parted)) if len(paths) > 1 else sorted(range(len(parted)), key=lambda i: _natural(labels[i]))
    return Comparison(tuple(RunGroup(labels[i], tuple(sorted(parted[i], key=_seed_order))) for i in order))


# Which runs belong together


def _expand(paths: Sequence[Path]) -> list[Path]:
    if not paths:
        raise DataError("nothing to compare", remedy="name at least one run, or a folder that holds runs")
    found: dict[Path, Path] = {}
    for path in paths:
        runs = find_runs(path)
        if not runs:
            what = "no run in this folder" if Path(path).is_dir() else "there is no such folder"
            raise DataError(what, file=path, remedy="a run is a folder with an experiment.toml, made by `wayfare run`")
        for run in runs:
            found.setdefault(run.resolve(), run)  # named twice, counted once
    return list(found.values())


def _common_parent(paths: Sequence[Path]) -> Path | None:
    """The folder below which a run's path tells it apart: the one given, or the one all given ones lie in."""
    resolved = {Path(path).resolve() for path in paths}
    if len(resolved) == 1 and not (only := next(iter(resolved))).joinpath("experiment.toml").is_file():
        return only
    parents = {path.parent for path in resolved}
    return parents.pop() if len(parents) == 1 else None


def _alike(records: Sequence[Record]) -> list[list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(json.dumps(_settings(record), sort_keys=True, default=str), []).append(record)
    return list(groups.values())


def _without_repeats(alike: list[Record]) -> list[list[Record]]:
    """Runs of the same settings, separated by folder, then one by one, until no seed occurs twice in a group."""
    if not _repeats(alike):
        return [alike]
    cells: dict[Path, list[Record]] = {}
    for record in alike:
        cells.setdefault(_cell(record), []).append(record)
    return [part for cell in cells.values() for part in ([[r] for r in cell] if _repeats(cell) else [cell])]


def _repeats(records: Sequence[Record]) -> bool:
    seeds = [json.dumps(_seeds(record), sort_keys=True, default=str) for record in records]
    return len(set(seeds)) < len(seeds)


def _cell(record: Record) -> Path:
    """The folder of a run, or the one above where the folder only says the seed."""
    folder = record.path.resolve()
    return folder.parent if _SEED_FOLDER.fullmatch(folder.name) else folder


def _settings(record: Record) -> dict[str, Any]:
    flat = page.flatten(record.experiment)
    return {key: value for key, value in flat.items() if key != "name" and key.rsplit(".", 1)[-1] != "seed"}


def _seeds(record: Record) -> dict[str, Any]:
    return {k: v for k, v in page.flatten(record.experiment).items() if k.rsplit(".", 1)[-1] == "seed"}


def _seed_order(record: Record) -> tuple[tuple[int, int, str], ...]:
    return _natural(str(record.experiment.get("seed", ""))) + _natural(str(record.path))


def _natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts mu-2 before mu-10."""
    parts = re.split(r"(\d+)", text)
    return tuple((0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part) for part in parts)


def _differing(settings: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Any, ...]]:
    keys = dict.fromkeys(key for each in settings for key in each)
    rows = {key: tuple(each.get(key) for each in settings) for key in keys}
    return {key: row for key, row in rows.items() if any(value != row[0] for value in row)}


def _labels(groups: Sequence[Sequence[Record]], parent: Path | None) -> list[str]:
    """A short name for each group, unique among them."""
    differing = _differing([_settings(records[0]) for records in groups])
    labels = [_cell_label(r, parent) or _setting_label(r[0], differing, at) for at, r in enumerate(groups)]
    twice = {label for label in labels if labels.count(label) > 1}
    # the same words for two groups: the folder tells them apart
    return [f"{l} ({_cell(r[0]).name})" if l in twice else l for l, r in zip(labels, groups)]  # noqa: E741


def _cell_label(records: Sequence[Record], parent: Path | None) -> str | None:
    cells = {_cell(record) for record in records}
    if parent is None or len(cells) > 1:
        return None
    cell = cells.pop()
    if cell == parent:
        return parent.name
    return cell.relative_to(parent).as_posix() if cell.is_relative_to(parent) else None


def _setting_label(record: Record, differing: Mapping[str, tuple[Any, ...]], index: int) -> str:
    strategy = record.component("strategy") or record.name
    own = {key: row[index] for key, row in differing.items() if key not in ("strategy", "strategy.name")}
    words = [f"{key.rsplit('.', 1)[-1]}={page.setting(value)}" for key, value in own.items() if value is not None]
    return ", ".join([strategy, *words])


def _merged(orders: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """All names, in the order of the longest list that has them."""
    ranked = sorted(orders, key=len, reverse=True)
    return tuple(dict.fromkeys(name for order in ranked for name in order))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _json_ready(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_json_ready(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _json_ready(item) for key, item in value.items()}
    if isinstance(value, float):
        return _finite(value)
    return value if value is None or isinstance(value, str | int) else str(value)
