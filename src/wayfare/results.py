"""What `run` and `resume` give: the summary of a run, which is a mapping, with a few things to do with it."""

from __future__ import annotations

import html
import statistics
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

from wayfare.finished import FinishedRun, load
from wayfare.pages.record import Record
from wayfare.report import write_report


class Run(dict[str, Any]):
    """A finished run: `run["metrics"]` and all else of its summary.json, its history, its report and its model."""

    def __init__(self, summary: Mapping[str, Any]) -> None:
        super().__init__(summary)

    def __fspath__(self) -> str:
        return str(self["run"])

    def __repr__(self) -> str:
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items())
        return f"<Run {self.folder}: {self['rounds']} rounds; {metrics}>"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{html.escape(n)}</td><td>{v:.4g}</td></tr>" for n, v in self.metrics.items())
        return f"<p>{html.escape(str(self.folder))}: {self['rounds']} rounds</p><table>{rows}</table>"

    @property
    def folder(self) -> Path:
        """Where everything is."""
        return Path(self["run"])

    @property
    def metrics(self) -> dict[str, float]:
        """Every metric as last measured."""
        return dict(self["metrics"])

    @property
    def history(self) -> Any:
        """A row for each round: a pandas DataFrame where pandas is installed, otherwise a list of dicts."""
        lines = Record.read(self.folder).rounds
        names = ("seconds", "clients", "examples", "bytes_up", "bytes_down")
        rows = [{"round": line.round, **{n: getattr(line, n) for n in names}, **line.metrics} for line in lines]
        return import_module("pandas").DataFrame(rows).set_index("round") if find_spec("pandas") else rows

    def report(self, out: str | PathLike[str] | None = None) -> Path:
        """Write the report, one HTML file, into the run's folder or elsewhere; returns where it is."""
        return write_report(self.folder, None if out is None else Path(out))

    def load(self, device: str = "auto") -> FinishedRun:
        """The trained model, ready for use."""
        return load(self.folder, device=device)


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
