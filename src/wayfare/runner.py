"""Running an experiment in a folder, from the start or from where it stopped."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wayfare.core.bundle import Bundle, digest
from wayfare.core.device import Bench
from wayfare.core.federation import Federation, Round
from wayfare.core.store import Store
from wayfare.core.traffic import Traffic
from wayfare.data.partition.heterogeneity import counts, describe
from wayfare.data.partition.split import Population, load_split
from wayfare.errors import ConfigError, DataError, DeviceError, QuorumError, StoreError, suggestion
from wayfare.experiment import Crowd, Experiment, flatten
from wayfare.machine import opened
from wayfare.reports.record import less_is_better
from wayfare.tracking import Tracker, trackers

# hears ("rounds", {...}), ("round", line), ("device", {...}), ("warning", {...}), ("preparing", {...})
Listener = Callable[[str, dict[str, Any]], None]
_HOW_FAR = ("text", "done", "total")


def run(
    experiment: Experiment,
    out: Path | str,
    engine: str | Any = "auto",
    workers: int = 0,
    track: Sequence[str] = (),
    listen: Listener = lambda event, data: None,
) -> dict[str, Any]:
    """Run an experiment into a new folder; returns the summary."""
    folder = Path(out)
    store = Store(folder)
    with store.held():
        if store.is_run():
            raise StoreError(
                f"{folder} already holds a run: continue it with `wayfare resume {folder}`, or choose another folder"
            )
        return _Run(experiment, store, listen).go(engine, workers, track)


def resume(
    out: Path | str,
    engine: str | Any = "auto",
    workers: int = 0,
    track: Sequence[str] = (),
    rounds: int | None = None,
    listen: Listener = lambda event, data: None,
) -> dict[str, Any]:
    """Continue a run where it stopped; with `rounds`, up to a new total."""
    folder = Path(out)
    store = Store(folder)
    if not folder.is_dir():
        raise StoreError(f"there is no run folder {folder}")
    with store.held():
        try:
            table = tomllib.loads(store.read("experiment.toml").decode())
        except ValueError as error:
            raise StoreError(f"{folder / 'experiment.toml'} is damaged: {error}") from error
        if rounds is not None:
            table["rounds"] = rounds
        return _Run(Experiment.from_table(table), store, listen).go(engine, workers, track)


class _Run:
    """One run of one experiment in one folder."""

    def __init__(self, experiment: Experiment, store: Store, listen: Listener) -> None:
        self.experiment, self.store, self.listen = experiment, store, listen
        self.fingerprint = fingerprint(experiment)
        self._bench: Bench | None = None
        self.rounds = experiment.rounds  # 0: all that the topology has, known once there are clients
        self._remembering: set[str] = set()

    def go(self, engine: str | Any, workers: int, track: Sequence[str]) -> dict[str, Any]:
        experiment, store = self.experiment, self.store
        began = time.monotonic()
        spec = experiment.to_toml()
        if isinstance(engine, str) and engine != "local" and '"__main__:' in spec:
            if engine != "auto":
                raise ConfigError(
                    "parts defined in the script itself run with engine 'local' only: move them to a module"
                )
            engine = "local"
        with ExitStack() as stack:
            machine = stack.enter_context(opened(engine, workers))  # first: its workers start while data is read here
            if hasattr(experiment.task, "ready"):
                experiment.task.ready(self._preparing)
            self._write_beginning(spec, machine)
            state = store.latest(lambda text: self.listen("warning", {"text": text}))
            machine.open(spec, str(store.folder), self.bench)
            if hasattr(machine, "rest"):
                stack.callback(machine.rest)
            if hasattr(machine, "deal_by"):
                machine.deal_by(self.crowd.size_of)
            self.federation = federation = Federation(
                experiment.strategy, self.crowd.clients, machine, experiment.policy,
                experiment.seed, self.rounds, self.crowd.size_of, self._heard,
                experiment.task, self.crowd.client, self._initial, experiment.reserved(), experiment.exchange,
                f"{experiment.training} {experiment.where}", store.folder, self._preparing,
            )  # fmt: skip
            first = len(store.lines)
            self._check_unchanged()
            self._remembering = {id for line in store.lines for id in line["kept"]}
            watchers = trackers(track, store.folder, dict(flatten(tomllib.loads(spec))), first)
            for watcher in watchers:
                stack.callback(watcher.close)
            spent = sum(line["seconds"] for line in store.lines)
            self.listen("rounds", {"rounds": self.rounds})
            if state is None:
                state = self._begin(federation, watchers)
            self._continue(federation, state, watchers)
            return self._finish(spent + time.monotonic() - began)

    # ---- beginning

    def bench(self) -> Bench:
        """This process's own bench: for evaluation, and for the local engine."""
        if self._bench is None:
            self._bench = self.experiment.bench(self.store.folder)
        return self._bench

    def _write_beginning(self, spec: str, machine: Any) -> None:
        """The files that describe the run; each can be made again, so a crash between them costs nothing."""
        experiment, store = self.experiment, self.store
        split = experiment.split() if not (store.folder / "partition.safetensors").exists() else None
        self.crowd: Crowd = experiment.crowd(split if split is not None else self._stored_split())
        experiment.topology.check(len(self.crowd.clients))
        if hasattr(experiment.topology, "length"):
            everything = int(experiment.topology.length(len(self.crowd.clients)))
            self.rounds = min(experiment.rounds or everything, everything)
        if not store.is_run() or store.read("experiment.toml").decode() != spec:
            store.write("experiment.toml", spec.encode())
        if split is not None:
            store.write("partition.json", partition_summary(split, experiment))
            store.write("partition.safetensors", split.pack())
        store.write("environment.json", environment(experiment, machine))

    def _check_unchanged(self) -> None:
        """The rounds so far must be of this experiment: going on with another would mix two runs."""
        lines = self.store.lines
        if lines and lines[-1]["experiment"] != self.fingerprint:
            path = self.store.folder / "experiment.toml"
            raise StoreError(f"{path} was changed since round {lines[-1]['round']}: put it back, or begin a new run")

    def _stored_split(self) -> Population:
        path = self.store.folder / "partition.safetensors"
        try:
            split = load_split(path.read_bytes())
        except DataError as error:
            raise StoreError(f"{path}: {error}. Delete it: the partition is drawn again from the experiment") from error
        dealt, there = split.provenance.get("samples"), self.experiment.task.samples
        if isinstance(dealt, int) and dealt != there:
            raise StoreError(
                f"{self.store.folder} began with {dealt} samples, and now there are {there}: clients would get others. "
                "Bring the data back to what it was, or begin a new run"
            )
        return split

    def _initial(self) -> Bundle:
        """The strategy's state with the untrained network."""
        bench = self.bench()
        return self.experiment.strategy.start(self.experiment.task, bench.loaded(0, bench.initial))

    def _begin(self, federation: Federation, watchers: Sequence[Tracker]) -> Bundle:
        """Round 0: the untrained model."""
        state = self.experiment.topology.start(federation, self._initial())
        self._commit(Round(0, state, federation.traffic(0)), time.monotonic(), watchers)
        return state

    # ---- rounds

    def _continue(self, federation: Federation, state: Bundle, watchers: Sequence[Tracker]) -> None:
        began = time.monotonic()
        if self._is_over():
            return
        for round in self.experiment.topology.play(federation, state, len(self.store.lines)):
            self._commit(round, began, watchers)
            self._check_void(round.traffic.failure)
            if self._is_over():
                return
            began = time.monotonic()

    def _commit(self, round: Round, began: float, watchers: Sequence[Tracker]) -> None:
        traffic, trained = round.traffic, time.monotonic()
        if traffic.examples:
            round.metrics["train/loss"] = traffic.loss / traffic.examples
        if self._is_due(round.number) or round.milestone:
            self._evaluate(round)
        round.warnings += self._alarm(round)
        line = {
            "round": round.number,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": time.monotonic() - began,
            "evaluation_seconds": time.monotonic() - trained,
            "metrics": round.metrics,
            "per_client": round.per_client,
            "clients": traffic.clients,
            "examples": traffic.examples,
            "bytes_up": 0 if self.experiment.strategy.pooled else traffic.bytes_up,
            "bytes_down": 0 if self.experiment.strategy.pooled else traffic.bytes_down,
            "refused": traffic.refused,
            "cold": [id for id in traffic.cold if id in self._remembering],  # it has forgotten what it once knew
            "kept": traffic.kept,
            "void": round.void,
            "warnings": round.warnings,
            "experiment": self.fingerprint,
        }
        if round.events:
            line["events"] = round.events
        if self._improves(line):
            best = _model_file(round.state, round.number)
            line["best_sha256"] = hashlib.sha256(best).hexdigest()
            self.store.write("best.safetensors", best)
        if not self.experiment.evaluation.patience:  # or this may be the last round, after which nobody must train on
            self._foretell(round, "writing")
        self.store.commit(line, round.state)
        self._remembering |= set(traffic.kept)
        for watcher in watchers:
            watcher.log(line)
        for text in round.warnings:
            self.listen("warning", {"text": f"round {round.number}: {text}"})
        self.listen("round", line)

    def _alarm(self, round: Round) -> list[str]:
        """What the task has to say about a model that has gone wrong, each time it is judged."""
        if not self.store.lines or not hasattr(self.experiment.task, "alarm"):
            return []
        text: str = self.experiment.task.alarm(round.metrics, self.store.lines[0]["metrics"])
        return [text] if text else []

    def _is_due(self, number: int) -> bool:
        every = self.experiment.evaluation.every
        return every > 0 and (number % every == 0 or number == self.rounds)

    def _check_void(self, failure: DeviceError | None) -> None:
        limit, tail = self.experiment.policy.max_void, self.store.lines
        if failure:
            limit = min(limit, self.rounds)  # a run in which nothing worked has failed, however short it is
        if len(tail) >= limit and all(line["void"] for line in tail[-limit:]):
            reasons = sorted({refusal["reason"] for refusal in tail[-1]["refused"]})
            if failure and all(reason.startswith("failed: ") for reason in reasons):
                raise failure  # with its traceback
            raise QuorumError(
                f"{limit} rounds in a row without a quorum; the last replies were refused because: {'; '.join(reasons)}"
            )

    # ---- judging

    def _evaluate(self, round: Round) -> None:
        settings, strategy, topology = self.experiment.evaluation, self.experiment.strategy, self.experiment.topology
        if hasattr(topology, "assess"):  # there is no one model: it judges all of them
            topology.assess(self.federation, round)
            return
        judges = self.crowd.judges()
        if settings.test and strategy.personal:
            round.metrics |= self._ask(round, "test", judges, "test")[0]
        elif settings.test:
            net = self.bench().loaded(0, round.state["model"]).eval()
            metrics = self.experiment.task.evaluate(net, None)
            round.metrics |= {f"test/{name}": float(value) for name, value in metrics.items()}
        if judges and settings.holdout > 0:
            self._foretell(round, "judging")
            means, round.per_client = self._ask(round, "clients", judges, "holdout")
            round.metrics |= means
        if self.crowd.validation:
            round.metrics |= self._ask(round, "validation", self.crowd.validation, "all")[0]

    def _foretell(self, round: Round, before: str) -> None:
        """Tell an engine that wants to know it then what the next round will ask."""
        engine, topology, after = self.federation.engine, self.experiment.topology, round.number + 1
        if getattr(engine, "foresees", "") == before and hasattr(topology, "ahead") and after <= self.rounds:
            requests = topology.ahead(self.federation, round.state, after)
            engine.foresee("train", requests, after, self.experiment.policy.deadline)  # type: ignore[attr-defined]

    def _ask(
        self, round: Round, scope: str, ids: list[str], split: str
    ) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        """The mean of each metric over the devices that have it, weighted by samples (a common test set weighs alike).

        Too few answers give no figure, and a warning: a run does not end because its judges are away.
        """
        experiment = self.experiment
        sums: dict[str, float] = {}
        weights: dict[str, float] = {}
        per_client: dict[str, dict[str, float]] = {}
        traffic = Traffic(round.traffic.engine, experiment.policy, round.number, self.crowd.size_of)

        def requests() -> Iterator[tuple[str, Bundle]]:
            for id in ids:
                message = experiment.strategy.send(round.state, id)
                yield id, Bundle(message.tensors, {**message.values, "split": split})

        replies = traffic.ask("evaluate", requests()) if ids else iter(())
        for id, reply in self._answered(replies, scope, round):
            metrics = {name[7:]: reply.number(name) for name in reply.values if name.startswith("metric/")}
            weight = 1.0 if split == "test" else reply.number("n")
            for name, value in metrics.items():  # recall, say, is not measured where no query has an answer
                sums[name] = sums.get(name, 0.0) + weight * value
                weights[name] = weights.get(name, 0.0) + weight
                per_client.setdefault(name, {})[id] = value
        return {f"{scope}/{name}": total / weights[name] for name, total in sums.items()}, per_client

    def _answered(
        self, replies: Iterator[tuple[str, Bundle]], scope: str, round: Round
    ) -> Iterator[tuple[str, Bundle]]:
        answers: list[tuple[str, Bundle]] = []
        try:
            answers.extend(replies)
        except QuorumError as error:
            why = error.__cause__
            if why and not round.number:  # not one device could, from the beginning: a fault of the experiment
                raise why from None
            what = str(error).removeprefix(f"round {round.number}: ") + (f": {why}" if why else "")
            round.warnings.append(f"no new figure for {scope}, the last one stands: {what}")
            return iter(())
        return iter(answers)

    def _monitored(self) -> list[tuple[int, float]]:
        metric = self.experiment.evaluation.monitor
        lines = [line for line in self.store.lines if metric in line["metrics"]]
        sign = -1.0 if less_is_better(metric) else 1.0
        return [(line["round"], sign * line["metrics"][metric]) for line in lines]

    def _improves(self, line: dict[str, Any]) -> bool:
        metric = self.experiment.evaluation.monitor
        if not metric or not self._is_due(line["round"]):
            return False
        if metric not in line["metrics"] and self._monitored():
            return False  # its judges were away
        if metric not in line["metrics"]:
            raise ConfigError(
                f"evaluation.monitor = {metric!r} is not measured{suggestion(metric, line['metrics']) or '.'} "
                f"There are {', '.join(sorted(line['metrics']))}"
            )
        sign = -1.0 if less_is_better(metric) else 1.0
        value: float = sign * line["metrics"][metric]
        return value > max((value for _, value in self._monitored()), default=-math.inf)

    def _best_round(self) -> int:
        return max(self._monitored(), key=lambda pair: (pair[1], -pair[0]))[0]

    def _is_over(self) -> bool:
        settings = self.experiment.evaluation
        if len(self.store.lines) > self.rounds:
            return True
        if not settings.patience:
            return False
        watched = self._monitored()
        return bool(watched) and sum(number > self._best_round() for number, _ in watched) >= settings.patience

    # ---- end

    def _finish(self, seconds: float) -> dict[str, Any]:
        store, lines = self.store, self.store.lines
        chosen = self._best_round() if self.experiment.evaluation.monitor else lines[-1]["round"]
        if self.experiment.evaluation.monitor:
            model = store.read("best.safetensors")
            sha = ""
            if hashlib.sha256(model).hexdigest() != lines[chosen]["best_sha256"]:
                raise StoreError(f"{store.folder / 'best.safetensors'} is damaged: its checksum does not match")
        else:
            model, sha = self._outcome(store.state(lines[-1]), chosen)
        store.write("model.safetensors", model)
        bundle = Bundle.unpack(model)
        summary = {
            "run": str(store.folder),
            "rounds": lines[-1]["round"],
            "best_round": chosen,
            "metrics": _newest([line for line in lines if line["round"] <= chosen]),
            "model_sha256": sha or digest(bundle["model"]),
            "seconds": seconds,
            "bytes_up": sum(line["bytes_up"] for line in lines),
            "bytes_down": sum(line["bytes_down"] for line in lines),
            "refused": sum(len(line["refused"]) for line in lines),
            "cold": sum(len(line["cold"]) for line in lines),
            "void": sum(line["void"] for line in lines),
            "protocol": getattr(self.experiment.task, "protocol", ""),
            "warnings": [text for line in lines[-1:] for text in line.get("warnings", [])],
            "skipped_files": getattr(self.experiment.task, "skipped", []),
        }
        store.write("summary.json", summary)
        return summary

    def _outcome(self, state: Bundle, round: int) -> tuple[bytes, str]:
        """The model to use, and a digest of all models if there are several."""
        personal = self.store.memories.digest() if self.experiment.strategy.personal else ""
        if not hasattr(self.experiment.topology, "outcome"):
            return _model_file(state, round), personal
        model, sha = self.experiment.topology.outcome(self.federation, state)
        return Bundle({"model": model}, {"round": round}).pack(), hashlib.sha256((sha + personal).encode()).hexdigest()

    def _preparing(self, *how_far: Any) -> None:
        self.listen("preparing", dict(zip(_HOW_FAR, how_far)))

    def _heard(self, device: str) -> None:
        self.listen("device", {"device": device})


