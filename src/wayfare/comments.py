"""What the comments beside the fields of a dataclass say: the help of settings, for reference pages and for forms."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import tokenize
from collections.abc import Iterator
from typing import Any


def comments(cls: type[Any]) -> dict[str, str]:
    """What the comment beside each field of a dataclass says; its own before that of a class it extends."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if dataclasses.is_dataclass(each):
            found |= dict(_comments_beside(inspect.getsource(each)))
    return found


def _comments_beside(source: str) -> Iterator[tuple[str, str]]:
    beside = {
        token.start[0]: token.string.removeprefix("#").replace("fmt: skip", "").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    (body,) = ast.parse(source).body
    for node in body.body if isinstance(body, ast.ClassDef) else []:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.end_lineno in beside:
            yield node.target.id, beside[node.end_lineno]
