"""A server with an index of places, one of search, and two runs, on a tiny town."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from device_home import write_home
from hostile import photos_with_odd_names

pytest.importorskip("fastapi", reason="the extra wayfare[serve] is not installed")


class Server:
    """`wayfare serve` in a process of its own."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "wayfare", "serve", *map(str, arguments), "--no-open", "--port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.said = []
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.search(r"(http://127\.0\.0\.1:(\d+))/\?token=(\S+)", line):
                self.base, self.port, self.token = found[1], int(found[2]), found[3]
                break
        self.reader = threading.Thread(target=lambda: self.said.extend(self.process.stderr), daemon=True)
        self.reader.start()

    @property
    def address(self):
        return f"{self.base}/?token={self.token}"

    def client(self, **headers):
        import httpx

        return httpx.Client(base_url=self.base, headers=headers, timeout=120)

    def api(self):
        return self.client(Authorization=f"Bearer {self.token}")

    def close(self):
        self.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.process.kill()
        self.process.wait()
        self.reader.join(20)
        self.process.stderr.close()


@pytest.fixture(scope="session")
def material(tmp_path_factory):
    """Runs and indexes, as the command line makes them."""
    from wayfare.cli import main
    from wayfare.hashing.hash_model import hashing_run, load_hash_model
    from wayfare.hashing.indexing import index_run
    from wayfare.town.make import Spec, make

    folder = tmp_path_factory.mktemp("serve")
    make(folder / "town", Spec("tiny", layouts=("msls", "fashion")))
    runs, small = folder / "runs", ["--rounds", "1", "--engine", "local", "--track", "none"]
    sets = {
        "places": ("demo/places", "msls", ["model.backbone.name=cnn", "model.backbone.width=4", "data.height=32",
                                           "data.width=32", "partition.radius=40.0", "partition.least=1",
                                           "training.iterations=1", "topology.per_round=1"]),
        "things": ("demo/hashing", "fashion", ["model.bits=16", "model.text.hidden=16", "model.image.hidden=16",
                                               "model.image.colours=true",
                                               "training.epochs=1", "partition.clients=2"]),
    }  # fmt: skip
    for name, (recipe, layout, settings) in sets.items():
        data = [f"data.path={folder / 'town' / layout}"]
        given = [part for each in [*settings, *data] for part in ("--set", each)]
        assert main(["run", recipe, "--out", str(runs / name), *small, *given]) == 0
    model, photos = load_hash_model(hashing_run(runs / "things")), sorted((folder / "town" / "msls").rglob("*.jpg"))
    photos_with_odd_names(photos[:60], folder / "photos", " ".join(model.words[5:8]))
    assert main(["index", str(runs / "places"), "--photos", str(folder / "photos")]) == 0
    index_run(runs / "things", runs / "things" / "index", photos=folder / "photos", texts=folder / "texts.csv")
    (folder / "photo.jpg").write_bytes(photos[0].read_bytes())
    return folder


@pytest.fixture(scope="session")
def server(material, tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys")
    anna = write_home(keys.with_name("devices") / "anna")
    started = Server(material / "runs", "--certificates", keys, "--device", anna)
    yield started
    started.close()


@pytest.fixture(scope="session")
def indexes(server):
    """The ids of the indexes, by kind."""
    with server.api() as api:
        found = api.get("/api/v1/indexes").json()["indexes"]
    assert all(not each["error"] for each in found), json.dumps(found)
    return {each["kind"]: each["id"] for each in found}


@pytest.fixture
def uploaded(server, material):
    with server.api() as api:
        data = Path(material / "photo.jpg").read_bytes()
        return api.post("/api/v1/photos", params={"name": "photo.jpg"}, content=data).json()["photo"]


os.environ.setdefault("OMP_NUM_THREADS", "1")
