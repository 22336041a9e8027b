"""FedCAFE (ACM MM 2024): cross-modal hashing with a shared memory of all classes.

The network gets a classifier for each view and the memory P_g (C x bits), a buffer that travels with the model:
    V_E = O + tanh(O) * (L^ P_g)   codes are the signs of V_E; O the raw output, L^ the predicted labels   (Eq. 3-4)
    Rows of P_g have length 1 at most and |tanh O| <= |O|: unless prediction = "sigmoid" or memory = "paper", V_E has
    the signs of O, and the memory acts only through the losses.
Client, in addition to the task's loss:
    L_E = 1 - cos(V_E, O)                                                                                  (Eq. 5)
    L_C = 1 - cos(V_E, V_E of the received model), the mean over its image and its text                    (Eq. 6)
    L_P = -L log L^, as in the authors' code: Eq. 7 as printed, KL(L^ | L), is infinite where L is 0
and after training P_k, the centres of (V_E of the image + V_E of the text) / 2, of length 1. Its rows are sent in
place of P_g; a row of zeros means that the client has no such centre.
Server: P_g = the centres of all P_k;   a_k = softmax(Sim_k), with theta = P_k P_g' / 2 and
    Sim_k = -sum_ij (S_ij theta_ij - log(1 + e^theta_ij)), S_ij = 1 where rows i and j mean the same      (Eq. 9-10)
    W = sum_k a_k W_k                                                                                      (Eq. 11)
The weights need P_g, which needs every P_k: the server keeps the models of one round until all have arrived.

There is an option wherever paper and code differ. memory says how memories are made:
    "seeded"     as above, and row c is the one of class c: K-means starts from the means of the classes
    "hungarian"  as above, and rows are put into the order of the last P_g
    "authors"    the released code: as above, K-means starts from random points, rows are in any order, the rows of all
                 P_k are scaled to length 1 before the server's K-means, and classifiers start from 0.01 N(0, 1)
    "paper"      Section 3.2: K-means of the image features and of the text features, then of both memories together;
                 the server's K-means of all P_k. Nothing is scaled to length 1, so distances are Euclidean, and the
                 rows of a device are not bounded: only for devices that are trusted
The rest of the authors' code is similar = "clusters", aggregation = "code", least = 1, and task.scale = 1 / clients: it
divides the hashing loss by their number. a_k is Sim_k / sum Sim as in the code, unless aggregation = "paper": Sim is a
few hundred, and its softmax gives almost all the weight to one client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cosine_similarity, logsigmoid, softplus

from wayfare.core.bundle import Bundle, add, digest, mean, snapshot
from wayfare.core.device import Device
from wayfare.core.errors import ConfigError, WayfareError
from wayfare.core.protocols import Batch, Output, Task
from wayfare.core.seeds import rng_for
from wayfare.core.values import LARGEST, Kind, Number
from wayfare.strategies._memory import (
    class_means,
    cluster,
    kmeans_seeds,
    matched,
    nearest,
    present,
    random_seeds,
    unit,
)
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedproto import multi_hot

_AUTHORS_START = 0.01
MEMORY = "memory"  # the buffer's name among the model's weights
Prediction = Literal["softmax", "sigmoid", "normalised"]


class Enhanced(nn.Module):
    """Encoders with a classifier for each view and the shared memory."""

    memory: Tensor

    def __init__(self, net: Any, views: Iterable[str], classes: int, prediction: Prediction, active: bool) -> None:
        super().__init__()
        self.net, self.bits, self.prediction, self.active = net, int(net.bits), prediction, active
        self.classifiers = nn.ModuleDict({view: nn.Linear(self.bits, classes) for view in views})
        self.register_buffer(MEMORY, torch.zeros(classes, self.bits))

    def encode(self, view: str, inputs: Tensor) -> Tensor:
        """O, the encoder's raw output."""
        raw: Tensor = self.net.encode(view, inputs)
        return raw

    def enhance(self, view: str, raw: Tensor) -> Tensor:
        """V_E (Eq. 3-4), or O if the enhancement is switched off."""
        if not self.active:
            return raw
        scores = self.classifiers[view](raw)
        predicted = scores.sigmoid() if self.prediction == "sigmoid" else self.log_shares(scores).exp()
        return raw + raw.tanh() * (predicted @ self.memory)

    def log_shares(self, scores: Tensor) -> Tensor:
        """The logarithm of the predicted labels, which sum to 1."""
        if self.prediction == "normalised":
            scores = logsigmoid(scores)
        return scores.log_softmax(1)


