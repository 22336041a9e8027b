"""IMP, iterative message passing: objects and pairs keep a state each, and tell each other about it, twice.

    first        h_i = GRU_node(W_o x_i, 0),  e_ij = GRU_edge(ReLU(W_e u_ij), 0)
    to a pair    m_ij = s(w1 [h_i; e_ij]) h_i + s(w2 [h_j; e_ij]) h_j,              e_ij <- GRU_edge(m_ij, e_ij)
    to an object m_i = sum_j s(w3 [h_i; e_ij]) e_ij + sum_k s(w4 [h_i; e_ki]) e_ki,   h_i <- GRU_node(m_i, h_i)
    at last      predicates from e_ij, and labels from h_i where they are to be refined

s is the sigmoid, to one number. In order "parallel" (as the federated benchmark ran it) both messages are made of the
states before; in "sequential" (as IMP was first published) the one to an object knows the pair's new state. IMP sees
no labels and no places but those that the features hold. With `frequency` it has MOTIFS' bias, which it did not have
when it was published.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from wayfare.core.errors import ConfigError, unknown
from wayfare.scenes.batch import GraphBatch, HeadOutput
from wayfare.scenes.heads.common import FrequencyBias, HeadSizes, Mode, PairEncoder, check_mode, encoder, ends, gather

Order = Literal["parallel", "sequential"]


class IMP(nn.Module):
    """Iterative message passing; see the module."""

    def __init__(
        self,
        sizes: HeadSizes,
        *,
        mode: Mode = "predcls",
        order: Order = "parallel",
        iterations: int = 2,
        frequency: Tensor | None = None,
    ) -> None:
        super().__init__()
        check_mode(mode)
        classes, predicates, widths = sizes.classes, sizes.predicates, sizes.widths
        if order not in get_args(Order):
            raise unknown("order", str(order), get_args(Order), "IMP")
        if iterations < 1:
            raise ConfigError(f"IMP: iterations = {iterations}: expected at least 1, or no message is passed")
        self.sequential, self.iterations = order == "sequential", iterations
        hidden = widths.hidden
        self.objects, self.pairs = encoder(sizes.width_x, widths.visual), PairEncoder(sizes.width_u, widths)
        self.node_in, self.edge_in = nn.Linear(widths.visual, hidden), nn.Linear(widths.visual, hidden)
        self.node_gru, self.edge_gru = nn.GRUCell(hidden, hidden), nn.GRUCell(hidden, hidden)
        self.from_subject, self.from_object = MessageGate(hidden), MessageGate(hidden)
        self.from_outgoing, self.from_incoming = MessageGate(hidden), MessageGate(hidden)
        self.predicate_out = nn.Linear(hidden, predicates + 1)
        # with given labels nobody would ask this layer, and nothing would train it
        self.label_out = nn.Linear(hidden, sizes.names) if mode == "sgdet" else None
        self.frequency = None if frequency is None else FrequencyBias(frequency, classes, predicates)

    def forward(self, graphs: GraphBatch) -> HeadOutput:
        nodes = self.node_gru(self.node_in(self.objects(graphs.x)))
        edges = self.edge_gru(self.edge_in(self.pairs(graphs)).relu())
        for turn in range(1, self.iterations + 1):
            subjects, objects = ends(nodes, graphs.pairs)
            message = self.from_subject(subjects, edges, subjects) + self.from_object(objects, edges, objects)
            updated = self.edge_gru(message, edges)
            if turn < self.iterations or self.label_out is not None:  # else no one reads the objects' last states
                source = updated if self.sequential else edges
                nodes = self.node_gru(self._to_nodes(graphs, subjects, objects, source), nodes)
            edges = updated
        labels = None if self.label_out is None else self.label_out(nodes)
        predicates = self.predicate_out(edges)
        if self.frequency is not None:
            named = graphs.labels if labels is None else labels[:, : self.frequency.classes].argmax(1)
            predicates = self.frequency(predicates, named, graphs.pairs)
        return HeadOutput(predicates, edges, labels)

    def _to_nodes(self, graphs: GraphBatch, subjects: Tensor, objects: Tensor, edges: Tensor) -> Tensor:
        """The message to each object from the pairs that leave it and those that reach it."""
        count = len(graphs.labels)
        outgoing = gather(self.from_outgoing(subjects, edges, edges), graphs.pairs[:, 0], count)
        return outgoing + gather(self.from_incoming(objects, edges, edges), graphs.pairs[:, 1], count)


class MessageGate(nn.Module):
    """How much of a message gets through, judged by an object and a pair."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weigh = nn.Linear(2 * hidden, 1)

    def forward(self, node: Tensor, edge: Tensor, message: Tensor) -> Tensor:
        weight: Tensor = self.weigh(torch.cat([node, edge], 1)).sigmoid()
        return weight * message
