"""What a device's samples look like, from the gradients of the first linear layer, z = W x + b.

For one sample dL/dW = (dL/dz) x' and dL/db = dL/dz: a row of the one divided by its entry of the other is x, the
layer's input. One step of plain SGD changes W and b in proportion to these gradients, so the update gives x as well.
For a batch a row gives a mixture of its samples, weighted by how much each of them moves that row.

In a network that begins with this layer x is the sample; behind convolutions it is their output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from wayfare.core.bundle import Bundle
from wayfare.core.device import Bench
from wayfare.core.protocols import Client, Failure, Population
from wayfare.core.seeds import rng_for
from wayfare.engines.programs import perform
from wayfare.leakage.figures import Finding, LeakFigure, NotMeasured

_ROWS = 64  # of the layer that are looked at: those that changed most
_TRIALS = 20  # for each batch size
_MOST = 200  # samples of a device that are compared with what was rebuilt
_NOBODY = np.empty(0, np.int64)


def rebuilt(weight: Tensor, bias: Tensor) -> Tensor:
    """Inputs, one for each row, those first whose row changed most; rows that did not change give none."""
    order = bias.abs().argsort(descending=True, stable=True)[:_ROWS]
    order = order[bias[order] != 0]
    return weight[order].double() / bias[order, None].double()


def correlations(guesses: Tensor, truths: Tensor) -> Tensor:
    """The correlation of each guess with each truth, (guesses, truths); 0 where one of them is constant."""
    a, b = (x.double() - x.double().mean(1, keepdim=True) for x in (guesses, truths))
    a, b = (x / x.norm(dim=1, keepdim=True).clamp(min=1e-30) for x in (a, b))
    return torch.matmul(a, b.T)


def best(guesses: Tensor, truths: Tensor) -> float:
    """The correlation of the best guess with each truth, in the mean over truths."""
    return float(correlations(guesses, truths).amax(0).mean())


@contextmanager
def listening(net: nn.Module) -> Iterator[dict[str, Tensor]]:
    """The first input of every linear layer while this is open, in the order in which they are used."""
    seen: dict[str, Tensor] = {}

    def keep(name: str, x: Tensor) -> None:
        seen.setdefault(name, x.detach().clone())

    hooks = [
        module.register_forward_pre_hook(lambda _, given, name=name: keep(name, given[0]))
        for name, module in net.named_modules()
        if isinstance(module, nn.Linear) and module.bias is not None
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _collect(found: Finding, name: str, measure: Callable[[], list[LeakFigure]]) -> None:
    try:
        found.figures += measure()
    except NotMeasured as reason:
        found.not_measured.append(f"{name}: {reason}")


class Reconstruction:
    """Rebuilds inputs from the first reply of each device, as it comes, and then from steps on few samples."""

    def __init__(self, seed: int) -> None:
        self._seed, self._why = seed, ""
        self._rounds: dict[str, tuple[float, float]] = {}  # of each device: the figure and its baseline
        self._means = self._single = 0

    def hear(self, bench: Bench, device: str, message: Bundle, reply: Bundle) -> None:
        """Rebuild from a reply after all steps of a round, and count the class means that are of one sample."""
        if "counts" in reply and "prototypes" in reply:
            counts = reply["counts"]["counts"]
            self._means += int((counts > 0).sum())
            self._single += int((counts == 1).sum())
        client = bench.clients(device)
        if device in self._rounds or len(self._rounds) == _TRIALS or not len(client.holdout) or self._why:
            return
        try:
            layer, inputs = _inputs(bench, message, client.train[:_MOST])
            guesses, others = _guesses(layer, message, reply), _inputs(bench, message, client.holdout[:_MOST])[1]
            self._rounds[device] = best(guesses, inputs), best(guesses, others)
        except NotMeasured as reason:
            self._why = str(reason)

    def finding(self, benches: dict[int, Bench], state: Bundle) -> Finding:
        """`benches` train for one step of plain SGD on so many samples; `state` is the server's before round 1."""
        found = Finding(
            "What a sample looks like: the input of the first linear layer, from one row of its update over that of "
            "its bias. Correlation of each sample with the best of the rebuilt inputs, in the mean.",
            "the same with samples that the device did not train on; for the largest error, guessing the mean input",
        )
        if self._means:
            name = "class means of one sample: that sample's own features"
            found.figures.append(LeakFigure(name, self._single, 0, self._means))
        for size, bench in benches.items():
            _collect(found, f"one step on {_samples(size)}", lambda b=bench, n=size: self._few(b, state, n))  # type: ignore[misc]
        _collect(found, "a whole round", self._whole_rounds)
        return found

    def _few(self, bench: Bench, state: Bundle, size: int) -> list[LeakFigure]:
        return one_step(bench, state, size, rng_for(self._seed, "leakage", "steps", size))

    def _whole_rounds(self) -> list[LeakFigure]:
        if not self._rounds:
            raise NotMeasured(
                self._why or "no device has held-out samples to compare with: set evaluation.holdout above 0"
            )
        value, baseline = np.mean(list(self._rounds.values()), axis=0)
        return [LeakFigure("a whole round, as in the run", float(value), float(baseline))]


