"""MOTIFS: the objects of an image are read like a sentence, from right to left, by LSTMs.

    context     z_i = [x_i; e_i; b_i] through a two-way LSTM and a linear layer to c_i
    labels      outside PredCls a highway LSTM over [z_i; c_i; last label] names one object after the other; in training
                the last label is the true one, else, and where it is not known, its own best guess
    edges       [e2(label_i); x_i; c_i] through a second two-way LSTM and a linear layer to d_i
    pairs       Linear d = [head; tail]; Linear [head_i; tail_j] * Linear u_ij (the features); Linear to predicates

Options:
    order       "right-left" by the centre (as the federated benchmark ran it) or "left-right" (as first published)
    dropout     of the labels' LSTM, one mask for a picture; first published with 0.2
    frequency   a table (classes, classes, predicates + 1) of log(P(predicate | labels) + 0.001), column 0 for none:
                the row of the two labels is added to the logits. It begins with the counts over all devices, is
                trained and travels with the rest. The benchmark ran without.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from wayfare.core.errors import unknown
from wayfare.scenes.batch import GraphBatch, HeadOutput
from wayfare.scenes.heads.common import (
    FrequencyBias,
    HeadSizes,
    Mode,
    ObjectEncoder,
    PairEncoder,
    Widths,
    check_mode,
    label_embedding,
    slots,
)
from wayfare.scenes.heads.treelstm import Decoder
from wayfare.scenes.heads.trees import Forest, forest

Order = Literal["right-left", "left-right"]


class MOTIFS(nn.Module):
    """Neural motifs; see the module."""

    def __init__(
        self,
        sizes: HeadSizes,
        *,
        mode: Mode = "predcls",
        order: Order = "right-left",
        frequency: Tensor | None = None,
        vectors: Tensor | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_mode(mode)
        classes, predicates, widths = sizes.classes, sizes.predicates, sizes.widths
        if order not in get_args(Order):
            raise unknown("order", str(order), get_args(Order), "MOTIFS")
        self.order, hidden = order, widths.hidden
        self.objects = ObjectEncoder(classes, sizes.width_x, widths, vectors)
        self.pairs = PairEncoder(sizes.width_u, widths)
        self.context = Reader(self.objects.width, hidden)
        self.decoder = None  # with given labels nobody would ask it, and nothing would train it
        if mode == "sgdet":
            vectors, wide = self.objects.labels.weight, self.objects.width + hidden
            self.decoder = Decoder(wide, hidden, vectors, background=sizes.background, dropout=dropout)
        self.labels = label_embedding(classes, widths.embedding, vectors)
        self.edges = Reader(widths.embedding + widths.visual + hidden, hidden)
        self.pairing = Pairing(classes, predicates, widths, frequency)

    def forward(self, graphs: GraphBatch) -> HeadOutput:
        lines = Lines(graphs, self.order)
        encoded = self.objects(graphs)
        z = encoded.z
        context = self.context(z, lines)
        logits, labels = None, graphs.labels
        if self.decoder is not None:
            target = graphs.true_labels

            def choose(logits: Tensor, nodes: Tensor) -> Tensor:
                guess = logits.argmax(1)
                if not self.training:
                    return guess
                known = target.index_select(0, nodes)
                return torch.where(known < 0, guess, known)

            logits, labels = self.decoder(torch.cat([z, context], 1), lines.forest(), choose)
        edges = self.edges(torch.cat([self.labels(labels), encoded.x, context], 1), lines)
        predicates, features = self.pairing(edges, self.pairs(graphs), graphs.pairs, labels)
        return HeadOutput(predicates, features, logits)


class Lines:
    """The objects of each image in a line, all images side by side: first objects first, longest images first.

    That is the order of a PackedSequence; made directly there is no padding, and images may be empty.
    """

    def __init__(self, graphs: GraphBatch, order: Order = "right-left") -> None:
        centres = graphs.boxes[:, 0] + graphs.boxes[:, 2]  # twice: only the order matters
        across = torch.argsort(centres, stable=True, descending=order == "right-left")
        self.line = across[torch.argsort(graphs.image[across], stable=True)]  # image after image, each in its order
        where, longest = slots(graphs)
        self.turn = where - graphs.image * longest  # images are contiguous, so this fits the line as well
        lengths = torch.bincount(graphs.image, minlength=graphs.images)
        rank = torch.argsort(torch.argsort(lengths, stable=True, descending=True))
        packed = self.line[torch.argsort(self.turn * graphs.images + rank[graphs.image])]
        self.packed, self.back = packed, torch.argsort(packed)
        self.sizes = torch.bincount(self.turn).cpu()

    def forest(self) -> Forest:
        """Each line as a tree in which everyone has one child, the next."""
        line, turn = self.line.cpu().numpy(), self.turn.cpu().numpy()
        left = np.full(len(line), -1)
        follows = np.flatnonzero(turn > 0)
        left[line[follows - 1]] = line[follows]
        return forest(left, np.full(len(line), -1), self.line.device)


class Reader(nn.Module):
    """A two-way LSTM along the lines, and a linear layer."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, bidirectional=True)
        self.out = nn.Linear(2 * hidden, hidden)

    def forward(self, x: Tensor, lines: Lines) -> Tensor:
        if not len(x):
            return x.new_zeros(0, self.out.out_features)
        states, _ = self.lstm(PackedSequence(x.index_select(0, lines.packed), lines.sizes))
        contexts: Tensor = self.out(states.data)
        return contexts.index_select(0, lines.back)


class Pairing(nn.Module):
    """Predicates from the contexts of two objects and the looks of both: logits and features."""

    def __init__(
        self, classes: int, predicates: int, widths: Widths, frequency: Tensor | None = None, relu: bool = False
    ) -> None:
        super().__init__()
        hidden, self.relu = widths.hidden, relu
        self.roles = nn.Linear(hidden, 2 * hidden)
        nn.init.normal_(self.roles.weight, std=10 / math.sqrt(hidden))
        nn.init.zeros_(self.roles.bias)
        self.join = nn.Linear(2 * hidden, widths.pair)
        self.union = nn.Linear(widths.visual, widths.pair)
        self.predicate_out = nn.Linear(widths.pair, predicates + 1)
        self.frequency = None
        if frequency is not None:
            self.frequency = FrequencyBias(frequency, classes, predicates)

    def forward(self, contexts: Tensor, looks: Tensor, pairs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        roles = self.roles(contexts)
        head, tail = (roles.relu() if self.relu else roles).chunk(2, dim=1)
        # The linear layer on [head_i; tail_j] is a sum of two: made per object, not per pair.
        of_head, of_tail = self.join.weight.chunk(2, dim=1)
        subjects = nn.functional.linear(head, of_head, self.join.bias).index_select(0, pairs[:, 0])
        objects = nn.functional.linear(tail, of_tail).index_select(0, pairs[:, 1])
        features = (subjects + objects) * self.union(looks)
        logits = self.predicate_out(features)
        if self.frequency is not None:
            logits = self.frequency(logits, labels, pairs)
        return logits, features
