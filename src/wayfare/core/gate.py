"""The gate: the one door to the devices. It asks, counts bytes, and admits only replies that are what was asked for.

It stands before every strategy and every topology: nothing else calls an engine. Tensors must be what `expects` says,
values what `values` says (`core/values.py`): anything else is refused with its reason, and the round goes on with the
rest; below the quorum the round is void. What is lawful and too influential is shortened (`core/influence.py`).
Because `merge` is pure and streams, a void round changes nothing, and a merge that fails can be done again without the
device that made it fail.
"""

from __future__ import annotations

import math
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from wayfare.core.bundle import Bundle, Weights
from wayfare.core.errors import ConfigError, DeviceError, MergeError, QuorumError, StoreError
from wayfare.core.influence import COUNTS, Arrival, Lengths, Part, bounded, norm, part_of, start_of
from wayfare.core.protocols import Engine, Failure, MergeContext, MergeRule, Policy, Strategy
from wayfare.core.text import printable
from wayfare.core.values import LOSS, MOST_METRICS, Flag, Kind, Number, fault_of, shown

Requests = Iterable[tuple[str, Bundle]]
Replies = Iterator[tuple[str, Bundle]]
Expected = Mapping[str, Weights] | Callable[[Bundle], Mapping[str, Weights]]
"""Sections, names, shapes and types of a reply: of every one, or of one to this message."""
Test = Callable[[str, Bundle], None]
"""Raises Refusal for a reply that is not to be used."""

TALLY = "tally"  # a section of counts, right and all answers by class: they weigh in no merge
_MAX_REASON = 500  # letters kept of why a reply was refused
_MAX_COUNT = 10**12  # answers of a class in a tally: their sum must stay a number
_VARIANCE = "running_var"  # the name of a variance: a negative one makes every model that it is merged into NaN

