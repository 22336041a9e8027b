"""Code lines of a module, and which modules mention which names."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import wayfare

SRC = Path(wayfare.__file__).parent
_NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(text: str) -> int:
    """Lines that are not blank, not comment only, not docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and type(first.value.value) is str:
                lines.difference_update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def mentions(word: str) -> list[str]:
    """The files of the package in which a word occurs, in any case of letters; not those that `init` writes."""
    apart = {"__pycache__", "starting"}
    files = (path for path in sorted(SRC.rglob("*")) if path.is_file() and not apart.intersection(path.parts))
    return [
        path.relative_to(SRC).as_posix()
        for path in files
        if word.lower() in path.read_text(encoding="utf-8", errors="replace").lower()
    ]
