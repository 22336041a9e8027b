"""Semantic clusters: tensors, K-means and heterogeneity by hand, and the published splits of real scene graphs."""

from __future__ import annotations

import csv
import gzip
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from threadpoolctl import threadpool_limits

from wayfare.attributes.categories import attribute_categories
from wayfare.attributes.table import AttributeTable
from wayfare.components import find
from wayfare.core.errors import ConfigError, DataError, WayfareError
from wayfare.partition.centroids import read_centroids
from wayfare.partition.heterogeneity import counts, describe
from wayfare.partition.semantic import Clusters, Semantic, as_they_are, balanced, clusters_of
from wayfare.partition.semantic_stats import heterogeneity, semantics_of, summaries
from wayfare.partition.semantics import Categories, Level, as_categories, count
from wayfare.partition.split import Split, load_split
from wayfare.scenes.categories import scene_categories
from wayfare.scenes.data import psg, super_classes
from wayfare.scenes.data.scene_graphs import SceneGraphs

SHARED = Path(os.environ.get("WAYFARE_SHARED") or Path(__file__).parents[3] / "shared") / "data" / "scenes"
GROUPS = {
    "categories": {"Person": ["person"], "Other": ["dog", "sky"]},
    "relations": {"Place": ["on"], "Do": ["holding"]},
}
STATISTICS = ("entropy", "total_variation", "largest_share")


def shared(name: str) -> Path:
    if not (SHARED / name).is_file():
        pytest.skip(f"{SHARED / name} is absent: set WAYFARE_SHARED to the folder that holds data/scenes/{name}")
    return SHARED / name


def graphs(folder: Path) -> SceneGraphs:
    """Three pictures: person, dog and sky with four relations; person and person with one; and none at all."""
    pictures = [
        ([0, 1, 2], [[0, 1, 1], [0, 1, 1], [1, 2, 0], [2, 0, 0]]),
        ([0, 0], [[0, 1, 0]]),
        ([2], []),
    ]
    data = [
        {
            "file_name": f"{number}.jpg",
            "image_id": str(number),
            "annotations": [{"bbox": [0, 0, 4, 4], "category_id": kind} for kind in kinds],
            "relations": relations,
        }
        for number, (kinds, relations) in enumerate(pictures)
    ]
    vocabulary = {
        "thing_classes": ["person", "dog"],
        "stuff_classes": ["sky"],
        "predicate_classes": ["on", "holding"],
    }  # fmt: skip
    (folder / "psg.json").write_text(json.dumps({"data": data, **vocabulary}))
    return psg.load(folder, strict=True)


