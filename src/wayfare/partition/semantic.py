"""Semantic: clients differ in the meaning of their samples (federated scene-graph benchmark, Sec. 3).

Samples with several labels have no single class by which to divide them. So they are clustered by their category
tensors (`partition.semantics`) with K-means, and every cluster is reduced to the size of the smallest by random
selection (`balance = false`: the pool is as large, but drawn from all samples, so that clusters keep their shares). The
remaining samples, the pool, are divided among the clients with the cluster as their class:

    random      shuffled and cut into equal parts
    shard       each client has `shards` of the clusters: 1 is strictly non-IID, all of them is IID. Clients with the
                same clusters follow each other, and the larger parts of a cluster go to its first holders, as in the
                authors' files
    dirichlet   each client has a mix of clusters from a symmetric Dirichlet with `alpha`, and equally many samples

With one seed, the clusters and the pool are the same for every rule, so that rules can be compared. In the paper the
splits use different samples: `pool = "own"` draws, as its authors did, one pool for random, one for each shard split
and one for all Dirichlet splits.

K-means finds local optima, and the paper's clusters are not the best one: to get those, use its `centroids`. Without
centroids, the best of `n_init` starts is used. `clusters = 0` takes the number from 2 to `most` with the largest mean
silhouette of a sample; all values are in the split's provenance.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from threadpoolctl import threadpool_limits

from wayfare.core.errors import ConfigError, DataError, unknown
from wayfare.core.protocols import Partition, Population
from wayfare.core.seeds import rng_for, seed_for
from wayfare.partition.centroids import Centroids, check_fits, read_centroids
from wayfare.partition.dirichlet import Dirichlet
from wayfare.partition.heterogeneity import counts
from wayfare.partition.random import Random
from wayfare.partition.semantics import Categories, as_categories
from wayfare.partition.shards import Shards
from wayfare.partition.split import Split, check_whole, deal, even, origin, owners

Rule = Literal["random", "shard", "dirichlet"]
Pool = Literal["shared", "own"]
_SILHOUETTE_SAMPLE = 2000
_SPARSE = 0.25  # share of nonzero values below which K-means is faster on a sparse matrix


@dataclass(frozen=True)
class Clusters:
    """Which of n clusters each sample is in."""

    labels: np.ndarray  # int64 (N,)
    centroids: np.ndarray  # float64 (n, D)
    names: tuple[str, ...]
    inertia: float  # sum of squared distances to the own centroid
    silhouettes: dict[int, float] = field(default_factory=dict)  # by number of clusters, where it was to be chosen
    sha256: str = ""  # of the file with the centroids, where they were given

    @property
    def sizes(self) -> np.ndarray:
        return np.bincount(self.labels, minlength=len(self.names))


class SemanticSplit(Split):
    """A split that knows its clusters; for a split read from a file, `clusters_of` finds them again."""

    found: Clusters


@dataclass(frozen=True)
class Semantic(Partition):
    """K-means over category tensors, clusters of equal size, then one of three rules."""

    clients: int  # how many devices
    rule: Rule = "random"
    clusters: int = 5  # 0: by silhouette
    shards: int = 1  # clusters of a client, of the rule shard
    alpha: float = 1.0  # of the rule dirichlet
    centroids: str = ""  # "paper", or a file: see wayfare.partition.centroids
    pool: Pool = "shared"
    balance: bool = True  # clusters of equal size; false: as large a pool, in which they keep their shares
    n_init: int = 10  # starts of K-means
    most: int = 10  # clusters, where their number is to be chosen

    source: ClassVar[str] = "categories"

    def __post_init__(self) -> None:
        check_whole("clusters", self.clusters, 0)
        check_whole("n_init", self.n_init, 1)
        check_whole("most", self.most, 2)
        for name, value, known in (("rule", self.rule, get_args(Rule)), ("pool", self.pool, get_args(Pool))):
            if value not in known:
                raise unknown(name, str(value), known, "semantic")
        Shards(self.clients, self.shards)  # check their settings, which are then ours
        Dirichlet(self.clients, self.alpha)
        if self.centroids and self.clusters == 0:
            raise ConfigError("semantic: centroids are given, so their number is; set clusters to it instead of 0")

    def __call__(self, dealt: Categories | np.ndarray, rng: np.random.Generator) -> SemanticSplit:
        """`dealt`: the samples' categories, or a plain array with a row or a tensor for each sample."""
        seed = int(rng.integers(2**63))
        found = self.find(dealt, seed)
        return self.deal(found, seed, origin(self, found.labels, rng))

    def find(self, dealt: Categories | np.ndarray, seed: int) -> Clusters:
        """The clusters, from centroids or by K-means."""
        data = as_categories(dealt)
        if self.centroids:
            given = read_centroids(self.centroids)
            check_fits(given, data)
            if len(given.names) != self.clusters:
                raise ConfigError(f"semantic: clusters = {self.clusters}, but {given.file} has {len(given.names)}")
            return _nearest(data, given)
        if self.clusters:
            return _k_means(_matrix(data), self.clusters, self.n_init, seed)
        return _by_silhouette(_matrix(data), self.most, self.n_init, seed)

    def deal(self, found: Clusters, seed: int, provenance: dict[str, Any] | None = None) -> SemanticSplit:
        """Draw the pool and divide it among the clients."""
        # draws that several splits share use the same seed
        family = {"random": "random", "shard": f"shard {self.shards}", "dirichlet": "dirichlet"}[self.rule]
        draw = rng_for(seed, "pool", "" if self.pool == "shared" else family)
        pool = balanced(found, draw) if self.balance else as_they_are(found, draw)
        labels = found.labels[pool]
        dealt = self._split(labels, len(found.names), rng_for(seed, "deal", self.rule))
        table = counts(dealt, labels, len(found.names), limit=len(dealt))
        details = {
            "draw": seed,
            "clusters": {
                "names": found.names,
                "sizes": found.sizes.tolist(),
                "inertia": found.inertia,
                "silhouettes": found.silhouettes,
                "centroids_sha256": found.sha256,
            },
            "pool": {"samples": len(pool), **_shares(labels, len(found.names), self.balance)},
            "groups": "main cluster",
        }
        groups = [found.names[k] for k in table.argmax(axis=1)]
        split = SemanticSplit(dealt.offsets, pool[dealt.indices], (provenance or {}) | details, groups)
        split.found = found
        return split

    def _split(self, labels: np.ndarray, clusters: int, rng: np.random.Generator) -> Split:
        if self.rule == "random":
            return Random(self.clients)(labels, rng)
        if self.rule == "dirichlet":
            return Dirichlet(self.clients, self.alpha)(labels, rng)
        if self.shards > clusters:
            raise ConfigError(f"semantic: shards = {self.shards}, but there are only {clusters} clusters")
        if self.clients * self.shards < clusters:
            raise ConfigError(
                f"semantic: {self.clients} clients with {self.shards} of {clusters} clusters each leave some "
                "clusters without a client; raise clients or shards"
            )
        supply = np.bincount(labels, minlength=clusters)
        held = Shards(self.clients, self.shards).held(supply, rng)
        held = held[np.lexsort(~held.T[::-1])]
        amounts = np.zeros(held.shape, np.int64)
        for k in range(clusters):
            amounts[held[:, k], k] = even(int(supply[k]), int(held[:, k].sum()))
        return deal(owners(labels, amounts, rng), self.clients, rng, {})


