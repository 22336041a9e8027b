"""benchmarks/README.md is what its figures and its text give; figures are entered with where they come from."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def modules(monkeypatch):
    """The benchmarks' own modules."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module("figures"), importlib.import_module("page")
    for name in ("figures", "page"):
        sys.modules.pop(name, None)


def test_the_page_is_up_to_date(modules):
    _, page = modules
    assert page.rendered() == page.PAGE.read_text(), "run python benchmarks/page.py"


def test_every_published_figure_says_when_and_of_which_code(modules):
    figures, _ = modules
    known = figures.every()
    assert len(known) > 15
    for name, found in known.items():
        assert name == found.name and found.date >= "2026-11-16" and (found.commit or found.published), name
        assert found.targets == [figures.as_target(row) for row in found.targets], name


def test_targets_by_hand(modules):
    figures, page = modules
    assert figures.target("a", 0.5, 0.4, 0.6)["met"] is True
    assert figures.target("a", 0.5, 0.4, 0.6)["target"] == "at least 0.4 and at most 0.6"
    assert figures.target("a", 3, 4)["met"] is False
    assert figures.target("a", 0, 0, 0) == {"name": "a", "value": 0, "target": "0", "met": True}
    assert figures.target("a", None, 4)["met"] is None and figures.target("a", 3)["target"] == ""
    assert [page.words(value) for value in (1234567, 0.98765, 1234.5, "1, 2", None)] == [
        "1,234,567", "0.988", "1,234", "1, 2", "",
    ]  # fmt: skip


def test_figures_are_entered_with_commit_and_machine(modules, tmp_path, monkeypatch, capsys):
    figures, page = modules
    monkeypatch.setattr(figures, "FOLDER", tmp_path)
    monkeypatch.setattr(page, "PAGE", tmp_path / "README.md")
    monkeypatch.setattr(page, "TEMPLATE", tmp_path / "page.md")
    (tmp_path / "page.md").write_text("# Page\n\n<!-- figures: scale -->\n\n<!-- figures: gate -->\n")
    rows = [figures.target("a | b", 2.0, 1.0), figures.target("c", 5.0, most=1.0), figures.target("d", None, 1.0)]
    source = tmp_path / "scale.json.txt"
    source.write_text(json.dumps({"targets": rows}))
    monkeypatch.setattr(sys, "argv", ["page.py", "scale", str(source), "--busy"])
    assert page.main() == 0
    found = figures.Figures.read(tmp_path / "scale.json")
    head = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    assert found.commit.rstrip("+") == head.stdout.strip() and "torch" in found.machine and found.busy
    text = (tmp_path / "README.md").read_text()
    assert "| a \\| b | 2 | at least 1 | met |\n| c | 5 | at most 1 | **missed** |" in text
    assert "| d |  | at least 1 | not measured |" in text and "torch" in text and "†" in text
    assert text.endswith("Not measured yet.\n")

    for argv, content, told in [
        (["scale"], {"targets": rows, "quick": True}, "--quick"),
        (["scale"], {"targets": [{"name": "a", "value": None, "target": "x", "met": True}]}, "without a value"),
        (["scale"], {}, "not the JSON"),
        (["scales"], {"targets": rows}, "there is no line"),
        (["scale", "--command", "scales.py"], {"targets": rows}, "no such benchmark"),
    ]:
        source.write_text(json.dumps(content))
        monkeypatch.setattr(sys, "argv", ["page.py", argv[0], str(source), *argv[1:]])
        with pytest.raises(SystemExit) as refused:
            page.main()
        assert told in str(refused.value)


def test_all_benchmarks_are_run_by_everything(modules):
    everything = importlib.import_module("everything")
    own = {"everything.py", "page.py", "gate_runs.py"}  # the last is a part of gate.py
    assert set(everything.QUICK) == {file.name for file in (ROOT / "benchmarks").glob("*.py")} - own
    assert set(modules[0].every()) <= set(everything.jobs())
    with pytest.raises(SystemExit, match="scales: there are rounds"):
        everything.chosen("scales")
