"""The program that holds indexes and models, and asks them: the same calls, with the same results, as the command line.

It is only told where things are by the server, never by a browser; photos come as pixels that the decoder made.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wayfare.components import allow_code
from wayfare.core import disk
from wayfare.core.errors import DataError, StoreError
from wayfare.experiment import Experiment
from wayfare.gallery import gather
from wayfare.hashing import search as searching
from wayfare.meeting.peer_page import PeerRecord, write_peer_page
from wayfare.pages.dataset import write_dataset
from wayfare.pages.partition import write_partition
from wayfare.pages.record import Record
from wayfare.pages.thumbnails import PictureSource, Thumbnails, evenly
from wayfare.places import locate as locating
from wayfare.places.index import Index
from wayfare.places.page import PlaceSketch
from wayfare.places.page_data import position_text, sketch_of
from wayfare.recipe import toml
from wayfare.report import write_report
from wayfare.scenes.boxes import read_boxes
from wayfare.scenes.graph import LEAST, GraphReport, graphs
from wayfare.scenes.graph import as_result as graph_result
from wayfare.scenes.graph import as_table as graph_table
from wayfare.scenes.scene_model import SceneModel, load_scene_model
from wayfare.serve.frames import Message, serve_requests
from wayfare.serve.run_forms import NONE, form_of, typed
from wayfare.traffic import explain

_SAMPLES = 12  # photos of an index that a page shows
_MOST_OPEN = 16  # indexes and models; those that were not used for longest are closed


# ---- What is there


def about(kind: str, folder: str) -> Message:
    """What a page says of an index or a run, and the size in which its network sees photos."""
    if kind == "places":
        index = _places(folder, _age(Path(folder) / "index.json"))
        found = index.facts
        threshold = found.calibration.threshold if found.calibration else None
        return {
            "photos": len(index), "model": found.model, "run": found.run, "size": list(found.size),
            "threshold": threshold, "radius": found.radius, "cities": len({city for city, _ in found.groups if city}),
            "samples": [str(index.file(row)) for row in evenly(range(found.count), _SAMPLES)],
        }, []  # fmt: skip
    if kind == "search":
        opened = _search(folder, _age(Path(folder)))
        model = opened.model
        facts = {"model": model.digest, "run": model.name, "bits": model.bits, "size": list(model.size)}
        words = {"words": list(model.words[:40]), "example": opened.example()}
        return {**opened.counts(), **facts, **words, "samples": _pictured(opened)}, []
    scenes = _scenes(folder, _age(Path(folder) / "summary.json"))
    return {
        "model": scenes.digest, "run": scenes.name, "classes": list(scenes.classes),
        "predicates": len(scenes.predicates), "detector": find_spec("cv2") is not None,
    }, []  # fmt: skip


def _pictured(index: searching.SearchIndex) -> list[str]:
    """Files of some of its photos."""
    codes = index.codes.get("photos")
    if codes is None:
        return []
    found = [codes.metadata_at(row).get("files", ()) for row in evenly(range(len(codes)), _SAMPLES)]
    return [str(files[0]) for files in found if files]


def _age(file: Path) -> int:
    """Changes when an index or a run is written anew, so that it is opened again."""
    newest = [entry.stat().st_mtime_ns for entry in (file.rglob("*.json") if file.is_dir() else [file])]
    return max(newest, default=0)


@lru_cache(_MOST_OPEN)
def _places(folder: str, age: int) -> Index:
    return Index(folder)


@lru_cache(_MOST_OPEN)
def _search(folder: str, age: int) -> searching.SearchIndex:
    return searching.SearchIndex(folder)


@lru_cache(_MOST_OPEN)
def _scenes(folder: str, age: int) -> SceneModel:
    return load_scene_model(folder)


# ---- Answers


def locate(folder: str, photo: str, name: str, k: int, threshold: float | None) -> Message:
    """What `wayfare locate PHOTO --json` prints; and a map of what is near."""
    index = _places(folder, _age(Path(folder) / "index.json"))
    located = locating.locate(index, [Path(photo)], k, threshold)
    if not located.answers:
        raise DataError(located.skipped[0].reason if located.skipped else "the photo cannot be read")
    located.answers[0] = replace(located.answers[0], photo=Path(name))
    answer = located.answers[0]
    shown = {
        "map": _drawn(sketch_of(index, answer)),
        "position": position_text(answer.position),
        "places": [position_text(place.first.spot) for place in answer.places],
    }
    return {"result": locating.as_result(index, located, k), "shown": shown}, []


def _drawn(sketch: PlaceSketch) -> dict[str, Any]:
    drawing = sketch.drawing
    names = ("others", "photos", "pins", "cross", "scale", "scale_text", "width", "height")
    return {name: getattr(drawing, name) for name in names} | {"places": len(sketch.places)}


def search(folder: str, words: str, photo: str | None, name: str, k: int, find: searching.View | None) -> Message:
    """What `wayfare search --json` prints, for words or a photo."""
    index = _search(folder, _age(Path(folder)))
    query = searching.Query(words) if photo is None else searching.Query(photo=Path(photo))
    found = searching.search(index, [query], k, find)
    asked = query if photo is None else searching.Query(photo=Path(name))
    found.answers = [replace(each, query=asked) for each in found.answers]
    return {"result": searching.as_result(index, found, k)}, []


def graph(
    run: str,
    photo: str,
    *,
    shape: list[int],
    name: str,
    top: int,
    boxes: list[dict[str, Any]] | None,
    score: float,
    least: float | None,
) -> Message:
    """What `wayfare graph PHOTO --json` prints; with `boxes`, as --boxes. The file has plain pixels, in this shape."""

    def read(file: Path) -> np.ndarray:
        return np.fromfile(file, np.uint8).reshape(*shape, 3)

    model = _scenes(run, _age(Path(run) / "summary.json"))
    report, given = GraphReport(), None
    if boxes is not None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "boxes.json"
            disk.write(file, json.dumps({Path(photo).name: boxes}).encode())
            given = read_boxes(file)
    least = LEAST if least is None else least
    made = list(graphs(model, [photo], boxes=given, top=top, score=score, least=least, report=report, read=read))
    report.notes = [note.replace(photo, name) for note in report.notes]
    report.skipped = [item._replace(file=name) for item in report.skipped]
    if not made:
        raise DataError(report.skipped[0].reason if report.skipped else "there is no graph")
    tables = [graph_table(each) | {"file": name} for each in made]
    shown = {"names": made[0].names}
    return {"result": graph_result(run, model, top, tables, report), "shown": shown}, []


# ---- Recipes


def form(recipe: str, texts: dict[str, str]) -> Message:
    """The settings of a recipe for a form, after the parts that were chosen in it."""
    return form_of(Experiment.read(Path(recipe), _names(texts))), []


def _names(texts: dict[str, str]) -> dict[str, Any]:
    """Which parts a form chooses: they decide what other settings there are."""
    return {key: text for key, text in texts.items() if key.endswith(".name") and text != NONE}


def check(recipe: str, texts: dict[str, str]) -> Message:
    """A form's settings as they are given to `wayfare run --set`; what does not fit is refused."""
    names = _names(texts)
    plain = Experiment.read(Path(recipe))
    chosen = Experiment.read(Path(recipe), names)
    others = {key: text for key, text in texts.items() if key not in names}
    changes = typed(plain, {k: t for k, t in names.items() if k in _keys(plain)})
    changes |= {key: text for key, text in names.items() if key not in _keys(plain)} | typed(chosen, others)
    Experiment.read(Path(recipe), changes)
    return {"settings": [f"{key}={toml(value)}" for key, value in changes.items()]}, []


