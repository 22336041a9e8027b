"""Devices that lie, to try robust rules and privacy against: `[attack]` in a recipe.

A share of the clients is chosen by the seed. Some attacks know all honest replies of the round, as their authors
assume; so an attack stands between the engine and the gate, where all replies pass, and holds those of one round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch

from wayfare.core.bundle import Bundle, Weights
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Engine, Failure, Population
from wayfare.core.seeds import rng_for
from wayfare.core.wrapped_engine import Answer, Requests, WrappedEngine


@dataclass(frozen=True)
class Attack:
    """Some clients that lie."""

    share: float = 0.2  # of the clients

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ConfigError(f"attack.share = {self.share}: expected from 0 to 1")

    def liars(self, population: Population, seed: int) -> frozenset[str]:
        """Who lies, for the whole run."""
        count = round(self.share * len(population))
        chosen = rng_for(seed, "liars").choice(len(population), count, replace=False)
        return frozenset(population.id(int(place)) for place in chosen)

    def instruct(self, message: Bundle) -> Bundle:
        """What a liar is sent instead."""
        return message

    def forge(self, own: Bundle, honest: Sequence[Bundle], sent: Bundle, rng: np.random.Generator) -> Bundle:
        """What a liar sends; `honest` are the replies of the others in this round, `sent` is what it received."""
        raise NotImplementedError


@dataclass(frozen=True)
class SignFlip(Attack):
    """The opposite change, `scale` times as long."""

    scale: float = 1.0

    def forge(self, own: Bundle, honest: Sequence[Bundle], sent: Bundle, rng: np.random.Generator) -> Bundle:
        return _moved(own, sent, lambda name: -self.scale * _change(own, sent)[name])


@dataclass(frozen=True)
class Alie(Attack):
    """ALIE (Baruch et al., 2019): the honest mean, moved by z standard deviations, which hides among the honest.

    With n replies of which f lie: s = floor(n / 2 + 1) - f, z = the normal quantile of (n - f - s) / (n - f).
    """

    def forge(self, own: Bundle, honest: Sequence[Bundle], sent: Bundle, rng: np.random.Generator) -> Bundle:
        changes = _stacked(honest, sent)
        z = self.deviations(len(honest), round(self.share * len(honest) / max(1 - self.share, 1e-9)))
        return _moved(own, sent, lambda name: changes[name].mean(0) - z * changes[name].std(0, unbiased=False))

    @staticmethod
    def deviations(honest: int, liars: int) -> float:
        """z of that many honest and lying devices."""
        supporters = (honest + liars) // 2 + 1 - liars
        return NormalDist().inv_cdf(min(max((honest - supporters) / honest, 0.5), 0.999))


@dataclass(frozen=True)
class Ipm(Attack):
    """IPM (Xie et al., 2020): the opposite of the honest mean, `scale` times as long."""

    scale: float = 0.5

    def forge(self, own: Bundle, honest: Sequence[Bundle], sent: Bundle, rng: np.random.Generator) -> Bundle:
        changes = _stacked(honest, sent)
        return _moved(own, sent, lambda name: -self.scale * changes[name].mean(0))


@dataclass(frozen=True)
class Mimic(Attack):
    """All liars send what one honest device sends (Karimireddy et al., 2022)."""

    def forge(self, own: Bundle, honest: Sequence[Bundle], sent: Bundle, rng: np.random.Generator) -> Bundle:
        return Bundle(honest[0].tensors, own.values)


@dataclass(frozen=True)
class Noise(Attack):
    """A random direction, `ratio` times as long as the median honest change: what the gate just lets through."""

    ratio: float = 4.0

    def forge(self, own: Bundle, honest: Sequence[Bundle], sent: Bundle, rng: np.random.Generator) -> Bundle:
        lengths = [_length(_change(reply, sent)) for reply in honest]
        drawn = {name: torch.from_numpy(rng.standard_normal(tuple(w.shape))) for name, w in own["model"].items()}
        scale = self.ratio * float(np.median(lengths)) / _length(drawn)
        return _moved(own, sent, lambda name: scale * drawn[name])


@dataclass(frozen=True)
class LabelFlip(Attack):
    """Honest training on wrong labels: class c is called C - 1 - c."""

    def instruct(self, message: Bundle) -> Bundle:
        return Bundle(message.tensors, {**message.values, "flip": True})

    def forge(self, own: Bundle, honest: Sequence[Bundle], sent: Bundle, rng: np.random.Generator) -> Bundle:
        return own


class AttackedEngine(WrappedEngine):
    """An engine on which some devices lie."""

    def __init__(self, engine: Engine, attack: Attack, liars: frozenset[str], seed: int) -> None:
        super().__init__(engine)
        self.attack, self.liars, self.seed = attack, liars, seed

    def train(self, requests: Requests, deadline: float) -> Iterator[tuple[str, Answer]]:
        asked = list(requests)
        told = ((id, self.attack.instruct(message) if id in self.liars else message) for id, message in asked)
        replies = [(id, _copied(reply)) for id, reply in self.inner.call("train", told, deadline)]
        honest = [reply for id, reply in replies if id not in self.liars and isinstance(reply, Bundle)]
        sent = dict(asked)
        for id, reply in replies:
            if id in self.liars and isinstance(reply, Bundle) and honest:
                rng = rng_for(self.seed, int(reply.number("round")), id, "attack")
                reply = self.attack.forge(reply, honest, sent[id], rng)
            yield id, reply


def _copied(reply: Answer) -> Answer:
    """In memory of its own: an engine may use its memory again."""
    if isinstance(reply, Failure):
        return reply
    return Bundle({s: {n: t.clone() for n, t in w.items()} for s, w in reply.tensors.items()}, reply.values)


def _change(reply: Bundle, sent: Bundle) -> Weights:
    return {name: w.double() - sent["model"][name].double() for name, w in reply["model"].items()}


def _stacked(replies: Sequence[Bundle], sent: Bundle) -> Weights:
    changes = [_change(reply, sent) for reply in replies]
    return {name: torch.stack([change[name] for change in changes]) for name in changes[0]}


def _length(change: Weights) -> float:
    return float(torch.stack([tensor.square().sum() for tensor in change.values()]).sum().sqrt())


def _moved(own: Bundle, sent: Bundle, change: Callable[[str], torch.Tensor]) -> Bundle:
    """The liar's own reply with another model; statistics of normalisation layers stay lawful."""
    model = {
        name: w
        if name.rpartition(".")[2].startswith("running_")
        else (sent["model"][name].double() + change(name)).to(w)
        for name, w in own["model"].items()
    }
    return own.with_(model=model)
