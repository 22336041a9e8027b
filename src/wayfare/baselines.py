"""What a federated run is measured against: the untrained model, clients alone, and all data in one place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from wayfare.core import disk
from wayfare.core.errors import ConfigError
from wayfare.experiment import Experiment
from wayfare.pages.run_files import EXPERIMENT, ROUNDS, SUMMARY
from wayfare.strategies.centralised import Centralised
from wayfare.strategies.local import Local
from wayfare.topologies.server import Server

FEDERATED, UNTRAINED = "federated", "untrained"


def with_baselines(experiment: Experiment) -> dict[str, Experiment]:
    """The experiment, and the same with clients that learn alone and with all data in one place."""
    if experiment.topology.meets:
        raise ConfigError(
            "--baselines is for federations with a server; where devices meet, compare policies: "
            "--set exchange.name=never, --set exchange.name=always"
        )
    if experiment.strategy.personal or experiment.strategy.pooled:
        raise ConfigError("--baselines: this strategy is one of the baselines itself; choose fedavg, for instance")
    alone = replace(experiment, strategy=Local(), evaluation=replace(experiment.evaluation, monitor="", patience=0))
    pooled = replace(experiment, strategy=Centralised(), topology=Server())
    return {FEDERATED: experiment, "local": alone, "centralised": pooled}


def write_untrained(folder: Path) -> Path:
    """Round 0 of the federated run as a run of its own, beside it: the untrained model."""
    source, target = folder / FEDERATED, folder / UNTRAINED
    target.mkdir(exist_ok=True)
    first = (source / ROUNDS).read_text(encoding="utf-8").partition("\n")[0]
    line, text = json.loads(first), (source / EXPERIMENT).read_text(encoding="utf-8")
    disk.write(target / EXPERIMENT, _without_rounds(text).encode())
    disk.write(target / ROUNDS, (first + "\n").encode())
    summary = {
        "run": str(target),
        "rounds": 0,
        "metrics": line["metrics"],
        "model_sha256": line.get("checkpoint", {}).get("sha256", ""),
        "seconds": line["seconds"],
        **dict.fromkeys(("bytes_up", "bytes_down", "refused", "cold", "void"), 0),
    }
    disk.write(target / SUMMARY, json.dumps(summary, indent=1).encode())
    return target


def _without_rounds(text: str) -> str:
    return "\n".join("rounds = 0" if line.startswith("rounds =") else line for line in text.split("\n"))
