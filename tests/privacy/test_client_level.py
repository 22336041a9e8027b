"""Client-level privacy: sampling, clipping and noise by hand; what is recorded; crashes; misfits."""

from __future__ import annotations

import json
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from amount import FULL
from faults import Watch, complete_lines, go, killed, outcome, points, tiny
from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError, QuorumError, StoreError
from wayfare.core.protocols import MergeContext, Policy
from wayfare.experiment import Evaluation, Experiment
from wayfare.privacy.accounting import epsilon, noise_for
from wayfare.privacy.client_level import ClientLevel
from wayfare.privacy.ledger import Ledger, Release
from wayfare.privacy.robust import Median
from wayfare.privacy.secrets import FILE, Secret
from wayfare.runner import resume, run
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedproto import FedProto
from wayfare.strategies.fedvc import FedVC
from wayfare.strategies.scaffold import Scaffold
from wayfare.topologies.hierarchy import Hierarchy
from wayfare.topologies.server import Server

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
QUIET = ClientLevel(noise=1e-9, clip=5.0)
HALF = Evaluation(every=1, clients=2)


def state(*w: float) -> Bundle:
    return Bundle({"model": {"w": torch.tensor(w)}})


def reply(*w: float) -> tuple[str, Bundle]:
    return "c", Bundle({"model": {"w": torch.tensor(w)}}, {"n": 7})


def merged(settings: ClientLevel, folder: Path, *replies: tuple[str, Bundle], expected: int = 2) -> Bundle:
    context = MergeContext(1, 0, folder, clients=4, expected=expected)
    return settings.merge(FedAvg(), state(1.0, 1.0), iter(replies), context)


def test_clipping_and_the_fixed_denominator_by_hand(tmp_path: Path) -> None:
    # changes (3, 4), of length 5, and (0, 10), cut to (0, 5); their sum (3, 9) over q N = 2
    found = merged(QUIET, tmp_path, reply(4, 5), reply(1, 11))["model"]["w"]
    assert found.tolist() == pytest.approx([1 + 1.5, 1 + 4.5], abs=1e-6)
    # one client alone is still divided by two, and examples weigh nothing
    assert merged(QUIET, tmp_path / "b", reply(4, 5))["model"]["w"].tolist() == pytest.approx([2.5, 3], abs=1e-6)
    # an empty sample is a lawful round
    assert merged(QUIET, tmp_path / "c")["model"]["w"].tolist() == pytest.approx([1, 1], abs=1e-6)


def test_the_clip_adapts_by_hand(tmp_path: Path) -> None:
    # one of two is clipped: b = 1/2; S <- 5 exp(-0.2 (0.5 - 0.9)) = 5.4164
    adapting = ClientLevel(noise=1e-9, clip=5.0, quantile=0.9, count_noise=1e-9)
    assert merged(adapting, tmp_path, reply(4, 5), reply(1, 11)).number("clip") == pytest.approx(5 * np.exp(0.08))
    # what the count costs: z = 1 and a count noise of 1 leave 1 / sqrt(1 - 1/4) for the changes
    assert ClientLevel(quantile=0.5, count_noise=1.0)._noise_of_changes(10) == pytest.approx(1.1547, abs=1e-4)


def test_the_noise_is_as_large_as_said_and_secret(tmp_path: Path) -> None:
    settings = ClientLevel(noise=2.0, clip=0.5)
    big = Bundle({"model": {"w": torch.zeros(200_000)}})
    draws = []
    for name in ("a", "b"):
        context = MergeContext(3, 0, tmp_path / name, clients=100, expected=10)
        draws.append(settings.merge(FedAvg(), big, iter(()), context)["model"]["w"].numpy())
    # 2.0 * 0.5 / 10; the standard error of a deviation over 200,000 draws is 0.16 %
    assert draws[0].std() == pytest.approx(0.1, rel=0.01) and abs(draws[0].mean()) < 0.001
    assert abs(np.corrcoef(*draws)[0, 1]) < 0.01, "two runs have keys of their own, whatever the seed"
    assert stat.S_IMODE((tmp_path / "a" / FILE).stat().st_mode) == 0o600


