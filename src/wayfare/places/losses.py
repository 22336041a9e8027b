"""Losses of place recognition: a class each, chosen by name.

    triplet             Eq. 3 of the FedVPR paper, max(D^2(q, p) - D^2(q, n) + m, 0); code related to it has D for D^2
    infonce             which of these photographs is of the query's place? Also the loss of the warm-up
    multi_similarity    pairs weighted by how hard they are (Wang et al. 2019)

A loss has up to two methods. `value` learns from mined triplets. `of_views` learns from a batch of several views of
each place (`mining = "places"`), in which every photograph is compared with every other, and with the client's memory
bank where there is one.

With hard negatives, an untrained network learns to give the same descriptor for everything: then all distances are
zero, the loss is the margin, and its gradient stays zero (`collapsed` detects that). Trained on `infonce` first, it
learns to tell places apart, and hard negatives help from then on. Networks with pretrained weights need no warm-up.

What worked when tried (four convolutions, 64x64 pixels, some hundred queries of real photographs): a few hundred steps
of 8 triplets with random negatives, Adam 1e-3, then hard negatives with a tenth of that learning rate. With the same
learning rate they collapsed after the warm-up too, and without the other queries' photographs or with 2 triplets it
taught little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Batch, Output

_LEAST_SPREAD = 1e-3  # of the descriptors' length
_LEAST_SHARE = 0.2  # of the spread at the start


@dataclass
class TripletBatch(Batch):
    """Maps of queries, positives and negatives in a row; see `mining.Triplets.photos`."""

    queries: int = 0
    apart: Tensor | None = None  # which of the others are negatives of which query, for losses that compare all
    warmup: PlaceLoss | None = None  # the loss of this step, if it is not the task's


@dataclass
class ViewsBatch(Batch):
    """Maps of several views of each place."""

    same: Tensor | None = None  # bool (N, N + M): views of one place; a photograph is not a view of itself
    apart: Tensor | None = None  # bool (N, N + M): of different places. What is neither is not compared
    bank: Tensor | None = None  # (M, d): descriptors of the client's photographs when the round began


class PlaceLoss:
    """What is learnt from: a frozen dataclass of settings with `value`, `of_views`, or both."""

    compares_all: ClassVar[bool] = False
    """Whether each query is compared with the other queries' photographs too; only then is `apart` given."""

    def value(self, query: Tensor, positive: Tensor, negatives: Tensor, apart: Tensor | None) -> Tensor:
        """The loss of query (B, d), positive (B, d) and negatives (B, n, d)."""
        raise ConfigError(f"{type(self).__name__} does not learn from triplets: set task.mining to 'places'")

    def of_views(self, views: Tensor, others: Tensor, same: Tensor, apart: Tensor) -> Tensor:
        """The loss of views (N, d) among others (N + M, d), which are the views themselves and the memory bank."""
        raise ConfigError(f"{type(self).__name__} learns from triplets only: set task.mining to 'partial'")

    def __call__(self, output: Output, batch: Batch, memo: dict[str, Any]) -> Tensor:
        """The loss of a batch: what the training loop calls."""
        if isinstance(batch, ViewsBatch) and batch.same is not None and batch.apart is not None:
            views = output.features["image"]
            others = views if batch.bank is None else torch.cat((views, batch.bank.to(views)))
            return self.of_views(views, others, batch.same.to(views.device), batch.apart.to(views.device))
        if not isinstance(batch, TripletBatch):
            raise TypeError("place recognition learns from triplets or views")
        query, positive, negatives = split(output.features["image"], batch.queries)
        apart = None if batch.apart is None else batch.apart.to(query.device)
        return (batch.warmup or self).value(query, positive, negatives, apart)


@dataclass(frozen=True)
class TripletLoss(PlaceLoss):
    """The mean of Eq. 3 over all pairs of a query and a negative."""

    margin: float = 0.1
    distances: Literal["squared", "unsquared"] = "squared"  # Eq. 3, or as in related code

    def __post_init__(self) -> None:
        if self.margin <= 0:
            raise ConfigError(f"loss.margin = {self.margin}: expected a number above 0")

    def value(self, query: Tensor, positive: Tensor, negatives: Tensor, apart: Tensor | None = None) -> Tensor:
        near, far = (query - positive).square().sum(-1), (query[:, None] - negatives).square().sum(-1)
        if self.distances == "unsquared":
            near, far = _root(near), _root(far)
        return (near[:, None] - far + self.margin).clamp_min(0).mean()

    def of_views(self, views: Tensor, others: Tensor, same: Tensor, apart: Tensor) -> Tensor:
        """The mean of Eq. 3 over all triplets of the batch that violate the margin."""
        distances = (views[:, None] - others[None]).square().sum(-1)
        if self.distances == "unsquared":
            distances = _root(distances)
        anchor, positive = same.nonzero(as_tuple=True)
        violation = distances[anchor, positive][:, None] - distances[anchor] + self.margin
        violation = violation[apart[anchor] & (violation > 0)]
        return violation.mean() if len(violation) else views.sum() * 0


