"""LSTMs over trees, with highway gates: from the root down, from the leaves up, both, and one that names objects.

    down    c = i u + f c_parent,               h = r o tanh(c) + (1 - r) P x
    up      c = i u + f_l c_left + f_r c_right, h likewise

Gates are sigmoids (u: tanh) of W x + U h of the relatives; a missing relative has h = c = 0. All nodes of one depth of
all trees are one step. A sequence is a tree in which everyone has one child: MOTIFS' highway LSTM is `Decoder` on that.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from wayfare.scenes.heads.trees import Forest

Choose = Callable[[Tensor, Tensor], Tensor]  # (logits, which objects of the list they are of) -> labels


def block_orthogonal(layer: nn.Linear, rows: int) -> None:
    """Every block of `rows` rows is a gate of its own and starts orthogonal; the bias starts at 0."""
    for block in layer.weight.data.split(rows):  # type: ignore[no-untyped-call]
        nn.init.orthogonal_(block)
    nn.init.zeros_(layer.bias)


class Down(nn.Module):
    """From parents to children. Gates in the order i, o, f, u, r."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.gates = nn.Linear(width, 5 * hidden)
        self.skip = nn.Linear(width, hidden)
        self.parent = nn.Linear(hidden, 5 * hidden)
        for layer in (self.gates, self.skip, self.parent):
            block_orthogonal(layer, hidden)
        self.parent.bias.data[2 * hidden : 3 * hidden] = 1  # remembers at first

    def step(self, gates: Tensor, skip: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """State of nodes from what their own features say (`gates`, `skip`) and their parents' state."""
        i, o, f, u, r = (gates + self.parent(h)).chunk(5, dim=1)
        c = i.sigmoid() * u.tanh() + f.sigmoid() * c
        return _highway(r, o, c, skip), c

    def forward(self, x: Tensor, forest: Forest) -> Tensor:
        gates, skips = forest.by_level(self.gates(x)), forest.by_level(self.skip(x))
        h = c = x.new_zeros(1, self.hidden)  # above the roots
        done = []
        for level, own, skip in zip(forest.levels, gates, skips, strict=True):
            h, c = self.step(own, skip, h.index_select(0, level.parent), c.index_select(0, level.parent))
            done.append(h)
        return forest.in_list(done, h[:0])


class Up(nn.Module):
    """From children to parents. Gates in the order i, o, f_left, f_right, u, r."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gates = nn.Linear(width, 6 * hidden)
        self.skip = nn.Linear(width, hidden)
        self.left = nn.Linear(hidden, 6 * hidden)
        self.right = nn.Linear(hidden, 6 * hidden)
        for layer in (self.gates, self.skip, self.left, self.right):
            block_orthogonal(layer, hidden)
        for child in (self.left, self.right):
            child.bias.data[2 * hidden : 4 * hidden] = 0.5  # twice, so 1 in sum

    def forward(self, x: Tensor, forest: Forest) -> Tensor:
        gates, skips = forest.by_level(self.gates(x)), forest.by_level(self.skip(x))
        nobody = x.new_zeros(1, self.skip.out_features)
        below_h = below_c = nobody
        done = []
        for level, own, skip in reversed(list(zip(forest.levels, gates, skips, strict=True))):
            h_left, c_left = below_h.index_select(0, level.left), below_c.index_select(0, level.left)
            h_right, c_right = below_h.index_select(0, level.right), below_c.index_select(0, level.right)
            i, o, f_left, f_right, u, r = (own + self.left(h_left) + self.right(h_right)).chunk(6, dim=1)
            c = i.sigmoid() * u.tanh() + f_left.sigmoid() * c_left + f_right.sigmoid() * c_right
            h = _highway(r, o, c, skip)
            below_h, below_c = torch.cat([h, nobody]), torch.cat([c, nobody])  # the last row stands for no child
            done.append(h)
        return forest.in_list(done[::-1], nobody[:0])


class BothWays(nn.Module):
    """Half of the width from the root down, half from the leaves up."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.down = Down(width, hidden // 2)
        self.up = Up(width, hidden - hidden // 2)

    def forward(self, x: Tensor, forest: Forest) -> Tensor:
        return torch.cat([self.down(x, forest), self.up(x, forest)], dim=1)


class Decoder(nn.Module):
    """Names objects from parents to children, each knowing what its parent was called.

    Row 0 of `labels` stands before a root, row k + 1 for class k. A further name, the background, has logits but is
    never chosen. With `dropout` each tree trains without some of the state's numbers, the same ones at all its nodes.
    """

    def __init__(
        self, width: int, hidden: int, vectors: Tensor, *, background: bool = False, dropout: float = 0
    ) -> None:
        super().__init__()
        self.classes, embedding = vectors.shape
        self.width, self.dropout = width, dropout
        start = torch.randn(1, embedding)
        rows = torch.cat([start, vectors.detach()])
        self.labels = nn.Embedding.from_pretrained(rows, freeze=False)  # type: ignore[no-untyped-call]
        self.cell = Down(width + embedding, hidden)
        self.out = nn.Linear(hidden, self.classes + background)

    def forward(self, x: Tensor, forest: Forest, choose: Choose) -> tuple[Tensor, Tensor]:
        """Logits (N, names) and the labels (N,) that `choose` made of those of the classes."""
        cell, known = self.cell, self.width
        # What features say and what the parent's name says are computed apart: names are few, and come step by step.
        gates = forest.by_level(nn.functional.linear(x, cell.gates.weight[:, :known], cell.gates.bias))
        skips = forest.by_level(nn.functional.linear(x, cell.skip.weight[:, :known], cell.skip.bias))
        named = self.labels.weight @ torch.cat([cell.gates.weight, cell.skip.weight])[:, known:].T
        h = c = x.new_zeros(1, cell.hidden)  # above the roots
        name = forest.back.new_full((1,), -1)
        logits, names, mask = list[Tensor](), list[Tensor](), x.new_ones(1, cell.hidden)
        for level, own, skip in zip(forest.levels, gates, skips, strict=True):
            row = named.index_select(0, name.index_select(0, level.parent) + 1)
            from_gates, from_skip = row.split([5 * cell.hidden, cell.hidden], dim=1)
            h, c = h.index_select(0, level.parent), c.index_select(0, level.parent)
            h, c = cell.step(own + from_gates, skip + from_skip, h, c)
            if self.training and self.dropout:
                if not logits:  # the roots
                    mask = nn.functional.dropout(torch.ones_like(h), self.dropout)
                else:
                    mask = mask.index_select(0, level.parent)
                h = h * mask
            logits.append(self.out(h))
            name = choose(logits[-1][:, : self.classes], level.nodes)
            names.append(name)
        return forest.in_list(logits, x.new_zeros(0, self.out.out_features)), forest.in_list(names, name[:0])


def _highway(r: Tensor, o: Tensor, c: Tensor, skip: Tensor) -> Tensor:
    r = r.sigmoid()
    return r * o.sigmoid() * c.tanh() + (1 - r) * skip