def test_the_same_sum_has_the_same_noise_and_another_sum_another(tmp_path: Path) -> None:
    settings = ClientLevel(noise=1.0)
    one, again = (merged(settings, tmp_path, reply(1.5, 1))["model"]["w"] for _ in range(2))
    other = merged(settings, tmp_path, reply(1.25, 1))["model"]["w"]
    assert torch.equal(one, again)
    assert other[1] != one[1], "the same noise on two sums would give away their difference"
    releases = Ledger(tmp_path).releases
    assert len(releases) == 2 and {r.round for r in releases} == {1}, "another sum is another release"
    # of the same sample of clients: it counts like one release with noise 1 / sqrt(2), more than two of two samples
    ((rate, noise), count), *others = Ledger(tmp_path).counted().items()
    assert (rate, count, others) == (0.5, 1, []) and noise == pytest.approx(0.5**0.5)
    assert epsilon({(0.05, 0.5**0.5): 1}, 1e-5) > epsilon({(0.05, 1.0): 2}, 1e-5) + 1


def test_sampling_is_poisson_with_the_rate(tmp_path: Path) -> None:
    ids = [f"c{i}" for i in range(2000)]
    drawn = [QUIET.choose(ids, MergeContext(t, 0, tmp_path, 2000, 500)) or [] for t in (1, 2, 1)]
    assert drawn[0] == drawn[2] != drawn[1]
    assert all(abs(len(chosen) - 500) < 5 * np.sqrt(2000 * 0.25 * 0.75) for chosen in drawn)
    assert len(set(drawn[0]) & set(drawn[1])) == pytest.approx(125, abs=55)


def test_sensitivity_one_client_more_moves_the_sum_by_at_most_the_clip(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for case in range(30):
        count, clip = int(rng.integers(0, 6)), float(rng.uniform(0.1, 3))
        replies = [
            reply(*(1 + rng.normal(0, 10 ** rng.uniform(-3, 3), 2)).astype(np.float32).tolist())
            for _ in range(count + 1)
        ]
        settings = ClientLevel(noise=1e-12, clip=clip)
        with_, without = (
            merged(settings, tmp_path / f"{case}-{i}", *some, expected=1)["model"]["w"].double()
            for i, some in enumerate((replies, replies[:-1]))
        )
        assert float((with_ - without).norm()) <= clip * (1 + 1e-5) + 1e-5


# ---- accounting


def test_epsilon_of_the_library_and_of_theory() -> None:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, pld

    for rate, noise, rounds in ((0.5, 1.0, 5), (0.1, 1.13, 100), (0.01, 0.8, 1000), (0.01, 20.0, 1000)):
        accountant = pld.PLDAccountant()
        accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), rounds)
        expected = accountant.get_epsilon(1e-5)
        assert expected * (1 - 1e-6) <= epsilon({(rate, noise): rounds}, 1e-5) <= 1.005 * expected
    # one Gaussian release, no sampling, s = 1: delta = Phi(1/2 - e) - exp(e) Phi(-1/2 - e) is 1e-5 at e = 4.3768
    assert epsilon({(1.0, 1.0): 1}, 1e-5) == pytest.approx(4.3768, abs=0.01)
    assert epsilon({}, 1e-5) == 0
    assert epsilon({(1.0, 1.0): 4}, 1e-5) == pytest.approx(epsilon({(1.0, 0.5): 1}, 1e-5), rel=1e-3)


def test_the_plan_is_the_least_noise_within_the_budget() -> None:
    noise = noise_for(0.1, 100, 1e-5, 4.0)
    assert epsilon({(0.1, noise): 100}, 1e-5) <= 4 < epsilon({(0.1, noise / 1.02): 100}, 1e-5)
    with pytest.raises(ConfigError, match="cannot be reached"):
        noise_for(1.0, 10**4, 1e-5, 0.01)


# ---- whole runs


def private(strategy: Any = None, **rest: Any) -> Experiment:
    made = {"privacy": ClientLevel(noise=1.0, epsilon=0.0), "evaluation": HALF, "rounds": 2, **rest}
    topology = made.pop("topology", Server())
    return replace(tiny(strategy or FedAvg(), clients=6, **made), topology=topology)


