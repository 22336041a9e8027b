"""Exported models beside the run's own: equal answers in ONNX, ExecuTorch and a real browser, the loss of int8, time.

    python benchmarks/export.py [--quick] [--json] [--runs DIR] [--queries 1000] [--photos 100] [--only places,browser]

places    photos of the town's test city, and as many others as are needed, looked for in its database
objects   test pictures of the quickstart's digits, and as many others as are needed
hashing   texts and photos of pairs that nobody learnt from, looked for among the photos of all pairs
browser   the places run as a page in Chromium, by Python's static file server: answers beside `wayfare locate`

A query's answer counts as the same if its first ten are, in their order. Of int8, the share of right first answers is
compared with that of float32. --runs: finished runs of this name, so that they need not be trained again.
--quick: the tiny town, 100 queries, 10 photos; times are not judged.
"""

import argparse
import contextlib
import functools
import http.server
import importlib.util
import json
import shutil
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image
from rich.console import Console

from command import print_targets
from figures import target

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

RECIPES = {"places": "demo/places", "objects": "quickstart", "hashing": "demo/hashing"}
QUICK = {
    "places": ["data.size='tiny'", "rounds=1", "partition.radius=40.0", "partition.least=1", "topology.per_round=0"],
    "objects": ["rounds=3"],
    "hashing": ["data.town='tiny'", "rounds=1"],
}
TEN, POINTS, ALIKE = 10, 1.0, 0.02


def runs(folder, quick):
    from wayfare.cli import main

    for name, recipe in RECIPES.items():
        if not (folder / name / "summary.json").exists():
            given = [part for each in (QUICK[name] if quick else []) for part in ("--set", each)]
            command = ["run", recipe, "--out", str(folder / name), "--track", "none", "--engine", "local", *given]
            with contextlib.redirect_stdout(sys.stderr):  # what is printed may be JSON
                assert main(command) == 0


# ---- equal answers


def order(queries, items, own=None):
    """The first ten items of each query but its own, nearest first: by distance, in double precision."""
    found = []
    for start in range(0, len(queries), 200):
        part = queries[start : start + 200].astype(np.float64)
        far = (part**2).sum(1)[:, None] + (items.astype(np.float64) ** 2).sum(1) - 2 * part @ items.T.astype(np.float64)
        if own is not None:
            far[np.arange(len(far)), own[start : start + 200]] = np.inf
        found.append(np.argsort(far, axis=1, kind="stable")[:, :TEN])
    return np.concatenate(found)


def unit(values):
    return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)


def some(rows, count):
    rows = np.asarray(rows)
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int))]


def networks(part, folder):
    """The run's own network, and the written ones."""
    from wayfare.exporting.onnx_file import OnnxNetwork, round_weights, write_onnx

    found = {"run": part}
    write_onnx(part, folder / "onnx.onnx")
    round_weights(folder / "onnx.onnx", folder / "int8.onnx")
    found |= {name: OnnxNetwork(folder / f"{name}.onnx") for name in ("onnx", "int8")}
    if importlib.util.find_spec("executorch"):
        from wayfare.exporting.pte_file import PteNetwork, write_pte

        write_pte(part, folder / "image.pte")
        found["executorch"] = PteNetwork(folder / "image.pte")
    return found


def compare(name, part, queries, answers_of, right, folder):
    """All networks on the same queries; `answers_of` makes ordered answers of outputs, `right` judges the first.

    `right` is None for a query that has no right answer.
    """
    from wayfare.exporting.agreement import through

    outputs = {
        kind: net(*queries) if kind == "executorch" else through(net, queries)  # ExecuTorch: a process for each call
        for kind, net in networks(part, folder).items()
    }
    answers = {kind: answers_of(values) for kind, values in outputs.items()}
    result = {"part": name, "queries": len(queries[0])}
    sizes = {kind: (folder / file).stat().st_size for kind, file in (("onnx", "onnx.onnx"), ("int8", "int8.onnx"))}
    result["bytes"] = sizes
    for kind, found in answers.items():
        same = (found == answers["run"]).all(1)
        judged = [right(row, int(first)) for row, first in enumerate(found[:, 0])]
        share = float(np.mean([each for each in judged if each is not None]))
        result[kind] = {
            "first_ten_identical": float(same.mean()),
            "first_identical": float((found[:, 0] == answers["run"][:, 0]).mean()),
            "right": 100 * share,
            "largest_difference": float(np.abs(outputs[kind] - outputs["run"]).max()),
        }
    return result


