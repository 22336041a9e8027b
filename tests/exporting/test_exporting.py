"""Exports say what the run says: ONNX, ExecuTorch, and a page in a real Chromium, where nothing hostile runs or leaves.

One file, so that one process makes the runs and traces their networks.
"""

import functools
import http.server
import json
import re
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from axe import violations
from chromium import Chromium
from hostile import HOSTILE
from wayfare.core.errors import ConfigError, DataError
from wayfare.downloads import onnxruntime_web
from wayfare.exporting.agreement import compared, through
from wayfare.exporting.eight_bits import rounded_rows
from wayfare.exporting.exporter import export
from wayfare.exporting.onnx_file import OnnxNetwork, round_weights, write_onnx
from wayfare.finished import load
from wayfare.io.images import decode
from wayfare.nets.efficientnet import Convolved
from wayfare.places.finished import PlacesRun
from wayfare.places.whitening import Whitening
from wayfare.portable import PortablePart, picture_input

UNNAMED = """[...document.querySelectorAll('button, a[href], input:not([type=hidden]), [role=img], img')]
  .filter((each) => !(each.getAttribute('aria-label') || each.textContent.trim() || each.title || each.labels?.length
    || each.hasAttribute('alt'))).map((each) => each.outerHTML.slice(0, 200))"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Folder:
    """A folder behind Python's own static file server."""

    def __init__(self, folder):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}/"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if not onnxruntime_web.is_there():
        pytest.skip("wayfare data get onnxruntime-web was not run on this machine")
    started = Chromium(tmp_path_factory.mktemp("chromium"))
    yield started
    started.close()


@pytest.fixture
def opened(browser, sites):
    served = []

    def open_site(name):
        served.append(Folder(sites[name].folder))
        browser.complaints.clear()
        browser.resize(1400)
        browser.open(served[-1].address)
        browser.until("document.body.dataset.ready === 'true'")
        return browser

    yield open_site
    for each in served:
        each.close()


def command(*arguments):
    import sys

    done = subprocess.run([sys.executable, "-m", "wayfare", *map(str, arguments)], capture_output=True, check=True)
    return json.loads(done.stdout)


def ask(browser, kind, given, file=""):
    """What the page's worker answers; `file` is a script that gives a file."""
    with_file = f"file: {file}, name: 'photo.jpg', " if file else ""
    script = f"wayfare.ask({json.dumps(kind)}, {{{with_file}...{json.dumps(given)}}})"
    return json.loads(browser.run(f"{script}.then((found) => JSON.stringify(found.answer))"))


KEEP_FILE = """document.getElementById('photo-file').addEventListener('change',
  (event) => { window.given = event.target.files[0]; }, { capture: true, once: true })"""


def with_photo(browser, photo, kind, given):
    """Asks the page about a photo as a person does it, by its file input; and the worker once more."""
    browser.run(KEEP_FILE)
    browser.choose_file("#photo-file", photo)
    browser.until("window.given && document.getElementById('answers').dataset.done")
    return ask(browser, kind, given, "window.given")


def check(browser, where):
    for width in (1400, 360):
        browser.resize(width)
        assert not browser.run("document.documentElement.scrollWidth > innerWidth"), f"{where} is wider than {width}"
        assert violations(browser) == [], where
    assert browser.run(UNNAMED) == [], where
    assert browser.run("document.querySelectorAll('h1').length") == 1
    assert browser.complaints == [], where


def test_it_says_whose_pictures_are_in_it(sites, material):
    """An index of somebody else may name photos of this machine."""
    [note] = [note for note in sites["places"].notes if note.startswith("it holds small pictures of ")]
    assert str(material) in note


def test_a_folder_is_whole_and_knows_no_other_place(sites, material):
    for made in sites.values():
        kept = json.loads(re.search(r"FILES = (\[.*\])", (made.folder / "sw.js").read_text())[1])
        assert set(kept) - {"./"} == set(made.files) - {"sw.js"}
        for name in made.files:
            content = (made.folder / name).read_bytes()
            assert str(material).encode() not in content, name
            if not name.startswith(("ort/", "model/")) and name.endswith((".html", ".js", ".css", ".json")):
                others = set(re.findall(rb"https?://[^\s\"'`)]+", content)) - {b"http://www.w3.org/2000/svg"}
                assert not others, name
        page = (made.folder / "index.html").read_text()
        assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
        assert "unsafe-inline" not in page and "<style" not in page and not re.search(r"\son\w+=", page)
        assert (made.folder / "ort" / "LICENSE").read_text().count("MIT License") == 1