def test_nothing_of_single_clients_is_recorded(tmp_path: Path) -> None:
    summary = run(private(Scaffold(), topology=Server(3)), tmp_path / "r", "local")
    lines = [json.loads(line) for line in (tmp_path / "r" / "rounds.jsonl").read_text().splitlines()]
    for line in lines:
        assert line["clients"] == [] and line["examples"] == 0 and line["per_client"] == {}
        assert not any(name.startswith(("train/", "clients/")) for name in line["metrics"])
        assert line["kept"] == line["cold"] == line["refused"] == [] and "memory" not in line
    assert len({line["bytes_up"] for line in lines[1:]}) == 1, "bytes of three clients, however many there were"
    assert lines[-1]["metrics"]["privacy/epsilon"] == summary["privacy"]["epsilon"] > 0
    assert summary["privacy"]["epsilon"] == pytest.approx(epsilon({(0.5, 1.0): 2}, 1e-5))


def test_a_run_without_its_ledger_or_its_key_is_not_continued(tmp_path: Path) -> None:
    run(private(), tmp_path, "local")
    for file, reason in (("privacy.json", "no entry for round 1"), (FILE, "is missing")):
        kept = (tmp_path / file).read_bytes()
        (tmp_path / file).unlink()
        with pytest.raises(StoreError, match=reason):
            resume(tmp_path, "local", rounds=3)
        (tmp_path / file).write_bytes(kept)


def test_a_crash_does_not_end_a_run_whose_budget_is_just_enough(tmp_path: Path) -> None:
    """Round 2 is in the ledger and not committed: it is done again, which costs nothing."""
    settings = ClientLevel(epsilon=epsilon({(1.0, 1.0): 2}, 1e-5) + 0.01)
    run(private(rounds=2, privacy=settings), tmp_path, "local")
    whole = outcome(tmp_path)
    path = tmp_path / "rounds.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    assert resume(tmp_path, "local")["rounds"] == 2 and outcome(tmp_path) == whole


def test_a_run_in_which_no_reply_can_be_used_ends(tmp_path: Path) -> None:
    heard: list[str] = []
    strict = replace(private(rounds=5), policy=Policy(max_norm=1e-9, max_change=1e-9, max_void=2))
    with pytest.raises(QuorumError, match="2 rounds in a row without a usable reply"):
        run(strict, tmp_path, "local", listen=lambda event, data: heard.append(str(data.get("text", ""))))
    assert any("6 of 6 replies could not be used" in text for text in heard)


def test_what_makes_no_sense_is_told_at_the_start(tmp_path: Path) -> None:
    context, like = MergeContext(0, 0, tmp_path, clients=10, expected=10), {"model": {"w": torch.zeros(40_000)}}
    senseless, loud = ClientLevel(delta=0.1).warnings(like, context)
    assert "not below 1 / 10" in senseless and "20 times as long as the clip" in loud
    assert ClientLevel(noise=0.1).warnings(like, context) == []


def test_the_budget_ends_a_run(tmp_path: Path) -> None:
    two = epsilon({(1.0, 1.0): 2}, 1e-5)
    summary = run(private(rounds=9, privacy=ClientLevel(epsilon=two + 0.01)), tmp_path / "r", "local")
    assert summary["rounds"] == 2 and summary["privacy"]["epsilon"] <= two + 0.01
    told = " ".join(summary["warnings"])
    assert "lasts for 2 of 9 rounds" in told
    assert "the privacy budget was spent after round 2 of 9" in told


def test_a_budget_below_the_first_round_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"privacy.epsilon = 0.5 does not allow a single round: one round costs"):
        run(private(rounds=9, privacy=ClientLevel(epsilon=0.5)), tmp_path / "r", "local")


def test_a_run_that_stops_for_another_reason_has_not_spent_its_budget(tmp_path: Path) -> None:
    hopeless = Evaluation(every=1, clients=0, monitor="test/accuracy", patience=1)
    experiment = private(rounds=9, privacy=ClientLevel(clip=1e-9, epsilon=1e6), evaluation=hopeless)
    summary = run(experiment, tmp_path / "r", "local")
    assert summary["rounds"] < 9 and not any("budget" in text for text in summary["warnings"])


