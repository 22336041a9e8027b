"""The recipe search.toml on a folder of one's own: what is typed finds what is meant."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from wayfare.cli import main
from wayfare.core.seeds import rng_for

RECIPE = Path(__file__).parents[3] / "recipes" / "search.toml"
COLOURS = {"red": (210, 40, 40), "green": (40, 170, 60), "blue": (40, 60, 200)}
EACH = 16


@pytest.fixture(scope="module")
def album(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of plain things, and a table that has no labels."""
    folder, lines = tmp_path_factory.mktemp("album"), ["photo,text"]
    for number in range(EACH):
        for colour, values in COLOURS.items():
            noisy = np.array(values) + rng_for(0, colour, number).normal(0, 20, (32, 32, 3))
            Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{colour}{number:02}.png")
            lines.append(f"{colour}{number:02}.png,a {colour} bag")
    (folder / "texts.csv").write_text("\n".join(lines))
    return folder


def test_ones_own_photos_are_found_by_words(album: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, mine = tmp_path / "run", tmp_path / "unseen"
    mine.mkdir()
    for colour, values in COLOURS.items():  # photos without any text
        for number in range(3):
            noisy = np.array(values) + rng_for(1, colour, number).normal(0, 20, (32, 32, 3))
            Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(mine / f"{colour}{number}.png")
    settings = [f"data.path={album}", "partition.clients=2", "rounds=6", "training.batch_size=8", "model.image.side=32"]
    assert main(["run", str(RECIPE), "--out", str(run), *(f"--set={each}" for each in settings)]) == 0
    assert main(["index", str(run), "--photos", str(mine)]) == 0
    capsys.readouterr()
    for query, colour in (("red bag", "red"), ("geren bags", "green"), ("blue", "blue")):
        assert main(["search", *query.split(), "--index", str(run / "index"), "-k", "3", "--json"]) == 0
        (answer,) = json.loads(capsys.readouterr().out)["answers"]
        assert {result["name"] for result in answer["results"]} == {f"{colour}{number}.png" for number in range(3)}
    red = mine / "red0.png"  # the same photo in another colour is no answer any more
    with Image.open(red) as photo:
        Image.merge("RGB", photo.split()[::-1]).save(red)
    assert main(["index", str(run), "--photos", str(mine)]) == 0
    for query, names in (("red", {"red1", "red2"}), ("blue", {"blue0", "blue1", "blue2", "red0"})):
        capsys.readouterr()
        assert main(["search", query, "--index", str(run / "index"), "-k", str(len(names)), "--json"]) == 0
        (answer,) = json.loads(capsys.readouterr().out)["answers"]
        assert {Path(result["name"]).stem for result in answer["results"]} == names
