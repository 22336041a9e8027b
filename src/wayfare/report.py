"""The report of a run, as a page (`pages/templates/run_report.html`)."""

from __future__ import annotations

import math
import re
import shlex
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wayfare.encounters.report import EncounterReport, encounter_report
from wayfare.pages import figures, semantic_split
from wayfare.pages.figures import Figure
from wayfare.pages.page import flatten, render, save, setting_rows, several
from wayfare.pages.partition import stored_maps
from wayfare.pages.record import Record, less_is_better
from wayfare.pages.run_files import PerClient
from wayfare.pages.tables import (
    NOTHING,
    human_bytes,
    human_seconds,
    number,
    partition_rows,
    result_row,
    rounds_done,
)

_COMPONENTS = ("task", "strategy", "topology", "exchange")
_MOST_ROWS = 200
_MOST_LISTED = 20
_LATEST = 10
_MOST_MEASURES = 4


def write_report(run: Path, out: Path | None = None) -> Path:
    """Write the report of a run, into its folder unless told otherwise, and return where it is."""
    record = Record.read(run)
    met = encounter_report(record)
    # the curves and the traffic of devices that meet are part of what is said about the encounters
    curves = figures.metric_figures(record) if met is None else []
    clients = _client_figures(record) if met is None else []
    traffic = figures.traffic_figure(record) if met is None else None
    partition = _partition(record)
    drawn = [*curves, *clients, *partition["figures"], *([traffic] if traffic else ())]
    drawn += met.figures if met is not None else ()
    text = render(
        "run_report.html",
        title=record.name,
        figures=drawn,
        record=record,
        chips=[word for kind in _COMPONENTS if (word := record.component(kind))],
        rounds=rounds_done(record),
        words=_in_words(record, met),
        tiles=_tiles(record),
        metrics=[result_row(record, name) for name in record.metrics],
        curves=curves,
        axes=figures.axes(curves),
        numbers=_numbers(record),
        client_figures=clients,
        client_rows=[_spread_row(figure.title, record.per_client) for figure in clients if record.per_client],
        encounters=met,
        partition=partition,
        traffic=traffic,
        traffic_rows=_traffic_rows(record) if traffic else [],
        refused=_refused(record),
        cold=_cold(record),
        void=_round_list(record.void),
        skipped=record.skipped_files[:_MOST_ROWS],
        settings=_settings(record),
        environment=setting_rows(flatten(record.environment)),
        repeat=_repeat(record),
    )
    return save(text, run / "report.html" if out is None else out)


def _in_words(record: Record, met: EncounterReport | None) -> str:
    """What was done, what came out and what it cost, for someone who has not seen the recipe."""
    done = [_training(record), _progress(record)] if met is None else [met.words]
    privacy = f"{record.privacy[0].upper()}{record.privacy[1:]}." if record.privacy else ""
    return " ".join(s for s in (*done, _cost(record), _trouble(record), privacy) if s)


def _training(record: Record) -> str:
    clients = (record.partition.get("table") or {}).get("clients")
    taking_part = [line.clients for line in record.rounds if line.clients]
    who = several(clients, "client") if isinstance(clients, int) else "Clients"
    what = f"the {record.component('task')} task" if record.component("task") else "an unnamed task"
    asked = f" of {record.total}" if record.total is not None and record.total != record.done else ""
    each = f", {number(round(statistics.fmean(taking_part), 1))} clients in each" if taking_part else ""
    how = record.component("strategy") or "an unnamed strategy"
    return f"{who} trained {what} with {how} for {several(record.done, 'round')}{asked}{each}."


def _progress(record: Record) -> str:
    metric = record.main_metric
    if metric is None:
        return "Nothing has been measured yet."
    rounds, values = record.series(metric)
    start = f"from {number(values[0])} before training " if rounds and rounds[0] == 0 and len(rounds) > 1 else ""
    verb = "went " if start else "is "
    return f"{metric} {verb}{start}{'to ' if start else ''}{number(record.final(metric))}."


