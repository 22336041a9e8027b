"""The meetings of real devices, played again by the simulation: the same exchanges, the same models?

What the network did is given to the simulation: who met in which slot, and which transfers were cut. Compared is
what the devices did: who asked whom, what was predicted, measured and kept, and the models in the end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.core.bundle import Bundle
from wayfare.core.exchange import Columns, Decision, Meeting, Predictor
from wayfare.encounters.policies.guarded import Guarded
from wayfare.experiment import Experiment
from wayfare.meeting.diary import Transfer
from wayfare.meeting.peer_page import PeerRecord
from wayfare.meeting.published import PublishedRecord
from wayfare.runner import run

SLOT = 30  # seconds, in the simulation


@dataclass(frozen=True)
class RealMeeting:
    """A meeting that both sides remember."""

    pair: tuple[str, str]
    slot: int
    taken: tuple[tuple[str, str, Transfer], ...]  # taker, giver, the taker's line
    cut: tuple[tuple[str, str], ...]  # taker, giver: asked for, and never arrived whole


@dataclass(frozen=True)
class Replayed(Guarded):
    """`guarded`, where the transfers that the network cut do not take place."""

    cut_file: str = ""

    def decide(self, columns: Columns, meeting: Meeting, predictor: Predictor | None) -> Decision:
        decision = super().decide(columns, meeting, predictor)
        begins, cut = _cut(self.cut_file)
        lost = [(meeting.slot, me, peer) in cut for me, peer in zip(meeting.me.tolist(), meeting.peer.tolist())]
        return replace(decision, asks=decision.asks & ~np.array(lost) & (meeting.slot >= begins))


@cache
def _cut(file: str) -> tuple[int, frozenset[tuple[int, int, int]]]:
    found = json.loads(Path(file).read_text())
    return found["begins"], frozenset(tuple(each) for each in found["cut"])


def meetings_of(records: Mapping[str, PeerRecord]) -> list[RealMeeting]:
    """In an order in which they can have happened: each device's own order is kept."""
    sides: dict[str, dict[str, Any]] = {}
    for name, record in records.items():
        for encounter in record.encounters:
            sides.setdefault(encounter.id, {})[name] = encounter
    both = {id: found for id, found in sides.items() if len(found) == 2}
    queues = {
        name: [e.id for e in sorted(record.encounters, key=lambda e: e.meeting) if e.id in both]
        for name, record in records.items()
    }
    lines = {
        (name, line.meeting): line
        for name, record in records.items()
        for line in record.ledger
        if line.way == "taken" and line.state == "merged"
    }
    order: list[RealMeeting] = []
    busy = dict.fromkeys(records, -1)
    while any(queues.values()):
        heads = {queue[0] for queue in queues.values() if queue}
        id = min(
            (id for id in heads if all(queues[name][0] == id for name in both[id])),
            key=lambda id: min(e.slot for e in both[id].values()),
        )
        found = both[id]
        one, other = sorted(found)
        slot = max(busy[one] + 1, busy[other] + 1, min(e.slot for e in found.values()))
        taken, cut = [], []
        for taker, giver in ((one, other), (other, one)):
            line = lines.get((taker, found[taker].meeting))
            if line is not None:
                taken.append((taker, giver, line))
            elif found[taker].asks:
                cut.append((taker, giver))
        order.append(RealMeeting((one, other), slot, tuple(taken), tuple(cut)))
        busy[one] = busy[other] = slot
        for name in found:
            queues[name].pop(0)
    return order


def first_scores(experiment: Experiment, folder: Path) -> PublishedRecord:
    """The accuracies of all devices before the first slot, which a real device cannot know."""
    run(replace(experiment, rounds=1), folder, "local")
    [*_, checkpoint] = sorted((folder / "checkpoints").glob("*.safetensors"))
    scores = Bundle.unpack(checkpoint.read_bytes())["columns"]["score"].tolist()
    return PublishedRecord(min(scores), float(np.median(scores)), max(scores), len(scores))


def replay(
    experiment: Experiment, names: Sequence[str], order: Sequence[RealMeeting], folder: Path
) -> tuple[list[list[tuple[Any, ...]]], str]:
    """What the simulation does on these meetings: its exchanges in each meeting, and the hash of all models."""
    number, begins = {name: place for place, name in enumerate(names)}, (len(names) + 1) // 2
    offset = begins - min((one.slot for one in order), default=0)
    # a list of contacts numbers devices as they first appear: these meet first, and nobody asks
    rows = [(place, min(2 * place, len(names) - 2), min(2 * place + 1, len(names) - 1)) for place in range(begins)]
    rows += sorted((one.slot + offset, *(number[name] for name in one.pair)) for one in order)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "contacts.dat").write_text("".join(f"{SLOT * slot} {a} {b}\n" for slot, a, b in rows))
    cut = [[one.slot + offset, number[taker], number[giver]] for one in order for taker, giver in one.cut]
    (folder / "cut.json").write_text(json.dumps({"begins": begins, "cut": cut}))
    exchange = experiment.exchange
    assert isinstance(exchange, Guarded)
    settings = {field.name: getattr(exchange, field.name) for field in fields(exchange)}
    played = replace(
        experiment,
        rounds=0,
        topology=replace(experiment.topology, traces=str(folder / "contacts.dat")),  # type: ignore[call-arg]
        exchange=Replayed(**settings, cut_file=str(folder / "cut.json")),
    )
    summary = run(played, folder / "run", "local")
    exchanges: dict[tuple[int, tuple[str, str]], list[tuple[Any, ...]]] = {}
    for line in (folder / "run" / "rounds.jsonl").read_text().splitlines():
        event = json.loads(line).get("events") or {}
        for row in zip(*(event.get(key, ()) for key in ("taker", "giver", "predicted", "before", "after", "adopted"))):
            exchanges.setdefault((event["slot"] - offset, tuple(sorted(row[:2]))), []).append(row)
    return [sorted(exchanges.pop((one.slot, one.pair), [])) for one in order], str(summary["model_sha256"])


def done(one: RealMeeting) -> list[tuple[Any, ...]]:
    """The exchanges of a real meeting, as the simulation's log has them."""
    return sorted(
        (taker, giver, *(None if value is None else round(value, 6) for value in (line.predicted, line.before,
                                                                               line.after)), line.adopted)
        for taker, giver, line in one.taken
    )  # fmt: skip


def hash_of(models: Mapping[str, str], names: Sequence[str]) -> str:
    """The hash of all models as a run's summary has it."""
    text = "".join(f"{name}/model:{models[name]};" for name in names)
    return hashlib.sha256(hashlib.sha256(text.encode()).hexdigest().encode()).hexdigest()
