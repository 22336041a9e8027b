"""The gate: the one door to the devices. It asks, counts bytes, and admits only replies that are what was asked for.

It stands before every strategy and every topology: nothing else calls an engine. A refused reply is recorded with its
reason, and the round goes on with the rest; below the quorum the round is void. Because `merge` is pure and streams, a
void round changes nothing.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import torch

from wayfare.core.bundle import Bundle, Weights
from wayfare.core.errors import DeviceError, QuorumError
from wayfare.core.protocols import Engine, Failure, Policy

Requests = Iterable[tuple[str, Bundle]]
Replies = Iterator[tuple[str, Bundle]]

TALLY = "tally"  # a section of counts, right and all answers by class: they weigh in no merge
_MAX_TEXT = 10_000  # letters in a value
_MAX_LOSS = 1e30  # its sum over all examples must stay a number
_MAX_REASON = 500  # letters kept of why a reply was refused


class Refusal(Exception):
    """Why a reply is not admitted: a short code, then what was found."""


@dataclass
class Gate:
    """One round's door: what was asked through it, and what came of that."""

    engine: Engine
    policy: Policy
    round: int
    size_of: Callable[[str], int] = lambda device: 0  # how many samples a device holds
    on_reply: Callable[[str], None] = lambda device: None  # called for every admitted reply
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

    def ask(self, program: str, requests: Requests, expects: Mapping[str, Weights] | None = None) -> Replies:
        """A server's question: the admitted replies in the order asked; QuorumError if they are too few."""
        asked = admitted = 0

        def counted() -> Requests:
            nonlocal asked
            for device, message in requests:
                asked += 1
                self.bytes_down += message.nbytes
                yield device, message

        for device, reply in self.run(program, counted(), expects):
            admitted += 1
            self.bytes_up += reply.nbytes
            n = int(reply.number("n"))
            self.clients.append(device)
            self.examples += n
            self.loss += n * reply.number("loss")
            yield device, reply
        if admitted < max(1, math.ceil(self.policy.quorum * asked - 1e-9)):  # 0.07 * 100 is a little above 7
            raise QuorumError(
                f"round {self.round}: {admitted} usable replies of {asked} asked, quorum {self.policy.quorum}"
            ) from self.failure

    def run(
        self, program: str, requests: Requests, expects: Mapping[str, Weights] | None = None, strict: bool = False
    ) -> Replies:
        """What devices do for themselves: the admitted replies, with no server that counts bytes or needs a quorum.

        `strict`: no reply may be missing, so the first refusal is a DeviceError.
        """
        waiting: dict[str, deque[Bundle]] = {}  # asked and not yet answered: one answer for each question
        asked, failures = 0, []

        def numbered() -> Requests:
            nonlocal asked
            for device, message in requests:
                asked += 1
                waiting.setdefault(device, deque()).append(message)
                yield device, Bundle(message.tensors, {**message.values, "round": self.round})

        deadline = time.monotonic() + self.policy.deadline
        for device, reply in self.engine.call(program, numbered(), deadline):
            try:
                if device not in waiting:
                    raise Refusal("duplicate: this device was not asked, or has already answered")
                message = waiting[device].popleft()
                if not waiting[device]:
                    del waiting[device]
                if isinstance(reply, Failure):
                    failures.append(DeviceError(device, program, reply.reason, reply.detail))
                    raise Refusal(f"failed: {reply.reason}")
                self._check(reply, expects, message, device)
            except Refusal as refusal:
                self.refuse(device, refusal)
                if failures and (strict or self.policy.on_error == "raise"):
                    raise failures[0] from None
                if strict:
                    raise DeviceError(device, program, f"its reply was refused: {refusal}") from None
                continue
            for flag, devices in (("cold", self.cold), ("kept", self.kept)):
                if reply.values.get(flag) is True:
                    devices.append(device)
            self.on_reply(device)
            yield device, reply
        if asked and len(failures) == asked:  # a bad day, or a fault of the experiment: if it goes on, this tells which
            self.failure = failures[0]

    def refuse(self, device: str, refusal: Refusal, **more: str) -> None:
        """Record a refusal; `more` says what else is known of it."""
        group = {"group": self.group} if self.group else {}
        self.refused.append({"device": device, **more, "reason": str(refusal)[:_MAX_REASON], **group})

    def _check(self, reply: Bundle, expects: Mapping[str, Weights] | None, message: Bundle, device: str) -> None:
        """A reply may claim as many examples as the message says or gives the device, or else as many as it holds."""
        policy, given = self.policy, message.tensors.get("samples", {}).get("train")
        if "n" in message.values:
            most = int(message.number("n"))
        else:
            most = min(self.size_of(device) if given is None else len(given), policy.max_examples)
        admit(reply, expects, message.tensors, policy, round=self.round, examples=most)


def admit(
    reply: Bundle,
    expects: Mapping[str, Weights] | None,
    anchors: Mapping[str, Weights],
    policy: Policy,
    *,
    round: int,
    examples: int,
) -> None:
    """Raise Refusal unless the reply is exactly what was asked for.

    `expects` gives the lawful sections, names, shapes and types; `anchors` what was sent to this device; `examples` how
    many it may say that it used.
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
            raise Refusal(f"values: {name} is a text of {len(value)} characters")
    if reply.values.get("round") != round:
        raise Refusal(f"stale: the reply is of round {reply.values.get('round')}, this is round {round}")
    n, loss = reply.values.get("n"), reply.values.get("loss", 0.0)
    if not isinstance(n, int) or isinstance(n, bool) or not 0 < n <= examples:
        raise Refusal(f"examples: n = {n!r}, but at most {examples} are accepted from this device")
    if not isinstance(loss, int | float) or isinstance(loss, bool) or abs(loss) > _MAX_LOSS:
        raise Refusal(f"values: loss = {loss!r} is not a loss")


def _check_section(section: str, weights: Weights, like: Weights, anchor: Weights | None, policy: Policy) -> None:
    if weights.keys() != like.keys():
        odd = sorted(weights.keys() ^ like.keys())
        raise Refusal(f"names: {section} has {odd[:3]} on one side only")
    start = anchor if section == "model" and anchor is not None and anchor.keys() == weights.keys() else None
    for name, tensor in weights.items():
        expected = like[name]
        if not isinstance(tensor, torch.Tensor) or tensor.layout != expected.layout or tensor.is_meta:
            raise Refusal(f"type: {section}/{name} is not a dense tensor")
        if tensor.shape != expected.shape:
            raise Refusal(f"shape: {section}/{name} is {tuple(tensor.shape)} instead of {tuple(expected.shape)}")
        if tensor.dtype != expected.dtype:
            raise Refusal(f"type: {section}/{name} is {tensor.dtype} instead of {expected.dtype}")
    parts = list(weights.values())
    if start is not None:
        parts = [tensor - start[name].to(tensor.device) for name, tensor in weights.items()]
    # one pass finds what is not finite as well: a norm of such a tensor is not finite either
    norms = [_norm(part) for part in parts]
    if not all(map(math.isfinite, norms)):
        for name, tensor in weights.items():
            if not bool(tensor.isfinite().all()):
                raise Refusal(f"not finite: {section}/{name}")
        raise Refusal(f"norm: {section} is too large to compute")  # finite, but its squares are not
    if section != TALLY:
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
