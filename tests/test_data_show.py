"""`wayfare data show` on every layout, with tiny data written by hand, and on a town."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from wayfare.cli import main
from wayfare.encounters.gallery import _kinds
from wayfare.gallery import gather
from wayfare.io import matfiles
from wayfare.pages import maps
from wayfare.pages.counting import histogram
from wayfare.pages.dataset_parts import Bars, Collection, DataSet, Layer
from wayfare.pages.maps import MapSource
from wayfare.pages.thumbnails import evenly

HOSTILE = "<img src=x onerror=alert(1)>"
METRE = 1 / 111_320.0  # degrees of latitude


def paint(file: Path, number: int = 0, size: tuple[int, int] = (24, 16)) -> Path:
    """A picture of its own colour."""
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (number * 37 % 256, number * 11 % 256, 90)).save(file)
    return file


def only(path: Path) -> DataSet:
    found = gather(path).sets
    assert len(found) == 1
    return found[0]


def bars(found: DataSet) -> dict[str, dict[str, float]]:
    return {item.title: dict(zip(item.names, item.counts)) for item in found.bars}


def titles(found: DataSet) -> list[str]:
    return [strip.title for strip in found.strips]


# ---- Photographs of places


def msls(root: Path, city: str, east: float, longitude: float) -> None:
    """A sequence of five by day in the database, and one of four by night, two metres beside it, to ask with."""
    for role, count, dark, aside in (("database", 5, False, 0.0), ("query", 4, True, 2.0)):
        folder = root / "train_val" / city / role
        lines: dict[str, list[str]] = {
            "seq_info.csv": [",key,sequence_key,frame_number"],
            "raw.csv": [",key,lon,lat,ca,captured_at,pano"],
            "postprocessed.csv": [",key,easting,northing,unique_cluster,control_panel,night,view_direction"],
        }
        for n in range(count):
            key = f"{city}-{role}-{n}"
            paint(folder / "images" / f"{key}.jpg", n)
            lines["seq_info.csv"].append(f"{n},{key},{city}{role},{n}")
            latitude = 50 + 40 * n * METRE
            date = "2017-06-10" if n < 2 else "2018-01-05"
            lines["raw.csv"].append(f"{n},{key},{longitude},{latitude},{90 * (n % 2)},{date},{n == 4}")
            place = f"{east + aside},{5_538_000 + 40 * n}"
            lines["postprocessed.csv"].append(f"{n},{key},{place},1,False,{dark},Forward")
        for name, text in lines.items():
            (folder / name).write_text("\n".join(text) + "\n")


@pytest.fixture
def streets(tmp_path: Path) -> Path:
    msls(tmp_path / "msls", "alba", 500_000, 9.0)
    msls(tmp_path / "msls", "brig", 400_000, 13.0)
    return tmp_path / "msls"


def test_msls(streets: Path) -> None:
    found = only(streets)
    assert found.layout == "msls" and found.problem_count == 0
    wanted = {"photos": 18, "cities": 2, "queries": 8, "database": 10, "sequences": 4, "by night": 8, "panoramas": 2}
    assert found.counts == wanted
    walk = "A walk along a street in alba"
    assert titles(found) == ["All photos", "By day", "By night", walk, "One place, twice", "Panoramas"]
    sheets = {strip.title: strip for strip in found.strips}
    # of the five by day in each city one is a panorama
    assert [len(sheets[name].pictures) for name in ("All photos", "By day", "By night", walk)] == [16, 8, 8, 4]
    assert [picture.caption for picture in sheets[walk].pictures] == ["0 m", "40 m", "80 m", "120 m"]
    assert all(picture.words.endswith("day") for picture in sheets["By day"].pictures)
    spread = bars(found)
    assert spread["By month"] == {"2017-06": 8, "2018-01": 10} and "Over the day" not in spread
    assert spread["Where cameras look"] == {"N": 10, "E": 8} | dict.fromkeys(("NE", "SE", "S", "SW", "W", "NW"), 0)
    assert spread["Length of sequences"] == {"4": 2, "5": 2} and spread["Cities"] == {"alba": 9, "brig": 9}


def test_two_photographs_of_one_place(streets: Path) -> None:
    """Each of the four places of a city is a pair by day and by night, 40 m from the next; six are shown."""
    pairs = next(strip for strip in only(streets).strips if strip.pairs)
    assert len(pairs.pictures) == 12
    for first, second in zip(pairs.pictures[::2], pairs.pictures[1::2]):
        assert first.words.split("/")[1] == second.words.split("/")[1]  # the city
        assert first.words.split(".jpg")[0][-1] == second.words.split(".jpg")[0][-1]  # the place
        assert {first.words[-3:], second.words[-3:]} == {"day", "ght"}
        assert second.caption.startswith("2.0 m away")


def test_one_map_for_each_city(streets: Path) -> None:
    drawn = {shown.title: {layer.name: layer for layer in shown.layers} for shown in gather(streets).maps}
    assert set(drawn) == {"alba", "brig"} and set(drawn["alba"]) == {"database", "queries by night"}
    assert drawn["alba"]["database"].y == pytest.approx([0, 40, 80, 120, 160], abs=0.1)
    assert drawn["alba"]["database"].words[3] == "alba-database-3"


def table(folder: Path, rows: list[str], header: str = "file,lat,lon,time,sequence,camera") -> Path:
    folder.mkdir(parents=True)
    for number, row in enumerate(rows):
        paint(folder / row.split(",")[0], number)
    (folder / "photos.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder


def test_photos_with_a_table(tmp_path: Path) -> None:
    rows = [f"{n}.jpg,{45 + 10 * n * METRE},7.0,2024-06-21T0{n}:30:00,walk,{'ab'[n % 2]}" for n in range(6)]
    found = only(table(tmp_path / "mine", rows))
    assert found.layout == "photos" and found.counts == {"photos": 6, "sequences": 1}
    assert titles(found) == ["All photos", "A walk along a street"]
    assert bars(found)["Cameras"] == {"a": 3, "b": 3}
    assert list(bars(found)["Over the day"].values()) == [1] * 6 + [0] * 18
    assert gather(tmp_path / "mine").maps[0].title == "45.0002, 7.0000"


def test_two_cameras_at_one_place(tmp_path: Path) -> None:
    """The first and the third are of two cameras at one place and look the same way; the second looks back."""
    rows = ["1.jpg,45,7,90,Alpha", "2.jpg,45,7,270,Beta", f"3.jpg,{45 + 5 * METRE},7,100,Beta", "4.jpg,46,7,90,Beta"]
    found = only(table(tmp_path / "mine", rows, "file,lat,lon,heading,camera"))
    pairs = next(strip for strip in found.strips if strip.pairs)
    assert [picture.caption for picture in pairs.pictures] == ["Alpha", "5.0 m away, Beta"]
    assert len(gather(tmp_path / "mine").maps) == 2  # a degree apart


def test_frames_that_belong_together(tmp_path: Path) -> None:
    for folder in ("query", "ref"):
        for number in range(3):
            paint(tmp_path / "run" / folder / f"{number}.png", number)
    (tmp_path / "run" / "ground_truth.json").write_text("[[0, [0]], [1, [1, 2]]]")
    found = only(tmp_path / "run")
    pairs = next(strip for strip in found.strips if strip.pairs)
    assert [picture.words for picture in pairs.pictures[:2]] == ["query/0.png", "ref/0.png"] and len(
        pairs.pictures
    ) == 6
    assert gather(tmp_path / "run").maps == []  # nothing says where it is
    (tmp_path / "run" / "ground_truth.json").unlink()
    found = only(tmp_path / "run")
    assert titles(found) == ["All photos"] and found.problem_count == 1


# ---- Scenes


def psg(folder: Path, relations: list[list[int]]) -> Path:
    """Two objects beside each other, 12 x 8 pixels, the left one with the id 1, the right one with 300."""
    entries = []
    for number in range(3):
        ids = np.ones((8, 12), int)
        ids[:, 6:] = 300
        planes = np.stack([ids % 256, ids // 256, ids * 0], 2).astype(np.uint8)
        paint(folder / f"{number}.jpg", number, (12, 8))
        Image.fromarray(planes).save(folder / f"{number}.png")
        objects = [(0, [0, 0, 6, 8], 1), (1, [6, 0, 12, 8], 300)]
        entries.append(
            {
                "file_name": f"{number}.jpg", "pan_seg_file_name": f"{number}.png", "image_id": number,
                "height": 8, "width": 12, "relations": relations if number else [],
                "annotations": [{"bbox": box, "bbox_mode": 0, "category_id": kind} for kind, box, _ in objects],
                "segments_info": [{"id": value, "category_id": kind, "area": 48} for kind, _, value in objects],
            }
        )  # fmt: skip
    words = {"thing_classes": [HOSTILE], "stuff_classes": ["sky-other-merged"], "predicate_classes": ["on", "over"]}
    (folder / "psg.json").write_text(json.dumps(words | {"data": entries, "test_image_ids": ["1"]}))
    return folder


def test_scene_graphs(tmp_path: Path) -> None:
    found = only(psg(tmp_path, [[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    assert found.counts == {
        "images": 3, "objects": 6, "relations": 6, "test images": 1, "object classes": 2, "predicates": 2,
    }  # fmt: skip
    assert len(found.scenes) == 2
    assert list(found.scenes[0].relations) == [(HOSTILE, "on", "sky"), ("sky", "over", HOSTILE)]
    spread = bars(found)
    assert spread["Predicates"] == {"on": 4, "over": 2} and spread["Relations in a picture"]["0"] == 1
    assert spread["Kinds of objects"] == {HOSTILE: 3, "sky-other-merged": 3}


def test_scenes_without_pictures_or_with_broken_ones(tmp_path: Path) -> None:
    psg(tmp_path, [[0, 1, 0]])
    (tmp_path / "1.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    (tmp_path / "2.jpg").write_bytes(b"broken")
    found = only(tmp_path)
    assert len(found.scenes) == 1 and found.problem_count == 2
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / name).unlink()
    found = only(tmp_path)
    assert not found.scenes and bars(found)["Predicates"] == {"on": 2}


def test_scene_graphs_of_many_clients(tmp_path: Path) -> None:
    for user in ("User1", "User2"):
        (psg(tmp_path / "x", [[0, 1, 0]]) / "psg.json").rename(tmp_path / f"{user}.json")
    found = only(tmp_path)
    assert found.counts["files"] == 2 and found.counts["relations"] == 4 and bars(found)["Predicates"] == {"on": 4}


# ---- Words, labels, classes


def test_mirflickr(tmp_path: Path) -> None:
    for number in range(1, 5):
        paint(tmp_path / "mirflickr" / f"im{number}.jpg", number)
        tags = tmp_path / "mirflickr" / "meta" / "tags" / f"tags{number}.txt"
        tags.parent.mkdir(parents=True, exist_ok=True)
        tags.write_text("street\n" + ("red\n" if number > 2 else ""))
    (tmp_path / "mirflickr" / "doc").mkdir()
    (tmp_path / "mirflickr" / "doc" / "common_tags.txt").write_text("street 4\n")
    lists = tmp_path / "mirflickr25k_annotations_v080"
    lists.mkdir()
    (lists / "night.txt").write_text("1\n2\n")
    (lists / "people.txt").write_text("4\n")
    found = only(tmp_path)
    assert found.counts == {"photos": 4, "tags in the vocabulary": 1, "without such a tag": 0, "classes": 2}
    assert titles(found) == ["By night"] and len(found.strips[0].pictures) == 2
    assert [(list(card.tags), list(card.labels)) for card in found.cards][2:] == [
        (["street", "red"], []), (["street", "red"], ["people"]),
    ]  # fmt: skip
    assert bars(found)["Tags"] == {"street": 4, "red": 2} and bars(found)["Labels"] == {"night": 2, "people": 1}
    assert bars(found)["Tags under a photo"] == {"1": 2, "2": 2}
    assert [(row.title, row.note) for row in found.classes] == [("night", "2"), ("people", "1")]


def test_fashion(tmp_path: Path) -> None:
    matfiles.write(tmp_path / "image.mat", "Image", np.full((3, 8, 6, 3), 90, np.uint8))
    matfiles.write(tmp_path / "tag.mat", "Tag", np.array([[1, 0], [1, 1], [0, 0]], np.uint8))
    labels = [[1, 0, 1, 0, 0], [0, 1, 0, 1, 0], [0, 1, 0, 1, 0]]
    matfiles.write(tmp_path / "label.mat", "Label", np.array(labels, np.uint8))
    (tmp_path / "levels.json").write_text('{"levels": [2, 3]}')
    found = only(tmp_path)
    assert found.counts["pairs"] == 3 and found.counts["words"] == 2
    assert [(list(card.tags), list(card.labels)) for card in found.cards] == [
        (["word 1"], ["1", "1"]), (["word 1", "word 2"], ["2", "2"]), ([], ["2", "2"]),
    ]  # fmt: skip
    assert bars(found)["Classes of the second level"] == {"1": 1, "2": 2}
    (tmp_path / "levels.json").write_text(
        json.dumps({"levels": [2, 3], "names": [["a", "b"], ["x", "y", "z"]], "words": ["red", "blue"]})
    )
    found = only(tmp_path)
    assert bars(found)["Words"] == {"red": 2, "blue": 1} and [row.title for row in found.classes] == ["x", "y"]


def celeba(folder: Path, pictures: bool = True) -> Path:
    """Four pictures: two in fog, of which one by night."""
    values = {1: (" 1", "-1"), 2: ("-1", "-1"), 3: (" 1", " 1"), 4: ("-1", "-1")}
    for number in values if pictures else ():
        paint(folder / "img_align_celeba" / f"{number:06}.jpg", number)
    rows = [f"{number:06}.jpg {' '.join(row)}" for number, row in values.items()]
    folder.mkdir(exist_ok=True)
    (folder / "list_attr_celeba.txt").write_text("\n".join(["4", "Foggy Night", *rows]) + "\n")
    return folder


def test_celeba(tmp_path: Path) -> None:
    found = only(celeba(tmp_path / "celeba"))
    assert found.counts == {"pictures": 4, "attributes": 2}
    assert titles(found) == ["4 of 4 pictures", "By night", "In fog"]
    assert bars(found)["How common each attribute is"] == {"Foggy": 50, "Night": 25}
    assert bars(found)["Attributes of a picture"] == {"0": 2, "1": 1, "2": 1}
    alone = only(celeba(tmp_path / "alone", pictures=False))
    assert not alone.strips and not alone.classes and len(alone.bars) == 2


def test_cifar(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for name, labels in (("data_batch_1.bin", [0, 0, 1]), ("test_batch.bin", [1])):
        rows = [np.append(np.uint8(label), rng.integers(0, 255, 3072, np.uint8)) for label in labels]
        (tmp_path / name).write_bytes(np.concatenate(rows).astype(np.uint8).tobytes())
    (tmp_path / "batches.meta.txt").write_text("gate\nstatue\npond\n")
    found = only(tmp_path)
    assert found.counts == {"training pictures": 3, "test pictures": 1, "classes": 3, "size": "32 x 32"}
    assert [(row.title, len(row.pictures)) for row in found.classes] == [("gate", 2), ("statue", 1)]
    assert bars(found)["Training pictures by class"] == {"gate": 2, "statue": 1}


def classes(folder: Path) -> Path:
    for name, count in (("cat", 3), (HOSTILE.replace("/", ""), 14)):
        for number in range(count):
            paint(folder / name / f"{number:02}.png", number)
    return folder


def test_class_folders_and_a_broken_picture(tmp_path: Path) -> None:
    folder = classes(tmp_path / "mine")
    (folder / "cat" / "01.png").write_bytes(b"not a picture")
    found = only(folder)
    assert found.counts == {"pictures": 17, "classes": 2} and found.problem_count == 1
    assert "01.png: not a JPEG, PNG or WebP picture" in found.problems[0]
    assert sorted((row.note, len(row.pictures)) for row in found.classes) == [("14", 10), ("3", 2)]
    # 14 pictures, ten of them, evenly spread: every 13/9
    shown = next(row for row in found.classes if row.note == "14").pictures
    assert [picture.words[-6:-4] for picture in shown] == "00 01 03 04 06 07 09 10 12 13".split()  # noqa: SIM905


# ---- Traces


def walkers(folder: Path) -> Path:
    """Two tourists who walk together to the north, two residents who go a kilometre off, and a sign; in two cities."""
    folder.mkdir()
    for city, longitude in (("alba", 9.0), ("brig", 29.0)):  # too far apart for one map
        rows = ["device,time,lat,lon,stationary"]
        for device, east, speed in (
            ("tourist-1", 0, 20), ("tourist-2", 10, 20), ("resident-1", 900, 0), ("resident-2", 1000, 200),
        ):  # fmt: skip
            for slot in range(6):
                where = f"{50 + speed * slot * METRE:.7f},{longitude + east * METRE / np.cos(np.radians(50)):.7f}"
                rows.append(f"{city}-{device},2024-06-21T08:0{slot // 2}:{30 * (slot % 2):02},{where},False")
        rows.append(f"{city}-sign-1,2024-06-21T08:00:00,50.001,{longitude},True")
        (folder / f"{city}.csv").write_text("\n".join(rows) + "\n")
    return folder


def test_traces_of_two_cities(tmp_path: Path) -> None:
    whole = gather(walkers(tmp_path / "traces"))
    found = whole.sets[0]
    assert found.counts["cities"] == 2 and found.counts["devices"] == 10 and found.counts["standing still"] == 2
    drawn = {shown.title: {layer.name: layer for layer in shown.layers} for shown in whole.maps}
    assert set(drawn) == {"alba", "brig"}
    assert set(drawn["alba"]) == {"tourists", "residents", "stationary devices"}
    first = drawn["alba"]["tourists"]
    assert first.y[:7] == pytest.approx([0, 20, 40, 60, 80, 100, None], abs=0.2) and first.kind == "ways"
    assert drawn["alba"]["stationary devices"].words == ["alba-sign-1"]
    # the resident with 200 m to a slot leaps: points, but no line between them
    assert drawn["alba"]["residents"].y[1:].count(None) >= 5
    # the tourists are together, and the sign at 111 m has them near in the last slots; nobody else meets
    assert bars(found)["Active devices"]["8:00"] == pytest.approx(8 + 2 / 6, abs=0.01)


def test_contacts_alone(tmp_path: Path) -> None:
    (tmp_path / "meet.dat").write_text("0 1 2\n20 1 2\n40 1 2\n3600 1 3\n")
    found = only(tmp_path / "meet.dat")
    assert found.layout == "traces" and found.counts["devices"] == 3 and found.counts["contacts"] == 2
    assert bars(found)["How long contacts last"]["1 min"] == 2
    assert gather(tmp_path / "meet.dat").maps == []


def test_kinds_of_devices_are_told_by_their_names() -> None:
    names = tuple(f"alba-{kind}-{n:03}" for kind in ("tourist", "resident") for n in range(3))
    assert _kinds(names) == ["tourists"] * 3 + ["residents"] * 3
    assert _kinds(("anna", "bert", "carl", "dora")) == ["devices"] * 4
    assert _kinds(("1", "2", "3")) == ["devices"] * 3 and _kinds(()) == []


# ---- Maps


def layer(source: MapSource) -> Layer:
    shown = maps.draw([source])
    assert len(shown) == 1 and len(shown[0].layers) == 1
    return shown[0].layers[0]


def test_positions_in_metres_of_their_own() -> None:
    drawn = layer(
        MapSource("photos", "photos", [np.array([[500.0, 30.0], [np.nan, 1.0], [510.0, 20.0]])], plane="hall")
    )
    assert list(drawn.x) == [0.0, 10.0] and list(drawn.y) == [10.0, 0.0]
    assert maps.draw([MapSource("photos", "photos", [np.full((3, 2), np.nan)])]) == [] == maps.draw([])


def test_who_stands_still_takes_one_point() -> None:
    track = np.array([[0, 0], [0.5, 0], [1, 0], [np.nan, np.nan], [np.nan, np.nan], [9, 0], [9, 0.1]], float)
    drawn = layer(MapSource("devices", "ways", [track], plane="hall"))
    assert list(drawn.x) == [0.0, None, 9.0, None]


def test_many_ways_and_photographs_are_thinned() -> None:
    track = np.column_stack([np.arange(10_000) * 5.0, np.zeros(10_000)])
    shown = maps.draw([MapSource("devices", "ways", [track] * 8, plane="hall")])[0]
    drawn = shown.layers[0]
    assert len(drawn.x) == 4 * 10_001 and shown.note == "Tracks of about 50% of the devices."
    drawn = layer(MapSource("photos", "photos", [track], [str(n) for n in range(10_000)], plane="hall"))
    assert len(drawn.x) == maps.MOST_POINTS and drawn.words[-1] == "9999" and drawn.x[-1] == 49_995.0


def test_evenly_and_in_classes() -> None:
    assert evenly(range(10), 4) == [0, 3, 6, 9] and evenly([7, 8], 5) == [7, 8] and evenly([], 3) == []
    found = histogram("t", "u", np.array([1, 40, 40]), "a")
    assert found.names[0] == "1–3" and found.counts[0] == 1 and found.counts[-1] == 2 and sum(found.counts) == 3
    assert histogram("t", "u", np.array([], int), "a").counts == [0]


# ---- The command


class Page(HTMLParser):
    def __init__(self, file: Path) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.words: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))
        self.text = " ".join(self.words)
        self.parts = [attributes["id"] for tag, attributes in self.seen if tag == "section"]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_command_writes_a_page_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = classes(tmp_path / "my <i>sights</i>".replace("/", "") / "photos")
    (folder / "cat" / "01.png").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert main(["data", "show", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "1 problem: see the page" in printed and "page: photos-data.html" in printed
    page = Page(tmp_path / "photos-data.html")
    assert page.parts == ["found", "problems", "classes", "distributions"]
    assert HOSTILE in page.text and all(a["src"].startswith("data:image/jpeg") for t, a in page.seen if t == "img")
    assert main(["data", "show", str(folder), "--out", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["page"] == str(tmp_path / "photos-data.html") and told["problems"] == 1
    assert told["found"][0]["layout"] == "folder" and told["found"][0]["counts"]["pictures"] == 17


def test_what_is_no_data_set_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "show", str(tmp_path / "absent")]) == 1
    assert "no such file or folder" in capsys.readouterr().err


def test_one_unreadable_set_does_not_hide_the_others(tmp_path: Path) -> None:
    classes(tmp_path / "all" / "photos")
    psg(tmp_path / "all" / "scenes", [[0, 1, 0]])
    (tmp_path / "all" / "scenes" / "psg.json").write_text('{"predicate_classes": ["on"], "data": [')
    found = {item.name: item for item in gather(tmp_path / "all").sets}
    assert found["scenes"].problem_count == 1 and "psg.json" in found["scenes"].problems[0]
    assert found["photos"].counts["pictures"] == 17


# ---- A town


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from wayfare.town.make import Spec, make

    folder = tmp_path_factory.mktemp("towns") / "hamlet"
    make(folder, Spec("tiny", 3, height=48, width=64, layouts=("msls", "psg", "celeba")), workers=1)
    return folder


@pytest.fixture(scope="session")
def whole_town(town: Path) -> Collection:
    return gather(town)


def test_a_town_is_shown_whole(whole_town: Collection) -> None:
    found = {item.layout: item for item in whole_town.sets}
    assert list(found) == ["msls", "traces", "psg", "celeba"] and not any(item.problem_count for item in found.values())
    assert whole_town.town == {"size": "tiny", "seed": "3"}
    assert {"By day", "By night", "One place, twice"} <= set(titles(found["msls"]))
    assert any(title.startswith("A walk along a street in ") for title in titles(found["msls"]))
    assert {"In fog", "In rain", "In snow"} & set(titles(found["celeba"]))
    assert "By night" not in titles(found["celeba"])  # has been shown already
    assert 4 <= len(found["psg"].scenes) <= 6 and all(len(scene.relations) >= 2 for scene in found["psg"].scenes)
    predicates = next(item for item in found["psg"].bars if item.title == "Predicates")
    assert isinstance(predicates, Bars) and predicates.log and max(predicates.counts) > 5 * min(predicates.counts)


def test_walkers_and_photographs_of_a_city_are_on_one_map(whole_town: Collection) -> None:
    assert len(whole_town.maps) == 2
    for shown in whole_town.maps:
        layers = {item.name: item for item in shown.layers}
        assert {"residents", "tourists", "vehicles", "stationary devices", "database"} <= set(layers)
        ways = [(x, y) for item in shown.layers if item.kind == "ways" for x, y in zip(item.x, item.y) if x is not None]
        taken = [(x, y) for item in shown.layers if item.kind == "photos" for x, y in zip(item.x, item.y)]
        low, high = np.min(ways, axis=0), np.max(ways, axis=0)
        inside = np.mean([((low <= place) & (place <= high)).all() for place in np.array(taken)])
        assert inside > 0.8  # photographs of other days may be elsewhere


def test_the_page_of_a_town_is_not_too_large(town: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from plotly.offline import get_plotlyjs

    assert main(["data", "show", str(town), "--out", str(tmp_path / "page.html")]) == 0
    page = Page(tmp_path / "page.html")
    assert page.parts == ["found", "pictures", "map", "scenes", "classes", "distributions"]
    assert "A synthetic town (size tiny, seed 3)" in page.text
    assert (tmp_path / "page.html").stat().st_size - len(get_plotlyjs().encode()) < 3_000_000