def places(folder, count, work):
    from wayfare.finished import load
    from wayfare.portable import as_input

    run = load(folder / "places", device="cpu")
    (part,), divided, images = run.portable(), run.task.loaded.divided, run.task.loaded.images
    database, queries = divided.test_database, divided.test_queries
    if len(queries) < count:  # strangers ask, too: their answers must be the same as well
        others = np.setdiff1d(np.arange(len(divided.photos)), np.concatenate((queries, database)))
        queries = np.concatenate((queries, some(others, count - len(queries))))
    queries = queries[:count]
    items = part_outputs(part, as_input(np.asarray(images[database])))
    known = divided.photos.positives(run.task.radius, queries, database)  # rows of photos
    right = lambda row, first: bool(np.isin(database[first], known[row])) if len(known[row]) else None  # noqa: E731
    given = (as_input(np.asarray(images[queries])),)
    return compare("places", part, given, lambda values: order(values, items), right=right, folder=work)


def part_outputs(part, inputs):
    from wayfare.exporting.agreement import through

    return through(part, (inputs,))


def objects(folder, count, work):
    from wayfare.finished import load
    from wayfare.portable import as_input

    run = load(folder / "objects", device="cpu")
    (part,), (pool, test) = run.portable(), run.task.loaded.parts
    rows = some(np.arange(len(test)), count)
    others = some(np.arange(len(pool)), count - len(rows))  # their answers must be the same, too, but are not judged
    images = np.concatenate((test.images[rows], pool.images[others]))
    answers = lambda values: np.argsort(-values, axis=1, kind="stable")[:, :TEN]  # noqa: E731
    right = lambda row, first: first == test.labels[rows[row]] if row < len(rows) else None  # noqa: E731
    return compare("objects", part, (as_input(images),), answers, right=right, folder=work)


def hashing(folder, count, work):
    from wayfare.finished import load
    from wayfare.portable import as_input

    run = load(folder / "hashing", device="cpu")
    task, parts = run.task, {part.name: part for part in run.portable()}
    pairs = task.pairs
    asked = some(np.concatenate((pairs.query, np.setdiff1d(np.arange(len(pairs)), pairs.query))), count)
    items = unit(part_outputs(parts["image"], as_input(np.asarray(pairs.pictures.read(np.arange(len(pairs)))))))
    right = lambda row, first: bool((pairs.labels[asked[row]] & pairs.labels[first]).any())  # noqa: E731
    found = []
    inputs = {
        "image": (as_input(np.asarray(pairs.pictures.read(asked))),),
        "text": (run.model.task.model.text.inputs([str(pairs.texts[row]) for row in asked], pairs.words),),
    }
    for name, part in parts.items():
        own = asked if name == "image" else None  # a photo would find itself
        answers = lambda values, own=own: order(unit(values), items, own)  # noqa: E731
        found.append(compare(f"hashing, {name}s", part, inputs[name], answers, right=right, folder=work))
    return found


# ---- the browser


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def browser(folder, count, work):
    """Photos located by the page and by Python."""
    from chromium import Chromium
    from wayfare.exporting.exporter import export
    from wayfare.finished import load
    from wayfare.places.index import FACTS, Index
    from wayfare.places.indexing import add
    from wayfare.places.leave_one_out import Calibrator
    from wayfare.places.locate import as_table, locate

    run = load(folder / "places", device="cpu")
    divided = run.task.loaded.divided
    photos, index = divided.photos, folder / "places" / "index"
    if not (index / FACTS).exists():
        add(run.model, photos.take(divided.test_database), index, Calibrator(run.model, folder / "places"))
    site = work / "site"
    export(folder / "places", "web", site, pictures=0)
    (site / "asked").mkdir()
    chosen = [photos.paths()[row] for row in some(divided.test_queries, count)]
    for number, path in enumerate(chosen):
        shutil.copy(path, site / "asked" / f"{number}.jpg")
    large = []
    for number, path in enumerate(chosen[:5]):  # of a phone: 12 megapixels
        with Image.open(path) as image:
            target = site / "asked" / f"large{number}.jpg"
            image.convert("RGB").resize((4032, 3024), Image.Resampling.BICUBIC).save(target, quality=90)
            large.append(target)
    wanted = [as_table(answer) for answer in locate(Index(index), [*chosen, *large], k=5).answers]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = Chromium(work / "chromium")
    try:
        began = time.perf_counter()
        page.open(f"http://127.0.0.1:{server.server_port}/")
        page.until("document.body.dataset.ready === 'true'")
        loading = time.perf_counter() - began
        page.run(f"({ASK})('0.jpg')")  # the first photo also waits for the index
        found = [json.loads(page.run(f"({ASK})('{n}.jpg')")) for n in (*range(len(chosen)), *ASKED_LARGE[: len(large)])]
    finally:
        page.close()
        server.shutdown()
        server.server_close()
    return {"loading": loading} | {
        kind: judged(wanted[part], found[part])
        for kind, part in (("town", slice(0, len(chosen))), ("12 megapixels", slice(len(chosen), None)))
    }


