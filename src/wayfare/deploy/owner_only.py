"""Only the owner's own processes reach Flower's local interface.

Flower's server and node talk to the processes that they start over TCP on the loopback address, which every user of the
machine can reach. So this stands before their application. Through a Unix socket, which only its owner can open,
everything passes. Over TCP only the few runtime paths pass that those processes use, and only if the other end of the
connection belongs to the same user, which Linux tells. Elsewhere it does not: there Flower's own secret and task tokens
are what is left.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# what apps need of the runtime interface; not among them: new tasks, models, connectors, automations
RUNTIME = frozenset(
    f"/v1/runtime/{name}"
    for name in (
        "acquire-task", "send-task-heartbeat", "pull-task-input", "push-task-output", "push-object", "pull-object",
        "confirm-message-received", "push-messages", "pull-messages", "get-nodes", "push-logs",
    )
)  # fmt: skip


class OwnerOnly:
    """An ASGI application before another."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan" or _may_pass(scope):
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 403, "headers": [(b"connection", b"close")]})
            await send({"type": "http.response.body", "body": b""})


def _may_pass(scope: _Scope) -> bool:
    server, client = scope.get("server"), scope.get("client")
    if scope["type"] != "http" or server is None:
        return False
    if server[1] is None:  # a Unix socket has no port
        return True
    if any(name.lower().startswith(b"x-forwarded") for name, _ in scope["headers"]):
        return False  # uvicorn would believe it and show us another client
    return scope["path"] in RUNTIME and client is not None and is_owner(client[1], server[1])


def is_owner(client: int, server: int) -> bool:
    """Whether the process behind a loopback connection between these ports belongs to our user."""
    if sys.platform != "linux":
        return True
    ports = f"{client:04X}", f"{server:04X}"
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        parts = line.split()
        if (parts[1].partition(":")[2], parts[2].partition(":")[2]) == ports:
            return int(parts[7]) == os.getuid()
    return False
