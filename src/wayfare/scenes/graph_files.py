"""The files of `wayfare graph`: for each picture its graph as JSON and as a PNG, and one page for all of them."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from wayfare.core.errors import StoreError
from wayfare.pages.dataset_parts import Picture
from wayfare.pages.page import several
from wayfare.scenes.graph import GraphReport, PredictedGraph, as_table, listed
from wayfare.scenes.graph_page import GraphPage, GraphShown, write_graphs
from wayfare.scenes.graph_picture import GraphSketch, SceneDrawn, drawing, photo, png
from wayfare.scenes.scene_model import SceneModel

MOST_SHOWN = 100  # pictures on the page
_QUALITY = 82


@dataclass
class GraphFiles:
    """Writes graphs into a folder as they come."""

    folder: Path
    model: SceneModel
    shown: list[GraphShown] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def add(self, graph: PredictedGraph) -> dict[str, str]:
        """Write one; the names of its files."""
        sketch = GraphSketch(drawn_of(graph, len(self.model.things), self.model.classes))
        left = photo(sketch)
        stem = self._free(graph.picture.file.stem)
        files = {"json": f"{stem}.json", "png": f"{stem}.png"}
        self._write(files["json"], (json.dumps(as_table(graph), indent=1) + "\n").encode())
        self._write(files["png"], png(sketch, left))
        if len(self.shown) < MOST_SHOWN:
            self.shown.append(shown_of(graph, sketch, left))
        return files

    def close(self, run: str, report: GraphReport) -> Path:
        """Write the page and return where it is."""
        notes = list(report.notes)
        if report.unknown:
            notes.append(f"labels that are no class of the model, with their numbers: {listed(report.unknown)}")
        more, skipped = len(self.names) - len(self.shown), [(item.file, item.reason) for item in report.skipped]
        model = f"{self.model.name} {self.model.digest[:12]}"
        page = GraphPage(run, model, self.shown, more=more, skipped=skipped, notes=notes)
        return write_graphs(page, self.folder / "graphs.html")

    def _free(self, stem: str) -> str:
        """The photo's name without its ending; a number tells photos of one name in several folders apart."""
        name, number = stem, 1
        while name.lower() in self.names or name.lower() == "graphs":
            number += 1
            name = f"{stem}-{number}"
        self.names.add(name.lower())
        return name

    def _write(self, name: str, data: bytes) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(data)
        except OSError as error:
            raise StoreError(f"{self.folder / name}: cannot be written: {error.strerror or error}") from error


def drawn_of(graph: PredictedGraph, things: int, classes: tuple[str, ...]) -> SceneDrawn:
    """What is drawn of a graph. Where segments show them, surfaces need no box: it would only be in the way."""
    picture = graph.picture
    boxed = None
    if picture.segments is not None:
        solid = frozenset(classes[:things])
        boxed = frozenset(place for place, label in enumerate(picture.labels) if label in solid)
    return SceneDrawn(
        pixels=picture.pixels,
        size=picture.size,
        names=graph.names,
        boxes=[(a, b, c, d) for a, b, c, d in picture.boxes.tolist()],
        relations=[(one.subject, one.predicate, one.object, one.score) for one in graph.relations],
        segments=picture.segments,
        boxed=boxed,
    )


def shown_of(graph: PredictedGraph, sketch: GraphSketch, left: Image.Image) -> GraphShown:
    """What a page shows of a graph; `left` is its photo as `photo` draws it."""
    picture, names = graph.picture, graph.names
    file = io.BytesIO()
    left.save(file, "JPEG", quality=_QUALITY)
    relations = [(names[one.subject], one.predicate, names[one.object], one.score) for one in graph.relations]
    words = ", ".join(" ".join(triplet[:3]) for triplet in relations[:6]) or "no relation"
    boxes = [", ".join(f"{side:.0f}" for side in box) for box in picture.boxes.tolist()]
    about = f"{picture.size[0]} x {picture.size[1]} pixels · {several(len(names), 'object')}"
    about += f" · image {picture.image_id}" if picture.image_id else ""
    about += "" if picture.pixels is not None else " · the photo itself is missing"
    return GraphShown(
        name=picture.file.name,
        about=about,
        picture=Picture(file.getvalue(), left.width, left.height, f"{picture.file.name} with its objects"),
        graph=drawing(sketch, f"Graph: {words}") if graph.relations else None,
        relations=relations,
        objects=list(zip(names, boxes, picture.scores.tolist())),
        unknown=listed(graph.unknown),
    )