@dataclass(frozen=True)
class FedCAFE(FedAvg):
    """Features enhanced by a shared memory; models weighted by how far their own memory is from it."""

    enhancement: bool = True  # Eq. 3-4; without it V_E is O
    lambda_e: float = 0.1  # weights of Eq. 5-7; 0 leaves the term out
    lambda_c: float = 0.1
    lambda_p: float = 1.0
    aggregation: Literal["code", "code*n", "paper", "off"] = "code"  # Sim, n Sim, softmax(Sim), or as FedAvg does
    temperature: float = 1.0  # of the softmax
    memory: Literal["seeded", "hungarian", "paper", "authors"] = "seeded"  # how P_k and P_g are made, see above
    similar: Literal["auto", "rows", "nearest", "clusters"] = "auto"  # S: rows if they are seeded, else nearest
    least: int = 2  # centres of fewer pairs are not sent: a centre of one pair would reveal its features
    prediction: Prediction = "softmax"  # L^: softmax of the scores, a sigmoid each, or sigmoids scaled to sum to 1
    labels: Literal["multi-hot", "normalised"] = "multi-hot"  # L of Eq. 7: 0 and 1, or rows that sum to 1
    reduction: Literal["classes", "batch"] = "classes"  # Eq. 7: the mean over batch and classes, or only over the batch
    detach: bool = False  # Eq. 5 without the gradient through V_E

    requires: ClassVar[frozenset[str]] = frozenset({"codes", "classes"})
    topologies: ClassVar[frozenset[str]] = frozenset({"server"})

    def __post_init__(self) -> None:
        for name, least in (("lambda_e", 0.0), ("lambda_c", 0.0), ("lambda_p", 0.0), ("least", 1)):
            if not getattr(self, name) >= least:
                raise ConfigError(f"strategy.{name} = {getattr(self, name)}: expected at least {least:g}")
        if not self.temperature > 0:
            raise ConfigError(f"strategy.temperature = {self.temperature}: expected a number above 0")

    @property
    def uses_memory(self) -> bool:
        """Whether any part that is switched on needs the memory."""
        return self.enhancement or self.aggregation != "off"

    def prepare(self, task: Task, net: nn.Module) -> nn.Module:
        found = Enhanced(net, task.views(net), len(task.classes), self.prediction, self.enhancement)
        if self.memory == "authors":
            for classifier in found.classifiers.values():
                nn.init.normal_(cast(nn.Linear, classifier).weight, 0, _AUTHORS_START)
                nn.init.normal_(cast(nn.Linear, classifier).bias, 0, _AUTHORS_START)
        return found

    # ---- the client

    def extra(self, device: Device, net: nn.Module, message: Bundle) -> CafeTerms | None:
        if not (self.lambda_e or self.lambda_c or self.lambda_p):
            return None
        received: dict[str, Tensor] = {}
        if self.lambda_c and device.round > 1:  # the first model is random and gives no guidance
            received = enhanced(device, net)[0]  # once a round, before training changes the received network
        return CafeTerms(self, cast(Enhanced, net), received)

    def client(self, device: Device, message: Bundle) -> Bundle:
        net = device.network(self.resume(device, message))
        terms = self.extra(device, net, message)
        result = device.train(net, message, terms)
        model = snapshot(net)
        if self.uses_memory:
            model[MEMORY] = self.local_memory(device, net).to(model[MEMORY])
        guided = terms.guided if terms else 0
        return Bundle({"model": model}, {**result, "guided": guided})  # pairs that went through the received model

    def local_memory(self, device: Device, net: nn.Module) -> Tensor:
        """P_k, from features that are enhanced by the last P_g."""
        features, labels = enhanced(device, net)
        last = cast(Enhanced, net).memory.cpu().double()
        views = [z.cpu().double() for z in features.values()]
        if not all(bool(z.isfinite().all()) for z in views):
            raise WayfareError(
                f"device {device.id!r}: its features, and so its memory, are not finite: lower training.lr"
            )
        if self.memory == "paper":
            return self.memory_of_views(views, len(last), device.rng("memory"))
        points = unit(add(views) / len(views))
        points, labels = points[present(points)], labels.cpu().double()[present(points)]
        if self.memory == "seeded":
            seeds = class_means(points, labels, last)
        elif self.memory == "authors":
            seeds = random_seeds(points, len(last), device.rng("memory"))
        else:
            seeds = kmeans_seeds(points, len(last), device.rng("memory"))
        rows, counts = cluster(points, seeds)
        rows[counts < self.least] = 0
        return matched(rows, last) if self.memory == "hungarian" else rows

    def memory_of_views(self, views: list[Tensor], classes: int, rng: np.random.Generator) -> Tensor:
        """P_k as the paper has it: the centres of each view, and the centres of all of these."""
        centres = []
        for points in views:
            rows, counts = cluster(points, kmeans_seeds(points, classes, rng, False), False)
            centres.append(rows[counts >= self.least])
        both = torch.cat(centres)
        return cluster(both, kmeans_seeds(both, classes, rng, False), False)[0]

    # ---- the server

    def values(self, state: Bundle) -> Mapping[str, Kind]:
        return {"guided": Number(0, LARGEST, integer=True)}

    def merge(self, state: Bundle, replies: Iterable[tuple[str, Bundle]]) -> Bundle:
        last, local = state["model"][MEMORY].cpu().double(), dict[str, Tensor]()

        def remember_local() -> Iterator[tuple[str, Bundle]]:
            for device, reply in replies:
                local[device] = bounded_memory(device, reply["model"][MEMORY], self.memory != "paper")
                yield device, reply

        if self.aggregation == "off":
            model = self.average(remember_local())
            memory = self.global_memory(last, local) if self.uses_memory else last
        else:
            held = dict(remember_local())
            memory = self.global_memory(last, local)
            shares = self.shares(memory, local, {device: reply.number("n") for device, reply in held.items()})
            model = mean((shares[device], reply["model"]) for device, reply in held.items())
        return state.with_(model={**model, MEMORY: memory.to(model[MEMORY])})

    def global_memory(self, last: Tensor, local: Mapping[str, Tensor]) -> Tensor:
        """P_g: the centres of all rows of the local memories; a class that no client sent keeps its row."""
        rows = torch.stack([local[device] for device in sorted(local)])  # the order of arrival does not matter
        points = rows.flatten(0, 1)
        points = points[present(points)]
        rng = rng_for("global memory", digest({"points": points}))
        if self.memory == "paper":
            return cluster(points, kmeans_seeds(points, len(last), rng, False), False)[0]
        if self.memory == "authors":
            points = unit(points)
            return cluster(points, random_seeds(points, len(last), rng))[0]
        if self.memory == "seeded":
            known = (rows != 0).any(2)[:, :, None]
            seeds = torch.where(known.any(0), rows.sum(0) / known.sum(0).clamp(min=1), last)
        else:
            seeds = kmeans_seeds(points, len(last), rng)
        memory = cluster(points, seeds)[0]
        memory = matched(memory, last) if self.memory == "hungarian" else memory
        return torch.where(present(memory)[:, None], memory, last)

    def shares(self, memory: Tensor, local: Mapping[str, Tensor], examples: Mapping[str, float]) -> dict[str, float]:
        """a_k of each device (Eq. 9-10)."""
        devices = sorted(local)
        same = self.same(memory, [local[device] for device in devices])
        sims = torch.stack([similarity(local[device], memory, s) for device, s in zip(devices, same)])
        if self.aggregation == "paper":
            weights = torch.softmax(sims / self.temperature, 0)  # Sim is near C^2 ln 2: e^Sim overflows float32
        else:
            counts = [examples[device] if self.aggregation == "code*n" else 1.0 for device in devices]
            weights = sims * torch.tensor(counts, dtype=sims.dtype)
            weights = weights / weights.sum()
        return dict(zip(devices, weights.tolist()))

    def same(self, memory: Tensor, local: list[Tensor]) -> list[Tensor]:
        """S of each device: 1 where a row of its memory and one of the global memory mean the same."""
        how = self.similar if self.similar != "auto" else "rows" if self.memory == "seeded" else "nearest"
        classes = len(memory)
        if how == "rows":
            return [torch.eye(classes, dtype=memory.dtype)] * len(local)
        if how == "nearest":
            return [_links(nearest(rows, memory), torch.arange(classes), rows, memory) for rows in local]
        points = torch.cat([memory, *local])
        centres = cluster(points, kmeans_seeds(points, classes, rng_for("same", digest({"points": points}))))[0]
        return [_links(nearest(rows, centres), nearest(memory, centres), rows, memory) for rows in local]


