"""One server and its clients: each round a sample of them trains, and the server merges what they send.

With a [clock] a round lasts until the last reply that counts is there (`cohort.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError, MergeError, QuorumError
from wayfare.core.federation import Federation, Round
from wayfare.core.protocols import Topology
from wayfare.core.seeds import rng_for
from wayfare.topologies import timing
from wayfare.topologies.cohort import Cohort, cohort


@dataclass(frozen=True)
class Server(Topology):
    """A star."""

    per_round: int = 0  # clients asked each round; 0 asks all

    timed: ClassVar[bool] = True

    def start(self, federation: Federation, state: Bundle) -> Bundle:
        state = Bundle(state.tensors, {**state.values, "population": len(federation.population)})
        return state if federation.timetable is None else timing.begun(state)

    def rounds(self, federation: Federation, state: Bundle, first: int) -> Iterator[Round]:
        strategy = federation.strategy
        for number in range(first, federation.rounds + 1):
            gate, void, warnings = federation.gate(number, self.expected(federation)), False, list[str]()
            asked = self._cohort(federation, state, number)
            if asked is not None:
                asked.tell(gate, federation, state)
            try:
                state = gate.merge(strategy, state, partial(self.next_requests, federation, state, number))
            except QuorumError:
                void = True
            except MergeError as error:
                void, warnings = True, [str(error)]
            round = Round(number, state, gate, void, warnings=warnings)
            if asked is not None:
                round = asked.recorded(round)
                state = round.state
            yield round

    def next_requests(self, federation: Federation, state: Bundle, round: int) -> Iterator[tuple[str, Bundle]]:
        send, asked = federation.strategy.send, self._cohort(federation, state, round)
        if asked is not None:
            return ((trip.device, timing.message(send(state, trip.device), trip)) for trip in asked.merged)
        chosen = self._chosen(federation, round)
        return ((id, send(state, id)) for id in chosen)

    def _cohort(self, federation: Federation, state: Bundle, round: int) -> Cohort | None:
        """Who is asked, and how long that takes; None without a clock."""
        if federation.timetable is None:
            return None
        return cohort(federation, federation.timetable, state, round, self.expected(federation))

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
