"""What a device has done, for its owner: a page, and rows for the terminal.

Names and reasons came from other devices: the page's engine and the console make them harmless (`core/text.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wayfare.core.bundle import digest
from wayfare.core.errors import ConfigError
from wayfare.meeting.diary import BUDGET, COLUMNS, Diary, Encounter, Transfer, number_or_none, own_model
from wayfare.meeting.identity import Identity
from wayfare.meeting.published import PublishedRecord, record_in
from wayfare.pages import page
from wayfare.pages.figures import Figure, axis_title, plain_layout
from wayfare.pages.tables import NOTHING, plain

_MOST_ROWS = 500
_STATES = {"open": "on its way, or not acknowledged yet", "taken": "taken", "refused": "refused", "merged": "taken"}


@dataclass(frozen=True)
class Acquaintance:
    """A device that was met."""

    name: str
    key: str
    meetings: int
    announced: float | None  # its accuracy when it was last met
    taken: int
    sent: int
    gain: float | None  # what its models added to the own accuracy


@dataclass(frozen=True)
class PeerRecord:
    """What a device's files say."""

    name: str
    key: str
    score: float
    started: float
    day: int
    meetings: int
    budget: dict[str, int]
    record: PublishedRecord | None  # from which budget and threshold were set
    ledger: tuple[Transfer, ...]
    encounters: tuple[Encounter, ...]
    model_sha256: str

    @classmethod
    def read(cls, home: Path) -> PeerRecord:
        """From a device's folder."""
        diary, identity = Diary(home), Identity(home, "")
        read = diary.read()
        if read is None:
            raise ConfigError(f"{home} has no diary of a device: give --home, or start it with `wayfare meet`")
        found, about = read
        columns = {name: tensor.tolist() for name, tensor in found[COLUMNS].items()}
        return cls(
            name=identity.own_name,
            key=identity.key,
            score=float(columns["score"][0]),
            started=math.nan if about.started is None else about.started,
            day=about.day,
            meetings=about.meetings,
            budget={name: int(columns[name][0]) for name in BUDGET},
            record=record_in(about.published),
            ledger=tuple(about.ledger),
            encounters=tuple(about.encounters),
            model_sha256=digest(own_model(found)["model"]),
        )

    @property
    def acquaintances(self) -> list[Acquaintance]:
        """Who was met, those met most first."""
        met = Counter(line.peer for line in self.encounters)
        last = {line.peer: line for line in self.encounters}
        return [
            Acquaintance(
                last[key].name, key, count, last[key].score,
                taken=sum(line.state == "merged" for line in self._with(key, "taken")),
                sent=len(self._with(key, "sent")),
                gain=_sum(line.after - line.before for line in self._with(key, "taken")
                          if line.adopted and line.after is not None and line.before is not None),
            )
            for key, count in met.most_common()
        ]  # fmt: skip

    def _with(self, key: str, way: str) -> list[Transfer]:
        return [line for line in self.ledger if (line.peer, line.way) == (key, way)]

    def people(self) -> list[tuple[str, ...]]:
        """A row for each: name, meetings, announced accuracy, taken, sent, gain."""
        return [_person(each) for each in self.acquaintances]

    def taken_rows(self) -> list[tuple[str, ...]]:
        """A row for each model, the last first: from, what became of it, meeting, predicted, before, after."""
        return [_taken_row(line) for line in reversed(self.ledger) if line.way == "taken"]

    def in_words(self) -> str:
        """Its accuracy, and what is left."""
        left = f"left: {self.budget['can_send']} to send, {self.budget['can_take']} to take"
        return f"accuracy {_score(self.score)}, {_score(self.started)} when the day began; {left}"

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "name": self.name, "key": self.key, "score": number_or_none(self.score),
            "started": number_or_none(self.started), "day": self.day,
            "meetings": self.meetings, **self.budget, "model_sha256": self.model_sha256,
            "published": self.record.values() if self.record else None,
            "peers": [asdict(each) for each in self.acquaintances],
            "ledger": [asdict(line) for line in self.ledger],
        }  # fmt: skip


def write_peer_page(record: PeerRecord, out: Path) -> Path:
    """One self-contained page."""
    return page.save(peer_page(record), out)


