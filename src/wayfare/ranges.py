"""The values that the settings of an experiment may have, for the check of a recipe and for forms."""

from __future__ import annotations

from wayfare.core.ranges import Range

_SHARE = Range(0, 1, open_high=True)
RANGES = {
    "rounds": Range(1),
    "seed": Range(0),
    "training.epochs": Range(1),
    "training.iterations": Range(0),
    "training.at_most": Range(0),
    "training.batch_size": Range(1),
    "training.lr": Range(0, open_low=True),
    "training.decay": Range(0, 1, open_low=True),
    "training.warmup": Range(0),
    "training.warmup_rounds": Range(0),
    "training.momentum": _SHARE,
    "training.beta1": _SHARE,
    "training.beta2": _SHARE,
    "training.weight_decay": Range(0),
    "training.clip": Range(0),
    "evaluation.every": Range(0),
    "evaluation.clients": Range(0),
    "evaluation.holdout": _SHARE,
    "evaluation.validation_clients": Range(0),
    "evaluation.patience": Range(0),
    "policy.quorum": Range(0, 1),
    "policy.deadline": Range(0, open_low=True),
    "policy.max_void": Range(1),
    "policy.max_ratio": Range(0),
    "policy.max_change": Range(0, open_low=True),
    "policy.max_norm": Range(0, open_low=True),
    "policy.max_examples": Range(1),
}
EVERY_ROUND = Range(0)  # rounds where devices meet: 0 is all of them
NO_FRACTION = Range(0, 1, open_low=True, open_high=True)  # what policy.max_ratio may not be
