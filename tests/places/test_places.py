"""Place recognition as a task: triplets, losses and recalls against brute force on photographs placed by hand."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from place_pictures import Photo, places, write_frames, write_msls, write_picture
from wayfare.components import parts_of
from wayfare.core.bundle import digest, snapshot, travelling
from wayfare.core.errors import ConfigError, DataError, WayfareError
from wayfare.core.protocols import Client
from wayfare.core.seeds import rng_for
from wayfare.experiment import Experiment
from wayfare.places.augment import Augmentation
from wayfare.places.data.train_test import StripSplit
from wayfare.places.descriptor import Descriptor
from wayfare.places.losses import TripletBatch
from wayfare.places.task import Places
from wayfare.testing import TASK_CHECKS, check_task

NONE = np.empty(0, np.int64)


def network(task: Places, seed: int = 0) -> Descriptor:
    torch.manual_seed(seed)
    return task.network()


def everyone(task: Places, id: str = "c0") -> Client:
    return Client(id, np.arange(task.samples), NONE)


def passed(
    task: Places, net: Descriptor, batch: int = 2, seed: int = 1, client: Client | None = None
) -> Iterator[TripletBatch]:
    """One local pass."""
    for step in task.steps(net, client or everyone(task), batch, {}, rng_for(seed)):
        assert isinstance(step, TripletBatch)
        yield step


def described(task: Places, net: Descriptor) -> np.ndarray:
    """Descriptors of the whole table as float64, from its files and by way of `describe`."""
    photos, images = task.loaded.table, task.loaded.images
    return task.describe(net, images[np.arange(len(photos))]).astype(np.float64)


def rows_of(task: Places, net: Descriptor, inputs: Tensor) -> list[int]:
    """Which photographs of the table these are; where nothing is frozen, a map is the picture itself."""
    photos, images = task.loaded.table, task.loaded.images
    shown = torch.from_numpy(images[np.arange(len(photos))]).permute(0, 3, 1, 2).float() / 255
    known = {maps.numpy().tobytes(): row for row, maps in enumerate(net.trunk(shown).contiguous())}
    return [known[maps.numpy().tobytes()] for maps in inputs.contiguous()]


def apart(task: Places, left: int, right: int) -> float:
    """Metres; infinitely many between two cities."""
    photos = task.loaded.divided.photos
    if photos.group[left] != photos.group[right]:
        return math.inf
    return math.hypot(photos.easting[left] - photos.easting[right], photos.northing[left] - photos.northing[right])


# ---- a handful of photographs


@pytest.fixture(scope="module")
def village(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two cities to train on and one to test on; in alba, query 4 has nothing near it, query 5 is 25 m from a photo.

    alba      metres    0      50     100    150    400    425
              queries   0 1    2      3             4      5
              database  at 3, 10, 52, 60, 104, 150, 158, 450
    brod      the same metres, other views: queries at 0 and 100, database at 1, 20, 101, 300
    """
    asked = [(0, 5, 0.0), (0, 6, 6.0), (1, 5, 50.0), (2, 5, 100.0), (9, 0, 370.0), (4, 5, 425.0)]
    known = [(0, 0, 3.0), (0, 1, 10.0), (1, 0, 52.0), (1, 1, 60.0), (2, 0, 104.0), (3, 0, 150.0), (3, 1, 158.0)]
    alba = {
        "query": [Photo(*photo) for photo in asked],
        "database": [Photo(*photo) for photo in (*known, (4, 0, 450.0))],
    }
    brod = {
        "query": [Photo(20, 5, 0.0), Photo(22, 5, 100.0)],
        "database": [Photo(p, 0, x) for p, x in ((20, 1.0), (21, 20.0), (22, 101.0), (23, 300.0))],
    }
    # of the test's queries the third has no positive: 26 m; the fourth has one at exactly 25 m
    known = [(40, 0, 2.0), (41, 0, 44.0), (42, 0, 100.0), (43, 0, 200.0), (44, 0, 300.0), (45, 0, 310.0)]
    zeta = {
        "query": [Photo(40, 5, 0.0), Photo(41, 5, 40.0, night=True), Photo(42, 5, 126.0), Photo(43, 5, 175.0)],
        "database": [Photo(*photo) for photo in known],
    }
    return write_msls(tmp_path_factory.mktemp("village"), {"alba": alba, "brod": brod, "zeta": zeta})


