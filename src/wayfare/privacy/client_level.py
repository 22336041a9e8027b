"""Client-level differential privacy: DP-FedAvg (McMahan et al., 2018).

Of N clients each is asked by itself with probability q = per_round / N. A client's whole change (all sections that it
sends, as one vector) is clipped to length S, all weigh the same, and the server releases

    change = (sum_k clip(change_k, S) + noise * S * N(0, I)) / (q N)

The denominator is fixed, so that a client that is added or left out moves the sum by at most S. The strategy then
merges this change as if each of q N clients had sent it.

With `quantile` > 0 the clip adapts (Andrew et al., 2021): S <- S exp(-rate (b - quantile)), where b is the share of
changes that were not clipped, noised as well. Part of the noise multiplier pays for that count.

Everything else that replies say is dropped: examples, losses, steps, running statistics. The server is trusted: it sees
single replies. What is protected is what it publishes: the model, and the run's report and summary.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import nn

from wayfare.core.bundle import Bundle, Weights
from wayfare.core.errors import StoreError
from wayfare.core.influence import Part
from wayfare.core.protocols import MergeContext, MergeRule, Strategy, Topology
from wayfare.core.ranges import Range, check_ranges
from wayfare.privacy.accounting import RANGES, check_budget, epsilon
from wayfare.privacy.changes import Layout, copies
from wayfare.privacy.ledger import Ledger, Release, check_key
from wayfare.privacy.networks import check_buffers
from wayfare.privacy.secrets import Secret
from wayfare.strategies.fedavg import FedAvg

_SAMPLED = "sampled"
_CLIP = "clip"  # the value of the state that holds the adaptive clip
_RANGES = RANGES | {
    "quantile": Range(0, 1, open_high=True),
    "clip_rate": Range(0, open_low=True),
    "count_noise": Range(0),
}
_LOUD = 10.0  # noise over clip above which digits learn nothing (benchmarks/privacy.py)


@dataclass(frozen=True)
class ClientLevel(MergeRule):
    """Clipping and Gaussian noise around any strategy that averages."""

    noise: float = 1.0  # standard deviation over the clip; `wayfare privacy plan` says which one an epsilon needs
    clip: float = 1.0  # the longest change of one client; the first one if it adapts
    delta: float = 1e-5  # probability that epsilon does not hold; below 1 / clients
    epsilon: float = 0.0  # the budget: the run ends before it would be exceeded; 0: none
    quantile: float = 0.0  # if > 0: the clip adapts until this share of the changes is not clipped
    clip_rate: float = 0.2  # how fast it adapts
    count_noise: float = 0.0  # of the count of unclipped changes, at least noise; 0: a twentieth of the clients asked

    private: ClassVar[bool] = True
    unit: ClassVar[str] = "client"

    def __post_init__(self) -> None:
        check_ranges("privacy", self, _RANGES)

    def misfit(self, strategy: Strategy, topology: Topology) -> str:
        name = type(strategy).__name__
        if type(topology).__name__ != "Server":
            return f"needs the topology 'server'; this is {type(topology).__name__.lower()!r}"
        if strategy.personal:
            return f"is of no use with {name}: models stay on the devices"
        if strategy.pooled:
            return f"is of no use with {name}: there is one client"
        if not strategy.linear:
            return f"cannot be combined with {name}: it publishes values of single clients without noise"
        if type(strategy).choose is not FedAvg.choose:
            return f"cannot be combined with {name}, which chooses clients by their size: all must be equally likely"
        return ""

    def check_network(self, net: nn.Module) -> None:
        check_buffers(net)

    # ---- a round

    def choose(self, ids: Sequence[str], context: MergeContext) -> list[str] | None:
        drawn = Secret(context.folder).uniform(len(ids), "sample", context.round)
        return [id for id, number in zip(ids, drawn) if number < context.expected / len(ids)]

    def merge(
        self, strategy: Strategy, state: Bundle, replies: Iterable[tuple[str, Bundle]], context: MergeContext
    ) -> Bundle:
        layout = Layout(strategy.send(state, "").tensors, strategy.expects(state))
        clip, asked = state.number(_CLIP, self.clip), context.expected
        total, unclipped = self._clipped_sum(layout, replies, clip)
        whole = np.concatenate([*total.values(), [unclipped]])
        secret = Secret(context.folder)
        tag = secret.tag("release", context.round, whole.tobytes())
        sample = self._sample(secret, context)
        # before anything is released
        self._write_down(Release(context.round, asked / context.clients, self.noise, tag, sample), context)
        drawn = secret.normal(len(whole), "noise", context.round, whole.tobytes())
        noised, at = dict[Part, np.ndarray](), 0
        for part, values in total.items():
            piece = drawn[at : at + len(values)]
            noised[part] = (values + self._noise_of_changes(asked) * clip * piece) / asked
            at += len(values)
        merged = strategy.merge(state, copies(layout.reply(noised), [""] * asked))
        if not self.quantile:
            return merged
        share = 0.5 + (unclipped + self._noise_of_count(asked) * float(drawn[-1])) / asked
        clip *= math.exp(-self.clip_rate * (share - self.quantile))
        return Bundle(merged.tensors, {**merged.values, _CLIP: clip})

    def _clipped_sum(
        self, layout: Layout, replies: Iterable[tuple[str, Bundle]], clip: float
    ) -> tuple[dict[Part, np.ndarray], float]:
        """The sum of the clipped changes, and how many were not clipped: half of one more or less for each reply."""
        total = {part: np.zeros(size) for part, size in layout.sizes.items() if part[1] != "running"}
        unclipped = 0.0
        for _, reply in replies:
            change = {part: layout.vector(reply, part) for part in total}
            length = math.hypot(*(float(np.linalg.norm(values)) for values in change.values()))
            unclipped += 0.5 if length <= clip else -0.5
            for part, values in change.items():
                total[part] += values * min(1.0, clip / length) if length else 0.0
        return total, unclipped

    # ---- what the two sums have of the noise: z^-2 = z_changes^-2 + (2 z_count)^-2

    def _noise_of_count(self, asked: float) -> float:
        return max(self.count_noise or asked / 20, self.noise)

    def _noise_of_changes(self, asked: float) -> float:
        if not self.quantile:
            return self.noise
        return float((self.noise**-2 - (2 * self._noise_of_count(asked)) ** -2) ** -0.5)

    # ---- what it cost

    def warnings(self, like: Mapping[str, Weights], context: MergeContext) -> list[str]:
        found = []
        if self.delta >= 1 / context.clients:
            found.append(
                f"privacy.delta = {self.delta:g} is not below 1 / {context.clients} clients: the photos of one client "
                "could be published and epsilon would still hold. Set it lower"
            )
        layout = Layout({}, like)
        numbers = sum(size for part, size in layout.sizes.items() if part[1] != "running")
        times = self._noise_of_changes(context.expected) * math.sqrt(numbers) / context.expected
        if times > _LOUD:
            found.append(
                f"[privacy] the noise of a round is {times:.0f} times as long as the clip, and nothing is learnt in "
                "such noise: ask more clients in a round, train fewer weights, or allow a larger epsilon"
            )
        if self.epsilon:
            release = (context.expected / context.clients, self.noise)
            found += check_budget(self.epsilon, context.rounds, lambda n: epsilon({release: n}, self.delta))
        return found

    def spent(self, context: MergeContext) -> dict[str, float]:
        return {"epsilon": epsilon(Ledger(context.folder).counted(), self.delta), "delta": self.delta}

    def is_spent(self, context: MergeContext) -> bool:
        if not self.epsilon:
            return False
        ledger = Ledger(context.folder)
        after = ledger.counted()
        if not (ledger.releases and ledger.has_sample(self._sample(Secret(context.folder), context))):
            after[context.expected / context.clients, self.noise] += 1
        return epsilon(after, self.delta) > self.epsilon

    def check_continued(self, context: MergeContext, rounds: Collection[int]) -> None:
        ledger = Ledger(context.folder)
        ledger.check(rounds)
        check_key(ledger)
        if ledger.releases:
            secret = Secret(context.folder)
            ledger.check_samples(lambda round: secret.tag(_SAMPLED, round))

    def _write_down(self, release: Release, context: MergeContext) -> None:
        """In the ledger; a round that is done again with other replies may not exceed the budget either."""
        ledger = Ledger(context.folder)
        is_again = release not in ledger.releases and ledger.has_sample(release.sample)
        if self.epsilon and is_again and epsilon(ledger.counted_with(release), self.delta) > self.epsilon:
            raise StoreError(
                f"round {release.round} was released before with other replies, and the privacy budget does not allow "
                "it again: the run ends here"
            )
        ledger.add(release)

    @staticmethod
    def _sample(secret: Secret, context: MergeContext) -> str:
        return secret.tag(_SAMPLED, context.round)
