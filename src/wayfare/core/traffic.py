"""Traffic: one round's exchange with devices. It asks, counts bytes, and admits only lawful replies.

The admission gate stands before every strategy. A refused reply is recorded with its reason and the round goes on with
the rest; below the quorum the round is void. Because `merge` is pure and streams, a void round changes nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import torch

from wayfare.core.bundle import Bundle, Weights, joined
from wayfare.core.protocols import Engine, Failure, Policy
from wayfare.errors import DeviceError, QuorumError

_MAX_TEXT = 10_000  # letters in a value
_MAX_LOSS = 1e30  # its sum over all examples must stay a number
_MAX_REASON = 500  # letters kept of why a reply was refused


class Refusal(Exception):
    """Why a reply is not admitted: a short code, then what was found."""


@dataclass
class Traffic:
    """What a round asked for and what came of it."""

    engine: Engine
    policy: Policy
    round: int
    size_of: Callable[[str], int]
    heard: Callable[[str], None] = lambda device: None
    clients: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)  # devices that now remember something
    cold: list[str] = field(default_factory=list)  # devices that came without memory
    refused: list[dict[str, str]] = field(default_factory=list)
    examples: int = 0
    loss: float = 0.0  # sum over examples
    bytes_up: int = 0
    bytes_down: int = 0
    group: str = ""  # the group now asked, in a hierarchy
    failure: DeviceError | None = None  # the first, if a program failed on every device that was asked

    def ask(
        self, program: str, requests: Iterable[tuple[str, Bundle]], expects: Mapping[str, Weights] | None = None
    ) -> Iterator[tuple[str, Bundle]]:
        """Call a program and yield the admitted replies in the order asked; QuorumError if they are too few."""
        sent: dict[str, Mapping[str, Weights]] = {}  # asked and not yet answered: a device answers once
        asked, admitted, failures = 0, 0, []

        def metered() -> Iterator[tuple[str, Bundle]]:
            nonlocal asked
            for device, message in requests:
                asked += 1
                sent[device] = message.tensors
                self.bytes_down += message.nbytes
                yield device, Bundle(message.tensors, {**message.values, "round": self.round})

        deadline = time.monotonic() + self.policy.deadline
        for device, reply in self.engine.call(program, metered(), deadline):
            try:
                if device not in sent:
                    raise Refusal("duplicate: this device was not asked, or has already answered")
                anchors = sent.pop(device)
                if isinstance(reply, Failure):
                    failures.append(DeviceError(device, program, reply.reason, reply.detail))
                    raise Refusal(f"failed: {reply.reason}")
                admit(reply, expects, anchors, self.policy, self.round, self.size_of(device))
            except Refusal as refusal:
                self.refused.append(
                    {"device": device, "reason": str(refusal)[:_MAX_REASON]}
                    | ({"group": self.group} if self.group else {})
                )
                if failures and self.policy.on_error == "raise":
                    raise failures[0] from None
                continue
            admitted += 1
            self.bytes_up += reply.nbytes
            self._note(device, reply)
            self.heard(device)
            yield device, reply
        if asked and len(failures) == asked:  # a bad day, or a fault of the experiment: if it goes on, this tells which
            self.failure = failures[0]
        if admitted < max(1, math.ceil(self.policy.quorum * asked - 1e-9)):  # 0.07 * 100 is a little above 7
            raise QuorumError(
                f"round {self.round}: {admitted} usable replies of {asked} asked, quorum {self.policy.quorum}"
            ) from self.failure

    def _note(self, device: str, reply: Bundle) -> None:
        n = int(reply.number("n"))
        self.clients.append(device)
        self.examples += n
        self.loss += n * reply.number("loss")
        for flag, devices in (("cold", self.cold), ("kept", self.kept)):
            if reply.values.get(flag) is True:
                devices.append(device)


def admit(
    reply: Bundle,
    expects: Mapping[str, Weights] | None,
    anchors: Mapping[str, Weights],
    policy: Policy,
    round: int,
    size: int,
) -> None:
    """Raise Refusal unless the reply is exactly what was asked for.

    `expects` gives the lawful sections, names, shapes and types; `anchors` what was sent to this device.
    """
    if expects is not None:
        if reply.tensors.keys() != expects.keys():
            raise Refusal(f"sections: {sorted(reply.tensors)} instead of {sorted(expects)}")
        for section, like in expects.items():
            _check_section(section, reply[section], like, anchors.get(section), policy)
    for name, value in reply.values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise Refusal(f"not finite: value {name} is {value}")
        if isinstance(value, int) and abs(value) >= 2**63:
            raise Refusal(f"values: {name} is a number of {value.bit_length()} bits")
        if isinstance(value, str) and len(value) > _MAX_TEXT:
            raise Refusal(f"values: {name} is a text of {len(value)} letters")
    if reply.values.get("round") != round:
        raise Refusal(f"stale: the reply is of round {reply.values.get('round')}, this is round {round}")
    n, loss = reply.values.get("n"), reply.values.get("loss", 0.0)
    if not isinstance(n, int) or isinstance(n, bool) or not 0 < n <= min(size, policy.max_examples):
        raise Refusal(f"examples: n = {n!r}, but this device has {size} (at most {policy.max_examples} are accepted)")
    if not isinstance(loss, int | float) or isinstance(loss, bool) or abs(loss) > _MAX_LOSS:
        raise Refusal(f"values: loss = {loss!r} is not a loss")


def _check_section(section: str, weights: Weights, like: Weights, anchor: Weights | None, policy: Policy) -> None:
    if weights.keys() != like.keys():
        odd = sorted(weights.keys() ^ like.keys())
        raise Refusal(f"names: {section} has {odd[:3]} on one side only")
    start = anchor if section == "model" and anchor is not None and anchor.keys() == weights.keys() else None
    for name, tensor in weights.items():
        wanted = like[name]
        if not isinstance(tensor, torch.Tensor) or tensor.layout != wanted.layout or tensor.is_meta:
            raise Refusal(f"type: {section}/{name} is not a dense tensor")
        if tensor.shape != wanted.shape:
            raise Refusal(f"shape: {section}/{name} is {tuple(tensor.shape)} instead of {tuple(wanted.shape)}")
        if tensor.dtype != wanted.dtype:
            raise Refusal(f"type: {section}/{name} is {tensor.dtype} instead of {wanted.dtype}")
    parts = joined(weights.values())
    if start is not None:
        parts = [part - other.to(part.device) for part, other in zip(parts, joined(start[name] for name in weights))]
    # one pass finds what is not finite as well: a norm of such a tensor is not finite either
    norms = [_norm(part) for part in parts]
    if not all(map(math.isfinite, norms)):
        for name, tensor in weights.items():
            if not bool(tensor.isfinite().all()):
                raise Refusal(f"not finite: {section}/{name}")
        raise Refusal(f"norm: {section} is beyond all bounds")  # numbers, but too large for their squares
    _check_norm(section, math.hypot(*norms), start, policy)


def _check_norm(section: str, norm: float, start: Weights | None, policy: Policy) -> None:
    bound = policy.max_norm if start is None else policy.max_change
    if start is not None and norm > bound:  # only now is it worth knowing how large the model itself is
        bound *= 1 + math.sqrt(sum(_norm(tensor) ** 2 for tensor in start.values()))
    if norm > bound:
        how = "has norm" if start is None else "changed by"
        raise Refusal(f"norm: {section} {how} {norm:.4g}, the bound is {bound:.4g}")


def _norm(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor.detach().float())) if tensor.numel() else 0.0
