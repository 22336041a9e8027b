"""A folder of static files that answers in the browser: a page, the network, ONNX Runtime, and an index.

    index.html, app/       the page, its styles and scripts
    app.webmanifest, sw.js so that it can be installed, and opens without a network
    ort/                   ONNX Runtime for browsers, with its licence
    model/                 model.json and the networks
    data/                  site.json, and the index: see place_files.py and word_files.py

The page's content policy allows its own files and nothing else, and the worker that holds the network has the same
policy, so neither can send a photo anywhere, even by mistake. No file name or text of the index is in HTML: scripts
read them as JSON and put them into the page as text.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wayfare.downloads import onnxruntime_web
from wayfare.exporting.packing import write_json
from wayfare.pages.page import STATIC, template_engine

POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; worker-src 'self' blob:; manifest-src 'self'; base-uri 'none'; form-action 'none'"
)
_OWN = Path(__file__).with_name("static")
_APP = (
    "base.css", "ask.css", "site.css", "icon.svg", "main.js", "draw.js", "worker.js", "pictures.js", "places.js",
    "earth.js", "search.js", "words.js", "tokenizer.js", "classes.js",
)  # fmt: skip
_QUESTIONS = {
    "places": "Where was your photo taken?",
    "classes": "What is in your photo?",
    "search": "Find photos by words, or by a photo",
}


@dataclass(frozen=True)
class WebSite:
    """What a site is made of, beside the files of model and index."""

    title: str
    kind: str  # "places", "classes" or "search"
    parts: Mapping[str, Any]  # by name: file and preparing
    classes: list[str]
    places: Mapping[str, Any] | None = None
    search: Mapping[str, Any] | None = None
    example: str = "red shirt"


def write_site(site: WebSite, folder: Path, runtime: Path) -> list[str]:
    """Write all that is not there yet; the names of all files of the folder."""
    for part in ("app", "ort", "data"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for name in _APP:
        own = _OWN / name
        shutil.copyfile(own if own.is_file() else STATIC / name, folder / "app" / name)
    for name in (*onnxruntime_web.FILES.values(), onnxruntime_web.LICENCE):
        shutil.copyfile(runtime / name, folder / "ort" / name)
    table = {
        "format": 1, "title": site.title, "kind": site.kind, "parts": dict(site.parts), "classes": site.classes,
        "places": site.places, "search": site.search,
    }  # fmt: skip
    write_json(folder / "data" / "site.json", table)
    page = template_engine("wayfare.exporting").get_template("site.html").render(
        policy=POLICY, title=site.title, question=_QUESTIONS[site.kind], photos="image" in site.parts,
        words=site.kind == "search" and "text" in site.parts, example=site.example, about=_about(site),
    )  # fmt: skip
    (folder / "index.html").write_text(page, encoding="utf-8")
    (folder / "app.webmanifest").write_text(json.dumps(_web_manifest(site)), encoding="utf-8")
    _write_service_worker(folder)
    return files_of(folder)


def files_of(folder: Path) -> list[str]:
    """All files of a site, as their addresses."""
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())


def _web_manifest(site: WebSite) -> dict[str, Any]:
    icon = {"src": "app/icon.svg", "sizes": "any", "type": "image/svg+xml", "purpose": "any"}
    return {
        "name": f"Wayfare: {site.title}", "short_name": "Wayfare", "start_url": "./", "scope": "./",
        "display": "standalone", "background_color": "#f7f6f3", "theme_color": "#2a658f", "icons": [icon],
    }  # fmt: skip


def _write_service_worker(folder: Path) -> None:
    """It keeps all files, under a version that is made of their contents."""
    target = folder / "sw.js"
    target.unlink(missing_ok=True)
    names = files_of(folder)
    sums = [f"{name} {hashlib.sha256((folder / name).read_bytes()).hexdigest()}" for name in names]
    version = hashlib.sha256("\n".join(sums).encode()).hexdigest()[:16]
    text = (_OWN / "sw.js").read_text(encoding="utf-8")
    listed = json.dumps(["./", *names])
    target.write_text(text.replace("@VERSION@", version).replace("@FILES@", listed), encoding="utf-8")


def _about(site: WebSite) -> str:
    if site.places is not None:
        inside = f"It knows {site.places['count']:,} photos and where they were taken. "
    elif site.search is not None:
        counts = [f"{view['count']:,} {name}" for name, view in site.search["views"].items()]
        inside = f"It knows {' and '.join(counts)}. "
    else:
        inside = f"It tells {len(site.classes):,} classes apart. "
    return inside + "Once loaded, it needs no network. Your photos and words are sent to nobody."
