"""From a folder to an answer: five layouts as people have them, each by `wayfare init` and without editing a file."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import wayfare
from own_folders import COLOURS, park, picture, shop, street
from wayfare.cli import main
from wayfare.core.errors import ConfigError, DataError
from wayfare.starting.columns import PairColumns
from wayfare.starting.inspect import inspect
from wayfare.starting.sentences import described
from wayfare.starting.templates import Choices, first_that_fits, hints, recipes


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch, shared_cache):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WAYFARE_CACHE", str(shared_cache))
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # no workers


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
    street(tmp_path / "street")
    made = init(capsys, tmp_path / "street", "--rounds", 2)
    assert made["task"] == "places" and made["clients"] == 2
    assert any("372" in line and "only this field" in line for line in made["odd"]) and len(made["odd"]) == 2
    result = run(capsys, "street.toml")
    assert 0 <= result["metrics"]["test/R@1"] <= 1 and result["refused"] == 0
    model = wayfare.load("run")
    model.index()  # of the run's own photos
    status, out, _ = call(capsys, "locate", tmp_path / "street/07.jpg", "--run", "run", "--json")
    assert status == 0 and len(json.loads(out)["answers"]) == 1
    status, _, err = call(capsys, "locate", tmp_path / "street/07.jpg")
    assert status == 2 and "--index DIR, or --run RUN" in err
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
    shop(tmp_path / "shop")
    made = init(capsys, tmp_path / "shop", "--clients", 2, "--rounds", 2)
    assert made["task"] == "hashing" and "no column of labels" in made["counts"]
    assert "random MAP" in " ".join(run(capsys, "shop.toml")["metrics"])
    model = wayfare.load("run")
    model.index()
    assert len(model.search("hat", k=3).hits) == 3


def test_keywords_are_read_beside_names(capsys, tmp_path):
    """What people look for is in the keywords; and colours count without being asked for."""
    shop(tmp_path / "shop", "picture file,name")
    table = tmp_path / "shop/pairs.csv"
    head, *rows = table.read_text().splitlines()
    table.write_text("\n".join([f"{head},keywords", *(f"{row},sad" for row in rows)]) + "\n")
    made = init(capsys, tmp_path / "shop", "--clients", 2, "--rounds", 2)
    recipe = tomllib.loads(Path("shop.toml").read_text())
    assert recipe["data"]["text"] == "name+keywords" and recipe["model"]["image"]["colours"] is True
    assert "`wayfare data get dinov2-s` and `wayfare data get minilm`" in made["hints"][0]


def test_pairs_get_better_encoders_once_they_are_here(tmp_path, monkeypatch):
    shop(tmp_path / "shop")
    found = inspect(tmp_path / "shop")
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache/weights").mkdir(parents=True)

    def chosen() -> tuple[str, str]:
        values = {each.key: each.value for each in next(recipes(found, Choices()))["model"]}
        return values["image"]["name"], values["text"]["name"]

    for name in ("dinov2-s", "minilm"):
        assert chosen() == ("frozen", "bag") and hints("hashing")  # one alone is not enough
        (tmp_path / f"cache/weights/{name}.safetensors").touch()
    assert chosen() == ("dinov2-s", "minilm") and not hints("hashing")


def test_scene_graphs_without_a_test_set(capsys, tmp_path):
    """Eight of forty images are held back: the file names none to test with."""
    park(tmp_path / "park")
    made = init(capsys, tmp_path / "park", "--rounds", 1, "--clients", 2)
    assert made["task"] == "scenes" and tomllib.loads(Path("park.toml").read_text())["data"]["test"] == 8
    metrics = run(capsys, "park.toml")["metrics"]
    assert metrics["test/R@20"] >= 0.5  # one of the two relations of an image is always the same


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
    assert made["counts"]["read as"].startswith(f"{form} (")
    assert made["task"] == "tour" and made["counts"]["devices"] == 6 and made["clients"] == 6
    fast = ("training.epochs=1", "model.width=2", "model.hidden=4", "topology.test=50")
    result = run(capsys, "walk.toml", *(word for each in fast for word in ("--set", each)))
    lines = [json.loads(line) for line in Path("run/rounds.jsonl").read_text().splitlines()]
    events = [line["events"] for line in lines if "slot" in line.get("events", {})]
    assert sum(each.get("slots", 1) for each in events) > 40  # of 30 s; a round has several
    assert "tour/meetings" in " ".join(result["metrics"])
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


def test_a_folder_with_the_name_of_a_recipe(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("quickstart").mkdir()
    status, _, err = call(capsys, "run", "quickstart", "--rounds", 1, "--engine", "local", "--out", "here")
    assert status == 0 and "read as the recipe of this name; for the folder, give ./quickstart" in err
    status, _, err = call(capsys, "run", "./quickstart")
    assert status != 0 and Path("here/summary.json").exists()  # it is empty


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


def test_questions_about_columns_on_a_terminal(capsys, tmp_path, monkeypatch):
    """Asked where names do not say it: the guess first, each column with examples; options answer beforehand."""
    from wayfare.cli import init as command

    shop(tmp_path / "shop", "photo,words")
    table = tmp_path / "shop/pairs.csv"
    rows = [
        f"{line},{('new', 'old')[number % 2]},{number}" for number, line in enumerate(table.read_text().split("\n"))
    ]
    table.write_text("\n".join(["photo,words,state,price", *rows[1:-1]]) + "\n")
    found, told = inspect(tmp_path / "shop"), PairColumns()
    assert found.columns == PairColumns("photo", "words", "state")
    answers = iter([1, 3])
    monkeypatch.setattr("typer.prompt", lambda *_, **__: next(answers))
    assert command._asked_columns(found, told) == PairColumns("photo", "words", "words:5")
    shown = capsys.readouterr().err
    assert "1  words: a red shirt for the 0th day" in shown and "1  state: old, new" in shown and "3  none" in shown
    answers = iter([2])
    chosen = command._asked_columns(found, PairColumns(text="words"))
    assert chosen == PairColumns("photo", "words", "price") and "has the texts" not in capsys.readouterr().err
    shop(tmp_path / "usual")
    assert command._asked_columns(inspect(tmp_path / "usual"), told) == PairColumns()


# ---- odd folders


def test_a_table_with_column_names_of_ones_own(capsys, tmp_path):
    """Photos by their numbers, texts under a name of one's own, a column of kinds; what is told goes first."""
    shop(tmp_path / "shop")
    (tmp_path / "shop/pairs.csv").unlink()
    rows = ["nummer,preis,beschreibung,art"]
    rows += [f"{n},{n}.50,ein Ding Nummer {n} zum Tragen,{('hut', 'schuh')[n % 2]}" for n in range(70)]
    (tmp_path / "shop/liste.csv").write_text("\n".join(rows) + "\n")
    found = inspect(tmp_path / "shop")
    assert found.columns == PairColumns("{nummer}.jpg", "beschreibung", "art")
    assert "70 photos with texts, 2 labels" in found.sentence() and "text from 'beschreibung'" in found.sentence()
    assert tomllib.loads(first_that_fits(found, Choices(), "x")[0])["data"]["text"] == "beschreibung"
    told = inspect(tmp_path / "shop", told=PairColumns(text="art+beschreibung", labels="art"))
    assert told.columns == PairColumns("{nummer}.jpg", "art+beschreibung", "art")
    status, out, _ = call(capsys, "data", "check", tmp_path / "shop")
    assert status == 0 and "in a run: --set 'data.photo={nummer}.jpg' --set data.text=beschreibung" in out
    status, out, _ = call(capsys, "data", "check", tmp_path / "shop", "--text", "art+beschreibung", "--json")
    assert status == 0 and json.loads(out)["found"][0]["columns"]["text"] == "art+beschreibung"
    status, _, said = call(capsys, "data", "check", tmp_path / "shop", "--labels", "art", "--layout", "psg")
    assert status == 2 and "columns of a table" in said
    with pytest.raises(ConfigError, match="did you mean 'beschreibung'"):
        inspect(tmp_path / "shop", told=PairColumns(text="beschreibun"))


