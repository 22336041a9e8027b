"""Components by name: a name is a module of ours, or any importable `package.module:Name`. No registry to edit."""

from __future__ import annotations

import dataclasses
import importlib
import json
import operator
import pkgutil
import sys
import typing
from collections.abc import Collection
from pathlib import Path
from typing import Any

from wayfare.errors import ConfigError, suggestion, unknown

# kind -> (package, what a class of that kind can do)
KINDS = {
    "task": ("wayfare.tasks", "steps"),
    "strategy": ("wayfare.strategies", "merge"),
    "topology": ("wayfare.topologies", "play"),
    "exchange": ("wayfare.policies", "wants"),
    "partition": ("wayfare.data.partition", "__call__"),
    "engine": ("wayfare.engines", "call"),
}


def find(kind: str, name: str) -> type[Any]:
    """The class of this kind and name."""
    package, ability = KINDS[kind]
    if ":" in name:
        module_name, _, attribute = name.partition(":")
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.append(here)  # last, so that it hides no module of ours or of a library
        try:
            found = operator.attrgetter(attribute)(importlib.import_module(module_name))
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            raise ConfigError(f"{kind} {name!r} cannot be imported: {error}") from error
    else:
        found = _in_module(f"{package}.{name}", ability) if name.isidentifier() else None
        if found is None:
            raise ConfigError(f"{unknown(kind, name, names(kind))}, or package.module:Name of your own")
    if not (isinstance(found, type) and ability in dir(found)):
        raise ConfigError(f"{name!r} is not a {kind}: it has no {ability}()")
    if kind != "engine" and not dataclasses.is_dataclass(found):
        raise ConfigError(f"{name!r} must be a dataclass: its fields are the settings")
    return found


def names(kind: str) -> list[str]:
    """Everything of this kind that comes with Wayfare."""
    package, ability = KINDS[kind]
    modules = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return sorted(m.name for m in modules if not m.ispkg and _in_module(f"{package}.{m.name}", ability))


def _in_module(path: str, ability: str) -> type[Any] | None:
    """The class that a module is named after."""
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name == path:
            return None
        raise
    for attribute, value in vars(module).items():
        if attribute.lower() == path.rpartition(".")[2] and isinstance(value, type) and ability in dir(value):
            own = dataclasses.is_dataclass(value) or ability == "call"
            return value if own else None
    return None


def name_of(kind: str, component: object) -> str:
    """The name under which `find` gives this component's class."""
    cls = type(component)
    package, module = KINDS[kind][0], cls.__module__
    short = module.removeprefix(package + ".")
    return short if module == f"{package}.{short}" and cls.__name__.lower() == short else f"{module}:{cls.__qualname__}"


def build(cls: type[Any], settings: dict[str, Any], where: str, others: Collection[str] = ()) -> Any:
    """A dataclass from a table of settings; unknown and ill-typed ones are refused. `others` may stand beside them."""
    fields = {field.name for field in dataclasses.fields(cls) if field.init}
    hints = typing.get_type_hints(cls)
    values = {}
    for key, value in settings.items():
        if key not in fields:
            raise unknown("setting", key, {*fields, *others}, where)
        values[key] = _typed(hints[key], value, f"{where}.{key}")
    try:
        return cls(**values)
    except TypeError as error:
        missing = [f.name for f in dataclasses.fields(cls) if f.init and _required(f) and f.name not in values]
        raise ConfigError(f"{where}: {', '.join(missing)} must be given" if missing else f"{where}: {error}") from error


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _typed(hint: Any, value: Any, where: str) -> Any:
    from pydantic import ConfigDict, TypeAdapter, ValidationError  # a fifth of a second that the first round can wait

    if isinstance(value, bool) and hint in (int, float):
        raise ConfigError(f"{where} = {str(value).lower()}: a number is wanted")
    if isinstance(value, list):
        value = tuple(value)
    try:
        return TypeAdapter(hint, config=ConfigDict(strict=True)).validate_python(value)
    except ValidationError as error:
        shown = json.dumps(value) if isinstance(value, str | int | float) else repr(value)
        meant = suggestion(str(value), map(str, typing.get_args(hint))) if _is_choice(hint) else ""
        raise ConfigError(f"{where} = {shown}: {error.errors()[0]['msg'].lower()}{meant}") from error


def _is_choice(hint: Any) -> bool:
    return typing.get_origin(hint) is typing.Literal


def settings_of(component: object) -> dict[str, Any]:
    """A component's settings as TOML can hold them."""
    return {
        field.name: list(value) if isinstance(value, tuple) else value
        for field in dataclasses.fields(component)  # type: ignore[arg-type]
        if field.init and (value := getattr(component, field.name)) is not None
    }


def chosen_settings(component: object) -> dict[str, Any]:
    """Those of them that are not as by default."""
    fields = {field.name: field for field in dataclasses.fields(component)}  # type: ignore[arg-type]
    return {
        key: value
        for key, value in settings_of(component).items()
        if _required(fields[key]) or getattr(component, key) != _default(fields[key])
    }


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
