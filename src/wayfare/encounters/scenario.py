"""The fixed parts of an encounter run: devices and their contacts, interests, liars, and costs of an exchange.

None of it changes from slot to slot; `state` holds what changes.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from wayfare.core.bundle import Bundle, Value, Weights
from wayfare.core.errors import ConfigError
from wayfare.core.exchange import PEER, DeviceFacts
from wayfare.core.federation import Federation
from wayfare.core.seeds import rng_for
from wayfare.encounters.areas import Areas, GivenArea, areas_of
from wayfare.encounters.coding import ModelCoding
from wayfare.encounters.laboratory import expected_tally
from wayfare.encounters.links import RadioLink

if TYPE_CHECKING:
    from wayfare.encounters.topology import Encounters

UNLIMITED = 2**40  # without a limit


def limit_of(policy: int, signage: int = 0) -> int:
    """The budget of a device by the policy's limit, and by that of signage if it is stationary."""
    if signage:
        return signage if signage > 0 else UNLIMITED
    return UNLIMITED if policy < 0 else policy


def merge_message(state: Bundle, report: Bundle | None, values: dict[str, Value], at: torch.Tensor | None) -> Bundle:
    """For the programs `meet` and `look`; `at` are the pictures to test on, where `values` names no test."""
    tensors, values = dict(state.tensors), dict(values)
    if report is not None:
        tensors |= {section + PEER: weights for section, weights in report.tensors.items()}
        values["n" + PEER] = int(report.number("n"))
    if at is not None:
        tensors["samples"] = {"at": at}
    return Bundle(tensors, values)


class Scenario:
    """The devices of a tour, in one order: the clients, then those that stand still (signage)."""

    def __init__(self, settings: Encounters, federation: Federation) -> None:
        if federation.exchange is None or federation.task is None or federation.initial is None:
            raise ConfigError("the topology 'encounters' needs a task and a policy: set [exchange] name = 'fedtour'")
        self.settings, self.policy, self.limits = settings, federation.exchange, federation.policy
        self.strategy, self.task, self.seed = federation.strategy, federation.task, federation.seed
        if "tally" not in self.task.provides:
            raise ConfigError(f"{type(self.task).__name__} cannot measure a model class by class (no tally)")
        if settings.slots > 1 and self.policy.delegates:
            raise ConfigError("set topology.slots = 1 with a policy that delegates: devices train in every slot")
        if self.policy.delegates and (settings.resume or settings.form != "fp32"):
            raise ConfigError(
                "topology.resume and topology.form are for policies that merge; this one delegates training"
            )
        self._client, self._clients = federation.client, len(federation.population)
        self.contacts = settings.participants(self._clients, self.seed)
        self.ids = [federation.population.id(i) for i in range(self._clients)]
        self.ids += [f"s{i}" for i in range(len(self.contacts.devices) - self._clients)]
        self.initial = federation.initial()  # the strategy's state with the untrained network: every state has its form
        self.probe, self.judging, self.public = np.split(
            federation.reserved, [settings.probe, settings.probe + settings.judge]
        )
        if settings.public_is_dealt:
            dealt = np.setdiff1d(np.arange(self.task.samples), federation.reserved)
            self.public = rng_for(self.seed, "public").permutation(dealt)[: settings.public]
        liars = rng_for(self.seed, "liars").permutation(self._clients)[: round(settings.liars * self._clients)]
        self.liars = np.isin(np.arange(len(self.ids)), liars)

    # ---- what devices hold and need

    @cached_property
    def areas(self) -> Areas:
        """Who cares about what."""
        settings = self.settings
        given = [GivenArea.read(text) for text in settings.given_areas]
        return areas_of(
            self.contacts, given, settings.areas, settings.area_objects, classes=self.task.classes, seed=self.seed
        )

    @cached_property
    def samples(self) -> list[np.ndarray]:
        """What each device trains on: nothing, if it is signage."""
        held, none = self._client, np.empty(0, np.int64)
        return [held(id).train if held and i < self._clients else none for i, id in enumerate(self.ids)]

    @cached_property
    def examples(self) -> np.ndarray:
        """How much a device's model weighs where examples count."""
        return np.array([max(1, len(samples)) for samples in self.samples], np.int64)

    @cached_property
    def labels(self) -> np.ndarray:
        """The class of every picture of the pool."""
        labels = self.task.labels
        if labels is None or labels.ndim != 1:
            raise ConfigError(f"encounters need one class per sample, which {type(self.task).__name__} does not have")
        return labels

    @cached_property
    def facts(self) -> DeviceFacts:
        """All but the scores, which are known when every device has its first model."""
        count, settings = len(self.ids), self.settings
        limit = np.full(count, limit_of(self.policy.limit), np.int64)
        limit[self.contacts.stationary] = limit_of(self.policy.limit, settings.signage_limit)
        labels = [np.bincount(self.labels[held], minlength=len(self.task.classes)) for held in self.samples]
        return DeviceFacts(
            limit=limit,
            score=np.full(count, math.nan),
            examples=self.examples,
            labels=np.array(labels),
            targets=self.areas.targets,
            stationary=self.contacts.stationary,
        )

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
    def link(self) -> RadioLink:
        """What exchanges cost."""
        settings = self.settings
        return RadioLink(
            size=self.coding.nbytes(self.strategy.report(self.initial, 1)),
            rate=settings.rate,
            setup=settings.setup,
            joules_per_megabyte=settings.joules_per_megabyte,
            joules_per_link=settings.joules_per_link,
            there_and_back=self.policy.delegates,
            resumes=settings.resume,
            byte_limit=1e6 * settings.megabytes,
        )

    @property
    def coding(self) -> ModelCoding:
        """How models travel."""
        return ModelCoding(self.settings.form, self.settings.share)

    # ---- messages to devices

    @cached_property
    def tally(self) -> dict[str, Weights]:
        """What a device replies that has tested a model: right and all answers by class."""
        return expected_tally(len(self.task.classes))

    def message(self, me: int, state: Bundle, report: Bundle | None, extra: dict[str, Any] | None = None) -> Bundle:
        """For the programs `meet` and `look`: the device's own state, what a peer sent, the pictures to test it on."""
        values = {**self.initial.values, "n": int(self.examples[me]), **(extra or {})}
        at = self.probes[me] if self.policy.scored and "test" not in values else None
        return merge_message(state, report, values, at)

    def iterations(self, device: int) -> int:
        """Steps that a device trains after a merge, or after others did: signage has nothing to train on."""
        steps = self.policy.delegated_steps() if self.policy.delegates else self.settings.iterations
        return steps if len(self.samples[device]) else 0
