"""Opening pages in a real browser, and figures as a page's script paints them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

_QUIET = "--no-first-run --disable-background-networking --disable-component-update --disable-sync --disable-gpu"


def browse(page: Path, folder: Path, *options: str) -> tuple[str, list[str]]:
    """The page's elements after its scripts ran, and what the browser had to say about them."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not on PATH: pages are not opened in a real browser")
    command = [chromium, "--headless", "--no-sandbox", *_QUIET.split(), f"--user-data-dir={folder / 'profile'}"]
    command += ["--enable-logging=stderr", "--v=0", "--virtual-time-budget=8000", *options, "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def painted(value: Any) -> Any:
    """As the script in the page does it: tokens become colours."""
    if isinstance(value, dict):
        return {key: painted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [painted(item) for item in value]
    return "#123456" if isinstance(value, str) and value.startswith("@") else value
