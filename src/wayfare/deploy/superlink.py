"""Flower's SuperLink as the server of a federation starts it: a program that serves two sockets it is given.

Flower 1.41 (and 1.42) serves the interface for nodes, the one for apps and the one that starts runs and registers nodes
on one port, and the last has no authentication. Here all of it is on a Unix socket that only the owner can open; on the
loopback address there is only what apps use (see owner_only.py). Nodes come through the fence (see fence.py).

    python -m wayfare.deploy.superlink UNIX_SOCKET_FD TCP_FD DATABASE SECRET_FILE
"""

from __future__ import annotations

import socket
import sys
from dataclasses import replace
from importlib import import_module
from typing import Any


def main(arguments: list[str]) -> None:
    """Serve until a signal comes."""
    import uvicorn
    from flwr.superlink.main import create_app

    from wayfare.deploy.owner_only import OwnerOnly

    flower: Any = import_module("flwr.superlink.cli.flower_superlink")
    sockets = [socket.socket(fileno=int(handle)) for handle in arguments[:2]]
    database, secret = arguments[2:]
    host, port = sockets[1].getsockname()
    sys.argv = [
        "flower-superlink", "--insecure", "--host", host, "--port", str(port), "--database", database,
        "--isolation", "process", "--superexec-auth-secret-file", secret,
    ]  # fmt: skip
    # Flower's command line allows node keys only with TLS of its own; here the fence has the TLS
    settings = replace(flower._parse_superlink_lifespan_config(), enable_supernode_auth=True)
    app = create_app(settings, flower.SuperLinkLifespan)
    config = uvicorn.Config(
        OwnerOnly(app), loop="asyncio", workers=1, proxy_headers=False, access_log=False,
        log_level="warning", timeout_graceful_shutdown=5,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=sockets)


if __name__ == "__main__":
    main(sys.argv[1:])
