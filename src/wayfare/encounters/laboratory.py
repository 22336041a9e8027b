"""Lab: the laboratory. Its models are trained by the same program as those of devices, and pass the same gate.

Models are stored in an unnamed file, so that only a few are in memory. Requests are sent in parts, each with its own
deadline. Two models are merged by their plain mean, whatever the strategy does: FedTour's study is about means.
"""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wayfare.core.bundle import Bundle, Value, Weights, digest, mean
from wayfare.core.errors import ConfigError, DataError
from wayfare.core.gate import TALLY, Gate
from wayfare.core.protocols import Progress, Strategy, Task
from wayfare.core.rows import Rows
from wayfare.core.seeds import rng_for

LAB_ROUND = 1  # the learning rate of the first round
_PART = {"train": 16, "look": 64}  # requests in one part
_HEADS = 512  # judged in one go

StoredRow = tuple[int, int]  # where a model lies, and its checksum


class Lab:
    """Trains models on chosen pictures of the pool, from one base, and judges means of two on other pictures."""

    def __init__(
        self,
        gate: Gate,
        strategy: Strategy,
        task: Task,
        start: Bundle,
        *,
        seed: int,
        train: np.ndarray,
        labels: np.ndarray,
        judge: np.ndarray,
        progress: Progress = lambda text, done, total: None,
        about: str = "",
    ) -> None:
        """`train` and `judge` are positions in the pool, `labels` those of `train`; the gate is of `LAB_ROUND`.

        `about` names what else a result depends on, the settings of training above all; without it nothing is kept.
        """
        self._gate, self._strategy, self._task, self._start, self._seed = gate, strategy, task, start, seed
        self._train, self._labels, self._judge = train, labels, np.sort(judge)
        self._progress, self._about = progress, about
        self._rows: Rows | None = None

    @property
    def labels(self) -> np.ndarray:
        return self._labels

    @property
    def classes(self) -> int:
        return len(self._task.classes)

    @property
    def key(self) -> str:
        """A digest of data, network, base, training and seed; "" if not all of these are known."""
        if not self._about:
            return ""
        words = (self._task, self._strategy, self._about, self._seed, torch.__version__, digest(self._start["model"]))
        sha = hashlib.sha256("\x1f".join(map(str, words)).encode())
        for part in (self._train, self._labels, self._judge):
            sha.update(np.ascontiguousarray(part, np.int64).tobytes() + b"\x1f")
        return sha.hexdigest()[:32]

    def rng(self, purpose: str) -> np.random.Generator:
        return rng_for(self._seed, "laboratory", purpose)

    def train(self, samples: Sequence[np.ndarray]) -> Sequence[StoredRow]:
        """A model for each of these sets of pictures; an empty one gives the base."""
        if len(self._train) != len(self._labels) or not len(self._train):
            raise ConfigError(
                "a laboratory needs pictures that nobody holds: set topology.public to their number, or, for FedTour, "
                "exchange.regressor to a file that `wayfare study` wrote"
            )
        if not len(self._judge) or np.intersect1d(self._train, self._judge).size:
            raise ConfigError("a laboratory evaluates models on pictures that it does not train on: set topology.judge")
        base = self._put(self._start)
        models: list[StoredRow] = [base] * len(samples)

        def requests() -> Iterator[tuple[str, Bundle]]:
            for number in taught:
                device = f"lab-{number}"
                yield device, lesson(self._strategy.send(self._start, device), self._train[samples[number]])

        taught = [number for number, chosen in enumerate(samples) if len(chosen)]
        expects = self._strategy.expects(self._start)
        replies = self._ask("train", requests(), expects, "training models", len(taught))
        for place, reply in enumerate(replies):
            models[taught[place]] = self._put(reply)
        return models

    def mixed(self, models: Sequence[StoredRow], groups: Sequence[np.ndarray]) -> Sequence[StoredRow]:
        """The plain mean of each group of models."""
        return [
            self._put(self._start.with_(model=mean((1.0, self._get(models[k])["model"]) for k in group)))
            for group in groups
        ]  # fmt: skip

    def merged(self, models: Sequence[Any], pairs: np.ndarray) -> np.ndarray:
        """The accuracy of the mean of each pair of models."""
        if "heads" in self._task.provides:
            return self._merged_heads(models, pairs)
        at = torch.from_numpy(self._judge)

        def requests() -> Iterator[tuple[str, Bundle]]:
            number, own = -1, Bundle()
            for first, second in pairs:
                if first != number:
                    number, own = first, self._get(models[first])
                both = own["model"]
                if second != first:
                    both = mean([(1.0, both), (1.0, self._get(models[second])["model"])])
                state = self._start.with_(model=both, samples={"at": at})
                yield "lab", Bundle(state.tensors, {**state.values, "n": 1})

        accuracies, expects = np.empty(len(pairs)), expected_tally(self.classes)
        for pair, reply in enumerate(self._ask("look", requests(), expects, "judging means of two", len(pairs))):
            accuracies[pair] = accuracy(reply)
        return accuracies

    def _merged_heads(self, models: Sequence[Any], pairs: np.ndarray) -> np.ndarray:
        """Where a model is only a linear head, thousands are judged at once, here."""
        stacked = [self._get(model)["model"] for model in models]
        [weight], [bias] = ([n for n, t in stacked[0].items() if t.ndim == dims] for dims in (2, 1))
        heads, biases = torch.stack([m[weight] for m in stacked]), torch.stack([m[bias] for m in stacked])
        accuracies = []
        for start in range(0, len(pairs), _HEADS):
            first, second = torch.from_numpy(pairs[start : start + _HEADS].T)
            right, total = self._task.tally_many(
                (heads[first] + heads[second]) / 2, (biases[first] + biases[second]) / 2, self._judge
            )
            accuracies.append(right.sum(1) / total.sum())
            self._progress("judging means of two", min(start + _HEADS, len(pairs)), len(pairs))
        return np.concatenate(accuracies)

    def _ask(
        self, program: str, requests: Iterator[tuple[str, Bundle]], expects: dict[str, Weights], text: str, count: int
    ) -> Iterator[Bundle]:
        """The replies in order. A study must be complete, so the first refusal ends it."""
        done, values = 0, self._strategy.values(self._start)
        self._progress(text, 0, count)
        while done < count:
            part = list(islice(requests, _PART[program]))
            for _, reply in self._gate.run(program, part, expects, values, strict=True):
                yield reply
                done += 1
                self._progress(text, done, count)

    def _put(self, state: Bundle) -> StoredRow:
        if self._rows is None:
            handle, name = tempfile.mkstemp(prefix="wayfare-lab-")
            os.close(handle)
            self._rows = Rows(Path(name), self._start.only("model"))
            Path(name).unlink()  # deleted when the process ends, however it ends
            weakref.finalize(self, self._rows.close)
        return self._rows.put(state.only("model"))

    def _get(self, model: StoredRow) -> Bundle:
        if self._rows is None:
            raise DataError("this laboratory has no models yet: they come from its own train()")
        return self._rows.get(*model)


