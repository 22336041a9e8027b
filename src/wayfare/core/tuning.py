"""Training without importing torch's compiler, and seeding without a look for GPUs.

torch's optimisers import it when they are first used, only to tell it to keep off. That takes every process 2.3 s of
CPU time, almost as much as importing torch (2.6 s): a quarter of a quickstart, which takes 9.2 s with engine `local`.
"""

from __future__ import annotations

import inspect
import sys

import torch


def step(optimizer: torch.optim.Optimizer) -> None:
    """`optimizer.step()` without the compiler."""
    with torch.no_grad():
        inspect.unwrap(type(optimizer).step)(optimizer)


def _add_parameters_without_compiler() -> None:
    """The same for the method that every optimiser calls when it is made."""
    method = getattr(torch.optim.Optimizer.add_param_group, "__wrapped__", None)
    if method is not None and "torch._dynamo" not in sys.modules:
        method.__dynamo_disable = method


_add_parameters_without_compiler()
