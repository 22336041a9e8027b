"""Encounters: no server. Devices move about; those that come near each other may exchange models (FedTour, Sect. III).

A round is one slot of the day (or a few), after the rounds of the beginning, in which every device trains the common
base model on what it holds. In a slot a device meets at most one other (Eq. 5); the policy decides who asks for whose
model, and each side merges what it got with its own as it was before the slot. Every device has its budget (Eq. 6),
which is enforced here, not left to the policy.

The files, in the order in which a slot goes through them: `contacts` (who is near whom), `slots` (who meets, what is
exchanged), `policies` and `predictors` (who asks), `core/gate.py` (what is admitted), `state` (who has which model, its
accuracy, its budget). `scenario` has what does not change; `beginning` is what happens before the first slot.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from wayfare.core import disk
from wayfare.core.bundle import Bundle, Weights, digest, mean
from wayfare.core.errors import ConfigError
from wayfare.core.exchange import Predictor
from wayfare.core.federation import Federation, Round
from wayfare.core.protocols import Topology
from wayfare.core.ranges import Range, check_ranges
from wayfare.core.seeds import rng_for
from wayfare.encounters.beginning import common_base, train_first_models
from wayfare.encounters.coding import Form
from wayfare.encounters.contacts import ContactProcess, LocatedContacts, contact_process
from wayfare.encounters.dense import densest
from wayfare.encounters.judging import judge, metrics
from wayfare.encounters.laboratory import LAB_ROUND, Lab
from wayfare.encounters.movie import movie
from wayfare.encounters.scenario import Scenario
from wayfare.encounters.slots import SlotRunner, merged_events
from wayfare.encounters.state import EncounterState
from wayfare.encounters.town_traces import crowd

_MOST_ERROR = 0.1  # of predictions, relative, before a run says so
_MOST_OUTSIDE = 0.2

_RANGES = (
    dict.fromkeys(
        ("public", "judge", "base_iterations", "test", "iterations", "areas", "rate", "setup", "megabytes"), Range(0)
    )
    | dict.fromkeys(("probe", "together", "slots", "radius", "slot"), Range(0, open_low=True))
    | {"liars": Range(0, 1), "signage_limit": Range(-1), "area_objects": Range(0)}
    | {"share": Range(0, 1, open_low=True)}
)


@dataclass(frozen=True)
class Encounters(Topology):
    """Devices that meet."""

    meets: ClassVar[bool] = True

    traces: str = ""  # who was where, or who met whom, in any form that `wayfare data check` knows; or "town:300"
    layout: str = ""  # of lines of numbers in `traces`: meetings, intervals, ...; empty: recognised by the numbers
    radius: float = 50.0  # R, metres
    slot: float = 30.0  # seconds
    window: str = ""  # the part of the day, "06:00-18:00"; empty: all of it
    fold: bool = False  # several days become one; each device-day is a device
    matching: Literal["random", "nearest", "best"] = "random"  # which of several nearby devices it meets
    public: int = 0  # pictures that no client gets: the base model and the laboratory's models learn from them
    public_is_dealt: bool = False  # clients get the public pictures too, as in the paper
    base_iterations: int = 0  # training steps of the base model on them; its head then starts anew; 0: none
    probe: int = 400  # pictures on which every device measures its model
    judge: int = 400  # pictures on which the laboratory evaluates merges
    test: int = 0  # pictures of the test set on which devices are evaluated for the report; 0: all
    iterations: int = 0  # steps of training after each merge; the paper has none
    draw: Literal["random", "dense"] = "random"  # which people of larger traces; dense: those who meet each other most
    signage: Literal["none", "trained", "untrained"] = "none"  # stationary devices: none, or with which model
    signage_limit: int = 0  # budget of stationary devices; 0: as for all, -1: no limit
    areas: int = 0  # sightseeing areas, each with its own objects; 0: all devices are interested in all objects
    area_objects: int = 0  # objects of each area; areas then share some; 0: every class is in one area
    given_areas: tuple[str, ...] = ()  # or areas that are known: "35.6851 135.8430: deer, fawn"
    rate: float = 0.0  # of the link, Mbit/s; 0: every exchange fits in a slot, as the paper assumes
    setup: float = 0.0  # seconds until a link is up
    resume: bool = False  # a transfer that the end of a contact cuts is continued when the two meet again
    form: Form = "fp32"  # of a model on its way: fp16, int8, or topk, its largest changes from the common base
    share: float = 0.1  # of the entries, for topk
    megabytes: float = 0.0  # that a device may send and take in all, beside the count; 0: no limit
    joules_per_megabyte: float = 7.0  # for each side: Wi-Fi as measured by Balasubramanian et al. (2009)
    joules_per_link: float = 5.9
    liars: float = 0.0  # share of devices that claim to be very good and send something else
    lie: Literal["noise", "nan"] = "noise"
    together: int = 100  # devices that begin in one round
    slots: int = 1  # slots between two checkpoints, which make a round; more are faster where many exchange

    # ---- the shape of the run

    @property
    def reserve(self) -> int:  # type: ignore[override]
        """Samples of the pool that no device gets."""
        return self.probe + self.judge + (0 if self.public_is_dealt else self.public)

    @property
    def round_is_slot(self) -> bool:
        return self.slots == 1

    def check(self, clients: int) -> None:
        """Refuse what cannot be done with this many clients."""
        check_ranges("topology", self, _RANGES)
        if self.slots > 1 and self.iterations:
            raise ConfigError(
                "topology.iterations needs topology.slots = 1: devices that train keep a memory of each slot"
            )
        if self.signage == "trained" and not self.public:
            raise ConfigError(
                "topology.signage = 'trained' needs topology.public, the pictures that signage learns from"
            )
        if self.resume and not self.rate:
            raise ConfigError("topology.resume needs topology.rate: without it every transfer fits in a slot")
        if self.areas and self.given_areas:
            raise ConfigError("set topology.areas or topology.given_areas, not both")
        if self.area_objects and not self.areas:
            raise ConfigError("topology.area_objects needs topology.areas, the number of areas")
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

    @property
    def has_areas(self) -> bool:
        """Whether devices care about different objects."""
        return bool(self.areas or self.given_areas)

    @cached_property
    def _everyone(self) -> ContactProcess:
        """All who may take part."""
        everyone = self._traced()
        if self.signage != "none" or not everyone.stationary.any():
            return everyone
        return everyone.select(np.flatnonzero(~everyone.stationary))

    def _traced(self) -> ContactProcess:
        if not self.traces:
            raise ConfigError(
                "topology.traces is missing: a file or folder that says who was where; "
                "or town:300, for 300 people in a city of the town"
            )
        kind, _, people = self.traces.partition(":")
        if kind == "town" and people.isdecimal():
            if self.fold or self.window not in ("", "06:00-18:00") or self.slot != 30:
                raise ConfigError("the town's traces are of one day, 06:00-18:00, in slots of 30 s")
            return LocatedContacts(crowd(int(people)), self.radius)
        path, radius = Path(self.traces), self.radius
        return contact_process(path, radius, self.slot, window=self.window, fold=self.fold, form=self.layout)

    def participants(self, clients: int, seed: int) -> ContactProcess:
        """Those who take part: as many moving devices as there are clients, then all that stand still."""
        everyone = self._everyone
        moving, still = np.flatnonzero(~everyone.stationary), np.flatnonzero(everyone.stationary)
        if clients < len(moving):
            if self.draw == "dense":
                moving = moving[densest(everyone.select(moving), clients)]
            else:
                moving = np.sort(rng_for(seed, "cast").choice(moving, clients, replace=False))
        chosen = np.concatenate([moving, still])
        if np.array_equal(chosen, np.arange(len(everyone.devices))):
            return everyone  # no copy of large traces
        return everyone.select(chosen)

    def doubt(self, lines: Sequence[Mapping[str, Any]]) -> str:
        events = [line["events"] for line in lines if line.get("events")]
        met, cut = (sum(event.get(name, 0) for event in events) for name in ("met", "cut"))
        if not events or any(event.get("taker") for event in events):
            return _doubt_of_predictions(lines)
        if not met:
            return "no two devices met, so nothing was exchanged: try a larger topology.radius or a longer window"
        if cut:
            why = f"{cut} exchanges did not fit into their meetings (topology.rate, topology.setup)"
        else:
            why = "the policy asked for none: it expects no gain, its limit is 0 (compare exchange.name = 'always'), "
            why += "or, if it is your own and compares accuracies, it lacks `scored = True`"
        return f"{met:,} meetings and no exchange: {why}"

    # ---- rounds

    def start(self, federation: Federation, state: Bundle) -> Bundle:
        scenario = Scenario(self, federation)
        shown = movie(scenario.contacts, scenario.ids, scenario.areas.targets)
        disk.write(federation.folder / "tour.safetensors", shown)
        with EncounterState(scenario, federation.folder) as devices:
            devices.start(common_base(scenario, federation))
            return devices.checkpoint()

    def rounds(self, federation: Federation, state: Bundle, first: int) -> Iterator[Round]:
        beginning = self.beginning(len(federation.population))
        with self._devices(federation, state) as devices:
            runner = SlotRunner(devices, lambda: _predictor(devices, federation))
            for number in range(first, federation.rounds + 1):
                devices.restore(state)
                devices.begin_round()
                gate, events = federation.gate(number), dict[str, Any]()
                if number <= beginning:
                    void = train_first_models(devices, gate)
                else:
                    slots = self._slots(number - beginning, devices)
                    events = merged_events([runner.run(slot, gate) for slot in slots])
                    void = events.get("failed", 0) > 0 and "taker" not in events
                state = devices.checkpoint()
                round = Round(number, state, gate, void, milestone=number == beginning, events=events)
                yield round
                state = round.state  # its accuracies may have been added meanwhile

    def evaluate(self, federation: Federation, round: Round) -> bool:
        """The accuracy of every device's model on the test set, on all classes and on those its owner cares about."""
        with self._devices(federation, round.state) as devices:
            judge(devices, federation.gate(round.number))
            round.state = devices.checkpoint()
            round.metrics |= metrics(devices)
            for name in ("accuracy", *(("target_accuracy",) if self.has_areas else ()), "score"):
                values = zip(devices.scenario.ids, devices.columns[name])
                known = {id: float(value) for id, value in values if not math.isnan(value)}
                round.per_client |= {name: known} if known else {}
        return True

    def final_model(self, federation: Federation, state: Bundle) -> tuple[Weights, str]:
        """The mean of all devices' models, and a digest over each of them."""
        sha = hashlib.sha256()
        with self._devices(federation, state) as devices:

            def models() -> Iterator[tuple[float, Weights]]:
                for device, id in enumerate(devices.scenario.ids):
                    own = devices.model(device)
                    for section in sorted(own.tensors):
                        sha.update(f"{id}/{section}:{digest(own[section])};".encode())
                    yield 1.0, own["model"]

            return mean(models()), sha.hexdigest()

    def _devices(self, federation: Federation, state: Bundle) -> EncounterState:
        return EncounterState(Scenario(self, federation), federation.folder, state)

    def _slots(self, number: int, devices: EncounterState) -> range:
        """The slots of the n-th round after the beginning."""
        first = (number - 1) * self.slots
        return range(first, min(first + self.slots, devices.scenario.contacts.slots))


