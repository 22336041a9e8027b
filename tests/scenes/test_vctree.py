"""VCTree: scores, tree and contexts by hand; both ways to learn the tree; batches, options, size."""

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
from wayfare.scenes.heads.common import PRESETS, HeadSizes, Widths, slots
from wayfare.scenes.heads.treelstm import BothWays
from wayfare.scenes.heads.vctree import VCTree, overlaps

TWO = Widths(visual=1, embedding=1, position_hidden=1, position=1, hidden=2, pair=1)
TINY = Widths(visual=6, embedding=3, position_hidden=2, position=4, hidden=5, pair=8)
# a bias ahead of BatchNorm: the batch's mean takes it away, and what is left of its slope is rounding, or nothing
AHEAD = {f"{part}.0.bias" for part in ("objects.place", "scores.place", "scores.overlap")}


def three() -> GraphBatch:
    """A, B, C with the pairs A-B, which is related, B-C and C-A."""
    return GraphBatch(
        labels=torch.tensor([0, 1, 0]),
        boxes=torch.tensor([[0.0, 0, 10, 10]] * 3),
        image=torch.zeros(3, dtype=torch.int64),
        sizes=torch.tensor([[10.0, 10.0]]),
        pairs=torch.tensor([[0, 1], [1, 2], [2, 0]]),
        x=torch.tensor([[1.0], [2.0], [0.5]]),
        u=torch.tensor([[1.0], [2.0], [3.0]]),
        targets=torch.tensor([1, 0, 0]),
    )


def halving(lstm: BothWays, down: list[float], up: list[float]) -> None:
    """All gates are 1/2 and nothing skips: c = u / 2 + c of relatives / 2, h = tanh(c) / 4;
    u = tanh(down input + h of the parent) and tanh(up input + h of the left - h of the right child)."""
    for parameter in lstm.parameters():
        nn.init.zeros_(parameter)
    lstm.down.gates.weight.data[3], lstm.up.gates.weight.data[4] = torch.tensor(down), torch.tensor(up)
    lstm.down.parent.weight.data[3] = 1.0
    lstm.up.left.weight.data[4], lstm.up.right.weight.data[4] = 1.0, -1.0


def by_hand(**options: object) -> VCTree:
    net = VCTree(HeadSizes(2, 1, 1, 1, TWO), vectors=torch.tensor([[0.5], [-0.5]]), **options).eval()
    pass_through(net.objects.looks)
    pass_through(net.pairs.looks)
    for silent in (net.objects.place[2], net.scores.label, net.scores.place[0], net.scores.overlap[0]):
        set_to(silent, 0.0)
    set_to(net.scores.looks, 1.0)
    set_to(net.scores.join[0], 1.0)  # q = (x, 0), and so are S and O
    set_to(net.scores.subject[0], 1.0)
    set_to(net.scores.object[0], 1.0)
    set_to(net.scores.weigh, [[1.0, 0, -1, 0, 2, 0]], -3.0)
    halving(net.context, [1.0, 0, 0], [0, 2.0, 0])  # x down, twice the label up
    halving(net.edges, [0, 0, 4.0, 0], [0, 0, 0, 4.0])  # four times the contexts
    set_to(net.pairing.roles, [[10.0, 0], [0, 0], [0, 10], [0, 0]], [-1.0, 0, 0, 0])
    set_to(net.pairing.join, [[1.0, 0, -2, 0]], 0.5)
    set_to(net.pairing.union, 2.0)
    set_to(net.pairing.predicate_out, [[1.0], [-1.0]], [0.0, 0.25])
    return net


# logit_ij = x_i x_j - x_j + 2 x_i - 3 with x = 1, 2, .5:
#   A: -1 -1 -1,  B: 2 3 1.5,  C: -2.5 -3 -2.25
# B has the largest mean and is the root; A joins under B (2), then C under B (1.5, A offers -1).
# Binary: A is B's left child, C is A's right child.
# ObjectEncoder' context, down over x:
#   B: u = tanh(2) = .964028             c .482014, h = tanh(c) / 4 = .111964
#   A: u = tanh(1 + .111964) = .804755   c .402378 + .241007 = .643385, h .141800
#   C: u = tanh(.5 + .141800) = .566124  c .283062 + .321692 = .604754, h .135106
# up over 2 e = A 1, B -1, C 1:
#   C: u = tanh(1) = .761594             c .380797, h .090850
#   A: u = tanh(1 - .090850) = .720724   c .360362 + .190399 = .550761, h .125273
#   B: u = tanh(-1 + .125273) = -.703768 c -.351884 + .275380 = -.076504, h -.019089
# Edges' context, down over 4 times the first: u = B .420134, A .550402, C .558845; h = B .051758, A .090728, C .109457
# up over 4 times the second: u = C .348205, A .428452, B -.003235; h = C .043091, A .073120, B .036982
# head = ReLU(10 down - 1) = A 0, B 0, C .094568; tail = 10 up = A .731202, B .369820, C .430911
# features = (head_i - 2 tail_j + .5) * 2 u
#   A-B: (0 - .739639 + .5) * 2 = -.479279
#   B-C: (0 - .861822 + .5) * 4 = -1.447288
#   C-A: (.094568 - 1.462405 + .5) * 6 = -5.207021
FEATURES = [-0.479279, -1.447288, -5.207021]
# softplus(logit) - related * logit, the same way round for A-B and B-A:
#   A: .313262 1.313262 .313262,  B: .126928 3.048587 1.701413,  C: .078890 .048587 .100207;  their mean .782711
TREE_LOSS = 0.782711


