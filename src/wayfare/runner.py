"""Running an experiment in a folder, from the start or from where it stopped."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wayfare.clients import Clients
from wayfare.compression.engine import PackedEngine
from wayfare.core import manifest
from wayfare.core.bundle import Bundle, Weights, digest
from wayfare.core.counting import counted
from wayfare.core.device import Bench
from wayfare.core.errors import (
    ConfigError,
    DataError,
    DeviceError,
    MergeError,
    QuorumError,
    StoreError,
    WayfareError,
    unknown,
)
from wayfare.core.federation import Federation, Round
from wayfare.core.gate import Gate
from wayfare.core.protocols import Engine, MergeContext, Population
from wayfare.core.store import Store
from wayfare.engines import open_engine
from wayfare.evaluation import Evaluator, best_round, improves, is_patience_over
from wayfare.experiment import Experiment
from wayfare.partition.split import load_split
from wayfare.partition.summary import summarise_split
from wayfare.privacy.attacks import AttackedEngine
from wayfare.recipe import flatten
from wayfare.report import write_report
from wayfare.results import Run
from wayfare.resuming import CHANGES, check_experiment, check_lines, compare, fingerprint, rebuilt
from wayfare.tracking import Tracker, trackers

# hears ("rounds", {...}), ("round", line), ("device", {...}), ("warning", {...}), ("preparing", {...})
Listener = Callable[[str, dict[str, Any]], None]
_HOW_FAR = ("text", "done", "total")


def silent(event: str, data: dict[str, Any]) -> None:
    """A listener that keeps quiet."""


def _unheard(text: str) -> None:
    """For warnings that come again when the lines are read for good."""


def run(
    experiment: Experiment,
    out: Path | str,
    engine: str | Engine = "auto",
    workers: int = 0,
    track: Sequence[str] = (),
    listen: Listener = silent,
) -> Run:
    """Run an experiment into a new folder; returns the summary."""
    folder = Path(out)
    store = Store(folder)
    with store.held():
        if store.is_run():
            raise StoreError(
                f"{folder} already holds a run: continue it with `wayfare resume {folder}`, or choose another folder"
            )
        return _Run(experiment, store, experiment.to_toml(), listen).go(engine, workers, track)


def resume(
    out: Path | str,
    engine: str | Engine = "auto",
    workers: int = 0,
    track: Sequence[str] = (),
    rounds: int | None = None,
    listen: Listener = silent,
    *,
    allow_changed: Collection[str] = (),
) -> Run:
    """Continue a run where it stopped; with `rounds`, up to a new total.

    A run whose data or whose devices' memories are not as they were is refused, saying what differs. `allow_changed`
    accepts that: "data", "memory" (devices without theirs start over).
    """
    if others := sorted(set(allow_changed) - set(CHANGES)):
        raise unknown("thing to accept as changed", others[0], CHANGES)
    folder = Path(out)
    store = Store(folder)
    if not folder.is_dir():
        raise StoreError(f"there is no run folder {folder}")
    with store.held():
        text = store.read_text("experiment.toml")
        try:
            table = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{folder / 'experiment.toml'} is damaged: {error}") from error
        if rounds is not None and table.get("rounds") != rounds:
            table["rounds"] = rounds
            text = re.sub(r"(?m)^rounds *=.*$", f"rounds = {rounds}", text, count=1)
        experiment = rebuilt(table, store)
        # the text stays as the version that began the run wrote it: it is what the rounds are tied to
        run = _Run(experiment, store, text if _reads_as(text, table) else experiment.to_toml(), listen)
        return run.go(engine, workers, track, allow_changed)


def _reads_as(text: str, table: dict[str, Any]) -> bool:
    return tomllib.loads(text) == table


def run_all(
    experiments: Mapping[str, Experiment],
    out: Path | str,
    engine: str | Engine = "auto",
    workers: int = 0,
    *,
    track: Sequence[str] = (),
    listen: Listener = silent,
    failed: Callable[[str, WayfareError], None] | None = None,
) -> list[Run]:
    """Run experiments one after another, each in a folder of its name below `out`; returns their summaries.

    What is finished is left as it is, and what was interrupted continues. Beside the events of each run, `listen` hears
    ("experiment", {"number", "total", "name", "rounds", "waiting"}) before it and ("finished", its summary) after it.
    With `failed`, an experiment that fails through a fault of its own is reported to it and the others go on.
    """
    folder, summaries, task = Path(out), list[Run](), None
    with open_engine(engine, workers) as machine:
        for number, (name, experiment) in enumerate(experiments.items(), start=1):
            place = folder / name
            waiting = sum(not (folder / later / "summary.json").exists() for later in list(experiments)[number:])
            about = {"number": number, "total": len(experiments), "name": name}
            listen("experiment", {**about, "rounds": experiment.rounds, "waiting": waiting})
            begun = (place / "experiment.toml").exists()
            if begun:
                _check_same(experiment, place)
            try:
                if begun:
                    summary = resume(place, machine, track=track, listen=listen)
                else:
                    # of a copy, which goes with the data that it reads; `experiments` stay until the last has run
                    copy = Experiment.from_toml(experiment.to_toml())
                    task = task if task == copy.task else copy.task
                    summary = run(replace(copy, task=task), place, machine, track=track, listen=listen)
            except (ConfigError, DataError, DeviceError, MergeError, QuorumError) as error:
                if failed is None:
                    raise
                failed(name, error)
                continue
            write_report(place)
            summaries.append(summary)
            listen("finished", summary)
    return summaries


def _check_same(experiment: Experiment, place: Path) -> None:
    if not experiment.is_in(Store(place).read_text("experiment.toml")):
        raise ConfigError(f"{place} holds a run with other settings: remove it, or choose another --out")


def over_seeds(folder: Path, summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One result for several seeds: means, with the standard deviation beside them."""
    names = summaries[0]["metrics"]
    columns = {name: [summary["metrics"][name] for summary in summaries] for name in names}
    return {
        "run": str(folder),
        "rounds": summaries[0]["rounds"],
        "metrics": {name: statistics.fmean(values) for name, values in columns.items()},
        "sd": {name: statistics.stdev(values) for name, values in columns.items()},
        "model_sha256": [summary["model_sha256"] for summary in summaries],
        **{key: sum(s[key] for s in summaries) for key in ("seconds", "bytes_up", "bytes_down", "refused", "cold")},
        "runs": list(summaries),
    }


