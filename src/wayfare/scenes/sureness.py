"""How sure a relation is: its score as the share of such relations that people have annotated.

A head's own probabilities are not that. It trains on some pairs of a picture, related ones more often than they occur,
and its loss rewards certainty. So scores are mapped by Platt's method on pictures that the run did not train on,

    p = 1 / (1 + exp(-(slope log(s / (1 - s)) + offset))),

fitted to whether each of their 20 best guesses is annotated, with Platt's smoothed targets. The order of relations
stays. Annotations are incomplete: a relation that is true and not annotated counts as wrong.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from wayfare.scenes.data.scene_graphs import SceneGraphs
from wayfare.scenes.recall import Guesses

BEST = 20  # guesses of a picture that count
MOST_PICTURES = 200
_FEWEST = 50  # guesses, right and wrong, below which nothing is fitted
_EDGE = 1e-6  # scores are kept this far from 0 and 1


class Sureness(NamedTuple):
    """The map; as it stands it changes nothing."""

    slope: float = 1.0
    offset: float = 0.0

    def of(self, scores: np.ndarray) -> np.ndarray:
        mapped: np.ndarray = 1 / (1 + np.exp(-(self.slope * _log_odds(scores) + self.offset)))
        return mapped if self != Sureness() else scores


def fit_sureness(guesses: Guesses, truth: SceneGraphs) -> Sureness:
    """The map from guesses of annotated objects; none if they are too few, or all right or all wrong."""
    right = hits(guesses, truth)
    many, few = int(right.sum()), int((~right).sum())
    if len(right) < _FEWEST or not many or not few:
        return Sureness()
    wanted = np.where(right, (many + 1) / (many + 2), 1 / (few + 2))
    odds = _log_odds(guesses.scores)

    def loss(parts: np.ndarray) -> tuple[float, np.ndarray]:
        said = parts[0] * odds + parts[1]
        error = 1 / (1 + np.exp(-said)) - wanted
        return float((np.logaddexp(0, said) - wanted * said).mean()), np.array([(error * odds).mean(), error.mean()])

    found = minimize(loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B", bounds=[(0.05, 20), (-20, 20)])
    return Sureness(float(found.x[0]), float(found.x[1]))


def hits(guesses: Guesses, truth: SceneGraphs) -> np.ndarray:
    """bool (T,): whether each guess is an annotated triplet of the same objects."""
    kinds = len(truth.predicates)
    most = int(np.diff(truth.object_offsets).max(initial=1))

    def key(image: np.ndarray, triplets: np.ndarray) -> np.ndarray:
        subject, other, predicate = triplets.astype(np.int64).T
        number: np.ndarray = ((image * most + subject) * most + other) * kinds + predicate
        return number

    return np.isin(key(guesses.image, guesses.triplets), key(truth.relation_images, truth.relations))


def _log_odds(scores: np.ndarray) -> np.ndarray:
    clipped = np.clip(np.asarray(scores, np.float64), _EDGE, 1 - _EDGE)
    odds: np.ndarray = np.log(clipped / (1 - clipped))
    return odds
