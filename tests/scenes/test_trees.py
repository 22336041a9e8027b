"""Trees of objects: a worked example, plain loops as reference, and LSTMs along them by hand and node by node."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from small_graphs import set_to
from wayfare.core.seeds import rng_for
from wayfare.scenes.heads.treelstm import BothWays, Decoder, Down, Up, block_orthogonal
from wayfare.scenes.heads.trees import Forced, as_forest, binary, forest, sample_detour, spanning_trees

# Six objects; row i, column j: how well j goes under i. Sums of rows: .9, 3.22, 1.5, 1.8, 1.0, .5: 1 is the root.
#   turn 1: of 1's row .9 is the best                                   2 under 1
#   turn 2: 1 offers .7 (3), 2 offers .8 (4)                            4 under 2
#   turn 3: 1 offers .7 (3), .62 (5), .6 (0); 4 offers .6 (5)           3 under 1
#   turn 4: 3 offers .65 for 0, 1 offers .62 for 5                      0 under 3, not under 1 (.6)
#   turn 5: 5 is left: 1 offers .62, 4 .6, 3 .55                        5 under 1
SIX = np.array(
    [
        [0.00, 0.2, 0.1, 0.3, 0.1, 0.20],
        [0.60, 0.0, 0.9, 0.7, 0.4, 0.62],
        [0.30, 0.1, 0.0, 0.2, 0.8, 0.10],
        [0.65, 0.1, 0.2, 0.0, 0.3, 0.55],
        [0.10, 0.1, 0.1, 0.1, 0.0, 0.60],
        [0.10, 0.1, 0.1, 0.1, 0.1, 0.00],
    ]
)
PARENT, TURN = [3, -1, 1, 1, 2, 1], [4, 0, 1, 3, 2, 5]


def test_worked_example() -> None:
    parent, turn = spanning_trees(SIX[None], np.array([6]))
    assert parent.tolist() == [PARENT] and turn.tolist() == [TURN]
    # 1 has the children 2, 3, 5 in this order: 2 is its left child, 3 hangs to the right of 2, and 5 to the right of 3
    left, right = binary(parent[0], turn[0])
    assert left.tolist() == [-1, 2, 4, 0, -1, -1]
    assert right.tolist() == [-1, -1, 3, 5, -1, -1]
    levels = forest(left, right).levels
    assert [level.nodes.tolist() for level in levels] == [[1], [2], [4, 3], [0, 5]]
    assert [level.parent.tolist() for level in levels] == [[0], [0], [0, 0], [1, 1]]
    assert [level.left.tolist() for level in levels] == [[0], [0], [2, 0], [0, 0]]  # the length of the next: no child
    assert [level.right.tolist() for level in levels] == [[1], [1], [2, 1], [0, 0]]


def test_a_forced_edge_is_taken_at_its_turn() -> None:
    forced = Forced(np.array([2]), np.array([[1, 0]]))
    # 2 under 1 (.9), then 0 under 1 by force; then 4 under 2 (.8), 3 under 1 (.7), 5 under 1 (.62)
    parent, turn = spanning_trees(SIX[None], np.array([6]), forced)
    assert parent.tolist() == [[1, -1, 1, 1, 2, 1]] and turn.tolist() == [[2, 0, 1, 4, 3, 5]]


@pytest.mark.parametrize(
    "draw, edge", [(0.0, [1, 0]), (0.2, [1, 0]), (0.21, [1, 3]), (0.5, [1, 4]), (0.79, [1, 5]), (0.999, [2, 5])]
)
def test_a_departure_by_hand(draw: float, edge: list[int]) -> None:
    # turn 1 + floor(.3 * 5) = 2: 1 and 2 are in, 0, 3, 4, 5 are out; 4 under 2 (.8) is Prim's choice. The others:
    # 1 to 0, 3, 4, 5 .6 .7 .4 .62; 2 to 0, 3, 5 .3 .2 .1; heaped up .6 1.3 1.7 2.32 2.62 2.82 2.92
    # draws of 2.92: 0, .584 | .613 | 1.46 | 2.307 | 2.917
    forced, open_edges = sample_detour(
        SIX[None], *spanning_trees(SIX[None], np.array([6])), np.array([6]), np.array([[0.3, draw]])
    )
    assert forced.turn.tolist() == [2] and forced.edge.tolist() == [edge]
    assert np.argwhere(open_edges[0]).tolist() == [[i, j] for i in (1, 2) for j in (0, 3, 4, 5)]


def prim(scores: np.ndarray) -> tuple[list[int], list[int]]:
    """The same, one image and one edge at a time."""
    count = len(scores)
    inside = [max(range(count), key=lambda i: scores[i].mean())]
    parent = [-1] * count
    while len(inside) < count:
        _, i, j = max((scores[i, j], i, j) for i in inside for j in range(count) if j not in inside)
        parent[j] = i
        inside.append(j)
    return parent, [inside.index(i) for i in range(count)]


def test_many_images_at_once() -> None:
    rng = rng_for("trees")
    sizes = np.array([5, 1, 0, 9, 2, 7])
    scores = rng.random((6, 9, 9))  # padding has scores too, and they must not matter
    parent, turn = spanning_trees(scores, sizes)
    draws = rng.random((6, 2))
    forced, open_edges = sample_detour(scores, parent, turn, sizes, draws)
    other, other_turn = spanning_trees(scores, sizes, forced)
    assert [bool(t) for t in forced.turn] == [True, False, False, True, False, True]  # two objects have but one tree
    for b, size in enumerate(sizes):
        if size:
            assert (parent[b, :size].tolist(), turn[b, :size].tolist()) == prim(scores[b, :size, :size])
        assert (parent[b, size:] == -1).all() and (turn[b, size:] == -1).all()
        if not forced.turn[b]:
            assert not open_edges[b].any() and (other[b] == parent[b]).all()
            continue
        above, below = forced.edge[b]
        assert open_edges[b, above, below]
        assert other[b, below] == above and other_turn[b, below] == forced.turn[b]
        assert parent[b, below] != above or turn[b, below] != forced.turn[b]
        before = turn[b, :size] < forced.turn[b]
        assert (other_turn[b, :size][before] == turn[b, :size][before]).all()


def test_scores_that_are_no_numbers_or_all_the_same_still_give_trees() -> None:
    for scores in (np.full((1, 4, 4), np.nan), np.ones((1, 4, 4))):
        parent, turn = spanning_trees(scores, np.array([4]))
        assert parent.tolist() == [[-1, 0, 0, 0]] and turn.tolist() == [[0, 1, 2, 3]]


def test_no_objects() -> None:
    empty = as_forest(*spanning_trees(np.zeros((2, 0, 0)), np.array([0, 0])), np.array([0, 0]))
    assert empty.levels == ()
    assert BothWays(3, 4)(torch.zeros(0, 3), empty).shape == (0, 4)


# ---- LSTMs along trees


def zeroed(net: torch.nn.Module) -> None:
    for parameter in net.parameters():
        torch.nn.init.zeros_(parameter)


def test_down_by_hand() -> None:
    """Two nodes, one number each: gates i, o, f, r are sigmoid(0) = 1/2, u = tanh(x + h of the parent), P x = 2 x."""
    net = Down(1, 1)
    zeroed(net)
    net.gates.weight.data[3] = 1.0
    net.parent.weight.data[3] = 1.0
    set_to(net.skip, 2.0)
    # root, x = 1:   u = tanh 1 = .761594, c = .380797, h = 1/4 tanh c + 1/2 * 2 = .090850 + 1 = 1.090850
    # child, x = -1: u = tanh .090850 = .090601, c = .045300 + 1/2 * .380797 = .235699, h = .057857 - 1 = -.942143
    tree = forest(np.array([-1, 0]), np.array([-1, -1]))  # object 1 is the root, 0 its left child
    states = net(torch.tensor([[-1.0], [1.0]]), tree)
    assert states.flatten().tolist() == pytest.approx([-0.942143, 1.090850], abs=2e-6)


def test_up_by_hand() -> None:
    """A node with two children: f_left = sigmoid(ln 3) = 3/4, f_right = 1/4, u = tanh(x + h_left - h_right), P = 0."""
    net = Up(1, 1)
    zeroed(net)
    net.gates.weight.data[4] = 1.0
    net.gates.bias.data[2], net.gates.bias.data[3] = math.log(3), -math.log(3)
    net.left.weight.data[4], net.right.weight.data[4] = 1.0, -1.0
    # leaves, x = ln 3 and ln 2: u = .8 and .6, c = .4 and .3, h = 1/4 tanh c = .094987 and .072828
    # node, x = 0: u = tanh(.094987 - .072828) = .022155, c = .011078 + 3/4 * .4 + 1/4 * .3 = .386078,
    #   h = 1/4 tanh c = 1/4 * .367974 = .091993
    tree = forest(np.array([-1, -1, 0]), np.array([-1, -1, 1]))
    states = net(torch.tensor([[math.log(3)], [math.log(2)], [0.0]]), tree)
    assert states.flatten().tolist() == pytest.approx([0.094987, 0.072828, 0.091993], abs=2e-6)


def some_trees() -> tuple[np.ndarray, np.ndarray]:
    sizes = np.array([6, 1, 4])
    parent, turn = spanning_trees(rng_for("some trees").random((3, 6, 6)), sizes)
    exists = np.arange(6) < sizes[:, None]
    starts = np.array([[0], [6], [7]])
    return binary(np.where(parent >= 0, parent + starts, -1)[exists], turn[exists])


def test_levels_equal_one_node_at_a_time() -> None:
    torch.manual_seed(3)
    left, right = some_trees()
    x = torch.randn(11, 5)
    net = BothWays(5, 7)  # three numbers down, four up
    done: dict[int, tuple[Tensor, Tensor]] = {}

    def up(node: int) -> tuple[Tensor, Tensor]:
        if node < 0:
            return torch.zeros(4), torch.zeros(4)
        (hl, cl), (hr, cr), lstm = up(int(left[node])), up(int(right[node])), net.up
        i, o, fl, fr, u, r = (lstm.gates(x[node]) + lstm.left(hl) + lstm.right(hr)).view(6, 4)
        c = i.sigmoid() * u.tanh() + fl.sigmoid() * cl + fr.sigmoid() * cr
        done[node] = (r.sigmoid() * o.sigmoid() * c.tanh() + (1 - r.sigmoid()) * lstm.skip(x[node]), c)
        return done[node]

    seen: dict[int, Tensor] = {}

    def down(node: int, h: Tensor, c: Tensor) -> None:
        if node < 0:
            return
        i, o, f, u, r = (net.down.gates(x[node]) + net.down.parent(h)).view(5, 3)
        c = i.sigmoid() * u.tanh() + f.sigmoid() * c
        h = r.sigmoid() * o.sigmoid() * c.tanh() + (1 - r.sigmoid()) * net.down.skip(x[node])
        seen[node] = h
        for child in (left[node], right[node]):
            down(int(child), h, c)

    for root in sorted(set(range(11)) - set(left.tolist()) - set(right.tolist())):
        up(root)
        down(root, torch.zeros(3), torch.zeros(3))
    expected = torch.stack([torch.cat([seen[n], done[n][0]]) for n in range(11)])
    torch.testing.assert_close(net(x, forest(left, right)), expected)


def test_names_from_the_root_down() -> None:
    torch.manual_seed(4)
    left, right = some_trees()
    x = torch.randn(11, 5)
    net = Decoder(5, 3, torch.randn(4, 2))
    logits, labels = net(x, forest(left, right), lambda logits, nodes: (logits.argmax(1) + nodes) % 4)
    expected: dict[int, Tensor] = {}

    def name(node: int, h: Tensor, c: Tensor, row: int) -> None:
        if node < 0:
            return
        own = torch.cat([x[node], net.labels.weight[row]])
        h, c = net.cell.step(net.cell.gates(own)[None], net.cell.skip(own)[None], h, c)
        expected[node] = net.out(h)[0]
        label = (int(expected[node].argmax()) + node) % 4
        assert int(labels[node]) == label
        for child in (left[node], right[node]):
            name(int(child), h, c, label + 1)

    for root in sorted(set(range(11)) - set(left.tolist()) - set(right.tolist())):
        name(root, torch.zeros(1, 3), torch.zeros(1, 3), 0)
    torch.testing.assert_close(logits, torch.stack([expected[n] for n in range(11)]))


def test_start_of_the_weights() -> None:
    layer = torch.nn.Linear(6, 9)
    block_orthogonal(layer, 3)
    for block in layer.weight.split(3):
        torch.testing.assert_close(block @ block.T, torch.eye(3), atol=1e-5, rtol=0)
    assert Down(6, 3).parent.bias.tolist() == [0] * 6 + [1] * 3 + [0] * 6
    assert Up(6, 3).left.bias.tolist() == Up(6, 3).right.bias.tolist() == [0] * 6 + [0.5] * 6 + [0] * 6
