"""Flower's SuperNode as a node of a federation starts it, with the processes that it needs. A program:

    python -m wayfare.deploy.supernode SETTINGS.json

Flower's node is unchanged but for its connection: that shows the certificate of the invitation, goes through the
relay's socket, and takes no app but the one whose hash is in the invitation. Apps reach the node over the loopback
address with a secret that is new each time (see also owner_only.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import ssl
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

from wayfare.deploy.flower_tools import program, started
from wayfare.deploy.node_log import say
from wayfare.deploy.owner_only import OwnerOnly
from wayfare.deploy.warm_process import warm_process

_SECONDS = 60.0  # for a request: the fence may let it wait


def pinned_client(settings: Mapping[str, Any]) -> type[Any]:
    """Flower's client with the invitation's certificate, server and app."""
    import httpx
    from flwr.supercore.run import RunNotRunningException
    from flwr.supernode.fleet_http_client import FleetHttpClient

    context = ssl.create_default_context(cafile=settings["authority"])
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(settings["certificate"], settings["key"])

    class Way(httpx.HTTPTransport):
        """Through the relay, which ends a connection if the server is not there: Flower tries again then."""

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            try:
                return super().handle_request(request)
            except httpx.TransportError as error:
                if "EOF occurred" in str(error):
                    raise httpx.ConnectError(
                        "the server cannot be reached"
                    ) from error  # Flower gives up at word of TLS
                raise

    class PinnedClient(FleetHttpClient):
        """Goes nowhere else, and takes no other app."""

        def __init__(self, base_url: str, **options: Any) -> None:
            super().__init__(base_url, **{**options, "verify": False})
            self._client.close()
            transport = Way(uds=settings["relay"], verify=context)
            self._client = httpx.Client(transport=transport, timeout=_SECONDS, trust_env=False)

        def GetFab(self, request: Any) -> Any:
            """The app, if it is the one of the invitation."""
            response = super().GetFab(request)
            found = hashlib.sha256(response.fab.content).hexdigest()
            if found != settings["app"]:
                text = f"refused: the server sent an app {found[:12]} and the invitation is for {settings['app'][:12]}"
                say(Path(settings["home"]), text)
                raise RunNotRunningException(text)  # Flower's node drops the message, and goes on
            return response

    return PinnedClient


def main(settings: dict[str, Any]) -> None:
    """Run until a signal comes, or Flower's node ends."""
    from flwr.supernode.cli.flower_supernode import flower_supernode

    connection: Any = import_module("flwr.supernode.fleet_http_connection")
    node_api: Any = import_module("flwr.supernode.main")
    made = node_api.create_app
    connection.FleetHttpClient = pinned_client(settings)
    node_api.create_app = lambda **options: OwnerOnly(made(**options))
    home, port, secret = Path(settings["home"]), free_port(), Path(settings["secret"])
    secret.unlink(missing_ok=True)
    with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(32))
    trusted = ["--superexec-auth-secret-file", str(secret)]
    runtime = ["--insecure", "--runtime-api-address", f"127.0.0.1:{port}", "--parent-pid", str(os.getpid())]
    sys.argv = [
        "flower-supernode", "--superlink", settings["server"], "--root-certificates", settings["authority"],
        "--auth-supernode-private-key", settings["flower_key"], "--host", "127.0.0.1", "--port", str(port),
        "--node-config", settings["node_config"], "--isolation", "process", *trusted,
    ]  # fmt: skip
    with (
        warm_process(home / "flower", None) if settings["warm"] else nullcontext(dict(os.environ)) as env,
        started([program("flower-superexec"), *runtime, *trusted], env, None),
    ):
        flower_supernode()
    os._exit(1)  # it ends when it has lost its server for good, and leaves a thread behind that does not


def free_port() -> int:
    """A port on this machine: Flower's node talks to its own processes there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
