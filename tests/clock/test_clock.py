"""How long a device takes, and where its speed, its link and its spans come from."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from toy import Listed
from wayfare.clock.drawn import Drawn, recurring
from wayfare.clock.indoors import Indoors, indoors
from wayfare.clock.measured import Measured
from wayfare.core.clock import Clock, Devices, Pace, Timetable
from wayfare.core.errors import ConfigError, DataError
from wayfare.core.protocols import Client, Task, Training
from wayfare.hashing.task import Hashing
from wayfare.objects.task import Objects
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedvc import FedVC


class One(Devices):
    """Two steps a second, 100 bytes a second up, 400 down; reachable in the spans given."""

    def __init__(self, *spans: tuple[float, float]) -> None:
        self.spans, self.always = spans, not spans

    def pace(self, device: str) -> Pace:
        return Pace(2.0, up=100.0, down=400.0)

    def window(self, device: str, time: float) -> tuple[float, float]:
        never = (math.inf, math.inf)
        return next((span for span in self.spans if span[1] > time), never) if self.spans else (-math.inf, math.inf)


def trip(steps: int, *spans: tuple[float, float], start: float = 10.0, **settings: object):
    return Timetable(Clock(**settings), One(*spans), lambda device: steps).trip("c0", start, down=800, up=300)


def test_a_trip_by_hand() -> None:
    # 800 / 400 + 6 / 2 + 300 / 100 = 2 + 3 + 3 = 8 seconds; 3 W for 3 s and 1 W for 5 s are 14 J
    found = trip(6)
    assert (found.end, found.steps, found.whole, found.late, found.joules) == (18.0, 6, True, False, 14.0)


def test_a_deadline() -> None:
    found = trip(6, deadline=7.0)  # 2 s receiving, 3 s training, 2 of the 3 s sending: 3 W x 3 s + 1 W x 4 s
    assert (found.end, found.late, found.joules) == (17.0, True, 13.0)
    assert not trip(6, deadline=8.0).late


def test_as_many_steps_as_fit() -> None:
    # 7 seconds without 5 of sending leave 2 seconds, 4 steps
    found = trip(6, deadline=7.0, partial=True)
    assert (found.end, found.steps, found.whole, found.late) == (17.0, 4, False, False)
    assert trip(6, deadline=60.0, partial=True).whole
    assert trip(6, deadline=5.2, partial=True).late  # not one step


def test_spans_in_which_it_can_be_reached() -> None:
    # reachable from 12 to 15 and from 20 on: of 8 seconds 3 are done at 15, and 5 more take it to 25
    found = trip(6, (12.0, 15.0), (20.0, 90.0))
    assert (found.end, found.late) == (25.0, False)
    assert trip(6, (12.0, 15.0), (20.0, 90.0), deadline=14.0).late  # 3 + 4 of 8 seconds are there until 24
    assert trip(6, (12.0, 15.0), (20.0, 90.0), deadline=14.0, partial=True).steps == 4  # 7 - 5 seconds
    with pytest.raises(ConfigError, match="c0 never finishes"):
        trip(6, (12.0, 15.0))
    table = Timetable(Clock(), One((12.0, 15.0)), lambda device: 1)
    assert [table.can_start("c0", time) for time in (11.0, 12.0, 14.9)] == [False, True, True]
    assert table.next_start("c0", 3.0) == 12.0


def test_spans_that_come_again() -> None:
    spans = ((2.0, 4.0), (8.0, 12.0))  # the second one goes on into the next turn of 10
    assert [recurring(time, 10.0, spans) for time in (0.0, 3.0, 4.0, 11.0, 12.5)] == [
        (-2.0, 2.0), (2.0, 4.0), (8.0, 12.0), (8.0, 12.0), (12.0, 14.0),
    ]  # fmt: skip


def test_drawn_devices_are_the_seeds_and_have_the_median_asked_for() -> None:
    for law in ("lognormal", "pareto"):
        settings = Drawn(law=law, speed=4.0, speed_spread=1.0, up=8.0)
        one, again, other = settings.devices(0), settings.devices(0), settings.devices(1)
        assert one.pace("c3") == again.pace("c3") != other.pace("c3")
        speeds = np.array([one.pace(f"c{i}").speed for i in range(2001)])
        assert np.median(speeds) == pytest.approx(4.0, rel=0.1)
        assert speeds.max() / speeds.min() > 100
    alike = Drawn(speed=4.0, speed_spread=0.0, up=8.0, down=16.0, link_spread=0.0).devices(0)
    assert {alike.pace(f"c{i}") for i in range(9)} == {Pace(4.0, 1e6, 2e6)}
    # the time of a step has the tail index 1 / spread: P(time > x) = (median / x)^(1 / spread) / 2
    seconds = 1 / np.array([Drawn(law="pareto", speed=1.0, speed_spread=0.5).devices(0).pace(f"c{i}").speed
                            for i in range(4000)])  # fmt: skip
    assert np.mean(seconds > 2.0) == pytest.approx(2.0**-2 / 2, abs=0.015)


def test_a_share_of_the_day() -> None:
    devices = Drawn(online=0.25, period=100.0).devices(0)
    inside = 0
    for time in range(100):
        opens, closes = devices.window("c0", float(time))
        assert closes - opens == pytest.approx(25.0) and closes > time
        inside += opens <= time
    assert inside == 25


def test_a_table(tmp_path: Path) -> None:
    file = tmp_path / "devices.csv"
    file.write_text("client,speed,up,down,online\nc0,12.5,8,40,0-21600 72000-86400\nc1,2,0.8,10,\n")
    devices = Measured(path=str(file)).devices(0)
    assert devices.pace("c0") == Pace(12.5, 1e6, 5e6) and devices.pace("c1") == Pace(2.0, 1e5, 1.25e6)
    assert devices.window("c0", 30_000.0) == (72_000.0, 86_400.0) and devices.window("c1", 3.0)[0] < 0
    with pytest.raises(DataError, match=r"no row for the client 'c2'"):
        devices.pace("c2")
    file.write_text("speed,up,down\n1,8,8\n2,8,8\n")
    devices = Measured(path=str(file)).devices(0)
    assert {devices.pace(f"c{i}").speed for i in range(20)} == {1.0, 2.0}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("speed,up\n1,1\n", "no column 'down'"),
        ("speed,up,down\n", "no device in this table"),
        ("speed,up,down\n0,1,1\n", "out of range"),
        ("speed,up,down,online\n1,1,1,50-20\n", "start-end"),
        ("speed,up,down,online\n1,1,1,0-50 40-60\n", "in order"),
        ("client,speed,up,down\na,1,1,1\na,1,1,1\n", "'a'"),
    ],
)
def test_a_table_that_is_none(rows: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "devices.csv"
    file.write_text(rows)
    with pytest.raises(DataError, match=said) as told:
        Measured(path=str(file)).devices(0)
    assert "devices.csv" in str(told.value)


def test_walkers_can_be_reached_while_they_are_indoors(tmp_path: Path) -> None:
    assert indoors([100.0, 130.0, 1000.0, 1030.0], gap=300.0) == ((130.0, 1000.0), (1030.0, 86_500.0))
    file = tmp_path / "town.csv"
    rows = ["device,time,lat,lon,stationary"]
    rows += [f"anna,2024-06-21T08:00:{second:02},1,1,False" for second in (0, 30)]
    rows += ["anna,2024-06-21T09:00:00,1,1,False", "sign,2024-06-21T08:00:00,1,1,True"]
    file.write_text("\n".join(rows))
    devices = Indoors(path=str(file)).devices(0)
    assert devices.window("anna", 28_800.0) == (28_830.0, 32_400.0)
    assert devices.window("anna", 0.0) == (32_400.0 - 86_400.0, 28_800.0)
    assert devices.window("sign", 5.0)[0] < 0 < devices.window("sign", 5.0)[1]
    assert devices.window("c0", 0.0) in (devices.window("anna", 0.0), devices.window("sign", 0.0))


def test_settings_that_cannot_be() -> None:
    for settings in ({"deadline": -1.0}, {"over": 0.5}, {"speed": 0.0}, {"online": 0.0}, {"online": 1.5}):
        with pytest.raises(ConfigError, match=r"clock\.\w+ = .* out of range"):
            Drawn(**settings)
    for part, said in ((Measured, "clock.path"), (Indoors, "clock.path")):
        with pytest.raises(ConfigError, match=said):
            part()


def test_a_list_of_seconds_is_what_it_says() -> None:
    assert Timetable(Clock(), Listed(2.0, 5.0), lambda device: 3).trip("c1", 1.0, 10, 10).end == 16.0


@pytest.mark.parametrize("task", [Objects(), Hashing.example()], ids=["objects", "hashing"])
def test_tasks_know_their_steps(task: Task) -> None:
    net = task.network()
    for size in (3, 17, 32, 60):
        client = Client("c0", np.arange(size), np.empty(0, np.int64))
        made = len(list(task.steps(net, client, 16, {}, np.random.default_rng(0))))
        assert task.steps_in_pass(client, 16) == made > 0


def test_strategies_know_their_steps() -> None:
    assert FedAvg().steps(Training(epochs=3), 7) == 21 and FedAvg().steps(Training(iterations=4, epochs=3), 7) == 4
    assert FedAvg().steps(Training(epochs=3, at_most=10), 7) == 10
    assert FedVC(examples=100).steps(Training(batch_size=32), 7) == 4