def test_class_folders_with_odd_things_in_them(tmp_path):
    for name in ("Bäume im Park", "Häuser"):
        for number in range(6):
            picture(tmp_path / f"Meine Fotos/{name}/{number}.jpg", COLOURS["red"], number)
    (tmp_path / "Meine Fotos/Häuser/halb.jpg").write_bytes(b"\xff\xd8\xff no picture")
    (tmp_path / "Meine Fotos/Häuser/handy.tiff").write_bytes(b"0")
    (tmp_path / "Meine Fotos/leer").mkdir()
    picture(tmp_path / "Meine Fotos/lose.jpg", COLOURS["blue"], 1)
    found = inspect(tmp_path / "Meine Fotos")
    assert found.sentence().endswith("13 pictures in folders of 2 classes: Bäume im Park 6, Häuser 7")
    odd = " | ".join(found.odd)
    for part in (
        "halb.jpg",
        "handy.tiff: the format .tiff is not read: convert to JPEG",
        "leer: no JPEG",
        "lose.jpg: it is in no",
    ):
        assert part in odd, odd
    assert first_that_fits(found, Choices(clients=2), "x")[1].task.classes == ("Bäume im Park", "Häuser")


@pytest.mark.parametrize(("files", "said"), [
    (["a.jpg", "b.jpg"], "2 pictures without positions, texts or classes"),
    (["cat/a.jpg", "cat/b.jpg"], "all in one folder, 'cat': telling classes apart needs two"),
    (["a.avif", "b.AVIF"], "2 AVIF files, not read: convert to JPEG"),
    (["notes.txt"], "no pictures"),
    (["photos.zip"], "1 ZIP file, not read: unpack first"),
    ([], "the folder is empty"),
])  # fmt: skip
def test_what_cannot_be_used_is_described(tmp_path, files, said):
    (tmp_path / "mine").mkdir()
    for number, name in enumerate(files):
        picture((tmp_path / "mine" / name).with_suffix(".jpg"), COLOURS["red"], number).rename(tmp_path / "mine" / name)
    with pytest.raises(DataError, match=said) as caught:
        inspect(tmp_path / "mine")
    assert len(str(caught.value)) < 500


