"""Every page and the main actions in a real Chromium: nothing to complain about, nothing hostile runs."""

import io
import json
import shutil
from urllib.parse import quote, urlencode

import pytest
from PIL import Image

from axe import violations
from chromium import Chromium
from hostile import HOSTILE

OVERFLOW = "document.documentElement.scrollWidth > innerWidth"
QUIET = "document.readyState === 'complete' && !document.querySelector('[aria-busy=true]')"
NAMED = "button, a[href], input:not([type=hidden]), select, iframe, [role=img], img"
UNNAMED = f"""[...document.querySelectorAll('{NAMED}')]
  .filter((each) => !(each.getAttribute('aria-label') || each.textContent.trim() || each.title || each.labels?.length
    || each.hasAttribute('alt'))).map((each) => each.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    started = Chromium(tmp_path_factory.mktemp("chromium"))
    yield started
    started.close()


@pytest.fixture(autouse=True)
def calm(browser):
    browser.complaints.clear()


def check(browser, where):
    """The page is quiet, fits a small phone, and everything on it has a name."""
    browser.until(QUIET)
    for width in (1400, 360):
        browser.resize(width)
        assert not browser.run(OVERFLOW), f"{where} is wider than {width} pixels"
        assert violations(browser) == [], where
    assert browser.run(UNNAMED) == [], where
    assert browser.run("document.querySelectorAll('h1').length") == 1, where
    assert browser.complaints == [], where


def test_a_stranger_drops_a_photo_and_understands_the_answer(browser, server, material):
    browser.open(server.address)
    assert "token" not in browser.run("location.href")
    browser.until("document.querySelectorAll('.mosaic img').length > 0")
    check(browser, "home")
    browser.choose_file("#photo-file", material / "photo.jpg")
    browser.until("location.pathname.startsWith('/photo/')")
    check(browser, "photo")
    said = browser.run("document.body.innerText")
    assert "Where was it taken?" in said and ("I do not know" in said or "Here, with" in said or "Place 1" in said)
    assert browser.run("document.querySelectorAll('.strip img').length") > 0
    browser.until("[...document.querySelectorAll('.strip img')].every((each) => each.naturalWidth > 0)")
    browser.open(f"{server.base}/search?words=nothing+that+is+known")
    check(browser, "search")


def test_every_page(browser, server):
    browser.open(server.address)
    ids = browser.run("fetch('/api/v1/runs').then((r) => r.json()).then((r) => r.runs.map((each) => each.id))")
    places = next(id for id in ids if id.startswith("places"))
    pages = ["/runs", f"/runs/{places}", "/compare?run=" + "&run=".join(ids[:2]), "/start", "/start?recipe=quickstart",
             "/data", f"/data/{places}", "/federation"]  # fmt: skip
    for page in pages:
        browser.resize(1400)
        browser.open(server.base + page)
        check(browser, page)
    browser.open(f"{server.base}/data/{places}")
    browser.run("document.querySelectorAll('[data-part-later] button')[1].click()")
    browser.until("document.querySelector('iframe') !== null", 60)  # a process begins
    check(browser, "split")


def test_a_recipe_is_started_and_stopped_by_keyboard(browser, server):
    browser.resize(1400)
    browser.open(server.address)
    browser.open(f"{server.base}/start?recipe=quickstart")
    browser.until("!document.querySelector('[data-start]').disabled")
    browser.run("document.getElementById('run-name').value = 'by-keyboard'")
    browser.run("""(() => { const rounds = document.getElementById('set-rounds'); rounds.value = '500';
      rounds.dispatchEvent(new Event('change', { bubbles: true })); })()""")
    assert "rounds" in browser.run("document.querySelector('[data-changed]').textContent")
    browser.run("document.querySelector('[data-start]').focus()")
    browser.press("Enter", 13)
    browser.until("location.pathname.startsWith('/runs/')", 200)  # a process begins, and imports torch
    browser.until("document.querySelector('[data-act=stop]').hidden === false")
    browser.until("Number(document.querySelector('progress').value) >= 2")  # by an event: the page is not loaded again
    browser.run("document.querySelector('[data-act=stop]').focus()")
    browser.press("Enter", 13)
    browser.until("document.querySelector('[data-state]').textContent === 'stopped'")
    assert browser.run("document.querySelector('[data-act=resume]').hidden") is False
    assert browser.complaints == []


def odd_runs(material):
    """Copies of a run with hostile names, each a federation with a node of this name, and strangers at its door."""
    source = material / "runs" / "places"
    kept = [text.replace("/", "∕").replace("\0", "")[:80] for text in HOSTILE]
    for number, name in enumerate(kept):
        folder = material / "runs" / f"{number}{name}"
        (folder / "flower").mkdir(parents=True)
        for file in ("experiment.toml", "rounds.jsonl", "summary.json", "partition.json"):
            shutil.copy(source / file, folder / file)
        node = {"device": f"000{number}", "name": name, "samples": 3}
        (folder / "flower" / "nodes.json").write_text(json.dumps([node]))
        line = {"time": 1.0, "event": "refused", "name": name, "key": name, "address": name, "reason": name}
        (folder / "flower" / "fence.jsonl").write_text(json.dumps(line) + "\n")
    return kept


def uploads(api, names):
    """The pages of photos with these names."""
    for number, name in enumerate(names):
        file = io.BytesIO()
        Image.new("RGB", (8 + number, 8)).save(file, "PNG")
        made = api.post("/api/v1/photos", params={"name": name[:300]}, content=file.getvalue())
        assert made.status_code == 201, made.text
        yield f"/photo/{made.json()['photo']}"


def test_hostile_names_are_only_text(browser, server, material, indexes):
    """Names of runs, nodes, uploaded photos, and photos and texts of indexes: what runs in a page is counted."""
    kept = odd_runs(material)
    with server.api() as api:
        photos = list(uploads(api, kept))
        words = next(
            each["about"]["words"] for each in api.get("/api/v1/indexes").json()["indexes"] if each["kind"] == "search"
        )
    browser.dialogs.clear()
    browser.open(server.address)
    found = browser.until(
        f"""window.found?.length >= {len(kept) + 2} ? window.found
          : (fetch('/api/v1/runs').then((r) => r.json()).then((r) => {{ window.found = r.runs; }}), null)"""
    )
    ids = [row["id"] for row in found if row["name"][:1].isdigit()]
    pages = [
        "/runs",
        "/data",
        "/compare?run=" + "&run=".join(ids),
        *(f"/runs/{id}" for id in ids[6:9]),
        "/federation",
        *photos,
        "/search?" + urlencode({"words": words[5]}),
        *(f"/search?words={quote(name)}" for name in kept[6:9]),
    ]
    for page in pages:
        browser.open(server.base + page)
        browser.until(QUIET)
        assert browser.run("document.title") != "pwned", page
        found = browser.run("document.querySelectorAll('main img[src=x], main svg[onload], script:not([src])').length")
        assert found == 0, page
    assert "<img src=x" in browser.run(f"fetch('{photos[6]}').then((r) => r.text()).then((t) => new DOMParser()"
                                       ".parseFromString(t, 'text/html').querySelector('h1').textContent)")  # fmt: skip
    assert browser.dialogs == [] and browser.complaints == []


def test_nodes_appear_while_somebody_looks(browser, server, material):
    """A page that is open shows who has joined, and keeps what is being typed."""
    flower = material / "runs" / "things" / "flower"
    flower.mkdir()
    (flower / "nodes.json").write_text("[]")
    browser.open(f"{server.base}/federation")
    browser.until("document.querySelector('[data-run]') !== null")
    browser.run("document.querySelector('[data-invite] input').value = 'half a na'")
    (flower / "nodes.json").write_text(json.dumps([{"device": "0001", "name": "camera-7", "samples": 41}]))
    browser.until("document.querySelector('[data-live=federation]').textContent.includes('camera-7')", 20)
    assert browser.run("document.querySelector('[data-invite] input').value") == "half a na"
    shutil.rmtree(flower)
