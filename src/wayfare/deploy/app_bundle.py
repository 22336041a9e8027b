"""The one app that a federation runs: a Flower app bundle which only names the installed Wayfare.

A bundle can carry any code. Its hash is therefore in every invitation, and a node runs no other.
"""

from __future__ import annotations

import hashlib
import io
import zipfile

_DATE = (1980, 1, 1, 0, 0, 0)
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
    """The bundle in Flower's format; the same bytes on every machine and with every version of Flower."""
    text = _APP.encode()
    manifest = f"pyproject.toml,{hashlib.sha256(text).hexdigest()},{8 * len(text)}"
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as bundle:
        for name, content in (("pyproject.toml", text), (".info/CONTENT", manifest.encode())):
            bundle.writestr(zipfile.ZipInfo(name, _DATE), content)
    return made.getvalue()


def app_hash() -> str:
    """What an invitation says about it."""
    return hashlib.sha256(app_bundle()).hexdigest()
