"""Certificates and keys for a federation: an authority, the server's certificate, a key for each node.

DIR/ca.crt  ca.key            the authority; nodes need ca.crt, nobody needs ca.key after this
DIR/server.pem  server.key    stay on the server
DIR/nodes/NAME  NAME.pub      the private key goes to that node (and may then be deleted here); .pub stays
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from wayfare.core.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def check_name(name: str) -> None:
    """Names of nodes are names of files, and short."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot be a node's name: expected at most 63 letters, digits, - and _")


def make_keys(folder: Path, nodes: Sequence[str], hosts: Sequence[str], days: int = 365) -> list[Path]:
    """Write what the module's heading lists; what is there already stays, so that nodes can be added later.

    The server's certificate is for `hosts`, names or addresses by which nodes reach it.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    for name in nodes:
        check_name(name)
    made: list[Path] = []
    if not (folder / "ca.crt").exists():
        made += _authority(folder, hosts, days)
    for name in nodes:
        place = folder / "nodes" / name
        if place.with_name(f"{name}.pub").exists():
            continue
        key = ec.generate_private_key(ec.SECP384R1())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        made += [_write(place, private), _write(place.with_name(f"{name}.pub"), public + b"\n")]
    return made


def _authority(folder: Path, hosts: Sequence[str], days: int) -> list[Path]:
    """The authority and the server's certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    def named(text: str) -> Any:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    def begun(subject: str, public: Any) -> Any:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(named(subject)).issuer_name(named("Wayfare trial authority"))
        builder = builder.public_key(public).serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - timedelta(minutes=5)).not_valid_after(now + timedelta(days=days))

    def use(authority: bool) -> Any:
        return x509.KeyUsage(
            digital_signature=True, key_cert_sign=authority, crl_sign=authority, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip

    above, own = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    identity = x509.SubjectKeyIdentifier.from_public_key(above.public_key())
    root = (
        begun("Wayfare trial authority", above.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(use(True), critical=True)
        .add_extension(identity, critical=False)
        .sign(above, hashes.SHA384())
    )
    server = (
        begun(hosts[0], own.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(use(False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identity), critical=False)
        .sign(above, hashes.SHA384())
    )
    pem, no_password = serialization.Encoding.PEM, serialization.NoEncryption()
    kind = serialization.PrivateFormat.PKCS8
    return [
        _write(folder / "ca.key", above.private_bytes(pem, kind, no_password)),
        _write(folder / "ca.crt", root.public_bytes(pem)),
        _write(folder / "server.key", own.private_bytes(pem, kind, no_password)),
        _write(folder / "server.pem", server.public_bytes(pem)),
    ]


def _alternative(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(path: Path, data: bytes) -> Path:
    """A new file that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    return path
