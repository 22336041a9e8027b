"""Who has which photographs: the numbers by hand, the page, and `wayfare split`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from photo_tables import Streets, street
from wayfare.cli import main
from wayfare.pages.partition import stored_maps, write_partition
from wayfare.partition.split import Split
from wayfare.partition.summary import summarise_split
from wayfare.places.partition import census as module
from wayfare.places.partition.census import census
from wayfare.places.partition.proximity import Proximity

RECIPE = """
[task]
name = "photo_tables:Streets"
[partition]
name = "{rule}"
radius = 100.0
"""


def test_numbers_by_hand() -> None:
    photos = street(
        ("q1", "a", [0, 1, 2]), ("d1", "a", [0]), ("d2", "a", [4, 5]),  # rows 0-2, 3, 4-5
        ("q2", "b", [9]), ("d3", "b", [8, 7]), ("d4", "b", [1]), zone="33N",  # rows 6, 7-8, 9
    )  # fmt: skip
    photos = type(photos)(**{**vars(photos), "easting": photos.easting + 500_000})
    split = Split.from_parts([np.array([0, 1, 2, 3]), np.array([6, 3]), np.array([4, 5, 7, 8])])
    found = census(split, photos)
    table = found["table"]
    assert table["sequences_mean"] == pytest.approx(2) and table["sequences_sd"] == 0
    assert table["queries_mean"] == pytest.approx(4 / 3)  # 3, 1, 0
    assert table["queries_sd"] == pytest.approx(np.sqrt(14 / 9))
    assert table["database_mean"] == pytest.approx(2)  # 1, 1, 4
    assert table["database_sd"] == pytest.approx(np.sqrt(2))
    assert table["cities_mean"] == pytest.approx(5 / 3)
    assert table["left_out"] == 1
    a, b = found["cities"]
    assert a == {"name": "a", "continent": "Europe", "clients": 3, "sequences": 3, "images": 7, "left_out": 0}
    assert b == {"name": "b", "continent": "Europe", "clients": 2, "sequences": 2, "images": 3, "left_out": 1}
    assert found["continents"] == [{"name": "Europe", "clients": 3, "sequences": 5, "images": 10, "left_out": 1}]
    first, second = found["maps"]
    assert (first["city"], first["x"], first["y"]) == ("a", [0, 1, 2, 0, 4, 5], [0] * 6)
    assert first["client"] == [0, 0, 0, 0, 2, 2]  # of two owners the first
    assert second["client"] == [1, 2, 2, -1]
    assert first["discs"] == [] and found["radius"] is None
    # a client keeps its number when others are taken away
    fewer = census(split.select([2]), photos)
    assert fewer["maps"][1]["client"] == [-1, 2, 2, -1] and fewer["table"]["left_out"] == 6


def test_what_is_not_known_is_left_out() -> None:
    photos = street(("q1", "a", [0]), ("d1", "a", [0]), zone="")
    bare = type(photos)(**{**vars(photos), "query": None, "easting": photos.easting * np.nan})
    found = census(Split.from_parts([np.array([0, 1])]), bare)
    assert "queries_mean" not in found["table"] and found["continents"] == [] and found["maps"] == []
    assert found["cities"][0]["continent"] == ""


def test_maps_are_thinned_and_discs_are_where_clients_began(monkeypatch: pytest.MonkeyPatch) -> None:
    photos = Streets().photos
    split = Proximity(100.0)(photos, np.random.default_rng(0))
    whole = census(split, photos)
    assert len(split) == 6 and whole["radius"] == 100.0
    for shown in whole["maps"]:
        assert len(shown["x"]) == shown["images"] == 36
        for client, x, y in shown["discs"]:
            centre = split[client][0]
            assert (x, y) == (photos.easting[centre] - 500_000, 0)
    assert sorted(client for shown in whole["maps"] for client, _, _ in shown["discs"]) == list(range(6))
    monkeypatch.setattr(module, "MOST_POINTS", 20)
    thin = census(split, photos)["maps"]
    assert [len(shown["x"]) for shown in thin] == [10, 10]
    assert thin[0]["x"][0] == whole["maps"][0]["x"][0] and thin[0]["x"][-1] == whole["maps"][0]["x"][-1]


def summary_of(rule: Any) -> dict[str, Any]:
    task = Streets()
    return summarise_split(rule(getattr(task, rule.source), np.random.default_rng(0)), task)


def test_the_page_draws_a_map_of_each_city_and_every_client(tmp_path: Path) -> None:
    summary = summary_of(Proximity(100.0))
    text = write_partition(summary, tmp_path / "page.html").read_text()
    assert text.count("metres north") == 2 and text.count('"type":"circle"') == 6
    for words in (
        "proximity, 6 clients",
        "Clients by continent",
        "Images by city",
        "alba",
        "Oceania",
        "circle of 100 m",
    ):
        assert words in text
    assert "in no client</button>" not in text  # nothing is left out, so there is no grey
    hostile = json.loads(json.dumps(summary).replace("alba", "<img src=x onerror=alert(1)>"))
    assert "<img src=x" not in write_partition(hostile, tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    "change",
    [{"maps": 3}, {"maps": [{}]}, {"maps": [{"images": "x"}]}, {"radius": "far"}, {"radius": []}, {"maps": None}],
)
def test_a_damaged_record_has_no_maps(change: dict[str, Any]) -> None:
    summary = summary_of(Proximity(100.0))
    part = stored_maps(json.loads(json.dumps(summary)))
    assert part is not None and len(part.figures) == 2 and "circle of 100 m" in part.note
    assert stored_maps({**summary, "places": summary["places"] | change}) is None
    assert stored_maps({}) is None


@pytest.mark.parametrize(("rule", "clients"), [("proximity", 6), ("clustering", 6), ("sequences", 6)])
def test_wayfare_split(
    rule: str, clients: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipe.toml").write_text(RECIPE.format(rule=rule))
    assert (
        main(
            [
                "split",
                "recipe.toml",
                "--allow-code",
                "photo_tables",
                "--json",
                "--out",
                "page.html",
                "--save",
                "split.bin",
            ]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    table = found["table"]
    assert table["clients"] == clients and table["samples"] == 72 and table["left_out"] == 0
    assert table["mean"] == 12 and table["sequences_mean"] == 4 and table["queries_mean"] == 6
    assert table["cities_mean"] == (2 if rule == "sequences" else 1)
    everywhere = clients if rule == "sequences" else clients // 2
    places = found["places"]
    assert [(row["name"], row["clients"]) for row in places["continents"]] == [
        ("Europe", everywhere),
        ("Oceania", everywhere),
    ]
    assert [(row["name"], row["images"]) for row in places["cities"]] == [("alba", 36), ("orosk", 36)]
    assert found["page"] == "page.html" and Path("page.html").exists()
    assert main(["split", "recipe.toml", "--allow-code", "photo_tables"]) == 0
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines()]
    assert ["sequences", "4.0", "0.0"] in rows and ["images", "12.0", "0.0"] in rows
    assert ["orosk", str(everywhere), "12", "36", "0"] in rows and ["Oceania", str(everywhere), "12", "36", "0"] in rows
    Path("again.toml").write_text(RECIPE.format(rule="file").replace("radius = 100.0", 'path = "split.bin"'))
    assert main(["split", "again.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["table"] == table