def one_step(bench: Bench, state: Bundle, size: int, rng: np.random.Generator) -> list[LeakFigure]:
    """One step on `size` samples, several times."""
    values, chance, errors = [], [], []
    for device, samples, others in _draws(bench, size, rng):
        message = bench.strategy.send(state, device)
        layer, inputs, reply = _step(bench, device, message, samples)
        guesses = _guesses(layer, message, reply)[: 1 if size == 1 else _ROWS]
        values.append(best(guesses, inputs))
        chance.append(best(guesses, _inputs(bench, message, others)[1]))
        errors.append(float((guesses[0] - inputs[0]).abs().max()) if size == 1 else 0.0)
    name = f"one step on {_samples(size)}"
    found = [LeakFigure(name, float(np.mean(values)), float(np.mean(chance)))]
    if size == 1:
        found.append(LeakFigure(f"{name}: largest error of an entry", max(errors), _spread(bench, state)))
    return found


def _samples(size: int) -> str:
    return "1 sample" if size == 1 else f"{size} samples"


def _spread(bench: Bench, state: Bundle) -> float:
    """The largest error of somebody who guesses the mean input of a device's samples, over a few devices."""
    errors = []
    for position in range(min(_TRIALS, len(bench.population))):
        device = bench.population.id(position)
        message = bench.strategy.send(state, device)
        inputs = _inputs(bench, message, bench.clients(device).train[:_MOST])[1]
        errors.append(float((inputs - inputs.mean(0)).abs().max()))
    return max(errors)


def _draws(bench: Bench, size: int, rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Devices, with samples of theirs to train on and as many others."""
    fit = _with(bench.population, 2 * size, bench)
    if not fit:
        raise NotMeasured(f"no device has {2 * size} training samples, half of them to compare with")
    for _ in range(_TRIALS):
        device = fit[int(rng.integers(len(fit)))]
        order = rng.permutation(bench.clients(device).train)
        yield device, order[:size], order[size : 2 * size]


def _with(population: Population, least: int, bench: Bench) -> list[str]:
    """Devices with at least so many training samples."""
    large = np.flatnonzero(population.sizes >= least)[:1000]
    return [id for id in (population.id(int(i)) for i in large) if len(bench.clients(id).train) >= least]


def _step(bench: Bench, device: str, message: Bundle, samples: np.ndarray) -> tuple[str, Tensor, Bundle]:
    """One step of a device on these samples: the first linear layer, its inputs, and the reply."""
    asked = message.with_(samples={"train": torch.from_numpy(samples)})
    with listening(bench.net(0)) as seen:
        reply = perform(bench, "train", device, Bundle(asked.tensors, {**message.values, "round": 1}))
    if isinstance(reply, Failure):
        raise NotMeasured(f"a device that should train on {_samples(len(samples))} failed: {reply.reason}")
    if reply.number("steps", 1) != 1:
        raise NotMeasured("with this strategy a device makes more than one step")
    layer, inputs = _first(seen)
    return layer, _checked(layer, inputs, len(samples)), reply


@torch.no_grad()
def _inputs(bench: Bench, message: Bundle, samples: np.ndarray) -> tuple[str, Tensor]:
    """The first linear layer, and its inputs for these samples under the model that was sent."""
    if "model" not in message:
        raise NotMeasured("devices are sent no model")
    net, layer, parts = bench.loaded(0, message["model"]).eval(), "", []
    for batch in bench.task.scan(net, Client("", samples, _NOBODY)):
        with listening(net) as seen:
            bench.task.forward(net, batch)
        layer, inputs = _first(seen)
        parts.append(inputs)
    return layer, _checked(layer, torch.cat(parts), len(samples))


def _first(seen: dict[str, Tensor]) -> tuple[str, Tensor]:
    if not seen:
        raise NotMeasured("the network has no linear layer with a bias")
    layer, inputs = next(iter(seen.items()))
    return layer, inputs


def _checked(layer: str, inputs: Tensor, samples: int) -> Tensor:
    if inputs.ndim != 2 or len(inputs) != samples:
        raise NotMeasured(f"{layer}, the first linear layer, does not have one input for each sample")
    return inputs


def _guesses(layer: str, message: Bundle, reply: Bundle) -> Tensor:
    names = f"{layer}.weight", f"{layer}.bias"
    if "model" not in message or "model" not in reply:
        raise NotMeasured("replies hold no weights")
    if any(name not in reply["model"] for name in names):
        raise NotMeasured(f"the weights of {layer} do not travel")
    guesses = rebuilt(*(reply["model"][name] - message["model"][name] for name in names))
    if not len(guesses):
        raise NotMeasured(f"the step did not change {layer}")
    return guesses
