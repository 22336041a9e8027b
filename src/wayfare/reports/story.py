"""The page of `wayfare demo`: a town, four federations that learnt in it, and what they are good for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from wayfare.reports import graph_page, story_uses
from wayfare.reports.figures import Figure, Key, axis_title, plain_layout
from wayfare.reports.page import (
    Html,
    details,
    document,
    legend,
    plots,
    save,
    section,
    several,
    table,
    tag,
    tiles,
)
from wayfare.reports.record import Record
from wayfare.reports.story_maps import city_map
from wayfare.reports.story_parts import Story, Town
from wayfare.reports.story_style import STYLE
from wayfare.reports.story_words import (
    ALONE,
    POOLED,
    SUBJECTS,
    TOGETHER,
    Outcome,
    Subject,
    clients_of,
    judging,
    points,
    who,
)
from wayfare.reports.tables import human_bytes, human_seconds, number
from wayfare.reports.tour_player import player
from wayfare.reports.tour_record import Tour

_WAYS = {  # name, and colour in every figure
    "before": ("before", "c9"), ALONE: ("each alone", "c2"), TOGETHER: ("together", "c1"),
    POOLED: ("all in one place", "c6"),
}  # fmt: skip
_MENU = {
    "town": "The town", "places": "Where?", "objects": "What?", "scenes": "How?", "hashing": "Which?",
    "travelled": "What travelled", "further": "Go on from here",
}  # fmt: skip
_KEPT = {  # what each federation does not send
    "places": "photos, where and when they were taken",
    "objects": "photos, and where anybody was",
    "scenes": "photos, and what is on them",
    "hashing": "pictures and their words",
}


def write_story(story: Story, out: Path) -> Path:
    """Write the page and return where it is."""
    return save(page_of(story, out.parent), out)


def page_of(story: Story, folder: Path) -> str:
    """The page as HTML; links are relative to the folder."""
    tour = Tour.read(story.runs["objects"][TOGETHER])
    found = player(tour, story.ground) if tour is not None else None
    uses = {
        "places": story_uses.locating(story.locating),
        "objects": story_uses.day(tour, found),
        "scenes": story_uses.graph(story.graph),
        "hashing": [story_uses.search(one) for one in story.searches],
    }
    sections, drawn = [_town(story.town)], list[Figure]()
    for task, subject in SUBJECTS.items():
        figures = story_uses.tour_figures(tour) if task == "objects" else _curves(task, subject, story.runs[task])
        sections.append(_chapter(task, subject, story.runs[task], figures, uses[task]))
        drawn += figures
    sections += [_travelled(story), _further(story, folder)]
    style = STYLE + graph_page.STYLE + (found.style if found is not None else "")
    return document("A town learns", _header(story), sections, drawn, style, found.script if found is not None else "")


def _header(story: Story) -> Html:
    runs = [cells[TOGETHER] for cells in story.runs.values()]
    sent = sum(record.travelled for record in runs)
    lead = (
        f"This town is made up, and so are its {number(story.town.photos)} photos. But the learning is real: "
        "neighbours and passers-by taught a computer four things together, by passing round what they had learnt "
        "instead of what they had photographed. Everything below was trained and measured on this machine just now."
    )
    shown = [
        ("photos that left their owner", "0", "not one"),
        ("learners", number(sum(clients_of(record) - judging(record) for record in runs)), "in four federations"),
        ("travelled instead", human_bytes(sent), "of models"),
        ("it took", human_seconds(sum(story.seconds.values())), "on this machine"),
    ]
    quick = tag(
        "p", tag("b", "A quick try-out. "), "It shows that everything works; so little was learnt that the figures "
        "say nothing. Leave out --quick for the real story.", class_="banner", role="status",
    )  # fmt: skip
    return tag(
        "header",
        tag("p", "Wayfare · demo", class_="eyebrow"),
        tag("h1", "A town learns from its photos, and nobody hands one over"),
        tag("p", lead, class_="lead"),
        quick if story.quick else None,
        tiles(shown),
        tag(
            "nav", *(tag("a", words, href=f"#{part}") for part, words in _MENU.items()), aria_label="Parts of this page"
        ),
    )


# ---- The town


def _town(town: Town) -> Html:
    words = (
        f"{several(len(town.maps), 'city', 'cities')} with streets, squares and sights, in all weathers. Each dot is "
        "where a photo was taken. Dots of one colour belong to one neighbourhood, which keeps its photos to itself; "
        "grey ones belong to nobody who learns."
    )
    cities = [city_map(one) for one in town.maps]
    shots = [tag("figure", story_uses.image(one), tag("figcaption", one.caption)) for one in town.samples]
    return section(
        "town", "The town", tag("p", words, class_="say"), tag("div", *cities, class_="cities"),
        tag("h3", "What its people photographed"), tag("div", *shots, class_="shots"),
    )  # fmt: skip


# ---- What was learnt


def _chapter(
    task: str, subject: Subject, runs: Mapping[str, Record], figures: list[Figure], use: Iterable[object]
) -> Html:
    record, outcome = runs[TOGETHER], Outcome.of(subject, runs)
    keys = [key for figure in figures for key in figure.keys]
    links = [
        tag("a", "this federation in full", href=f"{task}/{TOGETHER}/report.html"),
        " · ",
        tag("a", "beside the others", href=f"{task}/compare.html"),
    ]
    return section(
        task,
        subject.title,
        tag("p", tag("b", who(task, record)), ". ", subject.lead, class_="say"),
        _race(subject, outcome),
        tag("p", outcome.verdict, class_="verdict"),
        *use,
        details(
            "The curves", legend(keys) if keys else None, plots(figures), tag("p", _how(task, runs), class_="note"),
            open_=True,
        ) if figures else None,
        tag("p", "Look closer: ", *links, class_="note links"),
    )  # fmt: skip


def _race(subject: Subject, outcome: Outcome) -> Html:
    """A bar for each way of learning."""
    values = {"before": outcome.before, ALONE: outcome.alone, TOGETHER: outcome.together, POOLED: outcome.pooled}
    rows = []
    for way, value in values.items():
        if math.isfinite(value):
            name, colour = _WAYS[way]
            bar = tag(
                "span", tag("i", class_=f"fill {colour}", style=f"width:{100 * min(1, value):.1f}%"), class_="lane"
            )
            row = (tag("dt", name), tag("dd", bar, tag("b", points(value))))
            rows.append(tag("div", *row, class_="runner us" if way == TOGETHER else "runner"))
    floor = None
    if math.isfinite(outcome.floor):
        floor = tag("p", f"For comparison: {subject.floor_words} gives {points(outcome.floor)}.", class_="note")
    head = tag("p", "Out of 100: ", subject.measure, class_="measure")
    return tag("div", head, tag("dl", *rows, class_="race"), floor)


def _how(task: str, runs: Mapping[str, Record]) -> str:
    if task == "objects":
        return (
            "Left: the mean over all phones through the day; the dots are judged on photos that nobody had. Right: how "
            "many phones recognised how much, in the morning and in the evening."
        )
    passes = _passes(runs[TOGETHER])[-1]
    return (
        f"Across: how often each photo was learnt from, about {passes:.2g} times in the end, and as often by those who "
        "learnt alone and where everything was in one place. Who learns alone is judged at the end; that is the mean."
    )


def _passes(record: Record) -> list[float]:
    """How often the clients' samples have been learnt from by the end of each round."""
    epochs = int(record.experiment.get("training", {}).get("epochs", 1))
    learners = max(1, clients_of(record) - judging(record))
    per_round = int(record.experiment.get("topology", {}).get("per_round", 0)) or learners
    share = 1.0 if record.component("strategy") == POOLED else min(1.0, per_round / learners)
    return [line.round * epochs * share for line in record.rounds]


