"""CIFAR-10 in the forms it is passed around: python batches, binary batches, and our own cached arrays.

Python's batches are pickles, and a pickle is a program that runs when it is loaded. It is not loaded here. The few
instructions that such a file needs are carried out by a small machine (`_Machine`) that knows dicts, lists, strings,
numbers and arrays of uint8, and nothing else: what a file asks to import is compared with a short list of names, and is
never imported or called. Batches may be fewer and of other lengths than the original five of 10,000.

    cifar-10-batches-py/   data_batch_1 ... data_batch_5  test_batch  batches.meta
    cifar-10-batches-bin/  data_batch_1.bin ...  test_batch.bin  batches.meta.txt
    (cache)                train_images.npy train_labels.npy test_images.npy test_labels.npy pictures.json
"""

from __future__ import annotations

import math
import pickletools
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.data.cache import is_pair, read_pair
from wayfare.data.findings import Findings
from wayfare.data.pictures import Pictures
from wayfare.errors import DataError

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIDE = 32
ROW = 3 * SIDE * SIDE  # red, green and blue planes, one after the other
_FOLDERS = ("cifar-10-batches-py", "cifar-10-batches-bin")
_MAX_BYTES = 2**30
_MAX_STEPS = 5_000_000  # a batch of 10,000 takes about 45,000
_Reader = Callable[[Path], tuple[np.ndarray, np.ndarray]]


def load(path: Path) -> tuple[Pictures, Pictures]:
    """Training and test pictures, uint8 (N, 32, 32, 3), from a folder in any of the three forms."""
    folder = _folder(path)
    if is_pair(folder):
        return read_pair(folder)
    if list(folder.glob("data_batch_*.bin")):
        return _load(folder, ".bin", _read_binary, _binary_classes(folder / "batches.meta.txt"))
    return _load(folder, "", _read_python, _python_classes(folder / "batches.meta"))


def recognises(path: Path) -> bool:
    """Whether a folder holds CIFAR-10 in one of its forms."""
    return path.is_dir() and any(list(folder.glob("data_batch_*")) for folder in (path, *(path / f for f in _FOLDERS)))


def check(path: Path, strict: bool = False, progress: object = None) -> Findings:
    """How many pictures there are of each class; a batch that is damaged is a DataError, since rows carry no names."""
    train, test = load(path)
    counts = {"training pictures": len(train), "test pictures": len(test), "classes": len(train.classes)}
    found = np.bincount(train.labels, minlength=len(train.classes))
    return Findings("cifar", path, counts | {name: int(count) for name, count in zip(train.classes, found)})


def _folder(path: Path) -> Path:
    if not path.is_dir():
        remedy = "unpack it first, and give the folder" if path.is_file() else ""
        raise DataError("expected a folder that holds CIFAR-10", file=path, remedy=remedy)
    for folder in (path, *(path / name for name in _FOLDERS)):
        if is_pair(folder) or list(folder.glob("data_batch_*")):
            return folder
    expected = "data_batch_1 ... test_batch (python form) or data_batch_1.bin ... test_batch.bin (binary form)"
    raise DataError(f"no CIFAR-10 here: expected the files {expected}", file=path)


def _load(folder: Path, suffix: str, read: _Reader, classes: tuple[str, ...]) -> tuple[Pictures, Pictures]:
    pattern = re.compile(r"data_batch_(\d{1,9})" + re.escape(suffix))
    numbered = [(int(found[1]), file) for file in folder.iterdir() if (found := pattern.fullmatch(file.name))]
    if not numbered:
        raise DataError(f"no training batch: expected data_batch_1{suffix}", file=folder)
    train = [_checked(file, read(file), classes) for _, file in sorted(numbered)]
    test = [_checked(folder / f"test_batch{suffix}", read(folder / f"test_batch{suffix}"), classes)]
    return _joined(train, classes), _joined(test, classes)


