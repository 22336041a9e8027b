"""Two tiers: the identities with one server, meetings, and groups that fail."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from toy import Lab, bits, cloud, line, weight
from wayfare.core.errors import ConfigError, DeviceError
from wayfare.core.protocols import Policy, Training
from wayfare.strategies.fedadagrad import FedAdagrad
from wayfare.strategies.fedadam import FedAdam
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedavgm import FedAvgM
from wayfare.strategies.fedprox import FedProx
from wayfare.strategies.fedyogi import FedYogi
from wayfare.strategies.moon import Moon
from wayfare.strategies.scaffold import Scaffold
from wayfare.topologies.hierarchy import Hierarchy
from wayfare.topologies.server import Server

TRAINING = Training(lr=0.05, epochs=2, batch_size=4)
SIZES = (8, 6, 12, 10)


def in_order(strategy):
    """The strategy, asking clients in the order of their positions.

    A server draws its order from (seed, round, "choose"), a group's server from (seed, round, "choose", group), and
    random groups shuffle positions as well; sums of floating-point numbers depend on order in the last bit. With the
    order taken out, one group and one server must agree to the bit.
    """

    @dataclass(frozen=True)
    class InOrder(type(strategy)):
        def choose(self, sizes, count, rng):
            return list(range(min(count, len(sizes))))

    return InOrder(**vars(strategy))


@pytest.mark.parametrize(
    "strategy",
    [
        FedAvg(),
        FedAvg("uniform"),
        FedAvgM(),
        FedAdam(),
        FedAdagrad(),
        FedYogi(),
        Scaffold(),
        FedProx(mu=0.1),
        Moon(),
    ],
    ids=repr,
)
def test_one_group_that_always_meets_is_a_server_to_the_bit(strategy, tmp_path) -> None:
    strategy = in_order(strategy)
    server = Lab(cloud(*SIZES), strategy, tmp_path / "server", TRAINING).play(4, Server())
    groups = Lab(cloud(*SIZES), strategy, tmp_path / "groups", TRAINING, groups=["one"] * 4).play(4, Hierarchy())
    for one, other in zip(server, groups, strict=True):
        assert one.gate.clients == other.gate.clients == ["c0", "c1", "c2", "c3"]
        # whatever a device is told, and what the server goes on from, is the same
        told = set(strategy.send(one.state, "c0").tensors) | {"model"}
        assert {s: bits(one.state)[s] for s in told} == {s: bits(other.state)[s] for s in told}
        if "first" in one.state:
            assert all(bits(one.state)[s] == bits(other.state)[s] for s in ("first", "second"))


def test_with_clients_drawn_as_usual_it_is_a_server_up_to_rounding(tmp_path) -> None:
    import torch

    server = Lab(cloud(*SIZES), FedAvg(), tmp_path / "server", TRAINING).play(3, Server())
    groups = Lab(cloud(*SIZES), FedAvg(), tmp_path / "groups", TRAINING).play(3, Hierarchy(groups=1))
    assert server[0].gate.clients != groups[0].gate.clients  # the same ones, in another order
    for name, tensor in server[-1].state["model"].items():
        torch.testing.assert_close(groups[-1].state["model"][name], tensor, rtol=1e-5, atol=1e-6)


def test_two_groups_by_hand(tmp_path) -> None:
    # One step halves the distance to a. Group x: c0 (a = 4), c1 (a = 8); group y: c2 (a = -2, twice the samples).
    lab = Lab(line([4.0], [8.0], [-2.0, -2.0]), FedAvg(), tmp_path, groups=["x", "x", "y"])
    one, two, three = lab.play(3, Hierarchy(interval=2))
    # round 1: x: (2 + 4)/2 = 3; y: -1; no meeting, so the top stays at 0
    assert [weight(one.state, s) for s in ("model@0", "model@1", "model")] == [3, -1, 0]
    assert (one.state.values["examples@0"], one.state.values["examples@1"]) == (2, 2)
    # round 2: x: ((3+4)/2 + (3+8)/2)/2 = 4.5; y: (-1-2)/2 = -1.5; they meet, with 4 examples each: 1.5
    assert [weight(two.state, s) for s in ("model@0", "model@1", "model")] == [1.5, 1.5, 1.5]
    assert (two.state.values["examples@0"], two.state.values["examples@1"]) == (0, 0)
    # round 3 is the last: x: (2.75 + 4.75)/2 = 3.75; y: -0.25; they meet: 1.75
    assert [weight(three.state, s) for s in ("model@0", "model@1", "model")] == [1.75, 1.75, 1.75]


def test_scaffold_in_two_groups_by_hand(tmp_path) -> None:
    # One step of lr 1/2, K lr = 1/2. Groups of one: c0 with a = 4, c1 with a = -8, meeting every second round.
    lab = Lab(line([4.0], [-8.0]), Scaffold(), tmp_path, groups=["x", "y"])
    one, two = lab.play(2, Hierarchy(interval=2))
    # round 1: c0: 0 -> 2, change (0 - 2)/0.5 = -4; c1: 0 -> -4, change 8; alone in their groups, N = 1: c = -4 and 8
    assert [weight(one.state, s) for s in ("control@0", "control@1", "control")] == [-4, 8, 0]
    # round 2: c = c_i in each group, nothing is corrected: c0: 2 -> 3, change (2 - 3)/0.5 + 4 = 2, so c0 = -2;
    #          c1: -4 -> -6, change 4 - 8 = -4, so c1 = 4. The gains since the last meeting: -4 + 2 = -2 and 8 - 4 = 4.
    # they meet: model (3 - 6)/2 = -1.5; c = 0 + (-2 + 4)/2 = 1, the mean of c0 and c1
    assert weight(two.state) == -1.5
    assert [weight(two.state, s) for s in ("control@0", "control@1", "control")] == [1, 1, 1]
    assert [weight(two.state, s) for s in ("gain@0", "gain@1")] == [0, 0]
    assert (weight(lab.memory("c0", 2), "control") + weight(lab.memory("c1", 2), "control")) / 2 == 1


@pytest.mark.parametrize("strategy", [FedAvg(), FedAdam(), Scaffold()], ids=lambda s: type(s).__name__)
def test_groups_part_between_meetings_and_agree_after(strategy, tmp_path) -> None:
    lab = Lab(cloud(*SIZES), strategy, tmp_path, TRAINING, groups=["x", "x", "y", "y"])
    rounds = lab.play(7, Hierarchy(interval=3))
    for round in rounds:
        met = round.number in (3, 6, 7)  # every third, and after the last
        models = [bits(round.state)[s] for s in ("model@0", "model@1", "model")]
        assert (len(set(models)) == 1) == met, round.number
    tops = [bits(round.state)["model"] for round in rounds]
    assert tops[0] == tops[1] and tops[3] == tops[4] == tops[2]  # between meetings the top stays
    assert len(set(tops)) == 4


def test_the_last_round_always_meets(tmp_path) -> None:
    for rounds in (1, 2, 3):
        lab = Lab(cloud(*SIZES), FedAvg(), tmp_path / str(rounds), TRAINING, groups=["x", "x", "y", "y"])
        state = lab.play(rounds, Hierarchy(interval=100))[-1].state
        assert bits(state)["model"] == bits(state)["model@0"] == bits(state)["model@1"]


def test_it_continues_from_any_state(tmp_path) -> None:
    topology = Hierarchy(groups=2, interval=2, per_group=1)
    whole = Lab(cloud(*SIZES), Scaffold(), tmp_path / "whole", TRAINING).play(5, topology)
    lab = Lab(cloud(*SIZES), Scaffold(), tmp_path / "parts", TRAINING)
    state = whole[2].state  # between two meetings, with the examples of a round not yet reported
    lab.play(3, topology)
    assert bits(lab.play(5, topology, first=4, state=state)[-1].state) == bits(whole[-1].state)


def test_sampling_is_per_group_and_depends_on_seed_and_round_only(tmp_path) -> None:
    topology = Hierarchy(groups=3, per_group=2)
    labs = [Lab(line(*[[float(i)]] * 12), s, tmp_path / str(i)) for i, s in enumerate([FedAvg(), FedAvgM()])]
    drawn = [[r.gate.clients for r in lab.play(4, topology)] for lab in labs]
    assert drawn[0] == drawn[1]
    members = [{f"c{i}" for i in group} for group in topology.members(labs[0].people, 0)]
    for clients in drawn[0]:
        assert [len(set(clients) & group) for group in members] == [2, 2, 2]
    assert len({tuple(clients) for clients in drawn[0]}) == 4


# ---- groups


def test_random_groups_are_equal_in_size_and_drawn_from_the_seed(tmp_path) -> None:
    people = Lab(line(*[[1.0]] * 10), FedAvg(), tmp_path).people
    groups = [g.tolist() for g in Hierarchy(groups=3).members(people, seed=5)]
    assert sorted(map(len, groups)) == [3, 3, 4]
    assert sorted(i for group in groups for i in group) == list(range(10))
    assert groups == [g.tolist() for g in Hierarchy(groups=3).members(people, seed=5)]
    assert groups != [g.tolist() for g in Hierarchy(groups=3).members(people, seed=6)]


def test_groups_of_the_data_come_in_the_order_of_their_names(tmp_path) -> None:
    people = Lab(line(*[[1.0]] * 4), FedAvg(), tmp_path, groups=["Oslo", "Lima", "Oslo", "Cairo"]).people
    assert [g.tolist() for g in Hierarchy().members(people, 0)] == [[3], [1], [0, 2]]


def test_more_than_ten_groups_keep_their_own_states(tmp_path) -> None:
    """Group 1 must not read the sections of group 11."""
    lab = Lab(line(*[[float(i)] for i in range(12)]), FedAvg(), tmp_path, groups=[f"g{i:02}" for i in range(12)])
    state = lab.play(2, Hierarchy(interval=3), first=1)[0].state
    assert [weight(state, f"model@{i}") for i in range(12)] == [i / 2 for i in range(12)]


@pytest.mark.parametrize(
    ("topology", "told"),
    [
        (Hierarchy(interval=0), "topology.interval = 0"),
        (Hierarchy(groups=5), "topology.groups = 5, but 4 clients take part"),
        (Hierarchy(groups=-1), "topology.groups = -1"),
        (Hierarchy(per_group=-1), "topology.per_group = -1"),
    ],
)
def test_it_refuses_what_cannot_be(topology, told) -> None:
    with pytest.raises(ConfigError, match=told):
        topology.check(4)


def test_it_refuses_data_without_groups(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"topology\.groups = 0 .* this partition has no groups"):
        Lab(line([1.0], [2.0]), FedAvg(), tmp_path).play(1, Hierarchy())


# ---- failing groups


def emptied(toy, *positions):
    task, parts = toy
    return task, [np.empty(0, np.int64) if i in positions else part for i, part in enumerate(parts)]


@pytest.mark.parametrize("weighting", ["examples", "uniform"])
def test_a_group_below_quorum_stays_where_it_was(tmp_path, weighting) -> None:
    # group x: c0 (a = 4); group y: c1 works (a = -8), c2 and c3 have nothing: 1 of 3 is below a half
    toy = emptied(line([4.0], [-8.0], [1.0], [1.0]), 2, 3)
    lab = Lab(toy, FedAvg(weighting), tmp_path, policy=Policy(quorum=0.5), groups=["x", "y", "y", "y"])
    one, two = lab.play(2, Hierarchy(interval=2))
    assert [weight(one.state, s) for s in ("model@0", "model@1", "model")] == [2, 0, 0]
    assert not one.void
    assert (one.state.values["examples@0"], one.state.values["examples@1"]) == (1, 0)
    assert {(r["device"], r["group"]) for r in one.gate.refused} == {("c2", "1"), ("c3", "1")}
    # round 2: x goes to 3 and reports alone: what c1 did in a round that did not count has no weight
    assert [weight(two.state, s) for s in ("model@0", "model@1", "model")] == [3, 3, 3]


@pytest.mark.parametrize(
    "strategy", [FedAvg(), FedAvgM(), FedAdam(), Scaffold()], ids=lambda strategy: type(strategy).__name__
)
def test_a_round_void_in_every_group_changes_nothing(strategy, tmp_path) -> None:
    """One of three is admitted in each group, which must not make the servers meet: a momentum would move the model."""
    full = cloud(*[4] * 6)
    lab = Lab(full, strategy, tmp_path, TRAINING, policy=Policy(quorum=0.5), groups=list("xxxyyy"))
    topology = Hierarchy()
    state = lab.play(2, topology)[-1].state  # so that there is momentum
    lab.people.parts = emptied(full, 0, 1, 3, 4)[1]
    (round,) = lab.play(3, topology, first=3, state=state)
    assert round.void
    assert len(round.gate.refused) == 4
    assert bits(round.state) == bits(state)
    assert round.state.values == state.values


def test_a_group_that_cannot_at_all_does_not_end_the_run(tmp_path) -> None:
    # group y is one device that fails: it stays where it was, and x goes on alone: 0 -> 2
    lab = Lab(emptied(line([4.0], [1.0]), 1), FedAvg(), tmp_path, policy=Policy(), groups=["x", "y"])
    (round,) = lab.play(1, Hierarchy())
    assert [weight(round.state, s) for s in ("model@0", "model@1", "model")] == [2, 2, 2]
    assert not round.void
    assert round.gate.refused[0]["device"] == "c1"


def test_when_no_group_can_the_round_is_void_and_says_why(tmp_path) -> None:
    lab = Lab(emptied(line([4.0], [1.0]), 0, 1), FedAvg(), tmp_path, policy=Policy(), groups=["x", "y"])
    (round,) = lab.play(1, Hierarchy())
    assert [weight(round.state, s) for s in ("model@0", "model@1", "model")] == [0, 0, 0]
    assert round.void and "holds no training samples" in str(round.gate.failure)


def test_a_fault_stops_the_run_if_configured(tmp_path) -> None:
    toy = emptied(line([4.0], [1.0]), 1)
    lab = Lab(toy, FedAvg(), tmp_path, policy=Policy(on_error="raise"), groups=["x", "y"])
    with pytest.raises(DeviceError, match="device 'c1'"):
        lab.play(1, Hierarchy())
