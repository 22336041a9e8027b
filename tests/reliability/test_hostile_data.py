"""`wayfare data check` and `data show` on data sets in which everything is called by one of ten hostile strings.

Names of folders, files, classes, words, captions, predicates and devices, and what is said of broken files.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hostile import HOSTILE, Seen, assert_harmless, hostile
from wayfare.cli import console, main

OURS = re.compile(r"\x1b\[(\?25[lh]|1A|2K)|\r")  # a bar that moves: rich's own commands


def named(text: str) -> str:
    """As much of it as a file can be called."""
    return text.replace("/", "").replace("\0", "")[:100] or "x"


def paint(file: Path, whole: bool = True) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 8), (90, 60, 30)).save(file, "PNG")
    if not whole:
        file.write_bytes(b"no picture")


def class_folders(root: Path, text: str) -> None:
    for kind in ("cat", named(text)):
        for number in range(3):
            paint(root / kind / f"{named(text)}{number}.png", whole=number > 0)


def pairs(root: Path, text: str) -> None:
    paint(root / "a.png")
    paint(root / "b.png", whole=False)
    with (root / "pairs.csv").open("w", newline="") as file:
        rows = [["photo", "text", "labels"], ["a.png", text, text], ["b.png", "word", text], [named(text), text, text]]
        csv.writer(file).writerows(rows)


def captions(root: Path, text: str) -> None:
    (root / "annotations").mkdir()
    for number in (1, 2):
        paint(root / "val2017" / f"{number}.png", whole=number == 1)
    images = [{"id": number, "file_name": f"{number}.png"} for number in (1, 2)]
    notes = [{"id": number, "image_id": number, "caption": text, "category_id": 1} for number in (1, 2)]
    files = {"captions": {}, "instances": {"categories": [{"id": 1, "name": text}]}}
    for name, more in files.items():
        whole = {"images": images, "annotations": notes, **more}
        (root / "annotations" / f"{name}_val2017.json").write_text(json.dumps(whole))


def scenes(root: Path, text: str) -> None:
    ids = np.ones((8, 12), int)
    ids[:, 6:] = 2
    paint(root / "0.jpg")
    Image.fromarray(np.stack([ids, ids * 0, ids * 0], 2).astype(np.uint8)).save(root / "0.png")
    objects = [(0, [0, 0, 6, 8], 1), (1, [6, 0, 12, 8], 2)]
    entry = {
        "file_name": "0.jpg", "pan_seg_file_name": "0.png", "image_id": 1, "height": 8, "width": 12,
        "relations": [[0, 1, 0]],
        "annotations": [{"bbox": box, "bbox_mode": 0, "category_id": kind} for kind, box, _ in objects],
        "segments_info": [{"id": value, "category_id": kind, "area": 48} for kind, _, value in objects],
    }  # fmt: skip
    broken = entry | {"file_name": text, "pan_seg_file_name": text, "image_id": text}
    words = {"thing_classes": [text], "stuff_classes": ["sky"], "predicate_classes": [text]}
    (root / "psg.json").write_text(json.dumps(words | {"data": [entry, broken], "test_image_ids": []}))


def traces(root: Path, text: str) -> None:
    with (root / f"{named(text)}.csv").open("w", newline="") as file:
        rows = [[text, f"2024-06-21T08:0{slot}:00", f"50.00{slot}", "9.0"] for slot in range(5)]
        csv.writer(file).writerows([["device", "time", "lat", "lon"], *rows, [text, "no time", "50.0", text]])


def tagged(root: Path, text: str) -> None:
    for number in (1, 2):
        paint(root / "mirflickr" / f"im{number}.jpg", whole=number == 1)
        (root / "mirflickr" / "meta" / "tags").mkdir(parents=True, exist_ok=True)
        (root / "mirflickr" / "meta" / "tags" / f"tags{number}.txt").write_text(f"{text}\n")
    (root / "mirflickr25k_annotations_v080").mkdir()
    (root / "mirflickr25k_annotations_v080" / f"{named(text)}.txt").write_text(f"1\n{text}\n")


LAYOUTS: dict[str, Callable[[Path, str], None]] = {
    "folder": class_folders, "csv_pairs": pairs, "coco": captions, "psg": scenes, "traces": traces, "mirflickr": tagged,
}  # fmt: skip


def shown(folder: Path, layout: str, text: str, page: Path, patch: pytest.MonkeyPatch) -> tuple[str, str]:
    """What both commands write to a terminal, and the page ("" if the data cannot be read)."""
    root = folder / named(text)
    root.mkdir(parents=True)
    LAYOUTS[layout](root, text)
    written = io.StringIO()
    for name in ("out", "err"):
        terminal = console.SafeConsole(file=written, force_terminal=True, color_system=None, width=200)
        patch.setattr(console, name, terminal)
        patch.setattr(f"wayfare.cli.{name}", terminal, raising=False)
        patch.setattr(f"wayfare.cli.data.{name}", terminal, raising=False)
    statuses = main(["data", "check", str(root)]), main(["data", "show", str(root), "--out", str(page)])
    assert set(statuses) <= {0, 1, 3}, written.getvalue()
    return OURS.sub("", written.getvalue()), page.read_text(encoding="utf-8") if page.exists() else ""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """Each layout's page if everything is called `word`."""
    found = {}
    for layout in LAYOUTS:
        folder = tmp_path_factory.mktemp(layout)
        with pytest.MonkeyPatch.context() as patch:
            said, page = shown(folder, layout, "word", folder / "page.html", patch)
        assert f"word: {layout}" in said and "checking" in said and page, said
        found[layout] = Seen(page)
    return found


@hostile
@pytest.mark.parametrize("layout", LAYOUTS)
def test_data_check_and_show(
    layout: str, text: str, plain: dict[str, Seen], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, page = shown(tmp_path, layout, text, tmp_path / "page.html", monkeypatch)
    assert_harmless(said)
    assert "checking" in said or "DataError" in said
    assert not re.search(r"^warning: all is well", said, re.MULTILINE)  # no line of its own
    seen = Seen(page)
    assert set(seen.tags) <= {tag for one in plain.values() for tag in one.tags}
    assert not [item for item in seen.attributes if item[1].startswith("on") or item[1:] == ("src", "x")]
    outside = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not set(outside) & set("\x1b\x07\x9b\x00\x08\x7f\u202e\u2066")
    if text == HOSTILE[6] and page:
        assert "&lt;img src=x onerror=alert(1)&gt;" in page  # it is there, as text
