"""Who may import whom, what is public, and what no file may do."""

import ast
from pathlib import Path

import pytest

import wayfare

SRC = Path(wayfare.__file__).parent
LAYERS = {  # what each part may import of ours; errors are for everyone
    "core": {"core"},
    "data": {"data", "core.seeds"},
    "tasks": {"core", "data", "tasks"},
    "strategies": {"core", "strategies"},
    "topologies": {"core", "topologies", "data.contacts", "data.town.crowd"},
    "policies": {"core", "policies", "data.cache"},
    "engines": {"core", "engines"},
    "reports": {"reports"},
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def files(part=""):
    return sorted((SRC / part).rglob("*.py"))


@pytest.mark.parametrize("part", LAYERS)
def test_arrows_point_one_way(part):
    assert files(part)
    for path in files(part):
        ours = {name.removeprefix("wayfare.") for name in imports(path) if name.startswith("wayfare.")}
        beyond = [name for name in ours if not name.startswith(("errors", *LAYERS[part]))]
        assert not beyond, f"{path.relative_to(SRC)} imports {beyond}"


def test_strategies_extend_at_most_two_levels():
    from wayfare.components import find, names

    for name in names("strategy"):
        ancestors = [c for c in find("strategy", name).__mro__ if c.__module__.startswith("wayfare.strategies")]
        assert len(ancestors) <= 3, f"{name}: {ancestors}"


def test_nothing_executes_what_it_reads():
    """No pickle, torch.load, eval or exec; the one fenced import of weight files is the exception."""
    for path in files():
        tree = ast.parse(path.read_text())
        assert not {"pickle", "dill", "cloudpickle", "marshal", "shelve"} & set(imports(path)), path
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in {"eval", "exec", "yaml.load"}, f"{path}:{node.lineno}"
                allow = [ast.unparse(k.value) for k in node.keywords if k.arg == "allow_pickle"]
                assert allow in ([], ["False"]), f"{path}:{node.lineno}"
                if called == "torch.load":
                    assert path.relative_to(SRC).as_posix() == "data/weights.py", f"{path}:{node.lineno}"
                    assert any(k.arg == "weights_only" and ast.unparse(k.value) == "True" for k in node.keywords)


def test_pictures_are_opened_in_one_place():
    opened = [p.relative_to(SRC).as_posix() for p in files() if "Image.open(" in p.read_text()]
    assert opened == ["data/images.py"]


def test_there_is_one_training_loop():
    """torch's optimisers are used in one file."""
    steps = [p.relative_to(SRC).as_posix() for p in files() if "torch.optim" in p.read_text()]
    assert steps == ["core/device.py"]


def test_public_names_exist_and_are_all():
    for name in wayfare.__all__:
        assert getattr(wayfare, name) is not None
    with pytest.raises(AttributeError, match="Experiment"):
        wayfare.Experimnt  # noqa: B018


def test_importing_the_package_does_not_import_torch():
    import subprocess
    import sys

    code = "import sys, wayfare, wayfare.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
