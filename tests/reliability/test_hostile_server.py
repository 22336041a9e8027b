"""What a hostile server can make a node do: no path that it names is used, and its text is harmless in the log."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hostile import HOSTILE, hostile
from wayfare.core.errors import ConfigError
from wayfare.experiment import Experiment

pytest.importorskip("flwr", reason="Flower is not installed: wayfare[flower]")
from wayfare.deploy import client_app, local_folder, node_log

FOLDERS = ("..", ".", "../../x", "/etc", "a/../..", "~", "", ".hidden", *(text[:60] for text in HOSTILE))


def call(home: Path, **said: Any) -> tuple[Any, Any]:
    """A message and the context of a node."""
    words = {"program": "ready", "experiment": "", "folder": "run", "seconds": 60.0, "until": 0.0, "sign_in": ""} | said
    node = {"photos": str(home / "photos"), "name": "anna", "home": str(home)}
    return SimpleNamespace(content={"call": words}), SimpleNamespace(node_config=node, state={})


def test_no_folder_that_the_server_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run's folder is one level below HOME/runs, and nobody signs in anywhere."""
    victim, seen = tmp_path / "victim", list[str]()
    victim.mkdir()

    def bench(experiment: str, folder: str, photos: str, name: str) -> None:
        seen.append(folder)
        assert not list(victim.iterdir())

    monkeypatch.setattr(client_app, "_bench", bench)
    for folder in (*FOLDERS, str(victim)):
        for sign_in in (victim, victim / "new", tmp_path / "none/new"):
            client_app._perform(*call(tmp_path / "home", folder=folder, sign_in=str(sign_in)), {})
    runs = tmp_path / "home/runs"
    assert {Path(os.path.normpath(folder)).parent for folder in seen if folder != str(runs)} == {runs}
    assert len(set(seen)) == len({*FOLDERS, str(victim)})
    assert not list(victim.iterdir())


@pytest.mark.parametrize("weights", ["/etc/passwd", "../secret.safetensors", "~/secret.safetensors", "photos/../../x"])
def test_no_file_that_the_server_names(weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = 'rounds = 1\n[task]\nname = "objects"\n[data]\nname = "folder"\npath = "/etc"\n[model]\nname = "resnet18"'
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "cache"))
    photos = str(tmp_path / "photos")
    with pytest.raises(ConfigError, match=r"names a file of this machine: task\.model\.weights = "):
        local_folder.own(Experiment.from_toml(f'{recipe}\nweights = "{weights}"'), photos)
    for fine in ("", "resnet18.safetensors", str(tmp_path / "cache/w.safetensors"), str(tmp_path / "photos/w")):
        mine = local_folder.own(Experiment.from_toml(f'{recipe}\nweights = "{fine}"'), photos)
        assert mine.task.data.path == photos  # type: ignore[attr-defined]


@hostile
def test_the_servers_text_in_a_nodes_log(text: str, tmp_path: Path) -> None:
    """Each line of the log begins with the time or is indented, and has no control character."""
    forged = f"{text}\n2026-01-01 00:00:00 all is well\r2026-01-01 00:00:00 all is well"
    message, context = call(tmp_path, program=forged)
    client_app._tell(message, context, {})
    assert client_app._discreet({"failed": f"ConfigError: {forged}", "detail": forged}, tmp_path) == {
        "failed": "ConfigError: the node's own log says more"
    }
    written = (tmp_path / "node.log").read_text()
    assert written.replace("\n", "").isprintable() and len(written) < 60_000
    own = [line for line in written.splitlines() if not line.startswith("    ")]
    assert len(own) == 2 and all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in own)
    lines = node_log.lines_since_now(tmp_path)
    assert next(lines) == []
    node_log.say(tmp_path, forged)
    assert "".join(next(lines)).isprintable()
