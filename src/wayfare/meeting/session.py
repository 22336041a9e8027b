"""One meeting of two devices, as one of them sees it.

    hello      version, what the recipe means, a random number, transfers that were never acknowledged
    settled    what became of those
    offer      whether I can send, how good I am, the digest of my model; from signage also the published record
    want       whether I ask for your model, and how much of it I have from last time
    weights    the model, or the rest of it: first to the one that was called, then to the one that called
    ack        taken, or refused at the gate

Both sides send what they had before the meeting; merging comes after it. Every step is on the disk before the other
side is told.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from wayfare.core.gate import Refusal
from wayfare.core.text import printable
from wayfare.encounters.alone import DeviceOffer, LoneDevice
from wayfare.meeting.diary import Diary, Encounter, Transfer, new_id, number_or_none
from wayfare.meeting.published import record_in, record_of
from wayfare.meeting.wire import MOST_OPEN, Line, PeerFault

VERSION = 2
_SPARE = 2**16  # bytes by which a model's file may differ from twice mine


@dataclass(frozen=True)
class Contact:
    """Whom I meet, and when by my own clock."""

    name: str
    key: str  # fingerprint
    number: int
    slot: int
    calls: bool  # I called
    begins: bool  # we did not meet in the slot before
    is_trusted: bool = False  # its published record is believed


class Session:
    """Says what is to be said on one connection."""

    def __init__(self, line: Line, device: LoneDevice, diary: Diary, contact: Contact, about: str) -> None:
        self._line, self._device, self._diary, self._contact, self._about = line, device, diary, contact, about
        self._mine = device.report().pack()  # before anything is merged
        self.is_greeted = False  # the other has said hello: it is no stranger, and not busy
        self.met = False  # both have said whether they ask

    def hold(self) -> None:
        """From the first word to the last; PeerFault if the other side fails."""
        diary, contact = self._diary, self._contact
        open_ = [line.transfer for line in diary.open_with(contact.key)][:MOST_OPEN]
        nonce = new_id()
        hello = self._swap("hello", version=VERSION, about=self._about, nonce=nonce, open=open_)
        self.is_greeted = True
        if hello["version"] != VERSION or hello["about"] != self._about:
            raise PeerFault("it has another recipe, other classes or another version of Wayfare")
        settled = {transfer: diary.settled(contact.key, transfer) for transfer in hello["open"]}
        found = self._swap("settled", settled=settled)["settled"]
        self._settle({transfer: found.get(transfer, "unknown") for transfer in open_})
        mine = self._device.offer(contact.number, contact.slot)
        record = record_of(diary.heard.values()) if self._device.parts.stationary else None
        said = {**asdict(mine), "score": number_or_none(mine.score), "labels": list(mine.labels)}
        heard = self._swap("offer", **said, record=record.values() if record else None)
        theirs, told = _offer(heard), record_in(heard["record"])
        asks, predicted = self._device.decide(
            contact.number, theirs, contact.slot, chance=_chance(nonce, hello["nonce"]), begins=contact.begins
        )
        have, start = diary.partial(contact.key) if asks else ("", 0)
        want = {"wants": asks, "transfer": new_id(), "have": have, "from": start}
        wanted = self._swap("want", **want)
        if wanted["wants"] and not (mine.announced and not mine.avoids and not theirs.avoids):
            raise PeerFault("it asks for what was not offered")
        self.met = True
        diary.note(
            Encounter(
                _both(nonce, hello["nonce"]), contact.key, contact.name, diary.meetings + 1, slot=contact.slot,
                day=diary.day, score=heard["score"], asks=asks, asked=wanted["wants"],
            )
        )  # fmt: skip
        if told and contact.is_trusted:
            diary.record = told
        diary.save(self._device.state)
        steps = [(wanted["wants"], lambda: self._send(wanted)), (asks, lambda: self._take(want, predicted))]
        for due, step in reversed(steps) if contact.calls else steps:
            if due:
                step()

    def _swap(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Say something and hear the same kind of thing; who called begins."""
        if self._contact.calls:
            self._line.send(kind, **fields)
            return self._line.receive(kind)
        heard = self._line.receive(kind)
        self._line.send(kind, **fields)
        return heard

    def _settle(self, found: Mapping[str, str]) -> None:
        """What became of the transfers that were never acknowledged."""
        for line in self._diary.open_with(self._contact.key):
            if line.transfer not in found:
                continue
            if found[line.transfer] == "unknown":  # it never arrived whole
                self._diary.ledger.remove(line)
                if line.day == self._diary.day:
                    self._device.count("sent", -1)
            else:
                line.state = "taken" if found[line.transfer] == "taken" else "refused"

    # ---- sending

    def _send(self, wanted: Mapping[str, Any]) -> None:
        data, contact = self._mine, self._contact
        sha256 = hashlib.sha256(data).hexdigest()
        start = wanted["from"] if wanted["have"] == sha256 and wanted["from"] <= len(data) else 0
        line = self._diary.add(self._new_line(wanted["transfer"], "sent", "open", sha256))
        self._device.count("sent")
        self._diary.save(self._device.state)
        self._line.send("weights", **{"transfer": line.transfer, "sha256": sha256, "bytes": len(data), "from": start})
        self._line.send_bytes(memoryview(data)[start:])
        ack = self._line.receive("ack")
        if ack["transfer"] != line.transfer:
            raise PeerFault(f"{contact.name} acknowledges another transfer")
        line.state = "refused" if ack["refused"] else "taken"
        self._diary.save(self._device.state)

    def _new_line(self, transfer: str, way: Any, state: Any, sha256: str) -> Transfer:
        who, diary = self._contact, self._diary
        return Transfer(
            transfer, who.key, who.name, way=way, state=state, sha256=sha256, meeting=diary.meetings, day=diary.day
        )  # fmt: skip

    # ---- taking

    def _take(self, want: Mapping[str, Any], predicted: float) -> None:
        head = self._line.receive("weights")
        if head["transfer"] != want["transfer"]:
            raise PeerFault("it sends another transfer than the one that was asked for")
        most, resumes = 2 * len(self._mine) + _SPARE, head["sha256"] == want["have"]
        if head["bytes"] > most or head["from"] > head["bytes"] or head["from"] != (want["from"] if resumes else 0):
            raise PeerFault(f"a model of {head['bytes']:,} bytes from {head['from']:,} on, at most {most:,} are read")
        data = self._received(head)
        line = self._new_line(head["transfer"], "taken", "taken", head["sha256"])
        line.predicted, line.start = number_or_none(predicted), head["from"]
        try:
            self._device.admitted(data)
        except Refusal as refusal:  # it costs its sender, not me
            line.state, line.reason = "refused", printable(refusal)
        else:
            self._diary.keep(line.transfer, data)
            self._device.count("taken")
        self._diary.add(line)
        self._diary.save(self._device.state)
        self._diary.receiving(self._contact.key, head["sha256"]).unlink(missing_ok=True)
        self._line.send("ack", transfer=line.transfer, refused=line.state == "refused")

    def _received(self, head: Mapping[str, Any]) -> bytes:
        """The whole model; what came stays on the disk if the rest does not come."""
        place = self._diary.receiving(self._contact.key, head["sha256"])
        with place.open("r+b" if head["from"] else "wb") as file:
            file.truncate(head["from"])
            file.seek(head["from"])
            for block in self._line.receive_bytes(head["bytes"] - head["from"]):
                file.write(block)
        data = place.read_bytes()
        if hashlib.sha256(data).hexdigest() != head["sha256"]:
            place.unlink()
            raise PeerFault("the model that came is not the one that was announced")
        return data


