"""Devices that really meet: their exchanges are the simulation's, and their ledgers agree whatever dies when."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import math
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from meeting_peers import NAMES, be, plan, write_contacts, write_world
from wayfare.core.bundle import Bundle, digest
from wayfare.core.errors import ConfigError
from wayfare.encounters.alone import LoneDevice
from wayfare.encounters.policies.always import Always
from wayfare.engines.pool.processes import start_fork_server
from wayfare.experiment import Experiment
from wayfare.io.address import Address
from wayfare.meeting.diary import Diary
from wayfare.meeting.discovery import Mdns
from wayfare.meeting.identity import Pins, UnknownPeer
from wayfare.meeting.peer import MeetingPeer
from wayfare.meeting.program import opened
from wayfare.meeting.session import Contact, Session, merge_taken
from wayfare.meeting.wire import FIELDS, Line, PeerFault
from wayfare.runner import run

pytestmark = pytest.mark.timeout(200)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("world")
    write_world(root)
    return root


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [wire.getsockname()[1] for wire in wires]


# ---- the same as the simulation


def played_in_simulation(
    root: Path, folder: Path, rounds: int = 0, contacts: str = "contacts.dat"
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    changes = {"rounds": rounds, "topology.traces": str(root / contacts)}
    summary = run(Experiment.read(root / "tour.toml", changes), folder, "local")
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return dict(summary), lines


def sessions(found: dict[str, Any]) -> list[list[tuple[str, str, dict[str, Any]]]]:
    """Transfers (taker, giver, the taker's line), by meeting, in an order in which they can have happened."""
    taken = {x["transfer"]: (name, x) for name in NAMES for x in found[name]["ledger"] if x["way"] == "taken"}
    sent = {x["transfer"]: (name, x) for name in NAMES for x in found[name]["ledger"] if x["way"] == "sent"}
    assert taken.keys() == sent.keys()
    meetings: dict[Any, list[tuple[str, str, dict[str, Any]]]] = {}
    for transfer, (taker, line) in taken.items():
        giver, other = sent[transfer]
        both = sorted([(taker, line["meeting"]), (giver, other["meeting"])])
        meetings.setdefault(tuple(both), []).append((taker, giver, line))
    order = []
    while meetings:  # a meeting comes when neither of the two has an earlier one that is left
        first = next(
            key for key in sorted(meetings)
            if not any(n == name and m < number for other in meetings for n, m in other for name, number in key)
        )  # fmt: skip
        order.append(meetings.pop(first))
    return order


def test_three_processes_do_what_the_simulation_does(world: Path, tmp_path: Path) -> None:
    played_in_simulation(world, tmp_path / "before", 1)
    [*_, checkpoint] = sorted((tmp_path / "before" / "checkpoints").glob("*.safetensors"))
    scores = Bundle.unpack(checkpoint.read_bytes())["columns"]["score"].tolist()
    published = (min(scores), float(np.median(scores)), max(scores))
    ports = free_ports(3)
    start_fork_server()
    context = multiprocessing.get_context("forkserver")
    calls = {"c0": (), "c1": (ports[0],), "c2": (ports[0], ports[1])}
    crew = [
        context.Process(target=be, args=(str(world), name, port, calls[name], published), daemon=True)
        for name, port in zip(NAMES, ports)
    ]
    for process in crew[:2]:
        process.start()
    until(lambda: have_met(world, NAMES[:2]))
    crew[2].start()  # a list of contacts numbers devices as they first appear
    until(lambda: have_met(world, NAMES))
    (world / "end").touch()
    for process in crew:
        process.join(60)
    assert [process.exitcode for process in crew] == [0, 0, 0]
    found = {name: json.loads((world / f"{name}.json").read_text()) for name in NAMES}
    order = sessions(found)
    assert len(order) > 1 and {name for one in order for taker, giver, _ in one for name in (taker, giver)} == {*NAMES}
    write_contacts(world, [tuple(NAMES.index(name) for name in sorted(one[0][:2])) for one in order], "real.dat")
    summary, lines = played_in_simulation(world, tmp_path / "after", 0, "real.dat")
    events = [line["events"] for line in lines if line.get("events", {}) and "slot" in line["events"]]
    for event, one in zip(events, order, strict=True):
        played = zip(*(event[key] for key in ("taker", "giver", "predicted", "before", "after", "adopted")))
        real = [
            (taker, giver, *(round(line[key], 6) for key in ("predicted", "before", "after")), line["adopted"])
            for taker, giver, line in one
        ]
        assert sorted(real) == sorted(played)
    models = "".join(f"{name}/model:{found[name]['model']};" for name in NAMES)
    assert summary["model_sha256"] == hashlib.sha256(hashlib.sha256(models.encode()).hexdigest().encode()).hexdigest()


def until(true: Callable[[], bool], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def have_met(world: Path, names: tuple[str, ...]) -> bool:
    """Whether each of them has exchanged something, and has merged what it took."""
    for name in names:
        try:
            about = json.loads(
                str(Bundle.unpack((world / "homes" / name / "diary.safetensors").read_bytes()).values["about"])
            )
        except FileNotFoundError:
            return False
        if not about["ledger"] or any(line["state"] in ("open",) for line in about["ledger"]):
            return False
    return True


# ---- whatever dies when


class Killed(BaseException):
    """As by kill -9: nothing is done after it."""


@pytest.fixture(scope="module")
def pair(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], list[MeetingPeer]]]:
    """Opens two devices that ask everybody: with L = 2, one model is sent and one taken. Trained once for all tests."""
    experiment = replace(Experiment.read(world / "tour.toml"), exchange=Always(limit=2))
    homes = tmp_path_factory.mktemp("homes")
    with contextlib.ExitStack() as stack:
        firsts = [
            stack.enter_context(
                opened(replace(plan(world, name, experiment=experiment), home=homes / name), lambda text: None)
            )
            for name in NAMES[:2]
        ]

        def opening(home: Path) -> list[MeetingPeer]:
            peers = []
            for first in firsts:
                diary, parts = Diary(home / first.identity.name), first.device.parts
                diary.folder.mkdir(parents=True, exist_ok=True)
                state = diary.load(parts.initial) or copy.deepcopy(first.device.state)
                peers.append(MeetingPeer(first.identity, first.pins, LoneDevice(parts, state), diary, first.habits))
            return peers

        yield opening