def similarity(local: Tensor, memory: Tensor, same: Tensor) -> Tensor:
    """Sim_k (Eq. 9): larger for a memory that differs more from the global one."""
    theta = local @ memory.T / 2
    return (softplus(theta) - same * theta).sum()


def _links(left: Tensor, right: Tensor, rows: Tensor, memory: Tensor) -> Tensor:
    """1 where two rows belong to the same centre and neither is zero."""
    both = present(rows)[:, None] & present(memory)
    return ((left[:, None] == right) & both).to(rows.dtype)


def bounded_memory(device: str, rows: Tensor, bounded: bool = True) -> Tensor:
    """A local memory; if `bounded`, with rows cut to length 1, the most that a mean of unit vectors can have."""
    rows = rows.cpu().double()
    if not bool(rows.isfinite().all()):
        raise WayfareError(f"the memory of device {device!r} is not finite: check its loss, lower training.lr")
    lengths: Tensor = rows.norm(dim=1, keepdim=True)
    return rows / lengths.clamp(min=1) if bounded else rows


@dataclass
class CafeTerms:
    """The terms that a device adds to the task's loss while it trains."""

    strategy: FedCAFE
    net: Enhanced
    received: dict[str, Tensor]  # V_E of the received model, for each view and each of the client's pairs

    @property
    def guided(self) -> int:
        """How many pairs went through the received model."""
        return max((len(z) for z in self.received.values()), default=0)

    def __call__(self, output: Output, batch: Batch) -> Tensor:
        return add(self.view_terms(view, raw, batch) for view, raw in output.features.items())

    def view_terms(self, view: str, raw: Tensor, batch: Batch) -> Tensor:
        """The terms of one view; a term that is switched off is not computed."""
        s, better, total = self.strategy, self.net.enhance(view, raw), raw.new_zeros(())
        if s.lambda_e:
            total = total + s.lambda_e * cosine_loss(better.detach() if s.detach else better, raw)
        if s.lambda_c and self.received:
            if batch.rows is None:
                raise TypeError("this task's batches do not say which of the client's pairs they hold (Batch.rows)")
            guides = [z[batch.rows.to(z.device)] for z in self.received.values()]
            total = total + s.lambda_c * add(cosine_loss(better, guide) for guide in guides) / len(guides)
        if s.lambda_p:
            total = total + s.lambda_p * self.prediction_loss(self.net.classifiers[view](raw), batch)
        return total

    def prediction_loss(self, scores: Tensor, batch: Batch) -> Tensor:
        """L_P (Eq. 7); a pair without labels adds nothing where predictions sum to 1."""
        labels = multi_hot(batch, scores.shape[1]).to(scores)
        if labels.shape != scores.shape:
            raise TypeError(f"labels {tuple(labels.shape)} do not fit the task's {scores.shape[1]} classes")
        if self.strategy.labels == "normalised":
            labels = labels / labels.sum(1, keepdim=True).clamp(min=1)
        if self.strategy.prediction == "sigmoid":
            losses = binary_cross_entropy_with_logits(scores, labels, reduction="none")
        else:
            losses = -labels * self.net.log_shares(scores)
        return losses.mean() if self.strategy.reduction == "classes" else losses.sum(1).mean()


def cosine_loss(left: Tensor, right: Tensor) -> Tensor:
    """1 - cos, the mean over a batch; `eps` bounds the gradient for features close to zero."""
    return 1 - cosine_similarity(left, right, eps=1e-4).mean()


@torch.no_grad()
def enhanced(device: Device, net: nn.Module) -> tuple[dict[str, Tensor], Tensor]:
    """V_E of each view and the labels of all the client's pairs, from one pass in evaluation mode."""
    trains = net.training
    net.eval()
    features: dict[str, list[Tensor]] = {}
    labels: list[Tensor] = []
    for batch in device.task.scan(net, device.client):
        output = device.task.forward(net, batch)
        labels.append(multi_hot(batch, len(device.task.classes)))
        for view, raw in output.features.items():
            features.setdefault(view, []).append(cast(Enhanced, net).enhance(view, raw))
    net.train(trains)
    return {view: torch.cat(parts) for view, parts in features.items()}, torch.cat(labels)