def _cost(record: Record) -> str:
    total = record.travelled
    if not total:
        return f"Nothing travelled; it took {human_seconds(record.seconds)}." if record.rounds else ""
    elapsed = record.elapsed()
    virtual = f" (virtual time: {human_seconds(elapsed[record.done])})" if record.done in elapsed else ""
    return f"{human_bytes(total)} travelled, and it took {human_seconds(record.seconds)}{virtual}."


def _trouble(record: Record) -> str:
    parts = []
    if record.refused:
        parts.append(f"{several(len(record.refused), 'reply was', 'replies were')} refused")
    if record.cold:
        parts.append(f"{several(len(record.cold), 'reply', 'replies')} came from a device without its memory")
    if record.void:
        parts.append(f"{several(len(record.void), 'round was', 'rounds were')} void")
    return (", ".join(parts) + ".") if parts else ""


def _tiles(record: Record) -> list[tuple[str, str, str]]:
    metric = record.main_metric
    value = number(record.final(metric)) if metric else NOTHING
    return [
        (metric or "metric", value, "final" if record.finished else "so far"),
        (
            f"{record.unit}s",
            number(record.done),
            f"of {number(record.total)}" if record.total is not None else "committed",
        ),
        ("sent", human_bytes(record.travelled), _ways(record)),
        ("time", human_seconds(record.seconds), _per_round(record)),
        ("refused", NOTHING if record.is_private else number(len(record.refused)), "replies"),
    ]


def _ways(record: Record) -> str:
    return "from device to device" if record.is_tour else f"{human_bytes(record.bytes_up)} up"


def _per_round(record: Record) -> str:
    trained = [line.seconds for line in record.rounds if line.round > 0]
    return f"{human_seconds(statistics.median(trained))} a round" if trained else ""


def _numbers(record: Record) -> dict[str, Any]:
    """The curves for those who want digits, or cannot see them."""
    lines = record.rounds
    step = math.ceil(len(lines) / _MOST_ROWS)
    kept = [line for i, line in enumerate(lines) if i % step == 0 or i == len(lines) - 1]
    rows = [
        (line.round, *(number(line.metrics.get(m)) for m in record.metrics),
         NOTHING if record.is_private else line.clients, human_bytes(line.bytes_up),
         human_bytes(line.bytes_down), human_seconds(line.seconds))
        for line in kept
    ]  # fmt: skip
    return {
        "title": f"Numbers by round (one in {step} of {number(len(lines))})" if step > 1 else "Numbers by round",
        "heads": ("round", *record.metrics, "clients", "up", "down", "time"),
        "rows": rows,
    }


def _client_figures(record: Record) -> list[Figure]:
    if record.per_client is None:
        return []
    measures = [m for m, values in record.per_client.values.items() if any(math.isfinite(v) for v in values.values())]
    measures.sort(key=lambda m: (less_is_better(m), m))
    return [
        figures.client_figure(f"clients-{i}", m, record.per_client) for i, m in enumerate(measures[:_MOST_MEASURES])
    ]


def _spread_row(measure: str, clients: PerClient) -> tuple[object, ...]:
    values = {c: v for c, v in clients.values[measure].items() if math.isfinite(v)}
    ranked = sorted(values, key=lambda c: values[c], reverse=less_is_better(measure))
    worst, best = ranked[0], ranked[-1]
    sd = statistics.stdev(values.values()) if len(values) > 1 else None
    lost = len(clients.values[measure]) - len(values)
    count = f"{number(len(values))} ({lost} not finite)" if lost else number(len(values))
    middle = number(statistics.median(values.values()))
    return measure, number(values[worst]), worst, middle, number(values[best]), best, number(sd), count


def _partition(record: Record) -> dict[str, Any]:
    """Labels, maps or semantic clusters by client, and the partition in numbers."""
    partition = {} if record.is_private else record.partition
    labels, maps = figures.partition_figure(partition), stored_maps(partition)
    semantic = None if "places" in partition else semantic_split.stored_part(partition)
    drawn = [*(maps.figures if maps else ()), *(semantic.figures if semantic else ()), *([labels] if labels else ())]
    return {
        "figures": drawn,
        "labels": labels,
        "note": _left_out(partition) if labels else "",
        "maps": maps,
        "semantic": semantic,
        "rows": partition_rows(partition.get("table") or {}),
        "provenance": setting_rows(flatten(partition.get("provenance") or {})),
    }