def talk(
    one: MeetingPeer, other: MeetingPeer, dies: tuple[int, int] = (-1, -1), slot: int = 0
) -> list[BaseException | None]:
    """A meeting of two over a pair of sockets; side `dies[0]` dies at its `dies[1]`-th step, written or said."""
    ends: list[BaseException | None] = [None, None]
    wires = socket.socketpair()

    def side(number: int, me: MeetingPeer, peer: MeetingPeer) -> None:
        steps = [dies[1] if dies[0] == number else -1]
        line, diary = Line(wires[number], 10), me.diary

        def counted(real: Callable[..., None]) -> Callable[..., None]:
            def step(*args: Any, **fields: Any) -> None:
                if steps[0] == 0:
                    raise Killed
                steps[0] -= 1
                real(*args, **fields)

            return step

        line.send_bytes = counted(line.send_bytes)  # type: ignore[method-assign]
        diary.save = counted(diary.save)  # type: ignore[method-assign]
        key = peer.identity.key
        contact = Contact(peer.identity.name, key, diary.number(key), slot, number == 0, True)
        try:
            Session(line, me.device, diary, contact, "a" * 64).hold()
        except (PeerFault, Killed) as error:
            ends[number] = error
        finally:
            wires[number].close()
        try:
            if not isinstance(ends[number], Killed):
                merge_taken(me.device, diary)
        except Killed as error:
            ends[number] = error

    threads = [threading.Thread(target=side, args=(0, one, other)), threading.Thread(target=side, args=(1, other, one))]
    for thread in threads:
        thread.start()
        time.sleep(0)
    for thread in threads:
        thread.join(60)
    return ends


def agree(peers: list[MeetingPeer]) -> bool:
    """What one says that it sent, the other says that it took, and budgets are what the ledgers say."""
    for giver, taker in (peers, peers[::-1]):
        sent = {x.transfer: x.state for x in giver.diary.ledger if x.way == "sent"}
        taken = {
            x.transfer: "taken" if x.state == "merged" else x.state for x in taker.diary.ledger if x.way == "taken"
        }
        columns = giver.device.state.columns
        if sent != taken or columns["sent"][0] != len(sent) or columns["sent"][0] + columns["can_send"][0] != 1:
            return False
    return True


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
    "hello": {"version": 1, "about": "a" * 64, "nonce": "b" * 32, "open": ["c" * 32]},
    "settled": {"settled": {"c" * 32: "taken"}},
    "offer": {
        "announced": True, "avoids": False, "score": 0.5, "model": "d" * 64,
        "examples": 3, "labels": [1, 2],
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
        "wants", "transfer", "have", "from", "sha256", "bytes", "refused",
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
    pytest.importorskip("zeroconf", reason="zeroconf is not installed: wayfare[meet]")
    ports = free_ports(2)
    with Mdns(Address("127.0.0.1", ports[0])) as one, Mdns(Address("127.0.0.1", ports[1])) as other:
        until(lambda: bool(one.near() and other.near()), 20)
        assert one.near() == [Address("127.0.0.1", ports[1])] and other.near() == [Address("127.0.0.1", ports[0])]