def brute_force(task: Places, net: Descriptor, rows: list[int]) -> dict[int, tuple[int, list[int]]]:
    """Each query's positive and negatives, compared one by one."""
    seen, photos = described(task, net), task.loaded.divided.photos
    assert photos.query is not None
    found = {}
    for query in (row for row in rows if photos.query[row]):
        database = sorted(
            (row for row in rows if not photos.query[row]),
            key=lambda row: (((seen[query] - seen[row]) ** 2).sum(), row),
        )
        near = [row for row in database if apart(task, query, row) <= task.mining.radius]
        far = [row for row in database if apart(task, query, row) > task.mining.negative_radius]
        if near and far:
            found[query] = near[0], (far * task.mining.negatives)[: task.mining.negatives]
    return found


@pytest.mark.parametrize(
    "settings", [{}, {"task__mining__radius": 5.0}, {"task__mining__negatives": 2}, {"task__mining__name": "full"}]
)
def test_one_pass_gives_the_triplets_of_brute_force(village: Path, settings: dict[str, Any]) -> None:
    task = places(village, **settings)
    net = network(task)
    client = Client("c0", np.arange(task.samples)[::-1], NONE)
    wanted = brute_force(task, net, task.loaded.divided.pool.tolist())
    # alba-query-4 has nothing within 25 m; within 5 m that is so of alba-query-5 too, which is 25 m from its photograph
    missing = {"alba-query-4"} | ({"alba-query-5"} if task.mining.radius == 5 else set())
    asking = {f"alba-query-{i}" for i in range(6)} | {"brod-query-0", "brod-query-1"}
    assert {str(task.loaded.divided.photos.keys[row]) for row in wanted} == asking - missing
    found: dict[int, tuple[int, list[int]]] = {}
    sizes = []
    for step in passed(task, net, batch=3, client=client):
        count = step.queries
        rows = rows_of(task, net, step.inputs)
        sizes.append(count)
        for i in range(count):
            start = 2 * count + i * task.mining.negatives
            assert rows[i] not in found, "a query twice"
            found[rows[i]] = rows[count + i], rows[start : start + task.mining.negatives]
    assert found == wanted
    assert sizes == [3, 3, 1] if len(wanted) == 7 else sizes == [3, 3]
    # photographs of the other city are negatives: the same metres, but not the same place
    cities = task.loaded.divided.photos.city
    assert any(cities[query] != cities[row] for query, (_, rows) in found.items() for row in rows)


def test_a_client_mines_its_own_photographs_only(village: Path) -> None:
    task = places(village)
    net = network(task)
    photos = task.photos
    own = np.flatnonzero(photos.easting - photos.easting.min() <= 110)
    twice = np.concatenate([own, own[:3]])
    seen = {
        row for step in passed(task, net, client=Client("c0", twice, NONE)) for row in rows_of(task, net, step.inputs)
    }
    assert seen <= set(task.loaded.divided.pool[own].tolist())
    steps = list(passed(task, net, batch=1, client=Client("c0", twice, NONE)))
    assert len(steps) == len(brute_force(task, net, task.loaded.divided.pool[own].tolist())), (
        "a sample given twice counts once"
    )


def test_passes_follow_the_generator(village: Path) -> None:
    task = places(village)
    net = network(task)

    def order(seed: int) -> list[list[int]]:
        return [rows_of(task, net, step.inputs) for step in passed(task, net, seed=seed)]

    assert order(1) == order(1) != order(2)


def test_mining_leaves_the_network_as_it_was(village: Path) -> None:
    task = places(village)
    net = network(task)
    before = digest(snapshot(net))
    for training in (True, False):
        net.train(training)
        for _ in passed(task, net):
            assert net.training is training
    assert digest(snapshot(net)) == before


def test_a_client_with_nothing_to_train_on_says_why(village: Path) -> None:
    task = places(village)
    lonely = np.flatnonzero(task.photos.keys == "alba-query-4")
    with pytest.raises(WayfareError, match="of 1 queries with a position, 1 have no photograph"):
        next(passed(task, network(task), client=Client("c0", lonely, NONE)))


# ---- the loss


