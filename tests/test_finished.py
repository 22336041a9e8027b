"""wayfare.load: one object for every task, what it offers and what it refuses; the commands predict and evaluate."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

import wayfare
from wayfare import Experiment, Run, run
from wayfare.attributes.task import Attributes
from wayfare.cli import main
from wayfare.components import NAMED, imported
from wayfare.core.errors import ConfigError, DataError
from wayfare.core.protocols import Training
from wayfare.finished import FinishedRun
from wayfare.hashing.task import Hashing
from wayfare.objects.data.folder import ClassFolders
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.partition.random import Random
from wayfare.strategies.local import Local

_METHODS = ("predict", "embed", "index", "locate", "search", "graph")


@pytest.fixture(scope="module", autouse=True)
def one_cache(shared_cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAYFARE_CACHE", str(shared_cache))
        yield


def colour_folder(root: Path, each: int = 10) -> Path:
    """Class folders that can be told apart by their colour."""
    rng = np.random.default_rng(0)
    for name, colour in (("blue", (30, 30, 200)), ("red", (200, 30, 30))):
        (root / name).mkdir(parents=True)
        for number in range(each):
            noise = rng.integers(-30, 31, (32, 32, 3))
            pixels = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{name}{number}.png")
    return root


@pytest.fixture(scope="module")
def colours(tmp_path_factory) -> Run:
    root = tmp_path_factory.mktemp("colours")
    task = Objects(ClassFolders(str(colour_folder(root / "photos")), image_size=16), CnnClassifier(width=4, hidden=8))
    experiment = Experiment(task, Random(2), training=Training(epochs=5, batch_size=4, lr=0.1), rounds=4)
    return run(experiment, root / "run", "local")


def test_run_gives_a_mapping_with_history_report_and_folder(colours):
    assert colours["metrics"] == colours.metrics == json.loads((colours.folder / "summary.json").read_text())["metrics"]
    assert [row["round"] for row in colours.history] == [0, 1, 2, 3, 4]  # pandas is not installed here
    assert colours.history[4]["test/accuracy"] == colours.metrics["test/accuracy"] == 1.0
    assert colours.report() == colours.folder / "report.html" and colours.report().exists()
    assert os.fspath(colours) == str(colours.folder) and "test/accuracy 1" in repr(colours)
    assert "<td>test/accuracy</td><td>1</td>" in colours._repr_html_()
    assert json.loads(json.dumps(colours)) == dict(colours)


def test_history_is_a_data_frame_where_pandas_is_installed(colours, monkeypatch):
    class Frame(list):
        def set_index(self, name):
            return name, self

    monkeypatch.setattr("wayfare.results.find_spec", lambda name: name == "pandas")
    monkeypatch.setattr("wayfare.results.import_module", lambda name: type("pandas", (), {"DataFrame": Frame}))
    index, rows = colours.history
    assert index == "round" and len(rows) == 5


def test_dir_shows_the_public_names():
    assert dir(wayfare) == sorted(wayfare.__all__) and {"load", "run", "Run"} <= set(dir(wayfare))
    assert all(getattr(wayfare, name) is not None for name in dir(wayfare))


def test_a_classifier_predicts_one_photo_or_several(colours, tmp_path):
    model = colours.load()
    colour_folder(tmp_path / "new", each=2)
    one = model.predict(tmp_path / "new/red/red0.png")
    assert one.label == "red" and one.score > 0.5 and list(one.scores) == ["red", "blue"]
    assert sum(one.scores.values()) == pytest.approx(1)
    (tmp_path / "new/broken.jpg").write_bytes(b"no picture")
    with pytest.warns(UserWarning, match="broken.jpg"):
        several = model.predict(tmp_path / "new")
    assert [each.label for each in several] == [each.photo.parent.name for each in several] and len(several) == 4
    with pytest.raises(DataError, match=r"broken\.jpg"):
        model.predict(tmp_path / "new/broken.jpg")
    with pytest.raises(DataError, match="no such file"):
        model.predict(tmp_path / "nothing.jpg")


def test_its_network_is_a_plain_module_with_all_that_stands_before_it(colours):
    model = wayfare.load(colours)
    file = colours.folder.parent / "photos/red/red1.png"
    with Image.open(file) as picture:
        small = np.asarray(picture.convert("RGB").resize((16, 16), Image.Resampling.BILINEAR))
    pixels = torch.from_numpy(small.copy()).permute(2, 0, 1)[None].float() / 255
    logits = model.network(pixels).detach()
    assert logits.shape == (1, 2) and logits.argmax() == 1
    # the scaling "half" by hand: (p - 0.5) / 0.5
    assert torch.allclose(logits, model.trained_net((pixels - 0.5) / 0.5))
    vectors = model.embed([file, file])  # a row for each that was asked for, also for the same photo
    assert vectors.shape == (2, 8) and (vectors[0] == vectors[1]).all()


def test_evaluate_on_the_test_set_and_on_a_folder(colours, tmp_path):
    model = colours.load()
    assert model.evaluate()["accuracy"] == colours.metrics["test/accuracy"]
    new = colour_folder(tmp_path / "new", each=3)
    (new / "red/red0.png").rename(new / "blue/wrong.png")
    assert model.evaluate(new)["accuracy"] == pytest.approx(5 / 6)
    (new / "green").mkdir()
    Image.new("RGB", (8, 8)).save(new / "green/1.png")
    with pytest.raises(DataError, match="green"):
        model.evaluate(new)


def test_export_writes_weights_and_what_they_expect(colours, tmp_path):
    folder = colours.load().export(tmp_path / "out")
    manifest = json.loads((folder / "model.json").read_text())
    assert manifest["classes"] == ["blue", "red"] and manifest["task"] == "objects"
    assert manifest["input"] == {"shape": ["n", 3, 16, 16], "colours": "RGB", "range": [0, 1]}
    weights = safetensors.torch.load_file(folder / manifest["weights"])
    assert set(weights) == set(colours.load().network.state_dict())


def test_what_a_task_does_not_offer_is_refused_with_what_it_does(colours):
    with pytest.raises(
        ConfigError, match=r"a run of objects has no \.locate; it has predict, embed, evaluate, network"
    ):
        colours.load().locate("a.jpg")
    with pytest.raises(ConfigError, match=r"a run of objects has no \.index"):
        colours.load().index()


@pytest.mark.parametrize("task", NAMED["task"])
def test_every_task_offers_what_it_says_and_refuses_the_rest(task):
    cls = imported(imported(NAMED["task"][task]).finished)
    for method in _METHODS:
        own = getattr(cls, method) is not getattr(FinishedRun, method)
        assert own == (method in cls.offers), method


def test_a_moved_data_set_is_found_with_data(tmp_path):
    photos = colour_folder(tmp_path / "photos", each=5)
    task = Objects(ClassFolders(str(photos), image_size=16), CnnClassifier(width=2, hidden=2))
    done = run(Experiment(task, Random(2), rounds=1), tmp_path / "run", "local")
    photos.rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="photos"):
        done.load().evaluate()
    assert wayfare.load(done, data=tmp_path / "elsewhere").evaluate()["accuracy"] == done.metrics["test/accuracy"]


def test_models_of_each_client_are_refused(tmp_path):
    done = run(Experiment(strategy=Local(), rounds=1), tmp_path / "run", "local")
    with pytest.raises(ConfigError, match="a model for each client"):
        done.load()


def test_hashing_is_searched_and_attributes_of_a_table_see_no_photo(tmp_path):
    found = run(Experiment(Hashing.example(), Random(2), rounds=1), tmp_path / "pairs", "local").load()
    assert found.methods == ("embed", "index", "search", "evaluate", "network", "export")
    assert {"MAP", "random MAP"} <= set(found.evaluate())
    assert found.embed(texts=["red"]).shape == (1, 16)
    with pytest.raises(DataError, match="there is no index yet"):
        found.search("red")
    with pytest.raises(ConfigError, match=r"search\('red shirt'\)"):
        found.search()
    faces = run(Experiment(Attributes.example(), Random(2), rounds=1), tmp_path / "faces", "local").load()
    assert "balanced_accuracy" in faces.evaluate()
    with pytest.raises(ConfigError, match=r"model\.name = 'cnn'"):
        faces.predict(__file__)


# ---- the commands


def call(capsys, *arguments):
    status = main([str(a) for a in arguments])
    return status, *capsys.readouterr()


def test_predict_on_the_command_line(colours, capsys):
    photos = colours.folder.parent / "photos"
    status, out, _ = call(capsys, "predict", photos / "red/red0.png", "--run", colours.folder)
    assert status == 0 and "red (" in out and "blue (" in out
    status, out, _ = call(capsys, "predict", photos, "--run", colours.folder, "--json", "-k", 1)
    answers = json.loads(out)["answers"]
    assert status == 0 and len(answers) == 20 and all(len(each["scores"]) == 1 for each in answers)


def test_evaluate_on_the_command_line(colours, capsys, tmp_path):
    status, out, _ = call(capsys, "evaluate", colours.folder, "--json")
    assert status == 0 and json.loads(out)["metrics"]["accuracy"] == 1.0
    status, out, _ = call(capsys, "evaluate", colours.folder, "--photos", colour_folder(tmp_path / "new", 2))
    assert status == 0 and "accuracy" in out
    status, _, err = call(capsys, "evaluate", colours.folder, "--out", "x.html")
    assert status == 2 and "wayfare report" in err
    status, _, err = call(capsys, "evaluate", tmp_path)
    assert status == 2 and "--photos is missing" in err


def test_in_a_notebook_without_ipywidgets_progress_is_lines(tmp_path, monkeypatch):
    """A live bar in a notebook needs ipywidgets; without them there is a line for each round."""
    from wayfare import api
    from wayfare.cli import console

    shown, lines = console.SafeConsole(stderr=True), []
    shown.is_jupyter = True
    monkeypatch.setattr(shown, "print", lambda *parts, **_: lines.append(" ".join(map(str, parts))))
    for module in (console, api):
        monkeypatch.setattr(module, "err", shown)
    monkeypatch.setattr(console, "find_spec", lambda name: None)
    run(replace(Experiment(rounds=1), name="noted"), tmp_path / "noted", "local")
    assert [line.split("  ")[:2] for line in lines[:2]] == [["round 0/1", "noted"], ["round 1/1", "noted"]]


def test_progress_is_shown_where_there_is_a_terminal_and_not_elsewhere(tmp_path, monkeypatch, capsys):
    from wayfare.cli import console

    run(Experiment(rounds=1), tmp_path / "quiet", "local")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(console, "err", console.SafeConsole(stderr=True, force_terminal=True, width=100))
    run(replace(Experiment(rounds=1), name="shown"), tmp_path / "shown", "local")
    assert "shown" in capsys.readouterr().err
