"""FedCAFE's features, losses, memories and weights by hand, and what each of its switches changes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from toy import ONE_BATCH, Lab
from toy_pairs import Drawn, pairs
from wayfare.core.bundle import Bundle, digest
from wayfare.core.errors import ConfigError, WayfareError
from wayfare.core.protocols import Client, Training
from wayfare.strategies._memory import class_means, cluster, kmeans_seeds, matched, present, random_seeds
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedcafe import MEMORY, CafeTerms, Enhanced, FedCAFE, bounded_memory, similarity

OFF = FedCAFE(enhancement=False, lambda_e=0, lambda_c=0, lambda_p=0, aggregation="off")
# c0: classes a, a, b, b; c1: a, a and nothing else. W = I: raw features are the inputs.
TWO = pairs(
    [(1, 0), (2, 0), (0, 1), (0, 3), (1, 0), (4, 0)],
    [(1, 0), (1, 0), (0, 1), (0, 1), (2, 0), (1, 0)],
    [[1, 0], [1, 0], [0, 1], [0, 1], [1, 0], [1, 0]],
    4, 2,
)  # fmt: skip


def rows(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def same_scores(net: Enhanced) -> Enhanced:
    """Classifiers that find all classes alike."""
    with torch.no_grad():
        for layer in net.classifiers.values():
            layer.weight.zero_(), layer.bias.zero_()
    return net


def one(strategy: FedCAFE, raw: tuple[float, float], memory: list[list[float]], **received: tuple[float, float]) -> Any:
    """A network with this memory, its terms, and a batch with one picture of class a, in a client of three pairs."""
    task, parts = pairs([raw] * 3, [raw] * 3, [[1, 0]] * 3, 3)
    net = same_scores(strategy.prepare(task, task.network()))
    net.memory.copy_(torch.tensor(memory))
    guides = {view: torch.tensor([[9.0, 9.0], [9.0, 9.0], z]) for view, z in received.items()}
    batch = task.batch(Client("c0", parts[0], parts[0][:0]), np.array([2]), "image")
    return net, CafeTerms(strategy, net, guides), task.forward(net, batch), batch


# ---- the client


def test_the_enhanced_feature_by_hand() -> None:
    # L^ = (1/2, 1/2), memory (1,0) and (0,3): V_M = (0.5, 1.5); O = (1,-2):
    # V_E = (1 + tanh(1) 0.5, -2 + tanh(-2) 1.5)
    net = one(FedCAFE(), (1, -2), [[1, 0], [0, 3]])[0]
    expected = [1 + math.tanh(1) * 0.5, -2 - math.tanh(2) * 1.5]
    assert net.enhance("image", torch.tensor([[1.0, -2.0]])).tolist() == [pytest.approx(expected, abs=1e-6)]
    with torch.no_grad():  # scores 0 and ln 3 for class b: L^ = (1/4, 3/4), and each view has its own classifier
        net.classifiers["text"].bias.copy_(torch.tensor([0.0, math.log(3)]))
    expected = [1 + math.tanh(1) * 0.25, -2 - math.tanh(2) * 0.75 * 3]
    assert net.enhance("text", torch.tensor([[1.0, -2.0]])).tolist() == [pytest.approx(expected, abs=1e-6)]


@pytest.mark.parametrize(
    ("prediction", "shares"),
    [("softmax", (1 / 4, 3 / 4)), ("sigmoid", (1 / 2, 3 / 4)), ("normalised", (2 / 5, 3 / 5))],
)  # of the scores 0 and ln 3: sigmoids 1/2 and 3/4
def test_predictions_by_hand(prediction: Any, shares: tuple[float, float]) -> None:
    net, terms, output, batch = one(FedCAFE(prediction=prediction, lambda_e=0), (1, 1), [[1, 0], [0, 1]])
    with torch.no_grad():
        net.classifiers["image"].bias.copy_(torch.tensor([0.0, math.log(3)]))
    gain = (net.enhance("image", torch.ones(1, 2)) - 1) / math.tanh(1)
    assert gain.tolist() == [pytest.approx(shares, abs=1e-6)]
    # the class is a: -log of its share over 2 classes; with sigmoids also -log(1 - 3/4) for b
    loss = -math.log(shares[0]) - (math.log(1 / 4) if prediction == "sigmoid" else 0)
    assert terms(output, batch).item() == pytest.approx(loss / 2, abs=1e-6)


@pytest.mark.parametrize("prediction", ["softmax", "normalised", "sigmoid"])
def test_enhancement_turns_no_bit_round_where_predictions_sum_to_1(prediction: Any) -> None:
    """|tanh O| <= |O|, and rows of length 1 at most, weighted by shares, have no number beyond 1."""
    generator = torch.Generator().manual_seed(0)
    task, _ = pairs([(0, 1)] * 3, [(0, 1)] * 3, [[1, 0]] * 3, 3)
    net = FedCAFE(prediction=prediction).prepare(task, task.network())
    raw = torch.randn(2000, 2, generator=generator)
    net.memory.copy_(torch.tensor([[-1.0, 0.0], [-1.0, 0.0]]))  # as much against bits of +1 as there can be
    with torch.no_grad():
        net.classifiers["image"].bias.fill_(5)  # sigmoids of nearly 1
        same = torch.equal(net.enhance("image", raw).sign(), raw.sign())
    assert same == (prediction != "sigmoid")  # two classes at once may outweigh what the network said


def test_the_losses_by_hand() -> None:
    # O = (3,4), L^ = (1/2,1/2), memory (8,0) and (0,0): V_M = (4,0), V_E = (3 + 4 tanh 3, 4)
    x = 3 + 4 * math.tanh(3)
    length = math.hypot(x, 4)
    l_e = 1 - (3 * x + 4 * 4) / (5 * length)
    # the received model's features of this pair: image (0,2), text (5,0): cosines 4/length and x/length
    l_c = (1 - 4 / length) / 2 + (1 - x / length) / 2
    l_p = -math.log(1 / 2) / 2  # the mean over one sample and two classes
    for values in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (0.1, 0.1, 1)):
        e, c, p = values
        strategy = FedCAFE(lambda_e=e, lambda_c=c, lambda_p=p)
        _, terms, output, batch = one(strategy, (3, 4), [[8, 0], [0, 0]], image=(0, 2), text=(5, 0))
        assert terms(output, batch).item() == pytest.approx(e * l_e + c * l_c + p * l_p, abs=1e-6)


def test_readings_of_the_classification_loss_by_hand() -> None:
    # a sample of both classes, L^ = (1/2,1/2): -(log 1/2 + log 1/2) = 2 ln 2 over 2 classes; normalised: ln 2 over 2
    for labels, reduction, expected in [
        ("multi-hot", "classes", math.log(2)), ("multi-hot", "batch", 2 * math.log(2)),
        ("normalised", "classes", math.log(2) / 2), ("normalised", "batch", math.log(2)),
    ]:  # fmt: skip
        strategy = FedCAFE(lambda_e=0, labels=labels, reduction=reduction)  # type: ignore[arg-type]
        _, terms, output, batch = one(strategy, (3, 4), [[0, 0], [0, 0]])
        assert terms(output, replace(batch, labels=torch.ones(1, 2))).item() == pytest.approx(expected, abs=1e-6)
        assert terms(output, replace(batch, labels=torch.zeros(1, 2))).item() == 0  # a picture without labels


def test_each_switch_changes_only_its_own_term(tmp_path: Path) -> None:
    """The gradient with all terms, less that without one, is the gradient of the one; each is not nothing."""
    task = Drawn()
    client = Client("c0", task.parts[0], task.parts[0][:0])
    guides = {view: torch.randn(40, 8, generator=torch.Generator().manual_seed(3)) for view in ("image", "text")}

    def gradients(strategy: FedCAFE) -> Tensor:
        torch.manual_seed(0)
        net = strategy.prepare(task, task.network())
        net.memory.copy_(torch.randn(6, 8))
        batch = task.batch(client, np.arange(10), "image")
        value = CafeTerms(strategy, net, guides)(task.forward(net, batch), batch)
        found = torch.autograd.grad(value, list(net.parameters()), allow_unused=True)
        return torch.cat([(0 * p if g is None else g).flatten() for g, p in zip(found, net.parameters())]).detach()

    whole = FedCAFE(lambda_e=0.3, lambda_c=0.5, lambda_p=2.0)
    names = ("lambda_e", "lambda_c", "lambda_p")
    for name in names:
        alone = gradients(replace(whole, **dict.fromkeys(set(names) - {name}, 0.0)))
        assert alone.norm() > 1e-3
        torch.testing.assert_close(gradients(whole) - gradients(replace(whole, **{name: 0.0})), alone)
    only_e = replace(whole, lambda_c=0.0, lambda_p=0.0)
    assert not torch.allclose(gradients(only_e), gradients(replace(only_e, detach=True)), atol=1e-4)
    # without enhancement V_E is O: nothing for Eq. 5 to say, and the classifier's term stays as it was
    assert gradients(replace(only_e, enhancement=False)).norm() < 1e-5
    only_p = replace(whole, lambda_e=0.0, lambda_c=0.0)
    assert torch.equal(gradients(only_p), gradients(replace(only_p, enhancement=False)))


def test_the_received_model_is_asked_once_a_round_and_not_in_the_first(tmp_path: Path) -> None:
    task = Drawn()
    lab = Lab((task, task.parts), FedCAFE(), tmp_path, Training(lr=0.05, epochs=4, batch_size=8))
    message = lab.strategy.send(lab.start(), "c0")
    held = len(task.parts[0])
    for round, passes in ((1, 1), (2, 2)):  # one for the memory, one for Eq. 6, whatever the epochs
        task.passes.clear()
        reply = lab.strategy.client(lab.device("c0", round), message)
        assert sum(task.passes) == passes * held
        assert reply.values["guided"] == (passes - 1) * held
        assert reply.values["steps"] == 4 * 2 * held / 8


def test_the_guide_is_the_received_model_at_the_rows_of_the_batch(tmp_path: Path) -> None:
    lab = Lab(TWO, FedCAFE(lambda_e=0, lambda_p=0, lambda_c=1.0), tmp_path)
    device = lab.device("c0", round=2)
    net = device.network(device.initial)
    terms = lab.strategy.extra(device, net, lab.strategy.send(lab.start(), "c0"))
    with torch.no_grad():  # the network moves on, the guide does not
        net.net.image.hash.weight.copy_(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    # row 3 is image (0,3), now seen as (3,0), and text (0,1): both guides are at a right angle to it
    batch = lab.task.batch(device.client, np.array([3]), "image")
    assert terms(lab.task.forward(net, batch), batch).item() == pytest.approx(1.0)
    batch.rows = torch.tensor([0])  # the guides (1,0) and (1,0) of another pair
    assert terms(lab.task.forward(net, batch), batch).item() == pytest.approx(0.0)


# ---- memories


def test_the_local_memory_by_hand(tmp_path: Path) -> None:
    lab = Lab(TWO, FedCAFE(lambda_e=0, lambda_c=0, lambda_p=0), tmp_path)
    state = lab.start()
    sent = [lab.strategy.client(lab.device(id), lab.strategy.send(state, id))["model"][MEMORY] for id in ("c0", "c1")]
    # (image + text)/2 of length 1: c0 (1,0), (1,0), (0,1), (0,1); c1 (1,0), (1,0), and of class b nothing
    assert sent[0].tolist() == [[1, 0], [0, 1]]
    assert sent[1].tolist() == [[1, 0], [0, 0]]


@pytest.mark.parametrize("memory", ["seeded", "hungarian", "authors"])
def test_a_client_with_fewer_pairs_than_classes(tmp_path: Path, memory: Any) -> None:
    hot = [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 1, 0, 0, 0]]
    toy = pairs([(1, 0), (0, 1), (0, 2)], [(1, 0), (0, 1), (0, 2)], hot, 3)
    for least, found in ((1, 2), (2, 1), (3, 0)):  # centres of 1 and of 2 pairs; one of too few is never sent
        lab = Lab(toy, FedCAFE(memory=memory, least=least, lambda_p=0), tmp_path / str(least))
        state = lab.play(rounds=2)[-1].state
        assert int((state["model"][MEMORY] != 0).any(1).sum()) == found
        assert all(bool(t.isfinite().all()) for t in state["model"].values())


def test_centres_by_hand() -> None:
    points = rows((1, 0), (0.8, 0.6), (0, 1), (-0.6, 0.8))
    # seeds (1,0), (0,1) and none: cosines 1, 0.8, 0, -0.6 and 0, 0.6, 1, 0.8; the mean is not made unit again
    centres, counts = cluster(points, rows((1, 0), (0, 1), (0, 0)))
    torch.testing.assert_close(centres, rows((0.9, 0.3), (-0.3, 0.9), (0, 0)))
    assert counts.tolist() == [2, 2, 0]
    # a multi-label class mean, and the last memory where a class is missing
    means = class_means(points, rows((1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 0)), rows((9, 9), (9, 9), (5, 7)))
    torch.testing.assert_close(means, rows((0.9, 0.3), (0.4, 0.8), (5, 7)))
    # rows in another order come back in the order of what they are matched to
    assert matched(rows((0, 1), (-1, 0), (1, 0)), rows((2, 0.1), (0, 5), (0, 0))).tolist() == [[1, 0], [0, 1], [-1, 0]]
    assert matched(rows((0, 1), (1, 0)), torch.zeros(2, 2).double()).tolist() == [[0, 1], [1, 0]]


def test_scattered_seeds_are_different_points() -> None:
    points = rows((1, 0), (1, 0), (1, 0), (0, 1), (0, -1))
    for seed in range(20):
        seeds = kmeans_seeds(points, 4, np.random.default_rng(seed))
        assert sorted(map(tuple, seeds.tolist())) == [(0, -1), (0, 0), (0, 1), (1, 0)]  # three, however many copies


def reply(value: float, memory: list[list[float]], n: int = 1) -> Bundle:
    model = {"net.image.hash.weight": torch.full((2, 2), value), MEMORY: torch.tensor(memory).float()}
    return Bundle({"model": model}, {"n": n})


REPLIES = [("c0", reply(0.0, [[1, 0], [0, 1]], 3)), ("c1", reply(1.0, [[1, 0], [0, 0]], 1))]
# P_g is (1,0), (0,1), for c1 says nothing of b. theta_0 = I/2, theta_1 = [[1/2, 0], [0, 0]], S = I, and with
# s = log(1 + e^(1/2)) - 1/2 = log(1 + e^(-1/2)):  Sim_0 = 2 s + 2 ln 2 = 2.334448,  Sim_1 = s + 3 ln 2 = 2.553519
S = math.log(1 + math.exp(-0.5))
SIM = (2 * S + 2 * math.log(2), S + 3 * math.log(2))


@pytest.mark.parametrize(
    ("settings", "share"),  # of c1, which is what its weights of 1 beside c0's of 0 become
    [
        ({"aggregation": "paper"}, math.exp(SIM[1]) / (math.exp(SIM[0]) + math.exp(SIM[1]))),  # 0.5545
        ({"aggregation": "paper", "temperature": 0.1}, 1 / (1 + math.exp(-10 * (SIM[1] - SIM[0])))),  # 0.8994
        ({"aggregation": "code"}, SIM[1] / sum(SIM)),  # 0.5224
        ({"aggregation": "code*n"}, SIM[1] / (3 * SIM[0] + SIM[1])),  # 0.2672
        ({"aggregation": "off"}, 1 / 4),
        ({"aggregation": "off", "weighting": "uniform"}, 1 / 2),
        ({"aggregation": "paper", "similar": "nearest"}, 1 / (1 + math.exp(SIM[0] - SIM[1]))),
    ],
)
def test_the_weights_of_two_clients_by_hand(settings: dict[str, Any], share: float) -> None:
    state = reply(5.0, [[0, 0], [0, 0]])
    merged = FedCAFE(**settings).merge(state, iter(REPLIES))["model"]
    assert merged["net.image.hash.weight"].flatten().tolist() == pytest.approx([share] * 4, abs=1e-6)
    assert merged[MEMORY].tolist() == [[1, 0], [0, 1]] and merged[MEMORY].dtype == torch.float32
    assert pytest.approx((2.334448, 2.553519), abs=1e-5) == SIM


def test_similarity_by_hand() -> None:
    # theta = P_k P_g' / 2 = [[0.5, 0.3], [0, 0.4]]; log(1 + e^t) - t = log(1 + e^-t) where S is 1
    local, memory = rows((1, 0), (0, 1)), rows((1, 0), (0.6, 0.8))
    plus = [math.log(1 + math.exp(t)) for t in (-0.5, 0.3, 0.0, -0.4)]
    assert similarity(local, memory, torch.eye(2)).item() == pytest.approx(sum(plus))
    # and with S = [[0, 1], [0, 0]]: only 0.3 is of two rows that mean the same
    plus = [math.log(1 + math.exp(t)) for t in (0.5, -0.3, 0.0, 0.4)]
    assert similarity(local, memory, rows((0, 1), (0, 0))).item() == pytest.approx(sum(plus))


@pytest.mark.parametrize("similar", ["nearest", "clusters"])
def test_rows_that_mean_the_same_by_hand(similar: Any) -> None:
    # the first row of P_k is near the second of P_g, the second near the third; the third says nothing
    memory, local = rows((1, 0), (0, 1), (-1, 0)), rows((0.1, 0.9), (-0.9, 0.1), (0, 0))
    assert FedCAFE(similar=similar).same(memory, [local])[0].tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert FedCAFE(similar="rows").same(memory, [local])[0].tolist() == torch.eye(3).tolist()


def test_a_class_that_nobody_brings_keeps_its_row_unless_as_the_authors() -> None:
    state = reply(5.0, [[0, 0], [0.5, 0.5]])
    only = [("c1", reply(1.0, [[1, 0], [0, 0]]))]
    assert FedCAFE().merge(state, only)["model"][MEMORY].tolist() == [[1, 0], [0.5, 0.5]]
    assert FedCAFE(memory="authors").merge(state, only)["model"][MEMORY].tolist() == [[1, 0], [0, 0]]


def test_the_papers_memory_by_hand(tmp_path: Path) -> None:
    images = rows((10, 0), (12, 0), (0, 10), (0, 12))
    texts = rows((14, 0), (16, 0), (0, 14), (0, 16))
    # centres (11, 0), (0, 11) and (15, 0), (0, 15), and of all these (13, 0), (0, 13)
    found = FedCAFE(memory="paper").memory_of_views([images, texts], 2, np.random.default_rng(0))
    assert sorted(found.tolist()) == [[0, 13], [13, 0]]
    lab = Lab(TWO, FedCAFE(memory="paper", lambda_e=0, lambda_c=0, lambda_p=0, least=1), tmp_path)
    state = lab.start()
    sent = lab.strategy.client(lab.device("c0"), lab.strategy.send(state, "c0"))["model"][MEMORY]
    assert float(sent.norm(dim=1).max()) > 1  # nothing is cut to length 1


def test_euclidean_centres_and_the_papers_server_by_hand() -> None:
    points = rows((1, 0), (10, 0), (11, 0))
    assert cluster(points, rows((1, 0), (11, 0)), cosine=False)[0].tolist() == [[1, 0], [10.5, 0]]
    assert cluster(points, rows((1, 0), (0, 1)))[0].tolist() == [[pytest.approx(22 / 3), 0], [0, 0]]  # one direction
    replies = [("c0", reply(0.0, [[1, 0], [10, 0]])), ("c1", reply(1.0, [[1, 0], [12, 0]]))]
    found = FedCAFE(memory="paper").merge(reply(5.0, [[0, 0], [0, 0]]), iter(replies))["model"][MEMORY]
    assert sorted(found.tolist()) == [[1, 0], [11, 0]]


def test_the_authors_memory_and_classifiers() -> None:
    # rows of all P_k are made unit before the server's K-means: of (0.5, 0) and (1, 0) the centre is (1, 0)
    replies = [("c0", reply(0.0, [[0.5, 0], [0, 0]])), ("c1", reply(1.0, [[1, 0], [0, 0]]))]
    found = FedCAFE(memory="authors").merge(reply(5.0, [[0, 0], [0, 0]]), iter(replies))["model"][MEMORY]
    assert sorted(found.tolist()) in ([[0, 0], [1, 0]], [[1, 0], [1, 0]])
    assert FedCAFE().merge(reply(5.0, [[0, 0], [0, 0]]), iter(replies))["model"][MEMORY].tolist()[0] == [0.75, 0]
    torch.manual_seed(0)
    task, _ = pairs([(1, 0)] * 3, [(1, 0)] * 3, [[1] + [0] * 199] * 3, 3)
    strategies = {"authors": FedCAFE(memory="authors"), "seeded": FedCAFE()}
    nets: dict[str, Any] = {name: each.prepare(task, task.network()) for name, each in strategies.items()}
    spread = {memory: float(net.classifiers["image"].weight.detach().std()) for memory, net in nets.items()}
    assert spread["authors"] == pytest.approx(0.01, rel=0.2) and spread["seeded"] > 0.1


def test_random_seeds_are_different_points() -> None:
    points = rows((1, 0), (2, 0), (3, 0))
    assert sorted(random_seeds(points, 2, np.random.default_rng(0))[:, 0].tolist()) in ([1, 2], [1, 3], [2, 3])
    assert sorted(random_seeds(points, 5, np.random.default_rng(0))[:, 0].tolist()) == [0, 0, 1, 2, 3]


@pytest.mark.parametrize("similar", ["rows", "nearest", "clusters"])
def test_81_classes_do_not_overflow(similar: Any) -> None:
    made = torch.Generator().manual_seed(0)
    centres = torch.randn(81, 64, generator=made)
    local = {f"c{k}": normalize(centres + k * torch.randn(81, 64, generator=made)) for k in range(10)}
    sims = [similarity(rows, local["c0"], torch.eye(81)) for rows in local.values()]
    assert min(sims) > 81**2 * 0.6 and torch.stack(sims).exp().isinf().all()  # Eq. 10 as printed
    strategy = FedCAFE(similar=similar)
    local = {device: bounded_memory(device, rows) for device, rows in local.items()}
    shares = strategy.shares(strategy.global_memory(torch.zeros(81, 64).double(), local), local, {})
    assert sum(shares.values()) == pytest.approx(1) and all(0 <= share <= 1 for share in shares.values())
    assert shares["c9"] > shares["c0"]  # the one least like the others weighs more


def test_a_memory_that_is_not_a_number_is_refused_and_a_long_one_gains_nothing() -> None:
    state = reply(5.0, [[0, 0], [0, 0]])
    with pytest.raises(WayfareError, match="the memory of device 'c1' is not finite"):
        FedCAFE().merge(state, [*REPLIES[:1], ("c1", reply(1.0, [[math.nan, 0], [0, 0]]))])
    long = [REPLIES[0], ("c1", reply(1.0, [[1000, 0], [0, 0]]))]
    ends = [FedCAFE().merge(state, replies)["model"] for replies in (REPLIES, long)]
    assert digest(ends[0]) == digest(ends[1])


# ---- the whole


def test_all_switched_off_is_fedavg_to_the_bit(tmp_path: Path) -> None:
    task = Drawn()
    labs = [
        Lab((task, task.parts), s, tmp_path / str(i), Training(lr=0.05, epochs=2, batch_size=8))
        for i, s in enumerate([FedAvg(), OFF])
    ]
    plain, off = (lab.play(rounds=2)[-1].state["model"] for lab in labs)
    assert digest({f"net.{name}": t for name, t in plain.items()}) == digest(
        {name: t for name, t in off.items() if name.startswith("net.")}
    )
    assert not off[MEMORY].any()


def test_each_row_of_table_5_is_another_model(tmp_path: Path) -> None:
    table = [
        OFF,
        replace(OFF, enhancement=True),
        replace(OFF, enhancement=True, lambda_e=0.1),
        replace(OFF, enhancement=True, lambda_e=0.1, lambda_c=0.1),
        replace(OFF, enhancement=True, lambda_e=0.1, lambda_c=0.1, lambda_p=1.0),
        FedCAFE(),
    ]
    ends = []
    for i, strategy in enumerate(table):
        task = Drawn()
        lab = Lab((task, task.parts), strategy, tmp_path / str(i), Training(lr=0.05, batch_size=16))
        ends.append(digest(lab.play(rounds=2)[-1].state["model"]))
    assert len(set(ends)) == len(table)


def test_the_aggregation_changes_nothing_on_a_device(tmp_path: Path) -> None:
    lab = Lab(TWO, FedCAFE(), tmp_path / "0", Training(lr=0.05, batch_size=ONE_BATCH))
    other = Lab(TWO, FedCAFE(aggregation="paper"), tmp_path / "1", Training(lr=0.05, batch_size=ONE_BATCH))
    ends = [digest(x.strategy.client(x.device(), x.strategy.send(x.start(), "c0"))["model"]) for x in (lab, other)]
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    "settings", [{"memory": "authors", "similar": "clusters", "aggregation": "code"}, {"memory": "hungarian"}]
)
def test_the_order_of_replies_does_not_matter(settings: Any) -> None:
    """Not even where seeds are drawn: they depend on what was sent."""
    made = torch.Generator().manual_seed(1)
    replies = [(f"c{k}", reply(float(k), torch.randn(2, 2, generator=made).tolist())) for k in range(4)]
    ends = [FedCAFE(**settings).merge(reply(5.0, [[1, 0], [0, 1]]), r)["model"] for r in (replies, replies[::-1])]
    torch.testing.assert_close(ends[0], ends[1])
    assert present(ends[0][MEMORY]).all()


def test_settings_and_batches_that_are_refused(tmp_path: Path) -> None:
    for settings in ({"temperature": 0.0}, {"lambda_e": -1.0}, {"least": 0}):
        with pytest.raises(ConfigError, match=f"strategy.{next(iter(settings))} = .*: expected"):
            FedCAFE(**settings)  # type: ignore[arg-type]
    _, terms, output, batch = one(FedCAFE(), (3, 4), [[1, 0], [0, 1]], image=(1, 0), text=(1, 0))
    with pytest.raises(TypeError, match=r"Batch\.rows"):
        terms(output, replace(batch, rows=None))
    with pytest.raises(TypeError, match="do not fit the task's 2 classes"):
        terms(output, replace(batch, labels=torch.ones(1, 3)))


def test_features_of_zero_have_a_bounded_gradient() -> None:
    task, parts = pairs([(0, 0)], [(0, 0)], [[1, 0]], 1)
    strategy = FedCAFE(lambda_e=1.0)
    net = strategy.prepare(task, task.network())
    raw = torch.zeros(1, 2, requires_grad=True)
    batch = task.batch(Client("c0", parts[0], parts[0][:0]), np.array([0]), "text")
    value = CafeTerms(strategy, net, {"image": torch.ones(1, 2), "text": torch.zeros(1, 2)}).view_terms(
        "text", raw, batch
    )
    (gradient,) = torch.autograd.grad(value, raw)
    assert bool(gradient.isfinite().all()) and gradient.norm() < 1e4
