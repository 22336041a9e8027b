"""The keys of a federation: its own authority, the server's certificate, and a certificate for each node.

DIR/ca.crt  ca.key            the authority; ca.key signs new invitations and stays with the server's owner
DIR/server.pem  server.key    the server's certificate, for the host names of all invitations
DIR/nodes/NAME.crt            the certificate of a node; its private key is in the invitation and nowhere else
DIR/revoked/NAME-*.crt        certificates that are refused from now on

A node has one key pair. It is the key of its TLS certificate and the key with which Flower's node signs its requests,
so that a certificate and a Flower node cannot be combined freely.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from wayfare.core.errors import ConfigError
from wayfare.io.certificates import Authority, fingerprint, new_key, pem, private_pem, write_private

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_AUTHORITY = "Wayfare federation authority"
_AUTHORITY_DAYS = 3650
_HERE = ("localhost", "127.0.0.1", "::1")


def check_name(name: str) -> None:
    """Names of nodes are names of files, and short."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot be a node's name: expected at most 63 letters, digits, - and _")


@dataclass(frozen=True)
class Roll:
    """Who may take part: the certificates in the folder. It is read anew each time, so a change counts at once."""

    folder: Path

    def check(self) -> None:
        """Refuse a folder in which no authority is."""
        for name in ("ca.crt", "server.pem", "server.key"):
            if not (self.folder / name).is_file():
                raise ConfigError(
                    f"no {name} in {self.folder}: invite the nodes first, for instance `wayfare federate invite "
                    f"camera-1 --server HOST:PORT --certificates {self.folder}`"
                )

    def names(self) -> list[str]:
        """The names of the nodes that are invited, sorted."""
        return sorted(path.stem for path in (self.folder / "nodes").glob("*.crt") if _NAME.fullmatch(path.stem))

    def certificate(self, name: str) -> bytes | None:
        """The PEM certificate of this node, or None."""
        if not _NAME.fullmatch(name):
            return None
        try:
            return (self.folder / "nodes" / f"{name}.crt").read_bytes()
        except OSError:
            return None

    def state(self) -> dict[str, bytes | None]:
        """All certificates by name, to see a change."""
        return {name: self.certificate(name) for name in self.names()}

    def public_keys(self) -> dict[str, Any]:
        """The nodes' public keys by name."""
        return {name: x509.load_pem_x509_certificate(pem).public_key() for name, pem in self.state().items() if pem}

    def holds(self, name: str, certificate: Any) -> bool:
        """Whether exactly this certificate is the current one of this name."""
        return self.certificate(name) == bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def revoke(self, name: str) -> str:
        """Refuse this node from now on; returns the fingerprint of its key."""
        check_name(name)
        keys = self.public_keys()
        if name not in keys:
            there = ", ".join(keys) or "nobody"
            raise ConfigError(f"{name!r} is not invited in {self.folder}: invited are {there}")
        print_ = fingerprint(keys[name])
        place = self.folder / "revoked"
        place.mkdir(mode=0o700, exist_ok=True)
        digest = hashlib.sha256(print_.encode()).hexdigest()[:12]
        (self.folder / "nodes" / f"{name}.crt").replace(place / f"{name}-{digest}.crt")
        return print_


def make_authority(folder: Path, hosts: Sequence[str], days: int) -> None:
    """Make the authority, and a server certificate for these hosts; what is there and still good stays."""
    if not (folder / "ca.crt").exists():
        key = new_key()
        write_private(folder / "ca.key", private_pem(key))
        write_private(folder / "ca.crt", pem(Authority(_AUTHORITY, key).own(_AUTHORITY_DAYS)))
    if not (folder / "server.key").exists():
        write_private(folder / "server.key", private_pem(new_key()))
    known = _hosts_of(folder / "server.pem")
    wanted = list(dict.fromkeys([*known, *hosts, *_HERE]))
    if wanted != known:
        public = _load_key(folder / "server.key").public_key()
        made = Authority(_AUTHORITY, _load_key(folder / "ca.key")).for_server(public, wanted, days)
        write_private(folder / "server.pem.part", pem(made)).replace(folder / "server.pem")


def enrol(folder: Path, name: str, days: int) -> tuple[bytes, bytes]:
    """Make a key and a certificate for a new node; returns both as PEM. The private key is not kept here."""
    check_name(name)
    place = folder / "nodes" / f"{name}.crt"
    if place.exists():
        raise ConfigError(
            f"{name!r} is invited already, and a name belongs to one key: choose another name, or revoke the "
            f"first invitation with `wayfare federate revoke {name} --certificates {folder}`"
        )
    key = new_key()
    certificate = pem(Authority(_AUTHORITY, _load_key(folder / "ca.key")).for_client(name, key.public_key(), days))
    return private_pem(key), write_private(place, certificate).read_bytes()


def _hosts_of(certificate: Path) -> list[str]:
    """The hosts of a server's certificate; none if it is not there or about to expire."""
    if not certificate.exists():
        return []
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    if found.not_valid_after_utc < datetime.now(UTC) + timedelta(days=1):
        return []
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def _load_key(path: Path) -> Any:
    if not path.is_file():
        raise ConfigError(
            f"{path} is missing: without it, nodes cannot be invited and the server's certificate cannot be changed"
        )
    return serialization.load_pem_private_key(path.read_bytes(), password=None)
