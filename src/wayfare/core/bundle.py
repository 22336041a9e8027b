"""Bundle: the one thing that travels between server and device, is kept on a device, and is checkpointed.

Named sections of named tensors ("model", "control", "prototypes", ...) and a few plain values.
On disk and on the wire a Bundle is one safetensors file; nothing is ever pickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from wayfare.core.errors import StoreError

Weights = dict[str, Tensor]
Value = int | float | str | bool

_SEPARATOR = "//"  # between section and tensor name in a file; parameter names contain dots, never this


@dataclass
class Bundle:
    """Sections of tensors, and values."""

    tensors: dict[str, Weights] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)

    def __getitem__(self, section: str) -> Weights:
        return self.tensors[section]

    def __contains__(self, section: object) -> bool:
        return section in self.tensors

    def __bool__(self) -> bool:
        return bool(self.tensors or self.values)

    def with_(self, **sections: Weights) -> Bundle:
        """A copy in which these sections are replaced; tensors are shared, not copied."""
        return Bundle({**self.tensors, **sections}, dict(self.values))

    def only(self, *sections: str) -> Bundle:
        """The named sections, without values; tensors are shared, not copied."""
        return Bundle({name: self.tensors[name] for name in sections})

    def number(self, name: str, default: float = 0.0) -> float:
        """A value as a float."""
        value = self.values.get(name, default)
        if isinstance(value, str):
            raise TypeError(f"value {name!r} is text, not a number")
        return float(value)

    @property
    def nbytes(self) -> int:
        """What the tensors and values weigh when they travel."""
        tensors = sum(t.nbytes for weights in self.tensors.values() for t in weights.values())
        return tensors + sum(len(v) if isinstance(v, str) else 8 for v in self.values.values())

    def is_same(self, other: Bundle, but_for_values: bool = False) -> bool:
        """Whether both hold the same tensors, and the same values."""
        if not but_for_values and self.values != other.values:
            return False
        return self.tensors.keys() == other.tensors.keys() and all(
            _is_same(weights, other[section]) for section, weights in self.tensors.items()
        )

    def pack(self) -> bytes:
        """One safetensors file; equal bundles give equal bytes."""
        for section in self.tensors:
            if _SEPARATOR in section:
                raise StoreError(f"section name {section!r} contains {_SEPARATOR!r}, which separates names in files")
        flat: Weights = {}
        seen: set[int] = set()
        for section, name, tensor in self._items():
            data = plain(tensor)
            if data.numel() and data.untyped_storage().data_ptr() in seen:
                data = data.clone()  # the library refuses names that share memory
            seen.add(data.untyped_storage().data_ptr())
            flat[section + _SEPARATOR + name] = data
        # one metadata key: the order of several is not fixed by the library
        names = {section: list(weights) for section, weights in self.tensors.items()}
        return save(flat, {"wayfare": json.dumps({"names": names, "values": self.values})})

    @classmethod
    def unpack(cls, data: bytes) -> Bundle:
        """Read what `pack` wrote; raises StoreError on anything else."""
        try:
            flat = load(data)
            header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
            about = json.loads(header["__metadata__"]["wayfare"])
            tensors = {
                section: {name: flat.pop(section + _SEPARATOR + name) for name in names}
                for section, names in about["names"].items()
            }
            values = about["values"]
        except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StoreError(f"not a Wayfare bundle: {error}") from error
        if flat or not isinstance(values, dict) or not all(isinstance(v, int | float | str) for v in values.values()):
            raise StoreError("not a Wayfare bundle: its table of contents does not match its tensors")
        return cls(tensors, values)

    def _items(self) -> Iterable[tuple[str, str, Tensor]]:
        return ((section, name, t) for section, weights in self.tensors.items() for name, t in weights.items())


def _is_same(one: Weights, other: Weights) -> bool:
    if one is other:
        return True
    pairs = ((tensor, other[name]) for name, tensor in one.items() if name in other)
    return one.keys() == other.keys() and all(a is b or torch.equal(a, b) for a, b in pairs)


def plain(tensor: Tensor) -> Tensor:
    """The tensor as contiguous CPU memory without history."""
    return tensor.detach().cpu().contiguous()


def digest(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and bits, independent of the order of names and of the file format."""
    sha = hashlib.sha256()
    for name in sorted(weights):
        tensor = plain(weights[name])
        sha.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        sha.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def travelling(net: nn.Module) -> Weights:
    """What of a network travels: trained parameters and floating buffers, by name (references, not copies).

    Frozen parameters are the same everywhere, and integer buffers (counters) have no mean.
    """
    trained: Weights = {name: p for name, p in net.named_parameters() if p.requires_grad}
    buffers = {name: b for name, b in net.named_buffers() if b.is_floating_point()}
    if buffers:
        persistent = net.state_dict(keep_vars=True)
        trained |= {name: b for name, b in buffers.items() if name in persistent}
    return trained


def snapshot(net: nn.Module) -> Weights:
    """A copy of what travels."""
    return {name: tensor.detach().clone() for name, tensor in travelling(net).items()}


def load_into(net: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a network; names and shapes must match exactly."""
    own = travelling(net)
    if own.keys() != weights.keys():
        odd = sorted(own.keys() ^ weights.keys())
        raise StoreError(f"weights do not fit the network: {odd[:5]} are on one side only")
    with torch.no_grad():
        for name, tensor in own.items():
            if tensor.shape != weights[name].shape:
                raise StoreError(
                    f"weights do not fit the network: {name} is {tuple(weights[name].shape)}, not {tuple(tensor.shape)}"
                )
            tensor.copy_(weights[name])


def mean(pairs: Iterable[tuple[float, Mapping[str, Tensor]]]) -> Weights:
    """The weighted mean in one pass: float64 accumulators, a few models in memory however many are averaged."""
    total, sums, types = 0.0, dict[str, Tensor](), dict[str, torch.dtype]()
    for weight, weights in pairs:
        total += weight
        if not sums:
            types = {name: tensor.dtype for name, tensor in weights.items()}
            sums = {name: tensor.to(torch.float64, copy=True).mul_(weight) for name, tensor in weights.items()}
            continue
        for name, sum in sums.items():
            sum.add_(weights[name].to(torch.float64), alpha=weight)  # adding across types takes twice as long
    return {name: sum.div_(total).to(types[name]) for name, sum in sums.items()}


def midpoint(a: Tensor, b: Tensor) -> Tensor:
    """The plain mean of two float32 tensors: the bits of `mean`, in a third of its time.

    float64 has more than twice float32's digits, and so a sum that is rounded to the one and then to the other is the
    sum rounded to float32 at once. Halving it is exact; where the half is too small for that, the sum was exact.
    """
    half = (a + b).mul_(0.5)
    if not torch.linalg.vector_norm(half).isfinite():  # the sum of two very large numbers is too large, their mean not
        return mean([(1.0, {"": a}), (1.0, {"": b})])[""]
    return half


def zeros_like(weights: Mapping[str, Tensor]) -> Weights:
    """Zeros in the shape of weights."""
    return {name: torch.zeros_like(t) for name, t in weights.items()}


def add(terms: Iterable[Tensor]) -> Tensor:
    """The sum of at least one tensor."""
    first, *rest = terms
    for term in rest:
        first = first + term
    return first
