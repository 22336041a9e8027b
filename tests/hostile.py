"""Ten strings that would do harm if they were taken for more than text, and what is harmless on a terminal or page."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest

HOSTILE = (
    "[/red]",
    "[bold red blink link=http://x.invalid]click[/]",
    "\x1b[2J\x1b]0;pwned\x07",
    "\x9b31m\x00\x08\x7f",
    "\u202egnp.exe\u2066\u200b",
    "a\r\nwarning: all is well\n",
    "<img src=x onerror=alert(1)>",
    "</script><script>document.title='pwned'</script><!--",
    "\"'><svg onload=alert(1)> {{ 7 * 7 }} {% raw %} ${7*7}",
    "x" * 100_000,
)
FILES = [text.replace("/", "∕").replace("\0", "")[:60] for text in HOSTILE if "\n" not in text and "\r" not in text]
ids = [f"hostile{i}" for i in range(len(HOSTILE))]
hostile = pytest.mark.parametrize("text", HOSTILE, ids=ids)


def assert_harmless(text: str) -> None:
    assert text.replace("\n", "").isprintable()


class Seen(HTMLParser):
    """What a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(text)

    @property
    def names(self) -> list[tuple[str, str]]:
        """Elements with the names of their attributes; long words are marked by a class."""
        return [(tag, name) for tag, name, _ in self.attributes if name != "class"]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]


def assert_same_page(page: str, plain: str) -> None:
    """The same elements with the same attributes as a page with harmless words; nothing that runs or fetches."""
    found, expected = Seen(page), Seen(plain)
    assert found.tags == expected.tags
    assert found.names == expected.names
    assert not [item for item in found.attributes if item[1].startswith("on")]
    addresses = [value for _, name, value in found.attributes if name in ("href", "src", "action")]
    assert not [value for value in addresses if value.strip().lower().startswith(("javascript:", "http://x."))]
    outside = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)  # the drawing library has some of its own
    assert not set(outside) & set("\x1b\x07\x9b\x00\x08\x7f\u202e\u2066")


def photos_with_odd_names(photos: Sequence[Path], folder: Path, text: str = "") -> None:
    """Copies, the first of them with hostile names; with positions, and with texts that are hostile too."""
    folder.mkdir()
    places, texts = ["file,lat,lon"], ["photo,text"]
    for number, photo in enumerate(photos):
        odd = FILES[number % len(FILES)]
        name = f"{odd}.jpg" if number < len(FILES) else f"{number}.jpg"
        shutil.copy(photo, folder / name)
        quoted, said = (each.replace('"', '""') for each in (name, f"{text} {odd}"))
        places.append(f'"{quoted}",{50 + number // 3 / 1000},{10 + number % 3 / 100000}')
        texts.append(f'"{quoted}","{said}"')
    (folder / "photos.csv").write_text("\n".join(places), encoding="utf-8", errors="replace")
    folder.with_name("texts.csv").write_text("\n".join(texts), encoding="utf-8", errors="replace")