def _doubt_of_predictions(lines: Sequence[Mapping[str, Any]]) -> str:
    """What speaks against the predictor, as measured during the tour."""
    metrics = {name: value for line in lines for name, value in line["metrics"].items()}
    error, outside = metrics.get("tour/mape", 0.0), metrics.get("tour/outside", 0.0)
    if error <= _MOST_ERROR and outside <= _MOST_OUTSIDE:
        return ""
    return (
        f"the predictor fits these devices badly: merges were predicted with an error of {100 * error:.1f} % (the "
        f"paper: under 6), and {100 * outside:.0f} % of the predictions were for accuracies outside of those it was "
        "made from. Its models should be like the devices': set exchange.lab or topology.public higher, or compare "
        "exchange.name = 'budgeted', which predicts nothing"
    )


def _predictor(devices: EncounterState, federation: Federation) -> Predictor | None:
    """What the policy predicts with; a laboratory's result is kept, so that a resumed run finds it again."""
    scenario = devices.scenario
    public = np.sort(scenario.public)
    laboratory = Lab(
        federation.gate(LAB_ROUND),
        scenario.strategy,
        scenario.task,
        devices.base,
        seed=scenario.seed,
        train=public,
        labels=scenario.labels[public],
        judge=np.sort(scenario.judging),
        progress=federation.progress,
        about=federation.about,
    )
    return scenario.policy.predictor(laboratory)
