"""Invitations, the published record, days, and what is said on the wire."""

from __future__ import annotations

import contextlib
import json
import math
import re
import socket
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cryptography import x509

from meeting_peers import NAMES, TAKEN, agree, free_ports, plan, talk, until
from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError
from wayfare.encounters.alone import LoneDevice
from wayfare.experiment import Experiment
from wayfare.io.address import Address
from wayfare.meeting.diary import Diary
from wayfare.meeting.discovery import GivenAddresses
from wayfare.meeting.identity import Credentials, Identity, Pins
from wayfare.meeting.invitation import GroupGuest, Invitation, invite, is_invitation, read_invitation
from wayfare.meeting.peer import Habits, MeetingPeer
from wayfare.meeting.program import opened
from wayfare.meeting.published import PublishedRecord, record_in, record_of
from wayfare.meeting.wire import Line
from wayfare.recipe import override

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def recipe(world: Path) -> Experiment:
    return Experiment.read(world / "tour.toml")


def invited(group: Path, recipe: Experiment, name: str, **more: Any) -> Invitation:
    out = group.parent / f"{name}.invite"
    invite(group, GroupGuest(name=name, experiment=recipe, **more), 30, out)
    return read_invitation(out)


# ---- invitations


def test_an_invitation_is_one_file_with_all_that_a_device_needs(tmp_path: Path, recipe: Experiment) -> None:
    group, record = tmp_path / "group", PublishedRecord(0.1, 1 / 3, 0.8, 7)
    made = invited(group, recipe, "anna", peers=[Address("10.0.0.7", 8100)], published=record)
    file = tmp_path / "anna.invite"
    assert file.stat().st_mode & 0o077 == 0 and is_invitation(file) and not is_invitation(tmp_path / "nothing")
    assert made.peers == ("10.0.0.7:8100",) and PublishedRecord.read(made.published) == record
    found = Experiment.from_toml(made.recipe)
    assert found.exchange == recipe.exchange and "union" not in made.recipe  # no folder of who invites
    assert not list(group.glob("devices/*.key"))  # the private key is in the invitation only
    with pytest.raises(ConfigError, match="exists already"):
        invited(group, recipe, "anna")
    file.unlink()
    anywhere = Experiment.from_table(override(tomllib.loads(made.recipe), {"data.names": []}))
    with pytest.raises(ConfigError, match=r"set data\.names"):
        invited(group, anywhere, "bert")
    assert invited(group, found, "bert").recipe == made.recipe  # a recipe with names needs no folder
    with pytest.raises(ConfigError, match="invited already"):
        invited(group, recipe, "anna")
    with pytest.raises(ConfigError, match="cannot be a device's name"):
        invited(group, recipe, "an na")


def test_a_damaged_invitation_is_refused(tmp_path: Path, recipe: Experiment) -> None:
    invited(tmp_path / "group", recipe, "anna")
    other = invited(tmp_path / "group", recipe, "bert")
    text = (tmp_path / "anna.invite").read_text()
    for wrong in (
        text[:-300],
        text.replace("version = 1", "version = 2"),
        text.replace('name = "anna"', 'name = "bert"'),
        text.replace("signage = false", "signage = true"),
        text.replace("peers = []", 'peers = ["nowhere"]'),
        text.replace('published = ""', 'published = "0.9,0.1,0.5"'),
        re.sub(r"(?s)(certificate = ''').*?(''')", lambda m: f"{m[1]}\n{other.certificate}{m[2]}", text, count=1),
        text + 'more = "x"\n',
        text.replace('"guarded"', '"nothing"'),
        "x" * 2**19,
    ):
        assert wrong != text
        (tmp_path / "wrong.invite").write_text(wrong)
        with pytest.raises(ConfigError, match="not a valid invitation"):
            read_invitation(tmp_path / "wrong.invite")


@pytest.mark.parametrize("change", [{"data.path": "/etc"}, {"topology.traces": "../x"}, {"data.path": "~/private"}])
def test_an_invitation_names_no_file_of_this_machine(
    change: dict[str, Any], world: Path, tmp_path: Path, recipe: Experiment
) -> None:
    made = invited(tmp_path / "group", recipe, "c0")
    theirs = Experiment.from_table(override(tomllib.loads(made.recipe), change))
    given = replace(plan(world, "c0", experiment=theirs), home=tmp_path / "home", invited=made.credentials)
    with pytest.raises(ConfigError, match="names a file of this machine"), opened(given):
        pass
    assert not given.home.exists()


