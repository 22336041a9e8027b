"""How much one device may move the result of a round: no reply counts for more than a few times the typical one.

The length of a change is its L2 norm: of the model against what was sent to the device, of any other section against
zero. Running statistics of normalisation layers have lengths of their own: they are large and would hide a change of
the weights. A change that is longer than

    bound = max_ratio * upper quartile of the lengths in this round

is shortened to the bound: sent + (reply - sent) * bound / length. Direction and device stay, nobody is refused, and the
round's record says what was shortened. So a poisoned reply weighs no more than `max_ratio` large honest ones, however
its sender chooses it, and cannot drive the model to where honest devices fail.

The upper quartile of K lengths is the one with number floor(0.75 (K - 1)), counted from 0 in ascending order: it is the
length of a device, and never a mean with the largest. Lengths of 0 do not count, and among fewer than three devices
nobody can tell who lies: nothing is shortened.

Everything is float64 over contiguous memory in the order asked, so the result depends on the replies alone: not on the
engine, the order of arrival or an interruption. The quartile needs replies before the first is merged: up to 20 are
held, fewer where they are large (at least 5), and later ones are measured by the bound of these. So memory does not
grow with the number of clients. A quarter of those held would have to lie together to move the bound.

The default of `max_ratio` comes from honest rounds (docs/reliability.md has the figures): no recipe has a change longer
than 3.4 upper quartiles. Clients of very unequal sizes reach 3.1, under SCAFFOLD 4.7: those are shortened a little.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

from wayfare.core.bundle import Bundle, Weights

MOST_HELD, LEAST_HELD, _ROOM = 20, 5, 2**25  # replies that wait for the bound; fewer if they are more bytes than that
_FEWEST = 3  # devices of which one can be told from the others
COUNTS = frozenset({"tally", "counts"})  # sections of counts: they are bounded by the examples, not by their length
_RUNNING = "running_"  # how statistics of normalisation layers are called

Part = tuple[str, str]
"""A section, and "running" for its running statistics or "" for the rest."""
Lengths = dict[Part, float]
Note = Callable[[str, Part, float, float], None]
"""Hears of a change that was shortened: device, part, length and bound."""


@dataclass(frozen=True)
class Arrival:
    """An admitted reply, what its device had been sent, and how long its changes are."""

    device: str
    reply: Bundle
    sent: Mapping[str, Weights]
    lengths: Lengths


def part_of(section: str, name: str) -> Part:
    """The part of a reply that a tensor belongs to."""
    return section, "running" if name.rpartition(".")[2].startswith(_RUNNING) else ""


def start_of(section: str, weights: Weights, sent: Mapping[str, Weights]) -> Weights | None:
    """What a section's change is measured from; None stands for zero."""
    start = sent.get(section)
    return start if section == "model" and start is not None and start.keys() >= weights.keys() else None


def norm(tensor: torch.Tensor) -> float:
    """The L2 norm, the same on any layout in memory."""
    if not tensor.numel():
        return 0.0
    plain = tensor.detach().contiguous()
    kind = torch.complex128 if plain.is_complex() else torch.float64
    return float(torch.linalg.vector_norm(plain if plain.is_floating_point() else plain.to(kind), dtype=torch.float64))


def bounded(arrivals: Iterator[Arrival], max_ratio: float, note: Note) -> Iterator[tuple[str, Bundle]]:
    """The replies in their order, with changes shortened to the bound."""
    held, size = deque[Arrival](), 0
    for arrival in arrivals:
        held.append(_copied(arrival))
        size += arrival.reply.nbytes
        if len(held) >= MOST_HELD or (len(held) >= LEAST_HELD and size > _ROOM):
            break
    bounds = bounds_of((arrival.lengths for arrival in held), max_ratio)
    while held:
        yield _shortened(held.popleft(), bounds, note)
    for arrival in arrivals:
        yield _shortened(arrival, bounds, note)


def bounds_of(lengths: Iterable[Lengths], max_ratio: float) -> Lengths:
    """The bound of each part; a part that fewer than three devices changed has none."""
    by_part: dict[Part, list[float]] = {}
    for one in lengths:
        for part, length in one.items():
            if length > 0:
                by_part.setdefault(part, []).append(length)
    return {part: max_ratio * upper_quartile(found) for part, found in by_part.items() if len(found) >= _FEWEST}


def upper_quartile(lengths: list[float]) -> float:
    """One of the lengths: at most a quarter of them are longer."""
    return sorted(lengths)[(3 * (len(lengths) - 1)) // 4]


def _shortened(arrival: Arrival, bounds: Lengths, note: Note) -> tuple[str, Bundle]:
    scales: dict[Part, float] = {}
    for part, length in arrival.lengths.items():
        if length > bounds.get(part, math.inf):
            scales[part] = bounds[part] / length
            note(arrival.device, part, length, bounds[part])
    reply = arrival.reply
    for section in {section for section, _ in scales}:
        start = start_of(section, reply[section], arrival.sent)
        reply = reply.with_(**{section: _scaled(section, reply[section], start, scales)})
    return arrival.device, reply


def _scaled(section: str, weights: Weights, start: Weights | None, scales: Mapping[Part, float]) -> Weights:
    found = dict(weights)
    for name, tensor in weights.items():
        scale = scales.get(part_of(section, name))
        if scale is not None:
            origin = torch.zeros_like(tensor) if start is None else start[name].to(tensor.device)
            found[name] = (origin.double() + (tensor.double() - origin.double()) * scale).to(tensor.dtype)
    return found


def _copied(arrival: Arrival) -> Arrival:
    """In memory of its own: what waits must not fill the memory that an engine shares with its workers."""
    sections = {s: {n: t.clone() for n, t in weights.items()} for s, weights in arrival.reply.tensors.items()}
    return Arrival(arrival.device, Bundle(sections, arrival.reply.values), arrival.sent, arrival.lengths)
