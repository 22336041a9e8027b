"""One round of mining by hand, and every mode against a brute-force one written here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from wayfare.core.errors import ConfigError, WayfareError
from wayfare.places.client_photos import ClientPhotos
from wayfare.places.mining import FullMiner, LocalMiner, Miner, PartialMiner, RandomMiner, Triplets

# a query and four photographs on a line, and what the network makes of them
LINE = np.array([[0, 0], [10, 0], [25, 0], [30, 0], [100, 0]], float)
SEEN = np.array([[0.0], [3.0], [1.0], [0.5], [-2.0]], np.float32)
FIRST_ASKS = np.array([True, False, False, False, False])
ONE_CITY = np.zeros(5, np.int64)


class Network:
    """Hands out fixed features and remembers what it was asked for."""

    def __init__(self, features: np.ndarray) -> None:
        self.features, self.asked = features, []

    def __call__(self, photos: np.ndarray) -> np.ndarray:
        self.asked.append(photos.tolist())
        return self.features[photos]


def only(triplets: Iterator[Triplets]) -> tuple[int, int, list[int]]:
    (found,) = triplets
    (query,), (positive,), (negatives,) = found.query.tolist(), found.positive.tolist(), found.negatives.tolist()
    return query, positive, negatives


class Client:
    """A client and its miner."""

    def __init__(self, positions: np.ndarray, groups: np.ndarray, asks: np.ndarray, miner: Miner, **more: Any) -> None:
        self.miner, radii = miner, {"radius": miner.radius, "negative_radius": miner.negative_radius}
        self.photos = ClientPhotos(positions, groups, asks, **radii, **more)

    def triplets(self, embed: Any, rng: np.random.Generator, batch: int = 2) -> Iterator[Triplets]:
        return self.miner.triplets(self.photos, embed, rng, batch)

    def mine(self, queries: np.ndarray, embed: Any, rng: np.random.Generator) -> Triplets:
        return self.miner.mine(self.photos, queries, embed, rng)


@pytest.mark.parametrize("kind", [PartialMiner, FullMiner])
def test_a_round_by_hand(kind: type[PartialMiner]) -> None:
    rng = np.random.default_rng(0)
    network = Network(SEEN)
    # within 25 m: 1 and 2, and 2 looks more like the query; beyond: 3 and 4, and 3 is harder. Two have to do for five
    mining = kind()
    assert only(Client(LINE, ONE_CITY, FIRST_ASKS, mining).triplets(network, rng)) == (0, 2, [3, 4, 3, 4, 3])
    assert network.asked == [[0, 1, 2, 3, 4]]
    # within 10 m: only 1. Photograph 2 is neither positive nor negative
    mining = kind(radius=10, negatives=2)
    assert only(Client(LINE, ONE_CITY, FIRST_ASKS, mining).triplets(network, rng)) == (0, 1, [3, 4])
    # beyond 50 m: only 4
    mining = kind(radius=10, negative_radius=50, negatives=2)
    assert only(Client(LINE, ONE_CITY, FIRST_ASKS, mining).triplets(network, rng)) == (0, 1, [4, 4])


def test_an_epoch_of_images_by_hand() -> None:
    # 11 photographs, 3 of them usable queries: floor(11 / 2) = 5 batches are two passes of 2 + 1 triplets, and 2 more
    places = np.concatenate(
        (np.zeros((3, 2)), np.full((1, 2), 900.0), np.tile([[5.0, 0]], (3, 1)), LINE[3:] * 5, [[0, 600.0]] * 2)
    )
    asks = np.arange(11) < 4
    client = Client(places, np.zeros(11, np.int64), asks, PartialMiner(negatives=1, steps="images"))
    seen = np.arange(11, dtype=np.float32)[:, None]
    batches = list(client.triplets(Network(seen), np.random.default_rng(0), 2))
    assert [len(each.query) for each in batches] == [2, 1, 2, 1, 2]
    asked = np.concatenate([each.query for each in batches])
    assert sorted(asked[:3].tolist()) == sorted(asked[3:6].tolist()) == [0, 1, 2]
    assert [len(list(client.triplets(Network(seen), np.random.default_rng(0), b))) for b in (1, 3, 20)] == [11, 3, 1]
    queries = Client(places, np.zeros(11, np.int64), asks, PartialMiner(negatives=1))
    assert [len(each.query) for each in queries.triplets(Network(seen), np.random.default_rng(0), 2)] == [2, 1]
    with pytest.raises(ConfigError, match="'queries' or 'images'"):
        PartialMiner(steps="photos")  # type: ignore[arg-type]


def test_random_by_hand() -> None:
    network = Network(SEEN)
    miner = Client(LINE, ONE_CITY, FIRST_ASKS, RandomMiner(negatives=2))
    query, positive, negatives = only(miner.triplets(network, np.random.default_rng(0)))
    assert (query, positive, sorted(negatives)) == (0, 2, [3, 4])
    assert network.asked == [[0, 1, 2]]  # negatives are not looked at
    one = Client(LINE, ONE_CITY, FIRST_ASKS, RandomMiner(negatives=1))
    drawn = [only(one.triplets(network, np.random.default_rng(seed)))[2][0] for seed in range(200)]
    assert set(drawn) == {3, 4} and 70 < drawn.count(3) < 130


def test_equally_near_ones_in_their_order() -> None:
    miner = Client(LINE, ONE_CITY, FIRST_ASKS, PartialMiner(negatives=2))
    same = Network(np.zeros((5, 3), np.float32))
    assert only(miner.triplets(same, np.random.default_rng(0))) == (0, 1, [3, 4])


def test_another_city_has_negatives_only() -> None:
    cities = np.array([0, 1, 0, 1, 0])  # 1 is in another city now, at coordinates within 25 m
    miner = Client(LINE, cities, FIRST_ASKS, PartialMiner(negatives=3))
    assert only(miner.triplets(Network(SEEN), np.random.default_rng(0))) == (0, 2, [3, 4, 1])


def test_photographs_without_position_are_left_alone() -> None:
    places = LINE.copy()
    places[[2, 3]] = np.nan
    network = Network(SEEN)
    client = Client(places, ONE_CITY, FIRST_ASKS, PartialMiner())
    assert only(client.triplets(network, np.random.default_rng(0))) == (0, 1, [4] * 5)
    assert network.asked == [[0, 1, 4]]


def test_pairs_of_frames() -> None:
    nowhere = np.full((5, 2), np.nan)
    pairs = np.array([[0, 4], [0, 1], [0, 4], [3, 0]])  # the last is not of a query and the database
    miner = Client(nowhere, ONE_CITY, FIRST_ASKS, PartialMiner(negatives=2), pairs=pairs)
    assert only(miner.triplets(Network(SEEN), np.random.default_rng(0))) == (0, 4, [3, 2])


def test_who_cannot_be_trained_says_why() -> None:
    asks = np.array([True, False, False, False, True])  # the last has nothing within 25 m
    all_near = np.array([[0, 0], [1, 0], [2, 0], [3, 0], [500, 0]], float)  # the first has nothing beyond
    miner = Client(all_near, ONE_CITY, asks, PartialMiner())
    assert miner.photos.usable.tolist() == [] and miner.photos.has_positive.tolist() == [True, False]
    with pytest.raises(WayfareError, match=r"of 2 queries .* 1 have no .* within 25 m and 1 have none beyond 25 m"):
        next(miner.triplets(Network(SEEN), np.random.default_rng(0)))
    nobody = Client(np.empty((0, 2)), np.empty(0, np.int64), np.empty(0, bool), PartialMiner())
    with pytest.raises(WayfareError, match="of 0 queries"):
        next(nobody.triplets(Network(SEEN), np.random.default_rng(0)))
    assert miner.photos.apart(np.array([0]), np.array([1, 4])).tolist() == [[False, False]]  # 4 is a query


# ---- a client of 300 photographs in two cities

PHOTOS = 300


def client() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    positions, cities = rng.uniform(0, 200, (PHOTOS, 2)), rng.integers(0, 2, PHOTOS)
    features = rng.standard_normal((PHOTOS, 16)).astype(np.float32)
    features[::7] = features[0]  # ties
    return positions, cities, rng.random(PHOTOS) < 0.3, features, rng.integers(-1, 12, PHOTOS)


POSITIONS, CITIES, ASKS, FEATURES, SEQUENCE = client()


def metres(query: int, photo: int) -> float:
    return float(np.hypot(*(POSITIONS[query] - POSITIONS[photo]))) if CITIES[query] == CITIES[photo] else np.inf


def likest(query: int, photos: list[int], count: int) -> list[int]:
    away = {p: float(((FEATURES[query].astype(float) - FEATURES[p].astype(float)) ** 2).sum()) for p in photos}
    best = sorted(photos, key=lambda p: (away[p], p))[:count]
    return [best[place % len(best)] for place in range(count)]


def far(query: int, among: list[int], radius: float = 25) -> list[int]:
    return [p for p in among if not ASKS[p] and metres(query, p) > radius]


DATABASE = np.flatnonzero(~ASKS).tolist()
USABLE = [q for q in np.flatnonzero(ASKS).tolist() if any(metres(q, p) <= 25 for p in DATABASE)]


def mined(mining: Miner, seed: int = 0, batch: int = 2) -> tuple[list[Triplets], Network]:
    network = Network(FEATURES)
    miner = Client(POSITIONS, CITIES, ASKS, mining, sequence=SEQUENCE)
    return list(miner.triplets(network, np.random.default_rng(seed), batch)), network


@pytest.mark.parametrize("mining", [PartialMiner(), FullMiner(), PartialMiner(radius=15, negatives=12)], ids=str)
def test_the_hardest_of_all(mining: Miner) -> None:
    """Pools larger than what the client has are the whole database."""
    batches, _ = mined(mining)
    usable = [q for q in USABLE if any(metres(q, p) <= mining.radius for p in DATABASE)]
    assert 40 < len(usable) < ASKS.sum()
    assert sorted(np.concatenate([b.query for b in batches]).tolist()) == usable
    assert [len(b.query) for b in batches] == [2] * (len(usable) // 2) + [1] * (len(usable) % 2)
    for batch in batches:
        for query, positive, negatives in zip(*(part.tolist() for part in batch)):
            assert positive == likest(query, [p for p in DATABASE if metres(query, p) <= mining.radius], 1)[0]
            assert negatives == likest(query, far(query, DATABASE), mining.negatives)
        assert batch.photos.tolist() == [*batch.query, *batch.positive, *batch.negatives.ravel()]


def test_the_hardest_of_a_pool() -> None:
    batches, network = mined(PartialMiner(pool=20, refresh=10, negatives=3))
    queries = np.concatenate([b.query for b in batches]).tolist()
    assert len(network.asked) == -(-len(USABLE) // 10)
    for number, asked in enumerate(network.asked):
        cached = queries[10 * number : 10 * number + 10]
        positives = {p for q in cached for p in DATABASE if metres(q, p) <= 25}
        pool = set(asked) - set(cached) - positives  # what is certain of it: 20 but for those that are positives
        assert pool < set(DATABASE) and 10 <= len(pool) <= 20
    assert network.asked[0] != network.asked[1]
    for batch in batches:
        for query, negatives in zip(batch.query.tolist(), batch.negatives.tolist()):
            assert all(metres(query, p) > 25 for p in negatives)
    everything = {
        q: n for b in mined(PartialMiner(negatives=3))[0] for q, n in zip(b.query.tolist(), b.negatives.tolist())
    }
    different = [everything[q] != n for b in batches for q, n in zip(b.query.tolist(), b.negatives.tolist())]
    assert np.mean(different) > 0.5


def test_the_pool_itself_is_searched_exactly() -> None:
    """A pool of its own for each query, known because nothing else is embedded."""
    miner = Client(POSITIONS, CITIES, ASKS, PartialMiner(pool=20, negatives=3))
    for seed, query in enumerate(USABLE[:20]):
        network = Network(FEATURES)
        found = miner.mine(np.array([query]), network, np.random.default_rng(seed))
        pool = np.random.default_rng(seed).choice(np.array(DATABASE), 20, replace=False).tolist()
        assert found.negatives[0].tolist() == likest(query, far(query, pool), 3)
        positives = [p for p in DATABASE if metres(query, p) <= 25]
        assert network.asked == [sorted({query, *pool, *positives})]


def test_full_remembers_its_hard_negatives() -> None:
    """Each round adds a few random photographs to the hardest so far, so in the end they are the hardest of all."""
    miner = Client(POSITIONS, CITIES, ASKS, FullMiner(pool=20, negatives=4))
    network, rng = Network(FEATURES), np.random.default_rng(1)
    queries = np.array(USABLE[:20])
    first = miner.mine(queries, network, rng).negatives.tolist()
    for _ in range(150):
        last = miner.mine(queries, network, rng).negatives.tolist()
    hardest = [likest(query, far(query, DATABASE), 4) for query in USABLE[:20]]
    assert last == hardest and first != hardest
    assert network.asked[0] == sorted([*USABLE[:20], *DATABASE])


def test_random_negatives_are_any_that_are_far() -> None:
    seen: dict[int, set[int]] = {query: set() for query in USABLE}
    for seed in range(60):
        for batch in mined(RandomMiner(negatives=10), seed)[0]:
            for query, negatives in zip(batch.query.tolist(), batch.negatives.tolist()):
                assert len(set(negatives)) == 10
                seen[query].update(negatives)
    for query, photos in seen.items():
        assert photos <= set(far(query, DATABASE)) and len(photos) > 0.8 * len(far(query, DATABASE))


def test_only_the_closest_sequences() -> None:
    batches, network = mined(LocalMiner(sequences=3, per_sequence=4, negatives=3))
    for batch in batches:
        for query, positive, negatives in zip(*(part.tolist() for part in batch)):
            here = [p for p in DATABASE if CITIES[p] == CITIES[query] and SEQUENCE[p] >= 0]
            closest = {s: min(metres(query, p) for p in here if SEQUENCE[p] == s) for s in set(SEQUENCE[here].tolist())}
            area = sorted(closest, key=lambda s: (closest[s], s))[:3]
            drawn = [p for p in network.asked[0] if p in here]  # those drawn, and positives of any query
            assert all(CITIES[p] == CITIES[query] and SEQUENCE[p] in area and p in drawn for p in negatives)
            assert positive in likest(query, [p for p in DATABASE if metres(query, p) <= 25], 1)
            assert negatives == likest(query, negatives, len(set(negatives))) + negatives[len(set(negatives)) :]
    # with all photographs of all sequences of the city, it is the hardest of the city
    batches, _ = mined(LocalMiner(sequences=100, per_sequence=1000))
    for batch in batches:
        for query, negatives in zip(batch.query.tolist(), batch.negatives.tolist()):
            city = [p for p in DATABASE if CITIES[p] == CITIES[query] and SEQUENCE[p] >= 0]
            assert negatives == likest(query, far(query, city), 5)


def test_an_area_by_hand() -> None:
    """Two sequences east, one west; the query stands among the first. One photograph of each sequence is drawn."""
    x = np.array([0.0, 10, 30, 60, 80, -900, -950])
    sequence = np.array([9, 0, 0, 1, 1, 2, 2])
    features = np.array([[0], [0], [4], [3], [2], [1], [1]], np.float32)
    asks = np.arange(7) == 0
    seen = set()
    for seed in range(40):
        miner = Client(
            np.stack((x, 0 * x), 1),
            0 * sequence,
            asks,
            LocalMiner(sequences=2, per_sequence=1, negatives=2),
            sequence=sequence,
        )
        query, positive, negatives = only(miner.triplets(Network(features), np.random.default_rng(seed)))
        assert (query, positive) == (0, 1)
        seen.add(tuple(negatives))
    # of sequence 0 either 1, which is no negative, or 2; of sequence 1 either 3 or 4, both harder; never of sequence 2
    assert seen == {(3, 3), (4, 4), (3, 2), (4, 2)}


def test_caches_are_made_when_they_are_needed() -> None:
    network = Network(FEATURES)
    triplets = Client(POSITIONS, CITIES, ASKS, PartialMiner(refresh=10)).triplets(network, np.random.default_rng(0), 5)
    next(triplets), next(triplets)
    assert len(network.asked) == 1
    next(triplets)
    assert len(network.asked) == 2  # with the network as it is after ten queries


@pytest.mark.parametrize(
    "mining",
    [PartialMiner(pool=20, refresh=9), FullMiner(pool=20), RandomMiner(), LocalMiner(sequences=2)],
    ids=str,
)
def test_the_same_seed_the_same_triplets(mining: Miner, monkeypatch: pytest.MonkeyPatch) -> None:
    once = [batch.photos.tolist() for batch in mined(mining)[0]]
    monkeypatch.setattr("wayfare.places.mining.BLOCK", 500)
    monkeypatch.setattr("wayfare.places.nearest.BLOCK", 16)
    assert [batch.photos.tolist() for batch in mined(mining)[0]] == once
    assert [batch.photos.tolist() for batch in mined(mining, seed=1)[0]] != once


def test_apart() -> None:
    miner = Client(POSITIONS, CITIES, ASKS, PartialMiner())
    queries, photos = np.array(USABLE[:7]), np.arange(PHOTOS)
    expected = [[not ASKS[p] and metres(q, p) > 25 for p in range(PHOTOS)] for q in queries]
    assert miner.photos.apart(queries, photos).tolist() == expected


def test_settings_that_cannot_be() -> None:
    for wrong in ({"pool": 0}, {"negatives": 0}, {"refresh": 0}, {"radius": 30.0}, {"radius": -1.0}):
        with pytest.raises(ConfigError):
            PartialMiner(**wrong)  # type: ignore[arg-type]
    for setting in ("sequences", "per_sequence"):
        with pytest.raises(ConfigError, match=f"mining.{setting} = 0: expected at least 1"):
            LocalMiner(**{setting: 0})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="needs photographs with positions and sequences"):
        next(Client(LINE, ONE_CITY, FIRST_ASKS, LocalMiner()).triplets(Network(SEEN), np.random.default_rng(0)))


def test_a_broken_network_is_named() -> None:
    miner = Client(LINE, ONE_CITY, FIRST_ASKS, PartialMiner())
    with pytest.raises(WayfareError, match="not finite"):
        next(miner.triplets(Network(SEEN * np.nan), np.random.default_rng(0)))
    with pytest.raises(ValueError, match="5 photographs but 4 descriptors"):
        next(miner.triplets(lambda photos: SEEN[photos][:-1], np.random.default_rng(0)))