def blobs(sizes: tuple[int, ...], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points about (0, 0), (20, 0), (40, 0), ... in random order, and which each belongs to."""
    rng = np.random.default_rng(seed)
    belongs = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return np.stack([20.0 * belongs, np.zeros(len(belongs))], -1) + rng.normal(size=(len(belongs), 2)), belongs


def made(sizes: tuple[int, ...]) -> Clusters:
    """Clusters as if found, in random order."""
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(len(sizes)), sizes))
    names = tuple(f"cluster {k + 1}" for k in range(len(sizes)))
    return Clusters(labels, np.zeros((len(sizes), 1)), names, 0.0)


#### Category tensors


def test_relations_by_hand(tmp_path: Path) -> None:
    found = graphs(tmp_path)
    (tmp_path / "words.json").write_text(json.dumps(GROUPS))
    groups = super_classes.load(tmp_path / "words.json", found.classes, found.predicates)
    tensor = scene_categories(found, groups=groups)
    # cells: subject, object, predicate. Person holds dog twice; dog on sky; sky on person | person on person | nothing
    expected = np.zeros((3, 2, 2, 2))
    expected[0, 0, 1, 1], expected[0, 1, 1, 0], expected[0, 1, 0, 0], expected[1, 0, 0, 0] = 2, 1, 1, 1
    assert tensor.values.dtype == np.float32
    assert np.array_equal(tensor.values.reshape(3, 2, 2, 2), expected)
    assert tensor.axes == (("Person", "Other"), ("Person", "Other"), ("Place", "Do"))
    assert tensor.names[:4] == (
        "Person - Place - Person", "Person - Do - Person", "Person - Place - Other", "Person - Do - Other",
    )  # fmt: skip
    assert tensor.levels["predicate"].counts.tolist() == [[2, 2], [1, 0], [0, 0]]
    assert tensor.levels["object"].counts.tolist() == [[1, 1, 1], [2, 0, 0], [0, 0, 1]]
    assert tensor.levels["object"].names == ("person", "dog", "sky")


def test_a_tensor_may_have_fewer_axes_and_need_no_groups(tmp_path: Path) -> None:
    found = graphs(tmp_path)
    assert scene_categories(found).values.shape == (3, 3 * 3 * 2)
    assert scene_categories(found, axes=("predicate",)).values.tolist() == [[2, 2], [1, 0], [0, 0]]
    pairs = scene_categories(found, axes=("predicate", "subject"))
    assert pairs.values.reshape(3, 2, 3)[0].tolist() == [[0, 1, 1], [2, 0, 0]]
    assert pairs.names[:2] == ("person - on", "dog - on")
    with pytest.raises(ConfigError, match="unknown axis 'predicat'; did you mean 'predicate'"):
        scene_categories(found, axes=("predicat",))
    for axes in ((), ("object", "object")):
        with pytest.raises(ConfigError, match="axes must be different ones of subject, object, predicate"):
            scene_categories(found, axes=axes)


def test_attributes_are_minus_one_and_one() -> None:
    values = np.array([[1, 0, 1], [0, 0, 1]], bool)
    table = AttributeTable(("Hat", "Smiling", "Young"), np.array(["a", "b"], object), values)
    assert attribute_categories(table).values.tolist() == [[1, -1, 1], [-1, -1, 1]]
    without = attribute_categories(table, drop=("Smiling",))
    assert without.values.tolist() == [[1, 1], [-1, 1]] and without.names == ("Hat", "Young")
    assert without.levels["attribute"].counts.tolist() == [[1, 0, 1], [0, 0, 1]]  # to see how clients differ in it
    with pytest.raises(DataError, match="no attribute 'Smile'"):
        attribute_categories(table, drop=("Smile",))
    with pytest.raises(ConfigError, match="all of them are dropped"):
        attribute_categories(table, drop=table.names)


def test_data_of_ones_own() -> None:
    class Menu(list[tuple[int, str, str]]):
        """(guest, dish, drink)"""

    def menu_categories(menu: Menu) -> Categories:
        dishes, drinks = ["soup", "fish"], ["tea", "wine"]
        places = np.array([(dishes.index(dish), drinks.index(drink)) for _, dish, drink in menu])
        return count(3, np.array([guest for guest, _, _ in menu]), places, [dishes, drinks])

    found = menu_categories(Menu([(0, "fish", "tea"), (2, "soup", "wine"), (2, "soup", "wine")]))
    assert found.values.tolist() == [[0, 0, 1, 0], [0, 0, 0, 0], [0, 2, 0, 0]]
    assert found.names == ("soup - tea", "soup - wine", "fish - tea", "fish - wine")


def test_a_plain_array_is_enough() -> None:
    assert as_categories(np.arange(8).reshape(2, 2, 2)).values.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    for wrong in (np.zeros(3), np.array([["a"]])):
        with pytest.raises(ConfigError, match="a row or a tensor for each sample"):
            as_categories(wrong)
    with pytest.raises(DataError, match="finite float32"):
        as_categories(np.array([[1.0, np.nan]]))


@pytest.mark.parametrize(
    ("sample", "places", "axes", "message"),
    [
        ([0, 5], [[0], [0]], ["ab"], r"remark 1 is of sample 5 at \[0\]; there are 2 samples and \[2\] places"),
        ([0], [[2]], ["ab"], r"remark 0 is of sample 0 at \[2\]"),
        ([0], [[-1]], ["ab"], r"remark 0 is of sample 0 at \[-1\]"),
        ([0], [[0, 0]], ["ab"], r"places of shape \(1, 2\): expected \(1, 1\)"),
        ([0], [[0]], [], "a category tensor without cells"),
    ],
)
def test_remarks_that_fall_outside(sample: Any, places: Any, axes: Any, message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        count(2, np.array(sample), np.array(places), axes)


def test_categories_that_do_not_fit_together() -> None:
    values = np.zeros((2, 3), np.float32)
    with pytest.raises(DataError, match="3 cells, but names for 2"):
        Categories(values, ("a", "b"))
    with pytest.raises(DataError, match="3 cells, but axes for 4"):
        Categories(values, ("a", "b", "c"), (("x", "y"), ("x", "y")))
    with pytest.raises(DataError, match=r"level 'tag' has counts of shape \(1, 1\), expected \(2, 1\)"):
        Categories(values, ("a", "b", "c"), levels={"tag": Level(np.zeros((1, 1)), ("x",))})


#### Clusters


def test_k_means_finds_what_is_there_largest_first() -> None:
    points, belongs = blobs((30, 50, 40))
    found = Semantic(2, clusters=3).find(points, 0)
    assert found.sizes.tolist() == [50, 40, 30]
    assert np.array_equal(found.labels, np.array([2, 0, 1])[belongs])
    assert np.allclose(found.centroids, [points[belongs == k].mean(axis=0) for k in (1, 2, 0)], atol=1e-5)
    inertia = sum(((points[belongs == k] - points[belongs == k].mean(axis=0)) ** 2).sum() for k in range(3))
    assert found.inertia == pytest.approx(inertia, rel=1e-5)


def test_zeros_are_left_out_without_a_difference() -> None:
    points, belongs = blobs((30, 50, 40))
    wide = np.zeros((120, 40))
    wide[:, [3, 30]] = points
    found = Semantic(2, clusters=3).find(wide, 0)
    assert np.array_equal(found.labels, np.array([2, 0, 1])[belongs])
    assert np.allclose(found.centroids[:, [3, 30]], Semantic(2, clusters=3).find(points, 0).centroids)


def test_the_same_seed_is_the_same_split_on_any_number_of_threads() -> None:
    points = np.random.default_rng(3).poisson(0.3, (4000, 30))  # no clusters to speak of: many optima
    rule = Semantic(7, "dirichlet", clusters=4, n_init=2)
    splits = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            splits.append(rule(points, np.random.default_rng(5)).pack())
    assert splits[0] == splits[1]
    assert rule(points, np.random.default_rng(6)).pack() != splits[0]


def write_centroids(file: Path, tensor: np.ndarray, **metadata: Any) -> None:
    save_file({"centroids": np.ascontiguousarray(tensor)}, file, {"centroids": json.dumps(metadata)})


def test_given_centroids_by_hand(tmp_path: Path) -> None:
    write_centroids(tmp_path / "two.safetensors", np.array([[0.0, 0.0], [4.0, 0.0]], np.float32), names=["near", "far"])
    np.save(tmp_path / "two.npy", np.array([[0, 0], [4, 0]]))
    points = np.array([[1, 0], [3, 1], [2, 0], [5, 0]])  # the third is as far from both: the first one has it
    for name in ("two.safetensors", "two.npy"):
        found = Semantic(2, clusters=2, centroids=str(tmp_path / name)).find(points, 0)
        assert found.labels.tolist() == [0, 1, 0, 1]
        assert found.inertia == pytest.approx(1 + 2 + 4 + 1)
    assert found.names == ("cluster 1", "cluster 2")
    split = Semantic(2, "shard", clusters=2, centroids=str(tmp_path / "two.safetensors"))(
        points, np.random.default_rng(0)
    )
    assert split.groups == ("near", "far") and len(split.provenance["clusters"]["centroids_sha256"]) == 64


def test_centroids_that_cannot_be_used(tmp_path: Path) -> None:
    def refused(name: str, message: str, points: Any = None, **settings: Any) -> None:
        rule = Semantic(2, centroids=name, **settings)
        with pytest.raises(WayfareError, match=message):
            rule(np.zeros((4, 2)) if points is None else points, np.random.default_rng(0))

    refused(str(tmp_path / "none.npy"), "none.npy: cannot be read: No such file")
    for name in ("bad.npy", "bad.safetensors"):
        (tmp_path / name).write_bytes(b"PK\x03\x04 no centroids")
        refused(str(tmp_path / name), f"{name}: no centroids here")
    np.save(tmp_path / "row.npy", np.zeros(3))
    refused(str(tmp_path / "row.npy"), "a row or a tensor for each cluster")
    np.save(tmp_path / "nan.npy", np.full((2, 2), np.nan))
    refused(str(tmp_path / "nan.npy"), "expected finite numbers")
    refused("paper", "centroids of 1183 cells, but the data's have 2")
    np.save(tmp_path / "two.npy", np.array([[0, 0], [9, 9]]))
    refused(str(tmp_path / "two.npy"), "clusters = 5, but .*two.npy has 2")
    refused(str(tmp_path / "two.npy"), "no sample is in cluster 'cluster 2'", clusters=2)
    write_centroids(tmp_path / "named.safetensors", np.eye(2, dtype=np.float32), axes=[["cat", "dog"]])
    other = Categories(np.eye(2, dtype=np.float32), ("cat", "cow"), (("cat", "cow"),))
    refused(str(tmp_path / "named.safetensors"), "axis 0 of the centroids is cat, dog; the data's is cat, cow", other)
    write_centroids(tmp_path / "names.safetensors", np.eye(2, dtype=np.float32), names=["one"])
    refused(str(tmp_path / "names.safetensors"), "1 names for 2 clusters")
    with pytest.raises(ConfigError, match="set clusters to it instead of 0"):
        Semantic(2, clusters=0, centroids="paper")


def test_silhouette_by_hand() -> None:
    # 0, 1 | 10, 11: 0 and 11 are 1 from their own, 10.5 from the others (1 - 1/10.5), 1 and 10 are 9.5 (1 - 1/9.5)
    found = Semantic(2, clusters=0, most=2).find(np.array([[0.0], [1], [10], [11]]), 0)
    assert found.silhouettes == {2: pytest.approx(1 - (1 / 10.5 + 1 / 9.5) / 2)}


def test_the_number_of_clusters_by_silhouette() -> None:
    points, _ = blobs((30, 50, 40))
    split = Semantic(3, clusters=0, most=6)(points, np.random.default_rng(0))
    scores = split.provenance["clusters"]["silhouettes"]
    assert list(scores) == ["2", "3", "4", "5", "6"]
    assert max(scores, key=lambda number: scores[number]) == "3"
    assert split.provenance["clusters"]["sizes"] == [50, 40, 30]


def test_too_little_to_cluster() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ConfigError, match="5 clusters of 3 samples; lower clusters"):
        Semantic(2)(np.eye(3), rng)
    with pytest.raises(ConfigError, match="3 clusters, but only 2 different samples"):
        Semantic(2, clusters=3)(np.array([[0.0], [0], [1], [1]]), rng)
    with pytest.raises(ConfigError, match="cannot be chosen with 2 samples"):
        Semantic(2, clusters=0)(np.eye(2), rng)
    with pytest.raises(ConfigError, match="9 clients cannot share 4 samples"):
        Semantic(9, clusters=2)(np.array([[0.0], [0], [1], [1]]), rng)


#### Pools and rules


def test_the_pool_has_all_of_the_smallest_and_as_many_of_the_others() -> None:
    found = made((7, 30, 11))
    pool = balanced(found, np.random.default_rng(0))
    assert np.bincount(found.labels[pool]).tolist() == [7, 7, 7]
    assert len(np.unique(pool)) == 21 and set(np.flatnonzero(found.labels == 0)) <= set(pool)


def test_an_unbalanced_pool_is_as_large_and_keeps_the_clusters_shares() -> None:
    found = made((70, 300, 130))
    pool = as_they_are(found, np.random.default_rng(0))
    assert len(np.unique(pool)) == 210  # 3 x 70; of each cluster about 42 %
    assert np.abs(np.bincount(found.labels[pool]) - 0.42 * np.array([70, 300, 130])).max() < 15
    split = Semantic(10, rule="shard", clusters=3, balance=False).deal(found, 0)
    sizes = np.bincount(found.labels[split.indices])
    assert split.provenance["pool"] == {"samples": 210, "of_clusters": sizes.tolist()} and sizes.min() != sizes.max()
    kinds = [set(found.labels[split[u]]) for u in range(10)]
    assert all(len(kind) == 1 for kind in kinds)
    with pytest.raises(ConfigError, match="the pool has no sample of cluster 'cluster 2'"):
        as_they_are(made((500, 1)), np.random.default_rng(0))


def test_pools_are_shared_or_as_in_the_paper() -> None:
    found = made((40, 300, 110))
    rules: dict[str, dict[str, Any]] = {
        "random": {"rule": "random"},
        "iid": {"rule": "shard", "shards": 3},
        "noniid": {"rule": "shard", "shards": 1},
        "dir10": {"rule": "dirichlet", "alpha": 10.0},
        "dir1": {"rule": "dirichlet", "alpha": 1.0},
    }

    def pools(kind: Any) -> dict[str, bytes]:
        splits = {name: Semantic(6, pool=kind, **rule).deal(found, 3) for name, rule in rules.items()}
        return {name: np.sort(split.indices).tobytes() for name, split in splits.items()}

    assert len(set(pools("shared").values())) == 1
    own = pools("own")
    assert len({own[name] for name in ("random", "iid", "noniid", "dir10")}) == 4 and own["dir1"] == own["dir10"]


def test_shards_as_the_authors_cut_them() -> None:
    found = made((2282, 2300, 2290, 2282, 2500))
    iid = Semantic(100, "shard", shards=5).deal(found, 0)
    assert counts(iid, found.labels, 5).tolist() == [[23] * 5] * 82 + [[22] * 5] * 18
    strict = Semantic(100, "shard", shards=1).deal(found, 0)
    table = counts(strict, found.labels, 5)
    assert (table.argmax(axis=1) == np.arange(100) // 20).all() and ((table > 0).sum(axis=1) == 1).all()
    assert np.bincount(strict.sizes).nonzero()[0].tolist() == [114, 115] and (strict.sizes == 115).sum() == 10
    assert strict.groups == tuple(f"cluster {u // 20 + 1}" for u in range(100))
    two = counts(Semantic(100, "shard", shards=2).deal(found, 0), found.labels, 5)
    assert ((two > 0).sum(axis=1) == 2).all() and ((two > 0).sum(axis=0) == 40).all()
    with pytest.raises(ConfigError, match="shards = 6, but there are only 5 clusters"):
        Semantic(100, "shard", shards=6).deal(found, 0)
    with pytest.raises(ConfigError, match="2 clients with 2 of 5 clusters each leave some clusters without a client"):
        Semantic(2, "shard", shards=2).deal(found, 0)


def test_every_rule_uses_the_pool_once_in_even_clients() -> None:
    found = made((40, 300, 110))
    for settings in ({"rule": "random"}, {"rule": "dirichlet", "alpha": 0.3}, {"rule": "shard", "shards": 3}):
        split = Semantic(7, **settings).deal(found, 1)  # type: ignore[arg-type]
        assert len(np.unique(split.indices)) == len(split.indices) == 120
        assert split.provenance["pool"] == {"samples": 120, "per_cluster": 40}
        assert split.sizes.max() - split.sizes.min() <= (3 if settings["rule"] == "shard" else 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clients": 0}, "clients must be a whole number of at least 1"),
        ({"rule": "shards"}, "unknown rule 'shards'; did you mean 'shard'"),
        ({"pool": "mine"}, "unknown pool 'mine'"),
        ({"clusters": -1}, "clusters must be"),
        ({"n_init": 0}, "n_init must be"),
        ({"most": 1}, "most must be"),
        ({"alpha": 0.0}, "alpha must be above 0"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Semantic(**{"clients": 4, **settings})


def test_it_is_found_by_name_and_asks_the_task_for_categories() -> None:
    assert find("partition", "semantic") is Semantic and Semantic.source == "categories"


#### What is told of a split


def test_heterogeneity_by_hand() -> None:
    # counts of clients: (3, 1) and (1, 3) of 4 each, all (1/2, 1/2); the third has nothing to count
    level = Level(np.array([[2, 1], [1, 0], [0, 3], [1, 0], [0, 0]], np.float32), ("a", "b"))
    split = Split.from_parts([np.array([0, 1]), np.array([2, 3]), np.array([4])])
    found = Clusters(np.array([0, 0, 1, 1, 1]), np.zeros((2, 1)), ("x", "y"), 0.0)
    told = heterogeneity(split, found, {"word": level})
    entropy = -(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25))
    expected = {"classes": 2, "entropy": entropy, "total_variation": 0.25, "largest_share": 0.75}
    assert told["word"] == pytest.approx(expected)
    # of clusters: all x (TV to 2/5, 3/5: 3/5), all y (2/5), all y (2/5)
    assert told["cluster"] == pytest.approx(
        {"classes": 2, "entropy": 0.0, "total_variation": 7 / 15, "largest_share": 1.0}
    )
    nothing = heterogeneity(split, found, {"word": Level(np.zeros((5, 2), np.float32), ("a", "b"))})
    assert nothing["word"] == {"classes": 2} | dict.fromkeys(STATISTICS)
    with pytest.raises(DataError, match="the split has sample 4, there are counts of 3"):
        heterogeneity(split, found, {"word": Level(level.counts[:3], level.names)})


def test_summaries_by_hand() -> None:
    values = np.array([[4, 0, 1], [2, 0, 1], [3, 0, 1], [0, 1, 1]], np.float32)
    data = Categories(values, ("sea", "dog", "sky"))
    found = Clusters(np.array([0, 0, 0, 1]), np.array([[3.0, 0, 1], [0, 1, 1]]), ("coast", "pets"), 2.0)
    coast, pets = summaries(data, found, top=2, examples=2)
    assert coast == {
        "name": "coast",
        "size": 3,
        "share": 0.75,
        "mean_sum": 4.0,
        "top": [{"cell": "sea", "value": 3.0}, {"cell": "sky", "value": 1.0}],
        "typical": [{"cell": "sea", "value": 0.75}],  # 3 - 9/4; sky is everywhere
        "examples": [2, 0],  # at the centroid; then the first of two as near
    }
    assert pets["typical"] == [{"cell": "dog", "value": 0.75}] and pets["examples"] == [3]
    with pytest.raises(DataError, match="clusters of 4 samples, but categories of 2"):
        summaries(values[:2], found)


def test_a_stored_split_tells_its_clusters() -> None:
    points, belongs = blobs((30, 50, 40))
    split = Semantic(6, "shard", clusters=3)(points, np.random.default_rng(2))
    again = load_split(split.pack())
    assert np.array_equal(clusters_of(again, points).labels, np.array([2, 0, 1])[belongs])
    told = semantics_of(again, points)
    assert json.loads(json.dumps(told)) == told
    assert told["heterogeneity"]["cluster"]["largest_share"] == 1.0
    assert [cluster["size"] for cluster in told["clusters"]] == [50, 40, 30]
    with pytest.raises(DataError, match="differ from those of the split"):
        clusters_of(again, points[::-1].copy())
    with pytest.raises(DataError, match="only 'semantic' has clusters"):
        clusters_of(Split.from_parts([np.arange(3)], {"rule": "random"}), points)


#### The published splits, on the real annotations

# Normalised entropy, total variation and largest share over clusters, and total variation over predicates.
PUBLISHED: dict[str, tuple[dict[str, Any], tuple[float, float, float], float]] = {
    "Random": ({"rule": "random"}, (0.989, 0.076, 0.252), 0.094),
    "Super_cluster_5_IID": ({"rule": "shard", "shards": 5}, (1.000, 0.002, 0.201), 0.091),
    "Super_cluster_5_nonIID": ({"rule": "shard", "shards": 1}, (0.006, 0.798, 0.998), 0.281),
    "Super_cluster_5_Diri_10": ({"rule": "dirichlet", "alpha": 10.0}, (0.961, 0.140, 0.299), 0.103),
    "Super_cluster_5_Diri_1": ({"rule": "dirichlet", "alpha": 1.0}, (0.797, 0.325, 0.447), 0.139),
    "Super_cluster_5_Diri_02": ({"rule": "dirichlet", "alpha": 0.2}, (0.517, 0.519, 0.645), 0.196),
}
DRAWS = {"Super_cluster_5_Diri_02": 100}  # 10 of the others, which vary less


@pytest.fixture(scope="module")
def union() -> tuple[SceneGraphs, Categories, Clusters]:
    found = psg.load(shared("psg_union_24378.json.gz"))
    groups = super_classes.load(shared("word_categorized.json"), found.classes, found.predicates)
    data = scene_categories(found, groups=groups)
    return found, data, Semantic(100, centroids="paper").find(data, 0)


def published(name: str, found: SceneGraphs) -> Split:
    """The authors' own split."""
    with zipfile.ZipFile(shared("paper_splits.zip")) as opened:
        images = json.loads(opened.read(f"split_mini_{name}.json"))
    place = {image: row for row, image in enumerate(found.image_ids)}
    return Split.from_parts([np.array([place[image] for image in images[str(u)]]) for u in range(100)])


def test_the_papers_centroids_and_clusters(union: tuple[SceneGraphs, Categories, Clusters]) -> None:
    found, data, clusters = union
    assert data.values.shape == (24_378, 13 * 13 * 7) and data.values.sum() == 151_086
    given = read_centroids("paper")
    assert np.array_equal(given.values.reshape(5, 13, 13, 7), np.load(shared("centroids_5x13x13x7.npy")))
    assert given.axes == data.axes and "FL-PSG" in given.provenance
    strict = published("Super_cluster_5_nonIID", found)  # 20 clients after each other have a cluster
    means = [data.values[strict.indices[strict.offsets[k] : strict.offsets[k + 20]]].mean(0) for k in range(0, 100, 20)]
    assert np.allclose(means, given.values, atol=1e-6)
    with gzip.open(shared("cluster_labels.csv.gz"), "rt") as opened:
        theirs = {row["image_id"]: int(row["cluster"]) for row in csv.DictReader(opened)}
    agree = clusters.labels == [theirs[image] for image in found.image_ids]
    assert agree.mean() > 0.999
    tops = [cluster["top"][0]["cell"] for cluster in summaries(data, clusters)]
    assert tops[0] == "Animals - Common Actions - Nature" and tops[3] == "Person - Common Actions - Outdoor Activities"


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_six_splits(name: str, union: tuple[SceneGraphs, Categories, Clusters]) -> None:
    found, data, clusters = union
    settings, expected, predicates = PUBLISHED[name]
    theirs = published(name, found)
    measured = heterogeneity(theirs, clusters, data.levels)
    assert [measured["cluster"][key] for key in STATISTICS] == pytest.approx(expected, abs=0.001)
    assert measured["predicate"]["total_variation"] == pytest.approx(predicates, abs=0.001)

    # Theirs is one draw. At alpha 0.2 draws differ by 0.02 (one standard deviation), so what is compared is the mean.
    rule = Semantic(100, centroids="paper", **settings)
    draws = [describe(rule.deal(clusters, seed), clusters.labels, 5) for seed in range(DRAWS.get(name, 10))]
    ours = np.array([[draw[key] for key in STATISTICS] for draw in draws])
    assert np.abs(ours.mean(axis=0) - expected).max() < 0.03
    assert (np.abs(ours.mean(axis=0) - expected) < 3 * ours.std(axis=0) + 0.01).all()  # as if it were one of ours
    mine = heterogeneity(rule.deal(clusters, 0), clusters, data.levels)
    assert mine["predicate"]["total_variation"] == pytest.approx(predicates, abs=0.03)
