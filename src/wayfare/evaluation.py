"""Evaluating a round's model: on the test set, by clients on what they hold out, by validation clients; and monitoring.

`monitor` watches one metric over a run: its best round gives the model, and `patience` ends the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wayfare.clients import Clients
from wayfare.core.bundle import Bundle
from wayfare.core.device import Bench
from wayfare.core.errors import ConfigError, QuorumError, suggestion
from wayfare.core.federation import Round
from wayfare.core.gate import Gate
from wayfare.core.protocols import Engine, Evaluation
from wayfare.experiment import Experiment
from wayfare.pages.record import less_is_better

Means = dict[str, float]
PerClient = dict[str, dict[str, float]]


class Evaluator:
    """Measures the one model that a round has, or the models of clients that each have their own."""

    def __init__(self, experiment: Experiment, clients: Clients, engine: Engine, bench: Callable[[], Bench]) -> None:
        self.experiment, self.clients, self.engine, self.bench = experiment, clients, engine, bench

    def evaluate(self, round: Round, before_clients: Callable[[], None]) -> None:
        """Put the metrics into the round; `before_clients` is called before clients are asked."""
        settings, strategy = self.experiment.evaluation, self.experiment.strategy
        ids = self.clients.evaluation_clients()
        if settings.test and strategy.personal:
            round.metrics |= self._ask(round, "test", ids, "test")[0]
        elif settings.test:
            net = self.bench().loaded(0, round.state["model"]).eval()
            metrics = self.experiment.task.evaluate(net, None)
            round.metrics |= {f"test/{name}": float(value) for name, value in metrics.items()}
        if ids and settings.holdout > 0:
            before_clients()
            means, round.per_client = self._ask(round, "clients", ids, "holdout")
            round.metrics |= means
        if self.clients.validation:
            round.metrics |= self._ask(round, "validation", self.clients.validation, "all")[0]

    def _ask(self, round: Round, scope: str, ids: list[str], split: str) -> tuple[Means, PerClient]:
        """The mean of each metric over the devices that have it, weighted by samples (equally on a common test set).

        Too few replies give no figure, and a warning: a run does not end because its evaluation clients are away.
        """
        sums: Means = {}
        weights: Means = {}
        per_client: PerClient = {}
        gate = Gate(self.engine, self.experiment.policy, round.number, self.clients.size_of)

        def requests() -> Iterator[tuple[str, Bundle]]:
            for id in ids:
                message = self.experiment.strategy.send(round.state, id)
                yield id, Bundle(message.tensors, {**message.values, "split": split})

        replies = gate.ask("evaluate", requests()) if ids else iter(())
        for id, reply in _answered(replies, scope, round):
            metrics = {name[7:]: reply.number(name) for name in reply.values if name.startswith("metric/")}
            weight = 1.0 if split == "test" else reply.number("n")
            for name, value in metrics.items():  # recall, say, is not measured where no query has an answer
                sums[name] = sums.get(name, 0.0) + weight * value
                weights[name] = weights.get(name, 0.0) + weight
                per_client.setdefault(name, {})[id] = value
        return {f"{scope}/{name}": total / weights[name] for name, total in sums.items()}, per_client


def _answered(replies: Iterator[tuple[str, Bundle]], scope: str, round: Round) -> list[tuple[str, Bundle]]:
    try:
        return list(replies)
    except QuorumError as error:
        why = error.__cause__
        if why and not round.number:  # not one device could, from the beginning: a fault of the experiment
            raise why from None
        what = str(error).removeprefix(f"round {round.number}: ") + (f": {why}" if why else "")
        round.warnings.append(f"no new figure for {scope}, the last one stands: {what}")
        return []


# ---- the metric that is watched


def _values(metric: str, lines: Sequence[dict[str, Any]]) -> list[tuple[int, float]]:
    """Rounds in which the metric was measured, with values of which larger ones are better."""
    sign = -1.0 if less_is_better(metric) else 1.0
    return [(line["round"], sign * line["metrics"][metric]) for line in lines if metric in line["metrics"]]


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
