"""What no other test noticed when `benchmarks/mutations.py` put faults into bundles and FedAvg."""

from __future__ import annotations

import pytest
import torch

from wayfare.core.bundle import Bundle
from wayfare.strategies.fedavg import FedAvg


def one(*numbers: float) -> dict[str, torch.Tensor]:
    return {"w": torch.tensor(numbers)}


# ---- bundles


def test_a_bundle_is_true_if_anything_is_in_it() -> None:
    assert not Bundle()
    assert Bundle({"model": {}}) and Bundle({}, {"n": 1})


def test_same_tensors_and_values() -> None:
    bundle = Bundle({"model": one(1.0), "control": one(2.0)}, {"n": 1})
    equal = Bundle({"model": one(1.0), "control": one(2.0)}, {"n": 1})
    assert bundle.is_same(equal) is True
    for other in (
        Bundle({"model": one(1.0), "control": one(3.0)}, {"n": 1}),
        Bundle({"model": one(1.0)}, {"n": 1}),
        Bundle({"model": one(1.0), "state": one(2.0)}, {"n": 1}),
        Bundle({"model": one(1.0), "control": one(2.0) | {"more": torch.ones(1)}}, {"n": 1}),
        Bundle({"model": one(1.0), "control": {"v": torch.tensor([2.0])}}, {"n": 1}),
    ):
        assert bundle.is_same(other) is False
        assert other.is_same(bundle) is False


def test_same_but_for_values() -> None:
    bundle, later = Bundle({"model": one(1.0)}, {"n": 1}), Bundle({"model": one(1.0)}, {"n": 2})
    assert bundle.is_same(later) is False
    assert bundle.is_same(later, but_for_values=True) is True
    assert bundle.is_same(Bundle({"model": one(2.0)}, {"n": 1}), but_for_values=True) is False


def test_what_is_no_number_is_the_same_as_itself() -> None:
    """NaN is not equal to NaN, but a tensor is what it is."""
    weights = one(float("nan"))
    assert Bundle({"model": weights}).is_same(Bundle({"model": weights})) is True
    assert Bundle({"model": weights}).is_same(Bundle({"model": dict(weights)})) is True
    assert Bundle({"model": weights}).is_same(Bundle({"model": one(float("nan"))})) is False


@pytest.mark.parametrize("letters", range(1, 10))
def test_headers_of_every_length_modulo_eight(letters: int) -> None:
    """Files are padded after the header: one byte less of it is seen only where there is no padding."""
    bundle = Bundle({"model": {"w" * letters: torch.ones(1)}}, {"n": 1})
    assert Bundle.unpack(bundle.pack()).is_same(bundle)


def test_only_tensors_that_share_memory_are_copied_to_pack_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of a whole model is memory that a small device may not have."""
    shared, copies, clone = torch.arange(4.0), list[torch.Tensor](), torch.Tensor.clone

    def counted(tensor: torch.Tensor) -> torch.Tensor:
        copies.append(tensor)
        return clone(tensor)

    monkeypatch.setattr(torch.Tensor, "clone", counted)
    Bundle({"model": {"a": torch.ones(2), "b": torch.ones(2), "c": torch.ones(0), "d": torch.ones(0)}}).pack()
    assert len(copies) == 0
    Bundle({"model": {"a": shared, "b": shared}, "control": {"a": shared[:2], "c": torch.ones(1)}}).pack()
    assert len(copies) == 2


# ---- FedAvg


def test_what_fedavg_declares() -> None:
    assert not (FedAvg.personal or FedAvg.pooled or FedAvg.ordered)
    assert FedAvg.requires == frozenset()


def test_fedavg_expects_its_model_and_nothing_else() -> None:
    state = Bundle({"model": one(1.0), "control": one(2.0)}, {"population": 3})
    assert FedAvg().expects(state) == {"model": state["model"]}


def test_what_a_model_counts() -> None:
    assert FedAvg("uniform").weight(7.0) == 1.0
    assert FedAvg("examples").weight(7.0) == 7.0


def test_fedavg_is_its_own_relay() -> None:
    strategy = FedAvg("uniform")
    assert strategy.relay() is strategy


def test_what_is_the_plain_mean() -> None:
    assert FedAvg().averages is True and FedAvg("uniform").averages is True
    assert type("Client", (FedAvg,), {"client": lambda self, device, message: Bundle()})().averages is True
    for hook in ("merge", "average", "weight", "report"):
        assert type("Other", (FedAvg,), {hook: lambda self, *given: None})().averages is False