def _checked(
    file: Path, batch: tuple[np.ndarray, np.ndarray], classes: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    rows, labels = batch
    if len(rows) == 0:
        raise DataError("holds no pictures: expected at least one", file=file)
    if labels.min() < 0 or labels.max() >= len(classes):
        found = f"from {labels.min()} to {labels.max()}"
        raise DataError(f"labels run {found}, expected 0 to {len(classes) - 1}", file=file, field="labels")
    return batch


def _joined(batches: Sequence[tuple[np.ndarray, np.ndarray]], classes: tuple[str, ...]) -> Pictures:
    planes = np.concatenate([rows for rows, _ in batches]).reshape(-1, 3, SIDE, SIDE)
    images = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
    return Pictures(images, np.concatenate([labels for _, labels in batches]), classes)


def _bytes_of(file: Path) -> bytes:
    if not file.is_file():
        raise DataError("no such file: CIFAR-10 has it", file=file)
    if file.stat().st_size > _MAX_BYTES:
        raise DataError(f"{file.stat().st_size} bytes, expected at most {_MAX_BYTES}", file=file)
    return file.read_bytes()


# ---- The binary form: a byte of label and 3,072 of pixels, again and again


def _read_binary(file: Path) -> tuple[np.ndarray, np.ndarray]:
    data = _bytes_of(file)
    if len(data) % (ROW + 1):
        raise DataError(f"{len(data)} bytes, expected a multiple of {ROW + 1} (a label and {ROW} values)", file=file)
    table = np.frombuffer(data, np.uint8).reshape(-1, ROW + 1)
    return table[:, 1:], table[:, 0].astype(np.int64)


def _binary_classes(file: Path) -> tuple[str, ...]:
    if not file.exists():
        return CLASSES
    try:
        names = tuple(line.strip() for line in _bytes_of(file).decode("utf-8").splitlines() if line.strip())
    except UnicodeDecodeError as error:
        raise DataError("expected one name of a class on each line, in UTF-8", file=file) from error
    if not names:
        raise DataError("expected one name of a class on each line, found none", file=file)
    return names


# ---- The python form: a pickled dict


def _read_python(file: Path) -> tuple[np.ndarray, np.ndarray]:
    batch = _dict_of(file)
    rows, labels = batch.get("data"), batch.get("labels")
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.shape[1] != ROW:
        found = rows.shape if isinstance(rows, np.ndarray) else type(rows).__name__
        raise DataError(f"expected an array of uint8 (N, {ROW}), found {found}", file=file, field="data")
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 2**31 for label in labels):
        raise DataError("expected a list of class numbers", file=file, field="labels")
    if len(labels) != len(rows):
        raise DataError(f"{len(labels)} labels for {len(rows)} pictures", file=file, field="labels")
    return rows, np.array(labels, np.int64)


def _python_classes(file: Path) -> tuple[str, ...]:
    if not file.exists():
        return CLASSES
    names = _dict_of(file).get("label_names")
    texts = [_text(name) for name in names] if isinstance(names, list) else []
    if not texts or None in texts:
        raise DataError("expected a list of the classes' names", file=file, field="label_names")
    return tuple(text for text in texts if text is not None)


def _dict_of(file: Path) -> dict[str, Any]:
    try:
        found = _Machine(_bytes_of(file)).run()
    except _Unexpected as error:
        raise DataError(f"not a CIFAR-10 batch: {error}", file=file) from error
    if not isinstance(found, dict):
        raise DataError("not a CIFAR-10 batch: expected a dict", file=file)
    return {text: value for key, value in found.items() if (text := _text(key)) is not None}


def _text(value: object) -> str | None:
    return value.decode("latin-1") if isinstance(value, bytes) else value if isinstance(value, str) else None


class _Unexpected(Exception):
    """The file does something that a batch has no need of."""


@dataclass(frozen=True)
class _Name:
    """What the file would import: only ever compared."""

    text: str


@dataclass
class _Array:
    """An array under construction: made empty by REDUCE, filled by BUILD."""

    content: np.ndarray | None = None