@pytest.mark.parametrize("distances", ["squared", "unsquared"])
def test_the_loss_of_a_batch_by_hand(village: Path, distances: Any) -> None:
    task = places(village, task__loss__distances=distances, task__loss__margin=0.02)
    net = network(task)
    step = next(passed(task, net, batch=3))
    output = task.forward(net, step)
    seen = output.features["image"].detach().numpy().astype(np.float64)
    assert seen.shape == (3 * (2 + 5), 16)
    terms = []
    for i in range(3):
        for j in range(5):
            near = ((seen[i] - seen[3 + i]) ** 2).sum()
            far = ((seen[i] - seen[6 + 5 * i + j]) ** 2).sum()
            if distances == "unsquared":
                near, far = math.sqrt(near), math.sqrt(far)
            terms.append(max(near - far + 0.02, 0.0))
    assert 0 < sum(term == 0 for term in terms) < 15, "both kinds should occur"
    assert float(task.loss(output, step, {}).detach()) == pytest.approx(sum(terms) / 15, rel=1e-5)


def test_only_triplets_teach(village: Path) -> None:
    task = places(village)
    net = network(task)
    batch = next(task.scan(net, everyone(task)))
    with pytest.raises(TypeError, match="triplets"):
        task.loss(task.forward(net, batch), batch, {})
    with pytest.raises(WayfareError, match="needs a descriptor network, not Linear"):
        task.evaluate(torch.nn.Linear(1, 1), None)


# ---- recall


def brute_recall(task: Places, net: Descriptor, queries: list[int], database: list[int]) -> dict[str, float]:
    """R@N under the task's denominator, the median error, and R@100P, one query after the other."""
    seen = described(task, net)
    ranked, has_positive = {}, {}
    for query in queries:
        own = [row for row in database if math.isfinite(apart(task, query, row))]
        ranked[query] = sorted(own, key=lambda row: (((seen[query] - seen[row]) ** 2).sum(), row))
        has_positive[query] = any(apart(task, query, row) <= task.radius for row in own)
    counted = [query for query in queries if task.denominator == "all queries" or has_positive[query]]
    found: dict[str, float] = {}
    for cutoff in (1, 5, 10, 20):
        right = [any(apart(task, q, row) <= task.radius for row in ranked[q][:cutoff]) for q in counted]
        found[f"R@{cutoff}"] = sum(right) / len(right)
    errors = sorted(apart(task, q, ranked[q][0]) for q in counted if ranked[q])
    middle = len(errors) // 2
    found["median_error_m"] = errors[middle] if len(errors) % 2 else (errors[middle - 1] + errors[middle]) / 2
    accepted = 0
    for query in sorted((q for q in queries if ranked[q]), key=lambda q: ((seen[q] - seen[ranked[q][0]]) ** 2).sum()):
        if apart(task, query, ranked[query][0]) > task.radius:
            break
        accepted += 1
    found["R@100P"] = accepted / sum(has_positive.values())
    return found


