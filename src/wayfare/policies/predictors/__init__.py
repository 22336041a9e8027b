"""Predictors: how good would my model be after merging with this peer's?

Each is one module with a class of the same name; `regressor` has a study to learn from and is made by `from_study`.
One of your own is `package.module:Name`, called with the laboratory.
"""

from __future__ import annotations

import importlib
import operator
from typing import cast

from wayfare.core.exchange import Laboratory, Predictor
from wayfare.errors import ConfigError, unknown

NAMES = ("chance", "oracle", "overlap", "regressor")


def make(name: str, laboratory: Laboratory, models: int, file: str) -> Predictor:
    """The predictor of this name; `models` and `file` are for the regressor's study."""
    check_name(name)
    if ":" in name:
        module_name, _, attribute = name.partition(":")
        try:
            maker = operator.attrgetter(attribute)(importlib.import_module(module_name))
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            raise ConfigError(f"predictor {name!r} cannot be imported: {error}") from error
        made = maker(laboratory)
    else:
        module = importlib.import_module(f"{__name__}.{name}")  # not before it is needed: the regressor's is heavy
        made = module.from_study(laboratory, models, file) if name == "regressor" else getattr(module, name.title())()
    if not hasattr(made, "predict"):
        raise ConfigError(f"{name!r} is not a predictor: it has no predict(mine, meeting)")
    return cast(Predictor, made)


def check_name(name: str) -> None:
    """Refuse what is neither one of ours nor `package.module:Name`, without importing anything."""
    if ":" not in name and name not in NAMES:
        raise ConfigError(f"{unknown('predictor', name, NAMES)}, or package.module:Name of your own")