def fingerprint(experiment: Experiment) -> str:
    """What ties a round to its experiment: all of it but the number of rounds, which may grow."""
    return hashlib.sha256(json.dumps(replace(experiment, rounds=1).chosen(), sort_keys=True).encode()).hexdigest()


def _newest(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Every metric as last measured."""
    metrics: dict[str, float] = {}
    for line in lines:
        metrics |= line["metrics"]
    return metrics


def _model_file(state: Bundle, round: int) -> bytes:
    """The trained model alone, for use."""
    return Bundle({"model": state["model"]}, {"round": round}).pack()


def partition_summary(split: Population, experiment: Experiment) -> dict[str, Any]:
    """Who has what, for people: statistics, the first clients' label counts, maps of photographs, semantic clusters."""
    task = experiment.task
    if split.provenance.get("rule") == "joined":  # whose samples nobody here has
        table = {key.removeprefix("size_"): value for key, value in describe(split).items()}
        return {"provenance": split.provenance, "table": table | {"clients": len(split)}}
    shown = split if len(split) <= _DESCRIBED else split.select(range(_DESCRIBED))
    table = describe(shown, task.labels, len(task.classes)) if task.labels is not None else describe(shown)
    renamed = {key.removeprefix("size_"): value for key, value in table.items() if key != "classes"}
    result: dict[str, Any] = {"provenance": split.provenance, "table": renamed | {"clients": len(split)}}
    if len(split) > _DESCRIBED:
        result["note"] = f"statistics of the first {_DESCRIBED} of {len(split)} clients"
    photos = getattr(task, "photos", None)
    if photos is not None:
        from wayfare.data.partition.census import census
        from wayfare.data.places import PlacePhotos

        if isinstance(photos, PlacePhotos):
            places = census(shown, photos)
            result["table"] |= places.pop("table")
            result["places"] = places
    meant = getattr(task, "categories", None)
    if split.provenance.get("rule") == "semantic" and meant is not None:
        from wayfare.data.partition.semantic import clusters_of
        from wayfare.data.partition.semantic_stats import semantics_of

        result["semantics"] = semantics_of(shown, meant, clusters_of(split, meant))
    if task.labels is not None:
        table_counts = counts(split, task.labels, len(task.classes))
        result |= {"classes": list(task.classes), "counts": table_counts.tolist()}
        result["ids"] = [split.id(i) for i in range(len(table_counts))]
    return result


_DESCRIBED = 5000  # clients; more would take longer than they tell


def environment(experiment: Experiment, machine: Any) -> dict[str, Any]:
    """What the run ran on."""
    return {
        "wayfare": version("wayfare"),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "device": experiment.where,
        "engine": type(machine).__name__.lower(),
        "workers": getattr(machine, "workers", 1),
        "command": " ".join(["wayfare", *sys.argv[1:]]) if Path(sys.argv[0]).name == "wayfare" else "",
        "commit": _commit(),
    }


def _commit() -> str:
    """The git commit of the working folder, if it is one."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
