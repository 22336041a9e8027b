"""The sample indices of every client of a population.

    ClientSplit         what both forms share: ids, groups, provenance, packing (the contract is core's `Population`)
    ├── Split           drawn indices in compressed rows: one array of offsets, one of indices
    └── VirtualSplit    a rule only: client i draws its samples when asked, so a million clients cost nothing

`load_split` reads back what `pack` wrote. The bytes are safetensors with one JSON metadata key and a digest over
everything, equal for equal populations.

Below the classes are the helpers that the rules of this package share. A rule computes one number per sample, its
owner, and `deal` turns owners into a Split: by construction no sample is in two clients.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from wayfare.core.errors import ConfigError, DataError
from wayfare.core.protocols import Population

_KEY = "split"
_REMEDY = "make the partition again, or restore the file from a copy"


class Ids(Sequence[str]):
    """The client ids in order, made when read: a million strings are never held at once."""

    def __init__(self, population: Population) -> None:
        self._population = population

    def __len__(self) -> int:
        return len(self._population)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self._population.id(k) for k in range(*i.indices(len(self)))]
        return self._population.id(i)

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self._population.find(id) is not None


class ClientSplit(Population, ABC):
    """N clients called c0, c1, ..., each with sample indices."""

    def __init__(
        self,
        clients: int,
        provenance: dict[str, Any] | None,
        groups: Sequence[str] | None,
        numbers: np.ndarray | None,
    ) -> None:
        self.clients = clients
        self.provenance = _plain(provenance or {})
        self.groups = None if groups is None else tuple(groups)
        self.numbers = None if numbers is None else _frozen(numbers)
        if self.groups is not None and len(self.groups) != clients:
            raise DataError(f"{len(self.groups)} group names for {clients} clients; one name per client is needed")
        if self.groups is not None and not all(isinstance(group, str) for group in self.groups):
            raise DataError("the group of a client must be a string")
        if self.numbers is not None:
            self._check_numbers(self.numbers)

    def _check_numbers(self, numbers: np.ndarray) -> None:
        if numbers.shape != (self.clients,) or (numbers < 0).any() or len(np.unique(numbers)) != self.clients:
            raise DataError(f"client numbers must be {self.clients} different non-negative integers")

    def __len__(self) -> int:
        return self.clients

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.clients} clients, rule {self.provenance.get('rule', 'unknown')!r})"

    @abstractmethod
    def _body(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What to pack beyond groups, provenance and numbers: JSON values and arrays."""

    def size(self, position: int) -> int:
        return int(self.sizes[self._at(position)])

    @property
    def ids(self) -> Ids:
        return Ids(self)

    def id(self, position: int) -> str:
        return f"c{self._number(position)}"

    def position(self, id: str) -> int:
        found = self.find(id)
        if found is None:
            example = f"for example {self.id(0)!r}" if self.clients else "it has none"
            raise ConfigError(
                f"no client {id!r} among the {self.clients} of this split; ids look like 'c12' ({example})"
            )
        return found

    def find(self, id: str) -> int | None:
        digits = id[1:]
        if not (id.startswith("c") and digits.isascii() and digits.isdigit() and len(digits) < 19):
            return None
        number = int(digits)
        if f"c{number}" != id:  # 'c007' is not 'c7'
            return None
        if self.numbers is None:
            return number if number < self.clients else None
        order = self._order
        place = int(np.searchsorted(self.numbers, number, sorter=order))
        return int(order[place]) if place < self.clients and self.numbers[order[place]] == number else None

    def pack(self) -> bytes:
        body, arrays = self._body()
        body |= {"groups": self.groups, "provenance": self.provenance}
        if self.numbers is not None:
            arrays["numbers"] = self.numbers
        # Several metadata keys would come out in no fixed order, hence a single one.
        text = json.dumps({**body, "sha256": _digest(body, arrays)}, sort_keys=True)
        return bytes(safetensors.numpy.save({k: np.ascontiguousarray(a) for k, a in arrays.items()}, {_KEY: text}))

    @cached_property
    def _order(self) -> np.ndarray:
        return np.argsort(self.numbers if self.numbers is not None else np.empty(0, np.int64))

    def _at(self, i: int) -> int:
        # A negative position would silently read another client's row, so it is refused.
        if not 0 <= i < self.clients:
            raise IndexError(f"client position {i} of {self.clients}")
        return int(i)

    def _number(self, i: int) -> int:
        i = self._at(i)
        return i if self.numbers is None else int(self.numbers[i])

    def _kept(self, positions: Sequence[int] | np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        """Checked positions, and the attributes that a selection inherits."""
        kept = np.asarray(positions)
        kept = kept.astype(np.int64) if kept.size == 0 else kept
        if kept.ndim != 1 or kept.dtype.kind not in "iu" or len(np.unique(kept)) != len(kept):
            raise ConfigError("select needs a list of different client positions (integers)")
        if len(kept) and not (kept.min() >= 0 and kept.max() < self.clients):
            raise ConfigError(f"select was given positions {kept.min()}..{kept.max()}; they run 0..{self.clients - 1}")
        numbers = kept if self.numbers is None else self.numbers[kept]
        groups = None if self.groups is None else [self.groups[i] for i in kept]
        provenance = {"selected_from": self.clients} | self.provenance  # of the first selection: the whole population
        return kept, {"numbers": numbers, "groups": groups, "provenance": provenance}


class Split(ClientSplit):
    """Drawn indices: client i has indices[offsets[i]:offsets[i+1]]."""

    def __init__(
        self,
        offsets: np.ndarray,
        indices: np.ndarray,
        provenance: dict[str, Any] | None = None,
        groups: Sequence[str] | None = None,
        numbers: np.ndarray | None = None,
    ) -> None:
        self.offsets, self.indices = _frozen(offsets), _frozen(indices)
        if self.offsets.ndim != 1 or self.indices.ndim != 1 or len(self.offsets) < 1 or self.offsets[0] != 0:
            raise DataError("a split needs one row of offsets that begins with 0, and one row of indices")
        if (np.diff(self.offsets) < 0).any() or self.offsets[-1] != len(self.indices):
            raise DataError(f"the offsets of a split must rise from 0 to its {len(self.indices)} indices")
        if len(self.indices) and self.indices.min() < 0:
            raise DataError("a split holds a negative sample index")
        super().__init__(len(self.offsets) - 1, provenance, groups, numbers)

    @classmethod
    def from_parts(
        cls,
        parts: Sequence[np.ndarray],
        provenance: dict[str, Any] | None = None,
        groups: Sequence[str] | None = None,
    ) -> Split:
        """One array of indices per client."""
        indices = np.concatenate([np.empty(0, np.int64), *parts])
        return cls(_offsets(np.array([len(part) for part in parts], np.int64)), indices, provenance, groups)

    @classmethod
    def unpack(cls, data: bytes) -> Split:
        split = load_split(data)
        if not isinstance(split, Split):
            raise DataError("this is a virtual split (a rule), not drawn indices", remedy="read it with load_split")
        return split

    def __getitem__(self, position: int) -> np.ndarray:
        # A copy: a caller who shuffles its client's samples in place must not reorder the population's.
        i = self._at(position)
        return self.indices[self.offsets[i] : self.offsets[i + 1]].copy()

    def size(self, position: int) -> int:
        i = self._at(position)
        return int(self.offsets[i + 1] - self.offsets[i])

    @property
    def sizes(self) -> np.ndarray:
        return np.diff(self.offsets)

    def pool(self) -> np.ndarray:
        return self.indices

    def select(self, positions: Sequence[int] | np.ndarray) -> Split:
        kept, rest = self._kept(positions)
        sizes = self.sizes[kept]
        offsets = _offsets(sizes)
        # Where each kept index stands in the old rows: its place in the new row, moved to the old row's start.
        source = np.arange(offsets[-1]) + np.repeat(self.offsets[kept] - offsets[:-1], sizes)
        return Split(offsets, self.indices[source], **rest)

    def _body(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {"kind": "split"}, {"offsets": self.offsets, "indices": self.indices}


class VirtualSplit(ClientSplit):
    """A rule: the client numbered k draws `each` of `samples` indices without replacement, seeded by (seed, k)."""

    def __init__(
        self,
        clients: int,
        size: int,
        samples: int,
        seed: int,
        provenance: dict[str, Any] | None = None,
        groups: Sequence[str] | None = None,
        numbers: np.ndarray | None = None,
    ) -> None:
        check_whole("clients", clients, 0)
        check_whole("size", size, 1)
        check_whole("seed", seed, 0)
        if size > samples:
            raise ConfigError(f"a virtual client cannot draw {size} of {samples} samples; lower size or add data")
        self.each, self.samples, self.seed = int(size), int(samples), int(seed)
        settings = {"rule": "virtual", "settings": {"clients": clients, "size": size}, "samples": samples}
        super().__init__(int(clients), provenance if provenance is not None else settings, groups, numbers)

    @classmethod
    def unpack(cls, data: bytes) -> VirtualSplit:
        split = load_split(data)
        if not isinstance(split, VirtualSplit):
            raise DataError("this split has drawn indices, it is not virtual", remedy="read it with load_split")
        return split

    def __getitem__(self, position: int) -> np.ndarray:
        rng = np.random.default_rng([self.seed, self._number(position)])
        return rng.choice(self.samples, self.each, replace=False)

    @property
    def sizes(self) -> np.ndarray:
        return np.broadcast_to(np.int64(self.each), (self.clients,))

    def pool(self) -> np.ndarray:
        return np.arange(self.samples)

    def select(self, positions: Sequence[int] | np.ndarray) -> VirtualSplit:
        kept, rest = self._kept(positions)
        return VirtualSplit(len(kept), self.each, self.samples, self.seed, **rest)

    def drawn(self) -> Split:
        """The same clients with their indices in a list."""
        indices = np.concatenate([self[i] for i in range(len(self))])
        offsets = np.arange(len(self) + 1) * self.each
        return Split(offsets, indices, self.provenance, self.groups, self.numbers)

    def _body(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        rule = {"clients": self.clients, "size": self.each, "samples": self.samples, "seed": self.seed}
        return {"kind": "virtual", "rule": rule}, {}


def load_split(data: bytes) -> Split | VirtualSplit:
    """Read what `pack` wrote; anything else is a DataError."""
    body, arrays = _open(data)
    try:
        shared = {"provenance": body["provenance"], "groups": body["groups"], "numbers": arrays.get("numbers")}
        if body["kind"] == "virtual":
            return VirtualSplit(**body["rule"], **shared)
        if body["kind"] == "split":
            return Split(arrays["offsets"], arrays["indices"], **shared)
    except (KeyError, TypeError, ConfigError) as error:
        raise DataError(f"a split with unusable contents: {error!r}", remedy=_REMEDY) from error
    raise DataError(f"a split of unknown kind {body['kind']!r}", remedy="it may be from a newer Wayfare")


def _open(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The JSON and the arrays of packed bytes, their digest verified."""
    try:
        arrays = safetensors.numpy.load(data)
        # safetensors gives the metadata of a file only; in bytes the header follows its 8-byte length.
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        body = json.loads(header["__metadata__"][_KEY])
        claimed = body.pop("sha256")
        found = _digest(body, arrays)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"not a split, or a damaged one: {error!r}", remedy=_REMEDY) from error
    if claimed != found:
        raise DataError(f"a damaged split: its digest is {found[:12]}, its header says {claimed!s:.12}", remedy=_REMEDY)
    return body, arrays


def _digest(body: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    sha = hashlib.sha256(json.dumps(body, sort_keys=True).encode())
    for name in sorted(arrays):
        sha.update(f"{name}{arrays[name].dtype}{arrays[name].shape}".encode())
        sha.update(np.ascontiguousarray(arrays[name]).tobytes())
    return sha.hexdigest()


def _frozen(array: np.ndarray) -> np.ndarray:
    """A read-only int64 view, because a split is shared by all its readers."""
    source = np.asarray(array)
    if source.size and source.dtype.kind not in "iu":
        raise DataError(f"a split holds integers, not {source.dtype}")
    view = source.astype(np.int64, copy=False).view()
    view.setflags(write=False)
    return view


def _plain(provenance: dict[str, Any]) -> dict[str, Any]:
    """The provenance after a JSON round trip, so that a loaded split equals the one that was packed."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(provenance, allow_nan=False, default=_scalar))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the provenance of a split must be plain JSON values: {error}") from error
    return plain


def _scalar(value: object) -> object:
    """NumPy numbers as Python numbers, which JSON can hold."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} {value!r}")


def _offsets(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


#### Helpers for rules


def check_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ConfigError(f"{name} must be a whole number of at least {least}, not {value!r}")


def check_labels(labels: np.ndarray, clients: int) -> np.ndarray:
    """Labels as (N,) int64, enough for at least one sample per client."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or (labels.size and (labels.dtype.kind not in "iu" or labels.min() < 0)):
        raise ConfigError(
            f"labels must be one row of class numbers from 0; found {labels.dtype} of shape {labels.shape}"
        )
    if len(labels) < clients:
        raise ConfigError(f"{clients} clients cannot share {len(labels)} samples; lower clients or add data")
    return labels.astype(np.int64, copy=False)


def origin(rule: Any, labels: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    """The provenance of a split: rule, settings, the generator's seed, and a digest of the labels.

    It may be called before or after drawing: the seed is the one the generator was made from.
    """
    source = getattr(rng.bit_generator, "seed_seq", None)
    seed = np.asarray(getattr(source, "entropy", None), dtype=object).tolist()
    spawned = [int(key) for key in getattr(source, "spawn_key", ())]
    return {
        "rule": type(rule).__name__.lower(),
        "settings": asdict(rule),
        "seed": seed if not spawned else {"entropy": seed, "spawn_key": spawned},
        "samples": len(labels),
        "labels_sha256": hashlib.sha256(np.ascontiguousarray(labels, "<i8").tobytes()).hexdigest(),
    }


def even(total: int, parts: int) -> np.ndarray:
    """`total` in `parts` that differ by at most one, the larger first."""
    share, rest = divmod(total, parts)
    return np.full(parts, share, np.int64) + (np.arange(parts) < rest)


def owners(labels: np.ndarray, amounts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The owner of each sample (-1: nobody) when client u is to have amounts[u, k] of the k-th class that occurs."""
    owner = np.full(len(labels), -1, np.int64)
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]  # class after class, at random within each
    start = 0
    for amount, available in zip(amounts.T, np.unique(labels, return_counts=True)[1]):
        hand = np.repeat(np.arange(len(amount)), amount)
        owner[order[start : start + len(hand)]] = hand
        start += available
    return owner


def deal(owner: np.ndarray, clients: int, rng: np.random.Generator, provenance: dict[str, Any]) -> Split:
    """The split in which sample j belongs to owner[j] (-1: to nobody), each client's samples in random order.

    Random order, so that the first tenth of a client's samples is not all of one class.
    """
    order = rng.permutation(len(owner))
    order = order[np.argsort(owner[order], kind="stable")]
    sizes = np.bincount(owner[owner >= 0], minlength=clients)
    return Split(_offsets(sizes), order[len(owner) - int(sizes.sum()) :], provenance)
