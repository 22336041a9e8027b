"""Who a device is: a key, and a certificate with its name, for TLS in both directions.

An invited device has its certificate from its group's authority and meets devices of that group only. The others have
theirs from an authority whose key everybody can compute, on purpose: TLS then proves to each side that the other holds
the key of its certificate, and says nothing more. Which key belongs to a name is decided by the pins: the first key
that came with a name, or the one that the owner has written down, is the only one from then on.

The dates in a certificate are those of its authority, so that they do not say when a device began.
"""

from __future__ import annotations

import hashlib
import json
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec

from wayfare.core import disk
from wayfare.core.errors import ConfigError, StoreError
from wayfare.io.certificates import (
    Authority,
    fingerprint,
    name_in,
    new_key,
    pem,
    private_pem,
    role_in,
    write_private,
)

SIGN = "signage"  # the role of signage in a certificate of a group
_ALWAYS = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
_MOST = 10_000  # peers that are remembered
_NAME = 63


class UnknownPeer(Exception):
    """A peer that is not the one that it says it is, or that its owner has not allowed."""


def check_name(name: str) -> None:
    """Names are shown to others and are names of folders."""
    if not (0 < len(name) <= _NAME and all(c.isascii() and (c.isalnum() or c in "-_") for c in name)):
        raise ConfigError(f"{name!r} cannot be a device's name: expected at most {_NAME} letters, digits, - and _")


@dataclass(frozen=True)
class Credentials:
    """What an invitation gives a device: PEM texts."""

    authority: str
    certificate: str
    key: str


@dataclass(frozen=True)
class PeerIdentity:
    """The other end of a connection."""

    name: str
    key: str  # fingerprint
    is_sign: bool  # its group's authority says that it is signage


@dataclass(frozen=True)
class Identity:
    """The files of a device's key."""

    folder: Path
    name: str

    def settle(self, invited: Credentials | None = None) -> None:
        """Make key and certificate if they are not there, or take those of an invitation."""
        check_name(self.name)
        if not (self.folder / "device.crt").exists():
            for name in ("device.key", "group.crt"):  # of a start that was interrupted
                (self.folder / name).unlink(missing_ok=True)
            if invited is None:
                key = new_key()
                secret = private_pem(key)
                certificate = pem(_everybodys().for_peer(self.name, key.public_key(), 0))
            else:
                secret, certificate = invited.key.encode(), invited.certificate.encode()
                write_private(self.folder / "group.crt", invited.authority.encode())
            write_private(self.folder / "device.key", secret)
            (self.folder / "device.part").unlink(missing_ok=True)
            write_private(self.folder / "device.part", certificate).replace(self.folder / "device.crt")
        if (found := self.own_name) != self.name:
            raise ConfigError(f"{self.folder} belongs to {found!r}: choose another --home, or --name {found}")
        if invited is not None and disk.read(self.folder / "device.crt") != invited.certificate.encode():
            raise ConfigError(
                f"{self.folder} has another key than the invitation: choose another --home for this invitation"
            )
        self.tls(serves=True)  # a key that cannot be used is an error now, not at the first meeting

    def _authority(self) -> bytes:
        """The certificate of the authority whose devices it meets."""
        made = disk.read(self.folder / "group.crt") if self.is_invited else pem(_everybodys().own(0))
        own = x509.load_pem_x509_certificate(disk.read(self.folder / "device.crt"))
        own.verify_directly_issued_by(x509.load_pem_x509_certificate(made))  # or anybody could be let in
        return made

    @cached_property
    def _own(self) -> PeerIdentity:
        try:
            return _identity_in(x509.load_pem_x509_certificate(disk.read(self.folder / "device.crt")))
        except (OSError, ValueError) as error:
            raise StoreError(f"{self.folder / 'device.crt'} cannot be read: {error}") from error

    @property
    def key(self) -> str:
        """The fingerprint of its key."""
        return self._own.key

    @property
    def own_name(self) -> str:
        """The name in its certificate."""
        return self._own.name

    @property
    def is_invited(self) -> bool:
        """Whether it belongs to a group."""
        return (self.folder / "group.crt").exists()

    def tls(self, serves: bool) -> ssl.SSLContext:
        """TLS 1.3 in which both sides show a certificate."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if serves else ssl.PROTOCOL_TLS_CLIENT)
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        made.check_hostname = False  # peers have names, not addresses
        made.verify_mode = ssl.CERT_REQUIRED
        try:
            made.load_verify_locations(cadata=self._authority().decode())
            made.load_cert_chain(self.folder / "device.crt", self.folder / "device.key")
        except (OSError, ValueError, TypeError, InvalidSignature) as error:  # ssl's errors are OSErrors
            raise StoreError(
                f"{self.folder}: device.crt, device.key and group.crt do not belong together, or one cannot be read "
                f"({error or type(error).__name__}): restore them from a copy, or begin anew with another --home"
            ) from error
        return made


def peer_of(line: ssl.SSLSocket) -> PeerIdentity:
    """The other end."""
    try:
        return _identity_in(x509.load_der_x509_certificate(line.getpeercert(binary_form=True) or b""))
    except (
        ValueError,
        TypeError,
        UnsupportedAlgorithm,
    ) as error:  # OpenSSL lets more pass
        raise UnknownPeer(f"a certificate that cannot be read: {error}") from error


def _identity_in(certificate: x509.Certificate) -> PeerIdentity:
    return PeerIdentity(name_in(certificate), fingerprint(certificate.public_key()), role_in(certificate) == SIGN)


def _everybodys() -> Authority:
    secret = int.from_bytes(hashlib.sha256(b"wayfare encounters: this key is no secret").digest(), "big")
    key: Any = ec.derive_private_key(secret, ec.SECP256R1())
    return Authority("Wayfare encounters", key, dates=_ALWAYS)


@dataclass
class Pins:
    """Whose key is whose: a file that its owner may edit."""

    file: Path
    own: str  # fingerprint of this device
    strangers: bool = True  # whether a name that is not in the file is welcome

    def check(self, name: str, key: str) -> None:
        """Refuse a peer whose key is not that of its name; remember a new one."""
        known = self.read()
        if key == self.own:
            raise UnknownPeer("it is this device itself")
        if not (0 < len(name) <= _NAME and name.isprintable()):
            raise UnknownPeer("a peer without a name")
        if name in known:
            if known[name] != key:
                raise UnknownPeer(f"{name!r} has another key than before: {key} instead of {known[name]}")
            return
        if key in known.values():
            raise UnknownPeer(f"the key {key} came with another name before, now it is {name!r}")
        if not self.strangers or len(known) >= _MOST:
            raise UnknownPeer(f"{name!r} with the key {key} is not in {self.file.name}")
        disk.write(self.file, (json.dumps(known | {name: key}, indent=1) + "\n").encode())

    def read(self) -> dict[str, str]:
        """The fingerprints by name."""
        try:
            found = json.loads(disk.read(self.file))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise StoreError(f"{self.file} cannot be read: {error}") from error
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise StoreError(f"{self.file}: expected a table of names and fingerprints")
        return found
