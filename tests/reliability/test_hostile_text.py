"""Text from elsewhere stays text, wherever it is shown: on the terminal, in logs, on every page.

Ten hostile strings stand for the name of a node, a class, a photograph, a run, a metric, a caption, a reason. On pages
they may make no element, attribute or script; on the terminal no control character and no markup. Reports, comparisons
and data sets have such tests of their own beside them (tests/pages).
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.table import Table
from rich.text import Text

import wayfare.pages
from browser import browse
from faults import tiny
from hostile import HOSTILE, Seen, assert_harmless, assert_same_page, hostile
from wayfare.cli import console, federation_view
from wayfare.cli.console import SafeConsole, Watch, foreign
from wayfare.core.bundle import Bundle
from wayfare.core.protocols import Evaluation, Failure, Policy
from wayfare.core.text import printable, printable_lines
from wayfare.demo.page import page_of as demo_page
from wayfare.demo.page_parts import (
    CityMap,
    DemoPage,
    DemoTown,
    FoundPhoto,
    GraphExample,
    LocatedPhoto,
    LocateExample,
    MapPoint,
    SearchExample,
)
from wayfare.demo.page_words import DEMO_TASKS
from wayfare.engines.local import Local
from wayfare.hashing.page import QueryShown, ResultShown, SearchPage
from wayfare.hashing.page import page_of as search_page
from wayfare.io.pictures import Skipped
from wayfare.pages.compare import compare
from wayfare.pages.compare_page import write_page
from wayfare.pages.dataset_parts import Picture
from wayfare.pages.record import Record
from wayfare.pages.tables import run_table, runs_table
from wayfare.places.calibration import Curve
from wayfare.places.evaluation import Coverage, IndexEvaluation
from wayfare.places.evaluation_page import evaluation_page
from wayfare.places.page import LocatePage, PhotoAnswer, PlaceShown, PlaceSketch
from wayfare.places.page import page_of as locate_page
from wayfare.report import write_report
from wayfare.runner import run
from wayfare.scenes.graph_page import GraphPage, GraphShown
from wayfare.scenes.graph_page import page_of as graph_page
from wayfare.scenes.graph_picture import GraphSketch, SceneDrawn, drawing
from wayfare.strategies.fedavg import FedAvg

# ---- the one function


@hostile
def test_printable_text_is_one_short_line(text: str) -> None:
    assert printable(text).isprintable() and len(printable(text)) <= 300
    assert printable_lines(text, 1000).replace("\n", "").isprintable()


def test_printable_text_by_hand() -> None:
    assert printable("a\tb\x1b[2J\u202ec") == "a b\ufffd[2J\ufffdc"
    assert printable("abcdef", 4) == "abc…" and printable("abcd", 4) == "abcd"
    assert printable_lines("a\nb\x1b") == "a\nb\ufffd"


# ---- the terminal


def shown(draw: Callable[[SafeConsole], None]) -> str:
    """What a console writes to a terminal that understands commands, without those of rich's own colours."""
    file = io.StringIO()
    draw(SafeConsole(file=file, force_terminal=True, color_system=None, width=200))
    return file.getvalue()


@hostile
def test_a_console_writes_no_control_character_and_takes_no_foreign_markup(text: str) -> None:
    table = Table("name", title=foreign(text))
    table.add_row(foreign(text))
    table.add_row(Text(text[:1000]))
    found = shown(lambda to: (to.print(f"[yellow]warning[/yellow] {foreign(text)}"), to.print(table)))
    assert_harmless(found)
    assert found.replace("\n", "").startswith(f"warning {printable(text)}"[:40])
    assert_harmless(shown(lambda to: to.print(text[:1000])))  # even where somebody forgot


