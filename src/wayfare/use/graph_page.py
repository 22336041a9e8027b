"""The files of `wayfare graph`: for each picture its graph as JSON and as a PNG, and one page for all of them."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from wayfare.errors import StoreError
from wayfare.reports.dataset_parts import Picture
from wayfare.reports.graph_page import Page, Shown, write_graphs
from wayfare.reports.graph_picture import Drawn, Sketch, photo, png, svg
from wayfare.reports.page import several
from wayfare.use.graph import SceneGraph, Told, as_table, listed
from wayfare.use.scene_model import SceneModel

MOST_SHOWN = 100  # pictures on the page
_QUALITY = 82


@dataclass
class Album:
    """Writes graphs into a folder as they come."""

    folder: Path
    model: SceneModel
    shown: list[Shown] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def add(self, graph: SceneGraph) -> dict[str, str]:
        """Write one; the names of its files."""
        sketch = Sketch(drawn_of(graph, len(self.model.things), self.model.classes))
        left = photo(sketch)
        stem = self._free(graph.seen.file.stem)
        files = {"json": f"{stem}.json", "png": f"{stem}.png"}
        self._write(files["json"], (json.dumps(as_table(graph), indent=1) + "\n").encode())
        self._write(files["png"], png(sketch, left))
        if len(self.shown) < MOST_SHOWN:
            self.shown.append(shown_of(graph, sketch, left))
        return files

    def close(self, run: str, told: Told) -> Path:
        """Write the page and return where it is."""
        notes = list(told.notes)
        if told.unknown:
            notes.append(f"labels that are no class of the model, with their numbers: {listed(told.unknown)}")
        more, skipped = len(self.names) - len(self.shown), [(item.file, item.reason) for item in told.skipped]
        page = Page(run, f"{self.model.name} {self.model.digest[:12]}", self.shown, more, skipped, notes)
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


def drawn_of(graph: SceneGraph, things: int, classes: tuple[str, ...]) -> Drawn:
    """What is drawn of a graph. Where segments show them, surfaces need no box: it would only be in the way."""
    seen = graph.seen
    boxed = None
    if seen.segments is not None:
        solid = frozenset(classes[:things])
        boxed = frozenset(place for place, label in enumerate(seen.labels) if label in solid)
    return Drawn(
        seen.pixels, seen.size, graph.names, [(a, b, c, d) for a, b, c, d in seen.boxes.tolist()],
        [(one.subject, one.predicate, one.object, one.score) for one in graph.relations], seen.segments, boxed,
    )  # fmt: skip


def shown_of(graph: SceneGraph, sketch: Sketch, left: Image.Image) -> Shown:
    """What a page shows of a graph; `left` is its photo as `photo` draws it."""
    seen, names = graph.seen, graph.names
    file = io.BytesIO()
    left.save(file, "JPEG", quality=_QUALITY)
    relations = [(names[one.subject], one.predicate, names[one.object], one.score) for one in graph.relations]
    told = ", ".join(" ".join(triplet[:3]) for triplet in relations[:6]) or "no relation"
    boxes = [", ".join(f"{side:.0f}" for side in box) for box in seen.boxes.tolist()]
    about = f"{seen.size[0]} x {seen.size[1]} pixels · {several(len(names), 'object')}"
    about += f" · image {seen.image_id}" if seen.image_id else ""
    about += "" if seen.pixels is not None else " · the photo itself is not there"
    return Shown(
        seen.file.name,
        about,
        Picture(file.getvalue(), left.width, left.height, f"{seen.file.name} with its objects"),
        svg(sketch, f"Graph: {told}") if graph.relations else None,
        relations,
        list(zip(names, boxes, seen.scores.tolist())),
        listed(graph.unknown),
    )