def test_by_hand() -> None:
    net = by_hand()
    logits, scores = net.scores(three(), net.objects(three()), slots(three()))
    expected = torch.tensor([[[-1, -1, -1], [2, 3, 1.5], [-2.5, -3, -2.25]]])
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(scores, expected.sigmoid())
    said = net(three())
    assert said.features.flatten().tolist() == pytest.approx(FEATURES, abs=2e-6)
    torch.testing.assert_close(said.predicates, torch.tensor([[f, 0.25 - f] for f in FEATURES]), atol=2e-6, rtol=0)
    assert said.extra.item() == pytest.approx(TREE_LOSS, abs=2e-6)
    assert said.objects is None
    assert net(replace(three(), targets=torch.zeros(0, dtype=torch.int64))).extra is None


def test_tree_loss_is_a_mean_over_images() -> None:
    """Beside another image, whatever its size, and one without objects."""
    net = by_hand()
    alone = replace(three(), labels=torch.tensor([1]), boxes=three().boxes[:1], image=torch.zeros(1, dtype=torch.int64))
    alone = replace(
        alone, x=torch.tensor([[3.0]]), pairs=three().pairs[:0], u=three().u[:0], targets=three().targets[:0]
    )
    # logit 9 - 3 + 6 - 3 = 9, unrelated to itself: softplus(9) = 9.000123
    both = net(together(three(), alone))
    assert both.extra.item() == pytest.approx((TREE_LOSS + 9.000123) / 2, abs=2e-5)
    empty = replace(three(), sizes=torch.tensor([[10.0, 10.0]] * 2))
    assert net(empty).extra.item() == pytest.approx(TREE_LOSS, abs=2e-6)


def test_overlaps_by_hand() -> None:
    graph = replace(
        three(), boxes=torch.tensor([[0.0, 0, 4, 4], [2, 2, 6, 4], [8, 8, 10, 10]]), sizes=torch.tensor([[10.0, 10.0]])
    )
    # areas 16, 8, 4 of 100; the first two share 2 x 2 = 4, IoU 4 / 20; everyone meets itself
    expected = [
        [2, 0.20, 1.2, 0.10, 0.6, 0.16],
        [2, 0.12, 1.2, 0.06, 0.6, 0.08],
        [1, 0.04, 1.0, 0.04, 1.0, 0.04],
    ]
    torch.testing.assert_close(overlaps(graph, slots(graph)), torch.tensor(expected))
    batch = together(graph, random_graph(1, 5, 4, 1, 1))
    torch.testing.assert_close(overlaps(batch, slots(batch))[:3], torch.tensor(expected))


def test_frequency_is_added_exactly() -> None:
    table = torch.arange(8.0).view(2, 2, 2) - 3
    plain = by_hand()(three()).predicates
    added = torch.tensor([[-1.0, 0.0], [1.0, 2.0], [-3.0, -2.0]])  # 0-1, 1-0, 0-0
    assert torch.equal(by_hand(frequency=table)(three()).predicates, plain + added)


# ---- the tree by reinforcement


