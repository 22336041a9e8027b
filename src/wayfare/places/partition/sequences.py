"""Sequences: every client has something of every city, sequences dealt at random (FedVPR's "Random", Sec. 4.1).

The sequences of each city are shuffled and dealt out, queries and database apart, as evenly as they go. Where a city
has too few for every client to get `least` of each kind, they are dealt out again and again: clients then share
sequences, but none has one twice. All clients have the same number of sequences, give or take one.

One query and one database sequence of each city is what fits Tab. 1: its 64 sequences per client of about 21 cities are
more than 42, and fewer than the 84 that two of each would need. The few sequences of a city that a client gets are
seldom of the same place, so few of its queries can be trained on; that is what makes this split a hard one. A city with
fewer than `least` query or database sequences takes no part. There are no groups: no client is of one city.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Partition
from wayfare.core.seeds import rng_for
from wayfare.partition.split import Split
from wayfare.places.data.place_photos import PlacePhotos
from wayfare.places.partition.proximity import Proximity
from wayfare.places.partition.sequenced import Sequenced, check_settings, sequenced


@dataclass(frozen=True)
class Sequences(Partition):
    """`clients` clients, or 0 for as many as proximity with `radius` has, with `least` and `least` of each city."""

    clients: int = 0
    radius: float = 1000.0
    least: int = 1

    source: ClassVar[str] = "photos"

    def __post_init__(self) -> None:
        check_settings(self.least, self.radius, self.clients)

    def __call__(self, photos: PlacePhotos, rng: np.random.Generator) -> Split:
        pool = sequenced(photos)
        seed = int(rng.integers(2**63))
        clients = self.clients or sum(map(len, Proximity(self.radius).discs(pool, seed).values()))
        if not clients:
            raise ConfigError(
                f"sequences: clients = 0 takes the number from proximity, which has none with radius = {self.radius:g} "
                "m; say how many, or raise radius"
            )
        hands: list[list[np.ndarray]] = [[] for _ in range(clients)]
        turn = 0  # whose it is to get one more, where a city does not go up evenly
        for group, sequences in pool.cities():
            decks = _decks(pool, rng_for(seed, *group).permutation(sequences))
            if min(map(len, decks)) >= self.least:
                for deck in decks:
                    turn = _deal(deck, hands, self.least, turn)
        if not hands[0]:
            raise ConfigError(
                f"sequences: no city has {self.least} query and {self.least} database sequences; lower least"
            )
        return pool.split(self, rng, [np.concatenate(hand) for hand in hands], None)


def _decks(pool: Sequenced, shuffled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Query and database sequences; those with photographs of both kinds go where there are fewer."""
    query, database = pool.query[shuffled], pool.database[shuffled]
    asking, answering, either = shuffled[query & ~database], shuffled[database & ~query], shuffled[query & database]
    ask = int(np.clip((len(answering) + len(either) - len(asking) + 1) // 2, 0, len(either)))
    return np.concatenate([asking, either[:ask]]), np.concatenate([answering, either[ask:]])


def _deal(deck: np.ndarray, hands: list[list[np.ndarray]], least: int, turn: int) -> int:
    """Deal a shuffled deck to all hands, going through it again if it is too short; whose turn it is then."""
    clients = len(hands)
    share, more = divmod(max(len(deck), clients * least), clients)
    at = 0
    for k in range(clients):
        number = share + (k < more)
        hands[(turn + k) % clients].append(deck[np.arange(at, at + number) % len(deck)])
        at += number
    return (turn + more) % clients
