"""The tables of a recipe that have no choice of parts: [training], [evaluation] and [policy]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Training:
    """How every device trains: the settings of the one training loop."""

    epochs: int = 1  # passes over a device's samples in a round
    iterations: int = 0  # if > 0: this many steps whatever the client's size, instead of epochs
    at_most: int = 0  # if > 0: no more steps than this, however many epochs that is
    batch_size: int = 32  # samples in a step
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"  # on the device; it starts anew in each round
    lr: float = 0.05  # the learning rate
    decay: float = 1.0  # the learning rate of round t is lr * decay^(t-1)
    drops: tuple[int, ...] = ()  # after each of these rounds the learning rate is a tenth of what it was
    warmup: int = 0  # if > 0: in the first steps of a round, this many, the learning rate rises from a third
    warmup_rounds: int = 0  # if > 0: only in so many rounds, the first ones
    momentum: float = 0.0  # of sgd
    beta1: float = 0.9  # of adam and adamw: decay of the first moment; 0: no momentum
    beta2: float = 0.999  # of adam and adamw: decay of the second moment
    weight_decay: float = 0.0  # pulls weights towards 0; 0: not at all
    clip: float = 0.0  # if > 0: bound on the gradient's L2 norm


@dataclass(frozen=True)
class Evaluation:
    """When and on what the model is evaluated."""

    every: int = 1  # rounds between two evaluations; the last round is always evaluated; 0: never
    test: bool = True  # on the task's test set
    clients: int = 20  # on the held-out samples of this many clients (the same ones each time)
    holdout: float = 0.1  # the share of each client's samples that it never trains on
    validation_clients: int = 0  # clients set aside: they never train, all their samples validate
    monitor: str = ""  # the metric to watch, "validation/accuracy" for instance: its best round gives the model
    patience: int = 0  # stop after this many evaluations without a better one; 0: never


@dataclass(frozen=True)
class Policy:
    """What is accepted from devices, and how long to wait for them."""

    quorum: float = 0.5  # a round counts if at least this share of those asked gave a usable reply
    deadline: float = 3600.0  # seconds for one round
    on_error: Literal["skip", "raise"] = "skip"  # a program that fails on a device: leave it out and count it, or stop
    max_void: int = 3  # stop after this many rounds in a row without a quorum
    max_ratio: float = 4.0  # shorten a change to max_ratio x the upper quartile of its round's changes; 0: never
    max_change: float = 100.0  # refuse a model with |reply - sent| > max_change * (1 + |sent|)
    max_norm: float = 1e6  # refuse any other section with a norm above this
    max_examples: int = 10_000_000
