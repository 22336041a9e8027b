"""Components by name: a name is a module of ours, or `package.module:Name` of the user's own. No registry to edit.

A recipe, a run folder and an index are data: what they name is imported only if the user has allowed it by name.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import operator
import pkgutil
import sys
import typing
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from wayfare.core.errors import ConfigError, suggestion, unknown

# what a class of each kind can do
ABILITIES = {
    "task": "steps",
    "strategy": "merge",
    "topology": "rounds",
    "exchange": "decide",
    "partition": "__call__",
    "engine": "call",
    "privacy": "merge",
    "robust": "merge",
    "attack": "forge",
    "compression": "pack_reply",
    "clock": "devices",
}
# packages in which a file is named after the one class in it: a new file there needs no entry anywhere
PACKAGES = {
    "strategy": ("wayfare.strategies",),
    "topology": ("wayfare.topologies",),
    "exchange": ("wayfare.encounters.policies",),
    "partition": ("wayfare.partition", "wayfare.places.partition", "wayfare.scenes.partition"),
}
# the rest, by name
NAMED = {
    "task": {
        "places": "wayfare.places.task:Places",
        "objects": "wayfare.objects.task:Objects",
        "scenes": "wayfare.scenes.task:Scenes",
        "hashing": "wayfare.hashing.task:Hashing",
        "attributes": "wayfare.attributes.task:Attributes",
    },
    "privacy": {
        "clientlevel": "wayfare.privacy.client_level:ClientLevel",
        "samplelevel": "wayfare.privacy.sample_level:SampleLevel",
    },
    "robust": {
        "mean": "wayfare.privacy.robust:Mean",
        "median": "wayfare.privacy.robust:Median",
        "trimmed": "wayfare.privacy.robust:Trimmed",
        "geometric": "wayfare.privacy.robust:Geometric",
        "krum": "wayfare.privacy.robust:Krum",
        "clipping": "wayfare.privacy.robust:Clipping",
    },
    "attack": {
        "signflip": "wayfare.privacy.attacks:SignFlip",
        "alie": "wayfare.privacy.attacks:Alie",
        "ipm": "wayfare.privacy.attacks:Ipm",
        "mimic": "wayfare.privacy.attacks:Mimic",
        "noise": "wayfare.privacy.attacks:Noise",
        "labelflip": "wayfare.privacy.attacks:LabelFlip",
    },
    "compression": {
        "quantise": "wayfare.compression.packing:Quantise",
        "topk": "wayfare.compression.packing:TopK",
        "lowrank": "wayfare.compression.packing:LowRank",
    },
    "clock": {
        "drawn": "wayfare.clock.drawn:Drawn",
        "measured": "wayfare.clock.measured:Measured",
        "indoors": "wayfare.clock.indoors:Indoors",
    },
    "topology": {
        "encounters": "wayfare.encounters.topology:Encounters",
        "async": "wayfare.topologies.asynchronous:Async",
    },
    "engine": {
        "local": "wayfare.engines.local:Local",
        "pool": "wayfare.engines.pool.engine:Pool",
        "flower": "wayfare.engines.flower.engine:Flower",
    },
}

_allowed: set[str] = set()


def allow_code(*names: str) -> None:
    """Let recipes, run folders and indexes import these packages, modules or `package.module:Name`, in this process."""
    _allowed.update(names)


def allowed_code() -> list[str]:
    """What `allow_code` has allowed so far: for processes that work for this one."""
    return sorted(_allowed)


def _check_allowed(kind: str, name: str) -> None:
    module = name.partition(":")[0]
    parents = {module[:end] for end in range(len(module) + 1) if module[end : end + 1] in (".", "")}
    if not _allowed & {name, *parents}:
        raise ConfigError(
            f"{kind} {name!r} would run code of the module {module!r}, which is not allowed. If you trust it, "
            f"add --allow-code {module} to the command (in Python: wayfare.allow_code({module!r}))"
        )


def find(kind: str, name: str) -> type[Any]:
    """The class of this kind and name."""
    ability = ABILITIES[kind]
    if ":" in name:
        found = own_class(kind, name)
    else:
        found = _ours(kind, name) if name.isidentifier() else None
        if found is None:
            raise ConfigError(f"{unknown(kind, name, names(kind))}, or package.module:Name of your own")
    if not (isinstance(found, type) and ability in dir(found)):
        raise ConfigError(f"{name!r} is not a {kind}: it has no {ability}()")
    if kind != "engine" and not dataclasses.is_dataclass(found):
        raise ConfigError(f"{name!r} must be a dataclass: its fields are the settings")
    return found


def names(kind: str) -> list[str]:
    """Everything of this kind that comes with Wayfare."""
    found = set(NAMED.get(kind, {}))
    for package in PACKAGES.get(kind, ()):
        modules = pkgutil.iter_modules(importlib.import_module(package).__path__)
        found |= {m.name for m in modules if not m.ispkg and _in_module(f"{package}.{m.name}", ABILITIES[kind])}
    return sorted(found)


def own_class(kind: str, name: str) -> Any:
    """What `package.module:Name` names, if the user has allowed it."""
    _check_allowed(kind, name)
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # last, so that it hides no module of ours or of a library
    try:
        return imported(name)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigError(f"{kind} {name!r} cannot be imported: {error}") from error


def imported(name: str) -> Any:
    """What `package.module:Name` of ours names."""
    module, _, attribute = name.partition(":")
    return operator.attrgetter(attribute)(importlib.import_module(module))


def _ours(kind: str, name: str) -> type[Any] | None:
    if where := NAMED.get(kind, {}).get(name):
        found: type[Any] = imported(where)
        return found
    modules = (_in_module(f"{package}.{name}", ABILITIES[kind]) for package in PACKAGES.get(kind, ()))
    return next((found for found in modules if found), None)


def _in_module(path: str, ability: str) -> type[Any] | None:
    """The class that a module is named after."""
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name == path:
            return None
        raise
    for attribute, value in vars(module).items():
        named = attribute.lower() == path.rpartition(".")[2] and isinstance(value, type) and ability in dir(value)
        if named and dataclasses.is_dataclass(value) and isinstance(value, type):
            return value
    return None


def name_of(kind: str, component: object) -> str:
    """The name under which `find` gives this component's class."""
    cls = type(component)
    full = f"{cls.__module__}:{cls.__qualname__}"
    named = {where: name for name, where in NAMED.get(kind, {}).items()}
    package, _, file = cls.__module__.rpartition(".")
    if package in PACKAGES.get(kind, ()) and cls.__name__.lower() == file:
        return file
    return named.get(full, full)


