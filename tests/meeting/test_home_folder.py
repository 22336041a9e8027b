"""What may become of a device's home folder: it goes on as it was, or says what is wrong and what to do."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meeting_peers import NAMES, plan
from wayfare.core.bundle import Bundle
from wayfare.core.errors import StoreError, WayfareError
from wayfare.encounters.policies.always import Always
from wayfare.experiment import Experiment
from wayfare.meeting.identity import Identity
from wayfare.meeting.invitation import GroupGuest, invite
from wayfare.meeting.peer_page import PeerRecord
from wayfare.meeting.program import opened

DIARY, DEEP = "diary.safetensors", b"[" * 200_000
TRANSFER = {"peer": "k", "name": "n", "way": "taken", "state": "taken", "sha256": "", "meeting": 1, "day": 0}
Change = Callable[[Path, Path], Any]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def instead(path: Path, make: Callable[[Path], Any]) -> None:
    path.unlink()
    make(path)


def forged(home: Path, **changes: Any) -> None:
    """Another diary with a seal that belongs to it: anybody can compute one."""
    found = Bundle.unpack((home / DIARY).read_bytes())
    about = json.dumps(json.loads(str(found.values["about"])) | changes)
    seal = hashlib.sha256(Bundle(found.tensors, {"about": about}).pack()).hexdigest()
    (home / DIARY).write_bytes(Bundle(found.tensors, {"about": about, "seal": seal}).pack())


FINE = ""
TOGETHER = "do not belong together"
# what is done to the home h (o: another device's), and what the device then says
MANIPULATIONS: dict[str, tuple[Change, str]] = {
    "diary cut": (lambda h, o: cut(h / DIARY), "is damaged"),
    "diary emptied": (lambda h, o: (h / DIARY).write_bytes(b""), "is damaged"),
    "diary is a folder": (lambda h, o: instead(h / DIARY, os.mkdir), "Is a directory"),
    "diary is a link to zeros": (lambda h, o: instead(h / DIARY, lambda p: p.symlink_to("/dev/zero")), "not a regular"),
    "diary of another device": (lambda h, o: shutil.copy(o / DIARY, h), "belongs to another device"),
    "diary forged: a line without its peer": (lambda h, o: forged(h, ledger=[{}]), "is damaged"),
    "diary forged: other kinds": (lambda h, o: forged(h, meetings="x", peers={}), "is damaged"),
    "diary forged: a transfer elsewhere": (
        lambda h, o: forged(h, ledger=[TRANSFER | {"transfer": "../../victim"}]), "a transfer has an odd name",
    ),
    "diary forged: hostile names": (
        lambda h, o: forged(h, ledger=[TRANSFER | {"transfer": "0" * 32, "state": "merged", "name": "[/red]\x1b[2J"}]),
        FINE,
    ),
    "pins cut": (lambda h, o: (h / "known.json").write_text('{"c1": '), "known.json cannot be read"),
    "pins nested deeply": (lambda h, o: (h / "known.json").write_bytes(DEEP), "known.json cannot be read"),
    "pins of another kind": (lambda h, o: (h / "known.json").write_text("[1]"), "expected a table"),
    "pins deleted": (lambda h, o: (h / "known.json").unlink(missing_ok=True), FINE),
    "key deleted": (lambda h, o: (h / "device.key").unlink(), TOGETHER),
    "key of another device": (lambda h, o: shutil.copy(o / "device.key", h), TOGETHER),
    "key of garbage": (lambda h, o: (h / "device.key").write_bytes(b"\xff"), TOGETHER),
    "certificate cut": (lambda h, o: cut(h / "device.crt"), "cannot be read"),
    "certificate of another device": (lambda h, o: shutil.copy(o / "device.crt", h), "belongs to 'c1'"),
    "authority that signed nothing": (lambda h, o: shutil.copy(o / "device.crt", h / "group.crt"), TOGETHER),
    "lock is a folder": (lambda h, o: ((h / "lock").unlink(missing_ok=True), (h / "lock").mkdir()), "cannot lock"),
    "unfinished files": (lambda h, o: (h / f".{DIARY}.tmp").write_bytes(b"x"), FINE),
    "models that nobody knows of": (lambda h, o: [(h / "taken").mkdir(), (h / "taken" / "x").write_text("")], FINE),
}  # fmt: skip


@pytest.fixture(scope="module")
def homes(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two devices that have begun."""
    place = tmp_path_factory.mktemp("homes")
    for name in NAMES[:2]:
        start(world, name, place / name)
    return place


def start(world: Path, name: str, home: Path) -> None:
    """Open the device, ready to meet others, and close it again."""
    experiment = replace(Experiment.read(world / "tour.toml"), exchange=Always(limit=2))
    with opened(replace(plan(world, name, experiment=experiment), home=home), lambda text: None) as peer:
        peer.stop()
        peer.run()


@pytest.mark.parametrize("name", MANIPULATIONS)
def test_manipulated(name: str, world: Path, homes: Path, tmp_path: Path) -> None:
    change, refusal = MANIPULATIONS[name]
    home = shutil.copytree(homes / "c0", tmp_path / "home")
    (tmp_path / "victim").touch()
    change(home, homes / "c1")
    with contextlib.suppress(WayfareError):
        PeerRecord.read(home)
    if refusal:
        with pytest.raises(WayfareError, match=refusal):
            start(world, "c0", home)
    else:
        before = PeerRecord.read(homes / "c0").model_sha256
        start(world, "c0", home)
        assert PeerRecord.read(home).model_sha256 == before
    assert (tmp_path / "victim").exists()


def test_a_member_of_a_group_that_lost_its_authority_meets_nobody(world: Path, homes: Path, tmp_path: Path) -> None:
    """Without it everybody's authority would count, and strangers be let in."""
    home = shutil.copytree(homes / "c0", tmp_path / "home")
    invited = invite(tmp_path / "group", GroupGuest(name="c0", experiment=Experiment.read(world / "tour.toml")), 9,
                     tmp_path / "c0.invite")  # fmt: skip
    for file in ("device.crt", "device.key"):
        (home / file).unlink()
    identity = Identity(home, "c0")
    identity.settle(invited.credentials)
    (home / "group.crt").unlink()
    with pytest.raises(StoreError, match=TOGETHER):
        identity.tls(serves=True)
