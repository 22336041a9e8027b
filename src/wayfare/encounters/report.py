"""What the report of a run says about a tour: devices that met and exchanged models, with a map that plays the day."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from wayfare.encounters import report_figures as figures
from wayfare.encounters.player import Player, player
from wayfare.encounters.record import TourRecord
from wayfare.pages.figures import Figure
from wayfare.pages.page import several
from wayfare.pages.record import Record
from wayfare.pages.tables import NOTHING, human_bytes, number

_MOST_GROUPS = 12
_MOST_LISTED = 10
_MOST_CLASSES = 8  # that are named where devices care about some
_QUANTILES = (("lowest", 0.0), ("lowest tenth", 0.1), ("median", 0.5), ("highest tenth", 0.9), ("highest", 1.0))
_MEASURES = {"accuracy": "accuracy on the test set", "target_accuracy": "accuracy on each device's target objects"}


@dataclass(frozen=True)
class PageTable:
    """A table of the report."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[object]]
    note: str = ""


@dataclass(frozen=True)
class EncounterReport:
    """What `encounters.html` shows: sections of the report of a run."""

    over: ClassVar = figures.OVER  # what curves may be drawn over

    words: str  # what happened and what came of it
    player: Player | None
    progress: Figure | None
    accuracy: Sequence[Figure]
    spread: PageTable
    interests: PageTable | None
    forecast: bool  # whether the exchanges' first figure is of predictions
    exchanges: Sequence[Figure]
    exchange_rows: Sequence[tuple[str, str]]
    teachers: Sequence[Figure]
    measured: bool  # whether the policy measures if a merge helps
    rankings: Sequence[PageTable]
    contacts: Sequence[Figure]
    contact_rows: Sequence[tuple[str, str]]

    @property
    def figures(self) -> list[Figure]:
        return [*self.accuracy, *self.exchanges, *self.teachers, *self.contacts]

    @property
    def names(self) -> list[str]:
        """Of the sections, for the menu."""
        interests = ["interests"] if self.interests is not None else []
        return ["map", "accuracy", *interests, "exchanges", "teachers", "contacts"]


def encounter_report(record: Record) -> EncounterReport | None:
    """What the encounters add to the report of a run; None if there are none in it, or nobody has met yet."""
    tour = TourRecord.read(record)
    if tour is None:
        return None
    progress, forecast = figures.progress_figure(tour), figures.forecast_figure(tour.exchanges)
    teachers = figures.teacher_figures(tour)
    return EncounterReport(
        words=_in_words(record, tour),
        player=player(tour),
        progress=progress,
        accuracy=_there(progress, *_distributions(tour)),
        spread=_spread_table(tour),
        interests=_interests(record, tour),
        forecast=forecast is not None,
        exchanges=_there(forecast, figures.budget_figure(tour)),
        exchange_rows=_exchange_rows(record, tour),
        teachers=teachers,
        measured=not np.isnan(tour.exchanges.gain).all(),
        rankings=[_ranking(tour, "giver"), _ranking(tour, "taker")] if teachers else [],
        contacts=figures.contact_figures(tour),
        contact_rows=_contact_rows(tour),
    )


def _there(*drawn: Figure | None) -> list[Figure]:
    return [figure for figure in drawn if figure is not None]


def _in_words(record: Record, tour: TourRecord) -> str:
    still = int(tour.movie.stationary.sum()) if tour.movie is not None else 0
    who = f"{several(len(tour.ids), 'device')}{f', {number(still)} of them signage,' if still else ''}"
    policy = record.component("exchange") or "an unnamed policy"
    task = f" the {record.component('task')} task" if record.component("task") else ""
    met, taken = int(tour.slots["met"].sum()), len(tour.exchanges)
    return (
        f"{who} learnt{task}, then met for {several(int(tour.slots['slots'].sum()), 'slot')} under {policy}: "
        f"{several(met, 'meeting')}, in which {several(taken, 'model was', 'models were')} taken. {_came_of_it(tour)}"
    )


