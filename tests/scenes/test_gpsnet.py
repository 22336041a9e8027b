"""GPS-Net: numbers by hand, a loop over objects as reference, batches, order of objects, its options, size."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

from small_graphs import parameters, pass_through, random_graph, reordered, set_to, together, untrained
from wayfare.core.bundle import snapshot
from wayfare.core.errors import ConfigError
from wayfare.scenes.batch import GraphBatch
from wayfare.scenes.heads.common import PRESETS, HeadSizes, Widths, slots
from wayfare.scenes.heads.gpsnet import GPSNet, Messages, fuse, nps_gammas, nps_loss

EIGHT = Widths(visual=8, embedding=1, position_hidden=1, position=1, hidden=1, pair=1)
TINY = Widths(visual=8, embedding=3, position_hidden=2, position=4, hidden=5, pair=8)
LN3 = math.log(3)


def net_of(**options) -> GPSNet:
    torch.manual_seed(11)
    return GPSNet(HeadSizes(4, 3, 5, 6, TINY), **options).eval()


# ---- by hand


def first(value: float) -> list[float]:
    return [value] + [0.0] * 7


def trio() -> GraphBatch:
    """A, B, C, of which only the first of eight features is not 0; the pairs A-B, A-C, B-A."""
    return GraphBatch(
        labels=torch.tensor([0, 1, 0]),
        boxes=torch.tensor([[0.0, 0, 10, 10]] * 3),
        image=torch.zeros(3, dtype=torch.int64),
        sizes=torch.tensor([[10.0, 10.0]]),
        pairs=torch.tensor([[0, 1], [0, 2], [1, 0]]),
        x=torch.tensor([first(1.0), first(2.0), first(0.0)]),
        u=torch.tensor([first(LN3 / 2), first(0.0), first(LN3)]),
        targets=torch.tensor([1, 0, 1]),
    )


def by_hand(**options) -> GPSNet:
    net = GPSNet(HeadSizes(2, 1, 8, 8, EIGHT), **options).eval()
    pass_through(net.objects.looks)
    pass_through(net.pairs.looks)
    set_to(net.join[0], 1.0)  # 8 x 10: looks pass, label and place do not
    layer = net.layers[0]
    for linear in (layer.subject, layer.object, layer.union, net.subject, net.union):
        set_to(linear, 1.0)
    set_to(net.object, 0.5)
    set_to(layer.weigh, [first(1.0)])
    set_to(layer.say[0], 1.0)  # the first four of eight
    select = torch.zeros(2, 8)
    select[0, 0] = select[1, 4] = 1.0  # the first of what i hears as subject, and as object
    set_to(layer.hear[0], select.tolist())
    layer.hear[1].eps = 0.0  # of two different numbers, the larger becomes 1 and the smaller -1
    spread = torch.zeros(8, 2)
    spread[0] = torch.tensor([1.0, 0.5])
    set_to(layer.hear[3], spread.tolist())
    set_to(net.predicate_out, [first(1.0), first(-1.0)], [0.0, 0.5])
    return net


def test_three_objects_by_hand() -> None:
    net, heard = by_hand(), []
    net.layers[0].hear.register_forward_pre_hook(lambda _, inputs: heard.append(inputs[0]))
    said = net(trio())
    # logits z_i z_j u_ij: AB 1 * 2 * ln 3 / 2 = ln 3, BA 2 * 1 * ln 3 = ln 9, AC 0; BC, CA, CB are no pairs: 0
    # sigmoids: AB 3/4, AC 1/2 | BA 9/10, BC 1/2 | CA 1/2, CB 1/2; rows to sum 1: .6 .4 | 9/14 5/14 | .5 .5
    # said: A 1, B 2, C 0. As subject A hears .6 * 2 + .4 * 0 = 1.2, B 9/14, C .5 + .5 * 2 = 1.5
    # as object A hears 9/14 * 2 + .5 * 0 = 18/14, B .6 * 1 + .5 * 0 = .6, C .4 * 1 + 5/14 * 2 = 1.1142857
    torch.testing.assert_close(heard[0][:, 0], torch.tensor([1.2, 9 / 14, 1.5]))
    torch.testing.assert_close(heard[0][:, 4], torch.tensor([18 / 14, 0.6, 0.4 + 5 / 7]))
    # normalised and clipped: A (0, 1), B (1, 0), C (1, 0); so z = A 1 + .5, B 2 + 1, C 0 + 1
    # F(z_i, z_j / 2): AB F(1.5, 1.5) = 3, AC F(1.5, .5) = 2 - 1 = 1, BA F(3, .75) = 3.75 - 2.25^2 = -1.3125
    # with u: AB 3 + .549306 - 2.450694^2 = -2.456595, AC 1 - 1 = 0,
    #         BA ReLU(-.213888) - 2.411112^2 = -5.813462
    expected = torch.tensor([-2.456595, 0.0, -5.813462])
    # B's two numbers differ by .04 only, which costs float32 a digit in their normal form
    torch.testing.assert_close(said.features[:, 0], expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(said.predicates, torch.stack([expected, 0.5 - expected], 1), atol=1e-4, rtol=0)
    assert said.objects is None and said.extra is None


def test_arm_by_hand() -> None:
    # logarithms of probabilities stay as they are; A and C have label 0, B label 1
    table = torch.tensor([[[0.5, 0.5], [0.25, 0.75]], [[0.9, 0.1], [0.2, 0.8]]]).log()
    net = by_hand(frequency=table)
    set_to(net.trust, [first(1.0), first(0.0)])
    gained = net(trio()).predicates - by_hand()(trio()).predicates
    # sigmoid(u): AB sigmoid(ln 3 / 2) = sqrt 3 / (1 + sqrt 3) = .633975, AC 1/2, BA 3/4; second column 1/2 everywhere
    trusts = torch.tensor([[0.633975, 0.5], [0.5, 0.5], [0.75, 0.5]])
    rows = torch.tensor([[0.25, 0.75], [0.5, 0.5], [0.9, 0.1]]).log()
    torch.testing.assert_close(gained, trusts * rows, atol=2e-6, rtol=0)
    # GPS-Net's own softening: the row of probabilities itself; .25 - ln(e^.25 + e^.75) = -.974077
    net = by_hand(frequency=table.exp())
    set_to(net.trust, [first(0.0), first(0.0)])
    gained = net(trio()).predicates - by_hand()(trio()).predicates
    assert gained[0, 0].item() == pytest.approx(0.5 * -0.974077, abs=2e-6)


def test_fuse_by_hand() -> None:
    assert fuse(torch.tensor([1.0, -2.0, 3.0]), torch.tensor([2.0, 1.0, 3.0])).tolist() == [2.0, -9.0, 6.0]


# ---- against the formulas, object by object


def slow_round(layer: Messages, graph: GraphBatch, z: Tensor, u: Tensor) -> Tensor:
    n = len(z)
    logits = [[torch.zeros(1) for _ in range(n)] for _ in range(n)]
    for (i, j), pair in zip(graph.pairs.tolist(), u, strict=True):
        logits[i][j] = layer.weigh(layer.subject(z[i]) * layer.object(z[j]) * layer.union(pair))
    a = [[logits[i][j].sigmoid() if i != j else torch.zeros(1) for j in range(n)] for i in range(n)]
    a = [[value / sum(row) for value in row] for row in a]
    out = []
    for i in range(n):
        as_subject = sum(a[i][j] * layer.say(z[j]) for j in range(n))
        as_object = sum(a[j][i] * layer.say(z[j]) for j in range(n))
        out.append(torch.relu(z[i] + layer.hear(torch.cat([as_subject, as_object]))))
    return torch.stack(out)


@pytest.mark.parametrize("layers", [1, 2])
def test_equals_a_loop_over_objects(layers: int) -> None:
    net = net_of(mode="sgdet", layers=layers)
    graph = random_graph(1, objects=5, pairs=9)
    seen, u = net.objects(graph), net.pairs(graph)
    z = torch.relu(net.join[0](torch.cat([seen.x, seen.e, seen.b], 1)))
    for layer in net.layers:
        z = slow_round(layer, graph, z, u)
    fused = []
    for (i, j), pair in zip(graph.pairs.tolist(), u, strict=True):
        fused.append(fuse(fuse(net.subject(z[i]), net.object(z[j])), net.union(pair)))
    said = net(graph)
    torch.testing.assert_close(said.features, torch.stack(fused), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(said.predicates, net.predicate_out(torch.stack(fused)), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(said.objects, net.label_out(z), atol=1e-5, rtol=1e-5)


def test_attention_rows_sum_to_one_even_where_nobody_is_wanted() -> None:
    layer = Messages(8)
    graph = together(random_graph(1, 3, 6), random_graph(2, 1, 0))
    set_to(layer.weigh, [first(0.0)], -200.0)  # sigmoids of 0 in float32; no 0 / 0 may come of it
    attention = layer.attention(graph, torch.rand(4, 8), torch.rand(6, 8), slots(graph))
    torch.testing.assert_close(attention[0], (torch.ones(3, 3) - torch.eye(3)) / 2)
    assert attention[1].abs().sum() == 0  # alone: nobody to attend to


# ---- batches and order


@pytest.mark.parametrize("options", [{}, {"mode": "sgdet", "layers": 2}])
def test_batch_equals_each_image_alone(options: dict) -> None:
    net = net_of(**options)
    # the image in the middle has one object and nothing to say
    images = [random_graph(1, 5, 11), random_graph(2, 1, 0), random_graph(3, 3, 6)]
    said, alone = net(together(*images)), [net(image) for image in images]
    assert said.predicates.shape == (17, 4)
    torch.testing.assert_close(said.predicates, torch.cat([a.predicates for a in alone]), atol=1e-5, rtol=1e-5)
    if said.objects is not None:
        torch.testing.assert_close(said.objects, torch.cat([a.objects for a in alone]), atol=1e-5, rtol=1e-5)


def test_order_of_objects_is_of_no_account() -> None:
    net = net_of(mode="sgdet", frequency=torch.rand(4, 4, 4))
    graph = random_graph(4, 5, 12)
    order = torch.tensor([3, 0, 4, 2, 1])
    other, places = reordered(graph, order)
    said, moved = net(graph), net(other)
    torch.testing.assert_close(moved.predicates, said.predicates[places], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(moved.objects, said.objects[order], atol=1e-5, rtol=1e-5)


def test_direction_matters() -> None:
    graph = random_graph(5, 3, 2)
    other = replace(graph, pairs=graph.pairs.flip(1))
    assert not torch.allclose(net_of()(graph).predicates, net_of()(other).predicates)


def test_nothing_to_look_at() -> None:
    said = net_of(mode="sgdet")(random_graph(1, 0, 0))
    assert said.predicates.shape == (0, 4) and said.objects.shape == (0, 4)


# ---- node priority sensitive loss


def related(objects: int, pairs: list[tuple[int, int]], targets: list[int] | None = None) -> GraphBatch:
    found = targets or [1] * len(pairs)
    return replace(random_graph(0, objects, 0), pairs=torch.tensor(pairs).view(-1, 2), targets=torch.tensor(found))


def test_gammas_by_hand() -> None:
    # a star of 4 beside an object on its own; 0-1 is said both ways and counts once, 3-4 is no relation
    star = related(5, [(0, 1), (0, 2), (1, 0), (3, 0), (3, 4)], [2, 1, 3, 1, 0])
    # degrees 3 1 1 1 0 of 6: twice theta = 1, 1/3, 0; (2/3)^5 ln 3 = .131687 * 1.098612 = .144673
    torch.testing.assert_close(nps_gammas(star), torch.tensor([0.0, 0.144673, 0.144673, 0.144673, 2.0]))
    # a path over 21 objects has 20 edges; twice theta = 2/40 at its ends, 4/40 within it
    # .95^5 ln 20 = .773781 * 2.995732 = 2.318, above the limit; .9^5 ln 10 = .59049 * 2.302585 = 1.359653
    path = related(21, [(i, i + 1) for i in range(20)])
    torch.testing.assert_close(nps_gammas(path), torch.tensor([2.0] + [1.359653] * 19 + [2.0]))
    # nothing related at all, and all together in one batch
    lonely = related(2, [(0, 1)], [0])
    assert nps_gammas(lonely).tolist() == [2.0, 2.0]
    whole = nps_gammas(together(star, lonely, path))
    assert torch.equal(whole, torch.cat([nps_gammas(g) for g in (star, lonely, path)]))


def test_nps_loss_by_hand() -> None:
    # p = 3/4 with gamma 2: (1/4)^2 ln(4/3) = .0625 * .287682 = .017980; p = 1/4 with gamma 0: ln 4 = 1.386294
    logits = torch.tensor([[LN3, 0.0], [LN3, 0.0]])
    loss = nps_loss(logits, torch.tensor([0, 1]), torch.tensor([2.0, 0.0]))
    assert float(loss) == pytest.approx((0.017980 + 1.386294) / 2, abs=1e-6)
    # gamma 0 is cross-entropy
    logits, labels = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 3, 0, 1])
    torch.testing.assert_close(nps_loss(logits, labels, torch.zeros(6)), cross_entropy(logits, labels))


def test_nps_of_a_certain_answer_has_a_gradient() -> None:
    logits = torch.tensor([[500.0, 0.0], [0.0, 500.0]], requires_grad=True)
    nps_loss(logits, torch.tensor([0, 0]), torch.tensor([0.1, 0.1])).backward()
    assert logits.grad is not None and logits.grad.isfinite().all()
    assert logits.grad[1].abs().sum() > 0


# ---- adaptive reasoning


def test_arm_goes_by_refined_labels() -> None:
    table = torch.rand(4, 4, 4, generator=torch.Generator().manual_seed(1))
    net, graph = net_of(mode="sgdet", frequency=table), random_graph(4, 5, 12)
    set_to(net.trust, torch.zeros(4, 8).tolist())
    set_to(net.label_out, torch.zeros(4, 8).tolist(), [0.0, 0.0, 5.0, 0.0])  # everything is a 2
    said = net(graph)
    plain = net.predicate_out(said.features)
    expected = (log_softmax(table, 2)[2, 2] / 2).expand(12, 4)
    # where the features are thousands, a sum has few digits left
    torch.testing.assert_close(said.predicates - plain, expected, atol=1e-3, rtol=0)


def test_the_table_travels_and_is_not_trained() -> None:
    net = net_of(frequency=torch.rand(4, 4, 4))
    assert "log_frequency" in snapshot(net) and "log_frequency" not in dict(net.named_parameters())


# ---- size, gradients, mistakes


def test_size_at_the_papers_widths() -> None:
    # 134 labels and 57 predicates, both with a background; 12,544 = 256 x 7 x 7 features
    with torch.device("meta"):  # shapes without numbers
        net = GPSNet(HeadSizes(134, 56, 12544, 12544, PRESETS["paper"]), mode="sgdet")
    encoder = (12544 * 1024 + 1024) + (1024 * 1024 + 1024)  # 13,895,680
    labels_and_places = 134 * 200 + (9 * 32 + 32 + 2 * 32 + 32 * 128 + 128)  # 31,408
    join = 1352 * 1024 + 1024  # 1,385,472
    attention = 3 * (1024 * 1024 + 1024) + 1024 + 1  # 3,149,825
    context = (1024 * 512 + 512) + (1024 * 256 + 256) + 2 * 256 + (256 * 1024 + 1024)  # 1,050,880
    outputs = (1024 * 134 + 134) + 3 * (1024 * 1024 + 1024) + (1024 * 57 + 57)  # 3,344,575
    own = labels_and_places + join + attention + context + outputs
    assert own == 8_962_160
    assert parameters(net) == 2 * encoder + own == 36_753_520
    # the benchmark's 37.1 M have the convolutions over the two rectangles, too; here they are the features' business
    rectangles = (2 * 128 * 49 + 128) + 2 * 128 + (128 * 256 * 9 + 256) + 2 * 256  # 308,608
    assert round((parameters(net) + rectangles) / 1e6, 1) == 37.1


@pytest.mark.parametrize(
    "options",
    [{}, {"mode": "sgdet", "layers": 2}, {"mode": "sgdet", "frequency": torch.eye(4).expand(4, 4, 4)}],
)
def test_gradient_reaches_every_parameter(options: dict) -> None:
    torch.manual_seed(12)
    net = GPSNet(HeadSizes(4, 3, 5, 6, replace(TINY, visual=16)), **options).train()
    batch = together(random_graph(6, 6, 9), random_graph(7, 5, 7))
    said = net(batch)
    loss = cross_entropy(said.predicates, batch.targets)
    if said.objects is not None:
        loss = loss + cross_entropy(said.objects, batch.labels)
    lost = untrained(net, loss)
    # BatchNorm takes away what this bias adds: its gradient is rounding, if anything
    assert lost - {"objects.place.0.bias"} == set()


def test_bad_options_are_named() -> None:
    with pytest.raises(ConfigError, match="layers = 0"):
        net_of(layers=0)
    with pytest.raises(ConfigError, match="multiple of 4"):
        GPSNet(HeadSizes(4, 3, 5, 6, replace(TINY, visual=6)))
    with pytest.raises(ConfigError, match=r"frequency \(4, 4, 3\): expected \(4, 4, 4\)"):
        net_of(frequency=torch.rand(4, 4, 3))
    with pytest.raises(ConfigError, match="not finite"):
        net_of(frequency=torch.zeros(4, 4, 4).log())
    with pytest.raises(ConfigError, match="unknown mode 'predcl'; did you mean 'predcls'"):
        net_of(mode="predcl")
