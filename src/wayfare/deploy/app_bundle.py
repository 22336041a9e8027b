"""The one app that a federation runs: a Flower app bundle which only names the installed Wayfare.

A bundle can carry any code. Its hash is therefore in every invitation, and a node runs no other.
"""

from __future__ import annotations

import hashlib

_APP = """\
[project]
name = "wayfare-federation"
version = "1.0.0"
description = "The installed Wayfare, on both sides"
dependencies = []
[tool.flwr.app]
publisher = "wayfare"
[tool.flwr.app.components]
serverapp = "wayfare.deploy.server_app:app"
clientapp = "wayfare.deploy.client_app:app"
"""


def app_bundle() -> bytes:
    """The bundle; the same bytes on every machine."""
    from flwr.cli.build import build_fab_from_files

    return bytes(build_fab_from_files({"pyproject.toml": _APP.encode()})[0])


def app_hash() -> str:
    """What an invitation says about it."""
    return hashlib.sha256(app_bundle()).hexdigest()
