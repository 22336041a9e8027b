"""Lab: the laboratory over an engine. Its models are trained by the same program as those of devices.

Models lie in an unnamed file, so that a few are in memory however many there are; requests go out in parts, each with
a deadline of its own. The mean of two models is the plain one, whatever the strategy would make of them: FedTour's
study is about means.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wayfare.core.bundle import Bundle, Value, digest, mean
from wayfare.core.protocols import Engine, Failure, Strategy, Task
from wayfare.core.rows import Rows
from wayfare.core.seeds import rng_for
from wayfare.errors import ConfigError, DataError, DeviceError

_ROUND = 1  # the learning rate of the first round
_TRAINED, _LOOKED = 16, 64  # requests in one part
_HEADS = 512  # judged in one go

Kept = tuple[int, int]  # where a model lies, and its checksum


class Lab:
    """Trains models on chosen pictures of the pool, from one base, and judges means of two on other pictures."""

    def __init__(
        self,
        engine: Engine,
        strategy: Strategy,
        task: Task,
        start: Bundle,
        seed: int,
        train: np.ndarray,
        labels: np.ndarray,
        judge: np.ndarray,
        deadline: float = 3600.0,
        say: Callable[[str, int, int], None] = lambda text, done, total: None,
        about: str = "",
    ) -> None:
        """`train` and `judge` are positions in the pool, `labels` those of `train`; `deadline` is in seconds.

        `about` names what else a result depends on, the settings of training above all; without it nothing is kept.
        """
        self._engine, self._strategy, self._task, self._start, self._seed = engine, strategy, task, start, seed
        self._train, self._labels, self._judge = train, labels, np.sort(judge)
        self._deadline, self._say, self._about = deadline, say, about
        self._rows: Rows | None = None

    @property
    def labels(self) -> np.ndarray:
        return self._labels

    @property
    def classes(self) -> int:
        return len(self._task.classes)

    @property
    def key(self) -> str:
        """A digest of data, network, base, training and seed; nothing if it was not told all of that."""
        if not self._about:
            return ""
        words = (self._task, self._strategy, self._about, self._seed, torch.__version__, digest(self._start["model"]))
        sha = hashlib.sha256("\x1f".join(map(str, words)).encode())
        for part in (self._train, self._labels, self._judge):
            sha.update(np.ascontiguousarray(part, np.int64).tobytes() + b"\x1f")
        return sha.hexdigest()[:32]

    def rng(self, purpose: str) -> np.random.Generator:
        return rng_for(self._seed, "laboratory", purpose)

    def train(self, samples: Sequence[np.ndarray]) -> Sequence[Kept]:
        """A model for each of these sets of pictures; an empty one gives the base."""
        if len(self._train) != len(self._labels) or not len(self._train):
            raise ConfigError(
                "a laboratory needs pictures that nobody holds: set topology.public to their number, or, for FedTour, "
                "exchange.regressor to a file that `wayfare study` wrote"
            )
        if not len(self._judge) or np.intersect1d(self._train, self._judge).size:
            raise ConfigError("a laboratory judges on pictures that it does not train on: set topology.judge")
        base = self._put(self._start)
        models: list[Kept] = [base] * len(samples)

        def requests() -> Iterator[tuple[str, Bundle]]:
            for number in taught:
                told = self._strategy.send(self._start, f"lab-{number}")
                chosen = {"train": torch.from_numpy(np.sort(self._train[samples[number]]))}
                yield f"lab-{number}", Bundle({**told.tensors, "samples": chosen}, {**told.values, "round": _ROUND})

        taught = [number for number, chosen in enumerate(samples) if len(chosen)]
        replies = self._ask("train", requests(), _TRAINED, "training models", len(taught))
        for place, reply in enumerate(replies):
            models[taught[place]] = self._put(reply)
        return models

    def merged(self, models: Sequence[Any], pairs: np.ndarray) -> np.ndarray:
        """The accuracy of the mean of each pair of models."""
        if getattr(self._task, "frozen", False) and hasattr(self._task, "tally_many"):
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
                yield "lab", Bundle(state.tensors, {**state.values, "round": _ROUND, "n": 1})

        accuracies = np.empty(len(pairs))
        for place, reply in enumerate(self._ask("look", requests(), _LOOKED, "judging means of two", len(pairs))):
            tally = reply["tally"]
            accuracies[place] = int(tally["right"].sum()) / int(tally["total"].sum())
        return accuracies

    def _merged_heads(self, models: Sequence[Any], pairs: np.ndarray) -> np.ndarray:
        """Where a model is only a linear head, thousands are judged at once, here."""
        stacked = [self._get(model)["model"] for model in models]
        [weight], [bias] = ([n for n, t in stacked[0].items() if t.ndim == dims] for dims in (2, 1))
        heads, biases = torch.stack([m[weight] for m in stacked]), torch.stack([m[bias] for m in stacked])
        accuracies = []
        for start in range(0, len(pairs), _HEADS):
            first, second = torch.from_numpy(pairs[start : start + _HEADS].T)
            right, total = self._task.tally_many(  # type: ignore[attr-defined]
                (heads[first] + heads[second]) / 2, (biases[first] + biases[second]) / 2, self._judge
            )
            accuracies.append(right.sum(1) / total.sum())
            self._say("judging means of two", min(start + _HEADS, len(pairs)), len(pairs))
        return np.concatenate(accuracies)

    def _ask(
        self, program: str, requests: Iterable[tuple[str, Bundle]], part: int, text: str, count: int
    ) -> Iterator[Bundle]:
        """The replies in order. A study with a gap is none, so the first failure ends it."""
        source, done = iter(requests), 0
        self._say(text, 0, count)
        while done < count:
            for id, reply in self._engine.call(program, islice(source, part), time.monotonic() + self._deadline):
                if isinstance(reply, Failure):
                    raise DeviceError(id, program, reply.reason, reply.detail)
                yield reply
                done += 1
                self._say(text, done, count)

    def _put(self, state: Bundle) -> Kept:
        if self._rows is None:
            handle, name = tempfile.mkstemp(prefix="wayfare-lab-")
            os.close(handle)
            self._rows = Rows(Path(name), self._start.only("model"))
            Path(name).unlink()  # it goes with the process, however that ends
            weakref.finalize(self, self._rows.close)
        return self._rows.put(state.only("model"))

    def _get(self, model: Kept) -> Bundle:
        if self._rows is None:
            raise DataError("this laboratory has no models yet: they come from its own train()")
        return self._rows.get(*model)


def base_model(
    engine: Engine, strategy: Strategy, task: Task, start: Bundle, samples: np.ndarray, iterations: int, deadline: float
) -> Bundle:
    """The common base: trained on these samples for so many steps, then given the head it began with."""
    told = strategy.send(start, "base")
    chosen = {"train": torch.from_numpy(np.sort(samples))}
    values: dict[str, Value] = {**told.values, "round": 0, "iterations": iterations}
    request = ("base", Bundle({**told.tensors, "samples": chosen}, values))
    for _, reply in engine.call("train", [request], time.monotonic() + deadline):
        if isinstance(reply, Failure):
            raise DeviceError("base", "train", reply.reason, reply.detail)
        trained = strategy.merge(start, [("base", reply)])
    head = str(getattr(task.network(), "head_name", "head")) + "."
    return trained.with_(model={n: start["model"][n] if n.startswith(head) else w for n, w in trained["model"].items()})
