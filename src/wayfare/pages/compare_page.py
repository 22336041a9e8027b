"""The page of a comparison: a table of results, curves, and the settings in which groups of runs differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wayfare.pages import page
from wayfare.pages.compare import Comparison, RunGroup
from wayfare.pages.figures import COLOURS, Figure, Key, MetricCurve, axes, colour, curve_figure
from wayfare.pages.record import CLOCK, Record
from wayfare.pages.tables import (
    NOTHING,
    human_bytes,
    human_seconds,
    metric_spread,
    metric_words,
    number,
    rounds_done,
    spread,
)


@dataclass(frozen=True)
class PaperTable:
    """A publication's table beside the measured one, as it stands on the page of a comparison."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]


def write_page(
    comparison: Comparison,
    out: Path,
    title: str = "",
    about: str = "",
    paper: PaperTable | None = None,
    *,
    reach: Sequence[PaperTable] = (),
) -> Path:
    """Write the comparison as a page that needs nothing else, and return where it is; `paper` stands on top.

    `reach` says what it took to get to given values.
    """
    title = title or f"{page.several(len(comparison.groups), 'setting')} compared"
    curves = _figures(comparison)
    unfinished = [note for note in comparison.notes if "not finished" in note]
    text = page.render(
        "compare.html",
        title=title,
        figures=curves,
        axes=axes(curves),
        about=about,
        words=_in_words(comparison),
        unfinished=unfinished,
        notes=[f"{note[0].upper()}{note[1:]}." for note in comparison.notes if note not in unfinished],
        paper=paper,
        reach=reach,
        result_heads=("group", "seeds", *map(metric_words, comparison.metrics), "sent", "time", "refused", "cold"),
        results=[_result_row(comparison, at, group) for at, group in enumerate(comparison.groups)],
        seeds=any(group.n > 1 for group in comparison.groups),
        settings=_setting_table(comparison),
        runs=_run_table(comparison),
    )
    return page.save(text, out / "comparison.html" if out.is_dir() else out)


def _in_words(comparison: Comparison) -> str:
    groups, runs = comparison.groups, sum(group.n for group in comparison.groups)
    text = f"{page.several(runs, 'run')} in {page.several(len(groups), 'group')}, grouped by everything but the seed."
    metric = comparison.metrics[0] if comparison.metrics else None
    best = comparison.best(metric) if metric else None
    if metric is None or best is None:
        return text
    seeds = page.several(best.n, "seed")
    return f"{text} The best mean of {metric} is {spread(best.metric(metric))}, of {best.label} over {seeds}."


@dataclass(frozen=True)
class ResultRow:
    """A group's results on the page."""

    label: str
    colour: str
    seeds: str
    metrics: Sequence[tuple[str, bool]]  # their values, and whether each is the best
    cost: Sequence[str]


def _result_row(comparison: Comparison, index: int, group: RunGroup) -> ResultRow:
    values = [
        (metric_spread(metric, group.metric(metric), group.n), comparison.best(metric) is group)
        for metric in comparison.metrics
    ]
    refused = sum(len(record.refused) for record in group.records)
    cold = sum(len(record.cold) for record in group.records)
    cost = (human_bytes(group.bytes_sent.mean), human_seconds(group.seconds.mean), number(refused), number(cold))
    return ResultRow(group.label, colour(index)[1:], number(group.n), values, cost)


def _figures(comparison: Comparison) -> list[Figure]:
    figures = []
    tours = all(record.is_tour for group in comparison.groups for record in group.records)
    words = "sent from device to device" if tours else "sent up and down"
    for index, metric in enumerate(metric for metric in comparison.metrics if metric != CLOCK):
        found = [_curve(group, at, metric) for at, group in enumerate(comparison.groups)]
        curves = [curve for curve in found if curve is not None]
        if curves:
            figures.append(curve_figure(f"curve-{index}", metric_words(metric), curves, metric, words))
    return figures


def _curve(group: RunGroup, index: int, metric: str) -> MetricCurve | None:
    points = group.curve(metric)
    if not points:
        return None
    return MetricCurve(
        key=Key(f"g{index}", group.label, colour(index)),
        rounds=[when for when, _, _, _ in points],
        sent=[sent for _, sent, _, _ in points],
        values=[value.mean for _, _, _, value in points],
        band=[value.sd for _, _, _, value in points],
        elapsed=[] if any(time is None for _, _, time, _ in points) else [time or 0.0 for _, _, time, _ in points],
        dash=("solid", "dash", "dot")[index // COLOURS % 3],  # the colours come again after twelve groups
    )


def _setting_table(comparison: Comparison) -> tuple[Sequence[str], Sequence[tuple[str, str, Sequence[str]]]] | None:
    """The settings in which groups differ: the heads, and for each group its label, colour and values."""
    differing = comparison.differing
    if not differing:
        return None
    rows = [
        (
            group.label,
            colour(at)[1:],
            [NOTHING if row[at] is None else page.setting(row[at]) for row in differing.values()],
        )
        for at, group in enumerate(comparison.groups)
    ]
    return ("group", *differing), rows


def _run_table(comparison: Comparison) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    metric = comparison.metrics[0] if comparison.metrics else None
    rows = [
        (group.label, _folder(record), page.setting(record.experiment.get("seed")), rounds_done(record),
         "finished" if record.finished else "not finished", *((number(record.final(metric)),) if metric else ()))
        for group in comparison.groups
        for record in group.records
    ]  # fmt: skip
    return ("group", "folder", "seed", "rounds", "state", *((metric,) if metric else ())), rows


def _folder(record: Record) -> str:
    """Enough of the path to find the run, without revealing the folders of this machine."""
    return "/".join(record.path.resolve().parts[-2:])
