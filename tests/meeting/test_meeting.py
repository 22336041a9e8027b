"""Devices that really meet: their exchanges are the simulation's, and their ledgers agree whatever dies when."""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meeting_peers import NAMES, be, plan, write_contacts, write_world
from wayfare.core.bundle import Bundle, digest
from wayfare.encounters.policies.always import Always
from wayfare.engines.pool.processes import start_fork_server
from wayfare.experiment import Experiment
from wayfare.meeting.identity import Pins, UnknownPeer
from wayfare.meeting.peer import Peer
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
def pair(world: Path) -> Callable[[str, Path], Any]:
    """Opens a device of the world that asks everybody: with L = 2, one model is sent and one taken."""
    experiment = replace(Experiment.read(world / "tour.toml"), exchange=Always(limit=2))

    def opening(name: str, home: Path) -> Any:
        return opened(replace(plan(world, name, experiment=experiment), home=home / name), lambda text: None)

    return opening


def talk(one: Peer, other: Peer, dies: tuple[int, int] = (-1, -1), slot: int = 0) -> list[BaseException | None]:
    """A meeting of two over a pair of sockets; side `dies[0]` dies at its `dies[1]`-th step, written or said."""
    ends: list[BaseException | None] = [None, None]
    wires = socket.socketpair()

    def side(number: int, me: Peer, peer: Peer) -> None:
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
            Session(line, me.device, diary, contact, "about").hold()
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


def both(pair: Any, home: Path) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    stack.peers = [stack.enter_context(pair(name, home)) for name in NAMES[:2]]  # type: ignore[attr-defined]
    return stack


def agree(peers: list[Peer]) -> bool:
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
    with both(pair, tmp_path / "whole") as stack:
        assert talk(*stack.peers) == [None, None] and agree(stack.peers)
        models = [digest(peer.device.state.model["model"]) for peer in stack.peers]
        assert models[0] == models[1]  # the mean of both
    points = 0
    for side in (0, 1):
        for step in range(100):
            home = tmp_path / f"{side}-{step}"
            with both(pair, home) as stack:
                ends = talk(*stack.peers, dies=(side, step))
            if not isinstance(ends[side], Killed):
                break
            points += 1
            with both(pair, home) as stack:  # from the disk
                for peer in stack.peers:
                    merge_taken(peer.device, peer.diary)
                assert talk(*stack.peers, slot=1) == [None, None]
                assert agree(stack.peers), (side, step)
                assert [int(peer.device.state.columns["taken"][0]) for peer in stack.peers] == [1, 1]
                assert not list((home / "c0" / "taken").glob("*"))
    assert points > 20