@dataclasses.dataclass(frozen=True)
class Part:
    """A setting that is a part with settings of its own, chosen by name."""

    kind: str  # what messages call it: "data", "model", "loss"
    default: str
    known: Mapping[str, str]  # name -> module:Class

    def find(self, name: str, where: str) -> type[Any]:
        """The class of this name; also `package.module:Name` of the user's own."""
        if ":" not in name and name not in self.known:
            raise ConfigError(f"{unknown(self.kind, name, self.known, where)}, or package.module:Name of your own")
        found = own_class(self.kind, name) if ":" in name else imported(self.known[name])
        if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
            raise ConfigError(f"{where}: {name!r} must be a dataclass: its fields are the settings")
        return found

    def name_of(self, value: object) -> str:
        """The name under which `find` gives the class of this value."""
        full = f"{type(value).__module__}:{type(value).__qualname__}"
        return next((name for name, where in self.known.items() if where == full), full)


def part(kind: str, default: str, known: Mapping[str, str]) -> Any:
    """A dataclass field that holds a part: `loss: Loss = part("loss", "triplet", {"triplet": "my.losses:Triplet"})`."""
    chosen = Part(kind, default, known)
    return dataclasses.field(default_factory=lambda: chosen.find(default, kind)(), metadata={"part": chosen})


