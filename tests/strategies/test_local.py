"""Local: every device for itself."""

from __future__ import annotations

from pathlib import Path

from toy import Lab, bits, line, weight
from wayfare.strategies.local import Local


def test_two_rounds_by_hand(tmp_path: Path) -> None:
    # w <- (w + a)/2 in each round: c0 0 -> 2 -> 3, c1 0 -> 0.5 -> 0.75, and the server learns nothing
    lab = Lab(line([4.0], [1.0]), Local(), tmp_path)
    rounds = lab.play(rounds=2)
    assert [weight(lab.memory("c0", r), "model") for r in (1, 2)] == [2, 3]
    assert [weight(lab.memory("c1", r), "model") for r in (1, 2)] == [0.5, 0.75]
    assert all(bits(r.state) == bits(lab.start()) for r in rounds)


def test_no_weights_travel(tmp_path: Path) -> None:
    lab = Lab(line([4.0], [1.0]), Local(), tmp_path)
    traffic = lab.play()[0].gate
    assert not lab.strategy.send(lab.start(), "c0")
    assert lab.strategy.expects(lab.start()) == {}
    assert traffic.bytes_down == 0
    assert traffic.bytes_up == 2 * 6 * 8  # n, steps, loss, round, cold, kept
    assert traffic.kept == traffic.clients and len(traffic.cold) == 2


def test_who_was_not_asked_goes_on_where_it_was(tmp_path: Path) -> None:
    from wayfare.topologies.server import Server

    lab = Lab(line(*[[4.0]] * 6), Local(), tmp_path)
    rounds = lab.play(4, Server(per_round=2))
    for position in range(6):
        times = sum(f"c{position}" in r.gate.clients for r in rounds)
        expected = 4 - 4 / 2**times  # the distance to 4 is halved each time
        memory = lab.memory(f"c{position}", 4)
        assert (weight(memory) if memory else 0.0) == expected


def test_the_model_to_judge_is_the_own_one(tmp_path: Path) -> None:
    lab = Lab(line([4.0], [1.0]), Local(), tmp_path)
    state = lab.play()[0].state
    after = lab.bench.device("c0", 1, remember=1)
    assert float(lab.strategy.resume(after, lab.strategy.send(state, "c0"))["weight"]) == 2
    fresh = lab.bench.device("c0", 1, remember=0)
    assert float(lab.strategy.resume(fresh, lab.strategy.send(state, "c0"))["weight"]) == 0  # the common start
