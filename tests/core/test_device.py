"""The device and the one training loop, by hand where a number can be."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from toy import ONE_BATCH, Lab, Net, Toy, cloud, line, scalar
from wayfare.core.bundle import Bundle, digest, snapshot
from wayfare.core.device import Bench
from wayfare.core.errors import WayfareError
from wayfare.core.memory import Memories
from wayfare.core.protocols import Batch, Client, Failure, Training
from wayfare.core.seeds import rng_for
from wayfare.engines.programs import perform
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.moon import Moon


def trained(folder, training: Training, *targets: float, start: float = 0.0, round: int = 1) -> float:
    """The one weight after training on samples with these targets."""
    lab = Lab(line(targets, start=start), FedAvg(), folder, training)
    device = lab.device("c0", round)
    net = device.network(device.initial)
    device.train(net, Bundle())
    return float(net.weight.detach())


# ---- random numbers


def test_random_numbers_depend_on_run_round_device_and_purpose(tmp_path) -> None:
    def draw(seed=0, id="c0", round=1, purpose="pass 0") -> float:
        lab = Lab(line([1.0], [1.0]), FedAvg(), tmp_path, seed=seed)
        return float(lab.device(id, round).rng(purpose).random())

    base = draw()
    assert draw() == base == float(rng_for(0, 1, "c0", "pass 0").random())
    assert len({base, draw(seed=1), draw(id="c1"), draw(round=2), draw(purpose="pass 1")}) == 5


class Dropping(Net):
    def __init__(self, start, norm) -> None:
        super().__init__(start, norm)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        return super().forward(self.dropout(x))


class DropToy(Toy):
    """A network that draws random numbers of its own."""

    def network(self):
        return Dropping(self.start, self.norm)


def dropping(*sizes: int):
    toy, parts = cloud(*sizes)
    return DropToy(toy.x, toy.y, toy.start, toy.labels_, toy.norm), parts


TRAINING = Training(lr=0.05, epochs=2, batch_size=4, momentum=0.5)


def result(lab: Lab, id: str, round: int = 1) -> str:
    return digest(lab.strategy.client(lab.device(id, round), Bundle({"model": lab.bench.initial}))["model"])


def test_training_twice_gives_the_same_bits(tmp_path) -> None:
    lab = Lab(dropping(10, 7), FedAvg(), tmp_path, TRAINING)
    first = result(lab, "c0")
    torch.manual_seed(99)  # whatever the rest of the program draws
    torch.randn(7)
    np.random.default_rng().random()
    assert result(lab, "c0") == first
    # nor does it matter who used the network before, or what network it is
    result(lab, "c1")
    assert result(lab, "c0") == first
    assert result(Lab(dropping(10, 7), FedAvg(), tmp_path, TRAINING), "c0") == first


def test_rounds_devices_and_seeds_differ(tmp_path) -> None:
    lab = Lab(dropping(10, 10), FedAvg(), tmp_path, TRAINING)
    lab.people.parts[1] = lab.people.parts[0]  # the same samples, so that only the random numbers differ
    other = Lab(dropping(10, 10), FedAvg(), tmp_path, TRAINING, seed=1)
    assert len({result(lab, "c0"), result(lab, "c1"), result(lab, "c0", 2), result(other, "c0")}) == 4


def test_every_pass_has_an_order_of_its_own(tmp_path) -> None:
    seen: list[list[float]] = []

    class Watching(Toy):
        def loss(self, output, batch, memo):
            seen.append(batch.inputs[1].flatten().tolist())
            return super().loss(output, batch, memo)

    toy, parts = line([float(i) for i in range(12)])
    lab = Lab((Watching(toy.x, toy.y, toy.start), parts), FedAvg(), tmp_path, Training(epochs=3, batch_size=12, lr=0.1))
    result(lab, "c0")
    assert [sorted(order) for order in seen] == [list(range(12))] * 3
    assert len({tuple(order) for order in seen}) == 3


# ---- how much is trained


@pytest.mark.parametrize(
    ("training", "iterations", "steps"),
    [
        (Training(epochs=1, batch_size=4), 0, 3),  # 10 samples: 4 + 4 + 2
        (Training(epochs=2, batch_size=4), 0, 6),
        (Training(epochs=1, batch_size=100), 0, 1),
        (Training(epochs=9, iterations=5, batch_size=4), 0, 5),  # instead of epochs
        (Training(epochs=1, iterations=2, batch_size=4), 0, 2),  # less than a pass
        (Training(epochs=9, iterations=5, batch_size=4), 7, 7),  # what a strategy wants goes first
        (Training(epochs=1, batch_size=1), 23, 23),
        (Training(epochs=9, at_most=5, batch_size=4), 0, 5),  # stops within the second pass
        (Training(epochs=1, at_most=2, batch_size=4), 0, 2),  # within the first
        (Training(epochs=2, at_most=6, batch_size=4), 0, 6),
        (Training(epochs=2, at_most=7, batch_size=4), 0, 6),  # a bound, not a wish
        (Training(epochs=1, iterations=5, at_most=2, batch_size=4), 0, 5),  # of epochs only
        (Training(epochs=1, at_most=2, batch_size=4), 7, 7),
    ],
)
def test_epochs_and_iterations(tmp_path, training, iterations, steps) -> None:
    lab = Lab(cloud(10, norm=False), FedAvg(), tmp_path, training)
    device = lab.device()
    told = device.train(device.network(device.initial), Bundle(), iterations=iterations)
    assert told["steps"] == steps
    assert told["n"] == 10  # what it holds, however much of it was used


def test_iterations_of_whole_passes_are_epochs(tmp_path) -> None:
    toy = cloud(10, norm=False)
    ends = [
        result(Lab(toy, FedAvg(), tmp_path, training), "c0")
        for training in (Training(epochs=2, batch_size=4), Training(iterations=6, batch_size=4))
    ]
    assert ends[0] == ends[1]


def test_at_most_cuts_epochs_short_and_changes_nothing_else(tmp_path) -> None:
    toy = cloud(10, norm=False)
    ends = [
        result(Lab(toy, FedAvg(), tmp_path, training), "c0")
        for training in (
            Training(epochs=3, at_most=4, batch_size=4),
            Training(iterations=4, batch_size=4),
            Training(epochs=3, batch_size=4),
            Training(epochs=3, at_most=100, batch_size=4),
        )
    ]
    assert ends[0] == ends[1] != ends[2] == ends[3]


def test_the_loss_is_the_mean_over_steps_without_terms(tmp_path) -> None:
    # two steps on a = 4: losses (0-4)^2/2 = 8 and (2-4)^2/2 = 2
    lab = Lab(line([4.0]), FedAvg(), tmp_path, Training(lr=0.5, epochs=2))
    device = lab.device()
    net = device.network(device.initial)
    told = device.train(net, Bundle(), lambda output, batch: 1000 + 0 * net.weight.sum())
    assert told == {"n": 1, "steps": 2, "loss": 5.0}


# ---- the optimiser by hand


def test_one_step(tmp_path) -> None:
    # g = 0 - mean(4, 2) = -3; w = 0 + 0.5*3
    assert trained(tmp_path, Training(lr=0.5, batch_size=ONE_BATCH), 4.0, 2.0) == 1.5


COMPILER = """
import sys, tempfile
from pathlib import Path
from test_device import Lab, cloud, result
from wayfare.core.protocols import Training
from wayfare.strategies.fedavg import FedAvg