@pytest.mark.parametrize("strategy", [FedAvg(), Scaffold()], ids=lambda s: type(s).__name__)
def test_one_hash_on_every_engine(strategy: FedAvg, tmp_path: Path, pool: Any) -> None:
    sha = []
    for name, engine in (("local", "local"), ("pool", pool)):
        Secret(tmp_path / "local")
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / FILE).write_bytes((tmp_path / "local" / FILE).read_bytes())
        sha.append(run(private(strategy), tmp_path / name, engine)["model_sha256"])
    assert sha[0] == sha[1]


def test_killed_at_every_file_operation_epsilon_is_never_too_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits after each crash, and the ledger knows every round whose model anybody could have seen.

    Before each call that changes the folder and in the middle of each write, from the making of the key on.
    """
    monkeypatch.setattr(os, "urandom", lambda count: bytes(range(count)))  # a key, the same in every folder
    experiment = private(Scaffold(), topology=Server(3), evaluation=Evaluation(every=0), rounds=2)
    with Watch(tmp_path / "whole") as watch:
        go(experiment, tmp_path / "whole")
    expected, ledger = outcome(tmp_path / "whole"), (tmp_path / "whole" / "privacy.json").read_bytes()
    where, crashes = points(watch.calls), 0
    assert {"privacy.json", FILE} <= {Path(call.path).name.removeprefix(".").split(".tmp")[0] for call in watch.calls}
    for at, torn in where if FULL else where[::12]:
        place = tmp_path / f"{at}-{torn}"
        was_killed, _ = killed(place, lambda hear, place=place: go(experiment, place, listen=hear), at, torn)
        crashes += was_killed
        if (place / "rounds.jsonl").exists():
            committed = len(complete_lines(place).splitlines()) - 1
            stored = [int(path.stem) for path in place.glob("checkpoints/[0-9]*.safetensors")]
            assert len(Ledger(place).releases) >= max([committed, *stored]), "released, and not written down"
        go(experiment, place)
        assert outcome(place) == expected and (place / "privacy.json").read_bytes() == ledger
        shutil.rmtree(place)
    assert crashes > len(where if FULL else where[::12]) // 2
    print(f"killed {crashes} times at {len(where)} places")


# ---- what does not fit


def test_misfits_are_refused_with_the_reason() -> None:
    for settings, reason in (
        ({"strategy": FedProto()}, "is of no use with FedProto: models stay"),
        ({"strategy": FedVC()}, "chooses clients by their size"),
        ({"robust": Median()}, "do not go together"),
        ({"evaluation": Evaluation(validation_clients=1)}, "published without noise"),
        ({"topology": Hierarchy(2)}, "needs the topology 'server'"),
    ):
        strategy = settings.pop("strategy", FedAvg())
        with pytest.raises(ConfigError, match=reason):
            private(strategy, **settings)
    for setting in ({"noise": 0.0}, {"clip": -1.0}, {"delta": 0.0}):
        with pytest.raises(ConfigError, match="is out of range"):
            ClientLevel(**setting)


def test_networks_whose_buffers_are_learnt_are_refused() -> None:
    with pytest.raises(ConfigError, match="is a BatchNorm layer"):
        QUIET.check_network(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    QUIET.check_network(nn.Sequential(nn.Linear(2, 2), nn.GroupNorm(1, 2)))
    whitening = nn.Linear(2, 2)
    whitening.register_buffer("moments", torch.zeros(2))
    with pytest.raises(ConfigError, match="the buffers moments are learnt from the clients' data"):
        QUIET.check_network(whitening)


def test_a_damaged_ledger_or_key_is_an_error(tmp_path: Path) -> None:
    Ledger(tmp_path).add(Release(1, 0.5, 1.0, "x", "s"))
    (tmp_path / "privacy.json").write_text("[{]")
    with pytest.raises(StoreError, match="how much privacy is spent"):
        Ledger(tmp_path)
    (tmp_path / FILE).write_bytes(b"short")
    with pytest.raises(StoreError, match="5 bytes instead of 32"):
        Secret(tmp_path)
