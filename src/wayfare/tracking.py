"""Trackers that people already use, beside the run's own rounds.jsonl: TensorBoard event files, and MLflow."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from wayfare.core.errors import ConfigError, unknown


class Tracker(Protocol):
    """Hears every committed round."""

    def log(self, line: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


def scalars(line: dict[str, Any]) -> dict[str, float]:
    """The numbers of a round that are worth a curve."""
    counts = {"refused": len(line["refused"]), "cold": len(line["cold"])}
    sizes = {name: line[name] for name in ("seconds", "examples", "bytes_up", "bytes_down")}
    return {**line["metrics"], **{f"round/{name}": float(value) for name, value in {**sizes, **counts}.items()}}


class TensorBoard:
    """Event files under `<run>/tensorboard`."""

    def __init__(self, run: Path, settings: dict[str, Any], first: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # slow to import; only this tracker needs it

        # rounds that are done again after a restart replace those of before
        self._writer = SummaryWriter(str(run / "tensorboard"), purge_step=first)

    def log(self, line: dict[str, Any]) -> None:
        for name, value in scalars(line).items():
            self._writer.add_scalar(name, value, line["round"])

    def close(self) -> None:
        self._writer.close()


def mlflow_name(name: str) -> str:
    """A metric's name as MLflow takes it on every system: `R@1/night` becomes `R_at_1/night`.

    Allowed are letters, digits, underscores, dots, dashes, spaces and slashes (colons not on Windows), and names must
    be paths in their shortest form: no empty part, no `.` or `..`.
    """
    parts = re.sub(r"[^\w/. -]", "_", name.replace("@", "_at_")).split("/")
    return "/".join(part if part.strip(".") else "_" for part in parts)


class MLflow:
    """An MLflow run, where MLFLOW_TRACKING_URI says, or in `<run>/mlflow.db`."""

    def __init__(self, run: Path, settings: dict[str, Any], first: int) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # no connection but those asked for
        try:
            import mlflow
        except ImportError:
            raise ConfigError("tracking with mlflow needs the extra: pip install 'wayfare[mlflow]'") from None
        if not os.environ.get("MLFLOW_TRACKING_URI"):
            mlflow.set_tracking_uri(f"sqlite:///{(run / 'mlflow.db').absolute()}")
        self._mlflow = mlflow
        mlflow.set_experiment(str(settings.get("name") or "wayfare"))
        mlflow.start_run(run_name=run.name)
        if first == 0:
            mlflow.log_params(settings)

    def log(self, line: dict[str, Any]) -> None:
        values = {mlflow_name(name): value for name, value in scalars(line).items()}
        self._mlflow.log_metrics(values, step=line["round"])

    def close(self) -> None:
        self._mlflow.end_run()


TRACKERS: dict[str, type[TensorBoard] | type[MLflow]] = {"tensorboard": TensorBoard, "mlflow": MLflow}


def trackers(names: Sequence[str], run: Path, settings: dict[str, Any], first: int) -> list[Tracker]:
    """Start the named trackers."""
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
    return [TRACKERS[name](run, settings, first) for name in names]
