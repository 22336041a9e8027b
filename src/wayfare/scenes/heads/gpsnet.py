"""GPS-Net: objects learn from their neighbours, with an ear for who is subject and who is object.

    objects     z = ReLU(Linear [x; e; b])
    attention   a_ij = sigmoid(w (W_s z_i * W_o z_j * W_u u_ij)), none to oneself, rows made to sum to 1; a pair of one
                image that is not among the pairs has the logit 0, not the weight 0
    context     c_i = [sum_j a_ij g(z_j); sum_j a_ji g(z_j)], g = ReLU Linear
    after it    z_i <- ReLU(z_i + Linear ReLU LayerNorm Linear c_i)
    predicates  Linear F(F(P1 z_i, P2 z_j), P3 u_ij), F(a, b) = ReLU(a + b) - (a - b)^2

Options; the federated benchmark ran with the defaults, although its text names the last two as parts of GPS-Net:
    layers      rounds of messages, each with weights of its own; GPS-Net was published with 2
    nps         node priority sensitive loss of the labels (`nps_loss`), in the cross-entropy's place, not beside it
    frequency   a table (classes, classes, predicates + 1) switches the adaptive reasoning module on (ARM): logits gain
                sigmoid(W_p u_ij) * log_softmax(row of the two labels). The row is log P(predicate | labels), or
                P itself for the softened form of GPS-Net's authors. The table is counted over all devices before
                the first round, is not trained, and travels with the model so that all have the same.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, logsigmoid

from wayfare.core.errors import ConfigError
from wayfare.scenes.batch import GraphBatch, HeadOutput
from wayfare.scenes.frequency import Frequencies
from wayfare.scenes.heads.common import (
    CountedPart,
    HeadSizes,
    Mode,
    ObjectEncoder,
    PairEncoder,
    check_mode,
    ends,
    gather,
    slots,
)

_LARGEST_GAMMA, _STEEPNESS = 2.0, 5  # of the node priority sensitive loss


class GPSNet(CountedPart):
    """Graph property sensing network; see the module."""

    log_frequency: Tensor

    def __init__(
        self,
        sizes: HeadSizes,
        *,
        mode: Mode = "predcls",
        layers: int = 1,
        frequency: Tensor | None = None,
        vectors: Tensor | None = None,
    ) -> None:
        super().__init__()
        check_mode(mode)
        classes, predicates, widths = sizes.classes, sizes.predicates, sizes.widths
        if layers < 1:
            raise ConfigError(f"GPS-Net: layers = {layers}: expected at least 1")
        if widths.visual % 4:
            raise ConfigError(f"GPS-Net: widths.visual = {widths.visual}: it is halved twice, give a multiple of 4")
        width = widths.visual
        self.objects = ObjectEncoder(classes, sizes.width_x, widths, vectors)
        self.pairs = PairEncoder(sizes.width_u, widths)
        self.join = nn.Sequential(nn.Linear(self.objects.width, width), nn.ReLU())
        self.layers = nn.ModuleList(Messages(width) for _ in range(layers))
        # with given labels nobody would ask this layer, and nothing would train it
        self.label_out = nn.Linear(width, sizes.names) if mode == "sgdet" else None
        self.subject, self.object, self.union = (nn.Linear(width, width) for _ in range(3))
        self.predicate_out = nn.Linear(width, predicates + 1)
        self.trust = None
        if frequency is not None:
            self.trust = nn.Linear(width, predicates + 1)
            table = _checked(frequency, (classes, classes, predicates + 1))
            self.register_buffer("log_frequency", table)

    def adopt(self, counts: Frequencies) -> None:
        if self.trust is not None:
            self.log_frequency.copy_(_checked(torch.from_numpy(counts.log_table()), self.log_frequency.shape))

    def forward(self, graphs: GraphBatch) -> HeadOutput:
        nodes, pairs = self.join(self.objects(graphs).z), self.pairs(graphs)
        table = slots(graphs)
        for layer in self.layers:
            nodes = layer(graphs, nodes, pairs, table)
        labels = None if self.label_out is None else self.label_out(nodes)
        subjects, _ = ends(self.subject(nodes), graphs.pairs)
        _, objects = ends(self.object(nodes), graphs.pairs)
        features = fuse(fuse(subjects, objects), self.union(pairs))
        logits = self.predicate_out(features)
        if self.trust is not None:
            logits = logits + self.trust(pairs).sigmoid() * self._expected(graphs, labels)
        return HeadOutput(logits, features, labels)

    def _expected(self, graphs: GraphBatch, labels: Tensor | None) -> Tensor:
        """The table's rows (P, predicates + 1), by refined labels where there are any."""
        known = len(self.log_frequency)  # without the background, which is no label to look up
        subjects, objects = ends(graphs.labels if labels is None else labels[:, :known].argmax(1), graphs.pairs)
        return self.log_frequency[subjects, objects]