def balanced(found: Clusters, rng: np.random.Generator) -> np.ndarray:
    """The pool: from every cluster as many samples as the smallest has, in ascending order."""
    least = _smallest(found)
    drawn = [rng.choice(np.flatnonzero(found.labels == k), least, replace=False) for k in range(len(found.names))]
    return np.sort(np.concatenate(drawn))


def as_they_are(found: Clusters, rng: np.random.Generator) -> np.ndarray:
    """The pool: as many samples as `balanced` takes, whatever their cluster, in ascending order."""
    drawn = rng.choice(len(found.labels), _smallest(found) * len(found.names), replace=False)
    if lacking := set(range(len(found.names))) - set(found.labels[drawn].tolist()):
        raise ConfigError(
            f"semantic: the pool has no sample of cluster {found.names[min(lacking)]!r}: too small for balance = false"
        )
    return np.sort(drawn)


def _smallest(found: Clusters) -> int:
    """The size of the smallest cluster."""
    least = int(found.sizes.min())
    if not least:
        lacking = found.names[int(found.sizes.argmin())]
        raise ConfigError(f"semantic: no sample is in cluster {lacking!r}; use centroids of this data, or none")
    return least


def _shares(labels: np.ndarray, clusters: int, balance: bool) -> dict[str, Any]:
    if balance:
        return {"per_cluster": len(labels) // clusters}
    return {"of_clusters": np.bincount(labels, minlength=clusters).tolist()}


def clusters_of(split: Population, dealt: Categories | np.ndarray) -> Clusters:
    """The clusters that a split was made of: its own, or found again from its provenance and the same data."""
    if isinstance(split, SemanticSplit):
        return split.found
    provenance = split.provenance
    if provenance.get("rule") != "semantic":
        raise DataError(f"a split by the rule {provenance.get('rule')!r}: only 'semantic' has clusters")
    rule = Semantic(**provenance["settings"])
    found = rule.find(dealt, provenance["draw"])
    if origin(rule, found.labels, np.random.default_rng(0))["labels_sha256"] != provenance["labels_sha256"]:
        raise DataError("the clusters of this data differ from those of the split", remedy="make a split of this data")
    return found


#### K-means


def _matrix(data: Categories) -> Any:
    """The values in float64, as a sparse matrix if most are zero, as in scene graphs."""
    from scipy.sparse import csr_array  # slow to import; most partitions do without

    sparse = np.count_nonzero(data.values) < _SPARSE * data.values.size
    return (csr_array(data.values) if sparse else data.values).astype(np.float64)


def _nearest(data: Categories, given: Centroids) -> Clusters:
    """Assign each sample to its nearest centroid, the first if several are equally near."""
    points = _matrix(data)
    with threadpool_limits(1):
        distances = (given.values**2).sum(axis=1) - 2 * (points @ given.values.T)
    labels = distances.argmin(axis=1)
    inertia = float((points * points).sum() + distances.min(axis=1).sum())
    return Clusters(labels.astype(np.int64), given.values, given.names, inertia, sha256=given.sha256)


def _k_means(points: Any, number: int, starts: int, seed: int) -> Clusters:
    """The best of several starts; the largest cluster first."""
    from sklearn.cluster import KMeans  # a second to import
    from sklearn.exceptions import ConvergenceWarning

    if points.shape[0] < number:
        raise ConfigError(f"semantic: {number} clusters of {points.shape[0]} samples; lower clusters or add data")
    means = KMeans(number, n_init=starts, random_state=seed_for(seed, "k-means", number) % 2**32, algorithm="lloyd")
    with threadpool_limits(1), warnings.catch_warnings():  # threads would add numbers in varying order
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different samples than clusters: reported below
        means.fit(points)
    there, first, found, sizes = np.unique(means.labels_, return_index=True, return_inverse=True, return_counts=True)
    if len(there) < number:
        raise ConfigError(f"semantic: {number} clusters, but only {len(there)} different samples; lower clusters")
    order = np.lexsort((first, -sizes))
    names = tuple(f"cluster {k + 1}" for k in range(number))
    return Clusters(np.argsort(order)[found], means.cluster_centers_[order], names, float(means.inertia_))


def _by_silhouette(points: Any, most: int, starts: int, seed: int) -> Clusters:
    """The number of clusters with the largest mean silhouette of a sample, the smallest if several are equal."""
    from sklearn.metrics import silhouette_score  # a second to import

    size = points.shape[0]
    sample = np.sort(rng_for(seed, "silhouette").permutation(size)[:_SILHOUETTE_SAMPLE])
    scores: dict[int, float] = {}
    best: Clusters | None = None
    for number in range(2, min(most, size - 1) + 1):
        try:
            found = _k_means(points, number, starts, seed)
        except ConfigError:
            if best is None:
                raise
            break  # there are no more different samples
        labels = found.labels[sample]
        several = 1 < len(np.unique(labels)) < len(labels)
        with threadpool_limits(1):
            scores[number] = float(silhouette_score(points[sample], labels)) if several else -1.0
        if best is None or scores[number] > scores[len(best.names)]:
            best = found
    if best is None:
        raise ConfigError(f"semantic: the number of clusters cannot be chosen with {size} samples; give it")
    return Clusters(best.labels, best.centroids, best.names, best.inertia, scores)
