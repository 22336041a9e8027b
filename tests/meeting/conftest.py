"""A world of four devices, and two of them that ask everybody."""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from meeting_peers import NAMES, plan, write_world
from wayfare.encounters.alone import LoneDevice
from wayfare.encounters.policies.always import Always
from wayfare.experiment import Experiment
from wayfare.meeting.diary import Diary
from wayfare.meeting.peer import MeetingPeer
from wayfare.meeting.program import opened

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # meet_parts.replay compares real and simulated devices


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("world")
    write_world(root)
    return root


@pytest.fixture(scope="session")
def pair(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], list[MeetingPeer]]]:
    """Opens two devices that ask everybody: with L = 2, one model is sent and one taken. Trained once for all tests."""
    experiment = replace(Experiment.read(world / "tour.toml"), exchange=Always(limit=2))
    homes = tmp_path_factory.mktemp("homes")
    with contextlib.ExitStack() as stack:
        firsts = [
            stack.enter_context(
                opened(replace(plan(world, name, experiment=experiment), home=homes / name), lambda text: None)
            )
            for name in NAMES[:2]
        ]

        def opening(home: Path) -> list[MeetingPeer]:
            peers = []
            for first in firsts:
                diary, parts = Diary(home / first.identity.name), first.device.parts
                diary.folder.mkdir(parents=True, exist_ok=True)
                state = diary.load(parts.initial) or copy.deepcopy(first.device.state)
                peers.append(MeetingPeer(first.identity, first.pins, LoneDevice(parts, state), diary, first.habits))
            return peers

        yield opening
