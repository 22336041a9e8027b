"""One server and its clients: each round a sample of them trains, and the server merges what they send."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError, MergeError, QuorumError
from wayfare.core.federation import Federation, Round
from wayfare.core.protocols import Topology
from wayfare.core.seeds import rng_for


@dataclass(frozen=True)
class Server(Topology):
    """A star."""

    per_round: int = 0  # clients asked each round; 0 asks all

    def start(self, federation: Federation, state: Bundle) -> Bundle:
        return Bundle(state.tensors, {**state.values, "population": len(federation.population)})

    def rounds(self, federation: Federation, state: Bundle, first: int) -> Iterator[Round]:
        strategy = federation.strategy
        for number in range(first, federation.rounds + 1):
            gate, void, warnings = federation.gate(number, self.expected(federation)), False, list[str]()
            try:
                state = gate.merge(strategy, state, partial(self.next_requests, federation, state, number))
            except QuorumError:
                void = True
            except MergeError as error:
                void, warnings = True, [str(error)]
            yield Round(number, state, gate, void, warnings=warnings)

    def next_requests(self, federation: Federation, state: Bundle, round: int) -> Iterator[tuple[str, Bundle]]:
        chosen, send = self._chosen(federation, round), federation.strategy.send
        return ((id, send(state, id)) for id in chosen)

    def _chosen(self, federation: Federation, number: int) -> list[str]:
        everyone, rng = federation.population, rng_for(federation.seed, number, "choose")
        expected, aggregation = self.expected(federation), federation.aggregation
        if aggregation.private:
            ids = [everyone.id(place) for place in range(len(everyone))]
            if (sampled := aggregation.choose(ids, federation.context(number, expected))) is not None:
                return sampled
        return [everyone.id(place) for place in federation.strategy.choose(everyone.sizes, expected, rng)]

    def expected(self, federation: Federation) -> int:
        return self.per_round or len(federation.population)

    def check(self, clients: int) -> None:
        """Refuse what cannot be asked of this many clients."""
        if not 0 <= self.per_round <= clients:
            raise ConfigError(
                f"topology.per_round = {self.per_round}, but {clients} clients take part: ask fewer, or 0 for all"
            )
