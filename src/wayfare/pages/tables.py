"""Tables for the terminal, and the formatting of numbers in all reports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from wayfare.core.text import printable
from wayfare.pages.record import CLOCK, Record, is_count, less_is_better

if TYPE_CHECKING:
    from wayfare.pages.compare import Comparison, Spread

NOTHING = "–"
_MANY_METRICS = 20  # of a run
_SHOWN_METRICS = 5  # more do not fit beside each other in a terminal
PARTITION_WORDS = {
    "clients": "clients",
    "samples": "samples",
    "mean": "samples per client, mean",
    "sd": "samples per client, sd",
    "min": "samples per client, least",
    "max": "samples per client, most",
    "entropy": "entropy of a client's labels, mean",
    "total_variation": "total-variation distance to all labels, mean",
    "largest_share": "share of a client's commonest label, mean",
    "sequences_mean": "sequences per client, mean",
    "sequences_sd": "sequences per client, sd",
    "queries_mean": "queries per client, mean",
    "queries_sd": "queries per client, sd",
    "database_mean": "database photos per client, mean",
    "database_sd": "database photos per client, sd",
    "cities_mean": "cities per client, mean",
    "cities_sd": "cities per client, sd",
    "left_out": "samples in no client",
}
_METRIC_WORDS = {
    "tour/taken": "models taken per device",
    "tour/sent": "models sent per device",
    "tour/joules": "energy per device, J",
    "tour/bytes_sent": "sent per device",
    "tour/meetings": "meetings per device",
    "tour/lonely": "share that met nobody",
    "tour/mape": "error of predicted accuracies",
    "tour/outside": "predictions outside the study",
    "tour/study_low": "study, lowest accuracy",
    "tour/study_high": "study, highest accuracy",
    "clock/seconds": "virtual time, s",
    "clock/joules": "energy of all devices, J",
    "clock/staleness": "staleness of replies",
}
_PER_CLIENT = {
    "sequences_": "sequences", "": "images", "queries_": "queries", "database_": "database", "cities_": "cities",
}  # fmt: skip
PLACE_HEADS = ("clients", "sequences", "images", "in no client")


plain = printable  # text from elsewhere, on one line


def human_bytes(count: float) -> str:
    """Bytes in decimal units: 1 MB is 1,000,000 bytes."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        # 999.5 and above would print as "1000 kB": it belongs to the next unit
        if abs(value) < 999.5:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.3g} TB" if abs(value) < 999.5 else f"{value:,.0f} TB"


