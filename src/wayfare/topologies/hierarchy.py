"""Two tiers of servers (HierFAVG; H-FL in FedVPR, Sec. 3): each group of clients has a server and a model of its own.

In every round each group's server runs a round with its clients; every `interval` rounds (T_s), and after the last, the
groups report to the server above, which merges them and gives them the common model again.
A group server's state is not a reply: `report` turns one into the other, `adopt` goes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError, MergeError, QuorumError
from wayfare.core.federation import Federation, Round
from wayfare.core.protocols import Population, Strategy, Topology
from wayfare.core.seeds import rng_for

_OF = "@"  # section "model@3" is the model of group 3


@dataclass(frozen=True)
class Hierarchy(Topology):
    """Groups of clients under servers under one server."""

    groups: int = 0  # 0: the data's own (cities, ..., or the class a client has most of); k: k random ones
    interval: int = 1  # T_s, rounds between two meetings of the servers
    per_group: int = 0  # clients asked in each group and round; 0 asks all

    @property
    def needs_groups(self) -> bool:
        return self.groups == 0

    def start(self, federation: Federation, state: Bundle) -> Bundle:
        """The top server's state, and a copy for each group."""
        members = self.members(federation.population, federation.seed)
        top = Bundle(state.tensors, {**state.values, "population": len(federation.population)})
        return _join(top, [top for _ in members], [0] * len(members))

    def rounds(self, federation: Federation, state: Bundle, first: int) -> Iterator[Round]:
        strategy, relay = federation.strategy, federation.strategy.relay()
        members = self.members(federation.population, federation.seed)
        sizes = federation.population.sizes
        for number in range(first, federation.rounds + 1):
            top, groups, examples = _split(state, len(members))
            gate = federation.gate(number)
            lost, warnings = 0, list[str]()
            for g, member in enumerate(members):
                rng = rng_for(federation.seed, number, "choose", g)
                chosen = strategy.choose(sizes[member], self.per_group or len(member), rng)
                ids = [federation.population.id(int(member[i])) for i in chosen]
                server = Bundle(groups[g].tensors, {**groups[g].values, "population": len(member)})
                before, gate.group = gate.examples, str(g)
                try:
                    groups[g] = gate.merge(relay, server, partial(_requests, relay, server, ids))
                    examples[g] += gate.examples - before
                except QuorumError:
                    lost += 1  # this group stays where it was
                except MergeError as error:
                    lost += 1
                    warnings.append(f"group {g}: {error}")
            void = lost == len(members)
            if number % self.interval == 0 or number == federation.rounds:
                reports = ((str(g), relay.report(groups[g], examples[g])) for g in range(len(groups)) if examples[g])
                if any(examples):
                    top = strategy.merge(top, reports)
                groups = [relay.adopt(group, strategy.send(top, str(g))) for g, group in enumerate(groups)]
                examples = [0] * len(groups)
            state = _join(top, groups, examples)
            yield Round(number, state, gate, void, warnings=warnings)

    def members(self, population: Population, seed: int) -> list[np.ndarray]:
        """The positions of each group's clients."""
        if self.groups:
            return np.array_split(rng_for(seed, "groups").permutation(len(population)), self.groups)
        if population.groups is None:
            raise ConfigError("topology.groups = 0 takes the data's own groups, but this partition has no groups")
        names = np.asarray(population.groups)
        return [np.flatnonzero(names == name) for name in sorted(set(population.groups))]

    def check(self, clients: int) -> None:
        """Refuse what cannot be asked of this many clients."""
        if self.interval < 1:
            raise ConfigError(f"topology.interval = {self.interval}, but servers must meet: at least 1")
        if not 0 <= self.groups <= clients:
            raise ConfigError(f"topology.groups = {self.groups}, but {clients} clients take part")
        if self.per_group < 0:
            raise ConfigError(f"topology.per_group = {self.per_group}, but 0 (all) or more clients can be asked")


def _requests(strategy: Strategy, server: Bundle, ids: list[str]) -> Iterator[tuple[str, Bundle]]:
    return ((id, strategy.send(server, id)) for id in ids)


def _join(top: Bundle, groups: list[Bundle], examples: list[int]) -> Bundle:
    """All servers' states as one bundle, so that a checkpoint holds them."""
    tensors, values = dict(top.tensors), dict(top.values)
    for g, group in enumerate(groups):
        tensors |= {f"{section}{_OF}{g}": weights for section, weights in group.tensors.items()}
        values[f"examples{_OF}{g}"] = examples[g]
    return Bundle(tensors, values)


def _split(state: Bundle, groups: int) -> tuple[Bundle, list[Bundle], list[int]]:
    top = {section: weights for section, weights in state.tensors.items() if _OF not in section}
    values = {name: value for name, value in state.values.items() if _OF not in name}
    parts = [
        {name.removesuffix(f"{_OF}{g}"): w for name, w in state.tensors.items() if name.endswith(f"{_OF}{g}")}
        for g in range(groups)
    ]
    counts = [int(state.number(f"examples{_OF}{g}")) for g in range(groups)]
    return Bundle(top, values), [Bundle(part, dict(values)) for part in parts], counts
