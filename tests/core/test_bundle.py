"""Bundles: bytes and back, digests, and the mean."""

from __future__ import annotations

import hashlib
import json
import random
import tracemalloc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from torch import nn

from wayfare.core.bundle import Bundle, add, digest, load_into, mean, midpoint, snapshot, travelling, zeros_like
from wayfare.core.errors import StoreError

TYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool,
    torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64,
]  # fmt: skip
SHAPES = [(), (1,), (5,), (0,), (3, 0, 2), (2, 3), (2, 1, 3, 4)]


def some(dtype: torch.dtype, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    made = torch.Generator().manual_seed(seed)
    values = 50 * torch.randn(shape, generator=made)
    return values > 0 if dtype == torch.bool else values.to(dtype)


def rich() -> Bundle:
    """Every type and shape, two sections of one memory, and every kind of value."""
    tensors = {f"{str(t)[6:]}.{'x'.join(map(str, shape))}": some(t, shape) for t in TYPES for shape in SHAPES}
    shared = torch.arange(4.0)
    return Bundle(
        {
            "model": tensors,
            "control": {"a": shared, "b": shared, "c": shared.view(2, 2), "d": shared[:2]},
            "empty": {},
            "names": {
                "with.dots": torch.ones(1),
                "with space": torch.ones(2),
                "ünïcode": torch.ones(3),
                "": torch.ones(4),
            },
        },
        {"n": 3, "big": 2**70, "loss": 0.1, "tiny": 5e-324, "text": 'a "quoted"\n ü', "yes": True, "no": False},
    )


def same(a: Bundle, b: Bundle) -> bool:
    return (
        {s: list(w) for s, w in a.tensors.items()} == {s: list(w) for s, w in b.tensors.items()}
        and all(digest(a[s]) == digest(b[s]) for s in a.tensors)
        and [(k, type(v), v) for k, v in a.values.items()] == [(k, type(v), v) for k, v in b.values.items()]
    )


# ---- bytes and back


def test_everything_comes_back() -> None:
    assert same(Bundle.unpack(rich().pack()), rich())


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_types_and_shapes_come_back(dtype, shape) -> None:
    tensor = some(dtype, shape)
    back = Bundle.unpack(Bundle({"model": {"w": tensor}}).pack())["model"]["w"]
    assert (back.dtype, back.shape) == (dtype, shape)
    assert torch.equal(back, tensor)


def test_values_that_are_no_numbers_come_back() -> None:
    weird = torch.tensor([float("nan"), float("inf"), float("-inf"), -0.0])
    back = Bundle.unpack(Bundle({"m": {"w": weird}}, {"x": float("inf"), "y": float("-inf")}).pack())
    assert torch.equal(back["m"]["w"].view(torch.int32), weird.view(torch.int32))
    assert (back.values["x"], back.values["y"]) == (float("inf"), float("-inf"))
    assert np.isnan(Bundle.unpack(Bundle({}, {"x": float("nan")}).pack()).values["x"])


def test_an_empty_bundle_comes_back() -> None:
    back = Bundle.unpack(Bundle().pack())
    assert not back and back.tensors == {} and back.values == {}


def test_what_comes_back_is_the_receivers_own() -> None:
    shared = torch.zeros(3)
    back = Bundle.unpack(Bundle({"a": {"x": shared, "y": shared}, "b": {"x": shared}}).pack())
    back["a"]["x"].add_(1)
    assert shared.sum() == 0 and back["a"]["y"].sum() == 0 and back["b"]["x"].sum() == 0


def test_tensors_that_overlap_come_back() -> None:
    whole = torch.arange(6.0)
    bundle = Bundle({"m": {"whole": whole, "tail": whole[1:], "middle": whole[2:4]}, "k": {"end": whole[3:]}})
    assert same(Bundle.unpack(bundle.pack()), bundle)


def test_equal_bundles_equal_bytes_however_they_lie_in_memory() -> None:
    plain = torch.randn(2, 3, 4, 4)
    shared = torch.ones(2, 3, 4, 4)
    forms = [
        {"a": plain, "b": shared, "c": shared},
        {"a": plain.to(memory_format=torch.channels_last), "b": shared.clone(), "c": shared.clone()},
        {"a": plain.transpose(0, 3).contiguous().transpose(0, 3), "b": torch.ones(1).expand(2, 3, 4, 4), "c": shared},
        {"a": nn.Parameter(plain), "b": shared, "c": torch.ones(4, 3, 4, 4)[::2]},
    ]
    packed = {Bundle({"model": form}, {"n": 1, "x": 0.5}).pack() for form in forms}
    assert len(packed) == 1
    assert rich().pack() == rich().pack()
    assert Bundle.unpack(rich().pack()).pack() == rich().pack()


def test_different_bundles_different_bytes() -> None:
    def make(w=1.0, name="w", section="m", n: object = 1) -> bytes:
        return Bundle({section: {name: torch.tensor([w])}}, {"n": n}).pack()

    variants = [make(), make(w=1.0000001), make(w=-1.0), make(name="v"), make(section="k"), make(n=2), make(n=1.0)]
    assert len({*variants, make(n=True), make(n="1")}) == 9


def test_packing_leaves_the_tensors_alone() -> None:
    tensor = torch.randn(3, 4).t()
    before = tensor.clone()
    Bundle({"m": {"w": tensor}}).pack()
    assert torch.equal(tensor, before) and tensor.stride() == (1, 4)


def test_a_section_cannot_be_named_like_a_separator() -> None:
    with pytest.raises(StoreError, match="section name 'a//b' contains '//'"):
        Bundle({"a//b": {"w": torch.ones(1)}}).pack()


def test_a_tensor_can_be_named_like_a_separator() -> None:
    bundle = Bundle({"a": {"b//c": torch.ones(1), "//": torch.zeros(1)}})
    assert same(Bundle.unpack(bundle.pack()), bundle)


# ---- damaged and hostile bytes


def unpacked(data: bytes) -> Bundle | None:
    """The bundle, or None if it was refused as it should be; anything else is raised."""
    try:
        return Bundle.unpack(data)
    except StoreError:
        return None


SMALL = Bundle(
    {"model": {"w": torch.arange(6.0).view(2, 3), "b": torch.tensor([True, False])}, "control": {"w": torch.ones(1)}},
    {"n": 3, "text": "abc", "loss": 0.5},
).pack()


def test_truncated_anywhere() -> None:
    assert all(unpacked(SMALL[:length]) is None for length in range(len(SMALL)))
    assert unpacked(SMALL + b"\0") is None


def test_flipped_anywhere() -> None:
    """A flip in the tensors goes unseen here (checksums are the store's); in the header it is harmless or refused."""
    for place in range(len(SMALL)):
        for bit in range(8):
            damaged = bytearray(SMALL)
            damaged[place] ^= 1 << bit
            found = unpacked(bytes(damaged))
            assert found is None or isinstance(found.values, dict)


@settings(max_examples=300, deadline=None, database=None)
@given(st.binary(max_size=300))
def test_random_bytes(data) -> None:
    assert unpacked(data) is None
    assert unpacked(len(data).to_bytes(8, "little") + data) is None


@settings(max_examples=300, deadline=None, database=None)
@given(st.integers(0, 2**32))
def test_spliced_and_overwritten(seed) -> None:
    rng = random.Random(seed)
    data = bytearray(SMALL)
    for _ in range(rng.randint(1, 4)):
        place, length = rng.randrange(len(data)), rng.randint(0, 12)
        data[place : place + length] = rng.choice(
            [rng.randbytes(rng.randint(0, 12)), bytes(data[: rng.randint(0, 40)]), b"", b"9" * length, b'"', b"[", b"{"]
        )
    unpacked(bytes(data))


def with_contents(contents: object, tensors: dict[str, torch.Tensor] | None = None) -> bytes:
    text = contents if isinstance(contents, str) else json.dumps(contents)
    return save({"m//w": torch.ones(2)} if tensors is None else tensors, {"wayfare": text})


@pytest.mark.parametrize(
    "contents",
    [
        "", "x", "null", "[]", "3", "{}", '"text"', "[" * 500 + "]" * 500,
        {"names": {"m": ["w"]}},
        {"values": {}},
        {"names": {}, "values": {}},
        {"names": {"m": []}, "values": {}},
        {"names": {"m": ["w", "w"]}, "values": {}},
        {"names": {"m": ["v"]}, "values": {}},
        {"names": {"m": "w"}, "values": []},
        {"names": {"m": [1]}, "values": {}},
        {"names": {"m": [None]}, "values": {}},
        {"names": {"m": 7}, "values": {}},
        {"names": [["m", "w"]], "values": {}},
        {"names": {"k": ["w"]}, "values": {}},
        {"names": {"m": ["w"]}, "values": {"x": None}},
        {"names": {"m": ["w"]}, "values": {"x": [1]}},
        {"names": {"m": ["w"]}, "values": {"x": {}}},
        {"names": {"m": ["w"]}, "values": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_tables_of_contents(contents) -> None:
    with pytest.raises(StoreError, match="not a Wayfare bundle"):
        Bundle.unpack(with_contents(contents))


def test_a_file_of_somebody_elses() -> None:
    for data in (save({"w": torch.ones(2)}), save({"w": torch.ones(2)}, {"format": "pt"}), b"", b"PK\x03\x04 a zip"):
        with pytest.raises(StoreError, match="not a Wayfare bundle"):
            Bundle.unpack(data)


def test_a_table_of_contents_without_end() -> None:
    with pytest.raises(StoreError):
        Bundle.unpack(with_contents("[" * 100_000))


# ---- digest


def test_digest_by_hand() -> None:
    told = b"a:torch.float32:(1,);" + b"\0\0\x80\x3f" + b"b:torch.int64:();" + b"\2" + bytes(7)
    assert digest({"a": torch.ones(1), "b": torch.tensor(2)}) == hashlib.sha256(told).hexdigest()


def test_digest_is_blind_to_order_and_memory() -> None:
    a, b = torch.randn(2, 3, 4, 4), torch.randn(3)
    base = digest({"a": a, "b": b})
    assert digest({"b": b, "a": a}) == base
    assert digest({"a": a.to(memory_format=torch.channels_last), "b": b[[0, 1, 2]]}) == base
    assert digest({"a": nn.Parameter(a), "b": torch.stack([b, b], 1)[:, 0]}) == base


@settings(max_examples=100, deadline=None, database=None)
@given(st.sampled_from(TYPES), st.integers(0, 63), st.integers(0, 11))
def test_digest_sees_every_bit(dtype, bit, place) -> None:
    tensor = some(dtype, (3, 4))
    memory = tensor.clone().view(-1).view(torch.uint8)
    at = place * tensor.element_size() + bit // 8 % tensor.element_size()
    memory[at] ^= 1 << bit % (1 if dtype == torch.bool else 8)
    changed = memory.view(dtype).view(3, 4)
    assert digest({"w": changed}) != digest({"w": tensor})


def test_digest_sees_shape_type_and_name() -> None:
    zero = torch.zeros(4)
    others = [zero.view(2, 2), zero.view(4, 1), zero.int(), zero.double()[:2], zero[:3], zero[:0], torch.tensor(0.0)]
    found = {digest({"w": t}) for t in [zero, -zero, *others]} | {digest({"v": zero}), digest({})}
    assert len(found) == len(others) + 4
    assert digest({"w": zero, "v": zero[:0]}) != digest({"w": zero})


# ---- the mean


def test_mean_by_hand() -> None:
    # (1*2 + 3*10)/4 = 8 and (1*(-1) + 3*1)/4 = 0.5
    found = mean([(1, {"w": torch.tensor([2.0, -1.0])}), (3, {"w": torch.tensor([10.0, 1.0])})])
    assert found["w"].tolist() == [8, 0.5] and found["w"].dtype == torch.float32


def test_mean_of_small_large_and_empty_tensors_of_two_types() -> None:
    """Small neighbours are averaged as one: the same numbers, shapes and types as one by one."""
    shapes = [(3,), (0,), (2, 2), (200, 200), (4,), (1, 0, 2), (300, 301), (64, 64, 5, 5)]
    one, two = ({str(k): torch.randn(s) for k, s in enumerate(shapes)} for _ in range(2))
    for weights in (one, two):
        weights["half"] = torch.randn(5).half()
        weights["last"] = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    one["7"] = one["7"].to(memory_format=torch.channels_last)  # that lies in another order than the other's
    for first, second in ((one, two), (two, one)):
        found = mean([(1.0, first), (3.0, second)])
        assert list(found) == list(first)
        for name in first:
            expected = ((first[name].double() + 3 * second[name].double()) / 4).to(first[name].dtype)
            assert found[name].dtype == first[name].dtype and torch.equal(found[name], expected)


def test_mean_where_float32_would_go_wrong() -> None:
    # 2^24 + 1 is not a float32: adding 1 three times to 2^24 would leave it; the mean of the four is 2^22 + 0.75
    found = mean([(1.0, {"w": torch.tensor(v)}) for v in (2.0**24, 1.0, 1.0, 1.0)])
    assert found["w"].item() == 4194305.0  # the nearest float32 (their distance is 1/2 there, and ties go to even)


@settings(max_examples=100, deadline=None, database=None)
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=20), st.integers(0, 2**32))
def test_mean_against_numpy(weights, seed) -> None:
    made = torch.Generator().manual_seed(seed)
    models = [{"a": torch.randn(5, 3, generator=made), "b": 1e4 * torch.randn((), generator=made)} for _ in weights]
    found = mean(zip(map(float, weights), models))
    for name in ("a", "b"):
        # weight * value is exact in float64 (20 + 24 bits), so the order of the sum is all there is, and it is given
        total = np.zeros(models[0][name].shape)
        for weight, model in zip(weights, models):
            total = total + weight * model[name].numpy().astype(np.float64)
        assert np.array_equal(found[name].numpy(), (total / sum(weights)).astype(np.float32))


def test_mean_of_one_is_itself() -> None:
    w = torch.randn(1000)
    for weight in (1.0, 3.0, 12345.0):
        assert torch.equal(mean([(weight, {"w": w})])["w"], w)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_mean_keeps_the_type_and_the_arguments(dtype) -> None:
    models = [{"w": some(dtype, (4,), seed)} for seed in range(3)]
    before = [m["w"].clone() for m in models]
    assert mean((1.0, m) for m in models)["w"].dtype == dtype
    assert all(torch.equal(m["w"], b) for m, b in zip(models, before))


def test_mean_holds_a_few_models_at_a_time() -> None:
    alive: set[weakref.ref] = set()
    most = 0

    def models():
        nonlocal most
        for i in range(1000):
            model = {"w": torch.full((1000,), float(i))}
            alive.add(weakref.ref(model["w"], alive.discard))
            most = max(most, len(alive))
            yield 1.0, model
            del model

    assert mean(models())["w"][0] == 499.5
    assert most <= 3


def test_mean_needs_no_more_memory_for_more_models() -> None:
    def peak(count: int) -> int:
        tracemalloc.start()
        mean((1.0, {"w": torch.from_numpy(np.ones(10_000, np.float32))}) for _ in range(count))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(2)
    assert peak(1000) < peak(5) + 100_000  # a model is 40,000 bytes; NumPy's memory is traced


# ---- what of a network travels


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.frozen = nn.Linear(2, 2).requires_grad_(False)
        self.register_buffer("table", torch.arange(3))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)


TRAVELS = {"conv.weight", "conv.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"}


def test_travelling() -> None:
    """Trained parameters and floating buffers: not what is frozen, counts, or is not kept."""
    assert travelling(Small()).keys() == snapshot(Small()).keys() == TRAVELS


def test_a_snapshot_is_a_copy() -> None:
    net = Small()
    copy = snapshot(net)
    with torch.no_grad():
        net.conv.weight.add_(1)
        net.norm.running_mean.add_(1)
    assert not torch.equal(copy["conv.weight"], net.conv.weight)
    assert copy["norm.running_mean"].sum() == 0
    assert not any(tensor.requires_grad for tensor in copy.values())


def test_load_into_loads_exactly() -> None:
    net, other = Small(), Small()
    frozen = net.frozen.weight.clone()
    load_into(net, snapshot(other))
    assert digest(snapshot(net)) == digest(snapshot(other))
    assert torch.equal(net.frozen.weight, frozen)
    assert net.conv.weight.requires_grad


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda w: w.pop("conv.bias"), r"\['conv.bias'\] are on one side only"),
        (lambda w: w.update(more=torch.ones(1)), r"\['more'\] are on one side only"),
        (lambda w: w.update({"conv.bias": torch.ones(1)}), r"conv.bias is \(1,\), not \(2,\)"),
        (lambda w: w.update({"conv.weight": torch.ones(2, 1, 3, 1)}), r"conv.weight is \(2, 1, 3, 1\)"),
    ],
)
def test_load_into_refuses_what_does_not_fit(change, told) -> None:
    weights = snapshot(Small())
    change(weights)
    with pytest.raises(StoreError, match=told):
        load_into(Small(), weights)


