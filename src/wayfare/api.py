"""`wayfare.run` and `wayfare.resume`: those of `runner`, which show their progress in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from wayfare import runner
from wayfare.cli.console import Watch, err, watching
from wayfare.core.protocols import Engine
from wayfare.experiment import Experiment
from wayfare.results import Run
from wayfare.runner import Listener


def run(
    experiment: Experiment,
    out: Path | str,
    engine: str | Engine = "auto",
    workers: int = 0,
    track: Sequence[str] = (),
    listen: Listener | None = None,
) -> Run:
    """Run an experiment into a new folder; returns its summary, a mapping with `.metrics`, `.history`, `.load()`.

    `listen` hears what happens: ("rounds", {...}), ("round", line), ("warning", {...}), ... By default progress is
    shown where there is a terminal or a notebook, and nothing elsewhere.
    """
    with _listener(listen, experiment.rounds, experiment.name or Path(out).name) as heard:
        return runner.run(experiment, out, engine, workers, track, listen=heard)


def resume(
    out: Path | str,
    engine: str | Engine = "auto",
    workers: int = 0,
    track: Sequence[str] = (),
    rounds: int | None = None,
    listen: Listener | None = None,
    *,
    allow_changed: Collection[str] = (),
) -> Run:
    """Continue a run where it stopped; with `rounds`, up to a new total.

    A run whose data or whose devices' memories are not as they were is refused, saying what differs. `allow_changed`
    accepts that: "data", "memory" (devices without theirs start over).
    """
    with _listener(listen, rounds or 0, Path(out).name) as heard:
        return runner.resume(out, engine, workers, track, rounds, listen=heard, allow_changed=allow_changed)


@contextmanager
def _listener(listen: Listener | None, rounds: int, label: str) -> Iterator[Listener]:
    if listen is not None:
        yield listen
        return
    with watching() as progress:
        shown = progress is not None or err.is_jupyter
        yield Watch(progress, rounds, label) if shown else runner.silent
