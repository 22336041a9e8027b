"""The town in the layouts of PSG, MIRFlickr, FashionVC, CelebA and CIFAR-10, read back by the loaders of these."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from wayfare.attributes.data import celeba
from wayfare.hashing.data import fashion, mirflickr
from wayfare.io.findings import Problems
from wayfare.io.images import decode
from wayfare.objects.data import cifar
from wayfare.scenes.data import psg, super_classes
from wayfare.scenes.data.scene_graphs import read_panoptic
from wayfare.town.model import Camera, Item, Photo, PicturePart, Shot, Truth, View
from wayfare.town.truth import ATTRIBUTES, LABELS
from wayfare.town.words import CLASSES, PREDICATE_CLASSES, SIGHTS, THING_CLASSES
from wayfare.town.write import celeba as write_celeba
from wayfare.town.write import cifar as write_cifar
from wayfare.town.write import fashion as write_fashion
from wayfare.town.write import mirflickr as write_mirflickr
from wayfare.town.write import psg as write_psg
from wayfare.town.write.crops import held_out, square_crop

HEIGHT, WIDTH = 48, 64
CAMERA = Camera("phone", 70.0, height=1.6, gain=(1.0, 1.0, 1.0), gamma=1.0, noise=0.0, vignette=0.0)
WRITERS = (write_psg, write_mirflickr, write_fashion, write_celeba, write_cifar)
COLOURS = {kind: (5 * place, 255 - 5 * place, 37 * place % 256) for place, kind in enumerate(CLASSES)}


def shot(number: int, walk: int = 0, pano: bool = False) -> Shot:
    return Shot(
        key=f"key{number:019d}", city="Arlenz", walker=f"walker{walk // 2}", sequence=f"walk{walk:018d}", frame=number,
        x=1.0, y=2.0, heading=90.0, time=36_000.0, date="2024-06-21", camera=CAMERA, weather="rain", season="summer",
        night=False, direction="Forward", pano=pano, role="resident",
    )  # fmt: skip


def photo(number: int, walk: int, kinds: tuple[str, ...], **facts: Any) -> Photo:
    """Things side by side, 16 pixels wide and 20 high, before a sky; the two columns at the right belong to nothing."""
    segments = np.full((HEIGHT, WIDTH), len(kinds), np.int16)
    segments[:, -2:] = -1
    items = []
    for place, kind in enumerate(kinds):
        x0 = 16 * place
        segments[10:30, x0 : x0 + 16] = place
        items.append(Item(kind, (x0, 10, x0 + 16, 30), 320, place))
    sky = int((segments == len(kinds)).sum())
    items.append(Item("sky", (0, 0, WIDTH - 2, HEIGHT), sky, len(kinds)))
    colours = np.array([*(COLOURS[item.kind] for item in items), (0, 0, 0)], np.uint8)
    pixels = colours[segments]
    parts = tuple(PicturePart(item.kind, None, 5.0) for item in items)
    truth = Truth(
        items=tuple(items),
        relations=facts.get("relations", ((0, 1, "beside"),) if len(kinds) > 1 else ()),
        tags=facts.get("tags", ("sky", "brücke")),
        labels=facts.get("labels", ("rain", "sky")),
        attributes=facts.get("attributes", ("Rainy", "Summer")),
        segments=segments,
    )
    taken = shot(number, walk)
    return Photo(taken, View(pixels, np.where(segments < 0, 0, segments).astype(np.int16), parts, ()), truth, 47.0, 8.0)


def jpeg(one: Photo) -> bytes:
    out = io.BytesIO()
    Image.fromarray(one.view.pixels).save(out, "JPEG", quality=95)
    return out.getvalue()


def write(folder: Path, layout: ModuleType, photos: list[Photo], backwards: bool = False, twice: bool = False) -> Path:
    """As make.py does it: take in any order, entries through JSON, index once."""
    stage = folder.with_name(folder.name + "-stage")
    numbered = list(enumerate(photos))
    facts: dict[int, Any] = {}
    for number, one in reversed(numbered) if backwards else numbered:
        for _ in range(2 if twice else 1):
            facts[number] = json.loads(json.dumps(layout.take(folder, stage, number, one, jpeg(one))))
    for _ in range(2 if twice else 1):
        layout.index(folder, stage, [(one.shot, facts[number]) for number, one in numbered], 0)
    shutil.rmtree(stage, ignore_errors=True)
    return folder


def many(count: int = 60, walks: int = 12) -> list[Photo]:
    """Photographs with two things each, going through all kinds."""
    kinds = THING_CLASSES
    return [
        photo(number, number * walks // count, (kinds[number % len(kinds)], kinds[(7 * number + 3) % len(kinds)]))
        for number in range(count)
    ]


# ---- All of them


@pytest.mark.parametrize("layout", WRITERS, ids=lambda layout: layout.__name__.rpartition(".")[2])
def test_the_same_photographs_give_the_same_bytes(tmp_path: Path, layout: ModuleType) -> None:
    first = write(tmp_path / "a", layout, many())
    second = write(tmp_path / "b", layout, many(), backwards=True, twice=True)
    assert digest(first) == digest(second)
    assert len(digest(first)) >= 4


def digest(folder: Path) -> dict[str, str]:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_each_layout_has_its_share_and_no_panorama() -> None:
    shots = [shot(number) for number in range(4000)]
    shares = {layout: sum(map(layout.wants, shots)) / len(shots) for layout in WRITERS}
    assert shares[write_fashion] == shares[write_cifar] == 1
    assert abs(shares[write_psg] - 1 / 2) < 0.03 and abs(shares[write_mirflickr] - 1 / 2) < 0.03
    assert abs(shares[write_celeba] - 1 / 4) < 0.03
    both = sum(write_psg.wants(one) and write_mirflickr.wants(one) for one in shots) / len(shots)
    assert abs(both - 1 / 4) < 0.03  # drawn apart
    for layout in WRITERS:
        assert not any(layout.wants(shot(number, pano=True)) for number in range(100))


# ---- PSG


def test_ids_by_hand() -> None:
    assert write_psg.segment_id(0) == 1
    assert write_psg.segment_id(1) == 1 + 0x9E3779 == 10_368_890
    assert write_psg.segment_id(2) == (1 + 2 * 0x9E3779) % 2**24 == 3_960_563
    ids = {write_psg.segment_id(place) for place in range(2**15)}
    assert len(ids) == 2**15 and 0 not in ids and max(ids) < 2**24


def test_a_panoptic_picture_by_hand(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(write_psg.panoptic_png(np.array([[0, 1, -1], [1, 1, 0]], np.int16)))
    with Image.open(tmp_path / "a.png") as image:
        assert (image.mode, image.size) == ("RGB", (3, 2))
    pixels = decode(tmp_path / "a.png")
    assert pixels[0].tolist() == [[1, 0, 0], [0x7A, 0x37, 0x9E], [0, 0, 0]]
    assert read_panoptic(tmp_path / "a.png").tolist() == [[1, 10_368_890, 0], [10_368_890, 10_368_890, 1]]
    nothing = write_psg.panoptic_png(np.full((2, 2), -1, np.int16))
    (tmp_path / "a.png").write_bytes(nothing)
    assert not read_panoptic(tmp_path / "a.png").any()


def test_psg_there_and_back(tmp_path: Path) -> None:
    photos = many()
    folder = write(tmp_path / "psg", write_psg, photos)
    assert psg.recognises(folder)
    graphs = psg.load(folder, strict=True, pictures=True)
    assert len(graphs) == 60
    assert (graphs.classes, graphs.predicates) == (CLASSES, PREDICATE_CLASSES)
    for index, one in enumerate(photos):
        found = graphs[index]
        assert (found.image_id, found.size) == (str(index + 1), (HEIGHT, WIDTH))
        assert [CLASSES[label] for label in found.labels] == [item.kind for item in one.truth.items]
        assert found.boxes.tolist() == [list(item.box) for item in one.truth.items]
        assert found.relations.tolist() == [[0, 1, PREDICATE_CLASSES.index("beside")]]
        np.testing.assert_array_equal(graphs.segments(index), one.truth.segments)
        picture = graphs.picture(index)
        assert picture is not None and picture.parent.name == ("val2017" if graphs.test[index] else "train2017")
        assert picture.read_bytes() == jpeg(one)
    findings = psg.check(folder)
    assert findings.problems.count == 0
    assert (findings.counts["whole pictures"], findings.counts["whole panoptic pictures"]) == (60, 60)
    assert 1 <= findings.counts["test images"] <= 15  # type: ignore[operator]
    assert graphs.lines.tolist() == list(range(2, 62))  # a picture on each line
    groups = super_classes.load(folder / "word_categorized.json", graphs.classes, graphs.predicates)
    assert groups.objects[groups.object_of[CLASSES.index("dog")]] == "Animals"
    assert groups.predicates[groups.predicate_of[PREDICATE_CLASSES.index("beside")]] == "Positional Relations"


def test_a_photograph_without_relations_is_kept(tmp_path: Path) -> None:
    folder = write(tmp_path / "psg", write_psg, [photo(1, 0, ("dog",))])
    assert psg.load(folder, strict=True).counts()["images without relations"] == 1


# ---- MIRFlickr


def test_mirflickr_there_and_back(tmp_path: Path) -> None:
    photos = [
        photo(number, number // 5, ("dog", "car"), tags=("sky", "brücke", f"n{number}")[: number % 4],
              labels=("dog", "sky") if number % 2 else ("night",))
        for number in range(60)
    ]  # fmt: skip
    folder = write(tmp_path / "mirflickr", write_mirflickr, photos)
    assert mirflickr.recognises(folder)
    found = mirflickr.load(folder, problems=Problems(strict=True))
    assert found.numbers.tolist() == list(range(1, 61))
    assert found.vocabulary == ("sky", "brücke")  # under 45 and 30 of 60; each n... is under one
    common = (folder / "mirflickr" / "doc" / "common_tags.txt").read_text(encoding="utf-8")
    assert common == "sky 45\nbrücke 30\n"
    assert [tags.tolist() for tags in np.split(found.tags, found.tag_offsets[1:-1])[:4]] == [[], [0], [0, 1], [0, 1]]
    assert found.texts[3] == "sky brücke n3"
    assert found.classes == LABELS
    assert [found.classes[place] for place in np.flatnonzero(found.labels[1])] == ["dog", "sky"]
    clearly = mirflickr.load(folder, labels="relevant")
    assert len(clearly.classes) == 14 and set(clearly.classes) <= {f"{name}_r1" for name in LABELS}
    # a dog covers 320 of 3072 pixels, the sky 2336: both clearly; a car does too, but it is not among the labels
    assert [clearly.classes[place] for place in np.flatnonzero(clearly.labels[1])] == ["dog_r1", "sky_r1"]
    assert not clearly.labels[0].any()
    assert mirflickr.check(folder).problems.count == 0


# ---- CelebA


def test_celeba_there_and_back(tmp_path: Path) -> None:
    photos = many()
    folder = write(tmp_path / "celeba", write_celeba, photos)
    assert celeba.recognises(folder)
    table = celeba.load(folder, strict=True, pictures=True)
    assert (table.names, len(table)) == (ATTRIBUTES, 60)
    assert [table.names[place] for place in np.flatnonzero(table.values[7])] == ["Rainy", "Summer"]
    assert table.partition is not None and table.identity is not None
    walks = np.array([one.shot.sequence for one in photos])
    for walk in set(walks):
        assert len(set(table.partition[walks == walk])) == 1
    assert np.bincount(table.partition).tolist() == [40, 10, 10]  # 12 walks of 5: two hold at least a tenth
    assert table.identity.tolist() == [1 + number // 10 for number in range(60)]  # two walks each
    assert celeba.check(folder).problems.count == 0
    assert (folder / "list_attr_celeba.txt").read_text().split("\n")[2].startswith("000001.jpg -1 -1")


# ---- CIFAR-10


def test_cifar_there_and_back(tmp_path: Path) -> None:
    photos = [photo(number, number // 4, (SIGHTS[number % 10], "dog")) for number in range(80)]
    folder = write(tmp_path / "cifar", write_cifar, photos)
    train, test = cifar.load(folder)
    assert train.classes == SIGHTS
    assert len(train) + len(test) == 80 and 14 <= len(test) <= 20  # 20 walks of 4: a sixth is 13.3, so four walks
    batches = [file.stat().st_size // 3073 for file in sorted((folder / "cifar-10-batches-bin").glob("data_*"))]
    assert len(batches) == 5 and max(batches) - min(batches) <= 1
    for part in (train, test):
        for image, label in zip(part.images, part.labels):
            assert image[16, 16].tolist() == list(COLOURS[SIGHTS[label]])
    counts = np.bincount(np.concatenate([train.labels, test.labels]), minlength=10)
    assert counts.tolist() == [8] * 10


def test_sights_that_are_hardly_seen_are_left_out(tmp_path: Path) -> None:
    photos = many(20)
    small = photos[0]
    hidden = small.truth.items[0]._replace(kind="tower", area=63)
    narrow = small.truth.items[0]._replace(kind="tower", box=(0, 0, 5, 40), area=200)
    for item in (hidden, narrow):
        truth = Truth(**{**vars(small.truth), "items": (item,)})
        one = Photo(small.shot, small.view, truth, 0.0, 0.0)
        assert write_cifar.take(tmp_path, tmp_path, 0, one, b"") == {"sights": 0}
    assert list(tmp_path.iterdir()) == []


def test_few_sights_make_few_batches(tmp_path: Path) -> None:
    photos = [photo(number, number, ("gate",)) for number in range(3)]
    train, test = cifar.load(write(tmp_path / "cifar", write_cifar, photos))
    assert (len(train), len(test)) == (2, 1)


# ---- FashionVC


def test_fashion_there_and_back(tmp_path: Path) -> None:
    photos = many(120, walks=24)
    folder = write(tmp_path / "fashion", write_fashion, photos)
    assert fashion.recognises(folder)
    pairs = fashion.load(folder, problems=Problems(strict=True))
    assert pairs.images.shape == (120, 64, 64, 3)
    assert 18 <= pairs.queries <= 25  # 24 walks of 5: 15 % are 18
    assert pairs.names is not None and pairs.words is not None
    assert pairs.levels == (len(pairs.names[0]), len(pairs.names[1]))
    assert pairs.levels[1] >= 20
    for image, coarse, fine in zip(pairs.images, pairs.coarse, pairs.fine):
        kind = pairs.names[1][fine]
        assert image[32, 32].tolist() == list(COLOURS[kind])
        assert kind in write_fashion.WORDS and pairs.names[0][coarse] in write_fashion.THING_GROUPS
    assert pairs.parents.min() >= 0
    assert {"sky", "brücke"} <= set(pairs.words)
    assert pairs.tags[:, pairs.words.index("sky")].all()
    assert fashion.check(folder).problems.count == 0
    text = (folder / "image.mat").read_bytes()[:116]
    assert text.startswith(b"MATLAB 5.0 MAT-file") and text[19:] == b" " * 97  # no date


def test_words_are_about_the_thing(tmp_path: Path) -> None:
    about = 0
    for number in range(200):
        entry = write_fashion.take(tmp_path, tmp_path, number, photo(number, 0, ("dog",), tags=("monday",)), b"")
        assert entry["kind"] == "dog" and "monday" in entry["words"]
        about += bool(set(entry["words"]) & set(write_fashion.WORDS["dog"]))
    assert 150 < about < 200  # mostly, not always


def test_photographs_without_a_thing_give_no_pair(tmp_path: Path) -> None:
    assert write_fashion.take(tmp_path, tmp_path, 0, photo(0, 0, ()), b"") == {}
    folder = write(tmp_path / "fashion", write_fashion, [photo(0, 0, ()), *many(10, walks=2)])
    assert len(fashion.load(folder, problems=Problems(strict=True))) == 10


# ---- Cutting out, keeping walks apart


def test_square_crops() -> None:
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[:, 30:, 0] = 200  # the right half is red
    assert square_crop(pixels, (2, 5, 12, 15), 8).tolist() == np.zeros((8, 8, 3)).tolist()
    assert square_crop(pixels, (54, 34, 60, 40), 8)[..., 0].tolist() == [[200] * 8] * 8  # moved into the picture
    whole = square_crop(pixels, (0, 0, 60, 40), 8)  # not larger than the picture is high, in its middle
    assert whole[:, :3].max() == 0 and whole[:, 5:, 0].min() == 200
    half = square_crop(pixels, (25, 15, 35, 25), 124)  # 12.4 pixels: ten to the pixel, red from the middle on
    assert half[60, 56, 0] == 0 and half[60, 67, 0] == 200


def test_walks_are_held_out_whole() -> None:
    walks = [f"w{number // 10}" for number in range(200)]
    kept = held_out(walks, "some purpose", 0.15)
    assert kept.sum() == 30
    assert all(len(set(kept[start : start + 10])) == 1 for start in range(0, 200, 10))
    assert held_out(walks, "another purpose", 0.15).tolist() != kept.tolist()
    assert held_out(["a", "b"], "p", 0.01).sum() == 1
    assert held_out(["a"] * 10, "p", 0.2).tolist() == [False] * 8 + [True] * 2
    assert held_out([], "p", 0.2).tolist() == []