class _Run:
    """One run of one experiment in one folder."""

    def __init__(self, experiment: Experiment, store: Store, text: str, listen: Listener) -> None:
        self.experiment, self.store, self.text, self.listen = experiment, store, text, listen
        self.fingerprint = fingerprint(tomllib.loads(text))
        self._bench: Bench | None = None
        self.rounds = experiment.rounds  # 0: all that the topology has, known once there are clients
        self._remembering: set[str] = set()
        self._unusable = 0  # rounds in a row of which no reply could be used, where that is not recorded

    def go(self, engine: str | Engine, workers: int, track: Sequence[str], allow_changed: Collection[str] = ()) -> Run:
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
            machine = stack.enter_context(open_engine(engine, workers))  # first: workers start while data is read here
            store.load_lines(_unheard)
            check_lines(store)
            check_experiment(experiment, self.text, store)
            experiment.task.read(self._preparing)
            self._write_beginning(machine, "data" in allow_changed)  # refuses what does not fit, before it takes long
            if experiment.aggregation.private:
                experiment.aggregation.check_network(self.bench().net(0))
            experiment.task.prepare(self._preparing)
            state = store.latest(self._warn, "memory" in allow_changed, strict=not experiment.topology.meets)
            machine.open(spec, str(store.folder), self.bench)
            stack.callback(machine.finish)
            machine.set_client_sizes(self.clients.size_of)
            self.federation = federation = Federation(
                strategy=experiment.strategy,
                population=self.clients.population,
                engine=self._attacked(self._packed(machine)),
                aggregation=experiment.aggregation,
                policy=experiment.policy,
                seed=experiment.seed,
                rounds=self.rounds,
                size_of=self.clients.size_of,
                on_reply=self._on_reply,
                task=experiment.task,
                client=self.clients.client,
                initial=self._initial,
                reserved=experiment.reserved(),
                exchange=experiment.exchange,
                about=f"{experiment.training} {experiment.where}",
                folder=store.folder,
                training=experiment.training,
                sizes=self.clients.training_sizes() if experiment.aggregation.private else (),
                progress=self._preparing,
            )
            self.evaluator = Evaluator(experiment, self.clients, federation.engine, self.bench)
            first = len(store.lines)
            self._remembering = {id for line in store.lines for id in line["kept"]}
            watchers = trackers(track, store.folder, dict(flatten(tomllib.loads(spec))), first)
            for watcher in watchers:
                stack.callback(watcher.close)
            spent = sum(line["seconds"] for line in store.lines)
            self.listen("rounds", {"rounds": self.rounds})
            for text in experiment.task.warnings:
                self._warn(text)
            released = [line["round"] for line in store.lines if line["round"] and not line["void"]]
            experiment.aggregation.check_continued(federation.context(first), released)
            if state is None:
                state = self._begin(federation, watchers)
            self._doubts_of_privacy = self._privacy_warnings(state, federation.context(first, self._expected()))
            for text in self._doubts_of_privacy:
                self._warn(text)
            self._continue(federation, state, watchers)
            return self._finish(spent + time.monotonic() - began)

    # ---- beginning

    def _privacy_warnings(self, state: Bundle, context: MergeContext) -> list[str]:
        """What speaks against the settings of [privacy]."""
        experiment = self.experiment
        if not experiment.aggregation.private:
            return []
        found = experiment.aggregation.warnings(experiment.strategy.expects(state), context)
        if experiment.task.told:
            found.append(
                f"[privacy] does not cover {experiment.task.told}: made from all clients' data before the first round"
            )
        return found

    def bench(self) -> Bench:
        """This process's own bench: for evaluation, and for the local engine."""
        if self._bench is None:
            self._bench = self.experiment.bench(self.store.folder)
        return self._bench

    def _write_beginning(self, machine: Engine, is_other_data_allowed: bool) -> None:
        """The files that describe the run; each can be made again, so a crash between them costs nothing."""
        experiment, store = self.experiment, self.store
        is_dealt = bool(store.lines) and (store.folder / "partition.safetensors").exists()
        split = self._stored_split() if is_dealt else self._able(experiment.split())
        self.clients: Clients = experiment.clients(split)
        experiment.topology.check(len(self.clients.population))
        everything = experiment.topology.length(len(self.clients.population))
        if everything is not None:
            self.rounds = min(experiment.rounds or everything, everything)
        packed = store.read("partition.safetensors") if is_dealt else split.pack()
        self.comparison = compare(store, experiment, packed, is_other_data_allowed, self._warn)
        if not store.is_run() or store.read_text("experiment.toml") != self.text:
            store.write("experiment.toml", self.text.encode())
        if not is_dealt or store.read_json("partition.json") is None:
            store.write("partition.json", summarise_split(split, experiment.task))
        if not is_dealt:
            store.write("partition.safetensors", packed)
        if store.read_json(manifest.FILE) != self.comparison.manifest:
            store.write(manifest.FILE, self.comparison.manifest)
        store.write("environment.json", environment(experiment, machine))

    def _able(self, split: Population) -> Population:
        """The clients that can train; the others are named once, not refused in every round."""
        able, unable = self.experiment.able(split)
        if unable:
            first, why = next(iter(unable.items()))
            more = f", and {len(unable) - 1} more" if len(unable) > 1 else ""
            self._warn(f"{len(unable)} of {len(split)} clients can never train and take no part: {first}{more}: {why}")
        return able

    def _warn(self, text: str) -> None:
        self.listen("warning", {"text": text})

    def _stored_split(self) -> Population:
        path = self.store.folder / "partition.safetensors"
        try:
            split = load_split(self.store.read(path.name))
        except DataError as error:
            raise StoreError(f"{path}: {error}. Delete it: it is made again from the experiment") from error
        dealt, there = split.provenance.get("samples"), self.experiment.task.samples
        if isinstance(dealt, int) and dealt != there:
            raise StoreError(
                f"{self.store.folder} began with {dealt} samples, and now there are {there}: clients would get "
                "other samples. Restore the data, or start a new run"
            )
        return split

    def _packed(self, machine: Engine) -> Engine:
        """The engine, behind which models travel packed if the experiment says so."""
        compression = self.experiment.compression
        return machine if compression is None else PackedEngine(machine, compression, self.experiment.seed)

    def _attacked(self, machine: Engine) -> Engine:
        """The engine, on which some devices lie if the experiment has an attack."""
        attack, seed = self.experiment.attack, self.experiment.seed
        if attack is None:
            return machine
        return AttackedEngine(machine, attack, attack.liars(self.clients.population, seed), seed)

    def _initial(self, sums: Weights | None = None) -> Bundle:
        """The strategy's state with the untrained network, which begins with these counts."""
        bench, task = self.bench(), self.experiment.task
        net = bench.loaded(0, bench.initial)
        if sums:
            task.adopt_counts(net, sums)
        return self.experiment.strategy.start(task, net)

    def _begin(self, federation: Federation, watchers: Sequence[Tracker]) -> Bundle:
        """Round 0: the untrained model, and what devices counted for it."""
        began, gate = time.monotonic(), federation.gate(0)
        sums = counted(federation, gate)
        state = self.experiment.topology.start(federation, self._initial(sums))
        self._commit(Round(0, state, gate, metrics=self.evaluator.baseline(sums)), began, watchers)
        return state

    # ---- rounds

    def _continue(self, federation: Federation, state: Bundle, watchers: Sequence[Tracker]) -> None:
        began = time.monotonic()
        if self._is_over():
            return
        for round in self.experiment.topology.rounds(federation, state, len(self.store.lines)):
            self._commit(round, began, watchers)
            self._check_void(round.gate.failure)
            if self.experiment.aggregation.private:
                self._check_usable(round.gate)
            if self._is_over():
                return
            began = time.monotonic()

    def _commit(self, round: Round, began: float, watchers: Sequence[Tracker]) -> None:
        gate, trained = round.gate, time.monotonic()
        private = self.experiment.aggregation.private
        if private:
            round.metrics["privacy/epsilon"] = self._spent(round.number)["epsilon"]
        elif gate.examples:
            round.metrics["train/loss"] = gate.loss / gate.examples
            round.medians["train/loss"] = statistics.median(gate.losses)
        if self._is_due(round.number) or round.milestone:
            self._evaluate(round)
        changed, self.comparison.changed = self.comparison.changed, []  # told once, by the first round after it
        round.warnings += [*changed, *self._alarm(round)]
        line = {
            "round": round.number,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": time.monotonic() - began,
            "evaluation_seconds": time.monotonic() - trained,
            "metrics": round.metrics,
            "per_client": round.per_client,
            "clients": [] if private else gate.clients,
            "examples": 0 if private else gate.examples,
            **self._traffic(round),
            **self._devices(gate),
            "void": round.void,
            "warnings": round.warnings,
            "experiment": self.fingerprint,
            **self.comparison.ties,
        }
        if changed:
            line["changed"] = changed
        if self.store.forgotten:
            line["forgotten"], self.store.forgotten = self.store.forgotten, []
        if round.events:
            line["events"] = round.events
        if gate.shortened:
            line["shortened"] = gate.shortened
        if self.experiment.evaluation.monitor in round.medians:
            line["monitored"] = round.medians[self.experiment.evaluation.monitor]
        if self._improves(line):
            best = _model_file(round.state, round.number)
            line["best_sha256"] = hashlib.sha256(best).hexdigest()
            self.store.write("best.safetensors", best)
        if not self.experiment.evaluation.patience:  # or this may be the last round, after which nobody must train on
            self._prefetch(round, "commit")
        self.store.commit(line, round.state)
        self._remembering |= set(gate.kept)
        for watcher in watchers:
            watcher.log(line)
        for text in round.warnings:
            self.listen("warning", {"text": f"round {round.number}: {text}"})
        self.listen("round", line)

    def _traffic(self, round: Round) -> dict[str, int]:
        """Bytes up and down; with privacy those of the clients asked on average: how many there were is not told."""
        gate, strategy = round.gate, self.experiment.strategy
        if strategy.pooled:
            return {"bytes_up": 0, "bytes_down": 0}
        if not self.experiment.aggregation.private or not round.number:
            return {"bytes_up": gate.bytes_up, "bytes_down": gate.bytes_down}
        reply = Bundle(strategy.expects(round.state))
        asked = self._expected()
        engine, message = self.federation.engine, strategy.send(round.state, "")
        return {
            "bytes_up": asked * engine.bytes_up("train", reply),
            "bytes_down": asked * engine.bytes_down("train", message),
        }

    def _devices(self, gate: Gate) -> dict[str, Any]:
        """What single devices did; with privacy nobody is to know who was asked."""
        if self.experiment.aggregation.private:
            return {"refused": [], "cold": [], "kept": []}
        return {
            "refused": gate.refused,
            "cold": [id for id in gate.cold if id in self._remembering],  # it has forgotten what it once knew
            "kept": gate.kept,
            "memory": self._memory_digests(gate),
        }

    def _spent(self, rounds: int) -> dict[str, float]:
        return self.experiment.aggregation.spent(self.federation.context(rounds, self._expected()))

    def _expected(self) -> int:
        return self.experiment.topology.expected(self.federation)

    def _memory_digests(self, gate: Gate) -> dict[str, str]:
        """Of the memories that this round wrote; a device whose reply was refused keeps what it remembered, too."""
        devices = {*gate.kept, *(refusal["device"] for refusal in gate.refused)}
        return self.store.memories.digests(sorted(devices), gate.round)

    def _alarm(self, round: Round) -> list[str]:
        """What the task has to say about a model that has gone wrong, each time it is judged."""
        if not self.store.lines:
            return []
        text = self.experiment.task.alarm(round.metrics, self.store.lines[0]["metrics"])
        return [text] if text else []

    def _is_due(self, number: int) -> bool:
        every = self.experiment.evaluation.every
        return every > 0 and (number % every == 0 or number == self.rounds)

    def _check_void(self, failure: DeviceError | MergeError | None) -> None:
        limit, tail = self.experiment.policy.max_void, self.store.lines
        if failure:
            limit = min(limit, self.rounds)  # a run in which nothing worked has failed, however short it is
        if len(tail) >= limit and all(line["void"] for line in tail[-limit:]):
            reasons = sorted({refusal["reason"] for refusal in tail[-1]["refused"]})
            if isinstance(failure, MergeError):
                raise failure
            if failure and all(reason.startswith("failed: ") for reason in reasons):
                raise failure  # with its traceback
            raise QuorumError(
                f"{limit} rounds in a row without a quorum; the last replies were refused because: {'; '.join(reasons)}"
            )

    def _check_usable(self, gate: Gate) -> None:
        """Tell of refused replies, which are not recorded, and end a run that would publish nothing but noise."""
        if not gate.refused:
            self._unusable = 0 if gate.clients else self._unusable
            return
        first = gate.refused[0]
        self._warn(
            f"round {gate.round}: {len(gate.refused)} of {len(gate.refused) + len(gate.clients)} replies could not be "
            f"used (told here only, and not recorded): {first['device']}: {first['reason']}"
        )
        self._unusable = 0 if gate.clients else self._unusable + 1
        if self._unusable >= min(self.experiment.policy.max_void, self.rounds):
            why = QuorumError(f"{self._unusable} rounds in a row without a usable reply; the last: {first['reason']}")
            raise gate.failure or why

    # ---- evaluation

    def _evaluate(self, round: Round) -> None:
        if not self.experiment.topology.evaluate(self.federation, round):
            self.evaluator.evaluate(round, lambda: self._prefetch(round, "evaluation"))

    def _prefetch(self, round: Round, before: str) -> None:
        """Tell an engine that wants to know it now what the next round will ask."""
        engine, following = self.federation.engine, round.number + 1
        if engine.prefetches == before and following <= self.rounds:
            requests = self.experiment.topology.next_requests(self.federation, round.state, following)
            if requests is not None:
                engine.prefetch("train", requests, following, self.experiment.policy.deadline)

    def _improves(self, line: dict[str, Any]) -> bool:
        return self._is_due(line["round"]) and improves(self.experiment.evaluation.monitor, line, self.store.lines)

    def _best_round(self) -> int:
        return best_round(self.experiment.evaluation.monitor, self.store.lines)

    def _is_over(self) -> bool:
        settings = self.experiment.evaluation
        if self.experiment.aggregation.is_spent(self.federation.context(len(self.store.lines), self._expected())):
            return True
        return len(self.store.lines) > self.rounds or is_patience_over(settings, self.store.lines)

    # ---- end

    def _finish(self, seconds: float) -> Run:
        store, lines = self.store, self.store.lines
        chosen = self._best_round() if self.experiment.evaluation.monitor else lines[-1]["round"]
        if self.experiment.evaluation.monitor:
            model = store.read("best.safetensors")
            sha = ""
            if hashlib.sha256(model).hexdigest() != lines[chosen].get("best_sha256"):
                raise StoreError(f"{store.folder / 'best.safetensors'} is damaged: its checksum does not match")
        else:
            model, sha = self._final_model(store.state(lines[-1]), chosen)
        store.write("model.safetensors", model)
        doubts = self._doubts(_newest([line for line in lines if line["round"] <= chosen]))
        bundle = Bundle.unpack(model)
        summary = {
            "run": str(store.folder),
            "rounds": lines[-1]["round"],
            "best_round": chosen,
            "metrics": _newest([line for line in lines if line["round"] <= chosen]),
            "model_sha256": sha or digest(bundle["model"]),
            "weights_sha256": digest(bundle["model"]),
            "seconds": seconds,
            "bytes_up": sum(line["bytes_up"] for line in lines),
            "bytes_down": sum(line["bytes_down"] for line in lines),
            "refused": sum(len(line["refused"]) for line in lines),
            "cold": sum(len(line["cold"]) for line in lines),
            "void": sum(line["void"] for line in lines),
            "protocol": self.experiment.task.protocol,
            "warnings": [*self.experiment.task.warnings, *self._doubts_of_privacy, *_warnings(lines), *doubts],
            "skipped_files": self.experiment.task.skipped,
        }
        if self.experiment.aggregation.private:
            summary["privacy"] = {**self._spent(lines[-1]["round"]), "unit": self.experiment.aggregation.unit}
            if len(lines) <= self.rounds:
                spent = f"the privacy budget was spent after round {lines[-1]['round']} of {self.rounds}"
                summary["warnings"].append(spent)
                self._warn(spent)
        store.write("summary.json", summary)
        return Run(summary)

    def _doubts(self, metrics: dict[str, float]) -> list[str]:
        """What speaks against what came out: a model no better than chance, devices that exchanged nothing."""
        lines = self.store.lines
        about_task = (
            "" if self.experiment.strategy.personal else self.experiment.task.doubt(metrics, lines[0]["metrics"])
        )
        found = about_task, self.experiment.topology.doubt(lines)
        for text in filter(None, found):
            self._warn(text)
        return [text for text in found if text]

    def _final_model(self, state: Bundle, round: int) -> tuple[bytes, str]:
        """The model to use, and a digest of all models if there are several."""
        personal = self.store.memories.digest() if self.experiment.strategy.personal else ""
        found = self.experiment.topology.final_model(self.federation, state)
        if found is None:
            return _model_file(state, round), personal
        model, sha = found
        return Bundle({"model": model}, {"round": round}).pack(), hashlib.sha256((sha + personal).encode()).hexdigest()

    def _preparing(self, *how_far: Any) -> None:
        self.listen("preparing", dict(zip(_HOW_FAR, how_far)))

    def _on_reply(self, device: str) -> None:
        self.listen("device", {"device": device})


def _warnings(lines: list[dict[str, Any]]) -> list[str]:
    """What was not as it had been when the run was resumed, and what the last round has to say."""
    changed = [f"from round {line['round']} on: {text}" for line in lines for text in line.get("changed", [])]
    last = lines[-1]
    return changed + [text for text in last.get("warnings", []) if text not in last.get("changed", [])]


def _newest(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Every metric as last measured."""
    metrics: dict[str, float] = {}
    for line in lines:
        metrics |= line["metrics"]
    return metrics


def _model_file(state: Bundle, round: int) -> bytes:
    """The trained model alone, for use."""
    return Bundle({"model": state["model"]}, {"round": round}).pack()


def environment(experiment: Experiment, machine: Engine) -> dict[str, Any]:
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
        "workers": machine.workers,
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
