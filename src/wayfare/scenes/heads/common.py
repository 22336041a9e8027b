"""What the four relation heads share: how objects and pairs are encoded before a head reasons about them.

    x_i, looks of an object     features -> visual, ReLU -> visual, ReLU      `ObjectEncoder`, `encoder`
    e_i, its label              a row of a table                              `ObjectEncoder`
    b_i, its place              9 numbers -> 32, BatchNorm -> 128, ReLU       `ObjectEncoder`
    u_ij, looks of a pair       features -> visual, ReLU -> visual, ReLU      `PairEncoder`

How wide the features are is up to their provider, how wide everything else is up to `Widths`. Rows are picked with
index_select, never with brackets: its gradient is summed in the same order on any number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn

from wayfare.core.errors import ConfigError, unknown
from wayfare.core.seeds import rng_for
from wayfare.scenes.batch import GraphBatch
from wayfare.scenes.frequency import Frequencies

Mode = Literal["predcls", "sgdet"]  # labels are given and stay, or are refined from a detector's
_PLACE = 9  # numbers that say where an object is


@dataclass(frozen=True)
class Widths:
    """How wide the layers of a head are; the defaults are the paper's."""

    visual: int = 1024  # encoded looks of objects and pairs, and GPS-Net's objects
    embedding: int = 200  # of labels
    position_hidden: int = 32
    position: int = 128  # of an object's place
    hidden: int = 512  # states of IMP, contexts of MOTIFS and VCTree
    pair: int = 4096  # the products of MOTIFS and VCTree

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"widths: {name} = {value!r}: expected a whole number of at least 1")


PRESETS = {
    "paper": Widths(),
    "small": Widths(visual=128, embedding=64, position_hidden=16, position=32, hidden=64, pair=256),
}


@dataclass(frozen=True)
class HeadSizes:
    """How large a head is: what the data decides, and the widths of its layers."""

    classes: int
    predicates: int
    width_x: int  # features of an object
    width_u: int  # and of a pair
    widths: Widths
    background: bool = False  # refined labels have one more, the last: a detection that is no annotated object

    @property
    def names(self) -> int:
        """How many labels a refined one is chosen from."""
        return self.classes + self.background


def check_mode(mode: str) -> None:
    """Stop early at a misspelt mode."""
    if mode not in get_args(Mode):
        raise unknown("mode", mode, get_args(Mode), "relation head")


# ---- encoders


