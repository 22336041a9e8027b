"""Modules beside this file are helpers that tests import by name: `from toy import Lab`.

Tests run in one process more than there are cores (`-n auto`), file by file: some only wait for Flower's deadlines or a
browser. Each process keeps to one thread.
"""

import functools
import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported, and for the processes that tests start
sys.path.insert(0, str(Path(__file__).parent))


LONG = (  # half a minute or more each
    "test_federation", "test_crash_points", "test_strangers", "test_pool.py", "test_examples", "test_flower",
    "test_disk_full", "test_encounters", "test_docs", "test_demo", "test_make",
)  # fmt: skip


def pytest_xdist_auto_num_workers():
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items):
    """Files that take long come first, so that no process is left with one of them while the others are done."""
    items.sort(key=lambda item: next((n for n, name in enumerate(LONG) if item.path.name.startswith(name)), len(LONG)))


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory):
    """A WAYFARE_CACHE for all tests that may have one together, in all processes, and for the workers below."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared-cache"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def pool(shared_cache):
    """Two workers for all who only need some: each takes seconds to start. Whoever harms workers hires their own."""
    from wayfare.engines.pool.engine import Pool

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAYFARE_CACHE", str(shared_cache))  # they inherit it
        workers = Pool(2)
    with workers:
        yield workers


@pytest.fixture(scope="session", autouse=True)
def light():
    """Some thousand runs: without waiting for a disk, asking git for the commit, or unpacking the digits each time."""
    from sklearn import datasets

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wayfare.run_folder._commit", lambda: "")
        patch.setattr(os, "fsync", lambda handle: None)  # no test cuts the power; `faults.Watch` hears the calls
        patch.setattr(datasets, "load_digits", functools.cache(datasets.load_digits))
        yield
