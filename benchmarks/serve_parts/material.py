"""What is served: an index of places and one of search, a run that draws graphs; and photos to ask."""

import contextlib
import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from wayfare.cli import main
from wayfare.core import disk
from wayfare.core.seeds import rng_for
from wayfare.experiment import Experiment
from wayfare.hashing import code_index, lexicon
from wayfare.hashing.code_index import CodePart, Codes
from wayfare.hashing.hash_model import hashing_run, load_hash_model
from wayfare.hashing.search import MODEL
from wayfare.nets.published import PUBLISHED
from wayfare.places.data.place_photos import Group, PlacePhotos, text_column
from wayfare.places.indexing import add
from wayfare.places.trained_model import Described, TrainedPlaceModel

SHAPE = (960, 1280)
PART = 20_000
# networks of an index of photographs: what the recipe has, and what it calls better, if its weights were fetched
NETWORKS = {
    "efficientnet": {},
    "dinov2-s": {"model.backbone.name": "dinov2-s", "model.pooling.name": "gem", "model.adapters": 8},
}
TINY = {"search": ("demo/hashing", "data.town='tiny'"), "scenes": ("demo/scenes", "data.size='tiny'")}
BOXES = (("person", 0.1, 0.3, 0.4, 0.9), ("bicycle", 0.3, 0.5, 0.8, 0.95), ("tree", 0.6, 0.05, 0.95, 0.7))


def make(folder, photographs, asked):
    """Networks that have hardly learnt: what is found does not matter here, only how long it takes."""
    for name, (recipe, town) in TINY.items():
        given = ["--rounds", "1", "--engine", "local", "--track", "none", "--set", town]
        with contextlib.redirect_stdout(sys.stderr):  # what is printed may be JSON
            assert main(["run", recipe, "--out", str(folder / "runs" / name), "--json", *given]) == 0
    for network in networks():
        make_places(folder / network, photographs, NETWORKS[network])
    make_codes(folder / "runs" / "search", folder / "runs" / "search" / "index", photographs)
    make_photos(folder / "asked", asked)


def networks():
    """Those that can be made here."""
    return [name for name in NETWORKS if name != "dinov2-s" or PUBLISHED[name].path.is_file()]


def make_places(folder, count, settings):
    """Descriptors at random, and a network of the recipe for one's own photos."""
    experiment = Experiment.read(Path(__file__).parents[2] / "recipes/photos.toml", settings)
    model = TrainedPlaceModel("serve", experiment.to_toml(), experiment.task, experiment.task.network().eval())
    numbers = experiment.task.describe(model.net, np.zeros((1, *model.size, 3), np.uint8)).shape[1]
    names = text_column([f"{row}.jpg" for row in range(count)])
    place = rng_for(0, "positions").uniform(0, 20_000, (count, 2))
    table = PlacePhotos(
        folder / "photos", names, keys=names, groups=(Group("city", "33N"),), group=np.zeros(count, np.int32),
        easting=place[:, 0], northing=place[:, 1], split=np.full(count, ""),
    )  # fmt: skip

    def described(_model, files):
        for start in range(0, len(files), PART):
            size = min(PART, len(files) - start)
            found = np.random.default_rng([start]).standard_normal((size, numbers), np.float32)
            yield Described(np.arange(start, start + size), found, [], 0.0, 0.0)

    add(model, table, folder / "index", describe=described)


def make_codes(run, out, count):
    """Codes at random, each with a text of the town."""
    found = hashing_run(run)
    model = load_hash_model(found)
    found.task.prepare(lambda *_: None)
    texts = [str(text) for text in found.task.pairs.texts]
    rng = rng_for(0, "codes")

    def parts():
        for start in range(0, count, PART):
            rows = range(start, min(start + PART, count))
            values = rng.integers(-127, 128, (len(rows), model.bits), np.int8)
            tables = [{"name": f"{row}.jpg", "files": [], "texts": [texts[row % len(texts)]]} for row in rows]
            yield CodePart([f"{row}.jpg" for row in rows], np.packbits(values > 0, axis=1), tables, values)

    code_index.add(out / "photos", model.digest, model.name, parts())
    lexicon.write(Codes(out / "photos"))
    disk.write(out / MODEL, model.pack())


def make_photos(folder, count):
    folder.mkdir()
    for number in range(count):
        small = np.random.default_rng(number).integers(0, 256, (60, 80, 3), np.uint8)
        image = Image.fromarray(small).resize(SHAPE[::-1], Image.Resampling.BICUBIC)
        image.save(folder / f"{number}.jpg", quality=90)


def boxes(classes):
    """Three objects of a photo, of classes that the model knows."""
    wide, high = SHAPE[::-1]
    known = [name for name, *_ in BOXES if name in classes] or list(classes)
    return [
        {"label": known[number % len(known)], "box": [a * wide, b * high, c * wide, d * high]}
        for number, (_, a, b, c, d) in enumerate(BOXES)
    ]


def write_boxes(folder, classes):
    """The same as a file, which the Python API reads."""
    content = {file.name: boxes(classes) for file in (folder / "asked").iterdir()}
    (folder / "boxes.json").write_text(json.dumps(content))
    return folder / "boxes.json"
