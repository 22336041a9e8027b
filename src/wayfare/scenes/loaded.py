"""A task's data once it is read: training and test pictures, their features, and their counts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Progress, silent
from wayfare.partition.semantics import Categories
from wayfare.scenes import frequency, recall
from wayfare.scenes.categories import scene_categories
from wayfare.scenes.data.scene_data import SceneData
from wayfare.scenes.data.scene_graphs import SceneGraphs
from wayfare.scenes.detections import singles
from wayfare.scenes.evaluation import metrics
from wayfare.scenes.features import FeatureSource, Provider
from wayfare.scenes.modes import SceneMode


class LoadedScenes:
    """Everything that a task computes once."""

    def __init__(self, data: SceneData, mode: SceneMode, features: FeatureSource, as_paper: bool) -> None:
        self._data, self._mode, self._features, self._as_paper = data, mode, features, as_paper
        graphs = data.load(silent)
        self.all = mode.pictures(graphs)
        is_test = data.is_test(graphs)
        self.train, self.test = (self.all.select(np.flatnonzero(some)) for some in (~is_test, is_test))

    def prepare(self, progress: Progress) -> None:
        self.provider.prepare(lambda done, total: progress("computing features of the pictures", done, total))

    @cached_property
    def provider(self) -> Provider:
        return self._features.provider(self.all.scenes)

    @cached_property
    def has_pairs(self) -> np.ndarray:
        """bool, for each picture to train on: it has at least two objects."""
        return np.diff(self.train.scenes.object_offsets) > 1

    @cached_property
    def categories(self) -> Categories:
        """Which relations between which kinds of things each picture has: what the partition `semantic` goes by.

        Without groups each class and each predicate is a group of its own.
        """
        graphs = self.train.truth
        groups = self._data.groups(graphs)
        try:
            return scene_categories(graphs, groups=groups)
        except ConfigError as error:
            raise ConfigError(f"{error}: name their file in data.super_classes") from error

    def metrics(self, guesses: Iterable[recall.Guesses], samples: np.ndarray | None) -> dict[str, float]:
        """Recalls of guesses on these pictures of the pool, or on the test pictures."""
        if samples is None:
            guesses = list(guesses)
            return metrics(guesses, self.test, self._test_overlaps, self._as_paper) | self._of_parts(guesses[0])
        pictures = self.train.select(samples)
        return metrics(guesses, pictures, self._mode.overlaps(pictures), self._as_paper)

    def baseline(self, counts: frequency.Frequencies) -> dict[str, float]:
        """What the label-pair frequency baseline with these counts finds of the test pictures."""
        scenes, scores = self.test.scenes, self.test.scores
        both = [frequency.guesses(counts, scenes, scores, constraint=one) for one in (True, False)]
        return {f"frequency {name}": value for name, value in self.metrics(both, None).items() if "/" not in name}

    def _of_parts(self, guesses: recall.Guesses) -> dict[str, float]:
        """On the test pictures: mR@K of frequent, middling and seldom predicates; R@K of triplets never trained on.

        Of a detector's objects also what is left with one mask for each object.
        """
        test, whole = self.test.truth, self._test_tally(guesses, self.test.truth)
        named = recall.by_thirds(whole, np.bincount(self.train.truth.relations[:, 2], minlength=len(test.predicates)))
        unseen = test.keep_relations(~recall.seen(test, self.train.truth))
        if len(unseen.relations):
            few = self._test_tally(guesses, unseen)
            named |= {f"z{name}": value for name, value in few.metrics.items() if name.startswith("R@")}
        if self._singles is not None:
            first = self.test.scenes.object_offsets[guesses.image][:, None] + guesses.triplets[:, :2]
            once = self._test_tally(guesses.only(self._singles[first].all(1)), test)
            named |= {f"single {name}": value for name, value in once.metrics.items() if "/" not in name}
        return named

    @cached_property
    def _singles(self) -> np.ndarray | None:
        """Which of a detector's objects in the test pictures remain if each object may have one mask only."""
        return None if self.test.detected is None else singles(self.test.detected)

    def predicate_recalls(self, guesses: recall.Guesses, cutoff: int) -> dict[str, float]:
        """Of each predicate that the test pictures have."""
        truth = self.test.truth
        return recall.by_name(self._test_tally(guesses, truth), truth.predicates, cutoff)

    def _test_tally(self, guesses: recall.Guesses, truth: SceneGraphs) -> recall.RecallTally:
        """`truth`: the test pictures' annotations, or some of their relations."""
        return recall.tally(guesses, truth, self.test.matched, self._test_overlaps, as_paper=self._as_paper)

    @cached_property
    def _test_overlaps(self) -> np.ndarray | None:
        return self._mode.overlaps(self.test)
