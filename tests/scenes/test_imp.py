"""IMP: numbers by hand, a loop over pairs as reference, batches, order of objects, size."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from small_graphs import parameters, pass_through, random_graph, reordered, set_to, together, untrained
from wayfare.core.errors import ConfigError
from wayfare.scenes.batch import GraphBatch
from wayfare.scenes.heads.common import PRESETS, HeadSizes, Widths
from wayfare.scenes.heads.imp import IMP

ONE = Widths(visual=1, embedding=1, position_hidden=1, position=1, hidden=1, pair=1)
TINY = Widths(visual=6, embedding=3, position_hidden=2, position=4, hidden=5, pair=8)
LN2, LN3 = math.log(2), math.log(3)


def halving(cell: nn.GRUCell) -> None:
    """A GRU whose gates are both 1/2 and whose candidate is tanh(input): h <- tanh(input) / 2 + h / 2."""
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
        cell.weight_ih[2] = 1.0


def by_hand(order: str) -> IMP:
    net = IMP(HeadSizes(2, 1, 1, 1, ONE), mode="sgdet", order=order)
    pass_through(net.objects)
    pass_through(net.pairs.looks)
    set_to(net.node_in, 1.0)
    set_to(net.edge_in, 1.0)
    halving(net.node_gru)
    halving(net.edge_gru)
    # sigmoid(ln 3) = 3/4, sigmoid(-ln 3) = 1/4, sigmoid(0) = 1/2, sigmoid(-ln 9) = 1/10
    for gate, bias in (("subject", LN3), ("object", -LN3), ("outgoing", 0.0), ("incoming", -2 * LN3)):
        set_to(getattr(net, f"from_{gate}").weigh, [[0.0, 0.0]], bias)
    set_to(net.predicate_out, [[1.0], [-2.0]], [0.0, 1.0])
    set_to(net.label_out, [[10.0], [0.0]], [0.0, 3.0])
    return net


def triangle() -> GraphBatch:
    """A, B, C with the pairs A-B, B-C, C-A."""
    return GraphBatch(
        labels=torch.tensor([0, 1, 0]),
        boxes=torch.tensor([[0.0, 0, 10, 10]] * 3),
        image=torch.zeros(3, dtype=torch.int64),
        sizes=torch.tensor([[10.0, 10.0]]),
        pairs=torch.tensor([[0, 1], [1, 2], [2, 0]]),
        x=torch.tensor([[LN3], [LN2], [0.0]]),
        u=torch.tensor([[LN3], [0.0], [LN2]]),
        targets=torch.tensor([1, 0, 1]),
    )


# tanh(ln 3) = 0.8, tanh(ln 2) = 0.6, so at first
#   h = A .4, B .3, C 0;  e = AB .4, BC 0, CA .3
# first turn, messages to pairs: 3/4 subject + 1/4 object
#   AB .300 + .075 = .375, BC .225 + 0 = .225, CA 0 + .100 = .100;   tanh: .358357, .221279, .099668
#   e = AB .379179, BC .110639, CA .199834
# parallel, messages to objects of the first e: 1/2 outgoing + 1/10 incoming
#   A .200 + .030 = .230, B 0 + .040 = .040, C .150 + 0 = .150;      tanh: .226028, .039979, .148885
#   h = A .313014, B .169989, C .074443
# second turn, to pairs: AB .234760 + .042497 = .277258, BC .127492 + .018611 = .146103, CA .055832 + .078253 = .134085
#   e = AB .324772, BC .127856, CA .166561
# to objects, of e after the first turn: A .189589 + .019983 = .209573, B .093237, C .110981
#   h = A .259786, B .131479, C .092485
# sequential, first turn, of the new e: A .189589 + .019983 = .209573, B .055320 + .037918 = .093237, C .110981
#   h = A .303279, B .196484, C .055264
# second turn, to pairs: AB .276580, BC .161179, CA .117268;  e = AB .324458, BC .135218, CA .158283
# to objects: A .162229 + .015828 = .178057, B .067609 + .032446 = .100055, C .079142 + .013522 = .092664
#   h = A .239739, B .148103, C .073832
@pytest.mark.parametrize(
    "order, edges, nodes",
    [
        ("parallel", [0.324772, 0.127856, 0.166561], [0.259786, 0.131479, 0.092485]),
        ("sequential", [0.324458, 0.135218, 0.158283], [0.239739, 0.148103, 0.073832]),
    ],
)
def test_three_objects_by_hand(order: str, edges: list[float], nodes: list[float]) -> None:
    said = by_hand(order)(triangle())
    e, h = torch.tensor(edges), torch.tensor(nodes)
    torch.testing.assert_close(said.features[:, 0], e, atol=2e-6, rtol=0)
    torch.testing.assert_close(said.predicates, torch.stack([e, 1 - 2 * e], 1), atol=5e-6, rtol=0)
    torch.testing.assert_close(said.objects, torch.stack([10 * h, torch.full((3,), 3.0)], 1), atol=2e-5, rtol=0)
    assert said.extra is None


def slowly(net: IMP, graph: GraphBatch, sequential: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The formulas pair by pair; the states of pairs and objects."""
    h = [net.node_gru(net.node_in(net.objects(x))) for x in graph.x]
    e = [net.edge_gru(torch.relu(net.edge_in(net.pairs.looks(u)))) for u in graph.u]
    pairs = graph.pairs.tolist()

    def gate(name: str, node: torch.Tensor, edge: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(getattr(net, f"from_{name}").weigh(torch.cat([node, edge])))

    for _ in range(net.iterations):
        new = []
        for (i, j), pair in zip(pairs, e, strict=True):
            message = gate("subject", h[i], pair) * h[i] + gate("object", h[j], pair) * h[j]
            new.append(net.edge_gru(message, pair))
        told = new if sequential else e
        messages = [torch.zeros_like(node) for node in h]
        for (i, j), pair in zip(pairs, told, strict=True):
            messages[i] = messages[i] + gate("outgoing", h[i], pair) * pair
            messages[j] = messages[j] + gate("incoming", h[j], pair) * pair
        h, e = [net.node_gru(m, node) for m, node in zip(messages, h, strict=True)], new
    return torch.stack(e), torch.stack(h)


@pytest.mark.parametrize("order", ["parallel", "sequential"])
@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_equals_a_loop_over_pairs(order: str, iterations: int) -> None:
    torch.manual_seed(3)
    net = IMP(HeadSizes(4, 3, 5, 6, TINY), mode="sgdet", order=order, iterations=iterations)
    graph = random_graph(1, objects=5, pairs=9)
    said = net(graph)
    edges, nodes = slowly(net, graph, order == "sequential")
    torch.testing.assert_close(said.features, edges)
    torch.testing.assert_close(said.predicates, net.predicate_out(edges))
    torch.testing.assert_close(said.objects, net.label_out(nodes))


def test_given_labels_change_nothing_about_predicates() -> None:
    torch.manual_seed(4)
    refining = IMP(HeadSizes(4, 3, 5, 6, TINY), mode="sgdet")
    given = IMP(HeadSizes(4, 3, 5, 6, TINY))
    given.load_state_dict({k: v for k, v in refining.state_dict().items() if not k.startswith("label_out")})
    graph = random_graph(2, 4, 7)
    assert given(graph).objects is None
    torch.testing.assert_close(given(graph).predicates, refining(graph).predicates)


@pytest.mark.parametrize("mode", ["predcls", "sgdet"])
def test_batch_equals_each_image_alone(mode: str) -> None:
    torch.manual_seed(5)
    net = IMP(HeadSizes(4, 3, 5, 6, TINY), mode=mode)
    # the image in the middle has one object and nothing to say
    images = [random_graph(1, 5, 11), random_graph(2, 1, 0), random_graph(3, 3, 6)]
    said, alone = net(together(*images)), [net(image) for image in images]
    torch.testing.assert_close(said.predicates, torch.cat([a.predicates for a in alone]))
    assert said.predicates.shape == (17, 4)
    if mode == "sgdet":
        torch.testing.assert_close(said.objects, torch.cat([a.objects for a in alone]))


def test_order_of_objects_is_of_no_account() -> None:
    torch.manual_seed(6)
    net = IMP(HeadSizes(4, 3, 5, 6, TINY), mode="sgdet")
    graph = random_graph(4, 5, 12)
    order = torch.tensor([3, 0, 4, 2, 1])
    other, places = reordered(graph, order)
    said, moved = net(graph), net(other)
    torch.testing.assert_close(moved.predicates, said.predicates[places])
    torch.testing.assert_close(moved.objects, said.objects[order])


def test_direction_matters() -> None:
    torch.manual_seed(7)
    net = IMP(HeadSizes(4, 3, 5, 6, TINY))
    graph = random_graph(5, 3, 2)
    assert not torch.allclose(net(graph).predicates, net(replace(graph, pairs=graph.pairs.flip(1))).predicates)


def test_size_at_the_papers_widths() -> None:
    # 134 labels and 57 predicates, both with a background; 12,544 = 256 x 7 x 7 features
    with torch.device("meta"):  # shapes without numbers
        net = IMP(HeadSizes(134, 56, 12544, 12544, PRESETS["paper"]), mode="sgdet")
    encoder = (12544 * 1024 + 1024) + (1024 * 1024 + 1024)  # 13,895,680
    inputs = 2 * (1024 * 512 + 512)  # 1,049,600
    grus = 2 * (3 * 512 * (512 + 512) + 6 * 512)  # 3,151,872
    gates = 4 * (1024 + 1)  # 4,100
    outputs = 512 * 134 + 134 + 512 * 57 + 57  # 97,983
    assert inputs + grus + gates + outputs == 4_303_555  # the 4.3 M of IMP itself
    assert parameters(net) == 2 * encoder + 4_303_555 == 32_094_915
    # the benchmark's 32.4 M have the convolutions over the two rectangles, too; here they are the features' business
    rectangles = (2 * 128 * 49 + 128) + 2 * 128 + (128 * 256 * 9 + 256) + 2 * 256  # 308,608
    assert round((parameters(net) + rectangles) / 1e6, 1) == 32.4


@pytest.mark.parametrize("order", ["parallel", "sequential"])
@pytest.mark.parametrize("mode", ["predcls", "sgdet"])
def test_gradient_reaches_every_parameter(mode: str, order: str) -> None:
    torch.manual_seed(8)
    net = IMP(HeadSizes(4, 3, 5, 6, TINY), mode=mode, order=order)
    said = net(together(random_graph(6, 5, 9), random_graph(7, 4, 5)))
    loss = said.predicates.square().sum()
    assert untrained(net, loss if said.objects is None else loss + said.objects.square().sum()) == set()


def test_one_turn_with_given_labels_leaves_objects_messages_untrained() -> None:
    torch.manual_seed(9)
    net = IMP(HeadSizes(4, 3, 5, 6, TINY), iterations=1)
    lost = untrained(net, net(random_graph(6, 5, 9)).predicates.sum())
    assert {name.split(".")[0] for name in lost} == {"from_outgoing", "from_incoming", "node_gru"}
    assert lost & {"node_gru.weight_ih", "node_gru.bias_ih"} == set()  # the first state is made with these


def test_nothing_to_look_at() -> None:
    net = IMP(HeadSizes(4, 3, 5, 6, TINY), mode="sgdet")
    said = net(random_graph(1, 0, 0))
    assert said.predicates.shape == (0, 4) and said.objects.shape == (0, 4)


def test_bad_options_are_named() -> None:
    with pytest.raises(ConfigError, match="unknown order 'paralell'; did you mean 'parallel'"):
        IMP(HeadSizes(4, 3, 5, 6, TINY), order="paralell")
    with pytest.raises(ConfigError, match="iterations = 0"):
        IMP(HeadSizes(4, 3, 5, 6, TINY), iterations=0)
    with pytest.raises(ConfigError, match="unknown mode 'sgcls'"):
        IMP(HeadSizes(4, 3, 5, 6, TINY), mode="sgcls")