def test_a_photo_is_located_as_the_command_line_does_it(opened, material):
    browser = opened("places")
    photo, reduced = material / "photo.png", material / "photo.jpg"  # of the latter, rounding differs
    with Image.open(reduced) as image:
        image.save(photo)
    found = with_photo(browser, photo, "locate", {"k": 5})
    both = command("locate", photo, reduced, "--run", material / "runs" / "places", "--json")["answers"]
    wanted = both[0]
    assert found["unknown"] == wanted["unknown"]
    assert [names_of(place) for place in found["places"]] == [names_of(place) for place in wanted["places"]]
    for name in ("latitude", "longitude", "easting", "northing", "spread_m"):
        assert found["position"][name] == pytest.approx(wanted["position"][name], abs=1e-5), name
    assert found["scores"] == pytest.approx(wanted["scores"], abs=1e-5)
    assert found["confidence"] == (wanted["confidence"] and pytest.approx(wanted["confidence"], abs=1e-4))
    found = with_photo(browser, reduced, "locate", {"k": 5})
    assert names_of(found["places"][0])[0] == names_of(both[1]["places"][0])[0]
    check(browser, "places")
    assert browser.run("document.querySelectorAll('.strip img').length") > 0
    browser.until("[...document.querySelectorAll('.strip img')].every((each) => each.naturalWidth > 0)")
    assert browser.run("document.title") == "demo-places · Wayfare"
    assert browser.run("document.querySelectorAll('main img[src=x], script:not([src])').length") == 0


def names_of(place):
    return [Path(match["file"]).name for match in place["matches"]]


def test_words_find_what_the_command_line_finds(opened, material):
    browser = opened("things")
    index = material / "runs" / "things" / "index"
    table = json.loads((material / "web-things" / "data" / "site.json").read_text())
    known = table["search"]["vocabulary"]
    slip = next(word for word in known if len(word) > 6 and word.isalpha())[:-1] + "q"
    for words in (known[3], f"{known[0]} {known[5]}", f"{known[2]}s", slip):
        wanted = command("search", words, "--index", index, "--json")["answers"][0]
        found = ask(browser, "words", {"words": words, "find": "photos", "k": 10})
        hits, others = found["results"], wanted["results"]
        assert [hit["name"] for hit in hits] == [hit["name"] for hit in others], words
        assert [hit["score"] for hit in hits] == pytest.approx([hit["score"] for hit in others], abs=1e-4)
        assert [hit["words"] for hit in hits] == pytest.approx([hit["words"] for hit in others], abs=1e-5)
        assert (found["close"], found["read_as"]) == (wanted["close"], wanted["read_as"])
    browser.run(f"document.getElementById('words').value = {json.dumps(known[3])}")
    browser.run("document.getElementById('words').focus()")
    browser.press("Enter", 13)
    browser.until("document.querySelectorAll('.gallery li').length === 10")
    check(browser, "search")


def test_classes_are_those_of_predict(opened, material, tmp_path):
    browser = opened("digits")
    photo = tmp_path / "digit.png"
    pixels = np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8)
    Image.fromarray(pixels).save(photo)
    found = with_photo(browser, photo, "classify", {})
    (wanted,) = command("predict", photo, "--run", material / "runs" / "digits", "-k", 10, "--json")["answers"]
    assert found["label"] == wanted["label"]
    assert {each["label"]: each["score"] for each in found["scores"]} == pytest.approx(wanted["scores"], abs=1e-5)
    check(browser, "classes")


def test_the_worker_can_send_nothing_elsewhere(opened):
    browser = opened("digits")
    script = """new Promise((resolve) => {
      const text = "fetch('http://127.0.0.2:9/').then(() => postMessage('sent'), () => postMessage('kept'))";
      new Worker(URL.createObjectURL(new Blob([text]))).onmessage = ({ data }) => resolve(data); })"""
    assert browser.run(script) == "kept"
    assert any("Content Security Policy" in each for each in browser.complaints)


def test_the_page_answers_in_an_aeroplane(browser, sites, tmp_path):
    """Its server is gone and the network too: it opens, and answers as before."""
    photo = tmp_path / "digit.png"
    Image.fromarray(np.random.default_rng(1).integers(0, 255, (40, 50, 3), np.uint8)).save(photo)
    served = Folder(sites["digits"].folder)
    browser.complaints.clear()
    browser.open(served.address)
    browser.until("document.body.dataset.ready === 'true'")
    before = with_photo(browser, photo, "classify", {})
    browser.until("navigator.serviceWorker.controller !== null")
    served.close()
    browser.offline()
    try:
        browser.open(served.address)
        browser.until("document.body.dataset.ready === 'true'")
        assert browser.run("document.querySelector('h1').textContent") == "What is in your photo?"
        assert with_photo(browser, photo, "classify", {}) == before
    finally:
        browser.offline(False)


