"""The confidence of an answer: three scores of the list of matches, and a logistic regression on them.

    nearest     the distance of the nearest descriptor
    ratio       that distance, divided by the one of the first match of another place: 1 if both are as near
    agreement   the share of the following matches that lie at the place of the first

The regression and the threshold below which an answer is "unknown" are learnt on photographs of the run's own data,
whose places are known. Each is used twice: with the whole database, and with everything around its place removed; the
second answer is never right. An answer is right if its first match lies at most `radius` metres from where the photo
was taken. So confidence is the probability that an answer is right if every second photo comes from a place that is not
in the index. The threshold is the one with the best F1 among those at which at least half of the accepted answers are
right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wayfare.clients import Clients
from wayfare.core.errors import DataError
from wayfare.core.seeds import rng_for
from wayfare.partition.split import load_split
from wayfare.places.nearest import nearest
from wayfare.places.positions import metres, rows_of
from wayfare.places.recall import precision_recall
from wayfare.places.trained_model import TrainedPlaceModel, describe

TOP = 20  # matches that are looked at
SCORES = ("nearest", "ratio", "agreement")
_AGREEING = 10  # the first match, and those asked whether they lie where it does
_AROUND = 2  # radii: what is removed around a photo's place to make the place unknown
_QUERIES, _DATABASE, _PER_PLACE = 1000, 4000, 10  # photographs to learn from, at most
_FEWEST, _FEWEST_RIGHT = 30, 10  # queries, and right and wrong answers to them: less says nothing

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Calibration:
    """The regression, the threshold, and what they were learnt on."""

    weights: tuple[float, ...]  # of the scores, after centre and scale
    bias: float
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    threshold: float
    precision: float  # of the accepted answers there, at the threshold
    recall: float  # of the photographs whose place was in the database
    queries: int
    source: str

    def confidence(self, scores: np.ndarray) -> np.ndarray:
        """0..1 for each row of scores."""
        return _logistic((scores - self.centre) / self.scale @ np.array(self.weights) + self.bias)


@dataclass(frozen=True)
class Curve:
    """What comes out if answers from each threshold upwards are accepted; one entry for each that differs."""

    thresholds: np.ndarray
    precision: np.ndarray  # right answers among those accepted
    recall: np.ndarray  # right and accepted answers, of the photographs whose place was there to be found
    confidence: np.ndarray  # of each answer
    right: np.ndarray  # bool: is the answer right?
    known: np.ndarray  # bool: was its place there?

    @property
    def area(self) -> float:
        """Under the curve: the precision at each step of recall (average precision)."""
        return float((np.diff(self.recall, prepend=0.0) * self.precision).sum())

    @property
    def best(self) -> int | None:
        """The entry with the best F1 among those at which at least half of the accepted answers are right, if any.

        Without that condition a weak model would accept nearly everything, to find the little that it can find.
        """
        both = self.precision + self.recall
        quality = 2 * self.precision * self.recall / np.where(both > 0, both, 1)
        quality[self.precision < 0.5] = 0.0
        return int(np.argmax(quality)) if quality.any() else None

    def refused(self, threshold: float) -> tuple[float, float]:
        """The shares that are "unknown" at a threshold: of photographs whose place was there, and of the others."""
        unknown = self.confidence < threshold
        present, absent = (float(unknown[part].mean()) if part.any() else np.nan for part in (self.known, ~self.known))
        return present, absent


def scores_of(distances: np.ndarray, away: np.ndarray, radius: float) -> np.ndarray:
    """The three scores of one photo: of its matches' distances, in order, and their metres from the first match."""
    distances, here = distances[:TOP], away[:TOP] <= radius
    other = other_place(distances, here)
    ratio = float(distances[0] / other) if other > 0 else 1.0
    following = here[1:_AGREEING]
    return np.array([distances[0], ratio, following.mean() if len(following) else 0.0])


def other_place(distances: np.ndarray, here: np.ndarray) -> float:
    """The distance of the first match that is not at the first one's place; where all are, it is no less than this."""
    return float(distances[~here][0] if not here.all() else distances[-1])


def curve_of(confidence: np.ndarray, right: np.ndarray, known: np.ndarray) -> Curve:
    """Precision and recall of answers with a confidence each; right ones, and those whose place was there."""
    thresholds, precision, recall = precision_recall(-confidence, right, known)
    return Curve(-thresholds, precision, recall, confidence=confidence, right=right, known=known)


def fit(scores: np.ndarray, right: np.ndarray, known: np.ndarray, source: str) -> Calibration:
    """Learn the regression and the threshold from scores (n, 3) of answers."""
    from sklearn.linear_model import LogisticRegression  # a second to import, and only new indexes need it

    centre, scale = scores.mean(0), scores.std(0)
    scale[scale == 0] = 1.0
    inputs = (scores - centre) / scale
    # the L2 penalty keeps weights finite where the answers can be told apart without a mistake
    regression = LogisticRegression(solver="newton-cholesky", tol=1e-10).fit(inputs, right)
    curve = curve_of(regression.predict_proba(inputs)[:, 1], right, known)
    threshold, precision, recall = 1.0, 0.0, 0.0  # nothing is accepted
    if (best := curve.best) is not None:
        threshold, precision, recall = (float(v[best]) for v in (curve.thresholds, curve.precision, curve.recall))
    return Calibration(
        weights=tuple(regression.coef_[0].tolist()),
        bias=float(regression.intercept_[0]),
        centre=tuple(centre.tolist()),
        scale=tuple(scale.tolist()),
        threshold=threshold,
        precision=precision,
        recall=recall,
        queries=len(scores),
        source=source,
    )