class Messages(nn.Module):
    """One round of direction-aware message passing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.subject, self.object, self.union = (nn.Linear(width, width) for _ in range(3))
        self.weigh = nn.Linear(width, 1)
        self.say = nn.Sequential(nn.Linear(width, width // 2), nn.ReLU())
        narrow = width // 4
        self.hear = nn.Sequential(nn.Linear(width, narrow), nn.LayerNorm(narrow), nn.ReLU(), nn.Linear(narrow, width))

    def forward(self, graphs: GraphBatch, nodes: Tensor, pairs: Tensor, table: tuple[Tensor, int]) -> Tensor:
        position, longest = table
        attention = self.attention(graphs, nodes, pairs, table)
        messages = self.say(nodes)
        padded = messages.new_zeros(graphs.images * longest, messages.shape[1]).index_copy(0, position, messages)
        padded = padded.view(graphs.images, longest, messages.shape[1])
        context = torch.cat([attention @ padded, attention.mT @ padded], 2)
        update: Tensor = self.hear(context.flatten(0, 1).index_select(0, position))
        return (nodes + update).relu()

    def attention(self, graphs: GraphBatch, nodes: Tensor, pairs: Tensor, table: tuple[Tensor, int]) -> Tensor:
        """Row i: how much i attends to each object of its image (B, longest, longest)."""
        position, longest = table
        subjects, _ = ends(self.subject(nodes), graphs.pairs)
        _, objects = ends(self.object(nodes), graphs.pairs)
        logits = self.weigh(subjects * objects * self.union(pairs)).squeeze(1)
        rows, columns = ends(position, graphs.pairs)
        shape = graphs.images, longest, longest
        square = logits.new_zeros(graphs.images * longest * longest).index_copy(
            0, rows * longest + columns % longest, logits
        )
        taken = torch.zeros(graphs.images * longest, dtype=torch.bool, device=position.device).index_fill(
            0, position, True
        )
        taken = taken.view(graphs.images, longest)
        allowed = taken[:, :, None] & taken[:, None, :]
        allowed = allowed & ~torch.eye(longest, dtype=torch.bool, device=position.device)
        # a / sum(a) is the softmax of log a, which has no 0 / 0 where every a is tiny or an object is alone
        logs = logsigmoid(square.view(shape)).masked_fill(~allowed, torch.finfo(logits.dtype).min)
        return torch.softmax(logs, 2) * allowed


def fuse(a: Tensor, b: Tensor) -> Tensor:
    """F(a, b): large where both are, and small where they differ."""
    return (a + b).relu() - (a - b).square()


# ---- node priority sensitive loss


def nps_gammas(graphs: GraphBatch) -> Tensor:
    """How far the loss of each object may be let go (N,): 0 for the hub of all relations, 2 for an object in none.

    theta = an object's part of all degrees of its image, where neighbours count once and directions do not;
    gamma = min(2, -(1 - 2 theta)^5 log(2 theta)). In an image without relations every theta is 0.
    """
    count = len(graphs.labels)
    related = graphs.pairs[graphs.targets > 0].sort(1).values
    met = torch.unique(related[:, 0] * count + related[:, 1])
    degrees = torch.bincount(torch.cat([met // count, met % count]), minlength=count).to(graphs.boxes.dtype)
    whole = gather(degrees, graphs.image, graphs.images).index_select(0, graphs.image)
    twice = 2 * degrees / whole.clamp(min=1)
    smallest = torch.finfo(twice.dtype).tiny  # its logarithm is finite, and gamma far above the limit
    return (-((1 - twice) ** _STEEPNESS) * twice.clamp(min=smallest).log()).clamp(max=_LARGEST_GAMMA)


def nps_loss(logits: Tensor, labels: Tensor, gammas: Tensor) -> Tensor:
    """The mean of -(1 - p)^gamma log p, p the probability of an object's label; without those of label -1."""
    known = labels >= 0
    log_p = log_softmax(logits, 1).gather(1, labels.clamp(min=0)[:, None]).squeeze(1)
    doubt = (-torch.expm1(log_p)).clamp(min=1e-6)  # the power's slope at 0 is infinite where gamma < 1
    return -(doubt**gammas * log_p * known).sum() / known.sum().clamp(min=1)


def _checked(frequency: Tensor, shape: tuple[int, ...]) -> Tensor:
    if frequency.shape != shape:
        raise ConfigError(
            f"GPS-Net: frequency {tuple(frequency.shape)}: expected {shape}, classes twice and predicates"
        )
    table = log_softmax(frequency.float(), 2)
    if not table.isfinite().all():
        raise ConfigError("GPS-Net: frequency has values that are not finite; give log(P + 1e-3) or P, not log 0")
    return table
