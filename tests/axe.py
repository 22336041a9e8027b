"""The rules of axe-core, the usual checker of accessibility, run in an open page.

Its npm package (MPL-2.0) is fetched once by the registry's own client, compared with a checksum, and only tests use it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from wayfare.core.errors import DataError
from wayfare.downloads.fetching import NpmPackage, npm_archive
from wayfare.io.archives import unpack
from wayfare.io.cache import new_folder

PACKAGE = NpmPackage(
    "axe-core@4.14.1",
    sha512="FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
    bytes=720_000,
    by_hand="or do without these tests",
)
# outside the cache of the test run, so that one machine fetches it once
FOLDER = Path(tempfile.gettempdir()) / "wayfare-tests" / PACKAGE.name.replace("@", "-")
_RULES = """axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map(
  rule => `${rule.id}: ${rule.nodes.map(node => node.target.join(' ')).slice(0, 5).join(', ')}`))"""


def _script() -> str:
    file = FOLDER / "files" / "package" / "axe.min.js"
    if not file.is_file():
        try:
            with new_folder(FOLDER) as part:
                if part is not None:
                    archive = npm_archive(PACKAGE, part / "fetched", lambda what, done, total: None)
                    unpack(archive, part / "files", max_files=1000, max_bytes=2**27)
        except DataError as error:
            pytest.skip(f"axe-core cannot be fetched: {error}")
    return file.read_text(encoding="utf-8")


def violations(browser: Any) -> list[str]:
    """The rules that the page breaks, each with the elements that break it."""
    if not browser.run("'axe' in window"):
        browser.run(f"{_script()}; 0")
    return list(browser.run(_RULES))
