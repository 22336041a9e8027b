"""Whether a given sample was trained on: its loss falls further in training than that of a sample that was not.

The score of a sample is its loss under the model that was sent less its loss under the model that came back. The AUC is
the share of pairs (a sample trained on, a sample not trained on) in which the first has the higher score: 0.5 is
guessing, 1 is certainty.

Samples that a device trained on are compared with samples that the same device held out, which are of the same kinds;
and with samples of other devices, where the kinds of picture that a device has give it away as well.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from wayfare.core.bundle import Bundle, Weights
from wayfare.core.device import Bench
from wayfare.core.protocols import Client
from wayfare.core.seeds import rng_for
from wayfare.leakage.figures import Finding, LeakFigure, NotMeasured

_MOST = 300  # samples of a device that are looked at, of each kind
_DRAWS = 500  # of the bootstrap, and of the baseline
_HELD_OUT, _ELSEWHERE = "held-out samples", "others' samples"
_NOBODY = np.empty(0, np.int64)


def wins(scores: np.ndarray) -> np.ndarray:
    """For every pair 1 if the first score is higher, 0 if it is lower, 0.5 if they are equal."""
    higher, equal = scores[:, None] > scores, scores[:, None] == scores
    return np.where(higher, np.float32(1), np.where(equal, np.float32(0.5), np.float32(0)))


class MembershipScores:
    """Samples trained on against others, of one device or of all: the mean over several replies of the wins."""

    def __init__(self, members: int, others: int) -> None:
        self.members, self.replies = members, 0
        self._sum = np.zeros((members + others, members + others), np.float32)

    def add(self, scores: np.ndarray) -> None:
        """The scores under one more model: of those trained on, then of the others."""
        self._sum += wins(scores)
        self.replies += 1

    def auc(self) -> float:
        return float(self._sum[: self.members, self.members :].mean(dtype=np.float64) / self.replies)

    def by_chance(self, rng: np.random.Generator, draws: int) -> np.ndarray:
        """The AUC if those trained on were others among the same samples, drawn several times."""
        first = np.zeros((draws, len(self._sum)), np.float32)
        for row in first:
            row[rng.permutation(len(row))[: self.members]] = 1
        return self._shares(first, 1 - first)

    def redrawn(self, rng: np.random.Generator, draws: int) -> np.ndarray:
        """The AUC of samples drawn anew from these, of each kind as many as there are."""
        total, members = len(self._sum), self.members
        first, second = np.zeros((2, draws, total), np.float32)
        for one, other in zip(first, second):
            np.add.at(one, rng.integers(0, members, members), 1)
            np.add.at(other, rng.integers(members, total, total - members), 1)
        return self._shares(first, second)

    def _shares(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The share of wins of the first over the second; rows say how often each sample counts."""
        won: np.ndarray = ((first @ self._sum) * second).sum(1, dtype=np.float64)
        return won / (self.members * (len(self._sum) - self.members) * self.replies)


@torch.no_grad()
def losses(bench: Bench, weights: Weights, samples: np.ndarray) -> np.ndarray:
    """The cross-entropy of each sample's class under a model."""
    net, found = bench.loaded(0, weights).eval(), [np.empty(0)]
    for batch in bench.task.scan(net, Client("", samples, _NOBODY)):
        logits = bench.task.forward(net, batch).logits
        if logits is None or batch.labels is None or batch.labels.ndim != 1:
            raise NotMeasured("the task does not give each sample one class, so samples have no loss of their own")
        found.append(cross_entropy(logits, batch.labels, reduction="none").double().cpu().numpy())
    return np.concatenate(found)


