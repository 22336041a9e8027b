"""SHDCH (Sun et al., 2019): every class has a code, and the outputs of a pair agree with those of its classes.

With two levels of labels L1 (coarse) and L2 (fine), codes Y1, Y2 of their classes, and H = tanh(output) of a view:

    J = sum_H [ alpha |r L1 - H Y1|^2 + beta |r L2 - H Y2|^2 + gamma |B - H|^2 ] + eta |r S - Y1' Y2|^2

r is the number of bits and S = 1 where a fine class belongs to a coarse one. With one level of labels there is the term
with beta alone: no coarse classes, no hierarchy. The views take turns, then B = sign(F + G), then the class codes.

Class codes are found bit by bit: with all other bits fixed, the best values of one bit of all classes of a level have a
closed form. A sweep goes over all bits of both levels and never makes J larger; sweeps end when nothing changes. The
published code means to do the same and stops after the first sweep, since it compares the codes with themselves.

All terms but the last grow with the number of pairs. So of eta a device has its share, its pairs among all, and the J
of all devices add up to that of the pool. With 100, the authors' value for 16,862 pairs, small sets are ruled by the
hierarchy: fine classes get the code of their coarse one, as |r S - Y1' Y2| asks. On 2,000 pairs of 30 types of clothes
in three categories (Adam 0.001, 10 epochs, 32 bits, one trial) MAP is 0.28 with eta = 100, 0.62 with 1, and 0.70 with
the types alone; codes that know nothing have 0.08.

class_codes = "shared" is our own improvement: the codes are a buffer of the network and travel with it. A round begins
with the received ones, which the device changes after each of its passes, and of classes that it has no pair of it
leaves the codes as they are. The mean that the server makes of them is a vote on each bit, of which the sign counts.
With "client", as in public federated SHDCH, each client has codes of its own: a round begins with those that fit the
received network's outputs for the client's pairs best, found from the same first ones everywhere. FedAvg of ten unlike
clients had a MAP of 0.48 with codes of their own, and 0.69 with shared ones (32 bits, 30 types, one seed).

Gamma = 10 holds outputs to the signs that they have, against a pull of 2 beta r towards the class: with 16 bits these
are all but equal, and few steps do not turn the first signs round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from wayfare.core.errors import ConfigError
from wayfare.core.seeds import rng_for
from wayfare.hashing.base_method import BaseMethod
from wayfare.hashing.buffers import Buffers
from wayfare.hashing.nets import class_codes_of, signs


@dataclass(frozen=True)
class SHDCH(BaseMethod):
    """The weights of J; by default the authors'."""

    gamma: float = 10.0  # of the distance to the codes
    eta: float = 100.0  # of the hierarchy, for all pairs of all devices together
    alpha: float = 0.3  # of the coarse labels
    beta: float = 0.7  # of the fine labels
    class_codes: Literal["shared", "client"] = "shared"  # travel with the network, or are each client's own
    sweeps: int = 20  # over the class codes, at most; 1: as the published code

    def __post_init__(self) -> None:
        if self.sweeps < 1:
            raise ConfigError(f"task.base.sweeps = {self.sweeps}: expected at least 1")
        for name in ("gamma", "eta", "alpha", "beta"):
            if not 0 <= (value := getattr(self, name)) < float("inf"):
                raise ConfigError(f"task.base.{name} = {value}: expected a weight, at least 0")

    @property
    def settles_first(self) -> bool:
        return self.class_codes == "client"

    def initial_codes(self, bits: int, levels: Sequence[int]) -> Tensor | None:
        if self.class_codes == "client":
            return None
        return torch.cat([first_codes(bits, count) for count in levels], 1).float()

    def begin(self, buffers: Buffers) -> None:
        counts = [level.shape[1] for level in buffers.labels]
        if self.class_codes == "client":
            bits, device = next(iter(buffers.features.values())).shape[1], buffers.labels[-1].device
            buffers.classes = tuple(first_codes(bits, count).to(device) for count in counts)
            return
        buffers.classes = torch.split(signs(class_codes_of(buffers.net).double()), counts, 1)

    def outputs(self, features: Tensor) -> Tensor:
        return features.tanh()

    def loss(self, buffers: Buffers, view: str, rows: Tensor, raw: Tensor) -> Tensor:
        return objective(
            raw,
            codes=buffers.codes[rows],
            labels=[level[rows] for level in buffers.labels],
            classes=buffers.classes,
            weights=self._weights(buffers),
            gamma=self.gamma,
            pairs=len(buffers),
        )

    def settle(self, buffers: Buffers, outputs: Sequence[Tensor], within: Tensor | None, share: float) -> None:
        within = None if within is None else within.to(outputs[0].device)
        buffers.classes = better_codes(
            buffers.classes,
            outputs,
            buffers.labels,
            weights=self._weights(buffers),
            eta=self.eta * share,
            within=within,
            sweeps=self.sweeps,
        )
        if self.class_codes == "shared":
            class_codes_of(buffers.net).copy_(torch.cat(buffers.classes, 1))

    def _weights(self, buffers: Buffers) -> tuple[float, ...]:
        """Of each level."""
        return (self.alpha, self.beta)[-len(buffers.labels) :]


