"""Every block of code in README and docs runs, or says why not; every link leads somewhere; nothing generated is stale.

What the first words after the three backticks mean:

    python                  executed; all such blocks of a page share one namespace and one empty folder
    python file=NAME        written there under this name
    toml                    loaded as an experiment; with file=NAME also written there
    toml not-a-recipe       only read
    json, csv               read; with file=NAME also written there
    console, bash, sh       every line is run: exit status 0
    console parse-only      every line is parsed: commands, options, recipes and settings are those that there are
    console not-here: WHY   lines of `wayfare` are parsed, those of other programs (docker, ssh) are not looked at
    python parse-only: WHY  compiled, and its imports tried
    yaml, ini not-here: WHY a file for another program
    text                    nothing to run: a drawing, the form of an output
"""

import ast
import csv
import json
import re
import shlex
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from command_lines import COMMANDS, lines_of, parsed
from wayfare.cli import main
from wayfare.components import names
from wayfare.core.errors import WayfareError
from wayfare.experiment import Experiment
from wayfare.reference import pages

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(.*)\n((?:.*\n)*?)```$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    line: int
    language: str
    marks: str
    text: str

    @property
    def file(self) -> str:
        """The name under which it is kept."""
        return next((mark.removeprefix("file=") for mark in self.marks.split() if mark.startswith("file=")), "")


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = []
    for match in FENCE.finditer(text):
        language, _, marks = match[1].partition(" ")
        found.append(Block(text[: match.start()].count("\n") + 1, language, marks, match[2]))
    return found


# ---- what is only parsed


def compiled(code: str) -> None:
    """It is Python, and what it imports is there."""
    imports = [n for n in ast.parse(code).body if isinstance(n, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), "imports", "exec"), {})


# ---- what is run


class Reader:
    """Somebody who follows a page in an empty folder."""

    def __init__(self, page: Path) -> None:
        self.page, self.names = page, {"__name__": "page"}

    def follow(self, block: Block) -> None:
        if block.file:
            Path(block.file).write_text(block.text)
        getattr(self, f"_{block.language}")(block)

    def _python(self, block: Block) -> None:
        assert re.fullmatch(r"|file=\S+|parse-only: \w.*", block.marks), f"what is {block.marks!r}?"
        if "parse-only" in block.marks:
            compiled(block.text)
        elif not block.file:
            code = "\n" * block.line + block.text  # so that an error names the page's own line
            exec(compile(code, str(self.page), "exec"), self.names)

    def _console(self, block: Block) -> None:
        assert re.fullmatch(r"|parse-only|not-here: \w.*", block.marks), f"what is {block.marks!r}?"
        for words in lines_of(block.text):
            if words[0] == "wayfare" or not block.marks.startswith("not-here"):
                parsed(words)
            if not block.marks:
                assert words[0] == "wayfare", f"mark it parse-only: {words}"
                assert main(words[1:]) == 0, shlex.join(words)

    _bash = _sh = _console

    def _yaml(self, block: Block) -> None:
        assert re.fullmatch(r"not-here: \w.*", block.marks), "say why it cannot be tried"

    _ini = _yaml

    def _toml(self, block: Block) -> None:
        assert re.fullmatch(r"|file=\S+|not-a-recipe", block.marks), f"what is {block.marks!r}?"
        if block.marks == "not-a-recipe":
            tomllib.loads(block.text)
        else:
            Experiment.from_toml(block.text)

    def _json(self, block: Block) -> None:
        json.loads(block.text)

    def _csv(self, block: Block) -> None:
        rows = list(csv.reader(block.text.splitlines()))
        assert len({len(row) for row in rows}) == 1, rows

    def _text(self, block: Block) -> None:
        pass


@pytest.fixture
def empty_folder(tmp_path, monkeypatch, shared_cache):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WAYFARE_CACHE", str(shared_cache))
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # the engine `auto` is then `local`, which needs no workers
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    yield
    for name in [name for name, module in sys.modules.items() if str(tmp_path) in str(getattr(module, "__file__", ""))]:
        del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_runs(page, empty_folder):
    reader = Reader(page)
    for block in blocks(page):
        assert hasattr(reader, f"_{block.language}"), f"{page.name}:{block.line}: a block in {block.language!r}"
        try:
            reader.follow(block)
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{page.name}:{block.line}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_in_the_text_exist(page):
    """In spans of code and in indented lines: the command, and every option."""
    text = FENCE.sub("", page.read_text())
    spans = re.findall(r"`(wayfare [a-z][^`]*)`", text) + re.findall(r"^    (wayfare [a-z].*)$", text, re.MULTILINE)
    for span in [*spans, *re.findall(r"^#+ (wayfare [a-z].*)$", text, re.MULTILINE)]:
        words = span.split()
        name = next((n for n in (" ".join(words[1:3]), words[1]) if n in COMMANDS), None)
        group = any(command.startswith(words[1] + " ") for command in COMMANDS)
        assert name or (group and len(words) == 2), f"{page.name}: {span}"
        known = {o for p in COMMANDS[name].params for o in p.opts} | {"--help"} if name else set()
        assert set(re.findall(r"(?<=\s)--[a-z][\w-]*", span)) <= known | {"--help"}, f"{page.name}: {span}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text())):
        if not target.startswith(("http://", "https://")):
            file, _, anchor = target.partition("#")
            there = (page.parent / file) if file else page
            assert there.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors(there), f"{page.name}: {target}"


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_list():
    index = (ROOT / "docs" / "index.md").read_text()
    assert not [page.name for page in PAGES[2:] if page.name != "index.md" and page.name not in index]


def test_every_page_is_on_the_site():
    shown = set(re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("nav:\n")[2]))
    assert shown == {page.name for page in (ROOT / "docs").rglob("*.md")} | {"wayfare.md"}  # the README


@pytest.mark.parametrize("name", ["reference-cli.md", "reference-toml.md", "strategies.md"])
def test_generated_pages_are_fresh(name):
    docs = ROOT / "docs"
    assert (docs / name).read_text() == pages(docs)[name], "stale: run `make docs`"


@pytest.mark.parametrize("strategy", names("strategy"))
def test_every_strategy_is_explained(strategy):
    """How it works, and what of a device it sends."""
    assert strategy in anchors(ROOT / "docs" / "strategies.md")
    assert f"`{strategy}`" in (ROOT / "docs" / "privacy.md").read_text().partition("## By strategy")[2]


def test_your_own_parts_are_as_short_as_is_said():
    page = ROOT / "docs" / "bring-your-own.md"
    said = dict(re.findall(r"^\| .* \| `(\w+\.py)` \| (\d+) \|$", page.read_text(), re.MULTILINE))
    codes = {block.file: block.text.splitlines() for block in blocks(page) if block.language == "python" and block.file}
    assert {name: str(sum(bool(line.strip()) for line in code)) for name, code in codes.items()} == said
    assert len(said) == 4 and max(map(int, said.values())) <= 20


def test_a_wrong_line_is_noticed(tmp_path, empty_folder):
    """The checks above can fail."""
    for line in (
        "wayfare rnu quickstart",
        "wayfare run quickstart --sede 3",
        "wayfare run quickstat",
        "wayfare run quickstart --set training.lrr=1",
        "wayfare reproduce fedvpr/table4 --cells nonsense",
        "make nonsense",
        "python examples/nonsense.py",
    ):
        (words,) = lines_of(line)
        with pytest.raises((AssertionError, click.ClickException, WayfareError)):
            parsed(words)
    with pytest.raises(ModuleNotFoundError):
        compiled("import nonsense_of_ours")
