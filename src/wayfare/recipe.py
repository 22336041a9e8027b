"""Recipes as nested tables: reading TOML files, putting settings over them, and writing tables as TOML.

What the tables mean is in `experiment.py`. A recipe may say what differs from another one: `base = "other.toml"`.
"""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from wayfare.components import find, parts_of
from wayfare.core.errors import ConfigError

DEFAULTS = {
    "task": "objects", "partition": "random", "strategy": "fedavg", "topology": "server", "exchange": "fedtour",
    "privacy": "clientlevel", "robust": "median", "attack": "signflip",
    "compression": "quantise", "clock": "drawn",
}  # fmt: skip
COMPONENTS = tuple(DEFAULTS)
_LARGE = 2**26  # bytes, which no recipe has
OF_TASK = ("data", "model")  # parts of the task with a table of their own


def read_table(path: Path, readers: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A recipe's tables; errors name file and line. With `base = "other.toml"` it says what differs from that one."""
    try:
        if path.stat().st_size > _LARGE:
            raise ConfigError(f"{path} has {path.stat().st_size:,} bytes: this is not a recipe")
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"no recipe {path}: give the path of a TOML file, or a name that `wayfare list recipes` shows"
        ) from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder, not a recipe; to continue a run: wayfare resume {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError, RecursionError) as error:
        raise ConfigError(f"{path}: not a readable recipe: {error}") from error
    for key in ("cells", "paper", "small"):
        if not isinstance(table.get(key, {}), dict):
            raise ConfigError(f"{path}: {key} = {table[key]!r}: expected a table, [{key}]")
    base = table.pop("base", None)
    if base is None:
        return table
    if not isinstance(base, str) or path.resolve() in readers:
        raise ConfigError(f"{path}: base = {base!r}: expected the name of another recipe in the same folder")
    below = read_table(path.parent / base, (*readers, path.resolve()))
    own: dict[str, Any] = {key: table.pop(key) for key in ("cells", "paper") if key in table}  # not mixed with its
    if "small" in table:
        own["small"] = override(below.get("small", {}), dict(flatten(table.pop("small"))))
    return override(below, dict(flatten(table))) | own


def override(table: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The table with dotted keys replaced. A new component name drops the old one's settings, which are not its own."""
    result = copy.deepcopy(table)
    # names first, the task's before those of its data and model, which go with it
    for key, value in sorted(changes.items(), key=lambda item: (item[0] != "task.name", not item[0].endswith(".name"))):
        *path, name = key.split(".")
        target = result
        for depth, step in enumerate(path):
            inner = target.setdefault(step, {})
            if isinstance(inner, str) and depth:  # a part that was given by its name alone
                inner = target[step] = {"name": inner}
            if not isinstance(inner, dict):
                raise ConfigError(f"{key}: {'.'.join(path[: depth + 1])} is not a table")
            target = inner
        if path and name == "name" and _is_other(path, target, value, result):
            target.clear()
            for section in OF_TASK if path == ["task"] else ():
                result.pop(section, None)
        target[name] = value
    return result


def _is_other(path: list[str], table: dict[str, Any], name: Any, recipe: dict[str, Any]) -> bool:
    """Whether a table of settings is of another component than the one of this name."""
    if len(path) > 1 or path[0] in OF_TASK:
        return bool(table) and bool((table.get("name") or _default_part(path, recipe) or name) != name)
    return path[0] in COMPONENTS and bool(table.get("name", DEFAULTS[path[0]]) != name)


def _default_part(path: list[str], recipe: dict[str, Any]) -> str:
    """The name of the part at this path of a recipe where none is given; "" if there is no such part."""
    task = as_table("task", recipe.get("task", {}))
    cls, table = find("task", task.get("name") or DEFAULTS["task"]), task if path[0] == "task" else recipe
    default = ""
    for key in path[path[0] == "task" :]:
        part = parts_of(cls).get(key)
        if part is None:
            return ""
        chosen = table.get(key, {})
        default, table = part.default, {"name": chosen} if isinstance(chosen, str) else chosen
        cls = part.find(table.get("name", default), key)
    return default


def with_data(table: dict[str, Any], path: Path) -> dict[str, Any]:
    """A recipe's table with another place of its data: what `--data` does."""
    name = as_table("task", table.get("task", {})).get("name") or DEFAULTS["task"]
    part = parts_of(find("task", name)).get("data")
    if part is None:
        raise ConfigError(f"the task {name!r} has no [data] whose path could be set")
    chosen = as_table("data", table.get("data", {})).get("name", part.default)
    if not _has_path(part.find(chosen, "data")):
        others = ", ".join(other for other in part.known if _has_path(part.find(other, "data")))
        raise ConfigError(f"the data {chosen!r} is not read from a path; data.name can be {others}")
    return override(table, {"data.path": str(path)})


def _has_path(data: type[Any]) -> bool:
    return any(each.name == "path" for each in fields(data))


def flatten(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested tables as dotted keys."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def as_table(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{key} = {value!r}: expected a table, [{key}]")
    return dict(value)


def table_lines(name: str, table: dict[str, Any]) -> list[str]:
    """A table in TOML, its sub-tables last."""
    lines = ["", f"[{name}]"]
    lines += [f"{key} = {toml(value)}" for key, value in table.items() if not isinstance(value, dict)]
    for key, value in table.items():
        if isinstance(value, dict):
            lines += table_lines(f"{name}.{key}", value)
    return lines


def toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return repr(value)