COMMON: Mapping[str, Kind] = {
    "loss": LOSS,
    "steps": Number(0, 10_000_000, integer=True),
    "cold": Flag(),
    "kept": Flag(),
}
"""Values that any reply may have, beside `n` and `round`, which every reply must have."""


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
    aggregation: MergeRule = MergeRule()
    context: MergeContext = MergeContext(0)
    clients: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)  # devices that now remember something
    cold: list[str] = field(default_factory=list)  # devices that came without memory
    refused: list[dict[str, str]] = field(default_factory=list)
    shortened: list[dict[str, str | float]] = field(default_factory=list)  # changes that were too long
    losses: list[float] = field(default_factory=list)  # of each client
    examples: int = 0
    loss: float = 0.0  # sum over examples
    bytes_up: int = 0
    bytes_down: int = 0
    group: str = ""  # the group now asked, in a hierarchy
    missing: int = 0  # replies that were due and that nobody waits for: the quorum counts them as asked
    failure: DeviceError | MergeError | None = None  # the first, if a program failed on all devices; or of the merge

    def merge(self, strategy: Strategy, state: Bundle, requests: Callable[[], Requests]) -> Bundle:
        """The strategy's next state, from the replies to `train`.

        If `merge` raises, the round is done once more, and each reply is first merged alone: whoever makes that fail is
        refused. (Devices train again, to the same bits, so that no reply has to be kept.) If the merge fails even so,
        the fault is not one device's: MergeError, the round is void.
        """
        before = _counts(self)
        try:
            return self._merge(strategy, state, requests())
        except _MergeFault as fault:
            error = fault.error
        failed = MergeError(self.round, type(strategy).__name__, error, _trace(error))
        if self.policy.on_error == "raise":
            raise failed from error
        for name, value in before.items():
            setattr(self, name, value)
        try:
            return self._merge(strategy, state, requests(), partial(_merges_alone, strategy, state))
        except (_MergeFault, QuorumError):
            self.failure = failed
            raise failed from error

    def _merge(self, strategy: Strategy, state: Bundle, requests: Requests, test: Test | None = None) -> Bundle:
        replies = self.ask("train", requests, partial(strategy.expects_of, state), strategy.values(state), test)
        raised: list[Exception] = []
        try:
            return self.aggregation.merge(strategy, state, _watched(replies, raised), self.context)
        except (ConfigError, StoreError, MemoryError):  # of the experiment or the machine, not of a reply
            raise
        except Exception as error:
            if error in raised:  # on the way here, not in the merge
                raise
            raise _MergeFault(error) from error
        finally:
            replies.close()

    def ask(
        self,
        program: str,
        requests: Requests,
        expects: Expected,
        values: Mapping[str, Kind] = {},
        test: Test | None = None,
    ) -> Generator[tuple[str, Bundle], None, None]:
        """A server's question: the admitted replies in the order asked; QuorumError if they are too few."""
        asked = admitted = 0

        def counted() -> Requests:
            nonlocal asked
            for device, message in requests:
                asked += 1
                self.bytes_down += self.engine.bytes_down(program, message)
                yield device, message

        def noted() -> Iterator[Arrival]:
            nonlocal admitted
            for arrival in self._admitted(program, counted(), expects, values, test=test):
                admitted += 1
                self._count(program, arrival.device, arrival.reply)
                yield arrival

        # a bound made from the other replies would let one client change what the others count for
        ratio = 0.0 if self.aggregation.private else self.policy.max_ratio
        yield from bounded(noted(), ratio, self._note) if ratio else ((a.device, a.reply) for a in noted())
        asked += self.missing
        fewest = max(1, math.ceil(self.policy.quorum * asked - 1e-9))  # 0.07 * 100 is a little above 7
        if admitted < fewest and not self.aggregation.private:  # how many there were is nobody's business
            raise QuorumError(
                f"round {self.round}: {admitted} usable replies of {asked} asked, quorum {self.policy.quorum}"
            ) from self.failure

    def run(
        self,
        program: str,
        requests: Requests,
        expects: Expected,
        values: Mapping[str, Kind] = {},
        *,
        strict: bool = False,
    ) -> Replies:
        """What devices do for themselves: the admitted replies, with no server that counts bytes or needs a quorum.

        `strict`: no reply may be missing, so the first refusal is a DeviceError.
        """
        for arrival in self._admitted(program, requests, expects, values, strict=strict):
            yield arrival.device, arrival.reply

    def refuse(self, device: str, refusal: Refusal, **more: str) -> None:
        """Record a refusal; `more` says what else is known of it."""
        self.refused.append({"device": device, **more, "reason": printable(refusal, _MAX_REASON), **self._in_group()})

    def _admitted(
        self,
        program: str,
        requests: Requests,
        expects: Expected,
        values: Mapping[str, Kind],
        *,
        strict: bool = False,
        test: Test | None = None,
    ) -> Iterator[Arrival]:
        """Ask, and let through what is lawful."""
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
                message = _question(waiting, device)
                if isinstance(reply, Failure):
                    failures.append(DeviceError(device, program, printable(reply.reason, _MAX_REASON), reply.detail))
                    raise Refusal(f"failed: {reply.reason}")
                lengths = self._check(reply, expects, values, message, device)
                if test is not None:
                    test(device, reply)
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
            yield Arrival(device, reply, message.tensors, lengths)
        if asked and len(failures) == asked:  # a bad day, or a fault of the experiment: if it goes on, this tells which
            self.failure = failures[0]

    def _check(
        self, reply: Bundle, expects: Expected, values: Mapping[str, Kind], message: Bundle, device: str
    ) -> Lengths:
        """A reply may claim as many examples as the message says or gives the device, or else as many as it holds."""
        policy, given = self.policy, message.tensors.get("samples", {}).get("train")
        if "n" in message.values:
            most = int(message.number("n"))
        else:
            most = min(self.size_of(device) if given is None else len(given), policy.max_examples)
        expects = expects(message) if callable(expects) else expects
        return admit(reply, expects, message.tensors, policy, round=self.round, examples=most, values=values)

    def _count(self, program: str, device: str, reply: Bundle) -> None:
        n, loss = int(reply.number("n")), reply.number("loss")
        self.clients.append(device)
        self.bytes_up += self.engine.bytes_up(program, reply)
        self.examples += n
        self.loss += n * loss
        self.losses.append(loss)

    def _note(self, device: str, part: Part, length: float, bound: float) -> None:
        what = " ".join(part).strip()
        self.shortened.append({"device": device, "part": what, "length": length, "bound": bound, **self._in_group()})

    def _in_group(self) -> dict[str, str]:
        return {"group": self.group} if self.group else {}


# ---- merging


class _MergeFault(Exception):
    """`merge` raised this."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _watched(replies: Replies, raised: list[Exception]) -> Replies:
    """The same replies; `raised` gets what goes wrong on their way, which is no fault of the merge."""
    try:
        yield from replies
    except Exception as error:
        raised.append(error)
        raise


def merged(strategy: Strategy, state: Bundle, replies: Iterable[tuple[str, Bundle]]) -> Bundle:
    """The next state from one device's reply; Refusal if it cannot be merged."""
    try:
        return strategy.merge(state, replies)
    except (ConfigError, StoreError, MemoryError):  # of the experiment or the machine, not of a reply
        raise
    except Exception as error:
        raise Refusal(f"merge: {type(error).__name__}: {error}") from error


def _merges_alone(strategy: Strategy, state: Bundle, device: str, reply: Bundle) -> None:
    merged(strategy, state, [(device, reply)])


def _counts(gate: Gate) -> dict[str, Any]:
    """What a round that is done again must not count twice; bytes were sent twice."""
    lists = ("clients", "kept", "cold", "refused", "shortened", "losses")
    return {name: list(getattr(gate, name)) for name in lists} | {"examples": gate.examples, "loss": gate.loss}


def _trace(error: Exception) -> str:
    return "".join(traceback.format_exception(error))


def _question(waiting: dict[str, deque[Bundle]], device: str) -> Bundle:
    """The message that a reply of this device answers."""
    if device not in waiting:
        raise Refusal("duplicate: this device was not asked, or has already answered")
    message = waiting[device].popleft()
    if not waiting[device]:
        del waiting[device]
    return message


