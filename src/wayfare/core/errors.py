"""Everything Wayfare raises on purpose.

    WayfareError
    ├── ConfigError     an experiment that cannot be: unknown setting, misfit of its parts      (exit status 2)
    ├── DataError       a file or data set that is missing, broken or not what it claims to be
    ├── StoreError      the run folder: damaged, full, or in use by another process
    ├── QuorumError     too few devices gave a usable reply
    ├── DeviceError     a program failed on a device
    └── MergeError      a strategy could not merge replies that were all lawful

Each message says where, what was found, what was expected and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class WayfareError(Exception):
    """The root: catch this to catch everything Wayfare raises on purpose."""

    exit_status = 1
    detail = ""  # a traceback, where one says more


class ConfigError(WayfareError):
    """An experiment that cannot be."""

    exit_status = 2


class DataError(WayfareError):
    """A data file that cannot be used; names file, line and field where they are known."""

    def __init__(
        self,
        what: str,
        file: str | Path | None = None,
        line: int | None = None,
        field: str | None = None,
        remedy: str = "",
    ) -> None:
        where = "" if file is None else f"{file}:{line}: " if line is not None else f"{file}: "
        self.what, self.file, self.line, self.field, self.remedy = what, file, line, field, remedy
        super().__init__(where + (f"field {field!r}: " if field else "") + what + (f" ({remedy})" if remedy else ""))


class StoreError(WayfareError):
    """The run folder cannot be read or written."""


class QuorumError(WayfareError):
    """Too few usable replies."""


class DeviceError(WayfareError):
    """A program failed on a device; `detail` holds the traceback from there."""

    def __init__(self, device: str, program: str, reason: str, detail: str = "") -> None:
        self.device, self.program, self.reason, self.detail = device, program, reason, detail
        super().__init__(f"device {device!r}, program {program!r}: {reason}")


class MergeError(WayfareError):
    """`merge` failed, and not because of one device; `detail` holds the traceback."""

    def __init__(self, round: int, strategy: str, error: Exception, detail: str = "") -> None:
        self.round, self.detail = round, detail
        super().__init__(
            f"round {round}: {strategy}.merge failed: {type(error).__name__}: {error}. No single reply is to blame, so "
            "look at the strategy: wayfare.check_strategy(...) tests it"
        )


_MOST_LISTED, _MOST_BESIDE_A_SUGGESTION = 40, 24  # known names in a message


def suggestion(name: str, known: Iterable[str]) -> str:
    """The nearest known name as a question; nothing if none is near. Small and large letters are the same."""
    names = {each.lower(): each for each in sorted(known)}
    near = get_close_matches(name.lower(), names, n=1) or [each for each in names if name.lower() in each]
    return f"; did you mean {names[near[0]]!r}?" if near and len(name) > 1 else ""


def unknown(kind: str, name: str, known: Iterable[str], where: str = "") -> ConfigError:
    """A ConfigError that offers the nearest spelling and lists what is known: less of it beside a suggestion."""
    names = sorted(known)
    meant = suggestion(name, names)
    most = _MOST_BESIDE_A_SUGGESTION if meant else _MOST_LISTED
    listed = ", ".join(names[:most]) or "none"
    if len(names) > most:
        listed += f" and {len(names) - most} more"
    return ConfigError(f"{where + ': ' if where else ''}unknown {kind} {name!r}{meant or '.'} Known: {listed}")
