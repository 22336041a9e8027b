"""The notebooks run from top to bottom, and what they have kept is of the same cells."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
SAID = {  # what the outputs must tell, in any figures
    "encounters": ("nobody   mean", "FedTour  mean", "report:"),
    "places": ("test/R@1", ", like ", "image/jpeg"),
    "scenes": ("test/frequency mR@20", "image/jpeg"),
    "search": ("test/random MAP", "image/jpeg"),
}


@pytest.fixture
def execute(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import execute

    yield execute
    del sys.modules["execute"]


def test_all_are_here():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == SAID.keys()


@pytest.mark.parametrize("name", SAID)
def test_notebook(name, execute, shared_cache, tmp_path, monkeypatch):
    monkeypatch.setenv("WAYFARE_CACHE", str(shared_cache))
    monkeypatch.chdir(tmp_path)
    kept = execute.read(name)
    new = execute.executed(kept)
    for notebook in (new, kept):
        shown = str([cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"])
        assert [words for words in SAID[name] if words not in shown] == []