_ENCODE = "_codecs encode"
_EMPTY_BYTES = ("__builtin__ bytes", "builtins bytes", "__builtin__ str")
_EMPTY_ARRAY = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_FROM_BUFFER = ("numpy.core.numeric _frombuffer", "numpy._core.numeric _frombuffer")
_NDARRAY, _DTYPE = _Name("numpy ndarray"), _Name("numpy dtype")
_UINT8 = _Name("uint8")  # what a dtype becomes once it is known to be this one
_MARK = _Name("mark")

# opcodes whose argument is the value
_NUMBERS = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1"}
_STRINGS = {"STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"}
_TEXTS = {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
_VALUES = frozenset(_NUMBERS | _STRINGS | _TEXTS)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], object]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_PUT, _GET = ("PUT", "BINPUT", "LONG_BINPUT"), ("GET", "BINGET", "LONG_BINGET")


class _Machine:
    """Carries out the harmless part of the pickle language."""

    def __init__(self, program: bytes) -> None:
        self.program = program
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.spare = len(program)  # bytes that strings may take when encoded: a true file never needs more than it has

    def run(self) -> object:
        """What the file describes, or `_Unexpected`."""
        with warnings.catch_warnings():
            # Python reads such a string and warns; no file that a program wrote has one
            warnings.filterwarnings("error", "invalid (octal )?escape sequence", DeprecationWarning)
            return self._run()

    def _run(self) -> object:
        try:
            for count, (opcode, argument, position) in enumerate(pickletools.genops(self.program)):
                if opcode.name == "STOP":
                    return _finished(self.pop())
                if count > _MAX_STEPS:  # each may be one byte of the file and a hundred of memory
                    raise _Unexpected(f"more than {_MAX_STEPS} instructions")
                try:
                    self.step(opcode.name, argument)
                except _Unexpected as error:
                    raise _Unexpected(f"byte {position}, {opcode.name}: {error}") from error
        except (ValueError, OverflowError, DeprecationWarning) as error:  # genops, at no instruction
            raise _Unexpected(f"expected a pickle: {str(error)[:200]}") from error
        raise _Unexpected("expected a pickle: it has no end")

    def step(self, name: str, argument: Any) -> None:
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self.stack.append(_EMPTY[name]())
        elif name in _PUT:
            self.memo[argument] = self.top()
        elif name in _GET:
            if argument not in self.memo:
                raise _Unexpected(f"nothing was stored as {argument}")
            self.stack.append(self.memo[argument])
        elif name not in ("PROTO", "FRAME"):
            self.build(name, argument)

    def build(self, name: str, argument: Any) -> None:
        match name:
            case "MARK":
                self.stack.append(_MARK)
            case "MEMOIZE":
                self.memo[len(self.memo)] = self.top()
            case "TUPLE":
                self.stack.append(tuple(self.pop_to_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                self.stack.append(tuple(reversed([self.pop() for _ in range(int(name[-1]))])))
            case "LIST":
                self.stack.append(self.pop_to_mark())
            case "DICT":
                items = self.pop_to_mark()
                self.stack.append({})
                self.set_items(items)
            case "APPEND":
                self.extend([self.pop()])
            case "APPENDS":
                self.extend(self.pop_to_mark())
            case "SETITEM":
                self.set_items([self.pop(), self.pop()][::-1])
            case "SETITEMS":
                self.set_items(self.pop_to_mark())
            case "GLOBAL":
                self.stack.append(_known(argument))
            case "STACK_GLOBAL":
                attribute, module = self.pop(), self.pop()
                self.stack.append(_known(f"{_text(module)} {_text(attribute)}"))
            case "REDUCE":
                arguments, function = self.pop(), self.pop()
                self.stack.append(self.reduce(function, arguments))
            case "BUILD":
                state = self.pop()
                _build(self.top(), state)
            case _:
                raise _Unexpected("an instruction that a batch has no need of")

    def top(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise _Unexpected("expected a value before it")
        return self.stack[-1]

    def pop(self) -> Any:
        self.top()
        return self.stack.pop()

    def pop_to_mark(self) -> list[Any]:
        items = []
        while self.stack and self.stack[-1] is not _MARK:
            items.append(self.stack.pop())
        if not self.stack:
            raise _Unexpected("expected a mark before it")
        self.stack.pop()
        return items[::-1]

    def extend(self, items: list[Any]) -> None:
        target = self.top()
        if type(target) is not list:
            raise _Unexpected("expected a list")
        target.extend(_finished(item) for item in items)

    def set_items(self, items: list[Any]) -> None:
        target = self.top()
        if type(target) is not dict or len(items) % 2:
            raise _Unexpected("expected a dict, keys and values")
        for key, value in zip(items[::2], items[1::2]):
            if not isinstance(key, str | bytes | int):
                raise _Unexpected("expected a string as a key")
            target[key] = _finished(value)

    def reduce(self, function: object, arguments: object) -> object:
        """The call that the file asks for, as far as it is one of four known ones; none is really called."""
        name = function.text if isinstance(function, _Name) else ""
        known = arguments if isinstance(arguments, tuple) else ()
        if name == _ENCODE and len(known) == 2 and isinstance(known[0], str) and known[1] in ("latin1", "latin-1"):
            return self.encode(known[0])
        if name in _EMPTY_BYTES and known == ():
            return b""
        if name in _EMPTY_ARRAY and len(known) == 3 and known[0] == _NDARRAY and known[1] == (0,):
            return _Array()
        if name == _DTYPE.text and len(known) == 3 and _text(known[0]) in ("u1", "|u1"):
            return _UINT8
        if name in _FROM_BUFFER and len(known) == 4:
            content, kind, shape, order = known
            return _Array(_array(content, kind, shape, order == "F"))
        raise _Unexpected(f"a call of {name or 'a value'} that an array of uint8 has no need of")

    def encode(self, text: str) -> bytes:
        self.spare -= len(text)
        if self.spare < 0:
            raise _Unexpected("more bytes than the file has")
        return _latin(text)


def _known(text: object) -> _Name:
    known = (_ENCODE, *_EMPTY_BYTES, *_EMPTY_ARRAY, *_FROM_BUFFER, _NDARRAY.text, _DTYPE.text)
    if text not in known:
        raise _Unexpected(f"it names {str(text)[:80]!r}, which a batch has no need of")
    return _Name(str(text))


def _build(target: object, state: object) -> None:
    if target is _UINT8:
        return  # byte order and alignment, which a byte does not have
    if not isinstance(target, _Array) or not isinstance(state, tuple) or len(state) != 5:
        raise _Unexpected("expected the contents of an array")
    _, shape, kind, fortran, content = state
    target.content = _array(content, kind, shape, fortran is True or fortran == 1)


def _array(content: object, kind: object, shape: object, fortran: bool) -> np.ndarray:
    if kind is not _UINT8:
        raise _Unexpected("expected an array of uint8")
    data = _latin(content) if isinstance(content, str) else content  # strings of Python 2 arrive as text
    if not isinstance(data, bytes | bytearray):
        raise _Unexpected("expected the bytes of an array")
    sides = shape if isinstance(shape, tuple) and len(shape) <= 4 else (None,)
    if not all(type(side) is int and 0 <= side <= _MAX_BYTES for side in sides):
        raise _Unexpected("expected the shape of an array")
    if math.prod(sides) != len(data):
        raise _Unexpected(f"expected {' x '.join(map(str, sides))} bytes of an array, found {len(data)}")
    return np.frombuffer(data, np.uint8).reshape(sides, order="F" if fortran else "C")


def _latin(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError as error:
        raise _Unexpected("expected one byte for each letter") from error


def _finished(value: object) -> object:
    """An array as itself; the machine's own parts do not get out."""
    if isinstance(value, _Array):
        if value.content is None:
            raise _Unexpected("an array without contents")
        return value.content
    if isinstance(value, _Name):
        raise _Unexpected("a name where a value was expected")
    return value