@contextlib.contextmanager
def running(peers: list[MeetingPeer]) -> Iterator[None]:
    threads = [threading.Thread(target=peer.run) for peer in peers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for peer in peers:
            peer.stop()
        for thread in threads:
            thread.join(30)


def on_the_wire(pair: Any, home: Path, who: list[tuple[str, Credentials | None]]) -> list[MeetingPeer]:
    """Devices of these names that call each other over TLS, as real ones do."""
    ports, made = free_ports(len(who)), []
    for place, (name, credentials) in enumerate(who):
        first = pair(home / f"state-{place}")[place % 2]
        identity = Identity(home / name, name)
        identity.settle(credentials)
        others = [Address("127.0.0.1", port) for port in ports if port != ports[place]]
        habits = Habits(listen=Address("127.0.0.1", ports[place]), slot=0.2, deadline=20, about="a" * 64)
        pins = Pins(home / name / "known.json", identity.key)
        links = [GivenAddresses(others)]
        made.append(MeetingPeer(identity, pins, first.device, first.diary, habits, links=links))
    return made


def test_devices_of_a_group_meet_only_each_other(pair: Any, tmp_path: Path, recipe: Experiment) -> None:
    """Of four, two are of one group, one is of another with the same name, and one is not invited at all."""
    group = tmp_path / "group"
    anna, bert = (invited(group, recipe, name) for name in ("anna", "bert"))
    (tmp_path / "other").mkdir()
    other = invited(tmp_path / "other" / "group", recipe, "bert")
    peers = on_the_wire(
        pair,
        tmp_path / "homes",
        [("anna", anna.credentials), ("bert", bert.credentials), ("carl", None)],
    ) + on_the_wire(pair, tmp_path / "more", [("bert", other.credentials)])
    peers[3] = replace_links(peers[3], [peer.habits.listen for peer in peers[:3]])
    told: list[list[str]] = [[], []]
    for peer, texts in zip(peers[2:], told, strict=True):
        peer._notify = texts.append
    with running(peers):
        until(lambda: all(len(peer.diary.ledger) == 2 for peer in peers[:2]), 30)
        time.sleep(0.5)
    assert agree(peers[:2])
    assert {line.name for line in peers[0].diary.encounters} == {"bert"}
    assert peers[0].pins.read() == {"bert": peers[1].identity.key}
    assert not peers[2].diary.encounters and not peers[3].diary.encounters
    assert any("no invitation" in text for text in told[0])  # they learn why they meet nobody
    assert any("does not belong to this group" in text for text in told[1])
    with pytest.raises(ConfigError, match="another key than the invitation"):
        Identity(tmp_path / "homes" / "bert", "bert").settle(other.credentials)


def replace_links(peer: MeetingPeer, addresses: list[Address]) -> MeetingPeer:
    return MeetingPeer(
        peer.identity, peer.pins, peer.device, peer.diary, peer.habits, links=[GivenAddresses(addresses)]
    )


# ---- what is on the wire


class Proxy(threading.Thread):
    """Passes bytes on between one connection and another, and keeps them."""

    def __init__(self, port: int, to: int) -> None:
        super().__init__(daemon=True)
        self.seen, self._to = bytearray(), to
        self._server = socket.create_server(("127.0.0.1", port))

    def run(self) -> None:
        while True:
            near, _ = self._server.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:  # the other does not listen yet: whoever called calls again
                near.close()
                continue
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                self.seen += data
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)


def numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from numbers_in(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def strings_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        yield from strings_in(list(value.values()))
    elif isinstance(value, list):
        for each in value:
            yield from strings_in(each)
    elif isinstance(value, str):
        yield value


def test_no_position_and_no_time_is_in_anything_that_is_sent(
    pair: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All bytes of a whole meeting, before and after TLS. The photos have the time and place where they were taken."""
    said: list[bytes] = []
    real = Line.send_bytes
    monkeypatch.setattr(Line, "send_bytes", lambda self, data: (said.append(bytes(data)), real(self, data))[1])
    one, other = on_the_wire(pair, tmp_path, [("anna-at-home", None), ("bert-abroad", None)])
    [port] = free_ports(1)
    proxy = Proxy(port, other.habits.listen.port)
    proxy.start()
    one, other = replace_links(one, [Address("127.0.0.1", port)]), replace_links(other, [])
    with running([one, other]):
        until(lambda: len(one.diary.ledger) == len(other.diary.ledger) == 2, 30)
    now = time.time()
    messages = [json.loads(data[4:]) for data in said if data[4:5] == b"{"]
    assert {message["kind"] for message in messages} >= {"hello", "settled", "offer", "want", "weights", "ack"}
    models = [Bundle.unpack(data) for data in said if data[4:5] != b"{"]
    assert len(models) == 2
    for message in [*messages, *(dict(model.values) for model in models)]:
        for number in numbers_in(message):
            scales = [number / unit for unit in (1, 1e3, 1e6, 1e9)]
            assert not any(now - 3 * 365 * 86400 < value < now + 86400 for value in scales), message
            assert not any(abs(number - place) < 0.1 for place in (47.377, 8.541)), message
        for text in strings_in(message):
            assert re.fullmatch("[a-z0-9]*", text), message  # words of the protocol, and hexadecimal digests
    plain = b"".join(said)
    for secret in (TAKEN.encode(), b"GPS", b"Exif", b".png", str(tmp_path).encode(), b"anna", b"bert"):
        assert secret not in plain
    assert len(proxy.seen) > sum(map(len, said)) // 2
    for secret in (b"anna", b"bert", b"hello", one.identity.key.encode()):
        assert secret not in proxy.seen  # who they are is encrypted, too
    for peer in (one, other):
        found = x509.load_pem_x509_certificate((peer.identity.folder / "device.crt").read_bytes())
        assert (found.not_valid_before_utc.year, found.not_valid_after_utc.year) == (2000, 2100)  # not when it began


def test_certificates_of_a_group_all_have_its_dates(tmp_path: Path, recipe: Experiment) -> None:
    made = [invited(tmp_path / "group", recipe, name) for name in ("anna", "bert")]
    texts = [made[0].authority, made[0].certificate, made[1].certificate]
    dates = {(c.not_valid_before_utc, c.not_valid_after_utc) for c in map(_certificate, texts)}
    assert len(dates) == 1 and all(date.hour == date.minute == 0 for date in next(iter(dates)))


def _certificate(text: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(text.encode())


# ---- the published record


def test_a_record_is_three_accuracies_of_at_least_three_devices() -> None:
    assert record_of([0.9, 0.1, 0.4, math.nan]) == PublishedRecord(0.1, 0.4, 0.9, 3)
    assert record_of([0.2, 0.4, 0.6, 0.7]) == PublishedRecord(0.2, 0.5, 0.7, 4)
    assert record_of([0.1, 0.4]) is None
    assert PublishedRecord.read("0.1,0.4,0.8") == PublishedRecord(0.1, 0.4, 0.8)
    odd = [None, "x", [0.1, 0.2], [0.1, 0.4, 0.8, -1], [0.1, 0.4, 0.8, 0.5], [0.4, 0.1, 0.8, 3], [0.1, 0.4, 1.1, 3],
           [0.1, math.nan, 0.8, 3], [True, True, True, 3], [0.1, 0.4, 0.8, 2**60], ["0.1", 0.4, 0.8, 3]]  # fmt: skip
    assert all(record_in(value) is None for value in odd)
    for text in ("0.1,0.4", "0.8,0.4,0.1", "a,b,c", "0,0,2", "0.1,0.4,0.8,3,4"):
        with pytest.raises(ConfigError, match="published record"):
            PublishedRecord.read(text)


@pytest.fixture(scope="module")
def phone_and_sign(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """A phone with the recipe's policy (guarded, L = 6, at least 2 of each), and a sign."""
    homes = tmp_path_factory.mktemp("signs")
    with contextlib.ExitStack() as stack:
        firsts = [
            stack.enter_context(opened(replace(plan(world, name, **more), home=homes / name), lambda text: None))
            for name, more in (("c0", {}), ("sign", {"photos": None, "signage": True}))
        ]

        def opening(home: Path) -> list[MeetingPeer]:
            made = []
            for first in firsts:
                diary, state = Diary(home / first.identity.name), first.device.state
                diary.folder.mkdir(parents=True)
                copied = replace(state, columns={name: column.copy() for name, column in state.columns.items()})
                diary.begin_day(float(copied.columns["score"][0]))
                device = LoneDevice(first.device.parts, copied)
                made.append(MeetingPeer(first.identity, first.pins, device, diary, first.habits))
            return made

        yield opening


def budget(peer: MeetingPeer) -> tuple[int, int]:
    columns = peer.device.state.columns
    return int(columns["can_send"][0]), int(columns["can_take"][0])


def test_signage_tells_what_it_has_heard_and_the_phone_sets_its_budget(phone_and_sign: Any, tmp_path: Path) -> None:
    phone, sign = phone_and_sign(tmp_path)
    score = float(phone.device.state.columns["score"][0])
    assert budget(phone) == (3, 3) and phone.device.state.columns["threshold"][0] == score  # it knows only itself
    sign.diary.heard = {"a": score - 0.1, "b": score - 0.05}
    assert talk(phone, sign, trusted=True) == [None, None]
    assert phone.diary.record is None  # two are no record; with the phone the sign knows three now
    assert talk(phone, sign, slot=1) == [None, None]
    assert phone.diary.record is None  # the sign is not trusted
    if not phone.device.is_unspent:
        phone.device.begin_anew(None)
    assert talk(phone, sign, slot=2, trusted=True) == [None, None]
    assert phone.diary.record == PublishedRecord(score - 0.1, score - 0.05, score, 3)
    phone.device.begin_anew(None)
    phone._use_record()
    # the best of all: txn = L (Q - Qmin) / (Qmax - Qmin) = 6, of which 2 are reserved for taking
    assert budget(phone) == (4, 2) and phone.device.state.published == (score - 0.1, score - 0.05, score)


def test_a_record_that_comes_after_the_first_exchange_is_for_the_next_day(phone_and_sign: Any, tmp_path: Path) -> None:
    phone, _ = phone_and_sign(tmp_path)
    phone.device.count("taken")
    phone.diary.record = PublishedRecord(0.0, 0.0, 0.1, 5)
    phone._use_record()
    assert budget(phone) == (3, 2) and phone.device.state.published is None


def test_a_new_day_has_a_new_budget_by_what_was_heard(world: Path, tmp_path: Path) -> None:
    made = replace(plan(world, "c0"), home=tmp_path / "c0")
    with opened(made, lambda text: None) as peer:
        score = float(peer.device.state.columns["score"][0])
        peer.diary.heard = {"a": score + 0.1, "b": score + 0.2, "c": score + 0.3}
        peer.device.count("sent")
        peer.diary.save(peer.device.state)
    with opened(replace(made, new_day=True), lambda text: None) as peer:
        # the poorest of four: nothing to send but the reserve
        assert budget(peer) == (2, 4) and peer.diary.day == 1 and not peer.diary.heard
        assert peer.device.state.published == (score, score + 0.15, score + 0.3)
        assert peer.device.state.columns["threshold"][0] == score + 0.15
    with opened(made, lambda text: None) as peer:  # the same day goes on
        assert budget(peer) == (2, 4) and peer.diary.day == 1


# ---- the policy of the docs, on one real device


def test_a_policy_of_ones_own_serves_a_real_device(pair: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The class of docs/encounters.md: its arrays have length 1 there."""
    page = (Path(__file__).parents[2] / "docs" / "encounters.md").read_text()
    code = next(block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "class Upward" in block)
    module = ModuleType("upward")
    monkeypatch.setitem(sys.modules, "upward", module)
    exec(compile(code, "upward", "exec"), module.__dict__)
    one, other = pair(tmp_path)
    for peer, score in ((one, 0.3), (other, 0.6)):
        parts = replace(peer.device.parts, exchange=module.Upward(limit=2), limit=2)
        peer.device = LoneDevice(parts, None)
        peer.device.state.columns["score"][0] = score
        assert all(len(column) == 1 for column in peer.device.state.columns.values())
    assert talk(one, other) == [None, None] and agree([one, other])
    assert [int(peer.device.state.columns["taken"][0]) for peer in (one, other)] == [1, 0]  # 0.6 > 0.3 + 0.05


# ---- ends


def test_a_device_that_is_stopped_leaves_a_meeting_at_once(pair: Any, tmp_path: Path) -> None:
    """A peer that says nothing does not hold it until the deadline."""
    one, _ = on_the_wire(pair, tmp_path, [(NAMES[0], None), (NAMES[1], None)])
    with socket.create_server(("127.0.0.1", 0)) as silent:
        tls = Identity(tmp_path / NAMES[1], NAMES[1]).tls(serves=True)
        one = replace_links(one, [Address("127.0.0.1", silent.getsockname()[1])])
        thread = threading.Thread(target=one.run)
        thread.start()
        with tls.wrap_socket(silent.accept()[0], server_side=True):
            time.sleep(0.3)
            began = time.monotonic()
            one.stop()
            thread.join(10)
    assert not thread.is_alive() and time.monotonic() - began < 3
