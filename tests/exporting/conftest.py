"""Runs and indexes to export, on a tiny town with hostile names."""

import shutil

import pytest

from hostile import photos_with_odd_names

pytest.importorskip("onnxruntime", reason="the extra wayfare[export] is not installed")


@pytest.fixture(scope="session")
def material(tmp_path_factory):
    from wayfare.cli import main
    from wayfare.hashing.indexing import index_run
    from wayfare.town.make import Spec, make

    folder = tmp_path_factory.mktemp("export")
    make(folder / "town", Spec("tiny", layouts=("msls", "fashion")))
    runs, small = folder / "runs", ["--rounds", "1", "--engine", "local", "--track", "none"]
    sets = {
        "places": ("demo/places", "msls", ["model.backbone.name=cnn", "model.backbone.width=4", "data.height=32",
                                           "data.width=48", "partition.radius=40.0", "partition.least=1",
                                           "training.iterations=1", "topology.per_round=1"]),
        "things": ("demo/hashing", "fashion", ["model.bits=16", "model.text.hidden=16", "model.image.hidden=0",
                                               "model.image.colours=true", "training.epochs=1",
                                               "partition.clients=2"]),
    }  # fmt: skip
    for name, (recipe, layout, settings) in sets.items():
        data = [f"data.path={folder / 'town' / layout}"]
        given = [part for each in [*settings, *data] for part in ("--set", each)]
        assert main(["run", recipe, "--out", str(runs / name), *small, *given]) == 0
    assert main(["run", "quickstart", "--out", str(runs / "digits"), *small]) == 0
    photos = sorted((folder / "town" / "msls").rglob("database/images/*.jpg"))
    photos_with_odd_names(photos[:60], folder / "photos")
    assert main(["index", str(runs / "places"), "--photos", str(folder / "photos")]) == 0
    index_run(runs / "things", runs / "things" / "index")
    shutil.copy(photos[0], folder / "photo.jpg")
    return folder


@pytest.fixture(scope="session")
def sites(material):
    """A page of each run; without ONNX Runtime for browsers in the cache they are whole, but cannot be opened."""
    from wayfare.downloads import onnxruntime_web
    from wayfare.exporting.exporter import export

    runtime = material / "runtime"
    runtime.mkdir()
    for name in (*onnxruntime_web.FILES.values(), onnxruntime_web.LICENCE):
        (runtime / name).write_text("MIT License: a file that stands for another")
    with pytest.MonkeyPatch.context() as patch:
        if not onnxruntime_web.is_there():
            patch.setattr(onnxruntime_web, "folder", lambda: runtime)
        names = ("places", "things", "digits")
        return {name: export(material / "runs" / name, "web", material / f"web-{name}") for name in names}