def merge_taken(device: LoneDevice, diary: Diary) -> list[Transfer]:
    """Merge what was taken, in this order; a step each, so that nothing is merged twice."""
    done = []
    for line in diary.unmerged():
        sent = device.admitted(diary.kept(line.transfer))
        slot = diary.last.get(line.peer, 0)
        predicted = math.nan if line.predicted is None else line.predicted
        found = device.merge(sent, diary.number(line.peer), predicted, slot)
        line.state, line.adopted, line.reason = "merged", found.adopted, found.reason
        line.before, line.after = number_or_none(found.before), number_or_none(found.after)
        diary.save(device.state)
        diary.drop(line.transfer)
        done.append(line)
    return done


def _offer(said: Mapping[str, Any]) -> DeviceOffer:
    score = math.nan if said["score"] is None else float(said["score"])
    return DeviceOffer(
        announced=said["announced"],
        avoids=said["avoids"],
        score=score,
        model=said["model"],
        examples=max(1, said["examples"]),
        labels=tuple(said["labels"]),
    )


def _both(one: str, other: str) -> str:
    """What both sides get from the random numbers of both."""
    return hashlib.sha256("".join(sorted((one, other))).encode()).hexdigest()


def _chance(one: str, other: str) -> float:
    """One number in [0, 1) for both sides."""
    return int(_both(one, other)[:12], 16) / 2**48
