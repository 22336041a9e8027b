"""What a device can be asked to do. Engines call programs by name, in this process or in another."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable

import torch

from wayfare.core.bundle import Bundle, Value, Weights
from wayfare.core.counting import SECTION
from wayfare.core.device import Bench, Device
from wayfare.core.exchange import PEER
from wayfare.core.protocols import Failure

Program = Callable[[Device, Bundle], Bundle]


def train(device: Device, message: Bundle) -> Bundle:
    """The client's half of a round; on the samples that the message names, if it names some."""
    device.flips = bool(message.values.get("flip"))
    if "samples" in message:
        device.borrow(message["samples"]["train"].numpy())
    return device.strategy.client(device, message)


def count(device: Device, message: Bundle) -> Bundle:
    """What this device counts among its samples, before the first round."""
    client, task = device.client, device.task
    counts = task.blurred(task.counts(client), device.rng("counts"))
    return Bundle({SECTION: counts}, {"n": max(len(client.train), 1)})


def evaluate(device: Device, message: Bundle) -> Bundle:
    """Metrics of the model this device would use, on its own held-out samples, all its samples, or the test set."""
    net = device.network(device.strategy.resume(device, message)).eval()
    client, split = device.client, message.values.get("split", "holdout")
    samples = {"holdout": client.holdout, "all": client.train, "test": None}[str(split)]
    n = len(client.train) if samples is None else len(samples)
    if samples is None:
        metrics = device.task.evaluate(net, None) if n else {}
    else:
        metrics = device.task.evaluate_client(net, client, samples) if n else {}
    return Bundle({}, {"n": max(n, 1), **{f"metric/{name}": float(value) for name, value in metrics.items()}})


def meet(device: Device, message: Bundle) -> Bundle:
    """Merge the device's own state with what a peer reported, train on, and count right answers.

    The message holds the own state; `section@peer` what the peer sent, if there is a peer; `samples` the positions of
    the pool on which the result is judged. Values: `n` and `n@peer` examples behind the two; `iterations` of training
    after the merge; `test` to be judged on the test set (so many of its pictures, 0 for all); `own` to be judged on the
    device's own held-out samples, before and after.
    """
    strategy, parts = device.strategy, message.tensors
    own = Bundle({name: part for name, part in parts.items() if name != "samples" and not name.endswith(PEER)})
    peer = Bundle({name.removesuffix(PEER): part for name, part in parts.items() if name.endswith(PEER)})
    state, tensors = own, dict[str, Weights]()
    values: dict[str, Value] = {"n": max(1, int(message.number("n")))}
    if message.values.get("own"):
        values["own_before"] = _own_score(device, own)
    if peer.tensors:
        theirs = Bundle(peer.tensors, {"n": int(message.number("n" + PEER))})
        state = strategy.merge(own, [(device.id, strategy.report(own, int(message.number("n")))), ("peer", theirs)])
    if iterations := int(message.number("iterations")):
        sent = strategy.send(state, device.id)
        reply = strategy.client(device, Bundle(sent.tensors, {**sent.values, "iterations": iterations}))
        # the mean of one model is that model
        state = state.with_(model=reply["model"]) if strategy.averages else strategy.merge(state, [(device.id, reply)])
    if message.values.get("own"):
        values["own_after"] = _own_score(device, state)
    if "samples" in message or "test" in message.values:
        net = device.network(strategy.resume(device, strategy.send(state, device.id))).eval()
        at = message["samples"]["at"].numpy() if "samples" in message else None
        right, total = device.task.tally(net, at, int(message.number("test")))
        tensors["tally"] = {"right": torch.from_numpy(right), "total": torch.from_numpy(total)}
    return Bundle({**state.tensors, **tensors} if message.values.get("keep") else tensors, values)


def _own_score(device: Device, state: Bundle) -> float:
    """Accuracy on what the device holds out; NaN has no place in a reply, so -1 stands for none."""
    if not len(device.client.holdout):
        return -1.0
    net = device.network(device.strategy.resume(device, device.strategy.send(state, device.id))).eval()
    return device.task.evaluate(net, device.client.holdout)["accuracy"]


PROGRAMS: dict[str, Program] = {"train": train, "count": count, "evaluate": evaluate, "meet": meet, "look": meet}
REMEMBERING = frozenset({"train", "meet"})  # programs after which a device's memory is kept


def perform(bench: Bench, program: str, id: str, message: Bundle, deadline: float = math.inf) -> Bundle | Failure:
    """Be that device for the length of one program."""
    if time.monotonic() > deadline:
        return Failure("late: not started before the round's deadline")
    round = int(message.number("round"))
    keeps = program in REMEMBERING
    # What fails outside the program is the disk, not the device: a StoreError stops the run.
    # A program that writes memory reads what was before its round, so doing it again gives the same bits.
    device = bench.device(id, round, round - 1 if keeps else round, deadline)
    cold = not device.memory
    try:
        message = bench.compression.unpack_message(message, bench.initial)
        reply = PROGRAMS[program](device, message)
        if program == "train":
            reply = bench.compression.pack_reply(reply, message, device)
    except Exception as error:  # whatever goes wrong on a device must not take the others along
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())
    if keeps and device.memory:
        bench.memories.save(id, round, device.memory)
    return Bundle(reply.tensors, {**reply.values, "round": round, "cold": cold, "kept": keeps and bool(device.memory)})