# ---- small things


def test_with_and_only_share_and_do_not_change() -> None:
    one = Bundle({"a": {"w": torch.ones(1)}, "b": {"w": torch.ones(2)}}, {"n": 1})
    two = one.with_(b={"v": torch.zeros(1)}, c={})
    assert list(two.tensors) == ["a", "b", "c"] and list(one["b"]) == ["w"]
    assert two["a"]["w"] is one["a"]["w"]
    two.values["n"] = 2
    assert one.values == {"n": 1}
    only = one.only("b")
    assert list(only.tensors) == ["b"] and only.values == {} and "a" not in only and "b" in only


def test_number() -> None:
    bundle = Bundle({}, {"n": 3, "x": 0.5, "yes": True, "text": "4"})
    assert (bundle.number("n"), bundle.number("x"), bundle.number("yes"), bundle.number("none")) == (3.0, 0.5, 1.0, 0.0)
    assert bundle.number("none", 7) == 7
    with pytest.raises(TypeError, match="'text' is text"):
        bundle.number("text")


def test_nbytes_by_hand() -> None:
    tensors = {"a": {"w": torch.ones(3), "h": torch.ones(2).half()}, "b": {"i": torch.ones(1).long()}}
    assert Bundle(tensors, {"n": 1, "x": 0.5, "text": "four"}).nbytes == 12 + 4 + 8 + 8 + 8 + 4
    assert Bundle().nbytes == 0