def test_hostile_names_of_a_site_are_only_text(browser, sites, tmp_path):
    """Of classes, of items and their texts, and of the photo that is asked: what runs in the page is counted."""
    for name, kind in (("digits", "classify"), ("things", "similar")):
        folder = shutil.copytree(sites[name].folder, tmp_path / name)
        (folder / "sw.js").unlink()  # it would keep the files of the other tests
        for file in (folder / "data").glob("*.json"):
            table = json.loads(file.read_text())
            if file.name == "site.json":
                table["classes"] = [HOSTILE[place % len(HOSTILE)][:300] for place in range(len(table["classes"]))]
            elif file.name.endswith("-items.json"):
                for place, item in enumerate(table):
                    item["name"], item["texts"] = HOSTILE[place % 9], [HOSTILE[(place + 4) % 9]]
            file.write_text(json.dumps(table))
        photo = tmp_path / "<img src=x onerror=alert(1)>.png"
        Image.new("RGB", (40, 30), (90, 80, 10)).save(photo)
        served = Folder(folder)
        browser.complaints.clear()
        browser.dialogs.clear()
        browser.open(served.address)
        browser.until("document.body.dataset.ready === 'true'")
        with_photo(browser, photo, kind, {} if kind == "classify" else {"find": "photos", "k": 10})
        browser.until("document.querySelectorAll('#answers li, #answers tr, #answers .meter').length > 3")
        assert "onerror=alert(1)" in browser.run("document.body.textContent"), name
        assert (
            browser.run("document.querySelectorAll('main img[src=x], main svg[onload], script:not([src])').length") == 0
        )
        assert browser.dialogs == [] and browser.run("document.title") != "pwned"
        served.close()