@pytest.mark.parametrize("denominator", ["queries with a positive", "all queries"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_test_is_brute_force(village: Path, hamlets: Path, denominator: Any, seed: int) -> None:
    for root in (village, hamlets):
        task = places(root, task__denominator=denominator)
        net, divided = network(task, seed), task.loaded.divided
        told = task.evaluate(net, None)
        wanted = brute_recall(task, net, divided.test_queries.tolist(), divided.test_database.tolist())
        assert {name: told[name] for name in wanted} == pytest.approx(wanted)
        assert 0 < told["R@1"] < 1
        assert ("all queries count" in task.protocol) == (denominator == "all queries")


def test_denominators_differ_by_the_query_without_a_positive(village: Path) -> None:
    # 3 of the test's 4 queries have a photograph within 25 m
    told = [places(village, task__denominator=d) for d in ("queries with a positive", "all queries")]
    with_positive, all_of_them = (task.evaluate(network(task), None)["R@20"] for task in told)
    assert (with_positive, all_of_them) == (1.0, 0.75)


def test_the_parts_of_the_test(hamlets: Path) -> None:
    task = places(hamlets)
    net, divided = network(task), task.loaded.divided
    told = task.evaluate(net, None)
    assert divided.photos.night is not None
    for name, by_night in (("night", True), ("day", False)):
        asked = [row for row in divided.test_queries.tolist() if divided.photos.night[row] == by_night]
        wanted = brute_recall(task, net, asked, divided.test_database.tolist())
        assert told[f"R@1/{name}"] == pytest.approx(wanted["R@1"])
    assert "R@1/zeta" not in told, "a single city is all of it"
    result, _ = task.judge(net, None)
    assert (
        result.metrics["R@1"] == told["R@1"] and result.counts["queries"] == 17 and result.counts["with_positive"] == 16
    )


def test_several_cities_are_kept_separate(hamlets: Path) -> None:
    task = places(hamlets, data__test_cities=("alba", "brod"))
    net, photos, divided = network(task), task.loaded.divided.photos, task.loaded.divided
    assert set(task.photos.city) == {"zeta"}
    told = task.evaluate(net, None)
    for city in ("alba", "brod"):
        asked = [row for row in divided.test_queries.tolist() if photos.city[row] == city]
        assert len(asked) == 16
        assert told[f"R@1/{city}"] == pytest.approx(
            brute_recall(task, net, asked, divided.test_database.tolist())["R@1"]
        )


@pytest.mark.parametrize("denominator", ["queries with a positive", "all queries"])
def test_a_clients_own_samples_are_brute_force(village: Path, denominator: Any) -> None:
    task = places(village, task__denominator=denominator)
    net, photos, pool = network(task, 3), task.loaded.divided.photos, task.loaded.divided.pool
    assert photos.query is not None
    for samples in (np.arange(task.samples), np.arange(0, task.samples, 2), np.arange(3, task.samples)):
        rows = pool[samples].tolist()
        queries, database = [r for r in rows if photos.query[r]], [r for r in rows if not photos.query[r]]
        told = task.evaluate(net, samples)
        wanted = brute_recall(task, net, queries, database)
        assert {name: told[name] for name in wanted} == pytest.approx(wanted)
        assert task.evaluate(net, np.concatenate([samples[::-1], samples[:4]])) == told, "twice counts once"
        assert not any("/" in name for name in told)


def test_samples_of_which_nothing_can_be_asked(village: Path) -> None:
    task = places(village)
    net, photos = network(task), task.photos
    assert photos.query is not None
    assert set(task.evaluate(net, np.flatnonzero(~photos.query))) == {"spread"}  # no queries
    assert set(task.evaluate(net, np.flatnonzero(photos.query))) == {"spread"}  # no database: no query has a positive
    told = places(village, task__denominator="all queries").evaluate(net, np.flatnonzero(photos.query))
    assert told["R@1"] == told["R@20"] == 0.0


def test_spread_by_hand(village: Path) -> None:
    task = places(village)
    net = network(task)
    seen = described(task, net)[np.concatenate((task.loaded.divided.test_queries, task.loaded.divided.test_database))]
    away = math.sqrt(((seen - seen.mean(0)) ** 2).sum(1).mean() / (seen**2).sum(1).mean())
    assert task.evaluate(net, None)["spread"] == pytest.approx(away, rel=1e-5)


def test_the_protocol_says_it_all(village: Path) -> None:
    task = places(village, task__radius=10.0, data__height=40)
    assert task.protocol == (
        "4 queries: all; right: a photo within 10 m; only the 2 queries that have one in the database count; "
        "pictures of 40x32"
    )
    held = replace(task, data=replace(task.data, test=StripSplit(2, 1, 60.0)))
    assert held.protocol.startswith("3 queries: in held-out strips of ground (part 2 of 2); right: a photo")


# ---- augmentation


@pytest.mark.parametrize("kind", ["jitter", "jitter_crop", "client_jitter"])
def test_only_queries_are_augmented(village: Path, kind: Any) -> None:
    plain, changed = places(village), places(village, task__augment=kind)
    net = network(plain)
    kept = differing = 0
    for before, after in zip(passed(plain, net, batch=3), passed(changed, net, batch=3), strict=True):
        assert before.inputs.shape == after.inputs.shape and before.queries == after.queries
        assert torch.equal(before.inputs[before.queries :], after.inputs[after.queries :])
        same = [torch.equal(a, b) for a, b in zip(before.inputs[: before.queries], after.inputs[: after.queries])]
        kept, differing = kept + sum(same), differing + len(same) - sum(same)
    assert kept > 0 and differing > 0, "about half of them"
    again = [digest({"x": step.inputs}) for step in passed(changed, net, batch=3)]
    assert again == [digest({"x": step.inputs}) for step in passed(changed, net, batch=3)]
    assert again != [digest({"x": step.inputs}) for step in passed(changed, net, batch=3, seed=2)]
    assert torch.equal(next(changed.scan(net, everyone(changed))).inputs, next(plain.scan(net, everyone(plain))).inputs)
    assert changed.evaluate(net, None) == plain.evaluate(net, None)


class Negative(Augmentation):
    """Each colour turned into its opposite."""

    def __call__(self, pictures: Tensor, rng: np.random.Generator, client: np.random.Generator) -> Tensor:
        return 1 - pictures


def test_each_query_is_augmented_in_its_place(village: Path) -> None:
    plain = places(village)
    changed = replace(plain, augment=Negative())
    net = network(plain)
    for before, after in zip(passed(plain, net, batch=3), passed(changed, net, batch=3), strict=True):
        # the network's input is (x - 0.5) / 0.5
        torch.testing.assert_close(after.inputs[: after.queries], -before.inputs[: before.queries])


def test_client_jitter_is_the_clients_own(village: Path) -> None:
    def seen(kind: Any, id: str) -> list[str]:
        task = places(village, task__augment=kind)
        return [digest({"x": s.inputs}) for s in passed(task, network(task), client=everyone(task, id))]

    assert seen("client_jitter", "c0") == seen("client_jitter", "c0") != seen("client_jitter", "c1")
    assert seen("jitter", "c0") == seen("jitter", "c1")


def test_augmented_queries_go_through_what_is_frozen(village: Path) -> None:
    plain, changed = (
        places(village, model__train="block3"),
        places(village, model__train="block3", task__augment="jitter"),
    )
    net = network(plain)
    pairs = list(zip(passed(plain, net), passed(changed, net), strict=True))
    assert all(torch.equal(a.inputs[a.queries :], b.inputs[b.queries :]) for a, b in pairs)
    assert not all(torch.equal(a.inputs, b.inputs) for a, b in pairs)
    assert pairs[0][0].inputs.shape[1:] == (8, 4, 4)


# ---- the warm-up


def test_the_first_steps_tell_places_apart(village: Path) -> None:
    task = places(village, task__warmup=3, task__mining__negatives=2)
    net, memo = network(task), {}  # type: Descriptor, dict[str, Any]
    client = everyone(task)
    steps = list(task.steps(net, client, 2, memo, rng_for(1)))
    assert len(steps) == 3 and float(net.age) == 3, "7 queries would be 4 steps: the pass ends with the warm-up"
    for step in steps:
        assert isinstance(step, TripletBatch) and step.apart is not None
        assert len(step.inputs) == step.queries * (2 + task.mining.negatives)
        assert step.apart.shape == (step.queries, step.queries * (1 + task.mining.negatives))
    hardest = brute_force(task, net, task.loaded.divided.pool.tolist())
    drawn = []
    for step in steps:
        rows = rows_of(task, net, step.inputs)
        drawn += [rows[2 * step.queries + 2 * i :][:2] == hardest[rows[i]][1] for i in range(step.queries)]
    assert not any(drawn), "any negatives, of 12, not the hardest two"
    steps = list(task.steps(net, client, 2, memo, rng_for(2)))
    assert len(steps) == 4 and all(isinstance(step, TripletBatch) and step.apart is None for step in steps)
    assert float(net.age) == 3, "it is not counted on: the gate would take it for a change of the model"
    fresh = places(village, task__mining__negatives=2)
    hard = [digest({"x": step.inputs}) for step in fresh.steps(network(fresh), client, 2, {}, rng_for(2))]
    assert [digest({"x": step.inputs}) for step in steps] == hard


def test_the_loss_of_the_warm_up_by_hand(village: Path) -> None:
    task = places(village, task__warmup=5, task__mining__negatives=2)
    net = network(task)
    step = next(passed(task, net, batch=3))
    rows = rows_of(task, net, step.inputs)
    output = task.forward(net, step)
    seen = output.features["image"].detach().numpy().astype(np.float64)
    seen /= np.linalg.norm(seen, axis=1, keepdims=True)
    losses = []
    for i in range(3):
        # its own positive and negatives, and those of the others which are more than 25 m away from it
        own = {i, 3 + 2 * i, 4 + 2 * i}
        among = [j for j in range(9) if j in own or apart(task, rows[i], rows[3 + j]) > 25]
        likeness = {j: math.exp(float(seen[i] @ seen[3 + j]) / 0.1) for j in among}
        losses.append(-math.log(likeness[i] / sum(likeness.values())))
        assert apart(task, rows[i], rows[3 + i]) <= 25 and all(
            apart(task, rows[i], rows[3 + j]) > 25 for j in own - {i}
        )
    assert float(task.loss(output, step, {}).detach()) == pytest.approx(sum(losses) / 3, rel=1e-5)


def test_the_age_travels(village: Path) -> None:
    assert "age" in travelling(network(places(village, task__warmup=1)))
    assert "age" not in travelling(network(places(village)))


def test_the_last_step_that_is_asked_for_counts(village: Path) -> None:
    """A device that takes one step a round would otherwise never grow up."""
    task = places(village, task__warmup=2)
    net = network(task)
    for age in (1, 2):
        steps = task.steps(net, everyone(task), 2, {}, rng_for(age))
        assert isinstance(step := next(steps), TripletBatch) and step.apart is not None
        steps.close()  # type: ignore[attr-defined]
        assert float(net.age) == age
    step = next(passed(task, net))
    assert step.apart is None


# ---- without the cache


@pytest.mark.parametrize("train", ["all", "block3"])
def test_a_set_that_does_not_fit_gives_the_same_bits(village: Path, train: str) -> None:
    cached, uncached = places(village, model__train=train), places(village, model__train=train, data__cache=0.0)
    net = network(cached)
    assert cached.loaded.images.rows is not None and uncached.loaded.images.rows is None
    for left, right in zip(passed(cached, net), passed(uncached, net), strict=True):
        assert torch.equal(left.inputs, right.inputs)
    assert cached.evaluate(net, None) == uncached.evaluate(net, None)
    assert np.array_equal(cached.features[1], uncached.features[1])
    scans = [torch.cat([batch.inputs for batch in task.scan(net, everyone(task))]) for task in (cached, uncached)]
    assert torch.equal(*scans)


def test_descriptors_are_those_of_the_pictures(village: Path) -> None:
    task = places(village, model__train="block3")
    net = network(task).eval()
    photos, features = task.features
    torch.manual_seed(0)
    assert photos.keys.tolist() == task.photos.keys.tolist()
    assert np.array_equal(features, described(task, net)[task.loaded.divided.pool].astype(np.float32))


# ---- photographs that are broken, absent or in another form


def write_table(folder: Path, rows: list[tuple[str, float, str, str, str]]) -> Path:
    """A CSV folder: file, metres north, role, split, sequence."""
    with (folder / "photos.csv").open("w", newline="") as file:
        lines = [(name, 59 + metres / 111_400, 18.0, role, split, walk) for name, metres, role, split, walk in rows]
        csv.writer(file).writerows([("file", "lat", "lon", "role", "split", "sequence"), *lines])
    return folder


@pytest.fixture
def walk(tmp_path: Path) -> Path:
    """A CSV folder of 12 photographs, 4 of them to test on; the second picture is broken, the last is not there."""
    rows = []
    for number in range(12):
        write_picture(tmp_path / "walk" / f"{number:02}.png", number // 2, number)
        rows.append(
            (
                f"{number:02}.png",
                60.0 * (number // 2),
                ("database", "query")[number % 2],
                "test" if number > 7 else "train",
                "s",
            )
        )
    (tmp_path / "walk" / "01.png").write_bytes(b"not a picture")
    (tmp_path / "walk" / "11.png").unlink()
    return write_table(tmp_path / "walk", rows)


def test_broken_and_absent_photographs_are_left_out_and_listed(walk: Path) -> None:
    task = places(walk)
    assert task.photos.keys.tolist() == [f"{n:02}.png" for n in (0, 2, 3, 4, 5, 6, 7)]
    assert [(Path(item["file"]).name, item["reason"][:30]) for item in task.skipped] == [
        ("01.png", "not a JPEG, PNG or WebP pictur"),
        ("photos.csv", f"{walk / 'photos.csv'}"[:30]),
    ]
    assert "no picture '11.png'" in task.skipped[1]["reason"]
    # the rows behind the gap still belong to their pictures
    net, images = network(task), task.loaded.images
    wanted = {
        name: task.describe(net, np.asarray(_read(walk / name))[None].repeat(2, 0))[0] for name in ("00.png", "07.png")
    }
    seen = dict(zip(task.photos.keys, task.embed(net, task.loaded.divided.pool)))
    assert len(images) == 10 and all(np.array_equal(seen[name], wanted[name]) for name in wanted)


def _read(file: Path) -> Any:
    from PIL import Image

    with Image.open(file) as image:
        return image.convert("RGB").copy()


def test_nothing_that_can_be_read(walk: Path) -> None:
    for file in walk.glob("*.png"):
        file.write_bytes(b"")
    with pytest.raises(DataError, match=r"00\.png: none of 11 photographs can be read: empty file"):
        places(walk).samples  # noqa: B018


def test_without_the_cache_a_broken_photograph_is_an_error_that_names_it(walk: Path) -> None:
    task = places(walk, data__cache=0.0)
    with pytest.raises(DataError, match=r"01\.png: not a JPEG"):
        list(passed(task, network(task)))


@pytest.fixture(scope="module")
def corridor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_frames(tmp_path_factory.mktemp("corridor"), 16)


def frames(corridor: Path, **settings: Any) -> Places:
    return places(
        corridor, data__tolerance=1, data__test__name="strips", data__test__strip=4.0, data__test__folds=4, **settings
    )


def test_paired_frames_are_trained_and_tested_on(corridor: Path) -> None:
    task = frames(corridor, data__test__fold=1)
    net, divided = network(task), task.loaded.divided
    # frames 4 to 7 of both runs are tested on; rows are the queries 0 to 15 and the references 16 to 31
    assert divided.test_queries.tolist() == [4, 5, 6, 7] and divided.test_database.tolist() == [20, 21, 22, 23]
    assert task.protocol.startswith("4 queries: in held-out strips of ground (part 2 of 4); right: a photo paired")
    seen = described(task, net)
    right = []
    for query in range(4, 8):
        best = min(range(20, 24), key=lambda row: ((seen[query] - seen[row]) ** 2).sum())
        right.append(abs(best - 16 - query) <= 1)
    told = task.evaluate(net, None)
    assert told["R@1"] == sum(right) / 4 and told["R@5"] == 1.0 and "median_error_m" not in told
    found = {}
    for step in passed(task, net, batch=3):
        rows = rows_of(task, net, step.inputs)
        for i in range(step.queries):
            found[rows[i]] = rows[step.queries + i], rows[2 * step.queries + 5 * i : 2 * step.queries + 5 * i + 5]
    database = [row for row in range(16, 32) if row not in range(20, 24)]
    assert sorted(found) == [0, 1, 2, 3, *range(8, 16)]
    for query, (positive, negatives) in found.items():
        order = sorted(database, key=lambda row: ((seen[query] - seen[row]) ** 2).sum())
        assert positive == next(row for row in order if abs(row - 16 - query) <= 1)
        assert negatives == [row for row in order if abs(row - 16 - query) > 1][:5]


def test_samples_of_paired_frames(corridor: Path) -> None:
    task = frames(corridor)
    net, seen, pool = network(task), described(task, network(task)), task.loaded.divided.pool
    assert pool.tolist() == [*range(4, 16), *range(20, 32)]
    # samples 2 to 4 are the queries 6, 7, 8; 12 to 14 the references of 4, 5, 6: only 6 and 7 have theirs among them
    told = task.evaluate(net, np.array([2, 3, 4, 12, 13, 14]))
    best = {query: min((20, 21, 22), key=lambda row: ((seen[query] - seen[row]) ** 2).sum()) for query in (6, 7)}
    assert told["R@1"] == sum(abs(row - 16 - query) <= 1 for query, row in best.items()) / 2
    assert told["R@5"] == 1.0


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"data__height": 31}, "data.height and width = 31 x 32: expected at least 32 x 32"),
        ({"task__loss__margin": 0.0}, r"loss.margin = 0.0"),
        ({"task__warmup": -1}, "task.warmup"),
        ({"data__cache": -1.0}, r"data.cache = -1.0"),
        ({"data__test__name": "strips", "data__test__fold": 9}, "data.test.fold = 9 of 4"),
        ({"task__mining__radius": 30.0}, "both a positive and a negative"),
        ({"task__denominator": "some"}, "task 'places'.denominator"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        places(Path(), **settings)


def settings_below(cls: type[Any], prefix: str) -> Iterator[str]:
    """Every setting of a class and of all parts that it can have."""
    parts = parts_of(cls)
    for field in fields(cls):
        yield prefix + field.name
        for name in parts[field.name].known if field.name in parts else ():
            yield from settings_below(parts[field.name].find(name, ""), f"{prefix}{field.name}.")


def test_settings_of_earlier_versions_say_where_they_are_now() -> None:
    known = set(settings_below(Places, ""))
    for old, new in Places.moved.items():
        with pytest.raises(ConfigError, match=rf"^task\.{old} has moved: it is {re.escape(new)} now$"):
            Experiment.from_table({"task": {"name": "places", old: 1}})
        assert new.removeprefix("task.") in known


def test_the_layout_must_be_the_one_that_is_named(village: Path, walk: Path) -> None:
    with pytest.raises(ConfigError, match=r"it has the layout 'msls', so set data\.name to that"):
        places(village, data__name="photos", data__path=str(village)).samples  # noqa: B018
    with pytest.raises(ConfigError, match=r"it has the layout 'photos', so set data\.name to that"):
        places(walk, data__name="msls", data__path=str(walk)).samples  # noqa: B018
    for name in ("msls", "photos"):
        with pytest.raises(ConfigError, match=r"data\.path must be given"):
            places(walk, data__name=name, data__path="").samples  # noqa: B018


def test_paths_that_are_no_photographs(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        places(tmp_path / "absent").samples  # noqa: B018
    for name in ("ape", "bee"):
        write_picture(tmp_path / "classes" / name / "0.png", 0)
    with pytest.raises(ConfigError, match="in the layout 'folder'; expected msls or photos"):
        places(tmp_path / "classes").samples  # noqa: B018


def test_weights_that_no_package_carries(village: Path) -> None:
    with pytest.raises(ConfigError, match=r"no package carries ImageNet's for vgg16.*import-weights"):
        places(village, model__backbone="vgg16").network()


# ---- the contract of tasks


@pytest.mark.parametrize(
    "settings",
    [
        {"task__warmup": 2},
        {"model__train": "block3", "task__augment": "jitter"},
        {"task__mining": "random"},
        {"task__loss": "infonce"},
    ],
)
def test_tasks_in_other_settings_conform(hamlets: Path, settings: dict[str, Any]) -> None:
    assert len(check_task(places(hamlets, **settings))) == len(TASK_CHECKS)


def test_paired_frames_conform(corridor: Path) -> None:
    assert len(check_task(frames(corridor))) == len(TASK_CHECKS)


# ---- whitening


def trained(task: Places, rounds: int = 1) -> Descriptor:
    """Two passes a round, a step of descent each batch."""
    net = network(task)
    for number in range(rounds):
        memo: dict[str, Any] = {}
        for part in range(2):
            for batch in task.steps(net, everyone(task), 2, memo, rng_for(number, part)):
                net.zero_grad()
                task.loss(task.forward(net, batch), batch, memo).backward()  # type: ignore[no-untyped-call]
                with torch.no_grad():
                    for p in net.parameters():
                        p.sub_(0 if p.grad is None else 0.01 * p.grad)
    return net


def test_whitening_is_learnt_once_a_round_and_changes_what_is_found_alone(village: Path) -> None:
    task, plain = places(village, model__whiten=0.5), places(village)
    net, other = trained(task, 2), trained(plain, 2)
    assert net.whitening is not None and float(net.whitening.weight) == pytest.approx(0.19)  # 0.1, 0.9 * 0.1 + 0.1
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), other.parameters(), strict=True))
    assert task.evaluate(network(task), None) == plain.evaluate(network(plain), None)
    assert task.evaluate(net, None)["spread"] != plain.evaluate(other, None)["spread"]
    judged, rows = task.judge(net, None)[1], task.loaded.divided
    whole = described(task, net)
    assert np.allclose(judged, whole[np.concatenate((rows.test_queries, rows.test_database))], atol=1e-5)
    with pytest.raises(ConfigError, match=r"model\.whiten"):
        places(village, model__whiten=1.5)
