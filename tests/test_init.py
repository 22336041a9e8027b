"""From a folder to an answer: five layouts as people have them, each by `wayfare init` and without editing a file."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.TiffImagePlugin import IFDRational

import wayfare
from wayfare.cli import main
from wayfare.core.errors import ConfigError
from wayfare.starting.inspect import inspect
from wayfare.starting.templates import Choices, first_that_fits, hints, recipes

COLOURS = {"red": (220, 40, 40), "green": (40, 200, 60), "blue": (40, 60, 220)}


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch, shared_cache):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WAYFARE_CACHE", str(shared_cache))
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # no workers


def picture(file: Path, colour: tuple[int, int, int], seed: int, position: tuple[float, float] | None = None) -> Path:
    """A noisy field of one colour with a bright square, whose place depends on the seed."""
    rng = np.random.default_rng(seed)
    pixels = np.clip(np.array(colour) + rng.integers(-40, 41, (48, 48, 3)), 0, 255).astype(np.uint8)
    row, column = rng.integers(0, 36, 2)
    pixels[row : row + 8, column : column + 8] = 255
    exif = Image.Exif()
    if position is not None:
        degrees = [(IFDRational(round(abs(part) * 1e6), 10**6), IFDRational(0), IFDRational(0)) for part in position]
        exif[0x8825] = {1: "N", 2: degrees[0], 3: "E", 4: degrees[1]}
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file, quality=90, exif=exif)
    return file


def call(capsys, *arguments):
    status = main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def init(capsys, data: Path, *more: object) -> dict:
    """What init says; the recipe is what its name says."""
    status, out, err = call(capsys, "init", data, "--json", *more)
    assert status == 0, err
    made = json.loads(out)
    assert Path(made["recipe"]).exists() and Path(made["page"]).exists()
    assert "of memory" in made["estimate"] and "of traffic" in made["estimate"] and "computing" in made["estimate"]
    return made


def run(capsys, recipe: str, *more: object) -> dict:
    status, out, err = call(capsys, "run", recipe, "--out", "run", "--engine", "local", "--json", *more)
    assert status == 0, err
    return json.loads(out)


def test_a_flat_folder_with_a_table(capsys, tmp_path):
    """Photos along a street, by two people; some fields of the table are odd."""
    rows = ["file,lat,lon,heading,time,photographer"]
    colours = list(COLOURS.values())
    for number in range(24):
        place = number // 2  # two photos of each place
        picture(tmp_path / f"street/{number:02d}.jpg", colours[place % 3], place)
        odd = "372" if number == 5 else "90"
        rows.append(f"{number:02d}.jpg,48.0,{11 + 8e-5 * place:.6f},{odd},15:03,{('anna', 'ben')[place // 3 % 2]}")
    (tmp_path / "street/photos.csv").write_text("\n".join(rows) + "\n")
    made = init(capsys, tmp_path / "street", "--rounds", 2)
    assert made["task"] == "places" and made["clients"] == 2
    assert any("372" in line and "only this field" in line for line in made["odd"]) and len(made["odd"]) == 2
    result = run(capsys, "street.toml")
    assert 0 <= result["metrics"]["test/R@1"] <= 1 and result["refused"] == 0
    model = wayfare.load("run")
    model.index(tmp_path / "street")
    answer = model.locate(tmp_path / "street/07.jpg")
    assert answer.position.latitude == pytest.approx(48, abs=1e-3)
    assert model.embed([tmp_path / "street/07.jpg"]).shape[0] == 1
    assert set(model.evaluate()) & {"R@1"}


def test_photos_of_places_get_dinov2_once_its_weights_are_here(tmp_path, monkeypatch):
    """And the network sees upright photos upright: their EXIF says that they are to be turned."""
    exif, rows = Image.Exif(), ["file,lat,lon"]
    exif[0x0112] = 6
    (tmp_path / "walk").mkdir()
    for number in range(4):
        Image.fromarray(np.zeros((30, 40, 3), np.uint8)).save(tmp_path / f"walk/{number}.jpg", exif=exif)
        rows.append(f"{number}.jpg,{48 + number * 1e-3},11")
    (tmp_path / "walk/photos.csv").write_text("\n".join(rows) + "\n")
    found = inspect(tmp_path / "walk")
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "cache"))

    def chosen() -> tuple[object, ...]:
        first = next(recipes(found, Choices()))
        values = {each.key: each.value for part in first.values() for each in part}
        return values["backbone"], values["height"], values["width"]

    assert chosen() == ("efficientnet_lite0_stage5", 224, 160) and "wayfare data get dinov2-s" in hints("places")[0]
    weights = tmp_path / "cache/weights/dinov2-s.safetensors"
    weights.parent.mkdir(parents=True)
    weights.touch()
    assert chosen() == ("dinov2-s", 224, 168) and hints("places") == hints("objects") == []


def test_class_folders_with_some_positions(capsys, tmp_path):
    for kind, (name, colour) in enumerate(COLOURS.items()):
        for number in range(8):
            position = (48.0, 11.0) if number < 2 else None
            picture(tmp_path / f"sights/{name}/{name}{number}.jpg", colour, 100 * kind + number, position)
    made = init(capsys, tmp_path / "sights", "--clients", 3, "--rounds", 6)
    assert made["task"] == "objects" and made["layout"] == "folder" and made["clients"] == 3
    text = Path("sights.toml").read_text()
    assert "efficientnet_lite0_head" in text and "image_size = 160" in text and "  # " in text
    result = run(capsys, "sights.toml")
    assert result["metrics"]["test/accuracy"] >= 0.8  # three colours; chance is a third
    status, out, _ = call(capsys, "predict", tmp_path / "sights/red/red0.jpg", "--run", "run", "--json")
    assert status == 0 and json.loads(out)["answers"][0]["label"] == "red"


def test_pairs_without_labels(capsys, tmp_path):
    rows = ["photo,text"]
    things = ("shirt", "hat", "sock", "shoe", "glove", "scarf", "belt")
    for number in range(70):
        name, colour = list(COLOURS.items())[number % 3]
        picture(tmp_path / f"shop/{number}.jpg", colour, number)
        rows.append(f"{number}.jpg,a {name} {things[number % 7]} for the {number % 10}th day")
    (tmp_path / "shop/pairs.csv").write_text("\n".join(rows) + "\n")
    made = init(capsys, tmp_path / "shop", "--clients", 2, "--rounds", 2)
    assert made["task"] == "hashing" and "no column of labels" in made["counts"]
    assert "random MAP" in " ".join(run(capsys, "shop.toml")["metrics"])
    model = wayfare.load("run")
    model.index()
    assert len(model.search("hat", k=3).hits) == 3


@pytest.mark.parametrize("form", ["intervals", "positions"])
def test_traces(capsys, tmp_path, form):
    rng = np.random.default_rng(0)
    lines = []
    if form == "intervals":
        for _ in range(40):
            one, other = rng.choice(6, 2, replace=False)
            start = int(rng.integers(0, 1200))
            lines.append(f"{one} {other} {start} {start + 60}")
    else:
        places = rng.uniform(0, 200, (6, 2))
        for moment in range(0, 1230, 30):
            places += rng.normal(0, 20, places.shape)
            lines += [f"{moment} {device} {x:.2f} {y:.2f}" for device, (x, y) in enumerate(places)]
    (tmp_path / "walk.txt").write_text("\n".join(lines) + "\n")
    made = init(capsys, tmp_path / "walk.txt")
    assert made["task"] == "tour" and made["counts"]["devices"] == 6 and made["clients"] == 6
    fast = ("training.epochs=1", "model.width=2", "model.hidden=4", "exchange.lab=8", "topology.test=50")
    result = run(capsys, "walk.toml", *(word for each in fast for word in ("--set", each)))
    assert result["rounds"] > 40 and "tour/meetings" in " ".join(result["metrics"])
    assert wayfare.load("run").evaluate()["accuracy"] > 0


# ---- questions, flags and refusals


def test_run_takes_a_folder_and_makes_its_recipe(capsys, tmp_path):
    for name, colour in COLOURS.items():
        for number in range(6):
            picture(tmp_path / f"mine/{name}/{number}.jpg", colour, number)
    more = ("--rounds", 1, "--engine", "local", "--json", "--set", "model.image_size=32")
    status, _, err = call(capsys, "run", tmp_path / "mine", "--out", "first", *more)
    assert status == 0 and Path("mine.toml").exists() and "of traffic" in err, err
    status, _, err = call(capsys, "run", tmp_path / "mine", "--out", "second", *more)
    assert status == 0 and "existing recipe: " in err
    status, _, err = call(capsys, "run", "first")
    assert status == 2 and "wayfare resume first" in err
    status, _, err = call(capsys, "init", tmp_path / "mine")
    assert status == 2 and "--force" in err


def test_owners_and_tasks_are_chosen_by_flags(tmp_path):
    for who in ("anna", "ben", "cem"):
        for name, colour in COLOURS.items():
            for number in range(3):
                picture(tmp_path / f"people/{who}/{name}/{who}{number}.jpg", colour, number)
    found = inspect(tmp_path / "people")
    assert found.found.layout == "folder" and found.owners == {"folder": 3}
    text, experiment = first_that_fits(found, Choices(), "people")
    assert tomllib.loads(text)["partition"] == {"name": "column", "column": "folder", "least": 2}
    assert experiment.split().provenance["owners"] == ["anna", "ben", "cem"]
    assert tomllib.loads(first_that_fits(found, Choices(clients=4), "x")[0])["partition"]["clients"] == 4
    with pytest.raises(ConfigError, match="Known: folder, random"):
        first_that_fits(found, Choices(by="photographer"), "x")
    with pytest.raises(ConfigError, match="unknown task 'places'"):
        first_that_fits(found, Choices(task="places"), "x")


def test_much_data_is_not_tried_beforehand(capsys, tmp_path, monkeypatch):
    for name, colour in COLOURS.items():
        for number in range(3):
            picture(tmp_path / f"much/{name}/{number}.jpg", colour, number)
    monkeypatch.setattr("wayfare.cli.init._MOST_TRIED", 5)
    status, out, _ = call(capsys, "init", tmp_path / "much", "--json", "--clients", 2)
    assert status == 0 and json.loads(out)["estimate"].startswith("not estimated, because preparing 6 samples")


def test_questions_on_a_terminal(capsys, tmp_path, monkeypatch):
    from wayfare.cli import init as command

    for who in ("anna", "ben"):
        for name, colour in COLOURS.items():
            picture(tmp_path / f"people/{who}/{name}/1.jpg", colour, 1)
    found, answers = inspect(tmp_path / "people"), iter([2])
    monkeypatch.setattr("typer.prompt", lambda *_, **__: next(answers))
    assert command._asked(found, Choices()).by == "random"
    assert "folder: 2 clients" in capsys.readouterr().err
    assert command._asked(found, Choices(by="folder")) == Choices(by="folder")  # answered beforehand
