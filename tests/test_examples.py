"""Every example runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, tmp_path):
    command, env = [sys.executable, path, tmp_path / "run"], {**os.environ, "WAYFARE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=env)
    assert done.returncode == 0, done.stderr
    if path.stem == "town":
        assert len(done.stdout.splitlines()) == len(list((tmp_path / "run").glob("*.jpg"))) == 5
    elif path.stem == "locate":
        assert len(done.stdout.splitlines()) == 4 and (tmp_path / "run" / "located.html").is_file()
    else:
        assert "test/accuracy" in done.stdout


def test_the_readme_shows_the_first_example():
    code = (EXAMPLES[0].parent / "first.py").read_text()
    block = (EXAMPLES[0].parents[1] / "README.md").read_text().split("```python\n")[1].split("```")[0]
    body = block.replace('"runs/first"', 'sys.argv[1] if len(sys.argv) > 1 else "runs/first"')
    assert body.strip() in code.replace("import sys\n\n", "")