def _curves(task: str, subject: Subject, runs: Mapping[str, Record]) -> list[Figure]:
    """The main figure over how often each photo was learnt from."""
    traces, keys, words = list[dict[str, object]](), list[Key](), list[str]()
    for cell, record in runs.items():
        passes = _passes(record)
        at = {line.round: passed for line, passed in zip(record.rounds, passes)}
        rounds, values = record.series(subject.metric)
        if not values:
            continue
        name, colour = _WAYS[cell]
        key = Key(f"{task}-{cell}", name, f"@{colour}")
        keys.append(key)
        words.append(f"{name} from {points(values[0])} to {points(values[-1])}")
        line = {"color": key.colour, "width": 3 if cell == TOGETHER else 2, "dash": "dot" if cell == ALONE else "solid"}
        traces.append({
            "type": "scatter", "mode": "lines+markers", "x": [at[r] for r in rounds], "y": [100 * v for v in values],
            "line": line, "marker": {"color": key.colour, "size": 6}, "legendgroup": key.group, "name": name,
            "hovertemplate": "%{y:.1f}",
        })  # fmt: skip
    layout = plain_layout(hovermode="x unified")
    layout["xaxis"]["title"] = axis_title("times each photo was learnt from")
    layout["yaxis"] |= {"title": axis_title("out of 100"), "rangemode": "tozero"}
    title = f"Out of 100: {subject.measure}"
    return [
        Figure(f"story-{task}", title, f"{title}: {'; '.join(words)}.", {"data": traces, "layout": layout}, tuple(keys))
    ]


