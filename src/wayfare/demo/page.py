"""The page of `wayfare demo`: a town, four models that were trained in it, and what they can do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wayfare.demo.page_maps import city_drawing, located_drawing
from wayfare.demo.page_parts import DemoPage
from wayfare.demo.page_uses import all_located, day_figures, verdict
from wayfare.demo.page_words import (
    ALONE,
    DEMO_TASKS,
    POOLED,
    TOGETHER,
    DemoTask,
    TaskResult,
    clients_of,
    evaluating,
    points,
    who,
)
from wayfare.encounters.player import player
from wayfare.encounters.record import TourRecord
from wayfare.pages.figures import Figure, Key, axis_title, plain_layout
from wayfare.pages.page import render, save
from wayfare.pages.record import Record
from wayfare.pages.tables import human_bytes, human_seconds, number

_WAYS = {  # name, and colour in every figure
    "before": ("before training", "c9"), ALONE: ("each alone", "c2"), TOGETHER: ("federated", "c1"),
    POOLED: ("all data pooled", "c6"),
}  # fmt: skip
_PRIVATE = {  # what clients do not send
    "places": "photos, and where and when they were taken",
    "objects": "photos, and where people were",
    "scenes": "photos, and what they show",
    "hashing": "pictures and their words",
}
_PARTS = {"town": "making the town", "locate": "locating photos", "search": "search, and the scene graph"}


@dataclass(frozen=True)
class ResultBar:
    """One way of training: its name, colour, and the metric in hundredths."""

    name: str
    colour: str
    percent: str
    value: str
    federated: bool


@dataclass(frozen=True)
class DemoChapter:
    """What the page shows of one task."""

    name: str
    task: DemoTask
    who: str
    bars: Sequence[ResultBar]
    floor: str  # the metric of a baseline; "" where there is none
    verdict: str
    figures: Sequence[Figure]
    axis: str  # what the figures show


def write_demo_page(page: DemoPage, out: Path) -> Path:
    """Write the page and return where it is."""
    return save(page_of(page, out.parent), out)


def page_of(page: DemoPage, folder: Path) -> str:
    """The page as HTML; links are relative to the folder."""
    tour = TourRecord.read(page.runs["objects"][TOGETHER])
    chapters = [_chapter(name, task, page.runs[name], tour) for name, task in DEMO_TASKS.items()]
    return render(
        "demo.html",
        title="A town learns",
        figures=[figure for chapter in chapters for figure in chapter.figures],
        page=page,
        folder=folder,
        tiles=_tiles(page),
        cities=[city_drawing(city) for city in page.town.maps],
        chapters=chapters,
        verdicts=[verdict(page.locate, number, photo) for number, photo in enumerate(page.locate.photos, start=1)],
        located=located_drawing(page.locate),
        all_located=all_located(page.locate),
        player=player(tour, page.ground) if tour is not None else None,
        meetings=int(tour.slots["met"].sum()) if tour is not None else 0,
        exchanges=len(tour.exchanges) if tour is not None else 0,
        searches=[(search, points(search.share)) for search in page.searches],
        traffic=_traffic(page),
        sent=sum(cells[TOGETHER].travelled for cells in page.runs.values()),
        seconds=[(_PARTS.get(name, name), human_seconds(spent)) for name, spent in page.seconds.items()],
    )


def _tiles(page: DemoPage) -> list[tuple[str, str, str]]:
    runs = [cells[TOGETHER] for cells in page.runs.values()]
    clients = sum(clients_of(record) - evaluating(record) for record in runs)
    return [
        ("photos shared", "0", "not one"),
        ("clients", number(clients), "in four federations"),
        ("sent instead", human_bytes(sum(record.travelled for record in runs)), "of model weights"),
        ("time", human_seconds(sum(page.seconds.values())), "on this machine"),
    ]


def _chapter(name: str, task: DemoTask, runs: Mapping[str, Record], tour: TourRecord | None) -> DemoChapter:
    result = TaskResult.of(task, runs)
    floor = f"For comparison: {task.floor_words} gives {points(result.floor)}." if math.isfinite(result.floor) else ""
    return DemoChapter(
        name=name,
        task=task,
        who=who(name, runs[TOGETHER]),
        bars=_bars(result),
        floor=floor,
        verdict=result.verdict,
        figures=day_figures(tour) if name == "objects" else _curves(name, task, runs),
        axis=_axis(name, runs),
    )


def _bars(result: TaskResult) -> list[ResultBar]:
    """A bar for each way of training."""
    values = {"before": result.before, ALONE: result.alone, TOGETHER: result.together, POOLED: result.pooled}
    return [
        ResultBar(*_WAYS[way], percent=f"{100 * min(1, value):.1f}", value=points(value), federated=way == TOGETHER)
        for way, value in values.items()
        if math.isfinite(value)
    ]


def _axis(name: str, runs: Mapping[str, Record]) -> str:
    if name == "objects":
        return (
            "Left: the mean over all phones during the day; the dots are measured on photos that no phone had. Right: "
            "how many phones reach which accuracy, in the morning and in the evening."
        )
    passes = _passes(runs[TOGETHER])[-1]
    return (
        f"Horizontal axis: how often each photo was used for training, about {passes:.2g} times by the end, and as "
        "often by clients that train alone and with all data in one place. Clients that train alone are evaluated at "
        "the end; the value is their mean."
    )


def _passes(record: Record) -> list[float]:
    """How often the clients' samples have been used for training by the end of each round."""
    epochs = int(record.experiment.get("training", {}).get("epochs", 1))
    learners = max(1, clients_of(record) - evaluating(record))
    per_round = int(record.experiment.get("topology", {}).get("per_round", 0)) or learners
    share = 1.0 if record.component("strategy") == POOLED else min(1.0, per_round / learners)
    return [line.round * epochs * share for line in record.rounds]


def _curves(name: str, task: DemoTask, runs: Mapping[str, Record]) -> list[Figure]:
    """The main metric over how often each photo was used for training."""
    traces, keys, words = list[dict[str, object]](), list[Key](), list[str]()
    for cell, record in runs.items():
        at = {line.round: passed for line, passed in zip(record.rounds, _passes(record))}
        rounds, values = record.series(task.metric)
        if not values:
            continue
        way, colour = _WAYS[cell]
        key = Key(f"{name}-{cell}", way, f"@{colour}")
        keys.append(key)
        words.append(f"{way} from {points(values[0])} to {points(values[-1])}")
        line = {"color": key.colour, "width": 3 if cell == TOGETHER else 2, "dash": "dot" if cell == ALONE else "solid"}
        traces.append({
            "type": "scatter", "mode": "lines+markers", "x": [at[r] for r in rounds], "y": [100 * v for v in values],
            "line": line, "marker": {"color": key.colour, "size": 6}, "legendgroup": key.group, "name": way,
            "hovertemplate": "%{y:.1f}",
        })  # fmt: skip
    layout = plain_layout(hovermode="x unified")
    layout["xaxis"]["title"] = axis_title("times each photo was used for training")
    layout["yaxis"] |= {"title": axis_title("out of 100"), "rangemode": "tozero"}
    title = f"Out of 100: {task.measure}"
    spec = {"data": traces, "layout": layout}
    return [Figure(f"demo-{name}", title, f"{title}: {'; '.join(words)}.", spec, tuple(keys))]


def _traffic(page: DemoPage) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, cells in page.runs.items():
        record = cells[TOGETHER]
        way = "from phone to phone" if record.is_tour else "to a server and back"
        rows.append((DEMO_TASKS[name].title, _PRIVATE[name], way, human_bytes(record.travelled)))
    return rows