class Rewards:
    """Says what it was told to say, and keeps what it was shown."""

    def __init__(self, *values: float) -> None:
        self.values, self.shown = values, list[HeadOutput]()

    def __call__(self, graphs: GraphBatch, said: HeadOutput) -> Tensor:
        self.shown.append(said)
        return torch.full((graphs.images,), self.values[(len(self.shown) - 1) % len(self.values)])


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_reinforcement_by_hand() -> None:
    # Three objects leave two departures. At turn 1 C joins under B in place of A: score(1.5) of score(2) + score(1.5);
    # at turn 2 C joins under A in place of B: score(-1) of score(1.5) + score(-1).
    early = math.log(sigmoid(1.5) / (sigmoid(2) + sigmoid(1.5)))
    late = math.log(sigmoid(-1) / (sigmoid(1.5) + sigmoid(-1)))
    rewards = Rewards(0.25, 1.0)
    net = by_hand(tree="reinforced", reward=rewards, samples=1).train()
    seen = set()
    for seed in range(8):
        torch.manual_seed(seed)
        extra = net(three()).extra
        kind = min((early, late), key=lambda p: abs(extra.item() + 0.75 * p))
        assert extra.item() == pytest.approx((0.25 - 1.0) * kind, abs=1e-5)
        seen.add(kind)
    assert seen == {early, late}
    by_prim, by_chance = rewards.shown[:2]
    assert by_prim.features.flatten().tolist() == pytest.approx(FEATURES, abs=2e-6)
    assert not torch.allclose(by_prim.features, by_chance.features)


def test_a_better_tree_becomes_likelier() -> None:
    def slope(reward: float) -> Tensor:
        torch.manual_seed(0)
        net = by_hand(tree="reinforced", reward=Rewards(0.5, reward), samples=1).train()
        net(three()).extra.backward()
        return net.scores.weigh.weight.grad

    better, same, worse = slope(1.0), slope(0.5), slope(0.0)
    assert (same == 0).all() and better.abs().sum() > 0
    torch.testing.assert_close(better, -worse)
    torch.manual_seed(0)
    net = by_hand(tree="reinforced", reward=Rewards(0.5, 1.0), samples=1).train()
    before = net(three()).extra
    with torch.no_grad():
        net.scores.weigh.weight -= 0.01 * better
    torch.manual_seed(0)
    assert net(three()).extra < before  # -gain * log p: smaller where p is larger


def test_reinforcement_trains_the_scores_alone() -> None:
    torch.manual_seed(0)
    rewards = Rewards(0.0, 1.0, 2.0, 3.0)
    net = VCTree(HeadSizes(4, 3, 5, 6, TINY), mode="sgdet", tree="reinforced", reward=rewards, samples=3)
    graph = together(random_graph(1, 5, 20), random_graph(2, 4, 12), random_graph(3, 2, 2))
    assert {name.split(".")[0] for name, p in net.named_parameters() if p.requires_grad} == {"scores"}
    said = net(graph)
    assert len(rewards.shown) == 4  # Prim's trees and three more
    assert not any(m.training for m in net.modules() if isinstance(m, nn.BatchNorm1d))
    said.extra.backward()
    assert all(p.grad is not None for p in net.scores.parameters())
    assert net.eval()(graph).extra is None and len(rewards.shown) == 4
    plain = VCTree(HeadSizes(4, 3, 5, 6, TINY), mode="sgdet")
    plain.load_state_dict(net.state_dict())  # the second stage starts from the first's weights
    pair = replace(random_graph(3, 2, 2), targets=torch.tensor([1, 0]))
    assert net.train()(pair).extra.item() == 0  # two objects have but one tree


# ---- as a part of a batch


