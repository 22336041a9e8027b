"""Predicates that are seldom annotated: a head learns to say "on" where "standing on" is right. Three remedies.

    [task.debias]
    name = "adjust"     # or "reweight", "tde", "none"
    tau = 0.5

    adjust      logit adjustment (Menon et al., 2021), after training: log p(predicate | related) - tau log(its share)
    reweight    the loss of a pair with predicate k counts share_k^-power, made 1 in the mean over relations
    tde         total direct effect (Tang et al., 2020): logits of what is seen less those without its looks (x = u = 0)

Shares of predicates are counted over all devices before the first round (`counting.py`). All but "reweight" act when a
network is used, and change only which predicate is said of a pair: how likely the pair is related at all stays.

`tau` is chosen on clients that do not train (`evaluation.validation_clients`): each value of `tried` is scored there as
"R@20, tau 0.5", and `chosen_tau` takes the one with the best mR@20 among those that lose at most `most_lost` of R@20.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from wayfare.core.errors import ConfigError
from wayfare.scenes.batch import GraphBatch, HeadOutput
from wayfare.scenes.frequency import Frequencies
from wayfare.scenes.heads.common import CountedPart

MOST_LOST = 0.01  # of R@20, for a better mR@20


@dataclass(frozen=True)
class NoDebiasing:
    """The head as it is."""

    @property
    def counted(self) -> bool:
        """Whether it needs the shares of predicates."""
        return False

    def wrap(self, head: nn.Module, predicates: int) -> nn.Module:
        return head


@dataclass(frozen=True)
class LogitAdjustment(NoDebiasing):
    """Rare predicates are predicted more readily; see the module."""

    tau: float = 0.5
    tried: tuple[float, ...] = ()  # further values, scored on clients' own samples

    def __post_init__(self) -> None:
        if min(self.tau, *self.tried, 0) < 0 or max(self.tau, *self.tried, 0) > 2:
            raise ConfigError(
                f"task.debias: tau = {self.tau}, tried = {list(self.tried)}: expected numbers from 0 to 2"
            )

    @property
    def counted(self) -> bool:
        return True

    def wrap(self, head: nn.Module, predicates: int) -> nn.Module:
        return Adjusted(head, predicates, self.tau)


@dataclass(frozen=True)
class Reweighting(NoDebiasing):
    """Rare predicates count more in the loss; see the module."""

    power: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.power <= 1:
            raise ConfigError(f"task.debias.power = {self.power}: expected a number from 0 to 1")

    @property
    def counted(self) -> bool:
        return True

    def wrap(self, head: nn.Module, predicates: int) -> nn.Module:
        return Reweighted(head, predicates, self.power)


@dataclass(frozen=True)
class DirectEffect(NoDebiasing):
    """What the looks of a pair add to what its labels suggest; see the module."""

    def wrap(self, head: nn.Module, predicates: int) -> nn.Module:
        return TotalDirectEffect(head)


# ---- networks around a head


class Adjusted(CountedPart):
    """A head whose predicates are adjusted when it is not training."""

    log_shares: Tensor

    def __init__(self, head: nn.Module, predicates: int, tau: float) -> None:
        super().__init__()
        self.head, self.tau = head, tau
        self.register_buffer("log_shares", torch.zeros(predicates))

    def adopt(self, counts: Frequencies) -> None:
        self.log_shares.copy_(torch.from_numpy(counts.predicate_shares()).log())

    @contextmanager
    def using(self, tau: float) -> Iterator[None]:
        """For a while with another tau."""
        usual, self.tau = self.tau, tau
        try:
            yield
        finally:
            self.tau = usual

    def forward(self, graphs: GraphBatch) -> HeadOutput:
        output: HeadOutput = self.head(graphs)
        if self.training or not self.tau:
            return output
        chosen = output.predicates[:, 1:] - self.tau * self.log_shares
        return replace(output, predicates=renamed(output.predicates, chosen))


class Reweighted(CountedPart):
    """A head that says how much each predicate counts in the loss; pairs that are not related count 1."""

    weights: Tensor

    def __init__(self, head: nn.Module, predicates: int, power: float) -> None:
        super().__init__()
        self.head, self.power = head, power
        self.register_buffer("weights", torch.ones(predicates + 1))

    def adopt(self, counts: Frequencies) -> None:
        shares = torch.from_numpy(counts.predicate_shares())
        self.weights[1:] = shares**-self.power / (shares ** (1 - self.power)).sum()

    def forward(self, graphs: GraphBatch) -> HeadOutput:
        output: HeadOutput = self.head(graphs)
        return replace(output, weights=self.weights)


class TotalDirectEffect(nn.Module):
    """A head less itself without looks, when it is not training."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, graphs: GraphBatch) -> HeadOutput:
        output: HeadOutput = self.head(graphs)
        if self.training:
            return output
        blank: HeadOutput = self.head(
            replace(graphs, x=torch.zeros_like(graphs.x), u=torch.zeros_like(graphs.u), targets=graphs.targets[:0])
        )
        effect = output.predicates[:, 1:] - blank.predicates[:, 1:]
        return replace(output, predicates=renamed(output.predicates, effect))


def renamed(logits: Tensor, chosen: Tensor) -> Tensor:
    """log p with the same probability of "not related", and the rest shared out as `chosen` says (P, predicates)."""
    logs = log_softmax(logits, 1)
    related = torch.logsumexp(logs[:, 1:], 1, keepdim=True)
    return torch.cat([logs[:, :1], related + log_softmax(chosen, 1)], 1)


# ---- the choice of tau


def at_tau(metric: str, tau: float) -> str:
    """The name of a metric at another tau."""
    return f"{metric}, tau {tau:g}"


def chosen_tau(metrics: Mapping[str, float], most_lost: float = MOST_LOST) -> float:
    """The best of the values that a run tried, by what its validation clients said."""
    taus = _tried(metrics)
    if not taus:
        raise ConfigError(
            "no value of tau was tried on clients that do not train: set task.debias.tried, with 0 among it, and "
            "evaluation.validation_clients"
        )
    recall, mean = ({t: metrics["validation/" + at_tau(m, t)] for t in taus} for m in ("R@20", "mR@20"))
    allowed = [tau for tau in taus if recall[tau] >= recall[taus[0]] - most_lost]
    return max(allowed, key=lambda tau: (mean[tau], -tau))


def better_tau(metrics: Mapping[str, float], tau: float) -> float | None:
    """The chosen value, if it was chosen among several and is not the one in use."""
    best = chosen_tau(metrics) if len(_tried(metrics)) > 1 else tau
    return None if best == tau else best


def _tried(metrics: Mapping[str, float]) -> list[float]:
    start = "validation/" + at_tau("mR@20", 0).removesuffix("0")
    return sorted(float(name.removeprefix(start)) for name in metrics if name.startswith(start))
