"""Running an experiment in a folder, from the start or from where it stopped."""

from __future__ import annotations

import re
import statistics
import time
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from wayfare.compression.engine import PackedEngine
from wayfare.core.bundle import Bundle, Weights
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
from wayfare.core.protocols import Engine, MergeContext
from wayfare.core.store import Store
from wayfare.engines import open_engine
from wayfare.evaluation import Evaluator, is_patience_over
from wayfare.experiment import Experiment
from wayfare.privacy.attacks import AttackedEngine
from wayfare.recipe import flatten
from wayfare.report import write_report
from wayfare.results import Run
from wayfare.resuming import CHANGES, check_experiment, check_lines, rebuilt
from wayfare.run_folder import RunFolder
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
        raise unknown("kind of change", others[0], CHANGES)
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


class _Run:
    """One run of one experiment in one folder."""

    def __init__(self, experiment: Experiment, store: Store, text: str, listen: Listener) -> None:
        self.experiment, self.store, self.text, self.listen = experiment, store, text, listen
        self.folder = RunFolder(experiment, store, text, self._warn)
        self._bench: Bench | None = None
        self.rounds = experiment.rounds  # 0: all that the topology has, known once there are clients
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
            self.clients = self.folder.begin(machine, "data" in allow_changed)  # refuses misfits, before it takes long
            everything = experiment.topology.length(len(self.clients.population))
            if everything is not None:
                self.rounds = min(experiment.rounds or everything, everything)
            timetable = experiment.timetable(self.clients)
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
                timetable=timetable,
                progress=self._preparing,
            )
            self.evaluator = Evaluator(experiment, self.clients, federation.engine, self.bench)
            first = len(store.lines)
            watchers = trackers(track, store.folder, dict(flatten(tomllib.loads(spec))), first)
            for watcher in watchers:
                stack.callback(watcher.close)
            spent = sum(line["seconds"] for line in store.lines)
            self.listen("rounds", {"rounds": self.rounds, "slots": self.experiment.topology.round_is_slot})
            for text in experiment.task.warnings:
                self._warn(text)
            released = [line["round"] for line in store.lines if line["round"] and not line["void"]]
            experiment.aggregation.check_continued(federation.context(first), released)
            if state is None:
                state = self._begin(federation, watchers)
            doubts = self._privacy_warnings(state, federation.context(first, self._expected()))
            for text in doubts:
                self._warn(text)
            self._continue(federation, state, watchers)
            return Run(self.folder.finish(federation, spent + time.monotonic() - began, doubts))

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

    def _warn(self, text: str) -> None:
        self.listen("warning", {"text": text})

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
        if self.experiment.aggregation.private:
            round.metrics["privacy/epsilon"] = self._spent(round.number)["epsilon"]
        elif gate.examples:
            round.metrics["train/loss"] = gate.loss / gate.examples
            round.medians["train/loss"] = statistics.median(gate.losses)
        if self._is_due(round.number) or round.milestone:
            self._evaluate(round)
        line = self.folder.line(round, self.federation, time.monotonic() - began, time.monotonic() - trained)
        if self._is_due(round.number):
            self.folder.keep_if_best(line, round)
        if not self.experiment.evaluation.patience:  # or this may be the last round, after which nobody must train on
            self._prefetch(round, "commit")
        self.folder.commit(line, round)
        for watcher in watchers:
            watcher.log(line)
        for text in round.warnings:
            self.listen("warning", {"text": f"round {round.number}: {text}"})
        self.listen("round", line)

    def _spent(self, rounds: int) -> dict[str, float]:
        return self.experiment.aggregation.spent(self.federation.context(rounds, self._expected()))

    def _expected(self) -> int:
        return self.experiment.topology.expected(self.federation)

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

    def _is_over(self) -> bool:
        settings = self.experiment.evaluation
        if self.experiment.aggregation.is_spent(self.federation.context(len(self.store.lines), self._expected())):
            return True
        return len(self.store.lines) > self.rounds or is_patience_over(settings, self.store.lines)

    def _preparing(self, *how_far: Any) -> None:
        self.listen("preparing", dict(zip(_HOW_FAR, how_far)))

    def _on_reply(self, device: str) -> None:
        self.listen("device", {"device": device})
