"""Predictors: how good would my model be after merging with this peer's?

Each is one module with a class of the same name; `regressor` has a study to learn from and is made by `from_study`.
One of your own is `package.module:Name`, called with the laboratory.
"""

from __future__ import annotations

import importlib

from wayfare.components import own_class
from wayfare.core.errors import ConfigError, unknown
from wayfare.core.exchange import Laboratory, Predictor

NAMES = ("chance", "oracle", "overlap", "regressor")
FEWEST = 8  # models of the regressor's study: fewer leave nothing to hold out


def make(name: str, laboratory: Laboratory, models: int, file: str) -> Predictor:
    """The predictor of this name; `models` and `file` are for the regressor's study."""
    check_name(name)
    if ":" in name:
        made = own_class("predictor", name)(laboratory)
    else:
        module = importlib.import_module(f"{__name__}.{name}")  # not before it is needed: the regressor's is heavy
        made = module.from_study(laboratory, models, file) if name == "regressor" else getattr(module, name.title())()
    if not isinstance(made, Predictor):
        raise ConfigError(f"{name!r} is not a predictor: it has no predict(mine, meeting)")
    return made


def check_name(name: str) -> None:
    """Refuse what is neither one of ours nor `package.module:Name`, without importing anything."""
    if ":" not in name and name not in NAMES:
        raise ConfigError(f"{unknown('predictor', name, NAMES)}, or package.module:Name of your own")
