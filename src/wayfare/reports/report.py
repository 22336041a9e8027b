"""The report of a run, as a page."""

from __future__ import annotations

import html
import math
import re
import shlex
import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from wayfare.reports import figures, semantic_split
from wayfare.reports.figures import Figure
from wayfare.reports.page import (
    Html,
    axis_choice,
    details,
    document,
    empty,
    facts,
    flatten,
    legend,
    menu,
    plots,
    save,
    section,
    setting,
    several,
    table,
    tag,
    tiles,
)
from wayfare.reports.partition import stored_pictures
from wayfare.reports.record import Clients, Record, less_is_better
from wayfare.reports.tables import (
    NOTHING,
    human_bytes,
    human_seconds,
    number,
    partition_rows,
    result_row,
    rounds_done,
)
from wayfare.reports.tour import TourPart, tour_part

_MOST_ROWS = 200
_MOST_LISTED = 20
_LATEST = 10
_MOST_MEASURES = 4


def write_report(run: Path, out: Path | None = None) -> Path:
    """Write the report of a run, into its folder unless told otherwise, and return where it is."""
    record = Record.read(run)
    tour = tour_part(record)
    curves = figures.metric_figures(record) if tour is None else []  # a tour's are drawn there
    clients = _client_figures(record) if tour is None else []
    partition = figures.partition_figure(record.partition)
    picture_parts, pictures = stored_pictures(record.partition)
    traffic = figures.traffic_figure(record) if tour is None else None
    sections = [
        _result(record),
        *(tour.sections if tour is not None else (_curves(record, curves), _clients(record, clients))),
        _partition(record, partition, picture_parts),
        *((_traffic(record, traffic),) if tour is None else ()),
        _irregularities(record),
        _settings(record),
        _environment(record),
        _reproduce(record),
    ]
    drawn = [*curves, *clients, *pictures, *(f for f in (partition, traffic) if f is not None)]
    drawn += tour.figures if tour is not None else ()
    player = tour.player if tour is not None else None
    style = semantic_split.STYLE if "semantics" in record.partition else ""
    more = {"style": style} if player is None else {"style": style + player.style, "script": player.script}
    text = document(record.name, _header(record, tour), sections, drawn, **more)
    return save(text, run / "report.html" if out is None else out)


# The parts of a run's report


def _header(record: Record, tour: TourPart | None) -> Html:
    state = tag(
        "span",
        "finished" if record.finished else "not finished",
        class_=f"chip {'done' if record.finished else 'open'}",
    )
    words = [record.component(kind) for kind in ("task", "strategy", "topology", "exchange")]
    chips = [tag("span", word, class_="chip") for word in words if word]
    banner = None
    if not record.finished:
        text = f"This run is not finished: {rounds_done(record)} rounds are committed, and the numbers are as of then."
        banner = tag("p", tag("b", "Unfinished. "), text, class_="banner", role="status")
    return tag(
        "header",
        tag("p", "Wayfare · run report", class_="eyebrow"),
        tag("h1", record.name),
        tag("p", state, *chips, class_="chips"),
        banner,
        tag("p", _in_words(record, tour), class_="lead"),
        menu(("result", *_parts(tour), "irregular", "settings", "environment", "repeat")),
    )


def _parts(tour: TourPart | None) -> tuple[str, ...]:
    """The sections that are not the same in all reports."""
    if tour is None:
        return "curves", "clients", "partition", "travelled"
    return *tour.names, "partition"


def _in_words(record: Record, tour: TourPart | None) -> str:
    """What was done, what came out and what it cost, for someone who has not seen the recipe."""
    done = [_training(record), _progress(record)] if tour is None else [tour.words]
    return " ".join(s for s in (*done, _cost(record), _trouble(record)) if s)


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
    return f"{human_bytes(total)} travelled, and it took {human_seconds(record.seconds)}."


def _trouble(record: Record) -> str:
    parts = []
    if record.refused:
        parts.append(f"{several(len(record.refused), 'reply was', 'replies were')} refused")
    if record.cold:
        parts.append(f"{several(len(record.cold), 'reply', 'replies')} came from a device without its memory")
    if record.void:
        parts.append(f"{several(len(record.void), 'round was', 'rounds were')} void")
    return (", ".join(parts) + ".") if parts else ""


