"""The demo in its quick form: what it leaves, that it goes on where it stopped, and its page, also in a browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from browser import browse
from command_lines import parsed
from wayfare.cli import main
from wayfare.components import parts_of
from wayfare.core.errors import WayfareError
from wayfare.demo import recipes as plan
from wayfare.demo.page_words import TaskResult
from wayfare.demo.subprocess_run import SubprocessRun
from wayfare.demo.uses import search_twice
from wayfare.experiment import Experiment
from wayfare.papers.files import recipe_path
from wayfare.recipe import override, read_table
from wayfare.runner import run

NAN = float("nan")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> Path:
    """A quick demo, made once."""
    out = tmp_path_factory.mktemp("demo") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAYFARE_CACHE", str(shared_cache))
        assert main(["demo", "--quick", "--out", str(out), "--engine", "local"]) == 0
    return out


@pytest.fixture(scope="module")
def page(made: Path) -> str:
    return (made / "index.html").read_text(encoding="utf-8")


def test_the_recipes_are_those_that_a_user_can_run() -> None:
    """Each of the four is together as it stands; beside it stand alone and all in one place, with the same settings."""
    made = plan.experiments({name: recipe_path(f"demo/{name}") for name in plan.RECIPES}, Path("out"), quick=False)
    assert {task: tuple(cells) for task, cells in made.items()} == {
        "places": ("federated", "local", "centralised"), "objects": ("federated", "centralised"),
        "scenes": ("federated", "local", "centralised"), "hashing": ("federated", "local", "centralised"),
    }  # fmt: skip
    for task in ("places", "scenes", "hashing"):
        together, *others = made[task].values()
        for one in others:  # one device with all photos takes as many steps a round as the devices asked have together
            same = replace(one.training, iterations=together.training.iterations)
            assert (one.task, same, one.partition) == (together.task, together.training, together.partition)
    for task, cells in made.items():
        together = cells["federated"].task
        path = together.data.path if "data" in parts_of(type(together)) else together.path
        assert cells["centralised"].strategy.pooled and path.startswith(str(Path("out").resolve()))
        assert cells["centralised"].task == cells["federated"].task, task


def test_the_page_tells_it_in_order(made: Path, page: str) -> None:
    parts = ("town", "places", "objects", "scenes", "hashing", "travelled", "further", "own")
    places = [page.index(f'<section id="{part}"') for part in parts]
    assert places == sorted(places)
    for said in ("Quick run.", "no photo was shared", "Quellmar", "the test city, without clients",
                 "each alone", "federated", "all data pooled", "Three photos, located among", "Press play",
                 "A scene graph", "Search for <q>", "What this does not promise."):  # fmt: skip
        assert said in page, said
    assert page.count("data:image/jpeg;base64,") >= 2 + 10 + 6 + 1  # maps, photos, located ones, the graph's
    assert len(page) < 10_000_000 and "http://" not in re.sub(
        r"<script>.*?</script>", "", page, flags=re.DOTALL
    ).replace("http://www.w3.org", "")
    links = set(re.findall(r'href="([a-z][^"#:]*\.html)"', page))
    assert len(links) == 8 and all((made / link).is_file() for link in links)
    commands = re.findall(r"<span>(wayfare .*?)</span>", page[page.index('<section id="own"') :])
    assert [command.split()[1] for command in commands] == ["run", "index", "locate"]
    for command in commands:
        parsed(command.split())


def test_the_figures_are_those_of_the_runs(made: Path, page: str) -> None:
    summary = json.loads((made / "scenes" / "federated" / "summary.json").read_text())
    chapter = page[page.index('<section id="scenes"') : page.index('<section id="hashing"')]
    assert f"<b>{100 * summary['metrics']['test/R@20']:.1f}".removesuffix(".0") in chapter
    sent = json.loads((made / "hashing" / "federated" / "summary.json").read_text())
    assert f"{(sent['bytes_up'] + sent['bytes_down']) / 1e6:.3g} MB" in page


def test_its_searches_find_what_they_look_for(
    made: Path, shared_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe as it is, on the quick demo's town: among pictures that nobody learnt from, by their codes alone."""
    monkeypatch.setenv("WAYFARE_CACHE", str(shared_cache))
    table = read_table(recipe_path("demo/hashing"))
    del table["cells"]
    less = {"partition.clients": 4, "evaluation.every": 12, "evaluation.clients": 0}
    experiment = Experiment.from_table(override(table, {"data.path": str(made / "town" / "fashion"), **less}))
    run(experiment, tmp_path / "run", engine="local")
    searches = search_twice(tmp_path / "run", lambda *_: None)
    assert len({search.words for search in searches}) == 2
    for search in searches:  # 5 of 25 pictures show it: 8 drawn at random have 1.6
        assert search.share == 0.2 and len(search.found) == 8
    assert sum(photo.right for search in searches for photo in search.found) >= 8  # of 10


