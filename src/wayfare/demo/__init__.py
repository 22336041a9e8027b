"""The whole story in one command: a town is made, four federations learn in it, and what they learnt is put to use.

    plan.py    what is trained: recipes/demo, together, alone, and with all data in one place
    uses.py    three photos are located, two texts looked for, one scene graph drawn
    beside.py  a run in a process of its own, where there are several cores
    city.py    a city from above

All of it goes to one folder, and `index.html` there tells it. What is done already is not done again, so that the same
command goes on where it was interrupted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from wayfare.core import disk
from wayfare.data.town import map as town_map
from wayfare.data.town.crowd import city_of
from wayfare.data.town.make import SIZES, make
from wayfare.data.town.model import City
from wayfare.demo import plan, uses
from wayfare.demo.beside import Beside
from wayfare.demo.city import picture_of
from wayfare.errors import ConfigError
from wayfare.experiment import Experiment
from wayfare.gallery.album import Album, Wanted, evenly
from wayfare.reports import compare, story
from wayfare.reports.record import Record
from wayfare.reports.report import write_report
from wayfare.reports.story_parts import Story, Town
from wayfare.reports.tour_film import ABSENT
from wayfare.reports.tour_player import Ground
from wayfare.reports.tour_record import Tour
from wayfare.runner import Listener, resume, run

_SAMPLES = 12  # photos to look at
_COLOURS = ("c1", "c2", "c3", "c5", "c4", "c6", "c7", "c8", "c10", "c11")  # of clients; c9 is grey
_TITLES = {
    "places": "where was a photo taken?",
    "objects": "what is in it? (learnt by meeting, without a server)",
    "scenes": "how do things in it relate?",
    "hashing": "which photos belong to these words?",
}
_STEPS = 4 + len(_TITLES)


class Stage(Protocol):
    """Where the progress of the demo is shown."""

    def step(self, number: int, steps: int, title: str) -> None:
        """The next part begins."""

    def show(self, text: str, done: int, total: int) -> None:
        """How far it is."""

    def watch(self, rounds: int, label: str) -> Listener:
        """What listens to a run."""


class _Clock:
    """Announces the parts and keeps, in a file, how long each took in all: a demo may have been interrupted."""

    def __init__(self, stage: Stage, file: Path) -> None:
        self.stage, self.file, self.number = stage, file, 0
        self.seconds: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}

    @contextmanager
    def part(self, name: str, title: str) -> Iterator[None]:
        self.number += 1
        self.stage.step(self.number, _STEPS, title)
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began
            disk.write(self.file, json.dumps(self.seconds).encode())


def make_demo(
    out: Path, recipes: Mapping[str, Path], machine: Any, stage: Stage, quick: bool = False
) -> dict[str, Any]:
    """Make everything in this folder, on an engine that is open; `recipes` has the files of `plan.RECIPES`."""
    out.mkdir(parents=True, exist_ok=True)
    clock, spec = _Clock(stage, out / "seconds.json"), plan.town_spec(quick)
    experiments = plan.experiments(recipes, out, quick)
    size = SIZES[spec.size]
    with clock.part("town", f"making a town: {size.cities} cities, {size.cities * size.shots:,} photos"):
        made = make(out / "town", spec, progress=stage.show)
    runs: dict[str, dict[str, Record]] = {}
    for task, cells in experiments.items():
        with clock.part(task, f"{task}: {_TITLES[task]}"):
            runs[task] = _runs(cells, out / task, machine, stage)
    cities = {name: town_map.build(name, spec.seed, size.blocks) for name in made["cities"]}
    homes = {task: out / task / plan.TOGETHER for task in plan.TASKS}
    with clock.part("locate", "using it: where were three photos taken?"):
        locating = uses.locate_three(homes["places"], cities, stage.show)
    with clock.part("search", "using it: two searches by words, and a scene graph"):
        searches, graph = uses.search_twice(homes["hashing"], stage.show), uses.draw_graph(homes["scenes"])
    with clock.part("page", "writing the page"):
        town = _town(experiments["places"][plan.TOGETHER], cities)
        _write_reports(runs, out)
        ground = _ground(experiments["objects"][plan.TOGETHER], runs["objects"][plan.TOGETHER])
        told = Story(town, runs, locating, searches, graph, ground, dict(clock.seconds), quick)
        page = story.write_story(told, out / "index.html")
    results = {task: {cell: record.summary for cell, record in cells.items()} for task, cells in runs.items()}
    return {"page": str(page), "town": made, "seconds": clock.seconds, "quick": quick, "runs": results}


def _runs(cells: Mapping[str, Experiment], folder: Path, machine: Any, stage: Stage) -> dict[str, Record]:
    """All cells of a task; on several cores the one with all data in one place runs beside the others."""
    pooled, place = cells[plan.POOLED], folder / plan.POOLED
    needs_others = getattr(pooled.partition, "path", None) is not None  # their partition
    if getattr(machine, "workers", 1) < 2 or needs_others or (place / "summary.json").exists():
        return {cell: _record(one, folder / cell, machine, stage) for cell, one in cells.items()}
    if hasattr(pooled.task, "ready"):  # both would look at all photos otherwise
        pooled.task.ready(stage.show)
    with Beside(pooled, place) as beside:
        others = {cell: one for cell, one in cells.items() if cell != plan.POOLED}
        found = {cell: _record(one, folder / cell, machine, stage) for cell, one in others.items()}
        stage.show(f"{folder.name}, {plan.POOLED}, in a process beside", 0, pooled.rounds)
        beside.wait()
    return {**found, plan.POOLED: _record(pooled, place, machine, stage)}


def _record(experiment: Experiment, place: Path, machine: Any, stage: Stage) -> Record:
    """The finished run in this folder: begun, gone on with, or found as it is."""
    label = f"{place.parent.name}, {place.name}"
    if not (place / "experiment.toml").exists():
        run(experiment, place, machine, listen=stage.watch(experiment.rounds, label))
    elif not experiment.is_in((place / "experiment.toml").read_text(encoding="utf-8")):
        raise ConfigError(f"{place} holds a run with other settings: remove it, or choose another --out")
    elif not (place / "summary.json").exists():
        resume(place, machine, listen=stage.watch(experiment.rounds, label))
    return Record.read(place)


def _write_reports(runs: Mapping[str, Mapping[str, Record]], out: Path) -> None:
    """A page of each federation, and one of it beside the others of its task."""
    for task, cells in runs.items():
        write_report(out / task / plan.TOGETHER)
        groups = tuple(compare.Group(cell, (record,)) for cell, record in cells.items())
        compare.write_page(compare.Comparison(groups), out / task / "compare.html", f"demo: {task}")


def _town(experiment: Experiment, cities: Mapping[str, City]) -> Town:
    """The cities with whose photographs are where, and some of these."""
    split, grounds = experiment.split(), experiment.task.grounds  # type: ignore[attr-defined]
    photos, pool = grounds.photos, grounds.pool
    owner = np.full(len(photos), -1)
    for client, samples in enumerate(split):
        owner[pool[samples]] = client
    aside = set(experiment.crowd(split).validation)
    maps = []
    for name, city in cities.items():
        rows = np.flatnonzero(photos.city == name)
        held = sorted(set(owner[rows].tolist()) - {-1})
        looks = [_COLOURS[held.index(o) % len(_COLOURS)] if o >= 0 else "nobody" for o in owner[rows].tolist()]
        clients = [split.id(client) for client in held]
        note = f"{len(clients)} clients" if len(clients) else "nobody learns here: the test"
        if waiting := len(aside & set(clients)):
            note += f", {waiting} of them set aside to judge"
        maps.append(uses.map_of(city, uses.points_of(city, photos, rows, looks), note))
    flat = np.flatnonzero(~photos.pano) if photos.pano is not None else np.arange(len(photos))
    paths, album = photos.paths(), Album()
    shown = [Wanted(paths[row], f"a photo of {photos.city[row]}", str(photos.city[row]).capitalize())
             for row in evenly(flat, _SAMPLES)]  # fmt: skip
    size = sum(path.stat().st_size for path in paths)
    return Town(len(photos), size, maps, len(split), album.pictures(shown, 240))


def _ground(experiment: Experiment, record: Record) -> Ground | None:
    """The city under those who meet. Their film has its own middle: where that is, they themselves tell."""
    tour, topology = Tour.read(record), experiment.topology
    kind, _, people = topology.traces.partition(":")  # type: ignore[attr-defined]
    if tour is None or tour.film is None or kind != "town":
        return None
    film, there = tour.film, tour.film.positions[..., 0] != ABSENT
    frame = int(np.argmax(there.sum(1)))
    cast = topology.cast(len(experiment.split()), experiment.seed)  # type: ignore[attr-defined]
    places = cast.positions(int(film.slots[frame]))[there[frame]]
    east, north = np.median(places - film.positions[frame][there[frame]] * film.step, axis=0).tolist()
    city = city_of(int(people))
    return Ground(picture_of(city, 900).jpeg, -east, -north, city.width - east, city.height - north)