def _result(record: Record) -> Html:
    metric = record.main_metric
    shown = [
        (
            metric or "metric",
            number(record.final(metric)) if metric else NOTHING,
            "final" if record.finished else "so far",
        ),
        ("rounds", number(record.done), f"of {number(record.total)}" if record.total is not None else "committed"),
        ("sent", human_bytes(record.travelled), _ways(record)),
        ("time", human_seconds(record.seconds), _per_round(record)),
        ("refused", number(len(record.refused)), "replies"),
    ]
    heads = ("metric", "final" if record.finished else "so far", "best", "in round", "untrained")
    rows = [result_row(record, name) for name in record.metrics]
    body = table("Every metric", heads, rows) if rows else empty("No metric has been measured yet.")
    protocol = [tag("p", f"Measured on the test set with {record.protocol}.")] if record.protocol else []
    alarms = [tag("p", tag("strong", f"Warning: {text}.")) for text in record.warnings]
    return section("result", "Result", tiles(shown), *alarms, *protocol, body)


def _ways(record: Record) -> str:
    return "from device to device" if record.is_tour else f"{human_bytes(record.bytes_up)} up"


def _per_round(record: Record) -> str:
    trained = [line.seconds for line in record.rounds if line.round > 0]
    return f"{human_seconds(statistics.median(trained))} a round" if trained else ""


def _curves(record: Record, drawn: Sequence[Figure]) -> Html:
    if not drawn:
        return section("curves", "Curves", empty("There are no curves before the first evaluation."))
    keys = [key for figure in drawn for key in figure.keys]
    controls = tag("div", axis_choice(), legend(keys), class_="controls")
    return section("curves", "Curves", controls, plots(drawn), _numbers(record))


def _numbers(record: Record) -> Html:
    """The curves for those who want digits, or cannot see them."""
    lines = record.rounds
    step = math.ceil(len(lines) / _MOST_ROWS)
    kept = [line for i, line in enumerate(lines) if i % step == 0 or i == len(lines) - 1]
    rows = [
        (line.round, *(number(line.metrics.get(m)) for m in record.metrics), line.clients, human_bytes(line.bytes_up),
         human_bytes(line.bytes_down), human_seconds(line.seconds))
        for line in kept
    ]  # fmt: skip
    note = f" (one in {step} of {number(len(lines))})" if step > 1 else ""
    heads = ("round", *record.metrics, "clients", "up", "down", "time")
    return details(f"Numbers by round{note}", table("Numbers by round", heads, rows, class_="tall"))


def _client_figures(record: Record) -> list[Figure]:
    if record.per_client is None:
        return []
    measures = [m for m, values in record.per_client.values.items() if any(math.isfinite(v) for v in values.values())]
    measures.sort(key=lambda m: (less_is_better(m), m))
    return [
        figures.client_figure(f"clients-{i}", m, record.per_client) for i, m in enumerate(measures[:_MOST_MEASURES])
    ]


def _clients(record: Record, drawn: Sequence[Figure]) -> Html:
    if record.per_client is None or not drawn:
        return section("clients", "Client by client", empty("No round was evaluated client by client."))
    intro = f"How the model of round {record.per_client.round} does at each client."
    rows = [_spread_row(measure, record.per_client) for measure in (f.title for f in drawn)]
    heads = ("measure", "worst", "at client", "median", "best", "at client", "sd", "clients")
    body = table("Worst, median and best client", heads, rows)
    return section("clients", "Client by client", tag("p", intro), plots(drawn), body)


def _spread_row(measure: str, clients: Clients) -> tuple[object, ...]:
    values = {c: v for c, v in clients.values[measure].items() if math.isfinite(v)}
    ranked = sorted(values, key=lambda c: values[c], reverse=less_is_better(measure))
    worst, best = ranked[0], ranked[-1]
    sd = statistics.stdev(values.values()) if len(values) > 1 else None
    lost = len(clients.values[measure]) - len(values)
    count = f"{number(len(values))} ({lost} not finite)" if lost else number(len(values))
    middle = number(statistics.median(values.values()))
    return measure, number(values[worst]), worst, middle, number(values[best]), best, number(sd), count


