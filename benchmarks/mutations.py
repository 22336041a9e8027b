"""Do the tests notice a fault? Small faults are put into four modules, one at a time, and the module's tests are run.

    python benchmarks/mutations.py [--quick] [--json] [--only MODULE] [--part K/N] [--sample N] [--seed S]

A fault (mutant) is one change of the syntax tree: another comparison, a boundary, a sign, `and` for `or`, a condition
turned round, a constant plus or minus one, `return None`, a statement left out. Texts and annotations stay as they are.
It is killed if a test fails or does not come to an end. The score is the share of mutants that are killed, without
those listed in `EQUIVALENT`, which change nothing that can be observed. Exit status 1 if it is below 95 %; with --quick
it is only printed.

Each mutant runs in a forked process that has the libraries loaded and the module not yet, so most take seconds.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from figures import target

ROOT = Path(__file__).resolve().parents[1]
TARGET = 0.95
QUICK = 20

# the module: its tests, the quickest first
TESTS = {
    "core/bundle": [
        "core/test_survivors.py",
        "core/test_bundle.py",
        "core/test_device.py",
        "strategies/test_fedavg.py",
    ],
    "core/gate": ["core/test_gate_bounds.py", "core/test_gate.py", "core/test_influence.py"],
    "core/store": [
        "core/test_store.py",
        "reliability/test_lock.py::test_twice_in_one_process",
        "reliability/test_store.py",
    ],
    "strategies/fedavg": [
        "core/test_survivors.py",
        "strategies/test_fedavg.py",
        "topologies/test_server.py",
        "topologies/test_hierarchy.py",
        "strategies/test_local.py",
    ],
}
EQUIVALENT = {
    "core/bundle Bundle.unpack: header = json.loads(data[8:8 + int.from_bytes(data[:8], 'little')]) "
    "-> header = json.loads(data[8:8 + int.from_bytes(data[:7], 'little')])": "no header has 2**56 bytes",
    "core/bundle _is_same: pairs = ((tensor, other[name]) for name, tensor in one.items() if name in other) "
    "-> pairs = ((tensor, other[name]) for name, tensor in one.items())": "looked at only if the names are the same",
    "core/bundle travelling: persistent = net.state_dict(keep_vars=True) "
    "-> persistent = net.state_dict(keep_vars=False)": "only its names are used",
    "core/gate : Requests = Iterable[tuple[str, Bundle]] -> pass": "a name in annotations, which nobody evaluates",
    "core/gate : Replies = Iterator[tuple[str, Bundle]] -> pass": "a name in annotations, which nobody evaluates",
    "core/gate : Test = Callable[[str, Bundle], None] -> pass": "a name in annotations, which nobody evaluates",
    "core/gate Gate._admitted: raise failures[0] from None -> raise failures[-1] from None": "the first one is raised "
    "at once, so there is one",
    "core/store _is_foreign: return False -> return None": "it is only asked whether it is true",
    "core/store _is_round: return False -> return None": "it is only asked whether it is true",
    "core/store : Warn = Callable[[str], None] -> pass": "a name in annotations, which nobody evaluates",
    "core/gate _MergeFault.__init__: super().__init__(str(error)) -> pass": "it is always caught, and never shown",
    "core/gate _check_norm: if start is not None and length > bound: "
    "-> if start is not None and length >= bound:": "a change of the bound's length is admitted either way",
}
LIBRARIES = (
    "numpy",
    "pytest",
    "safetensors.torch",
    "scipy.stats",
    "sklearn.datasets",
    "typer",
    "rich.table",
)

SWAPS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.BitXor: (ast.BitAnd,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
LEFT_OUT = (ast.Assign, ast.AugAssign, ast.Expr, ast.Raise, ast.Delete, ast.Continue, ast.Break)


# ---- the faults


@dataclass(frozen=True)
class Mutant:
    """One fault: what to run instead, and where it is."""

    module: str
    line: int
    what: str  # also the key in EQUIVALENT
    code: str


def variants(node: ast.AST) -> Iterator[ast.AST]:  # noqa: C901  (one case for each kind of node)
    """What may stand in a node's place."""
    match node:
        case ast.Compare():
            for at, op in enumerate(node.ops):
                for other in SWAPS.get(type(op), ()):
                    yield ast.Compare(node.left, [*node.ops[:at], other(), *node.ops[at + 1 :]], node.comparators)
        case ast.BinOp() if not isinstance(node.right, ast.JoinedStr) and not _is_text(node.right):  # else a TypeError
            for other in SWAPS.get(type(node.op), ()):
                yield ast.BinOp(node.left, other(), node.right)
        case ast.AugAssign():
            for other in SWAPS.get(type(node.op), ()):
                yield ast.AugAssign(node.target, other(), node.value)
        case ast.BoolOp():
            yield ast.BoolOp(SWAPS[type(node.op)][0](), node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            step = 1 if abs(node.value) < 1e6 else node.value // 2  # 1e30 + 1 is 1e30
            yield ast.Constant(node.value + step)
            yield ast.Constant(node.value - step)
        case ast.If() | ast.IfExp() | ast.While() if not isinstance(node.test, ast.Compare | ast.UnaryOp):  # they turn
            turned = copy.copy(node)
            turned.test = ast.UnaryOp(ast.Not(), node.test)
            yield turned
        case ast.comprehension(ifs=[_, *_]):
            yield ast.comprehension(node.target, node.iter, [], node.is_async)
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield ast.Return(ast.Constant(None))
    if isinstance(node, LEFT_OUT) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        yield ast.Pass()


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def places(node: ast.AST, within: str = "") -> Iterator[tuple[ast.AST, str, int | None, str]]:
    """Every node that may be replaced: its parent, the parent's field and position in it, the function it is in."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases") or isinstance(node, ast.JoinedStr):
            continue
        for at, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST):
                yield node, field, at, within
                named = isinstance(child, ast.FunctionDef | ast.ClassDef)
                yield from places(child, f"{within}.{child.name}".lstrip(".") if named else within)


def mutants(module: str) -> list[Mutant]:
    """Every fault of a module."""
    tree = ast.parse((ROOT / "src" / "wayfare" / f"{module}.py").read_text())
    found, plain = [], ast.unparse(tree).splitlines()
    for parent, field, at, within in list(places(tree)):
        value = getattr(parent, field)
        node = value if at is None else value[at]
        for other in variants(node):
            _put(parent, field, at, other)
            code = ast.unparse(ast.fix_missing_locations(tree))
            _put(parent, field, at, node)
            before, after = next((a, b) for a, b in zip(plain, code.splitlines()) if a != b)
            what = f"{module} {within}: {before.strip()} -> {after.strip()}"
            found.append(Mutant(module, _line(node, parent), what, code))
    return found


def _put(parent: ast.AST, field: str, at: int | None, node: ast.AST) -> None:
    if at is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[at] = node


def _line(*nodes: ast.AST) -> int:
    return next((node.lineno for node in nodes if isinstance(node, ast.expr | ast.stmt)), 0)


# ---- running the tests


class Instead(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the changed code in the module's place."""

    def __init__(self, name: str, path: Path, code: str) -> None:
        self.name, self.path, self.code = name, path, code

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)  # type: ignore[arg-type]

    def exec_module(self, module: object) -> None:
        exec(compile(self.code, str(self.path), "exec"), vars(module))


