import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def faulty():
    """The module of deliberately faulty strategies, importable by its name as a user's module would be."""
    spec = importlib.util.spec_from_file_location("faulty_strategies", Path(__file__).with_name("faulty_strategies.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["faulty_strategies"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["faulty_strategies"]
