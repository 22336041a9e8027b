"""Encounters: no server. Devices move about; those that come near each other may exchange models (FedTour, Sect. III).

A round is one slot of the day (or a few), after the rounds of the beginning, in which every device trains the common
base model on what it holds. In a slot a device meets at most one other (Eq. 5); the policy decides who asks for whose
model, and each side merges what it got with its own as it was before the slot. Every device has its budget (Eq. 6),
which is enforced here, not left to the policy.

The models lie in one file of rows; the state, and so the checkpoint of a slot, is the ledger: who has which row, its
accuracy, what it may still send and take, what it has spent.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from wayfare.core import disk
from wayfare.core.bundle import Bundle, Weights, digest, mean
from wayfare.core.federation import Federation, Round
from wayfare.core.seeds import rng_for
from wayfare.data.contacts import ContactProcess, Located, contact_process
from wayfare.data.town.crowd import crowd
from wayfare.errors import ConfigError
from wayfare.topologies.film import film
from wayfare.topologies.slots import play_slot, together
from wayfare.topologies.tour import Tour


@dataclass(frozen=True)
class Encounters:
    """Devices that meet."""

    traces: str = ""  # who was where, or who met whom, in any form that `wayfare data check` knows; or "town:300"
    radius: float = 50.0  # R, metres
    slot: float = 30.0  # seconds
    window: str = ""  # the part of the day that is played, "06:00-18:00"; nothing: all of it
    fold: bool = False  # several days become one; each device-day is a device
    matching: Literal["random", "nearest", "best"] = "random"  # whom of several a device talks to
    public: int = 0  # pictures that are dealt to nobody: the base model and the laboratory's models learn from them
    base_iterations: int = 0  # steps in which the base learns from them; its head is new afterwards. 0: no such base
    probe: int = 400  # pictures that every device has, to know how good its model is
    judge: int = 400  # pictures on which the laboratory judges merges
    test: int = 0  # pictures of the test set on which devices are judged for the report; 0: all
    iterations: int = 0  # steps of training after each merge; the paper has none
    signage_limit: int = 0  # budget of devices that stand still; 0: everyone's, -1: no limit
    areas: int = 0  # sightseeing areas, each with objects of its own; 0: everyone cares about everything
    rate: float = 0.0  # of the link, Mbit/s; 0: every exchange fits in a slot, as the paper assumes
    setup: float = 0.0  # seconds until a link is up
    joules_per_megabyte: float = 7.0  # for each side: Wi-Fi as measured by Balasubramanian et al. (2009)
    joules_per_link: float = 5.9
    liars: float = 0.0  # share of devices that claim to be very good and send something else
    lie: Literal["noise", "nan"] = "noise"
    together: int = 100  # devices that begin in one round
    slots: int = 1  # slots between two checkpoints, which make a round; more are faster where many exchange

    # ---- the shape of the run

    @property
    def reserve(self) -> int:
        """Samples of the pool that no device gets."""
        return self.public + self.probe + self.judge

    def check(self, clients: int) -> None:
        """Refuse what cannot be done with this many clients."""
        for name in ("public", "base_iterations", "test", "iterations", "areas"):
            if getattr(self, name) < 0:
                raise ConfigError(f"topology.{name} = {getattr(self, name)} is out of range")
        for name in ("probe", "judge", "together", "slots", "radius", "slot"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"topology.{name} = {getattr(self, name)}: more than 0 is wanted")
        if not (0 <= self.liars <= 1 and self.rate >= 0 and self.setup >= 0 and self.signage_limit >= -1):
            raise ConfigError(
                "topology: liars is a share; rate and setup are not negative; signage_limit is -1 or more"
            )
        if self.slots > 1 and self.iterations:
            raise ConfigError("topology.slots = 1 goes with topology.iterations: devices that train remember each slot")
        if self.base_iterations and not self.public:
            raise ConfigError("topology.base_iterations needs topology.public, the pictures that the base learns from")
        moving = int((~self._everyone.stationary).sum())
        if clients > moving:
            raise ConfigError(
                f"{clients} clients take part, but only {moving} devices of {self.traces} move: "
                "lower partition.clients, or set topology.fold = true if the traces are of several days"
            )

    def length(self, clients: int) -> int:
        """All rounds there are: the beginning, then every slot."""
        return self.beginning(clients) + math.ceil(self._everyone.slots / self.slots)

    def beginning(self, clients: int) -> int:
        """Rounds in which devices begin."""
        return math.ceil((clients + int(self._everyone.stationary.sum())) / self.together)

    @cached_property
    def _everyone(self) -> ContactProcess:
        if not self.traces:
            raise ConfigError(
                "topology.traces is wanted: a file or folder that says who was where; "
                "or town:300, for 300 people in a city of the town"
            )
        kind, _, people = self.traces.partition(":")
        if kind == "town" and people.isdecimal():
            if self.fold or self.window not in ("", "06:00-18:00") or self.slot != 30:
                raise ConfigError("the town's traces are of one day, 06:00-18:00, in slots of 30 s")
            return Located(crowd(int(people)), self.radius)
        return contact_process(Path(self.traces), self.radius, self.slot, self.window, self.fold)

    def cast(self, clients: int, seed: int) -> ContactProcess:
        """Those who take part: as many moving devices as there are clients, then all that stand still."""
        everyone = self._everyone
        moving, still = np.flatnonzero(~everyone.stationary), np.flatnonzero(everyone.stationary)
        if clients < len(moving):
            moving = np.sort(rng_for(seed, "cast").choice(moving, clients, replace=False))
        return everyone.select(np.concatenate([moving, still]))

    # ---- rounds

    def start(self, federation: Federation, state: Bundle) -> Bundle:
        with closing(Tour(self, federation)) as tour:
            disk.write(federation.folder / "tour.safetensors", film(tour.contacts, tour.ids, tour.areas.targets))
            return tour.state(tour.start())

    def play(self, federation: Federation, state: Bundle, first: int) -> Iterator[Round]:
        beginning = self.beginning(len(federation.population))
        with closing(Tour(self, federation)) as tour:
            for number in range(first, federation.rounds + 1):
                ledger, traffic = tour.ledger(state), federation.traffic(number)
                tour.keep_rows(ledger)
                ledger["row_before"] = ledger["row"].copy()
                events: dict[str, Any] = {}
                if number <= beginning:
                    ledger = tour.begin(number, ledger, traffic)
                else:
                    first_slot = (number - beginning - 1) * self.slots
                    slots = range(first_slot, min(first_slot + self.slots, tour.contacts.slots))
                    events = together([play_slot(tour, number, slot, ledger, traffic) for slot in slots])
                tour.settle(ledger)
                state = tour.state(ledger)
                void = events.get("failed", 0) > 0 and "taker" not in events
                round = Round(number, state, traffic, void, milestone=number == beginning, events=events)
                yield round
                state = round.state  # it may have been assessed meanwhile

    def assess(self, federation: Federation, round: Round) -> None:
        """The accuracy of every device's model on the test set, on all classes and on those its owner cares about."""
        with closing(Tour(self, federation)) as tour:
            ledger = tour.ledger(round.state)
            tour.judge(round.number, ledger)
            round.state = tour.state(ledger)
            round.metrics |= tour.metrics(ledger)
            for name in ("accuracy", *(("target_accuracy",) if self.areas else ()), "score"):
                known = {id: float(v) for id, v in zip(tour.ids, ledger[name]) if not math.isnan(v)}
                round.per_client |= {name: known} if known else {}

    def outcome(self, federation: Federation, state: Bundle) -> tuple[Weights, str]:
        """The mean of all devices' models, and a digest over each of them."""
        sha = hashlib.sha256()
        with closing(Tour(self, federation)) as tour:
            ledger = tour.ledger(state)

            def models() -> Iterator[tuple[float, Weights]]:
                for device, id in enumerate(tour.ids):
                    held = tour.held(ledger, device)
                    for section in sorted(held.tensors):
                        sha.update(f"{id}/{section}:{digest(held[section])};".encode())
                    yield 1.0, held["model"]

            return mean(models()), sha.hexdigest()
