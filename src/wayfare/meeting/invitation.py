"""An invitation: one text file with all that a device needs to take part in a group, and that nobody else may read.

It has the recipe, the device's key and certificate, and, if they are known, addresses to call and the published record.
It is data: everything in it is checked before it is used, and nothing in it is executed.

GROUP/group.crt group.key    the group's authority; group.key signs new invitations and stays with who invites
GROUP/devices/NAME.crt       the certificate of a device; its private key is in the invitation and nowhere else
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from wayfare.core.errors import ConfigError
from wayfare.experiment import Experiment
from wayfare.io.address import Address
from wayfare.io.certificates import Authority, name_in, new_key, pem, private_pem, role_in, write_private
from wayfare.io.small_toml import read_small_toml
from wayfare.meeting.identity import SIGN, Credentials, check_name
from wayfare.meeting.published import PublishedRecord
from wayfare.recipe import toml

_VERSION = 1
_LARGEST = 2**18  # bytes
_MOST_PEERS = 1000
_HEAD = """\
# An invitation to a group of devices that meet: wayfare meet THIS_FILE {use}
# Whoever has this file can take part as {name}. Send it over a secure channel, and let nobody else read it.
"""


@dataclass(frozen=True)
class Invitation:
    """What is in the file."""

    name: str
    signage: bool
    peers: tuple[str, ...]  # HOST:PORT
    published: str  # as --published takes it; "" if it is not known
    authority: str  # PEM certificate
    certificate: str  # PEM certificate of the device
    key: str  # PEM private key of the device
    recipe: str  # TOML

    def text(self) -> str:
        """The file's text."""
        use = "--signage --probe PHOTOS" if self.signage else "--photos DIR"
        values = {"version": _VERSION, **asdict(self), "peers": list(self.peers)}
        return _HEAD.format(use=use, name=self.name) + "".join(_entry(key, value) for key, value in values.items())

    @property
    def credentials(self) -> Credentials:
        """What proves who the device is."""
        return Credentials(self.authority, self.certificate, self.key)


@dataclass(frozen=True, kw_only=True)
class GroupGuest:
    """Whom to invite."""

    name: str
    experiment: Experiment
    peers: Sequence[Address] = ()
    published: PublishedRecord | None = None
    signage: bool = False


def invite(group: Path, guest: GroupGuest, days: int, out: Path) -> Invitation:
    """Enrol a device and write its invitation; the first one makes the group, which lasts for `days`."""
    check_name(guest.name)
    if out.exists():
        raise ConfigError(f"{out} exists already: choose another file with --out")
    recipe = _portable(guest.experiment).to_toml()
    authority = _authority(group, days)
    key = new_key()
    role = SIGN if guest.signage else ""
    certificate = pem(authority.for_peer(guest.name, key.public_key(), 0, role=role))
    try:
        write_private(group / "devices" / f"{guest.name}.crt", certificate)
    except FileExistsError as error:
        raise ConfigError(
            f"{guest.name!r} is invited already, and a name belongs to one key: choose another name"
        ) from error
    made = Invitation(
        guest.name, guest.signage, tuple(map(str, guest.peers)), str(guest.published or ""),
        authority=(group / "group.crt").read_text(encoding="ascii"), certificate=certificate.decode(),
        key=private_pem(key).decode(), recipe=recipe,
    )  # fmt: skip
    handle = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(made.text())
    return made


