"""What a device shows to its owner."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from device_home import HOSTILE, write_home
from wayfare.cli import main
from wayfare.core.bundle import digest
from wayfare.core.errors import ConfigError
from wayfare.meeting.peer_page import Acquaintance, PeerRecord, peer_page


def test_the_record_adds_up(tmp_path: Path) -> None:
    import torch

    record = PeerRecord.read(write_home(tmp_path / "anna"))
    assert (
        record.acquaintances
        == [
            Acquaintance(
                "bert", "SHA256:bert", 2, 0.7, taken=2, sent=0, gain=0.125
            ),  # 0.625 - 0.5; the other was not kept
            Acquaintance(HOSTILE, f"SHA256:{HOSTILE[:4]}", 1, None, taken=0, sent=1, gain=None),
        ]
    )
    assert record.model_sha256 == digest({"weight": torch.ones(2)})
    assert record.in_words() == "accuracy 0.625, 0.500 when the day began; left: 2 to send, 1 to take"
    with pytest.raises(ConfigError, match="no diary"):
        PeerRecord.read(tmp_path / "nothing")


def test_names_from_elsewhere_are_only_text_on_the_page(tmp_path: Path) -> None:
    text = peer_page(PeerRecord.read(write_home(tmp_path / "anna")))
    assert "alert(1)" in text and "<script>alert" not in text and "\x1b" not in text and "\u202e" not in text
    assert re.search(r"<td class=\"number\">\+0\.125</td>", text) and "on its way, or not acknowledged yet" in text


def test_show_prints_it_and_writes_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = write_home(tmp_path / "anna")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["peer", "show", "anna", "--home", str(home), "--out", str(tmp_path / "anna.html")]) == 0
    shown = capsys.readouterr().out
    assert "bert" in shown and "+0.125" in shown and "\x1b[31m" not in shown and "\u202e" not in shown
    assert (tmp_path / "anna.html").read_text().startswith("<!doctype html>")
    assert main(["peer", "show", "anna", "--home", str(home), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["taken"] == 2 and found["peers"][0]["gain"] == 0.125
    assert main(["peer", "show", "nobody"]) == 2
    assert "no diary of a device" in capsys.readouterr().err
