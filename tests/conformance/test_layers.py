"""What is public, and what no file may do. Who may import whom is in pyproject.toml, checked by `make lint`."""

import ast
import functools
from pathlib import Path

import pytest

import wayfare

SRC = Path(wayfare.__file__).parent


@functools.cache
def nodes(path):
    """All nodes of a file; parsing takes most of the time of these tests."""
    return list(ast.walk(ast.parse(path.read_text())))


@pytest.fixture(scope="module", autouse=True)
def forgotten():
    yield
    nodes.cache_clear()


def imports(path):
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def files(part=""):
    return sorted((SRC / part).rglob("*.py"))


def test_strategies_extend_at_most_two_levels():
    from wayfare.components import find, names

    for name in names("strategy"):
        ancestors = [c for c in find("strategy", name).__mro__ if c.__module__.startswith("wayfare.strategies")]
        assert len(ancestors) <= 3, f"{name}: {ancestors}"


def test_nothing_executes_what_it_reads():
    """No pickle, torch.load, eval or exec; the one fenced import of weight files is the exception."""
    for path in files():
        assert not {"pickle", "dill", "cloudpickle", "marshal", "shelve"} & set(imports(path)), path
        for node in nodes(path):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in {"eval", "exec", "yaml.load"}, f"{path}:{node.lineno}"
                allow = [ast.unparse(k.value) for k in node.keywords if k.arg == "allow_pickle"]
                assert allow in ([], ["False"]), f"{path}:{node.lineno}"
                if called == "torch.load":
                    assert path.relative_to(SRC).as_posix() == "io/weights.py", f"{path}:{node.lineno}"
                    assert any(k.arg == "weights_only" and ast.unparse(k.value) == "True" for k in node.keywords)


def test_pictures_are_opened_in_one_place():
    opened = [p.relative_to(SRC).as_posix() for p in files() if "Image.open(" in p.read_text()]
    assert opened == ["io/images.py"]


def test_there_is_one_training_loop():
    """torch's optimisers are used in one file, and sped up in another."""
    steps = [p.relative_to(SRC).as_posix() for p in files() if "torch.optim" in p.read_text()]
    assert steps == ["core/device.py", "core/tuning.py"]


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


def test_class_names_are_unique():
    """A name says what a class is, whatever file it is in. Only `Local` is two things, as recipes call them."""
    names = [n.name for p in files() for n in nodes(p)[0].body if isinstance(n, ast.ClassDef)]
    assert {name for name in names if names.count(name) > 1} == {"Local"}


def test_every_package_says_what_is_in_it():
    for folder in sorted({p.parent for p in files()}):
        if folder.parent == SRC:
            assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text())), folder.name


def test_components_are_not_probed():
    """What a part offers is declared in its base class; what is left asks things that are not ours."""
    allowed = {"cli/__init__.py"}  # which version of click this is
    for path in files():
        found = [n for n in nodes(path) if isinstance(n, ast.Call)]
        probes = [n.lineno for n in found if ast.unparse(n.func) == "hasattr"]
        assert not probes or path.relative_to(SRC).as_posix() in allowed, f"{path}: {probes}"
        assert "__dict__[" not in path.read_text(), path


def test_calls_name_what_is_beyond_five_arguments():
    variadic = {"nn.Sequential", "rng_for", "struct.pack"}
    for path in files():
        for node in nodes(path):
            if isinstance(node, ast.Call) and len(node.args) > 5 and ast.unparse(node.func) not in variadic:
                given = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
                assert len(given) <= 5, f"{path}:{node.lineno}: {ast.unparse(node)[:100]}"