class Membership:
    """Collects, reply by reply, how the losses of a device's samples changed."""

    def __init__(self, seed: int) -> None:
        self._seed, self._why = seed, ""
        self._samples: dict[str, list[np.ndarray]] = {}  # of each device: trained on, held out, of other devices
        self._held_out: dict[str, MembershipScores] = {}
        self._elsewhere: dict[str, MembershipScores] = {}
        self._beginning: Weights | None = None

    def hear(self, bench: Bench, device: str, message: Bundle, reply: Bundle) -> None:
        """Score the samples of the device that replied."""
        if self._why:
            return
        if "model" not in reply or "model" not in message:
            self._why = "replies hold no model, under which a sample could have a loss"
            return
        if self._beginning is None:
            self._beginning = message["model"]
        if device not in self._samples:
            self._samples[device] = self._drawn(bench, device)
        parts = self._samples[device]
        samples = np.concatenate(parts)
        try:
            falls = losses(bench, message["model"], samples) - losses(bench, reply["model"], samples)
        except NotMeasured as reason:
            self._why = str(reason)
            return
        members, held_out, elsewhere = np.split(falls, np.cumsum([len(part) for part in parts])[:2])
        _compare(self._held_out, device, members, held_out)
        _compare(self._elsewhere, device, members, elsewhere)

    def _drawn(self, bench: Bench, device: str) -> list[np.ndarray]:
        rng, client = rng_for(self._seed, "leakage", device), bench.clients(device)
        own = np.concatenate([client.train, client.holdout])
        elsewhere = np.setdiff1d(bench.population.pool(), own)
        return [rng.permutation(part)[:_MOST] for part in (client.train, client.holdout, elsewhere)]

    def finding(self, bench: Bench, trained: Weights | None) -> Finding:
        """AUCs of single replies, over all devices and of the worst one, and of the model that all of them trained."""
        found = Finding(
            "Whether a sample was trained on: its loss falls further than that of a sample that was not (AUC).",
            "guessing gives 0.5; for the worst device, the highest AUC that guessing gives among so many devices",
        )
        if self._why:
            found.not_measured.append(self._why)
            return found
        for against, devices in ((_HELD_OUT, self._held_out), (_ELSEWHERE, self._elsewhere)):
            if devices:
                found.figures += self._of_replies(against, list(devices.values()))
            else:
                found.not_measured.append(f"{against}: no device that replied has such samples")
        if trained is None:
            found.not_measured.append("the merged model: every device keeps a model of its own")
        elif self._held_out:
            found.figures.append(self._of_model(bench, trained))
        return found

    def _of_replies(self, against: str, devices: list[MembershipScores]) -> list[LeakFigure]:
        rng = rng_for(self._seed, "leakage", against)
        redrawn = np.array([d.redrawn(rng, _DRAWS) for d in devices])
        highest = np.array([d.by_chance(rng, _DRAWS) for d in devices]).max(0)
        aucs = [d.auc() for d in devices]
        worst = int(np.argmax(aucs))
        return [
            LeakFigure(f"one reply, {against}: mean", float(np.mean(aucs)), 0.5, 0, *_interval(redrawn.mean(0))),
            LeakFigure(
                f"one reply, {against}: worst of {len(devices)}",
                aucs[worst],
                float(highest.mean()),
                0,
                *_interval(redrawn[worst]),
            ),
        ]

    def _of_model(self, bench: Bench, trained: Weights) -> LeakFigure:
        """The same attack by somebody who has the first and the last merged model, on the samples of all devices."""
        heard = [self._samples[device][:2] for device in self._held_out]
        rng = rng_for(self._seed, "leakage", "merged")
        members, others = (rng.permutation(np.concatenate(part))[: 4 * _MOST] for part in zip(*heard))
        samples = np.concatenate([members, others])
        together = MembershipScores(len(members), len(others))
        together.add(losses(bench, self._beginning or {}, samples) - losses(bench, trained, samples))
        low, high = _interval(together.redrawn(rng, _DRAWS))
        return LeakFigure(f"merged model, {_HELD_OUT}", together.auc(), 0.5, low=low, high=high)


def _compare(devices: dict[str, MembershipScores], device: str, members: np.ndarray, others: np.ndarray) -> None:
    if len(members) and len(others):
        devices.setdefault(device, MembershipScores(len(members), len(others))).add(np.concatenate([members, others]))


def _interval(values: np.ndarray) -> tuple[float, float]:
    """The middle 95 %."""
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