def objective(
    raw: Tensor,
    *,
    codes: Tensor,
    labels: Sequence[Tensor],
    classes: Sequence[Tensor],
    weights: Sequence[float],
    gamma: float,
    pairs: int,
) -> Tensor:
    """The terms of J with a batch's outputs `raw` (b, bits), divided by n b, where n = `pairs`.

    `codes` (b, bits) are the batch's rows of B; for each level there are labels (b, C), class codes (bits, C) and a
    weight, alpha or beta.
    """
    outputs, bits = raw.tanh(), raw.shape[1]
    total = gamma * (codes - outputs).square().sum()
    for truth, classes_here, weight in zip(labels, classes, weights, strict=True):
        total = total + weight * (bits * truth - outputs @ classes_here.to(raw.dtype)).square().sum()
    return total / (pairs * len(raw))


def first_codes(bits: int, classes: int) -> Tensor:
    """Random codes (bits, classes) of float64 +1 and -1, the same wherever they are drawn."""
    drawn = rng_for("class codes", bits, classes).integers(0, 2, (bits, classes))
    return torch.from_numpy(2.0 * drawn - 1)


@torch.no_grad()
def better_codes(
    classes: Sequence[Tensor],
    views: Sequence[Tensor],
    labels: Sequence[Tensor],
    *,
    weights: Sequence[float],
    eta: float,
    within: Tensor | None,
    sweeps: int,
) -> tuple[Tensor, ...]:
    """Better codes (bits, C) of the classes of each level, from the tanh outputs (n, bits) of each view.

    `within` (C1, C2) says which fine class belongs to which coarse one; None where there is one level. At most so many
    sweeps. Where both values of a bit are equally good it stays, so that no two codes take turns for ever; so do the
    codes of classes that no pair has.
    """
    found = [codes.double().clone() for codes in classes]
    outputs = [view.double() for view in views]
    gram = sum((view.T @ view for view in outputs), start=torch.zeros(()))
    pulls = [sum((view.T @ truth.double() for view in outputs), start=torch.zeros(())) for truth in labels]
    present = [truth.any(0) for truth in labels]
    links = [None] if within is None else [within.double(), within.double().T]
    for _ in range(sweeps):
        before = [codes.clone() for codes in found]
        for level, weight in enumerate(weights):
            other = None if within is None else found[1 - level]
            some, link = present[level], links[level]
            held = found[level][:, some]
            _sweep(
                held,
                pulls[level][:, some],
                gram,
                weight=weight,
                eta=eta,
                link=None if link is None else link[some],
                other=other,
            )
            found[level][:, some] = held
        if all(torch.equal(old, new) for old, new in zip(before, found, strict=True)):
            break
    return tuple(found)


def _sweep(
    codes: Tensor, pull: Tensor, gram: Tensor, *, weight: float, eta: float, link: Tensor | None, other: Tensor | None
) -> None:
    """All bits of one level, one after the other, in place."""
    bits = len(codes)
    for k in range(bits):
        # what the other bits leave to be explained; the bit's own part of each product is taken out
        wanted = weight * (bits * pull[k] - (gram[k] @ codes - gram[k, k] * codes[k]))
        if link is not None and other is not None:
            alike = other @ other[k]
            wanted += eta * (bits * (link @ other[k]) - (alike @ codes - alike[k] * codes[k]))
        codes[k] = torch.where(wanted == 0, codes[k], wanted.sign())
