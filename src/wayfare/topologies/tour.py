"""A tour as one process sees it: what does not change from slot to slot, the devices' models, and the door to them.

Devices begin here (the common base, their own training, their budgets) and are judged here; what happens in a slot is
in `slots`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from wayfare.core.bundle import Bundle, mean, midpoint
from wayfare.core.exchange import PEER, Facts, Ledger, Predictor
from wayfare.core.federation import Federation
from wayfare.core.laboratory import Lab
from wayfare.core.protocols import Failure
from wayfare.core.rows import Rows
from wayfare.core.seeds import rng_for
from wayfare.core.traffic import Traffic
from wayfare.errors import ConfigError, DeviceError
from wayfare.topologies.areas import Areas, areas_of
from wayfare.topologies.links import Link

if TYPE_CHECKING:
    from wayfare.topologies.encounters import Encounters

Place = tuple[int, int]
"""A row, and its checksum (or what stands for it until it is known)."""

_UNLIMITED = 2**40
_READ = 4  # states of devices that are kept in memory
_COUNTS = ("can_send", "can_take", "sent", "taken", "bytes_sent", "bytes_taken", "busy", "judged", "meetings")


class Tour:
    """Everything about a tour but its ledger, which is the state."""

    def __init__(self, settings: Encounters, federation: Federation) -> None:
        if federation.exchange is None or federation.task is None or federation.initial is None:
            raise ConfigError("the topology 'encounters' needs a task and a policy: [exchange] name = 'fedtour', say")
        self.settings, self.federation, self.exchange = settings, federation, federation.exchange
        self.strategy, self.task = federation.strategy, federation.task
        if not hasattr(self.task, "tally"):
            raise ConfigError(f"{type(self.task).__name__} cannot tell how good a model is class by class (no tally)")
        if settings.slots > 1 and self.exchange.delegates:
            raise ConfigError("topology.slots = 1 goes with a policy that delegates: devices train in every slot")
        clients = len(federation.population)
        self.contacts = settings.cast(clients, federation.seed)
        self.ids = [federation.population.id(i) for i in range(clients)]
        self.ids += [f"s{i}" for i in range(len(self.contacts.devices) - clients)]
        self.form = federation.initial()
        self.rows = Rows(federation.folder / "models.rows", self.form)
        self.probe, self.judging, self.public = np.split(
            federation.reserved, [settings.probe, settings.probe + settings.judge]
        )
        liars = rng_for(federation.seed, "liars").permutation(clients)[: round(settings.liars * clients)]
        self.liars = np.isin(np.arange(len(self.ids)), liars)
        self.looked: dict[tuple[int, int], float] = {}  # accuracies of merges that an oracle has seen
        self._base = (0, 0)
        self._read: dict[tuple[int, int], Bundle] = {}
        self._later = 0  # stands for a checksum that is not known yet, below 0

    def close(self) -> None:
        """Let go of the models' file."""
        self.rows.close()

    # ---- state

    def state(self, ledger: Ledger) -> Bundle:
        """The ledger as it is checkpointed."""
        columns = {name: torch.from_numpy(np.ascontiguousarray(column)) for name, column in ledger.items()}
        return Bundle({"ledger": columns}, {"base_row": self._base[0], "base_check": self._base[1]})

    def ledger(self, state: Bundle) -> Ledger:
        """The other way round."""
        self._base = int(state.values["base_row"]), int(state.values["base_check"])
        return {name: column.numpy().copy() for name, column in state["ledger"].items()}

    def held(self, ledger: Ledger, device: int) -> Bundle:
        """A device's own state: as a server's, for merging with a peer's is what a server does with replies."""
        key = int(ledger["row"][device]), int(ledger["check"][device])
        if key not in self._read:  # the two of a meeting are needed several times, one after the other
            if len(self._read) == _READ:
                del self._read[next(iter(self._read))]
            self._read[key] = self._at(*key)
        return self._read[key]

    def keep(self, state: Bundle) -> Place:
        """A place for a state that is nobody's yet."""
        if self.settings.slots > 1 and not self.exchange.scored:  # nobody asks which models are alike
            self._later += 1
            return self.rows.put_later(state), -self._later
        return self.rows.put(state)

    def put(self, ledger: Ledger, device: int, state: Bundle | Place) -> None:
        """Give a device another state. What it got since the last checkpoint is of no use any more."""
        old = int(ledger["row"][device])
        ledger["row"][device], ledger["check"][device] = self.keep(state) if isinstance(state, Bundle) else state
        if old != ledger["row_before"][device] and old != self._base[0]:
            self.rows.release(old)

    @cached_property
    def averages(self) -> bool:
        """Whether a state is a model and meeting means to take the mean: the same bits, whichever of the two is first.

        Who guards itself needs what it had and what it would get; who delegates gets no mean of what the two have.
        """
        plain = getattr(self.strategy, "averages", False) and self.form.tensors.keys() == {"model"}
        # float32 times a whole number below this is exact in float64, so only the sum and the quotient are rounded
        lawful = self.examples.max() <= min(self.federation.policy.max_examples, 2**29)
        return bool(plain and lawful) and not (self.exchange.delegates or self.exchange.guarded)

    def mean(self, ledger: Ledger, one: int, other: int) -> Bundle | None:
        """What both have after they meet; None if one lies, or the gate should have a closer look."""
        if self.liars[one] or self.liars[other]:
            return None
        a, b = (self.rows.flat(int(ledger["row"][i]), int(ledger["check"][i])) for i in (one, other))
        change = float(torch.linalg.vector_norm(a - b))  # not finite if a number of theirs is not
        if not 2 * change <= self.federation.policy.max_change:  # rounding does not double it
            return None
        weight = self.strategy.weight  # type: ignore[attr-defined]
        mine, theirs = (weight(float(self.examples[i])) for i in (one, other))
        return self.rows.shaped(midpoint(a, b) if mine == theirs else mean([(mine, {"": a}), (theirs, {"": b})])[""])

    def settle(self, ledger: Ledger) -> None:
        """All models are on the disk when this returns, and the ledger knows their checksums."""
        found = self.rows.settle()
        for device in np.flatnonzero(ledger["check"] < 0):
            ledger["check"][device] = found[int(ledger["row"][device])]
        self.rows.sync()

    def keep_rows(self, ledger: Ledger) -> None:
        """Rows of this checkpoint and of the one before may be needed again; others are free."""
        self.rows.keep(ledger["row"], ledger["row_before"], np.array([self._base[0]]))

    def _at(self, row: int, check: int) -> Bundle:
        return Bundle(self.rows.get(row, check).tensors, dict(self.form.values))

    # ---- what is known from the beginning

    @cached_property
    def areas(self) -> Areas:
        """Who cares about what."""
        return areas_of(self.contacts, self.settings.areas, len(self.task.classes), self.federation.seed)

    @cached_property
    def samples(self) -> list[np.ndarray]:
        """What each device trains on: nothing, if it is signage."""
        held, clients = self.federation.client, len(self.federation.population)
        return [held(id).train if held and i < clients else np.empty(0, np.int64) for i, id in enumerate(self.ids)]

    def iterations(self, device: int) -> int:
        """Steps that a device trains after a merge: signage has nothing to train on."""
        return self.settings.iterations if len(self.samples[device]) else 0

    @cached_property
    def examples(self) -> np.ndarray:
        """How much a device's word weighs where examples count."""
        return np.array([max(1, len(samples)) for samples in self.samples], np.int64)

    @cached_property
    def labels(self) -> np.ndarray:
        """The class of every picture of the pool."""
        labels = self.task.labels
        if labels is None or labels.ndim != 1:
            raise ConfigError(f"encounters need one class per sample, which {type(self.task).__name__} does not have")
        return labels

    @cached_property
    def facts(self) -> Facts:
        """All but the scores, which are known when everybody has begun."""
        count, still = len(self.ids), self.settings.signage_limit
        limit = np.full(count, self.exchange.limit, np.int64)
        if still:
            limit[self.contacts.stationary] = still if still > 0 else _UNLIMITED
        labels = [np.bincount(self.labels[held], minlength=len(self.task.classes)) for held in self.samples]
        unknown = np.full(count, math.nan)
        return Facts(limit, unknown, self.examples, np.array(labels), self.areas.targets, self.contacts.stationary)

    @cached_property
    def probes(self) -> list[torch.Tensor]:
        """The probe pictures of the classes that each owner cares about; equal sets are one tensor."""
        made: dict[bytes, torch.Tensor] = {}
        for row in self.areas.targets:
            if row.tobytes() not in made:
                chosen = self.probe[row[self.labels[self.probe]]]
                if not len(chosen):
                    raise ConfigError("no probe picture shows any object of an area: raise topology.probe")
                made[row.tobytes()] = torch.from_numpy(np.sort(chosen))
        return [made[row.tobytes()] for row in self.areas.targets]

    @cached_property
    def link(self) -> Link:
        """What exchanges cost."""
        s, size = self.settings, self.strategy.report(self.form, 1).nbytes
        return Link(size, s.rate, s.setup, s.joules_per_megabyte, s.joules_per_link, self.exchange.delegates)

    @cached_property
    def predictor(self) -> Predictor | None:
        """Made when it is first needed; a laboratory's result is kept, so that a resumed run finds it again."""
        public, say = np.sort(self.public), self.federation.say
        lab = Lab(
            self.federation.engine, self.strategy, self.task, self._at(*self._base), self.federation.seed, public,
            self.labels[public], np.sort(self.judging), self.federation.policy.deadline, say, self.federation.about,
        )  # fmt: skip
        return self.exchange.predictor(lab)

    # ---- the beginning

    def start(self) -> Ledger:
        """Everybody has the base model: one row for all, until the first of them is written."""
        self._base = row, check = self.rows.put(self._common_base())
        self.rows.sync()
        count = len(self.ids)
        ledger: Ledger = {name: np.zeros(count, np.int64) for name in _COUNTS}
        ledger |= {name: np.full(count, math.nan) for name in ("score", "accuracy", "target_accuracy")}
        ledger |= {"row": np.full(count, row), "row_before": np.full(count, row), "check": np.full(count, check)}
        return ledger | {"joules": np.zeros(count)}

    def _common_base(self) -> Bundle:
        """As the network starts out, or trained on public pictures, with a new head."""
        if not self.settings.base_iterations:
            return self.form
        self.federation.say("training the base model", 0, 0)
        [(_, reply)] = self.call("train", [("base", self._lesson(self.form, "base", self.public, 0))])
        if isinstance(reply, Failure):
            raise DeviceError("base", "train", reply.reason, reply.detail)
        trained = self.strategy.merge(self.form, [("base", reply)])
        head = str(getattr(self.task.network(), "head_name", "head")) + "."
        start = self.form["model"]
        return trained.with_(model={n: start[n] if n.startswith(head) else w for n, w in trained["model"].items()})

    def begin(self, number: int, ledger: Ledger, traffic: Traffic) -> Ledger:
        """Some devices train on what they hold; when all have, the policy draws up their budgets."""
        first = (number - 1) * self.settings.together
        part = range(first, min(first + self.settings.together, len(self.ids)))
        base = self._at(*self._base)
        lessons = [(i, self._first_lesson(base, i, number)) for i in part]
        taught = [(i, lesson) for i, lesson in lessons if lesson is not None]
        replies = self.call("train", ((self.ids[i], lesson) for i, lesson in taught))
        for (i, _), (id, reply) in zip(taught, replies):
            if (found := self.admitted(id, "train", reply, traffic)) is not None:
                self.put(ledger, i, self.strategy.merge(base, [(id, found)]))
        if self.exchange.scored:
            ledger["score"][list(part)] = [accuracy(reply) for reply in self._looks(number, ledger, list(part))]
        if part[-1] == len(self.ids) - 1:
            ledger |= self._budgets(ledger["score"])
        return ledger

    def _first_lesson(self, base: Bundle, i: int, number: int) -> Bundle | None:
        """Phones train on what they hold. The signage of an area is shown the public pictures of its objects."""
        if not self.contacts.stationary[i]:
            return self._lesson(base, self.ids[i], None, number) if len(self.samples[i]) else None
        if not (self.settings.areas and self.settings.base_iterations):
            return None
        shown = self.public[self.areas.targets[i][self.labels[self.public]]]
        return self._lesson(base, self.ids[i], shown, number) if len(shown) else None

    def _lesson(self, state: Bundle, id: str, shown: np.ndarray | None, number: int) -> Bundle:
        told = self.strategy.send(state, id)
        if shown is None:
            return Bundle(told.tensors, {**told.values, "round": number})
        values = {**told.values, "round": number, "iterations": self.settings.base_iterations}
        return Bundle({**told.tensors, "samples": {"train": torch.from_numpy(np.sort(shown))}}, values)

    def _budgets(self, score: np.ndarray) -> Ledger:
        begun, name = self.exchange.begin(replace(self.facts, score=score)), type(self.exchange).__name__
        if min(begun["can_send"].min(), begun["can_take"].min()) < 0:
            raise ConfigError(f"{name} begins with a negative budget")
        if (begun["can_send"] + begun["can_take"] > self.facts.limit).any():
            raise ConfigError(f"{name} begins with more than its limit of exchanges (Eq. 6)")
        return begun

    # ---- judging

    def judge(self, number: int, ledger: Ledger) -> None:
        """Test accuracies; a model that has not changed is not judged again, and equal ones are judged once."""
        stale = np.flatnonzero((ledger["judged"] != ledger["check"]) | np.isnan(ledger["accuracy"]))
        _, first, same = np.unique(ledger["check"][stale], return_index=True, return_inverse=True)
        replies = self._looks(number, ledger, stale[first].tolist(), {"test": self.settings.test})
        tallies = [(reply["tally"]["right"].numpy(), reply["tally"]["total"].numpy()) for reply in replies]
        for device, which in zip(stale, same):
            (right, total), wanted = tallies[which], self.areas.targets[device]
            ledger["accuracy"][device] = right.sum() / max(1, total.sum())
            ledger["target_accuracy"][device] = right[wanted].sum() / max(1, total[wanted].sum())
        ledger["judged"] = ledger["check"].copy()

    def metrics(self, ledger: Ledger) -> dict[str, float]:
        """Over all devices, those that met nobody included."""
        found: dict[str, float] = {}
        for name in ("accuracy", *(("target_accuracy",) if self.settings.areas else ())):
            found[f"test/{name}"] = float(ledger[name].mean())
            for part, q in (("min", 0), ("p10", 0.1), ("median", 0.5), ("p90", 0.9), ("max", 1)):
                found[f"test/{name}_{part}"] = float(np.quantile(ledger[name], q))
        for name in ("sent", "taken", "meetings", "joules", "bytes_sent"):
            found[f"tour/{name}"] = float(ledger[name].mean())
        return found | {"tour/lonely": float((ledger["meetings"] == 0).mean())}

    def _looks(
        self, number: int, ledger: Ledger, devices: list[int], extra: dict[str, Any] | None = None
    ) -> Iterator[Bundle]:
        requests = ((self.ids[i], self.message(number, i, self.held(ledger, i), None, extra)) for i in devices)
        for id, reply in self.call("look", requests):
            if isinstance(reply, Failure):
                raise DeviceError(id, "look", reply.reason, reply.detail)
            yield reply

    # ---- the door

    def message(
        self, number: int, me: int, state: Bundle, said: Bundle | None, extra: dict[str, Any] | None = None
    ) -> Bundle:
        """What the programs `meet` and `look` are told: the own state, what a peer said, where to be judged."""
        tensors, values = dict(state.tensors), dict(self.form.values)
        values |= {"round": number, "n": int(self.examples[me]), **(extra or {})}
        if said is not None:
            tensors |= {section + PEER: weights for section, weights in said.tensors.items()}
            values["n" + PEER] = int(said.number("n"))
        if self.exchange.scored and "test" not in values:
            tensors["samples"] = {"at": self.probes[me]}
        return Bundle(tensors, values)

    def call(self, program: str, requests: Iterable[tuple[str, Bundle]]) -> Iterator[tuple[str, Bundle | Failure]]:
        """Ask devices; replies come in the order asked."""
        return self.federation.engine.call(program, requests, time.monotonic() + self.federation.policy.deadline)

    def admitted(self, id: str, program: str, reply: Bundle | Failure, traffic: Traffic) -> Bundle | None:
        """The reply, unless the device failed, which is noted."""
        if isinstance(reply, Failure):
            if self.federation.policy.on_error == "raise":
                raise DeviceError(id, program, reply.reason, reply.detail)
            traffic.refused.append({"device": id, "reason": f"failed: {reply.reason}"[:500]})
            return None
        self.federation.heard(id)
        for flag, devices in (("kept", traffic.kept), ("cold", traffic.cold)):
            if reply.values.get(flag) is True:
                devices.append(id)
        return reply


def accuracy(reply: Bundle) -> float:
    """Of what the reply has counted; NaN if it was not asked to."""
    if "tally" not in reply:
        return math.nan
    return int(reply["tally"]["right"].sum()) / max(1, int(reply["tally"]["total"].sum()))