ASKED_LARGE = [f"large{number}" for number in range(5)]
ASK = """async (name) => {
  const file = new File([await (await fetch('asked/' + name)).blob()], name);
  return JSON.stringify(await wayfare.ask('locate', { file, name, k: 5 }));
}"""


def first_ten(answer):
    return [Path(match["file"]).name for place in answer["places"] for match in place["matches"]][:TEN]


def judged(wanted, found):
    """How often the page answers as Python does."""
    answers = [each["answer"] for each in found]
    confident = [abs(a["confidence"] - b["confidence"]) for a, b in zip(answers, wanted) if b["confidence"] is not None]
    moved = [
        float(np.hypot(a["position"]["easting"] - b["position"]["easting"],
                       a["position"]["northing"] - b["position"]["northing"]))
        for a, b in zip(answers, wanted)
    ]  # fmt: skip
    seconds = {
        name: float(np.median([each["seconds"].get(name, 0.0) for each in found]))
        for name in ("decode", "embed", "search")
    }
    return {
        "photos": len(answers),
        "first_place_identical": float(np.mean([first_ten(a)[0] == first_ten(b)[0] for a, b in zip(answers, wanted)])),
        "matches_identical": float(np.mean([first_ten(a) == first_ten(b) for a, b in zip(answers, wanted)])),
        "same_verdict": float(np.mean([a["unknown"] == b["unknown"] for a, b in zip(answers, wanted)])),
        "largest_confidence_difference": max(confident, default=0.0),
        "largest_move_m": max(moved, default=0.0),
        "seconds": seconds,
    }


# ---- the whole


def targets(found):
    """Rows for the page; those that are only told have no target."""
    rows = []
    for each in found["parts"]:
        name = each["part"]
        for kind, words in (("onnx", "ONNX"), ("executorch", "ExecuTorch")):
            share = each[kind]["first_ten_identical"] if kind in each else None
            rows.append(target(f"{name}: {words}, first ten answers identical", share, 1, 1))
        right = {kind: each[kind]["right"] for kind in ("run", "int8")}
        rows.append(target(f"{name}: points that int8 loses", right["run"] - right["int8"], most=POINTS))
        rows.append(target(f"{name}: right first answers, float32, %", right["run"]))
        rows.append(target(f"{name}: size of int8 over float32", each["bytes"]["int8"] / each["bytes"]["onnx"]))
    for kind in ("town", "12 megapixels") if found["browser"] else ():
        one, seconds = found["browser"][kind], found["browser"][kind]["seconds"]
        apart = one["largest_confidence_difference"]
        rows += [
            target(f"browser, {kind}: first match identical", one["first_place_identical"], 1),
            target(f"browser, {kind}: the same verdict", one["same_verdict"], 1),
            target(f"browser, {kind}: largest difference of confidence", apart, most=ALIKE),
            *(target(f"browser, {kind}: milliseconds to {what} a photo", 1000 * seconds[what]) for what in seconds),
        ]  # fmt: skip
    if found["browser"]:
        rows.append(target("browser: seconds until the page is ready", found["browser"]["loading"]))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--only", default="places,objects,hashing,browser")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--photos", type=int, default=100)
    given = parser.parse_args()
    queries, photos = (100, 10) if given.quick else (given.queries, given.photos)
    if not importlib.util.find_spec("onnxruntime"):
        print("not measured: the extra wayfare[export] is not installed")
        return 0
    from wayfare.downloads import onnxruntime_web

    with TemporaryDirectory() as temporary:
        work = Path(temporary)
        folder = given.runs or work / "runs"
        runs(folder, given.quick)
        parts = []
        for measure in (places, objects, hashing):
            if measure.__name__ in given.only:
                made = measure(folder, queries, work)
                parts += made if isinstance(made, list) else [made]
        asked = "browser" in given.only
        able = asked and onnxruntime_web.is_there() and shutil.which("chromium")
        found = {"parts": parts, "browser": browser(folder, photos, work) if able else None}
    rows = targets(found)
    if given.quick:  # what a network has hardly learnt is near a coin's toss, and so are its verdicts
        rows = [{**row, "met": None} if "browser" in row["name"] or "int8" in row["name"] else row for row in rows]
    met = all(row["met"] is not False for row in rows)
    if given.json:
        print(json.dumps({"quick": given.quick, "figures": found, "targets": rows, "met": met}))
    else:
        print_targets(rows, Console())
        if asked and not able:
            print("browser: not measured, chromium or onnxruntime-web is missing")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
