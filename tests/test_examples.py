"""Every example runs."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"


def checked(name, printed, out):
    """What an example prints and writes is there."""
    if name == "town":
        assert len(printed.splitlines()) == len(list(out.glob("*.jpg"))) == 5
    elif name == "locate":
        assert len(printed.splitlines()) == 4 and (out / "located.html").is_file()
    else:
        assert "test/accuracy" in printed


def test_all_are_here():
    assert {path.stem for path in FOLDER.glob("*.py")} == {"first", "locate", "objects_tour", "own_strategy", "town"}


@pytest.mark.parametrize("name", ["first", "locate", "objects_tour"])
def test_example(name, shared_cache, tmp_path, monkeypatch, capsys):
    """In this process: it has imported torch already."""
    monkeypatch.setenv("WAYFARE_CACHE", str(shared_cache))
    monkeypatch.setattr(sys, "argv", [name, str(tmp_path / "run")])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    checked(name, capsys.readouterr().out, tmp_path / "run")


@pytest.mark.parametrize("name", ["own_strategy", "town"])
def test_example_as_a_program(name, tmp_path):
    """Workers import the program's own strategy; the town's caches would stay in this process."""
    command = [sys.executable, FOLDER / f"{name}.py", tmp_path / "run"]
    env = {**os.environ, "WAYFARE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=env)
    assert done.returncode == 0, done.stderr
    checked(name, done.stdout, tmp_path / "run")


def test_the_readme_shows_the_first_example():
    code = (FOLDER / "first.py").read_text()
    block = (FOLDER.parent / "README.md").read_text().split("```python\n")[1].split("```")[0]
    body = block.replace('"runs/first"', 'sys.argv[1] if len(sys.argv) > 1 else "runs/first"')
    assert body.strip() in code.replace("import sys\n\n", "")
