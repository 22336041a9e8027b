"""An invitation: one text file with all that a node needs to join, and that nobody else may read.

It is data. Everything in it is checked before it is used, and nothing in it is executed.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from wayfare.core.errors import ConfigError
from wayfare.deploy.app_bundle import app_hash
from wayfare.deploy.keys import check_name, enrol, make_authority
from wayfare.io.address import Address
from wayfare.io.certificates import name_in
from wayfare.io.small_toml import read_small_toml

_VERSION = 1
_LARGEST = 2**16  # bytes
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:.]{2,45}")
_HEAD = """\
# An invitation to a federation of Wayfare: wayfare federate join THIS_FILE --photos DIR
# Whoever has this file can take part as {name}. Send it over a secure channel, and let nobody else read it.
version = {version}
"""


@dataclass(frozen=True)
class Invite:
    """What is in the file."""

    name: str
    server: str  # HOST:PORT
    app: str  # SHA-256 of the app bundle
    authority: str  # PEM certificate
    certificate: str  # PEM certificate of the node
    key: str  # PEM private key of the node

    def text(self) -> str:
        """The file's text."""
        head = _HEAD.format(name=self.name, version=_VERSION)
        short = [f'{key} = "{value}"\n' for key, value in asdict(self).items() if "\n" not in value]
        long = [f"{key} = '''\n{value}'''\n" for key, value in asdict(self).items() if "\n" in value]
        return "".join([head, *short, *long])

    def write(self, path: Path) -> None:
        """A new file that only its owner can read."""
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError as error:
            raise ConfigError(f"{path} exists already: choose another file with --out") from error
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(self.text())


def invite(folder: Path, name: str, server: Address, days: int, out: Path) -> Invite:
    """Enrol a node and write its invitation."""
    check_name(name)
    if not _HOST.fullmatch(server.host):
        raise ConfigError(f"--server {server}: {server.host!r} is not a host name or address")
    if out.exists():
        raise ConfigError(f"{out} exists already: choose another file with --out")
    make_authority(folder, [server.host], days)
    key, certificate = enrol(folder, name, days)
    authority = (folder / "ca.crt").read_text(encoding="ascii")
    made = Invite(name, str(server), app_hash(), authority, certificate=certificate.decode(), key=key.decode())
    made.write(out)
    return made


def read_invite(path: Path) -> Invite:
    """The invitation in a file, checked."""
    try:
        made = Invite(**_fields(read_small_toml(path, _LARGEST)))
        _check(made)
    except OSError as error:
        raise ConfigError(f"cannot read the invitation {path}: {error.strerror}") from error
    except (ValueError, TypeError, RecursionError, ConfigError) as error:
        raise ConfigError(f"{path} is not a valid invitation: {error}. Ask the server's owner for a new one") from error
    return made


def _fields(found: dict[str, Any]) -> dict[str, str]:
    if found.pop("version", None) != _VERSION:
        raise ValueError(f"expected version = {_VERSION}")
    expected = {field.name for field in fields(Invite)}
    if found.keys() != expected:
        raise ValueError(f"expected exactly the fields {', '.join(sorted(expected))}")
    if not all(isinstance(value, str) for value in found.values()):
        raise ValueError("a field is not text")
    return dict(found)


def _check(made: Invite) -> None:
    check_name(made.name)
    if not _HOST.fullmatch(Address.read(made.server).host):
        raise ValueError("the server is not a host name or address")
    if not re.fullmatch("[0-9a-f]{64}", made.app):
        raise ValueError("the app's hash is not a SHA-256")
    authority = x509.load_pem_x509_certificate(made.authority.encode())
    certificate = x509.load_pem_x509_certificate(made.certificate.encode())
    key = serialization.load_pem_private_key(made.key.encode(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ValueError("its key does not belong to its certificate")
    if name_in(certificate) != made.name:
        raise ValueError("its certificate is for another name")
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, TypeError) as error:
        raise ValueError("its certificate is not from its authority") from error
    if certificate.not_valid_after_utc < datetime.now(UTC):
        raise ValueError(f"it expired on {certificate.not_valid_after_utc:%Y-%m-%d}")