def test_zeros_and_sums() -> None:
    assert zeros_like({"w": torch.ones(2).half()})["w"].tolist() == [0, 0]
    assert zeros_like({"w": torch.ones(2).half()})["w"].dtype == torch.float16
    assert add(iter([torch.tensor(1.0), torch.tensor(2.0), torch.tensor(4.0)])).item() == 7
    assert add([torch.tensor(5.0)]).item() == 5


@pytest.mark.parametrize("kind", ["any", "subnormal", "one far below the other", "too large for a sum"])
def test_the_midpoint_has_the_bits_of_the_mean(kind: str) -> None:
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2**32, (2, 2**17), dtype=np.uint32)
    if kind == "subnormal":
        bits &= 0x81FFFFFF  # down to the last digits there are, and a little above
    elif kind == "one far below the other":
        bits &= 0x807FFFFF
        bits += np.stack([np.full(2**17, 100), 100 - rng.integers(0, 30, 2**17)]).astype(np.uint32) << 23
    a, b = torch.from_numpy(bits.view(np.float32))
    small = (a.abs() < 1e38) & (b.abs() < 1e38)  # false for what is not finite, too
    a, b = a[small], b[small]
    if kind == "too large for a sum":
        a[7], b[7] = 3.0e38, 2.0e38
    expected = mean([(1.0, {"w": a}), (1.0, {"w": b})])["w"]
    assert expected.isfinite().all() and len(a) > 60_000
    assert torch.equal(midpoint(a, b).view(torch.int32), expected.view(torch.int32))


def test_the_midpoint_by_hand() -> None:
    """3e38 + 2e38 is beyond float32; half of the smallest number there is rounds to the even neighbour, 0."""
    smallest = 2.0**-149
    a, b = torch.tensor([1.0, 3e38, smallest, 3 * smallest]), torch.tensor([2.0, 2e38, 0.0, 0.0])
    assert midpoint(a, b).tolist() == [1.5, torch.tensor(2.5e38).item(), 0.0, 2 * smallest]
