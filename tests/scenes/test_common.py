"""What relation heads share: widths, places, labels, pairs and slots."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from small_graphs import parameters, random_graph, set_to, together
from wayfare.core.errors import ConfigError, DataError
from wayfare.nets.published import PUBLISHED
from wayfare.scenes.heads.common import (
    PRESETS,
    ObjectEncoder,
    PairEncoder,
    Widths,
    ends,
    gather,
    label_embedding,
    places,
    slots,
)
from wayfare.scenes.word_vectors import word_vectors

TINY = Widths(visual=6, embedding=3, position_hidden=2, position=4, hidden=5, pair=8)


def test_presets() -> None:
    paper = PRESETS["paper"]
    assert (paper.visual, paper.embedding, paper.position_hidden, paper.position) == (1024, 200, 32, 128)
    assert (paper.hidden, paper.pair) == (512, 4096)
    small = PRESETS["small"]
    assert all(getattr(small, name) < value for name, value in vars(paper).items())
    with pytest.raises(ConfigError, match="hidden = 0"):
        replace(small, hidden=0)


def test_places_by_hand() -> None:
    graph = together(random_graph(1, 1, 0), random_graph(2, 1, 0))
    boxes = torch.tensor([[10.0, 20, 30, 70], [0, 0, 50, 20]])
    graph = replace(graph, boxes=boxes, sizes=torch.tensor([[100.0, 200.0], [50.0, 40.0]]))
    # 20 of 100 wide, 50 of 200 high, centre 20 and 45, area 1000 of 20000; then 50 of 50, 20 of 40, centre 25 and 10
    expected = [
        [0.2, 0.25, 0.2, 0.225, 0.1, 0.1, 0.3, 0.35, 0.05],
        [1.0, 0.5, 0.5, 0.25, 0.0, 0.0, 1.0, 0.5, 0.5],
    ]
    torch.testing.assert_close(places(graph), torch.tensor(expected))


def test_objects_and_pairs_by_hand() -> None:
    widths = Widths(visual=2, embedding=2, position_hidden=1, position=1, hidden=1, pair=1)
    vectors = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    objects, pairs = ObjectEncoder(2, 2, widths, vectors).eval(), PairEncoder(2, widths)
    for encoder in (objects.looks, pairs.looks):
        set_to(encoder[0], [[1.0, 0.0], [0.0, -1.0]])  # the second is negative for a positive input, and cut off
        set_to(encoder[2], [[2.0, 0.0], [1.0, 1.0]], [0.0, 0.5])
    set_to(objects.place[0], [[1.0, 0, 0, 0, 0, 0, 0, 0, 0]])
    objects.place[1].eps = 0.0
    set_to(objects.place[2], [[10.0]], [-1.0])
    graph = random_graph(1, 2, 2, width_x=2, width_u=2)
    graph = replace(
        graph,
        labels=torch.tensor([1, 0]),
        boxes=torch.tensor([[0.0, 0, 50, 60], [0, 0, 5, 60]]),  # widths .5 and .05 of 100
        x=torch.tensor([[3.0, 4.0], [-1.0, -4.0]]),
        u=torch.tensor([[1.0, -1.0], [2.0, 5.0]]),
    )
    seen = objects(graph)
    # (3, 4) -> (3, 0) -> (6, 3.5); (-1, -4) -> (0, 4) -> (0, 4.5)
    assert seen.x.tolist() == [[6.0, 3.5], [0.0, 4.5]]
    assert seen.e.tolist() == [[3.0, 4.0], [1.0, 2.0]]
    # 10 * .5 - 1 = 4, 10 * .05 - 1 < 0; BatchNorm has mean 0 and variance 1 so far
    assert seen.b.tolist() == [[4.0], [0.0]]
    assert seen.z.tolist() == [[6.0, 3.5, 3.0, 4.0, 4.0], [0.0, 4.5, 1.0, 2.0, 0.0]]
    assert seen.z.shape[1] == objects.width
    # (1, -1) -> (1, 1) -> (2, 2.5); (2, 5) -> (2, 0) -> (4, 2.5)
    assert pairs(graph).tolist() == [[2.0, 2.5], [4.0, 2.5]]


def test_statistics_of_places_move_slowly() -> None:
    objects = ObjectEncoder(4, 5, TINY).train()
    graph = random_graph(3, 6, 0)
    inner = objects.place[0](places(graph))
    objects(graph)
    torch.testing.assert_close(objects.place[1].running_mean, 0.001 * inner.mean(0))


def test_size_at_the_papers_widths() -> None:
    with torch.device("meta"):
        objects, pairs = ObjectEncoder(134, 12544, PRESETS["paper"]), PairEncoder(12544, PRESETS["paper"])
    assert objects.width == 1352
    assert parameters(pairs) == 13_895_680
    assert parameters(objects) == 13_895_680 + 134 * 200 + 4608  # 320 + 64 + 4224 for places


# ---- labels


def test_table_is_always_the_same_and_learns() -> None:
    first, second = label_embedding(133, 200), label_embedding(133, 200)
    assert torch.equal(first.weight, second.weight) and first.weight.requires_grad
    rows = first.weight.detach()
    assert abs(float(rows.mean())) < 0.02 and abs(float(rows.std()) - 1) < 0.02
    given = torch.zeros(2, 3)
    table = label_embedding(2, 3, given)
    with torch.no_grad():
        table.weight += 1
    assert given.sum() == 0  # a copy
    with pytest.raises(ConfigError, match=r"label vectors \(2, 3\): expected \(3, 3\)"):
        label_embedding(3, 3, given)


def test_word_vectors(tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("the 9 9\ntable 1 2\ncat 0.5 -3\ndining 5 6\n", encoding="utf-8")
    rows = word_vectors(str(file), ["cat", "dining table", "zebra", "table"])
    # "dining" is the longest word of its name; nobody knows zebras
    assert rows[[0, 1, 3]].tolist() == [[0.5, -3.0], [5.0, 6.0], [1.0, 2.0]]
    assert torch.equal(rows[2], label_embedding(4, 2).weight[2])


def test_wordllama_reads_every_class() -> None:
    if not PUBLISHED["wordllama"].path.is_file():  # in the cache that this process has now
        pytest.skip("wayfare data get wordllama")
    rows = word_vectors("wordllama", ["dog", "cat", "sky-other-merged", "sky"])
    assert rows.shape == (4, 256) and torch.equal(rows[2], rows[3])
    assert float(rows.square().mean()) == pytest.approx(1, abs=1e-5)
    assert float(rows[0] @ rows[1]) > 2 * float(rows[0] @ rows[2])


@pytest.mark.parametrize(
    "text, message",
    [
        ("a 1 2\ncat 1\n", "vectors.txt:2: 1 numbers, expected 2"),
        ("a 1 2\ncat 1 x\n", "vectors.txt:2: could not convert"),
    ],
)
def test_broken_word_vectors_are_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        word_vectors(str(file), ["cat"])


def test_missing_word_vectors_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt: cannot read word vectors"):
        word_vectors(str(tmp_path / "none.txt"), ["cat"])
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe cat")
    with pytest.raises(DataError, match=r"bytes\.txt: cannot read word vectors"):
        word_vectors(str(tmp_path / "bytes.txt"), ["cat"])


# ---- objects, pairs, slots


def test_ends_and_gather() -> None:
    pairs = torch.tensor([[0, 1], [0, 2], [2, 1]])
    nodes = torch.tensor([[1.0], [10.0], [100.0]])
    subjects, objects = ends(nodes, pairs)
    assert subjects[:, 0].tolist() == [1, 1, 100] and objects[:, 0].tolist() == [10, 100, 10]
    edges = torch.tensor([[1.0], [2.0], [4.0]])
    assert gather(edges, pairs[:, 0], 3)[:, 0].tolist() == [3, 0, 4]
    assert gather(edges, pairs[:, 1], 4)[:, 0].tolist() == [0, 5, 2, 0]


def test_slots_skip_the_room_of_smaller_images() -> None:
    where, longest = slots(together(random_graph(1, 2, 0), random_graph(2, 0, 0), random_graph(3, 3, 0)))
    assert longest == 3
    assert where.tolist() == [0, 1, 6, 7, 8]


def test_gradients_do_not_depend_on_threads() -> None:
    """Sums of many float32 in another order are other sums."""
    generator = torch.Generator().manual_seed(0)
    nodes = torch.randn(7, 64, generator=generator, requires_grad=True)
    pairs = torch.randint(0, 7, (20000, 2), generator=generator)
    factors = torch.randn(20000, 64, generator=generator)
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 4):
            torch.set_num_threads(threads)
            subjects, objects = ends(nodes, pairs)
            total = gather(subjects * objects * factors, pairs[:, 0], 7)
            found.append((total, torch.autograd.grad(total.sum(), nodes)[0]))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])
