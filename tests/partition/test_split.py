"""Who has what: rows, ids, selection, bytes."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wayfare.core.errors import ConfigError, DataError
from wayfare.core.protocols import Population
from wayfare.partition.split import Split, VirtualSplit, deal, even, load_split, origin
from wayfare.partition.virtual import Virtual

PARTS = [np.array([4, 2]), np.array([], np.int64), np.array([0, 7, 5])]


def small(groups: tuple[str, ...] | None = ("Lima", "Oslo", "Lima")) -> Split:
    return Split.from_parts(PARTS, {"rule": "byhand", "seed": 3}, groups)


def virtual(clients: int = 6) -> VirtualSplit:
    return VirtualSplit(clients, size=4, samples=50, seed=11)


def rows(split: Population) -> list[list[int]]:
    return [row.tolist() for row in split]


def test_rows() -> None:
    split = small()
    assert len(split) == 3
    assert rows(split) == [[4, 2], [], [0, 7, 5]]
    assert split.offsets.tolist() == [0, 2, 2, 5]
    assert split.indices.tolist() == [4, 2, 0, 7, 5]
    assert split.sizes.tolist() == [2, 0, 3]
    assert [split.size(i) for i in range(3)] == [2, 0, 3]
    assert split.offsets.dtype == split.indices.dtype == split[0].dtype == np.int64
    assert split.groups == ("Lima", "Oslo", "Lima")


@pytest.mark.parametrize("split", [small(), virtual()], ids=["split", "virtual"])
def test_positions_outside_are_refused(split: Population) -> None:
    for i in (-1, len(split)):
        for read in (split.__getitem__, split.size, split.id):
            with pytest.raises(IndexError):
                read(i)


def test_a_shuffled_row_is_the_callers_own() -> None:
    split = small()
    split[2].sort()
    assert split[2].tolist() == [0, 7, 5]
    with pytest.raises(ValueError, match="read-only"):
        split.indices[0] = 9


def test_ids() -> None:
    split = small()
    assert list(split.ids) == ["c0", "c1", "c2"]
    assert split.ids[1:] == ["c1", "c2"]
    assert len(split.ids) == 3
    assert split.position("c2") == 2
    assert "c1" in split.ids
    assert "c3" not in split.ids
    for wrong in ("c3", "c-1", "c01", "x1", "c", "", "c1 ", "c²", "c" + "9" * 40):
        assert split.find(wrong) is None
        with pytest.raises(ConfigError, match="no client"):
            split.position(wrong)


def test_a_selection_keeps_ids_data_and_groups() -> None:
    chosen = small().select([2, 0])
    assert list(chosen.ids) == ["c2", "c0"]
    assert rows(chosen) == [[0, 7, 5], [4, 2]]
    assert chosen.groups == ("Lima", "Lima")
    assert chosen.position("c0") == 1
    assert chosen.find("c1") is None
    again = chosen.select(np.array([1]))
    assert again.id(0) == "c0"
    assert again[0].tolist() == [4, 2]
    assert again.provenance == {"rule": "byhand", "seed": 3, "selected_from": 3}
    assert rows(small().select([])) == []


def test_a_selection_of_virtual_clients_draws_what_they_drew() -> None:
    split = virtual()
    chosen = split.select([5, 1])
    assert list(chosen.ids) == ["c5", "c1"]
    assert rows(chosen) == [split[5].tolist(), split[1].tolist()]
    assert chosen.select([1])[0].tolist() == split[1].tolist()


@pytest.mark.parametrize("positions", [[0, 0], [3], [-1], [0.5], [[0]], [True, False, True]])
def test_selections_that_cannot_be(positions: list) -> None:
    with pytest.raises(ConfigError, match="select"):
        small().select(positions)


@pytest.mark.parametrize(
    ("offsets", "indices"),
    [([], []), ([1, 2], [0, 0]), ([0, 2, 1], [5]), ([0, 1], [5, 6]), ([0, 1], [-1]), ([0, 1], [0.5]), ([[0]], [])],
)
def test_rows_that_cannot_be(offsets: list, indices: list) -> None:
    with pytest.raises(DataError):
        Split(np.array(offsets), np.array(indices))


def test_groups_and_numbers_must_fit_the_clients() -> None:
    with pytest.raises(DataError, match="2 group names for 3 clients"):
        small(groups=("a", "b"))
    for numbers in ([0, 1], [0, 1, 1], [-1, 0, 1]):
        with pytest.raises(DataError, match="client numbers"):
            Split(small().offsets, small().indices, numbers=np.array(numbers))


def test_provenance_must_be_json() -> None:
    assert Split.from_parts(PARTS, {"seed": np.int64(3)}).provenance == {"seed": 3}
    with pytest.raises(ConfigError, match="JSON"):
        Split.from_parts(PARTS, {"rule": object()})


#### Bytes


def same(a: Population, b: Population) -> bool:
    return (
        type(a) is type(b)
        and rows(a) == rows(b)
        and list(a.ids) == list(b.ids)
        and (a.groups, a.provenance) == (b.groups, b.provenance)
    )


@pytest.mark.parametrize(
    "split",
    [small(), small(None), small().select([2, 0]), small().select([]), virtual(), virtual().select([4, 2])],
    ids=["groups", "plain", "selected", "empty", "virtual", "virtual-selected"],
)
def test_pack_round_trip(split: Population) -> None:
    data = split.pack()
    assert same(split, load_split(data))
    assert load_split(data).pack() == data == split.pack()


def test_unpack_names_the_kind_it_wants() -> None:
    assert same(small(), Split.unpack(small().pack()))
    assert same(virtual(), VirtualSplit.unpack(virtual().pack()))
    with pytest.raises(DataError, match="load_split"):
        Split.unpack(virtual().pack())
    with pytest.raises(DataError, match="load_split"):
        VirtualSplit.unpack(small().pack())


@pytest.mark.parametrize("data", [b"", b"hello", b"\xff" * 64, small().pack()[:-1], small().pack() + b"\0"])
def test_what_is_not_a_split(data: bytes) -> None:
    with pytest.raises(DataError):
        load_split(data)


@pytest.mark.parametrize("split", [small(), virtual().select([4, 2])], ids=["split", "virtual"])
def test_every_damaged_byte_is_found(split: Population) -> None:
    good = split.pack()
    for i in range(len(good)):
        for mask in (0x01, 0x80):
            with pytest.raises(DataError):
                load_split(good[:i] + bytes([good[i] ^ mask]) + good[i + 1 :])


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_words(data: bytes) -> None:
    with pytest.raises(DataError):
        load_split(data)


def test_unusable_contents_with_a_right_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    for body in (
        {"kind": "virtual", "rule": {"clients": 2, "size": 9, "samples": 3, "seed": 0}},
        {"kind": "split"},
        {"kind": "?"},
    ):
        monkeypatch.setattr(VirtualSplit, "_body", lambda self, body=body: (dict(body), {}))
        with pytest.raises(DataError):
            load_split(virtual().pack())


#### Virtual clients


def test_virtual_clients_draw_by_seed_and_number() -> None:
    split = virtual()
    for i in range(len(split)):
        expected = np.random.default_rng([11, i]).choice(50, 4, replace=False)
        assert split[i].tolist() == expected.tolist()
        assert len(set(split[i].tolist())) == split.size(i) == 4
    assert split.sizes.tolist() == [4] * 6
    assert VirtualSplit(6, 4, 50, seed=12)[0].tolist() != split[0].tolist()


def test_a_million_virtual_clients_cost_nothing() -> None:
    labels = np.zeros(1000, np.int64)
    tracemalloc.start()
    split = Virtual(clients=1_000_000, size=16)(labels, np.random.default_rng(0))
    assert split.sizes.shape == (1_000_000,)
    assert split.size(999_999) == len(split[999_999]) == 16
    assert split.position(split.id(999_999)) == split.ids.index("c999999", 999_999) == 999_999
    data = split.pack()
    assert load_split(data)[777_777].tolist() == split[777_777].tolist()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(data) < 1000
    assert peak < 1_000_000


def test_a_virtual_client_cannot_draw_more_than_there_is() -> None:
    with pytest.raises(ConfigError, match="51 of 50"):
        VirtualSplit(2, 51, 50, 0)


#### What the rules share


def test_even() -> None:
    assert even(11, 4).tolist() == [3, 3, 3, 2]
    assert even(2, 3).tolist() == [1, 1, 0]


def test_deal_leaves_out_the_unowned() -> None:
    split = deal(np.array([2, -1, 0, 2, -1]), 3, np.random.default_rng(0), {})
    assert [sorted(row) for row in rows(split)] == [[2], [], [0, 3]]


def test_origin() -> None:
    labels = np.array([1, 0, 2])
    child = np.random.default_rng(5).spawn(1)[0]
    found = origin(Virtual(2, 1), labels, np.random.default_rng([5, 6]))
    assert found["rule"] == "virtual"
    assert found["settings"] == {"clients": 2, "size": 1}
    assert found["seed"] == [5, 6]
    assert found["samples"] == 3
    # sha256 of the three labels as little-endian 64-bit integers
    assert found["labels_sha256"] == "23e8d60b496f9e373ac6805ef95c5c0bc9769a2a1a60cf4e17e849ea02f89088"
    assert origin(Virtual(2, 1), labels, np.random.default_rng(5))["seed"] == 5
    assert Virtual(2, 1)(labels, np.random.default_rng(np.array([5, 6]))).provenance["seed"] == [5, 6]
    assert origin(Virtual(2, 1), labels, child)["seed"] == {"entropy": 5, "spawn_key": [0]}
    json.dumps(found)
