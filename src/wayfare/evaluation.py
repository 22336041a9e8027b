"""Evaluating a round's model: on the test set, by clients on what they hold out, by validation clients; and monitoring.

`monitor` watches one metric over a run: its best round gives the model, and `patience` ends the run. Of a metric that
devices report it watches the median over the devices, so that one of them cannot choose the round; what is reported is
the mean, weighted by samples.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from wayfare.clients import Clients
from wayfare.core.bundle import Bundle, Weights
from wayfare.core.counting import form
from wayfare.core.device import Bench
from wayfare.core.errors import ConfigError, QuorumError, suggestion
from wayfare.core.federation import Round
from wayfare.core.gate import Gate
from wayfare.core.protocols import Client, Engine, Evaluation
from wayfare.core.values import METRIC, metric_values
from wayfare.experiment import Experiment
from wayfare.pages.record import less_is_better
from wayfare.partition.joined import Joined

Means = dict[str, float]
PerClient = dict[str, dict[str, float]]


class Evaluator:
    """Measures the one model that a round has, or the models of clients that each have their own."""

    def __init__(self, experiment: Experiment, clients: Clients, engine: Engine, bench: Callable[[], Bench]) -> None:
        self.experiment, self.clients, self.engine, self.bench = experiment, clients, engine, bench

    def evaluate(self, round: Round, before_clients: Callable[[], None]) -> None:
        """Put the metrics into the round; `before_clients` is called before clients are asked."""
        settings, strategy = self.experiment.evaluation, self.experiment.strategy
        private = self.experiment.aggregation.private  # what clients measure would be published without noise
        ids = [] if private else self.clients.evaluation_clients()
        if settings.test and strategy.personal:
            self._ask(round, "test", ids, "test")
        elif settings.test:
            net = self.bench().loaded(0, round.state["model"]).eval()
            metrics = self.experiment.task.evaluate(net, None)
            round.metrics |= {f"test/{name}": float(value) for name, value in metrics.items()}
        if ids and settings.holdout > 0:
            before_clients()
            round.per_client = self._ask(round, "clients", ids, "holdout")
        if self.clients.validation:
            self._ask(round, "validation", self.clients.validation, "all")

    def baseline(self, sums: Weights) -> dict[str, float]:
        """What counts alone score on the test set: those of the devices or, if none were asked for, of a simulation.

        In a simulation the samples of all training clients are here, and counting them costs nobody anything.
        """
        task, settings = self.experiment.task, self.experiment.evaluation
        if not settings.test or not settings.every:
            return {}
        if not sums and form(task) and not isinstance(self.experiment.partition, Joined):
            sums = task.counts(Client("", self.clients.held(), np.empty(0, np.int64)))
        return {f"test/{name}": value for name, value in task.baseline(sums).items()} if sums else {}

    def _ask(self, round: Round, scope: str, ids: list[str], split: str) -> PerClient:
        """The mean of each metric over the devices that have it, weighted by samples (equally on a common test set).

        The medians over the devices go beside them. Returns what each device reported.

        Too few replies give no figure, and a warning: a run does not end because its evaluation clients are away.
        """
        sums: Means = {}
        weights: Means = {}
        per_client: PerClient = {}
        gate = Gate(self.engine, self.experiment.policy, round.number, self.clients.size_of)
        declared = metric_values(self.experiment.task.metrics)

        def requests() -> Iterator[tuple[str, Bundle]]:
            for id in ids:
                message = self.experiment.strategy.send(round.state, id)
                yield id, Bundle(message.tensors, {**message.values, "split": split})

        replies = gate.ask("evaluate", requests(), {}, declared) if ids else iter(())
        for id, reply in _answered(replies, scope, round):
            metrics = {n.removeprefix(METRIC): reply.number(n) for n in reply.values if n.startswith(METRIC)}
            weight = 1.0 if split == "test" else reply.number("n")
            for name, value in metrics.items():  # recall, say, is not measured where no query has an answer
                sums[name] = sums.get(name, 0.0) + weight * value
                weights[name] = weights.get(name, 0.0) + weight
                per_client.setdefault(name, {})[id] = value
        for refused in gate.refused:
            round.gate.refused.append({**refused, "program": "evaluate"})
        round.metrics |= {f"{scope}/{name}": total / weights[name] for name, total in sums.items()}
        round.medians |= {f"{scope}/{name}": statistics.median(by.values()) for name, by in per_client.items()}
        return per_client


def _answered(replies: Iterator[tuple[str, Bundle]], scope: str, round: Round) -> list[tuple[str, Bundle]]:
    try:
        return list(replies)
    except QuorumError as error:
        why = error.__cause__
        if why and not round.number:  # not one device could, from the beginning: a fault of the experiment
            raise why from None
        what = str(error).removeprefix(f"round {round.number}: ") + (f": {why}" if why else "")
        round.warnings.append(f"no new value for {scope}, the last one is kept: {what}")
        return []


# ---- the metric that is watched


def _values(metric: str, lines: Sequence[dict[str, Any]]) -> list[tuple[int, float]]:
    """Rounds in which the metric was measured, with values of which larger ones are better."""
    sign = -1.0 if less_is_better(metric) else 1.0
    measured = [line for line in lines if metric in line["metrics"]]
    return [(line["round"], sign * line.get("monitored", line["metrics"][metric])) for line in measured]


def improves(metric: str, line: dict[str, Any], before: Sequence[dict[str, Any]]) -> bool:
    """Whether a round's line has a better value than all lines before it."""
    if not metric:
        return False
    earlier, now = _values(metric, before), _values(metric, [line])
    if not now and not earlier:
        raise ConfigError(
            f"evaluation.monitor = {metric!r} is not measured{suggestion(metric, line['metrics']) or '.'} "
            f"Metrics: {', '.join(sorted(line['metrics']))}"
        )
    return bool(now) and now[0][1] > max((value for _, value in earlier), default=-math.inf)


def best_round(metric: str, lines: Sequence[dict[str, Any]]) -> int:
    """The first round with the best value."""
    return max(_values(metric, lines), key=lambda pair: (pair[1], -pair[0]))[0]


def is_patience_over(settings: Evaluation, lines: Sequence[dict[str, Any]]) -> bool:
    """Whether the last `patience` evaluations were no better than one before."""
    watched = _values(settings.monitor, lines) if settings.patience else []
    if not watched:
        return False
    best = best_round(settings.monitor, lines)
    return sum(number > best for number, _ in watched) >= settings.patience