def human_seconds(seconds: float) -> str:
    """A duration in the two units that matter."""
    if not math.isfinite(seconds):
        return NOTHING
    if seconds < 59.95:
        return f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.1f} s"
    whole = round(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {whole % 60:02d} s"


def number(value: object) -> str:
    """Whole numbers in full, others to four significant digits."""
    if value is None:
        return NOTHING
    if isinstance(value, bool) or not isinstance(value, int | float):
        return plain(value)
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if isinstance(value, int) or (float(value).is_integer() and abs(value) >= 1000):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 10000 else f"{value:.4g}"


def metric_words(metric: str) -> str:
    """The display name of a metric; for most it is the name itself."""
    return _METRIC_WORDS.get(metric, metric)


def metric_value(metric: str, value: float | None) -> str:
    """A metric's value; bytes in a unit that suits them."""
    is_bytes = value is not None and math.isfinite(value) and is_count(metric) and "bytes" in metric
    return human_bytes(value or 0) if is_bytes else number(value)


def metric_spread(metric: str, value: Spread | None, expected: int | None = None) -> str:
    """Mean ± sample sd of a metric; bytes in a unit that suits them."""
    if value is None or not math.isfinite(value.mean) or not (is_count(metric) and "bytes" in metric):
        return spread(value, expected)
    few = f" (n={value.n})" if expected is not None and value.n != expected else ""
    return human_bytes(value.mean) + ("" if value.sd is None else f" ± {human_bytes(value.sd)}") + few


def spread(value: Spread | None, expected: int | None = None) -> str:
    """Mean ± sample sd, with as many decimals as the sd bears; says so where runs lack the value."""
    if value is None:
        return NOTHING
    few = f" (n={value.n})" if expected is not None and value.n != expected else ""
    if value.sd is None or not math.isfinite(value.mean):
        return number(value.mean) + few
    decimals = 4 if value.sd == 0 else min(6, max(0, 1 - math.floor(math.log10(value.sd))))
    return f"{value.mean:,.{decimals}f} ± {value.sd:,.{decimals}f}{few}"


def run_table(record: Record) -> Table:
    """The result of a run: each metric before training, at its best, and now."""
    table = _table(f"{record.name}: {record.component('strategy')} on {record.component('task')}")
    table.add_column("metric")
    for name in ("final" if record.finished else "so far", "best", "in round", "untrained"):
        table.add_column(name, justify="right")
    shown, more = main_metrics(record.metrics)
    for metric in shown:
        table.add_row(*(_text(cell) for cell in result_row(record, metric)))
    what = f"{record.unit}s"
    table.caption = Text(
        f"{rounds_done(record)} {what} in {human_seconds(record.seconds)} · {human_bytes(record.bytes_up)} up, "
        f"{human_bytes(record.bytes_down)} down\n{_trouble(record)}"
        + (f"\n{record.privacy}" if record.privacy else "")
        + (f"\n{record.protocol}" if record.protocol else "")
        + (f"\n{more} more metrics are in the report" if more else "")
    )
    return table


def main_metrics(metrics: Sequence[str]) -> tuple[list[str], int]:
    """Those that a terminal shows, and how many it leaves out: of very many, the parts of a metric."""
    if len(metrics) <= _MANY_METRICS:
        return list(metrics), 0
    shown = [name for name in metrics if name.count("/") < 2 and not ("/" in name and " " in name)]
    return shown, len(metrics) - len(shown)


def _trouble(record: Record) -> str:
    if record.is_private:
        return "who was asked is not recorded"
    cold = f" · {len(record.cold)} had lost their memory" if record.cold else ""
    return f"{len(record.refused)} refused{cold}"


def compare_table(comparison: Comparison) -> Table:
    """The groups of a comparison below each other: mean ± sample sd over seeds."""
    metrics = [metric for metric in comparison.metrics if metric != CLOCK]
    scores = [metric for metric in metrics if not less_is_better(metric) and not metric.startswith("clock/")]
    shown, timed = (scores or metrics)[:_SHOWN_METRICS], CLOCK in comparison.metrics
    table = _table("Comparison: mean ± sd over seeds")
    table.add_column("group", overflow="fold")
    for name in ("seeds", *map(metric_words, shown), "sent", "time", *(["virtual time"] if timed else [])):
        table.add_column(_text(name), justify="right")
    for group in comparison.groups:
        cells: list[Text] = [_text(group.label), _text(group.n)]
        for metric in shown:
            best = comparison.best(metric) is group
            cells.append(Text(metric_spread(metric, group.metric(metric), group.n), style="bold" if best else ""))
        cells += [_text(human_bytes(group.bytes_sent.mean)), _text(human_seconds(group.seconds.mean))]
        if timed:
            elapsed = group.metric(CLOCK)
            cells.append(_text(NOTHING if elapsed is None else human_seconds(elapsed.mean)))
        table.add_row(*cells)
    left_out = [metric for metric in metrics if metric not in shown]
    notes = [*comparison.notes, *([f"not shown: {', '.join(map(metric_words, left_out))}"] if left_out else [])]
    table.caption = Text("\n".join(plain(note) for note in notes))
    return table


def partition_table(table: Mapping[str, Any]) -> Table:
    """How the data are distributed over the clients."""
    result = _table("Partition")
    result.add_column("what")
    result.add_column("value", justify="right")
    for words, value in partition_rows(table):
        result.add_row(_text(words), _text(value))
    return result


def places_tables(summary: Mapping[str, Any]) -> list[Table]:
    """How photographs are distributed over the clients: FedVPR's Tab. 1, and counts by city and continent."""
    clients, left_out = (number(summary["table"][key]) for key in ("clients", "left_out"))
    numbers = _table(f"Partition: {clients} clients, {left_out} images in no client")
    numbers.add_column("per client")
    for name in ("mean", "sd"):
        numbers.add_column(name, justify="right")
    for row in per_client(summary["table"]):
        numbers.add_row(*row)
    tables = [numbers]
    for kind, what in (("cities", "city"), ("continents", "continent")):
        if summary["places"][kind]:
            table = _table(None)
            table.add_column(what)
            for name in PLACE_HEADS:
                table.add_column(name, justify="right")
            for place in summary["places"][kind]:
                table.add_row(*(_text(cell) for cell in place_row(place)))
            tables.append(table)
    return tables


def per_client(table: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What a client has of each thing, mean and standard deviation; where there are no clients, nothing."""
    found = [(name, table.get(f"{key}mean"), table.get(f"{key}sd")) for key, name in _PER_CLIENT.items()]
    known = [(name, mean, sd) for name, mean, sd in found if mean is not None and sd is not None]
    return [(name, f"{mean:,.{d}f}", f"{sd:,.{d}f}") for name, mean, sd in known for d in [0 if mean >= 100 else 1]]


def place_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A city or a continent: its name, and the columns of `PLACE_HEADS`."""
    return (plain(row["name"]), *(number(row[key]) for key in ("clients", "sequences", "images", "left_out")))


def runs_table(records: Sequence[Record], now: datetime | None = None) -> Table:
    """One line per run, for `wayfare list`."""
    table = _table(None)
    table.add_column("name", overflow="fold")
    for name in ("strategy", "task"):
        table.add_column(name)
    for name in ("rounds", "result", "age"):
        table.add_column(name, justify="right")
    table.add_column("path", overflow="fold")
    for record in records:
        age = ((now or datetime.now(UTC)) - record.updated).total_seconds()
        cells = (record.name, record.component("strategy"), record.component("task"), rounds_done(record))
        table.add_row(
            *(_text(cell) for cell in cells),
            _text(_main_result(record)),
            _text(human_seconds(max(0.0, age)) if age >= 1 else "now"),
            _text(_short(record.path)),
            style="" if record.finished else "dim",
        )
    if not all(record.finished for record in records):
        table.caption = Text("dim: not finished; `wayfare resume` continues them")
    return table


def result_row(record: Record, metric: str) -> tuple[str, str, str, str, str]:
    """Metric, final, best, the round of the best, untrained."""
    rounds, values = record.series(metric)
    untrained = values[0] if rounds and rounds[0] == 0 else None
    best, when = (None, None) if is_count(metric) else _best(rounds, values, less_is_better(metric))
    final, best_words, first = (metric_value(metric, value) for value in (record.final(metric), best, untrained))
    return metric_words(metric), final, best_words, number(when), first


def rounds_done(record: Record) -> str:
    """Rounds done of rounds asked for."""
    return f"{record.done}/{record.total}" if record.total is not None else str(record.done)


def partition_rows(table: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The partition's table in words, known entries first."""
    known = [key for key in PARTITION_WORDS if key in table]
    rest = [key for key in table if key not in PARTITION_WORDS]
    return [(PARTITION_WORDS.get(key, plain(key)), number(table[key])) for key in known + rest]


def _best(rounds: Sequence[int], values: Sequence[float], less: bool) -> tuple[float | None, int | None]:
    measured = [(value, when) for when, value in zip(rounds, values) if math.isfinite(value)]
    if not measured:
        return None, None
    # the earliest round wins a tie
    return min(measured, key=lambda pair: (pair[0] if less else -pair[0], pair[1]))


def _main_result(record: Record) -> str:
    metric = record.main_metric
    return NOTHING if metric is None else f"{metric} {number(record.final(metric))}"


def _short(path: Path) -> str:
    """The path as one would type it from here."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _text(value: object) -> Text:
    """Never markup: a run may be called "[red]"."""
    return Text(plain(value))


def _table(title: str | None) -> Table:
    return Table(
        title=None if title is None else _text(title),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        caption_style="dim",
        pad_edge=False,
    )