def _came_of_it(tour: TourRecord) -> str:
    before, after = (one.of("accuracy") if one is not None else None for one in (tour.initial, tour.final))
    if after is None:
        return "The models have not been evaluated since."
    start = f"went from {_percent(np.nanmean(before))} to" if before is not None else "is"
    return f"Their mean accuracy on the test set {start} {_percent(np.nanmean(after))}."


# How good the models became


def _distributions(tour: TourRecord) -> list[Figure | None]:
    drawn = []
    for place, (measure, words) in enumerate(_MEASURES.items()):
        ends = [one.of(measure) if one is not None else None for one in (tour.initial, tour.final)]
        drawn.append(figures.distribution_figure(f"tour-distribution-{place}", words, *ends))
    return drawn


def _spread_table(tour: TourRecord) -> PageTable:
    rows: list[Sequence[object]] = []
    for measure, words in _MEASURES.items():
        for when, one in (("before", tour.initial), ("after", tour.final)):
            values = one.of(measure) if one is not None else None
            if values is not None:
                known = values[~np.isnan(values)]
                cells = [known.mean(), *(np.quantile(known, q) for _, q in _QUANTILES)]
                rows.append((f"{words}, {when}", *(_percent(cell) for cell in cells), number(len(known))))
    heads = ("measure", "mean", *(name for name, _ in _QUANTILES), "devices")
    return PageTable("Accuracy before and after the tour", heads, rows)


def _interests(record: Record, tour: TourRecord) -> PageTable | None:
    """Devices whose owners care about the same objects, the commonest wishes first; None if all care about all."""
    movie = tour.movie
    ends = [one.of("target_accuracy") if one is not None else None for one in (tour.initial, tour.final)]
    if movie is None or movie.targets.all() or all(values is None for values in ends):
        return None
    kinds, of, counts = np.unique(movie.targets, axis=0, return_inverse=True, return_counts=True)
    classes = record.partition.get("classes") or []
    taken = np.bincount(tour.exchanges.taker, minlength=len(tour.ids))
    rows = []
    for kind in np.argsort(-counts, kind="stable")[:_MOST_GROUPS]:
        members = of.reshape(-1) == kind
        before, after = (NOTHING if v is None else _percent(np.nanmean(v[members])) for v in ends)
        cells = number(int(counts[kind])), before, after, number(float(taken[members].mean()))
        rows.append((_objects(np.flatnonzero(kinds[kind]), classes), *cells))
    heads = ("objects", "devices", "before", "after", "models taken each")
    more = len(kinds) - len(rows)
    note = f"{several(more, 'rarer interest', 'rarer interests')} left out." if more > 0 else ""
    return PageTable("Accuracy by interest", heads, rows, note)


def _objects(chosen: np.ndarray, classes: Sequence[object]) -> str:
    names = [str(classes[i]) if i < len(classes) else f"class {i}" for i in chosen[:_MOST_CLASSES]]
    more = len(chosen) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


# What was exchanged, and what it cost


