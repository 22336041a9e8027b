"""What the page of the demo says about each federation: words for a stranger, and the figures they are about.

Sentences are put together from the figures, whichever way these came out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from wayfare.reports.record import Record
from wayfare.reports.tables import number

TOGETHER, ALONE, POOLED = "federated", "local", "centralised"
_SAME = 0.005  # a difference of less than half a point is none


@dataclass(frozen=True)
class Subject:
    """One of the four tasks, in words."""

    title: str
    metric: str
    measure: str  # what the figure counts
    lead: str  # what happened
    floor: str = ""  # a metric that is the same for all models: chance, say
    floor_words: str = ""


SUBJECTS = {
    "places": Subject(
        "Where was this photo taken?", "test/R@1",
        "photos of a city that nobody learnt from, for which the right place (within 25 m) comes first",
        "Each client is a neighbourhood, with the photos that were taken there. They learnt together to tell places "
        "apart: a model went round, each improved it on its own photos, and a server averaged what came back.",
    ),
    "objects": Subject(
        "What is on it?", "test/accuracy", "photos of sights that are recognised, among ten kinds",
        "Here is no server at all. People walked about the town for a day with a few photos of its sights. When two "
        "came near each other, their phones decided whether the other's model was worth having, and averaged it with "
        "their own. How to decide was learnt from a few pictures that are nobody's.",
    ),
    "scenes": Subject(
        "How do the things on it relate?", "test/R@20",
        "relations in a photo (“person riding bicycle”) that are among the model's twenty surest",
        "Each client photographs one kind of scene. They learnt together to say how the things in a photo relate.",
        "test/frequency R@20",
        "always naming the most frequent relation of two kinds of things, counted over everybody's photos,",
    ),
    "hashing": Subject(
        "Which photos go with these words?", "test/MAP",
        "of what comes first in a search, as much as is right (mean average precision, words to photos and back)",
        "Each client has pictures with a few words, and mostly of a few kinds. They learnt together to give both short "
        "codes of ones and zeros, so that pictures and words that belong together get codes that are alike.",
        "test/random MAP", "a random order",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """The main figure of a task in each way of learning; NaN where it was not measured."""

    before: float
    alone: float
    together: float
    pooled: float
    floor: float

    @classmethod
    def of(cls, subject: Subject, runs: Mapping[str, Record]) -> Outcome:
        """Read from the runs of a task."""
        record = runs[TOGETHER]
        series = record.series(subject.metric)[1]
        first, last = (series[0], series[-1]) if series else (math.nan, math.nan)
        # Devices that meet have learnt from their own pictures before the first meeting: their second figure.
        alone = series[1] if record.is_tour and len(series) > 1 else _last(runs.get(ALONE), subject.metric)
        return cls(first, alone, last, _last(runs.get(POOLED), subject.metric), _last(record, subject.floor))

    @property
    def verdict(self) -> str:
        """One honest sentence."""
        gain, ahead = self.together - self.before, self.together - self.alone
        grew = f"from {points(self.before)} to {points(self.together)}"
        if not math.isfinite(gain):
            return "It was not measured."
        text = f"Learning together took it {grew}"
        if gain <= _SAME:
            text = f"Learning together changed little: {grew}" if gain >= -_SAME else f"It got worse, {grew}"
        if math.isfinite(ahead):
            if ahead > _SAME:
                text += f", {points(ahead)} more than each reached alone"
            elif ahead < -_SAME:
                text += f", and that is {points(-ahead)} less than each reached alone: here it did not pay to federate"
            else:
                text += ", no better than each alone"
        text += "."
        gap = self.pooled - self.together
        if math.isfinite(gap):
            if gap > _SAME:
                text += f" With everything in one place it would have been {points(gap)} more."
            elif gap < -_SAME:
                text += f" With everything in one place it was {points(-gap)} less, with the same settings."
            else:
                text += " With everything in one place it was as good."
        if math.isfinite(self.floor) and self.together <= self.floor:
            text += f" That is still not more than what needs no learning ({points(self.floor)})."
        return text


def points(value: float) -> str:
    """A share in hundredths."""
    return f"{100 * value:.1f}".removesuffix(".0")


def clients_of(record: Record) -> int:
    """How many took part."""
    count = record.partition.get("table", {}).get("clients", 0)
    return int(count) if isinstance(count, int | float) else 0


def judging(record: Record) -> int:
    """How many of them do not learn, but are there to judge."""
    return int(record.experiment.get("evaluation", {}).get("validation_clients", 0))


def held(record: Record) -> int:
    """How many pictures the clients had."""
    table = record.partition.get("table", {})
    return round(float(table.get("mean", 0)) * clients_of(record))


def who(task: str, record: Record) -> str:
    """ "17 neighbourhoods, 2,104 photos": who learnt from what."""
    names = {"places": "neighbourhoods", "objects": "people", "scenes": "people", "hashing": "people"}
    things = {"places": "photos", "objects": "pictures of sights", "scenes": "photos", "hashing": "pictures with words"}
    text = f"{number(clients_of(record))} {names[task]} with {number(held(record))} {things[task]} between them"
    return f"{text}, of which {judging(record)} only judge" if judging(record) else text


def _last(record: Record | None, metric: str) -> float:
    values = record.series(metric)[1] if record is not None and metric else []
    return float(values[-1]) if values else math.nan