def parts_of(cls: type[Any]) -> dict[str, Part]:
    """The settings of a class that are parts."""
    return {field.name: field.metadata["part"] for field in dataclasses.fields(cls) if "part" in field.metadata}


def code_of(component: object) -> set[str]:
    """The parts of a component that are classes of the user's own, as `package.module:Name`."""
    found: set[str] = set()
    for field in dataclasses.fields(component) if dataclasses.is_dataclass(component) else ():
        if "part" in field.metadata:
            value = getattr(component, field.name)
            found |= {field.metadata["part"].name_of(value)} | code_of(value)
    return {name for name in found if ":" in name}


_SECTIONS = ("data", "model")  # parts of a task that have a table of their own in a recipe


def build(
    cls: type[Any],
    settings: dict[str, Any],
    where: str,
    others: Collection[str] = (),
    moved: Mapping[str, str] | None = None,
) -> Any:
    """A dataclass from a table of settings; unknown and ill-typed ones are refused.

    `others` may stand beside them; `moved` says where settings of earlier versions are now.
    """
    fields = {field.name for field in dataclasses.fields(cls) if field.init}
    hints, parts, values = typing.get_type_hints(cls), parts_of(cls), {}
    for key, value in settings.items():
        if moved and key in moved:
            raise ConfigError(f"{where.partition(' ')[0]}.{key} has moved: it is {moved[key]} now")
        if key not in fields:
            raise unknown("setting", key, {*fields, *others}, where)
        place = key if where.startswith("task ") and key in _SECTIONS else f"{where}.{key}"
        values[key] = _part(parts[key], value, place) if key in parts else _typed(hints[key], value, place)
    try:
        return cls(**values)
    except TypeError as error:
        missing = [f.name for f in dataclasses.fields(cls) if f.init and _required(f) and f.name not in values]
        raise ConfigError(f"{where}: {', '.join(missing)} must be given" if missing else f"{where}: {error}") from error


def _part(part: Part, value: Any, where: str) -> Any:
    """A part from its name, or from a table with `name` and its settings."""
    table = {"name": value} if isinstance(value, str) else value
    if not isinstance(table, dict):
        raise ConfigError(f"{where} = {value!r}: expected a name, or a table [{where}] with a name")
    settings = dict(table)
    name = settings.pop("name", part.default)
    if not isinstance(name, str):
        raise ConfigError(f"{where}.name = {name!r}: expected a name")
    return build(part.find(name, where), settings, where, ("name",))


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _typed(hint: Any, value: Any, where: str) -> Any:
    from pydantic import ConfigDict, TypeAdapter, ValidationError  # a fifth of a second that the first round can wait

    if isinstance(value, bool) and hint in (int, float):
        raise ConfigError(f"{where} = {str(value).lower()}: expected a number")
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
    """A component's settings as TOML can hold them; a part is its name, or a table if it has settings."""
    found: dict[str, Any] = {}
    for field, value in _given(component):
        if "part" in field.metadata:
            table = {"name": field.metadata["part"].name_of(value), **settings_of(value)}
            value = table if len(table) > 1 else table["name"]
        found[field.name] = list(value) if isinstance(value, tuple) else value
    return found


def chosen_settings(component: object) -> dict[str, Any]:
    """Those of them that are not as by default, with dotted keys."""
    found: dict[str, Any] = {}
    for field, value in _given(component):
        if "part" in field.metadata:
            part = field.metadata["part"]
            found |= {f"{field.name}.{key}": each for key, each in chosen_settings(value).items()}
            if part.name_of(value) != part.default:
                found[f"{field.name}.name"] = part.name_of(value)
        elif _required(field) or value != _default(field):
            found[field.name] = list(value) if isinstance(value, tuple) else value
    return found


def _given(component: object) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    """The settings of a component that have a value: TOML cannot say that there is none."""
    for field in dataclasses.fields(component):  # type: ignore[arg-type]
        value = getattr(component, field.name)
        if field.init and value is not None:
            yield field, value


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