@dataclass(frozen=True)
class InfoNCE(PlaceLoss):
    """Cross-entropy of finding the positive among the query's negatives, by cosine.

    The other queries' positives and negatives take part where `apart` (B, B + B * n) says that they are negatives of
    this query too. The more there are, the better it works.
    """

    temperature: float = 0.1

    compares_all: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ConfigError(f"loss.temperature = {self.temperature}: expected a number above 0")

    def value(self, query: Tensor, positive: Tensor, negatives: Tensor, apart: Tensor | None = None) -> Tensor:
        count = len(query)
        others = torch.cat((positive, negatives.flatten(0, 1)))
        own = torch.eye(count, dtype=torch.bool, device=query.device)
        compared = torch.cat((own, own.repeat_interleave(negatives.shape[1], 1)), 1)
        if apart is not None:
            compared = compared | apart
        similarity = normalize(query, dim=1) @ normalize(others, dim=1).T / self.temperature
        return cross_entropy(similarity.masked_fill(~compared, -math.inf), torch.arange(count, device=query.device))

    def of_views(self, views: Tensor, others: Tensor, same: Tensor, apart: Tensor) -> Tensor:
        """For every pair of views of one place: find the other one among the photographs of other places."""
        anchor, positive = (same & apart.any(1, keepdim=True)).nonzero(as_tuple=True)
        if not len(anchor):
            return views.sum() * 0
        similarity = (normalize(views, dim=1) @ normalize(others, dim=1).T / self.temperature)[anchor]
        found = similarity.gather(1, positive[:, None])
        elsewhere = similarity.masked_fill(~apart[anchor], -math.inf)
        return (torch.cat((found, elsewhere), 1).logsumexp(1) - found[:, 0]).mean()


@dataclass(frozen=True)
class MultiSimilarity(PlaceLoss):
    """Multi-similarity: the least similar views of a place and the most similar photographs of others count most.

    A pair takes part only if it is harder than the hardest pair of the other kind by no less than `-epsilon`.
    """

    alpha: float = 1.0  # sharpness for views of one place
    beta: float = 50.0  # for photographs of different places
    base: float = 0.0  # similarity at which a pair neither pulls nor pushes much
    epsilon: float = 0.1

    def __post_init__(self) -> None:
        if self.alpha <= 0 or self.beta <= 0:
            raise ConfigError(f"loss.alpha = {self.alpha} and beta = {self.beta}: expected numbers above 0")

    def value(self, query: Tensor, positive: Tensor, negatives: Tensor, apart: Tensor | None = None) -> Tensor:
        others = torch.cat((positive, negatives.flatten(0, 1)))
        own = torch.eye(len(query), dtype=torch.bool, device=query.device)
        none = torch.zeros_like(own)
        same = torch.cat((own, none.repeat_interleave(negatives.shape[1], 1)), 1)
        differs = torch.cat((none, own.repeat_interleave(negatives.shape[1], 1)), 1)
        return self.of_views(query, others, same, differs)

    def of_views(self, views: Tensor, others: Tensor, same: Tensor, apart: Tensor) -> Tensor:
        similarity = normalize(views, dim=1) @ normalize(others, dim=1).T
        with torch.no_grad():
            nearest = similarity.masked_fill(~apart, -math.inf).amax(1, keepdim=True)
            farthest = similarity.masked_fill(~same, math.inf).amin(1, keepdim=True)
            pulls, pushes = same & (similarity - self.epsilon < nearest), apart & (similarity + self.epsilon > farthest)
        pull = _soft_sum(-self.alpha * (similarity - self.base), pulls) / self.alpha
        push = _soft_sum(self.beta * (similarity - self.base), pushes) / self.beta
        return (pull + push).mean()


def split(descriptors: Tensor, queries: int) -> tuple[Tensor, Tensor, Tensor]:
    """Query (B, d), positive (B, d) and negatives (B, n, d) of descriptors in the order of `Triplets.photos`."""
    negatives = descriptors[2 * queries :]
    return descriptors[:queries], descriptors[queries : 2 * queries], negatives.view(queries, -1, descriptors.shape[1])


def spread(descriptors: Tensor | np.ndarray) -> float:
    """How much descriptors differ: their root mean square distance from their mean, as a share of their length.

    Descriptors that all become shorter alike keep their spread: which is nearest does not change.
    """
    rows = torch.as_tensor(descriptors).detach().double()
    length = rows.square().sum(1).mean().sqrt()
    deviation = (rows - rows.mean(0)).square().sum(1).mean().sqrt()
    return float(deviation / length) if length > 0 else 0.0


def collapsed(now: float, start: float) -> str:
    """A warning if the descriptors' `spread` now, compared with that before training, shows that they are useless."""
    if now >= max(_LEAST_SPREAD, _LEAST_SHARE * start):  # not so for NaN either
        return ""
    return (
        f"the descriptors have collapsed: they differ by {now:.2g} of their length ({start:.2g} before training), so "
        "every photograph looks like every other; start from pretrained weights, warm up, or lower training.lr"
    )


def _soft_sum(exponents: Tensor, which: Tensor) -> Tensor:
    """log(1 + sum of exp) over the chosen ones of each row."""
    chosen = exponents.masked_fill(~which, -math.inf)
    return torch.cat((torch.zeros_like(chosen[:, :1]), chosen), 1).logsumexp(1)


def _root(squares: Tensor) -> Tensor:
    """The root, with gradient 0 at 0, where the true one is infinite and turns into NaN."""
    positive = squares > 0
    return torch.where(positive, torch.where(positive, squares, 1).sqrt(), 0)
