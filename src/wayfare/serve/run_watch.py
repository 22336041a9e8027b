"""What the runs in a folder are doing. One look serves all browsers, and nobody looks while nobody watches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from wayfare.core import locks
from wayfare.core.errors import WayfareError
from wayfare.pages.record import Record, find_runs, less_is_better
from wayfare.pages.run_files import EXPERIMENT, PARTITION, ROUNDS, SUMMARY
from wayfare.serve.offers import MissingError, id_of

_LOOK, _SEARCH = 1.0, 10.0  # seconds between two looks at known runs, and for new ones
_MOST_WAITING = 200  # changes that a slow browser may be behind
_MOST_POINTS = 60  # of the small curve beside a run
_EPSILON = "privacy/epsilon"
_OF_NODES = ("flower/nodes.json", "flower/events.jsonl", "flower/fence.jsonl")  # of a federation of real devices
Row = dict[str, Any]


class RunWatch:
    """The runs in a folder, by id."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._paths: dict[str, Path] = {}
        self._rows: dict[str, tuple[tuple[Any, ...], Row]] = {}
        self._watchers: set[asyncio.Queue[Row]] = set()
        self._searched = -_SEARCH
        self._looking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def rows(self) -> list[Row]:
        """All runs, those that changed last first."""
        await self._look()
        return sorted((row for _, row in self._rows.values()), key=lambda row: row["updated"], reverse=True)

    async def path(self, id: str) -> Path:
        """The folder of a run."""
        if id not in self._paths:
            self.look_for_new()
            await self._look()
        if id not in self._paths:
            raise MissingError(f"there is no run {id!r} here")
        return self._paths[id]

    async def row(self, id: str) -> Row:
        """What a run is doing."""
        await self.path(id)
        await self._look()
        return self._rows[id][1]

    def look_for_new(self) -> None:
        """Search the folder at the next look: a run has just been started."""
        self._searched = -_SEARCH

    async def changes(self) -> AsyncIterator[Row | None]:
        """Runs as they change; None now and then, so that a connection that is gone is noticed."""
        queue: asyncio.Queue[Row] = asyncio.Queue(_MOST_WAITING)
        self._watchers.add(queue)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            while True:
                try:
                    async with asyncio.timeout(15):
                        row = await queue.get()
                except TimeoutError:
                    yield None
                    continue
                yield row
        finally:
            self._watchers.discard(queue)

    async def _watch(self) -> None:
        while self._watchers:
            for row in await self._look():
                for queue in list(self._watchers):
                    with suppress(asyncio.QueueFull):
                        queue.put_nowait(row)
            await asyncio.sleep(_LOOK)

    async def _look(self) -> list[Row]:
        """Look at everything; returns what has changed."""
        async with self._looking:
            return await asyncio.to_thread(self._looked)

    def _looked(self) -> list[Row]:
        if self.folder is None:
            return []
        if time.monotonic() - self._searched >= _SEARCH:
            self._searched = time.monotonic()
            root = self.folder
            self._paths = {id_of(_label(root, path), path): path for path in find_runs(root)}
            self._rows = {id: row for id, row in self._rows.items() if id in self._paths}
        changed = []
        for id, path in self._paths.items():
            now = _signature(path)
            if id not in self._rows or self._rows[id][0] != now:
                self._rows[id] = now, _row(id, path, _label(self.folder, path), bool(now[-1]))
                changed.append(self._rows[id][1])
        return changed


def _label(root: Path, path: Path) -> str:
    return path.name if path == root else path.relative_to(root).as_posix()


def _signature(path: Path) -> tuple[Any, ...]:
    """Changes when the run does; at its end the process that holds it."""
    found: list[Any] = []
    for name in (EXPERIMENT, ROUNDS, SUMMARY, PARTITION, *_OF_NODES):
        with suppress(OSError):
            state = (path / name).stat()
            found.append((name, state.st_mtime_ns, state.st_size))
    return (*found, holder(path))


def holder(path: Path) -> int:
    """The process that works in a run's folder; 0 if there is none."""
    with suppress(OSError):
        text = (path / "lock").read_bytes()[:20]
        if text.isdigit() and int(text) and Path(f"/proc/{int(text)}").exists() | (not Path("/proc").exists()):
            return locks.holder(path / "lock") or 0
    return 0


def _row(id: str, path: Path, label: str, is_held: bool) -> Row:
    """What a list of runs shows of one."""
    try:
        record = Record.read(path)
    except WayfareError as error:
        return {"id": id, "name": label, "state": "damaged", "error": str(error), "updated": "", "task": "",
                "strategy": "", "done": 0, "total": 0, "metric": "", "value": None, "curve": [], "bytes": 0,
                "refused": 0, "epsilon": None, "seconds": 0.0, "less": False}  # fmt: skip
    metric = record.main_metric or ""
    return {
        "id": id,
        "name": label,
        "state": "running" if is_held else "finished" if record.finished else "stopped",
        "error": "",
        "updated": record.updated.isoformat(),
        "task": record.component("task"),
        "strategy": record.component("strategy"),
        "done": record.done,
        "total": record.total or record.done,
        "metric": metric,
        "value": record.final(metric) if metric else None,
        "curve": _thinned(record.series(metric)[1] if metric else []),
        "less": less_is_better(metric),
        "bytes": record.travelled,
        "refused": len(record.refused),
        "epsilon": record.final(_EPSILON),
        "seconds": record.seconds,
    }


def _thinned(values: list[float]) -> list[float]:
    step = max(1, len(values) // _MOST_POINTS)
    return [*values[:-1:step], *values[-1:]]


def table_of(record: Record, row: Row) -> dict[str, Any]:
    """All of a run, for its page and for programs."""
    return {
        **row,
        "path": str(record.path),
        "metrics": record.final_metrics,
        "rounds": [
            {"round": line.round, "seconds": line.seconds, "metrics": dict(line.metrics), "clients": line.clients,
             "bytes_up": line.bytes_up, "bytes_down": line.bytes_down, "refused": len(line.refused),
             "void": line.void}
            for line in record.rounds
        ],
        "refusals": [refusal.__dict__ for refusal in record.refused[-100:]],
        "warnings": list(record.warnings),
        "recipe": record.recipe,
        "model_sha256": record.model_sha256,
    }  # fmt: skip
