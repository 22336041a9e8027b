"""Reading large JSON files that consist of one long list of entries and a few other values, such as psg.json.

The list is read entry by entry, so that the caller can keep only what it needs: the whole file as Python objects would
take ten times the memory of its text. Files may be gzipped. Invalid JSON is a `DataError` that names the line.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wayfare.core.errors import DataError
from wayfare.io.tables import decode_text

MAX_BYTES = 2**30  # after unpacking; the full psg.json has a tenth of it
GZIP = b"\x1f\x8b"
_SPACE = re.compile(r"[ \t\r\n]*")
Each = Callable[[int, int, Any], None]  # the entry's index in the list, its line in the file, the entry


def read_entries(path: Path, key: str, each: Each) -> dict[str, Any]:
    """Call `each` for every element of the list `key` of a JSON object; return the object's other members."""
    text = decode_text(read_bytes(path), path)
    try:
        return _Walk(text, path).object_with(key, each)
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON: {error.msg}, column {error.colno}", path, error.lineno) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"not usable JSON: {str(error) or type(error).__name__}", path) from error


def read_bytes(path: Path) -> bytes:
    """The content of the file, unpacked if it is gzipped."""
    try:
        if not path.is_file():
            raise DataError("no such file" if not path.exists() else "not a regular file", path)
        if (size := path.stat().st_size) > MAX_BYTES:
            raise DataError(f"too large: {size} bytes, at most {MAX_BYTES} are read", path)
        data = path.read_bytes()
        if data.startswith(GZIP):
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_BYTES + 1)
    except (OSError, ValueError, EOFError, zlib.error, MemoryError) as error:
        raise DataError(f"cannot be read: {str(error) or type(error).__name__}", path) from error
    if len(data) > MAX_BYTES:
        raise DataError(f"too large: more than {MAX_BYTES} bytes when unpacked", path)
    return data


class _Walk:
    """A parser of a JSON text that advances from value to value."""

    def __init__(self, text: str, path: Path) -> None:
        self.text, self.path = text, path
        self.place = 0
        self.line, self.counted = 1, 0  # the line at `counted`
        self.decode = json.JSONDecoder(parse_constant=_refuse).raw_decode

    def object_with(self, key: str, each: Each) -> dict[str, Any]:
        facts: dict[str, Any] = {}
        seen = False
        self.expect("{")
        while not self.found("}"):
            if facts or seen:
                self.expect(",")
            name = self.value()
            if not isinstance(name, str):
                raise json.JSONDecodeError("Expecting property name enclosed in double quotes", self.text, self.place)
            self.expect(":")
            if name != key:
                facts[name] = self.value()
                continue
            if seen:
                raise DataError("it appears twice", self.path, self.current_line(), key, "remove one of them")
            seen = True
            self.list_of(key, each)
        self.skip()
        if self.place != len(self.text):
            raise json.JSONDecodeError("Extra data", self.text, self.place)
        if not seen:
            found = ", ".join(repr(name[:40]) for name in list(facts)[:10]) or "nothing"
            raise DataError(f"has no {key!r}; found {found}", self.path, field=key)
        return facts

    def list_of(self, key: str, each: Each) -> None:
        self.skip()
        if not self.text.startswith("[", self.place):
            raise DataError("expected a list", self.path, self.current_line(), key)
        self.expect("[")
        number = 0
        while not self.found("]"):
            if number:
                self.expect(",")
            self.skip()
            line = self.current_line()
            each(number, line, self.value())
            number += 1

    def value(self) -> Any:
        self.skip()
        found, self.place = self.decode(self.text, self.place)
        return found

    def found(self, mark: str) -> bool:
        """Whether the mark comes next; if it does, skip it."""
        self.skip()
        if self.text.startswith(mark, self.place):
            self.place += 1
            return True
        return False

    def expect(self, mark: str) -> None:
        if not self.found(mark):
            raise json.JSONDecodeError(f"Expecting {mark!r}", self.text, self.place)

    def skip(self) -> None:
        space = _SPACE.match(self.text, self.place)
        self.place = space.end() if space else self.place

    def current_line(self) -> int:
        self.line += self.text.count("\n", self.counted, self.place)
        self.counted = self.place
        return self.line


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")