def _keys(experiment: Experiment) -> set[str]:
    return {field["key"] for group in form_of(experiment)["groups"] for field in group["fields"]}


# ---- Data


def traffic(run: str) -> Message:
    """What `wayfare explain-traffic --json` prints, for the experiment of a run."""
    return {"result": explain(Experiment.from_toml(Record.read(Path(run)).recipe))}, []


def dataset(path: str, out: str) -> Message:
    """The page of `wayfare data show`."""
    collection = gather(Path(path))
    write_dataset(collection, Path(out))
    return {"sets": [{"name": found.name, "layout": found.layout} for found in collection.sets]}, []


def split(run: str, out: str) -> Message:
    """The page of `wayfare split`, of the partition that a run was made with."""
    summary, thumbnails = Record.read(Path(run)).partition, Thumbnails()
    if not summary:
        raise StoreError("this run has no partition yet")
    write_partition(summary, Path(out), lambda file, side: thumbnails.picture(PictureSource(Path(file), ""), side))
    return {"table": dict(summary.get("table", {}))}, []


def report(run: str, out: str) -> Message:
    """The page of `wayfare report`."""
    write_report(Path(run), Path(out))
    return {}, []


def device(home: str, out: str) -> Message:
    """The page of a device that meets others, as `wayfare peer show` writes it."""
    write_peer_page(PeerRecord.read(Path(home)), Path(out))
    return {}, []


_HANDLERS: dict[str, Callable[..., Message]] = {
    "about": about, "locate": locate, "search": search, "graph": graph, "form": form, "check": check,
    "traffic": traffic, "dataset": dataset, "split": split, "report": report, "device": device,
}  # fmt: skip

if __name__ == "__main__":
    torch.set_num_threads(1)
    allow_code(*sys.argv[1:])
    serve_requests(_HANDLERS)
