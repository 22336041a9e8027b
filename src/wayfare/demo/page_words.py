"""What the page of the demo says about each task: plain words, and the numbers they are about.

Sentences are made from the numbers, whichever way these came out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from wayfare.pages.record import Record
from wayfare.pages.tables import number

TOGETHER, ALONE, POOLED = "federated", "local", "centralised"
_SAME = 0.005  # a difference of less than half a point is none


@dataclass(frozen=True)
class DemoTask:
    """One of the four tasks, in words."""

    title: str
    metric: str
    measure: str  # what the metric counts
    lead: str  # what happened
    floor: str = ""  # a metric that is the same for all models: chance, say
    floor_words: str = ""


DEMO_TASKS = {
    "places": DemoTask(
        "Where was this photo taken?",
        "test/R@1",
        "photos of a city that no client trained on, for which the first answer is within 25 m",
        "Each client is a neighbourhood with the photos taken there. Together they trained a model that tells places "
        "apart: the server sent the model to the clients, each improved it on its own photos, and the server averaged "
        "the results.",
    ),
    "objects": DemoTask(
        "What does it show?",
        "test/accuracy",
        "photos of sights that are recognised, among ten kinds",
        "There is no server here. People walked through the town for a day, each with a few photos of its sights. When "
        "two of them met, their phones decided whether the other's model was useful, and averaged it with their own. "
        "The rule for this decision was learnt from a few public pictures.",
    ),
    "scenes": DemoTask(
        "How do the objects in it relate?",
        "test/R@20",
        "relations in a photo (“person riding bicycle”) that are among the model's 20 most confident ones",
        lead="Each client photographs one kind of scene. Together they trained a model that names the relations "
        "between the objects in a photo.",
        floor="test/frequency R@20",
        floor_words="always naming the most frequent relation of the two classes, counted over all clients' photos,",
    ),
    "hashing": DemoTask(
        "Which photos match these words?",
        "test/MAP",
        "mean average precision of a search, from words to photos and from photos to words",
        lead="Each client has pictures with a few words, mostly of a few kinds. Together they trained a model that "
        "gives pictures and words short binary codes, which are similar where a picture and words belong together.",
        floor="test/random MAP",
        floor_words="a random order",
    ),
}


@dataclass(frozen=True)
class TaskResult:
    """The main metric of a task for each way of training; NaN where it was not measured."""

    before: float
    alone: float
    together: float
    pooled: float
    floor: float

    @classmethod
    def of(cls, task: DemoTask, runs: Mapping[str, Record]) -> TaskResult:
        """Read from the runs of a task."""
        record = runs[TOGETHER]
        series = record.series(task.metric)[1]
        first, last = (series[0], series[-1]) if series else (math.nan, math.nan)
        # Devices that meet have trained on their own pictures before the first meeting: their second value.
        alone = series[1] if record.is_tour and len(series) > 1 else _last(runs.get(ALONE), task.metric)
        return cls(first, alone, last, _last(runs.get(POOLED), task.metric), _last(record, task.floor))

    @property
    def verdict(self) -> str:
        """The result in words, good or bad."""
        gain = self.together - self.before
        if not math.isfinite(gain):
            return "It was not measured."
        grew = f"from {points(self.before)} to {points(self.together)}"
        text = f"Federated training improved it {grew}"
        if gain <= _SAME:
            text = f"Federated training changed little, {grew}" if gain >= -_SAME else f"It got worse, {grew}"
        text += f"{self._against_alone}.{self._against_pooled}"
        if math.isfinite(self.floor) and self.together <= self.floor:
            text += f" That is still no better than a baseline without training ({points(self.floor)})."
        return text

    @property
    def _against_alone(self) -> str:
        ahead = self.together - self.alone
        if not math.isfinite(ahead):
            return ""
        if ahead > _SAME:
            return f", {points(ahead)} more than clients reach alone"
        if ahead < -_SAME:
            return f", which is {points(-ahead)} less than clients reach alone: federation did not pay off here"
        return ", no better than each client alone"

    @property
    def _against_pooled(self) -> str:
        gap = self.pooled - self.together
        if not math.isfinite(gap):
            return ""
        if gap > _SAME:
            return f" With all data in one place it would have been {points(gap)} more."
        if gap < -_SAME:
            return f" With all data in one place it was {points(-gap)} less, with the same settings."
        return " With all data in one place it was as good."


def points(value: float) -> str:
    """A share in hundredths."""
    return f"{100 * value:.1f}".removesuffix(".0")


def clients_of(record: Record) -> int:
    """How many took part."""
    count = record.partition.get("table", {}).get("clients", 0)
    return int(count) if isinstance(count, int | float) else 0


def evaluating(record: Record) -> int:
    """How many of them do not train, but only evaluate."""
    return int(record.experiment.get("evaluation", {}).get("validation_clients", 0))


def held(record: Record) -> int:
    """How many pictures the clients had."""
    table = record.partition.get("table", {})
    return round(float(table.get("mean", 0)) * clients_of(record))


def who(task: str, record: Record) -> str:
    """ "17 neighbourhoods with 2,104 photos in total": who trained on what."""
    names = {"places": "neighbourhoods", "objects": "people", "scenes": "people", "hashing": "people"}
    things = {"places": "photos", "objects": "pictures of sights", "scenes": "photos", "hashing": "pictures with words"}
    text = f"{number(clients_of(record))} {names[task]} with {number(held(record))} {things[task]} in total"
    return f"{text}, {evaluating(record)} of them for evaluation only" if evaluating(record) else text


def _last(record: Record | None, metric: str) -> float:
    values = record.series(metric)[1] if record is not None and metric else []
    return float(values[-1]) if values else math.nan