def _exchange_rows(record: Record, tour: TourRecord) -> list[tuple[str, str]]:
    exchanges, columns, devices = tour.exchanges, tour.columns, len(tour.ids)
    total = int(tour.slots["bytes"].sum())
    rows = [
        ("models taken", number(len(exchanges))),
        ("models taken per device, mean", number(len(exchanges) / devices)),
    ]
    if columns:
        rows += [
            ("models sent per device, most", number(int(columns["sent"].max()))),
            ("models taken per device, most", number(int(columns["taken"].max()))),
            ("devices with nothing left to send", _share(columns["can_send"] == 0)),
            ("devices with nothing left to take", _share(columns["can_take"] == 0)),
            ("budget per device, median", number(float(np.median(_budget(tour))))),
        ]
    rows += [("sent in all", human_bytes(total)), ("sent per device, mean", human_bytes(total / devices))]
    if columns:
        rows.append(("energy per device, mean", f"{number(float(columns['joules'].mean()))} J"))
        rows.append(("energy per device, most", f"{number(float(columns['joules'].max()))} J"))
    measured = ~np.isnan(exchanges.gain)
    if measured.any():
        kept = measured & exchanges.adopted
        rows += [
            ("merges that were adopted", _share(exchanges.adopted[measured])),
            ("adopted merges that lowered accuracy", _share(exchanges.harmful[kept])),
            ("gain of an adopted merge, mean", _points(exchanges.gain[kept])),
            ("regret per exchange, mean", _points(exchanges.regret[measured])),
        ]
    wrong = exchanges.predicted - exchanges.after
    if not np.isnan(wrong).all():
        rows.append(("prediction error, mean", _points(np.abs(wrong[~np.isnan(wrong)]))))
    metrics = {name: value for name, value in record.final_metrics.items() if value is not None}
    if "tour/mape" in metrics:
        rows.append(("prediction error, relative (MAPE; the paper: under 6 %)", _percent(metrics["tour/mape"])))
    if "tour/study_low" in metrics:
        reach = f"{metrics['tour/study_low']:.3f} to {metrics['tour/study_high']:.3f}"
        rows.append(("accuracies that the regressor was made from", reach))
        rows.append(("predictions for accuracies outside of these", _percent(metrics.get("tour/outside", 0.0))))
    rows.append(("models refused at the gate", number(len(record.refused))))
    rows.append(("exchanges cut by the end of a contact", number(int(tour.slots["cut"].sum()))))
    rows.append(("exchanges that failed", number(int(tour.slots["failed"].sum()))))
    return rows


def _budget(tour: TourRecord) -> np.ndarray:
    """Transmissions and receptions together that each device began with."""
    return sum((tour.columns[name] for name in ("sent", "can_send", "taken", "can_take")), np.zeros(1, np.int64))


# Who learnt from whom


def _ranking(tour: TourRecord, side: str) -> PageTable:
    """Those who gave, or took, most."""
    exchanges = tour.exchanges
    who = exchanges.giver if side == "giver" else exchanges.taker
    other = exchanges.taker if side == "giver" else exchanges.giver
    counts = np.bincount(who, minlength=len(tour.ids))
    scored = not np.isnan(exchanges.gain).all()
    gain = np.bincount(who, np.where(exchanges.adopted, np.nan_to_num(exchanges.gain), 0.0), minlength=len(tour.ids))
    rows = []
    for device in np.argsort(-counts, kind="stable")[:_MOST_LISTED]:
        if counts[device]:
            others = len(np.unique(other[who == device]))
            change = f"{100 * gain[device]:+.1f}" if scored else NOTHING
            rows.append((tour.ids[device], number(int(counts[device])), number(others), change))
    did, whom = ("gave", "to") if side == "giver" else ("took", "from")
    heads = (f"{did} most", "models", f"{whom} devices", "gain, points")
    return PageTable(f"Devices that {did} most", heads, rows)


# Who met


def _contact_rows(tour: TourRecord) -> list[tuple[str, str]]:
    contacts, met = int(tour.slots["contacts"].sum()), int(tour.slots["met"].sum())
    played = int(tour.slots["slots"].sum())
    rows = [
        ("slots played", number(played)),
        ("pairs in reach, over all slots", number(contacts)),
        ("pairs that met", number(met)),
        ("slots without any pair in reach", f"{100 * int(tour.slots['empty'].sum()) / played:.1f} %"),
    ]
    if tour.columns:
        meetings = tour.columns["meetings"]
        rows += [
            ("meetings per device, mean", number(float(meetings.mean()))),
            ("meetings per device, median", number(float(np.median(meetings)))),
            ("met nobody", f"{number(int((meetings == 0).sum()))} devices, {_share(meetings == 0)}"),
        ]
    return rows


def _percent(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{100 * value:.2f} %"


def _points(values: np.ndarray) -> str:
    return f"{100 * float(values.mean()):.2f} points" if len(values) else NOTHING


def _share(chosen: np.ndarray) -> str:
    return f"{100 * float(chosen.mean()):.1f} %" if len(chosen) else NOTHING
