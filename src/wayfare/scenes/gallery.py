"""What the page shows of scene graphs: photographs with everything drawn over them, and the long tail in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from wayfare.core.errors import DataError
from wayfare.io.findings import Problems
from wayfare.pages.counting import histogram
from wayfare.pages.dataset_parts import Bars, Picture, SceneShown
from wayfare.pages.gallery_parts import Gathered
from wayfare.pages.thumbnails import PictureSource, Thumbnails, evenly
from wayfare.scenes.data import psg
from wayfare.scenes.data.scene_graphs import SceneGraphs
from wayfare.scenes.overlay import MOST, Graph, draw

_SCENES = 6
_TRIES = 40  # pictures that are opened to find them
_SOME = 5_000  # of the pictures, among which they are looked for
_FEWEST, _MANY = 3, 14  # relations of a picture that is shown
_LARGEST = 2_000_000  # pixels


def gather(path: Path, thumbnails: Thumbnails) -> Gathered:
    """Of one psg.json, or of a folder with one for each client."""
    graphs = [psg.load(file) for file in _files(path)]
    scenes = next((scenes for part in graphs if (scenes := _scenes(part, thumbnails))), [])
    counts: Counter[str] = Counter()
    problems = Problems()
    for part in graphs:
        counts.update(part.counts())
        problems.count += part.problems.count
        problems.found += part.problems.found
    shown: dict[str, int | float | str] = {"files": len(graphs)} if len(graphs) > 1 else {}
    shown |= {name: counts[name] for name in ("images", "objects", "relations", "test images")}
    shown |= {"object classes": len(graphs[0].classes), "predicates": len(graphs[0].predicates)}
    return Gathered(counts=shown, problems=problems, scenes=scenes, bars=_bars(graphs))


def _files(path: Path) -> list[Path]:
    """A folder of many files is read file by file."""
    if not path.is_dir() or any((path / name).is_file() for name in ("psg.json", "psg.json.gz")):
        return [path]
    files = sorted(file for file in path.iterdir() if file.name.endswith((".json", ".json.gz")))
    return [file for file in files if psg.recognises(file)]


# ---- Pictures


def _scenes(graphs: SceneGraphs, thumbnails: Thumbnails) -> list[SceneShown]:
    scenes: list[SceneShown] = []
    for index in _ranked(graphs)[:_TRIES]:
        if len(scenes) < _SCENES and (made := _scene(graphs, index, thumbnails)) is not None:
            scenes.append(made)
    return scenes


def _ranked(graphs: SceneGraphs) -> list[int]:
    """Pictures that are there, those first that show predicates which those before them do not, rare ones above all."""
    relations = np.diff(graphs.relation_offsets)
    some = evenly(np.flatnonzero((relations >= _FEWEST) & (relations <= _MANY)), _SOME)
    available = [
        index for index in some or evenly(np.flatnonzero(relations), _SOME) if graphs.picture(index) is not None
    ]
    shows = np.zeros((len(available), len(graphs.predicates)), bool)
    for place, index in enumerate(available):
        shows[place, graphs[index].relations[:, 2]] = True
    whole = np.array([2.0 if graphs.panoptic(index) is not None else 1.0 for index in available])
    worth = 1 / np.sqrt(np.bincount(graphs.relations[:, 2], minlength=len(graphs.predicates)).clip(min=1))
    order: list[int] = []
    left = np.ones(len(available), bool)
    while left.any() and len(order) < _TRIES:
        best = int(np.argmax(np.where(left, whole * (shows @ worth), -1)))
        left[best] = False
        order.append(available[best])
        worth = np.where(shows[best], worth / 4, worth)
    return order


def _scene(graphs: SceneGraphs, index: int, thumbnails: Thumbnails) -> SceneShown | None:
    file = graphs.picture(index)
    pixels = thumbnails.pixels(file) if file is not None else None
    if pixels is None or pixels.shape[0] * pixels.shape[1] > _LARGEST:
        return None
    graph, classes = graphs[index], graphs.classes
    # PSG's sky-other-merged and grass-merged are sky and grass to a reader
    names = [classes[label].removesuffix("-merged").removesuffix("-other") for label in graph.labels]
    triplets = list(dict.fromkeys((names[s], graphs.predicates[p], names[o]) for s, o, p in graph.relations.tolist()))
    words = f"{graphs.files[index]}: {', '.join(' '.join(triplet) for triplet in triplets[:MOST])}"
    boxes = [(float(a), float(b), float(c), float(d)) for a, b, c, d in graph.boxes]
    segments = _segments(graphs, index, thumbnails)
    # a surface is seen by its colour; its box would only be in the way
    boxed = None if segments is None else np.flatnonzero(graph.labels < len(graphs.things)).tolist()
    over = Graph(names, boxes, _chosen(graphs, graph.relations), segments, boxed)
    jpeg, width, height = draw(pixels, over)
    plain = thumbnails.picture(PictureSource(pixels, str(graphs.files[index])))
    return None if plain is None else SceneShown(plain, Picture(jpeg, width, height, words), triplets)


def _chosen(graphs: SceneGraphs, relations: np.ndarray) -> list[tuple[int, str, int]]:
    """What may be drawn: each pair once, with its rarest predicate, and the rarest of these first."""
    often = np.bincount(graphs.relations[:, 2], minlength=len(graphs.predicates))
    order = np.argsort(often[relations[:, 2]], kind="stable")
    by_pair: dict[tuple[int, int], str] = {}
    for subject, other, predicate in relations[order].tolist():
        if subject != other:
            by_pair.setdefault((subject, other), graphs.predicates[predicate])
    return [(subject, word, other) for (subject, other), word in by_pair.items()]


def _segments(graphs: SceneGraphs, index: int, thumbnails: Thumbnails) -> np.ndarray | None:
    if graphs.panoptic(index) is None:
        return None
    try:
        return graphs.segments(index)
    except DataError as error:
        thumbnails.broken.append(str(error))
        return None


# ---- Numbers


def _bars(graphs: Sequence[SceneGraphs]) -> list[Bars]:
    predicates: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for part in graphs:
        predicates.update(_by_name(part.predicates, part.relations[:, 2]))
        kinds.update(_by_name(part.classes, part.labels))
    relations = np.concatenate([np.diff(part.relation_offsets) for part in graphs])
    objects = np.concatenate([np.diff(part.object_offsets) for part in graphs])
    return [
        histogram("Relations in a picture", "pictures", relations, "relations"),
        histogram("Objects in a picture", "pictures", objects, "objects"),
        Bars("Predicates", "relations", list(predicates), list(predicates.values()), log=True),
        Bars("Kinds of objects", "objects", list(kinds), list(kinds.values()), log=True),
    ]


def _by_name(names: Sequence[str], values: np.ndarray) -> dict[str, int]:
    counts = np.bincount(values, minlength=len(names))
    return {name: int(count) for name, count in zip(names, counts) if count}
