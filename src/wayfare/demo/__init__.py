"""Everything in one command: make a town, train four models in it, use them, and show it all on one page.

    recipes.py         what is trained: recipes/demo, federated, each client alone, and with all data in one place
    uses.py            locates three photos, searches for two words, draws one scene graph
    subprocess_run.py  a run in a process of its own, where there are several cores
    city.py            a city from above
    page.py            the page, from page_parts.py (its data), page_words.py and page_uses.py (its sentences) and
                       page_maps.py (its maps); the template is pages/templates/demo.html

All of it goes to one folder, and `index.html` there shows it. What is done already is not done again, so the same
command continues where it was interrupted.
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
from wayfare.core.errors import ConfigError
from wayfare.demo import recipes as plan
from wayfare.demo import uses
from wayfare.demo.city import picture_of
from wayfare.demo.page import write_demo_page
from wayfare.demo.page_parts import DemoPage, DemoTown
from wayfare.demo.subprocess_run import SubprocessRun
from wayfare.encounters.movie_file import ABSENT
from wayfare.encounters.player import Ground
from wayfare.encounters.record import TourRecord
from wayfare.encounters.town_traces import city_of
from wayfare.experiment import Experiment
from wayfare.pages import compare, compare_page
from wayfare.pages.record import Record
from wayfare.pages.thumbnails import PictureSource, Thumbnails, evenly
from wayfare.partition.file import File
from wayfare.report import write_report
from wayfare.runner import Listener, resume, run
from wayfare.town import map as town_map
from wayfare.town.make import SIZES, make
from wayfare.town.model import City

_SAMPLES = 12  # photos to look at
_COLOURS = ("c1", "c2", "c3", "c5", "c4", "c6", "c7", "c8", "c10", "c11")  # of clients; c9 is grey
_TITLES = {
    "places": "where was a photo taken?",
    "objects": "what does it show? (phones that meet, no server)",
    "scenes": "how do the objects in it relate?",
    "hashing": "which photos match these words?",
}
_STEPS = 4 + len(_TITLES)


class DemoProgress(Protocol):
    """Where the progress of the demo is shown."""

    def step(self, number: int, steps: int, title: str) -> None:
        """The next part begins."""

    def show(self, text: str, done: int, total: int) -> None:
        """How far it is."""

    def watch(self, rounds: int, label: str) -> Listener:
        """What listens to a run."""


class _StepClock:
    """Announces the parts and keeps, in a file, how long each took in all: a demo may have been interrupted."""

    def __init__(self, progress: DemoProgress, file: Path) -> None:
        self.progress, self.file, self.number = progress, file, 0
        self.seconds: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}

    @contextmanager
    def part(self, name: str, title: str) -> Iterator[None]:
        self.number += 1
        self.progress.step(self.number, _STEPS, title)
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began
            disk.write(self.file, json.dumps(self.seconds).encode())


def make_demo(
    out: Path, recipes: Mapping[str, Path], machine: Any, progress: DemoProgress, quick: bool = False
) -> dict[str, Any]:
    """Make everything in this folder, on an engine that is open; `recipes` has the files of `plan.RECIPES`."""
    out.mkdir(parents=True, exist_ok=True)
    clock, spec = _StepClock(progress, out / "seconds.json"), plan.town_spec(quick)
    experiments = plan.experiments(recipes, out, quick)
    size = SIZES[spec.size]
    with clock.part("town", f"making a town: {size.cities} cities, {size.cities * size.shots:,} photos"):
        made = make(out / "town", spec, progress=progress.show)
    runs: dict[str, dict[str, Record]] = {}
    for task, cells in experiments.items():
        with clock.part(task, f"{task}: {_TITLES[task]}"):
            runs[task] = _runs(cells, out / task, machine, progress)
    cities = {name: town_map.build(name, spec.seed, size.blocks) for name in made["cities"]}
    homes = {task: out / task / plan.TOGETHER for task in plan.TASKS}
    with clock.part("locate", "using the models: where were three photos taken?"):
        locate = uses.locate_three(homes["places"], cities, progress.show)
        site = "" if quick else uses.page_in_browser(homes["places"], progress.show)
    with clock.part("search", "using the models: two searches by words, and a scene graph"):
        searches, graph = uses.search_twice(homes["hashing"], progress.show), uses.draw_graph(homes["scenes"])
    with clock.part("page", "writing the page"):
        town = _town(experiments["places"][plan.TOGETHER], cities)
        _write_reports(runs, out)
        ground = _ground(experiments["objects"][plan.TOGETHER], runs["objects"][plan.TOGETHER])
        content = DemoPage(
            town, runs, locate, searches, graph, ground=ground, seconds=dict(clock.seconds), quick=quick,
            site=f"places/{plan.TOGETHER}/{site}" if site else "",
        )  # fmt: skip
        page = write_demo_page(content, out / "index.html")
    results = {task: {cell: record.summary for cell, record in cells.items()} for task, cells in runs.items()}
    return {"page": str(page), "town": made, "seconds": clock.seconds, "quick": quick, "runs": results}


def _runs(cells: Mapping[str, Experiment], folder: Path, machine: Any, progress: DemoProgress) -> dict[str, Record]:
    """All cells of a task; on several cores the one with all data in one place runs at the same time as the others."""
    pooled, place = cells[plan.POOLED], folder / plan.POOLED
    needs_others = isinstance(pooled.partition, File)  # their partition
    if machine.workers < 2 or needs_others or (place / "summary.json").exists():
        return {cell: _record(one, folder / cell, machine, progress) for cell, one in cells.items()}
    pooled.task.prepare(progress.show)  # both would look at all photos otherwise
    with SubprocessRun(pooled, place) as apart:
        others = {cell: one for cell, one in cells.items() if cell != plan.POOLED}
        found = {cell: _record(one, folder / cell, machine, progress) for cell, one in others.items()}
        progress.show(f"{folder.name}, {plan.POOLED}, in a process of its own", 0, pooled.rounds)
        apart.wait()
    return {**found, plan.POOLED: _record(pooled, place, machine, progress)}


def _record(experiment: Experiment, place: Path, machine: Any, progress: DemoProgress) -> Record:
    """The finished run in this folder: begun, gone on with, or found as it is."""
    label = f"{place.parent.name}, {place.name}"
    if not (place / "experiment.toml").exists():
        run(experiment, place, machine, listen=progress.watch(experiment.rounds, label))
    elif not experiment.is_in((place / "experiment.toml").read_text(encoding="utf-8")):
        raise ConfigError(f"{place} holds a run with other settings: remove it, or choose another --out")
    elif not (place / "summary.json").exists():
        resume(place, machine, listen=progress.watch(experiment.rounds, label))
    return Record.read(place)


def _write_reports(runs: Mapping[str, Mapping[str, Record]], out: Path) -> None:
    """A page of each federation, and one of it beside the others of its task."""
    for task, cells in runs.items():
        write_report(out / task / plan.TOGETHER)
        groups = tuple(compare.RunGroup(cell, (record,)) for cell, record in cells.items())
        compare_page.write_page(compare.Comparison(groups), out / task / "compare.html", f"demo: {task}")


def _town(experiment: Experiment, cities: Mapping[str, City]) -> DemoTown:
    """The cities with whose photographs are where, and some of these."""
    split, divided = experiment.split(), experiment.task.loaded.divided  # type: ignore[attr-defined]
    photos, pool = divided.photos, divided.pool
    owner = np.full(len(photos), -1)
    for client, samples in enumerate(split):
        owner[pool[samples]] = client
    aside = set(experiment.clients(split).validation)
    maps = []
    for name, city in cities.items():
        rows = np.flatnonzero(photos.city == name)
        held = sorted(set(owner[rows].tolist()) - {-1})
        looks = [_COLOURS[held.index(o) % len(_COLOURS)] if o >= 0 else "nobody" for o in owner[rows].tolist()]
        clients = [split.id(client) for client in held]
        note = f"{len(clients)} clients" if len(clients) else "the test city, without clients"
        if waiting := len(aside & set(clients)):
            note += f", {waiting} of them for evaluation only"
        maps.append(uses.map_of(city, uses.points_of(city, photos, rows, looks), note))
    flat = np.flatnonzero(~photos.pano) if photos.pano is not None else np.arange(len(photos))
    paths, thumbnails = photos.paths(), Thumbnails()
    shown = [PictureSource(paths[row], f"a photo of {photos.city[row]}", str(photos.city[row]).capitalize())
             for row in evenly(flat, _SAMPLES)]  # fmt: skip
    size = sum(path.stat().st_size for path in paths)
    return DemoTown(len(photos), size, maps, len(split), thumbnails.pictures(shown, 240))


def _ground(experiment: Experiment, record: Record) -> Ground | None:
    """The city under those who meet. Their movie has its own middle: where that is, they themselves tell."""
    tour, topology = TourRecord.read(record), experiment.topology
    kind, _, people = topology.traces.partition(":")  # type: ignore[attr-defined]
    if tour is None or tour.movie is None or kind != "town":
        return None
    movie, there = tour.movie, tour.movie.positions[..., 0] != ABSENT
    frame = int(np.argmax(there.sum(1)))
    cast = topology.participants(len(experiment.split()), experiment.seed)  # type: ignore[attr-defined]
    places = cast.positions(int(movie.slots[frame]))[there[frame]]
    east, north = np.median(places - movie.positions[frame][there[frame]] * movie.step, axis=0).tolist()
    city = city_of(int(people))
    return Ground(picture_of(city, 900).jpeg, -east, -north, city.width - east, city.height - north)
