"""A form for the settings of a recipe: what each is, its type, its range, its choices, and the comment beside it."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from wayfare.comments import comments
from wayfare.components import Part, name_of, names, parts_of
from wayfare.core.errors import ConfigError, unknown
from wayfare.core.ranges import Range
from wayfare.experiment import SECTIONS, Experiment
from wayfare.ranges import RANGES
from wayfare.recipe import COMPONENTS, OF_TASK

NONE = "(none)"
_OPTIONAL = ("privacy", "compression", "robust", "attack", "clock")
_PLAIN = {
    "rounds": "rounds of federation",
    "seed": "of all random numbers: another seed, another run of the same experiment",
}
_TITLES = {
    "task": "Task", "data": "Data", "model": "Model", "partition": "Who has which samples", "strategy": "Algorithm",
    "topology": "Who talks to whom", "exchange": "Whose models a device takes", "training": "Training on a device",
    "evaluation": "Evaluation", "policy": "What is accepted from devices", "privacy": "Differential privacy",
    "compression": "Compression of what travels", "robust": "Robust rule in place of the mean",
    "attack": "Devices that lie, to try robust rules", "clock": "Virtual time",
}  # fmt: skip
Field = dict[str, Any]


def form_of(experiment: Experiment) -> dict[str, Any]:
    """The groups of the form, the most used first."""
    plain = [_field(key, type_, getattr(experiment, key), help) for key, type_, help in _plain()]
    groups = [{"name": "experiment", "title": "Experiment", "fields": plain}]
    for section in SECTIONS:
        part = getattr(experiment, section)
        if part is None and section not in _OPTIONAL:
            continue
        fields = list(_section(section, part))
        for inner in OF_TASK if section == "task" else ():
            own = [field for field in fields if field["key"].startswith(f"{inner}.")]
            fields = [field for field in fields if field not in own]
            groups += [{"name": inner, "title": _TITLES[inner], "fields": own}] if own else []
        groups.append({"name": section, "title": _TITLES.get(section, section), "fields": fields})
    return {"name": experiment.name, "groups": groups}


def _plain() -> Iterator[tuple[str, Any, str]]:
    for key, help in _PLAIN.items():
        yield key, int, help


def _section(section: str, part: Any) -> Iterator[Field]:
    if section in COMPONENTS:
        known = names(section)
        chosen = NONE if part is None else name_of(section, part)
        choices = [NONE, *known] if section in _OPTIONAL else list(dict.fromkeys([chosen, *known]))
        yield _choice(f"{section}.name", chosen, choices, "", switches=True)
    if part is not None:
        yield from _settings(part, section)


def _settings(component: Any, prefix: str) -> Iterator[Field]:
    """The settings of a component, and those of its parts."""
    cls = type(component)
    said, hints, parts = comments(cls), typing.get_type_hints(cls), parts_of(cls)
    for each in dataclasses.fields(cls):
        if not each.init:
            continue
        value, key = getattr(component, each.name), f"{prefix}.{each.name}"
        if each.name in parts:
            yield from _part(parts[each.name], value, each.name if each.name in OF_TASK else key, said.get(each.name))
        else:
            yield _field(key, hints[each.name], value, said.get(each.name, ""))


def _part(part: Part, value: Any, key: str, help: str | None) -> Iterator[Field]:
    chosen = part.name_of(value)
    yield _choice(f"{key}.name", chosen, list(dict.fromkeys([chosen, *part.known])), help or "", switches=True)
    yield from _settings(value, key)


def _choice(key: str, value: str, choices: list[str], help: str, *, switches: bool = False) -> Field:
    found = {"key": key, "kind": "choice", "value": value, "choices": choices, "help": help}
    return {**found, "range": "", "switches": switches and len(choices) > 1}


def _field(key: str, hint: Any, value: Any, help: str) -> Field:
    hint, empty = _required(hint)
    if typing.get_origin(hint) is typing.Literal:
        return _choice(key, str(value), [str(choice) for choice in typing.get_args(hint)], help)
    kind = {int: "whole", float: "number", bool: "flag", str: "text"}.get(hint, "list")
    span = RANGES.get(key, Range())
    shown = ", ".join(map(str, value)) if kind == "list" and value is not None else value
    low, high = (None if math.isinf(side) else side for side in (span.low, span.high))
    text = "" if span == Range() else str(span)
    return {"key": key, "kind": kind, "value": shown, "help": help, "range": text, "low": low, "high": high,
            "empty": empty, "switches": False}  # fmt: skip


def _required(hint: Any) -> tuple[Any, bool]:
    """The type without None, and whether None was in it."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        inner = [each for each in typing.get_args(hint) if each is not type(None)]
        return (inner[0] if len(inner) == 1 else str), len(inner) < len(typing.get_args(hint))
    return hint, False


def typed(experiment: Experiment, texts: Mapping[str, str]) -> dict[str, Any]:
    """The texts of a form as values; those that say what is there already are left out."""
    known = {field["key"]: field for group in form_of(experiment)["groups"] for field in group["fields"]}
    found: dict[str, Any] = {}
    for key, text in texts.items():
        if key not in known:
            raise unknown("setting", key, known)
        field = known[key]
        if text == NONE or (text == "" and field.get("empty")) or text == _as_text(field["value"]):
            continue
        found[key] = _value(field, text)
    return found


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _value(field: Field, text: str) -> Any:
    kind, key = field["kind"], field["key"]
    try:
        if kind == "whole":
            return int(text)
        if kind == "number":
            return float(text)
    except ValueError:
        expected = "a whole number" if kind == "whole" else "a number"
        raise ConfigError(f"{key} = {text!r}: expected {expected}") from None
    if kind == "flag":
        return text == "true"
    if kind == "list":
        return [_item(item.strip()) for item in text.split(",") if item.strip()]
    return text


def _item(text: str) -> Any:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