def peer_page(record: PeerRecord) -> str:
    """The page as HTML."""
    taken = [line for line in record.ledger if line.way == "taken"]
    figure = _accuracy_figure(record.started, [line for line in taken if line.day == record.day])
    return page.render(
        "peer.html",
        title=record.name,
        figures=[figure] if figure else [],
        figure=figure,
        record=record,
        tiles=_tiles(record),
        people=record.people(),
        taken=record.taken_rows()[:_MOST_ROWS],
        sent=[_sent_row(line) for line in reversed([x for x in record.ledger if x.way == "sent"][-_MOST_ROWS:])],
        facts=_facts(record),
        keys=[(each.name, each.key) for each in record.acquaintances],
    )


def _tiles(record: PeerRecord) -> list[tuple[str, str, str]]:
    left = record.budget
    begun = "" if math.isnan(record.started) else f"{_score(record.started)} when the day began"
    people = len(record.acquaintances)
    return [
        ("Accuracy", _score(record.score), begun),
        ("Meetings", str(record.meetings), f"with {page.several(people, 'device')}"),
        ("Models taken", str(left["taken"]), f"{left['can_take']} more may be taken"),
        ("Models sent", str(left["sent"]), f"{left['can_send']} more may be sent"),
    ]


def _facts(record: PeerRecord) -> list[tuple[str, str]]:
    known = record.record
    return [
        ("day", str(record.day + 1)),
        ("lowest, median and highest accuracy of all", ", ".join(map(_score, known.ends)) if known else "not known"),
        ("own key", record.key),
    ]


def _person(each: Acquaintance) -> tuple[str, ...]:
    gain = NOTHING if each.gain is None else f"{each.gain:+.3f}"
    return each.name, str(each.meetings), _score(each.announced), str(each.taken), str(each.sent), gain


def _taken_row(line: Transfer) -> tuple[str, ...]:
    became = {"refused": "refused", "taken": "not merged yet"}.get(line.state, "kept" if line.adopted else "not kept")
    text = f"{became}: {line.reason}" if line.reason else became
    return line.name, text, str(line.meeting), _score(line.predicted), _score(line.before), _score(line.after)


def _sent_row(line: Transfer) -> tuple[str, ...]:
    return line.name, _STATES[line.state], str(line.meeting)


def _accuracy_figure(started: float, taken: list[Transfer]) -> Figure | None:
    """The own accuracy after each model that was taken."""
    merged = [line for line in taken if line.state == "merged" and line.after is not None and line.before is not None]
    if not merged:
        return None
    first = merged[0].before if math.isnan(started) else started
    held = [first, *(line.after if line.adopted else line.before for line in merged)]
    names = ["own photos only", *(f"after {line.name}" for line in merged)]
    own: dict[str, Any] = {"type": "scatter", "mode": "lines+markers", "x": list(range(len(held))), "y": held}
    own |= {"line": {"color": "@c1", "shape": "hv"}, "marker": {"size": 6}, "text": [plain(name) for name in names]}
    own["hovertemplate"] = "%{text}: %{y:.3f}<extra></extra>"
    refused = [(place, line) for place, line in enumerate(merged, 1) if not line.adopted]
    other: dict[str, Any] = {"type": "scatter", "mode": "markers", "x": [place for place, _ in refused]}
    other |= {"y": [line.after for _, line in refused], "marker": {"size": 7, "color": "@c2", "symbol": "x-thin-open"}}
    other |= {"text": [plain(line.name) for _, line in refused]}
    other["hovertemplate"] = "%{text}, not kept: %{y:.3f}<extra></extra>"
    layout = plain_layout(hovermode="closest")
    layout["xaxis"] |= {
        "title": axis_title("models taken on this day"),
        "rangemode": "tozero",
        "dtick": _step(len(held)),
    }
    layout["yaxis"] |= {"title": axis_title("accuracy"), "tickformat": ".2f"}
    words = f"Accuracy from {_score(held[0])} to {_score(held[-1])} over {page.several(len(merged), 'model')} taken."
    return Figure("peer-accuracy", "Own accuracy", words, {"data": [own, other], "layout": layout}, height=260)


def _step(count: int) -> int:
    return max(1, count // 8)


def _sum(values: Any) -> float | None:
    found = list(values)
    return sum(found) if found else None


def _score(value: float | None) -> str:
    return NOTHING if value is None or math.isnan(value) else f"{value:.3f}"
