"""Models that travel packed: error feedback by hand, bytes as sent, one result on every engine, hostile replies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from faults import outcome, tiny
from wayfare.compression.coders import CodingError
from wayfare.compression.engine import PackedEngine
from wayfare.compression.packing import LowRank, Packing, Quantise, TopK
from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError
from wayfare.engines.local import Local as LocalEngine
from wayfare.engines.pool.engine import Pool
from wayfare.engines.programs import perform
from wayfare.experiment import Experiment
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.privacy.attacks import SignFlip
from wayfare.privacy.client_level import ClientLevel
from wayfare.runner import resume, run
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.local import Local
from wayfare.strategies.scaffold import Scaffold
from wayfare.topologies.hierarchy import Hierarchy

NETWORK = Objects(model=CnnClassifier(width=8, hidden=32))
QUANTISED = (Quantise(bits=8, down=8), Quantise(bits=4, down=16), Quantise(bits=2, down=3))
ALL = (*QUANTISED, TopK(share=0.1), LowRank(rank=1, down=8))


class Somebody:
    """A device that remembers."""

    def __init__(self) -> None:
        self.memory = Bundle()

    def rng(self, purpose: str) -> None:
        return None


def test_what_is_not_sent_now_is_sent_later() -> None:
    """256 entries, of which one travels each time; the change is 3 at one place and 2 at another, in each round."""
    packing, device = TopK(share=1 / 256), Somebody()
    sent = Bundle({"model": {"w": torch.zeros(1, 256)}})
    change = torch.zeros(1, 256)
    change[0, 10], change[0, 20] = 3.0, 2.0
    received = []
    for _ in range(3):
        packed = packing.pack_reply(Bundle({"model": {"w": change}}), sent, device)  # type: ignore[arg-type]
        model = packing.unpack_reply(packed, sent)["model"]["w"]
        received.append({int(place): round(float(model[0, place]), 1) for _, place in model.nonzero()})
    # rest after each: (0, 2), then 3 against 2 + 2: (3, 0), then 3 + 3 against 2: (0, 2)
    assert received == [{10: 3.0}, {20: 4.0}, {10: 6.0}]
    without = replace(packing, feedback=False)
    packed = without.pack_reply(Bundle({"model": {"w": change}}), sent, device)  # type: ignore[arg-type]
    assert without.unpack_reply(packed, sent)["model"]["w"].nonzero().tolist() == [[0, 10]]


@pytest.mark.parametrize("packing", ALL, ids=lambda p: type(p).__name__ + str(p.down))
def test_bytes_are_counted_as_sent(packing: Packing, tmp_path: Path) -> None:
    experiment = replace(tiny(Scaffold(), rounds=1, compression=packing), task=NETWORK)
    bench = experiment.bench(tmp_path)
    state = experiment.strategy.start(experiment.task, bench.net(0))
    plain = Bundle(experiment.strategy.send(state, "c0").tensors, {"round": 1})
    message = packing.pack_message(plain, bench.device("c0", 1, 0).rng("x"))
    assert message.nbytes == packing.message_bytes(plain)
    reply = perform(bench, "train", "c0", message)
    assert isinstance(reply, Bundle)
    whole = packing.unpack_reply(reply, plain)
    assert reply.nbytes == packing.reply_bytes(whole) < whole.nbytes
    assert list(whole["model"]) == list(plain["model"]) and "control" in whole  # the rest goes as it is
    summary = run(experiment, tmp_path / "run")
    assert summary["bytes_up"] == 4 * reply.nbytes
    assert summary["bytes_down"] == 4 * (message.nbytes - 8)


def test_one_result_on_every_engine_and_after_a_stop(tmp_path: Path) -> None:
    experiment = replace(tiny(FedAvg(), rounds=4, compression=TopK(share=0.1, down=8)), task=NETWORK)
    run(experiment, tmp_path / "local", LocalEngine())
    with Pool(2) as pool:
        run(experiment, tmp_path / "pool", pool)
    run(replace(experiment, rounds=2), tmp_path / "stopped")
    resume(tmp_path / "stopped", rounds=4)
    assert outcome(tmp_path / "local")["model"] == outcome(tmp_path / "pool")["model"]
    assert outcome(tmp_path / "local")["model"] == outcome(tmp_path / "stopped")["model"]
    plain = run(replace(experiment, compression=None), tmp_path / "plain")
    assert plain["model_sha256"] != outcome(tmp_path / "local")["model"]
    rests = [bundle for bundle in (tmp_path / "local" / "memory").rglob("*") if bundle.is_file()]
    assert rests  # what was not sent waits on the devices


def test_it_goes_with_privacy_attacks_and_hierarchies(tmp_path: Path) -> None:
    for name, more in {
        "privacy": {"privacy": ClientLevel(noise=1.0)},
        "attack": {"attack": SignFlip(0.25)},
        "hierarchy": {"topology": Hierarchy()},
    }.items():
        experiment = replace(tiny(FedAvg(), rounds=1, compression=Quantise(down=8)), task=NETWORK, **more)
        assert Experiment.from_toml(experiment.to_toml()) == experiment
        packed = run(experiment, tmp_path / name)
        plain = run(replace(experiment, compression=None), tmp_path / f"{name}-plain")
        assert packed["refused"] == 0
        assert 0 < packed["bytes_up"] < plain["bytes_up"] / 2 and packed["bytes_down"] < plain["bytes_down"] / 2


def test_packed_replies_that_cannot_be_read_cost_their_device_only() -> None:
    sent = Bundle({"model": {"w": torch.zeros(300)}}, {"round": 1})
    good = Quantise().up.encode(torch.ones(300), np.random.default_rng(0))
    parts = {f"model~{part}": {"w": tensor} for part, tensor in good.items()}
    packing = Quantise()
    read = packing.unpack_reply(Bundle({"model": {}, **parts}), sent)["model"]["w"]
    assert read.tolist() == pytest.approx([1.0] * 300, rel=0.01)
    for wrong in (
        {"model": {}, **parts, "model~codes": {"w": torch.zeros(3, dtype=torch.int8)}},
        {"model": {}, "model~codes": parts["model~codes"]},
        {"model": {"w": torch.zeros(300)}, **parts},
        {"model": {}, **{section: {"other": part["w"]} for section, part in parts.items()}},
    ):
        with pytest.raises(CodingError):
            packing.unpack_reply(Bundle(wrong), sent)

    class Liar(LocalEngine):
        def call(self, program, requests, deadline):  # type: ignore[no-untyped-def]
            for id, _ in requests:
                yield id, Bundle({"model": {}, "model~codes": {"w": torch.zeros(3)}}, {"n": 1})

    (answer,) = PackedEngine(Liar(), packing, 0).call("train", [("c0", sent)], 1e9)
    assert "cannot be read" in answer[1].reason  # type: ignore[union-attr]


def test_misfits_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"\[compression\] is of no use with Local"):
        tiny(Local(), compression=Quantise())
    with pytest.raises(ConfigError, match=r"\[compression\] is for devices that report to a server"):
        Experiment.from_toml('[compression]\n[topology]\nname = "encounters"')
    for text, message in (("bits = 5", "bits"), ("down = 5", "down"), ("bit = 8", "did you mean 'bits'")):
        with pytest.raises(ConfigError, match=message):
            Experiment.from_toml(f'[compression]\nname = "quantise"\n{text}')
