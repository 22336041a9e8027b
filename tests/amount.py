"""How much of the repetitive tests to do: a fifth in `make test`, all of it with WAYFARE_TESTS=full."""

import os

FULL = os.environ.get("WAYFARE_TESTS") == "full"


def some(count: int) -> int:
    """This many, or a fifth of them."""
    return count if FULL else count // 5