def calibrate(model: TrainedPlaceModel, run: Path, progress: Progress = lambda *_: None) -> Calibration:
    """Learn from the data of the model's run; a DataError says why if that is impossible."""
    progress("reading the run's own photographs", 0, 1)
    divided = model.task.loaded.divided
    if divided.photos.pairs is not None:
        raise DataError("the run's data are paired frames, which have no positions", divided.photos.root)
    radius, photos, pool = model.task.radius, divided.photos, divided.pool
    is_query = photos.query if photos.query is not None else np.zeros(len(photos), bool)
    database = pool[~is_query[pool]]
    seen, why = 0, ""
    for source, samples in _sources(model, run):
        rows = pool[samples]
        queries = rng_for(model.experiment.seed, "calibration").permutation(rows[is_query[rows]])[:_QUERIES]
        around = photos.positives(_AROUND * radius, queries, database)
        asking = sum(len(near) > 0 for near in around)
        seen = max(seen, asking)
        if asking < _FEWEST:
            continue
        chosen = _chosen(database, around, model.experiment.seed)
        scores, right, known = _answered(model, np.sort(queries), chosen, progress)
        if min(right.sum(), (~right).sum()) >= _FEWEST_RIGHT:
            return fit(scores, right, known, source)
        why = f"of {len(right)} answers {right.sum()} were right: too few, or too many, to learn from"
    what = f"{seen} photographs of the run ask for a place that its database has: at least {_FEWEST} are needed"
    raise DataError(why or what, photos.root)


def _sources(model: TrainedPlaceModel, run: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Samples of the pool to ask with, the best kind first."""
    file = run / "partition.safetensors"
    try:
        population: Clients = model.experiment.clients(load_split(file.read_bytes()))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file) from error
    apart = [population.client(id).holdout for id in population.validation]
    if apart:
        yield f"photographs of the run's {len(apart)} validation clients", np.unique(np.concatenate(apart))
    clients = [population.client(population.trained.id(i)) for i in range(len(population.trained))]
    trained = np.unique(np.concatenate([client.train for client in clients]))
    held_out = np.unique(np.concatenate([client.holdout for client in clients]))
    yield "photographs that the run's clients kept from training", np.setdiff1d(held_out, trained)
    yield "photographs that the model was trained on, so that it is too sure of itself", trained


def _chosen(database: np.ndarray, around: list[np.ndarray], seed: int) -> np.ndarray:
    """What to look in: some of what lies around each query, and a random part of the rest."""
    near = [rows[:: -(-len(rows) // _PER_PLACE)] for rows in around if len(rows)]
    places = np.unique(np.concatenate(near))
    rest = rng_for(seed, "calibration database").permutation(np.setdiff1d(database, np.concatenate(around)))
    return np.union1d(places, rest[: max(0, _DATABASE - len(places))])


def _answered(
    model: TrainedPlaceModel, queries: np.ndarray, database: np.ndarray, progress: Progress
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores of each query's answer with and without its place, whether it was right, and whether it could be."""
    photos, rows = model.task.loaded.divided.photos, np.concatenate((queries, database))
    parts, paths = [], photos.take(rows).paths()
    for part in describe(model, paths):
        parts.append(part)
        progress("learning what is unknown", int(part.kept[-1]) + 1 if len(part.kept) else 0, len(rows))
    kept = np.concatenate([part.kept for part in parts])
    descriptors = np.concatenate([part.descriptors for part in parts])
    positions = rows_of(photos, photos.groups)[rows[kept]]
    count = int((kept < len(queries)).sum())
    matches = _Matches(
        (descriptors[:count], positions[:count]), (descriptors[count:], positions[count:]), model.task.radius
    )
    found = [answer for number in range(count) for answer in matches.answers(number)]
    scores, right, known = (np.array(column) for column in zip(*found))
    return scores, right, known


class _Matches:
    """The matches of every query; queries and database are descriptors and positions."""

    def __init__(
        self, queries: tuple[np.ndarray, np.ndarray], database: tuple[np.ndarray, np.ndarray], radius: float
    ) -> None:
        self.positions, self.radius = database[1], radius
        self.away = [metres(self.positions, position) for position in queries[1]]
        most = max(int((away <= _AROUND * radius).sum()) for away in self.away)
        self.rows, squared = nearest(queries[0], database[0], TOP + most)
        self.distances = np.sqrt(squared)

    def answers(self, number: int) -> Iterator[tuple[np.ndarray, bool, bool]]:
        """Scores, whether right, whether the place was in the database: with the place, and without it."""
        rows, distances, away = self.rows[number], self.distances[number], self.away[number]
        known = bool((away <= self.radius).any())
        elsewhere = away[rows] > _AROUND * self.radius
        for kept, is_known in ((slice(None), known), (elsewhere, False)):
            top, apart = rows[kept][:TOP], distances[kept][:TOP]
            if len(top):
                between = metres(self.positions[top], self.positions[top[0]])
                yield scores_of(apart, between, self.radius), bool(away[top[0]] <= self.radius), is_known


def _logistic(values: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(values / 2))  # without overflow