def _left_out(partition: Mapping[str, Any]) -> str:
    """What the figure of labels does not show."""
    clients, classes = (partition.get("table") or {}).get("clients"), len(partition["classes"])
    shown = min(len(partition["counts"]), figures.MOST_CLIENTS)
    parts = []
    if isinstance(clients, int) and clients > shown:
        parts.append(f"the first {shown} of {number(clients)} clients")
    if classes > figures.MOST_CLASSES:
        parts.append(f"the commonest {figures.MOST_CLASSES} of {number(classes)} classes")
    return f"The picture shows {' and '.join(parts)}." if parts else ""


def _traffic_rows(record: Record) -> list[tuple[str, ...]]:
    rounds = sum(1 for line in record.rounds if line.bytes_up or line.bytes_down)
    replies = sum(line.clients for line in record.rounds if line.bytes_up or line.bytes_down)
    up, down = record.bytes_up, record.bytes_down
    return [
        (
            name,
            human_bytes(total),
            human_bytes(total / rounds),
            human_bytes(total / replies) if replies else NOTHING,
            f"{total:,}",
        )
        for name, total in (("up, to the server", up), ("down, to the clients", down), ("both", up + down))
    ]


def _refused(record: Record) -> dict[str, Any]:
    kinds: dict[str, list[str]] = {}
    for refusal in record.refused:
        kinds.setdefault(_kind(refusal.reason), []).append(refusal.device)
    ranked = sorted(kinds.items(), key=lambda item: -len(item[1]))[:_MOST_LISTED]
    return {
        "kinds": [(kind, number(len(devices)), number(len(set(devices)))) for kind, devices in ranked],
        "latest": [(r.round, r.device, r.reason) for r in record.refused[: -_LATEST - 1 : -1]],
    }


def _kind(reason: str) -> str:
    """What a reason has in common with others: no numbers, and not what follows the colon (which tensor it was)."""
    return re.sub(r"\d[\d.,]*(e[+-]?\d+)?", "…", reason.split(":", 1)[0]).strip() or "no reason given"


def _cold(record: Record) -> dict[str, Any]:
    rounds: dict[str, list[int]] = {}
    for when, device in record.cold:
        rounds.setdefault(device, []).append(when)
    listed = sorted(rounds.items(), key=lambda item: -len(item[1]))[:_MOST_LISTED]
    whose = f"{several(len(record.cold), 'reply', 'replies')} from {several(len(rounds), 'device')}"
    return {
        "words": f"{whose} came without the memory of earlier rounds.",
        "rows": [(device, _round_list(when), number(len(when))) for device, when in listed],
    }


def _round_list(rounds: Sequence[int]) -> str:
    shown = ", ".join(str(r) for r in rounds[:_MOST_LISTED])
    return shown + (f" and {len(rounds) - _MOST_LISTED} more" if len(rounds) > _MOST_LISTED else "")


def _settings(record: Record) -> list[tuple[str, list[tuple[str, str]]]]:
    """The settings of each section of the recipe, those without a section first."""
    single = {k: v for k, v in record.experiment.items() if not isinstance(v, Mapping)}
    groups = [("experiment", single), *((k, v) for k, v in record.experiment.items() if isinstance(v, Mapping))]
    return [(name, setting_rows(flatten(values))) for name, values in groups if values]


def _repeat(record: Record) -> dict[str, str]:
    """The commands that run it again, and go on with it."""
    folder = record.path.resolve().name
    folder = f"./{folder}" if folder.startswith("-") else folder
    return {
        "again": f"wayfare run {shlex.quote(f'{folder}/experiment.toml')} --out {shlex.quote(f'{folder}-again')}",
        "resume": f"wayfare resume {shlex.quote(folder)}",
        "updated": record.updated.strftime("%d %B %Y, %H:%M %Z").lstrip("0"),
    }
