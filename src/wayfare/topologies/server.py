"""One server and its clients: each round a sample of them trains, and the server merges what they send."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wayfare.core.bundle import Bundle
from wayfare.core.federation import Federation, Round
from wayfare.core.seeds import rng_for
from wayfare.errors import ConfigError, QuorumError


@dataclass(frozen=True)
class Server:
    """A star."""

    per_round: int = 0  # clients asked each round; 0 asks all

    def start(self, federation: Federation, state: Bundle) -> Bundle:
        return Bundle(state.tensors, {**state.values, "population": len(federation.population)})

    def play(self, federation: Federation, state: Bundle, first: int) -> Iterator[Round]:
        strategy = federation.strategy
        for number in range(first, federation.rounds + 1):
            traffic = federation.traffic(number)
            requests, void = self.ahead(federation, state, number), False
            try:
                state = strategy.merge(state, traffic.ask("train", requests, strategy.expects(state)))
            except QuorumError:
                void = True
            yield Round(number, state, traffic, void)

    def ahead(self, federation: Federation, state: Bundle, number: int) -> Iterator[tuple[str, Bundle]]:
        """What devices are told in that round if this is the state before it."""
        chosen, send = self._chosen(federation, number), federation.strategy.send
        return ((id, send(state, id)) for id in chosen)

    def _chosen(self, federation: Federation, number: int) -> list[str]:
        everyone, rng = federation.population, rng_for(federation.seed, number, "choose")
        chosen = federation.strategy.choose(everyone.sizes, self.per_round or len(everyone), rng)
        return [everyone.id(place) for place in chosen]

    def check(self, clients: int) -> None:
        """Refuse what cannot be asked of this many clients."""
        if not 0 <= self.per_round <= clients:
            raise ConfigError(
                f"topology.per_round = {self.per_round}, but {clients} clients take part: ask fewer, or 0 for all"
            )