for optimizer in ("sgd", "adam", "adamw"):
    result(Lab(cloud(10), FedAvg(), Path(tempfile.mkdtemp()), Training(optimizer=optimizer, momentum=0.5)), "c0")
print("torch._dynamo" in sys.modules)
"""


def test_training_does_not_import_the_compiler() -> None:
    """It would take every process seconds."""
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run([sys.executable, "-c", COMPILER], env={**os.environ, "PYTHONPATH": path}, capture_output=True)
    assert done.stdout == b"False\n", done.stderr


def test_clipping(tmp_path) -> None:
    # g = -4, of norm 4; clipped to 1: w = 0.5*1. A gradient within the bound is left alone.
    assert trained(tmp_path, Training(lr=0.5, clip=1.0), 4.0) == pytest.approx(0.5, abs=1e-6)
    assert trained(tmp_path, Training(lr=0.5, clip=4.5), 4.0) == 2.0
    assert trained(tmp_path, Training(lr=0.5, clip=0.0), 4.0) == 2.0


def test_clipping_is_over_all_parameters_together(tmp_path) -> None:
    # targets (3, 4) from (0, 0): g = (-3, -4), of norm 5; clipped to 1 it is (-0.6, -0.8)
    toy = Toy(torch.ones(1, 1), torch.tensor([[3.0, 4.0]]), torch.zeros(2, 1))
    lab = Lab((toy, [np.arange(1)]), FedAvg(), tmp_path, Training(lr=0.5, clip=1.0))
    device = lab.device()
    net = device.network(device.initial)
    device.train(net, Bundle())
    torch.testing.assert_close(net.weight.detach().flatten(), torch.tensor([0.3, 0.4]), atol=1e-6, rtol=0)


def test_clipping_includes_the_terms_of_strategies(tmp_path) -> None:
    lab = Lab(line([4.0]), FedAvg(), tmp_path, Training(lr=0.5, clip=1.0))
    device = lab.device()
    net = device.network(device.initial)
    device.train(net, Bundle(), lambda output, batch: 100 * net.weight.sum())
    assert float(net.weight.detach()) == pytest.approx(-0.5, abs=1e-6)


def test_momentum(tmp_path) -> None:
    # g = -4: m = -4, w = 2; g = -2: m = 0.5*(-4) - 2 = -4, w = 2 + 0.5*4 = 4; without momentum it is 3
    assert trained(tmp_path, Training(lr=0.5, epochs=2, momentum=0.5), 4.0) == 4.0
    assert trained(tmp_path, Training(lr=0.5, epochs=2), 4.0) == 3.0


def test_adam_without_a_first_moment(tmp_path) -> None:
    # g = -4: w = 0.5; g = -3.5: v = 0.5*8 + 0.5*12.25 = 10.125, corrected 13.5; w = 0.5 + 0.5*3.5/sqrt(13.5)
    training = Training(optimizer="adam", lr=0.5, epochs=2, beta1=0.0, beta2=0.5)
    assert trained(tmp_path, training, 4.0) == pytest.approx(0.5 + 1.75 / 13.5**0.5, abs=1e-6)
    # beta1 = 0.5: m = 0.5*(-2) + 0.5*(-3.5) = -2.75, corrected -2.75/0.75
    training = replace(training, beta1=0.5)
    assert trained(tmp_path, training, 4.0) == pytest.approx(0.5 + 0.5 * 2.75 / 0.75 / 13.5**0.5, abs=1e-6)


def test_momentum_begins_anew_in_every_round(tmp_path) -> None:
    lab = Lab(line([4.0]), FedAvg(), tmp_path, Training(lr=0.5, momentum=0.5))
    # two rounds of one step: 0 -> 2 -> 3, as without momentum
    assert float(lab.play(2)[-1].state["model"]["weight"]) == 3.0


def test_weight_decay(tmp_path) -> None:
    # w = 1: g = (1 - 4) + 0.5*1 = -2.5; w = 1 + 1.25
    assert trained(tmp_path, Training(lr=0.5, weight_decay=0.5), 4.0, start=1.0) == 2.25


def test_adam(tmp_path) -> None:
    # the first step of Adam is lr * g/|g|; weight decay is part of the gradient, and so without effect here
    assert trained(tmp_path, Training(optimizer="adam", lr=0.1), 4.0, start=1.0) == pytest.approx(1.1, abs=1e-6)
    told = trained(tmp_path, Training(optimizer="adam", lr=0.1, weight_decay=0.5), 4.0, start=1.0)
    assert told == pytest.approx(1.1, abs=1e-6)


def test_adamw(tmp_path) -> None:
    # w <- w (1 - lr wd) first: 0.95, then + 0.1
    told = trained(tmp_path, Training(optimizer="adamw", lr=0.1, weight_decay=0.5), 4.0, start=1.0)
    assert told == pytest.approx(1.05, abs=1e-6)


@pytest.mark.parametrize(("round", "lr"), [(1, 0.5), (2, 0.25), (3, 0.125)])
def test_the_learning_rate_decays_with_the_rounds(tmp_path, round, lr) -> None:
    training = Training(lr=0.5, decay=0.5)
    assert Lab(line([4.0]), FedAvg(), tmp_path, training).device("c0", round).lr == lr
    assert trained(tmp_path, training, 4.0, round=round) == 4 * lr


@pytest.mark.parametrize(("round", "lr"), [(1, 0.5), (2, 0.5), (3, 0.05), (5, 0.005)])
def test_the_learning_rate_drops_after_rounds(tmp_path, round, lr) -> None:
    training = Training(lr=0.5, drops=(2, 4))
    assert Lab(line([4.0]), FedAvg(), tmp_path, training).device("c0", round).lr == pytest.approx(lr)


def test_the_learning_rate_warms_up_in_each_round_or_in_the_first(tmp_path) -> None:
    # 0.6/3 = 0.2: w = 0.8; the second step of two has 0.6 * (1 + 2/2)/3 = 0.4: w = 0.8 + 0.4*3.2 = 2.08
    training = Training(lr=0.6, epochs=2, warmup=2)
    assert trained(tmp_path, training, 4.0) == pytest.approx(2.08)
    assert trained(tmp_path, training, 4.0, round=2) == pytest.approx(2.08)
    # the third has all of it again: w = 2.08 + 0.6*1.92
    assert trained(tmp_path, replace(training, epochs=3), 4.0) == pytest.approx(3.232)
    # without: w = 2.4, then 2.4 + 0.6*1.6
    assert trained(tmp_path, replace(training, warmup_rounds=1), 4.0, round=2) == pytest.approx(3.36)


# ---- what goes wrong


def test_a_passed_deadline_stops_training(tmp_path) -> None:
    lab = Lab(cloud(50, norm=False), FedAvg(), tmp_path, Training(epochs=1000, batch_size=1))
    device = lab.bench.device("c0", 1, 0, time.monotonic() + 0.05)
    with pytest.raises(TimeoutError, match=r"the round's deadline passed after \d+ local steps"):
        device.train(device.network(device.initial), Bundle())


def test_a_program_is_not_begun_after_the_deadline(tmp_path) -> None:
    lab = Lab(line([4.0]), Moon(), tmp_path)
    message = Bundle({"model": scalar(0)}, {"round": 1})
    told = perform(lab.bench, "train", "c0", message, time.monotonic() - 1)
    assert isinstance(told, Failure) and told.reason == "late: not started before the round's deadline"
    assert isinstance(perform(lab.bench, "train", "c0", message, time.monotonic() + 100), Bundle)


def test_a_loss_that_is_no_number_is_an_error(tmp_path) -> None:
    for bad in (math.inf, math.nan):
        with pytest.raises(WayfareError, match=r"the loss is not finite after 1 steps: lower training\.lr or set"):
            trained(tmp_path, Training(), bad)


def test_a_device_without_samples(tmp_path) -> None:
    lab = Lab(line([4.0], []), FedAvg(), tmp_path)
    device = lab.device("c1")
    with pytest.raises(WayfareError, match="device 'c1' holds no training samples"):
        device.train(device.network(device.initial), Bundle())


def test_a_pass_without_a_step(tmp_path) -> None:
    class Lazy(Toy):
        def steps(self, net, client, batch_size, memo, rng):
            return iter(())

    toy, parts = line([4.0])
    for training in (Training(), Training(iterations=3)):  # the latter would otherwise go round for ever
        lab = Lab((Lazy(toy.x, toy.y, toy.start), parts), FedAvg(), tmp_path, training)
        device = lab.device()
        with pytest.raises(WayfareError, match="device 'c0': a pass over its data has no step to train on"):
            device.train(device.network(device.initial), Bundle())


def test_what_fails_on_a_device_is_told_with_its_traceback(tmp_path) -> None:
    lab = Lab(line([4.0], []), FedAvg(), tmp_path)
    told = perform(lab.bench, "train", "c1", Bundle({"model": scalar(0)}, {"round": 1}))
    assert isinstance(told, Failure)
    assert told.reason == "WayfareError: device 'c1' holds no training samples"
    assert "Traceback" in told.detail and "device.py" in told.detail


# ---- networks


def test_networks_are_resident(tmp_path) -> None:
    lab = Lab(cloud(10, 7), FedAvg(), tmp_path)
    a, b = (lab.device(id).network(lab.bench.initial) for id in ("c0", "c1"))
    assert a is b is lab.bench.net(0)


def test_companions_are_networks_of_their_own(tmp_path) -> None:
    lab = Lab(line([4.0]), FedAvg(), tmp_path)
    device = lab.device()
    net, one, two = device.network(scalar(1)), device.frozen(scalar(2)), device.frozen(scalar(3))
    assert [float(n.weight.detach()) for n in (net, one, two)] == [1, 2, 3]
    assert not one.training and not two.training
    device.train(net, Bundle())
    assert [float(n.weight.detach()) for n in (one, two)] == [2, 3]
    assert lab.device("c0", 2).frozen(scalar(5)) is one  # the next call uses them again


def test_networks_do_not_depend_on_who_else_draws(tmp_path) -> None:
    """Every process begins with the same weights."""

    def initial(seed: int) -> str:
        task = Objects(model=CnnClassifier(width=4, hidden=8))
        clients = np.arange(4)
        bench = Bench(
            task,
            FedAvg(),
            Training(),
            population=None,
            clients=lambda id: Client(id, clients, clients),
            seed=seed,
            memories=Memories(tmp_path),
        )
        torch.randn(3)
        assert digest(snapshot(bench.net(3))) == digest(bench.initial)  # companions too
        return digest(bench.initial)

    torch.manual_seed(5)
    one = initial(0)
    torch.manual_seed(6)
    assert initial(0) == one != initial(1)


@pytest.mark.parametrize(("samples", "steps"), [(8, 2), (9, 2), (10, 3), (1, 1), (2, 1)])
def test_batchnorm_never_sees_a_last_batch_of_one(tmp_path, samples, steps) -> None:
    # batches of 4: of 9 samples the last one would be alone, and is left out of that pass
    task = Objects(model=CnnClassifier(width=4, hidden=8, norm="batch"))
    held = np.arange(samples)
    bench = Bench(
        task,
        FedAvg(),
        Training(batch_size=4),
        population=None,
        clients=lambda id: Client(id, held, held[:0]),
        seed=0,
        memories=Memories(tmp_path),
    )
    sizes: list[int] = []

    class Watching:
        def __getattr__(self, name):
            return getattr(task, name)

        def forward(self, net, batch: Batch):
            sizes.append(len(batch.labels))
            return task.forward(net, batch)

    device = bench.device("c0", 1, 0)
    device.task = Watching()
    told = device.train(device.network(device.initial), Bundle())
    assert told["steps"] == steps == len(sizes)
    assert samples == 1 or min(sizes) > 1


# ---- memory


def test_a_device_remembers_up_to_the_round_before(tmp_path) -> None:
    lab = Lab(line([4.0]), FedAvg(), tmp_path)
    for round in (1, 3):
        lab.bench.memories.save("c0", round, Bundle({"m": scalar(round)}))
    assert not lab.device("c0", 1).memory
    assert [float(lab.device("c0", r).memory["m"]["weight"]) for r in (2, 3, 4, 9)] == [1, 1, 3, 3]
    assert not lab.device("c1", 9).memory


def test_doing_a_round_again_gives_the_same_bits(tmp_path) -> None:
    """A worker that dies after writing its memory is replaced, and its work done again."""
    lab = Lab(cloud(10), Moon(), tmp_path, TRAINING)
    message = Bundle({"model": lab.bench.initial})
    told = []
    for round in (1, 2, 2, 2):
        reply = perform(lab.bench, "train", "c0", Bundle(message.tensors, {"round": round}))
        assert isinstance(reply, Bundle)
        assert reply.values["cold"] is (round == 1) and reply.values["kept"] is True
        told.append(digest(reply["model"]))
    assert told[1] == told[2] == told[3] != told[0]


def test_looking_leaves_no_memory(tmp_path) -> None:
    lab = Lab(line([4.0]), Moon(), tmp_path)
    reply = perform(lab.bench, "evaluate", "c0", Bundle({"model": scalar(0)}, {"round": 1, "split": "all"}))
    assert isinstance(reply, Bundle) and reply.values["n"] == 1 and reply.values["kept"] is False
    assert reply.values["metric/loss"] == (0 - 4) ** 2 / 2
    assert not list(tmp_path.rglob("*@*"))