def _partition(record: Record, drawn: Figure | None, pictures: Sequence[Html]) -> Html:
    partition = record.partition
    if not partition:
        return section("partition", "Partition", empty("This run recorded no partition of its data."))
    rows = partition_rows(partition.get("table") or {})
    body: list[object] = [facts("The partition in numbers", rows)] if rows else []
    if drawn is not None:
        body[:0] = [legend(drawn.keys) if drawn.keys else None, plots([drawn], titles=False), _capped(partition)]
    elif not pictures:
        body.insert(0, empty("These data have no labels, so there is no picture of classes."))
    body[:0] = pictures
    provenance = flatten(partition.get("provenance") or {})
    if provenance:
        body.append(details("Where it comes from", facts("Provenance", _setting_rows(provenance))))
    return section("partition", "Partition", *body)


def _capped(partition: Mapping[str, Any]) -> Html | None:
    """Says what the picture leaves out."""
    clients, classes = (partition.get("table") or {}).get("clients"), len(partition["classes"])
    shown = min(len(partition["counts"]), figures.MOST_CLIENTS)
    parts = []
    if isinstance(clients, int) and clients > shown:
        parts.append(f"the first {shown} of {number(clients)} clients")
    if classes > figures.MOST_CLASSES:
        parts.append(f"the commonest {figures.MOST_CLASSES} of {number(classes)} classes")
    return tag("p", f"The picture shows {' and '.join(parts)}.", class_="note") if parts else None


def _traffic(record: Record, drawn: Figure | None) -> Html:
    if drawn is None:
        return section("travelled", "What travelled", empty("Nothing travelled between server and clients."))
    rounds = sum(1 for line in record.rounds if line.bytes_up or line.bytes_down)
    replies = sum(line.clients for line in record.rounds if line.bytes_up or line.bytes_down)
    up, down = record.bytes_up, record.bytes_down
    rows = [
        (
            name,
            human_bytes(total),
            human_bytes(total / rounds),
            human_bytes(total / replies) if replies else NOTHING,
            f"{total:,}",
        )
        for name, total in (("up, to the server", up), ("down, to the clients", down), ("both", up + down))
    ]
    heads = ("direction", "total", "per round", "per client and round", "exact bytes")
    body = table("Bytes that travelled", heads, rows)
    return section("travelled", "What travelled", legend(drawn.keys), plots([drawn], titles=False), body)


def _irregularities(record: Record) -> Html:
    parts = (
        tag("h3", "Refused replies"),
        *_refused(record),
        tag("h3", "Cold devices"),
        *_cold(record),
        tag("h3", "Void rounds"),
        _void(record),
        tag("h3", "Skipped files"),
        *_skipped(record),
    )
    return section("irregular", "Irregularities", *parts)


def _refused(record: Record) -> list[Html]:
    refused = record.refused
    if not refused:
        return [empty("No reply was refused.")]
    kinds: dict[str, list[str]] = {}
    for refusal in refused:
        kinds.setdefault(_kind(refusal.reason), []).append(refusal.device)
    ranked = sorted(kinds.items(), key=lambda item: -len(item[1]))[:_MOST_LISTED]
    rows = [(kind, number(len(devices)), number(len(set(devices)))) for kind, devices in ranked]
    latest = [(r.round, r.device, r.reason) for r in refused[: -_LATEST - 1 : -1]]
    return [
        table("Refused replies by reason", ("reason", "replies", "devices"), rows),
        details(
            f"The latest {len(latest)} of {number(len(refused))}",
            table("Latest refused replies", ("round", "device", "reason"), latest, words=3),
        ),
    ]


def _kind(reason: str) -> str:
    """What a reason has in common with others: no numbers, and not what follows the colon (which tensor it was)."""
    return re.sub(r"\d[\d.,]*(e[+-]?\d+)?", "…", reason.split(":", 1)[0]).strip() or "no reason given"


