"""What the tests of place recognition share: one thread, caches of their own, and a set of photographs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from place_pictures import hamlets as write_hamlets


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def cache(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One for all of them: pictures are decoded once."""
    monkeypatch.setenv("WAYFARE_CACHE", str(shared_cache))
    return shared_cache


@pytest.fixture(scope="session")
def hamlets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See `album.hamlets`; do not change it."""
    return write_hamlets(tmp_path_factory.mktemp("hamlets"))
