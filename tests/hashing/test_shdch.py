"""SHDCH: the loss by hand, and class codes against trying every code there is."""

from itertools import pairwise, product

import pytest
import torch

from wayfare.hashing import shdch
from wayfare.hashing.buffers import Buffers

ALPHA, BETA, ETA = 0.3, 0.7, 0.4


def objective(classes, views, labels, weights, within):
    """The terms of J that have class codes in them."""
    bits = len(classes[0])
    total = sum(
        weight * (bits * truth - view @ codes).square().sum()
        for view in views
        for truth, codes, weight in zip(labels, classes, weights, strict=True)
    )
    return float(total + (ETA * (bits * within - classes[0].T @ classes[1]).square().sum() if len(classes) > 1 else 0))


def case(seed, bits=4, sizes=(2, 3), pairs=12):
    """Random outputs in -1..1, one label on each level, fine classes under coarse ones, and codes to begin with."""
    generator = torch.Generator().manual_seed(seed)
    views = [(2 * torch.rand(pairs, bits, generator=generator) - 1).double() for _ in range(2)]
    fine = torch.randint(0, sizes[-1], (pairs,), generator=generator)
    within = torch.nn.functional.one_hot(torch.arange(sizes[-1]) % sizes[0], sizes[0]).T.double()
    levels = [torch.nn.functional.one_hot(fine, sizes[-1]).double()]
    if len(sizes) == 1:
        return [shdch.first_codes(bits, sizes[0])], views, levels, [BETA], None
    levels.insert(0, levels[0] @ within.T)
    return [shdch.first_codes(bits, size) for size in sizes], views, levels, [ALPHA, BETA], within


def test_loss_by_hand():
    raw = torch.tensor([[0.0, 100.0]])  # tanh: 0, 1
    labels = [torch.tensor([[1.0]]), torch.tensor([[0.0, 1.0]])]
    classes = [torch.tensor([[1.0], [1.0]]), torch.tensor([[1.0, -1.0], [-1.0, 1.0]])]
    # coarse: (2 - 1)^2 = 1; fine: (0 + 1)^2 + (2 - 1)^2 = 2; codes (-1, 1): 1
    codes = torch.tensor([[-1.0, 1.0]])
    found = shdch.objective(raw, codes=codes, labels=labels, classes=classes, weights=(0.3, 0.7), gamma=10, pairs=5)
    assert float(found) == pytest.approx((0.3 * 1 + 0.7 * 2 + 10 * 1) / 5)
    alone = shdch.objective(raw, codes=codes, labels=labels[1:], classes=classes[1:], weights=(0.7,), gamma=10, pairs=5)
    assert float(alone) == pytest.approx((0.7 * 2 + 10 * 1) / 5)


@pytest.mark.parametrize("sizes", [(2, 3), (3,)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_each_bit_is_the_best_there_is(seed, sizes):
    """A sweep is what comes of trying all values of a bit of all classes of a level, one bit after the other."""
    classes, views, labels, weights, within = case(seed, sizes=sizes)
    found = shdch.better_codes(classes, views, labels, weights=weights, eta=ETA, within=within, sweeps=1)
    best = [codes.clone() for codes in classes]
    for codes in best:
        for k in range(len(codes)):
            tried = {}
            for values in product((-1.0, 1.0), repeat=codes.shape[1]):
                codes[k] = torch.tensor(values)
                tried[values] = objective(best, views, labels, weights, within)
            codes[k] = torch.tensor(min(tried, key=tried.get))
    assert all(torch.equal(one, other) for one, other in zip(found, best, strict=True))
    assert any(not torch.equal(one, other) for one, other in zip(found, classes, strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_no_sweep_makes_it_worse_and_sweeps_end(seed):
    classes, views, labels, weights, within = case(seed, bits=12, sizes=(3, 7), pairs=40)
    values, codes = [objective(classes, views, labels, weights, within)], classes
    for _ in range(30):
        codes = shdch.better_codes(codes, views, labels, weights=weights, eta=ETA, within=within, sweeps=1)
        values.append(objective(codes, views, labels, weights, within))
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(values))
    assert values[-1] < values[1]  # the published code stops after one
    at_once = shdch.better_codes(classes, views, labels, weights=weights, eta=ETA, within=within, sweeps=1000)
    assert all(torch.equal(one, other) for one, other in zip(at_once, codes, strict=True))


def test_a_bit_stays_where_both_values_are_as_good():
    classes = [shdch.first_codes(3, 4)]
    nothing = [torch.zeros(5, 3)] * 2
    found = shdch.better_codes(classes, nothing, [torch.ones(5, 4)], weights=[1.0], eta=0.0, within=None, sweeps=5)
    assert torch.equal(found[0], classes[0])


@pytest.mark.parametrize("sizes", [(2, 3), (3,)])
def test_codes_of_classes_without_pairs_stay(sizes):
    """Others know more of them; those of the classes that are there come out as if these were all."""
    classes, views, labels, weights, within = case(0, sizes=sizes, pairs=30)
    present = labels[-1][:, 2] == 0
    views, labels = [view[present] for view in views], [truth[present] for truth in labels]
    for flip in (1, -1):
        begun = [*classes[:-1], torch.cat([classes[-1][:, :2], flip * classes[-1][:, 2:]], 1)]
        found = shdch.better_codes(begun, views, labels, weights=weights, eta=0.0, within=within, sweeps=20)
        assert torch.equal(found[-1][:, 2], flip * classes[-1][:, 2])
    alone = shdch.better_codes(
        [classes[-1][:, :2]], views, [labels[-1][:, :2]], weights=weights[-1:], eta=0.0, within=None, sweeps=20
    )
    assert torch.equal(found[-1][:, :2], alone[0]) and not torch.equal(alone[0], classes[-1][:, :2])


def test_first_codes_are_everyones():
    codes = shdch.first_codes(32, 40)
    assert torch.equal(codes, shdch.first_codes(32, 40)) and set(codes.unique().tolist()) == {-1, 1}
    assert len(codes.T.unique(dim=0)) == 40  # no two classes alike
    assert abs(float(codes.mean())) < 0.1


def test_codes_of_ones_own_do_not_travel_and_fit_the_received_outputs():
    base = shdch.SHDCH(class_codes="client")
    assert base.initial_codes(4, (2,)) is None and shdch.SHDCH().initial_codes(4, (2,)) is not None
    outputs = torch.tensor([[3.0, 3, -3, -3], [3, -3, 3, -3]])
    buffers = Buffers(None, {"image": outputs, "text": outputs}, (torch.eye(2),))
    base.begin(buffers)
    assert torch.equal(buffers.classes[0], shdch.first_codes(4, 2))
    assert base.settles_first and not shdch.SHDCH().settles_first
    base.settle(buffers, [outputs.tanh()] * 2, None, 1.0)  # there is no network to write them to
    # H Y is 4 tanh 3 for the own class and 0 for the other: r L - H Y is least where a class has the signs of its pair
    assert torch.equal(buffers.classes[0].T, outputs.sign().double())