def _cold(record: Record) -> list[Html]:
    cold = record.cold
    if not cold:
        return [empty("Every device had the memory it should have had.")]
    rounds: dict[str, list[int]] = {}
    for when, device in cold:
        rounds.setdefault(device, []).append(when)
    listed = sorted(rounds.items(), key=lambda item: -len(item[1]))[:_MOST_LISTED]
    rows = [(device, _round_list(when), number(len(when))) for device, when in listed]
    whose = f"{several(len(cold), 'reply', 'replies')} from {several(len(rounds), 'device')}"
    text = f"{whose} came without the memory of earlier rounds."
    return [tag("p", text), table("Cold devices", ("device", "rounds", "times"), rows, words=2)]


def _void(record: Record) -> Html:
    if not record.void:
        return empty("No round was void.")
    count = several(len(record.void), "round")
    return tag("p", f"{count} changed nothing for want of usable replies: {_round_list(record.void)}.")


def _skipped(record: Record) -> list[Html]:
    skipped = record.skipped_files
    if not skipped:
        return [
            empty("No file was skipped." if record.finished else "Skipped files are listed when the run has finished.")
        ]
    text = f"{several(len(skipped), 'file')} could not be used."
    rows = skipped[:_MOST_ROWS]
    listed = f"The first {len(rows)}" if len(skipped) > len(rows) else "Which ones"
    return [tag("p", text), details(listed, table("Skipped files", ("file", "reason"), rows, words=2, class_="tall"))]


def _round_list(rounds: Sequence[int]) -> str:
    shown = ", ".join(str(r) for r in rounds[:_MOST_LISTED])
    return shown + (f" and {len(rounds) - _MOST_LISTED} more" if len(rounds) > _MOST_LISTED else "")


def _settings(record: Record) -> Html:
    single = {k: v for k, v in record.experiment.items() if not isinstance(v, Mapping)}
    groups = [("experiment", single)] + [(k, v) for k, v in record.experiment.items() if isinstance(v, Mapping)]
    cards = [
        tag("div", tag("h3", name), facts(name, _setting_rows(flatten(values))), class_="card")
        for name, values in groups
        if values
    ]
    recipe = details("The same as a recipe", tag("pre", tag("code", Html(html.escape(record.recipe))), tabindex="0"))
    return section("settings", "Settings", details("All settings", tag("div", *cards, class_="cards")), recipe)


def _setting_rows(settings: Mapping[str, Any]) -> list[tuple[object, object]]:
    return [(key, setting(value)) for key, value in settings.items()]


def _environment(record: Record) -> Html:
    rows = _setting_rows(flatten(record.environment))
    body = facts("Environment", rows) if rows else empty("This run recorded no environment.")
    return section("environment", "Environment", body)


def _reproduce(record: Record) -> Html:
    folder = record.path.resolve().name
    folder = f"./{folder}" if folder.startswith("-") else folder
    again = f"wayfare run {shlex.quote(f'{folder}/experiment.toml')} --out {shlex.quote(f'{folder}-again')}"
    parts = [tag("p", "From the folder that holds this run, with the versions listed above:"), _command(again)]
    if record.model_sha256:
        hint = "It should end with the same model" if record.finished else "The last committed model has the"
        parts.append(
            tag(
                "p",
                f"{hint}, SHA-256 " if record.finished else f"{hint} SHA-256 ",
                tag("code", record.model_sha256),
                ".",
            )
        )
    if not record.finished:
        parts += [tag("p", "To go on where this run stopped:"), _command(f"wayfare resume {shlex.quote(folder)}")]
    else:
        parts.append(tag("p", "The run is finished, so there is nothing to resume.", class_="note"))
    parts.append(tag("p", f"Last round committed {_moment(record.updated)}.", class_="note"))
    return section("repeat", "How to repeat it", *parts)


def _command(text: str) -> Html:
    return tag("pre", tag("code", text), tabindex="0", class_="command")


def _moment(when: datetime) -> str:
    return when.strftime("%d %B %Y, %H:%M %Z").lstrip("0")