def encoder(width_in: int, width: int) -> nn.Sequential:
    """Two layers on the looks of an object or a pair."""
    return nn.Sequential(nn.Linear(width_in, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())


class Encoded(NamedTuple):
    """ObjectEncoder, row by row."""

    x: Tensor  # (N, visual)
    e: Tensor  # (N, embedding)
    b: Tensor  # (N, position)

    @property
    def z(self) -> Tensor:
        """All three side by side, (N, visual + embedding + position)."""
        return torch.cat(self, 1)


class ObjectEncoder(nn.Module):
    """ObjectEncoder from their looks, labels and places. `vectors` (classes, embedding) are labels' first rows."""

    def __init__(self, classes: int, width_x: int, widths: Widths, vectors: Tensor | None = None) -> None:
        super().__init__()
        self.width = widths.visual + widths.embedding + widths.position
        self.looks = encoder(width_x, widths.visual)
        self.labels = label_embedding(classes, widths.embedding, vectors)
        self.place = nn.Sequential(
            nn.Linear(_PLACE, widths.position_hidden),
            nn.BatchNorm1d(widths.position_hidden, momentum=0.001),
            nn.Linear(widths.position_hidden, widths.position),
            nn.ReLU(),
        )

    def forward(self, graphs: GraphBatch) -> Encoded:
        return Encoded(self.looks(graphs.x), self.labels(graphs.labels), self.place(places(graphs)))


class PairEncoder(nn.Module):
    """PairEncoder from the looks of the box around both: (P, visual)."""

    def __init__(self, width_u: int, widths: Widths) -> None:
        super().__init__()
        self.looks = encoder(width_u, widths.visual)

    def forward(self, graphs: GraphBatch) -> Tensor:
        encoded: Tensor = self.looks(graphs.u)
        return encoded


def places(graphs: GraphBatch) -> Tensor:
    """Where objects are, as parts of their image (N, 9): w, h, centre x, centre y, x1, y1, x2, y2, area."""
    size = graphs.sizes.index_select(0, graphs.image)
    low, high = graphs.boxes[:, :2] / size, graphs.boxes[:, 2:] / size
    extent = high - low
    return torch.cat([extent, (low + high) / 2, low, high, extent.prod(1, keepdim=True)], 1)


# ---- counts


class CountedPart(nn.Module):
    """A part that begins with how often classes are related, counted over all devices before the first round."""

    def adopt(self, counts: Frequencies) -> None:
        """Take the counts over; before that its tables are zeros, which say nothing."""
        raise NotImplementedError


class FrequencyBias(CountedPart):
    """Adds the row of a pair's two labels to its logits; the table is trained and travels with the rest."""

    def __init__(self, frequency: Tensor, classes: int, predicates: int) -> None:
        super().__init__()
        shape = (classes, classes, predicates + 1)
        if frequency.shape != shape:
            raise ConfigError(f"frequency {tuple(frequency.shape)}: expected {shape}, classes twice and predicates")
        if not frequency.isfinite().all():
            raise ConfigError("frequency has values that are not finite; give log(P + 0.001), not log 0")
        self.classes, self.table = classes, nn.Parameter(frequency.detach().float().clone())

    def adopt(self, counts: Frequencies) -> None:
        self.table.copy_(torch.from_numpy(counts.log_table()))

    def forward(self, logits: Tensor, labels: Tensor, pairs: Tensor) -> Tensor:
        subject, object_ = ends(labels, pairs)
        return logits + self.table.flatten(0, 1).index_select(0, subject * self.classes + object_)


def adopt_counts(net: nn.Module, counts: Frequencies) -> None:
    """Give the counts to every part that begins with them."""
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, CountedPart):
                module.adopt(counts)


# ---- labels


def label_embedding(classes: int, width: int, vectors: Tensor | None = None) -> nn.Embedding:
    """A trainable table that starts from the given rows, or from normal numbers that are always the same."""
    if vectors is None:
        vectors = torch.from_numpy(normal_rows(classes, width))
    if vectors.shape != (classes, width):
        raise ConfigError(f"label vectors {tuple(vectors.shape)}: expected {(classes, width)}, a row per class")
    rows = vectors.float().clone()
    table: nn.Embedding = nn.Embedding.from_pretrained(rows, freeze=False)  # type: ignore[no-untyped-call]
    return table


def normal_rows(classes: int, width: int) -> np.ndarray:
    """float32 (classes, width), always the same."""
    return rng_for("label embedding", classes, width).standard_normal((classes, width), dtype=np.float32)


# ---- from objects to pairs and back


def ends(nodes: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    """What the subject and the object of each pair have."""
    return nodes.index_select(0, pairs[:, 0]), nodes.index_select(0, pairs[:, 1])


def gather(edges: Tensor, where: Tensor, count: int) -> Tensor:
    """Sums over the pairs that meet at an object: `where` says which of `count` objects a pair counts for."""
    return edges.new_zeros(count, *edges.shape[1:]).index_add(0, where, edges)


def slots(graphs: GraphBatch) -> tuple[Tensor, int]:
    """Where each object is in a table with a row of `longest` slots per image (N,), counted through; and longest."""
    counts = torch.bincount(graphs.image, minlength=graphs.images)
    first = counts.cumsum(0) - counts
    longest = int(counts.max())
    within = torch.arange(len(graphs.image), device=graphs.image.device) - first.index_select(0, graphs.image)
    return graphs.image * longest + within, longest
