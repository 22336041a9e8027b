"""Which classes a device has, from one update of the last layer.

The gradient of cross-entropy at a sample's logits is p - y. Over a device's steps of plain SGD, with features h:

    change of the bias of class c       lr * sum (y_c - p_c)
    change of its row of weights        lr * sum (y_c - p_c) h

A class that the device has no sample of has y_c = 0 throughout, so its bias falls. If features cannot be negative (they
come out of a ReLU), no weight of its row rises. A class with anything that rises is therefore a class that the device
has. For other optimisers and features this is a guess.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from wayfare.core.bundle import Bundle
from wayfare.core.device import Bench
from wayfare.leakage.figures import Finding, LeakFigure, NotMeasured

Classes = frozenset[int]


def rising(change: Tensor) -> Classes:
    """Classes of which something rises: `change` is (classes,) or (classes, features)."""
    return frozenset(torch.where(change.reshape(len(change), -1).amax(1) > 0)[0].tolist())


def last_layer(net: nn.Module, classes: int) -> str:
    """The name of the last linear layer that has a row for each class."""
    fits: list[str] = [
        name
        for name, module in net.named_modules()
        if isinstance(module, nn.Linear) and module.out_features == classes and module.bias is not None
    ]
    if not fits:
        raise NotMeasured("no linear layer has one row and one bias for each class")
    return fits[-1]


class ClassesHeld:
    """Collects, reply by reply, what each rule says and what is true."""

    def __init__(self) -> None:
        self._truth: list[tuple[str, Classes]] = []
        self._guesses: dict[str, list[Classes]] = {}
        self._total = 0
        self._why = ""

    def hear(self, bench: Bench, device: str, message: Bundle, reply: Bundle) -> None:
        """Guess from one reply."""
        if self._why:
            return
        try:
            guesses = self._guess(bench, message, reply)
        except NotMeasured as reason:
            self._why = str(reason)
            return
        labels = bench.task.labels
        held = frozenset(() if labels is None else np.unique(labels[bench.clients(device).train]).tolist())
        self._truth.append((device, held))
        for rule, guess in guesses.items():
            self._guesses.setdefault(rule, []).append(guess)

    def _guess(self, bench: Bench, message: Bundle, reply: Bundle) -> dict[str, Classes]:
        self._total = len(bench.task.classes)
        if not self._total or bench.task.labels is None:
            raise NotMeasured("the task's samples do not have one class each")
        if "counts" in reply:
            return {"counts": rising(reply["counts"]["counts"])}
        if "model" not in reply or "model" not in message:
            raise NotMeasured("replies hold neither weights nor counts of classes")
        layer = last_layer(bench.net(0), self._total)
        weight, bias = (
            reply["model"][f"{layer}.{part}"] - message["model"][f"{layer}.{part}"] for part in ("weight", "bias")
        )
        return {f"{layer}.bias": rising(bias), f"{layer}.weight": rising(weight)}

    def finding(self) -> Finding:
        """Exact sets, hits and false alarms of each rule; the baseline guesses that a device has all classes."""
        found = Finding(
            "Which classes a device has: those of which something in the last layer rises (or a count is above 0).",
            "guessing that every device has all classes",
        )
        if self._why or not self._truth:
            found.not_measured.append(self._why or "no device replied")
        for rule, guesses in self._guesses.items():
            found.figures += counted(f"{rule}, one reply", [held for _, held in self._truth], guesses, self._total)
            found.figures += counted(f"{rule}, all replies", *self._of_devices(guesses), self._total)[:1]
        return found

    def _of_devices(self, guesses: Sequence[Classes]) -> tuple[list[Classes], list[Classes]]:
        """What each device has, and all that was guessed from its replies."""
        together: dict[str, Classes] = {}
        for (device, _), guess in zip(self._truth, guesses):
            together[device] = together.get(device, frozenset()) | guess
        truth = dict(self._truth)
        return [truth[device] for device in together], list(together.values())


def counted(name: str, truth: Sequence[Classes], guesses: Sequence[Classes], total: int) -> list[LeakFigure]:
    """How often the set is exact; held classes that are found, and others that are named falsely."""
    pairs = list(zip(truth, guesses))
    held = sum(map(len, truth))
    absent = total * len(truth) - held
    return [
        LeakFigure(
            f"{name}: exact set", sum(t == g for t, g in pairs), sum(len(t) == total for t in truth), len(pairs)
        ),
        LeakFigure(f"{name}: classes found", sum(len(t & g) for t, g in pairs), held, held),
        LeakFigure(f"{name}: false alarms", sum(len(g - t) for t, g in pairs), absent, absent),
    ]
