"""Small scenes for tests of relation heads: by hand, at random, several together, and with their objects reordered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from wayfare.core.seeds import rng_for
from wayfare.scenes.batch import GraphBatch


def random_graph(
    seed: int, objects: int, pairs: int, width_x: int = 5, width_u: int = 6, classes: int = 4, predicates: int = 3
) -> GraphBatch:
    """One image with some of its ordered pairs."""
    rng = rng_for("small graph", seed)
    every = [(s, o) for s in range(objects) for o in range(objects) if s != o]
    chosen = np.sort(rng.permutation(len(every))[:pairs])
    corners = rng.uniform(0, 100, (objects, 2, 2))
    return GraphBatch(
        labels=torch.from_numpy(rng.integers(0, classes, objects)),
        boxes=torch.from_numpy(np.concatenate([corners.min(1), corners.max(1)], 1)).float(),
        image=torch.zeros(objects, dtype=torch.int64),
        sizes=torch.tensor([[100.0, 120.0]]),
        pairs=torch.tensor([every[i] for i in chosen], dtype=torch.int64).view(-1, 2),
        x=torch.from_numpy(rng.standard_normal((objects, width_x))).float(),
        u=torch.from_numpy(rng.standard_normal((len(chosen), width_u))).float(),
        targets=torch.from_numpy(rng.integers(0, predicates + 1, len(chosen))),
    )


def together(*graphs: GraphBatch) -> GraphBatch:
    """Several batches as one."""
    objects = np.cumsum([0, *(len(g.labels) for g in graphs)]).tolist()
    images = np.cumsum([0, *(g.images for g in graphs)]).tolist()
    moved = [
        replace(g, pairs=g.pairs + first, image=g.image + image)
        for g, first, image in zip(graphs, objects, images, strict=False)
    ]
    return GraphBatch(**{name: torch.cat([getattr(g, name) for g in moved]) for name in vars(moved[0])})


def reordered(graph: GraphBatch, order: Tensor) -> tuple[GraphBatch, Tensor]:
    """The same image with object order[k] at place k; and which of the old pairs is at which new place."""
    pairs = torch.argsort(order)[graph.pairs]
    places = torch.argsort(pairs[:, 0] * len(order) + pairs[:, 1])
    nodes = {name: getattr(graph, name)[order] for name in ("labels", "boxes", "image", "x")}
    edges = {name: getattr(graph, name)[places] for name in ("u", "targets")}
    return replace(graph, pairs=pairs[places], **nodes, **edges), places


def set_to(layer: nn.Linear, weight: float | list, bias: float | list = 0.0) -> None:
    """Fill a layer by hand; a single number as weight is that many times the identity."""
    if isinstance(weight, int | float):
        values = weight * torch.eye(*layer.weight.shape)
    else:
        values = torch.tensor(weight, dtype=torch.float32)
    with torch.no_grad():
        layer.weight.copy_(values)
        layer.bias.copy_(torch.as_tensor(bias))


def pass_through(encoder: nn.Sequential) -> None:
    """An encoder that gives back what it gets, if that is not negative."""
    for layer in encoder:
        if isinstance(layer, nn.Linear):
            set_to(layer, 1.0)


def parameters(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def untrained(net: nn.Module, loss: Tensor) -> set[str]:
    """Parameters that a loss does not reach."""
    loss.backward()
    return {name for name, p in net.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0}
