"""Devices that really meet: their exchanges are the simulation's, and their ledgers agree whatever dies when."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import multiprocessing
import re
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from meet_parts.replay import done, first_scores, hash_of, meetings_of, replay
from meeting_peers import NAMES, Killed, agree, be, free_ports, plan, talk, until
from wayfare.core.bundle import digest
from wayfare.core.errors import ConfigError
from wayfare.encounters.policies.always import Always
from wayfare.engines.pool.processes import start_fork_server
from wayfare.experiment import Experiment
from wayfare.io.address import Address
from wayfare.meeting.discovery import Mdns
from wayfare.meeting.identity import Pins, UnknownPeer
from wayfare.meeting.peer_page import PeerRecord
from wayfare.meeting.program import opened
from wayfare.meeting.session import merge_taken
from wayfare.meeting.wire import FIELDS, Line, PeerFault

pytestmark = pytest.mark.timeout(200)


# ---- the same as the simulation


def test_four_processes_do_what_the_simulation_does(world: Path, tmp_path: Path) -> None:
    experiment = Experiment.read(world / "tour.toml")
    published = first_scores(experiment, tmp_path / "before")
    ports = free_ports(len(NAMES))
    start_fork_server()
    context = multiprocessing.get_context("forkserver")
    crew = [
        context.Process(
            target=be, args=(str(world), name, ports[place], tuple(ports[:place]), published.ends), daemon=True
        )
        for place, name in enumerate(NAMES)
    ]
    for process in crew:
        process.start()
    until(lambda: all(has_met(world, name) for name in NAMES))
    (world / "end").touch()
    for process in crew:
        process.join(60)
    assert [process.exitcode for process in crew] == [0] * len(NAMES)
    records = {name: PeerRecord.read(world / "homes" / name) for name in NAMES}
    order = meetings_of(records)
    assert {name for one in order for taker, giver, _ in one.taken for name in (taker, giver)} == {*NAMES}
    played, model = replay(experiment, NAMES, order, tmp_path / "after")
    assert played == [done(one) for one in order]
    assert model == hash_of({name: (world / f"{name}.model").read_text() for name in NAMES}, NAMES)


def has_met(world: Path, name: str) -> bool:
    """Whether it has exchanged something, and nothing is on its way."""
    try:
        ledger = PeerRecord.read(world / "homes" / name).ledger
    except ConfigError:
        return False
    return bool(ledger) and not any(line.state == "open" for line in ledger)


# ---- whatever dies when


def test_killed_at_every_step_and_started_again(pair: Any, tmp_path: Path) -> None:
    peers = pair(tmp_path / "whole")
    assert talk(*peers) == [None, None] and agree(peers)
    assert len({digest(peer.device.state.model["model"]) for peer in peers}) == 1  # the mean of both
    points = 0
    for side in (0, 1):
        for step in range(100):
            home = tmp_path / f"{side}-{step}"
            if not isinstance(talk(*pair(home), dies=(side, step))[side], Killed):
                break
            points += 1
            peers = pair(home)  # from the disk
            for peer in peers:
                merge_taken(peer.device, peer.diary)
            assert talk(*peers, slot=1) == [None, None]
            assert agree(peers), (side, step)
            assert [int(peer.device.state.columns["taken"][0]) for peer in peers] == [1, 1]
            assert not list((home / "c0" / "taken").glob("*"))
    assert points > 20


# ---- strangers and liars


def test_a_name_belongs_to_the_first_key_that_came_with_it(tmp_path: Path) -> None:
    pins = Pins(tmp_path / "known.json", "SHA256:own")
    pins.check("anna", "SHA256:a")
    pins.check("anna", "SHA256:a")
    lies = [("anna", "SHA256:b"), ("bert", "SHA256:a"), ("me", "SHA256:own"), ("", "SHA256:c"), ("x" * 64, "SHA256:d")]
    for name, key in lies:
        with pytest.raises(UnknownPeer):
            pins.check(name, key)
    enrolled = replace(pins, strangers=False)
    enrolled.check("anna", "SHA256:a")
    with pytest.raises(UnknownPeer, match="is not in"):
        enrolled.check("carl", "SHA256:c")
    assert pins.read() == {"anna": "SHA256:a"}


GOOD: dict[str, dict[str, Any]] = {
    "hello": {"version": 2, "about": "a" * 64, "nonce": "b" * 32, "open": ["c" * 32]},
    "settled": {"settled": {"c" * 32: "taken"}},
    "offer": {
        "announced": True, "avoids": False, "score": 0.5, "model": "d" * 64,
        "examples": 3, "labels": [1, 2], "record": [0.1, 0.4, 0.8, 9],
    },
    "want": {"wants": True, "transfer": "e" * 32, "have": "", "from": 0},
    "weights": {"transfer": "e" * 32, "sha256": "f" * 64, "bytes": 9, "from": 0},
    "ack": {"transfer": "e" * 32, "refused": False},
}  # fmt: skip
ODD = (
    None,
    "x",
    "../" * 10 + "ab",
    -1,
    2**70,
    10**400,  # too large for a float
    math.nan,
    1e300,
    True,
    [],
    {},
    [["c"]],
    {"a": 1},
    "\x1b[2J",
    "x" * 10**5,
)


def said(raw: bytes, kind: str, seconds: float = 5) -> dict[str, Any]:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        theirs.sendall(raw)
        theirs.shutdown(socket.SHUT_WR)
        return Line(mine, seconds).receive(kind)


def framed(message: Any) -> bytes:
    data = json.dumps(message).encode()
    return len(data).to_bytes(4, "big") + data


def test_messages_have_known_fields_of_known_kinds() -> None:
    """Whatever stands in a field, it is what was declared, or the meeting ends; nothing says where or when."""
    assert {name for fields in FIELDS.values() for name in fields} == {
        "version", "about", "nonce", "open", "settled", "announced", "avoids", "score", "model", "examples", "labels",
        "record", "wants", "transfer", "have", "from", "sha256", "bytes", "refused",
    }  # fmt: skip
    for kind, good in GOOD.items():
        assert said(framed({"kind": kind, **good}), kind) == good
        for name in good:
            for odd in ODD:
                with contextlib.suppress(PeerFault):
                    assert FIELDS[kind][name](said(framed({"kind": kind, **good, name: odd}), kind)[name])
            for changed in ({n: v for n, v in good.items() if n != name}, good | {"where": 1}):
                with pytest.raises(PeerFault, match="exactly the fields"):
                    said(framed({"kind": kind, **changed}), kind)
    for name in ("transfer", "sha256"):  # they become names of files
        assert not any(FIELDS["weights"][name](odd) for odd in ODD)


@pytest.mark.parametrize("raw", [b"", b"\0", b"\xff\xff\xff\xff", b"\0\0\0\5abcde", framed([]), framed("x"),
                                 framed({"kind": "busy"}), b"\0\0\xff\xff" + b"[" * 65535])  # fmt: skip
def test_what_is_no_message_ends_the_meeting(raw: bytes) -> None:
    with pytest.raises(PeerFault):
        said(raw, "hello")


def test_a_slow_peer_has_one_deadline_for_all_that_it_says() -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        over = threading.Event()

        def drip() -> None:
            for byte in framed({"kind": "hello", **GOOD["hello"]}):
                if over.wait(0.05):
                    return
                theirs.sendall(bytes([byte]))

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        with pytest.raises(PeerFault):
            Line(mine, 0.4).receive("hello")
        over.set()
        thread.join()
        assert time.monotonic() - began < 5


def test_lawless_models_are_refused_and_cost_their_sender(pair: Any, tmp_path: Path) -> None:
    one, other = pair(tmp_path)
    model = other.device.state.model
    good, before = model["model"], digest(one.device.state.model["model"])
    name = next(iter(good))
    other.device.state.model = model.with_(model=good | {name: torch.full_like(good[name], math.nan)})
    assert talk(one, other) == [None, None]
    [taken] = [line for line in one.diary.ledger if line.way == "taken"]
    assert taken.state == "refused" and taken.reason.startswith("not finite")
    assert digest(one.device.state.model["model"]) == before
    assert [int(one.device.state.columns[name][0]) for name in ("taken", "can_take")] == [0, 1]
    assert [int(other.device.state.columns[name][0]) for name in ("sent", "can_send")] == [1, 0]


def test_a_transfer_that_was_cut_goes_on_where_it_was(pair: Any, tmp_path: Path) -> None:
    one, other = pair(tmp_path)
    data = other.device.report().pack()
    place = one.diary.receiving(other.identity.key, hashlib.sha256(data).hexdigest())
    place.write_bytes(data[:1000])
    sent: list[int] = []
    real = Line.send_bytes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Line, "send_bytes", lambda self, part: (sent.append(len(part)), real(self, part))[1])
        assert talk(one, other) == [None, None]
    assert len(data) - 1000 in sent and agree([one, other]) and not place.exists()


# ---- signage, and finding others


def test_signage_gives_and_takes_without_photos(world: Path, tmp_path: Path) -> None:
    """It trains nothing, starts with the base model, and merges what it took as others do."""
    experiment = replace(Experiment.read(world / "tour.toml"), exchange=Always(limit=2))
    with contextlib.ExitStack() as stack:
        sign, phone = (
            stack.enter_context(
                opened(replace(plan(world, name, experiment=experiment, **more), home=tmp_path / name), told.append)
            )
            for told in [[]]
            for name, more in (("sign", {"photos": None, "signage": True}), ("c0", {}))
        )
        base, trained = sign.device.parts.initial["model"], phone.device.state.model["model"]
        assert digest(sign.device.state.model["model"]) == digest(base) != digest(trained)
        assert talk(phone, sign) == [None, None] and agree([phone, sign])
        for name, mean in sign.device.state.model["model"].items():
            torch.testing.assert_close(mean, (base[name] + trained[name]) / 2)
    for more, why in (
        ({"photos": None}, "give --photos"),
        ({"photos": None, "signage": True, "probe": None}, "--probe"),
    ):
        with pytest.raises(ConfigError, match=why), opened(plan(world, "odd", **more)):
            pass


def test_devices_find_each_other_on_the_local_network_without_a_name() -> None:
    """By a random id, which changes: the old one is forgotten, the device is found under the new one."""
    pytest.importorskip("zeroconf", reason="zeroconf is not installed: wayfare[meet]")
    ports = free_ports(2)
    one, other = Mdns(Address("127.0.0.1", ports[0]), rotate=1.5), Mdns(Address("127.0.0.1", ports[1]))
    with one, other:
        until(lambda: bool(one.near() and other.near()), 20)
        assert one.near() == [Address("127.0.0.1", ports[1])] and other.near() == [Address("127.0.0.1", ports[0])]
        [first] = other.names()
        assert re.fullmatch("[0-9a-f]{16}", first)
        until(lambda: len(other.names()) == 1 and other.names() != [first], 20)
        assert other.near() == [Address("127.0.0.1", ports[0])]
