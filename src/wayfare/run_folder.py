"""What a run writes into its folder: files that describe it, a line for each round, and the model with its summary."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wayfare.clients import Clients
from wayfare.core import manifest
from wayfare.core.bundle import Bundle, digest
from wayfare.core.errors import DataError, StoreError
from wayfare.core.federation import Federation, Round
from wayfare.core.gate import Gate
from wayfare.core.protocols import Engine, Population
from wayfare.core.store import Store
from wayfare.evaluation import best_round, improves
from wayfare.experiment import Experiment
from wayfare.partition.split import load_split
from wayfare.partition.summary import summarise_split
from wayfare.resuming import compare, fingerprint


class RunFolder:
    """The files of one run of one experiment. The checkpoints themselves are the store's."""

    def __init__(self, experiment: Experiment, store: Store, text: str, warn: Callable[[str], None]) -> None:
        self.experiment, self.store, self.text, self.warn = experiment, store, text, warn
        self.fingerprint = fingerprint(tomllib.loads(text))

    # ---- what describes the run

    def begin(self, machine: Engine, is_other_data_allowed: bool) -> Clients:
        """Deal the samples, and write what describes the run.

        Each file can be made again, so a crash between them costs nothing.
        """
        experiment, store = self.experiment, self.store
        is_dealt = bool(store.lines) and (store.folder / "partition.safetensors").exists()
        split = self._stored_split() if is_dealt else self._able(experiment.split())
        clients: Clients = experiment.clients(split)
        experiment.topology.check(len(clients.population))
        packed = store.read("partition.safetensors") if is_dealt else split.pack()
        self.comparison = compare(store, experiment, packed, is_other_data_allowed, self.warn)
        if not store.is_run() or store.read_text("experiment.toml") != self.text:
            store.write("experiment.toml", self.text.encode())
        if not is_dealt or store.read_json("partition.json") is None:
            store.write("partition.json", summarise_split(split, experiment.task))
        if not is_dealt:
            store.write("partition.safetensors", packed)
        if store.read_json(manifest.FILE) != self.comparison.manifest:
            store.write(manifest.FILE, self.comparison.manifest)
        store.write("environment.json", environment(experiment, machine))
        return clients

    def _able(self, split: Population) -> Population:
        """The clients that can train; the others are named once, not refused in every round."""
        able, unable = self.experiment.able(split)
        if unable:
            first, why = next(iter(unable.items()))
            more = f", and {len(unable) - 1} more" if len(unable) > 1 else ""
            self.warn(f"{len(unable)} of {len(split)} clients can never train and take no part: {first}{more}: {why}")
        return able

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

    # ---- a round

    def commit(self, line: dict[str, Any], round: Round) -> None:
        """Write the checkpoint and then the line: from here on the round counts."""
        self.store.commit(line, round.state)
        self._remembering |= set(round.gate.kept)

    def line(self, round: Round, federation: Federation, seconds: float, evaluation_seconds: float) -> dict[str, Any]:
        """What is recorded of a round; with privacy, nothing about single clients."""
        gate, monitor = round.gate, self.experiment.evaluation.monitor
        private = self.experiment.aggregation.private
        changed, self.comparison.changed = self.comparison.changed, []  # told once, by the first round after it
        round.warnings += [*changed, *self._alarm(round)]
        line = {
            "round": round.number,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": seconds,
            "evaluation_seconds": evaluation_seconds,
            "metrics": round.metrics,
            "per_client": round.per_client,
            "clients": [] if private else gate.clients,
            "examples": 0 if private else gate.examples,
            **self._traffic(round, federation),
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
        if monitor in round.medians:
            line["monitored"] = round.medians[monitor]
        return line

    def keep_if_best(self, line: dict[str, Any], round: Round) -> None:
        """Write the model of a round that is better than all before it by the metric that is monitored."""
        if improves(self.experiment.evaluation.monitor, line, self.store.lines):
            best = _model_file(round.state, round.number)
            line["best_sha256"] = hashlib.sha256(best).hexdigest()
            self.store.write("best.safetensors", best)

    def _alarm(self, round: Round) -> list[str]:
        """What the task has to say about a model that has gone wrong, each time it is judged."""
        if not self.store.lines:
            return []
        text = self.experiment.task.alarm(round.metrics, self.store.lines[0]["metrics"])
        return [text] if text else []

    def _traffic(self, round: Round, federation: Federation) -> dict[str, int]:
        """Bytes up and down; with privacy those of the clients asked on average: how many there were is not told."""
        gate, strategy = round.gate, self.experiment.strategy
        if strategy.pooled:
            return {"bytes_up": 0, "bytes_down": 0}
        if not self.experiment.aggregation.private or not round.number:
            return {"bytes_up": gate.bytes_up, "bytes_down": gate.bytes_down}
        reply = Bundle(strategy.expects(round.state))
        asked = self.experiment.topology.expected(federation)
        engine, message = federation.engine, strategy.send(round.state, "")
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

    @cached_property
    def _remembering(self) -> set[str]:
        """Devices that have written a memory."""
        return {id for line in self.store.lines for id in line["kept"]}

    def _memory_digests(self, gate: Gate) -> dict[str, str]:
        """Of the memories that this round wrote; a device whose reply was refused keeps what it remembered, too."""
        devices = {*gate.kept, *(refusal["device"] for refusal in gate.refused)}
        return self.store.memories.digests(sorted(devices), gate.round)

    # ---- the end

    def finish(self, federation: Federation, seconds: float, doubts_of_privacy: Sequence[str]) -> dict[str, Any]:
        """Write the model to use and the summary."""
        experiment, store, lines = self.experiment, self.store, self.store.lines
        chosen, model, sha = self._chosen_model(federation)
        store.write("model.safetensors", model)
        metrics = _newest([line for line in lines if line["round"] <= chosen])
        bundle = Bundle.unpack(model)
        weights = digest(bundle["model"])
        summary = {
            "run": str(store.folder),
            "rounds": lines[-1]["round"],
            "best_round": chosen,
            "metrics": metrics,
            "model_sha256": sha or weights,
            "weights_sha256": weights,
            "seconds": seconds,
            "bytes_up": sum(line["bytes_up"] for line in lines),
            "bytes_down": sum(line["bytes_down"] for line in lines),
            "refused": sum(len(line["refused"]) for line in lines),
            "cold": sum(len(line["cold"]) for line in lines),
            "void": sum(line["void"] for line in lines),
            "protocol": experiment.task.protocol,
            "warnings": [*experiment.task.warnings, *doubts_of_privacy, *_warnings(lines), *self._doubts(metrics)],
            "skipped_files": experiment.task.skipped,
        }
        if experiment.aggregation.private:
            done, expected = lines[-1]["round"], experiment.topology.expected(federation)
            context = federation.context(done, expected)
            summary["privacy"] = {**experiment.aggregation.spent(context), "unit": experiment.aggregation.unit}
            is_spent = experiment.aggregation.is_spent(federation.context(done + 1, expected))
            if done < federation.rounds and is_spent:  # and not its patience
                spent = f"the privacy budget was spent after round {done} of {federation.rounds}"
                summary["warnings"].append(spent)
                self.warn(spent)
        store.write("summary.json", summary)
        return summary

    def _chosen_model(self, federation: Federation) -> tuple[int, bytes, str]:
        """The round whose model is used, the model, and a digest of all models if there are several."""
        store, lines, monitor = self.store, self.store.lines, self.experiment.evaluation.monitor
        if not monitor:
            return lines[-1]["round"], *self._final_model(federation, store.state(lines[-1]), lines[-1]["round"])
        chosen = best_round(monitor, lines)
        model = store.read("best.safetensors")
        if hashlib.sha256(model).hexdigest() != lines[chosen].get("best_sha256"):
            raise StoreError(f"{store.folder / 'best.safetensors'} is damaged: its checksum does not match")
        return chosen, model, ""

    def _final_model(self, federation: Federation, state: Bundle, round: int) -> tuple[bytes, str]:
        personal = self.store.memories.digest() if self.experiment.strategy.personal else ""
        found = self.experiment.topology.final_model(federation, state)
        if found is None:
            return _model_file(state, round), personal
        model, sha = found
        return Bundle({"model": model}, {"round": round}).pack(), hashlib.sha256((sha + personal).encode()).hexdigest()

    def _doubts(self, metrics: dict[str, float]) -> list[str]:
        """What speaks against what came out: a model no better than chance, devices that exchanged nothing."""
        lines, experiment = self.store.lines, self.experiment
        about_task = "" if experiment.strategy.personal else experiment.task.doubt(metrics, lines[0]["metrics"])
        found = experiment.topology.doubt(lines), about_task
        for text in filter(None, found):
            self.warn(text)
        return [text for text in found if text]


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