# ---- What travelled


def _travelled(story: Story) -> Html:
    rows = []
    for task, cells in story.runs.items():
        record = cells[TOGETHER]
        way = "phone to phone" if record.is_tour else "to a server and back"
        rows.append((SUBJECTS[task].title, _KEPT[task], way, human_bytes(record.travelled)))
    models = sum(cells[TOGETHER].travelled for cells in story.runs.values())
    photos = (
        f"For scale: all {number(story.town.photos)} photos of this town are {human_bytes(story.town.bytes)}, because "
        "they are tiny. Models do not grow with the photos, but here they were the heavier load "
        f"({human_bytes(models)}). What was saved is not traffic: it is that nobody had to hand over a photo."
    )
    if models <= story.town.bytes:
        photos = f"For scale: all {number(story.town.photos)} photos of this town are {human_bytes(story.town.bytes)}."
    honest = (
        "Weights of a model are not photos, but they are made of them: someone who sees one person's update may learn "
        "something about what is on that person's photos. Nothing is hidden from the server in these runs."
    )
    return section(
        "travelled", "What travelled, and what never left",
        table("What travelled", ("", "never left", "models went", "in all"), rows, 3),
        tag("p", photos, class_="say"), tag("p", tag("b", "What this does not promise. "), honest, class_="say"),
    )  # fmt: skip


def _further(story: Story, folder: Path) -> Html:
    reports = [
        tag("li", SUBJECTS[task].title, " ", tag("a", "the federation", href=f"{task}/{TOGETHER}/report.html"), ", ",
            tag("a", "the comparison", href=f"{task}/compare.html"), ", ", tag("code", f"wayfare run demo/{task}"))
        for task in story.runs
    ]  # fmt: skip
    spent = [(_STEPS.get(name, name), human_seconds(seconds)) for name, seconds in story.seconds.items()]
    tried = [
        f"wayfare locate PHOTO --index {folder}/places/{TOGETHER}/index",
        f'wayfare search "windmill" --index {folder}/hashing/{TOGETHER}/index',
        f"wayfare graph {folder}/town/psg --run {folder}/scenes/{TOGETHER} --out graphs",
        f"wayfare data show {folder}/town",
    ]
    return section(
        "further", "Go on from here", tag("ul", *reports, class_="plain-list"),
        tag("p", "The models are yours to try:"), tag("pre", tag("code", *(tag("span", line) for line in tried))),
        details("How long it took", table("Time", ("part", "time"), spent)),
    )  # fmt: skip


_STEPS = {"town": "making the town", "locate": "locating photos", "search": "searching, and the graph"}