def outcome(module: str, code: str, seconds: float) -> str:
    """Run the module's tests on this code: "passed", "failed" or "endless"."""
    child = os.fork()
    if not child:
        os.setsid()
        _run(module, code)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "passed" if os.waitstatus_to_exitcode(status) == 0 else "failed"
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "endless"


def _run(module: str, code: str) -> None:
    """In the child: import the changed code, run the tests, and leave with their exit status."""
    import pytest

    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    name = "wayfare." + module.replace("/", ".")
    sys.meta_path.insert(0, Instead(name, ROOT / "src" / "wayfare" / f"{module}.py", code))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = folder
        options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-seed=0", f"--basetemp={folder}/t"]
        try:
            status = int(pytest.main([*options, *(str(ROOT / "tests" / test) for test in TESTS[module])]))
        except BaseException:
            status = 1
    os._exit(min(status, 100))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"only {QUICK} mutants of all modules")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=list(TESTS), help="one module")
    parser.add_argument("--part", default="1/1", help="K/N: the K-th of N equal parts of the mutants, in order")
    parser.add_argument("--sample", type=int, default=0, help="so many mutants of all that there are")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    _load_libraries()
    chosen = [mutant for module in TESTS if given.only in (None, module) for mutant in mutants(module)]
    part, parts = map(int, given.part.split("/"))
    chosen = chosen[len(chosen) * (part - 1) // parts : len(chosen) * part // parts]
    total, sample = len(chosen), given.sample or (QUICK if given.quick else 0)
    if sample:
        chosen = random.Random(given.seed).sample(chosen, min(sample, total))
    began, limits, survivors, killed = time.monotonic(), dict[str, float](), list[Mutant](), 0
    for number, mutant in enumerate(chosen):
        if number and number % 25 == 0:
            print(f"{number} of {len(chosen)}", file=sys.stderr, flush=True)
        if mutant.what in EQUIVALENT:
            continue
        if mutant.module not in limits:
            limits[mutant.module] = _limit(mutant.module)
        if outcome(mutant.module, mutant.code, limits[mutant.module]) == "passed":
            survivors.append(mutant)
            print(f"survived  {mutant.module}.py:{mutant.line}  {mutant.what}", file=sys.stderr, flush=True)
        else:
            killed += 1
    score = killed / max(1, killed + len(survivors))
    figures = {"mutants": total, "tried": killed + len(survivors), "killed": killed, "score": score, "target": TARGET}
    figures |= {"survivors": [mutant.what for mutant in survivors], "seconds": time.monotonic() - began}
    if given.json:
        of = f"{given.only}: " if given.only else ""
        rows = [target(f"{of}mutants killed of those tried, %", 100 * score, 100 * TARGET)]
        rows += [target(f"{of}mutants", total), target(f"{of}of them tried", killed + len(survivors))]
        print(json.dumps({"quick": given.quick, "figures": figures, "targets": rows, "met": score >= TARGET}))
    else:
        print(
            f"{killed} of {killed + len(survivors)} mutants killed, {score:.1%} ({total} in all, target {TARGET:.0%})"
        )
    return 0 if given.quick or score >= TARGET else 1  # a score of twenty is not judged, only printed


def _load_libraries() -> None:
    """What children would otherwise load one by one; nothing of Wayfare."""
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.path.insert(0, str(ROOT / "src"))
    for name in LIBRARIES:
        importlib.import_module(name)


def _limit(module: str) -> float:
    """Seconds after which a mutant counts as endless; the tests must pass on the code as it is."""
    began = time.monotonic()
    code = (ROOT / "src" / "wayfare" / f"{module}.py").read_text()
    if outcome(module, code, 600) != "passed":
        sys.exit(f"{module}: its tests do not pass as it is: {TESTS[module]}")
    return 20 + 5 * (time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
