"""VCTree: the objects of each image are put in a tree that fits it, and tree-LSTMs carry their contexts along it.

    scores      q_i = [Linear x; Linear e; 9 numbers of place; 6 of overlap], S = ReLU Linear q, O = ReLU Linear q,
                logit_ij = w [S_j * O_i; S_j; O_i], score_ij = its sigmoid: how well j goes under i
    tree        Prim's rule on the scores, made binary (see `trees`)
    context     z_i = [x_i; e_i; b_i] through a tree-LSTM both ways to c_i
    labels      outside PredCls named from the root down, each by its features, its context and its parent's label;
                in training that label is drawn by its probability, else it is the best
    edges       [e2(label_i); x_i; c_i] through a second tree-LSTM to d_i
    pairs       as MOTIFS, with a ReLU on heads and tails

A tree is chosen, not computed with a slope, so the scores learn by a loss of their own, in `extra`:
    tree = "supervised"  binary cross-entropy of logit_ij and whether i and j are related, either way round; the mean
                         of an image's whole square, then of images. The federated benchmark ran this.
    tree = "reinforced"  the second stage of VCTree as first published: only the scores learn, everything else is
                         frozen (start it from the weights of a supervised run). The tree by Prim sets a mark, and
                         `samples` trees that each depart from it once are rewarded by how far they pass it.
Further options, off in the benchmark:
    frequency   as in MOTIFS
    dropout     as in MOTIFS
    prior       score_ij = (share of related pairs among those of these two classes) * sigmoid(logit_ij), as first
                published; counted over all devices before the first round, either way round, with 1 added to both
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from wayfare.core.errors import ConfigError, unknown
from wayfare.scenes.batch import GraphBatch, HeadOutput
from wayfare.scenes.frequency import Frequencies
from wayfare.scenes.heads.common import (
    CountedPart,
    Encoded,
    HeadSizes,
    Mode,
    ObjectEncoder,
    PairEncoder,
    Widths,
    check_mode,
    ends,
    label_embedding,
    places,
    slots,
)
from wayfare.scenes.heads.motifs import Pairing
from wayfare.scenes.heads.treelstm import BothWays, Decoder
from wayfare.scenes.heads.trees import Forced, Forest, as_forest, sample_detour, spanning_trees

Tree = Literal["supervised", "reinforced"]
Reward = Callable[[GraphBatch, HeadOutput], Tensor]  # a number per image (B,), the larger the better: R@100, say
_OVERLAPS = 6  # numbers that say how an object overlaps others
_TINY = 1e-12


class VCTree(nn.Module):
    """Visual context trees; see the module."""

    def __init__(
        self,
        sizes: HeadSizes,
        *,
        mode: Mode = "predcls",
        tree: Tree = "supervised",
        reward: Reward | None = None,
        samples: int = 5,
        frequency: Tensor | None = None,
        prior: bool = False,
        vectors: Tensor | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_mode(mode)
        classes, predicates, widths = sizes.classes, sizes.predicates, sizes.widths
        if tree not in get_args(Tree):
            raise unknown("tree", str(tree), get_args(Tree), "VCTree")
        if (tree == "reinforced") != (reward is not None):
            raise ConfigError("VCTree: a reward is given if and only if tree = 'reinforced'")
        if samples < 1:
            raise ConfigError(f"VCTree: samples = {samples}: expected at least 1, the number of trees that are tried")
        if widths.hidden < 2:
            raise ConfigError("VCTree: widths.hidden = 1: expected at least 2, because the context is bidirectional")
        self.reward, self.samples, hidden = reward, samples, widths.hidden
        self.objects = ObjectEncoder(classes, sizes.width_x, widths, vectors)
        self.pairs = PairEncoder(sizes.width_u, widths)
        self.scores = Scores(widths, classes if prior else 0)
        self.context = BothWays(self.objects.width, hidden)
        self.decoder = None  # with given labels it would be neither used nor trained
        if mode == "sgdet":
            vectors, wide = self.objects.labels.weight, self.objects.width + hidden
            self.decoder = Decoder(wide, hidden, vectors, background=sizes.background, dropout=dropout)
        self.labels = label_embedding(classes, widths.embedding, vectors)
        self.edges = BothWays(widths.embedding + widths.visual + hidden, hidden)
        self.pairing = Pairing(classes, predicates, widths, frequency, relu=True)
        if reward is not None:
            self.requires_grad_(False)
            self.scores.requires_grad_(True)
            self.train()

    def train(self, mode: bool = True) -> VCTree:
        """As usual, except that BatchNorm keeps its statistics during reinforcement."""
        super().train(mode)
        if self.reward is not None:
            for module in self.modules():
                if isinstance(module, nn.BatchNorm1d):
                    module.eval()
        return self

    def forward(self, graphs: GraphBatch) -> HeadOutput:
        encoded, looks = self.objects(graphs), self.pairs(graphs)
        table = slots(graphs)
        logits, scores = self.scores(graphs, encoded, table)
        sizes = torch.bincount(graphs.image, minlength=graphs.images).cpu().numpy()
        fixed = scores.detach().cpu().double().numpy()
        parent, turn = spanning_trees(fixed, sizes)
        output = self._read(graphs, encoded, looks, as_forest(parent, turn, sizes, graphs.image.device))
        if not len(graphs.targets):
            return output
        if self.reward is None:
            return replace(output, extra=tree_loss(logits, _related(graphs, table), sizes))
        if not self.training:
            return output
        baseline, losses = self.reward(graphs, output), []
        for _ in range(self.samples):
            forced, open_edges = sample_detour(fixed, parent, turn, sizes, torch.rand(len(sizes), 2).double().numpy())
            other = as_forest(*spanning_trees(fixed, sizes, forced), sizes, graphs.image.device)
            gain = self.reward(graphs, self._read(graphs, encoded, looks, other)) - baseline
            losses.append(-(gain.detach() * log_probability(scores, forced, open_edges)).mean())
        return replace(output, extra=torch.stack(losses).mean())

    def _read(self, graphs: GraphBatch, encoded: Encoded, looks: Tensor, forest: Forest) -> HeadOutput:
        """The output of the network with these trees."""
        z = encoded.z
        context = self.context(z, forest)
        logits, labels = None, graphs.labels
        if self.decoder is not None:
            logits, labels = self.decoder(torch.cat([z, context], 1), forest, self._choose)
        edges = self.edges(torch.cat([self.labels(labels), encoded.x, context], 1), forest)
        predicates, features = self.pairing(edges, looks, graphs.pairs, labels)
        return HeadOutput(predicates, features, logits)

    def _choose(self, logits: Tensor, _: Tensor) -> Tensor:
        """Sampled labels while the network learns labels; the best ones when trees are compared."""
        if self.training and self.reward is None:
            return torch.multinomial(logits.detach().softmax(1), 1).squeeze(1)
        return logits.argmax(1)


class Scores(CountedPart):
    """How well each object goes under each other of its image: logits and scores, (B, longest, longest).

    `classes` > 0: scores are multiplied by how often two classes are related, which is 1 until it is counted.
    """

    prior: Tensor

    def __init__(self, widths: Widths, classes: int = 0) -> None:
        super().__init__()
        self.has_prior = classes > 0
        if self.has_prior:
            self.register_buffer("prior", torch.ones(classes, classes))
        part, hidden = widths.position, widths.hidden
        self.looks, self.label = nn.Linear(widths.visual, part), nn.Linear(widths.embedding, part)
        self.place, self.overlap = (
            nn.Sequential(nn.Linear(numbers, part), nn.BatchNorm1d(part, momentum=0.001), nn.ReLU())
            for numbers in (9, _OVERLAPS)
        )
        self.join = nn.Sequential(nn.Linear(4 * part, hidden), nn.ReLU())
        self.subject, self.object = (nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU()) for _ in range(2))
        self.weigh = nn.Linear(3 * hidden, 1)

    def adopt(self, counts: Frequencies) -> None:
        if self.has_prior:
            self.prior.copy_(torch.from_numpy(counts.related_shares()))

    def forward(self, graphs: GraphBatch, encoded: Encoded, table: tuple[Tensor, int]) -> tuple[Tensor, Tensor]:
        place, overlap = self.place(places(graphs)), self.overlap(overlaps(graphs, table))
        q = self.join(torch.cat([self.looks(encoded.x.detach()), self.label(encoded.e.detach()), place, overlap], 1))
        subjects, objects = (padded(one(q), graphs, table) for one in (self.subject, self.object))
        of_both, of_subject, of_object = self.weigh.weight.squeeze(0).chunk(3)
        logits = (objects * of_both) @ subjects.mT  # w [S_j * O_i; S_j; O_i] without making that vector for each pair
        logits = logits + (subjects @ of_subject)[:, None, :] + (objects @ of_object)[:, :, None] + self.weigh.bias
        if not self.has_prior:
            return logits, logits.sigmoid()
        labels = padded(graphs.labels, graphs, table)
        return logits, logits.sigmoid() * self.prior[labels[:, :, None], labels[:, None, :]]


def overlaps(graphs: GraphBatch, table: tuple[Tensor, int]) -> Tensor:
    """How objects overlap those of their image, themselves included (N, 6).

    How many they meet, the sums of intersection / image and of IoU, the means of both, and their own area / image.
    """
    boxes = padded(graphs.boxes, graphs, table)
    low = torch.maximum(boxes[:, :, None, :2], boxes[:, None, :, :2])
    high = torch.minimum(boxes[:, :, None, 2:], boxes[:, None, :, 2:])
    shared = (high - low).clamp(min=0).prod(3)
    areas = (boxes[:, :, 2:] - boxes[:, :, :2]).prod(2)
    iou = shared / (areas[:, :, None] + areas[:, None, :] - shared).clamp(min=_TINY)
    image = graphs.sizes.prod(1)[:, None]
    met = (shared > 0).sum(2).to(shared.dtype)
    parts, ious = shared.sum(2) / image, iou.sum(2)
    each = met.clamp(min=1)
    six = torch.stack([met, parts, ious, parts / each, ious / each, areas / image], 2)
    return six.flatten(0, 1).index_select(0, table[0])


def padded(rows: Tensor, graphs: GraphBatch, table: tuple[Tensor, int]) -> Tensor:
    """Rows of objects (N, ...) as a table by image (B, longest, ...), zeros where there is no object."""
    position, longest = table
    flat = rows.new_zeros(graphs.images * longest, *rows.shape[1:]).index_copy(0, position, rows)
    return flat.view(graphs.images, longest, *rows.shape[1:])


def _related(graphs: GraphBatch, table: tuple[Tensor, int]) -> Tensor:
    """1 where two objects are related, either way round (B, longest, longest)."""
    position, longest = table
    subjects, objects = ends(position, graphs.pairs[graphs.targets > 0])
    both = torch.cat([subjects * longest + objects % longest, objects * longest + subjects % longest])
    square = torch.zeros(graphs.images * longest * longest, device=position.device).index_fill(0, both, 1.0)
    return square.view(graphs.images, longest, longest)


def tree_loss(logits: Tensor, related: Tensor, sizes: np.ndarray) -> Tensor:
    """Binary cross-entropy, the mean of each image's square, then the mean of the images that have objects."""
    exists = np.arange(logits.shape[1]) < sizes[:, None]
    weights = (exists[:, :, None] & exists[:, None, :]) / np.maximum(sizes, 1)[:, None, None] ** 2
    weights /= max(int(np.count_nonzero(sizes)), 1)
    return binary_cross_entropy_with_logits(logits, related, torch.from_numpy(weights).to(logits), reduction="sum")


def log_probability(scores: Tensor, forced: Forced, open_edges: np.ndarray) -> Tensor:
    """log p of each image's departure (B,): its score's part of all scores then open; 0 where there was no choice."""
    edge = torch.from_numpy(forced.edge).to(scores.device)
    allowed = torch.from_numpy(open_edges).to(scores.device)
    taken = scores[torch.arange(len(edge), device=scores.device), edge[:, 0], edge[:, 1]]
    log_p = (taken + _TINY).log() - ((scores * allowed).sum((1, 2)) + _TINY).log()
    return log_p.where(torch.from_numpy(forced.turn > 0).to(scores.device), 0.0)