@hostile
def test_a_run_is_watched(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a run, of a metric, of what is prepared; warnings that quote a device."""
    line = {"round": 1, "bytes_up": 1, "bytes_down": 1, "metrics": {text: 0.5}, "refused": [{}], "cold": [],
            "void": True, "seconds": 1.0, "shortened": [{}]}  # fmt: skip

    def draw(to: SafeConsole) -> None:
        monkeypatch.setattr(console, "err", to)
        watch = Watch(None, 3, text)
        for event, data in (("preparing", {"text": text, "done": 1, "total": 2}), ("warning", {"text": text}),
                            ("device", {"device": text}), ("round", line)):  # fmt: skip
            watch(event, data)

    found = shown(draw)
    assert_harmless(found)
    assert "1 refused  1 shortened  void" in found


@hostile
def test_a_federation_is_watched(text: str) -> None:
    node = dict.fromkeys(federation_view._COLUMNS, text)
    found = {"run": text, "round": 1, "rounds": 2, "finished": False, "seconds": 1.0, "bytes_up": 1, "bytes_down": 1,
             "void": 0, "nodes": [node], "metrics": {text: 0.5},
             "fence": {"refused": 1, "last": [dict.fromkeys(("name", "key", "address", "reason"), text) | {"time": 0}]},
             }  # fmt: skip
    assert_harmless(shown(lambda to: to.print(federation_view.view(found))))


# ---- whole runs in which everything is called so


class Rude(Local):
    """c1 fails with a hostile reason; c2 sends a metric with a hostile name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def call(self, program: str, requests: Any, deadline: float) -> Iterator[Any]:
        for device, reply in super().call(program, requests, deadline):
            if device == "c1":
                yield device, Failure(self.text, self.text)
            elif device == "c2" and program == "evaluate" and isinstance(reply, Bundle):
                yield device, Bundle({}, {**reply.values, f"metric/{self.text}": 0.5})
            else:
                yield device, reply


def rude_run(text: str, folder: Path) -> Path:
    experiment = replace(
        tiny(FedAvg(), rounds=1, policy=Policy(quorum=0.25), evaluation=Evaluation(clients=4)), name=text[:200]
    )
    run(experiment, folder, Rude(text))
    return folder


@pytest.fixture(scope="module")
def polite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rude_run("word", tmp_path_factory.mktemp("polite") / "run")


@hostile
def test_reasons_and_names_of_a_run(text: str, polite: Path, tmp_path: Path) -> None:
    folder = rude_run(text, tmp_path / "run")
    refused = [r for line in (folder / "rounds.jsonl").read_text().splitlines() for r in json.loads(line)["refused"]]
    assert len(refused) == 5 and all(r["reason"].isprintable() and len(r["reason"]) <= 500 for r in refused)
    record = Record.read(folder)
    assert_harmless(shown(lambda to: (to.print(run_table(record)), to.print(runs_table([record])))))
    assert_same_page(write_report(folder).read_text(), write_report(polite).read_text())
    pages = [write_page(compare([place]), tmp_path / place.parent.name).read_text() for place in (folder, polite)]
    assert_same_page(*pages)


# ---- pages of commands


def a_locate_page(text: str, pages: int = 0) -> str:
    picture = Picture(b"\xff\xd8", 4, 3, text)
    places = [PlaceShown(picture, text, 0.0, 0.25, 3, text)]
    sketch = PlaceSketch([(1, [(3.0, 4.0), (5.0, 4.0)])], [(0.0, 0.0)])
    found = PhotoAnswer(text, picture, True, 0.125, text, "https://example.org/", 2, 1.5, places, sketch)
    return locate_page(
        LocatePage(
            text, 60, text, 25.0, 0.5, [text], [found], 3, (2, 1), more=1, skipped=[(text, text)],
            pages=[f"{number}{text[:99]}.html" for number in range(pages)], number=pages, seconds={text: 0.25},
        )
    )  # fmt: skip


def an_evaluation_page(text: str) -> str:
    one = np.ones(1)
    found = IndexEvaluation(
        Coverage(9, 1, area_m2=1e4, seen_m2=1e3, kilometres=0.25), radius=25.0, photos=4, known=3, left_out=1,
        skipped=[Skipped(text, text)], metrics={"R@1": 0.5, "median_error_m": 2.0}, curve=Curve(*[one] * 9),
        bins=[(0.5, 0.5, 1.0, 4)], figures={"ece": 0.1, "auc": 0.9, "brier": 0.1, "brier_constant": 0.2},
        threshold=0.5, expected_strangers=0.25, doubts=(text,),
    )  # fmt: skip
    return evaluation_page(found, Path(text), Path("photos") / text)


def a_search_page(text: str) -> str:
    picture = Picture(b"\xff\xd8", 4, 3, text)
    found = [ResultShown(text, picture, text, [text], 1, 0.5), ResultShown(text, None, text, [], 2, 0.25)]
    asked = QueryShown(text, picture, True, "photos", found, [text], [text])
    page = SearchPage(text, text, 32, {"photos": 2, "texts": 0}, [asked], 0, [(text, text)], {"search": 0.5})
    return search_page(page)


def a_graph(text: str) -> GraphShown:
    sketch = GraphSketch(SceneDrawn(None, (64, 48), [text, text], [(0, 0, 9, 9)] * 2, [(0, text, 1, 0.5)]))
    return GraphShown(
        text, text, Picture(b"\xff\xd8", 4, 3, text), drawing(sketch, text), [(text, text, text, 0.5)],
        [(text, text, 1.0)], text,
    )  # fmt: skip


def a_graph_page(text: str) -> str:
    return graph_page(GraphPage(text, text, [a_graph(text)], 3, [(text, text)], [text]))


def a_demo_page(text: str, folder: Path) -> str:
    """Its runs are plain ones: what is called so are places, photos, classes, captions and words."""
    picture, point = Picture(b"\xff\xd8", 4, 3, text), MapPoint(1.0, 1.0, "c1")
    city = CityMap(text, picture, 10.0, 10.0, [point], [(1.0, 1.0, text)], text)
    photo = LocatedPhoto(picture, picture, text, True, False, 0.5, 3.0, point, point)
    located = LocateExample(city, 9, [photo] * 3, 0.5, True, 9, 8, 8, 7, 2, 1, 25.0)
    search = SearchExample(text, [FoundPhoto(picture, text, text, True)], 0.1)
    runs = {task: dict.fromkeys(("federated", "local", "centralised"), Record.read(folder)) for task in DEMO_TASKS}
    town = DemoTown(9, 9, [city], 3, [picture])
    return demo_page(
        DemoPage(town, runs, located, [search], GraphExample(picture, a_graph(text), [True]), seconds={text: 1.0}),
        folder,
    )


PAGES: dict[str, Callable[[str], str]] = {
    "locate": a_locate_page, "locate in pages": partial(a_locate_page, pages=2),
    "evaluate": an_evaluation_page, "search": a_search_page, "graph": a_graph_page,
}  # fmt: skip


@hostile
@pytest.mark.parametrize("kind", [*PAGES, "demo"])
def test_pages_of_commands(kind: str, text: str, polite: Path) -> None:
    make = PAGES.get(kind, lambda words: a_demo_page(words, polite))
    assert_same_page(make(text), make("word"))
    if text == HOSTILE[6]:
        assert "&lt;img src=x onerror=alert(1)&gt;" in make(text)  # it is there, as text


def test_pages_do_nothing_in_a_browser(polite: Path, tmp_path: Path) -> None:
    """All ten strings at once, in a real browser: its title, images and dialogs are the page's own."""
    text = " ".join(words[:300] for words in HOSTILE)
    for kind in (*PAGES, "demo"):
        make = PAGES.get(kind, lambda words: a_demo_page(words, polite))
        page = tmp_path / f"{kind}.html"
        page.write_text(make(text), encoding="utf-8")
        dom, said = browse(page, tmp_path)
        assert not said
        seen = Seen(dom)
        assert "<title>pwned" not in dom
        assert not [item for item in seen.attributes if item[1].startswith("on") or item[1:] == ("src", "x")]


def test_no_template_turns_escaping_off() -> None:
    templates = Path(wayfare.pages.__file__).parent / "templates"
    for template in templates.glob("*.html"):
        text = template.read_text()
        assert "safe" not in re.findall(r"\|\s*(\w+)", text) and "autoescape" not in text, template