def base_model(
    gate: Gate, strategy: Strategy, task: Task, start: Bundle, samples: np.ndarray, iterations: int
) -> Bundle:
    """The common base: trained on these samples for so many steps, then given the head it began with."""
    request = "base", lesson(strategy.send(start, "base"), samples, iterations)
    trained = strategy.merge(
        start, gate.run("train", [request], strategy.expects(start), strategy.values(start), strict=True)
    )
    head = str(getattr(task.network(), "head_name", "head")) + "."
    return trained.with_(model={n: start["model"][n] if n.startswith(head) else w for n, w in trained["model"].items()})


def lesson(message: Bundle, samples: np.ndarray, iterations: int = 0) -> Bundle:
    """The message, with samples of the pool to train on instead of the device's own, and how many steps."""
    steps: dict[str, Value] = {"iterations": iterations} if iterations else {}
    chosen = {"train": torch.from_numpy(np.sort(samples))}
    return Bundle({**message.tensors, "samples": chosen}, {**message.values, **steps})


def expected_tally(classes: int) -> dict[str, Weights]:
    """What a device replies that has looked at a model: right and all answers by class."""
    return {TALLY: {name: torch.zeros(classes, dtype=torch.int64) for name in ("right", "total")}}


def accuracy(reply: Bundle) -> float:
    """Of what the reply has counted; NaN if it was not asked to."""
    if TALLY not in reply:
        return math.nan
    return int(reply[TALLY]["right"].sum()) / max(1, int(reply[TALLY]["total"].sum()))
