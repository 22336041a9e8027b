"""What the tests of reliability share: warm pools, and the figures that are printed at the end."""

from __future__ import annotations

import pytest
import torch

from faults import Ordered

FIGURES: list[str] = []


@pytest.fixture
def figure():
    """Tells a figure to the reader of the test run."""
    return FIGURES.append


def pytest_terminal_summary(terminalreporter):
    if FIGURES:
        terminalreporter.section("what was survived")
        for line in FIGURES:
            terminalreporter.write_line(line)


@pytest.fixture(scope="package")
def pools():
    """Pools of 1, 2 and 4 workers, started once: their cost is the import of torch in each worker."""
    made = {workers: Ordered(workers) for workers in (1, 2, 4)}
    yield made
    for pool in made.values():
        pool.close()


@pytest.fixture(autouse=True)
def one_thread():
    """As in every engine; and a process that forks must have no other threads at work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
