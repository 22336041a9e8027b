"""How much of the repetitive tests to do: a tenth in `make test`, all of it with WAYFARE_TESTS=full."""

import os

FULL = os.environ.get("WAYFARE_TESTS") == "full"


def some(count: int) -> int:
    """This many, or a tenth of them."""
    return count if FULL else count // 10
