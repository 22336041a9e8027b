"""Bundles as Flower's records: a section is an ArrayRecord of named arrays, values are a ConfigRecord.

An array is a tensor's bytes as they lie in memory, with type and shape beside them: nothing is pickled, and types that
numpy lacks (bfloat16) pass too. What is read comes from somebody else's machine, so all of it is checked.
Flower is imported in functions: this module is looked at where Flower is not installed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from wayfare.core.bundle import Bundle, Value, Weights, plain
from wayfare.core.errors import StoreError

_SECTION = "tensors/"  # before the name of a section, so that none can be taken for another record
_VALUES = "values"
THEN = "then"  # what is to be done after the rest of a message, and before the names of what came of it
_STYPE = "wayfare.tensor"  # how Flower is told that this is not numpy's file format
_FLOATS = ("float64", "float32", "float16", "bfloat16", "complex64", "complex128")
_WHOLE = ("int64", "int32", "int16", "int8", "uint8", "bool")
_DTYPES = {name: getattr(torch, name) for name in (*_FLOATS, *_WHOLE)}
_LARGEST = 2**63  # integers travel in 64 bits


class Writer:
    """Makes records of bundles; a section that goes to many devices one after another is written once."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Weights, Any]] = {}

    def write(self, bundle: Bundle) -> dict[str, Any]:
        """The records by name."""
        sections: dict[str, tuple[Weights, Any]] = {}
        for name, weights in bundle.tensors.items():
            known = self._last.get(name)  # kept with its weights: an object is only known while it lives
            sections[name] = known if known is not None and known[0] is weights else (weights, _arrays(weights))
        self._last = sections
        records: dict[str, Any] = {_SECTION + name: record for name, (_, record) in sections.items()}
        return records | {_VALUES: _config(bundle.values)}


def write(bundle: Bundle) -> dict[str, Any]:
    """One bundle's records by name."""
    return Writer().write(bundle)


def values(bundle: Bundle) -> Any:
    """The record of a bundle's values alone."""
    return _config(bundle.values)


def write_then(bundle: Bundle) -> dict[str, Any]:
    """The records of a second bundle in a message."""
    return {f"{THEN}/{name}": record for name, record in write(bundle).items()}


def read_then(records: Mapping[str, Any]) -> Bundle | None:
    """The second bundle among these records, if there is a sound one."""
    inner = {key.removeprefix(f"{THEN}/"): record for key, record in records.items() if key.startswith(f"{THEN}/")}
    try:
        return read(inner) if inner else None
    except StoreError:
        return None


def read(records: Mapping[str, Any]) -> Bundle:
    """The bundle among these records; StoreError if it is not sound."""
    from flwr.app import ArrayRecord, ConfigRecord

    values = records.get(_VALUES)
    if not isinstance(values, ConfigRecord):
        raise StoreError(f"malformed: no record {_VALUES!r} among {sorted(records)[:5]}")
    tensors: dict[str, Weights] = {}
    for key, record in records.items():
        if key.startswith(_SECTION):
            if not isinstance(record, ArrayRecord):
                raise StoreError(f"malformed: {key} holds no arrays")
            tensors[key.removeprefix(_SECTION)] = {name: _tensor(f"{key}/{name}", a) for name, a in record.items()}
    return Bundle(tensors, {name: _known_type(name, value) for name, value in values.items()})


def _arrays(weights: Weights) -> Any:
    from flwr.app import Array, ArrayRecord

    record = ArrayRecord()
    for name, tensor in weights.items():
        source = plain(tensor)
        kind = str(source.dtype).removeprefix("torch.")
        if kind not in _DTYPES or source.layout != torch.strided:
            raise StoreError(f"tensor {name!r} cannot travel: it is {kind}, {source.layout}")
        data = source.reshape(-1).view(torch.uint8).numpy().tobytes() if source.numel() else b"\0"  # Flower wants some
        record[name] = Array(dtype=kind, shape=tuple(source.shape), stype=_STYPE, data=data)
    return record


def _tensor(where: str, array: Any) -> Tensor:
    dtype, shape = _DTYPES.get(array.dtype), tuple(array.shape)
    if dtype is None or array.stype != _STYPE or any(length < 0 for length in shape):
        raise StoreError(f"malformed: {where} is {array.dtype!r} {shape} {array.stype!r}")
    count = math.prod(shape)
    if len(array.data) != (count * dtype.itemsize or 1):
        raise StoreError(f"malformed: {where} is {array.dtype} {shape}, but has {len(array.data)} bytes")
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(array.data), dtype=dtype).view(shape)  # a copy, to be written to


def _config(values: Mapping[str, Value]) -> Any:
    from flwr.app import ConfigRecord

    return ConfigRecord({name: _known_type(name, value) for name, value in values.items()})


def _known_type(name: str, value: object) -> Value:
    """The value as one of Python's own four types; numpy's scalars, which are some of them too, become plain."""
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            if kind is int and not -_LARGEST <= int(value) < _LARGEST:
                raise StoreError(f"value {name!r} cannot travel: it needs more than 64 bits")
            return kind(value)
    raise StoreError(f"value {name!r} cannot travel: it is {type(value).__name__}")
