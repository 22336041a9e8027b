"""The two things that are done for speed only.

**Freed memory is kept.** By default glibc gives large tensors back to the system when they are freed, and every step
then waits for fresh pages. On a busy machine 30 rounds of a small network took 9.5 s of CPU time with this and 12.6 to
14.6 without; on an idle one 9.4 and 9.7 (means of three), which is noise. To be removed if nothing more is found.

**Training without importing torch's compiler.** torch's optimisers import it when they are first used, only to tell it
to keep off. That takes every process 2.3 s of CPU time, almost as much as importing torch (2.6 s): a quarter of a
quickstart, which takes 9.2 s with engine `local`.
"""

from __future__ import annotations

import contextlib
import ctypes
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


def _keep_freed_memory() -> None:
    with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
        library = ctypes.CDLL(None)
        library.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
        library.mallopt(-3, 32 * 2**20)  # M_MMAP_THRESHOLD, the largest there is


_add_parameters_without_compiler()
_keep_freed_memory()
