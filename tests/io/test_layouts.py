"""Which layout a folder has is found by looking."""

import json

import numpy as np
import pytest
from PIL import Image

from wayfare.cli import main
from wayfare.core.errors import DataError
from wayfare.io import layouts


def picture(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(path)


@pytest.fixture
def several(tmp_path):
    """A folder with three data sets in it, one of them with two faults."""
    (tmp_path / "walks").mkdir()
    (tmp_path / "walks" / "day.csv").write_text("device,time,lat,lon\na,0,50.0,10.0\na,30,95.0,10.0\nb,0,50.0,10.0\n")
    for name in ("cat", "dog"):
        picture(tmp_path / "animals" / name / "1.png")
    (tmp_path / "animals" / "dog" / "2.jpg").write_bytes(b"\xff\xd8\xff")
    picture(tmp_path / "trip" / "a.png")
    (tmp_path / "trip" / "photos.csv").write_text("file,lat,lon\na.png,50.0,10.0\nb.png,50.0,10.0\n")
    (tmp_path / "notes.txt").write_text("not data")
    return tmp_path


def test_found_by_looking(several):
    assert {(f.path.name, f.layout) for f in layouts.find(several)} == {
        ("walks", "traces"), ("animals", "folder"), ("trip", "photos"),
    }  # fmt: skip
    assert [f.layout for f in layouts.find(several / "trip")] == ["photos"]


def test_every_name_has_its_module_and_its_words():
    assert set(layouts.MODULES) == set(layouts.DESCRIPTIONS)
    for name in layouts.MODULES:
        module = layouts.FoundLayout(name, layouts.Path()).module
        assert callable(module.recognises) and callable(module.check)


@pytest.mark.parametrize("name", layouts.MODULES)
def test_nothing_is_recognised_in_nothing(name, tmp_path):
    module = layouts.FoundLayout(name, tmp_path).module
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "empty", tmp_path / "file", tmp_path / "absent"):
        assert not module.recognises(path)


def test_what_is_not_known_is_told(tmp_path):
    with pytest.raises(DataError, match="no such file or folder"):
        layouts.find(tmp_path / "absent")
    with pytest.raises(DataError, match=r"the folder is empty.*psg\.json"):
        layouts.find(tmp_path)
    (tmp_path / "x.bin").write_bytes(b"123")
    with pytest.raises(DataError, match="not in a known layout"):
        layouts.find(tmp_path)


def test_the_command_names_file_and_line(several, capsys):
    assert main(["data", "check", str(several), "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["problems"] == 3
    found = {item["layout"]: item for item in result["found"]}
    assert found["traces"]["problems"][0]["line"] == 3
    assert found["traces"]["problems"][0]["field"] == "lat"
    assert found["folder"]["problems"][0]["file"].endswith("2.jpg")
    assert "b.png" in found["photos"]["problems"][0]["text"]
    assert found["folder"]["counts"]["pictures"] == 3


def test_the_command_in_words(several, capsys):
    assert main(["data", "check", str(several / "walks")]) == 1
    assert "day.csv:3: field 'lat': out of range" in capsys.readouterr().out
    (several / "walks" / "day.csv").write_text("device,time,lat,lon\na,0,50.0,10.0\na,30,50.0,10.0\n")
    assert main(["data", "check", str(several / "walks")]) == 0
    assert "no problems" in capsys.readouterr().out


def test_strict_stops_at_the_first(several, capsys):
    assert main(["data", "check", str(several / "walks"), "--strict"]) == 1
    assert "DataError" in capsys.readouterr().err