def test_folders_with_a_table_each_are_no_classes(tmp_path):
    """A folder for each city, with its own table: what the tables say would be lost without a word."""
    for city in ("oslo", "riga"):
        street(tmp_path / "cities" / city)
    with pytest.raises(
        DataError, match="2 of its folders have a table of photos of their own, not read here: oslo, riga"
    ):
        inspect(tmp_path / "cities")
    assert inspect(tmp_path / "cities", "folder").found.layout == "folder"


def test_tables_of_positions_as_spreadsheets_write_them(tmp_path):
    street(tmp_path / "street")
    table = tmp_path / "street/photos.csv"
    rows = [line.split(",") for line in table.read_text().splitlines()]
    named = [["Dateiname", "GPSLatitude", "GPSLongitude"], *(row[:3] for row in rows[1:])]
    table.write_text("\n".join(";".join(row).replace(".0", ",0") for row in named) + "\n", encoding="utf-8-sig")
    found = inspect(tmp_path / "street")
    assert found.findings.counts["photos"] == 24
    assert "around latitude 48.0, longitude 11.0" in found.sentence()  # exchanged ones are seen here
    table.write_text("\n".join(["file,lat,lon", *(f"{row[0]},140.1,35.{n}" for n, row in enumerate(rows[1:]))]) + "\n")
    with pytest.raises(DataError, match="; 46 more like this; are latitude and longitude swapped"):
        inspect(tmp_path / "street")


def test_photos_far_from_each_other_get_a_larger_radius(tmp_path):
    """Every 11 m a photo: none has another within the usual 10 m."""
    rows = ["file,lat,lon"]
    for number in range(24):
        picture(tmp_path / f"road/{number}.jpg", COLOURS["red"], number)
        rows.append(f"{number}.jpg,{48 + 1e-4 * number:.4f},11.0")
    (tmp_path / "road/photos.csv").write_text("\n".join(rows) + "\n")
    text, experiment = first_that_fits(inspect(tmp_path / "road"), Choices(), "road")
    assert tomllib.loads(text)["task"]["mining"] == {"name": "places", "radius": 30.0, "negative_radius": 60.0}
    clients = experiment.clients(experiment.split())
    assert not experiment.task.cannot_train(clients.client("c0").train)


def test_what_was_read_of_traces_is_said(tmp_path):
    """How lines were read, and what came of it: whoever has other lines sees it."""
    lines = [f"{n % 3} 5 {20 * n} {20 * n + 30}" for n in range(9)]
    (tmp_path / "met.txt").write_text("\n".join(lines) + "\n")
    said = inspect(tmp_path / "met.txt").sentence()
    assert "4 devices" in said and "contacts; read as intervals (i j start end), --layout" in said
    with pytest.raises(DataError, match="4 fields, expected i j t"):
        inspect(tmp_path / "met.txt", "meetings")


def test_files_of_an_unknown_form_are_described(tmp_path):
    (tmp_path / "five.txt").write_text("1 2 3 4 5\n6 7 8 9 10\n")
    with pytest.raises(DataError, match=r"5 fields, 1, 2, 3, 4, 5; .* --layout .*intervals \(`i j start end`\)"):
        inspect(tmp_path / "five.txt")
    (tmp_path / "photos.zip").write_bytes(b"PK\5\6" + bytes(18))
    with pytest.raises(DataError, match="unpack it, and name the folder"):
        inspect(tmp_path / "photos.zip")
    (tmp_path / "radio.csv").write_text("timestamp,user_a,user_b,rssi\n0,1,2,-70\n20,1,3,-60\n")
    assert inspect(tmp_path / "radio.csv").findings.counts["contacts"] == 2


def test_a_file_is_run_like_a_folder(capsys, tmp_path):
    (tmp_path / "noise.txt").write_text("0.1 0.2 0.3\n0.5 0.1 0.2\n0.2 0.6 0.1\n")
    status, _, err = call(capsys, "run", tmp_path / "noise.txt")
    assert status == 1 and "a trace of one device" in err


def test_photos_from_all_over_the_world_are_described_as_such(tmp_path):
    """Widths and middles of them all would mean nothing."""
    counts = {"form": "exif", "photos": 213, "zones": "18N, 32N, 54N", "width, m": 1_310_000, "height, m": 94_000,
              "latitude": 41.9, "longitude": 11.6}  # fmt: skip
    said = described("photos", counts)
    assert "1,310 x 94 km in the widest of several parts of the world (UTM zones 18N, 32N, 54N)" in said
    assert "latitude" not in said and "latitude 41.9" in described("photos", counts | {"zones": "32N"})