@pytest.fixture(scope="module")
def odd_pictures(tmp_path_factory):
    """The same picture in the ways that files have: turned, grey, transparent, large."""
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(1)
    smooth = Image.fromarray(rng.integers(0, 255, (9, 12, 3), np.uint8)).resize((301, 203), Image.Resampling.BICUBIC)
    smooth.save(folder / "plain.png")
    smooth.convert("L").save(folder / "grey.png")
    smooth.convert("RGBA").resize((61, 47)).save(folder / "small.png")
    smooth.save(folder / "photo.jpg", quality=90, subsampling=0)
    smooth.save(folder / "subsampled.jpg", quality=90)
    smooth.save(folder / "lossless.webp", lossless=True)
    for orientation in range(2, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        smooth.save(folder / f"turned{orientation}.jpg", quality=92, exif=exif)
    return folder


NEW_INPUT = """document.querySelector('#pixels-file')?.remove();
  document.body.append(Object.assign(document.createElement('input'), { type: 'file', id: 'pixels-file' }))"""
EXACT = {"plain.png": 0, "grey.png": 0, "small.png": 0, "lossless.webp": 0}


def test_pixels_are_those_of_python(opened, odd_pictures):
    browser = opened("digits")
    for file in sorted(odd_pictures.iterdir()):
        browser.run(NEW_INPUT)
        browser.choose_file("#pixels-file", file)
        for height, width in ((32, 48), (150, 180), (8, 8)):
            found = browser.run(
                "import('/app/pictures.js').then(async ({pixelsOf}) => Array.from(await pixelsOf("
                f"document.getElementById('pixels-file').files[0], {{height: {height}, width: {width}}})))"
            )
            wanted = decode(file, size=(height, width)).astype(int)
            apart = np.abs(np.array(found).reshape(height, width, 3) - wanted)
            assert apart.max() <= EXACT.get(file.name, 6), (file.name, height, apart.max())
            assert apart.mean() <= (0 if file.name in EXACT else 1.0), (file.name, height, apart.mean())


WORDS = """caresses ponies ties caress cats feed agreed plastered bled motoring sing conflated troubled sized hopping
tanned falling hissing fizzed failing filing happy sky relational conditional rational valenci hesitanci digitizer
conformabli radicalli differentli vileli analogousli vietnamization predication operator feudalism decisiveness
hopefulness callousness formaliti sensitiviti sensibiliti triplicate formative formalize electriciti electrical
hopeful goodness revival allowance inference airliner gyroscopic adjustable defensible irritant replacement adjustment
dependent adoption homologou communism activate angulariti homologous effective bowdlerize probate rate cease controll
roll shirts stripes dresses running flies dying knives bags buses yellow eyed tying geology apology"""


def test_stems_are_those_of_sqlite(browser, sites):
    import sqlite3

    words = WORDS.split()
    file = sqlite3.connect(":memory:")
    file.execute("CREATE VIRTUAL TABLE t USING fts5(text, tokenize='porter unicode61')")
    for row, word in enumerate(words):
        file.execute("INSERT INTO t (rowid, text) VALUES (?, ?)", (row, word))
    file.execute("CREATE VIRTUAL TABLE v USING fts5vocab('t', 'instance')")
    wanted = {words[row]: term for term, row in file.execute("SELECT term, doc FROM v")}
    served = Folder(sites["digits"].folder)
    browser.open(served.address)
    pairs = f"{json.dumps(words)}.map((word) => [word, stem(word)])"
    found = browser.run(f"import('/app/words.js').then(({{stem}}) => Object.fromEntries({pairs}))")
    served.close()
    assert {word: (found[word], term) for word, term in wanted.items() if found[word] != term} == {}


# ---- files for other programs


def test_eight_bits_by_hand():
    rounded, scale = rounded_rows(np.array([[1.27, -0.635, 0.004], [0, 0, 0]], np.float32), 0)
    assert rounded.tolist() == [[127, -64, 0], [0, 0, 0]]  # -63.5 rounds to the even number
    assert scale == pytest.approx([0.01, 1.0])
    assert rounded_rows(np.array([[2.54, 1.0], [-1.27, 4.0]], np.float32), -1)[1] == pytest.approx([0.02, 4 / 127])


def test_first_answers_are_counted():
    before = np.array([[3.0, 2, 1], [1, 2, 3]])
    first, ten = compared(before, np.array([[3.0, 2, 1], [3, 2, 1]]), "logits")
    assert first == 0.5 and ten == 1.0  # three classes: all are among the first ten
    vectors = np.eye(4) + 0.1
    assert compared(vectors, vectors, "vector") == (1.0, 1.0)
    others = np.array([[1.0, 0.1, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0.1]])
    assert compared(others, others[::-1], "vector")[0] < 1


def test_settled_whitening_is_whitening():
    torch.manual_seed(0)
    whitening, x = Whitening(6, 0.5).eval(), torch.randn(40, 6)
    assert whitening.settled() is None  # nothing observed yet: descriptors are left alone
    whitening.update(x)
    settled = whitening.settled()
    assert settled is not None
    assert torch.allclose(settled(x), whitening(x), atol=1e-6)


@pytest.mark.parametrize("name", ["places", "digits", "things"])
def test_onnx_gives_the_same_answers(name, sites, material):
    for part in load(material / "runs" / name, device="cpu").portable():
        written, given = OnnxNetwork(sites[name].folder / "model" / f"{part.name}.onnx"), part.own(40)
        before, after = through(part, given), through(written, given)
        assert np.abs(before - after).max() <= 1e-4 * max(1, np.abs(before).max())
        assert compared(before, after, part.output) == (1.0, 1.0)


def test_the_manifest_says_all_and_nothing_of_this_machine(sites, material):
    for made in sites.values():
        models = made.folder / "model"
        manifest = json.loads((models / "model.json").read_text())
        assert manifest == json.loads(json.dumps(made.manifest))
        assert manifest["format"] == 1 and manifest["weights"] == "float32" and manifest["task"]
        for part in manifest["parts"]:
            assert (models / part["file"]).stat().st_size == part["bytes"]
            assert part["inputs"][0]["shape"][0] == "n"
            assert part["agreement"]["same_first"] == 1.0 and part["agreement"]["on"] == "own data"
            assert part["preparing"]["kind"] in ("picture", "bag of words")
        for name in made.files:
            content = (made.folder / name).read_bytes()
            assert str(material).encode() not in content and b"site-packages" not in content, name


def test_int8_is_smaller_and_its_loss_is_measured(material):
    part = export(material / "runs" / "digits", "onnx", material / "int8", int8=True).manifest["parts"][0]
    assert part["bytes"] < part["float32_bytes"]
    assert 0.9 <= part["int8_agreement"]["same_first"] <= 1.0 and part["int8_agreement"]["inputs"] == 300


def test_int8_is_refused_where_its_loss_cannot_be_measured(material, monkeypatch):
    class Moved(PlacesRun):
        def portable(self):
            (part,) = super().portable()
            object.__setattr__(part, "own", lambda count: (_ for _ in ()).throw(DataError("the photos are gone")))
            return (part,)

    monkeypatch.setattr("wayfare.places.finished.PlacesRun", Moved)
    with pytest.raises(DataError, match="measured on the run's own data"):
        export(material / "runs" / "places", "onnx", material / "moved", int8=True)


def test_executorch_gives_the_same_answers(material):
    pytest.importorskip("executorch", reason="the extra wayfare[executorch] is not installed")
    made = export(material / "runs" / "places", "executorch", material / "pte")
    (part,) = made.manifest["parts"]
    assert part["agreement"]["same_first"] == 1.0 and part["inputs"][0]["shape"] == [1, 3, 32, 48]
    assert str(material).encode() not in (made.folder / "image.pte").read_bytes()


class Frozen(nn.Module):
    """As frozen networks are: memory turned, norms folded into the filters, and a graph of its own by `no_grad`."""

    def __init__(self):
        super().__init__()
        sizes = ((3, 64, 3), (64, 512, 1))
        layers = (Convolved(nn.Conv2d(a, b, k, bias=False), nn.BatchNorm2d(b)) for a, b, k in sizes)
        self.layers = nn.Sequential(*layers)

    @torch.no_grad()
    def forward(self, pictures):
        return self.layers(pictures.contiguous(memory_format=torch.channels_last)).mean((2, 3))


@pytest.fixture(scope="module")
def frozen():
    return PortablePart("image", Frozen().eval(), (picture_input((8, 12)),), "vector", {}, own=lambda count: ())


def test_executorch_of_a_frozen_network(frozen, tmp_path):
    """As it stands, ExecuTorch 1.5 gives other numbers without a word."""
    pytest.importorskip("executorch", reason="the extra wayfare[executorch] is not installed")
    from wayfare.exporting.pte_file import PteNetwork, write_pte

    write_pte(frozen, tmp_path / "image.pte")
    pictures = torch.rand(3, 3, 8, 12)
    assert np.abs(PteNetwork(tmp_path / "image.pte")(pictures) - frozen(pictures)).max() < 1e-6


def test_int8_of_a_frozen_network_takes_a_third_of_the_bytes(frozen, tmp_path):
    """Its filters are computed from two tensors each: they have to be one to be rounded."""
    whole, rounded = tmp_path / "image.onnx", tmp_path / "int8.onnx"
    write_onnx(frozen, whole)
    round_weights(whole, rounded)
    assert rounded.stat().st_size < whole.stat().st_size / 3
    pictures = torch.rand(3, 3, 8, 12)
    assert np.abs(OnnxNetwork(whole)(pictures) - frozen(pictures)).max() < 1e-6


def test_weights_are_what_the_run_exports(material):
    made = export(material / "runs" / "digits", "weights", material / "weights")
    assert set(made.files) == {"model.json", "model.safetensors"} and made.bytes > 0


def test_what_cannot_be_exported_is_refused(material, tmp_path):
    runs = material / "runs"
    with pytest.raises(ConfigError, match="did you mean 'onnx'"):
        export(runs / "digits", "onxx", tmp_path / "a")
    with pytest.raises(ConfigError, match="int8 is for onnx and web"):
        export(runs / "digits", "executorch", tmp_path / "a", int8=True)
    with pytest.raises(ConfigError, match="16 to 1024"):
        export(runs / "digits", "web", tmp_path / "a", pictures=3)
    for name in ("letter.txt", "data/photo.jpg", "model/model.json"):
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_text("keep me")
    before = [(path, path.is_file() and path.read_bytes()) for path in sorted((tmp_path / "mine").rglob("*"))]
    for folder in (tmp_path / "mine", runs / "digits"):
        for to in ("onnx", "weights"):
            with pytest.raises(ConfigError, match="holds no export"):
                export(runs / "digits", to, folder)
    assert [(path, path.is_file() and path.read_bytes()) for path in sorted((tmp_path / "mine").rglob("*"))] == before


def test_scenes_are_refused_with_the_reason():
    from wayfare.scenes.finished import ScenesRun

    run = ScenesRun.__new__(ScenesRun)
    run.folder = "runs/scenes"
    with pytest.raises(ConfigError, match=r"runs/scenes is a run of scenes.* not a photo"):
        run.portable()