# ---- what is lawful


def admit(
    reply: Bundle,
    expects: Mapping[str, Weights],
    anchors: Mapping[str, Weights],
    policy: Policy,
    *,
    round: int,
    examples: int,
    values: Mapping[str, Kind] = {},
) -> Lengths:
    """Raise Refusal unless the reply is exactly what was asked for; returns how long its changes are.

    `expects` gives the lawful sections, names, shapes and types; `anchors` what was sent to this device; `examples` how
    many it may say that it used; `values` what it may say beside `n`, `round` and the common ones.
    """
    if reply.tensors.keys() != expects.keys():
        raise Refusal(f"sections: {_names(reply.tensors)} instead of {_names(expects)}")
    lengths: Lengths = {}
    for section, like in expects.items():
        lengths |= _check_section(section, reply[section], like, anchors, policy)
    _check_values(reply, values)
    if reply.values.get("round") != round or isinstance(reply.values["round"], bool):
        raise Refusal(f"stale: the reply is of round {shown(reply.values.get('round'))}, this is round {round}")
    n = reply.values.get("n")
    if not isinstance(n, int) or isinstance(n, bool) or not 0 < n <= examples:
        raise Refusal(f"examples: n = {shown(n)}, but at most {examples} are accepted from this device")
    return lengths


def _check_values(reply: Bundle, values: Mapping[str, Kind]) -> None:
    """Every value must be declared, and what it is declared to be."""
    most = MOST_METRICS + len(COMMON) + len(values) + 2
    if len(reply.values) > most:
        raise Refusal(f"values: {len(reply.values)} of them, at most {most} are accepted")
    for name, value in reply.values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise Refusal(f"not finite: value {printable(name, 80)} is {value}")
        if isinstance(value, int) and abs(value) >= 2**63:
            raise Refusal(f"values: {printable(name, 80)} is {shown(value)}")
        if name not in ("n", "round") and (fault := fault_of(name, value, COMMON if name in COMMON else values)):
            raise Refusal(f"values: {fault}")


def _check_section(
    section: str, weights: Weights, like: Weights, anchors: Mapping[str, Weights], policy: Policy
) -> Lengths:
    _check_form(section, weights, like)
    start = start_of(section, weights, anchors)
    lengths: dict[Part, list[float]] = {}
    for name, tensor in weights.items():
        change = tensor if start is None else tensor - start[name].to(tensor.device)
        # one pass finds what is not finite as well: a norm of such a tensor is not finite either
        lengths.setdefault(part_of(section, name), []).append(norm(change))
    if not all(math.isfinite(length) for found in lengths.values() for length in found):
        for name, tensor in weights.items():
            if not bool(tensor.isfinite().all()):
                raise Refusal(f"not finite: {section}/{name}")
        raise Refusal(f"norm: {section} is too large to compute")  # finite, but its change is not
    whole = {part: math.hypot(*found) for part, found in lengths.items()}
    if section != TALLY:
        _check_norm(section, math.hypot(*whole.values()), start, policy)
    _check_ranges(section, weights)
    return {} if section in COUNTS else whole


def _check_form(section: str, weights: Weights, like: Weights) -> None:
    if weights.keys() != like.keys():
        raise Refusal(f"names: {section} has {_names(weights.keys() ^ like.keys())} on one side only")
    for name, tensor in weights.items():
        expected = like[name]
        if not isinstance(tensor, torch.Tensor) or tensor.layout != expected.layout or tensor.is_meta:
            raise Refusal(f"type: {section}/{name} is not a dense tensor")
        if tensor.shape != expected.shape:
            raise Refusal(f"shape: {section}/{name} is {tuple(tensor.shape)} instead of {tuple(expected.shape)}")
        if tensor.dtype != expected.dtype:
            raise Refusal(f"type: {section}/{name} is {tensor.dtype} instead of {expected.dtype}")


def _check_ranges(section: str, weights: Weights) -> None:
    """Counts and variances that cannot be."""
    if section == TALLY:
        right, total = weights["right"], weights["total"]
        if bool((right < 0).any() or (right > total).any() or (total > _MAX_COUNT).any()):
            raise Refusal(f"{TALLY}: right answers must be from 0 to all answers, and these at most {_MAX_COUNT}")
    for name, tensor in weights.items():
        if name.endswith(_VARIANCE) and bool((tensor < 0).any()):
            raise Refusal(f"range: {section}/{name} is a variance, and negative")


def _check_norm(section: str, length: float, start: Weights | None, policy: Policy) -> None:
    bound = policy.max_norm if start is None else policy.max_change
    if start is not None and length > bound:  # only now is it worth knowing how large the model itself is
        bound *= 1 + math.hypot(*(norm(tensor) for tensor in start.values()))
    if length > bound:
        how = "has norm" if start is None else "changed by"
        raise Refusal(f"norm: {section} {how} {length:.4g}, the bound is {bound:.4g}")


def _names(names: Iterable[str]) -> str:
    """A few names of sections or tensors, which may come from elsewhere."""
    return str([printable(name, 80) for name in sorted(names)[:3]])
