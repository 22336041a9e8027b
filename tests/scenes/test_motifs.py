"""MOTIFS: numbers by hand, names along the line, batches, frequency bias, size."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from small_graphs import parameters, pass_through, random_graph, reordered, set_to, together, untrained
from wayfare.core.errors import ConfigError
from wayfare.scenes.batch import GraphBatch, HeadOutput
from wayfare.scenes.heads.common import PRESETS, HeadSizes, Widths
from wayfare.scenes.heads.motifs import MOTIFS, Lines

ONE = Widths(visual=1, embedding=1, position_hidden=1, position=1, hidden=1, pair=1)
TINY = Widths(visual=6, embedding=3, position_hidden=2, position=4, hidden=5, pair=8)
LN2, LN3 = math.log(2), math.log(3)


def three() -> GraphBatch:
    """A, B, C with the centres 5, 25, 15: from right to left B, C, A. PairEncoder A-B, B-C, C-A."""
    return GraphBatch(
        labels=torch.tensor([0, 1, 0]),
        boxes=torch.tensor([[0.0, 0, 10, 10], [20, 0, 30, 10], [10, 0, 20, 10]]),
        image=torch.zeros(3, dtype=torch.int64),
        sizes=torch.tensor([[30.0, 10.0]]),
        pairs=torch.tensor([[0, 1], [1, 2], [2, 0]]),
        x=torch.tensor([[0.0], [LN3], [LN2]]),
        u=torch.tensor([[1.0], [2.0], [3.0]]),
        targets=torch.tensor([1, 0, 1]),
    )


def halving(lstm: nn.LSTM, forward: list[float], backward: list[float]) -> None:
    """Gates i, f and o are 1/2: c <- tanh(weights input + h) / 2 + c / 2, h = tanh(c) / 2, in both directions."""
    for parameter in lstm.parameters():
        nn.init.zeros_(parameter)
    with torch.no_grad():
        lstm.weight_ih_l0[2], lstm.weight_ih_l0_reverse[2] = torch.tensor(forward), torch.tensor(backward)
        lstm.weight_hh_l0[2], lstm.weight_hh_l0_reverse[2] = 1.0, 1.0


def by_hand(**options: Tensor) -> MOTIFS:
    net = MOTIFS(HeadSizes(2, 1, 1, 1, ONE), vectors=torch.tensor([[0.5], [-0.5]]), **options).eval()
    pass_through(net.objects.looks)
    pass_through(net.pairs.looks)
    set_to(net.objects.place[2], 0.0)  # places say nothing here
    halving(net.context.lstm, [1.0, 0.0, 0.0], [0.0, 2.0, 0.0])  # x forward, twice the label backward
    set_to(net.context.out, [[1.0, -1.0]])
    halving(net.edges.lstm, [0.0, 0.0, 1.0], [1.0, 0.0, 0.0])  # the context forward, the label backward
    set_to(net.edges.out, [[1.0, 2.0]], 0.1)
    set_to(net.pairing.roles, [[2.0], [3.0]], [0.0, 1.0])
    set_to(net.pairing.join, [[1.0, -1.0]], 0.5)
    set_to(net.pairing.union, 2.0)
    set_to(net.pairing.predicate_out, [[1.0], [-1.0]], [0.0, 0.25])
    return net


# ObjectEncoder' context, forward over x = B ln 3, C ln 2, A 0:
#   B: tanh(ln 3) = .8                       c .400000, h = tanh(.4) / 2 = .189974
#   C: tanh(.693147 + .189974) = .707980     c .353990 + .200000 = .553990, h .251752
#   A: tanh(.251752) = .246565               c .123283 + .276995 = .400277, h .190093
# backward over 2 e = A 1, C 1, B -1:
#   A: tanh(1) = .761594                     c .380797, h .181700
#   C: tanh(1.181700) = .827987              c .413993 + .190399 = .604392, h .270084
#   B: tanh(-1 + .270084) = -.623014         c -.311507 + .302196 = -.009311, h -.004655
# context = forward - backward:              A .008393, B .194630, C -.018331
# Edges' context, forward over it:
#   B: tanh(.194630) = .192209               c .096104, h .047905
#   C: tanh(-.018331 + .047905) = .029565    c .014782 + .048052 = .062835, h .031376
#   A: tanh(.008393 + .031376) = .039749     c .019874 + .031417 = .051292, h .025623
# backward over e = A .5, C .5, B -.5:
#   A: tanh(.5) = .462117                    c .231059, h .113516
#   C: tanh(.613516) = .546598               c .273299 + .115529 = .388828, h .185175
#   B: tanh(-.5 + .185175) = -.304820        c -.152410 + .194414 = .042004, h .020990
# d = forward + 2 backward + .1:             A .352656, B .189884, C .501726
# head = 2 d, tail = 3 d + 1; features = (head_i - tail_j + .5) * 2 u
#   A-B: (.705312 - 1.569652 + .5) * 2 = -.728680
#   B-C: (.379768 - 2.505177 + .5) * 4 = -6.501634
#   C-A: (1.003451 - 2.057968 + .5) * 6 = -3.327101
FEATURES = [-0.728680, -6.501634, -3.327101]


def test_by_hand() -> None:
    said = by_hand()(three())
    assert said.features.flatten().tolist() == pytest.approx(FEATURES, abs=2e-6)
    expected = torch.tensor([[f, 0.25 - f] for f in FEATURES])
    torch.testing.assert_close(said.predicates, expected, atol=2e-6, rtol=0)
    assert said.objects is None and said.extra is None


def test_frequency_is_added_exactly() -> None:
    table = torch.arange(8.0).view(2, 2, 2) - 3
    graph = three()  # labels 0, 1, 0: the pairs are 0-1, 1-0, 0-0
    net = by_hand(frequency=table)
    plain = by_hand()(graph).predicates
    assert torch.equal(net(graph).predicates, plain + torch.tensor([[-1.0, 0.0], [1.0, 2.0], [-3.0, -2.0]]))
    net(graph).predicates[:, 1].sum().backward()  # trained: each pair that is there, and no other
    assert net.pairing.frequency.table.grad.tolist() == [[[0, 1], [0, 1]], [[0, 1], [0, 0]]]
    assert net.pairing.frequency.table is not table


def test_frequency_follows_refined_labels() -> None:
    torch.manual_seed(0)
    table = torch.randn(4, 4, 4)
    graph = random_graph(1, 5, 9)
    net = MOTIFS(HeadSizes(4, 3, 5, 6, TINY), mode="sgdet", frequency=table).eval()
    with_bias = net(graph)
    labels = with_bias.objects.argmax(1)
    assert not torch.equal(labels, graph.labels)
    nn.init.zeros_(net.pairing.frequency.table)
    added = table[labels[graph.pairs[:, 0]], labels[graph.pairs[:, 1]]]
    torch.testing.assert_close(with_bias.predicates - net(graph).predicates, added)


def test_lines() -> None:
    boxes = [[0.0, 8], [9, 11], [2, 6], [5, 5], [7, 1], [3, 3], [1, 1]]  # centres 4, 10, 4, 5, 4, 3, 1
    graph = replace(
        together(random_graph(1, 2, 0), random_graph(2, 4, 0), random_graph(3, 1, 0)),
        boxes=torch.tensor([[low, 0, high, 1] for low, high in boxes]),
    )
    # images {0, 1}, {2, 3, 4, 5} and {6}, of 2, 4 and 1; in equal places the first comes first
    right = Lines(graph, "right-left")
    assert right.line.tolist() == [1, 0, 3, 2, 4, 5, 6]
    assert right.packed.tolist() == [3, 1, 6, 2, 0, 4, 5] and right.sizes.tolist() == [3, 2, 1, 1]
    assert Lines(graph, "left-right").line.tolist() == [0, 1, 5, 2, 4, 3, 6]
    assert [level.nodes.tolist() for level in right.forest().levels] == [[1, 3, 6], [0, 2], [4], [5]]


def test_names_along_the_line() -> None:
    """Each object is told the label of its right neighbour: the true one in training, its own guess afterwards."""
    torch.manual_seed(0)
    graph = random_graph(3, 6, 10)
    net = MOTIFS(HeadSizes(4, 3, 5, 6, TINY), mode="sgdet")
    net.objects.place[1].eval()
    line = Lines(graph).line.tolist()
    z = net.objects(graph).z
    own = torch.cat([z, net.context(z, Lines(graph))], 1)

    def names(told: list[int] | None) -> Tensor:
        h = c = torch.zeros(1, 5)
        row, logits = 0, {}
        for node in line:
            x = torch.cat([own[node], net.decoder.labels.weight[row]])
            h, c = net.decoder.cell.step(net.decoder.cell.gates(x)[None], net.decoder.cell.skip(x)[None], h, c)
            logits[node] = net.decoder.out(h)[0]
            row = 1 + (int(logits[node].argmax()) if told is None or told[node] < 0 else told[node])
        return torch.stack([logits[node] for node in range(len(line))])

    free = names(None)
    assert not torch.allclose(free, names(graph.labels.tolist()))
    torch.testing.assert_close(net(graph).objects, names(graph.labels.tolist()))
    truth = torch.tensor([0, 1, -1, 3, -1, 2])
    torch.testing.assert_close(net(replace(graph, truth=truth)).objects, names(truth.tolist()))
    torch.testing.assert_close(net.eval()(replace(graph, truth=truth)).objects, free)


def same(one: HeadOutput, other: HeadOutput, pairs: slice, objects: slice) -> None:
    torch.testing.assert_close(one.predicates, other.predicates[pairs], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(one.features, other.features[pairs], atol=1e-5, rtol=1e-5)
    if one.objects is not None:
        torch.testing.assert_close(one.objects, other.objects[objects], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", ["predcls", "sgdet"])
@pytest.mark.parametrize("order", ["right-left", "left-right"])
def test_images_do_not_hear_each_other(mode: str, order: str) -> None:
    torch.manual_seed(0)
    net = MOTIFS(HeadSizes(4, 3, 5, 6, TINY), mode=mode, order=order).eval()
    first, second = random_graph(1, 3, 6), random_graph(2, 5, 7)
    both = net(together(first, second))
    same(net(first), both, slice(0, 6), slice(0, 3))
    same(net(second), both, slice(6, None), slice(3, None))


def test_order_of_the_list_does_not_matter_but_that_of_the_centres_does() -> None:
    torch.manual_seed(0)
    net = MOTIFS(HeadSizes(4, 3, 5, 6, TINY)).eval()
    graph = random_graph(1, 5, 12)
    said = net(graph).predicates
    other, places = reordered(graph, torch.tensor([3, 0, 4, 2, 1]))
    torch.testing.assert_close(net(other).predicates, said[places], atol=1e-5, rtol=1e-5)
    net.order = "left-right"
    assert not torch.allclose(net(graph).predicates, said, atol=1e-4)


def test_images_without_pairs_or_objects() -> None:
    net = MOTIFS(HeadSizes(4, 3, 5, 6, TINY), mode="sgdet").eval()
    some = random_graph(1, 3, 6)
    empty = replace(together(some, random_graph(2, 0, 0)), sizes=torch.ones(3, 2) * 100)  # the last two have nobody
    assert net(empty).predicates.shape == (6, 4)
    nobody = net(random_graph(2, 0, 0))
    assert nobody.predicates.shape == (0, 4) and nobody.objects.shape == (0, 4)


@pytest.mark.parametrize("mode", ["predcls", "sgdet"])
def test_every_parameter_learns(mode: str) -> None:
    torch.manual_seed(0)
    graph = together(random_graph(1, 5, 20), random_graph(2, 4, 12))
    net = MOTIFS(HeadSizes(4, 3, 5, 6, TINY), mode=mode, frequency=torch.zeros(4, 4, 4))
    said = net(graph)
    loss = cross_entropy(said.predicates, graph.targets)
    if said.objects is not None:
        loss = loss + cross_entropy(said.objects, graph.labels)
    # the batch's mean takes a bias ahead of BatchNorm away: what is left of its slope is rounding, or nothing
    assert untrained(net, loss) <= {"objects.place.0.bias"}


def test_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The published 63.0 M with 28.1 M of feature extractors, which are the encoders here and the provider's RoIs."""
    monkeypatch.setattr(nn.init, "orthogonal_", nn.init.zeros_)  # quicker, and as many
    paper = HeadSizes(134, 56, 1, 1, PRESETS["paper"])  # 133 classes and the public code's background
    net = MOTIFS(paper, mode="sgdet")
    reads = 2 * (2048 * (1352 + 512) + 2 * 2048) + 2 * (2048 * (1736 + 512) + 2 * 2048) + 2 * (1024 * 512 + 512)
    names = 6 * 512 * (1352 + 512 + 200 + 1) + 5 * 512 * 513 + 513 * 134
    tables = (135 + 134 + 134) * 200
    places = 9 * 32 + 32 + 2 * 32 + 33 * 128
    pairs = 513 * 1024 + 2 * 1025 * 4096 + 4097 * 57
    encoders = parameters(net.objects.looks) + parameters(net.pairs)
    assert parameters(net) - encoders == reads + names + tables + places + pairs == 34_875_287
    assert round((parameters(net) - encoders + 28_099_968) / 1e6, 1) == 63.0


def test_the_same_seed_gives_the_same_bits() -> None:
    def run() -> Tensor:
        torch.manual_seed(5)
        return MOTIFS(HeadSizes(4, 3, 5, 6, TINY), mode="sgdet")(random_graph(1, 4, 12)).predicates

    assert torch.equal(run(), run())


def test_bad_options() -> None:
    with pytest.raises(ConfigError, match="unknown order 'left'"):
        MOTIFS(HeadSizes(4, 3, 5, 6, TINY), order="left")
    with pytest.raises(ConfigError, match="unknown mode"):
        MOTIFS(HeadSizes(4, 3, 5, 6, TINY), mode="sgcls")
    with pytest.raises(ConfigError, match=r"frequency \(4, 4, 3\): expected \(4, 4, 4\)"):
        MOTIFS(HeadSizes(4, 3, 5, 6, TINY), frequency=torch.zeros(4, 4, 3))
    with pytest.raises(ConfigError, match="not finite"):
        MOTIFS(HeadSizes(4, 3, 5, 6, TINY), frequency=torch.zeros(4, 4, 4).log())
