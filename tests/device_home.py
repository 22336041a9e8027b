"""The folder of a device that has met others, one with a hostile name, without any training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from wayfare.core.bundle import Bundle
from wayfare.encounters.alone import DeviceState
from wayfare.meeting.diary import Diary, Encounter, Transfer
from wayfare.meeting.identity import Identity

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202egnp.exe"


def write_home(folder: Path) -> Path:
    """Two were met: one gave a model that was kept and one that was not, to the other one was sent."""
    folder.mkdir(parents=True)
    Identity(folder, "anna").settle()
    diary = Diary(folder)
    diary.begin_day(0.5)
    for meeting, (name, score) in enumerate([("bert", 0.6), ("bert", 0.7), (HOSTILE, None)], 1):
        key = f"SHA256:{name[:4]}"
        diary.note(Encounter(f"{meeting:032x}", key, name, meeting, slot=meeting, day=0, score=score, asks=True,
                             asked=name == HOSTILE))  # fmt: skip
    for number, (after, kept) in enumerate([(0.625, True), (0.55, False)], 1):
        before = 0.5 if number == 1 else 0.625
        line = Transfer(f"{number:032x}", "SHA256:bert", "bert", "taken", "merged", "a" * 64, number, 0, predicted=0.6)
        line.before, line.after, line.adopted, line.reason = before, after, kept, "" if kept else HOSTILE
        diary.add(line)
    diary.add(Transfer("f" * 32, f"SHA256:{HOSTILE[:4]}", HOSTILE, "sent", "open", "b" * 64, 3, 0))
    columns = {"score": 0.625, "sent": 1, "taken": 2, "can_send": 2, "can_take": 1}
    state = DeviceState(
        Bundle({"model": {"weight": torch.ones(2)}}, {}), {name: np.array([value]) for name, value in columns.items()}
    )
    diary.save(state)
    return folder
