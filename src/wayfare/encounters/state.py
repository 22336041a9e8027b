"""EncounterState: which model every device has, how good it is, what it may still send and receive.

Models lie in one file of rows, so that a few are in memory however many there are. All else is in columns, arrays with
one entry per device, which are what a checkpoint holds.
"""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import torch

from wayfare.core.bundle import Bundle, mean, midpoint
from wayfare.core.exchange import Columns
from wayfare.core.rows import Rows
from wayfare.encounters.links import PARTIAL
from wayfare.encounters.scenario import Scenario

StoredModel = tuple[int, int]
"""The row of a device's state, and its checksum (or what stands for it until it is known)."""

COLUMNS = "columns"  # the section of a checkpoint
_CACHED = 4  # states of devices in memory: the two of a meeting are needed several times, one after the other
_COUNTS = ("can_send", "can_take", "sent", "taken", "bytes_sent", "bytes_taken", "busy", "judged", "meetings")
_PREDICTED = ("predictions", "outside", "tested")  # made, of them outside the regressor's range, and tested by a merge


class EncounterState:
    """The devices of a scenario at one time; a context that holds the file of their models."""

    def __init__(self, scenario: Scenario, folder: Path, checkpoint: Bundle | None = None) -> None:
        self.scenario = scenario
        self.columns: Columns = {}
        self.reach = (math.nan, math.nan)  # lowest and highest accuracy that the predictor was made from
        self._rows = Rows(folder / "models.rows", scenario.initial)
        self._base: StoredModel = (0, 0)
        self._cache: dict[StoredModel, Bundle] = {}
        self._unsettled = 0  # models without a checksum so far
        if checkpoint is not None:
            self.restore(checkpoint)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rows.close()

    # ---- checkpoints

    def start(self, base: Bundle) -> None:
        """Every device has the base model: one row for all, until a device gets a model of its own."""
        self._base = row, check = self._rows.put(base)
        self._rows.sync()
        count = len(self.scenario.ids)
        self.columns = self._at_first()
        self.columns |= {"row": np.full(count, row), "row_before": np.full(count, row), "check": np.full(count, check)}

    def _at_first(self) -> Columns:
        count = len(self.scenario.ids)
        return {
            **{name: np.zeros(count, np.int64) for name in (*_COUNTS, *_PREDICTED)},
            **{name: np.full(count, math.nan) for name in ("score", "accuracy", "target_accuracy")},
            **{name: np.zeros(count) for name in ("joules", "error")},  # error: relative, of tested predictions
            PARTIAL: np.empty((0, 4), np.int64),
        }

    def restore(self, checkpoint: Bundle) -> None:
        """Restore the state of this checkpoint."""
        values = checkpoint.values
        self._base = int(values["base_row"]), int(values["base_check"])
        self.reach = float(values.get("low", math.nan)), float(values.get("high", math.nan))
        stored = {name: column.numpy().copy() for name, column in checkpoint[COLUMNS].items()}
        self.columns = self._at_first() | stored  # an older version has stored fewer

    def begin_round(self) -> None:
        """Rows of this checkpoint and of the one before may be needed again; others are free from now on."""
        self._rows.keep(self.columns["row"], self.columns["row_before"], np.array([self._base[0]]))
        self.columns["row_before"] = self.columns["row"].copy()

    def checkpoint(self) -> Bundle:
        """The columns. All models are on the disk when this returns, and their checksums are known."""
        checksums = self._rows.settle()
        for device in np.flatnonzero(self.columns["check"] < 0):
            self.columns["check"][device] = checksums[int(self.columns["row"][device])]
        self._rows.sync()
        tensors = {name: torch.from_numpy(np.ascontiguousarray(column)) for name, column in self.columns.items()}
        reach = {} if math.isnan(self.reach[0]) else dict(zip(("low", "high"), self.reach))
        return Bundle({COLUMNS: tensors}, {"base_row": self._base[0], "base_check": self._base[1], **reach})

    # ---- models

    @property
    def base(self) -> Bundle:
        """What every device started from."""
        return self._read(self._base)

    def model(self, device: int) -> Bundle:
        """A device's own state: as a server's, for merging with a peer's is what a server does with replies."""
        stored = self._stored(device)
        if stored not in self._cache:
            if len(self._cache) == _CACHED:
                del self._cache[next(iter(self._cache))]
            self._cache[stored] = self._read(stored)
        return self._cache[stored]

    def store(self, state: Bundle) -> StoredModel:
        """Write a state that no device has yet."""
        settings = self.scenario.settings
        if settings.slots > 1 and not (
            self.scenario.policy.scored or settings.resume
        ):  # nobody asks which ones are equal
            self._unsettled += 1
            return self._rows.put_later(state), -self._unsettled
        return self._rows.put(state)

    def set_model(self, device: int, state: Bundle | StoredModel) -> None:
        """Give a device another state; the one it got since the last checkpoint can be freed."""
        old = int(self.columns["row"][device])
        row, check = self.store(state) if isinstance(state, Bundle) else state
        self.columns["row"][device], self.columns["check"][device] = row, check
        if old != self.columns["row_before"][device] and old != self._base[0]:
            self._rows.release(old)

    def discard(self, state: Bundle | StoredModel) -> None:
        """Free a state that no device has."""
        if isinstance(state, tuple):
            self._rows.release(state[0])

    def mean(self, one: int, other: int) -> Bundle | None:
        """The common model of two devices if merging is a mean; None if the gate must check it in detail."""
        scenario = self.scenario
        if not self._averages or scenario.liars[one] or scenario.liars[other]:
            return None
        a, b = (self._rows.flat(*self._stored(device)) for device in (one, other))
        change = float(torch.linalg.vector_norm(a - b))  # not finite if a number of theirs is not
        if not 2 * change <= scenario.limits.max_change:  # rounding does not double it
            return None
        weight = scenario.strategy.weight  # type: ignore[attr-defined]
        mine, theirs = (weight(float(scenario.examples[device])) for device in (one, other))
        flat = midpoint(a, b) if mine == theirs else mean([(mine, {"": a}), (theirs, {"": b})])[""]
        return self._rows.shaped(flat)

    @cached_property
    def _averages(self) -> bool:
        """Whether a state is a model and merging takes the mean: the same bits, whichever of the two is first.

        Who guards itself needs what it had and what it would get; who delegates gets no mean of what the two have.
        """
        scenario, policy = self.scenario, self.scenario.policy
        plain = scenario.strategy.averages and scenario.initial.tensors.keys() == {"model"}
        # float32 times a whole number below this is exact in float64, so only the sum and the quotient are rounded
        if scenario.settings.form != "fp32":
            return False
        lawful = scenario.examples.max() <= min(scenario.limits.max_examples, 2**29)
        return bool(plain and lawful) and not (policy.delegates or policy.guarded)

    def _stored(self, device: int) -> StoredModel:
        return int(self.columns["row"][device]), int(self.columns["check"][device])

    def _read(self, stored: StoredModel) -> Bundle:
        return Bundle(self._rows.get(*stored).tensors, dict(self.scenario.initial.values))
