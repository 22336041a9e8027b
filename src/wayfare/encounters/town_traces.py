"""Many people in one city for a day, without a photograph: traces to study encounters with, made on the spot."""

from __future__ import annotations

import math

from wayfare.core.errors import ConfigError
from wayfare.encounters.traces import Traces
from wayfare.town import map
from wayfare.town.model import City
from wayfare.town.walkers import population

_BLOCKS = ((100, 6), (10_000, 10))  # up to so many people, so many blocks in a row
_MOST, _PER_BLOCK = 100_000, 100  # people in all; and for each block, where there are more than these
_SIGNAGE = 10


def crowd(people: int, seed: int = 0) -> Traces:
    """So many people who move about: six of ten tourists, three residents, one driving; and signage at the sights."""
    if not 2 <= people <= _MOST:
        raise ConfigError(f"a crowd of {people} people: expected 2 to {_MOST:,}")
    city = city_of(people, seed)
    residents, vehicles = round(0.3 * people), round(0.1 * people)
    walkers = population(
        city, residents, tourists=people - residents - vehicles, vehicles=vehicles, signage=_SIGNAGE, shots=0, seed=seed
    )
    return Traces(
        walkers.names,
        walkers.slot,
        start=walkers.start,
        date=walkers.date,
        positions=walkers.positions,
        stationary=walkers.stationary,
        origin=(city.latitude, city.longitude),
        geographic=True,
    )


def city_of(people: int, seed: int = 0) -> City:
    """The city in which a crowd of so many people moves."""
    blocks = next((blocks for most, blocks in _BLOCKS if people <= most), math.ceil(math.sqrt(people / _PER_BLOCK)))
    return map.build(map.CITIES[0].name, seed, blocks)