def same(one: HeadOutput, other: HeadOutput, pairs: slice, objects: slice) -> None:
    torch.testing.assert_close(one.predicates, other.predicates[pairs], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(one.features, other.features[pairs], atol=1e-5, rtol=1e-5)
    if one.objects is not None:
        torch.testing.assert_close(one.objects, other.objects[objects], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", ["predcls", "sgdet"])
def test_images_do_not_hear_each_other(mode: str) -> None:
    torch.manual_seed(0)
    net = VCTree(HeadSizes(4, 3, 5, 6, TINY), mode=mode).eval()
    first, second = random_graph(1, 3, 6), random_graph(2, 6, 17)
    both = net(together(first, second))
    same(net(first), both, slice(0, 6), slice(0, 3))
    same(net(second), both, slice(6, None), slice(3, None))
    torch.testing.assert_close(both.extra, (net(first).extra + net(second).extra) / 2)


def test_order_of_the_list_does_not_matter() -> None:
    torch.manual_seed(0)
    net = VCTree(HeadSizes(4, 3, 5, 6, TINY)).eval()
    graph = random_graph(1, 5, 12)
    other, places = reordered(graph, torch.tensor([3, 0, 4, 2, 1]))
    torch.testing.assert_close(net(other).predicates, net(graph).predicates[places], atol=1e-5, rtol=1e-5)


def test_images_without_pairs_or_objects() -> None:
    net = VCTree(HeadSizes(4, 3, 5, 6, TINY), mode="sgdet").eval()
    empty = replace(together(random_graph(1, 3, 6), random_graph(2, 0, 0)), sizes=torch.ones(3, 2) * 100)
    assert net(empty).predicates.shape == (6, 4)
    nobody = net(random_graph(2, 0, 0))
    assert nobody.predicates.shape == (0, 4) and nobody.objects.shape == (0, 4)


def test_labels_are_drawn_in_training_and_best_otherwise() -> None:
    torch.manual_seed(0)
    net = VCTree(HeadSizes(4, 3, 5, 6, TINY), mode="sgdet")
    logits = torch.tensor([[0.0, 0.0, -100.0, -100.0]] * 200)
    drawn = net._choose(logits, torch.arange(200))
    assert 70 < int((drawn == 0).sum()) < 130 and int(drawn.max()) == 1
    logits = logits + torch.tensor([0, 1, 0, 0])
    assert net.eval()._choose(logits, torch.arange(200)).unique().tolist() == [1]
    # names that are drawn would hide which tree is better
    second_stage = VCTree(HeadSizes(4, 3, 5, 6, TINY), mode="sgdet", tree="reinforced", reward=Rewards(0.0)).train()
    assert second_stage._choose(logits, torch.arange(200)).unique().tolist() == [1]


@pytest.mark.parametrize("mode", ["predcls", "sgdet"])
def test_every_parameter_learns(mode: str) -> None:
    torch.manual_seed(0)
    graph = together(random_graph(1, 5, 20), random_graph(2, 4, 12))
    net = VCTree(HeadSizes(4, 3, 5, 6, TINY), mode=mode, frequency=torch.zeros(4, 4, 4))
    said = net(graph)
    loss = cross_entropy(said.predicates, graph.targets) + said.extra
    if said.objects is not None:
        loss = loss + cross_entropy(said.objects, graph.labels)
    assert untrained(net, loss) <= AHEAD


def test_the_tree_loss_stays_with_the_scores() -> None:
    torch.manual_seed(0)
    net = VCTree(HeadSizes(4, 3, 5, 6, TINY))
    missed = untrained(net, net(random_graph(1, 5, 20)).extra)
    assert {name for name, _ in net.named_parameters() if not name.startswith("scores.")} <= missed
    assert not any(name.startswith("scores.") for name in missed - AHEAD)


def test_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The published 58.5 M with 28.1 M of feature extractors, which are the encoders here and the provider's RoIs."""
    monkeypatch.setattr(nn.init, "orthogonal_", nn.init.zeros_)  # quicker, and as many
    paper = HeadSizes(134, 56, 1, 1, PRESETS["paper"])  # 133 classes and the public code's background
    net = VCTree(paper, mode="sgdet")

    def both_ways(width: int) -> int:
        down, up = 6 * 256 * (width + 1) + 5 * 256 * 257, 7 * 256 * (width + 1) + 2 * 6 * 256 * 257
        return down + up

    scores = (1025 + 201 + 10 + 7) * 128 + 4 * 128 + 3 * 513 * 512 + 1537
    names = 6 * 512 * (1352 + 512 + 200 + 1) + 5 * 512 * 513 + 513 * 134
    tables = (135 + 134 + 134) * 200
    places = 9 * 32 + 32 + 2 * 32 + 33 * 128
    pairs = 513 * 1024 + 2 * 1025 * 4096 + 4097 * 57
    encoders = parameters(net.objects.looks) + parameters(net.pairs)
    whole = scores + both_ways(1352) + both_ways(1736) + names + tables + places + pairs
    assert parameters(net) - encoders == whole == 30_436_120
    assert round((whole + 28_099_968) / 1e6, 1) == 58.5


def test_the_same_seed_gives_the_same_bits() -> None:
    def run() -> Tensor:
        torch.manual_seed(5)
        return VCTree(HeadSizes(4, 3, 5, 6, TINY), mode="sgdet")(random_graph(1, 4, 12)).predicates

    assert torch.equal(run(), run())


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mode": "sgcls"}, "unknown mode"),
        ({"tree": "rl"}, "unknown tree 'rl'"),
        ({"tree": "reinforced"}, "a reward is given if and only if"),
        ({"reward": Rewards(0.0)}, "a reward is given if and only if"),
        ({"samples": 0}, "samples = 0: expected at least 1"),
        ({"frequency": torch.zeros(4, 4, 3)}, r"frequency \(4, 4, 3\): expected \(4, 4, 4\)"),
    ],
)
def test_bad_options(options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        VCTree(HeadSizes(4, 3, 5, 6, TINY), **options)


def test_one_number_cannot_go_both_ways() -> None:
    with pytest.raises(ConfigError, match=r"hidden = 1: expected at least 2"):
        VCTree(HeadSizes(4, 3, 5, 6, replace(TINY, hidden=1)))
