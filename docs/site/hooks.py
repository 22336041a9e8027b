"""What the site needs beside docs/: pages of the files outside it that the documentation links to.

A link to a Markdown file leads to a page of it, one to a source file to a page with its code, and one to a folder is
plain text. The notebooks are pages too, with what they printed and showed; the page of `make demo` is copied as it is.
"""

import html
import json
import re
import shutil
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[([^\]]+)\]\(((?!https?:|#)[^)#\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^(```+\w+) .*$", re.MULTILINE)  # "console parse-only": what follows the language is for our tests
SYNOPSIS = re.compile(r"^(#+) (wayfare .*)$", re.MULTILINE)  # its brackets are no links
README, START = "README.md", "wayfare.md"  # MkDocs takes a README for an index
NOTEBOOKS, DEMO = ROOT / "examples" / "notebooks", ROOT / "runs" / "demo"
DEMO_MARK = "<!-- demo -->"


def on_files(files, config):
    """Add a page for the README and for every file outside docs/ that a page leads to."""
    _add(files, config, README)
    left = [file.src_uri for file in files.documentation_pages()]
    while left:
        uri = left.pop()
        for _, target, _ in LINK.findall(_markdown(uri)):
            path = _outside(uri, target)
            if path and path.is_file() and files.get_file_from_path(_uri(path)) is None:
                left.append(_add(files, config, path.relative_to(ROOT).as_posix()))
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=notebook(path)))
    return files


def notebook(path):
    """A notebook as Markdown."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += [shown(output) for output in cell.get("outputs", [])]
    return "\n\n".join([*parts, f"The notebook: `{path.relative_to(ROOT).as_posix()}`", ""])


def shown(output):
    """What a cell printed, or the picture that it showed."""
    data = output.get("data", {})
    words = "".join(output.get("text", data.get("text/plain", [])))
    if "image/jpeg" in data:
        return f'<img alt="{html.escape(words)}" src="data:image/jpeg;base64,{data["image/jpeg"]}">'
    return f"```text\n{words.rstrip()}\n```"


def on_post_build(config):
    """Copy the page of the demo, and what it leads to."""
    if (DEMO / "index.html").is_file():
        for page in (DEMO / "index.html", *DEMO.glob("*/compare.html"), *DEMO.glob("*/*/report.html")):
            copy = Path(config["site_dir"]) / "demo" / page.relative_to(DEMO)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(page, copy)


def on_page_markdown(markdown, page, config, files):
    """Lead links out of docs/ to those pages."""

    if (DEMO / "index.html").is_file():
        markdown = markdown.replace(DEMO_MARK, '<a href="demo/index.html">Open the demo\'s page</a>')

    def led(match):
        words, target, place = match.groups()
        path = _outside(page.file.src_uri, target)
        if path is None:
            return f"[{words}]({_up(page)}{_inside(page.file.src_uri, target)}{place or ''})"
        if not path.is_file():
            return words
        return f"[{words}]({_up(page)}{_uri(path)}{place or '' if path.suffix == '.md' else ''})"

    return LINK.sub(led, SYNOPSIS.sub(r"\1 `\2`", FENCE.sub(r"\1", markdown)))


def _add(files, config, name):
    path = ROOT / name
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".md":
        text = f"# {name}\n\n```{path.suffix[1:]}\n{text}\n```\n"
    files.append(File.generated(config, _uri(path), content=text))
    return _uri(path)


def _uri(path):
    name = path.relative_to(ROOT).as_posix()
    return START if name == README else f"files/{name}" if path.suffix == ".md" else f"files/{name}.md"


def _source(uri):
    """The file that a page is made of."""
    if uri == START:
        return ROOT / README
    if not uri.startswith("files/"):
        return ROOT / "docs" / uri
    name = uri.removeprefix("files/")
    return ROOT / name if (ROOT / name).is_file() else ROOT / name.removesuffix(".md")


def _markdown(uri):
    source = _source(uri)
    return source.read_text(encoding="utf-8") if source.suffix == ".md" else ""


def _target(uri, target):
    return (_source(uri).parent / target).resolve()


def _outside(uri, target):
    """The file or folder of the project that a link leads to, if it is not in docs/."""
    path = _target(uri, target)
    return None if path.is_relative_to(ROOT / "docs") or not path.is_relative_to(ROOT) else path


def _inside(uri, target):
    path = _target(uri, target)
    return path.relative_to(ROOT / "docs").as_posix() if path.is_relative_to(ROOT / "docs") else target


def _up(page):
    return "../" * page.file.src_uri.count("/")
