"""Keys and certificates: made, written and named. What it means that an authority has signed, its user says."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID


def fingerprint(public_key: Any) -> str:
    """A short name of a public key, for people to compare."""
    spki = public_key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return "SHA256:" + base64.b64encode(hashlib.sha256(spki).digest()).decode().rstrip("=")


def name_in(certificate: Any) -> str:
    """The name that a certificate carries; "" if it carries none or several."""
    names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def role_in(certificate: Any) -> str:
    """The role that a certificate gives; "" if it gives none."""
    roles = certificate.subject.get_attributes_for_oid(x509.NameOID.ORGANIZATIONAL_UNIT_NAME)
    return str(roles[0].value) if len(roles) == 1 else ""


def new_key() -> Any:
    """A private key."""
    return ec.generate_private_key(ec.SECP384R1())


@dataclass(frozen=True)
class Authority:
    """Signs certificates with its key."""

    name: str
    key: Any
    dates: tuple[datetime, datetime] | None = None  # of all it signs, so that they say nothing; None: from now on

    def own(self, days: int) -> Any:
        """Its own certificate."""
        return self._signed(self.name, self.key.public_key(), days, ())

    def for_server(self, public: Any, hosts: Sequence[str], days: int) -> Any:
        """For one that is called by these hosts."""
        return self._signed(hosts[0], public, days, (ExtendedKeyUsageOID.SERVER_AUTH,), hosts)

    def for_client(self, name: str, public: Any, days: int) -> Any:
        """For one that calls and is never called."""
        return self._signed(name, public, days, (ExtendedKeyUsageOID.CLIENT_AUTH,))

    def for_peer(self, name: str, public: Any, days: int, role: str = "") -> Any:
        """For one that calls and is called; `role` is said in the certificate."""
        both = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
        return self._signed(name, public, days, both, role=role)

    def _signed(
        self, subject: str, public: Any, days: int, uses: Sequence[Any], hosts: Sequence[str] = (), *, role: str = ""
    ) -> Any:
        own, now = not uses, datetime.now(UTC)
        begin, end = self.dates or (now - timedelta(minutes=5), now + timedelta(days=days))
        issuer = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        builder = x509.CertificateBuilder().subject_name(_named(subject, role)).issuer_name(_named(self.name))
        builder = builder.public_key(public).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(begin).not_valid_after(end)
        builder = builder.add_extension(x509.BasicConstraints(ca=own, path_length=0 if own else None), critical=True)
        builder = builder.add_extension(_usage(own), critical=True)
        if own:
            return builder.add_extension(issuer, critical=False).sign(self.key, hashes.SHA384())
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=True)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), False)
        above = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer)
        return builder.add_extension(above, critical=False).sign(self.key, hashes.SHA384())


def _usage(authority: bool) -> Any:
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=authority, crl_sign=authority, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _named(text: str, role: str = "") -> Any:
    unit = [x509.NameAttribute(x509.NameOID.ORGANIZATIONAL_UNIT_NAME, role)] if role else []
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text[:64]), *unit])


def _alternative(host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def private_pem(key: Any) -> bytes:
    """A private key as PEM, not encrypted."""
    form = serialization.PrivateFormat.PKCS8
    return bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def pem(certificate: Any) -> bytes:
    """A certificate as PEM."""
    return bytes(certificate.public_bytes(serialization.Encoding.PEM))


def write_private(path: Path, data: bytes) -> Path:
    """A new file that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    return path
