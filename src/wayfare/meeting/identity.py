"""Who a device is: a key, and a certificate with its name, for TLS in both directions.

The authority that signs the certificates has a key that everybody can compute, on purpose: TLS then proves to each side
that the other holds the key of its certificate, and says nothing more. Which key belongs to a name is decided by the
pins: the first key that came with a name, or the one that the owner has written down, is the only one from then on.
"""

from __future__ import annotations

import hashlib
import json
import ssl
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from wayfare.core import disk
from wayfare.core.errors import ConfigError, StoreError
from wayfare.io.certificates import Authority, fingerprint, name_in, new_key, pem, private_pem, write_private

_DAYS = 3650
_MOST = 10_000  # peers that are remembered
_NAME = 63


class UnknownPeer(Exception):
    """A peer that is not the one that it says it is, or that its owner has not allowed."""


@dataclass(frozen=True)
class Identity:
    """The files of a device's key."""

    folder: Path
    name: str

    def settle(self) -> None:
        """Make key and certificate if they are not there."""
        if not (0 < len(self.name) <= _NAME and all(c.isascii() and (c.isalnum() or c in "-_") for c in self.name)):
            raise ConfigError(f"--name {self.name!r}: expected at most {_NAME} letters, digits, - and _")
        if not (self.folder / "device.crt").exists():
            key = new_key()
            (self.folder / "device.key").unlink(missing_ok=True)  # of a start that was interrupted
            write_private(self.folder / "device.key", private_pem(key))
            made = _everybodys().for_peer(self.name, key.public_key(), _DAYS)
            write_private(self.folder / "device.part", pem(made)).replace(self.folder / "device.crt")
        if (found := self._certificate()[0]) != self.name:
            raise ConfigError(f"{self.folder} belongs to {found!r}: choose another --home, or --name {found}")

    def _certificate(self) -> tuple[str, str]:
        from cryptography import x509

        try:
            found = x509.load_pem_x509_certificate((self.folder / "device.crt").read_bytes())
        except (OSError, ValueError) as error:
            raise StoreError(f"{self.folder / 'device.crt'} cannot be read: {error}") from error
        return name_in(found), fingerprint(found.public_key())

    @cached_property
    def key(self) -> str:
        """The fingerprint of its key."""
        return self._certificate()[1]

    def tls(self, serves: bool) -> ssl.SSLContext:
        """TLS 1.3 in which both sides show a certificate."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if serves else ssl.PROTOCOL_TLS_CLIENT)
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        made.check_hostname = False  # peers have names, not addresses
        made.verify_mode = ssl.CERT_REQUIRED
        made.load_verify_locations(cadata=pem(_everybodys().own(_DAYS)).decode())
        made.load_cert_chain(self.folder / "device.crt", self.folder / "device.key")
        return made


def peer_of(line: ssl.SSLSocket) -> tuple[str, str]:
    """The name and the fingerprint of the other end."""
    from cryptography import x509

    certificate = x509.load_der_x509_certificate(line.getpeercert(binary_form=True) or b"")
    return name_in(certificate), fingerprint(certificate.public_key())


def _everybodys() -> Authority:
    from cryptography.hazmat.primitives.asymmetric import ec

    secret = int.from_bytes(hashlib.sha256(b"wayfare encounters: this key is no secret").digest(), "big")
    key: Any = ec.derive_private_key(secret, ec.SECP256R1())
    return Authority("Wayfare encounters", key)


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
            raise UnknownPeer("that is this device itself")
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
            found = json.loads(self.file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise StoreError(f"{self.file} cannot be read: {error}") from error
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise StoreError(f"{self.file}: expected a table of names and fingerprints")
        return found
