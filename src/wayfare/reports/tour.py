"""What the report of a run says about a tour: devices that met and exchanged models, with a map that plays the day."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wayfare.reports import tour_figures as figures
from wayfare.reports.figures import Figure
from wayfare.reports.page import Html, axis_choice, empty, facts, legend, plots, section, several, table, tag
from wayfare.reports.record import Record
from wayfare.reports.tables import NOTHING, human_bytes, number
from wayfare.reports.tour_player import Player, player
from wayfare.reports.tour_record import Tour

_MOST_GROUPS = 12
_MOST_LISTED = 10
_MOST_CLASSES = 8  # that are named where devices care about some
_QUANTILES = (("lowest", 0.0), ("lowest tenth", 0.1), ("median", 0.5), ("highest tenth", 0.9), ("highest", 1.0))
_MEASURES = {"accuracy": "accuracy on the test set", "target_accuracy": "accuracy on the objects each cares about"}


@dataclass(frozen=True)
class TourPart:
    """The sections of a tour with what the page needs for them."""

    words: str  # what happened and what came of it
    names: tuple[str, ...]  # of the sections, for the menu
    sections: tuple[Html, ...]
    figures: tuple[Figure, ...]
    player: Player | None


def tour_part(record: Record) -> TourPart | None:
    """What a tour adds to the report of its run; None if the run is none, or nobody has met yet."""
    tour = Tour.read(record)
    if tour is None:
        return None
    found = player(tour)
    parts = [
        ("map", _map(tour, found), ()),
        ("accuracy", *_accuracy(tour)),
        ("exchanges", *_exchanges(record, tour)),
        ("teachers", *_teachers(tour)),
        ("contacts", *_contacts(tour)),
    ]
    if (areas := _areas(record, tour)) is not None:
        parts.insert(2, ("interests", areas, ()))
    drawn = tuple(figure for _, _, some in parts for figure in some)
    names, sections = tuple(name for name, _, _ in parts), tuple(made for _, made, _ in parts)
    return TourPart(_in_words(record, tour), names, sections, drawn, found)


def _in_words(record: Record, tour: Tour) -> str:
    still = int(tour.film.stationary.sum()) if tour.film is not None else 0
    who = f"{several(len(tour.ids), 'device')}{f', {number(still)} of them signage,' if still else ''}"
    policy = record.component("exchange") or "an unnamed policy"
    task = f" the {record.component('task')} task" if record.component("task") else ""
    met, taken = int(tour.slots["met"].sum()), len(tour.exchanges)
    return (
        f"{who} learnt{task}, then met for {several(len(tour.slots['slot']), 'slot')} under {policy}: "
        f"{several(met, 'meeting')}, in which {several(taken, 'model was', 'models were')} taken. {_came_of_it(tour)}"
    )


def _came_of_it(tour: Tour) -> str:
    before, after = (one.of("accuracy") if one is not None else None for one in (tour.initial, tour.final))
    if after is None:
        return "The models have not been judged since."
    start = f"went from {_percent(np.nanmean(before))} to" if before is not None else "is"
    return f"Their mean accuracy on the test set {start} {_percent(np.nanmean(after))}."


def _map(tour: Tour, found: Player | None) -> Html:
    if found is None:
        return section("map", "The day", empty("There is no film of this tour, so there is no map of it."))
    return section("map", "The day", found.body)


# How good the models became


def _accuracy(tour: Tour) -> tuple[Html, tuple[Figure, ...]]:
    drawn = [figures.progress_figure(tour)]
    for place, (measure, words) in enumerate(_MEASURES.items()):
        ends = [one.of(measure) if one is not None else None for one in (tour.initial, tour.final)]
        drawn.append(figures.distribution_figure(f"tour-distribution-{place}", words, *ends))
    made = [figure for figure in drawn if figure is not None]
    if not made:
        return section("accuracy", "Accuracy", empty("No device has been judged yet.")), ()
    choice = axis_choice(figures.OVER, "tour-over") if drawn[0] is not None else None
    controls = tag("div", choice, legend(key for figure in made for key in figure.keys), class_="controls")
    note = (
        "The probe curve is what devices know of their own models, from pictures that each of them carries; "
        "the test set is only used for the points. Energy between the points is spread as bytes are."
    )
    body = (controls, plots(made), tag("p", note, class_="note"), _spread_table(tour))
    return section("accuracy", "Accuracy", *body), tuple(made)


def _spread_table(tour: Tour) -> Html | None:
    rows: list[tuple[object, ...]] = []
    for measure, words in _MEASURES.items():
        for when, one in (("before", tour.initial), ("after", tour.final)):
            values = one.of(measure) if one is not None else None
            if values is not None:
                known = values[~np.isnan(values)]
                cells = [known.mean(), *(np.quantile(known, q) for _, q in _QUANTILES)]
                rows.append((f"{words}, {when}", *(_percent(cell) for cell in cells), number(len(known))))
    heads = ("measure", "mean", *(name for name, _ in _QUANTILES), "devices")
    return table("Accuracy before and after the tour", heads, rows) if rows else None


def _areas(record: Record, tour: Tour) -> Html | None:
    """Devices whose owners care about the same objects, the commonest wishes first; None if all care about all."""
    film = tour.film
    ends = [one.of("target_accuracy") if one is not None else None for one in (tour.initial, tour.final)]
    if film is None or film.targets.all() or all(values is None for values in ends):
        return None
    kinds, of, counts = np.unique(film.targets, axis=0, return_inverse=True, return_counts=True)
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
    note = tag("p", f"{several(more, 'rarer wish', 'rarer wishes')} left out.", class_="note") if more > 0 else None
    intro = "Devices whose owners care about the same objects, and the mean accuracy on these."
    return section("interests", "By interest", tag("p", intro), table("Accuracy by interest", heads, rows), note)


def _objects(chosen: np.ndarray, classes: Sequence[object]) -> str:
    names = [str(classes[i]) if i < len(classes) else f"class {i}" for i in chosen[:_MOST_CLASSES]]
    more = len(chosen) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


# What was exchanged, and what it cost


def _exchanges(record: Record, tour: Tour) -> tuple[Html, tuple[Figure, ...]]:
    drawn = [figures.forecast_figure(tour.exchanges), figures.budget_figure(tour)]
    made = tuple(figure for figure in drawn if figure is not None)
    shown = (legend(key for figure in made for key in figure.keys), plots(made)) if made else ()
    body = [*shown, facts("Exchanges in numbers", _exchange_rows(record, tour))]
    if drawn[0] is not None:
        text = (
            "On the dotted line a merge did what was predicted; below the solid one it did harm. "
            "The regret of an exchange is the better of the two models, in hindsight, less the one that was kept."
        )
        body.append(tag("p", text, class_="note"))
    return section("exchanges", "Exchanges", *body), made


def _exchange_rows(record: Record, tour: Tour) -> list[tuple[object, object]]:
    exchanges, ledger, devices = tour.exchanges, tour.ledger, len(tour.ids)
    total = int(tour.slots["bytes"].sum())
    rows: list[tuple[object, object]] = [
        ("models taken", number(len(exchanges))),
        ("models taken per device, mean", number(len(exchanges) / devices)),
    ]
    if ledger:
        rows += [
            ("models sent per device, most", number(int(ledger["sent"].max()))),
            ("models taken per device, most", number(int(ledger["taken"].max()))),
            ("devices with nothing left to send", _share(ledger["can_send"] == 0)),
            ("devices with nothing left to take", _share(ledger["can_take"] == 0)),
            ("budget per device, median", number(float(np.median(_budget(tour))))),
        ]
    rows += [("sent in all", human_bytes(total)), ("sent per device, mean", human_bytes(total / devices))]
    if ledger:
        rows.append(("energy per device, mean", f"{number(float(ledger['joules'].mean()))} J"))
        rows.append(("energy per device, most", f"{number(float(ledger['joules'].max()))} J"))
    measured = ~np.isnan(exchanges.gain)
    if measured.any():
        kept = measured & exchanges.adopted
        rows += [
            ("merges that were adopted", _share(exchanges.adopted[measured])),
            ("adopted merges that did harm", _share(exchanges.harmful[kept])),
            ("gain of an adopted merge, mean", _points(exchanges.gain[kept])),
            ("regret per exchange, mean", _points(exchanges.regret[measured])),
        ]
    wrong = exchanges.predicted - exchanges.after
    if not np.isnan(wrong).all():
        rows.append(("prediction off by, mean", _points(np.abs(wrong[~np.isnan(wrong)]))))
    rows.append(("models refused at the gate", number(len(record.refused))))
    rows.append(("exchanges cut by the end of a contact", number(int(tour.slots["cut"].sum()))))
    rows.append(("exchanges that failed", number(int(tour.slots["failed"].sum()))))
    return rows


def _budget(tour: Tour) -> np.ndarray:
    """Transmissions and receptions together that each device began with."""
    return sum((tour.ledger[name] for name in ("sent", "can_send", "taken", "can_take")), np.zeros(1, np.int64))


# Who learnt from whom


def _teachers(tour: Tour) -> tuple[Html, tuple[Figure, ...]]:
    drawn = tuple(figures.teacher_figures(tour))
    if not drawn:
        return section("teachers", "Who learnt from whom", empty("No model was exchanged.")), ()
    intro = "Blue: models of these givers made these takers better. Red: worse. Empty: no exchange."
    if np.isnan(tour.exchanges.gain).all():
        intro = "This policy does not look whether a merge helps, so the colour is the number of exchanges."
    body = (tag("p", intro), plots(drawn), tag("div", _ranking(tour, "giver"), _ranking(tour, "taker"), class_="plots"))
    return section("teachers", "Who learnt from whom", *body), drawn


def _ranking(tour: Tour, side: str) -> Html:
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
    return table(f"Devices that {did} most", heads, rows)


# Who met


def _contacts(tour: Tour) -> tuple[Html, tuple[Figure, ...]]:
    drawn = tuple(figures.contact_figures(tour))
    contacts, met = int(tour.slots["contacts"].sum()), int(tour.slots["met"].sum())
    rows: list[tuple[object, object]] = [
        ("slots played", number(len(tour.slots["slot"]))),
        ("pairs in reach, over all slots", number(contacts)),
        ("pairs that met", number(met)),
        ("slots without any pair in reach", _share(tour.slots["contacts"] == 0)),
    ]
    if tour.ledger:
        meetings = tour.ledger["meetings"]
        rows += [
            ("meetings per device, mean", number(float(meetings.mean()))),
            ("meetings per device, median", number(float(np.median(meetings)))),
            ("met nobody", f"{number(int((meetings == 0).sum()))} devices, {_share(meetings == 0)}"),
        ]
    body = (legend(key for figure in drawn for key in figure.keys), plots(drawn), facts("Contacts in numbers", rows))
    return section("contacts", "Contacts", *body), drawn


def _percent(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{100 * value:.2f} %"


def _points(values: np.ndarray) -> str:
    return f"{100 * float(values.mean()):.2f} points" if len(values) else NOTHING


def _share(chosen: np.ndarray) -> str:
    return f"{100 * float(chosen.mean()):.1f} %" if len(chosen) else NOTHING
