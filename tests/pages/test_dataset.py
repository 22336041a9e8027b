"""The page about a data set, from plain data: what is on it, hostile names, numbers by hand, a real browser."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from browser import browse, painted
from wayfare.core.errors import StoreError
from wayfare.pages.dataset import page_of, write_dataset
from wayfare.pages.dataset_figures import bars_figure, map_figure, map_keys
from wayfare.pages.dataset_parts import Bars, Card, Collection, DataSet, Layer, Map, Picture, SceneShown, Strip
from wayfare.scenes.overlay import WIDTH, Graph, draw

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>document.title='pwned'</script>",
    '"><svg onload=alert(1)>',
    "%{x} <b>bold</b> &lt;i&gt; \x1b[31m \u202e",
)
OURS = """html head meta link title style body a header p h1 span nav main section h2 h3 h4 div dl dt dd b ul li
figure img figcaption button i details summary table caption thead tbody tr th td noscript footer script"""


def picture(colour: tuple[int, int, int] = (200, 30, 30), words: str = "a red wall", caption: str = "") -> Picture:
    file = io.BytesIO()
    Image.new("RGB", (64, 48), colour).save(file, "JPEG")
    return Picture(file.getvalue(), 64, 48, words, caption)


def collection(text: str = "plain") -> Collection:
    """Something in every part of the page, with the same text wherever a file may bring its own."""
    shot = picture(words=text, caption=text)
    one = DataSet(
        name=text,
        layout="msls",
        description=text,
        counts={text: 200, "photos": 1234},
        problems=[f"{text}, number {number}" for number in range(30)],
        problem_count=31,
        strips=[Strip(text, [shot] * 3, text), Strip("twice", [shot] * 5, pairs=True)],
        scenes=[SceneShown(shot, shot, [(text, text, text)] * 14)],
        cards=[Card(shot, [text] * 30, [text])],
        classes=[Strip(text, [shot], text)],
        bars=[Bars(text, text, [text, "b"], [5, 2], log=True), Bars(text, text, [text], [1], ordered=True, axis=text)],
    )
    other = DataSet(name="traces", layout="traces", description="ways", counts={"devices": 3})
    layers = [Layer(text, "ways", [0, 10, None, 5], [0, 10, None, 5]), Layer("photos", "photos", [1], [2], [text])]
    return Collection(text, text, [one, other], [Map(text, layers, text)], {"size": text})


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, {key: value or "" for key, value in attrs}))

    def handle_data(self, data: str) -> None:
        if self.seen and self.seen[-1][0] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def parts(self) -> list[str]:
        return [attributes["id"] for tag, attributes in self.seen if tag == "section"]

    @property
    def images(self) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.seen if tag == "img"]


def test_every_part_is_there_and_the_menu_leads_to_it() -> None:
    page = Page(page_of(collection()))
    assert page.parts == ["found", "problems", "pictures", "map", "scenes", "words", "classes", "distributions"]
    links = [attributes["href"] for tag, attributes in page.seen if tag == "a"]
    assert links[1:] == [f"#{part}" for part in page.parts]
    for words in ("1,234", "plain, number 19", "and 11 more", "31 problems were found", "size plain", "and 2 more"):
        assert words in page.text, words
    assert "plain, number 20" not in page.text
    # 3 in a strip, two pairs of five, a scene's two, a card, a class
    assert len(page.images) == 3 + 4 + 2 + 1 + 1
    plots = [attributes["id"] for _, attributes in page.seen if attributes.get("class") == "plot"]
    assert plots == ["map-0", "bars-1", "bars-0"]


def test_pictures_are_in_the_page_whole() -> None:
    for attributes in Page(page_of(collection())).images:
        kind, data = attributes["src"].split(",", 1)
        assert kind == "data:image/jpeg;base64" and attributes["alt"] == "plain"
        with Image.open(io.BytesIO(base64.b64decode(data, validate=True))) as image:
            assert image.size == (int(attributes["width"]), int(attributes["height"])) == (64, 48)


def test_only_what_there_is_has_a_part() -> None:
    nothing = DataSet(name="a", layout="traces", description="ways", counts={"devices": 2})
    page = Page(page_of(Collection("a", "somewhere/a", [nothing])))
    assert page.parts == ["found"] and "No problems were found." in page.text and "somewhere/a" in page.text
    assert "pictures" not in page.text


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_are_text(text: str) -> None:
    written = page_of(collection(text))
    page = Page(written)
    assert {tag for tag, _ in page.seen} <= set(OURS.split())
    assert not any(name.startswith("on") for _, attributes in page.seen for name in attributes)
    assert all(image["src"].startswith("data:image/jpeg;base64,") for image in page.images)
    assert len([tag for tag, _ in page.seen if tag == "script"]) == 3
    shown = text.replace("\x1b", "\N{REPLACEMENT CHARACTER}").replace("\u202e", "\N{REPLACEMENT CHARACTER}")
    assert page.text.count(shown) > 20
    assert "\x1b" not in written and "\u202e" not in written


def test_nothing_is_fetched() -> None:
    mine = re.sub(r"<script>.*?</script>", "", page_of(collection()), flags=re.DOTALL)
    assert "http:" not in mine and "https:" not in mine and "url(" not in mine
    policy = next(attributes["content"] for _, attributes in Page(mine).seen if "http-equiv" in attributes)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


def test_the_page_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    page = write_dataset(collection(), tmp_path / "new" / "page.html")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        write_dataset(collection(), tmp_path / "file" / "page.html")


# ---- Figures


def test_the_most_frequent_names_are_shown() -> None:
    bars = Bars("Predicates", "relations", [f"p{n}" for n in range(60)], list(range(60)), log=True)
    figure = bars_figure("f", bars)
    trace, axis = figure.spec["data"][0], figure.spec["layout"]["yaxis"]
    assert trace["x"] == list(range(59, 19, -1)) and axis["ticktext"][0] == "p59" and len(axis["ticktext"]) == 40
    assert figure.spec["layout"]["xaxis"]["type"] == "log"
    assert figure.description == "Predicates, 40 of 60 shown; most relations: p59 with 59; fewest: p20 with 20."


def test_what_has_an_order_keeps_it() -> None:
    figure = bars_figure("f", Bars("Hours", "photos", [str(h) for h in range(24)], [h % 5 for h in range(24)], True))
    trace = figure.spec["data"][0]
    assert trace["y"] == [h % 5 for h in range(24)] and trace["x"] == list(range(24))
    assert figure.spec["layout"]["xaxis"]["ticktext"] == [str(h) for h in range(0, 24, 2)]


def test_a_map_has_one_scale_and_the_same_colours_everywhere() -> None:
    ways = Layer("tourists", "ways", [0, 100, None], [0, 50, None])
    day, night = Layer("photos", "photos", [1], [1]), Layer("photos by night", "photos", [2], [2])
    maps = [Map("a", [day, ways]), Map("b", [night, day])]
    keys = map_keys(maps)
    assert [key.colour for key in keys.values()] == ["@c3", "@c2", "@c10"]
    figure = map_figure("m", maps[0], keys, 500)
    assert [trace["name"] for trace in figure.spec["data"]] == ["tourists", "photos"]  # ways lie below
    layout = figure.spec["layout"]
    assert layout["yaxis"]["scaleanchor"] == "x" and layout["yaxis"]["scaleratio"] == 1
    assert layout["xaxis"]["range"] == pytest.approx([-9, 109]) and layout["yaxis"]["range"] == pytest.approx([-7, 57])
    assert figure.description == "Map of a: 2 points of tourists, 1 points of photos."


def test_a_few_strays_do_not_shrink_the_map() -> None:
    x: list[float | None] = [float(n) for n in range(200)]
    near = map_figure("m", shown := Map("a", [Layer("photos", "photos", x, x)]), map_keys([shown]), 500)
    assert near.spec["layout"]["xaxis"]["range"] == pytest.approx([-12.96, 211.96])
    x[7] = 90_000.0
    far = map_figure("m", shown := Map("a", [Layer("photos", "photos", x, x)]), map_keys([shown]), 500)
    assert far.spec["layout"]["xaxis"]["range"][1] < 250
    assert far.spec["data"][0]["x"][7] == 90_000.0


def test_figures_are_what_plotly_understands() -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects")
    whole = collection(HOSTILE[0])
    keys = map_keys(whole.maps)
    figures = [map_figure("m", shown, keys, 500) for shown in whole.maps]
    figures += [bars_figure("b", bars) for found in whole.sets for bars in found.bars]
    fixed = Map("a", [Layer("signs", "fixed", [1], [1], ["a"])])
    figures.append(map_figure("f", fixed, map_keys([fixed]), 1030))
    for figure in figures:
        graph_objects.Figure(data=painted(figure.spec["data"]), layout=painted(figure.spec["layout"]))


# ---- Drawing over a photograph


def drawn(graph: Graph, pixels: np.ndarray | None = None) -> np.ndarray:
    jpeg, width, height = draw(np.full((48, 64, 3), 100, np.uint8) if pixels is None else pixels, graph)
    with Image.open(io.BytesIO(jpeg)) as image:
        assert image.size == (width, height)
        return np.asarray(image.convert("RGB")).astype(int)


def halves() -> np.ndarray:
    """0 on the left, 1 on the right, and nothing at the bottom."""
    segments = np.zeros((48, 64), np.int16)
    segments[:, 32:] = 1
    segments[40:] = -1
    return segments


BOXES = [(0.0, 0.0, 32.0, 40.0), (32.0, 0.0, 64.0, 40.0)]


def test_segments_are_tinted_and_what_belongs_to_none_is_not() -> None:
    image = drawn(Graph(["wall", "sky"], BOXES, [], halves()))
    assert image.shape == (480, WIDTH, 3)
    assert np.abs(image[450, 300] - 100).max() < 12
    left, right = image[100, 100], image[100, 500]
    # 0.58 of the photograph and 0.42 of the first colour, hsv(0, 0.6, 1) = (255, 102, 102)
    assert np.abs(left - (165, 101, 101)).max() < 12
    assert np.abs(left - right).max() > 40


def test_a_relation_is_an_arrow_with_its_words() -> None:
    graph = Graph(["a", "b"], BOXES, [(0, "on", 1)], halves())
    told, plain = drawn(graph), drawn(replace(graph, relations=[]))
    changed = np.abs(told - plain).max(axis=2) > 60
    # the middles are at 155, 195 and 475, 195 (the pixels nearest to them, enlarged ten times)
    assert changed[185:205, 200:280].any() and changed[185:205, 360:440].any()
    assert told[changed].max() > 240 and told[changed].min() < 40  # white on black
    assert not changed[:150, 200:300].any() and not changed[300:, 200:300].any()


def test_relations_between_neighbours_are_left_out_if_others_can_be_seen() -> None:
    boxes = [(0.0, 0.0, 4.0, 4.0), (1.0, 0.0, 5.0, 4.0), (50.0, 30.0, 60.0, 40.0)]
    near, both = Graph(list("abc"), boxes, [(0, "in", 2)]), Graph(list("abc"), boxes, [(0, "near", 1), (0, "in", 2)])
    assert np.array_equal(drawn(near), drawn(both))
    assert not np.array_equal(drawn(near), drawn(replace(both, relations=[(0, "near", 1)])))


def test_only_what_is_to_have_a_box_has_one() -> None:
    graph = Graph(["a", "b"], [(4.0, 4.0, 20.0, 20.0), (40.0, 4.0, 60.0, 20.0)], [(0, "on", 1)])
    both, one = drawn(graph), drawn(replace(graph, boxed=[1]))
    assert np.abs(both[100:180, 40:44] - 100).max() > 60 and np.abs(one[100:180, 36:48] - 100).max() < 12
    assert np.array_equal(both[:, 420:], one[:, 420:])


def test_odd_graphs_are_drawn_too() -> None:
    boxes = [(-50.0, 90.0, 900.0, -3.0), (5.0, 5.0, 5.0, 5.0)]
    graph = Graph(["名" * 90, "\x00<b>"], boxes, [(0, HOSTILE[1], 1), (1, "on", 1)], np.zeros((3, 3), int))
    assert drawn(graph).shape == (480, 640, 3)
    wide = drawn(Graph([], [], []), np.full((30, 2000, 3), 9, np.uint8))
    assert wide.shape == (10, WIDTH, 3)


# ---- In a browser


def test_it_draws_in_a_browser_without_complaint(tmp_path: Path) -> None:
    page = write_dataset(collection(HOSTILE[1]), tmp_path / "page.html")
    dom, said = browse(page, tmp_path)
    assert said == []
    assert 'data-drawn="3"' in dom and dom.count('class="main-svg"') >= 3
    assert "<title>pwned" not in dom