def is_invitation(path: Path) -> bool:
    """Whether a file is meant to be one."""
    try:
        with path.open("rb") as file:
            return file.read(len(_HEAD) // 3).startswith(_HEAD[:40].encode())
    except OSError:
        return False


def read_invitation(path: Path) -> Invitation:
    """The invitation in a file, checked."""
    try:
        made = _invitation(read_small_toml(path, _LARGEST))
        _check(made)
    except OSError as error:
        raise ConfigError(f"cannot read the invitation {path}: {error.strerror}") from error
    except (ValueError, TypeError, RecursionError, ConfigError) as error:
        raise ConfigError(f"{path} is not a valid invitation: {error}. Ask for a new one") from error
    return made


def _portable(experiment: Experiment) -> Experiment:
    """What the recipe means for all devices, without what is on this one: its folder, its traces."""
    if experiment.exchange is None:
        raise ConfigError("the recipe has no meetings: set topology.name = 'encounters'")
    table = tomllib.loads(experiment.to_toml())
    data = table.get("data", {})
    if data.get("path"):  # its classes are those of all
        table = tomllib.loads(replace(experiment, task=experiment.task.fixed()).to_toml())
        table["data"]["path"] = ""
    elif "names" in data and not data["names"]:
        raise ConfigError("the recipe does not say which classes there are: set data.names, or data.path to a folder")
    if "traces" in table["topology"]:
        table["topology"]["traces"] = ""
    return Experiment.from_table(table)


def _authority(group: Path, days: int) -> Authority:
    """The group's, made if it is not there. All its certificates have its own dates, which are whole days."""
    if not (group / "group.crt").exists():
        today = datetime.combine(datetime.now(UTC).date(), time(), UTC)
        key = new_key()
        (group / "group.key").unlink(missing_ok=True)  # of an invitation that was interrupted
        write_private(group / "group.key", private_pem(key))
        made = Authority("Wayfare group", key, dates=(today - timedelta(days=1), today + timedelta(days=days + 1)))
        write_private(group / "group.crt", pem(made.own(0)))
    try:
        found = x509.load_pem_x509_certificate((group / "group.crt").read_bytes())
        secret: Any = serialization.load_pem_private_key((group / "group.key").read_bytes(), password=None)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{group}: the group's key cannot be read, so nobody can be invited: {error}") from error
    if found.not_valid_after_utc < datetime.now(UTC):
        raise ConfigError(f"the group in {group} ended on {found.not_valid_after_utc:%Y-%m-%d}: make a new --group")
    return Authority("Wayfare group", secret, dates=(found.not_valid_before_utc, found.not_valid_after_utc))


def _entry(key: str, value: Any) -> str:
    if isinstance(value, str) and "\n" in value and "'''" not in value:
        return f"{key} = '''\n{value}'''\n"
    return f"{key} = {toml(value)}\n"


def _invitation(found: dict[str, Any]) -> Invitation:
    if found.pop("version", None) != _VERSION:
        raise ValueError(f"expected version = {_VERSION}")
    expected = {field.name for field in fields(Invitation)}
    if found.keys() != expected:
        raise ValueError(f"expected exactly the fields {', '.join(sorted(expected))}")
    peers, signage = found.pop("peers"), found.pop("signage")
    if not isinstance(signage, bool) or not isinstance(peers, list) or len(peers) > _MOST_PEERS:
        raise ValueError("signage or peers has an invalid value")
    if not all(isinstance(value, str) for value in [*found.values(), *peers]):
        raise ValueError("a field is not text")
    return Invitation(signage=signage, peers=tuple(peers), **found)


def _check(made: Invitation) -> None:
    check_name(made.name)
    for peer in made.peers:
        Address.read(peer)
    if made.published:
        PublishedRecord.read(made.published)
    authority = x509.load_pem_x509_certificate(made.authority.encode())
    certificate = x509.load_pem_x509_certificate(made.certificate.encode())
    key = serialization.load_pem_private_key(made.key.encode(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ValueError("its key does not belong to its certificate")
    if name_in(certificate) != made.name or (role_in(certificate) == SIGN) != made.signage:
        raise ValueError("its certificate is for another device")
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, TypeError) as error:
        raise ValueError("its certificate is not from its group") from error
    if certificate.not_valid_after_utc < datetime.now(UTC):
        raise ValueError(f"it expired on {certificate.not_valid_after_utc:%Y-%m-%d}")
    Experiment.from_toml(made.recipe)