def test_it_goes_on_where_it_stopped(
    made: Path, shared_cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """A run without its end is finished, the others are left alone; other settings are refused."""
    monkeypatch.setenv("WAYFARE_CACHE", str(shared_cache))
    kept = made / "hashing" / "local" / "summary.json"
    before, stopped = kept.stat().st_mtime_ns, made / "objects" / "centralised" / "summary.json"
    stopped.unlink()
    capsys.readouterr()
    assert main(["demo", "--quick", "--out", str(made), "--engine", "local", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert stopped.exists() and kept.stat().st_mtime_ns == before
    assert set(told["seconds"]) == {"town", *plan.TASKS, "locate", "search", "page"} and told["quick"] is True
    assert main(["demo", "--out", str(made), "--engine", "local"]) == 1
    assert "this folder holds another town" in capsys.readouterr().err


def test_what_runs_beside_says_why_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"  # is quicker than the real one
    python.write_text('#!/bin/sh\necho "$@" > "$0.asked"\necho first >&2\necho "psg.json is gone" >&2\nexit 1\n')
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    recipes = {name: recipe_path(f"demo/{name}") for name in plan.RECIPES}
    pooled = plan.experiments(recipes, tmp_path, quick=True)["scenes"]["centralised"]
    with (
        SubprocessRun(pooled, tmp_path / "pooled") as apart,
        pytest.raises(WayfareError, match=r"pooled\.toml failed: psg\.json is gone"),
    ):
        apart.wait()
    assert Experiment.read(tmp_path / "pooled.toml") == pooled
    assert f"-m wayfare run {tmp_path}/pooled.toml -o {tmp_path}/pooled" in (tmp_path / "python.asked").read_text()


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (TaskResult(0.1, 0.2, 0.5, 0.6, NAN), "improved it from 10 to 50, 30 more than clients reach alone. With all "
         "data in one place it would have been 10 more."),
        (TaskResult(0.1, 0.4, 0.3, 0.2, NAN), "from 10 to 30, which is 10 less than clients reach alone: federation "
         "did not pay off here. With all data in one place it was 10 less, with the same settings."),
        (TaskResult(0.5, NAN, 0.3, 0.3, NAN), "It got worse, from 50 to 30. With all data in one place it was "
         "as good."),
        (TaskResult(0.5, 0.5, 0.5, NAN, 0.62), "changed little, from 50 to 50, no better than each client alone. That "
         "is still no better than a baseline without training (62)."),
    ],
)  # fmt: skip
def test_the_demo_reports_when_federation_did_not_help(outcome: TaskResult, said: str) -> None:
    assert said in outcome.verdict


# In a browser


def test_the_page_in_a_browser(page: str, tmp_path: Path) -> None:
    """A script looks round and presses play; the page's own policy would not let it run, so the copy has none.

    A browser without a screen paints when it likes, so there frames come from its clock. Its window is never narrower
    than 500 pixels, so the page is in a frame of 400, and says from there what it found.
    """
    looks = """
    const wait = (ms) => new Promise((done) => setTimeout(done, ms));
    const root = document.getElementById("tour");
    (async () => {
      while (!root.dataset.ready) await wait(20);
      const images = [...document.images], from = Number(root.dataset.at);
      document.getElementById("tour-play").click(); await wait(1500);
      document.getElementById("tour-play").click(); await wait(100);
      parent.postMessage(JSON.stringify({ images: images.length,
        broken: images.filter((image) => !image.complete || !image.naturalWidth).length,
        played: Number(root.dataset.at) - from, drawn: Number(document.documentElement.dataset.drawn),
        width: document.documentElement.scrollWidth, window: innerWidth,
        plots: Math.max(...[...document.querySelectorAll(".plot svg")].map((plot) => plot.clientWidth)) }), "*");
    })();
    """
    frames = "window.requestAnimationFrame = (paint) => setTimeout(() => paint(performance.now()), 16)"
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page, count=1)
    text = text.replace("<head>", f"<head><script>{frames}</script>", 1)
    (tmp_path / "inside.html").write_text(text.replace("</body>", f"<script>{looks}</script></body>"), "utf-8")
    hears = "onmessage = (said) => { document.body.append(Object.assign(document.createElement('pre'), "
    hears += "{ id: 'looked', textContent: said.data })); }"
    frame = '<iframe src="inside.html" width="400" height="800" style="border:0"></iframe>'
    (tmp_path / "looked.html").write_text(f"<body><script>{hears}</script>{frame}</body>", "utf-8")
    (tmp_path / "page.html").write_text(page, "utf-8")
    found = {}
    for name in ("page", "looked"):  # as it is, and with the script
        found[name], said = browse(tmp_path / f"{name}.html", tmp_path, "--window-size=600,900")
        assert said == [], name
    looked = json.loads(re.search(r'<pre id="looked">(.*?)</pre>', found["looked"]).group(1))  # type: ignore[union-attr]
    assert looked["images"] >= 19 and looked["broken"] == 0 and looked["played"] > 0 and looked["drawn"] == 5
    assert looked["window"] == 400 and looked["width"] <= 400 and 0 < looked["plots"] < 400
